//! One column of a row group: values are collected, then encoded as the bytes of its pages.
//!
//! Numbers are stored plain, strings as dictionary indices; zstd compresses the rest. A bit per row
//! marks missing values.

use std::collections::HashMap;

/// Name and type of a column.
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) optional: bool,
}

/// Number types of the format.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool = 0,
    I32 = 1,
    I64 = 2,
    Text = 6,
}

/// The values of one column.
pub(super) enum Column {
    Bool(Vec<bool>),
    I32(Vec<i32>, Present),
    I64(Vec<i64>, Present),
    Text(Texts, Present),
}

impl Column {
    pub(super) fn new(shape: &Shape) -> Column {
        let present = Present(shape.optional.then(Vec::new));
        match shape.kind {
            Kind::Bool => Column::Bool(Vec::new()),
            Kind::I32 => Column::I32(Vec::new(), present),
            Kind::I64 => Column::I64(Vec::new(), present),
            Kind::Text => Column::Text(Texts::default(), present),
        }
    }

    /// The content of the dictionary page, and its number of values.
    pub(super) fn dictionary(&self) -> Option<(Vec<u8>, usize)> {
        let Column::Text(texts, _) = self else { return None };
        let mut page = Vec::new();
        for &text in &texts.used {
            let text = texts.all.get(text as usize).map_or("", String::as_str);
            page.extend_from_slice(&(text.len() as u32).to_le_bytes());
            page.extend_from_slice(text.as_bytes());
        }
        Some((page, texts.used.len()))
    }

    /// The content of the data page.
    pub(super) fn page(&self) -> Vec<u8> {
        let mut page = Vec::new();
        match self {
            Column::Bool(values) => pack_bits(values.iter().map(|&v| u32::from(v)), 1, &mut page),
            Column::I32(values, present) => {
                present.write(&mut page);
                values.iter().for_each(|value| page.extend_from_slice(&value.to_le_bytes()));
            }
            Column::I64(values, present) => {
                present.write(&mut page);
                values.iter().for_each(|value| page.extend_from_slice(&value.to_le_bytes()));
            }
            Column::Text(texts, present) => {
                present.write(&mut page);
                let width = bits(texts.used.len());
                page.push(width as u8);
                groups(texts.values.len(), &mut page);
                pack_bits(texts.values.iter().copied(), width, &mut page);
            }
        }
        page
    }

    pub(super) fn clear(&mut self) {
        match self {
            Column::Bool(values) => values.clear(),
            Column::I32(values, present) => {
                values.clear();
                present.clear();
            }
            Column::I64(values, present) => {
                values.clear();
                present.clear();
            }
            Column::Text(texts, present) => {
                texts.clear();
                present.clear();
            }
        }
    }
}

/// Which rows have a value; None if all do.
pub(super) struct Present(Option<Vec<bool>>);

impl Present {
    pub(super) fn say(&mut self, present: bool) {
        if let Some(rows) = &mut self.0 {
            rows.push(present);
        }
    }

    fn clear(&mut self) {
        if let Some(rows) = &mut self.0 {
            rows.clear();
        }
    }

    fn write(&self, page: &mut Vec<u8>) {
        let Some(rows) = &self.0 else { return };
        let mut levels = Vec::new();
        groups(rows.len(), &mut levels);
        pack_bits(rows.iter().map(|&p| u32::from(p)), 1, &mut levels);
        page.extend_from_slice(&(levels.len() as u32).to_le_bytes());
        page.extend_from_slice(&levels);
    }
}

/// Strings by number. Numbers are valid for the whole file; a row group's dictionary has only those it
/// uses.
#[derive(Default)]
pub(super) struct Texts {
    all: Vec<String>,
    numbers: HashMap<String, u32>,
    /// Index in the dictionary, by number.
    places: HashMap<u32, u32>,
    used: Vec<u32>,
    values: Vec<u32>,
}

impl Texts {
    pub(super) fn number(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.all.len() as u32;
        self.all.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    pub(super) fn push(&mut self, number: u32) {
        let next = self.used.len() as u32;
        let place = *self.places.entry(number).or_insert(next);
        if place == next {
            self.used.push(number);
        }
        self.values.push(place);
    }

    fn clear(&mut self) {
        self.places.clear();
        self.used.clear();
        self.values.clear();
    }
}

/// Number of bits for an index into `values` entries.
fn bits(values: usize) -> u32 {
    usize::BITS - values.saturating_sub(1).leading_zeros()
}

/// The header of a run of bit-packed values, which come in groups of eight.
fn groups(values: usize, page: &mut Vec<u8>) {
    let mut header = (values.div_ceil(8) as u64) << 1 | 1;
    while header >= 0x80 {
        page.push(header as u8 | 0x80);
        header >>= 7;
    }
    page.push(header as u8);
}

/// Lowest bit first. The last group is padded with zeros.
fn pack_bits(values: impl Iterator<Item = u32>, width: u32, page: &mut Vec<u8>) {
    let (mut open, mut held, mut count) = (0u64, 0, 0usize);
    let mut put = |value: u32, page: &mut Vec<u8>| {
        open |= u64::from(value) << held;
        held += width;
        while held >= 8 {
            page.push(open as u8);
            open >>= 8;
            held -= 8;
        }
    };
    for value in values {
        put(value, page);
        count += 1;
    }
    for _ in count..count.next_multiple_of(8) {
        put(0, page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_packed_as_the_format_shows_it() {
        // The example from the format specification: 0 to 7 in three bits each.
        let mut page = Vec::new();
        pack_bits(0..8, 3, &mut page);
        assert_eq!(page, [0b1000_1000, 0b1100_0110, 0b1111_1010]);
    }

    #[test]
    fn a_dictionary_of_one_needs_no_bits_and_of_five_three() {
        assert_eq!([1, 2, 3, 4, 5, 256, 257].map(bits), [0, 1, 2, 2, 3, 8, 9]);
    }
}
