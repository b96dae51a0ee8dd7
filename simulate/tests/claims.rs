//! The papers' results that are quick to check; `cargo xtask validate` has them all, with more runs.

use simulate::{
    collectives::{Blocks, Collective, Op, Shape},
    graph::Graph,
    job::Job,
    loggops::Params,
    noise::{Model, Noise, Offsets, Timeline},
    stats::Sample,
    sweep::{Plan, noiseless, times},
};

fn job(op: Op, ranks: u64, bytes: u64, net: &str) -> Job {
    let shape = Shape { op, ranks, bytes, arity: 2, segment: None };
    Job::new(Collective::new(None, shape).unwrap(), Params::named(net).unwrap()).unwrap()
}

fn periodic(period_us: i64, length_us: i64, offsets: Offsets) -> Noise {
    let timeline = Timeline::periodic(period_us * 1_000_000, length_us * 1_000_000).unwrap();
    Noise::new(vec![timeline], Model::Preempt, offsets).unwrap()
}

/// Median and largest slowdown of 60 runs.
fn slowdown(job: &Job, noise: &Noise) -> (f64, f64) {
    let plan = Plan { runs: 60, seed: 1, threads: 2, memory: u64::MAX, progress: &|_| true };
    let sample = Sample::new(times(job, Graph::InOrder, noise, &plan).unwrap()).unwrap();
    let noiseless = noiseless(job, Graph::InOrder, Model::Preempt).unwrap() as f64;
    (sample.quantile(0.5) / noiseless, sample.max() as f64 / noiseless)
}

/// A root without overhead sends or receives one byte after the other: L + sum of (k - 1) G. In one round of a
/// dissemination, each waits for the larger of two messages.
#[test]
fn vector_operations_take_their_closed_forms() {
    let (latency, gap_per_byte) = (1_000_000, 3_000);
    let params = Params { latency, gap_per_byte_fs: gap_per_byte * 1_000, ..Params::FREE };
    let time = |op, algorithm, ranks, blocks| {
        let shape = Shape { op, ranks, bytes: 1, arity: 2, segment: None };
        let collective = Collective::of_blocks(Some(algorithm), shape, blocks).unwrap();
        noiseless(&Job::new(collective, params).unwrap(), Graph::InOrder, Model::Preempt).unwrap()
    };
    let blocks = Blocks::Uniform { from: 1, to: 100_000, seed: 7 };
    for ranks in [2u64, 3, 64, 1000] {
        let beyond = |rank| blocks.of_rank(rank) as i64 - 1;
        let all = (1..ranks).map(beyond).sum::<i64>();
        assert_eq!(time(Op::Gatherv, "linear", ranks, blocks), latency + gap_per_byte * all);
        assert_eq!(time(Op::Scatterv, "linear", ranks, blocks), latency + gap_per_byte * all);
    }
    let most = blocks.of_rank(0).max(blocks.of_rank(1)) as i64 - 1;
    for (op, algorithm) in [(Op::Allgatherv, "dissemination"), (Op::ReduceScatter, "ring")] {
        assert_eq!(time(op, algorithm, 2, blocks), latency + gap_per_byte * most);
    }
}

#[test]
fn detours_of_200_us_at_1000_hz_slow_dissemination_down_elevenfold() {
    let barrier = job(Op::Barrier, 32_768, 1, "cnl");
    let (median, max) = slowdown(&barrier, &periodic(1000, 200, Offsets::Random));
    assert!((10.5..11.3).contains(&median), "{median}");
    assert!((11.5..14.0).contains(&max), "{max}");
    let (half, _) = slowdown(&barrier, &periodic(1000, 100, Offsets::Random));
    assert!((4.7..5.3).contains(&half), "{half}");
    let (short, _) = slowdown(&barrier, &periodic(1000, 16, Offsets::Random));
    assert!((1.3..1.45).contains(&short), "{short}");
}

#[test]
fn long_detours_slow_allreduces_down_thirtyfold_and_broadcasts_hardly() {
    let noise = periodic(100_000, 2_500, Offsets::Random);
    let loop_of = |op| job(op, 1024, 1, "xt4").repeated(1000, 0).unwrap();
    let (allreduce, _) = slowdown(&loop_of(Op::Allreduce), &noise);
    assert!((29.0..33.0).contains(&allreduce), "{allreduce}");
    let (bcast, _) = slowdown(&loop_of(Op::Bcast), &noise);
    assert!(bcast < allreduce / 5.0, "{bcast}");
}

#[test]
fn large_messages_absorb_noise_and_coscheduling_removes_it() {
    let random = periodic(1000, 100, Offsets::Random);
    let (large, _) = slowdown(&job(Op::Barrier, 1024, 1 << 20, "cnl"), &random);
    assert!(large < 1.1, "{large}");
    let barrier = job(Op::Barrier, 4096, 1, "cnl");
    let (apart, _) = slowdown(&barrier, &periodic(100_000, 2_500, Offsets::Random));
    let (together, _) = slowdown(&barrier, &periodic(100_000, 2_500, Offsets::Shared));
    assert!(together < 1.001 && apart > 10.0, "{together} {apart}");
}
