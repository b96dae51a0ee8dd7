//! The cycles of one case, and the three cases of every run.

use std::{ops::Range, sync::OnceLock};

use rayon::prelude::*;

use crate::noise::{Noise, RunNoise, key};

use super::butterfly::{self, BLOCK};
use super::config::{Config, CycleError, Plan};
use super::detours::{Detours, Rank, Recorded};
use super::outcome::{CycleResult, Times};
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
    let all = share_by_cycle(config, None, &[config.cycles], runs, progress)?;
    all.into_iter().next().ok_or(CycleError::Nothing("cycles"))
}

/// The same, after each of these numbers of cycles (ascending, at most those of the configuration); under
/// other noise instead of periodic one, if given. The first cycles of a run do not depend on how many
/// follow.
pub fn share_by_cycle(
    config: &Config,
    noise: Option<&Noise>,
    counts: &[u32],
    runs: Range<u64>,
    progress: Option<&(dyn Fn(u64) + Sync)>,
) -> Result<Vec<CycleResult>, CycleError> {
    if noise.is_some_and(Noise::is_none) {
        return share_by_cycle(&quiet(config), None, counts, runs, progress);
    }
    let plan = config.checked()?;
    let one = |run: u64| match noise {
        None => three_cases(&plan, counts, config.seed, run, progress),
        Some(noise) => {
            let failed = OnceLock::new();
            let recorded = Recorded { run: noise.run(config.seed, run), failed: &failed };
            let times = three_cases(&plan.under(recorded), counts, config.seed, run, progress);
            failed.into_inner().map_or(times, |error| Err(error.into()))
        }
    };
    // In parallel, since a run's rounds wait for each other; above a million ranks one by one, to
    // limit memory.
    let runs: Vec<Vec<Times>> = if plan.ranks <= SIDE_BY_SIDE {
        runs.into_par_iter().map(one).collect::<Result<_, _>>()?
    } else {
        runs.map(one).collect::<Result<_, _>>()?
    };
    let after = |count: usize| runs.iter().filter_map(|run| run.get(count).copied()).collect();
    let result = |(count, &cycles)| CycleResult { ranks: config.ranks, cycles, runs: after(count) };
    Ok(counts.iter().enumerate().map(result).collect())
}

/// Without noise.
fn quiet(config: &Config) -> Config {
    Config { duration: 0, ..config.clone() }
}

/// One run in each case, after each of these numbers of cycles.
fn three_cases<D: Detours>(
    plan: &Plan<D>,
    counts: &[u32],
    seed: u64,
    run: u64,
    progress: Option<&(dyn Fn(u64) + Sync)>,
) -> Result<Vec<Times>, CycleError> {
    let mut ranks = Vec::new();
    let mut times = vec![Times { noiseless: 0, conventional: 0, redundant: 0 }; counts.len()];
    for case in Case::ALL {
        begin(plan, seed, run, &mut ranks);
        let ends = cycles(plan, &mut ranks, case, counts, progress)?;
        for (times, end) in times.iter_mut().zip(ends) {
            match case {
                Case::Noiseless => times.noiseless = end,
                Case::Conventional => times.conventional = end,
                Case::Redundant => times.redundant = end,
            }
        }
    }
    Ok(times)
}

/// When each rank ends in one case of one run, for callers who need more than the last end.
pub fn end_of_case(config: &Config, run: u64, case: Case) -> Result<Vec<i64>, CycleError> {
    ends(&config.checked()?, config.seed, run, case)
}

/// The same under other noise.
pub fn ends_under(
    config: &Config,
    noise: &Noise,
    run: u64,
    case: Case,
) -> Result<Vec<i64>, CycleError> {
    if noise.is_none() {
        return end_of_case(&quiet(config), run, case);
    }
    let failed = OnceLock::new();
    let recorded = Recorded { run: noise.run(config.seed, run), failed: &failed };
    let ends = ends(&config.checked()?.under(recorded), config.seed, run, case);
    failed.into_inner().map_or(ends, |error| Err(error.into()))
}

/// When the last rank ends in one case of a run under this noise.
pub fn last_end(config: &Config, noise: &RunNoise<'_>, case: Case) -> Result<i64, CycleError> {
    let ends = match noise.is_none() {
        true => ends(&quiet(config).checked()?, config.seed, 0, case),
        false => {
            let failed = OnceLock::new();
            let recorded = Recorded { run: *noise, failed: &failed };
            let ends = ends(&config.checked()?.under(recorded), config.seed, 0, case);
            failed.into_inner().map_or(ends, |error| Err(error.into()))
        }
    }?;
    Ok(ends.into_iter().max().unwrap_or(0))
}

fn ends<D: Detours>(
    plan: &Plan<D>,
    seed: u64,
    run: u64,
    case: Case,
) -> Result<Vec<i64>, CycleError> {
    let mut ranks = Vec::new();
    begin(plan, seed, run, &mut ranks);
    cycles(plan, &mut ranks, case, &[], None)?;
    Ok(ranks.iter().map(|rank| rank.ready).collect())
}

/// Where in its period a rank is at time 0 of a run: the same in all cases.
pub fn phase(config: &Config, run: u64, rank: u64) -> Result<i64, CycleError> {
    Ok(config.checked()?.noise.phase(key(config.seed, PHASE, run), rank))
}

/// All ranks at time 0. The same phases in all three cases.
fn begin<D: Detours>(plan: &Plan<D>, seed: u64, run: u64, ranks: &mut Vec<Rank<D::Ahead>>) {
    let phases = key(seed, PHASE, run);
    let rank = |rank: usize| Rank { ready: 0, next: plan.noise.first(phases, rank as u64) };
    (0..plan.ranks).into_par_iter().with_min_len(BLOCK).map(rank).collect_into_vec(ranks);
}

/// One case; returns when the last rank finishes each of these numbers of cycles.
fn cycles<D: Detours>(
    plan: &Plan<D>,
    ranks: &mut [Rank<D::Ahead>],
    case: Case,
    counts: &[u32],
    progress: Option<&(dyn Fn(u64) + Sync)>,
) -> Result<Vec<i64>, CycleError> {
    let (noise, costs) = (plan.noise, plan.costs);
    let mut ends = Vec::new();
    for cycle in 1..=plan.cycles {
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
        if counts.contains(&cycle) {
            ends.push(ranks.par_iter().map(|rank| rank.ready).max().unwrap_or(0));
        }
        if let Some(progress) = progress {
            progress(1);
        }
    }
    Ok(ends)
}

/// Sequences of rounds without a gap run straight through; those that cross one are iterated to a
/// fixed point.
fn redundant_cycle<D: Detours>(
    plan: &Plan<D>,
    ranks: &mut [Rank<D::Ahead>],
) -> Result<(), CycleError> {
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
fn gap<D>(plan: &Plan<D>, round: u32) -> Option<(u32, u32)> {
    let above = plan.redundant.checked_shr(round + 1)?;
    let last = round + above.trailing_zeros();
    (above != 0 && last > round && last + 1 < plan.rounds).then_some((round, last))
}
