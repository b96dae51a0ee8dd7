//! Statistics of a series of times: the exact ones of its distribution, and the correlation of
//! consecutive times, which a distribution does not show.

/// Times in ps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub samples: u64,
    pub mean: f64,
    /// Population standard deviation.
    pub sd: f64,
    pub min: i64,
    pub q25: i64,
    pub median: i64,
    pub q75: i64,
    pub p99: i64,
    pub max: i64,
    pub skewness: f64,
    /// Correlation of a time with the next one of the same walk, from -1 to 1; 0 if there is no next
    /// one, or no variation.
    pub autocorrelation: f64,
}

impl Summary {
    /// For consecutive walks of `per_walk` times each (the last may be shorter).
    pub fn of(series: &[i64], per_walk: usize) -> Summary {
        let mut sorted = series.to_vec();
        sorted.sort_unstable();
        let count = series.len().max(1) as f64;
        let mean = series.iter().map(|&time| i128::from(time)).sum::<i128>() as f64 / count;
        let (mut squares, mut cubes) = (0.0, 0.0);
        for &time in &sorted {
            let off = time as f64 - mean;
            squares += off * off;
            cubes += off * off * off;
        }
        let variance = squares / count;
        let (mut products, mut pairs) = (0.0, 0u64);
        for walk in series.chunks(per_walk.max(1)) {
            for next in walk.windows(2) {
                products += (next[0] as f64 - mean) * (next[1] as f64 - mean);
                pairs += 1;
            }
        }
        let varies = variance > 0.0;
        Summary {
            samples: series.len() as u64,
            mean,
            sd: variance.sqrt(),
            min: at(&sorted, 0.0),
            q25: at(&sorted, 0.25),
            median: at(&sorted, 0.5),
            q75: at(&sorted, 0.75),
            p99: at(&sorted, 0.99),
            max: at(&sorted, 1.0),
            skewness: if varies { cubes / count / variance.powf(1.5) } else { 0.0 },
            autocorrelation: if varies && pairs > 0 {
                products / pairs as f64 / variance
            } else {
                0.0
            },
        }
    }
}

/// The smallest value that at least this fraction does not exceed; 0 when empty.
fn at(sorted: &[i64], quantile: f64) -> i64 {
    let rank = (sorted.len() as f64 * quantile).ceil().max(1.0) as usize;
    sorted.get(rank - 1).copied().unwrap_or(0)
}

/// Largest distance between two empirical distribution functions (Kolmogorov-Smirnov); None if one has
/// no values. A distance only: times of one walk are correlated, so the usual significance levels do
/// not apply.
pub fn ks_distance(one: &[i64], other: &[i64]) -> Option<f64> {
    if one.is_empty() || other.is_empty() {
        return None;
    }
    let sorted = |times: &[i64]| {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        sorted
    };
    let (one, other) = (sorted(one), sorted(other));
    let (mut i, mut j) = (0, 0);
    let mut distance = 0.0f64;
    while i < one.len() && j < other.len() {
        let value = one[i].min(other[j]);
        while i < one.len() && one[i] == value {
            i += 1;
        }
        while j < other.len() && other[j] == value {
            j += 1;
        }
        let apart = i as f64 / one.len() as f64 - j as f64 / other.len() as f64;
        distance = distance.max(apart.abs());
    }
    Some(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_worked_out_by_hand() {
        let figures = Summary::of(&[2, 4, 4, 4, 5, 5, 7, 9], 8);
        assert_eq!((figures.mean, figures.sd), (5.0, 2.0));
        assert_eq!((figures.min, figures.q25, figures.median), (2, 4, 4));
        assert_eq!((figures.q75, figures.p99, figures.max), (5, 9, 9));
        // (-27 - 3 + 8 + 64) / 8 / 8
        assert!((figures.skewness - 0.65625).abs() < 1e-12);
        assert!((figures.autocorrelation - (3.0 + 1.0 + 1.0 + 8.0) / 7.0 / 4.0).abs() < 1e-12);
    }

    #[test]
    fn no_walk_reaches_into_the_next() {
        let alternating: Vec<_> = (0..100).map(|i| i % 2).collect();
        assert_eq!(Summary::of(&alternating, 100).autocorrelation, -1.0);
        assert_eq!(Summary::of(&alternating, 1).autocorrelation, 0.0);
        let pairs: Vec<_> = (0..100).map(|i| i / 2 % 2).collect();
        assert_eq!(Summary::of(&pairs, 2).autocorrelation, 1.0);
        assert_eq!(Summary::of(&[], 10).max, 0);
        assert_eq!(Summary::of(&[3; 10], 10).skewness, 0.0);
    }

    #[test]
    fn distances_between_distributions_are_those_of_their_steps() {
        assert_eq!(ks_distance(&[1, 2, 3], &[3, 1, 2]), Some(0.0));
        assert_eq!(ks_distance(&[1, 2], &[3, 4]), Some(1.0));
        assert_eq!(ks_distance(&[1, 2, 3, 4], &[3, 4]), Some(0.5));
        assert_eq!(ks_distance(&[1, 1, 1, 2], &[1, 2]), Some(0.25));
        assert_eq!(ks_distance(&[], &[1]), None);
    }
}
