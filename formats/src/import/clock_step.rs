//! Detects the resolution of a coarse clock.
//!
//! Some clocks tick only every few hundred nanoseconds, and then all lengths are multiples of that step,
//! up to the rounding of the conversion to nanoseconds. Finer clocks leave no such pattern; steps below
//! [`FINEST`] do not matter.

/// Steps shorter than this do not blur detours.
const FINEST: f64 = 10.0;
/// Lengths that differ by less are the same number of steps, rounded differently.
const ROUNDING: f64 = 2.5;
/// This many lengths determine the step as well as all of them.
const SAMPLE: usize = 4096;
/// With fewer distinct lengths, regularity may come from the noise itself.
const FEWEST: usize = 5;

pub(super) fn detect(detours: &[(f64, f64)]) -> Option<f64> {
    let stride = detours.len().div_ceil(SAMPLE).max(1);
    let mut lengths: Vec<f64> = detours.iter().step_by(stride).map(|&(_, length)| length).collect();
    lengths.sort_by(f64::total_cmp);
    let values = clusters(&lengths);
    if values.len() < FEWEST {
        return None;
    }
    let gaps = values.iter().zip(values.iter().skip(1)).map(|(a, b)| b - a);
    let smallest = gaps.min_by(f64::total_cmp)?;
    // If no two adjacent step counts occur, the smallest gap is a few steps.
    (1..=4)
        .map(|parts| sharpen(&values, smallest / f64::from(parts)))
        .find(|&step| step >= FINEST && explains(step, &lengths))
}

/// Each length refines the step enough to count the steps of the next.
fn sharpen(values: &[f64], mut step: f64) -> f64 {
    let (mut products, mut squares) = (0.0, 0.0);
    for value in values {
        let count = (value / step).round();
        products += count * value;
        squares += count * count;
        if squares > 0.0 {
            step = products / squares;
        }
    }
    step
}

/// Whether nearly all lengths are multiples of the step.
fn explains(step: f64, lengths: &[f64]) -> bool {
    let fits = |length: &&f64| {
        let rest = (*length / step).round().mul_add(-step, **length).abs();
        // The conversion factor is accurate only to a few parts per million.
        rest <= ROUNDING + **length * 1e-5 && rest < 0.1 * step
    };
    lengths.iter().filter(fits).count() * 100 >= lengths.len() * 98
}

/// The middle of each group of nearly equal values; `sorted` is ascending.
fn clusters(sorted: &[f64]) -> Vec<f64> {
    let mut middles = Vec::new();
    for group in sorted.chunk_by(|a, b| b - a <= ROUNDING) {
        middles.push(group.iter().sum::<f64>() / group.len() as f64);
    }
    middles
}

#[cfg(test)]
mod tests {
    use super::detect;

    fn lengths(of: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        // Multiples of the golden ratio spread evenly over the unit interval.
        (0..2000).map(f64::from).map(|i| (i * 1e6, of((i * 0.618_033_988_75).fract()))).collect()
    }

    #[test]
    fn a_coarse_clock_is_found_through_the_rounding() {
        let coarse = lengths(|x| ((8.0 + 40.0 * x).round() * 238.4186).round());
        let step = detect(&coarse).expect("a step of 238 ns");
        assert!((step - 238.4186).abs() < 0.1, "{step}");
    }

    #[test]
    fn a_fine_clock_has_no_step() {
        assert_eq!(detect(&lengths(|x| 1000.0 + 5000.0 * x)), None);
        assert_eq!(detect(&lengths(|x| (1000.0 + 1e7 * x * x).round())), None);
    }

    #[test]
    fn noise_of_one_length_says_nothing_about_the_clock() {
        assert_eq!(detect(&lengths(|_| 200_000.0)), None);
        assert_eq!(detect(&[]), None);
    }
}
