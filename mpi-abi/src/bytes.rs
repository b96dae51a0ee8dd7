//! Varints: numbers of seven bits a byte, signed ones with the sign in the lowest bit.

/// Writes into a slice; too little room is remembered, not an error at every step.
pub(crate) struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
    full: bool,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut [u8], at: usize) -> Self {
        Writer { out, at, full: false }
    }

    /// Position after what was written; `None` if it did not fit.
    pub(crate) fn end(&self) -> Option<usize> {
        (!self.full).then_some(self.at)
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn rewind(&mut self, at: usize) {
        self.at = at;
    }

    pub(crate) fn written(&self, from: usize, to: usize) -> &[u8] {
        self.out.get(from..to).unwrap_or(&[])
    }

    #[inline(always)]
    pub(crate) fn byte(&mut self, value: u8) {
        match self.out.get_mut(self.at) {
            Some(place) => {
                *place = value;
                self.at += 1;
            }
            None => self.full = true,
        }
    }

    #[inline(always)]
    pub(crate) fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    #[inline(always)]
    pub(crate) fn signed(&mut self, value: i64) {
        self.number(zigzag(value));
    }

    pub(crate) fn slice(&mut self, bytes: &[u8]) {
        match self.out.get_mut(self.at..).and_then(|rest| rest.get_mut(..bytes.len())) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.at += bytes.len();
            }
            None => self.full = true,
        }
    }
}

#[inline(always)]
pub(crate) fn zigzag(value: i64) -> u64 {
    (value as u64) << 1 ^ (value >> 63) as u64
}

/// Reads what [`Writer`] wrote.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    #[inline(always)]
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let value = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(value)
    }

    #[inline(always)]
    pub(crate) fn number(&mut self) -> Option<u64> {
        let first = self.byte()?;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        let mut shift = 7;
        loop {
            let byte = self.byte()?;
            // The tenth byte holds the highest bit only.
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
            shift += 7;
        }
    }

    #[inline(always)]
    pub(crate) fn signed(&mut self) -> Option<i64> {
        let value = self.number()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub(crate) fn small<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.number()?).ok()
    }

    pub(crate) fn int(&mut self) -> Option<i32> {
        i32::try_from(self.signed()?).ok()
    }

    /// A number in four bytes.
    pub(crate) fn word(&mut self) -> Option<u32> {
        self.slice(4)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    pub(crate) fn slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let slice = self.bytes.get(self.at..)?.get(..length)?;
        self.at += length;
        Some(slice)
    }
}
