//! Skeletons of programs: body by body they take the time of the whole program as one schedule, closed
//! forms hold, and the presets have the calls that the study counted.

use proptest::prelude::*;
use simulate::{
    collectives::Op,
    event::{
        self, Carried, EventError, OpId, Options, Rendezvous, Rules, Schedule, ScheduleBuilder,
        WILDCARD,
    },
    loggops::{Local, Params},
    noise::{Latencies, Model, Noise, Offsets, Order, Rule, Timeline},
    skeleton::{Call, Imbalance, Only, Pattern, Preset, Scratch, Skeleton, Solver},
};

type Net = (i64, (i64, i64), i64, i64, i64, u64);

fn nets() -> impl Strategy<Value = Net> {
    (0i64..50, (0i64..20, 0i64..20), 0i64..60, 0i64..3000, 0i64..3000, 0u64..60)
}

fn params(net: Net) -> Params {
    Params {
        latency: net.0,
        send_overhead: net.1.0,
        recv_overhead: net.1.1,
        gap: net.2,
        gap_per_byte_fs: net.3,
        overhead_per_byte_fs: net.4,
        eager_limit: net.5,
        sizes: None,
    }
}

/// Everything that may differ between runs.
#[derive(Clone, Debug)]
struct World {
    params: Params,
    options: Options,
    noise: Noise,
    seed: u64,
}

fn worlds() -> impl Strategy<Value = World> {
    (
        nets(),
        prop::option::of((1u64..9, nets())),
        prop::sample::select(vec![Rendezvous::ClosedForm, Rendezvous::Handshake]),
        prop::option::of(prop::sample::select(Model::ALL.to_vec())),
        prop::collection::vec((0i64..300, 1i64..120), 1..8),
        prop::option::of((
            prop::collection::vec(0i64..200, 1..30),
            prop::sample::select(vec![Order::Random, Order::Block(3), Order::InOrder]),
        )),
        any::<u64>(),
    )
        .prop_map(|(net, local, rendezvous, model, gaps, latencies, seed)| {
            let local =
                local.map(|(ranks_per_node, net)| Local { ranks_per_node, params: params(net) });
            let params = params(net);
            let mut at = 0;
            let mut detours = Vec::new();
            for (gap, length) in gaps {
                detours.push((at + gap, length));
                at += gap + length;
            }
            detours.push((at + 20_000, 5));
            let noise = match model {
                None => Noise::none(),
                Some(model) => {
                    let timeline = Timeline::new(detours, at + 20_100).unwrap();
                    Noise::new(vec![timeline], model, Offsets::Random).unwrap().repeating(true)
                }
            };
            let latencies = latencies.map(|(measured, order)| {
                Latencies::new(&measured, params.latency, Rule::Add, order).unwrap()
            });
            let options = Options { rendezvous, local, ..Options::default() };
            World { params, options, noise: noise.with_latencies(latencies), seed }
        })
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let op =
        prop::sample::select(vec![Op::Allreduce, Op::Barrier, Op::Bcast, Op::Scan, Op::Allgather]);
    prop::collection::vec((op, 0u64..40, 0u64..3), 0..3).prop_map(|calls| {
        calls.into_iter().map(|(op, bytes, times)| Call { op, bytes, times }).collect()
    })
}

fn patterns() -> impl Strategy<Value = Pattern> {
    let solver = (0u64..4, 0i64..200, 1u64..4, calls()).prop_map(
        |(iterations, compute, exchange_every, calls)| Solver {
            iterations,
            compute,
            exchange_every,
            calls,
        },
    );
    prop_oneof![
        ([1u64..5, 1u64..5], 1u64..5)
            .prop_map(|(sides, blocks)| Pattern::Wavefront { sides, blocks }),
        ([1u64..4, 1u64..4, 1u64..4], 1u64..3)
            .prop_map(|(sides, exchanges)| Pattern::Halo { sides, exchanges }),
        ([1u64..5, 1u64..5, 1u64..4], 1u64..4, 1u64..3, 1u64..3).prop_map(
            |(sides, levels, full, exchanges)| {
                Pattern::Multigrid { sides, levels, full: full.min(levels), exchanges }
            }
        ),
        ([1u64..5, 1u64..5], 1u64..3, solver)
            .prop_map(|(sides, exchanges, solver)| Pattern::Ocean { sides, exchanges, solver }),
    ]
}

fn skeletons() -> impl Strategy<Value = Skeleton> {
    let imbalance = (prop::sample::select(vec![0, 50_000, 1_000_000]), any::<u64>())
        .prop_map(|(ppm, seed)| Imbalance { ppm, seed });
    (patterns(), 1u64..4, 1u64..4, 0i64..3_000, 0u64..80, imbalance, calls(), calls()).prop_map(
        |(pattern, copies, iterations, compute, bytes, imbalance, setup, calls)| Skeleton {
            pattern,
            copies,
            iterations,
            compute,
            resolution: 1,
            bytes,
            imbalance,
            setup,
            calls,
        },
    )
}

/// Messages of a random body: (from, to, bytes, CPU and NIC of each end).
type Message = (u32, u32, u64, (u8, u8), (u8, u8));
/// Dependencies of a rank's operations, by their numbers, which only need be in range: (on, before,
/// whether only on the start).
type Links = Vec<(usize, usize, bool)>;

/// Messages, calcs (rank, ps, CPU) and dependencies.
type Body = (Vec<Message>, Vec<(u32, i64, u8)>, Links);

const RANKS: u32 = 4;

fn bodies() -> impl Strategy<Value = Body> {
    let slot = || (0u8..2, 0u8..2);
    (
        prop::collection::vec((0..RANKS, 0..RANKS, 0u64..80, slot(), slot()), 0..14),
        prop::collection::vec((0..RANKS, 0i64..300, 0u8..2), 0..8),
        prop::collection::vec((0usize..20, 0usize..20, any::<bool>()), 0..30),
    )
}

/// The body this many times: every operation of an iteration requires all of the previous one.
fn written((messages, calcs, links): &Body, iterations: u32) -> Schedule {
    let mut b = ScheduleBuilder::new(RANKS);
    for rank in 0..RANKS {
        b.begin_rank();
        let mut before: Vec<OpId> = Vec::new();
        for iteration in 0..iterations {
            let mut ops = Vec::new();
            for (tag, &(from, to, bytes, at, there)) in (0..).zip(messages) {
                let tag = iteration * messages.len() as u32 + tag;
                if to == rank {
                    ops.push(b.recv(bytes, from, tag, there.0, there.1));
                }
                if from == rank {
                    ops.push(b.send(bytes, to, tag, at.0, at.1));
                }
            }
            for &(at, ps, cpu) in calcs {
                if at == rank {
                    ops.push(b.calc(ps, cpu));
                }
            }
            // The slots of a rank must be the same in all iterations, even without operations.
            ops.push(b.calc(0, 1));
            for &(on, op, start) in links {
                let (on, op) = (on % ops.len(), op % ops.len());
                match start {
                    _ if on >= op => {}
                    true => b.irequires(ops[op], ops[on]),
                    false => b.requires(ops[op], ops[on]),
                }
            }
            for &op in &ops {
                before.iter().for_each(|&on| b.requires(op, on));
            }
            before = ops;
        }
    }
    b.finish().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1500) })]

    #[test]
    fn body_by_body_a_program_takes_the_time_of_one_schedule(skeleton in skeletons(), world in worlds()) {
        let World { params, options, noise, seed } = world;
        let program = skeleton.program().unwrap();
        let schedule = program.schedule().unwrap();
        prop_assert_eq!(schedule.messages(), program.messages());
        let noise = noise.run(seed, 0);
        let whole = event::run(&schedule, &params, &options, &noise).unwrap();
        let mut scratch = Scratch::default();
        let bodies = program.bodies().unwrap();
        // Twice, since memory is reused.
        for _ in 0..2 {
            let last = bodies.run(&params, &options, &noise, &|_| true, &mut scratch).unwrap();
            prop_assert_eq!(last, whole.max());
            if !scratch.ends().is_empty() {
                prop_assert_eq!(scratch.ends(), &whole.ends[..]);
            }
        }
    }

    /// Sends without overhead are not delayed by a detour; their gaps are.
    #[test]
    fn so_it_does_without_overheads(seed in any::<u64>()) {
        let skeleton = Skeleton {
            pattern: Pattern::Halo { sides: [2, 2, 2], exchanges: 1 },
            copies: 3,
            iterations: 1,
            compute: 0,
            resolution: 1,
            bytes: 0,
            imbalance: Imbalance { ppm: 0, seed: 0 },
            setup: vec![Call { op: Op::Allreduce, bytes: 0, times: 1 }],
            calls: vec![],
        };
        let params = Params { gap: 10, ..Params::FREE };
        let timeline = Timeline::new(vec![(168, 93), (267, 1), (20_268, 5)], 20_368).unwrap();
        let noise = Noise::new(vec![timeline], Model::Preempt, Offsets::Random).unwrap();
        let (noise, options) = (noise.repeating(true), Options::default());
        let noise = noise.run(seed, 0);
        let program = skeleton.program().unwrap();
        let whole = event::run(&program.schedule().unwrap(), &params, &options, &noise).unwrap();
        let mut scratch = Scratch::default();
        let bodies = program.bodies().unwrap();
        bodies.run(&params, &options, &noise, &|_| true, &mut scratch).unwrap();
        prop_assert_eq!(scratch.ends(), &whole.ends[..]);
    }

    /// Any dependencies, several CPUs and NICs.
    #[test]
    fn any_body_run_repeatedly_takes_the_time_of_its_iterations_written_out(
        body in bodies(), iterations in 1u32..5, world in worlds(),
    ) {
        let World { params, options, noise, seed } = world;
        let noise = noise.run(seed, 0);
        let whole = event::run(&written(&body, iterations), &params, &options, &noise);
        let once = written(&body, 1);
        let (mut scratch, mut carried) = (event::Scratch::default(), Carried::default());
        for _ in 0..iterations {
            match event::run_on(&mut scratch, &once, &params, &options, &noise, &mut carried) {
                Ok(messages) => prop_assert_eq!(messages, once.messages()),
                Err(_) => {
                    prop_assert!(whole.is_err(), "only the body fails");
                    return Ok(());
                }
            }
        }
        prop_assert_eq!(carried.ends(), &whole.unwrap().ends[..]);
    }
}

/// A receive from anyone could get a message of the sender's next iteration.
#[test]
fn a_body_whose_messages_depend_on_the_times_is_refused() {
    let body = |from: u32| {
        let mut b = ScheduleBuilder::new(2);
        b.begin_rank();
        b.send(1, 1, 0, 0, 0);
        b.begin_rank();
        b.recv(1, from, 0, 0, 0);
        b.finish().unwrap()
    };
    let run = |schedule: &Schedule, options: &Options, carried: &mut Carried| {
        let noise = Noise::none();
        let params = Params::named("cnl").unwrap();
        event::run_on(
            &mut event::Scratch::default(),
            schedule,
            &params,
            options,
            &noise.run(0, 0),
            carried,
        )
    };
    let refused = |result| matches!(result, Err(EventError::NotContinued(_)));
    let (plain, mut carried) = (Options::default(), Carried::default());
    assert!(refused(run(&body(WILDCARD), &plain, &mut carried)));
    let peer = Options { model: Rules::Loggopsim, ..plain };
    assert!(refused(run(&body(0), &peer, &mut carried)));
    assert_eq!(run(&body(0), &plain, &mut carried), Ok(1));
    let mut other = ScheduleBuilder::new(1);
    other.begin_rank();
    assert!(refused(run(&other.finish().unwrap(), &plain, &mut carried)));
    assert_eq!(run(&body(0), &plain, &mut carried), Ok(1));
}

fn plain(pattern: Pattern, iterations: u64, compute: i64) -> Skeleton {
    Skeleton {
        pattern,
        copies: 1,
        iterations,
        compute,
        resolution: 1,
        bytes: 100,
        imbalance: Imbalance::default(),
        setup: Vec::new(),
        calls: Vec::new(),
    }
}

fn noiseless(skeleton: &Skeleton, params: &Params) -> i64 {
    let bodies = skeleton.program().unwrap().bodies().unwrap();
    let noise = Noise::none();
    let mut scratch = Scratch::default();
    bodies.run(params, &Options::default(), &noise.run(0, 0), &|_| true, &mut scratch).unwrap()
}

/// N = o + L + (k-1) G + o.
#[test]
fn a_pair_that_exchanges_takes_compute_and_one_message_per_iteration() {
    let params = Params { gap: 0, ..Params::named("cnl").unwrap() };
    let skeleton = plain(Pattern::Halo { sides: [2, 1, 1], exchanges: 1 }, 7, 5_000_000);
    let n = 2 * 2_870_000 + 4_770_000 + 99 * 2_670;
    assert_eq!(noiseless(&skeleton, &params), 7 * (5_000_000 + n));
}

/// A line of P ranks: 4 K blocks run up it, then 4 K blocks run down, each behind the other.
#[test]
fn a_wavefront_takes_its_blocks_and_the_way_across_the_ranks_twice() {
    for (ranks, blocks) in [(1, 3), (2, 1), (5, 3), (9, 40)] {
        let compute = 8 * blocks as i64 * 1_000;
        let skeleton = plain(Pattern::Wavefront { sides: [ranks, 1], blocks }, 1, compute);
        let params = Params { latency: 77, ..Params::FREE };
        let hops = 2 * (ranks as i64 - 1);
        assert_eq!(noiseless(&skeleton, &params), compute + hops * (1_000 + 77));
    }
}

#[test]
fn a_solver_takes_its_iterations_and_their_collectives() {
    let calls = vec![
        Call { op: Op::Allreduce, bytes: 1, times: 2 },
        Call { op: Op::Barrier, bytes: 0, times: 1 },
    ];
    let solver = Solver { iterations: 10, compute: 1_000, exchange_every: 10, calls };
    let params = Params { latency: 50, send_overhead: 10, recv_overhead: 10, ..Params::FREE };
    let mut skeleton = plain(Pattern::Ocean { sides: [2, 1], exchanges: 1, solver }, 3, 500);
    // An exchange before the solver and one in it; 30 collectives of one round.
    assert_eq!(noiseless(&skeleton, &params), 3 * (500 + 10 * 1_000 + (2 + 30) * 70));
    skeleton.copies = 8;
    // 16 ranks: four rounds each.
    assert_eq!(noiseless(&skeleton, &params), 3 * (500 + 10 * 1_000 + (2 + 4 * 30) * 70));
    let program = skeleton.program().unwrap();
    assert_eq!(program.calls(), [("allreduce", 60), ("barrier", 30)]);
    assert_eq!(program.messages(), 3 * (2 * 16 + 30 * 4 * 16));
    assert_eq!(program.clone().only(Only::PointToPoint).messages(), 3 * 2 * 16);
    assert_eq!(program.clone().only(Only::Collectives).messages(), 3 * 30 * 4 * 16);
    assert_eq!(program.compute(), 3.0 * 10_500.0);
}

/// On a line, levels of 5, 3 and 2 ranks have 4, 2 and 1 pairs.
#[test]
fn coarse_levels_have_fewer_ranks_and_one_allreduce() {
    let pattern = Pattern::Multigrid { sides: [5, 1, 1], levels: 3, full: 1, exchanges: 2 };
    let program = plain(pattern, 1, 800_000).program().unwrap();
    let allreduce = 3 * 5;
    assert_eq!(program.messages(), 2 * 2 * 2 * (4 + 2 + 1) + allreduce);
    assert_eq!(program.calls(), [("allreduce", 1)]);
}

#[test]
fn imbalance_is_within_its_bounds_and_has_no_bias() {
    let imbalance = Imbalance { ppm: 100_000, seed: 3 };
    let times: Vec<i64> = (0..20_000).map(|rank| imbalance.of(1_000_000, rank, 5)).collect();
    assert!(times.iter().all(|ps| (900_000..=1_100_000).contains(ps)));
    let mean = times.iter().sum::<i64>() as f64 / times.len() as f64;
    // Standard deviation of the mean: 100,000 / sqrt(3 * 20,000).
    assert!((mean - 1e6).abs() < 5.0 * 408.0, "{mean}");
    let spread = times.iter().map(|&ps| (ps as f64 - mean).powi(2)).sum::<f64>() / 20_000.0;
    assert!((spread.sqrt() / 57_735.0 - 1.0).abs() < 0.02, "{spread}");
}

/// The calls of the traced runs, and the messages of the largest simulations, which the study gives as "more
/// than".
#[test]
fn presets_have_the_counts_that_the_study_prints() {
    for preset in Preset::ALL {
        let published = preset.published();
        let program = preset.skeleton().program().unwrap();
        assert_eq!(program.ranks(), published.ranks, "{preset:?}");
        let mut calls = program.calls();
        calls.sort_unstable();
        let mut expected = published.calls.to_vec();
        expected.sort_unstable();
        assert_eq!(calls, expected, "{preset:?}");
        let largest = preset.skeleton().with_ranks(published.largest_ranks).unwrap();
        let messages = largest.program().unwrap().messages();
        let ratio = messages as f64 / published.largest_messages as f64;
        assert!((1.0..1.03).contains(&ratio), "{preset:?}: {messages}");
        assert!(preset.skeleton().with_ranks(published.ranks + 1).is_err());
    }
}

/// On the network of the machine that was traced. As a profiler counts it: the time of each rank that is not
/// compute.
#[test]
fn presets_communicate_for_the_share_of_time_that_the_study_prints() {
    let xt4 = Params::named("xt4").unwrap();
    for preset in Preset::ALL {
        let program = preset.skeleton().program().unwrap();
        let (bodies, noise) = (program.bodies().unwrap(), Noise::none());
        let mut scratch = Scratch::default();
        bodies.run(&xt4, &Options::default(), &noise.run(0, 0), &|_| true, &mut scratch).unwrap();
        let (mean, collectives) = scratch.means();
        let share = 100.0 * (1.0 - program.compute() / mean);
        let published = preset.published().communication_pct;
        assert!((share - published).abs() < 0.3, "{preset:?}: {share} % and not {published} %");
        let collectives = 100.0 * collectives / mean;
        assert!(0.0 < collectives && collectives < share, "{preset:?}: {collectives} %");
    }
}

#[test]
fn what_cannot_be_a_skeleton_is_refused() {
    let halo = |sides| Pattern::Halo { sides, exchanges: 1 };
    for skeleton in [
        plain(halo([0, 1, 1]), 1, 0),
        plain(halo([1 << 20, 1 << 20, 1]), 1, 0),
        plain(halo([u64::MAX, u64::MAX, 2]), 1, 0),
        plain(halo([2, 2, 2]), 0, 0),
        plain(halo([2, 2, 2]), 1, -1),
        plain(Pattern::Halo { sides: [2, 2, 2], exchanges: 0 }, 1, 0),
        plain(Pattern::Wavefront { sides: [2, 2], blocks: 0 }, 1, 0),
        plain(Pattern::Multigrid { sides: [2, 2, 2], levels: 2, full: 3, exchanges: 1 }, 1, 0),
    ] {
        assert!(skeleton.program().is_err(), "{skeleton:?}");
    }
    // Fits body by body, but not as one schedule.
    let long = plain(halo([2, 2, 2]), u64::MAX, 0).program().unwrap();
    assert!(long.schedule().is_err() && long.bodies().is_ok());
}
