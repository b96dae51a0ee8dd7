//! Statistics of many runs: quantiles with confidence intervals, box plots, the knee.
//!
//! Quantiles interpolate between neighbouring order statistics. Their 95 % confidence intervals are
//! those of order statistics (the number of runs below a quantile is binomial): they assume nothing
//! about the distribution, and end at the most extreme run if the sample is too small.

use thiserror::Error;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("statistics need at least 1 run")]
pub struct NoRuns;

/// Times of runs, sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    sorted: Vec<i64>,
}

/// An estimate and its 95 % confidence interval, in the unit of the sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// A box plot: quartiles, the most extreme runs within 1.5 times the interquartile range, and the
/// number of outliers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Boxplot {
    pub q25: f64,
    pub median: f64,
    pub q75: f64,
    pub whisker_low: i64,
    pub whisker_high: i64,
    pub outliers: usize,
}

impl Sample {
    pub fn new(mut times: Vec<i64>) -> Result<Sample, NoRuns> {
        if times.is_empty() {
            return Err(NoRuns);
        }
        times.sort_unstable();
        Ok(Sample { sorted: times })
    }

    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    pub fn min(&self) -> i64 {
        self.sorted[0]
    }

    pub fn max(&self) -> i64 {
        self.sorted[self.sorted.len() - 1]
    }

    pub fn mean(&self) -> f64 {
        let sum: i128 = self.sorted.iter().map(|&time| i128::from(time)).sum();
        sum as f64 / self.sorted.len() as f64
    }

    /// The p-quantile, 0 to 1.
    pub fn quantile(&self, p: f64) -> f64 {
        let at = p.clamp(0.0, 1.0) * (self.sorted.len() - 1) as f64;
        let (low, high) = (at.floor() as usize, at.ceil() as usize);
        let (low, high) = (self.sorted[low] as f64, self.sorted[high] as f64);
        low + (high - low) * at.fract()
    }

    pub fn estimate(&self, p: f64) -> Estimate {
        let runs = self.sorted.len();
        // The numbers of runs below the quantile that enclose 95 % of all samples.
        let (low, high) = binomial_between(runs, p.clamp(0.0, 1.0));
        Estimate {
            value: self.quantile(p),
            low: self.sorted[low.saturating_sub(1).min(runs - 1)] as f64,
            high: self.sorted[high.min(runs - 1)] as f64,
        }
    }

    /// The runs within 1.5 times the interquartile range of the quartiles.
    fn within(&self) -> std::ops::Range<usize> {
        let (q25, q75) = (self.quantile(0.25), self.quantile(0.75));
        let reach = 1.5 * (q75 - q25);
        let from = self.sorted.partition_point(|&time| (time as f64) < q25 - reach);
        let to = self.sorted.partition_point(|&time| time as f64 <= q75 + reach);
        from..to
    }

    /// The others, ascending. Of more than `most`, evenly many from the shortest to the longest.
    pub fn outliers(&self, most: usize) -> Vec<i64> {
        let within = self.within();
        let (below, above) = (&self.sorted[..within.start], &self.sorted[within.end..]);
        let all: Vec<i64> = below.iter().chain(above).copied().collect();
        if all.len() <= most || most < 2 {
            return all.into_iter().take(most).collect();
        }
        (0..most).map(|index| all[index * (all.len() - 1) / (most - 1)]).collect()
    }

    pub fn boxplot(&self) -> Boxplot {
        let std::ops::Range { start: from, end: to } = self.within();
        Boxplot {
            q25: self.quantile(0.25),
            median: self.quantile(0.5),
            q75: self.quantile(0.75),
            whisker_low: self.sorted[from],
            whisker_high: self.sorted[to - 1],
            outliers: self.sorted.len() - (to - from),
        }
    }
}

/// The counts that enclose 95 % of a binomial distribution.
fn binomial_between(tries: usize, p: f64) -> (usize, usize) {
    if p == 0.0 || p == 1.0 {
        let count = if p == 0.0 { 0 } else { tries };
        return (count, count);
    }
    // Weights relative to the mode's, outwards until they are negligible: nothing overflows, and the
    // number of steps grows only with the standard deviation.
    let mode = (((tries + 1) as f64 * p).floor() as usize).min(tries);
    let odds = p / (1.0 - p);
    let mut weights = std::collections::VecDeque::from([1.0]);
    let (mut first, mut last) = (mode, mode);
    while first > 0 && weights[0] > 1e-17 {
        weights.push_front(weights[0] * first as f64 / ((tries - first + 1) as f64 * odds));
        first -= 1;
    }
    while last < tries && weights[weights.len() - 1] > 1e-17 {
        let next = (tries - last) as f64 / (last + 1) as f64 * odds;
        weights.push_back(weights[weights.len() - 1] * next);
        last += 1;
    }
    let total: f64 = weights.iter().sum();
    let quantile = |share: f64| {
        let mut below = 0.0;
        let at = weights.iter().position(|weight| {
            below += weight;
            below >= share * total
        });
        first + at.unwrap_or(weights.len() - 1)
    };
    (quantile(0.025), quantile(0.975))
}

/// How far the median must exceed the noiseless time for noise to count as a bottleneck.
pub const KNEE_RATIO: f64 = 1.1;

/// Where noise becomes the bottleneck. Only the simulated rank counts are known: the knee lies above
/// `above` and at or below `ranks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knee {
    /// The smallest simulated rank count from which the median stays off the noiseless line.
    pub ranks: u64,
    /// The largest smaller rank count known to be on the line, if any.
    pub above: Option<u64>,
    /// Whether nothing smaller than `ranks` was simulated.
    pub smallest: bool,
}

impl Knee {
    /// Whether the knee may be anywhere below `ranks`. There is nothing below a single rank.
    #[must_use]
    pub fn is_upper_bound(&self) -> bool {
        self.above.is_none() && self.ranks > 1
    }
}

/// Finds the knee. A median is off the noiseless line if the lower bound of its 95 % confidence
/// interval is more than a tenth above it, and on it if the upper bound is not. Points are (ranks,
/// noiseless time, median).
#[must_use]
pub fn knee(points: &[(u64, i64, Estimate)]) -> Option<Knee> {
    let mut sorted = points.to_vec();
    sorted.sort_by_key(|point| point.0);
    let limit = |noiseless: i64| noiseless as f64 * KNEE_RATIO;
    let off = |(_, noiseless, median): &&(u64, i64, Estimate)| median.low > limit(*noiseless);
    let on = |(_, noiseless, median): &&(u64, i64, Estimate)| median.high <= limit(*noiseless);
    let at = sorted.len() - sorted.iter().rev().take_while(off).count();
    let ranks = sorted.get(at)?.0;
    let above = sorted[..at].iter().rfind(on).map(|point| point.0);
    Some(Knee { ranks, above, smallest: at == 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outliers_are_the_runs_beyond_the_whiskers() {
        let times: Vec<i64> = (100..200).chain([1, 2, 900, 901, 902, 903]).collect();
        let sample = Sample::new(times).unwrap();
        assert_eq!(sample.outliers(100), [1, 2, 900, 901, 902, 903]);
        assert_eq!(sample.outliers(100).len(), sample.boxplot().outliers);
        // The extremes are always among them.
        assert_eq!(sample.outliers(3), [1, 900, 903]);
        assert_eq!((sample.outliers(1), sample.outliers(0)), (vec![1], vec![]));
        assert!(Sample::new(vec![5; 10]).unwrap().outliers(10).is_empty());
    }

    #[test]
    fn quantiles_interpolate_and_their_intervals_hold_them() {
        let sample = Sample::new((0..=1000).rev().collect()).unwrap();
        assert_eq!(sample.quantile(0.5), 500.0);
        assert_eq!(sample.quantile(0.25), 250.0);
        let median = sample.estimate(0.5);
        // 1.96 standard deviations of a binomial with 1001 tries: 31.
        assert!((466.0..472.0).contains(&median.low), "{median:?}");
        assert!((528.0..534.0).contains(&median.high), "{median:?}");
        let two = Sample::new(vec![1, 2]).unwrap();
        assert_eq!(two.quantile(0.5), 1.5);
        assert_eq!((two.estimate(0.5).low, two.estimate(0.5).high), (1.0, 2.0));
        assert_eq!(Sample::new(vec![]), Err(NoRuns));
    }

    #[test]
    fn binomial_quantiles_are_those_of_the_tables() {
        assert_eq!(binomial_between(10, 0.5), (2, 8));
        assert_eq!(binomial_between(100, 0.5), (40, 60));
        assert_eq!(binomial_between(1000, 0.99), (983, 996));
        assert_eq!(binomial_between(3, 0.5), (0, 3));
        assert_eq!(binomial_between(5, 1.0), (5, 5));
        let (low, high) = binomial_between(10_000_000, 0.25);
        assert!((2_497_310..2_497_325).contains(&low) && (2_502_675..2_502_690).contains(&high));
    }

    #[test]
    fn whiskers_end_at_runs_and_outliers_are_counted() {
        let mut times: Vec<i64> = (100..200).collect();
        times.extend([1000, 2000]);
        let plot = Sample::new(times).unwrap().boxplot();
        assert_eq!((plot.whisker_low, plot.whisker_high, plot.outliers), (100, 199, 2));
    }

    #[test]
    fn the_knee_is_where_the_median_leaves_the_noiseless_line_for_good() {
        let exact = |value: f64| Estimate { value, low: value, high: value };
        let point = |ranks, median| (ranks, 100, exact(median));
        let points =
            [point(2, 100.0), point(4, 150.0), point(8, 105.0), point(16, 120.0), point(32, 400.0)];
        assert_eq!(knee(&points), Some(Knee { ranks: 16, above: Some(8), smallest: false }));
        assert_eq!(knee(&points[..3]), None);
        assert_eq!(knee(&[]), None);
        let unsure = (64, 100, Estimate { value: 400.0, low: 100.0, high: 500.0 });
        assert_eq!(knee(&[point(32, 400.0), unsure]), None);
    }

    #[test]
    fn a_knee_at_the_smallest_simulated_rank_count_is_an_upper_bound() {
        let point = |ranks, low, high| (ranks, 100, Estimate { value: low, low, high });
        let bound = |points: &[_]| knee(points).map(|knee| (knee.ranks, knee.is_upper_bound()));
        assert_eq!(bound(&[point(65_536, 400.0, 400.0)]), Some((65_536, true)));
        assert_eq!(bound(&[point(8, 120.0, 120.0), point(4, 120.0, 120.0)]), Some((4, true)));
        assert_eq!(bound(&[point(4, 100.0, 105.0), point(8, 120.0, 120.0)]), Some((8, false)));
        // At 4 ranks the runs are inconclusive: the knee may be there or below.
        let unsure = [point(4, 100.0, 300.0), point(8, 120.0, 120.0)];
        assert_eq!(knee(&unsure), Some(Knee { ranks: 8, above: None, smallest: false }));
        assert_eq!(bound(&unsure), Some((8, true)));
        // There is nothing below a single rank.
        assert_eq!(bound(&[point(1, 120.0, 120.0)]), Some((1, false)));
    }

    #[test]
    fn intervals_cover_the_true_median_as_often_as_they_say() {
        let mut covered = 0;
        for trial in 0..2000 {
            let times = (0..101).map(|i| (crate::noise::draw(trial, i) >> 12) as i64).collect();
            let median = Sample::new(times).unwrap().estimate(0.5);
            let truth = (1u64 << 51) as f64;
            covered += usize::from(median.low <= truth && truth <= median.high);
        }
        assert!((1880..=1960).contains(&covered), "{covered} of 2000");
    }
}
