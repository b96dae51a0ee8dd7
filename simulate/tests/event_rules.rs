//! The exact rules where LogGOPSim has quirks, and the errors for schedules that deadlock.

#[path = "../../tests/cpu_time/mod.rs"]
mod cpu_time;

use simulate::{
    event::{
        EventError, OpId, Options, Reason, Rules, Schedule, ScheduleBuilder, ScheduleResult,
        WILDCARD, run,
    },
    loggops::{MOST_BYTES, Params},
    noise::{Model, Noise, Offsets, Timeline},
};

const PARAMS: Params = Params {
    latency: 1_000,
    send_overhead: 100,
    recv_overhead: 100,
    gap: 300,
    gap_per_byte_fs: 2_000,
    overhead_per_byte_fs: 0,
    eager_limit: 1_000,
    sizes: None,
};

/// All ranks at once: each has its closure.
fn build(ranks: &[&dyn Fn(&mut ScheduleBuilder)]) -> Schedule {
    let mut b = ScheduleBuilder::new(ranks.len() as u32);
    for rank in ranks {
        b.begin_rank();
        rank(&mut b);
    }
    b.finish().unwrap()
}

fn both(schedule: &Schedule) -> [Vec<i64>; 2] {
    Rules::ALL.map(|model| {
        let options = Options { model, ..Options::default() };
        run(schedule, &PARAMS, &options, &Noise::none().run(0, 0)).unwrap().ends
    })
}

fn exact(schedule: &Schedule) -> Result<ScheduleResult, EventError> {
    run(schedule, &PARAMS, &Options::default(), &Noise::none().run(0, 0))
}

#[test]
fn a_dependency_carries_time_to_another_cpu_and_at_the_peer_it_does_not() {
    let schedule = build(&[&|b| {
        let first = b.calc(10_000, 0);
        let second = b.calc(100, 1);
        b.requires(second, first);
    }]);
    assert_eq!(both(&schedule), [vec![10_100], vec![10_000]]);
}

#[test]
fn an_empty_message_costs_what_one_byte_does_and_at_the_peer_it_gives_a_byte_back() {
    let schedule = build(&[
        &|b| {
            b.send(0, 1, 0, 0, 0);
        },
        &|b| {
            b.recv(0, 0, 0, 0, 0);
        },
    ]);
    assert_eq!(both(&schedule), [vec![100, 1_200], vec![100, 1_198]]);
}

#[test]
fn two_messages_keep_the_gap_unless_they_have_a_nic_each() {
    let sends = |nic| {
        move |b: &mut ScheduleBuilder| {
            b.send(1, 1, 0, 0, 0);
            b.send(1, 1, 1, 0, nic);
        }
    };
    let receives = |nic| {
        move |b: &mut ScheduleBuilder| {
            b.recv(1, 0, 0, 0, 0);
            b.recv(1, 0, 1, 0, nic);
        }
    };
    assert_eq!(exact(&build(&[&sends(0), &receives(0)])).unwrap().ends, [400, 1_500]);
    assert_eq!(exact(&build(&[&sends(1), &receives(1)])).unwrap().ends, [200, 1_300]);
}

#[test]
fn the_receives_own_cpu_pays_for_it() {
    // Two messages at once: on one CPU the second overhead follows the first.
    let sender = |b: &mut ScheduleBuilder| {
        b.send(1, 2, 0, 0, 0);
    };
    let on = |cpu| {
        build(&[&sender, &sender, &move |b| {
            b.recv(1, 0, 0, 0, 0);
            b.recv(1, 1, 0, cpu, 1);
        }])
    };
    assert_eq!(exact(&on(0)).unwrap().ends[2], 1_300);
    assert_eq!(exact(&on(1)).unwrap().ends[2], 1_200);
}

#[test]
fn a_detour_during_the_send_delays_the_message_and_at_the_peer_it_does_not() {
    let schedule = build(&[
        &|b| {
            b.send(1, 1, 0, 0, 0);
        },
        &|b| {
            b.recv(1, 0, 0, 0, 0);
        },
    ]);
    let timeline = Timeline::new([(10, 1), (50, 7_000), (100_000, 1)], 200_000).unwrap();
    for (rules, model, end) in
        [(Rules::Loggops, Model::Preempt, 8_200), (Rules::Loggopsim, Model::LogGopSim, 1_200)]
    {
        let offsets = Offsets::Given(vec![20, 50_000]);
        let noise = Noise::new(vec![timeline.clone()], model, offsets).unwrap();
        let options = Options { model: rules, ..Options::default() };
        let outcome = run(&schedule, &PARAMS, &options, &noise.run(0, 0)).unwrap();
        assert_eq!(outcome.ends, [7_100, end]);
    }
}

#[test]
fn cpu_time_stands_still_while_a_rank_waits() {
    let schedule = build(&[
        &|b| {
            b.send(1, 1, 0, 0, 0);
        },
        &|b| {
            let receive = b.recv(1, 0, 0, 0, 0);
            let work = b.calc(500, 0);
            b.requires(work, receive);
        },
    ]);
    // The detour comes after 300 ps of CPU time: of the receive's 100 and 200 of the calc.
    let timeline = Timeline::new([(300, 1_000)], 1 << 40).unwrap();
    let offsets = Offsets::Given(vec![1 << 30, 0]);
    let noise = Noise::new(vec![timeline], Model::CpuTime, offsets).unwrap();
    let outcome = run(&schedule, &PARAMS, &Options::default(), &noise.run(0, 0)).unwrap();
    assert_eq!(outcome.ends, [100, 1_200 + 500 + 1_000]);
}

#[test]
fn messages_are_received_in_the_order_of_their_arrival_and_wildcards_take_the_first() {
    let late = |b: &mut ScheduleBuilder| {
        let work = b.calc(5_000, 0);
        let send = b.send(1, 2, 0, 0, 0);
        b.requires(send, work);
    };
    let schedule = build(&[
        &late,
        &|b| {
            b.send(2, 2, 0, 0, 0);
        },
        &|b| {
            let first = b.recv(2, WILDCARD, 0, 0, 0);
            let work = b.calc(10, 0);
            b.requires(work, first);
            b.recv(1, 0, 0, 0, 0);
        },
    ]);
    assert_eq!(exact(&schedule).unwrap().ends, [5_100, 100, 6_200]);
}

#[test]
fn two_large_sends_to_each_other_are_a_deadlock_with_its_circle() {
    let swap = |other: u32| {
        move |b: &mut ScheduleBuilder| {
            let send = b.send(5_000, other, 0, 0, 0);
            let receive = b.recv(5_000, other, 0, 0, 0);
            b.requires(receive, send);
        }
    };
    let error = exact(&build(&[&swap(1), &swap(0)])).unwrap_err();
    let EventError::Deadlock(circle) = &error else { panic!("{error}") };
    let steps: Vec<_> = circle.iter().map(|wait| (wait.place.rank, wait.reason)).collect();
    let (receive, requires) = (Reason::Receive, Reason::Requires);
    assert_eq!(steps, [(0, receive), (1, requires), (1, receive), (0, requires)]);
    assert!(error.to_string().starts_with(
        "deadlock: rank 0, operation 0 (l1: send 5000b to 1 tag 0) is not buffered and waits for \
         rank 1"
    ));
}

/// Two calcs: the first depends on the second in the given way, and the second requires the first.
fn circle(depends: fn(&mut ScheduleBuilder, OpId, OpId)) -> EventError {
    let schedule = build(&[&|b| {
        let (a, c) = (b.calc(1, 0), b.calc(1, 0));
        depends(b, a, c);
        b.requires(c, a);
    }]);
    exact(&schedule).unwrap_err()
}

#[test]
fn a_circle_of_dependencies_is_named() {
    let error = circle(ScheduleBuilder::requires);
    assert_eq!(
        error.to_string(),
        "deadlock: rank 0, operation 0 (l1: calc 1ps) requires rank 0, operation 1 \
         (l2: calc 1ps) requires rank 0 l1 again"
    );
}

#[test]
fn what_finds_no_counterpart_is_named() {
    let error = exact(&build(&[
        &|b| {
            b.send(8, 1, 1, 0, 0);
        },
        &|b| {
            b.recv(8, 0, 2, 0, 0);
            b.label_last("halo");
            b.recv(8, 0, 3, 0, 0);
        },
    ]))
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "rank 0, operation 0 (l1: send 8b to 1 tag 1) has no matching receive; also unmatched: \
         rank 1, operation 0 (halo: recv 8b from 0 tag 2)"
    );
    let error = exact(&build(&[&|_| (), &|b| {
        b.recv(8, 0, 2, 0, 0);
        b.label_last("halo");
        b.recv(8, 0, 3, 0, 0);
    }]))
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "rank 1, operation 0 (halo: recv 8b from 0 tag 2) has no matching send \
         (and 1 other receive)"
    );
}

#[test]
fn who_took_the_message_of_another_is_told() {
    let error = exact(&build(&[
        &|b| {
            b.recv(8, WILDCARD, 0, 0, 0);
            b.recv(8, 1, 0, 0, 0);
            b.label_last("one");
        },
        &|b| {
            b.send(8, 0, 0, 0, 0);
        },
        &|b| {
            let calc = b.calc(100_000_000, 0);
            let send = b.send(8, 0, 0, 0, 0);
            b.requires(send, calc);
        },
    ]))
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "rank 0, operation 1 (one: recv 8b from 1 tag 0) has no matching send: another receive \
         matched rank 1, operation 0 (l1: send 8b to 0 tag 0); also unmatched: rank 2, operation 1 \
         (l2: send 8b to 0 tag 0)"
    );
}

#[test]
fn a_circle_of_starts_is_said_as_it_was_written() {
    let error = circle(ScheduleBuilder::irequires);
    assert_eq!(
        error.to_string(),
        "deadlock: rank 0, operation 0 (l1: calc 1ps) irequires rank 0, operation 1 \
         (l2: calc 1ps) requires rank 0 l1 again"
    );
}

/// All wait for any source: each step looks at all messages for a rank, and no others.
#[test]
fn explaining_a_circle_with_wildcards_takes_time_by_its_length_not_by_its_square() {
    let circle = |ranks: u32| {
        let mut b = ScheduleBuilder::new(ranks);
        for rank in 0..ranks {
            b.begin_rank();
            let receive = b.recv(8, WILDCARD, 0, 0, 0);
            let send = b.send(8, (rank + 1) % ranks, 0, 0, 0);
            b.requires(send, receive);
        }
        b.finish().unwrap()
    };
    let explain = |schedule: &Schedule, ranks: usize| {
        let error = exact(schedule).unwrap_err();
        let EventError::Deadlock(circle) = error else { panic!("{error}") };
        assert_eq!(circle.len(), 2 * ranks);
    };
    let (short, long) = (circle(6_250), circle(100_000));
    let growth = cpu_time::growth(16, || explain(&short, 6_250), || explain(&long, 100_000));
    assert!(growth < 6.0, "{growth}");
}

#[test]
fn a_message_that_is_too_long_is_named() {
    let error = exact(&build(&[
        &|b| {
            b.send(MOST_BYTES, 1, 0, 0, 0);
            b.label_last("all");
        },
        &|b| {
            b.recv(MOST_BYTES, 0, 0, 0, 0);
        },
    ]))
    .unwrap_err();
    assert!(error.to_string().starts_with("rank 0, operation 0 (all: send "), "{error}");
    let mut builder = ScheduleBuilder::new(1);
    builder.begin_rank();
    builder.send(MOST_BYTES + 1, 0, 0, 0, 0);
    let error = builder.finish().unwrap_err().to_string();
    assert!(error.starts_with("rank 0, operation 0: a message of "), "{error}");
}

#[test]
fn a_receive_must_have_room_for_its_message() {
    let error = exact(&build(&[
        &|b| {
            b.send(9, 1, 0, 0, 0);
        },
        &|b| {
            b.recv(8, 0, 0, 0, 0);
        },
    ]));
    assert!(matches!(error, Err(EventError::TooSmall { .. })));
}

#[test]
fn a_run_that_is_too_long_is_refused() {
    let error = exact(&build(&[&|b| {
        for _ in 0..9 {
            b.calc(1 << 60, 0);
        }
    }]));
    assert_eq!(error, Err(EventError::TooLong { rank: 0 }));
}
