//! An HdrHistogram of times, plus what it does not keep: the exact sum, minimum and maximum, and the
//! number of zeros. Three significant digits; merging is lossless, in any order.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{LONGEST, Sampler, parts::Parts};
use crate::time::Time;

const DIGITS: u8 = 3;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DistributionError {
    #[error("a time of {} is out of range (0 to 13 days)", Time(*ps))]
    NotATime { ps: i64 },
    #[error("no times to resample")]
    Empty,
    #[error("cannot merge a distribution in {0} with one in {1}")]
    UnitsDiffer(&'static str, &'static str),
    #[error("the histogram rejected a value: {0}")]
    Histogram(String),
    #[error("invalid distribution: its {0} does not match its bins")]
    NoParts(&'static str),
}

/// The unit of a histogram. Other tools expect nanoseconds in the files; below a microsecond they are
/// too coarse for three digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    #[default]
    #[serde(rename = "ns")]
    Nanoseconds,
    #[serde(rename = "ps")]
    Picoseconds,
}

impl Unit {
    pub const fn ps(self) -> i64 {
        match self {
            Unit::Nanoseconds => 1_000,
            Unit::Picoseconds => 1,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "ns",
            Unit::Picoseconds => "ps",
        }
    }

    /// The unit in which times up to `longest` keep three digits.
    pub const fn for_times_up_to(longest: i64) -> Unit {
        if longest < 1_000_000 { Unit::Picoseconds } else { Unit::Nanoseconds }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "Parts", try_from = "Parts")]
pub struct Distribution {
    histogram: Histogram<u64>,
    unit: Unit,
    sum: i128,
    min: i64,
    max: i64,
    zeros: u64,
}

/// A bin that is not empty: values from `low` to below `high`, ps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    pub low: i64,
    pub high: i64,
    pub count: u64,
}

impl Distribution {
    pub fn new(unit: Unit) -> Distribution {
        let histogram = Histogram::new(DIGITS).expect("a histogram can have three digits");
        Distribution { histogram, unit, sum: 0, min: i64::MAX, max: 0, zeros: 0 }
    }

    /// From times in ps; the largest of them determines the unit.
    pub fn of(times: &[i64]) -> Result<Distribution, DistributionError> {
        Self::of_counts(times.iter().map(|&time| (time, 1)))
    }

    /// From (time in ps, count); the largest time determines the unit.
    pub fn of_counts(
        counts: impl IntoIterator<Item = (i64, u64)> + Clone,
    ) -> Result<Distribution, DistributionError> {
        let longest = counts.clone().into_iter().map(|(time, _)| time).max().unwrap_or(i64::MAX);
        let mut distribution = Distribution::new(Unit::for_times_up_to(longest));
        for (time, count) in counts {
            distribution.record_n(time, count)?;
        }
        Ok(distribution)
    }

    #[inline]
    pub fn record(&mut self, time: i64) -> Result<(), DistributionError> {
        self.record_n(time, 1)
    }

    pub fn record_n(&mut self, time: i64, count: u64) -> Result<(), DistributionError> {
        if !(0..=LONGEST).contains(&time) {
            return Err(DistributionError::NotATime { ps: time });
        }
        if count == 0 {
            return Ok(());
        }
        let value = time as u64 / self.unit.ps() as u64;
        self.histogram.record_n(value, count).map_err(refused)?;
        self.sum += i128::from(time) * i128::from(count);
        self.min = self.min.min(time);
        self.max = self.max.max(time);
        if time == 0 {
            self.zeros += count;
        }
        Ok(())
    }

    /// Merges another one: the result is the same as recording all values into one.
    pub fn merge(&mut self, other: &Distribution) -> Result<(), DistributionError> {
        if self.unit != other.unit {
            return Err(DistributionError::UnitsDiffer(self.unit.name(), other.unit.name()));
        }
        self.histogram.add(&other.histogram).map_err(refused)?;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.zeros += other.zeros;
        Ok(())
    }

    pub fn unit(&self) -> Unit {
        self.unit
    }

    pub fn len(&self) -> u64 {
        self.histogram.len()
    }

    pub fn is_empty(&self) -> bool {
        self.histogram.is_empty()
    }

    /// Exact; 0 when empty.
    pub fn min(&self) -> i64 {
        if self.is_empty() { 0 } else { self.min }
    }

    /// Exact; 0 when empty.
    pub fn max(&self) -> i64 {
        self.max
    }

    /// Exact, ps.
    pub fn sum(&self) -> i128 {
        self.sum
    }

    /// Exact, ps; 0 when empty.
    pub fn mean(&self) -> f64 {
        if self.is_empty() { 0.0 } else { self.sum as f64 / self.len() as f64 }
    }

    pub fn zeros(&self) -> u64 {
        self.zeros
    }

    /// Fraction of values that are exactly zero; 0 when empty.
    pub fn zero_share(&self) -> f64 {
        if self.is_empty() { 0.0 } else { self.zeros as f64 / self.len() as f64 }
    }

    /// From the bins, ps: to three digits.
    pub fn sd(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self
            .bins()
            .map(|bin| bin.count as f64 * (self.middle(bin) as f64 - mean).powi(2))
            .sum();
        (squares / self.len().max(1) as f64).sqrt()
    }

    /// The time that a fraction `quantile` of the values does not exceed, to three digits and within
    /// the exact minimum and maximum, ps; 0 when empty.
    pub fn quantile(&self, quantile: f64) -> i64 {
        let value = self.histogram.value_at_quantile(quantile);
        // The last unit of the bin, so that no value in it is larger by more than a unit.
        let ps = (value as i64).saturating_mul(self.unit.ps());
        ps.clamp(self.min(), self.max)
    }

    /// Non-empty bins, in order.
    pub fn bins(&self) -> impl Iterator<Item = Bin> + '_ {
        let unit = self.unit.ps();
        self.histogram.iter_recorded().map(move |step| {
            let value = step.value_iterated_to();
            Bin {
                low: self.histogram.lowest_equivalent(value) as i64 * unit,
                high: self.histogram.next_non_equivalent(value) as i64 * unit,
                count: step.count_at_value(),
            }
        })
    }

    /// Each bin by its midpoint: 24 bytes and two reads per draw, regardless of the number of values.
    pub fn sampler(&self) -> Result<Sampler, DistributionError> {
        Sampler::of_counts(self.bins().map(|bin| (self.middle(bin), bin.count)))
    }

    /// Adds the exact sum, minimum, maximum and number of zeros to these bins.
    pub(super) fn with_exact(
        self,
        sum: i128,
        min: i64,
        max: i64,
        zeros: u64,
    ) -> Result<Distribution, DistributionError> {
        let fits = |exact: i64, of_bins: i64| {
            let value = |ps: i64| ps.max(0) as u64 / self.unit.ps() as u64;
            self.histogram.equivalent(value(exact), value(of_bins))
        };
        let range = 0 <= min && min <= max && fits(min, self.min) && fits(max, self.max);
        if !(self.is_empty() || range) {
            return Err(DistributionError::NoParts("range"));
        }
        if zeros > self.histogram.count_at(0) || (zeros > 0 && min != 0) {
            return Err(DistributionError::NoParts("number of zeros"));
        }
        let most = i128::from(self.len()) * i128::from(max);
        if !(0..=most).contains(&sum) {
            return Err(DistributionError::NoParts("sum"));
        }
        Ok(Distribution { sum, min, max, zeros, ..self })
    }

    pub(super) fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    /// The representative of a bin: its midpoint, clamped to the recorded range. A bin of one unit
    /// represents that unit: times measured in whole units are preserved.
    fn middle(&self, bin: Bin) -> i64 {
        let wide = bin.high - bin.low > self.unit.ps();
        let middle = if wide { bin.low + (bin.high - bin.low) / 2 } else { bin.low };
        middle.clamp(self.min(), self.max)
    }
}

impl PartialEq for Distribution {
    fn eq(&self, other: &Distribution) -> bool {
        self.unit == other.unit
            && (self.sum, self.min, self.max, self.zeros)
                == (other.sum, other.min, other.max, other.zeros)
            && self.bins().eq(other.bins())
    }
}

fn refused(error: impl std::fmt::Display) -> DistributionError {
    DistributionError::Histogram(error.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const US: i64 = 1_000_000;

    #[test]
    fn quartiles_keep_three_digits_at_any_scale() {
        for scale in [1, 37, 1_000, US, 1_000 * US, 3_600_000 * US] {
            let times: Vec<_> = (1..=1_000).map(|i| i * scale).collect();
            let all = Distribution::of(&times).unwrap();
            for (quantile, exact) in [(0.25, 250), (0.5, 500), (0.75, 750), (0.99, 990)] {
                let exact = (exact * scale) as f64;
                let error = (all.quantile(quantile) as f64 - exact).abs() / exact;
                assert!(error <= 1e-3, "{quantile} of {scale}: {error}");
            }
            assert_eq!((all.min(), all.max()), (scale, 1_000 * scale));
            assert_eq!(all.mean(), 500.5 * scale as f64);
            assert!((all.sd() / (288.675 * scale as f64) - 1.0).abs() < 1e-3);
        }
    }

    #[test]
    fn three_modes_of_an_exchange_stay_three_after_binning_merging_and_resampling() {
        use ::distribution::{modes, normal, sketch::Sample};

        use crate::noise::draw;

        let mixture = |counter: u64| {
            let (centre, width) = match draw(7, counter) % 10 {
                0..5 => (4.6, 0.15),
                5..8 => (5.7, 0.2),
                _ => (7.5, 0.25),
            };
            ((centre + width * normal(draw(8, counter))) * US as f64) as i64
        };
        let part = |range: std::ops::Range<u64>| {
            Distribution::of(&range.map(mixture).collect::<Vec<_>>()).unwrap()
        };
        let mut all = part(0..20_000);
        all.merge(&part(20_000..50_000)).unwrap();
        let sampler = all.sampler().unwrap();
        let drawn: Vec<_> = (0..50_000).map(|i| sampler.pick(draw(10, i))).collect();
        for all in [all, Distribution::of(&drawn).unwrap()] {
            let counts = all.bins().map(|bin| ((bin.low + bin.high) / 2, bin.count)).collect();
            let found = modes::find(&Sample::of_counts(counts).unwrap(), 1.0, 1).modes;
            assert_eq!(found.len(), 3, "{found:?}");
            for (mode, (at, share)) in found.iter().zip([(4.6, 0.5), (5.7, 0.3), (7.5, 0.2)]) {
                assert!((mode.at / US as f64 - at).abs() < 0.05, "{mode:?}");
                assert!((mode.share - share).abs() < 0.02, "{mode:?}");
            }
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        let mut all = Distribution::new(Unit::default());
        assert_eq!(all.record(-1), Err(DistributionError::NotATime { ps: -1 }));
        assert!(all.record(i64::MAX).is_err());
        assert!(all.is_empty() && all.record(LONGEST).is_ok());
        assert_eq!((all.quantile(1.0), all.len()), (LONGEST, 1));
        assert_eq!(Distribution::of(&[]).unwrap().sampler(), Err(DistributionError::Empty));
        let fine = Distribution::of(&[5]).unwrap();
        assert_eq!(all.merge(&fine), Err(DistributionError::UnitsDiffer("ns", "ps")));
    }

    #[test]
    fn exact_figures_must_fit_the_bins() {
        let of = || Distribution::of(&[2_752_512_000 * 1_000]).unwrap();
        let (min, max, sum) = (of().min(), of().max(), i128::from(of().max()));
        assert!(of().with_exact(sum, min, max, 0).is_ok());
        for (min, max) in [(max + 900, max), (-1, max), (i64::MIN, max)] {
            let refused = of().with_exact(sum, min, max, 0);
            assert_eq!(refused.unwrap_err(), DistributionError::NoParts("range"), "{min} {max}");
        }
    }

    #[test]
    fn an_empty_one_has_zeros_for_figures() {
        let none = Distribution::of(&[]).unwrap();
        assert_eq!((none.min(), none.max(), none.quantile(0.5)), (0, 0, 0));
        assert_eq!((none.mean(), none.sd(), none.zero_share()), (0.0, 0.0, 0.0));
    }

    proptest! {
        #[test]
        fn parts_add_up_to_the_whole(
            times in prop::collection::vec(0i64..1 << 50, 1..200), cut in 0usize..200,
        ) {
            let whole = Distribution::of(&times).unwrap();
            let (left, right) = times.split_at(cut.min(times.len()));
            let part = |times: &[i64]| {
                let mut part = Distribution::new(whole.unit());
                times.iter().try_for_each(|&time| part.record(time)).unwrap();
                part
            };
            let (mut one, mut two) = (part(left), part(right));
            one.merge(&two).unwrap();
            two.merge(&part(left)).unwrap();
            prop_assert_eq!(&one, &whole);
            prop_assert_eq!(&two, &whole);
            prop_assert_eq!(whole.bins().map(|bin| bin.count).sum::<u64>(), times.len() as u64);
        }
    }
}
