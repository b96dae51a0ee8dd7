//! Reads a Parquet file back as far as the export uses the format, according to its specification.

use std::collections::HashMap;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Missing,
    /// Booleans are 0 and 1.
    Number(i64),
    Text(String),
}

pub(crate) struct Table {
    pub(crate) rows: usize,
    pub(crate) columns: HashMap<String, Vec<Value>>,
    pub(crate) about: HashMap<String, String>,
}

/// A value of Thrift's compact protocol.
#[derive(Clone, Debug)]
enum Thrift {
    Number(i64),
    Text(Vec<u8>),
    List(Vec<Thrift>),
    Struct(HashMap<i16, Thrift>),
}

impl Thrift {
    fn get(&self, field: i16) -> Option<&Thrift> {
        match self {
            Thrift::Struct(fields) => fields.get(&field),
            other => panic!("{other:?} is not a struct"),
        }
    }

    fn number(&self, field: i16) -> i64 {
        match self.get(field) {
            Some(Thrift::Number(number)) => *number,
            other => panic!("field {field}: {other:?}"),
        }
    }

    fn text(&self, field: i16) -> String {
        match self.get(field) {
            Some(Thrift::Text(text)) => String::from_utf8(text.clone()).unwrap(),
            other => panic!("field {field}: {other:?}"),
        }
    }

    fn list(&self, field: i16) -> &[Thrift] {
        match self.get(field) {
            Some(Thrift::List(list)) => list,
            other => panic!("field {field}: {other:?}"),
        }
    }
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn u32(&mut self) -> usize {
        u32::from_le_bytes(self.take(4).try_into().unwrap()) as usize
    }

    fn varint(&mut self) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return value;
            }
        }
    }

    fn zigzag(&mut self) -> i64 {
        let value = self.varint();
        (value >> 1) as i64 ^ -((value & 1) as i64)
    }

    fn value(&mut self, kind: u8) -> Thrift {
        match kind {
            5 | 6 => Thrift::Number(self.zigzag()),
            8 => {
                let length = self.varint() as usize;
                Thrift::Text(self.take(length).to_vec())
            }
            9 => {
                let head = self.byte();
                let count = match head >> 4 {
                    15 => self.varint() as usize,
                    short => short as usize,
                };
                Thrift::List((0..count).map(|_| self.value(head & 15)).collect())
            }
            12 => self.structure(),
            other => panic!("type {other}"),
        }
    }

    fn structure(&mut self) -> Thrift {
        let mut fields = HashMap::new();
        let mut last = 0;
        loop {
            let head = self.byte();
            if head == 0 {
                return Thrift::Struct(fields);
            }
            assert_ne!(head >> 4, 0, "fields are close together here");
            last += i16::from(head >> 4);
            let value = self.value(head & 15);
            fields.insert(last, value);
        }
    }

    /// Values of one bit-packed run.
    fn packed(&mut self, width: usize, count: usize) -> Vec<usize> {
        let head = self.varint() as usize;
        assert_eq!(head & 1, 1, "packed, not repeated");
        let groups = head >> 1;
        let bits = Bits(self.take(groups * width));
        (0..count).map(|index| bits.at(index * width, width)).collect()
    }
}

struct Bits<'a>(&'a [u8]);

impl Bits<'_> {
    fn at(&self, from: usize, width: usize) -> usize {
        let bit = |at: usize| usize::from(self.0[at / 8] >> (at % 8) & 1);
        (0..width).map(|index| bit(from + index) << index).sum()
    }
}

pub(crate) fn read(bytes: &[u8]) -> Table {
    assert_eq!((&bytes[..4], &bytes[bytes.len() - 4..]), (&b"PAR1"[..], &b"PAR1"[..]));
    let length = Bytes(&bytes[bytes.len() - 8..]).u32();
    let footer = Bytes(&bytes[bytes.len() - 8 - length..bytes.len() - 8]).structure();
    let shapes = &footer.list(2)[1..];
    assert_eq!(footer.list(2)[0].number(5), shapes.len() as i64);
    let mut columns: HashMap<String, Vec<Value>> = HashMap::new();
    for group in footer.list(4) {
        for (shape, chunk) in shapes.iter().zip(group.list(1)) {
            let meta = chunk.get(3).unwrap();
            assert_eq!(meta.number(4), 6, "zstd");
            let values = chunk_values(bytes, shape, meta);
            assert_eq!(values.len(), group.number(3) as usize);
            columns.entry(shape.text(4)).or_default().extend(values);
        }
    }
    let about = footer.list(5).iter().map(|pair| (pair.text(1), pair.text(2)));
    Table { rows: footer.number(3) as usize, columns, about: about.collect() }
}

/// The header of the page at `at`, its content, and what follows.
fn page(bytes: &[u8], at: usize) -> (Thrift, Vec<u8>) {
    let mut rest = Bytes(&bytes[at..]);
    let header = rest.structure();
    let packed = rest.take(header.number(3) as usize);
    let content = zstd::bulk::decompress(packed, header.number(2) as usize).unwrap();
    assert_eq!(content.len(), header.number(2) as usize);
    (header, content)
}

fn chunk_values(bytes: &[u8], shape: &Thrift, meta: &Thrift) -> Vec<Value> {
    let dictionary = meta.get(11).map(|_| {
        let (header, content) = page(bytes, meta.number(11) as usize);
        assert_eq!(header.number(1), 2, "a dictionary");
        let mut content = Bytes(&content);
        let count = header.get(7).unwrap().number(1);
        let text = |_| {
            let length = content.u32();
            String::from_utf8(content.take(length).to_vec()).unwrap()
        };
        (0..count).map(text).collect::<Vec<_>>()
    });
    let (header, content) = page(bytes, meta.number(9) as usize);
    assert_eq!(header.number(1), 0, "data");
    let rows = header.get(5).unwrap().number(1) as usize;
    let mut content = Bytes(&content);
    let present = match shape.number(3) {
        0 => vec![1; rows],
        _ => {
            let length = content.u32();
            Bytes(content.take(length)).packed(1, rows)
        }
    };
    let there = present.iter().sum();
    let mut values = match (shape.number(1), dictionary) {
        (0, _) => {
            let bits = Bits(content.0);
            (0..there).map(|at| Value::Number(bits.at(at, 1) as i64)).collect::<Vec<_>>()
        }
        (1, _) => (0..there)
            .map(|_| i32::from_le_bytes(content.take(4).try_into().unwrap()))
            .map(|value| Value::Number(i64::from(value)))
            .collect(),
        (2, _) => (0..there)
            .map(|_| Value::Number(i64::from_le_bytes(content.take(8).try_into().unwrap())))
            .collect(),
        (6, Some(dictionary)) => {
            let width = usize::from(content.byte());
            let places = content.packed(width, there);
            places.into_iter().map(|place| Value::Text(dictionary[place].clone())).collect()
        }
        other => panic!("{other:?}"),
    }
    .into_iter();
    present
        .iter()
        .map(|&is| if is == 1 { values.next().unwrap() } else { Value::Missing })
        .collect()
}
