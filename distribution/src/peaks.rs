//! The tail beyond what was seen: the largest of what comes next, predicted from the peaks over a threshold.
//!
//! The largest values go in, with their positions; out comes an interval for the largest value in a multiple of
//! the time.
//!
//! - **Below**, the interval needs no tail. If past and future are exchangeable, the j largest of both are all in
//!   the past with probability (1 + ratio)^-j, whatever the distribution. The bound is the order statistic that
//!   the largest of the future misses in one case of 200; the other 4.5 % are left for the upper bound, which
//!   costs more.
//! - **Above**, excesses over a threshold follow a generalised Pareto distribution. Its parameters are
//!   uncertain, and so is the rate of exceedances: the bound is a quantile of the predictive distribution, which
//!   averages over both. Each cluster of exceedances counts once (extremal index).
//! - **The threshold** is the lowest down to which the fit holds (Anderson-Darling). Where detours of several
//!   sources are mixed, it stays above the gap between them.
//! - **At an end** that is reached again and again, as by detours of equal length, the tail ends: if the counts went on
//!   to fall as they do from the second largest value to the largest, some would have exceeded it.
//!
//! A handful of peaks does not determine a shape. What they leave open is filled by a prior: a power law with an
//! exponent of 4, the same at every scale. Its width was chosen on 14 recorded runs of six systems; a few hundred
//! peaks outweigh it.
//!
//! No fit foresees a kind of event that did not occur once. Recorded noise has such kinds, so that the 95 % hold
//! for values that are exchangeable, and less is covered of recordings: `detour tail --check` measures how much.

use crate::{
    extremal,
    pareto::{Pareto, ln_sum},
};

/// What is assumed of a tail before its peaks are seen.
#[derive(Clone, Copy, Debug)]
struct Prior {
    /// Of the shape: normal, by mean and standard deviation.
    shape: (f64, f64),
    /// Shapes beyond these are not considered. A uniform distribution has -1; below, the likelihood has no maximum.
    shapes: (f64, f64),
    /// Of the scale: log-normal, by median and the standard deviation of the logarithm. The median is relative to the
    /// threshold, or to the range of the values.
    scale: (f64, f64),
    of_range: bool,
    /// Exceedances are at most one in so many values.
    rarest: u64,
}

/// A pure power law has a scale of shape times threshold.
const HEAVY: Prior = Prior {
    shape: (0.25, 0.15),
    shapes: (-1.0, 1.0),
    scale: (0.25, 0.35),
    of_range: false,
    rarest: 10,
};
/// Of what is known to be bounded.
const BOUNDED: Prior =
    Prior { shape: (-0.5, 0.3), shapes: (-1.0, 0.0), scale: (0.5, 1.0), of_range: true, rarest: 2 };

/// Not more peaks than this are used: the theory holds for the largest.
pub const MOST: usize = 2048;
/// The largest value is an end if this many clusters of values would have exceeded it otherwise; that none did has a
/// chance of one in a thousand.
const ENDS: f64 = 7.0;
/// The Anderson-Darling statistic up to which a fit holds: 5 % of samples from a given distribution exceed it.
const FITS: f64 = 2.492;

/// So many of the largest are ordered for the lower bound, however few there are.
const ORDERED: usize = 64;

/// The probability that the interval is missed: below, and altogether.
const MISSED_BELOW: f64 = 0.005;
const MISSED: f64 = 0.05;

/// A value and its position: the number of values before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    pub at: u64,
    pub value: f64,
}

/// The largest values of a stream, in bounded memory.
#[derive(Clone, Debug, Default)]
pub struct Largest {
    n: u64,
    /// Unordered; up to twice as many as are kept.
    peaks: Vec<Peak>,
    /// Smaller values are not among the largest.
    least: f64,
}

impl Largest {
    /// Values in the order of time. What is not a positive number counts, but is not among the largest.
    pub fn push(&mut self, value: f64) {
        let at = self.n;
        self.n += 1;
        if value.is_finite() && value > self.least {
            self.peaks.push(Peak { at, value });
            if self.peaks.len() > 2 * MOST {
                self.cut();
            }
        }
    }

    /// How many values there were.
    pub fn n(&self) -> u64 {
        self.n
    }

    fn cut(&mut self) {
        sort(&mut self.peaks);
        self.peaks.truncate(MOST + 1);
        if let (Some(last), true) = (self.peaks.last(), self.peaks.len() > MOST) {
            self.least = last.value;
        }
    }

    /// Largest first; of equal ones the first.
    pub fn peaks(mut self) -> Vec<Peak> {
        self.cut();
        self.peaks
    }
}

fn sort(peaks: &mut [Peak]) {
    peaks.sort_unstable_by(|a, b| b.value.total_cmp(&a.value).then(a.at.cmp(&b.at)));
}

/// A fitted tail.
#[derive(Clone, Debug, PartialEq)]
pub struct Tail {
    pub threshold: f64,
    /// How many values exceed it; the largest one alone if it is the threshold; 0 if nothing exceeds it ever.
    pub peaks: usize,
    /// The extremal index: one over the mean size of a cluster of peaks.
    pub index: f64,
    /// The mean of the parameters.
    pub pareto: Pareto,
    /// Parameters with their probabilities, which sum to 1.
    posterior: Vec<(f64, Pareto)>,
    /// The largest of each cluster, largest first.
    maxima: Vec<f64>,
}

/// An interval for the largest value to come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    pub median: f64,
    /// 95 %.
    pub lower: f64,
    pub upper: f64,
}

/// The tail of these values. None if none is above zero.
pub fn tail(largest: Largest) -> Option<Tail> {
    fitted(largest, &HEAVY)
}

/// The tail of values that are known to be bounded, if not where.
pub fn bounded(largest: Largest) -> Option<Tail> {
    fitted(largest, &BOUNDED)
}

fn fitted(largest: Largest, prior: &Prior) -> Option<Tail> {
    let n = largest.n();
    let sorted = largest.peaks();
    if let Some(mut ended) = Tail::ended(&sorted) {
        ended.maxima = ordered(&sorted, n);
        return Some(ended);
    }
    let most = ((n / prior.rarest) as usize).min(MOST);
    let range = sorted.first()?.value - sorted.last()?.value;
    let above = |threshold: f64, peaks: &[Peak]| {
        let median = if prior.of_range { range.max(1e-9 * threshold) } else { threshold };
        Tail::above(threshold, peaks, prior, median * prior.scale.0)
    };
    // With nothing but the largest value, the tail is the prior.
    let mut found = above(sorted.first()?.value, &sorted[..1])?;
    let mut wanted = 1;
    while wanted <= most {
        let Some(threshold) = sorted.get(wanted).map(|peak| peak.value) else { break };
        // Of equal values, none exceeds the threshold.
        let exceed = sorted.partition_point(|peak| peak.value > threshold);
        if exceed > 0 && (exceed > found.peaks || found.threshold >= sorted[0].value) {
            let candidate = above(threshold, &sorted[..exceed])?;
            let (misfit, level) = candidate.misfit(&sorted[..exceed]);
            if misfit <= FITS {
                found = candidate;
            } else if level > 1.0 {
                // Longer than the fit has it: another source begins here.
                break;
            }
            // Otherwise the peaks are too few to overrule the prior, and lower thresholds have more.
        }
        // By steps of the square root of two.
        wanted = (wanted as f64 * std::f64::consts::SQRT_2).ceil() as usize;
    }
    found.maxima = ordered(&sorted, n);
    Some(found)
}

/// The largest of `n` values, one of each cluster, for the lower bound.
fn ordered(sorted: &[Peak], n: u64) -> Vec<f64> {
    let most = ((n / HEAVY.rarest) as usize).min(MOST);
    maxima(&sorted[..sorted.len().min(most.max(ORDERED))])
}

/// The largest value of several independent sources in the next `ratio` times the time: nothing exceeds a value if
/// nothing of any source does. Each source has a tail and, if it is bounded, a cap; `seen` are the values of all of
/// them together. Never less than what is expected of one of them alone. None without sources.
pub fn largest_of(
    sources: &[(Tail, Option<f64>)],
    seen: Largest,
    ratio: f64,
) -> Option<Prediction> {
    let alone = sources.iter().map(|(tail, cap)| {
        let cap = cap.unwrap_or(f64::INFINITY);
        let Prediction { median, lower, upper } = tail.largest(ratio);
        Prediction { median: median.min(cap), lower: lower.min(cap), upper: upper.min(cap) }
    });
    let least = alone.reduce(|a, b| Prediction {
        median: a.median.max(b.median),
        lower: a.lower.max(b.lower),
        upper: a.upper.max(b.upper),
    })?;
    let n = seen.n();
    let mut lower = least.lower.max(bound(&ordered(&seen.peaks(), n), ratio));
    let none_above = |tail: &Tail, cap: Option<f64>, value: f64| {
        if cap.is_some_and(|cap| value >= cap) { 1.0 } else { tail.none_above(value, ratio) }
    };
    // No quantile of a source is below its threshold.
    let start = sources.iter().fold(lower, |start, (tail, _)| start.max(tail.threshold));
    let matter: Vec<&(Tail, Option<f64>)> =
        sources.iter().filter(|(tail, cap)| none_above(tail, *cap, start) < 1.0 - 1e-9).collect();
    let together = |value: f64| -> f64 {
        matter.iter().map(|(tail, cap)| none_above(tail, *cap, value)).product()
    };
    let quantile = |probability: f64| {
        let (mut low, mut high) = (start, start);
        while together(high) < probability && high < f64::MAX / 2.0 {
            (low, high) = (high, 2.0 * high);
        }
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            if together(middle) < probability { low = middle } else { high = middle }
        }
        high
    };
    if ratio > 1.0 / MISSED_BELOW {
        lower = lower.max(quantile(MISSED_BELOW));
    }
    let upper = quantile(1.0 - (MISSED - MISSED_BELOW)).max(least.upper).max(lower);
    let median = quantile(0.5).max(least.median).clamp(lower, upper);
    Some(Prediction { median, lower, upper })
}

impl Tail {
    /// The tail of values that reach the largest of them again and again, which ends there.
    fn ended(sorted: &[Peak]) -> Option<Tail> {
        let threshold = sorted.first()?.value;
        let equal = |value: f64, from: usize| {
            sorted[from..].iter().take_while(|peak| peak.value >= value).count()
        };
        let reached = equal(threshold, 0);
        let index = index(&sorted[..reached]);
        let next = sorted.get(reached).map_or(0, |peak| equal(peak.value, reached));
        // Of a falling density, so many would exceed the largest.
        let ratio = reached as f64 / next.max(reached) as f64;
        let exceed = reached as f64 * index * ratio;
        let pareto = Pareto { shape: -1.0, scale: f64::MIN_POSITIVE };
        (exceed >= ENDS).then(|| Tail {
            threshold,
            peaks: 0,
            index,
            pareto,
            posterior: vec![(1.0, pareto)],
            maxima: Vec::new(),
        })
    }

    fn above(threshold: f64, peaks: &[Peak], prior: &Prior, scale: f64) -> Option<Tail> {
        let index = index(peaks);
        let excesses: Vec<f64> = peaks.iter().map(|peak| peak.value - threshold).collect();
        let posterior = posterior(&excesses, prior, scale, index)?;
        let mean = |of: fn(&Pareto) -> f64| posterior.iter().map(|(p, at)| p * of(at)).sum::<f64>();
        let pareto = Pareto { shape: mean(|p| p.shape), scale: mean(|p| p.scale.ln()).exp() };
        Some(Tail { threshold, peaks: peaks.len(), index, pareto, posterior, maxima: Vec::new() })
    }

    /// The Anderson-Darling statistic of the peaks, times the extremal index, since values in a cluster repeat
    /// each other's deviation; and how long they are: 1 is what the fit expects.
    fn misfit(&self, peaks: &[Peak]) -> (f64, f64) {
        let n = peaks.len() as f64;
        let survival = |peak: &Peak| {
            self.pareto.survival(peak.value - self.threshold).clamp(1e-12, 1.0 - 1e-12)
        };
        // Largest first: the i-th has the i-th smallest survival.
        let sum: f64 = (0..)
            .zip(peaks.iter().zip(peaks.iter().rev()))
            .map(|(i, (high, low))| {
                let weight = (2 * i + 1) as f64;
                weight * (survival(high).ln() + (-survival(low)).ln_1p())
            })
            .sum();
        let level = -peaks.iter().map(|peak| survival(peak).ln()).sum::<f64>() / n;
        (self.index * (-n - sum / n), level)
    }

    /// Whether a value is drawn anew when a recording is extended: where only the largest says something about the
    /// tail, it is that one.
    pub fn draws(&self, value: f64) -> bool {
        let alone =
            self.peaks == 1 && self.maxima.first().is_some_and(|&max| max <= self.threshold);
        value > self.threshold || alone && value >= self.threshold
    }

    /// The probability that nothing exceeds `value` in `ratio` times the time that was watched.
    pub fn none_above(&self, value: f64, ratio: f64) -> f64 {
        // The number of clusters to come is negative binomial, because their rate is known only from those
        // that came (with the prior of Jeffreys).
        let clusters = self.peaks as f64 * self.index + 0.5;
        let excess = value - self.threshold;
        if self.peaks == 0 && excess >= 0.0 {
            return 1.0;
        }
        let none = |at: &Pareto| (-clusters * (ratio * at.survival(excess)).ln_1p()).exp();
        self.posterior.iter().map(|(p, at)| p * none(at)).sum()
    }

    /// The value below which everything in `ratio` times the time stays with this probability.
    fn quantile(&self, probability: f64, ratio: f64) -> f64 {
        let (mut low, mut high) = (0.0f64, 60.0f64);
        // By the logarithm of the value over the threshold; 60 steps leave 1e-16 of it.
        let value = |x: f64| self.threshold * x.exp();
        if self.none_above(self.threshold, ratio) >= probability {
            return self.threshold;
        }
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if self.none_above(value(middle), ratio) < probability {
                low = middle;
            } else {
                high = middle;
            }
        }
        value(high)
    }

    /// The largest value in the next `ratio` times the time that was watched.
    pub fn largest(&self, ratio: f64) -> Prediction {
        let seen = bound(&self.maxima, ratio);
        // A future that is much longer than the past says more than the order of what was seen.
        let lower = if ratio > 1.0 / MISSED_BELOW {
            seen.max(self.quantile(MISSED_BELOW, ratio))
        } else {
            seen
        };
        let upper = self.quantile(1.0 - (MISSED - MISSED_BELOW), ratio).max(lower);
        let median = self.quantile(0.5, ratio).clamp(lower, upper);
        Prediction { median, lower, upper }
    }

    /// The distribution of excesses for one run of a simulation: parameters drawn from those that are possible,
    /// by a number between 0 and 1.
    pub fn drawn(&self, mut number: f64) -> Pareto {
        for (probability, pareto) in &self.posterior {
            number -= probability;
            if number < 0.0 {
                return *pareto;
            }
        }
        self.pareto
    }
}

/// A lower bound, from the largest values seen, for the largest of `ratio` times as many; it fails once in 200 times:
/// the j largest of past and future are all in the past with probability (1 + ratio)^-j.
fn bound(maxima: &[f64], ratio: f64) -> f64 {
    let j = MISSED_BELOW.ln() / -(1.0 + ratio).ln();
    let order = |j: usize| maxima.get(j - 1).copied().unwrap_or(0.0);
    if j < 1.0 {
        order(1)
    } else if j < maxima.len() as f64 {
        let part = j.fract();
        order(j as usize) * (1.0 - part) + order(j as usize + 1) * part
    } else {
        0.0
    }
}

/// The extremal index of peaks in any order.
fn index(peaks: &[Peak]) -> f64 {
    let mut positions: Vec<u64> = peaks.iter().map(|peak| peak.at).collect();
    positions.sort_unstable();
    let gaps: Vec<u64> = positions.windows(2).map(|pair| pair[1] - pair[0]).collect();
    extremal::index(&gaps).max(1.0 / peaks.len().max(1) as f64)
}

/// The largest of each cluster, largest first.
fn maxima(peaks: &[Peak]) -> Vec<f64> {
    let mut peaks = peaks.to_vec();
    peaks.sort_unstable_by_key(|peak| peak.at);
    let gaps: Vec<u64> = peaks.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    let mut maxima: Vec<f64> = extremal::separated(&gaps, extremal::index(&gaps))
        .into_iter()
        .map(|cluster| peaks[cluster].iter().fold(0.0, |most, peak| peak.value.max(most)))
        .collect();
    maxima.sort_unstable_by(|a, b| b.total_cmp(a));
    maxima
}

/// What drawing with replacement from the same values says about the largest of `ratio` times as many: never
/// more than the largest of them. Values are sorted, largest first, and were among `n`.
pub fn resampled(sorted: &[Peak], n: u64, ratio: f64) -> Option<Prediction> {
    let draws = ratio * n as f64;
    let quantile = |probability: f64| {
        // Nothing above the value with i larger ones: (1 - i/n)^draws.
        let larger = -(probability.ln() / draws).exp_m1() * n as f64;
        sorted.get(larger as usize).or(sorted.last()).map(|peak| peak.value)
    };
    Some(Prediction {
        median: quantile(0.5)?,
        lower: quantile(MISSED / 2.0)?,
        upper: quantile(1.0 - MISSED / 2.0)?,
    })
}

/// The parameters that explain the excesses, with their probabilities: a grid around the most likely ones.
/// Clusters count once: the likelihood is raised to the power of the extremal index.
///
/// The axes are the shape and the logarithm of the scale that excesses over the largest would have: it is positive
/// wherever the largest is possible, however close the end of the tail is.
fn posterior(
    excesses: &[f64],
    prior: &Prior,
    scale: f64,
    index: f64,
) -> Option<Vec<(f64, Pareto)>> {
    const SIDE: usize = 33;
    /// Of the logarithm of the scale at first, as its range is wide.
    const FIRST: usize = 129;
    const ROUNDS: usize = 5;
    /// Steps around what counts, in which the maximum may have been missed.
    const AROUND: f64 = 2.0;
    /// Logarithms of probabilities relative to the highest, below which nothing counts.
    const FAR: f64 = -16.0;
    let n = excesses.len() as f64;
    let mean = excesses.iter().sum::<f64>() / n;
    let largest = excesses.iter().copied().fold(0.0, f64::max);
    let centre = scale.ln();
    if !(mean.is_finite() && centre.is_finite()) {
        return None;
    }
    // A single value at the threshold says nothing: the prior is left.
    let (excesses, n, mean) =
        if mean > 0.0 { (excesses, n, mean) } else { (&[][..], 0.0, centre.exp()) };
    let scale_at = |shape: f64, ln_last: f64| ln_last.exp() - shape * largest;
    let height = |shape: f64, ln_last: f64| {
        let scale = scale_at(shape, ln_last);
        if scale <= 0.0 {
            return f64::NEG_INFINITY;
        }
        let ln_scale = scale.ln();
        let likelihood = if shape.abs() < 1e-9 {
            -n * (ln_scale + mean / scale)
        } else {
            -n * ln_scale - (1.0 + 1.0 / shape) * ln_sum(shape / scale, excesses)
        };
        let ratio = ((shape - prior.shape.0) / prior.shape.1).powi(2)
            + ((ln_scale - centre) / prior.scale.1).powi(2);
        // The prior is a density of the logarithm of the scale.
        index * likelihood - ratio / 2.0 + ln_last - ln_scale
    };
    let mut shapes = prior.shapes;
    let widest = mean.ln().max(centre) + 2.0;
    let narrowest = mean.ln().min(centre) - 2.0;
    let mut lasts = (narrowest, (widest.exp() + prior.shapes.1 * largest).ln());
    if largest > 0.0 {
        lasts.0 = narrowest.min((largest / n).ln() + FAR);
    }
    let mut cells: Vec<(f64, f64, f64)> = Vec::new();
    // Each round narrows the grid to what counts.
    for round in 0..ROUNDS {
        let sides = (SIDE, if round == 0 { FIRST } else { SIDE });
        let step = |(from, to): (f64, f64), side: usize| (to - from) / (side - 1) as f64;
        let (shape_step, last_step) = (step(shapes, sides.0), step(lasts, sides.1));
        cells.clear();
        for i in 0..sides.0 {
            let shape = shapes.0 + i as f64 * shape_step;
            for j in 0..sides.1 {
                let ln_last = lasts.0 + j as f64 * last_step;
                cells.push((height(shape, ln_last), shape, ln_last));
            }
        }
        let highest = cells.iter().map(|cell| cell.0).fold(f64::NEG_INFINITY, f64::max);
        if !highest.is_finite() {
            return None;
        }
        cells.iter_mut().for_each(|cell| cell.0 -= highest);
        cells.retain(|cell| cell.0 > FAR);
        let range = |of: fn(&(f64, f64, f64)) -> f64, step: f64| {
            let values = cells.iter().map(of);
            let (low, high) = values.fold((f64::MAX, f64::MIN), |(l, h), x| (l.min(x), h.max(x)));
            (low - AROUND * step, high + AROUND * step)
        };
        let (low, high) = range(|cell| cell.1, shape_step);
        shapes = (low.max(prior.shapes.0), high.min(prior.shapes.1));
        lasts = range(|cell| cell.2, last_step);
    }
    let sum: f64 = cells.iter().map(|cell| cell.0.exp()).sum();
    let cell = |&(height, shape, ln_last): &(f64, f64, f64)| {
        (height.exp() / sum, Pareto { shape, scale: scale_at(shape, ln_last) })
    };
    Some(cells.iter().map(cell).collect())
}

#[cfg(test)]
mod tests {
    use rand::RngExt;
    use random::Stream;

    use super::*;

    fn largest(values: impl IntoIterator<Item = f64>) -> Largest {
        let mut largest = Largest::default();
        values.into_iter().for_each(|value| largest.push(value));
        largest
    }

    /// One plus a multiple of a generalised Pareto distribution.
    fn sample(shape: f64, n: usize, seed: u64) -> Vec<f64> {
        let mut stream = Stream::new(random::key(seed, 3, n as u64));
        let pareto = Pareto { shape, scale: 10.0 };
        (0..n).map(|_| 1.0 + pareto.exceeded_with(1.0 - stream.random::<f64>())).collect()
    }

    #[test]
    fn the_largest_are_those_of_a_sort() {
        let values: Vec<f64> = sample(0.3, 20_000, 1).iter().map(|x| x.round()).collect();
        let mut sorted: Vec<Peak> =
            (0..).zip(&values).map(|(at, &value)| Peak { at, value }).collect();
        sort(&mut sorted);
        let kept = largest(values);
        assert_eq!(kept.n(), 20_000);
        let kept = kept.peaks();
        assert_eq!(kept.len(), MOST + 1);
        // Of those equal to the last, any may be kept.
        let last = kept[MOST].value;
        let above = kept.partition_point(|peak| peak.value > last);
        assert_eq!(kept[..above], sorted[..above]);
    }

    /// The largest of m exponentials has the median -ln(1 - 0.5^(1/m)).
    #[test]
    fn the_largest_of_many_exponentials_is_predicted() {
        let n = 200_000;
        for ratio in [1.0, 9.0, 1000.0] {
            let tail = tail(largest(sample(0.0, n, 2))).unwrap();
            let draws = ratio * n as f64;
            let exact = |p: f64| 1.0 - 10.0 * (-(p.ln() / draws).exp_m1()).ln();
            let found = tail.largest(ratio);
            assert!((found.median / exact(0.5) - 1.0).abs() < 0.15, "{ratio} {found:?}");
            assert!(found.lower < exact(0.1) && exact(0.9) < found.upper, "{ratio} {found:?}");
            assert!(found.upper / found.lower < 2.5, "{ratio} {found:?}");
        }
    }

    #[test]
    fn many_peaks_overrule_the_prior() {
        for (seed, shape) in (10..).zip([-1.0, -0.7, -0.3, 0.0, 0.3, 0.6]) {
            let tail = tail(largest(sample(shape, 200_000, seed))).unwrap();
            assert!(tail.peaks > 1000, "{shape}: {} peaks", tail.peaks);
            assert!((tail.pareto.shape - shape).abs() < 0.1, "{shape}: {:?}", tail.pareto);
        }
    }

    /// The largest of m uniform values is within 4/m of the end in 98 of 100 cases.
    #[test]
    fn what_is_bounded_is_not_predicted_beyond_its_bound() {
        let mut stream = Stream::new(8);
        for (n, low, high) in [(20_000, 5.0, 50.0), (2_000, 400.0, 470.0), (40_000, 0.0, 1.0)] {
            let values: Vec<f64> =
                (0..n).map(|_| low + (high - low) * stream.random::<f64>()).collect();
            let tail = tail(largest(values.iter().copied())).unwrap();
            assert!(tail.pareto.shape < -0.3 && tail.peaks > 50, "{tail:?}");
            let found = tail.largest(9.0);
            assert!((found.median / high - 1.0).abs() < 0.01, "{low} to {high}: {found:?}");
            assert!(found.upper / high < 1.03 && found.lower <= high, "{low} to {high}: {found:?}");
            let found = bounded(largest(values)).unwrap().largest(9.0);
            assert!(found.upper / high < 1.01, "{low} to {high}: {found:?}");
        }
        // Few that are known to be bounded.
        let values = (0..160).map(|_| 407.0 + 60.0 * stream.random::<f64>());
        let found = bounded(largest(values)).unwrap().largest(10.0);
        assert!(found.lower > 460.0 && found.upper < 490.0, "{found:?}");
    }

    #[test]
    fn a_tail_ends_at_a_value_that_is_reached_again_and_again() {
        let cases: [fn(u64) -> f64; 4] = [
            |_| 20.0,
            |i| if i % 40 == 7 { 20.0 } else { 2.0 + unit(i) },
            // A clock of whole units: as many of the largest as of any other.
            |i| (400.0 + 70.0 * unit(i)).floor(),
            |i| [8.0, 9.0, 20.0][(random::draw(4, i) % 3) as usize],
        ];
        for (number, value) in cases.into_iter().enumerate() {
            for n in [1_000, 20_000] {
                let values: Vec<f64> = (0..n).map(value).collect();
                let max = values.iter().copied().fold(0.0, f64::max);
                for found in [tail(largest(values.clone())), bounded(largest(values))] {
                    let tail = found.unwrap();
                    let found = tail.largest(9.0);
                    let end = (max, max, max);
                    assert_eq!((found.lower, found.median, found.upper), end, "{number} {n}");
                    assert!(!tail.draws(max) && tail.peaks == 0, "{number} {n}: {tail:?}");
                }
            }
        }
        // A clock of whole units in an exponential tail: the counts fall, and go on to fall.
        for n in [1_000, 20_000, 200_000] {
            let tail = tail(largest((0..n).map(|i| (-2.0 * unit(i).ln()).ceil()))).unwrap();
            assert!(tail.peaks > 0 && tail.largest(9.0).upper > tail.largest(9.0).lower, "{n}");
        }
    }

    fn unit(i: u64) -> f64 {
        ((random::draw(61, i) >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    /// Neighbours share their maximum: half the peaks say nothing new.
    #[test]
    fn clusters_count_once() {
        let single = sample(0.2, 40_000, 4);
        let pairs = single.windows(2).map(|pair| pair[0].max(pair[1]));
        let tail = tail(largest(pairs)).unwrap();
        assert!((tail.index - 0.5).abs() < 0.1, "{}", tail.index);
    }

    /// Whatever the distribution.
    #[test]
    fn the_lower_bound_is_missed_as_rarely_as_stated() {
        for (ratio, n) in [(1.0, 500), (9.0, 100), (99.0, 100)] {
            let (mut missed, cases) = (0, 4000);
            for seed in 0..cases {
                let values = sample(0.9, n + (ratio * n as f64) as usize, 100 + seed);
                let rest = values[n..].iter().copied().fold(0.0, f64::max);
                let mut seen = values[..n].to_vec();
                seen.sort_unstable_by(|a, b| b.total_cmp(a));
                missed += i32::from(rest < bound(&seen, ratio));
            }
            // 20 expected; between order statistics that are far apart, up to 40 (0.01 at the larger).
            assert!((4..=60).contains(&missed), "{ratio} {missed}");
        }
    }

    /// A day of recordings, an hour each: a tick, and a daemon whose lengths have a known tail. Trained on the
    /// first tenth of each, as in `cargo xtask validate` with real files.
    #[test]
    fn a_day_of_made_recordings_is_covered() {
        let (mut covered, mut short, mut widths) = (0, 0, Vec::new());
        for hour in 0..24 {
            let shape = [-0.3, 0.0, 0.1, 0.2, 0.3, 0.6][hour % 6];
            let daemon = sample(shape, 3_600, 7_000 + hour as u64);
            let mut tick = Stream::new(hour as u64);
            let values: Vec<f64> = daemon
                .iter()
                .flat_map(|&long| {
                    (0..10).map(|_| 1.5 + tick.random::<f64>()).chain([long]).collect::<Vec<_>>()
                })
                .collect();
            let (past, future) = values.split_at(values.len() / 10);
            let largest = largest(past.iter().copied());
            let n = largest.n();
            let plain = resampled(&largest.clone().peaks(), n, 9.0).unwrap();
            let found = tail(largest).unwrap().largest(9.0);
            let rest = future.iter().copied().fold(0.0, f64::max);
            covered += i32::from((found.lower..=found.upper).contains(&rest));
            short += i32::from(plain.upper < rest);
            widths.push(found.upper / found.lower);
        }
        widths.sort_unstable_by(f64::total_cmp);
        // 95 % of 24 are 22.8. Resampling falls short whenever the largest is not in the first tenth.
        assert!(covered >= 21 && short >= 18, "{covered} {short}");
        assert!(widths[12] <= 8.0, "{widths:?}");
    }

    #[test]
    fn resampling_never_exceeds_the_largest_seen() {
        let sorted: Vec<Peak> = (0..10).map(|at| Peak { at, value: (10 - at) as f64 }).collect();
        let found = resampled(&sorted, 10, 9.0).unwrap();
        assert_eq!((found.lower, found.median, found.upper), (10.0, 10.0, 10.0));
        // Ten draws miss the largest of ten with probability 0.9^10 = 0.35, both of the largest with 0.11.
        let found = resampled(&sorted, 10, 1.0).unwrap();
        assert_eq!((found.lower, found.median, found.upper), (7.0, 10.0, 10.0));
    }

    #[test]
    fn any_values_have_a_tail_or_none() {
        assert!(tail(Largest::default()).is_none());
        assert!(tail(largest([0.0, -1.0, f64::NAN, f64::INFINITY])).is_none());
        for values in [
            vec![5.0],
            vec![5.0; 3000],
            vec![1.0, 2.0],
            vec![1e-300, 1e300],
            (0..500).map(|i| f64::from(i % 2 + 1)).collect(),
            (0..5000).map(|i| if i == 77 { 1e6 } else { 3.0 }).collect(),
        ] {
            let most = values.iter().copied().fold(0.0, f64::max);
            let tail = tail(largest(values)).unwrap();
            let sum: f64 = tail.posterior.iter().map(|cell| cell.0).sum();
            assert!((sum - 1.0).abs() < 1e-9);
            for ratio in [0.0, 1e-6, 1.0, 9.0, 1e9] {
                let found = tail.largest(ratio);
                assert!(found.lower <= found.median && found.median <= found.upper, "{found:?}");
                assert!(found.upper.is_finite(), "{found:?}");
                assert!(ratio < 9.0 || found.upper >= most, "{most} {found:?}");
            }
            let drawn = tail.drawn(0.999_999_999);
            assert!(drawn.scale > 0.0 && tail.drawn(1.0).scale > 0.0);
        }
    }

    /// The same values from one source, and spread at random over four: the largest is the same. A source that is
    /// far below the others changes nothing, and one alone is what it is.
    #[test]
    fn the_largest_of_several_sources_is_that_of_all_their_values() {
        let values = sample(0.1, 80_000, 21);
        let one = tail(largest(values.iter().copied())).unwrap();
        let (ratio, alone) = (9.0, one.largest(9.0));
        let again = largest_of(&[(one, None)], largest(values.iter().copied()), ratio).unwrap();
        for (a, b) in
            [(alone.median, again.median), (alone.lower, again.lower), (alone.upper, again.upper)]
        {
            assert!((a / b - 1.0).abs() < 1e-6, "{alone:?} {again:?}");
        }
        let mut parts = vec![Vec::new(); 4];
        for (at, value) in (0..).zip(&values) {
            parts[(random::draw(5, at) % 4) as usize].push(*value);
        }
        let mut sources: Vec<(Tail, Option<f64>)> =
            parts.into_iter().map(|part| (tail(largest(part)).unwrap(), None)).collect();
        let apart = largest_of(&sources, largest(values.iter().copied()), ratio).unwrap();
        assert!((apart.median / alone.median - 1.0).abs() < 0.25, "{alone:?} {apart:?}");
        for (source, _) in &sources {
            let found = source.largest(ratio);
            assert!(found.median <= apart.median && found.upper <= apart.upper, "{found:?}");
        }
        let small = sample(0.0, 1_000, 22).iter().map(|value| value / 1e6).collect::<Vec<_>>();
        sources.push((tail(largest(small)).unwrap(), Some(1e-3)));
        assert_eq!(largest_of(&sources, largest(values), ratio), Some(apart));
        assert_eq!(largest_of(&[], Largest::default(), ratio), None);
    }
}
