//! Blame for schedules whose times can be computed by hand.

use simulate::{
    blame::{Blame, Share, blame, blame_runs},
    collectives::{Collective, Op, Shape},
    event::{
        Log, Options, Part, Rendezvous, Rules, Schedule, ScheduleBuilder, Scratch, run_logged,
    },
    graph::{self, Graph},
    job::{Job, Progress},
    loggops::Params,
    noise::{Model, Noise, Offsets, Shares, Timeline, UNKNOWN},
    replay,
    sweep::{self, Plan},
};

const PARAMS: Params = Params {
    latency: 1_000,
    send_overhead: 100,
    recv_overhead: 100,
    gap: 300,
    gap_per_byte_fs: 2_000,
    overhead_per_byte_fs: 1_000,
    eager_limit: 1_000,
    sizes: None,
};

const LONG: i64 = 1_000_000;

fn build(ranks: &[&dyn Fn(&mut ScheduleBuilder)]) -> Schedule {
    let mut b = ScheduleBuilder::new(ranks.len() as u32);
    for rank in ranks {
        b.begin_rank();
        rank(&mut b);
    }
    b.finish().unwrap()
}

fn by(schedule: &Schedule, options: &Options, noise: &Noise) -> Blame {
    let (mut log, met) = (Log::default(), noise.run(0, 0));
    run_logged(&mut Scratch::default(), schedule, &PARAMS, options, &met, &mut log).unwrap();
    blame(&log, &PARAMS, &met).unwrap()
}

fn exact(schedule: &Schedule, noise: &Noise) -> Blame {
    by(schedule, &Options::default(), noise)
}

/// The non-zero parts of the path.
fn path(blame: &Blame) -> Vec<(&'static str, i64)> {
    let all = Part::ALL.iter().map(|&part| (part.name(), blame.path.of(part)));
    all.filter(|(_, ps)| *ps != 0).collect()
}

/// One detour of source 4 that only the rank with offset 0 meets early.
fn detour(at: i64, length: i64, offsets: Vec<i64>) -> Noise {
    let timeline = Timeline::new([(at, length)], LONG).unwrap().of_source(4);
    Noise::new(vec![timeline], Model::Preempt, Offsets::Given(offsets)).unwrap()
}

fn sends(bytes: u64, to: u32) -> impl Fn(&mut ScheduleBuilder) {
    move |b| {
        b.send(bytes, to, 0, 0, 0);
    }
}

fn receives(bytes: u64, from: u32) -> impl Fn(&mut ScheduleBuilder) {
    move |b| {
        b.recv(bytes, from, 0, 0, 0);
    }
}

fn calc_then(calc: i64, then: impl Fn(&mut ScheduleBuilder)) -> impl Fn(&mut ScheduleBuilder) {
    move |b| {
        let first = b.calc(calc, 0);
        then(b);
        b.requires(simulate::event::OpId(first.0 + 1), first);
    }
}

#[test]
fn a_message_is_its_overheads_its_latency_and_its_bytes() {
    let schedule = build(&[&sends(11, 1), &receives(11, 0)]);
    let blame = exact(&schedule, &Noise::none());
    assert_eq!((blame.finish, blame.last), (1_240, 1));
    assert_eq!(path(&blame), [("o", 200), ("O", 20), ("G", 20), ("L", 1_000)]);
    // The receiver waited until the last byte arrived.
    assert_eq!(blame.ranks[1].of(Part::Waiting), 1_130);
    assert_eq!(blame.ranks[0].of(Part::Waiting), 0);
}

#[test]
fn noise_before_the_send_reaches_the_receiver() {
    let schedule = build(&[&calc_then(500, sends(1, 1)), &receives(1, 0)]);
    let blame = exact(&schedule, &detour(200, 70, vec![0, 5_000]));
    assert_eq!(blame.finish, 1_770);
    assert_eq!(path(&blame), [("compute", 500), ("o", 200), ("L", 1_000), ("noise", 70)]);
    let shares: Vec<_> = blame.noise.into_iter().collect();
    assert_eq!(shares, [((4, 0), Share { on_path: 70, absorbed: 0 })]);
}

#[test]
fn noise_while_the_receiver_would_have_waited_is_absorbed() {
    let schedule = build(&[&sends(1, 1), &calc_then(500, receives(1, 0))]);
    let blame = exact(&schedule, &detour(200, 70, vec![5_000, 0]));
    assert_eq!(blame.finish, 1_200);
    assert_eq!(path(&blame), [("o", 200), ("L", 1_000)]);
    let shares: Vec<_> = blame.noise.into_iter().collect();
    assert_eq!(shares, [((4, 1), Share { on_path: 0, absorbed: 70 })]);
    assert_eq!(blame.ranks[1].of(Part::Noise), 70);
    assert_eq!(blame.ranks[1].of(Part::Waiting), 1_100 - 570);
}

#[test]
fn a_receive_posted_late_ends_the_large_send_too() {
    let schedule = build(&[&sends(2_001, 1), &calc_then(20_000, receives(2_001, 0))]);
    let blame = exact(&schedule, &Noise::none());
    assert_eq!((blame.finish, blame.last), (20_000, 0));
    assert_eq!(path(&blame), [("compute", 20_000)]);
    assert_eq!(blame.ranks[0].of(Part::Waiting), 20_000 - 2_100);

    let options = Options { rendezvous: Rendezvous::Handshake, ..Options::default() };
    let blame = by(&schedule, &options, &Noise::none());
    // Acknowledgement and payload in flight after the post; o and O of both ends; the bytes.
    assert_eq!(
        path(&blame),
        [("compute", 20_000), ("o", 200), ("O", 4_000), ("G", 4_000), ("L", 2_000)]
    );
    assert_eq!(blame.finish, 30_200);
}

#[test]
fn the_second_message_waits_for_the_gap_and_for_what_delayed_the_first() {
    let schedule = build(&[
        &|b| {
            b.send(1, 1, 0, 0, 0);
            b.send(1, 1, 1, 0, 0);
        },
        &|b| {
            b.recv(1, 0, 0, 0, 0);
            b.recv(1, 0, 1, 0, 0);
        },
    ]);
    let quiet = exact(&schedule, &Noise::none());
    assert_eq!(path(&quiet), [("o", 200), ("g", 300), ("L", 1_000)]);
    let noisy = exact(&schedule, &detour(50, 30, vec![0, 5_000]));
    assert_eq!(path(&noisy), [("o", 200), ("g", 300), ("L", 1_000), ("noise", 30)]);
}

#[test]
fn noise_after_the_start_that_somebody_waits_for_is_absorbed() {
    let schedule = build(&[&|b| {
        let short = b.calc(10, 0);
        let long = b.calc(900, 1);
        b.irequires(long, short);
    }]);
    // Both CPUs have the same detour; the long one ends last and begins with the short one.
    let blame = exact(&schedule, &detour(5, 40, vec![0]));
    assert_eq!(path(&blame), [("compute", 900), ("noise", 40)]);
    assert_eq!(blame.noise[&(4, 0)], Share { on_path: 40, absorbed: 40 });
}

#[test]
fn a_detour_of_several_sources_is_shared_out() {
    let mut sources = Shares::default();
    sources.push(100, [(7, 60), (8, 30)]);
    let timeline = Timeline::new([(200, 100)], LONG).unwrap().shared_by(sources).unwrap();
    let noise = Noise::new(vec![timeline], Model::Preempt, Offsets::Given(vec![250])).unwrap();
    // It begins inside the detour: the first 50 of source 7 are over.
    let schedule = build(&[&|b| {
        b.calc(500, 0);
    }]);
    let blame = exact(&schedule, &noise);
    let shares: Vec<_> = blame.noise.iter().map(|(&(source, _), s)| (source, s.on_path)).collect();
    assert_eq!(shares, [(7, 10), (8, 30), (UNKNOWN, 10)]);
    assert_eq!(path(&blame), [("compute", 500), ("noise", 50)]);
}

#[test]
fn at_the_peer_noise_of_a_send_does_not_delay_its_message() {
    let schedule = build(&[&sends(1, 1), &receives(1, 0)]);
    let timeline = Timeline::new([(10, 1), (50, 7_000), (100_000, 1)], 200_000).unwrap();
    let noise = Noise::new(vec![timeline], Model::LogGopSim, Offsets::Given(vec![20, 50_000]));
    let options = Options { model: Rules::Loggopsim, ..Options::default() };
    let blame = by(&schedule, &options, &noise.unwrap());
    // The sender itself is late, and so the last.
    assert_eq!((blame.finish, blame.last), (7_100, 0));
    assert_eq!(path(&blame), [("o", 100), ("noise", 7_000)]);
    assert_eq!(blame.ranks[1].total(), 1_200);
}

fn allreduce(ranks: u64) -> Job {
    let shape = Shape { op: Op::Allreduce, ranks, bytes: 1, arity: 2, segment: None };
    Job::new(Collective::new(None, shape).unwrap(), Params::named("xt4").unwrap()).unwrap()
}

#[test]
fn many_runs_say_the_same_for_any_number_of_threads_and_take_the_times_they_take_unwatched() {
    let job = allreduce(60);
    let schedule = graph::schedule(&job, Graph::InOrder).unwrap();
    let recorded = (0..100).map(|i| (i * 1_000_000_000 + i * i * 77_777, 100_000_000));
    let recorded = Timeline::new(recorded, 101_000_000_000).unwrap().of_source(1);
    let tick = Timeline::periodic(4_000_000_000, 3_000_000).unwrap().of_source(0);
    let both = Timeline::superposed(&[recorded, tick]).unwrap();
    let noise = Noise::new(vec![both], Model::Preempt, Offsets::Random).unwrap();
    let plan = |threads| Plan { runs: 40, seed: 9, threads, memory: u64::MAX, progress: &|_| true };
    let options = Options::default();
    let of =
        |threads| blame_runs(&schedule, job.params(), &options, &noise, &plan(threads)).unwrap();
    let blames = of(1);
    assert_eq!(of(2), blames);
    assert_eq!(of(7), blames);

    let replay = replay::run(&schedule, job.params(), &options, &noise, &plan(2)).unwrap();
    assert_eq!(blames.finishes, replay.times);
    assert_eq!(blames.finishes, sweep::times(&job, Graph::InOrder, &noise, &plan(2)).unwrap());
    for (path, finish) in blames.paths.iter().zip(&blames.finishes) {
        assert_eq!(path.total(), *finish);
    }
    // The sources' time on the path is the path's noise; the long detours contribute more.
    let (on_path, absorbed) = blames.noise();
    assert_eq!(on_path, blames.part(Part::Noise).unwrap().mean());
    assert!(absorbed > 0.0);
    let order: Vec<_> = blames.sources.iter().map(|source| source.source).collect();
    assert_eq!(order, [1, 0]);
    let pairs: i128 = blames.pairs.iter().map(|pair| pair.on_path).sum();
    assert_eq!(pairs as f64 / 40.0, on_path);
    assert_eq!(blames.last.iter().sum::<u64>(), 40);
}

#[test]
fn without_noise_none_is_on_the_path_and_its_sign_is_that_of_nothing() {
    let schedule = build(&[&sends(11, 1), &receives(11, 0)]);
    let plan = Plan { runs: 2, seed: 1, threads: 1, memory: 1 << 30, progress: &|_| true };
    let blames =
        blame_runs(&schedule, &PARAMS, &Options::default(), &Noise::none(), &plan).unwrap();
    let (on_path, absorbed) = blames.noise();
    // -0 equals 0, but prints differently.
    assert_eq!([on_path, absorbed].map(f64::to_bits), [0.0f64.to_bits(); 2]);
}

/// With progress always, the path of a nonblocking collective is compute or the messages, whichever takes
/// longer; with progress in calls, it begins with a send or with another rank's message. It always sums to
/// the finish, also under noise.
#[test]
fn the_path_of_a_nonblocking_collective_is_compute_or_its_messages() {
    let job = |compute: i64, progress: Progress| {
        let shape = Shape { op: Op::Barrier, ranks: 16, bytes: 1, arity: 2, segment: None };
        let collective = Collective::new(Some("dissemination"), shape).unwrap();
        let job = Job::new(collective, PARAMS).unwrap().repeated(1, compute).unwrap();
        graph::schedule(&job.nonblocking(Some(progress)).unwrap(), Graph::InOrder).unwrap()
    };
    // Four rounds of o + L + o.
    let short = exact(&job(500, Progress::Always), &Noise::none());
    assert_eq!((short.finish, path(&short)), (4_800, vec![("o", 800), ("L", 4_000)]));
    let long = exact(&job(9_000, Progress::Always), &Noise::none());
    assert_eq!((long.finish, path(&long)), (9_000, vec![("compute", 9_000)]));
    let long = exact(&job(9_000, Progress::InCalls), &Noise::none());
    assert_eq!(long.finish, 100 + 9_000 + 3 * 1_200);
    assert_eq!(path(&long), [("compute", 9_000), ("o", 700), ("L", 3_000)]);
    for progress in Progress::ALL {
        for at in (0..12_000).step_by(700) {
            let offsets = (0..16).map(|rank| rank * 350).collect();
            let blame = exact(&job(3_000, progress), &detour(at, 400, offsets));
            let sum: i64 = path(&blame).iter().map(|(_, ps)| ps).sum();
            assert_eq!(sum, blame.finish, "{progress:?} at {at}");
        }
    }
}
