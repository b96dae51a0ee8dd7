//! Converts imported runs to a trace: one lane per run, all of its time unattributed.

use std::collections::HashSet;

use super::{ImportError, ImportedRun};
use trace::{
    BLOCK_EVENTS, Block, CpuSettings, Detour, Lane, LaneId, LaneTotals, Manifest, Mode, Source,
    Trailer,
};

/// The parts of a trace, ready for a [`trace::Writer`].
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedTrace {
    pub manifest: Manifest,
    pub blocks: Vec<Block>,
    pub trailer: Trailer,
    /// Empty: nothing is attributed; all time is the detours' `outside_ns`.
    pub sources: Vec<Source>,
}

pub fn imported_to_trace(run: &ImportedRun) -> Result<ImportedTrace, ImportError> {
    runs_to_trace(std::slice::from_ref(run))
}

/// Each run becomes a lane.
pub fn runs_to_trace(runs: &[ImportedRun]) -> Result<ImportedTrace, ImportError> {
    if runs.iter().any(|run| run.detours.is_empty() && !run.distribution.is_empty()) {
        return Err(ImportError::NoTimes);
    }
    let word = |keys: &[&str]| {
        let mut found =
            runs.iter().flat_map(|run| keys.iter().filter_map(|key| run.header.get(*key)));
        found.next().cloned().unwrap_or_default()
    };
    let mut manifest = Manifest {
        detour_version: env!("CARGO_PKG_VERSION").to_owned(),
        host: word(&["Nodename", "host"]),
        kernel: word(&["Release", "kernel"]),
        mode: Mode::Imported,
        limits: vec!["imported: times of detours only, no sources".to_owned()],
        ..Manifest::default()
    };
    let mut trailer = Trailer::default();
    let mut blocks = Vec::new();
    for ((id, run), cpu) in (0..).zip(runs).zip(cpus(runs)) {
        manifest.lanes.push(Lane::Cpu { cpu });
        manifest.cpus.push(CpuSettings {
            cpu,
            t_min_ns: run.t_min_ns.unwrap_or(0.0),
            threshold_ns: run.threshold_ns.unwrap_or(0.0),
            timer_histogram: Vec::new(),
        });
        let remarks = run.remarks.iter().map(|remark| format!("run {id}: {remark}"));
        manifest.limits.extend(remarks);
        let mut end = 0;
        for part in run.detours.chunks(BLOCK_EVENTS) {
            let detours = part.iter().map(|&(start, length)| detour(start, length, &mut end));
            let detours = detours.collect();
            blocks.push(Block { lane: LaneId(id), detours, records: Vec::new() });
        }
        trailer.lanes.push(LaneTotals {
            lane: id,
            from_ns: run.from_ns.round() as u64,
            to_ns: ((run.from_ns + run.span_ns).round() as u64).max(end),
            ..LaneTotals::default()
        });
    }
    Ok(ImportedTrace { manifest, blocks, trailer, sources: Vec::new() })
}

/// The CPU of each run. Noise files do not say where they were measured, so runs become CPU 0 and up;
/// our own exports name the CPU.
fn cpus(runs: &[ImportedRun]) -> Vec<u32> {
    let said = |run: &ImportedRun| -> Option<u32> {
        let lane = run.header.get("Lane").or_else(|| run.header.get("lane"))?;
        lane.strip_prefix("cpu")?.parse().ok()
    };
    let all: Option<Vec<u32>> = runs.iter().map(said).collect();
    let differ = |cpus: &Vec<u32>| cpus.iter().collect::<HashSet<_>>().len() == cpus.len();
    all.filter(differ).unwrap_or_else(|| (0..runs.len() as u32).collect())
}

/// Rounds to the trace's nanoseconds. Rounding must not make adjacent detours overlap, so a start is
/// moved up to the previous end if necessary.
fn detour(start: f64, length: f64, end: &mut u64) -> Detour {
    let start_ns = (start.round() as u64).max(*end);
    let len_ns = length.round() as u64;
    *end = start_ns.saturating_add(len_ns);
    Detour { start_ns, len_ns, outside_ns: len_ns, records: 0, ..Detour::default() }
}
