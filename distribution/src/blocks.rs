//! The block bootstrap: samples that follow one another resemble one another, so intervals come from
//! blocks of consecutive samples, drawn again as a whole.

use rand::RngExt;
use random::Stream;

use crate::{normal, sketch::Sample};

/// More blocks make a replicate slower, not more accurate.
const MOST_BLOCKS: usize = 1024;
/// Fewer say nothing about how much blocks differ.
const FEWEST_BLOCKS: usize = 32;

/// Consecutive samples in blocks of equal length.
#[derive(Clone, Debug)]
pub struct Blocks<'a> {
    pub length: usize,
    blocks: Vec<&'a [i64]>,
    /// Samples of the whole, of which these blocks may be a part.
    n: u64,
}

fn cut(sample: &Sample, length: usize) -> Vec<&[i64]> {
    sample.runs().iter().flat_map(|run| run.chunks_exact(length)).collect()
}

impl Blocks<'_> {
    /// None if the order of the samples is unknown, or if there are too few of them.
    ///
    /// The length is the shortest power of two beyond which blocks do not vary more than blocks of this length
    /// would if they were independent: of the share below the median, and below two quantiles of the tail.
    pub fn of(sample: &Sample) -> Option<Blocks<'_>> {
        let kept: usize = sample.runs().iter().map(Vec::len).sum();
        let longest_run = sample.runs().iter().map(Vec::len).max()?;
        let most = (kept / FEWEST_BLOCKS).min(longest_run);
        if most == 0 {
            return None;
        }
        let mut length = kept.div_ceil(MOST_BLOCKS);
        for p in [0.5, 0.9, 0.99] {
            length = length.max(independent(sample, sample.quantile(p), most));
        }
        let length = length.clamp(1, most);
        Some(Blocks { length, blocks: cut(sample, length), n: sample.n() })
    }

    /// Number of blocks.
    pub fn count(&self) -> usize {
        self.blocks.len()
    }

    /// The variance of the share of samples for which `is` holds, compared with independent samples.
    pub fn inflation(&self, is: impl Fn(i64) -> bool) -> f64 {
        let counts = self.blocks.iter().map(|block| count(block, &is));
        inflation(self.length, &counts.collect::<Vec<_>>())
    }

    /// How the shares at most as large as each of `values` vary if blocks are drawn again: for each of
    /// `replicates`, the differences from the shares.
    fn deviations(&self, values: &[f64], replicates: usize, stream: &mut Stream) -> Vec<Vec<f64>> {
        let counts: Vec<Vec<u32>> = self
            .blocks
            .iter()
            .map(|block| {
                values.iter().map(|&value| count(block, &|x| x as f64 <= value) as u32).collect()
            })
            .collect();
        let blocks = counts.len();
        let samples = (blocks * self.length) as f64;
        let mut totals = vec![0u64; values.len()];
        for count in &counts {
            totals.iter_mut().zip(count).for_each(|(total, count)| *total += u64::from(*count));
        }
        // Part of the samples vary more than all of them.
        let scale = (samples / self.n as f64).sqrt() / samples;
        (0..replicates)
            .map(|_| {
                let mut sums = vec![0u64; values.len()];
                for _ in 0..blocks {
                    let block = &counts[stream.random_range(0..blocks as u64) as usize];
                    sums.iter_mut().zip(block).for_each(|(sum, count)| *sum += u64::from(*count));
                }
                let pairs = sums.iter().zip(&totals);
                pairs.map(|(sum, total)| (*sum as f64 - *total as f64) * scale).collect()
            })
            .collect()
    }
}

fn count(block: &[i64], is: &impl Fn(i64) -> bool) -> u64 {
    block.iter().filter(|&&value| is(value)).count() as u64
}

/// Of counts per block of this length.
fn inflation(length: usize, counts: &[u64]) -> f64 {
    let n = counts.len() as f64;
    if n < 2.0 {
        return 1.0;
    }
    let mean = counts.iter().sum::<u64>() as f64 / n;
    let squares: f64 = counts.iter().map(|&count| (count as f64 - mean).powi(2)).sum();
    let share = mean / length as f64;
    let independent = length as f64 * share * (1.0 - share);
    if independent <= 0.0 { 1.0 } else { squares / (n - 1.0) / independent }
}

/// The shortest length beyond which the shares below a value vary as those of independent blocks.
fn independent(sample: &Sample, value: f64, most: usize) -> usize {
    let lengths: Vec<usize> = (0..).map(|k| 1 << k).take_while(|&length| length <= most).collect();
    let varied: Vec<(f64, f64)> = lengths
        .iter()
        .map(|&length| {
            let blocks = cut(sample, length);
            let counts: Vec<u64> =
                blocks.iter().map(|block| count(block, &|x| x as f64 <= value)).collect();
            // And its own standard error.
            (inflation(length, &counts), (2.0 / blocks.len().max(1) as f64).sqrt())
        })
        .collect();
    let settled = |at: usize| {
        let (here, _) = varied[at];
        varied[at + 1..].iter().all(|(longer, error)| *longer <= here * (1.1 + 2.0 * error))
    };
    let at = (0..lengths.len()).find(|&at| settled(at));
    at.map_or(most, |at| lengths[at])
}

/// Quantiles of a sample, each of them drawn again: by blocks, or from independent samples if their order is
/// unknown. In: the quantiles, 0 to 1. Out: for every replicate, the values.
pub fn quantiles_again(
    sample: &Sample,
    blocks: Option<&Blocks<'_>>,
    quantiles: &[f64],
    replicates: usize,
    mut stream: Stream,
) -> Vec<Vec<f64>> {
    let deviations = match blocks {
        Some(blocks) => {
            let values: Vec<f64> = quantiles.iter().map(|&p| sample.quantile(p)).collect();
            blocks.deviations(&values, replicates, &mut stream)
        }
        None => (0..replicates)
            .map(|_| {
                let mut deviation =
                    |&p: &f64| (p * (1.0 - p) / sample.n() as f64).sqrt() * normal(stream.random());
                quantiles.iter().map(&mut deviation).collect()
            })
            .collect(),
    };
    // More samples below a value: the quantile is a smaller one.
    let again = |deviations: &Vec<f64>| {
        let pairs = quantiles.iter().zip(deviations);
        pairs.map(|(p, deviation)| sample.quantile(p - deviation)).collect()
    };
    deviations.iter().map(again).collect()
}

/// The 95 % interval of a share of the samples (Wilson's), with its inflation.
pub fn share_interval(share: f64, n: u64, inflation: f64) -> (f64, f64) {
    let n = n as f64 / inflation.max(1e-9);
    let z2 = 1.959_964f64.powi(2);
    let middle = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = (z2 * (share * (1.0 - share) / n + z2 / (4.0 * n * n))).sqrt() / (1.0 + z2 / n);
    ((middle - half).max(0.0).min(share), (middle + half).min(1.0).max(share))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn white(key: u64, n: u64) -> Vec<i64> {
        (0..n).map(|i| 1_000_000 + (normal(random::draw(key, i)) * 1e5) as i64).collect()
    }

    /// Episodes of `length` samples that share an offset as large as the noise.
    fn episodes(key: u64, n: u64, length: u64) -> Vec<i64> {
        let offset = |i: u64| (normal(random::draw(key ^ 77, i / length)) * 1e5) as i64;
        (0..).zip(white(key, n)).map(|(i, value)| value + offset(i)).collect()
    }

    #[test]
    fn blocks_are_as_long_as_episodes_and_short_without_them() {
        let sample = Sample::of_values(&white(1, 60_000), 1).unwrap();
        let blocks = Blocks::of(&sample).unwrap();
        assert!(blocks.length <= 64, "{}", blocks.length);
        let inflated = blocks.inflation(|x| x < 1_000_000);
        assert!((0.8..1.25).contains(&inflated), "{inflated}");
        let sample = Sample::of_values(&episodes(1, 200_000, 300), 1).unwrap();
        let blocks = Blocks::of(&sample).unwrap();
        assert!((256..=4096).contains(&blocks.length), "{}", blocks.length);
        // Half of the variance is common to 300 samples. The correlation of indicators is 2/pi asin(1/2) = 1/3.
        let inflated = blocks.inflation(|x| x < 1_000_000);
        assert!((60.0..140.0).contains(&inflated), "{inflated}");
    }

    /// The standard error of a median of independent normal samples is 1.2533 sd/sqrt(n).
    #[test]
    fn a_median_drawn_again_varies_by_its_standard_error() {
        let n = 40_000;
        let sample = Sample::of_values(&white(3, n), 1).unwrap();
        let blocks = Blocks::of(&sample).unwrap();
        let expected = 1.2533 * 1e5 / (n as f64).sqrt();
        for blocks in [Some(&blocks), None] {
            let again = quantiles_again(&sample, blocks, &[0.5], 1000, Stream::new(5));
            let mean = again.iter().map(|r| r[0]).sum::<f64>() / 1000.0;
            let sd = (again.iter().map(|r| (r[0] - mean).powi(2)).sum::<f64>() / 999.0).sqrt();
            assert!((sd / expected - 1.0).abs() < 0.15, "{sd} against {expected}");
        }
    }

    #[test]
    fn part_of_the_samples_stand_for_all_of_them() {
        let n = 4 << 20;
        let sample = Sample::of_values(&white(4, n), 1).unwrap();
        assert!(!sample.is_exact());
        let blocks = Blocks::of(&sample).unwrap();
        let again = quantiles_again(&sample, Some(&blocks), &[0.5], 500, Stream::new(5));
        let mean = again.iter().map(|r| r[0]).sum::<f64>() / 500.0;
        let sd = (again.iter().map(|r| (r[0] - mean).powi(2)).sum::<f64>() / 499.0).sqrt();
        let expected = 1.2533 * 1e5 / (n as f64).sqrt();
        assert!((sd / expected - 1.0).abs() < 0.2, "{sd} against {expected}");
    }

    #[test]
    fn an_interval_of_a_share_is_that_of_the_tables() {
        // Wilson's interval of 1 in 10.
        let (low, high) = share_interval(0.1, 10, 1.0);
        assert!((low - 0.0179).abs() < 1e-3 && (high - 0.4042).abs() < 1e-3, "{low} {high}");
        assert_eq!(share_interval(1.0, 10, 1.0).1, 1.0);
    }
}
