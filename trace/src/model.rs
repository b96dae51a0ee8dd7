//! The contents of a recording: sources, lanes, detours and the kernel records inside them.
//!
//! All times are nanoseconds on one clock (CLOCK_MONOTONIC of the recorded node) from the start of the
//! recording. The types are plain values; the format modules define the file layout.

use serde::{Deserialize, Serialize};

/// What took the time. The order is part of the file format: append only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Class {
    Timer = 0,
    Irq = 1,
    Ipi = 2,
    Softirq = 3,
    Nmi = 4,
    Thread = 5,
    Kthread = 6,
    PageFault = 7,
    Idle = 8,
    OutsideKernel = 9,
    /// The thread was runnable, but its cgroup had used up its CPU quota.
    Throttled = 10,
}

impl Class {
    pub const ALL: [Class; 11] = [
        Class::Timer,
        Class::Irq,
        Class::Ipi,
        Class::Softirq,
        Class::Nmi,
        Class::Thread,
        Class::Kthread,
        Class::PageFault,
        Class::Idle,
        Class::OutsideKernel,
        Class::Throttled,
    ];

    /// The name used in the command line, JSON and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Timer => "timer",
            Class::Irq => "irq",
            Class::Ipi => "ipi",
            Class::Softirq => "softirq",
            Class::Nmi => "nmi",
            Class::Thread => "thread",
            Class::Kthread => "kthread",
            Class::PageFault => "page_fault",
            Class::Idle => "idle",
            Class::OutsideKernel => "outside_kernel",
            Class::Throttled => "throttled",
        }
    }
}

/// Index into the source table of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourceId(pub u32);

/// One row of the source table. Everything but `pids` identifies it; a report has one row per [`RowKey`]
/// and sums up the details.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Source {
    pub class: Class,
    /// A readable name: `fakemond`, `virtio0-input`, `NET_RX`, `kworker: vmstat_update`.
    pub name: String,
    /// systemd unit, or the cgroup path if there is no unit.
    pub unit: Option<String>,
    /// Distinguishes sources of the same name: a timer callback, the sender of an IPI, the waker of a
    /// thread, the kind of a page fault.
    pub detail: Option<String>,
    /// The first few process ids seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pids: Vec<u32>,
    /// True for the recorder's own threads: always shown, but listed separately.
    #[serde(default)]
    pub own: bool,
    /// True for the threads of the recorded program and their activity. Always false in recordings made
    /// before this field existed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub program: bool,
    /// Scheduling policy and priority of a thread: `SCHED_FIFO 60`, `SCHED_OTHER nice 0`. None for
    /// anything but a thread, and in recordings made before this field existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The process behind it, unless that is a thread or page fault of this very name: the process of a
    /// thread with a name of its own, whom a timer wakes, who sent an IPI, who raised a softirq. None if
    /// the kernel itself is behind it, and in recordings made before this field existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

/// A process that causes a source.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cause {
    pub process: String,
    /// As in [`Source`], like the next two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub program: bool,
}

impl Source {
    /// What has to be switched off to get rid of it.
    #[must_use]
    pub fn process_key(&self) -> ProcessKey {
        let (class, cause) = match &self.cause {
            Some(cause) => (Class::Thread, cause.clone()),
            None => {
                let class = if self.class == Class::PageFault { Class::Thread } else { self.class };
                let (process, unit) = (self.name.clone(), self.unit.clone());
                (class, Cause { process, unit, own: self.own, program: self.program })
            }
        };
        let Cause { process, unit, own, program } = cause;
        ProcessKey { class, process, unit, own, program }
    }

    #[must_use]
    pub fn row_key(&self) -> RowKey {
        let (name, unit) = (self.name.clone(), self.unit.clone());
        RowKey { class: self.class, name, unit, own: self.own, program: self.program }
    }
}

/// The identity of a report row. The recorder's own threads are separate from those of another program
/// of the same name, since they end with the recording; so are those of the recorded program.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowKey {
    pub class: Class,
    pub name: String,
    pub unit: Option<String>,
    pub own: bool,
    pub program: bool,
}

/// What can be switched off as one: a process (of class `Thread`) with its threads, its page faults and
/// what it makes the kernel do; or a source of the kernel itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessKey {
    pub class: Class,
    pub process: String,
    pub unit: Option<String>,
    pub own: bool,
    pub program: bool,
}

impl RowKey {
    /// For time that no record explains.
    #[must_use]
    pub fn outside(name: &str) -> RowKey {
        RowKey {
            class: Class::OutsideKernel,
            name: name.to_owned(),
            unit: None,
            own: false,
            program: false,
        }
    }
}

/// Index into the lane table of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LaneId(pub u32);

/// Whose time was taken: a measured CPU's or a watched program's thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Lane {
    Cpu { cpu: u32 },
    Thread { pid: u32, tid: u32, name: String },
}

impl Lane {
    /// None for a thread, which may run anywhere.
    #[must_use]
    pub fn cpu(&self) -> Option<u32> {
        match self {
            Lane::Cpu { cpu } => Some(*cpu),
            Lane::Thread { .. } => None,
        }
    }
}

/// An interval that the watched CPU or thread lost.
/// Invariant: `len_ns` = sum of `cost_ns` of its records + `outside_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detour {
    pub start_ns: u64,
    pub len_ns: u64,
    /// The part that neither kernel records nor the usual entry and exit costs explain.
    pub outside_ns: u64,
    /// Number of kernel records in it.
    pub records: u32,
    /// Why the thread was waiting for a CPU, if this detour is a wait.
    pub wait: Wait,
}

/// Shorter waits of a program's threads are just the context switch: not detours, and not in the file.
pub const SHORTEST_WAIT_NS: u64 = 1_000;

/// Why a thread of a recorded program waited for a CPU. The order is part of the file format: append
/// only.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Wait {
    /// Not a wait: interrupted while running, or the recording is older than this field.
    #[default]
    None = 0,
    /// Preempted: another thread took the CPU while this one was runnable.
    Preempted = 1,
    /// Wake-up latency: from being woken to running.
    Woken = 2,
    /// From creation to running for the first time.
    New = 3,
    /// Its cgroup had used up its CPU quota.
    Throttled = 4,
    /// Migrated to another CPU, and had to wait there.
    Migrated = 5,
}

impl Wait {
    pub const ALL: [Wait; 6] =
        [Wait::None, Wait::Preempted, Wait::Woken, Wait::New, Wait::Throttled, Wait::Migrated];

    /// The name used in JSON, tables and exports.
    pub const fn name(self) -> &'static str {
        match self {
            Wait::None => "none",
            Wait::Preempted => "preempted",
            Wait::Woken => "woken",
            Wait::New => "new",
            Wait::Throttled => "throttled",
            Wait::Migrated => "migrated",
        }
    }

    /// A kind added by a later version reads as [`Wait::None`].
    pub(crate) fn from_byte(byte: u8) -> Wait {
        Wait::ALL.get(usize::from(byte)).copied().unwrap_or_default()
    }
}

/// One finished interruption as seen by the kernel side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub start_ns: u64,
    /// From entry to exit, including everything nested inside.
    pub gross_ns: u64,
    /// `gross_ns` minus the net time of everything nested inside.
    pub net_ns: u64,
    /// What its detour lost to it: net time inside the detour plus the entry and exit cost that no
    /// tracepoint covers. Equal to `net_ns` for a record outside detours.
    pub cost_ns: u64,
    pub source: SourceId,
    pub cpu: u16,
    /// Nesting depth, 0 for a thread.
    pub depth: u8,
    pub flags: RecordFlags,
}

impl Record {
    /// The sum over many records of one source in a detour.
    pub const fn is_sum(&self) -> bool {
        self.flags.contains(RecordFlags::IN_DETOUR.with(RecordFlags::SUMMED))
    }
}

/// Properties of a record, as a bit set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RecordFlags(pub u8);

impl RecordFlags {
    /// Part of a detour (in order: of the next one that still lacks records).
    pub const IN_DETOUR: RecordFlags = RecordFlags(1);
    /// A further part of the same interruption (several timer callbacks in one softirq, several actions
    /// on one shared IRQ line): adds time, but is not counted again.
    pub const CONTINUED: RecordFlags = RecordFlags(2);
    /// The entry was seen, the end was not: `gross_ns` and `net_ns` are 0 and the detour gives the
    /// length.
    pub const POINT: RecordFlags = RecordFlags(4);
    /// Ended by a context switch, not by its own exit.
    pub const CUT_SHORT: RecordFlags = RecordFlags(8);
    /// The undisturbed thread itself (the probe, or the watched thread): needed for the balance, never a
    /// source of noise.
    pub const BASELINE: RecordFlags = RecordFlags(16);
    /// The same interruption (same CPU, same start) is on another lane already: it also hit this thread,
    /// but is not another event. Several threads that wait for one CPU share the records of what ran
    /// there.
    pub const REPEATED: RecordFlags = RecordFlags(32);
    /// In a detour: the sum over many records of one source, not an event, and its start and length mean
    /// nothing. Outside detours: the time of this record is in such a sum, so that `cost_ns` is 0.
    pub const SUMMED: RecordFlags = RecordFlags(64);

    pub const fn contains(self, other: RecordFlags) -> bool {
        self.0 & other.0 == other.0
    }

    #[must_use]
    pub const fn with(self, other: RecordFlags) -> RecordFlags {
        RecordFlags(self.0 | other.0)
    }
}

/// A sequence of one lane's events in time order. Records flagged `IN_DETOUR` belong to the detours in
/// order: the first `detours[0].records` of them to the first detour, and so on. The records of one
/// detour are contiguous; other records lie between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub lane: LaneId,
    pub detours: Vec<Detour>,
    pub records: Vec<Record>,
}

impl Block {
    pub fn new(lane: LaneId) -> Self {
        Block { lane, detours: Vec::new(), records: Vec::new() }
    }

    /// Each record with its detour, if it is part of one.
    pub fn records_with_detours(&self) -> impl Iterator<Item = (&Record, Option<&Detour>)> {
        let mut detours = self.detours.iter();
        // The current detour, and how many records it still lacks.
        let mut current: Option<(&Detour, u32)> = None;
        self.records.iter().map(move |record| {
            if !record.flags.contains(RecordFlags::IN_DETOUR) {
                return (record, None);
            }
            while current.is_none_or(|(_, lacks)| lacks == 0) {
                let Some(next) = detours.next() else { return (record, None) };
                current = Some((next, next.records));
            }
            let detour = current.as_mut().map(|(detour, lacks)| {
                *lacks -= 1;
                *detour
            });
            (record, detour)
        })
    }

    /// Each detour with its records.
    pub fn composed(&self) -> impl Iterator<Item = (&Detour, &[Record])> {
        let mut next = 0;
        self.detours.iter().map(move |detour| {
            while detour.records > 0
                && self.records.get(next).is_some_and(|r| !r.flags.contains(RecordFlags::IN_DETOUR))
            {
                next += 1;
            }
            let end = (next + detour.records as usize).min(self.records.len());
            let own = &self.records[next..end];
            next = end;
            (detour, own)
        })
    }
}
