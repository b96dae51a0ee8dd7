//! Two engines, one model: the round engine and the event engine agree bit for bit.

use proptest::prelude::*;
use simulate::{
    collectives::{ALGORITHMS, Blocks, Collective, Op, Shape},
    event::{self, Rendezvous},
    graph::{Graph, schedule},
    job::{Job, Progress},
    loggops::{Local, Params},
    noise::{Latencies, Model, Noise, Offsets, Order, Rule, Timeline},
    rounds::{self, RankStates, Scratch, run_from},
};

fn kinds() -> Vec<(&'static str, Op)> {
    ALGORITHMS.iter().flat_map(|a| a.ops().iter().map(|&op| (a.name(), op))).collect()
}

/// With blocks of different sizes.
fn kinds_of_blocks() -> Vec<(&'static str, Op)> {
    ALGORITHMS.iter().flat_map(|a| a.ops_of_blocks().iter().map(|&op| (a.name(), op))).collect()
}

/// They are repeated, and fit any number of ranks.
const LISTS: [&[u64]; 3] = [&[0], &[7], &[33]];

fn blocks() -> impl Strategy<Value = Blocks> {
    prop_oneof![
        (0u64..20, 0u64..40, any::<u64>()).prop_map(|(from, more, seed)| Blocks::Uniform {
            from,
            to: from + more,
            seed
        }),
        prop::sample::select(LISTS.to_vec()).prop_map(Blocks::Listed),
    ]
}

fn any_kind() -> impl Strategy<Value = ((&'static str, Op), Option<Blocks>)> {
    prop_oneof![
        3 => prop::sample::select(kinds()).prop_map(|kind| (kind, None)),
        1 => (prop::sample::select(kinds_of_blocks()), blocks())
            .prop_map(|(kind, blocks)| (kind, Some(blocks))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn both_engines_agree_on_every_collective(
        (kind, blocks) in any_kind(), ranks in 1u64..=200, bytes in 0u64..40,
        net in (0i64..50, (0i64..20, 0i64..20), 0i64..40, 0i64..3000, 0i64..3000, 0u64..30),
        gaps in prop::collection::vec((0i64..300, 1i64..120), 1..8), seed in any::<u64>(),
        model in prop::option::of(prop::sample::select(Model::ALL.to_vec())),
        iterations in 1u64..3, compute in prop::sample::select(vec![0i64, 150]),
        reduction in prop::sample::select(vec![0i64, 2500]),
        rendezvous in prop::sample::select(vec![Rendezvous::ClosedForm, Rendezvous::Handshake]),
        skew in prop::option::of(0i64..400),
        progress in prop::option::of(prop::sample::select(Progress::ALL.to_vec())),
        local in prop::option::of((1u64..9, (0i64..30, (0i64..20, 0i64..20), 0i64..40, 0u64..40))),
        latencies in prop::option::of((
            prop::collection::vec(0i64..200, 1..30),
            prop::sample::select(vec![Order::Random, Order::Block(3), Order::InOrder]),
        )),
    ) {
        let params = Params {
            latency: net.0, send_overhead: net.1.0, recv_overhead: net.1.1, gap: net.2, gap_per_byte_fs: net.3,
            overhead_per_byte_fs: net.4, eager_limit: net.5,
            sizes: None,
        };
        let local = local.map(|(ranks_per_node, (latency, overheads, gap, eager_limit))| Local {
            ranks_per_node,
            params: Params {
                latency, gap, eager_limit,
                send_overhead: overheads.0, recv_overhead: overheads.1, ..params
            },
        });
        let shape = Shape { op: kind.1, ranks, bytes, arity: 3, segment: Some(7) };
        let collective = match &blocks {
            None => Collective::new(Some(kind.0), shape).unwrap(),
            Some(blocks) => Collective::of_blocks(Some(kind.0), shape, *blocks).unwrap(),
        };
        let job = Job::new(collective, params).unwrap()
            .with_reduction(reduction).unwrap().repeated(iterations, compute).unwrap()
            .with_rendezvous(rendezvous).with_local(local).unwrap();
        // Messages that wait for their receiver cannot overlap compute.
        let job = job.clone().nonblocking(progress).unwrap_or(job);
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
        let noise = noise.with_latencies(latencies);
        let mut scratch = Scratch::keeping_ends();
        let written = schedule(&job, Graph::InOrder).unwrap();
        let options = event::Options { rendezvous, local, ..event::Options::default() };
        // Ranks may start at different times.
        let starts: Vec<i64> = match skew {
            Some(most) => (0..ranks).map(|rank| rank.wrapping_mul(seed | 1) as i64 & 0xff).map(|at| at * most / 255).collect(),
            None => Vec::new(),
        };
        let mut memory = event::Scratch::default();
        let outcome = event::run_from(
            &mut memory, &written, &params, &options, &noise.run(seed, 0), &starts,
        ).unwrap();
        prop_assert_eq!(outcome.messages, job.messages());
        if !rounds::can(&job, &noise.run(seed, 0)) {
            prop_assert!(model == Some(Model::CpuTime));
            prop_assert!(job.has_handshakes() || job.overlap().is_some());
            return Ok(());
        }
        run_from(&job, &noise.run(seed, 0), &starts, &mut scratch).unwrap();
        prop_assert_eq!(&outcome.ends[..], scratch.ends());
    }
}

/// Runs jobs one after the other in both engines and compares all ranks after each. Returns the ends.
fn one_after_another(
    jobs: &[Job],
    params: &Params,
    options: &event::Options,
    noise: &Noise,
    seed: u64,
) -> Vec<i64> {
    let noise = noise.run(seed, 1);
    let (mut ranks, mut scratch) = (RankStates::default(), Scratch::default());
    let (mut carried, mut memory) = (event::Carried::default(), event::Scratch::default());
    ranks.start(jobs[0].ranks()).unwrap();
    for (number, job) in jobs.iter().enumerate() {
        rounds::run_on(job, &noise, &mut ranks, &mut scratch).unwrap();
        let written = schedule(job, Graph::InOrder).unwrap();
        event::run_on(&mut memory, &written, params, options, &noise, &mut carried).unwrap();
        assert_eq!(*ranks.ends, *carried.ends(), "after job {number}: {job:?}");
    }
    ranks.ends.to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn jobs_one_after_another_leave_the_ranks_as_their_schedules_do(
        kinds in prop::collection::vec((prop::sample::select(kinds()), 0u64..40), 2..5), ranks in 2u64..=130,
        net in (0i64..50, (0i64..20, 0i64..20), 0i64..80, 0i64..3000, 0i64..3000, 0u64..60),
        gaps in prop::collection::vec((0i64..300, 1i64..120), 1..8), seed in any::<u64>(),
        noisy in any::<bool>(),
        rendezvous in prop::sample::select(vec![Rendezvous::ClosedForm, Rendezvous::Handshake]),
    ) {
        let params = Params {
            latency: net.0, send_overhead: net.1.0, recv_overhead: net.1.1, gap: net.2, gap_per_byte_fs: net.3,
            overhead_per_byte_fs: net.4, eager_limit: net.5,
            sizes: None,
        };
        let jobs: Vec<Job> = kinds.into_iter().map(|((name, op), bytes)| {
            let shape = Shape { op, ranks, bytes, arity: 3, segment: Some(7) };
            Job::new(Collective::new(Some(name), shape).unwrap(), params).unwrap().with_rendezvous(rendezvous)
        }).collect();
        let mut at = 0;
        let mut detours = Vec::new();
        for (gap, length) in gaps {
            detours.push((at + gap, length));
            at += gap + length;
        }
        let noise = match noisy {
            false => Noise::none(),
            true => {
                let timeline = Timeline::new(detours, at + 777).unwrap();
                Noise::new(vec![timeline], Model::Preempt, Offsets::Random).unwrap().repeating(true)
            }
        };
        let options = event::Options { rendezvous, ..event::Options::default() };
        one_after_another(&jobs, &params, &options, &noise, seed);
    }
}

/// More ranks than fit in the cache: several rounds at a time, in pieces and in columns. What the second job
/// meets depends on the NICs and the receives of the first.
#[test]
fn jobs_of_many_ranks_leave_them_as_their_schedules_do() {
    let ranks = 1 << 17;
    let timeline = Timeline::new([(100_000, 3_000), (500_000, 40_000)], 900_000).unwrap();
    let noise =
        Noise::new(vec![timeline], Model::Preempt, Offsets::Random).unwrap().repeating(true);
    let params =
        Params { latency: 300, send_overhead: 200, recv_overhead: 900, gap: 2_500, ..Params::FREE };
    let job = |op: Op, algorithm: &'static str| {
        let shape = Shape { op, ranks, bytes: 8, arity: 2, segment: None };
        Job::new(Collective::new(Some(algorithm), shape).unwrap(), params).unwrap()
    };
    let jobs = [
        job(Op::Allreduce, "recursive-doubling"),
        job(Op::Barrier, "dissemination"),
        job(Op::Allreduce, "recursive-doubling"),
    ];
    one_after_another(&jobs, &params, &event::Options::default(), &noise, 7);
}
