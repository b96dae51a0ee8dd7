//! The detours of a recording with the sources they are made of: one source per row of the
//! report, and two for what no record explains, as there, too.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result};
use simulate::noise::Composed;
use trace::{Class, Lane, LaneId, RecordFlags, RowKey, outside_kind, outside_names};

use crate::open::AnyReader;

/// A row of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub key: RowKey,
    /// What was behind it first: the number of an interrupt stands here.
    pub detail: Option<String>,
    /// The recorded program's own threads.
    pub program: bool,
}

impl Source {
    /// Whether somebody who says so means this one: by its name, its unit, its class, or `class:name`.
    pub fn is_called(&self, name: &str) -> bool {
        let (class, own_name) = (self.key.class.name(), self.key.name.as_str());
        // The report's tables write these names with spaces.
        let outside = self.key.class == Class::OutsideKernel
            && name.replace(' ', "_").eq_ignore_ascii_case(own_name);
        name == own_name
            || outside
            || self.key.unit.as_deref() == Some(name)
            || name == class
            || name.strip_prefix(class).and_then(|rest| rest.strip_prefix(':')) == Some(own_name)
    }
}

/// A thread that was there for less than this share of what the longest was is no picture of a rank:
/// most programs have helpers that come and go.
const STAYED: f64 = 0.5;

/// What a recording says about its sources; lanes are read one by one.
pub struct Recorded {
    /// The last two are what no record explains, below 1 us and from there on.
    pub sources: Vec<Source>,
    /// For each row of the trace's source table.
    source_of: Vec<u32>,
    /// For each lane, whether ranks are to meet its noise.
    stayed: Vec<bool>,
}

impl Recorded {
    pub fn new(reader: &AnyReader) -> Recorded {
        let processes: HashSet<u32> = reader.lanes().iter().filter_map(process).collect();
        let mut sources: Vec<Source> = Vec::new();
        let mut index = HashMap::new();
        let mut source_of = Vec::new();
        for row in reader.sources() {
            let next = sources.len() as u32;
            let number = *index.entry(row.row_key()).or_insert(next);
            if number == next {
                let (key, detail) = (row.row_key(), row.detail.clone());
                sources.push(Source { key, detail, program: false });
            }
            let source = &mut sources[number as usize];
            source.program |= row.pids.iter().any(|pid| processes.contains(pid));
            source_of.push(number);
        }
        for name in outside_names(reader.manifest().mode) {
            sources.push(Source { key: RowKey::outside(name), detail: None, program: false });
        }
        Recorded { sources, source_of, stayed: stayed(reader) }
    }

    /// The lanes whose noise ranks meet, if they were watched at all: a recording that was cut off may
    /// have others.
    pub fn lanes<'a>(&self, reader: &'a AnyReader) -> Result<Vec<(&'a Lane, Composed)>> {
        let mut lanes = Vec::new();
        for (index, lane) in reader.lanes().iter().enumerate() {
            if self.stayed(index) {
                let composed = self.lane(reader, index)?;
                if composed.span_ns() > 0 {
                    lanes.push((lane, composed));
                }
            }
        }
        Ok(lanes)
    }

    /// Whether ranks are to meet the noise of a lane. A CPU was there all the time; of a program's
    /// threads, those that were there for most of it.
    pub fn stayed(&self, index: usize) -> bool {
        self.stayed.get(index).copied().unwrap_or(false)
    }

    /// What is to be said of lanes that no rank meets.
    pub fn left_out(&self) -> Option<String> {
        let (all, left) = (self.stayed.len(), self.stayed.iter().filter(|kept| !**kept).count());
        (left > 0).then(|| {
            format!(
                "{left} of {all} threads were there for less than half as long as the longest: no rank \
                 meets their noise"
            )
        })
    }

    /// The detours of a lane, by its place in the lane table.
    pub fn lane(&self, reader: &AnyReader, index: usize) -> Result<Composed> {
        let id = LaneId(index as u32);
        let (from, to) = window(reader, index);
        let mut lane = Composed::new(from, to.saturating_sub(from));
        let short = self.sources.len() as u32 - 2;
        for block in reader.blocks_of(id) {
            for (detour, records) in block?.composed() {
                let outside = short + outside_kind(detour.outside_ns) as u32;
                let named = records
                    .iter()
                    .filter(|record| !record.flags.contains(RecordFlags::BASELINE))
                    .filter_map(|record| {
                        let source = self.source_of.get(record.source.0 as usize)?;
                        Some((*source, record.cost_ns))
                    });
                let parts = named.chain([(outside, detour.outside_ns)]);
                lane.push(detour.start_ns, detour.len_ns, parts)
                    .with_context(|| lane_words(&reader.lanes()[index]))?;
            }
        }
        Ok(lane)
    }
}

/// From when to when a lane was watched, as far as the recording says.
fn window(reader: &AnyReader, index: usize) -> (u64, u64) {
    let totals = reader.totals(LaneId(index as u32));
    totals.map_or((0, 0), |totals| (totals.from_ns, totals.to_ns))
}

fn stayed(reader: &AnyReader) -> Vec<bool> {
    let watched = |index: usize| {
        let (from, to) = window(reader, index);
        to.saturating_sub(from)
    };
    let longest = (0..reader.lanes().len()).map(watched).max().unwrap_or(0);
    let enough = STAYED * longest as f64;
    let lanes = reader.lanes().iter().enumerate();
    lanes.map(|(index, lane)| process(lane).is_none() || watched(index) as f64 >= enough).collect()
}

/// Whose thread a lane is.
fn process(lane: &Lane) -> Option<u32> {
    match lane {
        Lane::Cpu { .. } => None,
        Lane::Thread { pid, .. } => Some(*pid),
    }
}

/// A lane as one would call it.
pub fn lane_words(lane: &Lane) -> String {
    match lane {
        Lane::Cpu { cpu } => format!("CPU {cpu}"),
        Lane::Thread { tid, name, .. } => format!("thread {name} ({tid})"),
    }
}
