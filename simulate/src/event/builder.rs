//! Builds a [`Schedule`] rank by rank: begin a rank, add its operations, state what each requires.
//! Construction data of a rank is dropped once the next one begins, so a reader can stream.

use thiserror::Error;

use super::{
    ANY,
    choices::{Choices, Name, Test},
    labels::Labels,
    order::Prover,
    pairs,
    schedule::{Kind, NOBODY, Op, Pairing, Schedule},
    wants::Wants,
};
use crate::{
    huge_pages,
    loggops::{MOST_BYTES, Sending},
    time::Time,
};

/// Limit for times and costs (13 days): sums of a few still fit in 63 bits.
pub const LONGEST: i64 = 1 << 60;
/// Limit for operations, and for dependencies.
const MOST: usize = (1 << 31) - 2;

/// Up to so many ranks, the messages to each are counted as they are added. Memory must not grow with a number of
/// ranks that is only declared.
const COUNTED: u32 = 1 << 20;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BuildError {
    #[error("a schedule needs at least one rank")]
    NoRanks,
    #[error("too many ranks for a schedule: {ranks} (at most 2 billion)")]
    TooManyRanks { ranks: u32 },
    #[error("rank {rank} is missing ({ranks} ranks declared)")]
    MissingRank { rank: u32, ranks: u32 },
    #[error("rank {rank} does not exist ({ranks} ranks, from 0)")]
    RankTooMany { rank: u32, ranks: u32 },
    #[error("rank {rank}, operation {index}: rank {peer} does not exist ({ranks} ranks, from 0)")]
    NoSuchPeer { rank: u32, index: u32, peer: u32, ranks: u32 },
    #[error(
        "rank {rank}, operation {index}: a message of {bytes} bytes is too large (at most 2^61 - 1)"
    )]
    MessageTooLarge { rank: u32, index: u32, bytes: u64 },
    #[error("rank {rank}, operation {index}: a calc of {} is negative or longer than 13 days", Time(*ps))]
    BadCalc { rank: u32, index: u32, ps: i64 },
    #[error("rank {rank}: a dependency refers to operation {index}, which does not exist")]
    NoSuchOperation { rank: u32, index: u32 },
    #[error("more than 2 billion operations or dependencies; split the schedule")]
    TooLarge,
}

/// An operation of the rank under construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpId(pub u32);

/// Tags from here on are not for receives with any tag, if messages match as in MPI: they are those of
/// collectives, or of another communicator.
pub const APART: u32 = 1 << 31;

/// A wildcard, for receives from any source and for any tag.
pub const WILDCARD: u32 = ANY;

#[derive(Debug)]
pub struct ScheduleBuilder {
    ranks: u32,
    ops: Vec<Op>,
    edges: Vec<u32>,
    first: Vec<u32>,
    slots: Vec<u32>,
    ordered: Vec<super::schedule::Ordered>,
    labels: Labels,
    choices: Choices,
    /// Dependencies of the rank under construction: (on, op) and whether only on the start.
    pending: Vec<(u32, u32, bool)>,
    /// Where the next dependency on each operation's end, and on its start, goes.
    places: Vec<u32>,
    prover: Prover,
    /// How many messages each rank gets; empty if there are none, or more than [`COUNTED`] ranks.
    messages_to: Vec<u32>,
    most_cpu: u8,
    most_nic: u8,
    largest: u64,
    synchronous: bool,
    /// Of the rank under construction.
    most_slot: u8,
    /// Messages match as in MPI.
    mpi: bool,
    /// The first error; reported at the end, so that building needs no `?` on every line.
    error: Option<BuildError>,
}

impl ScheduleBuilder {
    pub fn new(ranks: u32) -> ScheduleBuilder {
        let error = match ranks {
            0 => Some(BuildError::NoRanks),
            ranks if ranks as usize > MOST => Some(BuildError::TooManyRanks { ranks }),
            _ => None,
        };
        ScheduleBuilder {
            ranks,
            ops: Vec::new(),
            edges: Vec::new(),
            first: Vec::new(),
            slots: vec![0],
            ordered: Vec::new(),
            labels: Labels::default(),
            choices: Choices::default(),
            pending: Vec::new(),
            places: Vec::new(),
            prover: Prover::default(),
            messages_to: Vec::new(),
            most_cpu: 0,
            most_nic: 0,
            largest: 0,
            synchronous: false,
            most_slot: 0,
            mpi: false,
            error,
        }
    }

    /// Messages match as in MPI: those between two ranks with one tag in the order of the program, whatever
    /// the times, and a receive with any tag takes only tags below [`APART`].
    #[must_use]
    pub fn with_mpi_matching(self) -> ScheduleBuilder {
        ScheduleBuilder { mpi: true, ..self }
    }

    /// The operation that will be added next.
    pub fn next_op(&self) -> OpId {
        OpId(self.here().1)
    }

    /// Reserves room, for callers who know the sizes.
    pub fn reserve(&mut self, operations: usize, dependencies: usize) {
        huge_pages::reserve_exact(&mut self.ops, operations.min(MOST) + 1);
        huge_pages::reserve_exact(&mut self.edges, dependencies.min(MOST));
    }

    /// Begins the next rank, 0 first; what follows is added to it.
    pub fn begin_rank(&mut self) -> u32 {
        self.end_rank();
        let rank = self.first.len() as u32;
        if rank >= self.ranks {
            self.fail(BuildError::RankTooMany { rank, ranks: self.ranks });
        } else {
            self.first.push(self.ops.len() as u32);
        }
        rank
    }

    pub fn send(&mut self, bytes: u64, to: u32, tag: u32, cpu: u8, nic: u8) -> OpId {
        self.send_as(Sending::BySize, bytes, to, tag, cpu, nic)
    }

    /// A message that waits for its receive, or does not, whatever its size. GOAL has no such messages.
    pub fn send_as(
        &mut self,
        sending: Sending,
        bytes: u64,
        to: u32,
        tag: u32,
        cpu: u8,
        nic: u8,
    ) -> OpId {
        if to >= self.ranks {
            self.no_such_peer(to);
        } else if self.ranks <= COUNTED {
            if self.messages_to.is_empty() {
                self.messages_to.resize(self.ranks as usize, 0);
            }
            self.messages_to[to as usize] += 1;
        }
        if bytes > MOST_BYTES {
            let (rank, index) = self.here();
            self.fail(BuildError::MessageTooLarge { rank, index, bytes });
        }
        match sending {
            Sending::BySize => self.largest = self.largest.max(bytes),
            Sending::Synchronous => self.synchronous = true,
            Sending::Buffered => {}
        }
        self.push(Kind::Send, sending.mark(bytes), to, tag, cpu, nic)
    }

    /// From [`WILDCARD`]: from any source.
    pub fn recv(&mut self, bytes: u64, from: u32, tag: u32, cpu: u8, nic: u8) -> OpId {
        if from >= self.ranks && from != ANY {
            self.no_such_peer(from);
        }
        self.push(Kind::Recv, bytes, from, tag, cpu, nic)
    }

    pub fn calc(&mut self, ps: i64, cpu: u8) -> OpId {
        if !(0..=LONGEST).contains(&ps) {
            let (rank, index) = self.here();
            self.fail(BuildError::BadCalc { rank, index, ps });
        }
        self.push(Kind::Calc, ps.max(0) as u64, 0, 0, cpu, 0)
    }

    /// Names the request that these operations make up, so that choices can take it.
    pub fn name(&mut self, ops: &[OpId]) -> Name {
        let note = self.push(Kind::Note, 0, 0, 0, 0, 0);
        for &op in ops {
            self.depend(note, op, false);
        }
        let name = self.choices.name(self.ops.len().saturating_sub(1) as u32);
        self.refer(name.0);
        name
    }

    /// Waits until as many of these requests are complete as the call completed in the trace (`done`), and
    /// takes those that were complete first. Names that it took in place of others stand for those from then on.
    pub fn choose(&mut self, done: &[Name], left: &[Name], cpu: u8) -> OpId {
        let choice = self.push(Kind::Choice, 0, 0, 0, cpu, 0);
        let number = self.choices.add(done, left, Test::All);
        self.refer(number);
        choice
    }

    /// Tests requests, none of which was complete in the trace, which takes `ps`. If the test succeeds, the
    /// requests are complete from then on, and later tests of them take no time.
    pub fn test(&mut self, names: &[Name], test: Test, ps: i64, cpu: u8) -> OpId {
        if !(0..=LONGEST).contains(&ps) {
            let (rank, index) = self.here();
            self.fail(BuildError::BadCalc { rank, index, ps });
        }
        let choice = self.push(Kind::Choice, ps.max(0) as u64, 0, 0, cpu, 0);
        let number = self.choices.add(&[], names, test);
        self.refer(number);
        choice
    }

    /// The operation added last is this name's, or this choice's.
    fn refer(&mut self, number: u32) {
        if let Some(op) = self.ops.last_mut() {
            op.partner = number;
        }
    }

    /// `op` begins when `on` has ended.
    pub fn requires(&mut self, op: OpId, on: OpId) {
        self.depend(op, on, false);
    }

    /// `op` begins when `on` has begun.
    pub fn irequires(&mut self, op: OpId, on: OpId) {
        self.depend(op, on, true);
    }

    /// Sets the label of the operation added last.
    pub fn label_last(&mut self, label: &str) {
        let (_, index) = self.here();
        let given = label.strip_prefix('l').and_then(|number| number.parse().ok());
        // `l01` is not the default label.
        if index > 0 && (given != Some(index) || label.as_bytes().get(1) == Some(&b'0')) {
            self.labels.push(self.ops.len() as u32 - 1, label);
        }
    }

    /// The error that `finish` will return, for readers who know its line.
    pub fn error(&self) -> Option<&BuildError> {
        self.error.as_ref()
    }

    pub fn finish(mut self) -> Result<Schedule, BuildError> {
        self.end_rank();
        if self.error.is_none() && self.first.len() < self.ranks as usize {
            let rank = self.first.len() as u32;
            self.fail(BuildError::MissingRank { rank, ranks: self.ranks });
        }
        if let Some(error) = self.error {
            return Err(error);
        }
        self.first.push(self.ops.len() as u32);
        // Terminates the successors of the last operation.
        self.ops.push(Op {
            size: 0,
            peer: 0,
            tag: 0,
            partner: NOBODY,
            successors: self.edges.len() as u32,
            start_successors: self.edges.len() as u32,
            kind: Kind::Calc,
            cpu: 0,
            nic: 0,
            pairing: Pairing::Fixed,
        });
        let mut schedule = Schedule {
            ops: self.ops,
            edges: self.edges,
            first: self.first,
            slots: self.slots,
            ordered: self.ordered,
            channels: 0,
            wants: Wants::default(),
            cpus: usize::from(self.most_cpu) + 1,
            nics: usize::from(self.most_nic) + 1,
            largest: self.largest,
            synchronous: self.synchronous,
            labels: self.labels,
            choices: self.choices,
        };
        pairs::settle(&mut schedule, self.mpi, &self.messages_to);
        Ok(schedule)
    }

    /// The rank under construction and the next operation's number in it.
    pub(crate) fn here(&self) -> (u32, u32) {
        let rank = self.first.len().saturating_sub(1);
        (rank as u32, self.ops.len() as u32 - self.first.last().copied().unwrap_or(0))
    }

    fn no_such_peer(&mut self, peer: u32) {
        let (rank, index) = self.here();
        self.fail(BuildError::NoSuchPeer { rank, index, peer, ranks: self.ranks });
    }

    fn fail(&mut self, error: BuildError) {
        self.error.get_or_insert(error);
    }

    fn push(&mut self, kind: Kind, size: u64, peer: u32, tag: u32, cpu: u8, nic: u8) -> OpId {
        if self.first.is_empty() {
            self.fail(BuildError::MissingRank { rank: 0, ranks: self.ranks });
        }
        if self.ops.len() >= MOST {
            self.fail(BuildError::TooLarge);
            return OpId(0);
        }
        let (_, index) = self.here();
        self.most_cpu = self.most_cpu.max(cpu);
        self.most_nic = self.most_nic.max(nic);
        self.most_slot = self.most_slot.max(cpu).max(nic);
        huge_pages::reserve(&mut self.ops, 1);
        self.ops.push(Op {
            size,
            peer,
            tag,
            partner: NOBODY,
            successors: 0,
            start_successors: 0,
            kind,
            cpu,
            nic,
            pairing: Pairing::Fixed,
        });
        OpId(index)
    }

    fn depend(&mut self, op: OpId, on: OpId, start: bool) {
        let (rank, count) = self.here();
        let last = op.0.max(on.0);
        if last >= count {
            self.fail(BuildError::NoSuchOperation { rank, index: last });
        } else if self.edges.len() + self.pending.len() >= MOST {
            self.fail(BuildError::TooLarge);
        } else {
            huge_pages::reserve(&mut self.pending, 1);
            self.pending.push((on.0, op.0, start));
        }
    }

    /// Lays out the dependencies of the rank by the operation they are on, those on its end first, in the
    /// order in which they were declared: so are successors released. Counted, since there are many.
    fn end_rank(&mut self) {
        let Some(&first) = self.first.last() else { return };
        if self.ordered.len() == self.first.len() {
            return;
        }
        let count = self.ops.len() - first as usize;
        let place = |on: u32, start: bool| 2 * on as usize + usize::from(start);
        self.places.clear();
        huge_pages::reserve(&mut self.places, 2 * count);
        self.places.resize(2 * count, 0);
        for &(on, _, start) in &self.pending {
            self.places[place(on, start)] += 1;
        }
        let begin = self.edges.len() as u32;
        let mut next = begin;
        for count in &mut self.places {
            next += std::mem::replace(count, next);
        }
        huge_pages::reserve(&mut self.edges, self.pending.len());
        self.edges.resize(next as usize, 0);
        for (on, successor, start) in self.pending.drain(..) {
            let at = &mut self.places[place(on, start)];
            self.edges[*at as usize] = first + successor;
            *at += 1;
        }
        // Each place is now where the next one's dependencies begin.
        let ops = &mut self.ops[first as usize..];
        let mut begins = begin;
        for (op, places) in ops.iter_mut().zip(self.places.chunks_exact(2)) {
            (op.successors, op.start_successors) = (begins, places[0]);
            begins = places[1];
        }
        self.ordered.push(self.prover.prove(&self.ops, &self.edges, first, |_| false));
        let slots = self.slots.last().copied().unwrap_or(0);
        match slots.checked_add(u32::from(self.most_slot) + 1) {
            Some(slots) => self.slots.push(slots),
            None => self.fail(BuildError::TooLarge),
        }
        self.most_slot = 0;
    }
}
