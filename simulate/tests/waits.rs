//! Waits and the critical path, followed back to what was late: schedules with known answers, and that the two paths
//! of every wait differ by its length, whatever the schedule and the noise.

use simulate::{
    event::{self, Log, NOBODY, Options, Rendezvous, Schedule, ScheduleBuilder, Scratch},
    loggops::Params,
    noise::{Model, Noise, Offsets, RunNoise, Timeline},
    waits::{Cause, Class, Followed, Late, Wait, each, of},
};

const US: i64 = 1_000_000;

/// L = 1 us, o = 100 ns; messages above 100 bytes shake hands.
fn net() -> Params {
    Params {
        latency: US,
        send_overhead: US / 10,
        recv_overhead: US / 10,
        eager_limit: 100,
        ..Params::FREE
    }
}

fn logged(schedule: &Schedule, noise: &RunNoise<'_>, rendezvous: Rendezvous) -> Log {
    let options = Options { rendezvous, ..Options::default() };
    let (mut scratch, mut log) = (Scratch::default(), Log::default());
    event::run_logged(&mut scratch, schedule, &net(), &options, noise, &mut log).unwrap();
    log
}

/// What is on the path of the late rank, from its end.
fn causes(log: &Log, noise: &RunNoise<'_>, wait: &Wait) -> Vec<Late> {
    let mut found: Vec<Late> = Vec::new();
    let tell = |of_late, late| {
        if of_late {
            found.push(late);
        }
    };
    Followed::new(log, noise).parted(wait, tell).unwrap();
    found
}

/// The causes of a wait by rank and kind, in the order in which they happened.
fn told(found: &[Late]) -> Vec<(Cause, u32, i64)> {
    found.iter().rev().map(|late| (late.cause, late.rank, late.ps)).collect()
}

/// Rank 0 computes and sends to rank 1, which passes it on to rank 2.
fn chain(compute: i64) -> Schedule {
    let mut builder = ScheduleBuilder::new(3);
    builder.begin_rank();
    let calc = builder.calc(compute, 0);
    let send = builder.send(8, 1, 0, 0, 0);
    builder.requires(send, calc);
    builder.begin_rank();
    let receive = builder.recv(8, 0, 0, 0, 0);
    let send = builder.send(8, 2, 0, 0, 0);
    builder.requires(send, receive);
    builder.begin_rank();
    builder.recv(8, 1, 0, 0, 0);
    builder.finish().unwrap()
}

#[test]
fn a_wait_is_followed_through_the_waits_of_others() {
    let silent = Noise::none();
    let noise = silent.run(0, 0);
    let log = logged(&chain(10 * US), &noise, Rendezvous::Handshake);
    let waits = each(&log, |_| false);
    let ranks: Vec<(u32, Class, i64)> =
        waits.iter().map(|wait| (wait.rank, wait.class, wait.end - wait.begin)).collect();
    let late = Class::LateSender;
    assert_eq!(ranks, [(1, late, 11_100_000), (2, late, 12_300_000)]);
    // Rank 1 only passes on that rank 0 was late.
    let o = US / 10;
    assert_eq!(
        told(&causes(&log, &noise, &waits[1])),
        [
            (Cause::Compute, 0, 10 * US),
            (Cause::Overhead, 0, o),
            (Cause::Network, 0, US),
            (Cause::Overhead, 1, o),
            (Cause::Overhead, 1, o),
            (Cause::Network, 1, US),
        ]
    );
}

#[test]
fn noise_that_made_a_sender_late_is_the_cause_of_the_wait() {
    // A detour of 3 us on every rank, 4 us after the start.
    let timeline = Timeline::new([(4 * US, 3 * US)], 1_000 * US).unwrap().of_source(7);
    let noisy =
        Noise::new(vec![timeline], Model::Preempt, Offsets::Shared).unwrap().repeating(true);
    // Shared offsets are drawn, so the run that is looked at has to have the detour in the compute.
    let found = (0..50).find_map(|run| {
        let noise = noisy.run(1, run);
        let log = logged(&chain(400 * US), &noise, Rendezvous::Handshake);
        let waits = each(&log, |_| false);
        let wait = waits.iter().find(|wait| wait.rank == 2)?;
        let told = told(&causes(&log, &noise, wait));
        told.contains(&(Cause::Noise(7), 0, 3 * US)).then_some(told)
    });
    let told = found.expect("a run with the detour in the compute of rank 0");
    assert!(told.contains(&(Cause::Compute, 0, 400 * US)), "{told:?}");
}

#[test]
fn a_late_receiver_is_the_cause_of_a_wait_for_a_large_message() {
    let mut builder = ScheduleBuilder::new(2);
    builder.begin_rank();
    let send = builder.send(1_000, 1, 0, 0, 0);
    let calc = builder.calc(US, 0);
    builder.requires(calc, send);
    builder.begin_rank();
    let calc = builder.calc(20 * US, 0);
    let receive = builder.recv(1_000, 0, 0, 0, 0);
    builder.requires(receive, calc);
    let schedule = builder.finish().unwrap();
    let silent = Noise::none();
    let noise = silent.run(0, 0);
    let log = logged(&schedule, &noise, Rendezvous::Handshake);
    let waits = each(&log, |_| false);
    let wait = waits.iter().find(|wait| wait.rank == 0).unwrap();
    assert_eq!(wait.class, Class::LateReceiver);
    let of_rank_1: i64 = causes(&log, &noise, wait)
        .iter()
        .filter(|late| late.rank == 1 && late.cause == Cause::Compute)
        .map(|late| late.ps)
        .sum();
    // All of its compute but the beginning, in which rank 0 was announcing the message.
    assert!((19 * US..=20 * US).contains(&of_rank_1), "{of_rank_1}");
}

/// A generator of numbers below a bound: the same for each seed.
fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

/// Ranks that compute and exchange messages of both kinds in rounds; no receive comes before its send.
fn rounds(seed: u64) -> Schedule {
    let mut next = numbers(seed);
    let ranks = 2 + next(4) as u32;
    let count = 1 + next(6);
    let sizes: Vec<(u64, i64)> = (0..count * u64::from(ranks))
        .map(|_| (next(2) * 1_000 + 1, next(30) as i64 * US))
        .collect();
    let mut builder = ScheduleBuilder::new(ranks);
    for rank in 0..ranks {
        builder.begin_rank();
        let mut last = None;
        for round in 0..count {
            let shift = 1 + (round % u64::from(ranks - 1)) as u32;
            let (to, from) = ((rank + shift) % ranks, (rank + ranks - shift) % ranks);
            let at = |rank: u32| sizes[(round * u64::from(ranks) + u64::from(rank)) as usize];
            let calc = builder.calc(at(rank).1.max(1), 0);
            if let Some(last) = last {
                builder.requires(calc, last);
            }
            let send = builder.send(at(rank).0, to, round as u32, 0, 0);
            let receive = builder.recv(at(from).0, from, round as u32, 0, 0);
            builder.requires(send, calc);
            builder.requires(receive, calc);
            let join = builder.calc(0, 0);
            builder.requires(join, send);
            builder.requires(join, receive);
            last = Some(join);
        }
    }
    builder.finish().unwrap()
}

#[test]
fn the_paths_of_every_wait_differ_by_it_and_the_critical_one_is_the_whole() {
    let timelines = vec![
        Timeline::new([(3 * US, US), (20 * US, 5 * US)], 50 * US).unwrap().of_source(1),
        Timeline::new([(10 * US, 2 * US)], 70 * US).unwrap().of_source(2),
    ];
    let noisy = Noise::new(timelines, Model::Preempt, Offsets::Random).unwrap().repeating(true);
    let silent = Noise::none();
    let (mut seen, mut noise_seen) = (0, 0);
    for seed in 0..300 {
        let schedule = rounds(seed);
        for noise in [&silent, &noisy] {
            for rendezvous in [Rendezvous::Handshake, Rendezvous::ClosedForm] {
                let noise = noise.run(seed, 0);
                let log = logged(&schedule, &noise, rendezvous);
                let is_collective = |op: u32| op != NOBODY && op.is_multiple_of(3);
                let waits = each(&log, is_collective);
                let mut followed = Followed::new(&log, &noise);
                for wait in &waits {
                    let mut sum = 0;
                    let tell = |of_late, late: Late| {
                        assert!(late.ps > 0);
                        noise_seen += usize::from(matches!(late.cause, Cause::Noise(_)));
                        assert_ne!(late.cause, Cause::Unexplained, "seed {seed}: {wait:?}");
                        assert!(late.rank < log.ranks(), "seed {seed}: {late:?}");
                        sum += if of_late { late.ps } else { -late.ps };
                    };
                    followed.parted(wait, tell).unwrap();
                    assert_eq!(sum, wait.end - wait.begin, "seed {seed}: {wait:?}");
                    seen += 1;
                }
                let by_rank = of(&log, is_collective);
                for rank in 0..log.ranks() {
                    let own = waits.iter().filter(|wait| wait.rank == rank);
                    let sum: i64 = own.map(|wait| wait.end - wait.begin).sum();
                    assert_eq!(sum, by_rank[rank as usize].total(), "seed {seed} rank {rank}");
                }
                let mut path = 0;
                followed.path(|late| path += late.ps).unwrap();
                assert_eq!(path, log.end(log.last()), "seed {seed}");
            }
        }
    }
    assert!(seen > 1_000 && noise_seen > 100, "{seen} waits, {noise_seen} for noise");
}
