//! Projections for the HTML report: what a recording costs an allreduce at many rank counts, the same
//! without the largest sources, and the idle times of an all-to-all.

use analysis::OutsideRow;
use anyhow::{Result, bail};
use report::html::{BoxPoint, Command, Idle, Projection, Without};
use simulate::{
    collectives::{Collective, Op, Shape},
    graph::Graph,
    job::Job,
    loggops::Params,
    noise::{Composed, Model, Noise, Offsets, draw},
    resample::{
        Exchange,
        alltoall::{self, Config, Mode},
    },
    stats::{self, Estimate, Sample},
    sweep::{self, SweepError},
    whatif::Node,
};
use trace::RowKey;

use super::{
    network::{self, RendezvousName},
    recorded::{Recorded, Source},
    work,
};
use crate::open::AnyReader;

/// Defaults.
pub const RUNS: u64 = 40;
pub const NET: &str = "cnl";
/// Up to this rank count, every point gets all runs. Beyond it, runs are reduced to keep ranks times runs
/// constant, down to [`FEWEST`]: the slowest of that many ranks varies little between runs.
const FULL_RANKS: u64 = 1 << 15;
const FEWEST: u64 = 5;
/// Number of variants without a source, and the minimum share of time to simulate one.
const VARIANTS: usize = 3;
const WORTHWHILE_PCT: f64 = 1.0;
/// Variants are simulated at every third rank count.
const EVERY: usize = 3;
/// All-to-alls as in the published study, with fewer samples.
const PROCESSORS: [u64; 2] = [4, 32];
const SAMPLES: u64 = 20_000;
const EXCHANGE_US: i64 = 150;
/// Limit for events held in memory.
const MOST_EVENTS: u64 = 60_000_000;

/// Settings of a projection.
pub struct Settings {
    pub ranks: Vec<u64>,
    pub runs: u64,
    pub net: Params,
    pub rendezvous: RendezvousName,
    pub seed: u64,
    pub threads: usize,
    pub quiet: bool,
}

/// Outcome of a projection.
pub enum Projected {
    Done(Box<Projection>),
    /// Nothing to project; the reason is shown in the report.
    Nothing(String),
    /// Interrupted by Ctrl-C.
    Stopped,
}

impl Settings {
    /// The defaults of `detour report --html`.
    pub fn usual(quiet: bool) -> Result<Settings> {
        Ok(Settings {
            ranks: (1..=20).map(|k| 1 << k).collect(),
            runs: RUNS,
            net: network::parse(NET).map_err(anyhow::Error::msg)?,
            rendezvous: RendezvousName::default(),
            seed: 1,
            threads: std::thread::available_parallelism().map_or(1, |threads| threads.get()),
            quiet,
        })
    }

    fn runs_at(&self, ranks: u64) -> u64 {
        let fewer = self.runs.saturating_mul(FULL_RANKS) / ranks.max(1);
        fewer.clamp(FEWEST.min(self.runs), self.runs)
    }

    fn job(&self, ranks: u64) -> Result<Job> {
        let shape = Shape { op: Op::Allreduce, ranks, bytes: 1, arity: 2, segment: None };
        let job = Job::new(Collective::new(None, shape)?, self.net)?;
        Ok(job.with_rendezvous(self.rendezvous.rendezvous()))
    }

    /// As options of `detour report --html`.
    pub fn words(&self) -> String {
        let mut ranks = self.ranks.clone();
        ranks.sort_unstable();
        format!(
            " --ranks {} --runs {} --net {}{} --seed {}",
            list(&ranks),
            self.runs,
            network::describe(&self.net),
            self.rendezvous.words(),
            self.seed
        )
    }

    /// The command lines that reproduce the figures.
    pub fn commands(&self, trace: &str) -> Vec<Command> {
        let (seed, net) = (self.seed, network::describe(&self.net) + &self.rendezvous.words());
        let mut commands: Vec<Command> = Vec::new();
        let mut ranks = self.ranks.clone();
        ranks.sort_unstable();
        for same in ranks.chunk_by(|&a, &b| self.runs_at(a) == self.runs_at(b)) {
            let Some(first) = same.first() else { continue };
            let list = list(same);
            commands.push(Command {
                what: format!("Allreduce, {} runs per point", self.runs_at(*first)),
                line: format!(
                    "detour simulate collective --op allreduce --noise {trace} --repeat-trace --ranks \
                     {list} --runs {} --net {net} --seed {seed}",
                    self.runs_at(*first)
                ),
            });
        }
        commands.push(Command {
            what: "All-to-all idle times (omit a source with --without NAME)".to_owned(),
            line: format!(
                "detour simulate alltoall --noise {trace} --repeat-trace --exchange {EXCHANGE_US}us \
                 --ranks {} --samples {SAMPLES} --seed {seed}",
                PROCESSORS.map(|p| p.to_string()).join(",")
            ),
        });
        commands
    }
}

/// Simulates.
pub fn project(
    reader: &AnyReader,
    summary: &analysis::Summary,
    settings: &Settings,
) -> Result<Projected> {
    let events = reader.block_infos().map(|b| u64::from(b.detours) + u64::from(b.records));
    let events = events.fold(0, u64::saturating_add);
    if summary.detours == 0 {
        let why = match summary.mode {
            trace::Mode::KernelOnly => {
                "This recording has kernel records only, so there are no detours to project: \
                 record with the probe."
            }
            _ => "This recording has no detours to project.",
        };
        return Ok(Projected::Nothing(why.to_owned()));
    }
    if events > MOST_EVENTS {
        return Ok(Projected::Nothing(format!(
            "This recording has {events} detours and records, too many for a projection: record \
             for a shorter time."
        )));
    }
    let recorded = Recorded::new(reader);
    let lanes: Vec<_> = recorded.lanes(reader)?.into_iter().map(|(_, lane)| lane).collect();
    Simulation { settings, lanes: &lanes, recorded: &recorded, summary }.run()
}

struct Simulation<'a> {
    settings: &'a Settings,
    lanes: &'a [Composed],
    recorded: &'a Recorded,
    summary: &'a analysis::Summary,
}

/// A source to omit.
struct Variant {
    name: String,
    row: Option<usize>,
    removed: Vec<bool>,
}

impl Simulation<'_> {
    fn run(&self) -> Result<Projected> {
        let settings = self.settings;
        let mut ranks = settings.ranks.clone();
        ranks.sort_unstable();
        ranks.dedup();
        let mut few: Vec<u64> = ranks.iter().rev().step_by(EVERY).copied().collect();
        few.reverse();
        let variants = self.variants();
        let messages = |ranks: &[u64]| -> Result<u64> {
            ranks.iter().try_fold(0u64, |sum, &r| {
                let of_point = settings.job(r)?.messages().saturating_mul(settings.runs_at(r));
                Ok(sum.saturating_add(of_point))
            })
        };
        let total = messages(&few)?.saturating_mul(variants.len() as u64);
        let progress =
            work::Progress::new(total.saturating_add(messages(&ranks)?), settings.quiet)?;
        let noise = self.noise(&[])?;
        let Some(points) = self.points(&noise, &ranks, &progress, "with all sources")? else {
            progress.finish();
            return Ok(Projected::Stopped);
        };
        let mut without = Vec::new();
        for variant in variants {
            let noise = self.noise(&variant.removed)?;
            let Some(points) = self.points(&noise, &few, &progress, &variant.name)? else {
                progress.finish();
                return Ok(Projected::Stopped);
            };
            without.push(Without { name: variant.name, source: variant.row, points });
        }
        progress.now("all-to-all".to_owned());
        let idle = self.idle(&noise)?;
        progress.finish();
        let for_knee = |p: &BoxPoint| {
            let (low, high) = p.median_between;
            (p.ranks, p.noiseless.round() as i64, Estimate { value: p.median, low, high })
        };
        let knee = stats::knee(&points.iter().map(for_knee).collect::<Vec<_>>());
        let largest = settings.job(ranks.last().copied().unwrap_or(2))?;
        let algorithm = largest.body().first().map_or("", Collective::algorithm);
        Ok(Projected::Done(Box::new(Projection {
            operation: format!("allreduce ({algorithm})"),
            net: network::describe(&settings.net),
            seed: settings.seed,
            points: points.into_iter().map(microseconds).collect(),
            knee: knee.map(super::points::knee),
            without: without
                .into_iter()
                .map(|w| Without { points: w.points.into_iter().map(microseconds).collect(), ..w })
                .collect(),
            idle,
            remarks: self.remarks(),
        })))
    }

    fn noise(&self, removed: &[bool]) -> Result<Noise> {
        let node = Node {
            lanes: self.lanes,
            model: Model::Preempt,
            offsets: Offsets::Random,
            repeat: true,
        };
        Ok(node.without(removed)?)
    }

    /// The largest sources in the report, and time outside the kernel.
    fn variants(&self) -> Vec<Variant> {
        let all = &self.recorded.sources;
        let set = |hit: &dyn Fn(&Source) -> bool| all.iter().map(hit).collect::<Vec<bool>>();
        let rows = self.summary.sources.iter().enumerate();
        // The recorder does not run in production.
        let rows = rows.filter(|(_, row)| row.share_pct >= WORTHWHILE_PCT && !row.own);
        let rows = rows.take(VARIANTS - 1);
        let mut variants: Vec<Variant> = rows
            .map(|(index, row)| {
                let key = row.row_key();
                Variant {
                    name: format!("without {}", report::source_label(row)),
                    row: Some(index),
                    removed: set(&|source| source.key == key),
                }
            })
            .collect();
        let long = |row: &&OutsideRow| trace::LONG_NAMES.contains(&row.class.as_str());
        let outside = self.summary.outside_kernel.iter().find(long);
        let share = outside.map_or(0.0, |row| {
            row.cost_ns_total as f64 / self.summary.taken_ns_total.max(1) as f64 * 100.0
        });
        if let Some(outside) = outside.filter(|_| share >= WORTHWHILE_PCT) {
            let label = report::outside_label(&outside.class).unwrap_or(&outside.class);
            variants.push(Variant {
                name: format!("without {label}"),
                row: None,
                removed: set(&|source| source.key == RowKey::outside(&outside.class)),
            });
        }
        variants
    }

    /// Times in ps. None if interrupted.
    fn points(
        &self,
        noise: &Noise,
        ranks: &[u64],
        progress: &work::Progress,
        what: &str,
    ) -> Result<Option<Vec<BoxPoint>>> {
        let settings = self.settings;
        let mut points = Vec::new();
        for &ranks in ranks {
            progress.now(format!("{ranks} ranks {what}"));
            let job = settings.job(ranks)?;
            let plan = sweep::Plan {
                runs: settings.runs_at(ranks),
                seed: settings.seed,
                threads: settings.threads,
                memory: work::memory(),
                progress: &|messages| progress.advance(messages),
            };
            let times = match sweep::times(&job, Graph::InOrder, noise, &plan) {
                Ok(times) => times,
                Err(SweepError::Stopped) => return Ok(None),
                Err(error) => {
                    progress.finish();
                    return Err(error.into());
                }
            };
            let noiseless = sweep::noiseless(&job, Graph::InOrder, noise.model())?;
            let sample = Sample::new(times)?;
            let (plot, median) = (sample.boxplot(), sample.estimate(0.5));
            points.push(BoxPoint {
                ranks,
                runs: plan.runs,
                noiseless: noiseless as f64,
                whiskers: (plot.whisker_low as f64, plot.whisker_high as f64),
                q25: plot.q25,
                median: plot.median,
                median_between: (median.low, median.high),
                q75: plot.q75,
                max: sample.max() as f64,
            });
        }
        Ok(Some(points))
    }

    fn idle(&self, noise: &Noise) -> Result<Vec<Idle>> {
        let mut all = Vec::new();
        for processors in PROCESSORS {
            let config = Config {
                processors,
                samples: SAMPLES,
                mode: Mode::Trace { exchange: Exchange::Constant(EXCHANGE_US * 1_000_000), noise },
                // As in `detour simulate alltoall`.
                seed: draw(self.settings.seed, processors),
            };
            let outcome = alltoall::run(&config, None)?;
            let idle = &outcome.idle_first;
            let us = |ps: i64| ps as f64 / 1e6;
            all.push(Idle {
                processors,
                samples: outcome.samples,
                zero_share: idle.zero_share(),
                mean: idle.mean() / 1e6,
                p99: us(idle.quantile(0.99)),
                max: us(idle.max()),
                bins: idle.bins().map(|b| (us(b.high.min(idle.max())), b.count)).collect(),
            });
        }
        Ok(all)
    }

    fn remarks(&self) -> Vec<String> {
        let longest = self.lanes.iter().map(Composed::span_ns).max().unwrap_or(0);
        let what = match self.summary.threads.is_empty() {
            true => "CPU",
            false => "thread",
        };
        let whose = match self.lanes.len() {
            1 => format!("the single {what}"),
            several => format!("one of {several} {what}s"),
        };
        let mut remarks = vec![format!(
            "Every rank starts at a random position in the recording of {whose} ({:.1} s), which \
             repeats at its end. LogGOPS model with exact preemption. Beyond {FULL_RANKS} ranks \
             there are fewer runs per point (see the table).",
            longest as f64 / 1e9
        )];
        remarks.extend(self.recorded.left_out().map(|left_out| format!("{left_out}.")));
        remarks
    }
}

fn microseconds(p: BoxPoint) -> BoxPoint {
    let pair = |(a, b): (f64, f64)| (a / 1e6, b / 1e6);
    BoxPoint {
        noiseless: p.noiseless / 1e6,
        whiskers: pair(p.whiskers),
        q25: p.q25 / 1e6,
        median: p.median / 1e6,
        median_between: pair(p.median_between),
        q75: p.q75 / 1e6,
        max: p.max / 1e6,
        ..p
    }
}

/// Rank counts in command-line syntax.
fn list(ranks: &[u64]) -> String {
    match ranks {
        [first, .., last]
            if first.is_power_of_two() && ranks.windows(2).all(|w| w[1] == 2 * w[0]) =>
        {
            format!("{first}..{last}")
        }
        _ => ranks.iter().map(u64::to_string).collect::<Vec<_>>().join(","),
    }
}

/// Validates the rank counts.
pub fn check(ranks: &[u64]) -> Result<()> {
    if ranks.iter().any(|&ranks| ranks < 2) {
        bail!("a projection needs at least 2 ranks, e.g. --ranks 2..1Mi");
    }
    Ok(())
}
