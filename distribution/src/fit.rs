//! Distributions fitted to a sample: log-normal, gamma and F, each from a location on.
//!
//! The likelihood is that of counts in cells between quantiles of the sample. Unlike the likelihood of single
//! values, it has a maximum: a location that approaches the smallest value gains nothing. The goodness of a
//! fit is its largest distance from the sample's distribution function (Kolmogorov and Smirnov), with a
//! p-value by parametric bootstrap: samples are drawn from the fit, and each is fitted again.

use rand::RngExt;
use random::Stream;
use rayon::prelude::*;
use statrs::function::{beta::beta_reg, erf::erfc, gamma::gamma_lr};

use crate::{normal, sketch::Sample};

/// A family of distributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Parameters: location, median above it, standard deviation of the logarithm.
    LogNormal,
    /// Parameters: location, scale, shape.
    Gamma,
    /// Parameters: location, scale, and the two degrees of freedom.
    F,
}

pub const FAMILIES: [Family; 3] = [Family::LogNormal, Family::Gamma, Family::F];

/// A fitted distribution and how good it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    pub family: Family,
    /// Values begin here.
    pub location: f64,
    pub scale: f64,
    /// Standard deviation of the logarithm, shape, or degrees of freedom.
    pub shapes: Vec<f64>,
    /// Largest distance of the distribution functions, at the edges of the cells.
    pub distance: f64,
    /// Chance of a distance as large if the samples were from this distribution. If only an upper bound is known,
    /// because that already is below 0.05, that bound.
    pub p_value: f64,
    /// Logarithm of the likelihood, to compare families.
    pub ln_likelihood: f64,
}

impl Fit {
    /// Number of fitted parameters.
    pub fn parameters(&self) -> usize {
        2 + self.shapes.len()
    }

    /// Akaike's criterion: the smallest is the best.
    pub fn aic(&self) -> f64 {
        2.0 * (self.parameters() as f64 - self.ln_likelihood)
    }

    /// The share of values at most as large.
    pub fn cdf(&self, x: f64) -> f64 {
        self.family.cdf((x - self.location) / self.scale, &self.shapes)
    }
}

impl Family {
    pub const fn name(self) -> &'static str {
        match self {
            Family::LogNormal => "log-normal",
            Family::Gamma => "gamma",
            Family::F => "F",
        }
    }

    /// Of a value in units of the scale, from the location on.
    fn cdf(self, x: f64, shapes: &[f64]) -> f64 {
        if x.is_nan() || x <= 0.0 {
            return 0.0;
        }
        if x > 1e12 {
            return 1.0;
        }
        match (self, shapes) {
            (Family::LogNormal, [sigma, ..]) => {
                0.5 * erfc(-x.ln() / (sigma * std::f64::consts::SQRT_2))
            }
            (Family::Gamma, [shape, ..]) => gamma_lr(*shape, x),
            (Family::F, [a, b, ..]) => {
                let share = a * x / (a * x + b);
                // Where the ratio rounds to 1, so does the function.
                if share >= 1.0 { 1.0 } else { beta_reg(a / 2.0, b / 2.0, share) }
            }
            _ => 0.0,
        }
    }

    /// Logarithms of the shapes to start from.
    fn start(self) -> &'static [f64] {
        match self {
            Family::LogNormal => &[-0.7],
            Family::Gamma => &[0.7],
            Family::F => &[1.5, 2.0],
        }
    }

    /// Beyond these, a shape makes no difference, or the functions lose their digits.
    const fn bounds(self) -> (f64, f64) {
        match self {
            Family::LogNormal => (-6.9, 2.3),
            Family::Gamma => (-3.0, 6.2),
            Family::F => (-1.5, 6.2),
        }
    }
}

/// Cells between quantiles of a sample: their upper edges and counts; the last one has no upper edge.
#[derive(Clone, Debug)]
struct Cells {
    edges: Vec<f64>,
    counts: Vec<f64>,
    min: f64,
    n: f64,
}

const CELLS: usize = 200;

impl Cells {
    fn of(sample: &Sample) -> Cells {
        // Values may begin anywhere in the first bin.
        let first = sample.atoms().first().filter(|_| sample.is_binned());
        let min = first.map_or(sample.min, |first| first.high) as f64;
        let mut edges: Vec<f64> = Vec::new();
        for cell in 1..CELLS {
            let p = cell as f64 / CELLS as f64;
            // Of a bin, the end: how many samples are below a place within it is unknown.
            let edge = if sample.is_binned() { sample.within(p).1 } else { sample.quantile(p) };
            if edges.last().is_none_or(|last| edge > *last) && edge > min {
                edges.push(edge);
            }
        }
        let mut before = 0.0;
        let below: Vec<f64> = edges.iter().map(|&edge| sample.below(edge)).collect();
        let mut counts = Vec::new();
        for below in below.into_iter().chain([sample.n() as f64]) {
            counts.push(below - before);
            before = below;
        }
        Cells { edges, counts, min, n: sample.n() as f64 }
    }

    /// A sample of the same size from a distribution, in the same cells.
    fn drawn(&self, fit: &Fit, mut stream: Stream) -> Cells {
        let (mut left, mut before, mut share_left) = (self.n, 0.0, 1.0);
        let upper = self.edges.iter().map(|&edge| fit.cdf(edge)).chain([1.0]);
        let counts = upper
            .map(|upper| {
                let share = ((upper - before) / share_left).clamp(0.0, 1.0);
                let count = binomial(left, share, &mut stream);
                share_left = (share_left - (upper - before)).max(1e-300);
                before = upper;
                left -= count;
                count
            })
            .collect();
        Cells { counts, ..self.clone() }
    }

    fn ln_likelihood(&self, family: Family, location: f64, scale: f64, shapes: &[f64]) -> f64 {
        let mut before = 0.0;
        let upper = self.edges.iter().map(|&edge| family.cdf((edge - location) / scale, shapes));
        let cells = upper.chain([1.0]).zip(&self.counts);
        cells
            .map(|(upper, &count)| {
                let share: f64 = upper - before;
                before = upper;
                if count > 0.0 { count * share.max(1e-30).ln() } else { 0.0 }
            })
            .sum()
    }

    fn distance(&self, fit: &Fit) -> f64 {
        let mut below = 0.0;
        let pairs = self.edges.iter().zip(&self.counts);
        let distances = pairs.map(|(&edge, count)| {
            below += count;
            (fit.cdf(edge) - below / self.n).abs()
        });
        distances.fold(0.0, f64::max)
    }
}

/// A number of successes; beyond the reach of single draws, the normal approximation.
fn binomial(n: f64, share: f64, stream: &mut Stream) -> f64 {
    let variance = n * share * (1.0 - share);
    if variance > 30.0 || n > 2e4 {
        let drawn = n * share + variance.sqrt() * normal(stream.random());
        return drawn.round().clamp(0.0, n);
    }
    // By inversion: few steps, as the mean or its complement is small.
    if share > 0.5 {
        return n - binomial(n, 1.0 - share, stream);
    }
    let odds = share / (1.0 - share);
    let (mut k, mut chance) = (0.0, (1.0 - share).powf(n));
    let mut left: f64 = stream.random();
    while left > chance && k < n {
        left -= chance;
        chance *= odds * (n - k) / (k + 1.0);
        k += 1.0;
    }
    k
}

/// A value or a bin with a larger share of the samples is not from a continuous distribution, or hides its shape.
pub const MOST_IN_ONE: f64 = 0.25;

/// Fits all families, the best first; None if the samples have fewer than 8 different quantiles, are fewer than 50, or
/// too many are in one place ([`MOST_IN_ONE`]).
pub fn fit(sample: &Sample, seed: u64) -> Option<Vec<Fit>> {
    let cells = Cells::of(sample);
    if cells.edges.len() < 8 || sample.n() < 50 || sample.heaviest() > MOST_IN_ONE {
        return None;
    }
    let fits = FAMILIES.into_par_iter().map(|family| {
        let mut fit = maximise(&cells, family, None);
        fit.p_value = p_value(&cells, &fit, seed);
        fit
    });
    let mut fits: Vec<Fit> = fits.collect();
    sort(&mut fits);
    Some(fits)
}

/// By Akaike's criterion; but of those that are not rejected, one with fewer parameters comes before the best unless
/// the criterion clearly speaks against it.
fn sort(fits: &mut [Fit]) {
    /// A difference with which a model has essentially no support (Burnham and Anderson 2002).
    const CLEARLY: f64 = 10.0;
    const REJECTED: f64 = 0.05;
    fits.sort_by(|a, b| a.aic().total_cmp(&b.aic()));
    let Some(best) = fits.first().filter(|best| best.p_value >= REJECTED) else { return };
    let (parameters, aic) = (best.parameters(), best.aic());
    let simpler = fits.iter().position(|fit| {
        fit.parameters() < parameters && fit.p_value >= REJECTED && fit.aic() < aic + CLEARLY
    });
    if let Some(simpler) = simpler {
        fits[..=simpler].rotate_right(1);
    }
}

/// Bootstrap samples of a p-value: fewer if this many have a distance as large, as the p-value then is far from
/// small (Besag and Clifford 1991). In batches, so that the number does not depend on the threads.
const REPLICATES: u64 = 200;
const BATCH: u64 = 20;
const ENOUGH: usize = 10;

fn p_value(cells: &Cells, fit: &Fit, seed: u64) -> f64 {
    // Parameters that are fitted only make large distances rarer.
    let bound = kolmogorov(fit.distance * cells.n.sqrt());
    if bound < 0.05 {
        return bound;
    }
    let further = |replicate: &u64| {
        let stream = Stream::new(random::key(seed, 0x6669_7473, *replicate));
        let drawn = cells.drawn(fit, stream);
        maximise(&drawn, fit.family, Some(fit)).distance >= fit.distance
    };
    let (mut done, mut found) = (0, 0);
    while done < REPLICATES && found < ENOUGH {
        found += (done..done + BATCH).into_par_iter().filter(further).count();
        done += BATCH;
    }
    (found as f64 + 1.0) / (done as f64 + 1.0)
}

/// The chance that the distance of n samples times the root of n is at least this, for a distribution that was
/// known beforehand.
pub fn kolmogorov(scaled: f64) -> f64 {
    if scaled < 0.2 {
        return 1.0;
    }
    let term = |k: i32| {
        let sign = if k % 2 == 1 { 2.0 } else { -2.0 };
        sign * (-2.0 * f64::from(k * k) * scaled * scaled).exp()
    };
    (1..=50).map(term).sum::<f64>().clamp(0.0, 1.0)
}

/// The parameters of the largest likelihood; from those of another fit, or from several starts.
fn maximise(cells: &Cells, family: Family, from: Option<&Fit>) -> Fit {
    // The cells' own scale: the distance of the median from the minimum.
    let middle = cells.edges[cells.edges.len() / 2];
    let unit = (middle - cells.min).max(1e-9);
    let (low, high) = family.bounds();
    // In: logarithms of the distance of the location below the minimum, of the scale, of the shapes.
    let parameters = |x: &[f64]| {
        let location = cells.min - unit * x[0].clamp(-9.0, 5.0).exp();
        let scale = unit * x[1].clamp(-14.0, 14.0).exp();
        let shapes: Vec<f64> = x[2..].iter().map(|s| s.clamp(low, high).exp()).collect();
        (location, scale, shapes)
    };
    let cost = |x: &[f64]| {
        // Outside the bounds it gets worse, so that the search returns.
        let beyond = |x: f64, low: f64, high: f64| (low - x).max(x - high).max(0.0);
        let outside = beyond(x[0], -9.0, 5.0)
            + beyond(x[1], -14.0, 14.0)
            + x[2..].iter().map(|&s| beyond(s, low, high)).sum::<f64>();
        let (location, scale, shapes) = parameters(x);
        let ln = cells.ln_likelihood(family, location, scale, &shapes);
        -ln + outside * cells.n
    };
    let starts: Vec<Vec<f64>> = match from {
        Some(fit) => {
            let mut start =
                vec![((cells.min - fit.location) / unit).max(1e-4).ln(), (fit.scale / unit).ln()];
            start.extend(fit.shapes.iter().map(|shape| shape.ln()));
            vec![start]
        }
        None => [-4.0, -1.0, 1.0]
            .iter()
            .map(|&below| {
                // A scale with which the median is about right.
                let shapes = family.start();
                let shape = shapes[0].exp();
                let above = 1.0 + f64::exp(below);
                let scale = if family == Family::Gamma { above / shape } else { above };
                let mut start = vec![below, scale.ln()];
                start.extend(shapes);
                start
            })
            .collect(),
    };
    let size = if from.is_some() { 0.15 } else { 0.5 };
    let (most, precision) = if from.is_some() { (150, 1e-3) } else { (500, 1e-6) };
    let results = starts.iter().map(|start| simplex(&cost, start, size, most, precision));
    let (best, least) =
        results.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((Vec::new(), f64::INFINITY));
    let (location, scale, shapes) = parameters(&best);
    let mut fit =
        Fit { family, location, scale, shapes, distance: 0.0, p_value: 1.0, ln_likelihood: -least };
    fit.distance = cells.distance(&fit);
    fit
}

/// The minimum by the simplex of Nelder and Mead.
fn simplex(
    cost: &impl Fn(&[f64]) -> f64,
    start: &[f64],
    size: f64,
    most: usize,
    precision: f64,
) -> (Vec<f64>, f64) {
    let n = start.len();
    let mut points: Vec<(Vec<f64>, f64)> = vec![(start.to_vec(), cost(start))];
    for axis in 0..n {
        let mut point = start.to_vec();
        point[axis] += size;
        let value = cost(&point);
        points.push((point, value));
    }
    for _ in 0..most {
        points.sort_by(|a, b| a.1.total_cmp(&b.1));
        if points[n].1 - points[0].1 < precision {
            break;
        }
        let centre: Vec<f64> = (0..n)
            .map(|axis| points[..n].iter().map(|p| p.0[axis]).sum::<f64>() / n as f64)
            .collect();
        let worst = points[n].clone();
        let along = |by: f64| {
            let point: Vec<f64> =
                centre.iter().zip(&worst.0).map(|(c, w)| c + by * (w - c)).collect();
            let value = cost(&point);
            (point, value)
        };
        let reflected = along(-1.0);
        let next = if reflected.1 < points[0].1 {
            let expanded = along(-2.0);
            if expanded.1 < reflected.1 { expanded } else { reflected }
        } else if reflected.1 < points[n - 1].1 {
            reflected
        } else {
            let contracted = if reflected.1 < worst.1 { along(-0.5) } else { along(0.5) };
            if contracted.1 >= worst.1.min(reflected.1) {
                let best = points[0].0.clone();
                for (point, value) in &mut points[1..] {
                    point.iter_mut().zip(&best).for_each(|(x, b)| *x = b + 0.5 * (*x - b));
                    *value = cost(point);
                }
                continue;
            }
            contracted
        };
        points[n] = next;
    }
    points.sort_by(|a, b| a.1.total_cmp(&b.1));
    points.swap_remove(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Atom;

    fn unit(key: u64, i: u64) -> f64 {
        ((random::draw(key, i) >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    fn sample(n: u64, value: impl Fn(u64) -> f64) -> Sample {
        let values: Vec<i64> = (0..n).map(|i| (value(i) * 1e6).round() as i64).collect();
        Sample::of_values(&values, 1).unwrap()
    }

    fn chi2(key: u64, i: u64, half_degrees: u64) -> f64 {
        (0..half_degrees).map(|k| -2.0 * unit(key + k, i).ln()).sum()
    }

    fn of(fits: &[Fit], family: Family) -> &Fit {
        fits.iter().find(|fit| fit.family == family).unwrap()
    }

    fn best(fits: &[Fit]) -> Family {
        fits[0].family
    }

    /// Within a twentieth of the truth.
    fn assert_close(found: f64, truth: f64, fit: &Fit) {
        assert!((found / truth - 1.0).abs() < 0.06, "{found} is not {truth}: {fit:?}");
    }

    #[test]
    fn known_parameters_come_back_and_their_family_is_the_best() {
        let n = 300_000;
        let fits = fit(&sample(n, |i| 4.0 + 0.8 * (0.6 * normal(random::draw(1, i))).exp()), 1);
        let fits = fits.unwrap();
        let fit_of = of(&fits, Family::LogNormal);
        assert_eq!(best(&fits), Family::LogNormal);
        assert_close(fit_of.location, 4e6, fit_of);
        assert_close(fit_of.scale, 0.8e6, fit_of);
        assert_close(fit_of.shapes[0], 0.6, fit_of);
        assert!(fit_of.p_value >= 0.05, "{fit_of:?}");
        assert!(of(&fits, Family::Gamma).p_value < 0.05);

        let fits = fit(&sample(n, |i| 4.0 + 0.25 * chi2(1, i, 3)), 1).unwrap();
        let fit_of = of(&fits, Family::Gamma);
        assert_eq!(best(&fits), Family::Gamma);
        assert_close(fit_of.location, 4e6, fit_of);
        assert_close(fit_of.scale, 0.5e6, fit_of);
        assert_close(fit_of.shapes[0], 3.0, fit_of);
        assert!(fit_of.p_value >= 0.05, "{fit_of:?}");

        let ratio = |i| 2.0 + (chi2(1, i, 4) / 8.0) / (chi2(9, i, 3) / 6.0);
        let fits = fit(&sample(n, ratio), 1).unwrap();
        let fit_of = of(&fits, Family::F);
        assert_eq!(best(&fits), Family::F);
        assert_close(fit_of.location, 2e6, fit_of);
        assert_close(fit_of.scale, 1e6, fit_of);
        assert_close(fit_of.shapes[0], 8.0, fit_of);
        assert_close(fit_of.shapes[1], 6.0, fit_of);
        assert!(fit_of.p_value >= 0.05, "{fit_of:?}");
    }

    /// An F distribution has another parameter, which often fits a little of the chance in a sample.
    #[test]
    fn of_two_good_fits_the_simpler_is_the_best() {
        let simpler = |key: &u64| {
            let value = |i| (1.0 + 0.5 * normal(random::draw(300 + key, i))).exp();
            let fits = fit(&sample(20_000, value), 1).unwrap();
            assert!(of(&fits, Family::LogNormal).p_value >= 0.05 || *key > 0);
            best(&fits) != Family::F
        };
        assert!((0..8).filter(simpler).count() >= 7);
    }

    #[test]
    fn one_place_with_most_samples_is_not_a_continuous_distribution() {
        let noise = |i: u64| if unit(5, i) < 0.945 { 0.0 } else { -10.0 * unit(6, i).ln() };
        let exact = sample(20_000, |i| 150.0 + noise(i));
        assert!(fit(&exact, 1).is_none() && exact.heaviest() > 0.9);
        let bins: Vec<Atom> = exact
            .atoms()
            .chunk_by(|a, b| a.low >> 16 == b.low >> 16)
            .map(|bin| Atom {
                low: bin[0].low >> 16 << 16,
                high: (bin[0].low >> 16 << 16) + 65_535,
                count: bin.iter().map(|atom| atom.count).sum(),
            })
            .collect();
        assert!(fit(&Sample::of_bins(bins).unwrap(), 1).is_none());
    }

    /// Half of the samples of a bin are not below its middle: only its ends are known.
    #[test]
    fn a_histogram_fits_as_its_samples_do() {
        let exact = sample(100_000, |i| 4.0 + (0.6 * normal(random::draw(1, i))).exp());
        let bins: Vec<Atom> = exact
            .atoms()
            .chunk_by(|a, b| a.low >> 18 == b.low >> 18)
            .map(|bin| Atom {
                low: bin[0].low >> 18 << 18,
                high: (bin[0].low >> 18 << 18) + (1 << 18) - 1,
                count: bin.iter().map(|atom| atom.count).sum(),
            })
            .collect();
        let binned = Sample::of_bins(bins).unwrap();
        assert!(binned.is_binned() && !exact.is_binned());
        let fits = fit(&binned, 1).unwrap();
        let found = of(&fits, Family::LogNormal);
        assert!(found.p_value >= 0.05 && best(&fits) == Family::LogNormal, "{fits:?}");
        assert_close(found.shapes[0], 0.6, found);
    }

    #[test]
    fn a_true_family_is_rarely_rejected() {
        let rejected = (0..40u64).filter(|key| {
            let value = |i| 4.0 + (0.5 * normal(random::draw(100 + key, i))).exp();
            let cells = Cells::of(&sample(400, value));
            let fitted = maximise(&cells, Family::LogNormal, None);
            p_value(&cells, &fitted, *key) < 0.05
        });
        // 2 are expected.
        let rejected = rejected.count();
        assert!(rejected <= 6, "{rejected}");
    }

    #[test]
    fn the_functions_are_those_of_the_tables() {
        assert!((kolmogorov(1.3581) - 0.05).abs() < 1e-4);
        assert!((kolmogorov(1.6276) - 0.01).abs() < 1e-4);
        assert!((Family::F.cdf(3.3258, &[5.0, 10.0]) - 0.95).abs() < 1e-4);
        assert!((Family::Gamma.cdf(1.0, &[1.0]) - (1.0 - (-1f64).exp())).abs() < 1e-9);
        assert!((Family::LogNormal.cdf(1.0, &[0.3]) - 0.5).abs() < 1e-9);
        for family in FAMILIES {
            let shapes = vec![family.bounds().0.exp(), family.bounds().1.exp()];
            for x in [0.0, 1e-300, 1e-9, 1.0, 1e9, 1e300, f64::NAN] {
                assert!((0.0..=1.0).contains(&family.cdf(x, &shapes)), "{family:?} {x}");
            }
        }
    }

    #[test]
    fn what_cannot_be_fitted_is_left_out() {
        assert!(fit(&sample(1_000, |_| 5.0), 1).is_none());
        assert!(fit(&sample(10, |i| i as f64), 1).is_none());
        // Anything else gives finite numbers.
        for value in [|i: u64| (i % 20) as f64, |i| 1e9 + i as f64, |i| (1u64 << (i % 40)) as f64] {
            for fit in fit(&sample(500, value), 1).unwrap() {
                assert!(fit.distance.is_finite() && fit.scale > 0.0, "{fit:?}");
            }
        }
    }
}
