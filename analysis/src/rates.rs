//! How often each source struck and how much it took, block of time by block of time: what two
//! recordings are compared by.
//!
//! Counted as in the summary: one row per class, name and unit, and two for what is outside the
//! kernel. Memory grows with rows and blocks of time, not with events.

use trace::{Block, Class, RecordFlags, Source};

use crate::Contents;
use crate::finish::basis;
use crate::rows::{Rows, at};
use crate::summary::CostBasis;

/// Blocks of time: a tenth of a second each, at least so many and at most so many.
const BLOCK_NS: u64 = 100_000_000;
const FEWEST: u64 = 20;
const MOST: u64 = 100;

/// What happened in one block of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    pub count: u64,
    pub cost_ns: u64,
}

impl Cell {
    fn add(&mut self, counted: bool, cost_ns: u64) {
        self.count += u64::from(counted);
        self.cost_ns = self.cost_ns.saturating_add(cost_ns);
    }
}

/// One source, by blocks of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRates {
    pub class: Class,
    pub name: String,
    pub unit: Option<String>,
    pub own: bool,
    pub cells: Vec<Cell>,
}

/// A recording, by blocks of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    pub host: String,
    pub kernel: String,
    pub started_unix_s: f64,
    /// From the first watched moment of any lane to the last.
    pub duration_s: f64,
    /// Watched time of all lanes.
    pub watched_s: f64,
    pub lanes: usize,
    pub cost_basis: CostBasis,
    /// Everything that was lost.
    pub total: Vec<Cell>,
    pub sources: Vec<SourceRates>,
    pub truncated: bool,
}

/// Counts a recording block by block.
pub struct RateCounter {
    from_ns: u64,
    block_ns: u64,
    blocks: usize,
    rows: Rows,
    cells: Vec<Vec<Cell>>,
    outside: [Vec<Cell>; 2],
    detours: Vec<Cell>,
    beside: Vec<Cell>,
}

impl RateCounter {
    /// For events between these times.
    pub fn new(from_ns: u64, to_ns: u64) -> RateCounter {
        let span = to_ns.saturating_sub(from_ns).max(1);
        let blocks = (span / BLOCK_NS).clamp(FEWEST, MOST);
        let empty = vec![Cell::default(); blocks as usize];
        RateCounter {
            from_ns,
            block_ns: span.div_ceil(blocks).max(1),
            blocks: blocks as usize,
            rows: Rows::default(),
            cells: Vec::new(),
            outside: [empty.clone(), empty.clone()],
            detours: empty.clone(),
            beside: empty,
        }
    }

    pub fn add(&mut self, block: &Block, sources: &[Source]) {
        self.rows.extend(sources);
        let when = |start_ns: u64| {
            let index = start_ns.saturating_sub(self.from_ns) / self.block_ns;
            (index as usize).min(self.blocks - 1)
        };
        for record in &block.records {
            let Some(fine) = self.rows.fine(record.source) else { continue };
            let in_detour = record.flags.contains(RecordFlags::IN_DETOUR);
            let idle = fine.class == Class::Idle && !in_detour;
            if record.flags.contains(RecordFlags::BASELINE) || idle {
                continue;
            }
            let counted = !record.flags.contains(RecordFlags::CONTINUED);
            let cells = at(&mut self.cells, fine.row as usize);
            if cells.is_empty() {
                cells.resize(self.blocks, Cell::default());
            }
            let index = when(record.start_ns);
            cells[index].add(counted, record.cost_ns);
            if !in_detour {
                self.beside[index].add(counted, record.cost_ns);
            }
        }
        for detour in &block.detours {
            let index = when(detour.start_ns);
            self.detours[index].add(true, detour.len_ns);
            if detour.outside_ns > 0 {
                let which = trace::outside_kind(detour.outside_ns);
                self.outside[which][index].add(true, detour.outside_ns);
            }
        }
    }

    #[must_use]
    pub fn finish(self, contents: &Contents<'_>) -> Rates {
        let manifest = contents.manifest;
        let detours: u64 = self.detours.iter().map(|cell| cell.count).sum();
        let cost_basis = basis(manifest.mode, detours);
        let totals = contents.trailer.map_or(&[][..], |trailer| &trailer.lanes);
        let window = |lane: &trace::LaneTotals| lane.to_ns.saturating_sub(lane.from_ns);
        let span_ns = self.block_ns.saturating_mul(self.blocks as u64);
        let watched_ns = match totals.iter().map(window).fold(0, u64::saturating_add) {
            // Cut off before it could say: as long as there were events.
            0 => span_ns.saturating_mul(contents.lanes.len().max(1) as u64),
            watched => watched,
        };
        let mut total = self.detours;
        if cost_basis == CostBasis::Records {
            for (cell, beside) in total.iter_mut().zip(&self.beside) {
                cell.count += beside.count;
                cell.cost_ns = cell.cost_ns.saturating_add(beside.cost_ns);
            }
        }
        let mut sources = Vec::new();
        for (row, cells) in self.rows.rows.iter().zip(self.cells) {
            let members = || row.members.iter().filter_map(|&id| contents.sources.get(id as usize));
            let Some(first) = members().next() else { continue };
            if cells.iter().all(|cell| *cell == Cell::default()) {
                continue;
            }
            let (name, unit) = row.named(first);
            sources.push(SourceRates {
                class: first.class,
                name,
                unit,
                own: members().any(|source| source.own),
                cells,
            });
        }
        let named = trace::outside_names(manifest.mode);
        for (name, cells) in named.into_iter().zip(self.outside) {
            if cells.iter().any(|cell| cell.count > 0) {
                sources.push(SourceRates {
                    class: Class::OutsideKernel,
                    name: name.to_owned(),
                    unit: None,
                    own: false,
                    cells,
                });
            }
        }
        Rates {
            host: manifest.host.clone(),
            kernel: manifest.kernel.clone(),
            started_unix_s: manifest.started_unix_s,
            duration_s: span_ns as f64 / 1e9,
            watched_s: watched_ns as f64 / 1e9,
            lanes: contents.lanes.len(),
            cost_basis,
            total,
            sources,
            truncated: contents.truncated.is_some() || contents.trailer.is_none(),
        }
    }
}
