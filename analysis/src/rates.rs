//! Count and cost of each source per block of time, for the comparison of two recordings.
//!
//! Counted as in the summary: one row per source, and two for time outside the kernel. Memory grows with
//! rows and blocks of time, not with events.

use std::collections::HashMap;

use trace::{
    Block, BlockInfo, Class, Detour, Lane, LaneId, Mode, Record, RecordFlags, RowKey, Source,
};

use crate::Contents;
use crate::by::{By, GroupKey, Groups};
use crate::comparable::{Part, threshold_ns};
use crate::finish::basis;
use crate::lanes::{self, Window};
use crate::program::{Threads, events::Events};
use crate::rows::{Rows, at};
use crate::summary::{CostBasis, SharesOf};

/// Blocks of time: a tenth of a second each, between `FEWEST` and `MOST` of them.
const BLOCK_NS: u64 = 100_000_000;
const FEWEST: u64 = 20;
const MOST: u64 = 100;

/// In how many blocks of time a recording of this length is drawn again from itself.
#[must_use]
pub fn blocks_of_time(span_ns: u64) -> u64 {
    (span_ns / BLOCK_NS).clamp(FEWEST, MOST)
}

/// Sums of one block of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockSum {
    pub count: u64,
    pub cost_ns: u64,
}

impl BlockSum {
    fn add(&mut self, counted: bool, cost_ns: u64) {
        self.count += u64::from(counted);
        self.cost_ns = self.cost_ns.saturating_add(cost_ns);
    }
}

/// One row, by blocks of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRates {
    pub key: GroupKey,
    pub cells: Vec<BlockSum>,
}

/// A recording, by blocks of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    pub host: String,
    pub kernel: String,
    pub started_unix_s: f64,
    /// From the first watched moment of any lane to the last.
    pub duration_s: f64,
    /// Watched time of all lanes; for a program, the time its threads wanted to run.
    pub watched_s: f64,
    pub lanes: usize,
    /// Base of shares: the time threads wanted to run, or that of the watched CPUs.
    pub shares_of: SharesOf,
    pub cost_basis: CostBasis,
    /// Total noise.
    pub total: Vec<BlockSum>,
    pub sources: Vec<RowRates>,
    /// The same in the rows asked for.
    pub by: By,
    pub rows: Vec<RowRates>,
    /// The highest threshold of all CPUs, if known.
    pub threshold_ns: Option<f64>,
    /// The recording, or that of one of its nodes or lanes, ends early.
    pub truncated: bool,
}

/// Counts a recording block by block.
pub struct RateCounter {
    part: Part,
    from_ns: u64,
    block_ns: u64,
    blocks: usize,
    /// Of each lane.
    windows: Vec<Window>,
    events: Events,
    /// If lanes are threads of a program.
    threads: Option<Threads>,
    rows: Rows,
    cells: Vec<Vec<BlockSum>>,
    table: Table,
    /// The names of time outside the kernel.
    outside_names: [&'static str; 2],
    outside: [Vec<BlockSum>; 2],
    detours: Vec<BlockSum>,
    beside: Vec<BlockSum>,
}

impl RateCounter {
    /// For the part of a recording whose blocks `infos` lists.
    pub fn new(
        contents: &Contents<'_>,
        infos: impl IntoIterator<Item = BlockInfo>,
        part: &Part,
        by: By,
    ) -> RateCounter {
        let windows = windows(contents, infos, part);
        let (from_ns, to_ns) = lanes::ends(windows.iter().copied());
        let span = to_ns.saturating_sub(from_ns).max(1);
        let blocks = blocks_of_time(span);
        let empty = vec![BlockSum::default(); blocks as usize];
        RateCounter {
            part: part.clone(),
            from_ns,
            block_ns: span.div_ceil(blocks).max(1),
            blocks: blocks as usize,
            windows,
            events: Events::new(contents.manifest.mode == Mode::Program),
            threads: (contents.manifest.mode == Mode::Program).then(Threads::new),
            rows: Rows::default(),
            cells: Vec::new(),
            table: Table::new(by, contents, part),
            outside_names: trace::outside_names(contents.manifest, contents.trailer),
            outside: [empty.clone(), empty.clone()],
            detours: empty.clone(),
            beside: empty,
        }
    }

    pub fn add(&mut self, block: &Block, sources: &[Source]) {
        self.rows.extend(sources);
        self.table.extend(sources);
        if let Some(threads) = &mut self.threads {
            threads.add(block);
        }
        if !self.part.has(block.lane.0) {
            return;
        }
        if self.part.shortest_ns == 0 {
            self.count(block.lane, &block.records, &block.detours);
            return;
        }
        // Records outside detours are excluded as well: on the side with the higher threshold, they are
        // the detours that only the other side saw as such.
        for (detour, records) in block.composed() {
            if detour.len_ns >= self.part.shortest_ns {
                self.count(block.lane, records, std::slice::from_ref(detour));
            }
        }
    }

    fn count(&mut self, lane: LaneId, records: &[Record], detours: &[Detour]) {
        let when = |start_ns: u64| {
            let index = start_ns.saturating_sub(self.from_ns) / self.block_ns;
            (index as usize).min(self.blocks - 1)
        };
        for record in records {
            let Some(fine) = self.rows.fine(record.source) else { continue };
            let in_detour = record.flags.contains(RecordFlags::IN_DETOUR);
            let idle = fine.class == Class::Idle && !in_detour;
            if record.flags.contains(RecordFlags::BASELINE) || idle {
                continue;
            }
            let counted = self.events.tally(record).event;
            let index = when(record.start_ns);
            let cells = filled(&mut self.cells, fine.row as usize, self.blocks);
            cells[index].add(counted, record.cost_ns);
            let row = self.table.of_record(record);
            filled(&mut self.table.cells, row, self.blocks)[index].add(counted, record.cost_ns);
            if !in_detour {
                self.beside[index].add(counted, record.cost_ns);
            }
        }
        for detour in detours {
            let index = when(detour.start_ns);
            self.detours[index].add(true, detour.len_ns);
            if detour.outside_ns > 0 {
                let which = trace::outside_kind(detour.outside_ns);
                self.outside[which][index].add(true, detour.outside_ns);
                let row = self.table.of_outside(self.outside_names[which], lane);
                filled(&mut self.table.cells, row, self.blocks)[index].add(true, detour.outside_ns);
            }
        }
    }

    #[must_use]
    pub fn finish(self, contents: &Contents<'_>) -> Rates {
        let manifest = contents.manifest;
        let detours: u64 = self.detours.iter().map(|cell| cell.count).sum();
        let cost_basis = basis(manifest.mode, detours);
        let span_ns = self.block_ns.saturating_mul(self.blocks as u64);
        // All events count, and so does the time of all lanes.
        let facts = self.threads.map(|threads| threads.finish(contents)).unwrap_or_default();
        let windows = self.windows.iter().enumerate();
        let base_ns = windows.map(|(lane, w)| lanes::base_ns(facts.wanted_ns(lane), *w));
        let watched_ns = base_ns.fold(0, u64::saturating_add);
        let ends_early = |window: &Window| !window.known && window.len_ns() > 0;
        let mut total = self.detours;
        if cost_basis == CostBasis::Records {
            for (cell, beside) in total.iter_mut().zip(&self.beside) {
                cell.count += beside.count;
                cell.cost_ns = cell.cost_ns.saturating_add(beside.cost_ns);
            }
        }
        let mut sources = Vec::new();
        for (row, cells) in self.rows.rows.iter().zip(self.cells) {
            let mut members = row.members.iter();
            let first = members.find_map(|&id| contents.sources.get(id as usize));
            let Some(first) = first else { continue };
            if cells.iter().all(|cell| *cell == BlockSum::default()) {
                continue;
            }
            sources.push(RowRates { key: row.key(first).into(), cells });
        }
        for (name, cells) in self.outside_names.into_iter().zip(self.outside) {
            if cells.iter().any(|cell| cell.count > 0) {
                sources.push(RowRates { key: RowKey::outside(name).into(), cells });
            }
        }
        let by = self.table.by;
        let rows = self.table.groups.keys.into_iter().zip(self.table.cells);
        let rows = rows.map(|(key, cells)| RowRates { key, cells });
        let rows = rows.filter(|row| row.cells.iter().any(|cell| *cell != BlockSum::default()));
        Rates {
            host: manifest.host.clone(),
            kernel: manifest.kernel.clone(),
            started_unix_s: manifest.started_unix_s,
            duration_s: span_ns as f64 / 1e9,
            watched_s: watched_ns as f64 / 1e9,
            lanes: (0..).zip(contents.lanes).filter(|(id, _)| self.part.has(*id)).count(),
            shares_of: match manifest.mode {
                Mode::Program => SharesOf::WantedTime,
                _ => SharesOf::CpuTime,
            },
            cost_basis,
            total,
            sources,
            by,
            rows: rows.collect(),
            threshold_ns: threshold_ns(contents, &self.part),
            truncated: contents.truncated.is_some()
                || contents.trailer.is_none()
                || manifest.nodes.iter().any(|node| node.lost.is_none())
                || self.windows.iter().any(ends_early),
        }
    }
}

/// The rows asked for.
struct Table {
    by: By,
    without_causes: bool,
    groups: Groups,
    /// For each source, unless that depends on the CPU.
    of_source: Vec<Option<usize>>,
    of_cpu: HashMap<u32, usize>,
    /// The CPU of each lane.
    cpus: Vec<Option<u32>>,
    cells: Vec<Vec<BlockSum>>,
}

impl Table {
    fn new(by: By, contents: &Contents<'_>, part: &Part) -> Table {
        Table {
            by,
            without_causes: part.without_causes,
            groups: Groups::default(),
            of_source: Vec::new(),
            of_cpu: HashMap::new(),
            cpus: contents.lanes.iter().map(Lane::cpu).collect(),
            cells: Vec::new(),
        }
    }

    fn extend(&mut self, sources: &[Source]) {
        for source in sources.iter().skip(self.of_source.len()) {
            let key = match self.without_causes {
                true => self.by.key(&Source { cause: None, ..source.clone() }),
                false => self.by.key(source),
            };
            self.of_source.push(key.map(|key| self.groups.number(key)));
        }
    }

    fn of_record(&mut self, record: &Record) -> usize {
        let known = self.of_source.get(record.source.0 as usize).copied().flatten();
        known.unwrap_or_else(|| self.of_cpu(record.cpu.into()))
    }

    fn of_outside(&mut self, name: &str, lane: LaneId) -> usize {
        match self.by.outside(name) {
            Some(key) => self.groups.number(key),
            None => match self.cpus.get(lane.0 as usize).copied().flatten() {
                Some(cpu) => self.of_cpu(cpu),
                // A thread may have been anywhere.
                None => self.groups.number(RowKey::outside(name).into()),
            },
        }
    }

    fn of_cpu(&mut self, cpu: u32) -> usize {
        let groups = &mut self.groups;
        *self.of_cpu.entry(cpu).or_insert_with(|| groups.number(GroupKey::of_cpu(cpu)))
    }
}

/// The sums of a row.
fn filled(cells: &mut Vec<Vec<BlockSum>>, row: usize, blocks: usize) -> &mut Vec<BlockSum> {
    let cells = at(cells, row);
    if cells.is_empty() {
        cells.resize(blocks, BlockSum::default());
    }
    cells
}

/// The window of each lane, empty outside the part; from its blocks if the trailer has none.
fn windows(
    contents: &Contents<'_>,
    infos: impl IntoIterator<Item = BlockInfo>,
    part: &Part,
) -> Vec<Window> {
    let mut seen: Vec<Option<(u64, u64)>> = vec![None; contents.lanes.len()];
    for info in infos {
        if let Some(seen) = seen.get_mut(info.lane.0 as usize) {
            let (first, last) = seen.unwrap_or((info.first_ns, info.last_ns));
            *seen = Some((first.min(info.first_ns), last.max(info.last_ns)));
        }
    }
    let totals = lanes::totals(contents);
    let of_lane = |(id, (seen, totals))| match part.has(id) {
        true => Window::of(seen, totals),
        false => Window { from_ns: 0, to_ns: 0, known: true },
    };
    (0..).zip(seen.into_iter().zip(totals)).map(of_lane).collect()
}
