//! The longest detours of a recording, each with all that is known about it.

use std::cmp::Reverse;

use analysis::words::date;
use anyhow::{Context, Result};
use serde::Serialize;
use trace::{Class, Detour, LaneId, Mode, Record, RecordFlags, Wait, outside_kind, outside_names};

use crate::recording::{open::AnyReader, recorded::lane_words};

/// A detour.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Longest {
    /// Since the start of the recording.
    pub at_s: f64,
    /// By the wall clock. Null if that is unknown.
    pub at_utc: Option<String>,
    /// The CPU or thread.
    pub lane: String,
    pub length_ns: u64,
    /// Why a thread waited; null if it was interrupted.
    pub wait: Option<Wait>,
    /// The part that no kernel record explains, and its class.
    pub outside_ns: u64,
    pub outside: Option<&'static str>,
    /// In the order of time.
    pub parts: Vec<LongestPart>,
}

/// An interruption in a detour.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LongestPart {
    pub class: Class,
    pub name: String,
    pub unit: Option<String>,
    pub detail: Option<String>,
    /// The process behind it, if that is not a thread of this name.
    pub cause: Option<String>,
    pub policy: Option<String>,
    pub pids: Vec<u32>,
    pub cpu: u16,
    /// Since the start of the detour.
    pub after_ns: u64,
    pub cost_ns: u64,
}

/// A detour with its records.
struct Found {
    lane: LaneId,
    detour: Detour,
    records: Vec<Record>,
}

impl Found {
    /// Ties are broken by time, so that the result does not depend on the order of blocks.
    fn order(&self) -> (Reverse<u64>, u64, u32) {
        (Reverse(self.detour.len_ns), self.detour.start_ns, self.lane.0)
    }
}

/// The longest detours, longest first; of a recording without detours, the longest kernel records.
pub fn longest(reader: &AnyReader, most: usize) -> Result<Vec<Longest>> {
    let mut found: Vec<Found> = Vec::new();
    // Shorter ones are not among the longest.
    let mut shortest_ns = 0;
    let only_records = reader.manifest().mode == Mode::KernelOnly;
    for block in reader.blocks() {
        let block = block.with_context(|| format!("cannot read {}", reader.name()))?;
        let mut offer = |detour: Detour, records: &[Record]| {
            if detour.len_ns < shortest_ns || most == 0 {
                return;
            }
            found.push(Found { lane: block.lane, detour, records: records.to_vec() });
            if found.len() >= 2 * most {
                found.sort_unstable_by_key(Found::order);
                found.truncate(most);
                shortest_ns = found.last().map_or(0, |last| last.detour.len_ns);
            }
        };
        for (detour, records) in block.composed() {
            offer(*detour, records);
        }
        for record in block.records.iter().filter(|_| only_records) {
            let source = reader.sources().get(record.source.0 as usize);
            if source.is_some_and(|source| source.class != Class::Idle) {
                let (start_ns, len_ns) = (record.start_ns, record.net_ns);
                let detour = Detour { start_ns, len_ns, records: 1, ..Detour::default() };
                offer(detour, std::slice::from_ref(record));
            }
        }
    }
    found.sort_unstable_by_key(Found::order);
    found.truncate(most);
    Ok(found.iter().map(|found| known(reader, found)).collect())
}

/// What took a lane's time from a moment on; None if nothing in the recording begins then.
pub fn at(reader: &AnyReader, lane: LaneId, at_ns: u64) -> Result<Option<Longest>> {
    let only_records = reader.manifest().mode == Mode::KernelOnly;
    let mut found: Option<Found> = None;
    for block in reader.blocks_of(lane) {
        let block = block.with_context(|| format!("cannot read {}", reader.name()))?;
        let mut offer = |detour: Detour, records: &[Record]| {
            if found.as_ref().is_none_or(|found| found.detour.len_ns < detour.len_ns) {
                found = Some(Found { lane, detour, records: records.to_vec() });
            }
        };
        for (detour, records) in block.composed().filter(|(detour, _)| detour.start_ns == at_ns) {
            offer(*detour, records);
        }
        for record in block.records.iter().filter(|_| only_records) {
            if record.start_ns == at_ns {
                let (start_ns, len_ns) = (record.start_ns, record.net_ns);
                let detour = Detour { start_ns, len_ns, records: 1, ..Detour::default() };
                offer(detour, std::slice::from_ref(record));
            }
        }
    }
    Ok(found.map(|found| known(reader, &found)))
}

/// All that is known about a detour.
fn known(reader: &AnyReader, Found { lane, detour, records }: &Found) -> Longest {
    let manifest = reader.manifest();
    let after_s = detour.start_ns as f64 / 1e9;
    let known = manifest.started_unix_s > 0.0;
    let started = known.then(|| date(manifest.started_unix_s + after_s)).flatten();
    let names = outside_names(manifest, reader.trailer());
    let part = |record: &Record| {
        let source = reader.sources().get(record.source.0 as usize)?;
        Some(LongestPart {
            class: source.class,
            name: source.name.clone(),
            unit: source.unit.clone(),
            detail: source.detail.clone(),
            cause: source.cause.as_ref().map(|cause| cause.process.clone()),
            policy: source.policy.clone(),
            pids: source.pids.clone(),
            cpu: record.cpu,
            after_ns: record.start_ns.saturating_sub(detour.start_ns),
            cost_ns: record.cost_ns,
        })
    };
    let records = records.iter().filter(|r| !r.flags.contains(RecordFlags::BASELINE));
    Longest {
        at_s: after_s,
        at_utc: started.map(|[year, month, day, hour, minute, second]| {
            format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
        }),
        lane: reader.lanes().get(lane.0 as usize).map(lane_words).unwrap_or_default(),
        length_ns: detour.len_ns,
        wait: (detour.wait != Wait::None).then_some(detour.wait),
        outside_ns: detour.outside_ns,
        outside: (detour.outside_ns > 0).then(|| names[outside_kind(detour.outside_ns)]),
        parts: records.filter_map(part).collect(),
    }
}
