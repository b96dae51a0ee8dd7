//! The gain of a change: two sets of runs with the same draws, compared run by run.
//!
//! There is one estimator: the gain is the reduction of the median time, in per cent of the median as
//! recorded. Its 95 % confidence interval is a percentile bootstrap over runs: runs are resampled with
//! both of their times, so that what the pairs have in common cancels. A source that hits fewer than
//! half of the runs hardly moves the median; the number of runs that get shorter is therefore counted
//! as well.

use random::{Stream, bootstrap, key};
use serde::Serialize;

use crate::stats::{Estimate, NoRuns, Sample};

/// The effect of a change on the time of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// The median time with the change, ps.
    pub median: Estimate,
    /// Reduction of the median, per cent.
    pub gain: Estimate,
    /// Runs whose time differs with the change.
    pub changed_runs: u64,
    /// Runs that get shorter by at least [`NEGLIGIBLE_PCT`] of the median.
    pub shorter_runs: u64,
    /// Runs that get longer by as much.
    pub longer_runs: u64,
    /// Number of runs.
    pub runs: u64,
}

/// A change that shortens this fraction of the runs, and at least this many, is worth reporting,
/// whatever the median does.
const SOME_RUNS: f64 = 0.05;
const FEWEST_RUNS: u64 = 3;

/// Smaller gains are negligible, however certain, per cent.
pub const NEGLIGIBLE_PCT: f64 = 0.1;

/// Classification of a gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The median run is faster.
    Gain,
    /// The median run is not faster, or not significantly, but at least one run in twenty is, and none
    /// is slower.
    SomeRuns,
    /// Neither faster nor slower.
    Nothing,
    /// More runs are needed.
    Unclear,
    /// Slower.
    Loss,
}

impl Effect {
    /// Whether the change is an improvement.
    pub const fn helps(self) -> bool {
        matches!(self, Effect::Gain | Effect::SomeRuns)
    }
}

impl Gain {
    pub fn effect(&self) -> Effect {
        let up = |e: &Estimate| e.low > 0.0 && e.value >= NEGLIGIBLE_PCT;
        let down = |e: &Estimate| e.high < 0.0 && e.value <= -NEGLIGIBLE_PCT;
        let none = |e: &Estimate| e.low > -NEGLIGIBLE_PCT && e.high < NEGLIGIBLE_PCT;
        match &self.gain {
            gain if up(gain) => Effect::Gain,
            gain if down(gain) => Effect::Loss,
            _ if self.shortens_some() => Effect::SomeRuns,
            gain if none(gain) => Effect::Nothing,
            _ => Effect::Unclear,
        }
    }

    fn shortens_some(&self) -> bool {
        let enough = self.shorter_runs as f64 >= SOME_RUNS * self.runs as f64;
        enough && self.shorter_runs >= FEWEST_RUNS && self.longer_runs == 0
    }
}

/// Bootstrap resamples: the bounds of an interval are the 50th from either end. Fewer for large
/// numbers of runs, which need fewer.
fn resamples(runs: usize) -> u64 {
    (200_000_000 / runs.max(1) as u64).clamp(200, 2_000)
}

const BOOTSTRAP: u64 = 40;

/// Compares runs as recorded with the same runs after a change. Both lists are in order of run number
/// and equally long; excess runs are ignored.
pub fn compare(as_recorded: &[i64], changed: &[i64], seed: u64) -> Result<Gain, NoRuns> {
    let runs = as_recorded.len().min(changed.len());
    let (before, after) = (&as_recorded[..runs], &changed[..runs]);
    let median = Sample::new(after.to_vec())?.estimate(0.5);
    let (sorted_before, sorted_after) = (Sorted::new(before), Sorted::new(after));
    let gain = |counts: &[u32]| pct(sorted_before.median(counts), sorted_after.median(counts));
    let once = vec![1; runs];
    let value = gain(&once);
    let count = |holds: &dyn Fn(i64, i64) -> bool| {
        before.iter().zip(after).filter(|&(&a, &b)| holds(a, b)).count() as u64
    };
    let changed_runs = count(&|a, b| a != b);
    let least = sorted_before.median(&once) * NEGLIGIBLE_PCT / 100.0;
    let shorter_runs = count(&|a, b| a > b && (a - b) as f64 >= least);
    let longer_runs = count(&|a, b| b > a && (b - a) as f64 >= least);
    let runs_in_all = runs as u64;
    let whole =
        |gain| Gain { median, gain, changed_runs, shorter_runs, longer_runs, runs: runs_in_all };
    if changed_runs == 0 {
        return Ok(whole(Estimate { value: 0.0, low: 0.0, high: 0.0 }));
    }

    let mut gains = Vec::new();
    let mut counts = vec![0u32; runs];
    for resample in 0..resamples(runs) {
        let mut stream = Stream::new(key(seed, BOOTSTRAP, resample));
        bootstrap::resample(&mut stream, &mut counts);
        gains.push(gain(&counts));
    }
    let (low, high) = bootstrap::interval(value, gains);
    Ok(whole(Estimate { value, low, high }))
}

/// Reduction from `a` to `b`, in per cent of `a`.
fn pct(a: f64, b: f64) -> f64 {
    if a > 0.0 { 100.0 * (a - b) / a } else { 0.0 }
}

/// Times in order, each with its run: the median of a resample is found by counting, without sorting.
struct Sorted(Vec<(i64, u32)>);

impl Sorted {
    fn new(times: &[i64]) -> Sorted {
        let mut sorted: Vec<(i64, u32)> = times.iter().copied().zip(0..).collect();
        sorted.sort_unstable();
        Sorted(sorted)
    }

    /// The median with each run counted this many times; the counts sum to the number of runs.
    fn median(&self, counts: &[u32]) -> f64 {
        let runs = self.0.len() as u64;
        // The two in the middle, which coincide if the number is odd.
        let (lower, upper) = ((runs - 1) / 2, runs / 2);
        let (mut below, mut first) = (0u64, None);
        for &(time, run) in &self.0 {
            below += u64::from(counts[run as usize]);
            if first.is_none() && below > lower {
                first = Some(time);
            }
            if let (Some(first), true) = (first, below > upper) {
                return (first as f64 + time as f64) / 2.0;
            }
        }
        self.0.last().map_or(0.0, |&(time, _)| time as f64)
    }
}

#[cfg(test)]
mod tests {
    use random::draw;

    use super::*;

    /// A pseudorandom time below 1000.
    fn scattered(stream: u64, at: u64) -> i64 {
        ((draw(stream, at) >> 32) as i64 * 1000) >> 32
    }

    #[test]
    fn the_gain_is_that_of_the_medians_and_pairs_make_it_sharp() {
        // Runs differ by a factor of two; the change takes 10 % off each.
        let before: Vec<i64> = (0..200).map(|i| 10_000 + 10 * scattered(1, i)).collect();
        let after: Vec<i64> = before.iter().map(|t| t - t / 10).collect();
        let gain = compare(&before, &after, 1).unwrap();
        assert!((gain.gain.value - 10.0).abs() < 0.01, "{gain:?}");
        assert!(gain.gain.low > 9.9 && gain.gain.high < 10.1, "{gain:?}");
        assert_eq!((gain.changed_runs, gain.effect()), (200, Effect::Gain));
        assert_eq!(compare(&before, &after, 1), compare(&before, &after, 1));
    }

    #[test]
    fn what_changes_no_run_or_next_to_nothing_changes_nothing() {
        let before: Vec<i64> = (0..100).map(|i| 1_000_000 + scattered(2, i)).collect();
        let same = compare(&before, &before, 1).unwrap();
        assert_eq!((same.effect(), same.changed_runs), (Effect::Nothing, 0));
        assert_eq!((same.gain.low, same.gain.high), (0.0, 0.0));
        let hardly: Vec<i64> = before.iter().map(|t| t - 2).collect();
        assert_eq!(compare(&before, &hardly, 1).unwrap().effect(), Effect::Nothing);
    }

    #[test]
    fn a_source_that_hits_few_runs_leaves_the_median_and_is_counted() {
        let hit = |every: u64| -> Vec<i64> {
            (0..200).map(|i| if i % every == 0 { 90_000 } else { 10_000 }).collect()
        };
        let gain = compare(&hit(5), &[10_000; 200], 1).unwrap();
        assert_eq!((gain.gain.value, gain.gain.low, gain.gain.high), (0.0, 0.0, 0.0));
        assert_eq!(
            (gain.effect(), gain.changed_runs, gain.shorter_runs),
            (Effect::SomeRuns, 40, 40)
        );
        // One run in a hundred is not worth reporting, nor is one of ten.
        assert_eq!(compare(&hit(200)[..10], &[10_000; 10], 1).unwrap().effect(), Effect::Nothing);
        assert_eq!(compare(&hit(100), &[10_000; 200], 1).unwrap().effect(), Effect::Nothing);
        assert_eq!(compare(&[10_000; 20], &[11_000; 20], 1).unwrap().effect(), Effect::Loss);
        assert!(compare(&[], &[], 1).is_err());
        assert_eq!(compare(&[5], &[5], 1).unwrap().effect(), Effect::Nothing);
    }

    /// Uniform in (0, 1).
    fn unit(stream: u64, at: u64) -> f64 {
        ((draw(stream, at) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Pairs of runs: the time without the source is 10 000 plus an exponential tail; the source adds
    /// an exponential delay to a fraction of the runs.
    fn pairs(stream: u64, n: u64, hit: f64, delay: f64) -> (Vec<i64>, Vec<i64>) {
        let after = |i| 10_000.0 - 2_000.0 * unit(stream, 3 * i).ln();
        let added = |i| match unit(stream, 3 * i + 1) < hit {
            true => -delay * unit(stream, 3 * i + 2).ln(),
            false => 0.0,
        };
        let before = (0..n).map(|i| (after(i) + added(i)) as i64).collect();
        (before, (0..n).map(|i| after(i) as i64).collect())
    }

    #[test]
    fn the_interval_covers_the_true_gain_19_times_in_20_and_always_holds_the_estimate() {
        const TRIALS: u64 = 400;
        for (hit, delay) in [(1.0, 3_000.0), (0.7, 5_000.0), (0.5, 800.0), (0.3, 20_000.0)] {
            let (before, after) = pairs(u64::MAX, 1_000_000, hit, delay);
            let median = |times| Sample::new(times).unwrap().quantile(0.5);
            let truth = pct(median(before), median(after));
            let mut covered = 0;
            for stream in 0..TRIALS {
                let (before, after) = pairs(stream, 100, hit, delay);
                let gain = compare(&before, &after, stream).unwrap().gain;
                assert!(gain.low <= gain.value && gain.value <= gain.high, "{gain:?}");
                covered += usize::from(gain.low <= truth && truth <= gain.high);
            }
            // 95 % of 400 is 380, with a standard deviation of 4.4. The bootstrap of a median is
            // conservative if many runs do not change.
            assert!(covered >= 369, "{hit} {delay}: {covered} of {TRIALS}");
        }
    }

    #[test]
    fn intervals_cover_the_true_gain_as_often_as_they_say() {
        // Exponential times, reduced by 40 or 0: the true medians are known from a sample of a
        // million.
        let time = |stream, i| {
            let uniform = (draw(stream, i) >> 11) as f64 / (1u64 << 53) as f64;
            (10_000.0 - 2_000.0 * (1.0 - uniform).ln()) as i64
        };
        let off = |stream, i| (draw(stream ^ 0xabcd, i) >> 63) as i64 * 800;
        let runs = |stream: u64, n: u64| -> (Vec<i64>, Vec<i64>) {
            let before: Vec<i64> = (0..n).map(|i| time(stream, i)).collect();
            let after = (0..n).map(|i| time(stream, i) - off(stream, i)).collect();
            (before, after)
        };
        let (before, after) = runs(999, 1_000_000);
        let median = |times| Sample::new(times).unwrap().quantile(0.5);
        let truth = pct(median(before), median(after));
        let (mut covered, mut widths, mut gains) = (0, 0.0, Vec::new());
        for stream in 0..300 {
            let (before, after) = runs(stream, 100);
            let gain = compare(&before, &after, 1).unwrap().gain;
            covered += usize::from(gain.low <= truth && truth <= gain.high);
            widths += gain.high - gain.low;
            gains.push(gain.value);
        }
        // Medians of pairs that differ by one of two amounts: the bootstrap is slightly conservative
        // here, as wide as the gains scatter, and hardly wider.
        assert!(covered >= 276, "{covered} of 300");
        let (low, high) = bootstrap::interval(truth, gains);
        let scatter = Estimate { value: truth, low, high };
        let ratio = widths / 300.0 / (scatter.high - scatter.low);
        assert!((0.85..1.3).contains(&ratio), "{ratio}");
    }
}
