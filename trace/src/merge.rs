//! The traces of several nodes as one: lanes side by side, one table of sources, one clock.
//!
//! Times are moved by how much later than the first a node started, by the nodes' own wall clocks:
//! lanes of different nodes are comparable as far as these clocks agree. Within a node nothing
//! changes. Process ids are left out, since they mean nothing on another node.

use std::collections::{BTreeSet, HashMap};
use std::io::{Read, Seek, Write};

use thiserror::Error;

use crate::error::TraceError;
use crate::manifest::{
    CpuSettings, Entries, Isolation, LaneTotals, Lost, Manifest, Mode, Node, Overhead, Trailer,
};
use crate::model::{LaneId, Source, SourceId};
use crate::reader::Reader;
use crate::writer::Writer;

#[derive(Debug, Error)]
pub enum MergeError {
    #[error("{file} is several nodes' trace already: merge the traces of single nodes")]
    Merged { file: String },
    #[error(
        "{one} and {other} say neither whose nor when they are: they cannot be told apart as nodes"
    )]
    Nameless { one: String, other: String },
    #[error("{one} and {other} are both of {host}, started at the same moment: leave one out")]
    Twice { one: String, other: String, host: String },
    #[error("{one} and {other} are of different jobs, {one_job} and {other_job}")]
    Jobs { one: String, other: String, one_job: String, other_job: String },
    #[error(
        "{one} and {other} were recorded in different ways ({one_mode} and {other_mode}): their \
         costs cannot be compared"
    )]
    Modes { one: String, other: String, one_mode: Mode, other_mode: Mode },
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// Joins the traces of nodes into the writer that `create` makes for their common manifest.
pub fn merge<R: Read + Seek, W: Write>(
    traces: &[Reader<R>],
    create: impl FnOnce(&Manifest) -> Result<Writer<W>, TraceError>,
) -> Result<Manifest, MergeError> {
    check(traces)?;
    let manifest = manifest(traces);
    let mut writer = create(&manifest)?;
    let numbers = sources(traces, &mut writer)?;
    for ((trace, node), numbers) in traces.iter().zip(&manifest.nodes).zip(&numbers) {
        for block in trace.blocks() {
            let mut block = block?;
            block.lane = LaneId(block.lane.0.saturating_add(node.first_lane));
            for detour in &mut block.detours {
                detour.start_ns = detour.start_ns.saturating_add(node.offset_ns);
            }
            for record in &mut block.records {
                record.start_ns = record.start_ns.saturating_add(node.offset_ns);
                // The reader has a row for every source of every block.
                let number = numbers.get(record.source.0 as usize);
                record.source = number.copied().unwrap_or(record.source);
            }
            writer.write_block(&block)?;
        }
    }
    writer.finish(trailer(traces, &manifest.nodes))?;
    Ok(manifest)
}

fn check<R>(traces: &[Reader<R>]) -> Result<(), MergeError> {
    let mut seen: HashMap<(&str, u64, u64), &Reader<R>> = HashMap::new();
    for trace in traces {
        let (this, first) = (trace.manifest(), &traces[0]);
        let (one, other) = (first.name().to_owned(), trace.name().to_owned());
        if !this.nodes.is_empty() {
            return Err(MergeError::Merged { file: other });
        }
        if first.manifest().mode != this.mode {
            let (one_mode, other_mode) = (first.manifest().mode, this.mode);
            return Err(MergeError::Modes { one, other, one_mode, other_mode });
        }
        if let (Some(one_job), Some(other_job)) = (&first.manifest().job_id, &this.job_id)
            && one_job != other_job
        {
            let (one_job, other_job) = (one_job.clone(), other_job.clone());
            return Err(MergeError::Jobs { one, other, one_job, other_job });
        }
        let begin = (this.host.as_str(), this.started_unix_s.to_bits(), this.started_monotonic_ns);
        if let Some(before) = seen.insert(begin, trace) {
            let (one, host) = (before.name().to_owned(), this.host.clone());
            if host.is_empty() {
                return Err(MergeError::Nameless { one, other });
            }
            return Err(MergeError::Twice { one, other, host });
        }
    }
    Ok(())
}

fn manifest<R>(traces: &[Reader<R>]) -> Manifest {
    let all = || traces.iter().map(Reader::manifest);
    let begin = all().map(|m| m.started_unix_s).fold(f64::INFINITY, f64::min);
    // Other tools' files do not say when they began.
    let known = begin > 0.0;
    let mut nodes = Vec::new();
    let mut lanes = Vec::new();
    for trace in traces {
        let this = trace.manifest();
        let trailer = trace.trailer();
        nodes.push(Node {
            host: this.host.clone(),
            kernel: this.kernel.clone(),
            started_unix_s: this.started_unix_s,
            offset_ns: match known {
                // Saturates, whatever a damaged file says.
                true => ((this.started_unix_s - begin) * 1e9).round() as u64,
                false => 0,
            },
            first_lane: lanes.len() as u32,
            lanes: trace.lanes().len() as u32,
            cpus: this.cpus.iter().map(settings).collect(),
            lost: trailer.map(|trailer| trailer.lost),
        });
        lanes.extend(trace.lanes().iter().cloned());
    }
    let same = |of: fn(&Manifest) -> &str| {
        let values: BTreeSet<&str> = all().map(of).collect();
        values.into_iter().collect::<Vec<_>>().join(", ")
    };
    let isolations: Vec<&Isolation> = all().map(|m| &m.isolation).collect();
    let isolation = match isolations.windows(2).all(|pair| pair[0] == pair[1]) {
        true => isolations.first().copied().cloned().unwrap_or_default(),
        false => Isolation::default(),
    };
    let first = traces.first().map(|trace| trace.manifest().clone()).unwrap_or_default();
    let mut hooks_missing = Vec::new();
    for hook in all().flat_map(|m| &m.hooks_missing) {
        if !hooks_missing.contains(hook) {
            hooks_missing.push(hook.clone());
        }
    }
    let everywhere = |hook: &&String| all().all(|m| m.hooks_attached.contains(hook));
    Manifest {
        host: hosts(&nodes),
        kernel: same(|m| &m.kernel),
        cpu_model: same(|m| &m.cpu_model),
        job_id: all().find_map(|m| m.job_id.clone()),
        started_unix_s: if begin.is_finite() { begin } else { 0.0 },
        hooks_attached: first.hooks_attached.iter().filter(everywhere).cloned().collect(),
        hooks_missing,
        limits: said(traces, |trace| trace.manifest().limits.clone()),
        isolation,
        lanes,
        // Each node has its own.
        cpus: Vec::new(),
        nodes,
        ..first
    }
}

/// Without the calibration's histogram: those of thirty nodes are larger than a manifest may be, and
/// each node's own trace keeps its own.
fn settings(of: &CpuSettings) -> CpuSettings {
    let &CpuSettings { cpu, t_min_ns, threshold_ns, timer_histogram: _ } = of;
    CpuSettings { cpu, t_min_ns, threshold_ns, timer_histogram: Vec::new() }
}

/// `a, b, c`, or `a to z (64 nodes)`.
fn hosts(nodes: &[Node]) -> String {
    const NAMED: usize = 4;
    let names: Vec<&str> = nodes.iter().map(|node| node.host.as_str()).collect();
    match names.as_slice() {
        [first, .., last] if names.len() > NAMED => {
            format!("{first} to {last} ({} nodes)", names.len())
        }
        _ => names.join(", "),
    }
}

/// What nodes say in words: what all of them say once, everything else with who says it.
fn said<R>(traces: &[Reader<R>], of: impl Fn(&Reader<R>) -> Vec<String>) -> Vec<String> {
    let each: Vec<Vec<String>> = traces.iter().map(of).collect();
    let by_all = |line: &String| each.iter().all(|lines| lines.contains(line));
    let mut words: Vec<String> = Vec::new();
    for (trace, lines) in traces.iter().zip(&each) {
        for line in lines {
            let line = match by_all(line) {
                true => line.clone(),
                false => format!("{}: {line}", trace.manifest().host),
            };
            if !words.contains(&line) {
                words.push(line);
            }
        }
    }
    words
}

/// Writes one table of sources; returns each trace's numbers in it.
fn sources<R, W: Write>(
    traces: &[Reader<R>],
    writer: &mut Writer<W>,
) -> Result<Vec<Vec<SourceId>>, TraceError> {
    let mut known: HashMap<Source, SourceId> = HashMap::new();
    let mut numbers = Vec::new();
    for trace in traces {
        let mut of_trace = Vec::new();
        for source in trace.sources() {
            let source = Source { pids: Vec::new(), ..source.clone() };
            let next = SourceId(known.len() as u32);
            let id = *known.entry(source.clone()).or_insert(next);
            if id == next {
                writer.add_source(id, &source)?;
            }
            of_trace.push(id);
        }
        numbers.push(of_trace);
    }
    Ok(numbers)
}

fn trailer<R>(traces: &[Reader<R>], nodes: &[Node]) -> Trailer {
    let mut lanes = Vec::new();
    let mut lost = Lost::default();
    for (trace, node) in traces.iter().zip(nodes) {
        let Some(trailer) = trace.trailer() else { continue };
        lanes.extend(trailer.lanes.iter().map(|totals| LaneTotals {
            lane: totals.lane.saturating_add(node.first_lane),
            from_ns: totals.from_ns.saturating_add(node.offset_ns),
            to_ns: totals.to_ns.saturating_add(node.offset_ns),
            ..totals.clone()
        }));
        lost = lost.and(&trailer.lost);
    }
    let trailers = || traces.iter().filter_map(Reader::trailer);
    let overheads: Vec<&Overhead> = trailers().map(|trailer| &trailer.overhead).collect();
    let shares: Option<Vec<f64>> = overheads.iter().map(|overhead| overhead.cpu_pct).collect();
    let shares = shares.filter(|shares| !shares.is_empty());
    let runs: Option<Vec<u64>> = overheads.iter().map(|overhead| overhead.bpf_ns_total).collect();
    // Where one node cannot say, nobody can for all.
    let entries: Option<Vec<Entries>> = trailers().map(|trailer| trailer.entries).collect();
    let entries = entries.filter(|all| !all.is_empty()).map(|all| Entries {
        emitted: all.iter().map(|entries| entries.emitted).fold(0, u64::saturating_add),
        read: all.iter().map(|entries| entries.read).fold(0, u64::saturating_add),
    });
    let sum = |of: fn(&Overhead) -> u64| {
        overheads.iter().map(|overhead| of(overhead)).fold(0, u64::saturating_add)
    };
    Trailer {
        lanes,
        lost,
        entries,
        closure_error: trailers().filter_map(|trailer| trailer.closure_error).reduce(f64::max),
        overhead: Overhead {
            events: sum(|overhead| overhead.events),
            bpf_ns_total: runs.map(|runs| runs.into_iter().fold(0, u64::saturating_add)),
            cpu_pct: shares.map(|shares| shares.iter().sum::<f64>() / shares.len() as f64),
            reader_cpu_ns: sum(|overhead| overhead.reader_cpu_ns),
        },
        remarks: said(traces, remarks),
    }
}

/// What happened while recording, and what is missing of the file.
fn remarks<R>(trace: &Reader<R>) -> Vec<String> {
    let mut remarks = trace.trailer().map(|trailer| trailer.remarks.clone()).unwrap_or_default();
    if let Some(why) = trace.truncated() {
        remarks.push(format!("its recording is cut off, losses unknown: {why}"));
    }
    if let [first, ..] = trace.damaged_blocks().as_slice() {
        let count = trace.damaged_blocks().len();
        remarks.push(format!("{count} damaged blocks were left out; the first: {}", first.why));
    }
    remarks
}
