//! The tail that was not recorded: how long the longest detour is in more time than was watched.
//!
//! Each source of a recording is of one kind. What is periodic and bounded is capped at twice the longest seen, and its
//! lengths are fitted as those of a bounded source;
//! what is heavy has a fitted tail ([`distribution::peaks`]); of what occurred a few times only, just the rate is
//! bounded, and so is that of whatever never occurred: below 3/T with 95 % confidence after T CPU-seconds.
//!
//! The longest detour of all is the longest of any source: a fit to a mixture of sources would be that of the most
//! frequent ones. Sources with a few occurrences each have a tail together.

use std::{collections::HashMap, path::Path};

use analysis::words;
use anyhow::{Result, bail};
use distribution::{
    pareto::Pareto,
    peaks::{self, Largest},
    rare,
};
use rand::RngExt;
use random::Stream;
use serde::{Deserialize, Serialize};
use simulate::noise::Composed;
use trace::{Class, RowKey};

use crate::recording::{
    open::{self, AnyReader},
    recorded::{Groups, Recorded, lane_words},
    summary::summarise,
};

/// With fewer occurrences, nothing is said about lengths.
pub const FEW: u64 = 30;
/// What is bounded is capped at this multiple of the longest seen.
pub const MARGIN: f64 = 2.0;
/// A periodic source is bounded if it occurred so often, and never took more than [`MARGIN`] times as long as one in
/// [`RARE`] does. Of as many exponential lengths, the longest is 2.5 times as long.
const OFTEN: u64 = 300;
const RARE: u64 = 10;
/// Fewer occurrences are enough if the longest is at most [`ALIKE`] times as long as what [`RARE`] selects: with 100
/// exponential lengths, the probability of that is 1 in 3000.
const ENOUGH: u64 = 100;
const ALIKE: f64 = 1.25;
/// How much more time than was watched is predicted, unless a time is given.
const AHEAD: f64 = 10.0;
/// Limits of an extended recording: detours, which should stay in the cache, because a page simulates many
/// variants of them; and copies. A long recording has a few, unless they take too much memory.
const USUAL_DETOURS: u64 = 1 << 18;
const MOST_DETOURS: u64 = 1 << 21;
const FEW_COPIES: u64 = 8;
const MOST_COPIES: u64 = 256;

/// Parts of a lane, one of which predicts the others, when a prediction is checked.
const PARTS: usize = 10;

#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// CPU time to predict, s.
    pub ahead_s: Option<f64>,
    /// Also predict the rest of each lane from its first tenth, and compare.
    pub check: bool,
}

/// The longest detours to expect.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tails {
    /// On all CPUs together.
    pub watched_s: f64,
    /// The CPU time for which the longest detour is predicted.
    pub ahead_s: f64,
    /// Detours, whatever their sources. Its `expected` is the longest of any source; `fit` is null if there are
    /// several.
    pub all: Tail,
    /// Longest expected first; those with too few occurrences last. Empty for other tools' files.
    pub sources: Vec<SourceTail>,
    /// Upper bound on the rate of events that were never seen, with 95 % confidence.
    pub unseen_below_hz: f64,
    /// Null unless requested.
    pub check: Option<Check>,
    pub remarks: Vec<String>,
}

/// What is known about lengths beyond those seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Periodic, and no longer than the cap.
    Bounded,
    /// With a fitted tail.
    Heavy,
    /// Too few occurrences to tell: only the rate is bounded.
    Few,
}

/// The tail of a source, or of all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tail {
    pub kind: Kind,
    /// Detours it took part in.
    pub count: u64,
    /// It occurs less often than this, with 95 % confidence.
    pub below_hz: f64,
    pub period_us: Option<f64>,
    pub longest_us: f64,
    /// Of a bounded source.
    pub cap_us: Option<f64>,
    /// Of a heavy source.
    pub fit: Option<Fit>,
    /// The longest in the time ahead. Null if there are too few.
    pub expected: Option<Expected>,
    /// The longest in the time ahead by drawing from what was seen: never longer than that.
    pub resampled_us: Option<f64>,
}

/// A generalised Pareto distribution of what exceeds a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fit {
    pub threshold_us: f64,
    /// How many exceed it.
    pub peaks: u64,
    /// One over the mean size of a cluster of peaks.
    pub extremal_index: f64,
    pub shape: f64,
    pub scale_us: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Expected {
    pub median_us: f64,
    pub ci95_us: [f64; 2],
}

/// The tail of a row of the report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceTail {
    pub class: Class,
    pub name: String,
    pub unit: Option<String>,
    #[serde(flatten)]
    pub tail: Tail,
}

/// The rest of each lane, predicted from its first tenth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    pub lanes: Vec<Checked>,
    /// Share of the lanes whose longest detour lies in its interval.
    pub covered_pct: f64,
    /// The same if any tenth of a lane, not only the first, predicts the other nine.
    pub any_tenth_covered_pct: f64,
    /// Median of the ratio of the bounds.
    pub width: f64,
    /// How many times longer the longest detour was than resampling has it, at most.
    pub resampling_short: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// The CPU, thread or run.
    pub lane: String,
    pub trained_s: f64,
    /// In the first tenth.
    pub seen_us: f64,
    pub expected: Expected,
    pub resampled_us: f64,
    /// In the rest.
    pub longest_us: f64,
    pub covered: bool,
    /// How many of its tenths predict the other nine, and how many have detours to do so.
    pub tenths_covered: u64,
    pub tenths: u64,
}

/// The tails of a recording, or of another tool's file.
pub fn tails(path: &Path, request: Request) -> Result<Tails> {
    let reader = open::open(path)?;
    let recorded = Recorded::new(&reader);
    let rows = recorded.rows();
    let known = known(&reader, &recorded, &rows);
    let mut seen = Seen::new(&known);
    let mut watched_ns = 0u64;
    let mut lanes = Vec::new();
    for (index, lane) in reader.lanes().iter().enumerate() {
        if !recorded.lends(index) {
            continue;
        }
        let composed = recorded.lane(&reader, index)?;
        watched_ns = watched_ns.saturating_add(composed.span_ns());
        composed.for_each(|_, parts| seen.push(parts, &known));
        if request.check {
            lanes.extend(checked(&composed, lane_words(lane), &known));
        }
    }
    if watched_ns == 0 {
        bail!("{}", open::watched_nothing(&reader));
    }
    let watched_s = watched_ns as f64 / 1e9;
    let ahead_s = request.ahead_s.unwrap_or(AHEAD * watched_s);
    let time = Time { watched_s, ratio: ahead_s / watched_s };
    let mut all = time.tail(seen.all.clone(), None).unwrap_or_else(|| time.nothing());
    if all.kind != Kind::Few && !known.plain {
        all.fit = None;
        all.expected = seen.together(&known, time.ratio);
    }
    let source = |(members, seen): (&Vec<u32>, SeenRow)| {
        let key = &recorded.sources[members[0] as usize].key;
        let tail = time.tail(seen.largest, known.periods.get(key).copied())?;
        let RowKey { class, name, unit, .. } = key.clone();
        Some(SourceTail { class, name, unit, tail })
    };
    let mut sources: Vec<SourceTail> = match known.plain {
        // A file without sources has only time outside the kernel, which is all of it.
        true => Vec::new(),
        false => rows.members.iter().zip(seen.rows).filter_map(source).collect(),
    };
    let upper = |tail: &Tail| tail.expected.map_or(0.0, |expected| expected.ci95_us[1]);
    sources.sort_by(|a, b| {
        let order = upper(&b.tail).total_cmp(&upper(&a.tail));
        order.then(b.tail.longest_us.total_cmp(&a.tail.longest_us))
    });
    let check = request.check.then(|| Check::of(lanes));
    let remarks = recorded.remarks().into_iter().chain(open::remark_if_not_whole(&reader));
    Ok(Tails {
        watched_s,
        ahead_s,
        all,
        sources,
        unseen_below_hz: rare::most(0) / watched_s,
        check: check.transpose()?,
        remarks: remarks.collect(),
    })
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// What is known of the sources of a recording beside their detours.
struct Known {
    /// The row of each source.
    of: Vec<u32>,
    /// Of the rows of the report, us.
    periods: HashMap<RowKey, f64>,
    by_row: Vec<Option<f64>>,
    /// Another tool's file, without sources: one row, without a period.
    plain: bool,
}

fn known(reader: &AnyReader, recorded: &Recorded, rows: &Groups) -> Known {
    let key = |members: &Vec<u32>| &recorded.sources[members[0] as usize].key;
    let periods = periods(reader);
    if rows.members.iter().all(|members| key(members).class == Class::OutsideKernel) {
        let of = vec![0; rows.of.len()];
        return Known { of, periods, by_row: vec![None], plain: true };
    }
    let by_row = rows.members.iter().map(|members| periods.get(key(members)).copied()).collect();
    Known { of: rows.of.clone(), periods, by_row, plain: false }
}

/// The longest detours, of all sources and of each row.
#[derive(Clone, Default)]
struct Seen {
    all: Largest,
    rows: Vec<SeenRow>,
    sums: Vec<(u32, u64)>,
}

#[derive(Clone, Default)]
struct SeenRow {
    largest: Largest,
    /// As many as there are at most if they are few: the number of the detour, and its length in us.
    first: Vec<(u64, f64)>,
}

impl Seen {
    fn new(known: &Known) -> Seen {
        Seen { rows: vec![SeenRow::default(); known.by_row.len()], ..Seen::default() }
    }

    fn push(&mut self, parts: &[(u32, u64)], known: &Known) {
        let number = self.all.n();
        self.all.push(us(parts.iter().map(|(_, ns)| ns).sum()));
        sum_by_row(parts, &known.of, &mut self.sums);
        for &(row, ns) in &self.sums {
            let Some(row) = self.rows.get_mut(row as usize) else { continue };
            row.largest.push(us(ns));
            if (row.first.len() as u64) < FEW {
                row.first.push((number, us(ns)));
            }
        }
    }

    /// The longest detour to expect of any source. None if there are no detours.
    fn together(&self, known: &Known, ratio: f64) -> Option<Expected> {
        let mut tails = Vec::new();
        let mut few: Vec<(u64, f64)> = Vec::new();
        for (row, period_us) in self.rows.iter().zip(&known.by_row) {
            let kind = kind(&row.largest, *period_us);
            if kind == Kind::Few {
                few.extend(&row.first);
                continue;
            }
            let longest = row.largest.clone().peaks().first().map_or(0.0, |peak| peak.value);
            let cap = (kind == Kind::Bounded).then_some(MARGIN * longest);
            tails.extend(fitted(kind, row.largest.clone()).map(|tail| (tail, cap)));
        }
        few.sort_unstable_by_key(|(number, _)| *number);
        let mut pool = Largest::default();
        few.iter().for_each(|(_, us)| pool.push(*us));
        tails.extend(peaks::tail(pool).map(|tail| (tail, None)));
        peaks::largest_of(&tails, self.all.clone(), ratio).map(Expected::of)
    }
}

/// The periods of the rows of the report, us.
fn periods(reader: &AnyReader) -> HashMap<RowKey, f64> {
    let (summary, _) = summarise(reader);
    let rows = summary.sources.iter().filter_map(|row| Some((row.row_key(), us(row.period_ns?))));
    rows.collect()
}

#[derive(Clone, Copy)]
struct Time {
    watched_s: f64,
    /// The time ahead over the time watched.
    ratio: f64,
}

impl Time {
    /// None if it never occurred.
    fn tail(self, largest: Largest, period_us: Option<f64>) -> Option<Tail> {
        let count = largest.n();
        let sorted = largest.clone().peaks();
        let longest_us = sorted.first()?.value;
        let below_hz = rare::most(count) / self.watched_s;
        let resampled = peaks::resampled(&sorted, count, self.ratio);
        let mut tail = Tail {
            kind: Kind::Few,
            count,
            below_hz,
            period_us,
            longest_us,
            cap_us: None,
            fit: None,
            expected: None,
            resampled_us: resampled.map(|resampled| resampled.median),
        };
        tail.kind = kind(&largest, period_us);
        if tail.kind == Kind::Few {
            return Some(tail);
        }
        let fitted = fitted(tail.kind, largest)?;
        let mut expected = fitted.largest(self.ratio);
        if tail.kind == Kind::Bounded {
            let cap = MARGIN * longest_us;
            tail.cap_us = Some(cap);
            for bound in [&mut expected.median, &mut expected.lower, &mut expected.upper] {
                *bound = bound.min(cap);
            }
        } else {
            tail.fit = Some(Fit::of(&fitted));
        }
        tail.expected = Some(Expected::of(expected));
        Some(tail)
    }

    fn nothing(self) -> Tail {
        Tail {
            kind: Kind::Few,
            count: 0,
            below_hz: rare::most(0) / self.watched_s,
            period_us: None,
            longest_us: 0.0,
            cap_us: None,
            fit: None,
            expected: None,
            resampled_us: None,
        }
    }
}

impl Fit {
    fn of(fitted: &peaks::Tail) -> Fit {
        Fit {
            threshold_us: fitted.threshold,
            peaks: fitted.peaks as u64,
            extremal_index: fitted.index,
            shape: fitted.pareto.shape,
            scale_us: fitted.pareto.scale,
        }
    }
}

impl Expected {
    fn of(found: peaks::Prediction) -> Expected {
        Expected { median_us: found.median, ci95_us: [found.lower, found.upper] }
    }
}

/// None for a lane whose first tenth or rest has no detours.
fn checked(composed: &Composed, lane: String, known: &Known) -> Option<Checked> {
    let part_ns = (composed.span_ns() / PARTS as u64).max(1);
    let mut parts: [Seen; PARTS] = std::array::from_fn(|_| Seen::new(known));
    composed.for_each(|start, took| {
        let at = (start / part_ns).min(PARTS as u64 - 1) as usize;
        parts[at].push(took, known);
    });
    let longest: Vec<f64> = parts
        .iter()
        .map(|part| part.all.clone().peaks().first().map_or(0.0, |peak| peak.value))
        .collect();
    let ratio = (PARTS - 1) as f64;
    // The prediction of a part, the longest of the others, and whether that is covered.
    let predicted = |part: usize| {
        let others = longest.iter().enumerate().filter(|(at, _)| *at != part);
        let most = others.fold(0.0f64, |most, (_, &length)| most.max(length));
        let expected = parts[part].together(known, ratio)?;
        let [lower, upper] = expected.ci95_us;
        (most > 0.0).then_some((expected, most, (lower..=upper).contains(&most)))
    };
    let (expected, longest_us, covered) = predicted(0)?;
    let others = (1..PARTS).filter_map(|part| Some(predicted(part)?.2));
    let tenths: Vec<bool> = std::iter::once(covered).chain(others).collect();
    let (n, sorted) = (parts[0].all.n(), parts[0].all.clone().peaks());
    Some(Checked {
        lane,
        trained_s: part_ns as f64 / 1e9,
        seen_us: longest[0],
        expected,
        resampled_us: peaks::resampled(&sorted, n, ratio)?.upper,
        longest_us,
        covered,
        tenths_covered: tenths.iter().filter(|covered| **covered).count() as u64,
        tenths: tenths.len() as u64,
    })
}

impl Check {
    fn of(lanes: Vec<Checked>) -> Result<Check> {
        if lanes.is_empty() {
            bail!("too few detours to check the prediction: record for longer");
        }
        let covered = lanes.iter().filter(|lane| lane.covered).count();
        let mut widths: Vec<f64> =
            lanes.iter().map(|lane| lane.expected.ci95_us[1] / lane.expected.ci95_us[0]).collect();
        widths.sort_unstable_by(f64::total_cmp);
        let short = lanes.iter().map(|lane| lane.longest_us / lane.resampled_us);
        let sum = |of: fn(&Checked) -> u64| lanes.iter().map(of).sum::<u64>() as f64;
        Ok(Check {
            covered_pct: 100.0 * covered as f64 / lanes.len() as f64,
            any_tenth_covered_pct: 100.0 * sum(|lane| lane.tenths_covered)
                / sum(|lane| lane.tenths),
            width: widths[widths.len() / 2],
            resampling_short: short.fold(1.0, f64::max),
            lanes,
        })
    }
}

/// How far a recording was extended by fitted tails, and what its noise rests on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Extended {
    /// The recording and copies of it in which tails are drawn anew.
    pub copies: u64,
    /// CPU time, recorded and extended.
    pub watched_s: f64,
    pub extended_s: f64,
    /// Shares of the time lost: as recorded, drawn from a fitted tail, and of sources that occurred too rarely
    /// for one, even together, which may be longer or more frequent.
    pub data_pct: f64,
    pub tail_pct: f64,
    pub bounded_pct: f64,
    /// The longest detour, recorded and extended.
    pub longest_recorded_us: f64,
    pub longest_us: f64,
    /// Upper bound on the rate of events that were never seen, with 95 % confidence.
    pub unseen_below_hz: f64,
}

/// The lanes of a recording with copies of them, as a simulation takes them.
pub struct Copies {
    pub lanes: Vec<Composed>,
    /// The numbers of lanes of each node, and the ranks that share one.
    pub nodes: Option<(Vec<usize>, u64)>,
    pub extended: Extended,
}

impl Copies {
    /// Of lanes on these nodes. Each copy has the nodes of the recording.
    pub fn of(
        reader: &AnyReader,
        recorded: &Recorded,
        lanes: &[Composed],
        nodes: Option<(&[usize], u64)>,
        seed: u64,
    ) -> Copies {
        let (copies, extended) = Fitted::of(reader, recorded, lanes).extend(lanes, seed);
        Copies {
            nodes: nodes.map(|(counts, ranks)| (counts.repeat(copies.len()), ranks)),
            lanes: copies.into_iter().flatten().collect(),
            extended,
        }
    }

    pub fn nodes(&self) -> Option<(&[usize], u64)> {
        self.nodes.as_ref().map(|(counts, ranks)| (&counts[..], *ranks))
    }
}

/// The tails of the rows of a recording.
pub struct Fitted {
    /// The row of each source.
    of: Vec<u32>,
    rows: Vec<Row>,
}

struct Row {
    kind: Kind,
    /// Of a heavy row.
    tail: Option<peaks::Tail>,
}

impl Fitted {
    /// From lanes whose sources belong to these rows, of which some have a period.
    pub fn new(lanes: &[Composed], of: &[u32], periods_us: &[Option<f64>]) -> Fitted {
        let mut of_row: Vec<Largest> = vec![Largest::default(); periods_us.len()];
        for lane in lanes {
            for_each_row(lane, of, |row, ns| of_row[row as usize].push(us(ns)));
        }
        let row = |(largest, period_us): (Largest, &Option<f64>)| {
            let kind = kind(&largest, *period_us);
            let tail = if kind == Kind::Heavy { peaks::tail(largest) } else { None };
            Row { kind, tail }
        };
        let rows = of_row.into_iter().zip(periods_us).map(row).collect();
        Fitted { of: of.to_vec(), rows }.pooled(lanes)
    }

    /// Sources that are too rare for a tail of their own share one, if they are frequent enough together: they
    /// are often the longest.
    fn pooled(mut self, lanes: &[Composed]) -> Fitted {
        let pool = self.rows.len() as u32;
        let few = |row: u32| self.rows[row as usize].kind == Kind::Few;
        let of: Vec<u32> = self.of.iter().map(|&row| if few(row) { pool } else { row }).collect();
        let mut largest = Largest::default();
        for lane in lanes {
            for_each_row(lane, &of, |row, ns| {
                if row == pool {
                    largest.push(us(ns));
                }
            });
        }
        if kind(&largest, None) == Kind::Heavy {
            self.rows.push(Row { kind: Kind::Heavy, tail: peaks::tail(largest) });
            self.of = of;
        }
        self
    }

    /// The tails of a recording, for the lanes of it that are used.
    pub fn of(reader: &AnyReader, recorded: &Recorded, lanes: &[Composed]) -> Fitted {
        let (rows, periods) = (recorded.rows(), periods(reader));
        let period = |members: &Vec<u32>| {
            let key = &recorded.sources[members[0] as usize].key;
            periods.get(key).copied()
        };
        Fitted::new(lanes, &rows.of, &rows.members.iter().map(period).collect::<Vec<_>>())
    }

    /// The lanes, and copies of all of them with other tails. None if no source has a tail.
    pub fn extend(&self, lanes: &[Composed], seed: u64) -> (Vec<Vec<Composed>>, Extended) {
        let detours = lanes.iter().map(Composed::len).sum::<usize>().max(1) as u64;
        let few = FEW_COPIES.min(MOST_DETOURS / detours);
        let any = self.rows.iter().any(|row| row.tail.is_some());
        let most = if any { MOST_COPIES } else { 1 };
        let copies = (USUAL_DETOURS / detours).max(few).clamp(1, most);
        let watched_s =
            lanes.iter().map(Composed::span_ns).fold(0, u64::saturating_add) as f64 / 1e9;
        let mut sums = Sums::default();
        let mut all = vec![lanes.to_vec()];
        lanes.iter().for_each(|lane| self.count(lane, &mut sums));
        let longest_recorded_us = us(sums.longest);
        // Parameters that are barely possible have no end: nothing is longer than what is expected of the whole
        // extended time, with 95 % confidence.
        let most =
            |row: &Row| row.tail.as_ref().map_or(0.0, |tail| tail.largest(copies as f64).upper);
        let most: Vec<f64> = self.rows.iter().map(most).collect();
        for copy in 1..copies {
            let key = random::key(seed, TAIL, copy);
            let drawn = self.drawn(key, &most);
            let changed = (0..).zip(lanes).map(|(number, lane)| {
                let mut stream = Stream::new(random::draw(key, number));
                self.changed(lane, &drawn, &mut stream, &mut sums.tail)
            });
            let changed: Vec<Composed> = changed.collect();
            changed.iter().for_each(|lane| self.count(lane, &mut sums));
            all.push(changed);
        }
        let pct = |ns: u64| if sums.all > 0 { 100.0 * ns as f64 / sums.all as f64 } else { 0.0 };
        let data = sums.all.saturating_sub(sums.tail).saturating_sub(sums.few);
        let extended = Extended {
            copies,
            watched_s,
            extended_s: watched_s * copies as f64,
            data_pct: pct(data),
            tail_pct: pct(sums.tail),
            bounded_pct: pct(sums.few),
            longest_recorded_us,
            longest_us: us(sums.longest),
            unseen_below_hz: rare::most(0) / watched_s,
        };
        (all, extended)
    }

    /// The distribution of each row in a copy; `most` is the longest of each.
    fn drawn(&self, key: u64, most: &[f64]) -> Vec<Option<Drawn>> {
        let mut stream = Stream::new(key);
        let draw = |(row, &most): (&Row, &f64)| {
            let tail = row.tail.as_ref()?;
            Some(Drawn { threshold: tail.threshold, excess: tail.drawn(stream.random()), most })
        };
        self.rows.iter().zip(most).map(draw).collect()
    }

    fn changed(
        &self,
        lane: &Composed,
        drawn: &[Option<Drawn>],
        stream: &mut Stream,
        tail_ns: &mut u64,
    ) -> Composed {
        lane.changed(|parts| {
            for at in 0..parts.len() {
                let Some(&row) = self.of.get(parts[at].0 as usize) else { continue };
                let same = |&(source, _): &(u32, u64)| self.of.get(source as usize) == Some(&row);
                // A row is drawn once, with the first of its sources in the detour.
                if parts[..at].iter().any(same) {
                    continue;
                }
                let Some(Drawn { threshold, excess, most }) = drawn[row as usize] else { continue };
                let took: u64 = parts.iter().filter(|part| same(part)).map(|part| part.1).sum();
                let tail = self.rows[row as usize].tail.as_ref();
                if !tail.is_some_and(|tail| tail.draws(us(took))) {
                    continue;
                }
                let length = threshold + excess.exceeded_with(1.0 - stream.random::<f64>());
                let length = (length.min(most) * 1e3).round() as u64;
                // The other sources of the row in this detour keep their shares.
                let mut left = length;
                for part in parts.iter_mut().filter(|part| same(part)).skip(1) {
                    part.1 = (part.1 as f64 * length as f64 / took as f64) as u64;
                    left = left.saturating_sub(part.1);
                }
                parts[at].1 = left;
                *tail_ns += length;
            }
        })
    }

    fn count(&self, lane: &Composed, sums: &mut Sums) {
        lane.for_each(|_, parts| {
            let length = parts.iter().map(|(_, ns)| *ns).sum();
            sums.all += length;
            sums.longest = sums.longest.max(length);
        });
        for_each_row(lane, &self.of, |row, ns| {
            sums.few += if self.rows[row as usize].kind == Kind::Few { ns } else { 0 };
        });
    }
}

/// The tail of a row in one copy, us.
#[derive(Clone, Copy)]
struct Drawn {
    threshold: f64,
    excess: Pareto,
    most: f64,
}

/// Purpose of the random numbers.
const TAIL: u64 = 0x7a11;

#[derive(Default)]
struct Sums {
    all: u64,
    tail: u64,
    few: u64,
    longest: u64,
}

/// What each row took in each detour.
fn for_each_row(lane: &Composed, of: &[u32], mut tell: impl FnMut(u32, u64)) {
    let mut sums: Vec<(u32, u64)> = Vec::new();
    lane.for_each(|_, parts| {
        sum_by_row(parts, of, &mut sums);
        sums.iter().for_each(|&(row, ns)| tell(row, ns));
    });
}

fn sum_by_row(parts: &[(u32, u64)], of: &[u32], sums: &mut Vec<(u32, u64)>) {
    sums.clear();
    for &(source, ns) in parts {
        let Some(&row) = of.get(source as usize) else { continue };
        match sums.iter_mut().find(|(found, _)| *found == row) {
            Some((_, sum)) => *sum += ns,
            None => sums.push((row, ns)),
        }
    }
}

/// What is known about lengths beyond those seen.
fn kind(largest: &Largest, period_us: Option<f64>) -> Kind {
    if largest.n() < FEW {
        return Kind::Few;
    }
    let margin = match largest.n() {
        n if n >= OFTEN => MARGIN,
        n if n >= ENOUGH => ALIKE,
        _ => 0.0,
    };
    let sorted = largest.clone().peaks();
    let usual = sorted.get((largest.n() / RARE) as usize).or(sorted.last());
    if let (Some(longest), Some(usual), Some(_)) = (sorted.first(), usual, period_us)
        && longest.value <= margin * usual.value
    {
        return Kind::Bounded;
    }
    Kind::Heavy
}

fn fitted(kind: Kind, largest: Largest) -> Option<peaks::Tail> {
    match kind {
        Kind::Bounded => peaks::bounded(largest),
        Kind::Heavy | Kind::Few => peaks::tail(largest),
    }
}

impl Extended {
    pub fn words(&self) -> String {
        format!(
            "--tail: {} of recorded CPU time extended to {}; of the time lost, {} is as recorded, {} drawn from \
             fitted tails, {} of sources too rare for one; the longest detour is {} instead of {}; \
             events never seen occur less than once in {}",
            words::time(self.watched_s * 1e9),
            words::time(self.extended_s * 1e9),
            words::percent_said(self.data_pct),
            words::percent_said(self.tail_pct),
            words::percent_said(self.bounded_pct),
            words::time(self.longest_us * 1e3),
            words::time(self.longest_recorded_us * 1e3),
            words::time(1e9 / self.unseen_below_hz)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: u32 = 0;
    const DAEMON: u32 = 1;
    const RARE: u32 = 2;

    /// Lengths of a daemon, ns: exponential with a mean of 10 us, from 1 us.
    fn lengths(n: usize, seed: u64) -> Vec<u64> {
        let mut stream = Stream::new(seed);
        let exponential = Pareto { shape: 0.0, scale: 10_000.0 };
        (0..n)
            .map(|_| 1_000 + exponential.exceeded_with(1.0 - stream.random::<f64>()) as u64)
            .collect()
    }

    /// A tick of 2 us to 3 us every millisecond, in every second one a daemon, and a few long ones.
    fn made(n: usize, seed: u64) -> Composed {
        let mut lane = Composed::new(500, n as u64 * 1_000_000);
        for (at, length) in (0..).zip(lengths(n, seed)) {
            let tick = (TICK, 2_000 + (at * 7919) % 1000);
            let other = match at {
                at if at % 2 == 0 => (DAEMON, length),
                at if at % 5000 == 1 => (RARE, 300_000),
                _ => (TICK, 0),
            };
            lane.push(500 + at * 1_000_000, tick.1 + other.1, [tick, other]).unwrap();
        }
        lane
    }

    fn fitted(lanes: &[Composed]) -> Fitted {
        Fitted::new(lanes, &[0, 1, 2], &[Some(1000.0), None, None])
    }

    #[test]
    fn a_tick_is_bounded_a_daemon_is_heavy_and_few_occurrences_say_little() {
        let fitted = fitted(&[made(20_000, 1)]);
        let kinds: Vec<Kind> = fitted.rows.iter().map(|row| row.kind).collect();
        assert_eq!(kinds, [Kind::Bounded, Kind::Heavy, Kind::Few]);
        // Without a period, what looks bounded may still change.
        let largest = |n: u64| {
            let mut largest = Largest::default();
            (0..n).for_each(|i| largest.push(2.0 + (i % 100) as f64 / 100.0));
            largest
        };
        assert_eq!(kind(&largest(5000), None), Kind::Heavy);
        assert_eq!(
            (kind(&largest(29), Some(1.0)), kind(&largest(0), None)),
            (Kind::Few, Kind::Few)
        );
    }

    /// Lengths of a source, us, and its prediction for ten times the time.
    fn predicted(lengths: &[f64], period_us: Option<f64>) -> Tail {
        let mut largest = Largest::default();
        lengths.iter().for_each(|&us| largest.push(us));
        Time { watched_s: 1.0, ratio: 10.0 }.tail(largest, period_us).unwrap()
    }

    #[test]
    fn bounded_lengths_are_not_predicted_beyond_their_bound() {
        let mut stream = Stream::new(3);
        let uniform = |low: f64, high: f64, n: usize, stream: &mut Stream| -> Vec<f64> {
            (0..n).map(|_| low + (high - low) * stream.random::<f64>()).collect()
        };
        let cases = [
            (uniform(5.0, 50.0, 20_045, &mut stream), None, 50.0),
            (uniform(400.0, 470.0, 2_000, &mut stream), Some(50e3), 470.0),
            (uniform(407.0, 467.0, 160, &mut stream), Some(50e3), 467.0),
            (vec![20.0; 20_040], None, 20.0),
            (vec![1_000.0; 1_000], Some(10e3), 1_000.0),
        ];
        for (lengths, period_us, bound) in cases {
            let tail = predicted(&lengths, period_us);
            let Expected { median_us, ci95_us: [lower, upper] } = tail.expected.unwrap();
            let n = lengths.len();
            assert!((median_us / bound - 1.0).abs() < 0.02, "{n}: {tail:?}");
            assert!(lower <= bound && upper < 1.06 * bound, "{n}: {tail:?}");
            let kind = if period_us.is_some() { Kind::Bounded } else { Kind::Heavy };
            assert_eq!(tail.kind, kind, "{n}");
        }
        // Periodic exponential lengths are not taken as bounded.
        let heavy: Vec<f64> = lengths(160, 4).iter().map(|&ns| us(ns)).collect();
        assert_eq!(predicted(&heavy, Some(50e3)).kind, Kind::Heavy);
    }

    #[test]
    fn an_extended_recording_has_the_tail_that_is_predicted() {
        let uniform: Vec<f64> = {
            let mut stream = Stream::new(7);
            (0..5_000).map(|_| 5.0 + 45.0 * stream.random::<f64>()).collect()
        };
        // The last one has no fit but the prior.
        let alone: Vec<f64> = (0..2_000u32).map(|i| if i == 77 { 900.0 } else { 3.0 }).collect();
        for (lengths, drawn) in [(uniform, true), (vec![20.0; 5_000], false), (alone, true)] {
            let mut lane = Composed::new(0, lengths.len() as u64 * 1_000_000);
            for (at, us) in (0..).zip(&lengths) {
                let ns = (us * 1e3) as u64;
                lane.push(at * 1_000_000, ns, [(0, ns)]).unwrap();
            }
            let (_, extended) = Fitted::new(&[lane.clone()], &[0], &[None]).extend(&[lane], 3);
            let mut largest = Largest::default();
            lengths.iter().for_each(|&us| largest.push(us));
            let tail = peaks::tail(largest).unwrap();
            let found = tail.largest(extended.copies as f64);
            let longest = extended.longest_us;
            assert_eq!(extended.tail_pct > 0.0, drawn, "{extended:?}");
            assert_eq!(extended.longest_us > extended.longest_recorded_us, drawn, "{extended:?}");
            assert!(
                0.999 * found.lower <= longest && longest <= 1.001 * found.upper,
                "{longest} {found:?}"
            );
        }
    }

    #[test]
    fn rare_sources_share_a_tail() {
        let mut lane = Composed::new(0, 10_000_000_000);
        for (at, length) in (0u32..).zip(lengths(100, 9)) {
            lane.push(u64::from(at) * 1_000_000, length, [(at % 10, length)]).unwrap();
        }
        let of: Vec<u32> = (0..10).collect();
        let fitted = Fitted::new(&[lane.clone()], &of, &[None; 10]);
        assert!(fitted.rows[..10].iter().all(|row| row.kind == Kind::Few && row.tail.is_none()));
        assert!(fitted.rows[10].tail.is_some() && fitted.of == [10; 10]);
        let (_, extended) = fitted.extend(&[lane], 1);
        assert!(extended.longest_us > extended.longest_recorded_us, "{extended:?}");
        assert_eq!(extended.bounded_pct, 0.0);
    }

    #[test]
    fn copies_change_only_the_tails_and_the_first_is_the_recording() {
        let lanes = [made(10_000, 2), made(10_000, 3)];
        let (copies, extended) = fitted(&lanes).extend(&lanes, 7);
        assert_eq!(copies.len() as u64, extended.copies);
        assert_eq!(copies[0], lanes);
        let threshold = fitted(&lanes).rows[1].tail.as_ref().map_or(0.0, |tail| tail.threshold);
        let mut changed = 0;
        for (before, after) in lanes.iter().zip(&copies[1]) {
            assert_eq!((before.span_ns(), before.len()), (after.span_ns(), after.len()));
            let parts = |lane: &Composed| {
                let mut all = Vec::new();
                lane.for_each(|_, parts| all.extend_from_slice(parts));
                all
            };
            for (&(source, before), &(same, after)) in parts(before).iter().zip(&parts(after)) {
                assert_eq!(source, same);
                let tail = source == DAEMON && us(before) > threshold;
                assert!(tail == (us(after) > threshold && source == DAEMON), "{before} {after}");
                assert!(tail || before == after);
                changed += usize::from(before != after);
            }
        }
        assert!(changed > 20, "{changed}");
        // The same seed gives the same copies, another seed others.
        assert_eq!(fitted(&lanes).extend(&lanes, 7).0[1], copies[1]);
        assert_ne!(fitted(&lanes).extend(&lanes, 8).0[1], copies[1]);
    }

    #[test]
    fn what_the_noise_rests_on_adds_up() {
        let lanes = [made(20_000, 4)];
        let (copies, extended) = fitted(&lanes).extend(&lanes, 1);
        let Extended { data_pct, tail_pct, bounded_pct, .. } = extended;
        assert!((data_pct + tail_pct + bounded_pct - 100.0).abs() < 1e-9, "{extended:?}");
        // Four of 300 us beside a tick of 2.5 us a thousand times a second and a daemon of 11 us half as often.
        let rare = 4.0 * 300.0 / (20_000.0 * 2.5 + 10_000.0 * 11.0 + 4.0 * 300.0);
        assert!((bounded_pct / 100.0 / rare - 1.0).abs() < 0.1, "{extended:?}");
        let lost: u64 = copies
            .iter()
            .flatten()
            .map(|lane| {
                let mut sum = 0;
                lane.for_each(|_, parts| sum += parts.iter().map(|part| part.1).sum::<u64>());
                sum
            })
            .sum();
        let recorded: f64 = lost as f64 / extended.copies as f64 / 1e3;
        assert!((recorded / (20_000.0 * 2.5 + 10_000.0 * 11.0 + 1200.0) - 1.0).abs() < 0.03);
    }

    /// The largest of m exponentials has the median -ln(1 - 0.5^(1/m)) means, and half of all lie within 1.6 of it.
    #[test]
    fn the_longest_of_an_extended_recording_is_that_of_the_known_tail() {
        let mut lane = Composed::new(0, 20_000_000_000);
        for (at, length) in (0..).zip(lengths(20_000, 5)) {
            lane.push(at * 1_000_000, length, [(0, length)]).unwrap();
        }
        let (_, extended) = Fitted::new(&[lane.clone()], &[0], &[None]).extend(&[lane], 3);
        assert_eq!(extended.copies, 13);
        let draws = 20_000.0 * 13.0f64;
        let exact_us = 1.0 - 10.0 * (-(0.5f64.ln() / draws).exp_m1()).ln();
        let found = extended.longest_us;
        assert!(found > 1.2 * extended.longest_recorded_us, "{extended:?}");
        assert!((0.8..1.4).contains(&(found / exact_us)), "{found} instead of {exact_us}");
    }

    #[test]
    fn nothing_recorded_extends_to_nothing() {
        let lanes = [Composed::new(0, 1_000_000_000)];
        let (copies, extended) = Fitted::new(&lanes, &[], &[]).extend(&lanes, 1);
        assert!(copies.iter().flatten().all(Composed::is_empty));
        assert_eq!((extended.data_pct, extended.tail_pct, extended.longest_us), (0.0, 0.0, 0.0));
        assert!((extended.unseen_below_hz - 2.9957).abs() < 1e-3);
    }
}
