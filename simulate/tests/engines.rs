//! Two engines, one model: the round engine and the event engine agree bit for bit.

use proptest::prelude::*;
use simulate::{
    collectives::{ALGORITHMS, Collective, Op, Shape},
    event::{self, Rendezvous},
    graph::{Graph, schedule},
    job::{Job, Progress},
    loggops::{Local, Params},
    noise::{Latencies, Model, Noise, Offsets, Order, Rule, Timeline},
    rounds::{self, Scratch, run_from},
};

fn kinds() -> Vec<(&'static str, Op)> {
    ALGORITHMS.iter().flat_map(|a| a.ops().iter().map(|&op| (a.name(), op))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn both_engines_agree_on_every_collective(
        kind in prop::sample::select(kinds()), ranks in 1u64..=200, bytes in 0u64..40,
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
        };
        let local = local.map(|(ranks_per_node, (latency, overheads, gap, eager_limit))| Local {
            ranks_per_node,
            params: Params {
                latency, gap, eager_limit,
                send_overhead: overheads.0, recv_overhead: overheads.1, ..params
            },
        });
        let shape = Shape { op: kind.1, ranks, bytes, arity: 3, segment: Some(7) };
        let job = Job::new(Collective::new(Some(kind.0), shape).unwrap(), params).unwrap()
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
