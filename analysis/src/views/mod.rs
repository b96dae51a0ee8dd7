//! Data of a report's figures: detours over time, time lost per lane over time, spectra, and the
//! distribution of lengths.
//!
//! In: a [`Summary`] (from a first pass, for the relevant sources) and the blocks again. Out: plain
//! values, of a size that does not depend on the length of the recording.

mod heat;
mod scatter;
mod series;
mod spectrum;

use trace::{Block, Class, Mode, Record, RecordFlags, Source, Wait};

pub use heat::{Heat, HeatRow};
pub use scatter::{Point, Scatter};
pub use series::{Series, SeriesOf};
pub use spectrum::Spectrum;

use crate::costs::{Bin, Distribution};
use crate::program::events::Events;
use crate::{Contents, CostBasis, Summary};

/// The figures of one recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Views {
    /// First and last watched moment, ns.
    pub from_ns: u64,
    pub to_ns: u64,
    /// The series, most costly source first; points and spectra refer to it.
    pub series: Vec<Series>,
    pub scatter: Scatter,
    pub heat: Heat,
    /// One per series with enough events.
    pub spectra: Vec<Spectrum>,
    /// Lengths of all detours (of all records if there was no probe).
    pub lengths: Vec<Bin>,
}

/// Processes the blocks of a recording that has already been summarised.
pub struct Viewer {
    from_ns: u64,
    to_ns: u64,
    records_only: bool,
    events: Events,
    /// Lanes are threads: events are periodic per CPU, and shares are of the time they wanted to run.
    by_cpu: bool,
    series: Vec<Series>,
    of: SeriesOf,
    idle: Vec<bool>,
    scatter: scatter::Collector,
    heat: heat::Collector,
    spectra: spectrum::Collector,
    lengths: Distribution,
}

impl Viewer {
    /// `ends` are the earliest start and the latest end of any event.
    #[must_use]
    pub fn new(summary: &Summary, contents: &Contents<'_>, ends: (u64, u64)) -> Self {
        let (from_ns, to_ns) = watched(contents, ends);
        let series = series::of(summary);
        let of = SeriesOf::new(&series, summary, contents.sources);
        let spectra = spectrum::Collector::new(&series, summary, from_ns, to_ns);
        Viewer {
            from_ns,
            to_ns,
            records_only: summary.cost_basis == CostBasis::Records,
            events: Events::new(contents.manifest.mode == Mode::Program),
            by_cpu: contents.manifest.mode == Mode::Program,
            scatter: scatter::Collector::new(from_ns, to_ns, series.len()),
            heat: heat::Collector::new(from_ns, to_ns, contents.lanes.len()),
            spectra,
            lengths: Distribution::default(),
            idle: contents.sources.iter().map(|s: &Source| s.class == Class::Idle).collect(),
            series,
            of,
        }
    }

    pub fn add(&mut self, block: &Block) {
        let lane = block.lane.0;
        if self.by_cpu {
            let slices = block.records.iter().filter(|r| r.flags.contains(RecordFlags::BASELINE));
            slices.for_each(|slice| self.heat.wanted(lane, slice.start_ns, slice.gross_ns));
            let waits = block.detours.iter().filter(|detour| detour.wait != Wait::None);
            waits.for_each(|wait| self.heat.wanted(lane, wait.start_ns, wait.len_ns));
        }
        for record in &block.records {
            if !self.counts(record) {
                continue;
            }
            let Some(series) = self.of.source(record.source) else { continue };
            if self.records_only {
                self.event(lane, record.start_ns, record.cost_ns, series);
            }
            if self.events.tally(record).event {
                let place = if self.by_cpu { u32::from(record.cpu) } else { lane };
                self.spectra.add(series, place, record.start_ns);
            }
        }
        if self.records_only {
            return;
        }
        for (detour, records) in block.composed() {
            let mut largest = detour.outside_ns;
            let mut by = self.of.outside();
            for record in records.iter().filter(|r| self.counts(r)) {
                // The most costly record determines the series of the detour.
                if (record.cost_ns > largest || by.is_none())
                    && let Some(series) = self.of.source(record.source)
                {
                    (largest, by) = (record.cost_ns, Some(series));
                }
            }
            let Some(series) = by else { continue };
            self.event(lane, detour.start_ns, detour.len_ns, series);
            if Some(series) == self.of.outside() {
                self.spectra.add(series, lane, detour.start_ns);
            }
        }
    }

    #[must_use]
    pub fn finish(self) -> Views {
        Views {
            from_ns: self.from_ns,
            to_ns: self.to_ns,
            spectra: self.spectra.finish(),
            series: self.series,
            scatter: self.scatter.finish(),
            heat: self.heat.finish(),
            lengths: self.lengths.bins(),
        }
    }

    /// As in the summary: the undisturbed thread is not noise, and neither is a CPU that idles while
    /// nothing waits.
    fn counts(&self, record: &Record) -> bool {
        let idle = self.idle.get(record.source.0 as usize).copied().unwrap_or(true);
        !record.flags.contains(RecordFlags::BASELINE)
            && (!idle || record.flags.contains(RecordFlags::IN_DETOUR))
    }

    fn event(&mut self, lane: u32, start_ns: u64, len_ns: u64, series: usize) {
        self.scatter.add(start_ns, len_ns, series);
        self.heat.add(lane, start_ns, len_ns);
        self.lengths.add(len_ns);
    }
}

/// The window from the trailer, or, if it has none, from the first event to the last.
fn watched(contents: &Contents<'_>, ends: (u64, u64)) -> (u64, u64) {
    let totals = contents.lane_totals();
    let windows = || totals.iter().filter(|t| t.to_ns > t.from_ns);
    match (windows().map(|t| t.from_ns).min(), windows().map(|t| t.to_ns).max()) {
        (Some(from), Some(to)) => (from, to),
        _ => (ends.0, ends.1.max(ends.0.saturating_add(1))),
    }
}
