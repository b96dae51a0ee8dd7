//! Breakdown of the critical path of simulated runs: why they took as long as they did.

use anyhow::{Result, bail};
use serde::Serialize;
use simulate::{
    blame::{Blames, PairBlame},
    event::{self, Log, Part, Rules, Schedule},
    noise::UNKNOWN,
    stats::{NoRuns, Sample},
};
use trace::Class;

use crate::{
    explain::states::{PathPart, Waits},
    recording::sources::Sources,
};

/// Where the time of one or several runs went; means if there are several runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Blame {
    pub runs: usize,
    #[serde(skip)]
    pub ranks: usize,
    /// When the last rank finishes.
    pub finish_us: f64,
    pub finish_spread: Spread,
    /// The critical path; sums to the finish time.
    pub path: Parts<f64>,
    pub path_spread: Parts<Spread>,
    /// Mean over the ranks.
    pub ranks_mean: Parts<f64>,
    /// The rank that finishes last most often (lowest rank on ties), and in how many runs.
    pub last_rank: u64,
    pub last_rank_runs: u64,
    pub noise: Noise,
    /// By time on the path, then by time absorbed.
    pub sources: Vec<Source>,
    /// What the ranks of a traced program wait for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// The critical path of a traced program by region and cause, the longest part first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PathPart>,
}

/// Noise of all sources that hit any work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Noise {
    /// It delayed the run.
    pub on_path_us: f64,
    /// It delayed work that had time to spare.
    pub absorbed_us: f64,
}

/// Noise of one source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Source {
    /// Null if not recorded by Detour: periodic noise, or another tool's.
    pub class: Option<Class>,
    pub name: String,
    pub unit: Option<String>,
    /// The recorder's own threads.
    pub own: bool,
    /// False for noise without a source.
    pub known: bool,
    pub on_path_us: f64,
    pub on_path_spread: Spread,
    /// Runs in which it is on the path.
    pub runs_on_path: usize,
    pub absorbed_us: f64,
    pub ranks: Vec<OnRank>,
}

impl Source {
    /// The rank on which it took the most from the path; the lowest on ties.
    pub fn worst_rank(&self) -> Option<u32> {
        let hit = self.ranks.iter().filter(|rank| rank.on_path_us > 0.0);
        let worst =
            hit.reduce(|worst, rank| if rank.on_path_us > worst.on_path_us { rank } else { worst });
        worst.map(|rank| rank.rank)
    }
}

/// Noise of one source on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OnRank {
    pub rank: u32,
    pub on_path_us: f64,
    pub absorbed_us: f64,
}

/// Distribution over the runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    pub min_us: f64,
    pub q25_us: f64,
    pub median_us: f64,
    pub q75_us: f64,
    pub max_us: f64,
}

/// Time by cause, named as in the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Parts<T> {
    pub compute_us: T,
    /// o: CPU time per message.
    pub o_us: T,
    /// O: CPU time per byte.
    #[serde(rename = "O_us")]
    pub o_per_byte_us: T,
    /// g: between messages of a NIC.
    pub g_us: T,
    /// G: per byte.
    #[serde(rename = "G_us")]
    pub g_per_byte_us: T,
    /// L: in flight.
    #[serde(rename = "L_us")]
    pub l_us: T,
    pub waiting_us: T,
    pub noise_us: T,
}

impl<T> Parts<T> {
    fn of<E>(mut time: impl FnMut(Part) -> Result<T, E>) -> Result<Parts<T>, E> {
        Ok(Parts {
            compute_us: time(Part::Compute)?,
            o_us: time(Part::Overhead)?,
            o_per_byte_us: time(Part::OverheadPerByte)?,
            g_us: time(Part::Gap)?,
            g_per_byte_us: time(Part::GapPerByte)?,
            l_us: time(Part::Latency)?,
            waiting_us: time(Part::Waiting)?,
            noise_us: time(Part::Noise)?,
        })
    }

    /// With their names, in the order of the model.
    pub fn named(&self) -> [(&'static str, &T); Part::ALL.len()] {
        Part::ALL.map(|part| {
            let time = match part {
                Part::Compute => &self.compute_us,
                Part::Overhead => &self.o_us,
                Part::OverheadPerByte => &self.o_per_byte_us,
                Part::Gap => &self.g_us,
                Part::GapPerByte => &self.g_per_byte_us,
                Part::Latency => &self.l_us,
                Part::Waiting => &self.waiting_us,
                Part::Noise => &self.noise_us,
            };
            (part.name(), time)
        })
    }
}

/// Rejects a schedule that would not fit in memory.
pub fn check(schedule: &Schedule, rules: Rules, memory: u64) -> Result<()> {
    fits("--blame", schedule, rules, memory)
}

/// The same for another option that needs the log of a run.
pub fn fits(option: &str, schedule: &Schedule, rules: Rules, memory: u64) -> Result<()> {
    let needed = event::run_memory(schedule, rules) + Log::memory(schedule.operations());
    if needed > memory {
        bail!(
            "{option} for a run of {} operations needs {} MB of memory, {} MB available: simulate \
             fewer ranks, or omit {option}",
            schedule.operations(),
            needed >> 20,
            memory >> 20
        );
    }
    Ok(())
}

fn us(ps: f64) -> f64 {
    // Means of whole picoseconds: further digits are rounding errors.
    (ps * 1e3).round() / 1e9
}

impl Spread {
    fn of(sample: &Sample) -> Spread {
        Spread {
            min_us: us(sample.min() as f64),
            q25_us: us(sample.quantile(0.25)),
            median_us: us(sample.quantile(0.5)),
            q75_us: us(sample.quantile(0.75)),
            max_us: us(sample.max() as f64),
        }
    }
}

impl Blame {
    pub fn of(blames: &Blames, sources: &Sources) -> Result<Blame, NoRuns> {
        let finish = Sample::new(blames.finishes.clone())?;
        let (on_path, absorbed) = blames.noise();
        let (last_rank, last_rank_runs) = last(blames);
        let source = |source| self::source(source, blames, sources);
        Ok(Blame {
            runs: blames.runs(),
            ranks: blames.last.len(),
            finish_us: us(finish.mean()),
            finish_spread: Spread::of(&finish),
            path: Parts::of(|part| Ok(us(blames.part(part)?.mean())))?,
            path_spread: Parts::of(|part| Ok(Spread::of(&blames.part(part)?)))?,
            ranks_mean: Parts::of(|part| Ok(us(blames.of_ranks(part))))?,
            last_rank,
            last_rank_runs,
            noise: Noise { on_path_us: us(on_path), absorbed_us: us(absorbed) },
            sources: blames.sources.iter().map(source).collect::<Result<_, _>>()?,
            waits: None,
            parts: Vec::new(),
        })
    }
}

fn source(
    source: &simulate::blame::SourceBlame,
    blames: &Blames,
    sources: &Sources,
) -> Result<Source, NoRuns> {
    let name = sources.name(source.source);
    let runs = blames.runs() as f64;
    let on_rank = |pair: &PairBlame| OnRank {
        rank: pair.rank,
        on_path_us: us(pair.on_path as f64 / runs),
        absorbed_us: us(pair.absorbed as f64 / runs),
    };
    // Sorted by source.
    let begin = blames.pairs.partition_point(|pair| pair.source < source.source);
    let pairs = blames.pairs[begin..].iter().take_while(|pair| pair.source == source.source);
    Ok(Source {
        class: name.class,
        name: name.name,
        unit: name.unit,
        own: name.own,
        known: source.source != UNKNOWN,
        on_path_us: us(source.on_path()),
        on_path_spread: Spread::of(&source.sample()?),
        runs_on_path: source.runs_on_path(),
        absorbed_us: us(source.absorbed()),
        ranks: pairs.map(on_rank).collect(),
    })
}

fn last(blames: &Blames) -> (u64, u64) {
    let mut most = (0, 0);
    for (rank, &runs) in (0..).zip(&blames.last) {
        if runs > most.1 {
            most = (rank, runs);
        }
    }
    most
}
