//! Compares the kernels with random offsets in the noise; the tests of the whole engine use explicit
//! ones.

use proptest::prelude::*;

use super::{Scratch, run, run_general};
use crate::{
    collectives::{Collective, Op, Shape},
    job::Job,
    loggops::Params,
    noise::{Latencies, Model, Noise, Offsets, Order, Rule, RunNoise, Timeline},
    simd::{WIDTHS, at_most},
};

/// When each rank finishes, or the error; the same for vectors of all widths and any number of threads.
fn ends(job: &Job, noise: &RunNoise<'_>) -> Result<Vec<i64>, super::RunError> {
    let with_threads = |threads| {
        let mut scratch = Scratch::keeping_ends();
        scratch.use_threads(threads);
        run(job, noise, &mut scratch).map(|_| scratch.ends().to_vec())
    };
    let widest = with_threads(1);
    for width in WIDTHS {
        assert_eq!(at_most(width, || with_threads(1)), widest, "{width:?}");
    }
    assert_eq!(with_threads(3), widest);
    // Without the ends there is one pass through memory less.
    let mut scratch = Scratch::default();
    scratch.use_threads(2);
    let latest = run(job, noise, &mut scratch);
    assert_eq!(latest, widest.clone().map(|ends| ends.into_iter().max().unwrap_or(0)));
    widest
}

fn timeline() -> impl Strategy<Value = Timeline> {
    // Some are isolated, some clustered.
    let gaps = prop::collection::vec((0i64..400, 1i64..120), 1..12);
    let crowd = prop::collection::vec((1i64..6, 1i64..4), 0..60);
    (gaps, crowd, 1i64..3_000).prop_map(|(gaps, crowd, tail)| {
        let mut at = 0;
        let mut detours = Vec::new();
        for (gap, length) in gaps.into_iter().chain(crowd) {
            detours.push((at + gap, length));
            at += gap + length;
        }
        Timeline::new(detours, at + tail).unwrap()
    })
}

fn latencies() -> impl Strategy<Value = (Vec<i64>, Order)> {
    let order = prop::sample::select(vec![Order::Random, Order::Block(3), Order::InOrder]);
    (prop::collection::vec(0i64..300, 1..40), order)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn both_kernels_agree_wherever_ranks_are_in_their_noise(
        timelines in prop::collection::vec(timeline(), 1..4),
        ranks in 2u64..600,
        (latency, overheads, gap) in (0i64..50, (0i64..20, 0i64..20), 0i64..40),
        latencies in prop::option::of(latencies()),
        (op, power) in (
            prop::sample::select(vec![Op::Barrier, Op::Allreduce, Op::Allgather]), any::<bool>(),
        ),
        per_byte in (0i64..4_000, 0i64..4_000),
        (compute, iterations) in (0i64..300, 1u64..4),
        (seed, repeat) in (any::<u64>(), any::<bool>()),
    ) {
        let ranks = if power { ranks.next_power_of_two() } else { ranks };
        let params = Params {
            latency,
            send_overhead: overheads.0,
            recv_overhead: overheads.1,
            gap,
            gap_per_byte_fs: per_byte.0,
            overhead_per_byte_fs: per_byte.1,
            eager_limit: 10_000,
            sizes: None,
        };
        let shape = Shape { op, ranks, bytes: 8, arity: 2, segment: None };
        let job = Job::new(Collective::new(None, shape).unwrap(), params).unwrap();
        let job = job.repeated(iterations, compute).unwrap();
        let noise = Noise::new(timelines, Model::Preempt, Offsets::Random).unwrap();
        let latencies = latencies.map(|(measured, order)| {
            Latencies::new(&measured, latency, Rule::Add, order).unwrap()
        });
        let noise = noise.repeating(repeat).with_latencies(latencies);
        let noise = noise.run(seed, 3);
        let fast = ends(&job, &noise);
        let mut scratch = Scratch::keeping_ends();
        match run_general(&job, &noise, &mut scratch) {
            Ok(_) => prop_assert_eq!(fast, Ok(scratch.ends().to_vec())),
            Err(_) => prop_assert!(fast.is_err()),
        }
    }
}

/// More ranks than fit in the cache: several rounds at a time, in pieces and in columns.
#[test]
fn many_ranks_get_the_latencies_of_few() {
    let timeline = Timeline::new([(100_000, 3_000), (500_000, 40_000)], 900_000).unwrap();
    let measured: Vec<i64> = (0..777).map(|at| 1_000 + at * at % 5_003).collect();
    let cases = [
        (1 << 17, Op::Allreduce, None),
        (1 << 17, Op::Allreduce, Some("recursive-doubling")),
        (100_003, Op::Barrier, None),
        (1 << 17, Op::Scan, Some("recursive-doubling")),
    ];
    for (ranks, op, algorithm) in cases {
        for (sends, receives) in [(300, 300), (200, 500)] {
            let params = Params {
                latency: 2_000,
                send_overhead: sends,
                recv_overhead: receives,
                ..Params::FREE
            };
            let shape = Shape { op, ranks, bytes: 8, arity: 2, segment: None };
            let Ok(collective) = Collective::new(algorithm, shape) else { panic!("{op:?}") };
            let job = Job::new(collective, params).unwrap().repeated(2, 700).unwrap();
            let latencies = Latencies::new(&measured, 2_000, Rule::Add, Order::Random).unwrap();
            let noise = Noise::new(vec![timeline.clone()], Model::Preempt, Offsets::Random)
                .unwrap()
                .repeating(true)
                .with_latencies(Some(latencies));
            let noise = noise.run(5, 1);
            let mut scratch = Scratch::keeping_ends();
            run_general(&job, &noise, &mut scratch).unwrap();
            let slow = scratch.ends().to_vec();
            assert_eq!(ends(&job, &noise), Ok(slow), "{ranks} {op:?} {algorithm:?}");
        }
    }
}
