//! The tail of a sample: a generalised Pareto distribution of what exceeds a threshold, which is the lowest one
//! above which the distribution fits.

use rand::RngExt;
use random::Stream;
use rayon::prelude::*;

use crate::{
    fit::kolmogorov,
    pareto::{self, Pareto},
    sketch::Sample,
};

/// Most exceedances, and fewest.
const MOST: usize = 4096;
const FEWEST: usize = 50;
/// Fits with a smaller p-value are not accepted.
const FITS: f64 = 0.1;
const REPLICATES: u64 = 100;
const BATCH: u64 = 20;
const ENOUGH: usize = 10;

/// The fitted tail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tail {
    pub threshold: f64,
    /// Samples above it.
    pub exceeding: usize,
    pub pareto: Pareto,
    /// Largest distance of the distribution functions (Kolmogorov and Smirnov).
    pub distance: f64,
    /// By parametric bootstrap, or an upper bound that already is small.
    pub p_value: f64,
}

/// None if too few samples exceed their smallest tenth from above, or all of them are equal.
pub fn tail(sample: &Sample, seed: u64) -> Option<Tail> {
    let mut most = MOST.min((sample.n() / 10) as usize);
    let largest = sample.top(most + 1);
    let mut last = None;
    while most >= FEWEST {
        let threshold = *largest.get(most)? as f64;
        let mut excesses: Vec<f64> = largest[..most]
            .iter()
            .map(|&value| value as f64 - threshold)
            .filter(|excess| *excess > 0.0)
            .collect();
        if excesses.len() < FEWEST {
            break;
        }
        excesses.reverse();
        if let Some(found) = above(threshold, &excesses, seed) {
            last = Some(found);
            if found.p_value >= FITS {
                break;
            }
        }
        most /= 2;
    }
    last
}

/// Of excesses in ascending order.
fn above(threshold: f64, excesses: &[f64], seed: u64) -> Option<Tail> {
    let pareto = pareto::fit(excesses)?;
    let distance = distance(&pareto, excesses);
    let n = excesses.len();
    let mut p_value = kolmogorov(distance * (n as f64).sqrt());
    if p_value >= 0.05 {
        let further = |replicate: &u64| {
            let mut stream = Stream::new(random::key(seed, 0x7461_696c, *replicate));
            let draws = (0..n).map(|_| pareto.exceeded_with(1.0 - stream.random::<f64>()));
            let mut again: Vec<f64> = draws.collect();
            again.sort_unstable_by(f64::total_cmp);
            pareto::fit(&again).is_none_or(|fit| self::distance(&fit, &again) >= distance)
        };
        let (mut done, mut found) = (0, 0);
        while done < REPLICATES && found < ENOUGH {
            found += (done..done + BATCH).into_par_iter().filter(further).count();
            done += BATCH;
        }
        p_value = (found as f64 + 1.0) / (done as f64 + 1.0);
    }
    Some(Tail { threshold, exceeding: n, pareto, distance, p_value })
}

fn distance(pareto: &Pareto, ascending: &[f64]) -> f64 {
    let n = ascending.len() as f64;
    let far = |(rank, &excess): (usize, &f64)| {
        let share = pareto.cdf(excess);
        (share - rank as f64 / n).abs().max((share - (rank as f64 + 1.0) / n).abs())
    };
    ascending.iter().enumerate().map(far).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(i: u64) -> f64 {
        ((random::draw(5, i) >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    fn sample(n: u64, value: impl Fn(f64) -> f64) -> Sample {
        let values: Vec<i64> = (0..n).map(|i| (value(unit(i)) * 1e6).round() as i64).collect();
        Sample::of_values(&values, 1).unwrap()
    }

    #[test]
    fn tails_of_known_distributions_have_their_shapes() {
        for n in [20_000, 2_000_000] {
            for (name, shape, value) in [
                ("exponential", 0.0, (|u| 4.0 - f64::ln(u)) as fn(f64) -> f64),
                ("power law", 0.5, |u| 4.0 + u.powf(-0.5)),
                ("uniform", -1.0, |u| 4.0 + u),
            ] {
                let tail = tail(&sample(n, value), 1).unwrap();
                let error = (tail.pareto.shape - shape).abs();
                // Its standard error is (1 + shape)/sqrt(n).
                let few = 4.0 * (1.0 + shape.abs()) / (tail.exceeding as f64).sqrt();
                assert!(error < few, "{name}, {n}: {tail:?}");
                assert!(tail.p_value >= 0.05 && tail.exceeding >= 1_000, "{name}, {n}: {tail:?}");
            }
        }
    }

    #[test]
    fn the_threshold_is_above_what_does_not_belong_to_the_tail() {
        // 8 % gather around 6 in a body of 10 to 12; 2 % have an exponential tail from 12 on.
        let value = |u: f64| match u {
            u if u < 0.02 => 12.0 - (u / 0.02).ln(),
            u if u < 0.1 => 11.0 + 0.01 * ((u - 0.02) / 0.08),
            u => 5.0 + u,
        };
        let tail = tail(&sample(100_000, value), 1).unwrap();
        assert!(tail.threshold >= 11e6 && tail.p_value >= 0.05, "{tail:?}");
        assert!(tail.pareto.shape.abs() < 0.25, "{tail:?}");
    }

    #[test]
    fn what_has_no_tail_has_none() {
        assert!(tail(&sample(100_000, |_| 5.0), 1).is_none());
        assert!(tail(&sample(400, |u| u), 1).is_none());
    }
}
