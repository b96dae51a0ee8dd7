//! The state shown at one moment, as plain values. Kept while the view is paused, since the recording
//! continues.

use analysis::GroupKey;
use trace::{Class, Mode};

use crate::{kept::Kept, window::Sum};

/// Number of spans: 1 s, 10 s and since start, in the order of [`crate::Span`].
pub(crate) const SPANS: usize = 3;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    pub host: String,
    pub kernel: String,
    pub mode: Mode,
    /// List of watched CPUs.
    pub cpus: String,
    /// Time since the start of the recording up to which events are complete.
    pub now_ns: u64,
    /// Elapsed length of each span.
    pub span_ns: [u64; SPANS],
    pub sources: Vec<SourceShown>,
    pub lanes: Vec<LaneShown>,
    pub lost: Lost,
    pub cost: Cost,
    /// Limitations of the recording, as text.
    pub limits: Vec<String>,
    /// Number of events kept for writing, and how far they go back.
    pub kept_events: u64,
    pub kept_ns: u64,
    /// The events themselves, while the view is paused.
    pub(crate) kept: Option<Kept>,
}

/// What one source took on behalf of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceShown {
    /// Its row in a table of sources.
    pub source: GroupKey,
    /// Its row in a table of processes.
    pub process: GroupKey,
    pub sums: [Sum; SPANS],
    /// Details of the source with their time, largest first.
    pub details: Vec<(String, u64)>,
}

/// One CPU or thread.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneShown {
    pub name: String,
    /// Its row in a table of CPUs.
    pub key: GroupKey,
    /// All classes together.
    pub sums: [Sum; SPANS],
    /// Time taken, by class, in the order of [`Class::ALL`].
    pub taken: [[u64; Class::ALL.len()]; SPANS],
    /// Oldest first; threads, and everything else.
    pub strip: Vec<(Option<Longest>, Option<Longest>)>,
}

/// The longest detour that started in a column of a strip, and its main class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Longest {
    pub longest_ns: u64,
    pub class: Class,
}

/// Lost events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    pub records: u64,
    pub detours: u64,
    /// Not delivered to the view in time.
    pub unseen: u64,
}

/// Cost of watching over the last second or so. None if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Of this process's threads, without the probes: percent of one CPU.
    pub threads_pct: Option<f64>,
    /// Of the BPF programs: percent of the watched CPUs' time.
    pub bpf_pct: Option<f64>,
    /// Number of CPUs occupied by probes.
    pub probes: usize,
}
