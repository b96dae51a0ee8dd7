//! Choices between requests, by the rules of Böhme et al. ("Simulation of MPI non-blocking communication"):
//! whichever request is complete first is taken, its name and that of the one taken in the trace are swapped,
//! a test that now succeeds completes its request early, and a test that succeeded in the trace is a wait.

use proptest::prelude::*;
use simulate::{
    event::{
        EventError, Log, Name, OpId, Options, Rendezvous, Rules, Schedule, ScheduleBuilder,
        Scratch, Test, run, run_logged, run_with,
    },
    goal,
    loggops::Params,
    noise::{Model, Noise, Offsets, Timeline},
};

const US: i64 = 1_000_000;
/// o of sender and receiver and L together: what a message takes.
const MESSAGE: i64 = 2 * US;

fn net() -> Params {
    Params { latency: US, send_overhead: US / 2, recv_overhead: US / 2, ..Params::FREE }
}

/// Rank 0 receives a message of each other rank, which sends after a delay; then it does `then`.
fn receiver(delays: &[i64], then: impl FnOnce(&mut Receiver<'_>)) -> Schedule {
    let mut builder = ScheduleBuilder::new(delays.len() as u32 + 1).with_mpi_matching();
    builder.begin_rank();
    let receives: Vec<OpId> =
        (1..=delays.len() as u32).map(|from| builder.recv(8, from, 0, 0, 0)).collect();
    for pair in receives.windows(2) {
        builder.irequires(pair[1], pair[0]);
    }
    let last = receives.last().map(|&last| (last, true));
    let names = vec![None; receives.len()];
    then(&mut Receiver { builder: &mut builder, receives, names, last });
    for &delay in delays {
        builder.begin_rank();
        let calc = builder.calc(delay, 0);
        let send = builder.send(8, 0, 0, 0, 0);
        builder.requires(send, calc);
    }
    builder.finish().unwrap()
}

struct Receiver<'a> {
    builder: &'a mut ScheduleBuilder,
    receives: Vec<OpId>,
    names: Vec<Option<Name>>,
    last: Option<(OpId, bool)>,
}

impl Receiver<'_> {
    fn after(&mut self, op: OpId) {
        match self.last {
            Some((last, true)) => self.builder.irequires(op, last),
            Some((last, false)) => self.builder.requires(op, last),
            None => {}
        }
        self.last = Some((op, false));
    }

    fn names(&mut self, requests: &[usize]) -> Vec<Name> {
        let name = |&request: &usize| {
            *self.names[request].get_or_insert_with(|| self.builder.name(&[self.receives[request]]))
        };
        requests.iter().map(name).collect()
    }

    /// Took `done` in the trace and left the others.
    fn wait(&mut self, done: &[usize], left: &[usize]) {
        let (done, left) = (self.names(done), self.names(left));
        let op = self.builder.choose(&done, &left, 0);
        self.after(op);
    }

    /// Found nothing in the trace.
    fn test(&mut self, requests: &[usize], test: Test, ps: i64) {
        let names = self.names(requests);
        let op = self.builder.test(&names, test, ps, 0);
        self.after(op);
    }

    fn calc(&mut self, ps: i64) {
        let op = self.builder.calc(ps, 0);
        self.after(op);
    }
}

fn end(schedule: &Schedule) -> i64 {
    run(schedule, &net(), &Options::default(), &Noise::none().run(0, 0)).unwrap().ends[0]
}

/// Loops over three requests with `MPI_Waitany`, which completed them in order; 5 us of work for each.
fn loop_of_three(delays: [i64; 3]) -> i64 {
    end(&receiver(&delays, |rank| {
        for done in 0..3 {
            let left: Vec<usize> = (done + 1..3).collect();
            rank.wait(&[done], &left);
            rank.calc(5 * US);
        }
    }))
}

#[test]
fn waitany_takes_what_is_complete_first_in_any_order() {
    // Work on each message as it comes: the last one arrives at 32 us.
    let sorted = (30 * US + MESSAGE) + 5 * US;
    for delays in [[10, 20, 30], [30, 10, 20], [20, 30, 10], [30, 20, 10]] {
        assert_eq!(loop_of_three(delays.map(|us| us * US)), sorted, "{delays:?}");
    }
    // Those that arrive together are worked on without waiting.
    assert_eq!(loop_of_three([30 * US, 10 * US, 10 * US]), sorted);
    assert_eq!(loop_of_three([10 * US, 10 * US, 10 * US]), 10 * US + MESSAGE + 15 * US);
}

#[test]
fn in_the_traced_order_a_late_request_is_waited_for() {
    // What --deterministic makes of the same loop.
    let traced = |delays: [i64; 3]| {
        end(&receiver(&delays, |rank| {
            for done in 0..3 {
                rank.wait(&[done], &[]);
                rank.calc(5 * US);
            }
        }))
    };
    assert_eq!(traced([10 * US, 20 * US, 30 * US]), loop_of_three([10 * US, 20 * US, 30 * US]));
    // All work comes after the first request, which is last.
    assert_eq!(traced([30 * US, 20 * US, 10 * US]), 30 * US + MESSAGE + 15 * US);
}

#[test]
fn a_name_stands_for_the_request_that_it_was_swapped_with() {
    // The trace: waitany took 0 and left 1, which was waited for later.
    let program = |first: i64, second: i64| {
        end(&receiver(&[first, second], |rank| {
            rank.wait(&[0], &[1]);
            rank.calc(US);
            rank.wait(&[1], &[]);
            rank.calc(5 * US);
        }))
    };
    // As in the trace: the wait is for request 1.
    assert_eq!(program(10 * US, 40 * US), 40 * US + MESSAGE + 5 * US);
    // Request 1 is first: the wait is for request 0.
    assert_eq!(program(40 * US, 10 * US), 40 * US + MESSAGE + 5 * US);
    // Twice: the third call completes what is left, whatever its name.
    let twice = |delays: [i64; 3]| {
        end(&receiver(&delays, |rank| {
            rank.wait(&[0], &[1, 2]);
            rank.wait(&[1], &[2]);
            rank.calc(US);
            rank.wait(&[2], &[]);
        }))
    };
    assert_eq!(twice([90 * US, 10 * US, 20 * US]), 90 * US + MESSAGE);
    assert_eq!(twice([10 * US, 20 * US, 90 * US]), 90 * US + MESSAGE);
    // The second call returned with the second message, at 22 us, not with the last.
    let worked = |delays: [i64; 3]| {
        end(&receiver(&delays, |rank| {
            rank.wait(&[0], &[1, 2]);
            rank.wait(&[1], &[2]);
            rank.calc(100 * US);
        }))
    };
    assert_eq!(worked([90 * US, 10 * US, 20 * US]), 20 * US + MESSAGE + 100 * US);
}

#[test]
fn waitsome_takes_as_many_as_in_the_trace_those_that_are_complete_first() {
    let program = |delays: [i64; 3]| {
        end(&receiver(&delays, |rank| {
            rank.wait(&[0, 1], &[2]);
            rank.calc(7 * US);
            rank.wait(&[2], &[]);
            rank.calc(5 * US);
        }))
    };
    let expected = 60 * US + MESSAGE + 5 * US;
    assert_eq!(program([10 * US, 20 * US, 60 * US]), expected);
    // Requests 1 and 2 are first; what is left is request 0.
    assert_eq!(program([60 * US, 20 * US, 10 * US]), expected);
    // It returns with the second: 20 us of work end before the last arrives.
    let only = |delays: [i64; 3]| {
        end(&receiver(&delays, |rank| {
            rank.wait(&[0, 1], &[2]);
            rank.calc(80 * US);
        }))
    };
    assert_eq!(only([60 * US, 20 * US, 10 * US]), 20 * US + MESSAGE + 80 * US);
}

/// Three tests of 1 us each, 10 us apart, none of which succeeded in the trace, then a wait.
fn tests_before_a_wait(delay: i64) -> i64 {
    end(&receiver(&[delay], |rank| {
        for _ in 0..3 {
            rank.calc(10 * US);
            rank.test(&[0], Test::All, US);
        }
        rank.wait(&[0], &[]);
        rank.calc(US);
    }))
}

#[test]
fn a_test_that_fails_costs_its_time() {
    // As in the trace: all fail, and the wait ends when the message is there.
    assert_eq!(tests_before_a_wait(50 * US), 50 * US + MESSAGE + US);
    // Fails three times, the message arrives before the wait.
    assert_eq!(tests_before_a_wait(31 * US), 33 * US + US);
}

#[test]
fn a_test_that_succeeds_now_completes_its_request_and_later_ones_vanish() {
    // Complete at 5 us: the first test finds it, the two others are gone, and so is the wait.
    assert_eq!(tests_before_a_wait(3 * US), 10 * US + US + 20 * US + US);
    // Complete at 15 us, after the first test: one is gone.
    assert_eq!(tests_before_a_wait(13 * US), 33 * US - US + US);
}

#[test]
fn a_test_begins_when_the_previous_call_has_returned() {
    // The message ends at 2 us + 0.5 us; a test right after a send of 3 us finds it.
    let mut builder = ScheduleBuilder::new(2).with_mpi_matching();
    builder.begin_rank();
    let receive = builder.recv(8, 1, 0, 0, 0);
    let send = builder.send(8, 1, 0, 0, 0);
    builder.irequires(send, receive);
    let name = builder.name(&[receive]);
    let mut last = (send, true);
    for _ in 0..2 {
        let test = builder.test(&[name], Test::All, US, 0);
        match last {
            (last, true) => builder.irequires(test, last),
            (last, false) => builder.requires(test, last),
        }
        last = (test, false);
    }
    builder.begin_rank();
    builder.send(8, 0, 0, 0, 0);
    builder.recv(8, 0, 0, 0, 0);
    let schedule = builder.finish().unwrap();
    let slow = Params { send_overhead: 3 * US, latency: 0, recv_overhead: 0, ..Params::FREE };
    let found = run(&schedule, &slow, &Options::default(), &Noise::none().run(0, 0)).unwrap();
    // The message is there at 3 us, when the send returns: one test, not two.
    assert_eq!(found.ends[0], 4 * US);
}

#[test]
fn testall_needs_all_and_testany_and_testsome_take_what_is_there() {
    // A test at 10 us of requests complete at 7 us and 42 us, then tests of each at 20 us and 30 us.
    let program = |test: Test| {
        end(&receiver(&[5 * US, 40 * US], |rank| {
            rank.calc(10 * US);
            rank.test(&[0, 1], test, US);
            rank.calc(9 * US);
            rank.test(&[0], Test::All, US);
            rank.calc(9 * US);
            rank.test(&[1], Test::All, US);
            rank.calc(100 * US);
        }))
    };
    assert_eq!(program(Test::All), 131 * US);
    assert_eq!(program(Test::One), 130 * US);
    assert_eq!(program(Test::Some), 130 * US);
    // With both there, testany completes only the first, the others both.
    let both = |test: Test| {
        end(&receiver(&[5 * US, 3 * US], |rank| {
            rank.calc(10 * US);
            rank.test(&[0, 1], test, US);
            rank.calc(9 * US);
            rank.test(&[0], Test::All, US);
            rank.calc(9 * US);
            rank.test(&[1], Test::All, US);
        }))
    };
    assert_eq!(both(Test::All), 29 * US);
    assert_eq!(both(Test::One), 30 * US);
    assert_eq!(both(Test::Some), 29 * US);
}

#[test]
fn a_successful_test_becomes_a_wait() {
    // In the trace it found the request; here that is late, and the rank waits.
    let program = |delay: i64| {
        end(&receiver(&[delay], |rank| {
            rank.calc(10 * US);
            rank.wait(&[0], &[]);
            rank.calc(US);
        }))
    };
    assert_eq!(program(2 * US), 11 * US);
    assert_eq!(program(30 * US), 30 * US + MESSAGE + US);
}

#[test]
fn what_a_test_has_completed_is_not_taken_again() {
    // Testany finds request 1 early; the waitany that took 1 and left 0 in the trace has nothing to wait for.
    let program = |delays: [i64; 2]| {
        end(&receiver(&delays, |rank| {
            rank.calc(10 * US);
            rank.test(&[0, 1], Test::One, US);
            rank.wait(&[1], &[0]);
            rank.calc(5 * US);
            rank.wait(&[0], &[]);
        }))
    };
    assert_eq!(program([50 * US, 5 * US]), 50 * US + MESSAGE);
    // Found nothing, as in the trace.
    assert_eq!(program([50 * US, 20 * US]), 50 * US + MESSAGE);
    // Request 0 was found: the waitany waits for request 1, and the wait for 0 is gone.
    assert_eq!(program([5 * US, 50 * US]), 50 * US + MESSAGE + 5 * US);
}

#[test]
fn sends_and_what_consists_of_several_operations_are_requests_too() {
    // Rank 0 sends a large message, received at 50 us, and receives a small one.
    let program = |delay: i64| {
        let mut builder = ScheduleBuilder::new(2).with_mpi_matching();
        builder.begin_rank();
        let send = builder.send(1 << 20, 1, 0, 0, 0);
        let receive = builder.recv(8, 1, 1, 0, 0);
        builder.irequires(receive, send);
        let names = [builder.name(&[send]), builder.name(&[receive])];
        let choice = builder.choose(&names[..1], &names[1..], 0);
        builder.irequires(choice, receive);
        let calc = builder.calc(5 * US, 0);
        builder.requires(calc, choice);
        builder.begin_rank();
        let wait = builder.calc(delay, 0);
        let send = builder.send(8, 0, 1, 0, 0);
        builder.requires(send, wait);
        let late = builder.calc(50 * US - delay, 0);
        builder.requires(late, send);
        let receive = builder.recv(1 << 20, 0, 0, 0, 0);
        builder.requires(receive, late);
        let schedule = builder.finish().unwrap();
        let net = Params { eager_limit: 65_536, ..net() };
        [Rendezvous::ClosedForm, Rendezvous::Handshake].map(|rendezvous| {
            let options = Options { rendezvous, ..Options::default() };
            // The end of the calc: the transfer itself ends later.
            let mut log = Log::default();
            let noise = Noise::none();
            let scratch = &mut Scratch::default();
            run_logged(scratch, &schedule, &net, &options, &noise.run(0, 0), &mut log).unwrap();
            let step = log.steps().iter().find(|step| step.op == calc.0).unwrap();
            step.start
        })
    };
    // The small message comes first, at 12 us, and the rank goes on.
    assert_eq!(program(10 * US), [10 * US + MESSAGE; 2]);

    // An exchange is complete when its receive and its send are.
    let mut builder = ScheduleBuilder::new(3).with_mpi_matching();
    builder.begin_rank();
    let receives = [1, 2].map(|from| builder.recv(8, from, 0, 0, 0));
    let other = builder.recv(8, 1, 1, 0, 0);
    builder.irequires(receives[1], receives[0]);
    builder.irequires(other, receives[1]);
    let (both, other_name) = (builder.name(&receives), builder.name(&[other]));
    let choice = builder.choose(&[both], &[other_name], 0);
    builder.irequires(choice, other);
    let calc = builder.calc(100 * US, 0);
    builder.requires(calc, choice);
    for (delays, tags) in [([10 * US, 20 * US], [0, 1]), ([40 * US, 0], [0, 9])] {
        builder.begin_rank();
        let mut last = None;
        for (delay, tag) in delays.into_iter().zip(tags).filter(|(_, tag)| *tag != 9) {
            let calc = builder.calc(delay, 0);
            last.into_iter().for_each(|last| builder.requires(calc, last));
            let send = builder.send(8, 0, tag, 0, 0);
            builder.requires(send, calc);
            last = Some(send);
        }
    }
    let schedule = builder.finish().unwrap();
    // The first half of the exchange is there at 12 us, the other message at 32.5 us, the exchange at 42 us.
    assert_eq!(end(&schedule), 30 * US + US / 2 + MESSAGE + 100 * US);
}

#[test]
fn the_path_leads_through_the_request_that_was_taken() {
    // The work after the choice follows from rank 2's message, though the trace took rank 1's.
    let schedule = receiver(&[90 * US, 10 * US], |rank| {
        rank.wait(&[0], &[1]);
        rank.calc(200 * US);
        rank.wait(&[1], &[]);
    });
    let (noise, mut log) = (Noise::none(), Log::default());
    let scratch = &mut Scratch::default();
    let options = Options::default();
    run_logged(scratch, &schedule, &net(), &options, &noise.run(0, 0), &mut log).unwrap();
    assert_eq!(log.end(0), 10 * US + MESSAGE + 200 * US);
    let ranks: Vec<u32> = log.back_from(0).map(|leg| log.steps()[leg.step as usize].rank).collect();
    assert!(ranks.contains(&2) && !ranks.contains(&1), "{ranks:?}");
    let spent: i64 = log.back_from(0).flat_map(|leg| leg.parts).map(|(_, time)| time).sum();
    assert_eq!(spent, log.end(0));
}

#[test]
fn a_choice_that_nothing_can_end_is_named() {
    let schedule = {
        let mut builder = ScheduleBuilder::new(2).with_mpi_matching();
        builder.begin_rank();
        let receives = [builder.recv(8, 1, 0, 0, 0), builder.recv(8, 1, 1, 0, 0)];
        builder.irequires(receives[1], receives[0]);
        let names = receives.map(|receive| builder.name(&[receive]));
        let choice = builder.choose(&names[..1], &names[1..], 0);
        builder.irequires(choice, receives[1]);
        let send = builder.send(8, 1, 0, 0, 0);
        builder.requires(send, choice);
        builder.begin_rank();
        let receive = builder.recv(8, 0, 0, 0, 0);
        for tag in [0, 1] {
            let send = builder.send(8, 0, tag, 0, 0);
            builder.requires(send, receive);
        }
        builder.finish().unwrap()
    };
    let error = run(&schedule, &net(), &Options::default(), &Noise::none().run(0, 0)).unwrap_err();
    let EventError::Deadlock(waits) = &error else { panic!("{error}") };
    let text = error.to_string();
    assert!(text.contains("wait for 1 of 2 requests") && text.contains("waits for the"), "{text}");
    assert!(waits.iter().any(|wait| wait.place.rank == 1), "{text}");
}

#[test]
fn rules_and_formats_without_choices_refuse_them() {
    let schedule = receiver(&[0, 0], |rank| rank.wait(&[0], &[1]));
    assert!(schedule.has_choices());
    let options = Options { model: Rules::Loggopsim, ..Options::default() };
    let error = run(&schedule, &net(), &options, &Noise::none().run(0, 0)).unwrap_err();
    assert_eq!(error, EventError::Choices);
    for form in [goal::Form::Text, goal::Form::Binary] {
        let error = goal::write(form, &schedule, goal::CalcUnit::default(), std::io::sink());
        assert!(error.unwrap_err().to_string().contains("no choices"));
    }
}

#[derive(Clone, Debug)]
enum Act {
    Calc(i64),
    /// Of what is left: how many are taken in the trace, how many more are in the call, and the first.
    Choose {
        done: usize,
        left: usize,
        from: usize,
    },
    Test {
        count: usize,
        from: usize,
        test: Test,
        ps: i64,
    },
}

fn act() -> impl Strategy<Value = Act> {
    let test = prop_oneof![Just(Test::All), Just(Test::One), Just(Test::Some)];
    prop_oneof![
        (0..20 * US).prop_map(Act::Calc),
        (0..3usize, 0..4usize, 0..8usize).prop_map(|(done, left, from)| Act::Choose {
            done,
            left,
            from
        }),
        (1..4usize, 0..8usize, test, 0..3 * US).prop_map(|(count, from, test, ps)| Act::Test {
            count,
            from,
            test,
            ps
        }),
    ]
}

/// The names that a call has: `count` of those left, from a position on.
fn some_of(left: &[usize], from: usize, count: usize) -> Vec<usize> {
    let at = |place: usize| left[(from + place) % left.len()];
    (0..count.min(left.len())).map(at).collect()
}

/// The same rules, written down plainly, for a rank whose requests end at known times.
struct Plain {
    ends: Vec<i64>,
    stands_for: Vec<usize>,
    drawn: Vec<bool>,
    now: i64,
}

impl Plain {
    fn live(&self, names: &[usize]) -> Vec<usize> {
        names.iter().copied().filter(|&name| !self.drawn[self.stands_for[name]]).collect()
    }

    fn end(&self, name: usize) -> i64 {
        self.ends[self.stands_for[name]]
    }

    fn choose(&mut self, done: &[usize], left: &[usize]) {
        let wanted = self.live(done);
        let mut all: Vec<usize> = self.live(&[done, left].concat());
        all.sort_by_key(|&name| self.end(name));
        let taken = &all[..wanted.len()];
        if let Some(&last) = taken.last() {
            self.now = self.now.max(self.end(last));
        }
        let missed: Vec<usize> =
            wanted.iter().copied().filter(|name| !taken.contains(name)).collect();
        let others: Vec<usize> =
            taken.iter().copied().filter(|name| !done.contains(name)).collect();
        for (other, missed) in others.into_iter().zip(missed) {
            self.stands_for.swap(other, missed);
        }
    }

    fn test(&mut self, names: &[usize], test: Test, ps: i64) {
        let live = self.live(names);
        if live.is_empty() {
            return;
        }
        let mut complete: Vec<usize> =
            live.iter().copied().filter(|&name| self.end(name) <= self.now).collect();
        complete.sort_by_key(|&name| self.end(name));
        match test {
            Test::All if complete.len() < live.len() => complete.clear(),
            Test::One => complete.truncate(1),
            _ => {}
        }
        for name in complete {
            self.drawn[self.stands_for[name]] = true;
        }
        self.now += ps;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Any sequence of waits and tests, for any order of arrival, with and without what needs the queue.
    #[test]
    fn any_choices_end_as_by_the_plain_rules(
        delays in prop::collection::vec(prop_oneof![0..3i64, 0..100i64], 1..9),
        acts in prop::collection::vec(act(), 1..20),
        (latency, overhead) in (prop_oneof![Just(0), 1..5 * US], prop_oneof![Just(0), 1..3 * US]),
    ) {
        let net = Params { latency, recv_overhead: overhead, ..Params::FREE };
        let delays: Vec<i64> = delays.into_iter().map(|delay| delay * US).collect();
        // A receive ends when it is received, one after the other, the first in program order if together.
        let mut order: Vec<usize> = (0..delays.len()).collect();
        order.sort_by_key(|&request| delays[request]);
        let mut ends = vec![0; delays.len()];
        let mut received = 0;
        for request in order {
            received = received.max(delays[request] + latency) + overhead;
            ends[request] = received;
        }
        let stands_for = (0..delays.len()).collect();
        let mut plain = Plain { ends, stands_for, drawn: vec![false; delays.len()], now: 0 };
        let mut left: Vec<usize> = (0..delays.len()).collect();
        let schedule = receiver(&delays, |rank| {
            for act in &acts {
                match *act {
                    Act::Calc(ps) => {
                        rank.calc(ps);
                        plain.now += ps;
                    }
                    _ if left.is_empty() => {}
                    Act::Choose { done, left: more, from } => {
                        let names = some_of(&left, from, (done + more).max(1));
                        let (done, others) = names.split_at(done.clamp(1, names.len()));
                        rank.wait(done, others);
                        plain.choose(done, others);
                        left.retain(|name| !done.contains(name));
                    }
                    Act::Test { count, from, test, ps } => {
                        let names = some_of(&left, from, count);
                        rank.test(&names, test, ps);
                        plain.test(&names, test, ps);
                    }
                }
            }
            rank.calc(US);
        });
        let expected = (plain.now + US).max(plain.ends.iter().copied().max().unwrap_or(0));
        let noise = Noise::none();
        let options = Options::default();
        let found = run(&schedule, &net, &options, &noise.run(0, 0)).unwrap();
        prop_assert_eq!(found.ends[0], expected);
        // Logging changes nothing, and neither does memory that was used before, under noise too.
        let timeline = Timeline::periodic(20 * US, 3 * US).unwrap();
        for model in [Model::Preempt, Model::CpuTime] {
            let noise = Noise::new(vec![timeline.clone()], model, Offsets::Random).unwrap();
            let (mut scratch, mut log) = (Scratch::default(), Log::default());
            let first = run_with(&mut scratch, &schedule, &net, &options, &noise.run(3, 1));
            let again = run_with(&mut scratch, &schedule, &net, &options, &noise.run(3, 1));
            prop_assert_eq!(first.as_ref().unwrap(), again.as_ref().unwrap());
            let logged =
                run_logged(&mut scratch, &schedule, &net, &options, &noise.run(3, 1), &mut log);
            prop_assert_eq!(logged.unwrap(), first.unwrap());
            prop_assert_eq!(log.end(0), again.unwrap().ends[0]);
        }
    }
}
