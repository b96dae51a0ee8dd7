//! Traces made by hand and the schedules that must come of them.

#[path = "../../program/tests/support/mod.rs"]
mod support;

use application::{
    Application, Hypothesis, NoNoise, Only, Operation, Options, Place, Plan, ReadError, Rules,
    Step, Taken, read,
};
use mpi_abi::{Actual, Call, Entry, ListKind, Outcome, RequestItem, Signature, present, shape};
use proptest::prelude::*;
use simulate::{
    collectives::Op,
    event::{self, Schedule},
    job::Job,
    loggops::Params,
    noise::Noise,
    rounds,
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

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
            let collective = Rules::default().collective(op, all, bytes, None).unwrap();
            let job = Job::new(collective, net).unwrap();
            rounds::run_from(&job, &noise.run(0, 0), &starts, &mut scratch).unwrap();
            starts.copy_from_slice(scratch.ends());
        }
        prop_assert_eq!(ends(&made, &net), starts);
    }
}

#[test]
fn calls_made_while_recording_was_off_are_simulated() {
    let made = |off: bool| {
        program(2, |rank, made| match rank {
            0 => {
                made.send(10_000, 10_010, 1, 8);
                10_010
            }
            _ => {
                let recv = Entry { signature: message(Call::Recv, 0, 0), bytes: 8, ..BLANK };
                if off {
                    made.keeps_off();
                    made.switch(false, 500);
                    made.off(1_000, 12_000, recv);
                    made.switch(true, 13_000);
                } else {
                    made.call(1_000, 12_000, recv);
                }
                20_000
            }
        })
    };
    let [with, without] = [true, false].map(|off| application(&made(off), Options::default()));
    let (with, without) = (with.unwrap(), without.unwrap());
    assert_eq!(ends(&schedule(&with, 1), &net()), ends(&schedule(&without, 1), &net()));
    assert_eq!(with.assumed.off_ns, 0);
}

#[test]
fn receives_of_truncated_messages_and_those_that_a_failed_wait_has_completed_are_simulated() {
    // MPI_ERR_TRUNCATE and MPI_ERR_IN_STATUS of Open MPI.
    let made = |errors: [i32; 2]| {
        program(2, |rank, made| match rank {
            0 => {
                made.send(10_000, 10_010, 1, 50);
                made.send(20_000, 20_010, 1, 60);
                20_010
            }
            _ => {
                let [error, failed] = errors;
                let signature = message(Call::Recv, 0, 0);
                made.call(1_000, 12_000, Entry { signature, bytes: 50, error, ..BLANK });
                let request = made.begin(Call::Irecv, 13_000, 13_010, 0, 0, 60);
                let items = [completed(request)];
                let signature =
                    Signature { shape: shape::REQUESTS, ..Signature::of(Call::Waitall) };
                let requests = &items;
                made.call(14_000, 22_000, Entry { signature, requests, error: failed, ..BLANK });
                30_000
            }
        })
    };
    let [failed, fine] =
        [[15, 18], [0, 0]].map(|errors| application(&made(errors), Options::default()));
    let (failed, fine) = (failed.unwrap(), fine.unwrap());
    assert_eq!(ends(&schedule(&failed, 1), &net()), ends(&schedule(&fine, 1), &net()));
}

/// Receives whose requests are freed (or left open) still take their messages, and later ones those that follow.
/// Without a message they never end, and nobody waits for them.
#[test]
fn a_freed_receive_takes_its_message() {
    let any = mpi_abi::rank::ANY;
    for (from, free) in [(0, true), (any, true), (0, false)] {
        let program = program(2, |rank, made| match rank {
            0 => {
                made.send(0, 0, 1, 100);
                made.send(200_000, 200_000, 1, 1_000);
                200_000
            }
            _ => {
                let first = made.begin(Call::Irecv, 0, 0, from, 0, 1_000);
                let second = made.begin(Call::Irecv, 0, 0, from, 0, 1_000);
                let third = made.begin(Call::Irecv, 0, 0, from, 0, 1_000);
                if free {
                    let freed =
                        |id| RequestItem { id, outcome: Outcome::Freed, actual: Actual::AS_POSTED };
                    let signature =
                        Signature { shape: shape::REQUESTS, ..Signature::of(Call::Request_free) };
                    for id in [first, third] {
                        let requests = &[freed(id)];
                        made.call(0, 0, Entry { signature, requests, ..BLANK });
                    }
                }
                let actual = Actual { source: Some(0), tag: None, bytes: None };
                let item = RequestItem { actual, ..completed(second) };
                made.complete(0, 200_000, &[item]);
                250_000
            }
        });
        let application = application(&program, Options::default()).unwrap();
        let receives = application.tapes[1].steps.iter();
        let receives = receives.filter(|step| matches!(step, Step::Receive { .. })).count();
        assert_eq!(receives, 2, "the last one has no message");
        let found = ends(&schedule(&application, 1), &net());
        // Sent at 200 us, after the overhead of the first: there 1.2 us later, and 50 us of work follow.
        assert_eq!(found[1], 251_300_000, "from {from}, freed: {free}");
    }
}

/// The room of a receive whose message is too long is that of the message: it was received, and the program went on.
#[test]
fn a_truncated_receive_gets_its_message() {
    // MPI_ERR_TRUNCATE and MPI_ERR_IN_STATUS of Open MPI.
    let made = program(2, |rank, made| match rank {
        0 => {
            (0..3).for_each(|at| made.send(at * 10_000, at * 10_000, 1, 500));
            30_000
        }
        _ => {
            let signature = message(Call::Recv, 0, 0);
            made.call(0, 10, Entry { signature, bytes: 50, error: 15, ..BLANK });
            for (call, error) in [(Call::Wait, 15), (Call::Waitall, 18)] {
                let request = made.begin(Call::Irecv, 13_000, 13_010, 0, 0, 60);
                let signature = Signature { shape: shape::REQUESTS, ..Signature::of(call) };
                let requests = &[completed(request)];
                made.call(20_000, 22_000, Entry { signature, requests, error, ..BLANK });
            }
            30_000
        }
    });
    let application = application(&made, Options::default()).unwrap();
    let room = |step: &Step| match step {
        Step::Receive { bytes, .. } => Some(*bytes),
        _ => None,
    };
    let rooms: Vec<u64> = application.tapes[1].steps.iter().filter_map(room).collect();
    assert_eq!(rooms, [500; 3]);
    ends(&schedule(&application, 1), &net());
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
    for counted in [false, true] {
        let program = program(2, |rank, made| match rank {
            0 => {
                made.send(100_000, 100_010, 1, 8);
                100_010
            }
            _ => {
                let request = made.begin(Call::Irecv, 0, 10, 0, 0, 8);
                let mut at = 5_010;
                // 5 us of compute, then polling until the message is there.
                made.fails(Call::Test, at, at + 90, &[request]);
                at += 100;
                if counted {
                    made.repeat(1, [959, 95_900, 959 * 90]);
                    at += 95_900;
                }
                while at < 101_000 {
                    made.fails(Call::Test, at, at + 90, &[request]);
                    at += 100;
                }
                let test = Signature { shape: shape::REQUESTS, ..Signature::of(Call::Test) };
                let items = [completed(request)];
                made.call(at, at + 90, Entry { signature: test, requests: &items, ..BLANK });
                at + 1_090
            }
        });
        let application = application(&program, Options::default()).unwrap();
        let made = schedule(&application, 1);
        assert_eq!(ends(&made, &net())[1], 101_200_000 + 1_000_000, "counted: {counted}");
        // On a network that is slower by 50 us, it polls longer and computes as long.
        let slow = Params { latency: 51_000_000, ..net() };
        assert_eq!(ends(&made, &slow)[1], 151_200_000 + 1_000_000, "counted: {counted}");
    }
}

/// A rank that computes between its tests, and goes on with something else, has worked: alone or in turn with another
/// test, written or counted.
#[test]
fn tests_that_were_only_counted_are_work_if_the_rank_goes_on() {
    let traced = |counted: bool, tests: u64| {
        let program = program(2, |rank, made| match rank {
            0 => {
                made.send(200_000, 200_010, 1, 8);
                made.send(200_010, 200_020, 1, 8);
                200_020
            }
            _ => {
                let requests = [0, 1].map(|_| made.begin(Call::Irecv, 0, 10, 0, 0, 8));
                let mut at = 100;
                let mut test = |made: &mut Made, place: u64| {
                    let call = [Call::Test, Call::Testany][(place % tests) as usize];
                    made.fails(call, at + 400, at + 500, &requests[(place % tests) as usize..]);
                    at += 500;
                };
                (0..tests).for_each(|place| test(made, place));
                if counted {
                    made.repeat(tests as u8, [200, 100_000, 20_000]);
                } else {
                    (tests..tests + 200).for_each(|place| test(made, place));
                }
                made.collective(Call::Allreduce, 101_500, 101_510, 0);
                made.wait(200_000, 201_100, &requests);
                202_000
            }
        });
        application(&program, Options::default()).unwrap()
    };
    for tests in [1, 2] {
        let [counted, written] = [true, false].map(|counted| traced(counted, tests));
        assert_eq!(counted.assumed, written.assumed);
        assert_eq!(counted.tapes[1].steps, written.tapes[1].steps);
        assert!(written.assumed.compute_ns > 100_000, "{:?}", written.assumed);
    }
}

/// The benchmark of Böhme et al.: a master waits for its workers with `MPI_Waitany`; they work in `foo`, longer
/// the higher their rank, and in `bar`, shorter. Balancing `foo` reverses the order of their messages.
#[test]
fn balanced_workers_are_served_in_the_order_in_which_they_come() {
    const US: u64 = 1_000;
    let program = program(4, |rank, made| {
        if rank > 0 {
            let foo = 100 * US * u64::from(rank);
            let bar = 10 * US * u64::from(4 - rank);
            made.name(1, "foo");
            made.region(1, true, 0);
            made.region(1, false, foo);
            made.send(foo + bar, foo + bar, 0, 8);
            return foo + bar;
        }
        let requests = [1, 2, 3].map(|from| made.begin(Call::Irecv, 0, 0, from, 0, 8));
        let signature = Signature { shape: shape::REQUESTS, ..Signature::of(Call::Waitany) };
        let mut at = 0;
        for (place, first) in requests.iter().enumerate() {
            let pending = |id: &u64| RequestItem {
                id: *id,
                outcome: Outcome::Pending,
                actual: Actual::AS_POSTED,
            };
            let mut items = vec![completed(*first)];
            items.extend(requests[place + 1..].iter().map(pending));
            // The message of rank r is there 1.2 us after it was sent.
            let rank = place as u64 + 1;
            let arrival = (100 * rank + 10 * (4 - rank)) * US + 1_200;
            made.call(at, arrival.max(at), Entry { signature, requests: &items, ..BLANK });
            at = arrival.max(at) + 50 * US;
        }
        at
    });
    let clocks = program::Clocks::default();
    let balance = Hypothesis::Balance(Place::Region("foo".to_owned()));
    let mut found = Vec::new();
    for deterministic in [false, true] {
        let options = Options { as_traced: false, deterministic };
        let application = read(&program, &clocks, &options, &NoNoise).unwrap();
        assert_eq!(application.assumed.kept_choices, if deterministic { 2 } else { 0 });
        let balanced = application.under(&balance).unwrap();
        found.push([&application, &balanced].map(|app| ends(&schedule(app, 1), &net())[0]));
    }
    std::fs::remove_dir_all(&program.dir).unwrap();
    // As traced, the last message comes at 311.2 us, and 50 us of work follow.
    let traced = 361_200_000;
    // Balanced, they come from 211.2 us, 10 us apart, and the work on them is never interrupted.
    assert_eq!(found[0], [traced, 361_200_000]);
    // In the traced order, the first to be worked on is the last to come, at 231.2 us.
    assert_eq!(found[1], [traced, 381_200_000]);
}

#[test]
fn a_call_with_many_requests_is_one_choice() {
    // More than one record holds.
    let many = mpi_abi::MAX_REQUESTS as u32 + 10;
    let program = program(2, |rank, made| {
        if rank == 0 {
            for tag in 0..many {
                let signature = message(Call::Send, 1, tag as i32);
                made.call(0, 0, Entry { signature, bytes: 8, ..BLANK });
            }
            return 0;
        }
        let requests: Vec<u64> =
            (0..many).map(|tag| made.begin(Call::Irecv, 0, 0, 0, tag as i32, 8)).collect();
        let signature = Signature { shape: shape::REQUESTS, ..Signature::of(Call::Waitsome) };
        let mut items: Vec<RequestItem> = requests.iter().map(|id| completed(*id)).collect();
        items[3].outcome = Outcome::Pending;
        made.call(0, 10, Entry { signature, requests: &items, ..BLANK });
        made.wait(10, 20, &requests[3..4]);
        20
    });
    let application = application(&program, Options::default()).unwrap();
    let steps = &application.tapes[1].steps;
    let choices: Vec<&Step> =
        steps.iter().filter(|step| matches!(step, Step::Choose { .. })).collect();
    assert!(matches!(choices[..], [Step::Choose { count, .. }] if *count == many), "{choices:?}");
    assert_eq!(steps.iter().filter(|step| matches!(step, Step::Wait { .. })).count(), 1);
}

/// 4 us are taken from each of the first microseconds 10 to 20 of a rank.
struct FourOfTen;

impl Taken for FourOfTen {
    fn ns(&self, _rank: u32, begin: i64, end: i64) -> i64 {
        let at = |ns: i64| (ns - support::START as i64 - 10_000).clamp(0, 4_000);
        at(end) - at(begin)
    }
}

/// Rank 0 sends after 10 us and computes 5 us; rank 1 computes 100 us and receives. When rank 0 ends, us.
fn sender_ends(call: Call, request: bool, bytes: u64, limit: u64) -> i64 {
    let program = program(2, |rank, made| match rank {
        0 => {
            if request {
                let request = made.begin(call, 10_000, 10_000, 1, 0, bytes);
                made.wait(10_000, 110_000, &[request]);
            } else {
                let signature = message(call, 1, 0);
                made.call(10_000, 110_000, Entry { signature, bytes, ..BLANK });
            }
            115_000
        }
        _ => {
            made.recv(100_000, 110_000, 0, bytes);
            110_000
        }
    });
    let application = application(&program, Options::default()).unwrap();
    let net = Params { eager_limit: limit, ..net() };
    let rules = Rules::default();
    let plan = Plan { copies: 1, rules: &rules, only: None, with_taken: true, net: Some(&net) };
    let made = application.schedule(&plan).unwrap();
    assert_eq!(made.marked_messages(), u64::from(call != Call::Isend));
    let found = ends(&made, &net);
    // The same from the engine that runs copies in vector lanes.
    let twice = Plan { copies: 2, ..plan };
    let options = event::Options::default();
    let silent = Noise::none();
    let segments = application.segments(&twice, &net, &options, &silent).unwrap().unwrap();
    let runs = simulate::sweep::Plan {
        seed: 1,
        runs: 1,
        threads: 1,
        memory: u64::MAX,
        progress: &|_| true,
    };
    let times = segments.times(&net, &options, &silent, &runs, 0..1).unwrap();
    assert_eq!(times, [*found.iter().max().unwrap()], "{call:?}");
    found[0] / 1_000_000
}

#[test]
fn synchronous_sends_wait_for_their_receive_and_buffered_ones_do_not() {
    for (call, request) in [(Call::Ssend, false), (Call::Issend, true)] {
        // The receive is posted at 100 us and takes 0.1; the rest is compute.
        assert_eq!(sender_ends(call, request, 8, 4_096), 105, "{call:?}");
        assert_eq!(sender_ends(call, request, 8, u64::MAX), 105, "{call:?}");
    }
    // The trace took 100 us, which can have been copying.
    assert_eq!(sender_ends(Call::Bsend, false, 8_192, 4_096), 115);
    assert_eq!(sender_ends(Call::Ibsend, true, 8_192, 4_096), 15);
    assert_eq!(sender_ends(Call::Isend, true, 8_192, 4_096), 105);
    assert_eq!(sender_ends(Call::Isend, true, 8, 4_096), 15);
}

#[test]
fn a_blocking_probe_waits_for_its_message() {
    for request in [false, true] {
        let program = program(2, |rank, made| match rank {
            0 => {
                made.send(100_000, 100_010, 1, 8);
                100_010
            }
            _ => {
                let probe = Signature {
                    shape: shape::OUTCOME,
                    ..message(Call::Probe, mpi_abi::rank::ANY, mpi_abi::tag::ANY)
                };
                let actual = Actual { source: Some(0), tag: Some(0), bytes: Some(8) };
                made.call(10, 101_000, Entry { signature: probe, actual, ..BLANK });
                // 50 us of compute between the probe and the receive.
                if request {
                    let request = made.begin(Call::Irecv, 151_000, 151_000, 0, 0, 8);
                    made.wait(151_000, 151_010, &[request]);
                } else {
                    made.recv(151_000, 151_010, 0, 8);
                }
                161_010
            }
        });
        let application = application(&program, Options::default()).unwrap();
        let found = ends(&schedule(&application, 1), &net());
        // Sent at 100.1, there at 101.1, received at 101.2; 50 us until the receive, 10 us after it.
        assert_eq!(found[1] / 1_000_000, 161, "{found:?}");
    }
}

/// Each of several messages was waited for by its own probe, in whatever order they are received, and once.
#[test]
fn each_of_several_probes_waits_for_its_message() {
    const US: u64 = 1_000;
    let call = |made: &mut Made, call: Call, tag: i32, at: [u64; 2]| {
        let entry = Entry { signature: message(call, 0, tag), bytes: 8, ..BLANK };
        made.call(at[0], at[1], entry);
    };
    // The tags that are probed for and those of the calls that receive.
    let both = [(Call::Recv, 7), (Call::Recv, 6)];
    let exchanged = [(Call::Sendrecv, 7), (Call::Recv, 6)];
    for (probes, receives) in [
        ([6, 7], &both[..]),
        ([6, 6], &both[1..]),
        ([6, 7], &exchanged[..]),
        ([6, 6], &[(Call::Sendrecv, 6)][..]),
    ] {
        let program = program(2, |rank, made| match rank {
            0 => {
                for tag in [6, 7] {
                    if receives.iter().any(|receive| receive.1 == tag) {
                        let at = 100 * US + u64::from(tag == 7) * 50 * US;
                        let entry =
                            Entry { signature: message(Call::Send, 1, tag), bytes: 8, ..BLANK };
                        made.call(at, at, entry);
                    }
                }
                150 * US
            }
            _ => {
                call(made, Call::Probe, probes[0], [0, 101 * US]);
                call(made, Call::Probe, probes[1], [301 * US; 2]);
                for (receive, tag) in receives {
                    if *receive != Call::Sendrecv {
                        call(made, *receive, *tag, [301 * US; 2]);
                        continue;
                    }
                    let mut signature = message(*receive, mpi_abi::rank::PROC_NULL, 0);
                    signature.present |= present::SOURCE | present::SOURCE_TAG | present::RECEIVED;
                    (signature.source, signature.source_tag) = (0, *tag);
                    let entry = Entry { signature, bytes: 8, received: 8, ..BLANK };
                    made.call(301 * US, 301 * US, entry);
                }
                301 * US
            }
        });
        let application = application(&program, Options::default()).unwrap();
        let net = Params { latency: 1_000_000, ..Params::FREE };
        let found = ends(&schedule(&application, 1), &net);
        assert_eq!(found[1], 301_000_000, "probes {probes:?}, receives {receives:?}");
    }
}

#[test]
fn compute_before_the_first_call_is_after_the_start_of_mpi() {
    let program = program(2, |rank, made| {
        match rank {
            0 => made.send(10_000, 10_010, 1, 8),
            _ => made.recv(10_000, 12_000, 0, 8),
        }
        20_000
    });
    let application = application(&program, Options::default()).unwrap();
    let scale = |call: Call, factor: f64| {
        let changed = application.under(&Hypothesis::Scale(Place::After(call), factor));
        changed.map(|changed| ends(&schedule(&changed, 1), &net())[0] / 1_000)
    };
    assert_eq!(scale(Call::Init, 1.0).unwrap(), 20_090);
    assert_eq!(scale(Call::Init, 0.0).unwrap(), 10_090);
    assert_eq!(scale(Call::Send, 0.0).unwrap(), 10_100);
    assert!(scale(Call::Isend, 0.0).is_err());
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

/// What a run of the program says, and which calls it is about.
fn failure(program: &program::Program, copies: u32) -> (String, Vec<String>) {
    let application = application(program, Options::default()).unwrap();
    let rules = Rules::default();
    let plan = Plan { copies, rules: &rules, only: None, with_taken: false, net: None };
    let schedule = application.schedule(&plan).unwrap();
    let options = event::Options::default();
    let net = Params { eager_limit: 1_000, ..net() };
    let error = event::run(&schedule, &net, &options, &Noise::none().run(0, 0)).unwrap_err();
    (error.to_string(), application.calls_of(&plan, &error))
}

#[test]
fn unmatched_messages_and_deadlocks_are_named_with_their_calls() {
    let unmatched = program(2, |rank, made| {
        made.collective(Call::Barrier, 5, 10, 0);
        if rank == 0 {
            made.send(20, 30, 1, 8);
            made.send(30, 40, 1, 16);
        } else {
            made.recv(20, 30, 0, 8);
        }
        50
    });
    let (error, calls) = failure(&unmatched, 3);
    assert!(error.contains("no matching receive"), "{error}");
    // The second is the receive that it might have met, which has the message before it.
    assert_eq!(
        calls,
        [
            "rank 0: MPI_Send number 2 (to rank 1, tag 0, 16 bytes)",
            "rank 1: MPI_Recv number 1 (from rank 0, tag 0, 8 bytes)"
        ]
    );
    // Large messages to each other, sent before they are received.
    let circle = program(2, |rank, made| {
        let peer = 1 - rank as i32;
        made.send(0, 10, peer, 8);
        made.recv(10, 20, peer, 8);
        made.send(20, 30, peer, 5_000);
        made.recv(30, 40, peer, 5_000);
        40
    });
    let (error, calls) = failure(&circle, 2);
    assert!(error.contains("deadlock"), "{error}");
    for rank in 0..2 {
        let peer = 1 - rank;
        for call in [
            format!("rank {rank}: MPI_Send number 2 (to rank {peer}, tag 0, 5000 bytes)"),
            format!("rank {rank}: MPI_Recv number 2 (from rank {peer}, tag 0, 5000 bytes)"),
        ] {
            assert!(calls.contains(&call), "{calls:?} lacks {call}");
        }
    }
    // Rank 1 does not take part in the second reduction.
    let missing = program(2, |rank, made| {
        for time in 0..2 - u64::from(rank) {
            made.collective(Call::Allreduce, 10 * time, 10 * time + 5, 0);
        }
        30
    });
    let (_, calls) = failure(&missing, 1);
    assert_eq!(calls, ["rank 0: MPI_Allreduce number 2 (2 ranks, 8 bytes)"]);
}

/// Why ranks that send a large message to the next one before they receive cannot end.
fn circle_of(ranks: u32) -> String {
    let ring = program(ranks, |rank, made| {
        let size = ranks as i32;
        let [next, last] = [1, size - 1].map(|further| (rank as i32 + further) % size);
        for (call, peer, at) in [(Call::Send, next, 1_000), (Call::Recv, last, 2_000)] {
            let signature = message(call, peer, 17);
            made.call(at, at, Entry { signature, bytes: 5_000, ..BLANK });
        }
        3_000
    });
    let application = application(&ring, Options::default()).unwrap();
    let rules = Rules::default();
    let plan = Plan { copies: 1, rules: &rules, only: None, with_taken: false, net: None };
    let schedule = application.schedule(&plan).unwrap();
    let net = Params { eager_limit: 1_000, ..net() };
    let error = event::run(&schedule, &net, &event::Options::default(), &Noise::none().run(0, 0));
    application.why_stuck(&plan, &error.unwrap_err()).unwrap()
}

#[test]
fn a_circle_of_waits_is_named_with_its_calls_ranks_and_tags() {
    let send = |rank: u32, to: u32| {
        format!("rank {rank}: MPI_Send number 1 (to rank {to}, tag 17, 5000 bytes)")
    };
    let receive = |rank: u32, from: u32| {
        format!("rank {rank}: MPI_Recv number 1 (from rank {from}, tag 17, 5000 bytes)")
    };
    let mut expected = "deadlock: ".to_owned();
    for (rank, next) in [(0, 1), (1, 2), (2, 0)] {
        let comma = if rank > 0 { ", which" } else { "" };
        expected += &format!("{}{comma} ", send(rank, next));
        expected +=
            &format!("waits until it is received by {}, which comes after ", receive(next, rank));
    }
    expected += &format!("{} again", send(0, 1));
    assert_eq!(circle_of(3), expected);
    let long = circle_of(13);
    assert_eq!(long.matches("tag 17").count(), 12, "{long}");
    assert!(long.ends_with("and so on: 13 ranks wait for each other"), "{long}");
}

#[test]
fn traces_that_cannot_be_simulated_are_refused() {
    let lost = program(1, |_, made| {
        made.lost(5, 3);
        10
    });
    let error = application(&lost, Options::default()).unwrap_err().to_string();
    assert!(error.contains("3 calls of rank 0"), "{error}");
    // A communicator whose members are not known, as in imported traces.
    for sends in [false, true] {
        let strangers = program(2, |rank, made| {
            made.unknown_comm(5, 77, rank as i32, 2);
            match sends {
                false => made.collective(Call::Allreduce, 5, 10, 5),
                true => {
                    let signature = Signature { object: 5, ..message(Call::Send, 1, 0) };
                    made.call(5, 10, Entry { signature, bytes: 8, ..BLANK });
                }
            }
            10
        });
        let error = application(&strangers, Options::default()).unwrap_err().to_string();
        assert!(error.contains("whose members are not in the trace"), "{error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut made = Made::new(dir.path(), 0, 1);
    made.send(0, 10, 0, 1);
    made.kill();
    let killed = program::open(dir.path()).unwrap();
    let clocks = program::Clocks::default();
    let error = read(&killed, &clocks, &Options::default(), &NoNoise).unwrap_err().to_string();
    assert!(error.contains("did not reach MPI_Finalize"), "{error}");
}

/// L, o and G of the closed forms below.
fn bytes_cost() -> Params {
    Params {
        latency: 10_000_000,
        send_overhead: 1_000_000,
        recv_overhead: 1_000_000,
        gap_per_byte_fs: 10_000_000,
        ..Params::FREE
    }
}

/// A collective of four ranks with these blocks, as all ranks call it.
fn of_blocks(call: Call, sizes: [u64; 4]) -> Application {
    let made = program(4, |rank, made| {
        let mut signature = on_comm(call, 0);
        signature.shape |= shape::RECEIVED;
        let bytes = match call {
            Call::Allgatherv => sizes[rank as usize],
            _ => sizes.iter().sum(),
        };
        made.call(1_000, 1_000 + CALL, Entry { signature, bytes, got: &sizes, ..BLANK });
        1_000 + CALL
    });
    application(&made, Options::default()).unwrap()
}

/// One rank has 8 MB, the others nothing: the block goes through the network three times, one hop after the other.
#[test]
fn blocks_of_different_sizes_go_round_the_ring_as_large_as_they_are() {
    let megabytes = 8_000_000;
    for (call, ends_at) in [(Call::Allgatherv, 3), (Call::Reduce_scatter, 0)] {
        let program = of_blocks(call, [megabytes, 0, 0, 0]);
        let found = ends(&schedule(&program, 1), &bytes_cost());
        // 1 us of compute; o, L, the bytes after the first, o.
        let hop = 1_000_000 + 10_000_000 + (megabytes as i64 - 1) * 10_000 + 1_000_000;
        assert_eq!(found[ends_at], 1_000_000 + 3 * hop, "{call:?}: {found:?}");
        assert_eq!(found.iter().max(), Some(&found[ends_at]), "{call:?}: {found:?}");
        // Two copies: seven hops.
        let found = ends(&schedule(&program, 2), &bytes_cost());
        assert_eq!(found.iter().max(), Some(&(1_000_000 + 7 * hop)), "{call:?}: {found:?}");
    }
}

/// The receive counts of a call in place, which are all that its trace has, are also its send counts.
#[test]
fn an_alltoallv_in_place_sends_as_much_as_it_receives() {
    let size =
        |rank: u32, other: u32| u64::from((1 + rank.min(other)) * (rank.max(other) + 1)) * 100;
    for call in [Call::Alltoallv, Call::Alltoallw] {
        let made = program(4, |rank, made| {
            let sizes: Vec<u64> = (0..4).map(|other| size(rank, other)).collect();
            let mut signature = on_comm(call, 0);
            signature.shape |= shape::RECEIVED;
            made.call(1_000, 1_000 + CALL, Entry { signature, got: &sizes, ..BLANK });
            1_000 + CALL
        });
        let application = application(&made, Options::default()).unwrap();
        assert_eq!(application.assumed.unknown_sizes, 0);
        for (rank, tape) in (0..).zip(&application.tapes) {
            let all: Vec<(u32, u64)> = (0..4).map(|other| (other, size(rank, other))).collect();
            let Operation::Messages { to, from, .. } = &tape.calls[0].operation else {
                panic!("{:?}", tape.calls[0])
            };
            assert_eq!((to, from), (&all, &all), "{call:?}, rank {rank}");
        }
        ends(&schedule(&application, 1), &net());
    }
}

/// In a periodic dimension of two ranks, the same one is above and below: what goes to it as the one below, it gets
/// from the one above.
#[test]
fn neighbours_of_a_dimension_of_two_get_the_blocks_of_the_other_side() {
    const GRID: u32 = 5;
    let made = program(2, |rank, made| {
        made.comm(GRID, 99, rank as i32, &[0, 1]);
        let other = 1 - rank as i32;
        // The second dimension has one rank, which is its own neighbour.
        let peers = [other, other, rank as i32, rank as i32];
        made.neighbours(GRID, &peers, &peers);
        made.list(GRID, ListKind::Dims, &[2, 1]);
        made.list(GRID, ListKind::Periods, &[1, 1]);
        let mut signature = on_comm(Call::Neighbor_alltoallv, GRID);
        signature.shape |= shape::SENT | shape::RECEIVED;
        let (sent, got) = (&[10, 20, 30, 40], &[20, 10, 40, 30]);
        made.call(1_000, 1_000 + CALL, Entry { signature, sent, got, ..BLANK });
        1_000 + CALL
    });
    let application = application(&made, Options::default()).unwrap();
    for (rank, tape) in (0u32..).zip(&application.tapes) {
        let Operation::Messages { to, from, .. } = &tape.calls[0].operation else {
            panic!("{:?}", tape.calls[0])
        };
        let other = 1 - rank;
        assert_eq!(to, from);
        assert_eq!(*from, [(other, 20), (other, 10), (rank, 40), (rank, 30)]);
    }
    ends(&schedule(&application, 1), &net());
}

#[test]
fn more_ranks_than_can_be_counted_are_too_many() {
    let made = program(3, |_, made| {
        made.collective(Call::Barrier, 0, CALL, 0);
        CALL
    });
    let application = application(&made, Options::default()).unwrap();
    let error = |ranks: u64| application.copies(ranks).unwrap_err().to_string();
    assert!(error(3 << 32).contains("too many"), "{}", error(3 << 32));
    assert!(error((3 << 32) + 1).contains("not a multiple"), "{}", error((3 << 32) + 1));
    assert_eq!(application.copies(6).unwrap(), 2);
}

/// Blocks that hardly differ are a regular collective of the largest, which other algorithms and many ranks can have.
#[test]
fn blocks_of_about_one_size_are_regular() {
    for (sizes, most) in [([8, 0, 8, 16], 16), ([50_000, 50_000, 50_008, 50_000], 50_008)] {
        for (call, op) in
            [(Call::Allgatherv, Op::Allgather), (Call::Reduce_scatter, Op::ReduceScatter)]
        {
            let program = of_blocks(call, sizes);
            let collective = Rules::default().collective(op, 4, most, None).unwrap();
            let job = Job::new(collective, bytes_cost()).unwrap();
            let mut scratch = rounds::Scratch::keeping_ends();
            rounds::run_from(&job, &Noise::none().run(0, 0), &[1_000_000; 4], &mut scratch)
                .unwrap();
            assert_eq!(ends(&schedule(&program, 1), &bytes_cost()), scratch.ends(), "{call:?}");
        }
    }
}

/// The second round of a nonblocking allreduce is CPU time of the rank, which computes until 101 us.
#[test]
fn later_rounds_of_a_nonblocking_collective_wait_for_the_cpu() {
    let program = program(4, |_, made| {
        let signature = on_comm(Call::Iallreduce, 0);
        let signature = Signature { shape: shape::BEGUN, ..signature };
        made.request += 1;
        let request = made.request;
        made.call(0, CALL, Entry { signature, bytes: 8, begun: request, ..BLANK });
        made.wait(100_000 + CALL, 100_000 + 2 * CALL, &[request]);
        100_000 + 2 * CALL
    });
    let program = application(&program, Options::default()).unwrap();
    let net = Params { gap_per_byte_fs: 0, ..bytes_cost() };
    // o of the first send, 100 us of compute, then o, L and o.
    assert_eq!(ends(&schedule(&program, 1), &net), [113_000_000; 4]);
}
