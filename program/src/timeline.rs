//! What the ranks of a small run did over time, in equal parts of the run.
//!
//! In: calls as they are read, and waits as they are joined; out: a [`Timeline`]. A part holds sums of time,
//! so that memory does not depend on the length of the run, and sums over all parts are those of the profile.

use crate::kinds::meanings;
use crate::matching::WaitSpan;
use crate::open::Program;
use serde::Serialize;

/// Ranks that a timeline is made for at most.
pub const TIMELINE_RANKS: usize = 32;
/// Parts of all ranks together, and of one rank, at most.
const CELLS: usize = 1 << 14;
const PARTS: usize = 1 << 12;
/// Point-to-point, completing requests, collectives, other calls.
const KINDS: usize = 4;

/// Sums of time by kind of call.
type Cell = [u64; KINDS];

/// What the ranks did in each part of the run.
#[derive(Clone, Debug, Serialize)]
pub struct Timeline {
    /// Length of a part.
    pub part_ns: u64,
    /// One a rank.
    pub lanes: Vec<TimelineLane>,
}

/// What one rank did: for each part, the time in it. What is left of a part between begin and end was spent
/// outside of MPI.
#[derive(Clone, Debug, Serialize)]
pub struct TimelineLane {
    /// World rank.
    pub rank: u32,
    /// Threads that called MPI; their times add up.
    pub threads: u32,
    /// First moment of the rank, since the begin of the first part.
    pub begin_ns: u64,
    /// Its last moment; that of a killed rank is the end of its last call.
    pub end_ns: u64,
    /// In point-to-point calls, without waiting.
    pub point_to_point_ns: Vec<u64>,
    /// In calls that complete requests, test or probe, without waiting: of messages or of collectives.
    pub completing_ns: Vec<u64>,
    /// In collectives, without waiting.
    pub collective_ns: Vec<u64>,
    /// In other calls, without waiting.
    pub other_ns: Vec<u64>,
    /// Waiting for other ranks.
    pub waiting_ns: Vec<u64>,
}

/// Position of a call among the kinds.
fn kind(call: u16) -> usize {
    match meanings().get(usize::from(call)).map(|meaning| meaning.class) {
        Some(0..=1) => 0,
        Some(2..=3) => 1,
        Some(4) => 2,
        _ => 3,
    }
}

/// Equal parts of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    start: i64,
    length: u64,
    number: usize,
}

impl Parts {
    /// None if there are too many ranks.
    pub fn of(program: &Program, (begin, end): (i64, i64)) -> Option<Parts> {
        let ranks = program.ranks.len();
        if ranks == 0 || ranks > TIMELINE_RANKS {
            return None;
        }
        let most = (CELLS / ranks).min(PARTS) as u64;
        let span = end.saturating_sub(begin).max(1) as u64;
        let length = span.div_ceil(most);
        Some(Parts { start: begin, length, number: span.div_ceil(length) as usize })
    }

    fn part(&self, at: i64) -> usize {
        let place = at.saturating_sub(self.start).max(0) as u64 / self.length;
        (place as usize).min(self.number - 1)
    }

    /// Divides a span of time among the parts. Time outside of the run goes to the first or last part.
    fn spread(&self, begin: i64, end: i64, mut add: impl FnMut(usize, u64)) {
        let (first, last) = (self.part(begin), self.part(end));
        let mut from = begin;
        for part in first..=last {
            let edge = (part as u64 + 1).saturating_mul(self.length);
            let to = if part == last { end } else { self.start.saturating_add_unsigned(edge) };
            add(part, to.saturating_sub(from).max(0) as u64);
            from = to;
        }
    }

    /// Sums for one rank.
    pub fn strip(self) -> Strip {
        Strip { parts: self, cells: vec![[0; KINDS]; self.number] }
    }
}

/// The parts of one rank.
#[derive(Clone, Debug)]
pub(crate) struct Strip {
    parts: Parts,
    cells: Vec<Cell>,
}

impl Strip {
    /// Counts a call, or the waiting in one.
    #[inline]
    pub fn add(&mut self, call: u16, begin: i64, end: i64) {
        let kind = kind(call);
        let cells = &mut self.cells;
        self.parts.spread(begin, end.max(begin), |part, ns| {
            if let Some(sum) = cells.get_mut(part).and_then(|cell| cell.get_mut(kind)) {
                *sum = sum.saturating_add(ns);
            }
        });
    }
}

/// Waiting of all ranks over time.
pub(crate) struct Waiting {
    strips: Vec<Strip>,
}

impl Waiting {
    pub fn new(parts: Parts, ranks: usize) -> Waiting {
        Waiting { strips: vec![parts.strip(); ranks] }
    }

    pub fn take(&mut self, spans: &[WaitSpan]) {
        for WaitSpan { slot, wait } in spans {
            if let Some(strip) = self.strips.get_mut(*slot as usize) {
                strip.add(wait.call, wait.begin, wait.begin.saturating_add_unsigned(wait.ns));
            }
        }
    }

    /// Puts calls and waiting together; the strips of calls, and the begins and ends, are in the order of the
    /// ranks.
    pub fn timeline(&self, program: &Program, calls: &[Strip], spans: &[(i64, i64)]) -> Timeline {
        let rows = program.ranks.iter().zip(calls).zip(&self.strips).zip(spans);
        let lanes = rows.map(|(((rank, calls), waits), (begin, end))| {
            let since = |at: &i64| at.saturating_sub(calls.parts.start).max(0) as u64;
            // Waiting is part of a call, divided in the same way.
            let net = |kind: usize| {
                let of = |cell: &Cell| cell.get(kind).copied().unwrap_or(0);
                let pairs = calls.cells.iter().zip(&waits.cells);
                pairs.map(|(call, wait)| of(call).saturating_sub(of(wait))).collect()
            };
            TimelineLane {
                rank: rank.rank,
                threads: rank.threads.max(1),
                begin_ns: since(begin),
                end_ns: since(end),
                point_to_point_ns: net(0),
                completing_ns: net(1),
                collective_ns: net(2),
                other_ns: net(3),
                waiting_ns: waits.cells.iter().map(|cell| cell.iter().sum()).collect(),
            }
        });
        let part_ns = self.strips.first().map_or(1, |strip| strip.parts.length);
        Timeline { part_ns, lanes: lanes.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_span_make_up_the_span_wherever_it_lies() {
        let parts = Parts { start: 1_000, length: 7, number: 10 };
        for (begin, end) in
            [(1_000, 1_070), (1_003, 1_003), (1_006, 1_007), (900, 1_200), (1_069, 1_069)]
        {
            let mut cells = [0; 10];
            parts.spread(begin, end, |part, ns| cells[part] += ns);
            assert_eq!(cells.iter().sum::<u64>(), (end - begin) as u64, "{begin} to {end}");
        }
        let mut cells = [0; 10];
        parts.spread(1_005, 1_016, |part, ns| cells[part] += ns);
        assert_eq!(cells[..4], [2, 7, 2, 0]);
    }
}
