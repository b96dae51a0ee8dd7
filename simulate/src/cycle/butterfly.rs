//! The butterfly's traversal of the ranks: round r pairs ranks that differ in bit r. Works in place,
//! block by block, so that the low rounds stay in a core's private cache, and in parallel; the blocks
//! of a round share nothing, so neither their size nor their order affects the result.

use std::ops::Range;

use rayon::prelude::*;

/// Ranks per block: 128 KiB of them.
pub(super) const BLOCK: usize = 1 << 13;

/// Calls `kernel(round, low, high)` so that every rank is in exactly one of the two once per round;
/// `low[i]` and `high[i]` differ in bit `round`. After round 0, the slices have even lengths and hold
/// mates (`rank ^ 1`) side by side.
pub(super) fn rounds<T: Send>(
    ranks: &mut [T],
    rounds: Range<u32>,
    kernel: impl Fn(u32, &mut [T], &mut [T]) + Sync,
) {
    let block = BLOCK.min(ranks.len());
    let inside = block.trailing_zeros().clamp(rounds.start, rounds.end.max(rounds.start));
    ranks.par_chunks_mut(block).for_each(|block| {
        for round in rounds.start..inside {
            for both in block.chunks_exact_mut(2 << round) {
                let (low, high) = both.split_at_mut(1 << round);
                kernel(round, low, high);
            }
        }
    });
    // Either few large pieces or many small ones: both levels of parallelism keep the cores busy.
    for round in inside..rounds.end {
        ranks.par_chunks_exact_mut(2 << round).for_each(|both| {
            let (low, high) = both.split_at_mut(1 << round);
            low.par_chunks_mut(block)
                .zip(high.par_chunks_mut(block))
                .for_each(|(low, high)| kernel(round, low, high));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_meets_its_partner_of_every_round() {
        for ranks in [2usize, 4, 64, BLOCK, 8 * BLOCK] {
            // (own number, sum over the block, rounds seen)
            let mut all: Vec<_> = (0..ranks as u64).map(|rank| (rank, rank, 0)).collect();
            let last = ranks.trailing_zeros();
            rounds(&mut all, 0..last, |round, low, high| {
                assert_eq!(low.len(), high.len());
                for (a, b) in low.iter_mut().zip(high) {
                    assert_eq!(a.0 ^ b.0, 1 << round);
                    assert_eq!((a.2, b.2), (round, round));
                    let sum = a.1 + b.1;
                    *a = (a.0, sum, round + 1);
                    *b = (b.0, sum, round + 1);
                }
            });
            let sum = (0..ranks as u64).sum::<u64>();
            assert!(all.iter().all(|&(_, got, rounds)| got == sum && rounds == last));
        }
    }
}
