//! Detours found by position: a table says where to begin, a short scan does the rest.

/// Detours in time order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lookup {
    /// Start and end of each, side by side: whoever looks at one looks at the other.
    detours: Vec<(i64, i64)>,
    /// For each stretch of `1 << shift` ps, the first detour that ends after its begin.
    first_in: Vec<u32>,
    shift: u32,
}

impl Lookup {
    /// The ends must rise, and there must be fewer than 4 billion.
    pub fn new(detours: Vec<(i64, i64)>, span: i64) -> Lookup {
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
        Lookup { detours, first_in, shift }
    }

    pub fn detours(&self) -> &[(i64, i64)] {
        &self.detours
    }

    /// The first detour that ends after a position; their number when none does.
    #[inline]
    pub fn first_after(&self, position: i64) -> usize {
        let mut first = self.first_in[(position >> self.shift) as usize] as usize;
        while self.detours.get(first).is_some_and(|&(_, end)| end <= position) {
            first += 1;
        }
        first
    }

    /// Replaces each position by the time from there to the start of the first detour that has not
    /// ended, which beyond the last is `again`; negative inside one.
    #[inline(always)]
    pub fn next_starts<const N: usize>(&self, positions: &mut [i64; N], again: i64) {
        let again = (again, i64::MAX);
        // All look-ups of one kind together: they do not wait for each other.
        let mut first = [0u32; N];
        for (first, position) in first.iter_mut().zip(&*positions) {
            *first = self.first_in[(position >> self.shift) as usize];
        }
        for (first, position) in first.iter().zip(positions) {
            let mut first = *first as usize + 1;
            let here = self.detours.get(first - 1).copied().unwrap_or(again);
            let beyond = self.detours.get(first).copied().unwrap_or(again);
            // One step without a branch: which of the two it is cannot be foreseen.
            let ended = here.1 <= *position;
            let mut next = if ended { beyond } else { here };
            while next.1 <= *position {
                first += 1;
                next = self.detours.get(first).copied().unwrap_or(again);
            }
            *position = next.0 - *position;
        }
    }
}
