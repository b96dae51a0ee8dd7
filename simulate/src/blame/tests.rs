//! Invariants of every run: the parts sum to the total, and the path is a path.

use proptest::prelude::*;

use super::*;
use crate::{
    event::{
        self, Log, Options, Rendezvous, Rules, Schedule, ScheduleResult, Scratch,
        sketch::{params, schedule, sketches},
    },
    noise::{Model, Noise, Offsets, Shares, Timeline},
};

fn noise(model: Model) -> Noise {
    let mut sources = Shares::default();
    for length in [70, 100, 5, 300, 1] {
        sources.push(length, [(3, length / 3), (1, length / 2)]);
    }
    let detours = [(3, 70), (500, 100), (900, 5), (1_800, 300), (5_000, 1)];
    let recorded = Timeline::new(detours, 6_000).unwrap().shared_by(sources).unwrap();
    let other = Timeline::new([(100, 10), (3_000, 40)], 4_000).unwrap().of_source(2);
    Noise::new(vec![recorded, other], model, Offsets::Random).unwrap().repeating(true)
}

/// A run that completes, with its log and blame; None for the others.
fn logged(
    schedule: &Schedule,
    params: &Params,
    options: &Options,
    noise: &RunNoise<'_>,
) -> Option<(ScheduleResult, Log, Blame)> {
    let plain = event::run(schedule, params, options, noise);
    let mut log = Log::default();
    let outcome =
        event::run_logged(&mut Scratch::default(), schedule, params, options, noise, &mut log);
    assert_eq!(outcome, plain, "watching a run changes it");
    let outcome = outcome.ok()?;
    let blame = blame(&log, params, noise).unwrap();
    Some((outcome, log, blame))
}

/// Every cost on the path is one that the model defines.
fn check_legs(schedule: &Schedule, params: &Params, options: &Options, log: &Log, rank: u32) {
    let mut at = log.end(rank);
    for leg in log.back_from(rank) {
        assert_eq!(leg.to, at);
        at = leg.from;
        let sum: i64 = leg.parts.iter().map(|(_, ps)| ps).sum();
        assert_eq!(sum, leg.to - leg.from);
        let step = &log.steps()[leg.step as usize];
        let sender = log.steps().get(step.sender as usize).unwrap_or(step);
        let bytes = schedule.ops[sender.op as usize].size;
        let exact = options.model == Rules::Loggops;
        let of = |part: Part| -> i64 {
            leg.parts.iter().filter(|(own, _)| *own == part).map(|(_, ps)| ps).sum()
        };
        if step.what != event::What::Calc && exact {
            let cost = params.message(bytes).unwrap();
            let per_byte = cost.cpu_per_byte;
            assert!([0, cost.transfer].contains(&of(Part::GapPerByte)), "{leg:?} {step:?}");
            assert!([0, per_byte].contains(&of(Part::OverheadPerByte)), "{leg:?} {step:?}");
        }
        let overheads = [0, params.send_overhead, params.recv_overhead];
        assert!(overheads.contains(&of(Part::Overhead)), "{leg:?} {step:?}");
        assert!([0, params.gap].contains(&of(Part::Gap)), "{leg:?} {step:?}");
        assert!([0, params.latency].contains(&of(Part::Latency)), "{leg:?} {step:?}");
        assert!([0, step.noise].contains(&of(Part::Noise)), "{leg:?} {step:?}");
        if exact {
            assert!(leg.parts.iter().all(|(_, ps)| *ps >= 0), "{leg:?} {step:?}");
        }
    }
    assert_eq!(at, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_parts_add_up_whatever_the_schedule_the_noise_and_the_rules(
        sketches in sketches(), wildcards: bool, chained: u8, params in params(),
        limit in prop_oneof![Just(u64::MAX), 0u64..4_000], seed: u64,
    ) {
        let schedule = schedule(&sketches, wildcards, chained);
        let params = Params { eager_limit: limit, ..params };
        let silent = Noise::none();
        let noises = Model::ALL.map(noise);
        let exact = |rendezvous| Options { rendezvous, ..Options::default() };
        let peer = Options { model: Rules::Loggopsim, ..Options::default() };
        for options in [exact(Rendezvous::ClosedForm), exact(Rendezvous::Handshake), peer] {
            for noise in noises.iter().chain([&silent]) {
                let met = noise.run(seed, 0);
                let Some((outcome, log, blame)) = logged(&schedule, &params, &options, &met) else {
                    continue;
                };
                prop_assert_eq!(blame.finish, outcome.max());
                prop_assert_eq!(blame.path.total(), blame.finish);
                prop_assert_eq!(blame.path.of(Part::Waiting), 0);
                for rank in 0..schedule.ranks() {
                    prop_assert_eq!(log.end(rank), outcome.ends[rank as usize]);
                    prop_assert_eq!(blame.ranks[rank as usize].total(), log.end(rank));
                    check_legs(&schedule, &params, &options, &log, rank);
                }
                let on_path: i64 = blame.noise.values().map(|share| share.on_path).sum();
                prop_assert_eq!(on_path, blame.path.of(Part::Noise));
                let hit: i64 = blame.noise.values().map(Share::hit).sum();
                prop_assert_eq!(hit, log.steps().iter().map(|step| step.noise).sum::<i64>());
            }
        }
    }

    /// In a chain the order is fixed, so the path stays a path when costs change.
    #[test]
    fn a_path_is_a_lower_bound_of_what_the_run_takes_at_other_costs(
        sketches in sketches(), params in params(),
        limit in prop_oneof![Just(u64::MAX), 0u64..4_000], seed: u64, longer in 1i64..50,
    ) {
        let schedule = schedule(&sketches, false, u8::MAX);
        let params = Params { eager_limit: limit, ..params };
        let silent = Noise::none();
        let silent = silent.run(0, 0);
        let noise = noise(Model::Preempt);
        for rendezvous in [Rendezvous::ClosedForm, Rendezvous::Handshake] {
            let options = Options { rendezvous, ..Options::default() };
            let Some((quiet, _, of_quiet)) = logged(&schedule, &params, &options, &silent) else {
                continue;
            };
            let (_, _, of_noisy) =
                logged(&schedule, &params, &options, &noise.run(seed, 0)).unwrap();
            prop_assert!(quiet.max() >= of_noisy.finish - of_noisy.path.of(Part::Noise));
            let slower = [
                (Part::Latency, params.latency, Params { latency: params.latency + longer, ..params }),
                (Part::Overhead, params.send_overhead.max(params.recv_overhead), Params { send_overhead: params.send_overhead + longer, recv_overhead: params.recv_overhead + longer, ..params }),
                (Part::Gap, params.gap, Params { gap: params.gap + longer, ..params }),
            ];
            for (part, cost, slower) in slower.into_iter().filter(|(_, cost, _)| *cost > 0) {
                let times = of_quiet.path.of(part) / cost;
                let outcome = event::run(&schedule, &slower, &options, &silent).unwrap();
                prop_assert!(outcome.max() >= quiet.max() + times * longer, "{:?}", part);
            }
        }
    }
}
