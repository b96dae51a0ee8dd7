//! Follows one thread through its blocks: time slices, waits, and wake-up latencies.
//!
//! The slices of a thread are the baseline records of its lane. Detours inside a slice are
//! interruptions; those between two slices are time that the thread wanted to run but did not.

use trace::{Block, Detour, Record, RecordFlags, Wait};

use super::competition::Competition;
use crate::costs::Distribution;

/// Threads whose wake-up latencies are kept to three digits; those of further threads to one.
const FINE: usize = 1 << 9;
/// Threads whose wake-up latencies are kept at all: a program may have a million.
const KEPT: usize = 1 << 16;

/// Detours since the last slice that are considered: those between two slices come first.
const FIRST: usize = 8;

/// Waits of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitSum {
    pub(crate) count: u64,
    pub(crate) ns: u64,
}

pub(crate) struct Walk {
    has_run: bool,
    run_ns: u64,
    waited_ns: u64,
    /// Between two slices, in detours not marked as waits: page faults that slept, and all waits of
    /// recordings that do not mark them.
    slept_ns: u64,
    /// End of the last slice.
    last_end: u64,
    /// The first detours since then that are not marked as waits, and the last. Whether they lie before,
    /// inside or after the next slice is known when that ends.
    first_since: Vec<(u64, u64)>,
    /// All detours.
    lost_ns: u64,
    /// By [`Wait`].
    pub(crate) waits: [WaitSum; Wait::ALL.len()],
    /// The current wait after a wake-up: start and end so far.
    woken: Option<(u64, u64)>,
    /// None for threads beyond [`KEPT`].
    pub(crate) latencies: Option<Distribution>,
}

impl Walk {
    /// `number` is the number of threads known so far.
    pub(crate) fn new(number: usize) -> Walk {
        Walk {
            has_run: false,
            run_ns: 0,
            waited_ns: 0,
            slept_ns: 0,
            last_end: 0,
            first_since: Vec::new(),
            lost_ns: 0,
            waits: Default::default(),
            woken: None,
            latencies: (number < KEPT).then(|| Distribution::new(number < FINE)),
        }
    }

    pub(crate) fn has_run(&self) -> bool {
        self.has_run
    }

    pub(crate) fn run_ns(&self) -> u64 {
        self.run_ns
    }

    pub(crate) fn waited_ns(&self) -> u64 {
        self.waited_ns
    }

    pub(crate) fn slept_ns(&self) -> u64 {
        self.slept_ns
    }

    pub(crate) fn lost_ns(&self) -> u64 {
        self.lost_ns
    }

    pub(crate) fn add(&mut self, block: &Block, mut competition: Option<&mut Competition>) {
        let baseline = |record: &&Record| record.flags.contains(RecordFlags::BASELINE);
        let mut detours = block.detours.iter().peekable();
        for slice in block.records.iter().filter(baseline) {
            let end = slice.start_ns.saturating_add(slice.gross_ns);
            while let Some(detour) = detours.next_if(|detour| detour.start_ns < end) {
                self.detour(detour, competition.as_deref_mut());
            }
            self.slice(slice, competition.as_deref_mut());
        }
        for detour in detours {
            self.detour(detour, competition.as_deref_mut());
        }
    }

    fn detour(&mut self, detour: &Detour, competition: Option<&mut Competition>) {
        let (start, end) = (detour.start_ns, detour.start_ns.saturating_add(detour.len_ns));
        self.lost_ns = self.lost_ns.saturating_add(detour.len_ns);
        if detour.wait == Wait::None {
            if self.first_since.len() < FIRST {
                self.first_since.push((start, end));
            } else if let Some(last) = self.first_since.last_mut().filter(|last| last.1 < end) {
                // A detour that outlasts the slice in which it begins is the last of that slice.
                *last = (start, end);
            }
            return;
        }
        self.waited_ns = self.waited_ns.saturating_add(detour.len_ns);
        let sum = &mut self.waits[detour.wait as usize];
        sum.count += 1;
        sum.ns = sum.ns.saturating_add(detour.len_ns);
        if let Some(competition) = competition {
            competition.runnable(start, end);
        }
        // A thread that is migrated or throttled before it runs has been waiting all along.
        match self.woken {
            _ if matches!(detour.wait, Wait::Woken | Wait::New) => {
                self.has_come();
                self.woken = Some((start, end));
            }
            Some((from, to)) if start <= to => self.woken = Some((from, end.max(to))),
            _ => self.has_come(),
        }
    }

    fn slice(&mut self, slice: &Record, mut competition: Option<&mut Competition>) {
        let (start, end) = (slice.start_ns, slice.start_ns.saturating_add(slice.gross_ns));
        let mut last_end = self.last_end;
        // A page fault begins in a slice, and the thread then sleeps: it lies before the next slice.
        let outlasting = self.first_since.iter().copied().filter(|&(_, to)| to > end).collect();
        for (from, to) in std::mem::replace(&mut self.first_since, outlasting) {
            let (from, to) = (from.max(last_end), to.min(start));
            last_end = last_end.max(to);
            self.slept_ns = self.slept_ns.saturating_add(to.saturating_sub(from));
            // If waits are not marked, nearly all of these are waits.
            if let Some(competition) = competition.as_deref_mut().filter(|_| self.waited_ns == 0) {
                competition.runnable(from, to);
            }
        }
        self.has_come();
        self.has_run = true;
        self.run_ns = self.run_ns.saturating_add(slice.gross_ns);
        self.last_end = self.last_end.max(end);
        if let Some(competition) = competition {
            competition.running(slice.cpu, start, end);
        }
    }

    /// Ends the current wake-up.
    pub(crate) fn has_come(&mut self) {
        if let (Some((from, to)), Some(latencies)) = (self.woken.take(), &mut self.latencies) {
            latencies.add(to - from);
        }
    }
}
