//! Compares the round engine with a plain reference, bit for bit, and with closed forms.

mod reference;

use proptest::prelude::*;
use simulate::{
    collectives::{ALGORITHMS, Collective, Op, Shape},
    job::{Job, JobError, Progress},
    loggops::Params,
    noise::{Model, Noise, Offsets, Timeline},
    rounds::{Scratch, run, run_general},
};

/// Every algorithm with every operation it supports.
fn kinds() -> Vec<(&'static str, Op)> {
    ALGORITHMS.iter().flat_map(|a| a.ops().iter().map(|&op| (a.name(), op))).collect()
}

fn collective(algorithm: &str, op: Op, ranks: u64, bytes: u64) -> Collective {
    let shape = Shape { op, ranks, bytes, arity: 3, segment: Some(7) };
    Collective::new(Some(algorithm), shape).unwrap()
}

fn job(algorithm: &str, op: Op, ranks: u64, bytes: u64, params: Params) -> Job {
    Job::new(collective(algorithm, op, ranks, bytes), params).unwrap()
}

fn params() -> impl Strategy<Value = Params> {
    (0i64..50, (0i64..20, 0i64..20), 0i64..40, 0i64..3000, 0i64..3000, 0u64..30).prop_map(
        |(latency, overheads, gap, gap_per_byte_fs, overhead_per_byte_fs, eager_limit)| Params {
            latency,
            send_overhead: overheads.0,
            recv_overhead: overheads.1,
            gap,
            gap_per_byte_fs,
            overhead_per_byte_fs,
            eager_limit,
            sizes: None,
        },
    )
}

fn noise() -> impl Strategy<Value = reference::Noise> {
    let gaps = prop::collection::vec((0i64..300, 1i64..120), 1..8);
    let offsets = prop::collection::vec(0i64..1 << 40, 200);
    // The last detour starts late enough for any operation to be shorter than LogGOPSim's trace.
    let model = prop::sample::select(Model::ALL.to_vec());
    (gaps, 1i64..300, offsets, model).prop_map(|(gaps, tail, offsets, model)| {
        let mut at = 0;
        let mut detours = Vec::new();
        for (gap, length) in gaps {
            detours.push((at + gap, length));
            at += gap + length;
        }
        let late = at + 20_000;
        detours.push((late, 5));
        let span = late + 5 + tail;
        let offsets = offsets.into_iter().map(|offset| offset % span).collect();
        reference::Noise { detours, span, offsets, model }
    })
}

fn build(noise: &reference::Noise) -> Noise {
    let timeline = Timeline::new(noise.detours.iter().copied(), noise.span).unwrap();
    Noise::new(vec![timeline], noise.model, Offsets::Given(noise.offsets.clone()))
        .unwrap()
        .repeating(true)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(700) })]

    #[test]
    fn the_round_engine_agrees_with_the_reference_bit_for_bit(
        kind in prop::sample::select(kinds()), then in prop::option::of(prop::sample::select(kinds())),
        ranks in 1u64..200, bytes in 0u64..40,
        params in params(), noise in prop::option::of(noise()),
        iterations in 1u64..4, compute in prop::sample::select(vec![0i64, 0, 13, 400]),
        reduction in prop::sample::select(vec![0i64, 2500]),
    ) {
        let body = [Some(kind), then].into_iter().flatten();
        let body = body.map(|(algorithm, op)| collective(algorithm, op, ranks, bytes)).collect();
        let job = Job::of(body, params).unwrap()
            .with_reduction(reduction).unwrap().repeated(iterations, compute).unwrap();
        let expected = reference::ends(&job, noise.as_ref());
        let built = noise.as_ref().map_or_else(Noise::none, build);
        let mut scratch = Scratch::keeping_ends();
        let last = run(&job, &built.run(0, 0), &mut scratch).unwrap();
        prop_assert_eq!(scratch.ends(), &expected[..]);
        prop_assert_eq!(last, expected.iter().copied().max().unwrap());
        run_general(&job, &built.run(0, 0), &mut scratch).unwrap();
        prop_assert_eq!(scratch.ends(), &expected[..]);
    }

    #[test]
    fn more_noise_never_makes_anybody_finish_earlier(
        kind in prop::sample::select(kinds()), ranks in 1u64..64, bytes in 0u64..40,
        params in params(), noise in noise(), longer in 0usize..8, by in 1i64..100,
    ) {
        let job = job(kind.0, kind.1, ranks, bytes, params).repeated(2, 50).unwrap();
        let less = reference::Noise { model: Model::Preempt, ..noise };
        // One detour is longer, extending into the free time after it.
        let mut more = less.clone();
        let at = longer % more.detours.len();
        let room = more.detours.get(at + 1).map_or(more.span, |next| next.0)
            - more.detours[at].0 - more.detours[at].1;
        more.detours[at].1 += by.min(room);
        let mut scratch = Scratch::keeping_ends();
        run(&job, &build(&less).run(0, 0), &mut scratch).unwrap();
        let before = scratch.ends().to_vec();
        run(&job, &build(&more).run(0, 0), &mut scratch).unwrap();
        for (before, after) in before.iter().zip(scratch.ends()) {
            prop_assert!(after >= before);
        }
    }
}

/// Real detours between long quiet intervals, offsets from the seed.
fn sparse_noise() -> Noise {
    let detours = (0..500).map(|i| (i * 2_000_000 + (i * i * 7919) % 900_000, 50_000 + i * 700));
    let timeline = Timeline::new(detours, 1_000_000_000).unwrap();
    Noise::new(vec![timeline], Model::Preempt, Offsets::Random).unwrap().repeating(true)
}

#[test]
fn both_kernels_agree_where_arrays_are_worked_on_in_pieces() {
    let chic = Params::named("chic").unwrap();
    let cnl = Params::named("cnl").unwrap();
    let noise = sparse_noise();
    let (mut fast, mut general) = (Scratch::keeping_ends(), Scratch::keeping_ends());
    for (ranks, algorithm, op) in [
        (8192, "dissemination", Op::Barrier),
        (3 * 4096, "dissemination", Op::Allreduce),
        (10_007, "dissemination", Op::Allgather),
        (16_384, "recursive-doubling", Op::Allreduce),
        (1 << 17, "dissemination", Op::Barrier),
        (3 << 15, "dissemination", Op::Allreduce),
        (100_003, "dissemination", Op::Barrier),
        (1 << 17, "recursive-doubling", Op::Allreduce),
        (300, "ring", Op::Allreduce),
        (300, "linear", Op::Alltoall),
    ] {
        for params in [chic, cnl] {
            let job = job(algorithm, op, ranks, 8, params).repeated(2, 20_000_000).unwrap();
            let seeds = if ranks > 50_000 { 1 } else { 3 };
            for seed in 0..seeds {
                let last = run(&job, &noise.run(seed, 1), &mut fast).unwrap();
                let same = run_general(&job, &noise.run(seed, 1), &mut general).unwrap();
                assert_eq!(last, same, "{algorithm} {ranks}");
                assert_eq!(fast.ends(), general.ends(), "{algorithm} {ranks}");
                let only_the_latest = run(&job, &noise.run(seed, 1), &mut Scratch::default());
                assert_eq!(only_the_latest, Ok(last), "{algorithm} {ranks}");
            }
        }
    }
}

#[test]
fn both_kernels_agree_under_periodic_noise() {
    let nets = ["cnl", "chic", "daint"].map(|name| Params::named(name).unwrap());
    let (mut fast, mut general) = (Scratch::keeping_ends(), Scratch::keeping_ends());
    for (period, length) in [
        (1_000_000_000, 200_000_000),
        (100_000_000, 16_000_000),
        (7_000_000, 3_000_001),
        (3_000_000, 1_000_000),
        (30_000_000, 29_000_000),
    ] {
        let timeline = Timeline::periodic(period, length).unwrap();
        let noise = Noise::new(vec![timeline], Model::Preempt, Offsets::Random).unwrap();
        for ranks in [5, 64, 1000, 4096] {
            for (algorithm, compute) in [("dissemination", 0), ("dissemination", 2_500_000)] {
                for params in nets {
                    let job = job(algorithm, Op::Allreduce, ranks, 8, params);
                    let job = job.with_reduction(2_000).unwrap().repeated(3, compute).unwrap();
                    run(&job, &noise.run(ranks, 1), &mut fast).unwrap();
                    run_general(&job, &noise.run(ranks, 1), &mut general).unwrap();
                    assert_eq!(fast.ends(), general.ends(), "{period} {length} {ranks}");
                }
            }
        }
    }
}

/// log2, rounded up.
fn rounds(ranks: u64) -> i64 {
    i64::from(ranks.next_power_of_two().trailing_zeros())
}

#[test]
fn without_noise_each_algorithm_takes_its_closed_form() {
    let net = Params { overhead_per_byte_fs: 100, ..Params::named("cnl").unwrap() };
    let mut scratch = Scratch::keeping_ends();
    for ranks in (2..70).chain([128, 1000, 1024]) {
        let bytes = 9;
        let cost = net.message(bytes).unwrap();
        let (n, p) = (cost.end_to_end(), ranks as i64);
        let mut time = |algorithm: &str, op: Op| {
            let shape = Shape { op, ranks, bytes, arity: 2, segment: None };
            let job = Job::new(Collective::new(Some(algorithm), shape).unwrap(), net).unwrap();
            run(&job, &Noise::none().run(0, 0), &mut scratch).unwrap()
        };
        // The gap is shorter than the overhead on this network, so it never matters.
        assert_eq!(time("dissemination", Op::Barrier), rounds(ranks) * n);
        assert_eq!(time("ring", Op::Allgather), (p - 1) * n);
        assert_eq!(time("linear", Op::Alltoall), (p - 1) * n);
        assert_eq!(time("pairwise", Op::Alltoall), (p - 1) * n);
        assert_eq!(time("chain", Op::Bcast), (p - 1) * n);
        assert_eq!(time("chain", Op::Scan), (p - 1) * n);
        assert_eq!(time("linear", Op::Bcast), (p - 2) * cost.send_cpu + n);
        // Messages that arrive together are received one after the other.
        assert_eq!(time("linear", Op::Gather), n + (p - 2) * cost.recv_cpu.max(cost.gap));
        assert_eq!(time("binomial", Op::Bcast), binomial(ranks, n, cost.send_cpu));
        let down = time("nary", Op::Bcast);
        assert!(down >= n * i64::from(ranks.ilog2()) && down <= 2 * n * rounds(ranks));
        if ranks.is_power_of_two() {
            assert_eq!(time("recursive-doubling", Op::Allreduce), rounds(ranks) * n);
        } else {
            let most = (i64::from(ranks.ilog2()) + 2) * n;
            assert!(time("recursive-doubling", Op::Allreduce) <= most);
        }
    }
}

/// A rank that got the message in round r may have waited for earlier sends of its ancestors.
fn binomial(ranks: u64, n: i64, cpu: i64) -> i64 {
    let mut time = vec![0; ranks as usize];
    let mut free = vec![0; ranks as usize];
    for rank in 1..ranks as usize {
        // The children of a rank are served in ascending order, and so are ranks here.
        let parent = rank - (1 << rank.ilog2());
        let begin = free[parent];
        free[parent] = begin + cpu;
        time[rank] = begin + n;
        free[rank] = time[rank];
    }
    time.into_iter().max().unwrap()
}

#[test]
fn a_rank_delayed_between_two_barriers_makes_rank_three_leave_last() {
    // Figure 4 of the noise study: eight ranks, the fifth is late for the second barrier.
    let job = job("dissemination", Op::Barrier, 8, 1, Params::named("cnl").unwrap());
    let job = job.repeated(2, 30_000_000).unwrap();
    // A detour during the compute of rank 4 only.
    let quiet = run(&job, &Noise::none().run(0, 0), &mut Scratch::keeping_ends()).unwrap();
    let timeline = Timeline::new([(500_000_000, 100_000_000)], 2_000_000_000).unwrap();
    let mut offsets = vec![700_000_000; 8];
    offsets[4] = 500_000_000 - (quiet / 2 + 10_000_000);
    let noise = Noise::new(vec![timeline], Model::Preempt, Offsets::Given(offsets)).unwrap();
    let mut scratch = Scratch::keeping_ends();
    run(&job, &noise.run(0, 0), &mut scratch).unwrap();
    let ends = scratch.ends();
    let last = (0..8).max_by_key(|&rank| ends[rank]).unwrap();
    assert_eq!(last, 3, "{ends:?}");
    assert!(ends[3] > quiet);
}

#[test]
fn a_rank_alone_that_does_nothing_waits_for_no_detour() {
    let timeline = Timeline::new([(200, 100)], 1_000).unwrap();
    let noise = Noise::new(vec![timeline], Model::Preempt, Offsets::Given(vec![210])).unwrap();
    let noise = noise.repeating(true);
    let alone = job("dissemination", Op::Allreduce, 1, 0, Params::named("cnl").unwrap());
    let mut scratch = Scratch::keeping_ends();
    for (compute, end) in [(5, 95), (0, 0)] {
        let job = alone.clone().repeated(1, compute).unwrap();
        assert_eq!(run(&job, &noise.run(0, 0), &mut scratch), Ok(end));
        run_general(&job, &noise.run(0, 0), &mut scratch).unwrap();
        assert_eq!(scratch.ends(), [end]);
    }
}

#[test]
fn runs_that_are_longer_than_the_trace_or_than_time_itself_are_refused() {
    let cnl = Params::named("cnl").unwrap();
    let timeline = Timeline::new([(5_000_000, 1_000_000)], 50_000_000).unwrap();
    let noise = Noise::new(vec![timeline], Model::Preempt, Offsets::Random).unwrap();
    let long = job("dissemination", Op::Barrier, 64, 1, cnl);
    let error = run(&long, &noise.run(1, 1), &mut Scratch::keeping_ends()).unwrap_err();
    assert!(error.to_string().contains("--repeat-trace"), "{error}");
    let repeating = noise.clone().repeating(true);
    assert!(run(&long, &repeating.run(1, 1), &mut Scratch::keeping_ends()).is_ok());

    let eternal = long.clone().repeated(1000, 90 * 3_600_000_000_000_000).unwrap();
    for noise in [Noise::none(), repeating] {
        let error = run(&eternal, &noise.run(1, 1), &mut Scratch::keeping_ends()).unwrap_err();
        assert!(error.to_string().contains("50 days"), "{error}");
    }
    let tree = job("binomial", Op::Bcast, 64, 1, cnl);
    let eternal = tree.repeated(1000, 90 * 3_600_000_000_000_000).unwrap();
    assert!(run(&eternal, &Noise::none().run(1, 1), &mut Scratch::keeping_ends()).is_err());
}

/// Closed forms without noise: blocking, compute and collective add up; with progress only in calls, the
/// first message travels during compute; with progress always, the longer of the two counts.
#[test]
fn nonblocking_collectives_hide_compute() {
    let net = Params::named("cnl").unwrap();
    let mut scratch = Scratch::keeping_ends();
    for (ranks, compute) in [(2, 1_000), (64, 1_000), (64, 20_000_000), (1000, 500_000_000)] {
        let cost = net.message(1).unwrap();
        let n = cost.end_to_end();
        let mut time = |progress, iterations| {
            let job = job("dissemination", Op::Barrier, ranks, 1, net);
            let job = job.repeated(iterations, compute).unwrap().nonblocking(progress).unwrap();
            run(&job, &Noise::none().run(0, 0), &mut scratch).unwrap()
        };
        for iterations in [1, 5] {
            let each = |once: i64| iterations as i64 * once;
            let all = rounds(ranks) * n;
            assert_eq!(time(None, iterations), each(compute + all));
            let first = n.max(cost.send_cpu + compute);
            assert_eq!(time(Some(Progress::InCalls), iterations), each(first + all - n));
            assert_eq!(time(Some(Progress::Always), iterations), each(compute.max(all)));
        }
    }
}

#[test]
fn messages_that_wait_for_their_receiver_cannot_overlap_compute() {
    let net = Params { eager_limit: 0, ..Params::named("cnl").unwrap() };
    let job = job("dissemination", Op::Barrier, 8, 1, net);
    let overlapped = job.clone().repeated(1, 1_000).unwrap().nonblocking(Some(Progress::InCalls));
    assert_eq!(overlapped.unwrap_err(), JobError::NonblockingRendezvous);
    // Without compute there is nothing to overlap.
    assert!(job.nonblocking(Some(Progress::Always)).is_ok());
}
