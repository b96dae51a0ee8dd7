//! The cycles of one case, and the three cases of every run.

use std::ops::Range;

use rayon::prelude::*;

use crate::noise::key;

use super::butterfly::{self, BLOCK};
use super::config::{Config, CycleError, Plan};
use super::outcome::{CycleResult, Times};
use super::periodic::Rank;
use super::redundant::Round;
use super::{conventional, gaps, redundant};

/// Key of the random stream for the phases.
const PHASE: u64 = 11;
/// 16 MiB per run.
const SIDE_BY_SIDE: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Noise in the compute phases only.
    Noiseless,
    /// Noise everywhere.
    Conventional,
    /// Noise everywhere, redundant exchanges.
    Redundant,
}

impl Case {
    pub const ALL: [Case; 3] = [Case::Noiseless, Case::Conventional, Case::Redundant];
}

/// All runs and cases. `progress` gets the number of cycles of a case done since its last call, from
/// any thread: `3 * runs * cycles` in total.
pub fn run(
    config: &Config,
    progress: Option<&(dyn Fn(u64) + Sync)>,
) -> Result<CycleResult, CycleError> {
    share(config, 0..config.runs, progress)
}

/// The runs with these numbers, identical to those of [`run`].
pub fn share(
    config: &Config,
    runs: Range<u64>,
    progress: Option<&(dyn Fn(u64) + Sync)>,
) -> Result<CycleResult, CycleError> {
    let plan = config.checked()?;
    let one = |run: u64| -> Result<Times, CycleError> {
        let mut ranks = vec![Rank { ready: 0, next: 0 }; plan.ranks];
        let mut times = [0; 3];
        for (time, case) in times.iter_mut().zip(Case::ALL) {
            *time = cycles(&plan, &mut ranks, config.seed, run, case, progress)?;
        }
        let [noiseless, conventional, redundant] = times;
        Ok(Times { noiseless, conventional, redundant })
    };
    // In parallel, since a run's rounds wait for each other; above a million ranks one by one, to
    // limit memory.
    let runs = if plan.ranks <= SIDE_BY_SIDE {
        runs.into_par_iter().map(one).collect::<Result<Vec<_>, _>>()?
    } else {
        runs.map(one).collect::<Result<Vec<_>, _>>()?
    };
    Ok(CycleResult { ranks: config.ranks, runs })
}

/// When each rank ends in one case of one run, for callers who need more than the last end.
pub fn end_of_case(config: &Config, run: u64, case: Case) -> Result<Vec<i64>, CycleError> {
    let plan = config.checked()?;
    let mut ranks = vec![Rank { ready: 0, next: 0 }; plan.ranks];
    cycles(&plan, &mut ranks, config.seed, run, case, None)?;
    Ok(ranks.iter().map(|rank| rank.ready).collect())
}

/// Where in its period a rank is at time 0 of a run: the same in all cases.
pub fn phase(config: &Config, run: u64, rank: u64) -> Result<i64, CycleError> {
    Ok(config.checked()?.noise.phase(key(config.seed, PHASE, run), rank))
}

/// One case; returns when the last rank finishes.
fn cycles(
    plan: &Plan,
    ranks: &mut [Rank],
    seed: u64,
    run: u64,
    case: Case,
    progress: Option<&(dyn Fn(u64) + Sync)>,
) -> Result<i64, CycleError> {
    let (noise, costs) = (plan.noise, plan.costs);
    // The same phases in all three cases.
    let phases = key(seed, PHASE, run);
    ranks.par_chunks_mut(BLOCK).enumerate().for_each(|(block, ranks)| {
        for (rank, number) in ranks.iter_mut().zip((block * BLOCK) as u64..) {
            *rank = Rank { ready: 0, next: noise.first(noise.phase(phases, number)) };
        }
    });
    for _ in 0..plan.cycles {
        // Zero work is not delayed: a rank inside a detour is delayed when it sends.
        if plan.work > 0 {
            ranks.par_chunks_mut(BLOCK).for_each(|ranks| {
                for rank in ranks {
                    rank.ready = noise.work(&mut rank.next, rank.ready, plan.work);
                }
            });
        }
        match case {
            Case::Noiseless => butterfly::rounds(ranks, 0..plan.rounds, |_, low, high| {
                conventional::quiet(costs, low, high);
            }),
            Case::Conventional => butterfly::rounds(ranks, 0..plan.rounds, |_, low, high| {
                conventional::noisy(noise, costs, low, high);
            }),
            Case::Redundant => redundant_cycle(plan, ranks)?,
        }
        if let Some(progress) = progress {
            progress(1);
        }
    }
    Ok(ranks.par_iter().map(|rank| rank.ready).max().unwrap_or(0))
}

/// Sequences of rounds without a gap run straight through; those that cross one are iterated to a
/// fixed point.
fn redundant_cycle(plan: &Plan, ranks: &mut [Rank]) -> Result<(), CycleError> {
    let (noise, costs) = (plan.noise, plan.costs);
    let mut from = 0;
    while from < plan.rounds {
        let gap = (from.max(1)..plan.rounds).find_map(|round| gap(plan, round));
        let to = gap.map_or(plan.rounds, |(first, _)| first);
        butterfly::rounds(ranks, from..to, |number, low, high| {
            let round = Round::of(plan.redundant, number, plan.rounds);
            if number == 0 {
                redundant::first(noise, costs, round, low, high);
            } else {
                redundant::later(noise, costs, round, low, high);
            }
        });
        from = to;
        if let Some((first, last)) = gap {
            gaps::stretch(plan, ranks, first, last)?;
            from = last + 1;
        }
    }
    Ok(())
}

/// If round `round` leads to a level outside the set and a later level of the set can help: the rounds
/// up to that level.
fn gap(plan: &Plan, round: u32) -> Option<(u32, u32)> {
    let above = plan.redundant.checked_shr(round + 1)?;
    let last = round + above.trailing_zeros();
    (above != 0 && last > round && last + 1 < plan.rounds).then_some((round, last))
}
