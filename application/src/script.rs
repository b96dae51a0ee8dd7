//! The part of a rank as instructions that are re-enacted with real calls of MPI ([`mpi_abi::script`]).
//!
//! Messages are sent between ranks of `MPI_COMM_WORLD` with the tags of the trace, those of other communicators
//! on a duplicate with one tag for each communicator and tag. Collectives are called on communicators with the
//! members of the trace, with bytes for elements.

use mpi_abi::{
    Call as MpiCall, Class,
    script::{ANY, APART, Act, FIRST_GROUP, Head, Instruction, NO_REQUEST, WORLD},
};
use simulate::{collectives::Op, event::Test};
use thiserror::Error;

use crate::{
    communicators::number_apart,
    step::{Application, Call, Candidate, NONE, Operation, Spent, Step, Tape, mean},
};

/// Why a program cannot be re-enacted.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReplayError {
    #[error("rank {rank} transfers {bytes} bytes in one call, more than can be replayed (2 GiB)")]
    TooLarge { rank: u32, bytes: u64 },
    #[error("rank {rank} needs {bytes} bytes for its messages, more than can be replayed at once")]
    NoMemory { rank: u32, bytes: u64 },
    #[error(
        "the program uses {groups} communicators for collectives, more than can be replayed ({MOST_GROUPS})"
    )]
    Groups { groups: usize },
    #[error("the sizes of {calls} collectives are not in the trace: they cannot be replayed")]
    UnknownSizes { calls: u64 },
    #[error(
        "{calls} calls overlap calls of other threads of their rank: programs with several communicating threads \
         cannot be replayed"
    )]
    Threads { calls: u64 },
    #[error("{calls} one-sided calls cannot be replayed")]
    OneSided { calls: u64 },
}

/// How a script is played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Play {
    /// Compute that is longer than this, ns, sleeps; 0 if it never does.
    pub sleep_ns: u64,
    /// Ticks in 2^32 ns.
    pub ticks: u64,
    /// What recording a call costs, ns: part of what lies between two calls in the trace.
    pub call_ns: u64,
}

/// Communicators that MPI libraries can have at once are some 2000.
const MOST_GROUPS: usize = 1_000;
/// Bytes of all buffers of a rank.
const MOST_BYTES: u64 = 64 << 30;
/// Buffers begin at multiples of this.
const ALIGNED: u64 = 64;

impl Application {
    /// Whether everything in the program can be re-enacted.
    pub fn check_replay(&self) -> Result<(), ReplayError> {
        let assumed = &self.assumed;
        if assumed.overlapping > 0 {
            return Err(ReplayError::Threads { calls: assumed.overlapping });
        }
        if assumed.one_sided > 0 {
            return Err(ReplayError::OneSided { calls: assumed.one_sided });
        }
        if assumed.unknown_sizes > 0 {
            return Err(ReplayError::UnknownSizes { calls: assumed.unknown_sizes });
        }
        if self.groups.len() > MOST_GROUPS {
            return Err(ReplayError::Groups { groups: self.groups.len() });
        }
        (0..self.ranks()).try_for_each(|rank| Needs::of(self, rank).map(drop))
    }

    /// The script of a rank.
    pub fn script(&self, rank: u32, play: &Play) -> Result<Vec<u64>, ReplayError> {
        let mut writer = Writer {
            application: self,
            play,
            needs: Needs::of(self, rank)?,
            instructions: Vec::new(),
            lists: Vec::new(),
            names: Vec::new(),
            places: vec![None; self.regions.len()],
            left_ps: 0,
        };
        for group in &self.groups {
            writer.lists.push(group.members.len() as u32);
            writer.lists.extend(&group.members);
        }
        if let Some(tape) = self.tapes.get(rank as usize) {
            writer.tape(tape);
        }
        Ok(writer.finish())
    }

    /// The communicator of a group's collectives.
    fn communicator(&self, group: u32) -> u16 {
        // Also the world is made anew: its own one has the messages.
        FIRST_GROUP + group as u16
    }

    fn size(&self, group: u32) -> u64 {
        self.groups.get(group as usize).map_or(1, |group| group.members.len() as u64)
    }
}

/// The regular collective of the mean size, as which one with different blocks is replayed.
fn evened(call: &Call, op: Op, sizes: &[u64]) -> Call {
    let operation = Operation::Regular { op, bytes: mean(sizes), root: 0 };
    Call { operation, ..call.clone() }
}

/// What an operation of a collective needs: bytes that are sent and received.
fn volume(call: &Call, size: u64) -> (u64, u64) {
    let is_root = |root: u32| call.rank == root;
    let all = |bytes: u64| bytes.saturating_mul(size);
    match &call.operation {
        Operation::Blocks { op, sizes } => volume(&evened(call, *op, sizes), size),
        Operation::Regular { op, bytes, root } => {
            let (bytes, root) = (*bytes, *root);
            match op {
                Op::Barrier => (0, 0),
                Op::Gather => (bytes, if is_root(root) { all(bytes) } else { 0 }),
                Op::Scatter => (if is_root(root) { all(bytes) } else { 0 }, bytes),
                Op::Allgather => (bytes, all(bytes)),
                Op::Alltoall => (all(bytes), all(bytes)),
                Op::ReduceScatter => (all(bytes), bytes),
                _ => (bytes, bytes),
            }
        }
        Operation::Rooted { towards, root, bytes, sizes } => {
            let sum = sizes.iter().fold(0u64, |sum, size| sum.saturating_add(*size));
            match (*towards, is_root(*root)) {
                (true, true) => (own(sizes, call.rank), sum),
                (true, false) => (*bytes, 0),
                (false, true) => (sum, own(sizes, call.rank)),
                (false, false) => (0, *bytes),
            }
        }
        Operation::Messages { to, from, .. } => {
            let sum = |list: &[(u32, u64)]| {
                list.iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes))
            };
            (sum(to), sum(from))
        }
    }
}

fn own(sizes: &[u64], rank: u32) -> u64 {
    sizes.get(rank as usize).copied().unwrap_or(0)
}

/// The buffers of a rank: one that everything is sent from, one that blocking calls receive into, and one for each
/// request.
#[derive(Default)]
struct Needs {
    received: u64,
    by_request: Vec<u64>,
    /// What receives into that nobody waits for.
    unseen: u64,
    /// These receives: their places in the steps, from the last to the first.
    not_waited_for: Vec<usize>,
    /// Bytes of all.
    total: u64,
    /// Longest message that a wildcard could take.
    longest: u64,
}

impl Needs {
    fn of(application: &Application, rank: u32) -> Result<Needs, ReplayError> {
        let to_rank = |step: &Step| match step {
            Step::Send { to, bytes, .. } if *to == rank => Some(*bytes),
            _ => None,
        };
        let longest =
            application.tapes.iter().flat_map(|tape| &tape.steps).filter_map(to_rank).max();
        let longest = longest.unwrap_or(0);
        let Some(tape) = application.tapes.get(rank as usize) else {
            return Ok(Needs { longest, ..Needs::default() });
        };
        let not_waited_for = not_waited_for(tape);
        let mut next = not_waited_for.iter().rev().copied().peekable();
        let (mut sent, mut received, mut unseen) = (0u64, 0u64, 0u64);
        let mut requests = vec![0u64; tape.requests as usize];
        for (at, step) in tape.steps.iter().enumerate() {
            let is_unseen = next.next_if_eq(&at).is_some();
            let (out, into, request) = match *step {
                Step::Send { bytes, .. } => (bytes, 0, NONE),
                Step::Receive { bytes, request, .. } => (0, room(step, bytes, longest), request),
                Step::Collective { call, request } => {
                    let Some(call) = tape.calls.get(call as usize) else { continue };
                    let (out, into) = volume(call, application.size(call.group));
                    (out, into, request)
                }
                _ => continue,
            };
            if let Some(bytes) = [out, into].into_iter().find(|bytes| *bytes > i32::MAX as u64) {
                return Err(ReplayError::TooLarge { rank, bytes });
            }
            sent = sent.max(out);
            let place = match requests.get_mut(request as usize) {
                _ if is_unseen => &mut unseen,
                Some(own) => own,
                None => &mut received,
            };
            *place = (*place).max(into);
        }
        let mut total = sent.next_multiple_of(ALIGNED);
        let mut begin = |bytes: u64| {
            let place = total;
            total = total.saturating_add(bytes.next_multiple_of(ALIGNED));
            place
        };
        let received = begin(received);
        let unseen = begin(unseen);
        let by_request = requests.into_iter().map(begin).collect();
        if total > MOST_BYTES {
            return Err(ReplayError::NoMemory { rank, bytes: total });
        }
        Ok(Needs { received, by_request, unseen, not_waited_for, total, longest })
    }

    fn place(&self, request: u32) -> u64 {
        self.by_request.get(request as usize).copied().unwrap_or(self.received)
    }
}

/// The receives that nobody waits for, which may take their messages at any time later: from the last to the first.
fn not_waited_for(tape: &Tape) -> Vec<usize> {
    let mut waits = vec![false; tape.requests as usize];
    let mut found = Vec::new();
    for (at, step) in tape.steps.iter().enumerate().rev() {
        match *step {
            Step::Wait { request } => {
                if let Some(waits) = waits.get_mut(request as usize) {
                    *waits = true;
                }
            }
            Step::Choose { first, count, .. } => {
                let done = tape.candidates(first, count).iter().filter(|one| one.done);
                for part in done.flat_map(|one| one.parts) {
                    if let Some(waits) = waits.get_mut(part as usize) {
                        *waits = true;
                    }
                }
            }
            Step::Send { request, .. }
            | Step::Receive { request, .. }
            | Step::Collective { request, .. } => {
                let Some(waits) = waits.get_mut(request as usize) else { continue };
                if !std::mem::take(waits) && matches!(step, Step::Receive { .. }) {
                    found.push(at);
                }
            }
            _ => {}
        }
    }
    found
}

/// Bytes that a receive must have room for: a wildcard may take another message than in the trace.
fn room(step: &Step, bytes: u64, longest: u64) -> u64 {
    match step {
        Step::Receive { from, channel, .. } if *from == NONE || *channel == NONE => longest,
        _ => bytes,
    }
}

struct Writer<'a> {
    application: &'a Application,
    play: &'a Play,
    needs: Needs,
    instructions: Vec<Instruction>,
    lists: Vec<u32>,
    names: Vec<u8>,
    /// Where the names of the regions are, if they are used.
    places: Vec<Option<u64>>,
    /// Compute that has not been written, ps.
    left_ps: i64,
}

impl Writer<'_> {
    fn tape(&mut self, tape: &Tape) {
        let steps = &tape.steps;
        let mut at = 0;
        while let Some(step) = steps.get(at) {
            at += 1;
            match *step {
                Step::Compute { ps, .. } => self.left_ps = self.left_ps.saturating_add(ps.max(0)),
                // Without choices, tests that complete nothing are not replayed.
                Step::Spent { ps, on: Spent::Testing, .. } => {
                    self.left_ps = self.left_ps.saturating_add(ps.max(0));
                }
                // MPI takes its own time.
                Step::Spent { .. } => {}
                Step::Choose { first, count, test, .. } => {
                    self.compute(self.play.call_ns);
                    self.choose(tape.candidates(first, count), test);
                }
                Step::Begin { region } => {
                    self.compute(0);
                    let place = self.name(region);
                    self.push(Instruction::of(Act::Begin, 0, place));
                }
                Step::End { .. } => {
                    self.compute(0);
                    self.push(Instruction::of(Act::End, 0, 0));
                }
                Step::Send { .. } | Step::Receive { .. } => {
                    self.compute(self.play.call_ns);
                    match exchange(steps.get(at - 1..).unwrap_or_default()) {
                        Some((send, receive)) => {
                            let (send, receive) = (self.message(&send), self.message(&receive));
                            self.push(Instruction { act: Act::Sendrecv, ..send });
                            self.push(receive);
                            at += EXCHANGE - 1;
                        }
                        None => {
                            let message = match self.needs.not_waited_for.last() {
                                Some(unseen) if *unseen == at - 1 => {
                                    self.needs.not_waited_for.pop();
                                    let (act, place) = (Act::Abandoned, self.needs.unseen);
                                    let request = NO_REQUEST;
                                    Instruction { act, place, request, ..self.message(step) }
                                }
                                _ => self.message(step),
                            };
                            self.push(message);
                        }
                    }
                }
                Step::Collective { call, request } => {
                    self.compute(self.play.call_ns);
                    if let Some(call) = tape.calls.get(call as usize) {
                        self.collective(call, request);
                    }
                }
                Step::Wait { request } => {
                    self.compute(self.play.call_ns);
                    let waits = steps.get(at - 1..).unwrap_or_default().iter();
                    let waits = waits.map_while(|step| match step {
                        Step::Wait { request } => Some(*request),
                        _ => None,
                    });
                    let requests: Vec<u32> = waits.collect();
                    at += requests.len() - 1;
                    match requests.len() {
                        1 => self.push(Instruction { request, ..Instruction::of(Act::Wait, 0, 0) }),
                        _ => self.many(Act::Waitall, 0, &requests),
                    }
                }
            }
        }
        self.compute(0);
    }

    /// Waits as long as the rank computed, less what recording the call before and this one costs.
    fn compute(&mut self, less_ns: u64) {
        let ns = self.left_ps / 1_000;
        self.left_ps -= ns * 1_000;
        let ns = (ns as u64).saturating_sub(less_ns);
        if ns > 0 {
            self.push(Instruction::of(Act::Compute, ns, 0));
        }
    }

    fn push(&mut self, instruction: Instruction) {
        self.instructions.push(instruction);
    }

    fn name(&mut self, region: u32) -> u64 {
        let text = self.application.regions.get(region as usize).map_or("", String::as_str);
        let Some(place) = self.places.get_mut(region as usize) else { return 0 };
        *place.get_or_insert_with(|| {
            let place = self.names.len() as u64;
            self.names.extend(text.bytes().filter(|byte| *byte != 0));
            self.names.push(0);
            place
        })
    }

    /// A call with several requests; the first `traced` of them were complete in the trace.
    fn many(&mut self, act: Act, traced: usize, requests: &[u32]) {
        let place = self.lists.len() as u64;
        self.lists.extend(requests);
        let instruction = Instruction::of(act, requests.len() as u64, place);
        self.push(Instruction { tag: traced as i32, ..instruction });
    }

    /// A choice between requests. One that completed nothing in the trace tests them.
    fn choose(&mut self, candidates: &[Candidate], test: Test) {
        let slots = |done: bool| {
            let of = candidates.iter().filter(move |candidate| candidate.done == done);
            of.flat_map(|candidate| candidate.parts).filter(|slot| *slot != NONE)
        };
        let mut requests: Vec<u32> = slots(true).collect();
        let traced = requests.len();
        requests.extend(slots(false));
        let act = match (traced, test) {
            (0, Test::All) => Act::Testall,
            (0, Test::One) => Act::Testany,
            (0, Test::Some) => Act::Testsome,
            (1, _) => Act::Waitany,
            _ => Act::Waitsome,
        };
        match requests[..] {
            [] => {}
            [request] if act == Act::Testall => {
                self.push(Instruction { request, ..Instruction::of(Act::Test, 0, 0) });
            }
            _ => self.many(act, traced, &requests),
        }
    }

    /// A send or a receive.
    fn message(&self, step: &Step) -> Instruction {
        let label = |channel: u32| match number_apart(channel) {
            Some(number) => (APART, number as i32),
            None => (WORLD, self.application.tags.get(&channel).copied().unwrap_or(0)),
        };
        match *step {
            Step::Send { to, channel, bytes, request, mpi } => {
                let (comm, tag) = label(channel);
                let call = MpiCall::from_number(mpi);
                let act = match (call, request) {
                    (Some(MpiCall::Ssend), NONE) => Act::Ssend,
                    (Some(MpiCall::Issend | MpiCall::Ssend_init), _) => Act::Issend,
                    // It never waits for its receiver.
                    (Some(MpiCall::Bsend), NONE) => Act::Detached,
                    (_, NONE) => Act::Send,
                    _ => Act::Isend,
                };
                Instruction { act, comm, peer: to as i32, tag, request, bytes, place: 0 }
            }
            Step::Receive { from, channel, bytes, request, .. } => {
                let (comm, tag) = if channel == NONE { (WORLD, ANY) } else { label(channel) };
                let act = if request == NONE { Act::Recv } else { Act::Irecv };
                let peer = if from == NONE { ANY } else { from as i32 };
                let bytes = room(step, bytes, self.needs.longest);
                let place = self.needs.place(request);
                Instruction { act, comm, peer, tag, request, bytes, place }
            }
            _ => Instruction::of(Act::Compute, 0, 0),
        }
    }

    fn collective(&mut self, call: &Call, request: u32) {
        let comm = self.application.communicator(call.group);
        let size = self.application.size(call.group) as usize;
        let request = if request == NONE { NO_REQUEST } else { request };
        let place = self.needs.place(request);
        let one =
            Instruction { act: Act::Barrier, comm, peer: 0, tag: 0, request, bytes: 0, place };
        let makes =
            MpiCall::from_number(call.mpi).is_some_and(|mpi| mpi.class() == Class::Communicator);
        match &call.operation {
            _ if makes && request == NO_REQUEST => self.push(Instruction { act: Act::Dup, ..one }),
            Operation::Blocks { op, sizes } => {
                let request = if request == NO_REQUEST { NONE } else { request };
                self.collective(&evened(call, *op, sizes), request);
            }
            Operation::Regular { op, bytes, root } => {
                let act = match op {
                    Op::Barrier => Act::Barrier,
                    Op::Bcast => Act::Bcast,
                    Op::Reduce => Act::Reduce,
                    Op::Allreduce => Act::Allreduce,
                    Op::Gather | Op::Gatherv => Act::Gather,
                    Op::Scatter | Op::Scatterv => Act::Scatter,
                    Op::Allgather | Op::Allgatherv => Act::Allgather,
                    Op::Alltoall | Op::Alltoallv => Act::Alltoall,
                    Op::ReduceScatter => Act::ReduceScatterBlock,
                    Op::Scan => Act::Scan,
                    Op::Exscan => Act::Exscan,
                };
                self.push(Instruction { act, peer: *root as i32, bytes: *bytes, ..one });
            }
            Operation::Rooted { towards, root, bytes, sizes } => {
                let is_root = call.rank == *root;
                let sizes: Vec<u64> = match is_root {
                    true => (0..size).map(|rank| own(sizes, rank as u32)).collect(),
                    false => vec![0; size],
                };
                let bytes = if is_root { own(&sizes, call.rank) } else { *bytes };
                let act = if *towards { Act::Gatherv } else { Act::Scatterv };
                let list = self.counts(place, &[sizes]);
                let (peer, tag) = (*root as i32, size as i32);
                self.push(Instruction { act, peer, tag, bytes, place: list, ..one });
            }
            Operation::Messages { to, from, .. } => {
                let of_all = |list: &[(u32, u64)]| {
                    let mut sizes = vec![0; size];
                    for (rank, bytes) in list {
                        if let Some(place) = sizes.get_mut(*rank as usize) {
                            *place += bytes;
                        }
                    }
                    sizes
                };
                let list = self.counts(place, &[of_all(to), of_all(from)]);
                self.push(Instruction {
                    act: Act::Alltoallv,
                    tag: size as i32,
                    place: list,
                    ..one
                });
            }
        }
    }

    /// A list of counts and displacements, after the place of the buffer.
    fn counts(&mut self, buffer: u64, sizes: &[Vec<u64>]) -> u64 {
        let list = self.lists.len() as u64;
        self.lists.extend([buffer as u32, (buffer >> 32) as u32]);
        for sizes in sizes {
            self.lists.extend(sizes.iter().map(|size| *size as u32));
            let mut place = 0u64;
            for size in sizes {
                self.lists.push(place as u32);
                place += size;
            }
        }
        list
    }

    fn finish(self) -> Vec<u64> {
        let head = Head {
            instructions: self.instructions.len() as u64,
            lists: self.lists.len() as u64,
            names: self.names.len() as u64,
            requests: self.needs.by_request.len() as u64,
            buffers: self.needs.total,
            groups: self.application.groups.len() as u64,
            ticks: self.play.ticks,
            sleep: self.play.sleep_ns,
        };
        let mut words = head.words().to_vec();
        words.extend(self.instructions.iter().flat_map(Instruction::words));
        let pair = |pair: &[u32]| {
            let word = |at: usize| u64::from(pair.get(at).copied().unwrap_or(0));
            word(0).to_le() | word(1).to_le() << 32
        };
        words.extend(self.lists.chunks(2).map(pair));
        let bytes = |bytes: &[u8]| {
            let mut word = [0; 8];
            word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            u64::from_ne_bytes(word)
        };
        words.extend(self.names.chunks(8).map(bytes));
        words
    }
}

/// Steps of an exchange.
const EXCHANGE: usize = 4;

/// The send and the receive of a call that does both and waits for both.
fn exchange(steps: &[Step]) -> Option<(Step, Step)> {
    let [
        receive @ Step::Receive { channel: into, request: a, mpi, .. },
        send @ Step::Send { channel, request: b, mpi: other, .. },
        Step::Wait { request: first },
        Step::Wait { request: second },
    ] = steps.first_chunk::<EXCHANGE>()?
    else {
        return None;
    };
    let mpi = [*mpi, *other].map(MpiCall::from_number);
    let is_one =
        mpi.iter().all(|mpi| matches!(mpi, Some(MpiCall::Sendrecv | MpiCall::Sendrecv_replace)));
    let on_one =
        number_apart(*channel).is_some() == (*into != NONE && number_apart(*into).is_some());
    (is_one && on_one && first == b && second == a).then_some((*send, *receive))
}
