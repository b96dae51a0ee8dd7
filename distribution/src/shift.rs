//! Two samples compared, quantile by quantile.

use random::{Stream, bootstrap};

use crate::{
    blocks::{Blocks, quantiles_again},
    sketch::Sample,
};

/// The quantiles that are compared.
pub const QUANTILES: [f64; 7] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999];
const REPLICATES: usize = 2000;
/// Samples that a quantile needs on either side of it: the interval of fewer is a guess.
const LEAST: f64 = 10.0;

/// How a quantile differs between two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    pub p: f64,
    pub first: f64,
    pub second: f64,
    /// Of `second - first`.
    pub ci95: (f64, f64),
    /// Whether the samples differ even after allowing for the number of quantiles compared.
    pub certain: bool,
}

/// The quantiles that both samples are large enough for.
pub fn shifts(
    (first, first_blocks): (&Sample, Option<&Blocks<'_>>),
    (second, second_blocks): (&Sample, Option<&Blocks<'_>>),
    seed: u64,
) -> Vec<Shift> {
    let n = first.n().min(second.n()) as f64;
    let enough = |p: &f64| p.min(1.0 - p) * n >= LEAST - 1e-9;
    let quantiles: Vec<f64> = QUANTILES.into_iter().filter(enough).collect();
    let again = |sample, blocks, run| {
        let stream = Stream::new(random::key(seed, 0x7368_6966, run));
        quantiles_again(sample, blocks, &quantiles, REPLICATES, stream)
    };
    let (before, after) = (again(first, first_blocks, 0), again(second, second_blocks, 1));
    let (first_sample, second_sample) = (first, second);
    let of = |(at, &p): (usize, &f64)| {
        let (first, second) = (first.quantile(p), second.quantile(p));
        let mut differences: Vec<f64> =
            before.iter().zip(&after).map(|(before, after)| after[at] - before[at]).collect();
        differences.sort_unstable_by(f64::total_cmp);
        // Bonferroni's.
        let out = 0.025 / quantiles.len() as f64;
        let end = |share: f64| differences[(share * (REPLICATES - 1) as f64).round() as usize];
        // Of histograms, a quantile may be anywhere in its bin.
        let (in_first, in_second) = (first_sample.within(p), second_sample.within(p));
        let least = in_second.0 - in_first.1;
        let most = in_second.1 - in_first.0;
        let certain = end(out).min(least) > 0.0 || end(1.0 - out).max(most) < 0.0;
        let (low, high) = bootstrap::interval(second - first, differences);
        Shift { p, first, second, ci95: (low.min(least), high.max(most)), certain }
    };
    quantiles.iter().enumerate().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normal;

    fn sample(key: u64, n: u64, shift: f64) -> Sample {
        let value = |i| ((5.0 + shift + 0.5 * normal(random::draw(key, i)).exp()) * 1e6) as i64;
        Sample::of_values(&(0..n).map(value).collect::<Vec<_>>(), 1).unwrap()
    }

    fn compared(first: &Sample, second: &Sample) -> Vec<Shift> {
        let (a, b) = (Blocks::of(first), Blocks::of(second));
        shifts((first, a.as_ref()), (second, b.as_ref()), 1)
    }

    #[test]
    fn a_known_shift_is_in_the_interval_at_every_quantile() {
        let mut missed = 0;
        for key in 0..20 {
            for shift in compared(&sample(2 * key, 10_000, 0.0), &sample(2 * key + 1, 10_000, 0.2))
            {
                let (low, high) = (shift.ci95.0 / 1e6, shift.ci95.1 / 1e6);
                missed += u32::from(!(low..=high).contains(&0.2));
                // At the tail, the interval is wider than the shift.
                assert!(shift.certain || shift.p >= 0.9, "{shift:?}");
            }
        }
        // 140 intervals of 95 %, of which 7 are expected to miss.
        assert!(missed <= 16, "{missed}");
    }

    #[test]
    fn equal_distributions_differ_in_one_of_twenty_pairs_at_most() {
        let differ = |key: &u64| {
            let pair = (sample(1000 + 2 * key, 3_000, 0.0), sample(1001 + 2 * key, 5_000, 0.0));
            compared(&pair.0, &pair.1).iter().any(|shift| shift.certain)
        };
        let found = (0..60).filter(differ).count();
        assert!(found <= 7, "{found} of 60");
    }

    /// A bin of a histogram around 150 us.
    #[test]
    fn a_histogram_of_the_same_samples_has_no_shift() {
        let values: Vec<i64> = vec![150_000_000; 1_000];
        let exact = Sample::of_values(&values, 1).unwrap();
        let bin = |low: i64, count| crate::grid::Atom { low, high: low + 63_999, count };
        let same = Sample::of_bins(vec![bin(149_952_000, 1_000)]).unwrap();
        for (a, b) in [(&exact, &same), (&same, &exact), (&same, &same)] {
            for shift in compared(a, b) {
                assert!(shift.ci95.0 <= 0.0 && shift.ci95.1 >= 0.0 && !shift.certain, "{shift:?}");
                assert!(shift.ci95.1 - shift.ci95.0 >= 63_999.0, "{shift:?}");
            }
        }
        let other = Sample::of_bins(vec![bin(150_080_000, 1_000)]).unwrap();
        assert!(compared(&exact, &other).iter().all(|shift| shift.certain));
    }

    #[test]
    fn quantiles_that_few_samples_determine_are_left_out() {
        let pair = (sample(1, 1_000, 0.0), sample(2, 200, 0.0));
        let compared = compared(&pair.0, &pair.1);
        assert_eq!(compared.iter().map(|shift| shift.p).collect::<Vec<_>>(), QUANTILES[..5]);
    }
}
