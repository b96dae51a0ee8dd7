//! Traces made by hand and the schedules that must come of them.

#[path = "../../program/tests/support/mod.rs"]
mod support;

use std::collections::HashMap;

use application::{Application, NoNoise, Only, Options, Plan, ReadError, Rules, Taken, read};
use mpi_abi::{Actual, Call, Entry, Outcome, RequestItem, Signature, present, shape};
use proptest::prelude::*;
use simulate::{
    collectives::{Collective, Op, Shape},
    event::{self, OpId, Schedule, ScheduleBuilder, WILDCARD},
    job::Job,
    loggops::Params,
    noise::{Model, Noise, Offsets, Timeline},
    replay, rounds, sweep,
};
use support::{BLANK, Made, completed, message, on_comm};

/// ns of a call in made traces.
const CALL: u64 = 10;

fn program(ranks: u32, mut write: impl FnMut(u32, &mut Made) -> u64) -> program::Program {
    let dir = tempfile::tempdir().unwrap();
    for rank in 0..ranks {
        let mut made = Made::new(dir.path(), rank, ranks);
        let end = write(rank, &mut made);
        made.finish(end);
    }
    // The files are read before the directory is removed.
    program::open(&dir.keep()).unwrap()
}

fn application(program: &program::Program, options: Options) -> Result<Application, ReadError> {
    let application = read(program, &program::Clocks::default(), &options, &NoNoise);
    std::fs::remove_dir_all(&program.dir).unwrap();
    application
}

fn schedule(application: &Application, copies: u32) -> Schedule {
    let rules = Rules::default();
    let plan = Plan { copies, rules: &rules, only: None, with_taken: true, net: None };
    application.schedule(&plan).unwrap()
}

fn ends(schedule: &Schedule, params: &Params) -> Vec<i64> {
    let options = event::Options::default();
    event::run(schedule, params, &options, &Noise::none().run(0, 0)).unwrap().ends
}

fn net() -> Params {
    Params { latency: 1_000_000, send_overhead: 100_000, recv_overhead: 100_000, ..Params::FREE }
}

/// An action of the whole program, in an order in which it cannot deadlock.
#[derive(Clone, Debug)]
enum Act {
    Compute { rank: u32, ns: u64 },
    Message { from: u32, to: u32, tag: i32, bytes: u64, isend: bool, irecv: bool, any: bool },
    Wait { rank: u32 },
    Collective { call: Call, op: Op, root: u32, bytes: u64 },
}

fn act(ranks: u32) -> impl Strategy<Value = Act> {
    let rank = 0..ranks;
    let collectives = prop_oneof![
        Just((Call::Barrier, Op::Barrier, false)),
        Just((Call::Bcast, Op::Bcast, true)),
        Just((Call::Reduce, Op::Reduce, true)),
        Just((Call::Allreduce, Op::Allreduce, false)),
        Just((Call::Gather, Op::Gather, true)),
        Just((Call::Scatter, Op::Scatter, true)),
        Just((Call::Allgather, Op::Allgather, false)),
        Just((Call::Alltoall, Op::Alltoall, false)),
        Just((Call::Scan, Op::Scan, false)),
        Just((Call::Reduce_scatter_block, Op::ReduceScatter, false)),
    ];
    prop_oneof![
        3 => (rank.clone(), 1..5_000u64).prop_map(|(rank, ns)| Act::Compute { rank, ns }),
        6 => (rank.clone(), 1..ranks, 0..3i32, 0..100_000u64, any::<(bool, bool, bool)>()).prop_map(
            move |(from, distance, tag, bytes, (isend, irecv, any))| Act::Message {
                from, to: (from + distance) % ranks, tag, bytes, isend, irecv, any
            }
        ),
        2 => rank.clone().prop_map(|rank| Act::Wait { rank }),
        2 => (collectives, rank, 0..50_000u64).prop_map(|((call, op, rooted), root, bytes)| {
            let root = if rooted { root } else { 0 };
            let bytes = if op == Op::Barrier { 0 } else { bytes };
            Act::Collective { call, op, root, bytes }
        }),
    ]
}

/// What a rank of the made program does, as calls in a trace.
struct Caller<'a> {
    made: &'a mut Made,
    at: u64,
    open: Vec<RequestItem>,
}

impl Caller<'_> {
    fn next(&mut self) -> (u64, u64) {
        let begin = self.at;
        self.at += CALL;
        (begin, self.at)
    }

    fn wait(&mut self) {
        if !self.open.is_empty() {
            let open = std::mem::take(&mut self.open);
            let (begin, end) = self.next();
            self.made.complete(begin, end, &open);
        }
    }

    fn act(&mut self, rank: u32, act: &Act) {
        match *act {
            Act::Compute { rank: who, ns } if who == rank => self.at += ns,
            Act::Wait { rank: who } if who == rank => self.wait(),
            Act::Message { from, to, tag, bytes, isend, .. } if from == rank => {
                let (begin, end) = self.next();
                let peer = to as i32;
                if isend {
                    let id = self.made.begin(Call::Isend, begin, end, peer, tag, bytes);
                    self.open.push(completed(id));
                } else {
                    let signature = message(Call::Send, peer, tag);
                    self.made.call(begin, end, Entry { signature, bytes, ..BLANK });
                }
            }
            Act::Message { from, to, tag, bytes, irecv, any, .. } if to == rank => {
                let (begin, end) = self.next();
                let peer = if any { -1 } else { from as i32 };
                let source = any.then_some(from as i32);
                // The buffer is larger than the message.
                let actual = Actual { source, tag: None, bytes: Some(bytes) };
                if irecv {
                    let id = self.made.begin(Call::Irecv, begin, end, peer, tag, bytes + 5);
                    self.open.push(RequestItem { id, outcome: Outcome::Completed, actual });
                } else {
                    let mut signature = message(Call::Recv, peer, tag);
                    signature.shape |= shape::OUTCOME;
                    let entry = Entry { signature, bytes: bytes + 5, actual, ..BLANK };
                    self.made.call(begin, end, entry);
                }
            }
            Act::Collective { call, root, bytes, op } => {
                let (begin, end) = self.next();
                let mut signature = on_comm(call, 0);
                if matches!(op, Op::Bcast | Op::Reduce | Op::Gather | Op::Scatter) {
                    signature.present |= present::PEER;
                    signature.peer = root as i32;
                }
                self.made.call(begin, end, Entry { signature, bytes, ..BLANK });
            }
            _ => {}
        }
    }
}

/// The schedule, built from the actions.
struct Builder<'a> {
    builder: &'a mut ScheduleBuilder,
    channels: &'a mut HashMap<i32, u32>,
    ranks: u32,
    after: Vec<(OpId, bool)>,
    open: Vec<OpId>,
    collectives: u32,
    /// Consecutive computation is one gap between calls, ns.
    computed: u64,
}

impl Builder<'_> {
    fn issue(&mut self, op: OpId, starts: bool) {
        for (on, start) in self.after.drain(..) {
            if start { self.builder.irequires(op, on) } else { self.builder.requires(op, on) }
        }
        self.after.push((op, starts));
        if starts {
            self.open.push(op);
        }
    }

    fn channel(&mut self, tag: i32) -> u32 {
        let next = self.channels.len() as u32;
        *self.channels.entry(tag).or_insert(next)
    }

    fn wait(&mut self) {
        for op in std::mem::take(&mut self.open) {
            self.after.retain(|after| *after != (op, true));
            self.after.push((op, false));
            if self.after.len() > 4 {
                let join = self.builder.calc(0, 0);
                self.issue(join, false);
            }
        }
    }

    fn compute(&mut self) {
        if self.computed > 0 {
            let calc = self.builder.calc(self.computed as i64 * 1_000, 0);
            self.issue(calc, false);
            self.computed = 0;
        }
    }

    fn act(&mut self, rank: u32, act: &Act) {
        let calls = match *act {
            Act::Compute { .. } => false,
            Act::Wait { rank: who } => who == rank && !self.open.is_empty(),
            Act::Message { from, to, .. } => from == rank || to == rank,
            Act::Collective { .. } => true,
        };
        if calls {
            self.compute();
        }
        match *act {
            Act::Compute { rank: who, ns } if who == rank => self.computed += ns,
            Act::Wait { rank: who } if who == rank => self.wait(),
            Act::Message { from, to, tag, bytes, isend, .. } if from == rank => {
                let channel = self.channel(tag);
                let send = self.builder.send(bytes, to, channel, 0, 0);
                self.issue(send, isend);
            }
            Act::Message { from, to, tag, bytes, irecv, any, .. } if to == rank => {
                let channel = self.channel(tag);
                // What a receive from any source gets may be as large as its buffer.
                let (from, bytes) = if any { (WILDCARD, bytes + 5) } else { (from, bytes) };
                let receive = self.builder.recv(bytes, from, channel, 0, 0);
                self.issue(receive, irecv);
            }
            Act::Collective { op, root, bytes, .. } => {
                self.collectives += 1;
                let channel = 0x8000_0000 | self.collectives;
                let shape = Shape { op, ranks: self.ranks.into(), bytes, arity: 2, segment: None };
                let algorithm = Rules::default().of(op, bytes);
                let collective = Collective::new(Some(algorithm), shape).unwrap();
                let relative = u64::from((rank + self.ranks - root) % self.ranks);
                let actual = |rank: u64| (rank as u32 + root) % self.ranks;
                let _ = collective.rounds(&mut |spans| {
                    let edges = || {
                        spans.iter().flat_map(|span| {
                            span.edges(self.ranks.into()).map(|(from, to)| (from, to, span.bytes))
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
                    for &op in &now {
                        for &(on, start) in &self.after {
                            match start {
                                true => self.builder.irequires(op, on),
                                false => self.builder.requires(op, on),
                            }
                        }
                    }
                    if let [send, receive] = now[..] {
                        self.builder.irequires(receive, send);
                    }
                    if !now.is_empty() {
                        self.after = now.into_iter().map(|op| (op, false)).collect();
                    }
                    std::ops::ControlFlow::Continue(())
                });
            }
            _ => {}
        }
    }
}

fn expected(ranks: u32, acts: &[Act]) -> Schedule {
    let mut builder = ScheduleBuilder::new(ranks).with_mpi_matching();
    let mut channels = HashMap::new();
    for rank in 0..ranks {
        builder.begin_rank();
        let mut rank_builder = Builder {
            builder: &mut builder,
            channels: &mut channels,
            ranks,
            after: Vec::new(),
            open: Vec::new(),
            collectives: 0,
            computed: 0,
        };
        acts.iter().for_each(|act| rank_builder.act(rank, act));
        rank_builder.compute();
        rank_builder.wait();
    }
    builder.finish().unwrap()
}

fn without_wildcards(act: Act) -> Act {
    match act {
        Act::Message { from, to, tag, bytes, isend, irecv, .. } => {
            Act::Message { from, to, tag, bytes, isend, irecv, any: false }
        }
        act => act,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_trace_becomes_the_schedule_of_its_program(
        (ranks, acts) in (2..6u32).prop_flat_map(|ranks| {
            (Just(ranks), prop::collection::vec(act(ranks), 0..40))
        })
    ) {
        let program = program(ranks, |rank, made| {
            let mut caller = Caller { made, at: 0, open: Vec::new() };
            acts.iter().for_each(|act| caller.act(rank, act));
            caller.wait();
            caller.at
        });
        let application = application(&program, Options::default()).unwrap();
        let made = schedule(&application, 1);
        let wanted = expected(ranks, &acts);
        prop_assert_eq!(made.operations(), wanted.operations());
        prop_assert!(made == wanted, "{acts:?}");
        // With wildcards, another order of arrival may deadlock, as in the real program.
        let fixed: Vec<Act> = acts.iter().cloned().map(without_wildcards).collect();
        let ends = ends(&expected(ranks, &fixed), &net());
        prop_assert_eq!(ends.len(), ranks as usize);
    }

    /// Segment by segment, a program takes to the bit what it takes as one schedule.
    #[test]
    fn segments_take_what_the_whole_takes(
        (ranks, acts) in (2..5u32).prop_flat_map(|ranks| {
            (Just(ranks), prop::collection::vec(act(ranks), 1..40))
        }),
        copies in 1..4u32,
        (latency, os, or, gap, per_byte) in (0..5_000i64, 0..2_000i64, 0..2_000i64, 0..4_000i64, 0..50i64),
        eager in prop_oneof![Just(u64::MAX), 0..100_000u64],
        handshake in any::<bool>(),
        noisy in any::<bool>(),
        seed in any::<u64>(),
    ) {
        // Everything is waited for before a collective.
        let mut clean = Vec::new();
        for act in acts.into_iter().map(without_wildcards) {
            if let Act::Collective { call, op, bytes, .. } = act {
                clean.extend((0..ranks).map(|rank| Act::Wait { rank }));
                clean.push(Act::Collective { call, op, root: 0, bytes });
            } else {
                clean.push(act);
            }
        }
        let program = program(ranks, |rank, made| {
            let mut caller = Caller { made, at: 0, open: Vec::new() };
            clean.iter().for_each(|act| caller.act(rank, act));
            caller.wait();
            caller.at
        });
        let application = application(&program, Options::default()).unwrap();
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

    /// Two copies: messages stay within a copy, collectives have all ranks.
    #[test]
    fn a_program_of_collectives_extrapolates_to_the_collectives(
        ranks in 2..5u32,
        copies in 1..5u32,
        calls in prop::collection::vec((0..4usize, 0..30_000u64, 1..5_000u64), 1..6),
    ) {
        let kinds = [
            (Call::Barrier, Op::Barrier), (Call::Allreduce, Op::Allreduce),
            (Call::Allgather, Op::Allgather), (Call::Alltoall, Op::Alltoall),
        ];
        let bytes_of = |op: Op, bytes: u64| if op == Op::Barrier { 0 } else { bytes };
        let program = program(ranks, |_, made| {
            let mut at = 0;
            for &(kind, bytes, compute) in &calls {
                at += compute;
                let (call, op) = kinds[kind];
                let bytes = bytes_of(op, bytes);
                let signature = on_comm(call, 0);
                made.call(at, at + CALL, Entry { signature, bytes, ..BLANK });
                at += CALL;
            }
            at
        });
        let application = application(&program, Options::default()).unwrap();
        let made = schedule(&application, copies);
        let all = u64::from(ranks * copies);
        let noise = Noise::none();
        // The same collectives one after the other in the round engine.
        let (mut scratch, mut starts) = (rounds::Scratch::keeping_ends(), vec![0; all as usize]);
        let net = Params { gap: 0, ..net() };
        for &(kind, bytes, compute) in &calls {
            let (_, op) = kinds[kind];
            let bytes = bytes_of(op, bytes);
            starts.iter_mut().for_each(|start| *start += compute as i64 * 1_000);
            let collective = Rules::default().collective(op, all, bytes).unwrap();
            let job = Job::new(collective, net).unwrap();
            rounds::run_from(&job, &noise.run(0, 0), &starts, &mut scratch).unwrap();
            starts.copy_from_slice(scratch.ends());
        }
        prop_assert_eq!(ends(&made, &net), starts);
    }
}

#[test]
fn a_request_begins_where_it_was_begun_and_ends_where_it_was_waited_for() {
    // Rank 0 sends after 10 us; rank 1 computes 30 us while the message is under way.
    let program = program(2, |rank, made| match rank {
        0 => {
            made.send(10_000, 10_010, 1, 8);
            10_010
        }
        _ => {
            let request = made.begin(Call::Irecv, 0, 10, 0, 0, 8);
            made.wait(30_010, 30_020, &[request]);
            30_020
        }
    });
    let application = application(&program, Options::default()).unwrap();
    let found = ends(&schedule(&application, 1), &net());
    // The message is there at 11.1 us, and received before the rank waits for it.
    assert_eq!(found, [10_100_000, 30_000_000]);
    assert_eq!(application.traced_ps(), 30_020_000);
}

#[test]
fn failing_tests_are_waiting_and_a_successful_one_is_a_wait() {
    let program = program(2, |rank, made| match rank {
        0 => {
            made.send(100_000, 100_010, 1, 8);
            100_010
        }
        _ => {
            let request = made.begin(Call::Irecv, 0, 10, 0, 0, 8);
            let test = Signature { shape: shape::REQUESTS, ..Signature::of(Call::Test) };
            let mut at = 5_010;
            // 5 us of compute, then polling until the message is there.
            while at < 101_000 {
                let items = [RequestItem {
                    id: request,
                    outcome: Outcome::Pending,
                    actual: Actual::AS_POSTED,
                }];
                made.call(
                    at,
                    at + 90,
                    Entry { signature: test, requests: &items, found: false, ..BLANK },
                );
                at += 100;
            }
            let items = [completed(request)];
            made.call(at, at + 90, Entry { signature: test, requests: &items, ..BLANK });
            at + 1_090
        }
    });
    let application = application(&program, Options::default()).unwrap();
    let made = schedule(&application, 1);
    assert_eq!(ends(&made, &net())[1], 101_200_000 + 1_000_000);
    // On a network that is slower by 50 us, it polls longer and computes as long.
    let slow = Params { latency: 51_000_000, ..net() };
    assert_eq!(ends(&made, &slow)[1], 151_200_000 + 1_000_000);
}

/// 4 us are taken from each of the first microseconds 10 to 20 of a rank.
struct FourOfTen;

impl Taken for FourOfTen {
    fn ns(&self, _rank: u32, begin: i64, end: i64) -> i64 {
        let at = |ns: i64| (ns - support::START as i64 - 10_000).clamp(0, 4_000);
        at(end) - at(begin)
    }
}

#[test]
fn what_the_kernel_took_is_not_compute() {
    let made = program(2, |_, made| {
        made.collective(Call::Barrier, 30_000, 30_010, 0);
        30_010
    });
    let clocks = program::Clocks::default();
    let application = read(&made, &clocks, &Options::default(), &FourOfTen).unwrap();
    std::fs::remove_dir_all(&made.dir).unwrap();
    assert_eq!((application.assumed.compute_ns, application.assumed.taken_ns), (52_000, 8_000));
    let rules = Rules::default();
    for (with_taken, computed) in [(true, 30_000_000), (false, 26_000_000)] {
        let plan = Plan { copies: 1, rules: &rules, only: None, with_taken, net: None };
        let schedule = application.schedule(&plan).unwrap();
        // One round of a barrier.
        assert_eq!(ends(&schedule, &net())[0], computed + 1_200_000);
    }
}

#[test]
fn a_part_of_the_communication_can_be_left_out() {
    let program = program(2, |rank, made| {
        let (begin, end) = (1_000, 1_010);
        if rank == 0 {
            made.send(begin, end, 1, 8)
        } else {
            made.recv(begin, end, 0, 8)
        }
        made.collective(Call::Barrier, 2_010, 2_020, 0);
        2_020
    });
    let application = application(&program, Options::default()).unwrap();
    let rules = Rules::default();
    let messages = |only| {
        let plan = Plan { copies: 3, rules: &rules, only, with_taken: false, net: None };
        application.schedule(&plan).unwrap().messages()
    };
    // Each copy has its message; a barrier of six takes three rounds.
    assert_eq!(messages(Some(Only::PointToPoint)), 3);
    assert_eq!(messages(Some(Only::Collectives)), 18);
    assert_eq!(messages(None), 21);
}

#[test]
fn traces_that_cannot_be_simulated_are_refused() {
    let lost = program(1, |_, made| {
        made.lost(5, 3);
        10
    });
    let error = application(&lost, Options::default()).unwrap_err().to_string();
    assert!(error.contains("3 calls of rank 0"), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let mut made = Made::new(dir.path(), 0, 1);
    made.send(0, 10, 0, 1);
    made.kill();
    let killed = program::open(dir.path()).unwrap();
    let clocks = program::Clocks::default();
    let error = read(&killed, &clocks, &Options::default(), &NoNoise).unwrap_err().to_string();
    assert!(error.contains("did not reach MPI_Finalize"), "{error}");
}
