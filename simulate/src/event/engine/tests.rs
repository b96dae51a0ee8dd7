//! Compares the engine's shortcuts with its slowest path: everything queued, every message matched by
//! search.

use proptest::prelude::*;

use super::super::pairs;
use super::super::sketch::{
    coarse_params, in_phases, params, phases, reacting, reactions, schedule, sketches,
};
use super::*;
use crate::noise::{Model, Noise, Offsets, Timeline};

fn searching(mut schedule: Schedule) -> Schedule {
    pairs::search_all(&mut schedule);
    schedule
}

fn noise(model: Model) -> Noise {
    let timeline = Timeline::new([(3, 70), (500, 100), (900, 5), (1_800, 300), (5_000, 1)], 6_000);
    let timelines = vec![timeline.unwrap()];
    Noise::new(timelines, model, Offsets::Random).unwrap().repeating(true)
}

/// The same ends, or an error from both.
fn both_ways(schedule: &Schedule, params: &Params, seed: u64) -> Result<(), TestCaseError> {
    let searching = searching(schedule.clone());
    let mut buffers = Buffers::default();
    let silent = Noise::none();
    let noises = [Model::Preempt, Model::CpuTime].map(noise);
    let options = Options::default();
    for noise in [&silent, &noises[0], &noises[1]] {
        let noise = noise.run(seed, 0);
        let fast = run(&mut buffers, schedule, params, &options, &noise, &[]);
        let (schedule, options, noise) = (&searching, &options, &noise);
        let case = Case { schedule, params, options, noise, starts: &[], sent: &[] };
        let slow = run_in(&mut buffers, &case, true, Nobody);
        prop_assert_eq!(&fast.is_ok(), &slow.is_ok());
        if let (Ok(fast), Ok(slow)) = (&fast, &slow) {
            prop_assert_eq!(&fast.ends, &slow.ends);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_needs_no_queue_and_no_search_ends_as_with_both(
        sketches in sketches(), wildcards: bool, chained: u8, params in params(), seed: u64,
    ) {
        both_ways(&schedule(&sketches, wildcards, chained), &params, seed)?;
    }

    #[test]
    fn what_a_receive_sets_free_goes_on_when_its_time_has_come(
        reactions in reactions(), params in coarse_params(), seed: u64,
    ) {
        both_ways(&reacting(&reactions), &params, seed)?;
    }

    #[test]
    fn messages_of_step_after_step_find_the_receives_they_would_find_by_search(
        phases in phases(), params in coarse_params(), seed: u64,
    ) {
        let schedule = in_phases(&phases);
        both_ways(&schedule, &params, seed)?;
        let noise = noise(Model::LogGopSim);
        let noise = noise.run(seed, 0);
        let [fixed, searched] = [&schedule, &searching(schedule.clone())]
            .map(|schedule| super::super::loggopsim::run(schedule, &params, None, &noise, &[]));
        prop_assert_eq!(fixed, searched);
    }

    #[test]
    fn no_schedule_makes_it_panic_or_hang(
        sketches in sketches(), wildcards: bool, chained: u8, params in params(),
        limit in 0u64..4_000, handshake: bool, seed: u64,
    ) {
        let schedule = schedule(&sketches, wildcards, chained);
        let params = Params { eager_limit: limit, ..params };
        let rendezvous =
            if handshake { Rendezvous::Handshake } else { Rendezvous::ClosedForm };
        let options = Options { rendezvous, ..Options::default() };
        let mut buffers = Buffers::default();
        for model in Model::ALL {
            let noise = noise(model);
            let noise = noise.run(seed, 1);
            let first = run(&mut Buffers::default(), &schedule, &params, &options, &noise, &[]);
            let again = run(&mut buffers, &schedule, &params, &options, &noise, &[]);
            prop_assert_eq!(&again, &first);
            let _ = super::super::loggopsim::run(&schedule, &params, None, &noise, &[]);
            if let Err(error) = first {
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}
