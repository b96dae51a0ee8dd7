//! Compares the all-to-all with a plain implementation of the same rules, and checks invariances.

use super::*;
use crate::{
    collectives::{Collective, Op, Shape},
    noise::{Model, Offsets, Timeline, WorkError, draw, key},
};

const US: i64 = 1_000_000;

fn skewed() -> Sampler {
    // One in ten is interrupted.
    Sampler::of_counts([(150 * US, 60), (160 * US, 30), (230 * US, 8), (600 * US, 2)]).unwrap()
}

fn resample(processors: u64, samples: u64) -> Config<'static> {
    Config {
        processors,
        samples,
        schedule: Schedule::Tournament,
        mode: Mode::Resample(skewed()),
        seed: 9,
    }
}

/// One sample, step by step as in the study: idle time and end of every processor.
fn plain(processors: u64, time: impl Fn(u64, u64) -> i64) -> Vec<(i64, i64)> {
    let mut state = vec![(0, 0); processors as usize];
    for step in 0..steps(processors) {
        let before = state.clone();
        for one in 0..processors {
            let Some(other) = partner(processors, step, one) else { continue };
            let (ready, idle) = before[one as usize];
            let start = ready.max(before[other as usize].0);
            state[one as usize] = (start + time(step, one.min(other)), idle + (start - ready));
        }
    }
    state
}

#[test]
fn samples_are_what_the_plain_telling_gives() {
    for processors in [2, 3, 4, 5, 6, 7, 8, 33] {
        let samples = 11;
        let outcome = run(&resample(processors, samples), None).unwrap();
        let mut expected = AlltoallResult::new(
            processors,
            Schedule::Tournament.extent(processors),
            Unit::Nanoseconds,
        );
        for sample in 0..samples {
            let times = key(9, 22, sample);
            // The number of an exchange, from its step and one of its partners.
            let m = steps(processors);
            let number = |step: u64, low: u64| {
                let high = partner(processors, step, low).unwrap();
                let place =
                    if high == m { 0 } else { ((low + m - step) % m).min((high + m - step) % m) };
                step * processors.div_ceil(2) + place
            };
            let state =
                plain(processors, |step, low| skewed().pick(draw(times, number(step, low))));
            expected.record(state.into_iter()).unwrap();
        }
        assert_eq!(outcome, expected, "{processors} processors");
    }
}

#[test]
fn equal_exchanges_leave_nobody_idle_unless_somebody_sits_out() {
    for processors in 2..20 {
        let mode = Mode::Resample(Sampler::of(&[100 * US]).unwrap());
        let config =
            Config { processors, samples: 3, schedule: Schedule::Tournament, mode, seed: 1 };
        let outcome = run(&config, None).unwrap();
        assert_eq!(outcome.exchange_mean(), 100.0 * US as f64);
        if processors % 2 == 0 {
            assert_eq!(outcome.idle.zero_share(), 1.0);
            assert_eq!(outcome.relative_throughput(), 1.0);
            assert_eq!(outcome.total.max(), 100 * US * (processors as i64 - 1));
        } else {
            // A processor that sat out is early for the next step, and waits there.
            assert!(outcome.idle.max() <= 100 * US);
            assert!(outcome.total.max() <= 100 * US * processors as i64);
        }
    }
}

#[test]
fn without_noise_a_trace_changes_nothing_about_the_drawn_times() {
    let noise = Noise::none();
    let mode = Mode::Trace { exchange: Exchange::Drawn(skewed()), noise: &noise };
    let traced = run(&Config { mode, ..resample(8, 20_000) }, None).unwrap();
    let drawn = run(&resample(8, 20_000), None).unwrap();
    // Different random numbers, the same distribution.
    let ratio = traced.total.mean() / drawn.total.mean();
    assert!((ratio - 1.0).abs() < 0.005, "{ratio}");
    assert!((traced.idle.zero_share() - drawn.idle.zero_share()).abs() < 0.01);
}

#[test]
fn interruptions_of_either_partner_delay_both() {
    // One detour per processor, far apart; processor 2's hits its first exchange.
    let timeline = Timeline::new([(50 * US, 30 * US)], 100_000 * US).unwrap();
    let offsets = vec![500 * US, 500 * US, 0, 500 * US];
    let noise = Noise::new(vec![timeline], Model::Preempt, Offsets::Given(offsets)).unwrap();
    let mode = Mode::Trace { exchange: Exchange::Constant(100 * US), noise: &noise };
    let outcome = run(&Config { mode, seed: 0, ..resample(4, 1) }, None).unwrap();
    // Step 0 pairs 1 with 2, until 130; 0 and 3 wait for them in step 1 (0-2, 1-3): 30 each.
    assert_eq!(outcome.total.max(), 330 * US);
    assert_eq!(outcome.idle.sum(), i128::from(60 * US));
    assert_eq!(outcome.idle_first.max(), 30 * US);
    assert_eq!(outcome.idle.zero_share(), 0.5);
}

#[test]
fn threads_and_chunks_leave_no_trace_in_the_result() {
    let timeline = Timeline::periodic(6_025 * US, 70 * US).unwrap();
    let noise = Noise::new(vec![timeline], Model::Preempt, Offsets::Random).unwrap();
    let traced = Mode::Trace { exchange: Exchange::Drawn(skewed()), noise: &noise };
    for mode in [traced, Mode::Resample(skewed())] {
        let config = Config { mode, ..resample(9, 1_003) };
        let on = |threads, chunk| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| share_in_chunks(&config, 0..config.samples, chunk, None).unwrap())
        };
        let one = on(1, CHUNK);
        assert_eq!(one.samples, 1_003);
        for (threads, chunk) in [(2, CHUNK), (7, CHUNK), (2, 1), (3, 13), (1, 5_000)] {
            assert_eq!(one, on(threads, chunk), "{threads} threads, chunks of {chunk}");
        }
        let other = run(&Config { seed: 10, ..config }, None).unwrap();
        assert_ne!(one, other);
    }
}

#[test]
fn progress_adds_up_to_the_samples() {
    let told = std::sync::atomic::AtomicU64::new(0);
    let tell = |count| {
        told.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
    };
    run(&resample(4, 1_000), Some(&tell)).unwrap();
    assert_eq!(told.into_inner(), 1_000);
}

#[test]
fn what_cannot_be_run_is_refused() {
    let refused = |config: Config<'_>| run(&config, None).unwrap_err();
    assert_eq!(refused(resample(0, 1)), ResampleError::TooFewProcessors(0));
    assert_eq!(refused(resample(1, 1)), ResampleError::TooFewProcessors(1));
    assert!(matches!(refused(resample(1 << 40, 1)), ResampleError::TooManyProcessors(_)));
    assert_eq!(refused(resample(4, 0)), ResampleError::NoSamples);
    let long = Mode::Resample(Sampler::of(&[LONGEST]).unwrap());
    assert_eq!(refused(Config { mode: long, ..resample(4, 1) }), ResampleError::TooLong);
    let short = Timeline::new([(10 * US, US)], 300 * US).unwrap();
    let noise = Noise::new(vec![short], Model::Preempt, Offsets::Random).unwrap();
    let mode = Mode::Trace { exchange: Exchange::Constant(150 * US), noise: &noise };
    assert!(matches!(
        refused(Config { mode, ..resample(4, 1) }),
        ResampleError::Work(WorkError::TraceTooShort { .. })
    ));
}

fn rounds(op: Op, algorithm: &str, ranks: u64) -> Schedule {
    let shape = Shape { op, ranks, bytes: 1, arity: 2, segment: None };
    Schedule::Rounds(Collective::new(Some(algorithm), shape).unwrap())
}

/// Recursive doubling written out: in step k, both partners end the draw after the later of them.
#[test]
fn an_allreduce_is_what_the_plain_telling_gives() {
    let (ranks, samples) = (16u64, 21);
    let schedule = rounds(Op::Allreduce, "recursive-doubling", ranks);
    let outcome = run(&Config { schedule, ..resample(ranks, samples) }, None).unwrap();
    let extent = schedule.extent(ranks);
    let mut expected = AlltoallResult::new(ranks, extent, Unit::Nanoseconds);
    for sample in 0..samples {
        let times = key(9, 22, sample);
        let mut state = vec![(0i64, 0i64); ranks as usize];
        for step in 0..4 {
            let before = state.clone();
            for one in 0..ranks {
                let other = one ^ (1 << step);
                let (ready, idle) = before[one as usize];
                let start = ready.max(before[other as usize].0);
                let took = skewed().pick(draw(times, step * ranks + one.min(other)));
                state[one as usize] = (start + took, idle + (start - ready));
            }
        }
        expected.record(state.into_iter()).unwrap();
    }
    assert_eq!(outcome, expected);
}

#[test]
fn equal_exchanges_take_as_many_as_the_longest_chain_has() {
    for (op, algorithm, depth) in [
        (Op::Barrier, "dissemination", 4),
        (Op::Bcast, "binomial", 4),
        (Op::Allgather, "ring", 12),
        (Op::Gather, "linear", 12),
    ] {
        let mode = Mode::Resample(Sampler::of(&[100 * US]).unwrap());
        let schedule = rounds(op, algorithm, 13);
        let config = Config { schedule, mode, ..resample(13, 9) };
        let outcome = run(&config, None).unwrap();
        assert_eq!(outcome.total.max(), depth * 100 * US, "{algorithm}");
        assert_eq!(outcome.exchange_mean(), 100.0 * US as f64);
        assert!((outcome.relative_throughput() - 1.0).abs() < 1e-12);
        // Without detours, time order makes no difference.
        let none = Noise::none();
        let mode = Mode::Trace { exchange: Exchange::Constant(100 * US), noise: &none };
        assert_eq!(run(&Config { mode, ..config }, None).unwrap(), outcome, "{algorithm}");
    }
}

/// The share of samples without any slow exchange, in closed form: each of them delays somebody.
#[test]
fn one_slow_exchange_delays_the_operation() {
    let mode = Mode::Resample(Sampler::of_counts([(100 * US, 9), (1_100 * US, 1)]).unwrap());
    let schedule = rounds(Op::Allreduce, "recursive-doubling", 16);
    let outcome = run(&Config { schedule, mode, ..resample(16, 40_000) }, None).unwrap();
    // Four rounds of eight exchanges.
    let expected = 0.9f64.powi(32);
    let fast = outcome.total.bins().filter(|bin| bin.high <= 410 * US).map(|bin| bin.count);
    let fast = fast.sum::<u64>() as f64 / 40_000.0;
    assert!((fast - expected).abs() < 4.0 * (expected / 40_000.0).sqrt(), "{fast}, not {expected}");
}

#[test]
fn operations_give_the_same_on_any_number_of_threads() {
    let timeline = Timeline::periodic(10_000 * US, 70 * US).unwrap();
    let noise = Noise::new(vec![timeline], Model::Preempt, Offsets::Random).unwrap();
    let traced = Mode::Trace { exchange: Exchange::Constant(150 * US), noise: &noise };
    for mode in [Mode::Resample(skewed()), traced] {
        let schedule = rounds(Op::Barrier, "dissemination", 9);
        let config = Config { schedule, mode, ..resample(9, 1_003) };
        let on = |threads, chunk| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| share_in_chunks(&config, 0..config.samples, chunk, None).unwrap())
        };
        let one = on(1, 128);
        assert_eq!(one, on(3, 7));
    }
}
