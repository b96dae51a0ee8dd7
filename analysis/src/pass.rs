//! The pass over the events: sums per row, per lane and over all detours.
//!
//! Two iterations over each block. One over the records gives every source its counts, times and
//! distribution; the other over the detours checks that their parts sum up and measures what is
//! attributed and what is not.

use std::collections::BTreeMap;

use trace::{Block, Class, Detour, LONG_NS, Mode, Record, RecordFlags, Source, Wait, outside_kind};

use crate::costs::Distribution;
use crate::lanes::LaneState;
use crate::program::competition::Competition;
use crate::program::{Threads, Walk, events::Events};
use crate::rows::{CpuSlots, Fine, Room, Rows};
use crate::starts::Budget;
use crate::summary::Beside;

/// Number and length of detours, and how much of them is attributed.
#[derive(Clone, Copy, Default)]
pub(crate) struct Account {
    pub(crate) detours: u64,
    pub(crate) named_detours: u64,
    pub(crate) len_ns: u64,
    pub(crate) named_ns: u64,
}

impl Account {
    fn add(&mut self, len_ns: u64, named_ns: u64, named: bool) {
        self.detours += 1;
        self.named_detours += u64::from(named);
        self.len_ns = self.len_ns.saturating_add(len_ns);
        self.named_ns = self.named_ns.saturating_add(named_ns);
    }
}

#[derive(Default)]
pub(crate) struct Outside {
    pub(crate) count: u64,
    pub(crate) cost_ns: u64,
    pub(crate) costs: Distribution,
}

impl Outside {
    fn add(&mut self, ns: u64) {
        self.count += 1;
        self.cost_ns = self.cost_ns.saturating_add(ns);
        self.costs.add(ns);
    }
}

/// Summarises a recording block by block.
pub struct Summariser {
    events: Events,
    /// If lanes are threads of a program.
    pub(crate) threads: Option<Threads>,
    /// By [`Wait`].
    pub(crate) waits: [Distribution; Wait::ALL.len()],
    pub(crate) rows: Rows,
    pub(crate) cpus: CpuSlots,
    pub(crate) lanes: BTreeMap<u32, LaneState>,
    pub(crate) budget: Budget,
    pub(crate) room: Room,
    pub(crate) all: Account,
    pub(crate) long: Account,
    /// Short and long.
    pub(crate) outside: [Outside; 2],
    pub(crate) beside: Beside,
    pub(crate) entry_exit_ns: u64,
    pub(crate) unbalanced: u64,
    pub(crate) unknown: u64,
}

impl Summariser {
    /// For a recording of this mode.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        let of_threads = mode == Mode::Program;
        Summariser {
            events: Events::new(of_threads),
            threads: of_threads.then(Threads::with_competition),
            waits: Default::default(),
            rows: Rows::default(),
            cpus: CpuSlots::default(),
            lanes: BTreeMap::new(),
            budget: Budget::default(),
            room: Room::default(),
            all: Account::default(),
            long: Account::default(),
            outside: Default::default(),
            beside: Beside::default(),
            entry_exit_ns: 0,
            unbalanced: 0,
            unknown: 0,
        }
    }

    /// Adds one block. `sources` is the source table so far: entries may be appended from one block to
    /// the next.
    pub fn add(&mut self, block: &Block, sources: &[Source]) {
        if sources.len() > self.rows.fine.len() {
            self.rows.extend(sources);
        }
        if let Some(threads) = &mut self.threads {
            threads.add(block);
        }
        let mut lane = self.lanes.remove(&block.lane.0).unwrap_or_default();
        for record in &block.records {
            self.record(&mut lane, record);
        }
        for (detour, records) in block.composed() {
            self.detour(&mut lane, detour, records);
        }
        self.lanes.insert(block.lane.0, lane);
        while self.budget.must_cut() {
            for cell in self.lanes.values_mut().flat_map(|lane| &mut lane.cells) {
                self.budget.cut(&mut cell.starts);
            }
            for starts in self.rows.rows.iter_mut().flat_map(|row| &mut row.starts) {
                self.budget.cut(starts);
            }
        }
    }

    fn record(&mut self, lane: &mut LaneState, record: &Record) {
        lane.see(record.start_ns, record.gross_ns);
        if record.flags.contains(RecordFlags::BASELINE) {
            self.runs(record);
            return;
        }
        let Some(fine) = self.rows.fine.get_mut(record.source.0 as usize) else {
            self.unknown += 1;
            return;
        };
        let in_detour = record.flags.contains(RecordFlags::IN_DETOUR);
        // A CPU that idles while nothing waits for it takes no time.
        if fine.class == Class::Idle && !in_detour {
            return;
        }
        let tally = self.events.tally(record);
        let cost = record.cost_ns;
        fine.part.add(tally, cost);
        let index = fine.row as usize;
        let Some(row) = self.rows.rows.get_mut(index) else { return };
        row.count += u64::from(tally.event);
        row.hits += u64::from(tally.hit);
        row.continued += u64::from(!tally.hit);
        row.net_ns = row.net_ns.saturating_add(record.net_ns);
        row.cost_ns = row.cost_ns.saturating_add(cost);
        let slot = self.cpus.slot(record.cpu);
        if let Some(part) = self.room.at(&mut row.cpus, slot) {
            part.add(tally, cost);
        }
        if let (Some(_), true) = (&self.threads, tally.event)
            && let Some(starts) = self.room.at(&mut row.starts, slot)
        {
            self.budget.keep(starts, record.start_ns);
        }
        if !in_detour {
            self.beside.records += 1;
            self.beside.cost_ns_total = self.beside.cost_ns_total.saturating_add(cost);
            lane.beside_ns = lane.beside_ns.saturating_add(cost);
        }

        // A sum is not an interruption. The distribution is over whole ones, so each is added when it
        // is complete.
        if !record.is_sum()
            && let Some((done, ns)) = lane.interruptions.add(record, index)
            && let Some(row) = self.rows.rows.get_mut(done)
        {
            row.costs.add(ns);
        }
        let Some(cell) = self.room.at(&mut lane.cells, index) else { return };
        cell.part.add(tally, cost);
        if tally.hit && self.threads.is_none() {
            self.budget.keep(&mut cell.starts, record.start_ns);
        }
    }

    /// The undisturbed thread itself. On the lane of a program's thread, that is the program.
    fn runs(&mut self, slice: &Record) {
        if self.threads.is_some()
            && let Some(&Fine { row, .. }) = self.rows.fine(slice.source)
            && let Some(row) = self.rows.rows.get_mut(row as usize)
        {
            row.program = true;
        }
    }

    fn detour(&mut self, lane: &mut LaneState, detour: &Detour, records: &[Record]) {
        lane.see(detour.start_ns, detour.len_ns);
        lane.detours += 1;
        lane.detour_ns = lane.detour_ns.saturating_add(detour.len_ns);
        if detour.len_ns > lane.longest_ns {
            lane.longest_ns = detour.len_ns;
            lane.longest_at_ns = detour.start_ns;
        }

        let (mut parts, mut named_ns) = (detour.outside_ns, 0u64);
        let (mut named, mut thread) = (false, false);
        for record in records {
            parts = parts.saturating_add(record.cost_ns);
            if record.flags.contains(RecordFlags::BASELINE) {
                continue;
            }
            let Some(fine) = self.rows.fine(record.source) else { continue };
            named = true;
            named_ns = named_ns.saturating_add(record.cost_ns);
            let runs = matches!(fine.class, Class::Thread | Class::Kthread);
            thread |= runs;
            if runs && let Some(competition) = competition(&mut self.threads) {
                let known = self.rows.rows.get(fine.row as usize).is_some_and(|row| row.program);
                let end = detour.start_ns.saturating_add(detour.len_ns);
                let ran_until = record.start_ns.saturating_add(record.gross_ns);
                let span = (record.start_ns.max(detour.start_ns), ran_until.min(end));
                competition.contested(fine.row, known, span, record.cost_ns);
            }
            if !record.is_sum() {
                let beyond = record.cost_ns.saturating_sub(record.net_ns);
                self.entry_exit_ns = self.entry_exit_ns.saturating_add(beyond);
            }
        }
        if detour.wait != Wait::None {
            self.waits[detour.wait as usize].add(detour.len_ns);
        }
        self.unbalanced += u64::from(parts != detour.len_ns);
        lane.thread_detours += u64::from(thread);
        self.all.add(detour.len_ns, named_ns, named);
        if detour.len_ns >= LONG_NS {
            self.long.add(detour.len_ns, named_ns, named);
        }
        if detour.outside_ns > 0 {
            let kind = outside_kind(detour.outside_ns);
            self.outside[kind].add(detour.outside_ns);
            lane.outside[kind] += 1;
        }
    }

    /// Adds the last interruption of every row and lane, and the last wake-up of every thread, to its
    /// distribution.
    pub(crate) fn close_open(&mut self) {
        let threads = self.threads.iter_mut().flat_map(|threads| threads.lanes.values_mut());
        threads.for_each(Walk::has_come);
        for lane in self.lanes.values_mut() {
            for (done, ns) in lane.interruptions.finish() {
                if let Some(row) = self.rows.rows.get_mut(done) {
                    row.costs.add(ns);
                }
            }
        }
    }
}

fn competition(threads: &mut Option<Threads>) -> Option<&mut Competition> {
    threads.as_mut()?.competition.as_mut()
}
