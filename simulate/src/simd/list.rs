//! Numbers compressed from vectors, to be processed as vectors again.

use super::{LANES, Vector};

/// Capacity; small enough to leave room in the L1 cache.
pub const MOST: usize = 256;

/// After the last number there is room for a vector, with stale values.
#[derive(Debug)]
#[repr(align(64))]
pub struct List {
    numbers: [i64; MOST + LANES],
    len: usize,
}

impl Default for List {
    fn default() -> List {
        List { numbers: [0; MOST + LANES], len: 0 }
    }
}

impl List {
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// At most [`MOST`].
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= MOST, "list capacity exceeded");
        self.len = len;
    }

    /// Appends the lanes of the mask. There must be room for all lanes.
    #[inline(always)]
    pub fn push<V: Vector>(&mut self, mask: u8, numbers: V) {
        let free = self.numbers[self.len..].first_chunk_mut().expect("room for a vector");
        numbers.compress(mask).store(free);
        self.len += mask.count_ones() as usize;
    }

    /// Start indices of the vectors.
    #[inline(always)]
    pub fn steps(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.len).step_by(LANES)
    }

    /// The lanes of the vector at this index that are in the list.
    #[inline(always)]
    pub fn there(&self, at: usize) -> u8 {
        let count = self.len - at;
        if count < LANES { (1 << count) - 1 } else { u8::MAX }
    }

    #[inline(always)]
    pub fn at<V: Vector>(&self, at: usize) -> V {
        V::load(self.numbers[at..].first_chunk().expect("room for a vector"))
    }

    #[inline(always)]
    pub fn set<V: Vector>(&mut self, at: usize, numbers: V) {
        numbers.store(self.numbers[at..].first_chunk_mut().expect("room for a vector"));
    }

    #[inline(always)]
    pub fn gather<V: Vector>(&self, indices: V) -> V {
        V::gather(&self.numbers, indices)
    }

    pub fn one(&self, at: usize) -> i64 {
        self.numbers[at]
    }

    #[inline(always)]
    pub fn all_mut(&mut self) -> &mut [i64] {
        &mut self.numbers
    }
}
