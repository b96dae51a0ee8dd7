//! Random MPI programs: their traces, made by hand, and the schedules that must come of them, built by hand.

#[path = "../../program/tests/support/mod.rs"]
mod support;

use std::collections::HashMap;

use application::{Application, NoNoise, Options, Plan, Rules, read};
use mpi_abi::{Actual, Call, Entry, Outcome, RequestItem, Signature, present, shape};
use proptest::prelude::*;
use simulate::{
    collectives::{Collective, Op, Shape},
    event::{self, Name, OpId, Schedule, ScheduleBuilder, Test, WILDCARD},
    loggops::Params,
    noise::{Model, Noise, Offsets, Timeline},
    replay, sweep,
};
use support::{BLANK, Made, completed, message, on_comm};

/// ns of a call in made traces.
const CALL: u64 = 10;
/// Less than this after a test that failed, the program polls.
const POLL: u64 = 2_000;

/// Communicators: all ranks, those with a number of the same parity, and a ring of neighbours.
const WORLD: u32 = 0;
const HALVES: u32 = 1;
const RING: u32 = 2;

fn net() -> Params {
    Params { latency: 1_000_000, send_overhead: 100_000, recv_overhead: 100_000, ..Params::FREE }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Choice {
    Waitany,
    Waitsome,
    Testany,
    Testsome,
}

/// An action of the whole program, in an order in which it cannot deadlock.
#[derive(Clone, Debug)]
enum Act {
    Compute {
        rank: u32,
        ns: u64,
    },
    Message {
        from: u32,
        to: u32,
        tag: i32,
        bytes: u64,
        isend: bool,
        irecv: bool,
        any: bool,
    },
    /// With persistent requests on both sides, made for this message.
    Persistent {
        from: u32,
        to: u32,
        tag: i32,
        bytes: u64,
    },
    /// Both ranks send to and receive from each other in one call.
    Exchange {
        ranks: [u32; 2],
        bytes: u64,
        starts: bool,
    },
    /// A receive that is cancelled when it is waited for.
    Cancelled {
        rank: u32,
    },
    Wait {
        rank: u32,
    },
    /// Completes some of the open requests and leaves others, from a position on.
    Choose {
        rank: u32,
        call: Choice,
        done: usize,
        left: usize,
        from: usize,
    },
    /// Finds none of the open requests complete.
    Test {
        rank: u32,
        call: Call,
        count: usize,
        from: usize,
    },
    Collective {
        op: Op,
        root: u32,
        bytes: u64,
        on: u32,
        starts: bool,
    },
    /// With a size for each pair of ranks.
    Vector {
        call: Call,
        root: u32,
        seed: u64,
        starts: bool,
    },
    Neighbours {
        bytes: u64,
        starts: bool,
    },
}

/// The blocking and the nonblocking call of a collective, and whether it has a root.
fn calls(op: Op) -> (Call, Call, bool) {
    match op.evened() {
        Op::Barrier => (Call::Barrier, Call::Ibarrier, false),
        Op::Bcast => (Call::Bcast, Call::Ibcast, true),
        Op::Reduce => (Call::Reduce, Call::Ireduce, true),
        Op::Allreduce => (Call::Allreduce, Call::Iallreduce, false),
        Op::Gather => (Call::Gather, Call::Igather, true),
        Op::Scatter => (Call::Scatter, Call::Iscatter, true),
        Op::Allgather => (Call::Allgather, Call::Iallgather, false),
        Op::Alltoall => (Call::Alltoall, Call::Ialltoall, false),
        Op::Scan => (Call::Scan, Call::Iscan, false),
        Op::Exscan => (Call::Exscan, Call::Iexscan, false),
        Op::ReduceScatter => (Call::Reduce_scatter_block, Call::Ireduce_scatter_block, false),
        Op::Gatherv | Op::Scatterv | Op::Allgatherv | Op::Alltoallv => unreachable!("evened"),
    }
}

fn act(ranks: u32) -> impl Strategy<Value = Act> {
    let rank = 0..ranks;
    let pair = (rank.clone(), 1..ranks).prop_map(move |(a, distance)| [a, (a + distance) % ranks]);
    let choice = prop_oneof![
        Just(Choice::Waitany),
        Just(Choice::Waitsome),
        Just(Choice::Testany),
        Just(Choice::Testsome)
    ];
    let test = prop_oneof![
        Just(Call::Test),
        Just(Call::Testall),
        Just(Call::Testany),
        Just(Call::Testsome)
    ];
    let vector = prop_oneof![
        Just(Call::Alltoallv),
        Just(Call::Alltoallw),
        Just(Call::Gatherv),
        Just(Call::Scatterv),
        Just(Call::Allgatherv)
    ];
    let op = prop::sample::select(Op::regular().collect::<Vec<_>>());
    prop_oneof![
        3 => (rank.clone(), 1..5_000u64).prop_map(|(rank, ns)| Act::Compute { rank, ns }),
        6 => (pair.clone(), 0..3i32, 0..100_000u64, any::<(bool, bool, bool)>()).prop_map(
            |([from, to], tag, bytes, (isend, irecv, any))| Act::Message {
                from, to, tag, bytes, isend, irecv, any
            }
        ),
        1 => (pair.clone(), 0..3i32, 0..100_000u64)
            .prop_map(|([from, to], tag, bytes)| Act::Persistent { from, to, tag, bytes }),
        1 => (pair, 0..100_000u64, any::<bool>())
            .prop_map(|(ranks, bytes, starts)| Act::Exchange { ranks, bytes, starts }),
        1 => rank.clone().prop_map(|rank| Act::Cancelled { rank }),
        2 => rank.clone().prop_map(|rank| Act::Wait { rank }),
        3 => (rank.clone(), choice, 1..4usize, 0..4usize, 0..8usize).prop_map(
            |(rank, call, done, left, from)| Act::Choose { rank, call, done, left, from }
        ),
        2 => (rank.clone(), test, 1..4usize, 0..8usize)
            .prop_map(|(rank, call, count, from)| Act::Test { rank, call, count, from }),
        2 => (op, rank.clone(), 0..50_000u64, prop_oneof![3 => Just(WORLD), 1 => Just(HALVES)], any::<bool>())
            .prop_map(|(op, root, bytes, on, starts)| {
                let root = if calls(op).2 && on == WORLD { root } else { 0 };
                let bytes = if op == Op::Barrier { 0 } else { bytes };
                Act::Collective { op, root, bytes, on, starts }
            }),
        1 => (vector, rank, any::<u64>(), any::<bool>())
            .prop_map(|(call, root, seed, starts)| Act::Vector { call, root, seed, starts }),
        1 => (0..10_000u64, any::<bool>())
            .prop_map(|(bytes, starts)| Act::Neighbours { bytes, starts }),
    ]
}

/// Bytes from one rank to another in a vector collective; some ranks have nothing for others.
fn vector_size(seed: u64, from: u32, to: u32) -> u64 {
    let mixed = (u64::from(from) * 31 + u64::from(to) * 7 + 1).wrapping_mul(seed | 1) >> 32;
    if mixed.is_multiple_of(3) { 0 } else { mixed % 1_000 }
}

/// The positions among `open` requests that a call has: `count` of them, from one on.
fn some_of(open: usize, from: usize, count: usize) -> Vec<usize> {
    if open == 0 {
        return Vec::new();
    }
    (0..count.min(open)).map(|place| (from + place) % open).collect()
}

/// The requests that a choice completes and leaves.
fn split(call: Choice, open: usize, done: usize, left: usize, from: usize) -> (Vec<usize>, usize) {
    let done = if matches!(call, Choice::Waitany | Choice::Testany) { 1 } else { done };
    let all = some_of(open, from, done + left);
    let done = done.min(all.len());
    (all, done)
}

fn half(rank: u32, ranks: u32) -> Vec<u32> {
    (0..ranks).filter(|other| other % 2 == rank % 2).collect()
}

/// What a rank of the made program does, as calls in a trace.
struct Caller<'a> {
    made: &'a mut Made,
    rank: u32,
    ranks: u32,
    at: u64,
    /// As each request is when it is completed.
    open: Vec<RequestItem>,
}

impl Caller<'_> {
    fn new(made: &mut Made, rank: u32, ranks: u32) -> Caller<'_> {
        let half: Vec<i32> = half(rank, ranks).into_iter().map(|rank| rank as i32).collect();
        made.comm(HALVES, 10 + u64::from(rank % 2), (rank / 2) as i32, &half);
        made.comm(RING, 20, rank as i32, &(0..ranks as i32).collect::<Vec<_>>());
        let (before, after) = ((rank + ranks - 1) % ranks, (rank + 1) % ranks);
        made.neighbours(RING, &[before as i32], &[after as i32]);
        Caller { made, rank, ranks, at: 0, open: Vec::new() }
    }

    fn next(&mut self) -> (u64, u64) {
        let begin = self.at;
        self.at += CALL;
        (begin, self.at)
    }

    fn call(&mut self, entry: Entry) {
        let (begin, end) = self.next();
        self.made.call(begin, end, entry);
    }

    /// A call that makes a request.
    fn begin(&mut self, entry: Entry) -> u64 {
        let begun = self.made.request;
        self.made.request += 1;
        let mut signature = entry.signature;
        signature.shape |= shape::BEGUN;
        self.call(Entry { signature, begun, ..entry });
        begun
    }

    fn requests(&mut self, call: Call, items: &[RequestItem], found: bool) {
        let signature = Signature { shape: shape::REQUESTS, ..Signature::of(call) };
        self.call(Entry { signature, requests: items, found, ..BLANK });
    }

    fn wait(&mut self) {
        if !self.open.is_empty() {
            let open = std::mem::take(&mut self.open);
            self.requests(Call::Waitall, &open, true);
        }
    }

    /// A call that may only start: then its request is open.
    fn collective(&mut self, blocking: Call, starting: Call, starts: bool, entry: Entry) {
        let mut signature = entry.signature;
        signature.call = if starts { starting } else { blocking };
        let entry = Entry { signature, ..entry };
        if starts {
            let id = self.begin(entry);
            self.open.push(completed(id));
        } else {
            self.call(entry);
        }
    }

    fn act(&mut self, act: &Act) {
        let rank = self.rank;
        match *act {
            Act::Compute { rank: who, ns } if who == rank => self.at += ns,
            Act::Wait { rank: who } if who == rank => self.wait(),
            Act::Message { from, to, tag, bytes, isend, .. } if from == rank => {
                let peer = to as i32;
                if isend {
                    let signature = message(Call::Isend, peer, tag);
                    let id = self.begin(Entry { signature, bytes, ..BLANK });
                    self.open.push(completed(id));
                } else {
                    let signature = message(Call::Send, peer, tag);
                    self.call(Entry { signature, bytes, ..BLANK });
                }
            }
            Act::Message { from, to, tag, bytes, irecv, any, .. } if to == rank => {
                let peer = if any { -1 } else { from as i32 };
                let source = any.then_some(from as i32);
                // The buffer is larger than the message.
                let actual = Actual { source, tag: None, bytes: Some(bytes) };
                if irecv {
                    let signature = message(Call::Irecv, peer, tag);
                    let id = self.begin(Entry { signature, bytes: bytes + 5, ..BLANK });
                    self.open.push(RequestItem { id, outcome: Outcome::Completed, actual });
                } else {
                    let mut signature = message(Call::Recv, peer, tag);
                    signature.shape |= shape::OUTCOME;
                    self.call(Entry { signature, bytes: bytes + 5, actual, ..BLANK });
                }
            }
            Act::Persistent { from, to, tag, bytes } if from == rank || to == rank => {
                let (call, peer) = match from == rank {
                    true => (Call::Send_init, to),
                    false => (Call::Recv_init, from),
                };
                let signature = message(call, peer as i32, tag);
                let id = self.begin(Entry { signature, bytes, ..BLANK });
                let outcome = Outcome::Started;
                let actual = Actual::AS_POSTED;
                self.requests(Call::Start, &[RequestItem { id, outcome, actual }], true);
                self.open.push(completed(id));
            }
            Act::Exchange { ranks, bytes, starts } if ranks.contains(&rank) => {
                let peer = if ranks[0] == rank { ranks[1] } else { ranks[0] };
                let mut signature = message(Call::Sendrecv, peer as i32, 7);
                signature.present |= present::SOURCE | present::SOURCE_TAG | present::RECEIVED;
                (signature.source, signature.source_tag) = (peer as i32, 7);
                let entry = Entry { signature, bytes, received: bytes, ..BLANK };
                self.collective(Call::Sendrecv, Call::Isendrecv, starts, entry);
            }
            Act::Cancelled { rank: who } if who == rank => {
                let signature = message(Call::Irecv, ((rank + 1) % self.ranks) as i32, 99);
                let id = self.begin(Entry { signature, bytes: 8, ..BLANK });
                let actual = Actual::AS_POSTED;
                self.open.push(RequestItem { id, outcome: Outcome::Cancelled, actual });
            }
            Act::Choose { rank: who, call, done, left, from } if who == rank => {
                let (all, done) = split(call, self.open.len(), done, left, from);
                if all.is_empty() {
                    return;
                }
                let pending = |item: RequestItem| RequestItem {
                    outcome: Outcome::Pending,
                    actual: Actual::AS_POSTED,
                    ..item
                };
                let mut items: Vec<RequestItem> = all.iter().map(|&at| self.open[at]).collect();
                items[done..].iter_mut().for_each(|item| *item = pending(*item));
                let call = match call {
                    Choice::Waitany => Call::Waitany,
                    Choice::Waitsome => Call::Waitsome,
                    Choice::Testany => Call::Testany,
                    Choice::Testsome => Call::Testsome,
                };
                self.requests(call, &items, true);
                self.open.retain(|open| !items[..done].iter().any(|item| item.id == open.id));
            }
            Act::Test { rank: who, call, count, from } if who == rank => {
                let count = if call == Call::Test { 1 } else { count };
                let pending = |at: usize| RequestItem {
                    outcome: Outcome::Pending,
                    actual: Actual::AS_POSTED,
                    ..self.open[at]
                };
                let all = some_of(self.open.len(), from, count);
                let items: Vec<RequestItem> = all.into_iter().map(pending).collect();
                if !items.is_empty() {
                    self.requests(call, &items, false);
                }
            }
            Act::Collective { op, root, bytes, on, starts } => {
                let (blocking, starting, rooted) = calls(op);
                let mut signature = on_comm(blocking, on);
                if rooted {
                    signature.present |= present::PEER;
                    signature.peer = root as i32;
                }
                self.collective(blocking, starting, starts, Entry { signature, bytes, ..BLANK });
            }
            Act::Vector { call, root, seed, starts } => self.vector(call, root, seed, starts),
            Act::Neighbours { bytes, starts } => {
                let signature = on_comm(Call::Neighbor_allgather, RING);
                let entry = Entry { signature, bytes, ..BLANK };
                let (one, other) = (Call::Neighbor_allgather, Call::Ineighbor_allgather);
                self.collective(one, other, starts, entry);
            }
            _ => {}
        }
    }

    fn vector(&mut self, call: Call, root: u32, seed: u64, starts: bool) {
        let (rank, ranks) = (self.rank, self.ranks);
        let mut signature = on_comm(call, WORLD);
        let (mut sent, mut got) = (Vec::new(), Vec::new());
        let (mut bytes, mut received) = (0, 0);
        let to = |from: u32| (0..ranks).map(|to| vector_size(seed, from, to)).collect::<Vec<_>>();
        let from = |to: u32| (0..ranks).map(|from| vector_size(seed, from, to)).collect::<Vec<_>>();
        let starting = match call {
            Call::Gatherv => {
                bytes = vector_size(seed, rank, root);
                got = if rank == root { from(root) } else { Vec::new() };
                Call::Igatherv
            }
            Call::Scatterv => {
                received = vector_size(seed, root, rank);
                sent = if rank == root { to(root) } else { Vec::new() };
                Call::Iscatterv
            }
            Call::Allgatherv => {
                bytes = vector_size(seed, rank, rank);
                got = (0..ranks).map(|rank| vector_size(seed, rank, rank)).collect();
                Call::Iallgatherv
            }
            _ => {
                (sent, got) = (to(rank), from(rank));
                if call == Call::Alltoallv { Call::Ialltoallv } else { Call::Ialltoallw }
            }
        };
        if matches!(call, Call::Gatherv | Call::Scatterv) {
            signature.present |= present::PEER;
            signature.peer = root as i32;
        }
        signature.present |= present::RECEIVED;
        signature.shape |= if sent.is_empty() { 0 } else { shape::SENT };
        signature.shape |= if got.is_empty() { 0 } else { shape::RECEIVED };
        let entry = Entry { signature, bytes, received, sent: &sent, got: &got, ..BLANK };
        self.collective(call, starting, starts, entry);
    }
}

#[derive(Clone, Copy)]
enum Open {
    /// Send and receive of an exchange, or one operation.
    Ops([Option<OpId>; 2]),
    Name(Name),
}

/// What all ranks share: numbers are given in the order of first use.
#[derive(Default)]
struct Numbers {
    channels: HashMap<i32, u32>,
    groups: HashMap<u64, u32>,
}

/// The schedule, built from the actions.
struct Builder<'a> {
    builder: &'a mut ScheduleBuilder,
    numbers: &'a mut Numbers,
    rank: u32,
    ranks: u32,
    deterministic: bool,
    after: Vec<(OpId, bool)>,
    open: Vec<Open>,
    /// Collectives so far on each communicator.
    sequence: [u32; 3],
    /// Numbers of the open requests, and the next one.
    ids: Vec<u64>,
    next: u64,
    /// Consecutive computation is one gap between calls, ns.
    computed: u64,
    /// The last calls were tests that failed.
    tests: Option<Tests>,
    /// Those that have ended.
    runs: Vec<Tests>,
    /// Which of them were work, if that is known.
    work: Vec<bool>,
}

/// Tests that fail, one soon after the other.
#[derive(Clone, Default)]
struct Tests {
    tested: Vec<u64>,
    count: u64,
    /// In and between them, after the first.
    ns: u64,
    got_what_was_tested: bool,
}

/// What a call means to failing tests before it.
enum Next {
    Fails(Vec<u64>),
    Completes(Vec<u64>),
    Other,
}

/// Which runs of failing tests were work: those that ended otherwise than with what was tested, and if a quarter
/// of the time was in such runs, all whose tests followed each other about as fast.
fn were_work(runs: &[Tests]) -> Vec<bool> {
    let worked: Vec<&Tests> = runs.iter().filter(|run| !run.got_what_was_tested).collect();
    let sum = |runs: &[&Tests]| runs.iter().map(|run| run.ns).sum::<u64>();
    let (ns, all) = (sum(&worked), runs.iter().map(|run| run.ns).sum::<u64>());
    let usual = ns as f64 / worked.iter().map(|run| run.count).sum::<u64>() as f64;
    runs.iter()
        .map(|run| {
            let each = run.ns as f64 / run.count as f64;
            let alike = each <= 2.0 * usual && usual <= 2.0 * each;
            !run.got_what_was_tested
                || !worked.is_empty() && ns as f64 >= 0.25 * all as f64 && alike
        })
        .collect()
}

impl Builder<'_> {
    fn issue(&mut self, op: OpId, starts: bool) {
        for (on, start) in self.after.drain(..) {
            if start { self.builder.irequires(op, on) } else { self.builder.requires(op, on) }
        }
        self.after.push((op, starts));
        if starts {
            self.push(Open::Ops([Some(op), None]));
        }
    }

    fn push(&mut self, open: Open) {
        self.open.push(open);
        self.ids.push(self.next);
        self.next += 1;
    }

    fn channel(&mut self, tag: i32) -> u32 {
        let next = self.numbers.channels.len() as u32;
        *self.numbers.channels.entry(tag).or_insert(next)
    }

    fn collective_channel(&mut self, on: u32) -> u32 {
        let key = match on {
            WORLD => 1,
            HALVES => 10 + u64::from(self.rank % 2),
            _ => 20,
        };
        let next = self.numbers.groups.len() as u32;
        let group = *self.numbers.groups.entry(key).or_insert(next);
        self.sequence[on as usize] += 1;
        0x8000_0000 | group << 12 | self.sequence[on as usize]
    }

    fn wait_for(&mut self, open: Open) {
        match open {
            Open::Ops(ops) => {
                for op in ops.into_iter().flatten() {
                    self.after.retain(|after| *after != (op, true));
                    self.after.push((op, false));
                    if self.after.len() > 4 {
                        self.join();
                    }
                }
            }
            Open::Name(name) => {
                let choice = self.builder.choose(&[name], &[], 0);
                self.issue(choice, false);
            }
        }
    }

    fn join(&mut self) -> OpId {
        let join = self.builder.calc(0, 0);
        self.issue(join, false);
        join
    }

    /// None if there is nothing to wait for.
    fn name(&mut self, at: usize) -> Option<Name> {
        let name = match self.open[at] {
            Open::Name(name) => return Some(name),
            Open::Ops([None, None]) => return None,
            Open::Ops(ops) => {
                let ops: Vec<OpId> = ops.into_iter().flatten().collect();
                self.builder.name(&ops)
            }
        };
        self.open[at] = Open::Name(name);
        Some(name)
    }

    /// A call begins. Returns whether it comes soon after a test that failed.
    fn call(&mut self, next: Next) -> bool {
        let gap = std::mem::take(&mut self.computed);
        let polls = self.tests.is_some() && gap <= POLL;
        if !polls && gap > 0 {
            self.compute(gap);
        }
        let tests = self.tests.take();
        if let Next::Fails(ids) = next {
            let mut tests = tests.unwrap_or_default();
            if tests.count == 0 {
                tests.count = 1;
            } else if polls {
                tests.count += 1;
                tests.ns += gap + CALL;
            }
            tests.tested.extend(ids);
            self.tests = Some(tests);
        } else if let Some(mut tests) = tests {
            tests.ns += if polls { gap } else { 0 };
            if let Next::Completes(ids) = next {
                tests.got_what_was_tested = ids.iter().any(|id| tests.tested.contains(id));
            }
            if tests.ns > 0 {
                if self.work.get(self.runs.len()).copied().unwrap_or(false) {
                    self.compute(tests.ns);
                }
                self.runs.push(tests);
            }
        }
        polls
    }

    fn compute(&mut self, ns: u64) {
        let calc = self.builder.calc(ns as i64 * 1_000, 0);
        self.issue(calc, false);
    }

    fn ids(&self, all: &[usize]) -> Vec<u64> {
        all.iter().map(|&at| self.ids[at]).collect()
    }

    fn act(&mut self, act: &Act) {
        let rank = self.rank;
        match *act {
            Act::Compute { rank: who, ns } if who == rank => self.computed += ns,
            Act::Wait { rank: who } if who == rank => self.wait(),
            Act::Message { from, to, tag, bytes, isend, .. } if from == rank => {
                self.call(Next::Other);
                let channel = self.channel(tag);
                let send = self.builder.send(bytes, to, channel, 0, 0);
                self.issue(send, isend);
            }
            Act::Message { from, to, tag, bytes, irecv, any, .. } if to == rank => {
                self.call(Next::Other);
                let channel = self.channel(tag);
                // What a receive from any source gets may be as large as its buffer.
                let (from, bytes) = if any { (WILDCARD, bytes + 5) } else { (from, bytes) };
                let receive = self.builder.recv(bytes, from, channel, 0, 0);
                self.issue(receive, irecv);
            }
            Act::Persistent { from, to, tag, bytes } if from == rank || to == rank => {
                // Making the request does not communicate: it counts as computation.
                self.computed += CALL;
                self.call(Next::Other);
                let channel = self.channel(tag);
                let op = match from == rank {
                    true => self.builder.send(bytes, to, channel, 0, 0),
                    false => self.builder.recv(bytes, from, channel, 0, 0),
                };
                self.issue(op, true);
            }
            Act::Exchange { ranks, bytes, starts } if ranks.contains(&rank) => {
                self.call(Next::Other);
                let peer = if ranks[0] == rank { ranks[1] } else { ranks[0] };
                let channel = self.channel(7);
                let receive = self.builder.recv(bytes, peer, channel, 0, 0);
                self.issue(receive, true);
                let send = self.builder.send(bytes, peer, channel, 0, 0);
                self.issue(send, true);
                self.open.truncate(self.open.len() - 2);
                self.ids.truncate(self.ids.len() - 2);
                let open = Open::Ops([Some(send), Some(receive)]);
                if starts {
                    self.push(open);
                } else {
                    self.wait_for(open);
                }
            }
            Act::Cancelled { rank: who } if who == rank => {
                self.call(Next::Other);
                // It is not in the schedule, but its tag has a number.
                self.channel(99);
                self.push(Open::Ops([None; 2]));
            }
            Act::Choose { rank: who, call, done, left, from } if who == rank => {
                let (all, done) = split(call, self.open.len(), done, left, from);
                if !all.is_empty() {
                    self.choose(call, &all, done);
                }
            }
            Act::Test { rank: who, call, count, from } if who == rank => {
                let count = if call == Call::Test { 1 } else { count };
                let all = some_of(self.open.len(), from, count);
                if !all.is_empty() {
                    self.test(call, &all);
                }
            }
            Act::Collective { op, root, bytes, on, starts } => {
                self.call(Next::Other);
                let members =
                    if on == WORLD { (0..self.ranks).collect() } else { half(rank, self.ranks) };
                if members.len() > 1 {
                    let channel = self.collective_channel(on);
                    let first = self.builder.next_op();
                    self.rounds(op, &members, channel, root, bytes);
                    self.started(first, starts);
                } else if starts {
                    self.push(Open::Ops([None; 2]));
                }
            }
            Act::Vector { call, root, seed, starts } => self.vector(call, root, seed, starts),
            Act::Neighbours { bytes, starts } => {
                self.call(Next::Other);
                let channel = self.collective_channel(RING);
                let (before, after) =
                    ((rank + self.ranks - 1) % self.ranks, (rank + 1) % self.ranks);
                let first = self.builder.next_op();
                self.messages(channel, &[(after, bytes)], &[(before, bytes)]);
                self.started(first, starts);
            }
            _ => {}
        }
    }

    fn wait(&mut self) {
        if !self.open.is_empty() {
            let ids = std::mem::take(&mut self.ids);
            self.call(Next::Completes(ids));
            std::mem::take(&mut self.open).into_iter().for_each(|open| self.wait_for(open));
        }
    }

    fn choose(&mut self, call: Choice, all: &[usize], done: usize) {
        // Tests have what they complete, waits also wait for the others.
        let waits = matches!(call, Choice::Waitany | Choice::Waitsome);
        let of = if waits { all.len() } else { done };
        self.call(Next::Completes(self.ids(&all[..of])));
        let none = |open: &Open| matches!(open, Open::Ops([None, None]));
        // Which ones it completes matters only if others are left.
        let there = |at: &&usize| !none(&self.open[**at]);
        let chooses = all[..done].iter().filter(there).count() > 0
            && all[done..].iter().filter(there).count() > 0;
        if chooses && !self.deterministic {
            let mut names: [Vec<Name>; 2] = Default::default();
            for (place, &at) in all.iter().enumerate() {
                let name = self.name(at);
                names[usize::from(place >= done)].extend(name);
            }
            let choice = self.builder.choose(&names[0], &names[1], 0);
            self.issue(choice, false);
        } else {
            for &at in &all[..done] {
                self.wait_for(self.open[at]);
            }
        }
        let mut at = 0;
        self.open.retain(|_| {
            at += 1;
            !all[..done].contains(&(at - 1))
        });
        at = 0;
        self.ids.retain(|_| {
            at += 1;
            !all[..done].contains(&(at - 1))
        });
    }

    fn test(&mut self, call: Call, all: &[usize]) {
        if self.call(Next::Fails(self.ids(all))) {
            return;
        }
        let ps = CALL as i64 * 1_000;
        if self.deterministic {
            let calc = self.builder.calc(ps, 0);
            return self.issue(calc, false);
        }
        let names: Vec<Name> = all.iter().filter_map(|&at| self.name(at)).collect();
        let test = match call {
            Call::Testany => Test::One,
            Call::Testsome => Test::Some,
            _ => Test::All,
        };
        if !names.is_empty() {
            let test = self.builder.test(&names, test, ps, 0);
            self.issue(test, false);
        }
    }

    /// A collective is a request that ends with its last operation if it only starts.
    fn started(&mut self, first: OpId, starts: bool) {
        if !starts {
            return;
        }
        let mut end = None;
        if self.builder.next_op() != first {
            end = Some(self.join());
            self.after = vec![(first, true)];
        }
        self.push(Open::Ops([end, None]));
    }

    fn depend(&mut self, op: OpId) {
        for &(on, start) in &self.after {
            if start { self.builder.irequires(op, on) } else { self.builder.requires(op, on) }
        }
    }

    fn rounds(&mut self, op: Op, members: &[u32], channel: u32, root: u32, bytes: u64) {
        let count = members.len() as u32;
        let shape = Shape { op, ranks: count.into(), bytes, arity: 2, segment: None };
        let algorithm = Rules::default().of(op, bytes);
        let collective = Collective::new(Some(algorithm), shape).unwrap();
        let own = members.iter().position(|member| *member == self.rank).unwrap() as u32;
        let relative = u64::from((own + count - root) % count);
        let actual = |rank: u64| members[((rank as u32 + root) % count) as usize];
        let _ = collective.rounds(&mut |spans| {
            let edges = || {
                spans.iter().flat_map(|span| {
                    span.edges(count.into()).map(|(from, to)| (from, to, span.bytes))
                })
            };
            let send = edges().find(|edge| edge.0 == relative);
            let receive = edges().find(|edge| edge.1 == relative);
            let mut now = Vec::new();
            if let Some((_, to, bytes)) = send {
                now.push(self.builder.send(bytes, actual(to), channel, 0, 0));
            }
            if let Some((from, _, bytes)) = receive {
                now.push(self.builder.recv(bytes, actual(from), channel, 0, 0));
            }
            now.iter().for_each(|&op| self.depend(op));
            if let [send, receive] = now[..] {
                self.builder.irequires(receive, send);
            }
            if !now.is_empty() {
                self.after = now.into_iter().map(|op| (op, false)).collect();
            }
            std::ops::ControlFlow::Continue(())
        });
    }

    /// Receives posted and messages sent one after the other, all ended together.
    fn messages(&mut self, channel: u32, to: &[(u32, u64)], from: &[(u32, u64)]) {
        let mut ops: Vec<OpId> = Vec::new();
        let own = self.rank;
        for (list, sends) in [(from, false), (to, true)] {
            for &(peer, bytes) in list.iter().filter(|(peer, _)| *peer != own) {
                let op = match sends {
                    true => self.builder.send(bytes, peer, channel, 0, 0),
                    false => self.builder.recv(bytes, peer, channel, 0, 0),
                };
                match ops.last() {
                    Some(&last) => self.builder.irequires(op, last),
                    None => self.depend(op),
                }
                ops.push(op);
            }
        }
        if !ops.is_empty() {
            self.after = ops.into_iter().map(|op| (op, false)).collect();
            if self.after.len() > 4 {
                self.join();
            }
        }
    }

    fn vector(&mut self, call: Call, root: u32, seed: u64, starts: bool) {
        self.call(Next::Other);
        let (rank, ranks) = (self.rank, self.ranks);
        let channel = self.collective_channel(WORLD);
        let first = self.builder.next_op();
        let size = |from: u32, to: u32| vector_size(seed, from, to);
        let to_all = |from: u32| (0..ranks).map(|to| (to, size(from, to))).collect::<Vec<_>>();
        let from_all = |to: u32| (0..ranks).map(|from| (from, size(from, to))).collect::<Vec<_>>();
        let there = |list: Vec<(u32, u64)>| {
            list.into_iter().filter(|(_, bytes)| *bytes > 0).collect::<Vec<_>>()
        };
        match call {
            Call::Gatherv if rank == root => self.messages(channel, &[], &from_all(root)),
            Call::Gatherv => self.messages(channel, &[(root, size(rank, root))], &[]),
            Call::Scatterv if rank == root => self.messages(channel, &to_all(root), &[]),
            Call::Scatterv => self.messages(channel, &[], &[(root, size(root, rank))]),
            Call::Allgatherv => {
                // Small blocks: as an allgather of the largest.
                let most = (0..ranks).map(|rank| size(rank, rank)).max().unwrap_or(0);
                let all: Vec<u32> = (0..ranks).collect();
                self.rounds(Op::Allgather, &all, channel, 0, most);
            }
            _ => self.messages(channel, &there(to_all(rank)), &there(from_all(rank))),
        }
        self.started(first, starts);
    }
}

fn expected(ranks: u32, acts: &[Act], deterministic: bool) -> Schedule {
    let mut builder = ScheduleBuilder::new(ranks).with_mpi_matching();
    let mut numbers = Numbers::default();
    let (mut before, mut numbers_before) =
        (ScheduleBuilder::new(ranks).with_mpi_matching(), Numbers::default());
    for rank in 0..ranks {
        // Which failing tests were work is known at the end of a rank: the first time tells.
        let go = |builder: &mut ScheduleBuilder, numbers: &mut Numbers, work: Vec<bool>| {
            builder.begin_rank();
            let mut rank_builder = Builder {
                builder,
                numbers,
                rank,
                ranks,
                deterministic,
                after: Vec::new(),
                open: Vec::new(),
                sequence: [0; 3],
                ids: Vec::new(),
                next: 0,
                computed: 0,
                tests: None,
                runs: Vec::new(),
                work,
            };
            acts.iter().for_each(|act| rank_builder.act(act));
            rank_builder.wait();
            rank_builder.call(Next::Other);
            were_work(&rank_builder.runs)
        };
        let work = go(&mut before, &mut numbers_before, Vec::new());
        go(&mut builder, &mut numbers, work);
    }
    builder.finish().unwrap()
}

fn traced(ranks: u32, acts: &[Act], deterministic: bool) -> Application {
    let dir = tempfile::tempdir().unwrap();
    for rank in 0..ranks {
        let mut made = Made::new(dir.path(), rank, ranks);
        let mut caller = Caller::new(&mut made, rank, ranks);
        acts.iter().for_each(|act| caller.act(act));
        caller.wait();
        let end = caller.at;
        made.finish(end);
    }
    let program = program::open(dir.path()).unwrap();
    let options = Options { as_traced: false, deterministic };
    read(&program, &program::Clocks::default(), &options, &NoNoise).unwrap()
}

fn without_wildcards(act: Act) -> Act {
    match act {
        Act::Message { from, to, tag, bytes, isend, irecv, .. } => {
            Act::Message { from, to, tag, bytes, isend, irecv, any: false }
        }
        act => act,
    }
}

fn made_and_wanted(ranks: u32, acts: &[Act], deterministic: bool) -> (Schedule, Schedule) {
    let rules = Rules::default();
    let plan = Plan { copies: 1, rules: &rules, only: None, with_taken: true, net: None };
    let made = traced(ranks, acts, deterministic).schedule(&plan).unwrap();
    (made, expected(ranks, acts, deterministic))
}

/// No choice is made where the completed request had nothing to do, and the one left stays as it was.
#[test]
fn a_collective_without_messages_is_no_choice() {
    let starts = |seed| Act::Vector { call: Call::Alltoallv, root: 0, seed, starts: true };
    // With the first, rank 0 receives only; with the second, nobody has anything for another.
    let (some, none) = (48_698_531_917_070_336, 1_809_471_777_886_175_232);
    assert_eq!([vector_size(some, 0, 1), vector_size(some, 1, 0)], [0, 337]);
    assert_eq!([vector_size(none, 0, 1), vector_size(none, 1, 0)], [0, 0]);
    let wait = Act::Choose { rank: 0, call: Choice::Waitany, done: 1, left: 1, from: 1 };
    let (made, wanted) = made_and_wanted(2, &[starts(some), starts(none), wait], false);
    assert!(!made.has_choices());
    assert!(made == wanted);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_trace_becomes_the_schedule_of_its_program(
        (ranks, acts) in (2..6u32).prop_flat_map(|ranks| {
            (Just(ranks), prop::collection::vec(act(ranks), 0..40))
        }),
        deterministic in any::<bool>(),
    ) {
        let (made, wanted) = made_and_wanted(ranks, &acts, deterministic);
        prop_assert_eq!(made.operations(), wanted.operations());
        prop_assert!(made == wanted, "{acts:?}");
        prop_assert!(!(deterministic && made.has_choices()));
        // With wildcards, another order of arrival may deadlock, as in the real program.
        let fixed: Vec<Act> = acts.iter().cloned().map(without_wildcards).collect();
        let options = event::Options::default();
        let noise = Noise::none();
        let fixed = expected(ranks, &fixed, deterministic);
        let ends = event::run(&fixed, &net(), &options, &noise.run(0, 0)).unwrap().ends;
        prop_assert_eq!(ends.len(), ranks as usize);
    }

    /// Segment by segment, a program takes to the bit what it takes as one schedule.
    #[test]
    fn segments_take_what_the_whole_takes(
        (ranks, acts) in (2..5u32).prop_flat_map(|ranks| {
            (Just(ranks), prop::collection::vec(act(ranks), 1..40))
        }),
        copies in prop_oneof![3 => 1..4u32, 1 => 8..18u32],
        (latency, os, or, gap, per_byte) in
            (prop_oneof![Just(0), 0..5_000i64], 0..2_000i64, prop_oneof![Just(0), 0..2_000i64], 0..4_000i64, 0..50i64),
        eager in prop_oneof![Just(u64::MAX), 0..100_000u64],
        handshake in any::<bool>(),
        noisy in any::<bool>(),
        seed in any::<u64>(),
    ) {
        // Everything is waited for before a collective of all ranks, which blocks and starts at rank 0.
        let mut clean = Vec::new();
        for act in acts.into_iter().map(without_wildcards) {
            match act {
                Act::Collective { op, bytes, on: WORLD, .. } => {
                    clean.extend((0..ranks).map(|rank| Act::Wait { rank }));
                    clean.push(Act::Collective { op, root: 0, bytes, on: WORLD, starts: false });
                }
                Act::Vector { .. } | Act::Neighbours { .. } => {}
                act => clean.push(act),
            }
        }
        let application = traced(ranks, &clean, false);
        let net = Params {
            latency: latency * 1_000,
            send_overhead: os * 1_000,
            recv_overhead: or * 1_000,
            gap: gap * 1_000,
            gap_per_byte_fs: per_byte * 1_000,
            eager_limit: eager,
            ..Params::FREE
        };
        let rendezvous =
            if handshake { event::Rendezvous::Handshake } else { event::Rendezvous::ClosedForm };
        let options = event::Options { rendezvous, ..event::Options::default() };
        let noise = match noisy {
            false => Noise::none(),
            true => {
                let timeline = Timeline::periodic(20_000_000, 3_000_000).unwrap();
                Noise::new(vec![timeline], Model::Preempt, Offsets::Random).unwrap()
            }
        };
        let rules = Rules::default();
        let plan = Plan { copies, rules: &rules, only: None, with_taken: false, net: Some(&net) };
        let runs = sweep::Plan { runs: 3, seed, threads: 2, memory: u64::MAX, progress: &|_| true };
        let whole = application.schedule(&plan).unwrap();
        let whole = replay::share(&whole, &net, &options, &noise, &runs, 0..3);
        let segments = application.segments(&plan, &net, &options, &noise).unwrap();
        let segments = segments.expect("nothing crosses a collective");
        let times = segments.times(&net, &options, &noise, &runs, 0..3);
        match whole {
            // Large messages may block each other, in both.
            Err(_) => prop_assert!(times.is_err()),
            Ok(whole) => prop_assert_eq!(times.unwrap(), whole.times),
        }
    }
}
