//! A set of operations, one bit each: small enough to stay in the cache.

#[derive(Debug, Default)]
pub(crate) struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// The empty set, for operations below `count`.
    pub fn reset(&mut self, count: usize) {
        self.words.clear();
        self.words.resize(count.div_ceil(64), 0);
    }

    #[inline]
    pub fn insert(&mut self, op: u32) {
        if let Some(word) = self.words.get_mut(op as usize / 64) {
            *word |= 1 << (op % 64);
        }
    }

    /// Also valid for operations that do not exist.
    #[inline]
    pub fn contains(&self, op: u32) -> bool {
        self.words.get(op as usize / 64).is_some_and(|word| word >> (op % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_was_put_in_until_it_is_emptied() {
        let mut bits = Bits::default();
        bits.reset(130);
        bits.insert(129);
        assert!(bits.contains(129) && !bits.contains(128) && !bits.contains(u32::MAX));
        bits.reset(130);
        assert!(!bits.contains(129));
    }
}
