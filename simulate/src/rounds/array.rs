//! Numbers aligned to cache lines. Vectors are as long as a line: in an unaligned array, each of them
//! would span two.

use std::ops::{Deref, DerefMut};

use super::RunError;

/// Bytes, and numbers, in a cache line.
const LINE: usize = 64;
const IN_A_LINE: usize = LINE / size_of::<i64>();

#[derive(Debug, Default)]
pub struct Array {
    numbers: Vec<i64>,
    first: usize,
    len: usize,
}

impl Array {
    /// Resizes to this many numbers with arbitrary values; an error instead of an abort if there is
    /// not enough memory for this many arrays.
    pub fn resize(&mut self, ranks: u64, arrays: u64) -> Result<(), RunError> {
        let memory = RunError::Memory { ranks, bytes: ranks.saturating_mul(arrays * 8) };
        let len = usize::try_from(ranks).map_err(|_| memory.clone())?;
        let needed = len.saturating_add(IN_A_LINE);
        if self.numbers.len() < needed {
            self.numbers.clear();
            self.numbers.try_reserve_exact(needed).map_err(|_| memory)?;
            self.hold(needed);
        }
        self.len = len;
        Ok(())
    }

    /// Copies these numbers, piece by piece.
    pub fn copy<'a>(&mut self, pieces: impl Iterator<Item = &'a [i64]> + Clone) {
        self.len = pieces.clone().map(<[i64]>::len).sum();
        if self.numbers.len() < self.len + IN_A_LINE {
            self.hold(self.len + IN_A_LINE);
        }
        let mut rest = &mut **self;
        for piece in pieces {
            let (here, after) = rest.split_at_mut(piece.len());
            here.copy_from_slice(piece);
            rest = after;
        }
    }

    fn hold(&mut self, needed: usize) {
        self.numbers.resize(needed, 0);
        // The next line is never further away; if it were, everything would still be correct, but
        // slower.
        self.first = self.numbers.as_ptr().align_offset(LINE).min(IN_A_LINE);
    }
}

impl Deref for Array {
    type Target = [i64];

    #[inline]
    fn deref(&self) -> &[i64] {
        &self.numbers[self.first..self.first + self.len]
    }
}

impl DerefMut for Array {
    #[inline]
    fn deref_mut(&mut self) -> &mut [i64] {
        &mut self.numbers[self.first..self.first + self.len]
    }
}
