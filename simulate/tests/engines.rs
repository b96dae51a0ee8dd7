//! Two engines, one model: the round engine and the event engine agree bit for bit.

use proptest::prelude::*;
use simulate::{
    collectives::{ALGORITHMS, Collective, Op, Shape},
    event::{self, Rendezvous},
    graph::{Graph, schedule},
    job::Job,
    loggops::Params,
    noise::{Model, Noise, Offsets, Timeline},
    rounds::{self, Scratch, run},
};

fn kinds() -> Vec<(&'static str, Op)> {
    ALGORITHMS.iter().flat_map(|a| a.ops().iter().map(|&op| (a.name(), op))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn both_engines_agree_on_every_collective(
        kind in prop::sample::select(kinds()), ranks in 1u64..=200, bytes in 0u64..40,
        net in (0i64..50, 0i64..20, 0i64..40, 0i64..3000, 0i64..3000, 0u64..30),
        gaps in prop::collection::vec((0i64..300, 1i64..120), 1..8), seed in any::<u64>(),
        model in prop::option::of(prop::sample::select(Model::ALL.to_vec())),
        iterations in 1u64..3, compute in prop::sample::select(vec![0i64, 150]),
        reduction in prop::sample::select(vec![0i64, 2500]),
        rendezvous in prop::sample::select(vec![Rendezvous::ClosedForm, Rendezvous::Handshake]),
    ) {
        let params = Params {
            latency: net.0, overhead: net.1, gap: net.2, gap_per_byte_fs: net.3,
            overhead_per_byte_fs: net.4, eager_limit: net.5,
        };
        let shape = Shape { op: kind.1, ranks, bytes, arity: 3, segment: Some(7) };
        let job = Job::new(Collective::new(Some(kind.0), shape).unwrap(), params).unwrap()
            .with_reduction(reduction).unwrap().repeated(iterations, compute).unwrap().with_rendezvous(rendezvous);
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
        let mut scratch = Scratch::keeping_ends();
        let written = schedule(&job, Graph::InOrder).unwrap();
        let options = event::Options { rendezvous, ..event::Options::default() };
        let outcome = event::run(&written, &params, &options, &noise.run(seed, 0)).unwrap();
        prop_assert_eq!(outcome.messages, job.messages());
        if !rounds::can(&job, &noise.run(seed, 0)) {
            prop_assert!(model == Some(Model::CpuTime) && job.has_handshakes());
            return Ok(());
        }
        run(&job, &noise.run(seed, 0), &mut scratch).unwrap();
        prop_assert_eq!(&outcome.ends[..], scratch.ends());
    }
}
