//! Merges the traces of several nodes into one: lanes side by side, one source table, one clock.
//!
//! Times are shifted by how much later than the first a node started, according to the nodes' wall
//! clocks: lanes of different nodes are comparable as far as these clocks agree. Within a node nothing
//! changes. Process ids are omitted, since they mean nothing on another node.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{Read, Seek, Write};

use thiserror::Error;

use crate::error::TraceError;
use crate::manifest::{
    CgroupTotals, CpuSettings, Entries, Isolation, LaneTotals, Lost, Manifest, Mode, Node,
    Overhead, Trailer,
};
use crate::merge_check::{self, NodeFacts, NodesError};
use crate::model::{Lane, LaneId, Source, SourceId};
use crate::reader::{Damage, Reader};
use crate::writer::Writer;

#[derive(Debug, Error)]
pub enum MergeError {
    #[error("{file} is already a merged trace: merge traces of single nodes")]
    Merged { file: String },
    #[error("{one} and {other} belong to different jobs ({one_job} and {other_job})")]
    Jobs { one: String, other: String, one_job: String, other_job: String },
    #[error(
        "{one} and {other} were recorded in different modes ({one_mode}; {other_mode}): their \
         costs are not comparable"
    )]
    Modes { one: String, other: String, one_mode: Mode, other_mode: Mode },
    #[error("{file} changed during the merge: wait until its recording has ended")]
    Changed { file: String },
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// The traces of a job's nodes, read once for their metadata. Each is open only while it is read: a job
/// may have more nodes than a process may have open files.
pub struct Merge<'a, I> {
    inputs: &'a [I],
    parts: Vec<Part>,
    manifest: Manifest,
}

/// What is kept of a trace while it is closed.
struct Part {
    name: String,
    manifest: Manifest,
    lanes: u32,
    trailer: Option<Trailer>,
    /// The last time at which it is known to have been recording.
    ends_ns: u64,
    truncated: Option<String>,
    /// Complete once all blocks have been read.
    damage: Vec<Damage>,
}

impl<'a, I> Merge<'a, I> {
    /// Reads everything but the events of all traces, and checks that they belong together.
    pub fn read<R: Read + Seek>(
        inputs: &'a [I],
        open: impl Fn(&I) -> Result<Reader<R>, TraceError>,
    ) -> Result<Merge<'a, I>, MergeError> {
        let mut parts = Vec::new();
        let mut lanes = Vec::new();
        for input in inputs {
            let trace = open(input)?;
            lanes.extend_from_slice(trace.lanes());
            parts.push(Part::of(&trace));
        }
        check(&parts)?;
        let manifest = manifest(&parts, lanes);
        Ok(Merge { inputs, parts, manifest })
    }

    /// The manifest of all nodes; create the writer for [`Merge::write`] with it.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Checks that they can be nodes of one job: all recorded at the same time, no CPU or thread of a
    /// host twice.
    ///
    /// # Errors
    /// The first pair that cannot, and why.
    pub fn check_nodes(&self) -> Result<(), NodesError> {
        let facts = self.parts.iter().zip(&self.manifest.nodes).map(|(part, node)| {
            let (first, from) = (node.first_lane as usize, part.manifest.started_unix_s);
            NodeFacts {
                name: &part.name,
                host: &part.manifest.host,
                boot_id: &part.manifest.boot_id,
                started_monotonic_ns: part.manifest.started_monotonic_ns,
                window: (from > 0.0).then(|| (from, from + part.ends_ns as f64 / 1e9)),
                lanes: &self.manifest.lanes[first..first + node.lanes as usize],
            }
        });
        merge_check::check(&facts.collect::<Vec<_>>())
    }

    /// The nodes whose recordings end early, as if the node was switched off: host, how long it was
    /// recorded in ns, and why.
    pub fn cut_off(&self) -> impl Iterator<Item = (&str, u64, &str)> {
        self.parts.iter().filter_map(|part| {
            Some((part.manifest.host.as_str(), part.ends_ns, part.truncated.as_deref()?))
        })
    }

    /// Merges the traces, one after the other.
    pub fn write<R: Read + Seek, W: Write>(
        mut self,
        open: impl Fn(&I) -> Result<Reader<R>, TraceError>,
        mut writer: Writer<W>,
    ) -> Result<Manifest, MergeError> {
        let mut sources = Sources::default();
        for ((input, part), node) in
            self.inputs.iter().zip(&mut self.parts).zip(&self.manifest.nodes)
        {
            let trace = open(input)?;
            if !part.still_is(&trace) {
                return Err(MergeError::Changed { file: part.name.clone() });
            }
            let numbers = sources.add(trace.sources(), &mut writer)?;
            for block in trace.blocks() {
                let mut block = block?;
                block.lane = LaneId(block.lane.0.saturating_add(node.first_lane));
                for detour in &mut block.detours {
                    detour.start_ns = detour.start_ns.saturating_add(node.offset_ns);
                }
                for record in &mut block.records {
                    record.start_ns = record.start_ns.saturating_add(node.offset_ns);
                    // The reader guarantees a row for every source of every block.
                    let number = numbers.get(record.source.0 as usize);
                    record.source = number.copied().unwrap_or(record.source);
                }
                writer.write_block(&block)?;
            }
            part.damage = trace.damaged_blocks();
        }
        writer.finish(trailer(&self.parts, &self.manifest.nodes))?;
        Ok(self.manifest)
    }
}

impl Part {
    fn of<R>(trace: &Reader<R>) -> Part {
        let mut manifest = trace.manifest().clone();
        manifest.cpus = manifest.cpus.iter().map(settings).collect();
        manifest.lanes = Vec::new();
        Part {
            name: trace.name().to_owned(),
            manifest,
            lanes: trace.lanes().len() as u32,
            trailer: trace.trailer().cloned(),
            ends_ns: ends_ns(trace),
            truncated: trace.truncated().map(str::to_owned),
            damage: Vec::new(),
        }
    }

    /// Whether the reopened file is the same recording with the same lanes: a recorder may still be
    /// writing to it.
    fn still_is<R>(&self, trace: &Reader<R>) -> bool {
        let (then, now) = (&self.manifest, trace.manifest());
        self.lanes == trace.lanes().len() as u32
            && then.host == now.host
            && then.started_unix_s.to_bits() == now.started_unix_s.to_bits()
            && then.started_monotonic_ns == now.started_monotonic_ns
    }
}

/// The end of the lanes' windows; a recording that was cut off lasted at least until its last event.
fn ends_ns<R>(trace: &Reader<R>) -> u64 {
    let watched = trace.trailer().and_then(|t| t.lanes.iter().map(|lane| lane.to_ns).max());
    let last = || trace.block_infos().map(|block| block.last_ns).max();
    watched.or_else(last).unwrap_or(0)
}

fn check(parts: &[Part]) -> Result<(), MergeError> {
    for part in parts {
        let (this, first) = (&part.manifest, &parts[0]);
        let (one, other) = (first.name.clone(), part.name.clone());
        if !this.nodes.is_empty() {
            return Err(MergeError::Merged { file: other });
        }
        if first.manifest.mode != this.mode {
            let (one_mode, other_mode) = (first.manifest.mode, this.mode);
            return Err(MergeError::Modes { one, other, one_mode, other_mode });
        }
        if let (Some(one_job), Some(other_job)) = (&first.manifest.job_id, &this.job_id)
            && one_job != other_job
        {
            let (one_job, other_job) = (one_job.clone(), other_job.clone());
            return Err(MergeError::Jobs { one, other, one_job, other_job });
        }
    }
    Ok(())
}

fn manifest(parts: &[Part], lanes: Vec<Lane>) -> Manifest {
    let all = || parts.iter().map(|part| &part.manifest);
    let begin = all().map(|m| m.started_unix_s).fold(f64::INFINITY, f64::min);
    // Other tools' files do not say when they began.
    let known = begin > 0.0;
    let mut nodes = Vec::new();
    let mut first_lane = 0;
    for part in parts {
        let this = &part.manifest;
        nodes.push(Node {
            host: this.host.clone(),
            kernel: this.kernel.clone(),
            started_unix_s: this.started_unix_s,
            offset_ns: match known {
                // Saturates on the values of a damaged file.
                true => ((this.started_unix_s - begin) * 1e9).round() as u64,
                false => 0,
            },
            first_lane,
            lanes: part.lanes,
            cpus: this.cpus.clone(),
            lost: part.trailer.as_ref().map(|trailer| trailer.lost),
        });
        first_lane += part.lanes;
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
    let first = parts.first().map(|part| part.manifest.clone()).unwrap_or_default();
    let mut known_hooks = HashSet::new();
    let hooks_missing =
        all().flat_map(|m| &m.hooks_missing).filter(|hook| known_hooks.insert(*hook));
    let everywhere = |hook: &&String| all().all(|m| m.hooks_attached.contains(hook));
    Manifest {
        host: hosts(&nodes),
        boot_id: String::new(),
        kernel: same(|m| &m.kernel),
        cpu_model: same(|m| &m.cpu_model),
        hypervisor: all().find_map(|m| m.hypervisor.clone()),
        job_id: all().find_map(|m| m.job_id.clone()),
        started_unix_s: if begin.is_finite() { begin } else { 0.0 },
        hooks_attached: first.hooks_attached.iter().filter(everywhere).cloned().collect(),
        hooks_missing: hooks_missing.cloned().collect(),
        limits: limits(parts),
        isolation,
        lanes,
        // Each node has its own.
        cpus: Vec::new(),
        memory: None,
        nodes,
        ..first
    }
}

/// Without the calibration histogram: those of thirty nodes exceed the size limit of a manifest, and
/// each node's own trace keeps its own.
fn settings(of: &CpuSettings) -> CpuSettings {
    let &CpuSettings { cpu, t_min_ns, threshold_ns, timer_histogram: _ } = of;
    CpuSettings { cpu, t_min_ns, threshold_ns, timer_histogram: Vec::new() }
}

/// `a, b, c`, or `a to z (64 nodes)`.
fn hosts(nodes: &[Node]) -> String {
    const NAMED: usize = 4;
    let mut names: Vec<&str> = nodes.iter().map(|node| node.host.as_str()).collect();
    let mut known = HashSet::new();
    names.retain(|name| known.insert(*name));
    match names.as_slice() {
        [first, .., last] if names.len() > NAMED => {
            format!("{first} to {last} ({} nodes)", names.len())
        }
        _ => names.join(", "),
    }
}

fn limits(parts: &[Part]) -> Vec<String> {
    let mut limits = said(parts, |part| part.manifest.limits.clone());
    let mut machines: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for manifest in parts.iter().map(|part| &part.manifest).filter(|m| !m.boot_id.is_empty()) {
        machines.entry(&manifest.boot_id).or_default().insert(&manifest.host);
    }
    for hosts in machines.into_values().filter(|hosts| hosts.len() > 1) {
        let hosts: Vec<&str> = hosts.into_iter().collect();
        limits.push(format!("{} share one machine (the same boot id)", hosts.join(", ")));
    }
    limits
}

/// The nodes' remarks: those common to all nodes once, every other with its host.
fn said(parts: &[Part], of: impl Fn(&Part) -> Vec<String>) -> Vec<String> {
    let each: Vec<Vec<String>> = parts.iter().map(of).collect();
    let mut nodes_saying: HashMap<&str, usize> = HashMap::new();
    for lines in &each {
        for line in lines.iter().collect::<HashSet<_>>() {
            *nodes_saying.entry(line).or_default() += 1;
        }
    }
    let mut words: Vec<String> = Vec::new();
    let mut known: HashSet<String> = HashSet::new();
    for (part, lines) in parts.iter().zip(&each) {
        for line in lines {
            let line = match nodes_saying.get(line.as_str()) {
                Some(&nodes) if nodes == parts.len() => line.clone(),
                _ => format!("{}: {line}", part.manifest.host),
            };
            if known.insert(line.clone()) {
                words.push(line);
            }
        }
    }
    words
}

/// A common source table for all traces.
#[derive(Default)]
struct Sources {
    known: HashMap<Source, SourceId>,
}

impl Sources {
    /// Writes the new rows; returns the common numbers of the trace's sources.
    fn add<W: Write>(
        &mut self,
        of_trace: &[Source],
        writer: &mut Writer<W>,
    ) -> Result<Vec<SourceId>, TraceError> {
        let mut numbers = Vec::with_capacity(of_trace.len());
        for source in of_trace {
            let source = Source { pids: Vec::new(), ..source.clone() };
            let next = SourceId(self.known.len() as u32);
            let id = *self.known.entry(source.clone()).or_insert(next);
            if id == next {
                writer.add_source(id, &source)?;
            }
            numbers.push(id);
        }
        Ok(numbers)
    }
}

fn trailer(parts: &[Part], nodes: &[Node]) -> Trailer {
    let mut lanes = Vec::new();
    let mut lost = Lost::default();
    for (part, node) in parts.iter().zip(nodes) {
        let Some(trailer) = &part.trailer else { continue };
        lanes.extend(trailer.lanes.iter().map(|totals| LaneTotals {
            lane: totals.lane.saturating_add(node.first_lane),
            from_ns: totals.from_ns.saturating_add(node.offset_ns),
            to_ns: totals.to_ns.saturating_add(node.offset_ns),
            ..totals.clone()
        }));
        lost = lost.and(&trailer.lost);
    }
    let trailers = || parts.iter().filter_map(|part| part.trailer.as_ref());
    let overheads: Vec<&Overhead> = trailers().map(|trailer| &trailer.overhead).collect();
    let shares: Option<Vec<f64>> = overheads.iter().map(|overhead| overhead.cpu_pct).collect();
    let shares = shares.filter(|shares| !shares.is_empty());
    let runs: Option<Vec<u64>> = overheads.iter().map(|overhead| overhead.bpf_ns_total).collect();
    // If one node does not know, there is no total.
    let entries: Option<Vec<Entries>> = trailers().map(|trailer| trailer.entries.clone()).collect();
    let entries = entries.filter(|all| !all.is_empty()).map(|all| Entries {
        emitted: all.iter().map(|entries| entries.emitted).fold(0, u64::saturating_add),
        read: all.iter().map(|entries| entries.read).fold(0, u64::saturating_add),
        cpus: Vec::new(),
    });
    let sum = |of: fn(&Overhead) -> u64| {
        overheads.iter().map(|overhead| of(overhead)).fold(0, u64::saturating_add)
    };
    let error = |trailer: &&Trailer| trailer.closure_error.unwrap_or(-1.0);
    let worst = trailers().max_by(|a, b| error(a).total_cmp(&error(b)));
    Trailer {
        lanes,
        lost,
        entries,
        closure_error: worst.and_then(|trailer| trailer.closure_error),
        closure_wall_ns: worst.and_then(|trailer| trailer.closure_wall_ns),
        steal_ns: trailers().filter_map(|trailer| trailer.steal_ns).reduce(u64::saturating_add),
        cgroups: CgroupTotals::longest(parts.iter().flat_map(cgroups).collect(), MAX_CGROUPS),
        overhead: Overhead {
            events: sum(|overhead| overhead.events),
            bpf_ns_total: runs.map(|runs| runs.into_iter().fold(0, u64::saturating_add)),
            cpu_pct: shares.map(|shares| shares.iter().sum::<f64>() / shares.len() as f64),
            reader_cpu_ns: sum(|overhead| overhead.reader_cpu_ns),
        },
        remarks: said(parts, remarks),
        cut_off: parts.iter().find_map(|part| {
            let why = part.trailer.as_ref()?.cut_off.as_ref()?;
            Some(format!("{}: {why}", part.manifest.host))
        }),
    }
}

/// Cgroups of a merged trace: the trailer of 2,000 nodes has to fit into a block.
const MAX_CGROUPS: usize = 1_000;

/// The cgroups of a node, with its name.
fn cgroups(part: &Part) -> impl Iterator<Item = CgroupTotals> {
    let all = part.trailer.iter().flat_map(|trailer| &trailer.cgroups);
    all.map(|cgroup| {
        let host = cgroup.host.clone().unwrap_or_else(|| part.manifest.host.clone());
        CgroupTotals { host: Some(host), ..cgroup.clone() }
    })
}

/// What happened while recording, and what is missing from the file.
fn remarks(part: &Part) -> Vec<String> {
    let mut remarks = part.trailer.as_ref().map(|t| t.remarks.clone()).unwrap_or_default();
    if let Some(why) = &part.truncated {
        remarks.push(format!("the recording is cut off, losses unknown: {why}"));
    }
    if let [first, ..] = part.damage.as_slice() {
        let count = part.damage.len();
        remarks.push(format!("{count} damaged blocks skipped; first: {}", first.why));
    }
    remarks
}
