//! Numbers that begin where a line of the cache does. Vectors are as long as a line: in an array that
//! begins elsewhere, each of them would lie in two.

use std::ops::{Deref, DerefMut};

use super::RunError;

/// Bytes, and numbers, in a line.
const LINE: usize = 64;
const IN_A_LINE: usize = LINE / size_of::<i64>();

#[derive(Debug, Default)]
pub struct Array {
    numbers: Vec<i64>,
    first: usize,
    len: usize,
}

impl Array {
    /// So many numbers, whatever they are; an error instead of an abort where there is no memory for
    /// as many arrays.
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

    /// These numbers, one piece after the other.
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
        // It is not further to the next line; were it, all would be right, and slower.
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
