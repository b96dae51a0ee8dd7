//! A schedule: the operations of all ranks and their dependencies, as in GOAL. Immutable once built
//! ([`ScheduleBuilder`](super::ScheduleBuilder)), shared by all runs.
//!
//! An operation is one record of 32 bytes rather than an entry in eight arrays: the engine visits each
//! once, in order of time, which is random in memory, and pays per cache line. The receiver of a
//! message is determined in advance where possible ([`Pairing`]), so that a run needs no lookup.

use std::{borrow::Cow, fmt};

use super::{ANY, choices::Choices, labels::Labels, wants::Wants};
use crate::{loggops::bytes_of, time::Time};

/// A message without a receive, or a receive without a message.
pub(crate) const NOBODY: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    Send = 1,
    Recv = 2,
    Calc = 3,
    /// Takes the first of several requests that are complete, or tests them. `partner` is its number in
    /// [`Choices`], `size` what a test costs.
    Choice = 4,
    /// A request of choices is complete. `partner` is its name.
    Note = 5,
}

/// How an operation finds the counterpart of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Pairing {
    /// `partner` is the counterpart, whatever the times; the sizes are equal.
    Fixed,
    /// As above, but the sizes differ.
    Uneven,
    /// `partner` is a channel: same source, target and tag, first come, first served.
    Channel,
    /// There are wildcards. `partner` is the want of a receive, or the sort of a message ([`Wants`]).
    Search,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Op {
    /// Start of its successors: those of `requires`, then from `start_successors` those of
    /// `irequires`, up to the start of the next operation's. First, to be close to the same field of
    /// the next one.
    pub successors: u32,
    pub start_successors: u32,
    /// Bytes of a message, picoseconds of a calc.
    pub size: u64,
    pub peer: u32,
    pub tag: u32,
    pub partner: u32,
    pub kind: Kind,
    pub cpu: u8,
    pub nic: u8,
    pub pairing: Pairing,
}

const _: () = assert!(size_of::<Op>() == 32);

impl Pairing {
    #[inline]
    pub fn is_fixed(self) -> bool {
        matches!(self, Pairing::Fixed | Pairing::Uneven)
    }
}

/// What can be proven about the order of a rank's operations from their dependencies alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ordered {
    /// Sends and calcs: each depends on the one before it.
    pub local: bool,
    /// Receives: each is posted after the previous one has ended.
    pub receives: bool,
    /// All operations, one after the other.
    pub all: bool,
}

/// An operation as in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Send {
        bytes: u64,
        to: u32,
        tag: Option<u32>,
    },
    /// None: from any source, with any tag.
    Recv {
        bytes: u64,
        from: Option<u32>,
        tag: Option<u32>,
    },
    Calc {
        ps: i64,
    },
    /// Takes this many of several requests, or tests them at this cost if it takes none.
    Choice {
        taken: u32,
        of: u32,
        ps: i64,
    },
    /// A request that choices can take is complete.
    Request,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    pub action: Action,
    pub cpu: u8,
    pub nic: u8,
}

#[derive(Clone, Debug)]
pub struct Schedule {
    /// In rank order, then program order; a sentinel at the end terminates the last one's successors.
    pub(crate) ops: Vec<Op>,
    pub(crate) edges: Vec<u32>,
    /// First operation of each rank, and the total.
    pub(crate) first: Vec<u32>,
    /// First slot (a CPU and a NIC of the same index) of each rank, and the total.
    pub(crate) slots: Vec<u32>,
    pub(crate) ordered: Vec<Ordered>,
    pub(crate) channels: u32,
    pub(crate) wants: Wants,
    pub(crate) cpus: usize,
    pub(crate) nics: usize,
    /// Bytes of the largest message whose size decides whether it waits for its receive.
    pub(crate) largest: u64,
    /// Whether any waits for it whatever its size.
    pub(crate) synchronous: bool,
    pub(crate) labels: Labels,
    pub(crate) choices: Choices,
}

impl Schedule {
    pub fn ranks(&self) -> u32 {
        (self.first.len() - 1) as u32
    }

    pub fn operations(&self) -> usize {
        self.ops.len() - 1
    }

    /// CPUs per rank: the largest index in use, plus one.
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    pub fn nics(&self) -> usize {
        self.nics
    }

    /// The operations of a rank.
    pub fn of_rank(&self, rank: u32) -> std::ops::Range<u32> {
        let rank = rank as usize;
        match (self.first.get(rank), self.first.get(rank + 1)) {
            (Some(&begin), Some(&end)) => begin..end,
            _ => 0..0,
        }
    }

    /// The rank of an operation.
    pub fn rank_of(&self, op: u32) -> u32 {
        (self.first.partition_point(|&first| first <= op) - 1) as u32
    }

    /// Whether no message waits for its receive if those up to this size do not.
    pub(crate) fn never_waits(&self, eager_limit: u64) -> bool {
        self.largest <= eager_limit && !self.synchronous
    }

    pub fn kind(&self, op: u32) -> Kind {
        self.ops[op as usize].kind
    }

    pub fn operation(&self, op: u32) -> Operation {
        let op = &self.ops[op as usize];
        let tag = (op.tag != ANY).then_some(op.tag);
        let action = match op.kind {
            Kind::Send => Action::Send { bytes: bytes_of(op.size), to: op.peer, tag },
            Kind::Recv => {
                Action::Recv { bytes: op.size, from: (op.peer != ANY).then_some(op.peer), tag }
            }
            Kind::Calc => Action::Calc { ps: op.size as i64 },
            Kind::Choice => {
                let (done, left) = self.choices.names(self.choices.of(op.partner));
                let of = (done.len() + left.len()) as u32;
                Action::Choice { taken: done.len() as u32, of, ps: op.size as i64 }
            }
            Kind::Note => Action::Request,
        };
        Operation { action, cpu: op.cpu, nic: op.nic }
    }

    /// Operations that require this one, in the order they were declared.
    #[inline]
    pub fn successors(&self, op: u32) -> &[u32] {
        let op = &self.ops[op as usize];
        &self.edges[op.successors as usize..op.start_successors as usize]
    }

    /// Operations that require only its start (`irequires`).
    #[inline]
    pub fn start_successors(&self, op: u32) -> &[u32] {
        let begin = self.ops[op as usize].start_successors;
        let end = self.ops[op as usize + 1].successors;
        &self.edges[begin as usize..end as usize]
    }

    /// Number of dependencies of each operation.
    pub fn dependency_counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.operations()];
        for &successor in &self.edges {
            counts[successor as usize] += 1;
        }
        counts
    }

    /// The counterpart of a message, if determined in advance.
    pub fn partner(&self, op: u32) -> Option<u32> {
        let op = &self.ops[op as usize];
        (matches!(op.kind, Kind::Send | Kind::Recv)
            && op.pairing.is_fixed()
            && op.partner != NOBODY)
            .then_some(op.partner)
    }

    /// Whether the receive of every message is known in advance.
    pub fn is_settled(&self) -> bool {
        self.channels == 0 && self.wants.is_empty()
    }

    /// Whether ranks choose between requests.
    pub fn has_choices(&self) -> bool {
        !self.choices.is_empty()
    }

    /// Whether the dependencies of this rank allow only one order for its sends and calcs, and one for
    /// its receives.
    pub fn is_ordered(&self, rank: u32) -> bool {
        self.ordered.get(rank as usize).is_some_and(|ordered| ordered.local && ordered.receives)
    }

    pub fn messages(&self) -> u64 {
        self.ops[..self.operations()].iter().filter(|op| op.kind == Kind::Send).count() as u64
    }

    /// Messages that wait for their receives, or do not, whatever their size: GOAL cannot say that.
    pub fn marked_messages(&self) -> u64 {
        let is_marked = |op: &&Op| op.kind == Kind::Send && op.size != bytes_of(op.size);
        self.ops[..self.operations()].iter().filter(is_marked).count() as u64
    }

    /// The label from the source; otherwise `l1`, `l2`, ... of its rank.
    pub fn label(&self, op: u32) -> Cow<'_, str> {
        match self.labels.get(op) {
            Some(label) => Cow::Borrowed(label),
            None => Cow::Owned(format!("l{}", op - self.first[self.rank_of(op) as usize] + 1)),
        }
    }

    /// Only if it differs from the default label.
    pub fn given_label(&self, op: u32) -> Option<&str> {
        self.labels.get(op)
    }

    pub fn place(&self, op: u32) -> Place {
        let rank = self.rank_of(op);
        Place {
            rank,
            index: op - self.first[rank as usize],
            label: self.label(op).into_owned(),
            operation: self.operation(op),
        }
    }

    /// Its size in memory, bytes.
    pub fn memory(&self) -> usize {
        self.ops.capacity() * size_of::<Op>()
            + (self.edges.capacity() + self.first.capacity() + self.slots.capacity()) * 4
            + self.ordered.capacity() * size_of::<Ordered>()
            + self.choices.memory()
    }
}

/// Equal operations and dependencies, whatever the labels.
impl PartialEq for Schedule {
    fn eq(&self, other: &Schedule) -> bool {
        self.first == other.first
            && self.edges == other.edges
            && self.choices == other.choices
            && self.ops.iter().zip(&other.ops).all(|(a, b)| {
                (a.kind, a.size, a.peer, a.tag, a.cpu, a.nic)
                    == (b.kind, b.size, b.peer, b.tag, b.cpu, b.nic)
                    && (a.successors, a.start_successors) == (b.successors, b.start_successors)
            })
    }
}

/// An operation in an error message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub rank: u32,
    /// In the rank, from 0.
    pub index: u32,
    pub label: String,
    pub operation: Operation,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { rank, index, label, operation } = self;
        write!(f, "rank {rank}, operation {index} ({label}: {operation})")
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tag = |f: &mut fmt::Formatter<'_>, tag: Option<u32>| match tag {
            Some(tag) => write!(f, " tag {tag}"),
            None => write!(f, " tag -1"),
        };
        match self.action {
            Action::Send { bytes, to, tag: t } => {
                write!(f, "send {bytes}b to {to}")?;
                tag(f, t)?;
            }
            Action::Recv { bytes, from, tag: t } => {
                match from {
                    Some(from) => write!(f, "recv {bytes}b from {from}")?,
                    None => write!(f, "recv {bytes}b from -1")?,
                }
                tag(f, t)?;
            }
            Action::Calc { ps } => write!(f, "calc {}", Time(ps))?,
            Action::Choice { taken: 0, of, .. } => write!(f, "test of {of} requests")?,
            Action::Choice { taken, of, .. } => write!(f, "wait for {taken} of {of} requests")?,
            Action::Request => f.write_str("request")?,
        }
        if self.cpu != 0 {
            write!(f, " cpu {}", self.cpu)?;
        }
        if self.nic != 0 {
            write!(f, " nic {}", self.nic)?;
        }
        Ok(())
    }
}
