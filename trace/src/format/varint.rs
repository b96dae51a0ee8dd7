//! LEB128 integers and the zigzag mapping, fast enough never to be the bottleneck of a recording.
//!
//! Lengths vary from value to value, so a byte-by-byte loop would mispredict most of the time. Both
//! directions move eight bytes at once and find the length with bit arithmetic instead.

/// Maximum encoded length of a value.
pub(crate) const MAX_LEN: usize = 10;
const CONTINUED: u64 = 0x8080_8080_8080_8080;

/// Maps small numbers of either sign to small numbers.
#[inline]
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[inline]
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// A column being written. The buffer is reused from block to block.
#[derive(Default)]
pub(crate) struct Column {
    bytes: Vec<u8>,
    len: usize,
}

impl Column {
    /// Clears the column and reserves room for `values` values.
    pub(crate) fn begin(&mut self, values: usize) {
        self.len = 0;
        let needed = values * MAX_LEN + 8;
        if self.bytes.len() < needed {
            self.bytes.resize(needed, 0);
        }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn put(&mut self, value: u64) {
        if value < 1 << 56
            && let Some(slot) = self.bytes.get_mut(self.len..self.len + 8)
        {
            let bits = 64 - (value | 1).leading_zeros() as usize;
            let len = bits.div_ceil(7);
            let mut x = value;
            x = (x & 0x0fff_ffff) | ((x & 0x00ff_ffff_f000_0000) << 4);
            x = (x & 0x0000_3fff_0000_3fff) | ((x & 0x0fff_c000_0fff_c000) << 2);
            x = (x & 0x007f_007f_007f_007f) | ((x & 0x3f80_3f80_3f80_3f80) << 1);
            // Every byte except the last has the continuation bit set.
            x |= CONTINUED & !(u64::MAX << (8 * (len - 1)));
            slot.copy_from_slice(&x.to_le_bytes());
            self.len += len;
        } else {
            self.put_long(value);
        }
    }

    /// For columns that nearly always hold single bytes, where the branch is predictable.
    #[inline]
    pub(crate) fn put_small(&mut self, value: u64) {
        match self.bytes.get_mut(self.len) {
            Some(slot) if value < 0x80 => {
                *slot = value as u8;
                self.len += 1;
            }
            _ => self.put(value),
        }
    }

    /// Values of more than 56 bits. [`Column::begin`] reserved room for them.
    #[cold]
    fn put_long(&mut self, mut value: u64) {
        loop {
            let more = value >= 0x80;
            if let Some(slot) = self.bytes.get_mut(self.len) {
                *slot = value as u8 & 0x7f | if more { 0x80 } else { 0 };
            }
            self.len += 1;
            value >>= 7;
            if !more {
                break;
            }
        }
    }

    #[inline]
    pub(crate) fn put_signed(&mut self, value: i64) {
        self.put(zigzag(value));
    }
}

/// A column being read: either its bytes, or one value that all rows share.
pub(crate) struct Values<'a> {
    bytes: &'a [u8],
    at: usize,
    constant: Option<u64>,
}

impl<'a> Values<'a> {
    pub(crate) fn new(bytes: &'a [u8], constant: bool) -> Option<Self> {
        let mut values = Values { bytes, at: 0, constant: None };
        if constant {
            let value = values.next()?;
            if !values.exhausted() {
                return None;
            }
            values.constant = Some(value);
        }
        Some(values)
    }

    /// True when every byte has been consumed.
    pub(crate) fn exhausted(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// The next value; None if the column ends early or the value exceeds 64 bits.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<u64> {
        if let Some(value) = self.constant {
            return Some(value);
        }
        if let Some(&chunk) = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<8>()) {
            let x = u64::from_le_bytes(chunk);
            let ends = !x & CONTINUED;
            if ends != 0 {
                self.at += ends.trailing_zeros() as usize / 8 + 1;
                let mut x = x & (ends ^ ends.wrapping_sub(1)) & !CONTINUED;
                x = (x & 0x007f_007f_007f_007f) | ((x & 0x7f00_7f00_7f00_7f00) >> 1);
                x = (x & 0x0000_3fff_0000_3fff) | ((x & 0x3fff_0000_3fff_0000) >> 2);
                return Some((x & 0x0fff_ffff) | ((x & 0x0fff_ffff_0000_0000) >> 4));
            }
        }
        self.next_slow()
    }

    /// The last bytes of a column, and values of more than 56 bits.
    fn next_slow(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            let low = u64::from(byte & 0x7f);
            if shift == 63 && low > 1 {
                return None;
            }
            value |= low << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    #[inline]
    pub(crate) fn next_signed(&mut self) -> Option<i64> {
        self.next().map(unzigzag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(values: &[u64]) {
        let mut column = Column::default();
        column.begin(values.len());
        values.iter().for_each(|&v| column.put(v));
        let mut read = Values::new(column.as_slice(), false).unwrap();
        for &value in values {
            assert_eq!(read.next(), Some(value));
        }
        assert!(read.exhausted());
        assert_eq!(read.next(), None);
    }

    #[test]
    fn every_length_comes_back() {
        let mut values = vec![0, u64::MAX, 1, u64::MAX - 1];
        for bit in 0..64 {
            values.extend([1 << bit, (1 << bit) - 1, (1_u64 << bit).wrapping_mul(3)]);
        }
        round_trip(&values);
        values.iter().for_each(|&v| round_trip(&[v]));
    }

    #[test]
    fn zigzag_keeps_both_signs_small_and_the_extremes_exact() {
        for value in [0, 1, -1, 63, -64, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        assert_eq!(zigzag(-1), 1);
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_refused() {
        assert_eq!(Values::new(&[0xff; 11], false).unwrap().next(), None);
        let mut over = [0xff; 10];
        over[9] = 0x02;
        assert_eq!(Values::new(&over, false).unwrap().next(), None);
    }

    #[test]
    fn a_cut_number_is_refused() {
        assert_eq!(Values::new(&[0x80, 0x80], false).unwrap().next(), None);
        assert!(Values::new(&[], true).is_none());
        assert!(Values::new(&[1, 2], true).is_none());
    }
}
