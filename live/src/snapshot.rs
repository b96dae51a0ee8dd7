//! What there is to see at one moment: plain values, from which everything on screen follows. Kept
//! while the view is paused, as the recording goes on.

use trace::{Class, Mode, RowKey};

use crate::{kept::Kept, window::Sum};

/// Share of a second and of ten that is shown, and since the start: in the order of [`crate::Span`].
pub(crate) const SPANS: usize = 3;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    pub host: String,
    pub kernel: String,
    pub mode: Mode,
    /// CPUs that are watched, as a list.
    pub cpus: String,
    /// How far everything has come, from the start of the recording.
    pub now_ns: u64,
    /// Length of each span as far as it has passed.
    pub span_ns: [u64; SPANS],
    pub rows: Vec<RowShown>,
    pub lanes: Vec<LaneShown>,
    pub lost: Lost,
    pub cost: Cost,
    /// What makes this less than was asked for, in words.
    pub limits: Vec<String>,
    /// Events that are kept for writing, and how far they go back.
    pub kept_events: u64,
    pub kept_ns: u64,
    /// The events themselves, while the view is paused and the recording goes on.
    pub(crate) kept: Option<Kept>,
}

/// One source.
#[derive(Clone, Debug, PartialEq)]
pub struct RowShown {
    pub key: RowKey,
    pub sums: [Sum; SPANS],
    /// What is behind the name and how long, the most time first.
    pub details: Vec<(String, u64)>,
}

/// One CPU or thread.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneShown {
    pub name: String,
    /// Time taken, by class, in the order of [`Class::ALL`].
    pub taken: [[u64; Class::ALL.len()]; SPANS],
    /// Oldest first; what threads did, and everything else.
    pub strip: Vec<(Option<Cell>, Option<Cell>)>,
}

/// One column of a strip: the longest detour that began in it, and who took most of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub longest_ns: u64,
    pub class: Class,
}

/// What did not arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    pub records: u64,
    pub detours: u64,
    /// Taken by the view too late, or not at all.
    pub unseen: u64,
}

/// What watching costs, over the last second or so. None where it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Of this process's threads, the probes left out: percent of one CPU.
    pub threads_pct: Option<f64>,
    /// Of the BPF programs: percent of the watched CPUs' time.
    pub bpf_pct: Option<f64>,
    /// CPUs that probes take whole.
    pub probes: usize,
}
