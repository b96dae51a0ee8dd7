//! Runs a schedule once or many times: the runs share it, and each thread has the memory of one run.

use std::ops::Range;

use crate::{
    event::{self, Log, Options, Schedule},
    loggops::Params,
    noise::{Noise, RunNoise, draw},
    runs,
    sweep::{Plan, SweepError},
};

/// The results of the runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The first run, rank by rank.
    pub first: event::ScheduleResult,
    /// When the last rank finished in each run, ps.
    pub times: Vec<i64>,
}

/// `plan.runs` runs (at least one). The draws are those of the round engine, so a collective written
/// out as a schedule meets the same detours as the collective itself.
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
        // A complete set of runs includes run 0.
        None => Err(SweepError::Stopped),
    }
}

/// Some of the runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Run 0, if it is among them.
    pub first: Option<event::ScheduleResult>,
    /// When the last rank finished in each run, ps.
    pub times: Vec<i64>,
}

/// The runs with these numbers, identical to those of [`run`].
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

/// The noise of the run with this number.
pub fn noise_of<'a>(schedule: &Schedule, noise: &'a Noise, seed: u64, run: u64) -> RunNoise<'a> {
    noise.run(draw(seed, u64::from(schedule.ranks())), run)
}

/// Repeats one of the runs, with a log.
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
