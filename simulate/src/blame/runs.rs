//! Statistics over many runs of a schedule: the length and composition of the critical path, and which
//! sources' noise was on it. The result is bit-identical for any number of threads: sums are of
//! integers, and per-run values are indexed by run.

use std::{
    collections::BTreeMap,
    ops::Add,
    sync::{Mutex, PoisonError},
};

use super::{Blame, Share, Split, blame};
use crate::{
    event::{self, EventError, Log, Options, Part, Schedule},
    loggops::Params,
    noise::{Noise, RunNoise, WorkError},
    replay, runs,
    stats::{NoRuns, Sample},
    sweep::{Plan, SweepError},
};

/// Runs of one schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blames {
    /// When the last rank finished in each run, ps.
    pub finishes: Vec<i64>,
    /// The critical path of each run.
    pub paths: Vec<Split>,
    /// Sorted by noise on the path, largest first.
    pub sources: Vec<SourceBlame>,
    /// Every source and rank that was hit, by source and rank; summed over the runs.
    pub pairs: Vec<PairBlame>,
    /// How the ranks spent their time, summed over ranks and runs.
    ranks: [i128; Part::ALL.len()],
    /// Number of runs in which each rank was last.
    pub last: Vec<u64>,
}

/// A source, run by run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceBlame {
    pub source: u32,
    pub runs: Vec<Share>,
}

/// A source on a rank, over all runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairBlame {
    pub source: u32,
    pub rank: u32,
    pub on_path: i128,
    pub absorbed: i128,
}

impl SourceBlame {
    /// Mean over the runs of its time on the critical path, ps.
    pub fn on_path(&self) -> f64 {
        self.mean(|share| share.on_path)
    }

    /// Mean over the runs of its time that delayed nothing, ps.
    pub fn absorbed(&self) -> f64 {
        self.mean(|share| share.absorbed)
    }

    /// Its time on the path, run by run.
    pub fn sample(&self) -> Result<Sample, NoRuns> {
        Sample::new(self.runs.iter().map(|share| share.on_path).collect())
    }

    /// Runs in which some of its time was on the path.
    pub fn runs_on_path(&self) -> usize {
        self.runs.iter().filter(|share| share.on_path > 0).count()
    }

    fn mean(&self, of: impl Fn(&Share) -> i64) -> f64 {
        let sum: i128 = self.runs.iter().map(|share| i128::from(of(share))).sum();
        sum as f64 / self.runs.len().max(1) as f64
    }
}

impl Blames {
    pub fn runs(&self) -> usize {
        self.finishes.len()
    }

    /// A part of the path, run by run.
    pub fn part(&self, part: Part) -> Result<Sample, NoRuns> {
        Sample::new(self.paths.iter().map(|path| path.of(part)).collect())
    }

    /// Mean over ranks and runs of a rank's time by cause, ps.
    pub fn of_ranks(&self, part: Part) -> f64 {
        let count = self.runs() as f64 * self.last.len() as f64;
        self.ranks[part as usize] as f64 / count.max(1.0)
    }

    /// Mean over the runs of all noise that hit any work: on the path, absorbed.
    pub fn noise(&self) -> (f64, f64) {
        // Start at 0: the sum of an empty iterator is -0.
        let sum = |of: fn(&SourceBlame) -> f64| self.sources.iter().map(of).fold(0.0, f64::add);
        (sum(SourceBlame::on_path), sum(SourceBlame::absorbed))
    }
}

/// Sums over runs.
#[derive(Default)]
struct Totals {
    pairs: BTreeMap<(u32, u32), (i128, i128)>,
    ranks: [i128; Part::ALL.len()],
    last: Vec<u64>,
}

impl Totals {
    fn add(&mut self, blame: &Blame) {
        for (&pair, share) in &blame.noise {
            let sum = self.pairs.entry(pair).or_default();
            sum.0 += i128::from(share.on_path);
            sum.1 += i128::from(share.absorbed);
        }
        for split in &blame.ranks {
            for part in Part::ALL {
                self.ranks[part as usize] += i128::from(split.of(part));
            }
        }
        self.last.resize(blame.ranks.len(), 0);
        self.last[blame.last as usize] += 1;
    }
}

/// Runs `plan.runs` times (at least once), with the draws of [`replay`](crate::replay).
pub fn blame_runs(
    schedule: &Schedule,
    params: &Params,
    options: &Options,
    noise: &Noise,
    plan: &Plan<'_>,
) -> Result<Blames, SweepError> {
    blame_runs_with(schedule, params, options, noise, plan, &|_, _| Ok(()))
}

/// What else to do with the log of each run, and its noise.
pub type Look<'a> = dyn Fn(&Log, &RunNoise<'_>) -> Result<(), WorkError> + Sync + 'a;

/// The same, and `look` sees each run, in any order.
pub fn blame_runs_with(
    schedule: &Schedule,
    params: &Params,
    options: &Options,
    noise: &Noise,
    plan: &Plan<'_>,
    look: &Look<'_>,
) -> Result<Blames, SweepError> {
    noise.check(u64::from(schedule.ranks()))?;
    let totals = Mutex::new(Totals::default());
    let one = |run: u64, scratch: &mut (event::Scratch, Log)| {
        let (scratch, log) = scratch;
        let met = replay::noise_of(schedule, noise, plan.seed, run);
        let outcome = event::run_logged(scratch, schedule, params, options, &met, log)?;
        let blame = blame(log, params, &met)
            .and_then(|blame| look(log, &met).map(|()| blame))
            .map_err(|source| EventError::Noise { rank: log.last(), source })?;
        let mut by_source: BTreeMap<u32, Share> = BTreeMap::new();
        for (&(source, _), share) in &blame.noise {
            let sum = by_source.entry(source).or_default();
            sum.on_path += share.on_path;
            sum.absorbed += share.absorbed;
        }
        totals.lock().unwrap_or_else(PoisonError::into_inner).add(&blame);
        if !(plan.progress)(outcome.messages) {
            return Err(SweepError::Stopped);
        }
        Ok((blame.finish, blame.path, by_source))
    };
    let per_run = event::run_memory(schedule, options.model) + Log::memory(schedule.operations());
    let at_once = (plan.memory / per_run.max(1)).clamp(1, plan.threads as u64);
    let runs = runs::spread(plan.runs.max(1), at_once, one)?;
    let totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);

    let mut sources: BTreeMap<u32, Vec<Share>> = BTreeMap::new();
    for (run, (_, _, by_source)) in runs.iter().enumerate() {
        for (&source, &share) in by_source {
            let of = sources.entry(source).or_insert_with(|| vec![Share::default(); runs.len()]);
            of[run] = share;
        }
    }
    let mut sources: Vec<SourceBlame> =
        sources.into_iter().map(|(source, runs)| SourceBlame { source, runs }).collect();
    let weight = |of: &SourceBlame| (of.on_path(), of.absorbed());
    // Stable: ties keep the smaller number first.
    sources.sort_by(|a, b| weight(b).partial_cmp(&weight(a)).unwrap_or(std::cmp::Ordering::Equal));
    let pair = |(&(source, rank), &(on_path, absorbed)): (&(u32, u32), &(i128, i128))| PairBlame {
        source,
        rank,
        on_path,
        absorbed,
    };
    Ok(Blames {
        finishes: runs.iter().map(|run| run.0).collect(),
        paths: runs.iter().map(|run| run.1).collect(),
        sources,
        pairs: totals.pairs.iter().map(pair).collect(),
        ranks: totals.ranks,
        last: totals.last,
    })
}
