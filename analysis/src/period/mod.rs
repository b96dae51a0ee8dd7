//! Test for the period of a source.
//!
//! In: the start times of one source on one lane, and the recording they are part of ([`Whole`]). Out: a
//! [`Period`], or None.
//!
//! **What counts as periodic.** A period P is reported when the source occurs about once per P, from the
//! beginning of the recording to its end: the rate times P is between 0.75 and 1.25; most gaps are one
//! period long, also in each eighth of the recording, which has about as many events as periods
//! ([`whole`]); and at least half of all events are periodic in one of two senses. (There, events closer
//! than P/10 to the previous one are merged: a run resumed after an interruption.)
//!
//! - *locally* ([`lattice`]): half of the gaps between neighbours are whole multiples of P, within a
//!   tolerance w of 2, 5 or 10 % of P. Robust against phase drift (a daemon that sleeps for P after each
//!   round) and missed events.
//! - *globally* ([`coherent`]): half of the events fall into one arc of width 2w of the phase circle
//!   (beyond those that do so by chance). Robust against unrelated events, up to as many as its own.
//!   Tested only when the first sense finds nothing.
//!
//! **Candidates.** The most frequent gap (5 % wide) after merging events closer than d, for d from the
//! shortest gap to an eighth of the recording in factors of two; and the peaks of the spectrum, each
//! with a half, a third and a quarter of its frequency.
//!
//! **Significance.** Under the null hypothesis, a Poisson process of any rate, the fractional part of
//! gap/P lies within w of a whole number with probability at most 2w, and a phase falls into an arc
//! of width 2w with probability 2w. The number of hits is then binomial; its tail is bounded by the
//! Chernoff bound exp(-m KL(hits/m, 2w)), two hits are discounted for the fitted parameters, and the
//! bound is multiplied by the number of candidates, widths and arc positions. The result must be below
//! [`ALPHA`].
//!
//! **Fundamental, not harmonics.** P/2 fits every event that P fits, 2P only half of them. So of all
//! candidates that pass, those that fit at least 90 % as many events as the best are kept, and of
//! these the longest period is the result.
//!
//! Candidates are screened on the first [`SCREEN`] events; the result is fitted again, and must hold, on
//! all events.

mod coherent;
mod lattice;
mod whole;

use realfft::RealFftPlanner;

pub use whole::{Later, Whole};

/// Fewer events are never reported as periodic.
pub const MIN_EVENTS: usize = 8;
/// Bound on the probability of a false positive for one list of start times.
pub const ALPHA: f64 = 1e-4;
/// Candidates are compared on this many events.
const SCREEN: usize = 2048;
/// Events closer than this part of the period are merged.
const DEAD: f64 = 0.1;
/// Tolerances tried, as parts of the period.
const WIDTHS: [f64; 3] = [0.02, 0.05, 0.1];
/// Part of the events that must be in phase.
const MIN_SHARE: f64 = 0.5;
/// A gap of more than this many periods is a pause. Not a whole number: those are multiples of a period.
const PAUSE: f64 = 4.5;
/// Part of the gaps that may be pauses.
const MAX_PAUSES: f64 = 0.125;

/// A period that passed the test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period {
    pub period_ns: f64,
    /// Bound on the probability of a result as good by chance, for all candidates tried.
    pub p_value: f64,
    /// Part of the events in phase within a tenth of the period.
    pub share: f64,
}

/// Finds periods. Reuses the FFT plans between calls.
pub struct Finder {
    planner: RealFftPlanner<f64>,
}

impl Default for Finder {
    fn default() -> Self {
        Self::new()
    }
}

impl Finder {
    #[must_use]
    pub fn new() -> Self {
        Finder { planner: RealFftPlanner::new() }
    }

    /// The period of a source with these first start times, in ascending order, or None.
    pub fn find(&mut self, starts: &[u64], whole: &Whole<'_>) -> Option<Period> {
        if starts.len() < MIN_EVENTS {
            return None;
        }
        let found = self.find_in(&since_first(starts));
        found.filter(|period| whole.keeps(starts, period.period_ns))
    }

    fn find_in(&mut self, times: &[f64]) -> Option<Period> {
        let screen = times.get(..SCREEN).unwrap_or(times);
        let local = lattice::candidates(screen);
        if let Some(best) = fundamental(local.iter().filter_map(|&p| lattice::fit(screen, p))) {
            return lattice::fit(times, best.period_ns);
        }
        let global = coherent::candidates(screen, &mut self.planner);
        let best = fundamental(global.iter().filter_map(|&p| coherent::fit(screen, p)))?;
        coherent::fit(times, best.period_ns)
    }
}

/// The longest period among those that explain about as many events as the best one.
fn fundamental(fits: impl Iterator<Item = Period>) -> Option<Period> {
    let fits: Vec<Period> = fits.collect();
    let best = fits.iter().map(|f| f.share).fold(0.0, f64::max);
    fits.into_iter()
        .filter(|f| f.share >= 0.9 * best)
        .max_by(|a, b| a.period_ns.total_cmp(&b.period_ns))
}

/// As floating point relative to the first; damaged input may be out of order.
fn since_first(starts: &[u64]) -> Vec<f64> {
    let first = starts.first().copied().unwrap_or(0);
    let mut times: Vec<f64> = starts.iter().map(|&s| s.saturating_sub(first) as f64).collect();
    if !times.is_sorted() {
        times.sort_by(f64::total_cmp);
    }
    times
}

/// Drops events within `dead` of the last one kept.
fn thinned(times: &[f64], dead: f64) -> Vec<f64> {
    let mut kept: Vec<f64> = Vec::with_capacity(times.len());
    for &t in times {
        if kept.last().is_none_or(|&last| t - last >= dead) {
            kept.push(t);
        }
    }
    kept
}

fn gaps(times: &[f64]) -> impl Iterator<Item = f64> {
    times.windows(2).map(|w| w[1] - w[0])
}

/// Enough events, and on average at least eight in a row between two pauses. Rules out periods far
/// shorter than any gap, which fit everything, and periods within single bursts.
fn comes_once_per(kept: &[f64], period: f64) -> bool {
    let pauses = gaps(kept).filter(|gap| *gap > PAUSE * period).count();
    kept.len() >= MIN_EVENTS && pauses as f64 <= MAX_PAUSES * (kept.len() - 1) as f64
}

fn span(times: &[f64]) -> f64 {
    match times {
        [first, .., last] => last - first,
        _ => 0.0,
    }
}

/// Upper bound (Chernoff) on the logarithm of P(Binomial(n, q) >= k).
fn ln_tail(n: f64, k: f64, q: f64) -> f64 {
    let share = k / n;
    if n <= 0.0 || share <= q {
        return 0.0;
    }
    let miss = if share < 1.0 { (1.0 - share) * ((1.0 - share) / (1.0 - q)).ln() } else { 0.0 };
    -n * (share * (share / q).ln() + miss)
}

#[cfg(test)]
mod tests {
    use super::ln_tail;

    #[test]
    fn the_tail_bound_is_exact_when_all_hit_and_no_bound_at_or_below_the_mean() {
        assert!((ln_tail(7.0, 7.0, 0.1) - 7.0 * 0.1f64.ln()).abs() < 1e-12);
        assert_eq!(ln_tail(10.0, 2.0, 0.2), 0.0);
        assert_eq!(ln_tail(0.0, 0.0, 0.2), 0.0);
    }

    #[test]
    fn the_tail_bound_is_above_the_exact_tail() {
        // P(Binomial(20, 0.2) >= 10) = 0.002595
        let bound = ln_tail(20.0, 10.0, 0.2).exp();
        assert!(bound > 0.002595 && bound < 0.02, "{bound}");
    }
}
