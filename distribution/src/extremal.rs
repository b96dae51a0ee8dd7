//! Whether exceedances come alone or in clusters.
//!
//! The extremal index is one over the mean size of a cluster: what comes in clusters of two has an index of
//! one half, and the largest of n such values is distributed like that of n/2 independent ones.

/// The extremal index from the gaps between consecutive exceedances, by the intervals estimator of Ferro and
/// Segers (J. R. Statist. Soc. B 65, 2003), which needs no declustering. Between 0 and 1; 1 for fewer than
/// three exceedances, of which nothing can be said.
///
/// `gaps` are counted in observations: 1 is the next one.
pub fn index(gaps: &[u64]) -> f64 {
    if gaps.len() < 2 {
        return 1.0;
    }
    let n = gaps.len() as f64;
    let largest = gaps.iter().copied().max().unwrap_or(0);
    let sum = |of: &dyn Fn(f64) -> f64| gaps.iter().map(|&gap| of(gap as f64)).sum::<f64>();
    let (first, second) = if largest <= 2 {
        (sum(&|gap| gap), sum(&|gap| gap * gap))
    } else {
        // Corrects the bias of small gaps: those in a cluster count as zero.
        (sum(&|gap| gap - 1.0), sum(&|gap| (gap - 1.0) * (gap - 2.0)))
    };
    if second <= 0.0 {
        return 1.0;
    }
    (2.0 * first * first / (n * second)).clamp(0.0, 1.0)
}

/// Runs declustering: exceedances separated by less than `run` observations are one cluster. Returns the
/// first of every cluster and the one after its last.
pub fn clusters(positions: &[u64], run: u64) -> Vec<std::ops::Range<usize>> {
    let mut clusters = Vec::new();
    let mut first = 0;
    for (next, pair) in (1..).zip(positions.windows(2)) {
        if pair[1] - pair[0] >= run {
            clusters.push(first..next);
            first = next;
        }
    }
    if !positions.is_empty() {
        clusters.push(first..positions.len());
    }
    clusters
}

/// The clusters that the extremal index says there are: the largest gaps separate them (Ferro and Segers). Needs
/// no run length.
pub fn separated(gaps: &[u64], index: f64) -> Vec<std::ops::Range<usize>> {
    let exceedances = gaps.len() + 1;
    let clusters = ((index * exceedances as f64).round() as usize).clamp(1, exceedances);
    let mut largest: Vec<usize> = (0..gaps.len()).collect();
    // Of equal gaps the first: the result does not depend on the sort.
    largest.sort_by_key(|&at| (std::cmp::Reverse(gaps[at]), at));
    let mut ends: Vec<usize> = largest.iter().take(clusters - 1).map(|at| at + 1).collect();
    ends.push(exceedances);
    ends.sort_unstable();
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(ends.iter().copied()).map(|(start, end)| start..end).collect()
}

#[cfg(test)]
mod tests {
    use rand::RngExt;
    use random::Stream;

    use super::*;

    fn positions(values: &[f64], threshold: f64) -> Vec<u64> {
        (0..).zip(values).filter(|(_, value)| **value > threshold).map(|(at, _)| at).collect()
    }

    fn gaps(positions: &[u64]) -> Vec<u64> {
        positions.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    fn uniform(n: usize, seed: u64) -> Vec<f64> {
        let mut stream = Stream::new(seed);
        (0..n).map(|_| stream.random::<f64>()).collect()
    }

    #[test]
    fn independent_values_have_index_one() {
        let values = uniform(50_000, 1);
        let found = index(&gaps(&positions(&values, 0.98)));
        assert!(found > 0.93, "{found}");
    }

    /// The larger of two neighbours: every large value comes twice, so that the index is 1/2.
    #[test]
    fn a_moving_maximum_of_two_has_index_one_half() {
        let values: Vec<f64> = uniform(100_000, 2).windows(2).map(|w| w[0].max(w[1])).collect();
        for threshold in [0.98, 0.99] {
            let positions = positions(&values, threshold);
            let found = index(&gaps(&positions));
            assert!((found - 0.5).abs() < 0.05, "{found}");
            let clusters = clusters(&positions, 3);
            let by_runs = clusters.len() as f64 / positions.len() as f64;
            assert!((by_runs - 0.5).abs() < 0.05, "{by_runs}");
        }
    }

    /// An autoregressive maximum, x' = max(a x, (1 - a) z) with z of unit Fréchet type, has index 1 - a.
    #[test]
    fn an_autoregressive_maximum_has_the_index_of_its_innovations() {
        let mut x = 1.0f64;
        let draw = |u: &f64| {
            x = (0.75 * x).max(0.25 / -u.ln());
            x
        };
        let values: Vec<f64> = uniform(200_000, 3).iter().map(draw).collect();
        let mut sorted = values.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let found = index(&gaps(&positions(&values, sorted[197_000])));
        assert!((found - 0.25).abs() < 0.04, "{found}");
    }

    #[test]
    fn what_is_regular_comes_alone_and_few_say_nothing() {
        assert_eq!(index(&[100; 50]), 1.0);
        assert_eq!((index(&[]), index(&[5]), index(&[1, 1, 1])), (1.0, 1.0, 1.0));
        assert!(index(&[1, 1, 1, 1, 1, 1, 10_000]) < 0.4);
    }

    #[test]
    fn clusters_cover_every_exceedance_once() {
        assert_eq!(clusters(&[], 5), []);
        assert_eq!(clusters(&[7], 5).len(), 1);
        assert_eq!(clusters(&[1, 2, 9, 12, 40], 5), [0..2, 2..4, 4..5]);
    }
}
