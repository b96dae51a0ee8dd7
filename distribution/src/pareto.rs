//! The generalised Pareto distribution of what exceeds a threshold: by the theorem of Pickands, Balkema and
//! de Haan, the limit for almost any tail.
//!
//! Excesses go in, shape and scale come out. Shape above zero is a power law (moments from 1/shape upwards are
//! infinite), zero is exponential, below zero has a largest value.

/// Below this, the shape is taken as zero: the formulas lose their digits, and the exponential is as close.
const FLAT: f64 = 1e-9;

/// A generalised Pareto distribution of excesses over a threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pareto {
    pub shape: f64,
    /// In the unit of the excesses.
    pub scale: f64,
}

impl Pareto {
    /// The probability to exceed `x`.
    pub fn survival(&self, x: f64) -> f64 {
        if x <= 0.0 {
            return 1.0;
        }
        let z = x / self.scale;
        if self.shape.abs() < FLAT {
            return (-z).exp();
        }
        let base = self.shape * z;
        if base <= -1.0 { 0.0 } else { (-base.ln_1p() / self.shape).exp() }
    }

    pub fn cdf(&self, x: f64) -> f64 {
        1.0 - self.survival(x)
    }

    /// The logarithm of the density; minus infinity outside the support.
    pub fn ln_density(&self, x: f64) -> f64 {
        let z = x / self.scale;
        if z < 0.0 {
            return f64::NEG_INFINITY;
        }
        if self.shape.abs() < FLAT {
            return -self.scale.ln() - z;
        }
        let base = self.shape * z;
        if base <= -1.0 {
            return f64::NEG_INFINITY;
        }
        -self.scale.ln() - (1.0 + 1.0 / self.shape) * base.ln_1p()
    }

    /// What is exceeded with the probability `survival`, which is between 0 and 1. Infinite at 0 if nothing
    /// bounds it.
    pub fn exceeded_with(&self, survival: f64) -> f64 {
        let ln = survival.clamp(0.0, 1.0).ln();
        if self.shape.abs() < FLAT {
            return -self.scale * ln;
        }
        // Exact for survival near 1, where the difference of two powers would lose its digits.
        self.scale * (-self.shape * ln).exp_m1() / self.shape
    }

    /// The largest excess there can be.
    pub fn end(&self) -> f64 {
        if self.shape < 0.0 { -self.scale / self.shape } else { f64::INFINITY }
    }

    /// Infinite for shapes from 1.
    pub fn mean(&self) -> f64 {
        if self.shape < 1.0 { self.scale / (1.0 - self.shape) } else { f64::INFINITY }
    }

    /// The same distribution seen from a higher threshold, `by` above: the shape is the same.
    pub fn above(&self, by: f64) -> Pareto {
        Pareto { shape: self.shape, scale: self.scale + self.shape * by }
    }
}

/// The sum of ln(1 + `slope` x). One logarithm for several factors, as long as the product stays finite.
pub(crate) fn ln_sum(slope: f64, excesses: &[f64]) -> f64 {
    excesses
        .chunks(8)
        .map(|chunk| {
            let product: f64 = chunk.iter().map(|x| 1.0 + slope * x).product();
            if product.is_finite() && product > 1e-250 {
                product.ln()
            } else {
                chunk.iter().map(|x| (slope * x).ln_1p()).sum()
            }
        })
        .sum()
}

/// Shape and scale of excesses, by the estimator of Zhang and Stephens (Technometrics 51, 2009): a mean over
/// the profile likelihood. Unlike maximum likelihood, it exists for every sample, and is as efficient.
///
/// None if fewer than two different positive, finite values remain.
pub fn fit(excesses: &[f64]) -> Option<Pareto> {
    let mut sorted: Vec<f64> =
        excesses.iter().copied().filter(|x| x.is_finite() && *x > 0.0).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let (first, last) = (*sorted.first()?, *sorted.last()?);
    if first == last {
        return None;
    }
    let n = sorted.len() as f64;
    let points = 20 + n.sqrt() as usize;
    let quartile = sorted[((n / 4.0 + 0.5) as usize).max(1) - 1];
    // The paper's b is minus the slope here.
    let slope = |point: usize| {
        let spread = 1.0 - (points as f64 / (point as f64 + 0.5)).sqrt();
        -(1.0 / last + spread / (3.0 * quartile))
    };
    // Of the best scale for each slope; the additive constant cancels.
    let profile = |slope: f64| {
        let shape = ln_sum(slope, &sorted) / n;
        let inverse_scale =
            if shape.abs() < FLAT { n / sorted.iter().sum::<f64>() } else { slope / shape };
        n * (inverse_scale.ln() - shape - 1.0)
    };
    let slopes: Vec<f64> = (0..points).map(slope).collect();
    let heights: Vec<f64> = slopes.iter().map(|&slope| profile(slope)).collect();
    let highest = heights.iter().copied().filter(|h| h.is_finite()).fold(f64::MIN, f64::max);
    let weights = heights.iter().map(|h| if h.is_finite() { (h - highest).exp() } else { 0.0 });
    let (mut sum, mut mean) = (0.0, 0.0);
    for (weight, slope) in weights.zip(&slopes) {
        sum += weight;
        mean += weight * slope;
    }
    let slope = mean / sum;
    let shape = ln_sum(slope, &sorted) / n;
    let scale = if shape.abs() < FLAT { sorted.iter().sum::<f64>() / n } else { shape / slope };
    (scale.is_finite() && scale > 0.0).then_some(Pareto { shape, scale })
}

#[cfg(test)]
mod tests {
    use rand::RngExt;
    use random::Stream;

    use super::*;

    fn sample(pareto: Pareto, n: usize, seed: u64) -> Vec<f64> {
        let mut stream = Stream::new(seed);
        (0..n).map(|_| pareto.exceeded_with(1.0 - stream.random::<f64>())).collect()
    }

    #[test]
    fn quantile_survival_and_density_belong_together() {
        for shape in [-0.3, 0.0, 1e-12, 0.3, 0.6, 2.0] {
            let pareto = Pareto { shape, scale: 7.0 };
            for survival in [1.0, 0.999_999, 0.5, 1e-3, 1e-9] {
                let x = pareto.exceeded_with(survival);
                let back = pareto.survival(x);
                assert!((back / survival - 1.0).abs() < 1e-6, "{shape} {survival} {back}");
            }
            let (x, step) = (pareto.exceeded_with(0.4), 1e-4);
            let slope = (pareto.survival(x - step) - pareto.survival(x + step)) / (2.0 * step);
            assert!((slope.ln() - pareto.ln_density(x)).abs() < 1e-5, "{shape}");
        }
        let bounded = Pareto { shape: -0.5, scale: 1.0 };
        assert_eq!((bounded.end(), bounded.survival(2.0), bounded.cdf(3.0)), (2.0, 0.0, 1.0));
        assert_eq!(bounded.ln_density(2.5), f64::NEG_INFINITY);
        // The mean excess over a threshold is linear in it.
        assert_eq!(Pareto { shape: 0.5, scale: 1.0 }.above(2.0).mean(), 4.0);
    }

    /// The standard deviations of efficient estimates: (1 + shape) / sqrt(n), sqrt(2 (1 + shape) / n).
    #[test]
    fn known_shapes_and_scales_come_back() {
        for (seed, shape) in (0..).zip([-0.3, 0.0, 0.3, 0.6]) {
            for n in [200, 20_000] {
                let found = fit(&sample(Pareto { shape, scale: 5.0 }, n, seed)).unwrap();
                let n = n as f64;
                let shape_sd = (1.0 + shape) / n.sqrt();
                let scale_sd = (2.0 * (1.0 + shape) / n).sqrt();
                assert!((found.shape - shape).abs() < 3.0 * shape_sd, "{shape} {n}: {found:?}");
                let ratio = (found.scale / 5.0).ln();
                assert!(ratio.abs() < 3.0 * scale_sd, "{shape} {n}: {found:?}");
            }
        }
    }

    /// Over many samples the estimate is unbiased, and as precise as theory allows.
    #[test]
    fn the_estimate_is_efficient() {
        let (n, repeats) = (500, 300);
        for shape in [-0.2, 0.0, 0.4] {
            let shapes: Vec<f64> = (0..repeats)
                .map(|seed| {
                    fit(&sample(Pareto { shape, scale: 1.0 }, n, 1000 + seed)).unwrap().shape
                })
                .collect();
            let mean = shapes.iter().sum::<f64>() / repeats as f64;
            let square = shapes.iter().map(|found| (found - mean).powi(2)).sum::<f64>();
            let sd = (square / repeats as f64).sqrt();
            let theory = (1.0 + shape) / (n as f64).sqrt();
            assert!((mean - shape).abs() < 0.3 * theory, "{shape}: mean {mean}");
            assert!((0.85..1.15).contains(&(sd / theory)), "{shape}: {sd} instead of {theory}");
        }
    }

    #[test]
    fn a_unit_changes_only_the_scale() {
        let excesses = sample(Pareto { shape: 0.2, scale: 1.0 }, 300, 5);
        let scaled: Vec<f64> = excesses.iter().map(|x| x * 1e6).collect();
        let (a, b) = (fit(&excesses).unwrap(), fit(&scaled).unwrap());
        assert!((a.shape - b.shape).abs() < 1e-9 && (a.scale * 1e6 / b.scale - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_fitted_is_refused() {
        let bad = [f64::NAN, f64::INFINITY, -1.0, 0.0, 3.0, 3.0];
        assert_eq!((fit(&[]), fit(&[1.0]), fit(&[2.0; 50]), fit(&bad)), (None, None, None, None));
        for hard in [vec![1.0, 2.0], vec![1e-300, 1e300], vec![1.0, 1.0, 1.0, 1.0, 1e9]] {
            if let Some(found) = fit(&hard) {
                assert!(found.shape.is_finite() && found.scale > 0.0, "{hard:?} {found:?}");
            }
        }
    }

    #[test]
    fn a_sum_of_logarithms_neither_overflows_nor_underflows() {
        let excesses = [1e60; 20];
        assert!((ln_sum(1.0, &excesses) / (20.0 * 60.0 * 10f64.ln()) - 1.0).abs() < 1e-12);
        assert!((ln_sum(1e-20, &[1.0; 8]) - 8e-20).abs() < 1e-15);
    }
}
