//! Detours found by position: a table says where to begin, a short scan does the rest.

use crate::simd;

/// Detours in time order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lookup {
    /// Start and end of each, side by side: whoever looks at one looks at the other. The last two
    /// are none: what comes after the last one, and comes again.
    detours: Vec<(i64, i64)>,
    /// For each stretch of `1 << shift` ps, the first detour that ends after its begin.
    first_in: Vec<u32>,
    shift: u32,
}

impl Lookup {
    /// The ends must rise, and there must be fewer than 4 billion. Beyond the last detour the next one
    /// starts at `again`.
    pub fn new(mut detours: Vec<(i64, i64)>, span: i64, again: i64) -> Lookup {
        // About as many stretches as detours: the scan after the look-up is short, and the table does
        // not push the detours out of the cache.
        let wanted = (detours.len() as i64).clamp(1, 1 << 22);
        let mut shift = 0;
        while (span >> shift) >= wanted * 2 {
            shift += 1;
        }
        let stretches = (span >> shift) as usize + 1;
        let mut first_in = Vec::with_capacity(stretches);
        let mut first = 0;
        for stretch in 0..stretches {
            let begin = (stretch as i64) << shift;
            while detours.get(first).is_some_and(|&(_, end)| end <= begin) {
                first += 1;
            }
            first_in.push(first as u32);
        }
        detours.extend([(again, i64::MAX); BEYOND]);
        Lookup { detours, first_in, shift }
    }

    pub fn detours(&self) -> &[(i64, i64)] {
        &self.detours[..self.detours.len() - BEYOND]
    }

    /// The first detour that ends after a position; their number when none does.
    #[inline]
    pub fn first_after(&self, position: i64) -> usize {
        let mut first = self.first_in[(position >> self.shift) as usize] as usize;
        while self.detours[first].1 <= position {
            first += 1;
        }
        first
    }

    /// Replaces each position by the time from there to the start of the first detour that has not
    /// ended, or of what comes beyond the last; negative inside one.
    #[inline(always)]
    pub fn next_starts<const N: usize>(&self, positions: &mut [i64; N]) {
        // All look-ups of one kind together: they do not wait for each other.
        let mut indices = [0; N];
        for (index, position) in indices.iter_mut().zip(&*positions) {
            *index = (position >> self.shift) as u32;
        }
        let (mut first, mut here, mut beyond) = ([0; N], [(0, 0); N], [(0, 0); N]);
        simd::gather(&self.first_in, &indices, &mut first);
        simd::gather(&self.detours, &first, &mut here);
        simd::gather(&self.detours[1..], &first, &mut beyond);
        let (mut next, mut left, mut late) = ([0; N], [0; N], 0);
        for lane in 0..N {
            // One step without a branch: which of the two it is cannot be foreseen.
            let ended = here[lane].1 <= positions[lane];
            next[lane] = if ended { beyond[lane].0 } else { here[lane].0 };
            left[lane] = if ended { beyond[lane].1 } else { here[lane].1 } - 1 - positions[lane];
            late |= left[lane];
        }
        if late < 0 {
            for ((next, left), position) in next.iter_mut().zip(left).zip(&*positions) {
                if left < 0 {
                    *next = self.detours[self.first_after(*position)].0;
                }
            }
        }
        for (position, next) in positions.iter_mut().zip(next) {
            *position = next - *position;
        }
    }
}

/// How many are looked at without asking whether they are there.
const BEYOND: usize = 2;
