//! The bootstrap: how a figure varies if the sample is drawn again from itself.

use rand::RngExt;

use crate::Stream;

/// Draws as many elements as there are, with replacement: how often each is drawn.
pub fn resample(stream: &mut Stream, counts: &mut [u32]) {
    counts.fill(0);
    let length = counts.len() as u64;
    for _ in 0..length {
        counts[stream.random_range(0..length) as usize] += 1;
    }
}

/// The central 95 % of resampled figures, which always contain the figure itself.
pub fn interval(value: f64, mut resampled: Vec<f64>) -> (f64, f64) {
    resampled.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| {
        let index = (share * resampled.len().saturating_sub(1) as f64).round() as usize;
        resampled.get(index).copied().unwrap_or(value)
    };
    (at(0.025).min(value), at(0.975).max(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resample_has_as_many_elements_and_all_are_equally_likely() {
        let mut stream = Stream::new(3);
        let (mut counts, mut sums) = (vec![0; 10], [0u32; 10]);
        for _ in 0..1000 {
            resample(&mut stream, &mut counts);
            assert_eq!(counts.iter().sum::<u32>(), 10);
            sums.iter_mut().zip(&counts).for_each(|(sum, count)| *sum += count);
        }
        // 1000 expected, with a standard deviation of 30.
        assert!(sums.iter().all(|sum| (850..1150).contains(sum)), "{sums:?}");
        resample(&mut stream, &mut []);
    }

    #[test]
    fn an_interval_leaves_out_a_fortieth_at_either_end() {
        let figures = (0..=1000).rev().map(f64::from).collect();
        assert_eq!(interval(500.0, figures), (25.0, 975.0));
        assert_eq!(interval(7.0, Vec::new()), (7.0, 7.0));
    }
}
