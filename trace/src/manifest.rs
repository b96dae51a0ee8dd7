//! Metadata of a recording: the node, the settings, the hooks, and at the end the losses and the
//! recorder's own overhead. Stored as JSON inside the file, so that fields can be added.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};

use serde::{Deserialize, Serialize};

use crate::model::Lane;

/// Written first, before any event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    pub detour_version: String,
    pub host: String,
    /// The kernel's random id of this boot: distinguishes hosts of the same name. Empty if unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    /// `uname -r`.
    pub kernel: String,
    pub arch: String,
    pub command_line: Vec<String>,
    pub job_id: Option<String>,
    /// Wall-clock time of the start, seconds since 1970.
    pub started_unix_s: f64,
    /// Time 0 of this trace on CLOCK_MONOTONIC.
    pub started_monotonic_ns: u64,
    pub mode: Mode,
    pub cpu_model: String,
    /// The hypervisor, if the node is a guest (`KVM`, ...). None on bare metal, or if it cannot be
    /// determined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<String>,
    pub topology: Topology,
    pub isolation: Isolation,
    /// The kernel's clock source (`tsc`, `kvm-clock`, ...).
    pub clocksource: String,
    /// Ticks per second (CONFIG_HZ). 0 if unknown.
    #[serde(skip_serializing_if = "is_none")]
    pub tick_hz: u32,
    /// The probe's clock (`rdtsc`, `cntvct`, `clock_gettime`).
    pub probe_clock: Option<String>,
    pub lanes: Vec<Lane>,
    pub cpus: Vec<CpuSettings>,
    pub hooks_attached: Vec<String>,
    pub hooks_missing: Vec<MissingHook>,
    /// None in merged traces and in those of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryTaken>,
    /// Everything that limited this recording compared with the request, as text.
    pub limits: Vec<String>,
    /// The nodes whose traces were merged, in the order of their lanes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<Node>,
}

/// Memory that a recording allocated: ring buffers in the kernel and locked buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryTaken {
    /// Ring buffer of each measured CPU; 0 without kernel records.
    pub ring_bytes: u64,
    /// Buffer of each probe; 0 without probes.
    pub probe_bytes: u64,
    /// Of the whole recording, including tables.
    pub total_bytes: u64,
}

impl Manifest {
    /// The node a lane belongs to; None if there is only one.
    pub fn node_of(&self, lane: u32) -> Option<&Node> {
        self.nodes.get(node_index(&self.nodes, lane)?)
    }

    /// The settings of the node a lane belongs to.
    pub fn cpus_of(&self, lane: u32) -> &[CpuSettings] {
        self.node_of(lane).map_or(&self.cpus, |node| &node.cpus)
    }
}

/// The index of a lane's node among nodes in the order of their lanes. Binary search, since a thousand
/// nodes have a hundred lanes each.
pub fn node_index(nodes: &[Node], lane: u32) -> Option<usize> {
    let index = nodes.partition_point(|node| node.first_lane <= lane).checked_sub(1)?;
    nodes.get(index)?.has(lane).then_some(index)
}

/// One of the nodes whose traces were merged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    pub host: String,
    pub kernel: String,
    pub started_unix_s: f64,
    /// When it started, on the clock of the merged trace.
    pub offset_ns: u64,
    pub first_lane: u32,
    pub lanes: u32,
    pub cpus: Vec<CpuSettings>,
    /// None if the recording was cut off.
    pub lost: Option<Lost>,
}

/// What the parts of a merged trace are: several recorders may have shared a host.
pub fn nodes_or_recordings<'a>(mut hosts: impl Iterator<Item = &'a str>) -> &'static str {
    let mut known = HashSet::new();
    if hosts.all(|host| known.insert(host)) { "node" } else { "recording" }
}

impl Node {
    pub fn has(&self, lane: u32) -> bool {
        lane.checked_sub(self.first_lane).is_some_and(|lane| lane < self.lanes)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Probe and kernel records.
    #[default]
    Attributed,
    /// The probe only.
    ProbeOnly,
    /// Kernel records of the watched CPUs only.
    KernelOnly,
    /// A program's threads, without a probe.
    Program,
    /// Imported from another tool's file.
    Imported,
}

impl Mode {
    /// Whether kernel records exist, which name the sources of noise.
    pub fn has_sources(self) -> bool {
        match self {
            Mode::Attributed | Mode::KernelOnly | Mode::Program => true,
            Mode::ProbeOnly | Mode::Imported => false,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Attributed => "probe and kernel records",
            Mode::ProbeOnly => "probe only",
            Mode::KernelOnly => "kernel records only",
            Mode::Program => "program threads",
            Mode::Imported => "imported from another tool",
        })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Topology {
    pub online: String,
    pub sockets: u32,
    pub cores: u32,
    pub numa_nodes: u32,
    /// SMT siblings as CPU lists, one per core that has more than one thread.
    pub smt_siblings: Vec<String>,
    /// The CPUs of each NUMA node. Empty if unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub numa_cpus: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Isolation {
    pub isolated: String,
    pub nohz_full: String,
    pub rcu_nocbs: Option<String>,
    pub irq_affinity: Option<String>,
    pub kernel_command_line: String,
    pub measured: String,
    pub housekeeping: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuSettings {
    pub cpu: u32,
    pub t_min_ns: f64,
    pub threshold_ns: f64,
    /// Cost of reading the clock: (nanoseconds, count), from the calibration. Empty in a merged trace.
    pub timer_histogram: Vec<(f64, u64)>,
}

impl CpuSettings {
    /// Highest noise frequency that the probe can resolve, 1/(2 t_min); None if t_min is unknown.
    pub fn resolution_hz(&self) -> Option<f64> {
        (self.t_min_ns > 0.0).then(|| 1e9 / (2.0 * self.t_min_ns))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MissingHook {
    pub hook: String,
    /// What the recording lacks without it.
    pub lost: String,
    pub why: String,
}

/// Written last. A file without one was cut off; everything before the cut is valid.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trailer {
    pub lanes: Vec<LaneTotals>,
    pub lost: Lost,
    /// None without kernel records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<Entries>,
    /// |sum of net times - wall time| / wall time, for the worst CPU. None if there was nothing to
    /// balance.
    pub closure_error: Option<f64>,
    /// That wall time: from the start of the first thread recorded on that CPU to the end of the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closure_wall_ns: Option<u64>,
    /// Steal time on the recorded CPUs while they were recorded, from /proc/stat; each CPU's value is
    /// among the counters of its lane. None if it was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steal_ns: Option<u64>,
    /// Cgroups that were throttled or waited for a CPU meanwhile, by the kernel's counters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<CgroupTotals>,
    pub overhead: Overhead,
    /// Everything that went wrong while recording, as text.
    pub remarks: Vec<String>,
    /// Why the events end before the recording did: a write failed. Lanes end with their last written
    /// events. None if everything was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_off: Option<String>,
}

/// What the kernel counted for one cgroup while a node was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CgroupTotals {
    /// In a merged trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Path from the root of the hierarchy.
    pub cgroup: String,
    /// CPU time per period. None without a quota of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_us: Option<u64>,
    /// Periods in which it ran, and those in which its quota did not last.
    pub periods: u64,
    pub throttled_periods: u64,
    /// Throttled time, summed over CPUs.
    pub throttled_ns: u64,
    /// Time in which at least one of its tasks waited for a CPU (`cpu.pressure`). None if the kernel
    /// does not count it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_ns: Option<u64>,
}

impl CgroupTotals {
    /// Time throttled or waiting.
    pub fn delayed_ns(&self) -> u64 {
        self.throttled_ns.saturating_add(self.waited_ns.unwrap_or(0))
    }

    /// At most so many, the longest delayed first.
    pub fn longest(mut all: Vec<CgroupTotals>, most: usize) -> Vec<CgroupTotals> {
        let order = |one: &CgroupTotals| {
            (std::cmp::Reverse(one.delayed_ns()), one.host.clone(), one.cgroup.clone())
        };
        all.sort_by_cached_key(order);
        all.truncate(most);
        all
    }
}

/// Name of the counter of a CPU's steal time, ns.
pub const STEAL: &str = "steal_ns";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LaneTotals {
    pub lane: u32,
    /// The interval in which this lane was watched, on the recording's clock.
    pub from_ns: u64,
    pub to_ns: u64,
    /// Loop iterations of the probe.
    pub iterations: u64,
    /// perf counters of the probe thread, and [`STEAL`] of its CPU; a missing name was not available.
    pub counters: BTreeMap<String, u64>,
    /// Time on a CPU within the window. None except for threads of a recorded program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_ns: Option<u64>,
    /// Time runnable but waiting for a CPU within the window. None as above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ns: Option<u64>,
}

fn is_none(number: &u32) -> bool {
    *number == 0
}

/// Omitted when zero, so that files of older and newer versions look alike.
fn is_zero(ns: &u64) -> bool {
    *ns == 0
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lost {
    /// Kernel records dropped because the ring buffer was full.
    pub records: u64,
    /// Detours dropped because the probe's buffer was full.
    pub detours: u64,
    /// Exits without an entry, and entries without an exit.
    pub unmatched: u64,
    /// Interruptions nested deeper than the stack.
    pub overflow: u64,
    /// Records and detours that could not be written to the file.
    pub unwritten: u64,
    /// Runs of BPF programs that the kernel skipped, on any CPU: it does not start a program on a CPU
    /// where another task or interrupt is still inside the same one.
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped: u64,
    /// Net time of `records`: what is missing from the balance.
    #[serde(skip_serializing_if = "is_zero")]
    pub records_ns: u64,
}

impl Lost {
    /// The sum of both.
    #[must_use]
    pub fn and(&self, other: &Lost) -> Lost {
        Lost {
            records: self.records.saturating_add(other.records),
            detours: self.detours.saturating_add(other.detours),
            unmatched: self.unmatched.saturating_add(other.unmatched),
            overflow: self.overflow.saturating_add(other.overflow),
            unwritten: self.unwritten.saturating_add(other.unwritten),
            skipped: self.skipped.saturating_add(other.skipped),
            records_ns: self.records_ns.saturating_add(other.records_ns),
        }
    }
}

/// What the kernel side sent, records and task names: `emitted` is `read` plus [`Lost::records`], or
/// else something was lost without being counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Entries {
    /// The kernel's own count, including what was lost.
    pub emitted: u64,
    /// The reader's count.
    pub read: u64,
    /// The same per CPU. Empty in merged traces and in those of earlier versions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<CpuEntries>,
}

/// What one CPU sent: `emitted` is `read` plus `lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuEntries {
    /// None: the sum of all CPUs that were offline when the recording began.
    pub cpu: Option<u32>,
    pub emitted: u64,
    pub read: u64,
    pub lost: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overhead {
    /// Runs of the recorder's BPF programs on measured CPUs.
    pub events: u64,
    /// Their run time, from the runs that time themselves. None without BPF.
    pub bpf_ns_total: Option<u64>,
    /// Share of the measured CPUs' time taken by BPF programs and by the recorder's own threads.
    pub cpu_pct: Option<f64>,
    /// CPU time of the threads that read and write, on any CPU.
    pub reader_cpu_ns: u64,
}
