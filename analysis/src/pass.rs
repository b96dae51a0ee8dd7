//! The pass over the events: sums per row, per lane and over all detours.
//!
//! Two walks over each block. One over the records gives every source its counts, times and
//! distribution; the other over the detours checks that their parts add up and measures what is
//! named and what is not.

use std::collections::BTreeMap;

use trace::{Block, Class, Detour, LONG_NS, Record, RecordFlags, Source, outside_kind};

use crate::costs::{Costs, Distribution};
use crate::lanes::LaneState;
use crate::rows::{CpuSlots, Room, Rows};
use crate::starts::Budget;
use crate::summary::Beside;
use crate::{Contents, Summary, finish};

/// Detours, how long, and how much of them named sources explain.
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

/// Sums up a recording block by block.
#[derive(Default)]
pub struct Summariser {
    pub(crate) rows: Rows,
    pub(crate) cpus: CpuSlots,
    pub(crate) lanes: BTreeMap<u32, LaneState>,
    pub(crate) budget: Budget,
    pub(crate) room: Room,
    pub(crate) all: Account,
    pub(crate) long: Account,
    /// Of both kinds.
    pub(crate) outside: [Outside; 2],
    pub(crate) beside: Beside,
    pub(crate) entry_exit_ns: u64,
    pub(crate) unbalanced: u64,
    pub(crate) unknown: u64,
}

impl Summariser {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in one block. `sources` is the source table as far as it is known: it may grow from
    /// one block to the next, by entries at its end.
    pub fn add(&mut self, block: &Block, sources: &[Source]) {
        if sources.len() > self.rows.fine.len() {
            self.rows.extend(sources);
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
        }
    }

    /// The summary of everything added. The events taken in are not needed again.
    #[must_use]
    pub fn finish(self, contents: &Contents<'_>) -> Summary {
        self.finish_with_costs(contents).0
    }

    /// The same, with the distributions behind its quantiles.
    #[must_use]
    pub fn finish_with_costs(mut self, contents: &Contents<'_>) -> (Summary, Costs) {
        self.rows.extend(contents.sources);
        self.close_open();
        finish::build(&self, contents)
    }

    fn record(&mut self, lane: &mut LaneState, record: &Record) {
        lane.see(record.start_ns, record.gross_ns);
        if record.flags.contains(RecordFlags::BASELINE) {
            return;
        }
        let Some(fine) = self.rows.fine.get_mut(record.source.0 as usize) else {
            self.unknown += 1;
            return;
        };
        let in_detour = record.flags.contains(RecordFlags::IN_DETOUR);
        // A CPU that idles while nothing waits for it takes no time from anyone.
        if fine.class == Class::Idle && !in_detour {
            return;
        }
        let counted = !record.flags.contains(RecordFlags::CONTINUED);
        let cost = record.cost_ns;
        fine.part.add(counted, cost);
        let index = fine.row as usize;
        let Some(row) = self.rows.rows.get_mut(index) else { return };
        row.count += u64::from(counted);
        row.continued += u64::from(!counted);
        row.net_ns = row.net_ns.saturating_add(record.net_ns);
        row.cost_ns = row.cost_ns.saturating_add(cost);
        if let Some(part) = self.room.at(&mut row.cpus, self.cpus.slot(record.cpu)) {
            part.add(counted, cost);
        }
        if !in_detour {
            self.beside.records += 1;
            self.beside.cost_ns_total = self.beside.cost_ns_total.saturating_add(cost);
            lane.beside_ns = lane.beside_ns.saturating_add(cost);
        }

        // A further part of an interruption may be another source's: the tick after another timer,
        // the second handler on a line. Then it is a sample of its own, though not counted again.
        let before = lane.last_row.get_mut(usize::from(record.depth)).map(|row| row.replace(index));
        let same_row = before == Some(Some(index));
        let Some(cell) = self.room.at(&mut lane.cells, index) else {
            row.costs.add(cost);
            return;
        };
        cell.part.add(counted, cost);
        if !counted && !same_row {
            if let Some(done) = cell.open.replace(cost) {
                row.costs.add(done);
            }
        } else if counted {
            // The distribution is of whole interruptions, so one enters when the next begins.
            if let Some(done) = cell.open.replace(cost) {
                row.costs.add(done);
            }
            self.budget.keep(&mut cell.starts, record.start_ns);
        } else {
            cell.open = Some(cell.open.unwrap_or(0).saturating_add(cost));
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
            thread |= matches!(fine.class, Class::Thread | Class::Kthread);
            let beyond = record.cost_ns.saturating_sub(record.net_ns);
            self.entry_exit_ns = self.entry_exit_ns.saturating_add(beyond);
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

    /// The last interruption of every row and lane enters its distribution.
    fn close_open(&mut self) {
        for lane in self.lanes.values_mut() {
            for (row, cell) in self.rows.rows.iter_mut().zip(&mut lane.cells) {
                if let Some(done) = cell.open.take() {
                    row.costs.add(done);
                }
            }
        }
    }
}
