//! The summary of a recording, as plain values. Field names are the keys of `detour report --json`,
//! which scripts rely on: fields may be added, but never renamed.

use std::collections::BTreeMap;

use serde::Serialize;
use trace::{
    CgroupTotals, Class, Entries, MissingHook, Mode, OutsideEvidence, ProcessKey, RowKey, Wait,
};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub host: String,
    pub kernel: String,
    pub detour_version: String,
    pub job_id: Option<String>,
    pub started_unix_s: f64,
    pub cpu_model: String,
    pub mode: Mode,
    /// Basis of `cost` and `noise_pct`.
    pub cost_basis: CostBasis,
    /// From the first watched moment of any lane to the last.
    pub duration_s: f64,
    /// Time taken as a share of the watched time of all lanes; for a program, as a share of the time
    /// its threads wanted to run.
    pub noise_pct: f64,
    /// Total time the threads of a program ran or wanted to run. Null for CPUs, and if not recorded:
    /// then percentages are of the watched time.
    pub wanted_ns_total: Option<u64>,
    pub detours: u64,
    pub detour_ns_total: u64,
    /// Base of all shares: the detours, and the records outside any detour.
    pub taken_ns_total: u64,
    /// The part of `taken_ns_total` taken by records outside any detour.
    pub beside_detours: Beside,
    /// The nodes of a merged trace; empty if there is only one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeRow>,
    /// Outlier nodes, in a source or in total noise; the furthest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outliers: Vec<Outlier>,
    pub cpus: Vec<CpuRow>,
    pub threads: Vec<ThreadRow>,
    /// Waits of a program's threads for a CPU, by kind. Empty if waits are not marked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<WaitRow>,
    /// Over all threads of a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wakeup_latency: Option<Latency>,
    /// `wakeup_latency`, here and of each thread, covers waits of this length or longer: shorter ones
    /// are not in the file, and not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wakeup_latency_from_ns: Option<u64>,
    /// Set if a program's threads wait for each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_competition: Option<SelfCompetition>,
    /// Largest cost first.
    pub sources: Vec<SourceRow>,
    /// Largest cost first: one row per process with all that it causes, and per source of the kernel
    /// itself.
    pub processes: Vec<ProcessRow>,
    /// Largest cost first.
    pub units: Vec<UnitRow>,
    pub attributed: Attributed,
    /// The same for detours of at least 1 us.
    pub attributed_over_1us: Attributed,
    pub outside_kernel: Vec<OutsideRow>,
    /// Evidence for the class of the longer times in `outside_kernel`.
    pub outside_evidence: OutsideEvidence,
    /// Cost of detours beyond the net time of their records: entry and exit.
    pub entry_exit_ns_total: u64,
    /// Cgroups that were throttled or waited for a CPU, by the kernel's counters; longest time first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<CgroupTotals>,
    pub lost: Losses,
    /// Null when unknown.
    pub entries: Option<Entries>,
    /// |sum of net times - wall time| / wall time, for the worst CPU. Null if there was nothing to balance.
    pub closure_error: Option<f64>,
    /// The wall time that it is a share of: that of one CPU, from the first thread recorded to the last.
    pub closure_wall_ns: Option<u64>,
    pub overhead: OwnCost,
    /// Detours whose length is not the sum of their parts. Zero in an intact trace.
    pub unbalanced_detours: u64,
    /// Records whose source is not in the table. Zero in an intact trace.
    pub unknown_source_records: u64,
    pub hooks_missing: Vec<MissingHook>,
    pub limits: Vec<String>,
    pub remarks: Vec<String>,
    /// Why the recording ends early. None when it is complete.
    pub truncated: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CostBasis {
    /// Cost is the time lost in detours.
    Detours,
    /// Without detours: cost is the net time of the kernel records.
    Records,
}

/// Base of shares of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SharesOf {
    /// The time of the watched CPUs.
    CpuTime,
    /// The time that a program's threads wanted to run.
    WantedTime,
}

/// Records outside any detour: below the threshold, or recorded without a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Beside {
    pub records: u64,
    pub cost_ns_total: u64,
}

/// One node of a merged trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeRow {
    pub host: String,
    pub kernel: String,
    /// Relative to the first node, by the nodes' own clocks.
    pub started_after_s: f64,
    pub lanes: u32,
    /// Watched time of its lanes.
    pub window_s: f64,
    /// As in the summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted_ns_total: Option<u64>,
    pub detours: u64,
    pub taken_ns_total: u64,
    pub noise_pct: f64,
    pub lost: Losses,
}

/// An outlier node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outlier {
    pub host: String,
    /// Null if it is about the total noise of the node.
    pub class: Option<Class>,
    pub name: Option<String>,
    pub unit: Option<String>,
    pub measure: Measure,
    pub value: f64,
    /// Of all nodes.
    pub median: f64,
    /// How many robust deviations from the median.
    pub deviations: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Occurrences per second of watched time.
    RateHz,
    /// Share of the watched time.
    NoisePct,
}

/// One measured CPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CpuRow {
    /// In a merged trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    pub cpu: u32,
    pub t_min_ns: Option<f64>,
    /// Highest frequency of noise that the probe can resolve, 1/(2 t_min).
    pub resolution_hz: Option<f64>,
    pub threshold_ns: Option<f64>,
    pub detours: u64,
    pub noise_pct: f64,
    pub detour_ns_total: u64,
    pub longest_ns: u64,
    pub longest_at_ns: u64,
    pub window_s: f64,
    /// False if the window was taken from the first and last event.
    pub window_known: bool,
    pub iterations: Option<u64>,
    /// Detours in which another thread ran. Should equal the probe's own context switches, counted by
    /// perf.
    pub thread_detours: u64,
    pub context_switches: Option<u64>,
    /// Steal time, from /proc/stat.
    pub steal_ns: Option<u64>,
    /// All perf counters of the probe's thread.
    pub counters: BTreeMap<String, u64>,
}

/// One thread of a watched program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadRow {
    /// In a merged trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    pub name: String,
    pub pid: u32,
    pub tid: u32,
    pub detours: u64,
    pub lost_ns_total: u64,
    /// Of the time it wanted to run; of its window if that is unknown.
    pub lost_pct: f64,
    pub longest_ns: u64,
    pub window_s: f64,
    pub window_known: bool,
    /// Time on a CPU. Null if not recorded, like the next two.
    pub run_ns: Option<u64>,
    /// Time runnable but not running.
    pub wait_ns: Option<u64>,
    /// Both together, plus sleep in page faults.
    pub wanted_ns: Option<u64>,
    /// By kind; empty if waits are not marked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<ThreadWait>,
    /// From wake-up or creation to running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wakeup_latency: Option<Latency>,
    /// Whether simulations use its noise for ranks.
    pub lends_noise: bool,
    pub counters: BTreeMap<String, u64>,
}

/// Waits of one kind, of all threads of a program.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WaitRow {
    pub kind: Wait,
    pub count: u64,
    pub wait_ns_total: u64,
    pub wait_ns_p50: u64,
    pub wait_ns_p99: u64,
    pub wait_ns_max: u64,
    /// Share of the time that the threads wanted to run.
    pub wanted_pct: f64,
}

/// Waits of one kind, of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadWait {
    pub kind: Wait,
    pub count: u64,
    pub wait_ns_total: u64,
}

/// Latencies from wake-up or creation to running. Waits too short to be recorded as detours are not
/// included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Latency {
    pub count: u64,
    pub ns_p50: u64,
    pub ns_p99: u64,
    pub ns_max: u64,
}

/// Self-competition: threads that wait while others of the same program run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SelfCompetition {
    /// Time threads waited for other threads of the program.
    pub wait_ns_total: u64,
    /// Share of the time that the threads wanted to run.
    pub wanted_pct: f64,
    /// Mean number of threads running or waiting meanwhile.
    pub runnable_threads: f64,
    /// CPUs that the program ran on, for at least a hundredth of its time each.
    pub cpus: usize,
    /// Where they waited for each other.
    pub contested_cpus: Vec<u32>,
}

/// One source of noise: everything of one [`RowKey`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceRow {
    pub class: Class,
    pub name: String,
    pub unit: Option<String>,
    /// Details as text: processes, wakers, callbacks.
    pub detail: Option<String>,
    /// Scheduling policies and priorities of its threads, most costly first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The recorded program itself.
    pub program: bool,
    /// Whether the recording marks it as the program; otherwise `program` is inferred.
    #[serde(skip)]
    pub known_program: bool,
    /// Interruptions: a record that continues another is not counted, and one that hits several
    /// threads is counted once.
    pub count: u64,
    /// Interruptions of threads: one that hits several counts for each. Equal to `count` for CPUs.
    pub hits: u64,
    /// Records that continue another.
    pub continued: u64,
    /// While it was watched; for several nodes, the sum of their rates.
    pub rate_hz: f64,
    pub net_ns_total: u64,
    pub cost_ns_total: u64,
    pub cost_ns_p50: u64,
    pub cost_ns_p99: u64,
    pub cost_ns_max: u64,
    /// Null unless the period test found one.
    pub period_ns: Option<u64>,
    /// Bound on the probability that a source without a period passes the test this well.
    pub period_p_value: Option<f64>,
    /// Share of `taken_ns_total`.
    pub share_pct: f64,
    /// The recorder's own threads.
    pub own: bool,
    pub per_cpu: Vec<CpuPart>,
    pub per_lane: Vec<LanePart>,
}

impl SourceRow {
    #[must_use]
    pub fn row_key(&self) -> RowKey {
        let (name, unit) = (self.name.clone(), self.unit.clone());
        RowKey { class: self.class, name, unit, own: self.own, program: self.known_program }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CpuPart {
    pub cpu: u32,
    pub count: u64,
    pub hits: u64,
    pub cost_ns_total: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LanePart {
    pub lane: u32,
    /// An event that hits several threads is counted on one of them.
    pub count: u64,
    pub hits: u64,
    pub cost_ns_total: u64,
}

/// A process, or a source of the kernel itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessRow {
    /// The name of the process, or of the source.
    pub process: String,
    /// `thread` for a process, otherwise the class of the source.
    pub class: Class,
    pub unit: Option<String>,
    /// The first few.
    pub pids: Vec<u32>,
    /// The recorder itself.
    pub own: bool,
    /// The recorded program itself.
    pub program: bool,
    /// What it consists of, most costly first; not more than 16.
    pub sources: Vec<ProcessSource>,
    /// Interruptions, see `sources[].count`.
    pub count: u64,
    pub hits: u64,
    pub cost_ns_total: u64,
    /// Share of `taken_ns_total`.
    pub share_pct: f64,
    /// What the job would gain without it; null if it was not simulated.
    pub gain_pct: Option<f64>,
    pub gain_ci95_pct: Option<[f64; 2]>,
}

impl ProcessRow {
    #[must_use]
    pub fn key(&self) -> ProcessKey {
        ProcessKey {
            class: self.class,
            process: self.process.clone(),
            unit: self.unit.clone(),
            own: self.own,
            program: self.program,
        }
    }
}

/// A source of a process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessSource {
    pub class: Class,
    pub name: String,
    pub unit: Option<String>,
    pub count: u64,
    pub cost_ns_total: u64,
}

/// All sources of one systemd unit or cgroup.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnitRow {
    pub unit: String,
    pub sources: usize,
    pub count: u64,
    pub hits: u64,
    pub cost_ns_total: u64,
    pub share_pct: f64,
}

/// How much is attributed to sources. Null if there was no detour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Attributed {
    pub time_pct: Option<f64>,
    pub count_pct: Option<f64>,
}

/// Time of detours that no kernel record explains.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutsideRow {
    /// `microarchitecture` below 1 us; otherwise, by the evidence, `hypervisor`, `smi`,
    /// `hypervisor_or_smi` or `unexplained`. `unattributed_short` and `unattributed_long` if kernel
    /// events were not recorded at all.
    pub class: String,
    pub count: u64,
    pub rate_hz: f64,
    pub cost_ns_total: u64,
    pub cost_ns_p50: u64,
    pub cost_ns_p99: u64,
    pub cost_ns_max: u64,
}

/// Null if the recording is truncated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Losses {
    pub records: Option<u64>,
    pub detours: Option<u64>,
    pub unmatched: Option<u64>,
    pub overflow: Option<u64>,
    pub unwritten: Option<u64>,
    /// BPF runs that the kernel skipped because the CPU was already inside the same program.
    pub skipped: Option<u64>,
    /// Net time of `records`, which the balance lacks.
    pub records_ns: Option<u64>,
}

impl From<trace::Lost> for Losses {
    fn from(lost: trace::Lost) -> Losses {
        Losses {
            records: Some(lost.records),
            detours: Some(lost.detours),
            unmatched: Some(lost.unmatched),
            overflow: Some(lost.overflow),
            unwritten: Some(lost.unwritten),
            skipped: Some(lost.skipped),
            records_ns: Some(lost.records_ns),
        }
    }
}

/// Overhead of the recording itself. Null if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct OwnCost {
    pub events: Option<u64>,
    pub bpf_ns_total: Option<u64>,
    pub cpu_pct: Option<f64>,
    pub reader_cpu_ns: Option<u64>,
}
