//! Requests that complete in another order than in the trace, and in the same one (Böhme et al., section 3.1): a rank
//! waits for messages of others in each of the ways that leave the order open.
//!
//! The network costs nothing. Worker r computes in the region `wr` and sends; the change makes worker 1 slower or
//! faster. Each case has the end of the rank that waits, us, with choices and in the traced order.

#[path = "../../program/tests/support/mod.rs"]
mod support;

use application::{Application, Hypothesis, NoNoise, Options, Place, Plan, Rules, read};
use mpi_abi::{Actual, Call, Entry, Outcome, RequestItem, Signature, shape};
use simulate::{event, loggops::Params, noise::Noise};
use support::{BLANK, Made, completed};

const US: u64 = 1_000;

/// Writes the trace: what rank 0 does, and when the workers send, us.
fn traced(
    master: impl Fn(&mut Made) -> u64,
    workers: &[&[u64]],
    deterministic: bool,
) -> Application {
    let dir = tempfile::tempdir().unwrap();
    let ranks = workers.len() as u32 + 1;
    for rank in 0..ranks {
        let mut made = Made::new(dir.path(), rank, ranks);
        let end = match rank.checked_sub(1) {
            None => master(&mut made),
            Some(worker) => {
                made.name(1, &format!("w{rank}"));
                let mut at = 0;
                for send in workers[worker as usize] {
                    made.region(1, true, at);
                    at = send * US;
                    made.region(1, false, at);
                    made.send(at, at, 0, 8);
                }
                at
            }
        };
        made.finish(end);
    }
    let program = program::open(dir.path()).unwrap();
    let options = Options { as_traced: false, deterministic };
    read(&program, &program::Clocks::default(), &options, &NoNoise).unwrap()
}

/// When rank 0 ends if worker 1 computes this many times as long, us.
fn ends(application: &Application, factor: f64) -> f64 {
    let slower = Hypothesis::Scale(Place::Region("w1".to_owned()), factor);
    let changed = application.under(&slower).unwrap();
    let (rules, net) = (Rules::default(), Params::FREE);
    let plan = Plan { copies: 1, rules: &rules, only: None, with_taken: true, net: Some(&net) };
    let schedule = changed.schedule(&plan).unwrap();
    let options = event::Options::default();
    let ended = event::run(&schedule, &net, &options, &Noise::none().run(0, 0)).unwrap();
    ended.ends[0] as f64 / 1e6
}

/// Checks the end for each factor, with choices and in the traced order.
fn check(master: impl Fn(&mut Made) -> u64, workers: &[&[u64]], cases: &[(f64, [f64; 2])]) {
    let [free, kept] = [false, true].map(|deterministic| traced(&master, workers, deterministic));
    for (factor, expected) in cases {
        let found = [ends(&free, *factor), ends(&kept, *factor)];
        assert_eq!(found, *expected, "worker 1 takes {factor} times as long");
    }
}

fn with(id: u64, outcome: Outcome) -> RequestItem {
    RequestItem { id, outcome, actual: Actual::AS_POSTED }
}

fn pending(id: u64) -> RequestItem {
    with(id, Outcome::Pending)
}

/// A call with these requests, us.
fn call(made: &mut Made, call: Call, items: &[RequestItem], at: [u64; 2]) {
    let signature = Signature { shape: shape::REQUESTS, ..Signature::of(call) };
    let found = items.iter().any(|item| item.outcome != Outcome::Pending);
    let entry = Entry { signature, requests: items, found, ..BLANK };
    made.call(at[0] * US, at[1] * US, entry);
}

fn receive(made: &mut Made, from: i32, tag: i32) -> u64 {
    made.begin(Call::Irecv, 0, 0, from, tag, 8)
}

/// Worker 1 comes at 100 us and worker 2 at 200; 50 us of work for each.
const TWO: [&[u64]; 2] = [&[100], &[200]];

/// What such a program takes: as traced, in the same order, and in another.
const OF_TWO: [(f64, [f64; 2]); 3] = [(1.0, [250.0; 2]), (1.5, [250.0; 2]), (3.0, [350.0, 400.0])];

#[test]
fn waitany_takes_the_request_that_is_complete_first() {
    let master = |made: &mut Made| {
        let [one, two] = [1, 2].map(|from| receive(made, from, 0));
        call(made, Call::Waitany, &[completed(one), pending(two)], [0, 100]);
        call(made, Call::Waitany, &[completed(two)], [150, 200]);
        250 * US
    };
    check(master, &TWO, &OF_TWO);
}

#[test]
fn waitsome_takes_as_many_as_in_the_trace_whichever_come_first() {
    let master = |made: &mut Made| {
        let [one, two, three] = [1, 2, 3].map(|from| receive(made, from, 0));
        let some = [completed(one), completed(two), pending(three)];
        call(made, Call::Waitsome, &some, [120, 120]);
        call(made, Call::Waitsome, &[completed(three)], [170, 200]);
        250 * US
    };
    let cases = [(1.0, [250.0; 2]), (1.1, [250.0; 2]), (5.0, [550.0, 600.0])];
    check(master, &[&[100], &[110], &[200]], &cases);
}

#[test]
fn a_test_that_failed_may_succeed_and_one_that_succeeded_is_a_wait() {
    let master = |made: &mut Made| {
        let one = receive(made, 1, 0);
        call(made, Call::Test, &[pending(one)], [50, 51]);
        call(made, Call::Test, &[pending(one)], [101, 102]);
        call(made, Call::Test, &[completed(one)], [152, 152]);
        162 * US
    };
    let cases = [
        (1.0, [162.0; 2]),
        (1.2, [162.0; 2]),
        // The second test succeeds and takes as long as if it failed.
        (0.6, [162.0; 2]),
        // The first one succeeds: the second one is not called.
        (0.25, [161.0, 162.0]),
        (5.0, [610.0; 2]),
    ];
    check(master, &[&[120]], &cases);
}

#[test]
fn testany_takes_the_request_that_is_complete_first() {
    let master = |made: &mut Made| {
        let [one, two] = [1, 2].map(|from| receive(made, from, 0));
        call(made, Call::Testany, &[pending(one), pending(two)], [50, 51]);
        call(made, Call::Testany, &[completed(one), pending(two)], [150, 150]);
        made.wait(230 * US, 230 * US, &[two]);
        240 * US
    };
    // Early enough, the test that failed succeeds, and the other one finds nothing to wait for.
    let cases = [(1.0, [240.0; 2]), (1.4, [240.0; 2]), (0.2, [240.0; 2]), (3.0, [310.0, 390.0])];
    check(master, &TWO, &cases);
}

#[test]
fn a_cancelled_request_is_never_complete() {
    let master = |made: &mut Made| {
        let [one, two] = [1, 2].map(|from| receive(made, from, 0));
        let never = receive(made, 1, 99);
        call(made, Call::Waitany, &[completed(one), pending(two), pending(never)], [0, 100]);
        call(made, Call::Waitany, &[completed(two), pending(never)], [150, 200]);
        call(made, Call::Cancel, &[with(never, Outcome::CancelAsked)], [200, 200]);
        call(made, Call::Wait, &[with(never, Outcome::Cancelled)], [200, 200]);
        250 * US
    };
    check(master, &TWO, &OF_TWO);
}

#[test]
fn persistent_requests_complete_in_their_order_each_time() {
    let master = |made: &mut Made| {
        let [one, two] = [1, 2].map(|from| made.begin(Call::Recv_init, 0, 0, from, 0, 8));
        for begin in [0, 250] {
            let started = [one, two].map(|id| with(id, Outcome::Started));
            call(made, Call::Startall, &started, [begin, begin]);
            // The second time, the message of worker 1 is there.
            let [first, last] = if begin == 0 { [100, 200] } else { [250, 400] };
            call(made, Call::Waitany, &[completed(one), pending(two)], [begin, first]);
            call(made, Call::Waitany, &[completed(two)], [first + 50, last]);
        }
        450 * US
    };
    let cases = [(1.0, [450.0; 2]), (1.5, [450.0; 2]), (3.0, [650.0, 700.0])];
    check(master, &[&[100, 200], &[200, 400]], &cases);
}
