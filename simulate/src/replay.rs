//! A schedule, run once or many times: the runs share it, and each thread has the memory of one run.

use std::ops::Range;

use crate::{
    event::{self, Log, Options, Schedule},
    loggops::Params,
    noise::{Noise, RunNoise, draw},
    runs,
    sweep::{Plan, SweepError},
};

/// What the runs came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The first run, rank by rank.
    pub first: event::Outcome,
    /// When the last rank was done in each run, ps.
    pub times: Vec<i64>,
}

/// `plan.runs` runs (at least one). The draws are those of the round engine, so that a collective
/// written out as a schedule meets the detours that the collective itself meets.
pub fn run(
    schedule: &Schedule,
    params: &Params,
    options: &Options,
    noise: &Noise,
    plan: &Plan<'_>,
) -> Result<Replay, SweepError> {
    let Share { first, times } =
        share(schedule, params, options, noise, plan, 0..plan.runs.max(1))?;
    match first {
        Some(first) => Ok(Replay { first, times }),
        // There is a run 0 whenever all runs are there.
        None => Err(SweepError::Stopped),
    }
}

/// Some of the runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Run 0, where it is among them.
    pub first: Option<event::Outcome>,
    /// When the last rank was done in each run, ps.
    pub times: Vec<i64>,
}

/// The runs of these numbers, as [`run`] has them.
pub fn share(
    schedule: &Schedule,
    params: &Params,
    options: &Options,
    noise: &Noise,
    plan: &Plan<'_>,
    runs: Range<u64>,
) -> Result<Share, SweepError> {
    let ranks = u64::from(schedule.ranks());
    noise.check(ranks)?;
    let one = |index: u64, scratch: &mut event::Scratch| {
        let run = runs.start + index;
        let met = noise_of(schedule, noise, plan.seed, run);
        let outcome = event::run_with(scratch, schedule, params, options, &met)?;
        if !(plan.progress)(outcome.messages) {
            return Err(SweepError::Stopped);
        }
        let time = outcome.max();
        Ok((time, (run == 0).then_some(outcome)))
    };
    let per_run = event::run_memory(schedule, options.model).max(1);
    let at_once = (plan.memory / per_run).clamp(1, plan.threads as u64);
    let mut results = runs::spread(runs.end.saturating_sub(runs.start), at_once, one)?;
    let first = results.first_mut().and_then(|(_, outcome)| outcome.take());
    Ok(Share { first, times: results.iter().map(|&(time, _)| time).collect() })
}

/// The noise that a run of this number meets.
pub fn noise_of<'a>(schedule: &Schedule, noise: &'a Noise, seed: u64, run: u64) -> RunNoise<'a> {
    noise.run(draw(seed, u64::from(schedule.ranks())), run)
}

/// One of the runs again, written down.
pub fn log(
    schedule: &Schedule,
    params: &Params,
    options: &Options,
    noise: &Noise,
    seed: u64,
    run: u64,
) -> Result<Log, SweepError> {
    noise.check(u64::from(schedule.ranks()))?;
    let (mut scratch, mut log) = (event::Scratch::default(), Log::default());
    let met = noise_of(schedule, noise, seed, run);
    event::run_logged(&mut scratch, schedule, params, options, &met, &mut log)?;
    Ok(log)
}
