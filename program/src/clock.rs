//! One clock for all hosts of a run.
//!
//! In: the offsets that the collector measured at init and finalize, then the messages; out: for each host
//! a function from its `CLOCK_MONOTONIC` to the common clock, which is that of rank 0's host.
//!
//! The measured offset is linear between init and finalize. The fastest of many round trips leaves it
//! uncertain by the difference between the two ways. Each way is taken to need at least a quarter of the
//! round trip, so the uncertainty is another quarter: half of what a message needs. Where this is wrong, or
//! where clocks do not drift evenly, messages can seem to arrive before they were sent. The correction is
//! piecewise linear over the run. Every message gives a lower bound for the difference of two hosts'
//! corrections; the corrections that satisfy all bounds form a band, of which the middle is taken. Half of
//! its width is the residual: how far the clock can still be off. Clocks with which no message arrives too
//! early are not touched. The bounds hold for whole parts of the run, so a drift that is large within a part
//! can leave no band; then the least error is allowed, which takes out most of the drift, the parts are
//! halved, and the messages are looked at again with the corrected clocks.
//!
//! The correction comes from a sample of the messages, of which the tightest are kept with their times, so
//! that they can be looked at again without reading the trace. Then all messages are checked with the
//! corrected clocks, and the residual follows from all of them.

use crate::chunks::{FAR, nearest};
use crate::hash::{FastMap, fast_map};
use crate::open::{Program, Rank};
use serde::{Deserialize, Serialize};

/// Largest drift between two hosts that is believed.
const MAX_DRIFT: f64 = 0.01;
/// Largest correction: differences of two, and times with one, stay in range.
const MAX_CORRECTION: i64 = FAR / 4;

/// The clock of one host.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HostClock {
    /// Offset to the common clock: `offset + slope * (ns - at)`.
    at: i64,
    offset: f64,
    slope: f64,
    /// A quarter of the round trip of the measurement.
    uncertain: f64,
    start: i64,
    per_ns: f64,
    knots: Vec<i64>,
}

impl HostClock {
    fn measured(rank: &Rank) -> HostClock {
        let (start, end) = (rank.offset_start, rank.offset_end);
        let mut clock = HostClock::default();
        if start.here_ns == 0 {
            return clock;
        }
        clock.at = i64::try_from(start.here_ns).unwrap_or(FAR);
        clock.offset = start.offset_ns as f64;
        clock.uncertain = start.round_trip_ns.max(end.round_trip_ns) as f64 / 4.0;
        if end.here_ns > start.here_ns {
            let slope = (end.offset_ns as f64 - start.offset_ns as f64)
                / (end.here_ns - start.here_ns) as f64;
            if slope.abs() <= MAX_DRIFT {
                clock.slope = slope;
            }
        }
        clock
    }

    /// The measured clock, without the correction by messages.
    fn base(&self, ns: i64) -> i64 {
        if self.offset == 0.0 && self.slope == 0.0 {
            return ns;
        }
        let offset = self.offset + self.slope * ns.saturating_sub(self.at) as f64;
        ns.saturating_sub(nearest(offset)).clamp(-FAR, FAR)
    }

    /// Correction at a time of the measured clock.
    fn correction(&self, base: i64) -> i64 {
        let [first, .., last] = self.knots.as_slice() else { return 0 };
        let place = base.saturating_sub(self.start) as f64 * self.per_ns;
        if place <= 0.0 {
            return *first;
        }
        let window = place as usize;
        // A window can be any number: times are those of the file, and parts of a run can be short.
        let (Some(left), Some(right)) =
            (self.knots.get(window), self.knots.get(window.saturating_add(1)))
        else {
            return *last;
        };
        let part = place - window as f64;
        left + nearest((right - left) as f64 * part)
    }

    /// Whether both were measured alike, so that corrections of one are corrections of the other.
    fn has_base_of(&self, other: &HostClock) -> bool {
        (self.at, self.offset, self.slope, self.uncertain)
            == (other.at, other.offset, other.slope, other.uncertain)
    }

    /// Nanoseconds on this host's `CLOCK_MONOTONIC` as nanoseconds on the common clock.
    #[must_use]
    #[inline]
    pub fn common(&self, ns: i64) -> i64 {
        let base = self.base(ns);
        if self.knots.is_empty() { base } else { base.saturating_add(self.correction(base)) }
    }
}

/// What was done to the clock of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostCorrection {
    /// Host name.
    pub name: String,
    /// Lowest rank on the host.
    pub first_rank: u32,
    /// Ranks on the host.
    pub ranks: u32,
    /// Measured offset to rank 0's host at init.
    pub offset_start_ns: i64,
    /// Measured offset at finalize; null if the host did not come so far.
    pub offset_end_ns: Option<i64>,
    /// How much faster than that of rank 0's host its clock ran between these two measurements, in parts per
    /// million; null if there is only one.
    pub drift_ppm: Option<f64>,
    /// Largest correction by the messages.
    pub correction_max_ns: i64,
    /// Smallest correction by the messages.
    pub correction_min_ns: i64,
    /// How far the corrected clock can still be off, if each way of the fastest exchange took at least a
    /// quarter of it; null for rank 0's host, which is the reference, and for a run on one host.
    pub residual_ns: Option<i64>,
    /// Shortest time from the begin of a send to the end of its receive, or the same within a collective,
    /// to or from another host; null for a run on one host. A larger residual would allow messages to
    /// arrive before they were sent.
    pub fastest_ns: Option<i64>,
}

impl HostCorrection {
    fn measure_end(&mut self, rank: &Rank) {
        let (start, end) = (rank.offset_start, rank.offset_end);
        self.offset_end_ns = (end.here_ns > 0).then_some(end.offset_ns);
        let is_later = start.here_ns > 0 && end.here_ns > start.here_ns;
        self.drift_ppm = is_later.then(|| {
            let gained = end.offset_ns as f64 - start.offset_ns as f64;
            gained / (end.here_ns - start.here_ns) as f64 * 1e6
        });
    }
}

/// The clocks of all hosts. By default, times stay those of the hosts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Clocks {
    hosts: Vec<HostClock>,
    /// One row a host.
    pub corrections: Vec<HostCorrection>,
    /// By how much messages can still arrive too early, because no correction satisfies all; 0 if one does.
    pub contradiction_ns: i64,
    /// Begin and end of the run on the common clock.
    pub span: (i64, i64),
    /// Begin of the parts of the run over which corrections are linear, their number, and how many there
    /// are in a nanosecond. The same for all corrections of a run, so that they add up.
    grid: (i64, usize, f64),
    /// Parts into which the run can be divided at most: the first ones, halved several times.
    cells: usize,
    /// By which power of two the measured uncertainty had to be exceeded. What the messages have refuted
    /// does not bound the residual either.
    power: u32,
}

impl Clocks {
    /// The clocks as measured at init and finalize.
    #[must_use]
    pub fn measured(program: &Program) -> Clocks {
        let mut hosts = vec![HostClock::default(); program.hosts.len()];
        let mut corrections = Vec::with_capacity(hosts.len());
        for (clock, host) in hosts.iter_mut().zip(&program.hosts) {
            let mut row = HostCorrection {
                name: host.name.clone(),
                first_rank: host.first_rank,
                ranks: host.ranks,
                ..HostCorrection::default()
            };
            corrections.push({
                if let Some(rank) =
                    program.slot(host.first_rank).and_then(|at| program.ranks.get(at))
                {
                    *clock = HostClock::measured(rank);
                    row.offset_start_ns = rank.offset_start.offset_ns;
                    row.measure_end(rank);
                }
                row
            });
        }
        // The lowest rank of a host can have been killed while others have finalized.
        for rank in &program.ranks {
            let host = rank.host as usize;
            if let (Some(clock), Some(row)) = (hosts.get_mut(host), corrections.get_mut(host))
                && row.offset_end_ns.is_none()
                && rank.offset_end.here_ns > 0
            {
                *clock = HostClock::measured(rank);
                row.offset_start_ns = rank.offset_start.offset_ns;
                row.measure_end(rank);
            }
        }
        let mut clocks = Clocks {
            hosts,
            corrections,
            contradiction_ns: 0,
            span: (0, 1),
            grid: (0, 1, 0.0),
            cells: 1,
            power: 0,
        };
        clocks.span = clocks.found_span(program);
        let count = clocks.hosts.len().max(1);
        let most = MAX_PAIRS / count.saturating_mul(count);
        let windows = most.clamp(1, MAX_WINDOWS);
        let halvings = (most / windows).clamp(1, MAX_PARTS).ilog2();
        clocks.cells = windows << halvings;
        let (start, end) = clocks.span;
        clocks.grid = (start, windows, windows as f64 / (end - start).max(1) as f64);
        clocks
    }

    /// Knots of a host at most.
    pub(crate) fn max_knots(&self) -> usize {
        self.cells + 1
    }

    /// Whether clocks from a file can be corrections of the measured clocks of a program. What follows from
    /// the program has to be there exactly; whatever else they say, times stay in range.
    pub(crate) fn can_correct(&self, measured: &Clocks, program: &Program) -> bool {
        let (start, windows, per_ns) = self.grid;
        let (first_start, first_windows, first_per_ns) = measured.grid;
        // The parts are those of the measured clocks, halved several times.
        let halved = windows / first_windows;
        let is_grid = halved.is_power_of_two()
            && windows <= measured.cells
            && (start, windows, per_ns)
                == (first_start, first_windows * halved, first_per_ns * halved as f64);
        let can_be = |clock: &HostClock| {
            let in_range = |knot: &i64| (-MAX_CORRECTION..=MAX_CORRECTION).contains(knot);
            clock.knots.is_empty()
                || ((clock.start, clock.knots.len(), clock.per_ns) == (start, windows + 1, per_ns)
                    && clock.knots.iter().all(in_range))
        };
        let is_row_of = |row: &HostCorrection, measured: &HostCorrection| {
            let measured = HostCorrection {
                correction_max_ns: row.correction_max_ns,
                correction_min_ns: row.correction_min_ns,
                residual_ns: row.residual_ns,
                fastest_ns: row.fastest_ns,
                ..measured.clone()
            };
            *row == measured
        };
        let mut hosts = self.hosts.iter().zip(&measured.hosts);
        let mut rows = self.corrections.iter().zip(&measured.corrections);
        self.hosts.len() == measured.hosts.len()
            && self.corrections.len() == measured.corrections.len()
            && self.cells == measured.cells
            && is_grid
            && hosts.all(|(clock, measured)| clock.has_base_of(measured) && can_be(clock))
            && rows.all(|(row, measured)| is_row_of(row, measured))
            && self.span == self.found_span(program)
    }

    /// Begin and end of all ranks on the common clock.
    fn found_span(&self, program: &Program) -> (i64, i64) {
        let (mut begin, mut end) = (i64::MAX, i64::MIN);
        for rank in &program.ranks {
            let (first, last) = self.rank_span(rank);
            begin = begin.min(first);
            end = end.max(last);
        }
        if begin > end {
            (begin, end) = (0, 1);
        }
        (begin, end.max(begin + 1))
    }

    /// Begin and end of a rank on the common clock.
    pub(crate) fn rank_span(&self, rank: &Rank) -> (i64, i64) {
        let clock = self.host(rank.host);
        let ns = |ns: u64| clock.common(i64::try_from(ns).unwrap_or(FAR).min(FAR));
        (ns(rank.begin_ns()), ns(rank.end_ns()).max(ns(rank.begin_ns())))
    }

    /// The clock of a host.
    #[must_use]
    pub fn host(&self, host: u32) -> &HostClock {
        static SAME: HostClock = HostClock {
            at: 0,
            offset: 0.0,
            slope: 0.0,
            uncertain: 0.0,
            start: 0,
            per_ns: 0.0,
            knots: Vec::new(),
        };
        self.hosts.get(host as usize).unwrap_or(&SAME)
    }

    /// Corrects the clocks by messages that were seen with the measured clocks.
    pub(crate) fn correct_measured(&mut self, program: &Program, slack: &Slack) {
        for _ in 0..ROUNDS {
            let seen = slack.seen_with(self);
            if !self.correct(program, &seen) {
                return;
            }
        }
    }

    /// Divides the parts of the run over which corrections are linear; the corrections stay what they are.
    fn halve_parts(&mut self) {
        let (start, windows, per_ns) = self.grid;
        self.grid = (start, windows * 2, per_ns * 2.0);
        for clock in &mut self.hosts {
            clock.per_ns = self.grid.2;
            let Some(&last) = clock.knots.last() else { continue };
            let pairs = clock.knots.iter().zip(clock.knots.iter().skip(1));
            clock.knots =
                pairs.flat_map(|(left, right)| [*left, left + (right - left) / 2]).collect();
            clock.knots.push(last);
        }
    }

    /// Corrects the clocks by the messages that were seen with them. Returns whether they have changed:
    /// clocks with which no message arrives too early are left as they are.
    pub(crate) fn correct(&mut self, program: &Program, slack: &Slack) -> bool {
        let mut solution =
            slack.solve(self.hosts.len(), self.power, |host| self.host(host as u32).uncertain);
        let violated = slack.is_violated();
        if !violated {
            for (middle, half) in solution.middle.iter_mut().zip(&mut solution.half_width) {
                *half += middle.abs();
                *middle = 0;
            }
        }
        self.power = solution.power;
        self.contradiction_ns = if violated { solution.contradiction } else { 0 };
        let knots = slack.windows + 1;
        let fastest = slack.fastest(self.hosts.len());
        for (host, clock) in self.hosts.iter_mut().enumerate() {
            let part = host * knots..(host + 1) * knots;
            let values = solution.middle.get(part.clone()).unwrap_or(&[]);
            if values.iter().any(|value| *value != 0) {
                clock.start = slack.start;
                clock.per_ns = slack.per_ns;
                clock.knots.resize(knots, 0);
                for (knot, more) in clock.knots.iter_mut().zip(values) {
                    *knot = knot.saturating_add(*more).clamp(-MAX_CORRECTION, MAX_CORRECTION);
                }
            }
            if let Some(row) = self.corrections.get_mut(host) {
                row.correction_max_ns = clock.knots.iter().copied().max().unwrap_or(0);
                row.correction_min_ns = clock.knots.iter().copied().min().unwrap_or(0);
                let residual = solution.half_width.get(part).unwrap_or(&[]).iter().copied().max();
                row.residual_ns = residual.filter(|_| host > 0);
                row.fastest_ns = fastest.get(host).copied().flatten();
            }
        }
        if self.contradiction_ns > 0 && self.grid.1 * 2 <= self.cells {
            self.halve_parts();
        }
        // After all that moves times, be it by rounding.
        self.span = self.found_span(program);
        violated
    }
}

/// The shortest transfers seen between hosts, by parts of the run.
#[derive(Clone, Debug)]
pub(crate) struct Slack {
    start: i64,
    per_ns: f64,
    /// Parts of the run over which corrections are linear.
    windows: usize,
    /// Parts for which the shortest transfer is kept, a multiple of `windows`: clocks that drift within a
    /// window make another one the shortest once they are corrected.
    cells: usize,
    shortest: FastMap<u64, Transfer>,
}

/// How long something was under way, and when it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Transfer {
    slack: i64,
    sent: i64,
}

/// How often clocks are corrected by one sample at most.
const ROUNDS: usize = 8;
/// Parts of the run at most.
const MAX_WINDOWS: usize = 128;
/// Parts of such a part at most: numbers of cells have eleven bits in a key.
const MAX_PARTS: usize = 16;
const CELL: u32 = 11;
const CELLS: u64 = (1 << CELL) - 1;
/// Entries of the table; with more pairs of hosts, those seen first are used.
const MAX_PAIRS: usize = 1 << 21;

impl Slack {
    /// For messages that are seen with final clocks, or so they seem.
    pub fn new(clocks: &Clocks) -> Slack {
        let (start, windows, per_ns) = clocks.grid;
        Slack { start, per_ns, windows, cells: windows, shortest: fast_map() }
    }

    /// For messages that are looked at again with corrected clocks.
    pub fn of_sample(clocks: &Clocks) -> Slack {
        let slack = Slack::new(clocks);
        Slack { cells: clocks.cells, ..slack }
    }

    /// Cells in a window.
    fn parts(&self) -> u64 {
        (self.cells / self.windows) as u64
    }

    #[inline]
    fn cell(&self, at: i64) -> u64 {
        let place = at.saturating_sub(self.start) as f64 * self.per_ns * self.parts() as f64;
        (place.max(0.0) as u64).min(self.cells as u64 - 1)
    }

    /// Something left host `from` at `sent` and had an effect on host `to` by `arrived`.
    #[inline]
    pub fn add(&mut self, from: u32, to: u32, sent: i64, arrived: i64) {
        if from == to || from >= 1 << 20 || to >= 1 << 20 {
            return;
        }
        let slack = arrived.saturating_sub(sent);
        let (first, second) = (self.cell(sent), self.cell(arrived));
        if first.abs_diff(second) > self.parts() && slack > 0 {
            // So long on its way that it says nothing about the clocks.
            return;
        }
        let hosts = u64::from(from) << 20 | u64::from(to);
        let key = hosts << (2 * CELL) | first << CELL | second;
        let transfer = Transfer { slack, sent };
        if let Some(shortest) = self.shortest.get_mut(&key) {
            *shortest = transfer.min(*shortest);
        } else if self.shortest.len() < MAX_PAIRS {
            self.shortest.insert(key, transfer);
        }
    }

    /// Whether something arrived before it was sent.
    pub fn is_violated(&self) -> bool {
        self.shortest.values().any(|transfer| transfer.slack < 0)
    }

    /// The shortest transfer to or from each host.
    fn fastest(&self, hosts: usize) -> Vec<Option<i64>> {
        let mut fastest: Vec<Option<i64>> = vec![None; hosts];
        for (key, transfer) in &self.shortest {
            for host in [key >> (2 * CELL + 20), key >> (2 * CELL) & 0xf_ffff] {
                if let Some(place) = fastest.get_mut(host as usize) {
                    *place = Some(place.map_or(transfer.slack, |least| least.min(transfer.slack)));
                }
            }
        }
        fastest
    }

    pub fn merge(&mut self, other: Slack) {
        for (key, transfer) in other.shortest {
            let shortest = self.shortest.entry(key).or_insert(transfer);
            *shortest = transfer.min(*shortest);
        }
    }

    /// Transfers that were seen with the measured clocks as they are with corrected ones. The parts of the
    /// run stay those of the measured clocks, on which the corrections are defined.
    fn seen_with(&self, clocks: &Clocks) -> Slack {
        let (_, windows, per_ns) = clocks.grid;
        let mut seen = Slack { windows, per_ns, ..self.clone() };
        for (key, transfer) in &mut seen.shortest {
            let correction = |host: u64, at| clocks.host(host as u32).correction(at);
            let arrived = transfer.sent.saturating_add(transfer.slack);
            let more = correction(key >> (2 * CELL) & 0xf_ffff, arrived);
            let less = correction(key >> (2 * CELL + 20), transfer.sent);
            transfer.slack = transfer.slack.saturating_add(more).saturating_sub(less);
        }
        seen
    }

    /// Bounds `value[to] - value[from] >= least` on knots that are linear in between.
    fn bounds(&self) -> Vec<Bound> {
        let knots = self.windows + 1;
        let parts = self.parts();
        let window = |cell: u64| ((cell & CELLS) / parts) as usize;
        let mut nodes: Vec<_> = self
            .shortest
            .iter()
            .map(|(key, transfer)| {
                let from = (key >> (2 * CELL + 20)) as usize * knots + window(key >> CELL);
                let to = (key >> (2 * CELL) & 0xf_ffff) as usize * knots + window(*key);
                (from, to, transfer.slack)
            })
            .collect();
        nodes.sort_unstable();
        // Of all cells of a window the shortest.
        nodes.dedup_by_key(|(from, to, _)| (*from, *to));
        let mut bounds = Vec::with_capacity(nodes.len() * 4);
        for (from, to, slack) in nodes {
            // Interpolated values are rounded twice.
            let least = slack.saturating_neg().saturating_add(2);
            for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                bounds.push(Bound { from: from + a, to: to + b, least });
            }
        }
        bounds
    }

    fn solve(&self, hosts: usize, least_power: u32, uncertain: impl Fn(usize) -> f64) -> Solution {
        let knots = self.windows + 1;
        let bounds = self.bounds();
        let system = System {
            bounds: &bounds,
            knots,
            count: hosts * knots,
            prior: (0..hosts).map(|host| (uncertain(host).ceil() as i64).clamp(100, FAR)).collect(),
        };
        const DOUBLINGS: u32 = 44;
        let first_scale =
            |tolerance| (least_power..DOUBLINGS).find_map(|power| system.solve(power, tolerance));
        if let Some(solution) = first_scale(0) {
            return solution;
        }
        // Clocks that drift unevenly within a part of the run: allow the least error.
        (0..DOUBLINGS)
            .map(|power| 100 << power)
            .find(|tolerance| system.solve(DOUBLINGS, *tolerance).is_some())
            .and_then(first_scale)
            .unwrap_or_else(|| Solution {
                middle: vec![0; system.count],
                half_width: vec![FAR; system.count],
                contradiction: FAR,
                power: least_power,
            })
    }
}

struct Bound {
    from: usize,
    to: usize,
    least: i64,
}

struct Solution {
    middle: Vec<i64>,
    half_width: Vec<i64>,
    contradiction: i64,
    power: u32,
}

/// A system of difference constraints. The smallest and the largest solution are the longest paths from
/// and to the reference; every mixture of two solutions is one.
struct System<'a> {
    bounds: &'a [Bound],
    knots: usize,
    count: usize,
    /// How far a host's correction may lie from 0, before scaling.
    prior: Vec<i64>,
}

impl System<'_> {
    fn solve(&self, power: u32, tolerance: i64) -> Option<Solution> {
        let scale = 1i64 << power;
        let prior = |node: usize| {
            if node < self.knots {
                return 0;
            }
            let prior = self.prior.get(node / self.knots).copied().unwrap_or(0);
            prior.saturating_mul(scale).min(FAR)
        };
        let low: Vec<i64> = (0..self.count).map(|node| -prior(node)).collect();
        let high: Vec<i64> = (0..self.count).map(prior).collect();
        let low = self.relax(low, &high, tolerance, prior)?;
        // The largest solution is the smallest one of the mirrored system.
        let high = self.relax_down(high, &low, tolerance, prior)?;
        Some(Solution {
            middle: low.iter().zip(&high).map(|(low, high)| low + (high - low) / 2).collect(),
            half_width: low.iter().zip(&high).map(|(low, high)| (high - low + 1) / 2).collect(),
            contradiction: tolerance,
            power,
        })
    }

    /// Largest change between neighbouring knots of a host.
    fn step(&self, node: usize, prior: &impl Fn(usize) -> i64) -> i64 {
        (prior(node) / 4).max(1)
    }

    fn relax(
        &self,
        mut value: Vec<i64>,
        high: &[i64],
        tolerance: i64,
        prior: impl Fn(usize) -> i64,
    ) -> Option<Vec<i64>> {
        self.sweep(|raise| {
            let mut changed = false;
            for node in 0..self.count {
                let step = self.step(node, &prior);
                for (from, to) in self.neighbours(node) {
                    changed |= raise(&mut value, high, from, to, -step)?;
                }
            }
            for bound in self.bounds {
                let least = bound.least.saturating_sub(tolerance);
                changed |= raise(&mut value, high, bound.from, bound.to, least)?;
            }
            Some(changed)
        })?;
        Some(value)
    }

    fn relax_down(
        &self,
        value: Vec<i64>,
        low: &[i64],
        tolerance: i64,
        prior: impl Fn(usize) -> i64,
    ) -> Option<Vec<i64>> {
        let mut value: Vec<i64> = value.iter().map(|value| -value).collect();
        let limit: Vec<i64> = low.iter().map(|value| -value).collect();
        self.sweep(|raise| {
            let mut changed = false;
            for node in 0..self.count {
                let step = self.step(node, &prior);
                for (from, to) in self.neighbours(node) {
                    changed |= raise(&mut value, &limit, from, to, -step)?;
                }
            }
            for bound in self.bounds {
                let least = bound.least.saturating_sub(tolerance);
                changed |= raise(&mut value, &limit, bound.to, bound.from, least)?;
            }
            Some(changed)
        })?;
        Some(value.into_iter().map(|value| -value).collect())
    }

    /// Both directions between a knot and the next one of its host.
    fn neighbours(&self, node: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let has_next = !(node + 1).is_multiple_of(self.knots);
        [(node, node + 1), (node + 1, node)].into_iter().filter(move |_| has_next)
    }

    /// Repeats until nothing changes; `None` if a limit is passed or there is no end to it.
    fn sweep(&self, mut round: impl FnMut(RaiseFn) -> Option<bool>) -> Option<()> {
        for _ in 0..1000 {
            if !round(raise)? {
                return Some(());
            }
        }
        None
    }
}

type RaiseFn = fn(&mut [i64], &[i64], usize, usize, i64) -> Option<bool>;

/// Raises `value[to]` to at least `value[from] + least`; `None` if that is above its limit.
fn raise(value: &mut [i64], limit: &[i64], from: usize, to: usize, least: i64) -> Option<bool> {
    let Some(needed) = value.get(from).map(|from| from.saturating_add(least)) else {
        return Some(false);
    };
    let (Some(place), Some(limit)) = (value.get_mut(to), limit.get(to)) else { return Some(false) };
    if needed <= *place {
        return Some(false);
    }
    if needed > *limit {
        return None;
    }
    *place = needed;
    Some(true)
}
