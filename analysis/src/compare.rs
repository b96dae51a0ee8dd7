//! Compares two recordings source by source: what appeared, vanished or changed, with confidence
//! intervals.
//!
//! Intervals come from a bootstrap over blocks of time: events are clustered, so resampling single
//! events would give intervals that are too narrow. Blocks are resampled with all their events,
//! separately for the two recordings; the middle 95 % of the results is the interval. A source that was
//! never seen may still exist: up to three times per watched duration (95 %).

use std::collections::HashMap;

use random::{Stream, bootstrap};
use serde::Serialize;
use trace::Class;

use crate::by::{By, GroupKey};
use crate::comparable::Scope;
use crate::rates::{BlockSum, Rates, RowRates};
use crate::summary::SharesOf;

/// A value and its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Interval {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// A source in one of the recordings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Side {
    pub count: u64,
    pub cost_ns_total: u64,
    /// Over all watched CPUs, as in the report.
    pub rate_hz: Interval,
    /// Share of the watched CPUs' time, in percent.
    pub time_pct: Interval,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Only after, and often enough that it would have been seen before.
    Appeared,
    /// Only before, and often enough that it would be seen after.
    Vanished,
    /// Takes more time than before.
    More,
    Less,
    /// Occurs more often, though the time it takes may be the same.
    MoreOften,
    LessOften,
    Unchanged,
    /// In only one of the two, but so rarely that this may be chance.
    TooRare,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Null for a row of several classes.
    pub class: Option<Class>,
    pub name: String,
    pub unit: Option<String>,
    pub own: bool,
    pub verdict: Verdict,
    pub before: Side,
    pub after: Side,
    /// After minus before.
    pub rate_change_hz: Interval,
    pub time_change_pct: Interval,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub before: Recording,
    pub after: Recording,
    /// The part of the recordings that is compared.
    pub compared: Scope,
    /// Base of all shares.
    pub shares_of: SharesOf,
    /// Total noise as a share: after minus before.
    pub noise_change_pct: Interval,
    /// Largest change in time first.
    pub sources: Vec<Change>,
    /// What `rows` has one row for.
    pub by: By,
    /// The same in other rows.
    pub rows: Vec<Change>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recording {
    pub host: String,
    pub kernel: String,
    pub started_unix_s: f64,
    pub duration_s: f64,
    pub watched_s: f64,
    /// CPUs or threads.
    pub lanes: usize,
    pub noise_pct: Interval,
    /// The highest threshold of all CPUs, if known.
    pub threshold_ns: Option<f64>,
    pub truncated: bool,
}

const RESAMPLES: u64 = 1_000;
/// A source with this many expected events is missed with a probability of 5 %.
const SEEN: f64 = 3.0;

/// Smaller relative changes of a rate are edge effects of the recording.
const EDGE: f64 = 0.005;

/// Compares two recordings, counted within the scope. The seed determines the resamples.
#[must_use]
pub fn compare(before: &Rates, after: &Rates, compared: Scope, seed: u64) -> Comparison {
    let (a, b) = (Resampled::new(before, seed), Resampled::new(after, seed ^ 0x5eed));
    let (noise_before, noise_after) = (a.time(&before.total), b.time(&after.total));
    Comparison {
        before: recording(before, interval(&noise_before)),
        after: recording(after, interval(&noise_after)),
        compared,
        shares_of: before.shares_of,
        noise_change_pct: difference(&noise_before, &noise_after),
        sources: changes(&before.sources, &after.sources, &a, &b),
        by: after.by,
        rows: changes(&before.rows, &after.rows, &a, &b),
    }
}

/// Every row of either recording.
fn changes(
    before: &[RowRates],
    after: &[RowRates],
    a: &Resampled<'_>,
    b: &Resampled<'_>,
) -> Vec<Change> {
    let mut others: HashMap<GroupKey, &RowRates> =
        after.iter().map(|row| (row.key.comparable(), row)).collect();
    let mut changes: Vec<Change> = Vec::new();
    for row in before {
        let other = others.remove(&row.key.comparable());
        changes.push(change(&row.key, Some(row), other, a, b));
    }
    for row in after.iter().filter(|row| others.contains_key(&row.key.comparable())) {
        changes.push(change(&row.key, None, Some(row), a, b));
    }
    let size = |c: &Change| c.time_change_pct.value.abs();
    let time = |c: &Change| c.before.time_pct.value + c.after.time_pct.value;
    changes.sort_by(|a, b| {
        let by_size = size(b).total_cmp(&size(a)).then(time(b).total_cmp(&time(a)));
        by_size.then_with(|| a.name.cmp(&b.name))
    });
    changes
}

fn recording(rates: &Rates, noise_pct: Interval) -> Recording {
    Recording {
        host: rates.host.clone(),
        kernel: rates.kernel.clone(),
        started_unix_s: rates.started_unix_s,
        duration_s: rates.duration_s,
        watched_s: rates.watched_s,
        lanes: rates.lanes,
        noise_pct,
        threshold_ns: rates.threshold_ns,
        truncated: rates.truncated,
    }
}

fn change(
    key: &GroupKey,
    before: Option<&RowRates>,
    after: Option<&RowRates>,
    a: &Resampled<'_>,
    b: &Resampled<'_>,
) -> Change {
    let cells = |source: Option<&RowRates>| source.map_or(Vec::new(), |s| s.cells.clone());
    let (cells_before, cells_after) = (cells(before), cells(after));
    let (rate_before, rate_after) = (a.rate(&cells_before), b.rate(&cells_after));
    let (time_before, time_after) = (a.time(&cells_before), b.time(&cells_after));
    let side = |cells: &[BlockSum], rate: &Figures, time: &Figures, duration: f64| {
        let mut rate_hz = interval(rate);
        let count = cells.iter().map(|cell| cell.count).sum();
        if count == 0 && duration > 0.0 {
            rate_hz.high = SEEN / duration;
        }
        let cost = cells.iter().map(|cell| cell.cost_ns).fold(0, u64::saturating_add);
        Side { count, cost_ns_total: cost, rate_hz, time_pct: interval(time) }
    };
    let (before, after) = (
        side(&cells_before, &rate_before, &time_before, a.rates.duration_s),
        side(&cells_after, &rate_after, &time_after, b.rates.duration_s),
    );
    let rate_change_hz = difference(&rate_before, &rate_after);
    let time_change_pct = difference(&time_before, &time_after);
    let verdict = match (before.count, after.count) {
        (0, _) if after.rate_hz.value * a.rates.duration_s >= SEEN => Verdict::Appeared,
        (_, 0) if before.rate_hz.value * b.rates.duration_s >= SEEN => Verdict::Vanished,
        (0, _) | (_, 0) => Verdict::TooRare,
        _ => match (sign(&time_change_pct), sign(&rate_change_hz)) {
            (1, _) => Verdict::More,
            (-1, _) => Verdict::Less,
            // A periodic source has no spread; one more event at the edge is not a change.
            _ if rate_change_hz.value.abs() < EDGE * before.rate_hz.value => Verdict::Unchanged,
            (_, 1) => Verdict::MoreOften,
            (_, -1) => Verdict::LessOften,
            _ => Verdict::Unchanged,
        },
    };
    let GroupKey { class, name, unit, own, program: _ } = key.clone();
    Change { class, name, unit, own, verdict, before, after, rate_change_hz, time_change_pct }
}

/// Sign of a change, 0 if not significant.
fn sign(change: &Interval) -> i32 {
    i32::from(change.low > 0.0) - i32::from(change.high < 0.0)
}

/// A value, and its value in each resample.
struct Figures {
    value: f64,
    resampled: Vec<f64>,
}

fn interval(figures: &Figures) -> Interval {
    middle(figures.value, figures.resampled.clone())
}

fn difference(before: &Figures, after: &Figures) -> Interval {
    let resampled = after.resampled.iter().zip(&before.resampled).map(|(a, b)| a - b).collect();
    middle(after.value - before.value, resampled)
}

fn middle(value: f64, resampled: Vec<f64>) -> Interval {
    let (low, high) = bootstrap::interval(value, resampled);
    Interval { value, low, high }
}

/// A recording and the weight of each block of time in each resample. All sources share the weights,
/// which preserves their correlation.
struct Resampled<'a> {
    rates: &'a Rates,
    weights: Vec<Vec<u32>>,
}

impl Resampled<'_> {
    fn new(rates: &Rates, seed: u64) -> Resampled<'_> {
        let blocks = rates.total.len();
        let mut stream = Stream::new(seed);
        let mut one = || {
            let mut weights = vec![0; blocks];
            bootstrap::resample(&mut stream, &mut weights);
            weights
        };
        Resampled { rates, weights: (0..RESAMPLES).map(|_| one()).collect() }
    }

    fn rate(&self, cells: &[BlockSum]) -> Figures {
        self.figures(cells, |cell| cell.count as f64, per(self.rates.duration_s))
    }

    /// Share of the time. A resample can contain the longest blocks several times, but nothing takes
    /// more than all of the time.
    fn time(&self, cells: &[BlockSum]) -> Figures {
        let scale = per(self.rates.watched_s) * 1e-9 * 100.0;
        let mut figures = self.figures(cells, |cell| cell.cost_ns as f64, scale);
        figures.resampled.iter_mut().for_each(|share| *share = share.min(100.0));
        figures
    }

    fn figures(&self, cells: &[BlockSum], figure: fn(&BlockSum) -> f64, scale: f64) -> Figures {
        let values: Vec<f64> = cells.iter().map(figure).collect();
        let sum = |weights: &Vec<u32>| {
            values.iter().zip(weights).map(|(v, &w)| v * f64::from(w)).sum::<f64>() * scale
        };
        Figures {
            value: values.iter().sum::<f64>() * scale,
            resampled: self.weights.iter().map(sum).collect(),
        }
    }
}

fn per(seconds: f64) -> f64 {
    if seconds > 0.0 { 1.0 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::*;
    use crate::summary::CostBasis;

    fn rates(sources: Vec<(&str, Vec<u64>)>) -> Rates {
        let cells = |counts: &[u64]| -> Vec<BlockSum> {
            counts.iter().map(|&count| BlockSum { count, cost_ns: count * 10_000 }).collect()
        };
        Rates {
            host: "node".into(),
            kernel: String::new(),
            started_unix_s: 0.0,
            duration_s: 10.0,
            watched_s: 20.0,
            lanes: 2,
            shares_of: SharesOf::CpuTime,
            cost_basis: CostBasis::Detours,
            total: cells(&[5; 100]),
            sources: sources
                .into_iter()
                .map(|(name, counts)| RowRates {
                    key: GroupKey {
                        class: Some(Class::Thread),
                        name: name.into(),
                        unit: None,
                        own: false,
                        program: false,
                    },
                    cells: cells(&counts),
                })
                .collect(),
            by: By::Source,
            rows: Vec::new(),
            threshold_ns: None,
            truncated: false,
        }
    }

    fn both(before: &Rates, after: &Rates) -> Comparison {
        compare(before, after, Scope::default(), 1)
    }

    fn verdict(before: Vec<u64>, after: Vec<u64>) -> Verdict {
        let side = |counts: Vec<u64>| match counts.iter().sum::<u64>() {
            0 => rates(vec![]),
            _ => rates(vec![("x", counts)]),
        };
        both(&side(before), &side(after)).sources[0].verdict
    }

    /// Binomial counts per block of time: `per` trials with probability 0.1.
    fn counts(seed: u64, per: u32) -> Vec<u64> {
        let mut numbers = Stream::new(seed);
        (0..100)
            .map(|_| (0..per).filter(|_| numbers.next_u64().is_multiple_of(10)).count() as u64)
            .collect()
    }

    #[test]
    fn sources_appear_vanish_change_and_stay() {
        let none = vec![0; 100];
        let mut once = none.clone();
        once[7] = 1;
        assert_eq!(verdict(none.clone(), counts(1, 20)), Verdict::Appeared);
        assert_eq!(verdict(counts(1, 20), none.clone()), Verdict::Vanished);
        assert_eq!(verdict(none.clone(), once.clone()), Verdict::TooRare);
        assert_eq!(verdict(once, none), Verdict::TooRare);
        assert_eq!(verdict(counts(1, 20), counts(2, 40)), Verdict::More);
        assert_eq!(verdict(counts(1, 40), counts(2, 20)), Verdict::Less);
        assert_eq!(verdict(counts(1, 20), counts(1, 20)), Verdict::Unchanged);
    }

    #[test]
    fn two_recordings_of_the_same_are_told_apart_one_time_in_twenty() {
        let changed = (0..400)
            .filter(|i| verdict(counts(2 * i, 20), counts(2 * i + 1, 20)) != Verdict::Unchanged)
            .count();
        assert!((4..=44).contains(&changed), "{changed} of 400");
    }

    /// The reason for blocks: a hundred events in one burst are one observation, not a hundred.
    #[test]
    fn a_bunch_of_events_is_no_evidence() {
        let mut bunch = vec![0; 100];
        bunch[50] = 100;
        let spread = vec![1; 100];
        let side = |counts| {
            let rates = rates(vec![("x", counts)]);
            both(&rates, &rates).sources[0].before
        };
        let (bunch, spread) = (side(bunch), side(spread));
        assert_eq!(bunch.rate_hz.value, spread.rate_hz.value);
        assert_eq!(bunch.rate_hz.low, 0.0);
        assert!(bunch.rate_hz.high >= 30.0 && spread.rate_hz.high < 10.5, "{bunch:?} {spread:?}");
    }

    #[test]
    fn no_share_exceeds_the_whole() {
        // Four of a hundred blocks contain 95 % of the time: detours count where they begin.
        let mut hog = rates(vec![("hog", vec![0; 100])]);
        for block in [3, 30, 60, 90] {
            hog.sources[0].cells[block] = BlockSum { count: 1, cost_ns: 4_750_000_000 };
        }
        hog.total.clone_from(&hog.sources[0].cells);
        let Comparison { before, sources, noise_change_pct, .. } = both(&hog, &hog);
        for share in [before.noise_pct, sources[0].before.time_pct, sources[0].after.time_pct] {
            assert!((share.value - 95.0).abs() < 1e-9 && share.high == 100.0, "{share:?}");
        }
        assert!(noise_change_pct.low >= -100.0 && noise_change_pct.high <= 100.0);
    }

    #[test]
    fn rates_are_the_nodes_and_time_is_a_share_of_the_watched_cpus() {
        let one = rates(vec![("x", vec![2; 100])]);
        let side = both(&one, &one).sources[0].before;
        assert_eq!((side.count, side.rate_hz.value), (200, 20.0));
        // 200 times 10 us of 20 s.
        assert!((side.time_pct.value - 0.01).abs() < 1e-12);
        assert_eq!(both(&one, &one), both(&one, &one));
        assert!(both(&rates(vec![]), &rates(vec![])).sources.is_empty());
    }
}
