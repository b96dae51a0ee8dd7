//! Draws from a set of times in constant time: Walker's alias table, built in integers, so that it is
//! the same everywhere. Each cell holds at most two values; half of a random number selects the cell,
//! the other half one of the two.

use super::{DistributionError, LONGEST};

#[derive(Clone, Debug, PartialEq)]
pub struct Sampler {
    cells: Vec<Entry>,
    max: i64,
    mean: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    /// Below this (of 2^32) the cell's own value, otherwise the alias.
    share: u64,
    own: i64,
    other: i64,
}

impl Sampler {
    /// Every time equally likely, to the picosecond.
    pub fn of(times: &[i64]) -> Result<Sampler, DistributionError> {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        Self::of_counts(sorted.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u64)))
    }

    /// From (time in ps, count).
    pub fn of_counts(
        counts: impl IntoIterator<Item = (i64, u64)>,
    ) -> Result<Sampler, DistributionError> {
        let counts: Vec<_> = counts.into_iter().filter(|&(_, count)| count > 0).collect();
        if let Some(&(ps, _)) = counts.iter().find(|(time, _)| !(0..=LONGEST).contains(time)) {
            return Err(DistributionError::NotATime { ps });
        }
        if counts.is_empty() || counts.len() > u32::MAX as usize {
            return Err(DistributionError::Empty);
        }
        let total: u128 = counts.iter().map(|&(_, count)| u128::from(count)).sum();
        let weighted = counts.iter().map(|&(time, count)| time as f64 * count as f64);
        let mean = weighted.sum::<f64>() / total as f64;
        // In units of 1 / (total * cells): a full cell weighs `total`.
        let mut weights: Vec<u128> =
            counts.iter().map(|&(_, count)| u128::from(count) * counts.len() as u128).collect();
        let mut cells: Vec<Entry> = counts
            .iter()
            .map(|&(time, _)| Entry { share: 1 << 32, own: time, other: time })
            .collect();
        let (mut light, mut heavy): (Vec<usize>, Vec<usize>) =
            (0..counts.len()).partition(|&cell| weights[cell] < total);
        while let (Some(cell), Some(&donor)) = (light.pop(), heavy.last()) {
            // Rounded to the nearest of 2^32 parts.
            cells[cell].share = (((weights[cell] << 32) + total / 2) / total) as u64;
            cells[cell].other = counts[donor].0;
            weights[donor] -= total - weights[cell];
            if weights[donor] < total {
                heavy.pop();
                light.push(donor);
            }
        }
        let max = counts.iter().map(|&(time, _)| time).max().unwrap_or(0);
        Ok(Sampler { cells, max, mean })
    }

    /// The time selected by 64 random bits.
    #[inline(always)]
    pub fn pick(&self, bits: u64) -> i64 {
        let cell = &self.cells[(((bits >> 32) * self.cells.len() as u64) >> 32) as usize];
        if (bits & 0xffff_ffff) < cell.share { cell.own } else { cell.other }
    }

    /// The longest possible time.
    pub fn max(&self) -> i64 {
        self.max
    }

    /// Mean of the distribution, ps.
    pub fn mean(&self) -> f64 {
        self.mean
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::noise::draw;

    /// The exact probability of each value, out of 2^32 per cell.
    fn chances(sampler: &Sampler, value: i64) -> u64 {
        sampler
            .cells
            .iter()
            .map(|cell| {
                let own = if cell.own == value { cell.share } else { 0 };
                own + if cell.other == value { (1 << 32) - cell.share } else { 0 }
            })
            .sum()
    }

    proptest! {
        #[test]
        fn every_value_is_as_likely_as_it_was_frequent(
            counts in prop::collection::vec(0u64..1_000_000_000, 1..300),
        ) {
            let total: u64 = counts.iter().sum();
            prop_assume!(total > 0);
            let sampler = Sampler::of_counts((0..).zip(counts.iter().copied())).unwrap();
            let all = sampler.cells.len() as f64 * (1u64 << 32) as f64;
            for (value, &count) in (0..).zip(&counts) {
                let chance = chances(&sampler, value) as f64 / all;
                prop_assert!((chance - count as f64 / total as f64).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn draws_come_out_in_proportion() {
        let sampler = Sampler::of(&[5, 5, 5, 9]).unwrap();
        assert_eq!((sampler.max(), sampler.mean()), (9, 6.0));
        let fives = (0..100_000).filter(|&i| sampler.pick(draw(3, i)) == 5).count();
        assert!((74_000..76_000).contains(&fives), "{fives}");
        let one = Sampler::of(&[7]).unwrap();
        assert!((0..100).all(|i| one.pick(draw(3, i)) == 7));
        assert!(one.pick(u64::MAX) == 7 && one.pick(0) == 7);
        assert!(Sampler::of(&[]).is_err() && Sampler::of(&[-1]).is_err());
    }
}
