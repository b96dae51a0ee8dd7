//! The detours of a recording with the sources they are made of: one source per class, name and unit,
//! as in the report, and two for what no record explains, as there, too.

use std::collections::HashMap;

use anyhow::{Context, Result};
use simulate::noise::Composed;
use trace::{Class, Lane, LaneId, RecordFlags};

use crate::open::AnyReader;

/// Where time outside the kernel stops being the processor's own business, as in the report.
const LONG_NS: u64 = 1_000;

/// A row of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub class: Class,
    pub name: String,
    pub unit: Option<String>,
    /// What was behind it first: the number of an interrupt stands here.
    pub detail: Option<String>,
    /// The recorder's own threads.
    pub own: bool,
}

impl Source {
    /// Whether somebody who says so means this one: by its name, its unit, its class, or `class:name`.
    pub fn is_called(&self, name: &str) -> bool {
        let class = self.class.name();
        name == self.name
            || self.unit.as_deref() == Some(name)
            || name == class
            || name.strip_prefix(class).and_then(|rest| rest.strip_prefix(':'))
                == Some(self.name.as_str())
    }
}

/// What a recording says about its sources; lanes are read one by one.
pub struct Recorded {
    /// The last two are what no record explains, below 1 us and from there on.
    pub sources: Vec<Source>,
    /// For each row of the trace's source table.
    source_of: Vec<u32>,
}

impl Recorded {
    pub fn new(reader: &AnyReader) -> Recorded {
        let mut sources: Vec<Source> = Vec::new();
        let mut index = HashMap::new();
        let mut source_of = Vec::new();
        for row in reader.sources() {
            let next = sources.len() as u32;
            let number = *index.entry((row.class, &row.name, &row.unit)).or_insert(next);
            if number == next {
                sources.push(Source {
                    class: row.class,
                    name: row.name.clone(),
                    unit: row.unit.clone(),
                    detail: row.detail.clone(),
                    own: false,
                });
            }
            sources[number as usize].own |= row.own;
            source_of.push(number);
        }
        for name in ["microarchitecture", "hypervisor_or_smi"] {
            sources.push(Source {
                class: Class::OutsideKernel,
                name: name.to_owned(),
                unit: None,
                detail: None,
                own: false,
            });
        }
        Recorded { sources, source_of }
    }

    /// All lanes that were watched at all. A recording that was cut off may have others.
    pub fn lanes<'a>(&self, reader: &'a AnyReader) -> Result<Vec<(&'a Lane, Composed)>> {
        let mut lanes = Vec::new();
        for (index, lane) in reader.lanes().iter().enumerate() {
            let composed = self.lane(reader, index)?;
            if composed.span_ns() > 0 {
                lanes.push((lane, composed));
            }
        }
        Ok(lanes)
    }

    /// The detours of a lane, by its place in the lane table.
    pub fn lane(&self, reader: &AnyReader, index: usize) -> Result<Composed> {
        let id = LaneId(index as u32);
        let totals = reader.trailer().and_then(|t| t.lanes.iter().find(|l| l.lane == id.0));
        let window = totals.map(|totals| (totals.from_ns, totals.to_ns));
        let (from, to) = window.unwrap_or((0, 0));
        let mut lane = Composed::new(from, to.saturating_sub(from));
        let short = self.sources.len() as u32 - 2;
        for block in reader.blocks_of(id) {
            for (detour, records) in block?.composed() {
                let outside = if detour.outside_ns < LONG_NS { short } else { short + 1 };
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

/// A lane as one would call it.
pub fn lane_words(lane: &Lane) -> String {
    match lane {
        Lane::Cpu { cpu } => format!("CPU {cpu}"),
        Lane::Thread { tid, name, .. } => format!("thread {name} ({tid})"),
    }
}
