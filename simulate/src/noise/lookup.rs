//! Finds detours by position: a table gives the start, a short scan does the rest.

use crate::simd::{self, List, Vector};

/// Detours in time order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lookup {
    /// Start and end of each, side by side: they are used together. The last two are sentinels, which
    /// stand for what follows the last detour.
    detours: Vec<[i64; 2]>,
    /// For each bucket of `1 << shift` ps, the first detour that ends after its start.
    first_in: Vec<u32>,
    shift: u32,
    /// Total length of all detours before each, so that long work meets many of them at once. Apart from
    /// the detours, since most work is short and does not need it.
    lost_before: Vec<i64>,
    /// Mean distance of two detours.
    spacing: i64,
}

impl Lookup {
    /// The ends must be ascending, and there must be fewer than 4 billion. After the last detour the
    /// next one starts at `again`.
    pub fn new(mut detours: Vec<[i64; 2]>, span: i64, again: i64) -> Lookup {
        // As many buckets as detours, or half as many: the scan after the lookup is short, and the
        // table does not evict the detours from the cache.
        let most = (detours.len() as i64).clamp(1, 1 << 22);
        let mut shift = 0;
        while (span >> shift) >= most {
            shift += 1;
        }
        let stretches = (span >> shift) as usize + 1;
        let mut first_in = Vec::with_capacity(stretches + 1);
        let mut first = 0;
        for stretch in 0..stretches {
            let begin = (stretch as i64) << shift;
            while detours.get(first).is_some_and(|&[_, end]| end <= begin) {
                first += 1;
            }
            first_in.push(first as u32);
        }
        first_in.push(detours.len() as u32);
        let spacing = span / (detours.len() as i64).max(1);
        let mut lost_before = Vec::with_capacity(detours.len() + BEYOND);
        let mut lost = 0;
        for [start, end] in &detours {
            lost_before.push(lost);
            // An entry that stands for the end of a timeline has no length.
            lost += (end - start).max(0);
        }
        lost_before.extend([lost; BEYOND]);
        detours.extend([[again, i64::MAX]; BEYOND]);
        Lookup { detours, first_in, shift, lost_before, spacing }
    }

    /// Mean distance of two detours.
    pub fn spacing(&self) -> i64 {
        self.spacing
    }

    /// Total length of all detours before these.
    #[inline(always)]
    pub fn lost_before<V: Vector>(&self, indices: V) -> V {
        V::gather(&self.lost_before, indices)
    }

    pub fn detours(&self) -> &[[i64; 2]] {
        &self.detours[..self.detours.len() - BEYOND]
    }

    /// The first detour that ends after a position; the number of detours if none does.
    #[inline]
    pub fn first_after(&self, position: i64) -> usize {
        let mut first = self.first_in[(position >> self.shift) as usize] as usize;
        while self.detours[first][1] <= position {
            first += 1;
        }
        first
    }

    /// [`Lookup::first_after`] for a vector.
    #[inline(always)]
    pub fn first_after_each<V: Vector>(&self, positions: V) -> V {
        let (index, late) = self.near(positions);
        if late == 0 { index } else { index.select(late, self.crowded(index, positions)) }
    }

    /// The same for a list; arbitrary for negative positions. No branches between lookups, so that
    /// they are all in flight together; those that take longer are done last.
    #[inline(always)]
    pub fn first_after_all<V: Vector>(&self, positions: &List, indices: &mut List) {
        let mut late_ones = List::default();
        indices.set_len(positions.len());
        for at in positions.steps() {
            let (index, late) = self.near(positions.at::<V>(at).max(V::splat(0)));
            indices.set(at, index);
            late_ones.push(late & positions.there(at), simd::count_from::<V>(at));
        }
        for at in late_ones.steps() {
            let places: V = late_ones.at(at);
            let (index, position) =
                (indices.gather(places), positions.gather(places).max(V::splat(0)));
            let there = late_ones.there(at);
            self.crowded(index, position).scatter(there, indices.all_mut(), places);
        }
    }

    /// The first detour of a bucket or the next one, and the lanes for which that is not enough.
    /// Branchless, since the step is unpredictable.
    #[inline(always)]
    fn near<V: Vector>(&self, positions: V) -> (V, u8) {
        let first = V::gather_u32(&self.first_in, positions.shr(self.shift));
        let second = first.add(V::splat(1));
        let ended = !self.ends(first).above(positions);
        let late = ended & !self.ends(second).above(positions);
        (first.select(ended, second), late)
    }

    /// Binary search in the rest of the bucket, where detours are dense.
    #[inline(always)]
    fn crowded<V: Vector>(&self, index: V, positions: V) -> V {
        let mut low = index.add(V::splat(1));
        let mut high = V::gather_u32(&self.first_in[1..], positions.shr(self.shift));
        loop {
            let open = high.above(low);
            if open == 0 {
                return low;
            }
            let middle = low.add(high).shr(1);
            let over = open & !self.ends(middle).above(positions);
            low = low.select(over, middle.add(V::splat(1)));
            high = high.select(open & !over, middle);
        }
    }

    /// Their starts; after the last, the start of the next one.
    #[inline(always)]
    pub fn starts<V: Vector>(&self, indices: V) -> V {
        V::gather(self.detours.as_flattened(), indices.add(indices))
    }

    /// Their ends; after the last, never.
    #[inline(always)]
    pub fn ends<V: Vector>(&self, indices: V) -> V {
        V::gather(&self.detours.as_flattened()[1..], indices.add(indices))
    }
}

/// Number of sentinels: entries read without checking that they exist.
const BEYOND: usize = 2;
