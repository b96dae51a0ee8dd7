//! Sorts a window's events by rank, then as numbers. There are at least as many as ranks, so this is a
//! radix sort in two passes over half of the rank's bits each; a comparison sort would take many times
//! as long as handling the events.

/// An event with the rank in bits 64 to 95.
pub(crate) type Entry = u128;

#[derive(Debug)]
pub(crate) struct ByRank {
    /// Binary digits of the lower and of the upper half.
    digits: [u32; 2],
    counts: [Vec<u32>; 2],
    spare: Vec<Entry>,
}

impl ByRank {
    pub fn new(ranks: u32) -> ByRank {
        let digits = ranks.max(2).next_power_of_two().ilog2();
        let digits = [digits / 2, digits - digits / 2];
        ByRank { digits, counts: digits.map(|digits| vec![0; 1 << digits]), spare: Vec::new() }
    }

    pub fn sort(&mut self, entries: &mut Vec<Entry>) {
        let ordered = entries.windows(2).take_while(|pair| pair[0] <= pair[1]).count();
        let Some((head, tail)) = entries.split_at_checked(ordered + 1) else { return };
        // Each rank sent to the rank a fixed distance up, wrapping around.
        if tail.is_sorted() && tail.last() <= head.first() {
            entries.rotate_left(ordered + 1);
            return;
        }
        // Scanning all buckets must pay off.
        if entries.len() < self.counts[1].len() {
            entries.sort_unstable();
            return;
        }
        let [low, high] = self.digits;
        let places = [(64, low), (64 + low, high)];
        for (counts, &(shift, digits)) in self.counts.iter_mut().zip(&places) {
            counts.fill(0);
            for &entry in &*entries {
                counts[bucket(entry, shift, digits)] += 1;
            }
        }
        self.spare.resize(entries.len(), 0);
        let [lower, upper] = &mut self.counts;
        throw(entries, &mut self.spare, lower, places[0]);
        throw(&self.spare, entries, upper, places[1]);
        for rank in entries.chunk_by_mut(|a, b| a >> 64 == b >> 64) {
            if rank.len() > 1 {
                rank.sort_unstable();
            }
        }
    }
}

#[inline]
fn bucket(entry: Entry, shift: u32, digits: u32) -> usize {
    (entry >> shift) as usize & ((1 << digits) - 1)
}

/// Distributes entries into buckets, keeping their order within each.
fn throw(from: &[Entry], to: &mut [Entry], counts: &mut [u32], (shift, digits): (u32, u32)) {
    let mut begin = 0;
    for count in &mut *counts {
        begin += std::mem::replace(count, begin);
    }
    for &entry in from {
        let place = &mut counts[bucket(entry, shift, digits)];
        to[*place as usize] = entry;
        *place += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_sorts(
            ranks in prop_oneof![1u32..40, 1_000u32..5_000],
            events in prop::collection::vec((any::<u32>(), 0u32..3, 0u32..9), 0..3_000),
        ) {
            let mut by_rank = ByRank::new(ranks);
            let mut entries: Vec<Entry> = events
                .iter()
                .map(|&(rank, offset, what)| {
                    Entry::from(rank % ranks) << 64 | Entry::from(offset) << 32 | Entry::from(what)
                })
                .collect();
            let mut expected = entries.clone();
            expected.sort();
            by_rank.sort(&mut entries);
            prop_assert_eq!(&entries, &expected);
            by_rank.sort(&mut entries);
            prop_assert_eq!(&entries, &expected);
            entries.rotate_left(expected.len() / 3);
            by_rank.sort(&mut entries);
            prop_assert_eq!(&entries, &expected);
        }
    }
}
