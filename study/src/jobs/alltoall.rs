//! An all-to-all of pairwise exchanges, or another operation whose messages are exchanges, and how long its ranks
//! wait for each other.

use std::{cmp::Reverse, path::PathBuf};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use simulate::{
    collectives::{Collective, Op, Shape},
    noise::draw,
    resample::{
        Distribution, Exchange, ResampleError, Sampler,
        alltoall::{self, AlltoallResult, Config, Mode, Schedule},
        exchange,
    },
};

use crate::{
    network::samples::{Spec, Times},
    noise::{self, Loaded},
    recording::open,
    run::{
        shard::{self, Settings, Shard},
        work::Work,
    },
};

/// Most all-to-alls per point.
pub const MOST_SAMPLES: u64 = 1 << 40;
const MOST_RANKS: u64 = 1 << 16;

#[derive(Clone, Debug)]
pub struct Request {
    pub op: Op,
    /// None for the usual one; [`TOURNAMENT`] is only for all-to-alls.
    pub algorithm: Option<String>,
    /// At least 2 each.
    pub ranks: Vec<u64>,
    /// All-to-alls per point.
    pub samples: u64,
    /// Duration of an uninterrupted exchange.
    pub exchange: Spec,
    /// Measured exchange times, which include noise, to resample.
    pub resample: Option<PathBuf>,
    /// None for [`Source::Trace`], or [`Source::Resample`] if there is a file of times and no noise.
    pub source: Option<Source>,
    pub noise: noise::Request,
    /// Bytes each rank sends per exchange, for the throughput of an all-to-all.
    pub size: Option<u64>,
    /// Measured times of the whole operation to compare with.
    pub measured: Option<PathBuf>,
}

/// The usual algorithm of an all-to-all: every rank exchanges with every other, in pairs.
pub const TOURNAMENT: &str = "tournament";

/// Where exchange times come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Independent samples of whole exchanges, measured or simulated.
    Resample,
    /// Uninterrupted exchanges under both partners' noise, in time order.
    Trace,
}

impl Source {
    /// The name used in the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Source::Resample => "resample",
            Source::Trace => "trace",
        }
    }
}

/// Idle times of all-to-alls.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Alltoalls {
    #[serde(flatten)]
    pub about: About,
    pub points: Vec<Point>,
    /// All times, for histogram files, in the order of the points.
    #[serde(skip)]
    pub outcomes: Vec<AlltoallResult>,
}

/// What was simulated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    pub seed: u64,
    pub op: String,
    pub algorithm: String,
    pub noise: String,
    pub noise_model: String,
    pub mode: String,
    pub exchange: String,
    /// Bytes each rank sends per exchange, if known.
    pub size: Option<u64>,
    /// About the noise.
    pub remarks: Vec<String>,
}

/// One rank count.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    pub ranks: u64,
    pub samples: u64,
    /// Idle time of rank 0 per all-to-all, and in how many it is never idle.
    pub idle_zero_pct: f64,
    pub idle_mean_us: f64,
    pub idle_p99_us: f64,
    pub idle_max_us: f64,
    /// The same for all ranks.
    pub idle_all_zero_pct: f64,
    pub idle_all_mean_us: f64,
    pub idle_all_p99_us: f64,
    pub idle_all_max_us: f64,
    /// Mean time of an exchange.
    pub exchange_mean_us: f64,
    /// When the last rank finishes.
    pub total_mean_us: f64,
    pub total_p99_us: f64,
    pub total_max_us: f64,
    /// Compared with ranks that are never idle.
    pub relative_throughput: f64,
    /// Kolmogorov-Smirnov distance of the total to the measured times, and their mean. Null without any.
    pub ks_distance: Option<f64>,
    pub measured_mean_us: Option<f64>,
    /// Bytes each rank sends, divided by the mean total time; only if the size is known, null if no
    /// time passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput_mb_s: Option<Option<f64>>,
}

impl Point {
    fn of(outcome: &AlltoallResult, size: Option<u64>) -> Point {
        let us = |ps: i64| ps as f64 / 1e6;
        let (first, all, total) = (&outcome.idle_first, &outcome.idle, &outcome.total);
        let throughput = |size: u64| {
            let sent = size as f64 * (outcome.processors - 1) as f64;
            let total_us = total.mean() / 1e6;
            (total_us > 0.0).then(|| sent / total_us)
        };
        Point {
            ranks: outcome.processors,
            samples: outcome.samples,
            idle_zero_pct: 100.0 * first.zero_share(),
            idle_mean_us: first.mean() / 1e6,
            idle_p99_us: us(first.quantile(0.99)),
            idle_max_us: us(first.max()),
            idle_all_zero_pct: 100.0 * all.zero_share(),
            idle_all_mean_us: all.mean() / 1e6,
            idle_all_p99_us: us(all.quantile(0.99)),
            idle_all_max_us: us(all.max()),
            exchange_mean_us: outcome.exchange_mean() / 1e6,
            total_mean_us: total.mean() / 1e6,
            total_p99_us: us(total.quantile(0.99)),
            total_max_us: us(total.max()),
            relative_throughput: outcome.relative_throughput(),
            ks_distance: None,
            measured_mean_us: None,
            throughput_mb_s: size.map(throughput),
        }
    }
}

impl Alltoalls {
    /// Idle and total times of every point, one line per bin.
    pub fn csv(&self) -> String {
        let mut text = "ranks,what,low_us,high_us,count\n".to_owned();
        for AlltoallResult { processors, idle_first, idle, total, .. } in &self.outcomes {
            for (what, all) in [("idle", idle_first), ("idle_all", idle), ("total", total)] {
                for bin in all.bins() {
                    let (low, high) = (bin.low as f64 / 1e6, bin.high as f64 / 1e6);
                    text += &format!("{processors},{what},{low},{high},{}\n", bin.count);
                }
            }
        }
        text
    }

    /// The distributions with their names in a histogram file.
    pub fn distributions(&self) -> Vec<(String, &Distribution)> {
        let mut named = Vec::new();
        for AlltoallResult { processors, idle_first, idle, total, .. } in &self.outcomes {
            named.push((format!("idle_{processors}"), idle_first));
            named.push((format!("idle_all_{processors}"), idle));
            named.push((format!("total_{processors}"), total));
        }
        named
    }
}

/// All samples, or a shard of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Partial {
    about: About,
    points: Vec<AlltoallResult>,
}

impl Partial {
    pub fn join(&mut self, next: Partial) -> Result<()> {
        let ranks = |part: &Partial| part.points.iter().map(|p| p.processors).collect::<Vec<_>>();
        shard::agree(&self.about, &next.about)?;
        shard::agree(&ranks(self), &ranks(&next))?;
        for (all, next) in self.points.iter_mut().zip(&next.points) {
            all.join(next)?;
        }
        Ok(())
    }

    pub fn finish(self) -> Result<Alltoalls> {
        let likely = |point: &AlltoallResult| {
            (2..=MOST_RANKS).contains(&point.processors)
                && (1..=MOST_SAMPLES).contains(&point.samples)
                && point.total.len() == point.samples
        };
        // The files may have been edited; sums must not overflow.
        if !self.points.iter().all(likely) {
            bail!("invalid number of ranks or samples: was a file edited?");
        }
        let points = self.points.iter().map(|point| Point::of(point, self.about.size)).collect();
        Ok(Alltoalls { about: self.about, points, outcomes: self.points })
    }
}

/// Simulates all samples.
pub fn simulate(request: &Request, work: &Work<'_>) -> Result<Alltoalls> {
    let measured = match (&request.measured, &request.ranks[..]) {
        (None, _) => None,
        (Some(path), [_]) => Some(Times::read(path)?.list()),
        (Some(_), _) => bail!("--measured requires one rank count: specify it with --ranks"),
    };
    let mut all = simulate_shard(request, work, Shard::WHOLE)?.finish()?;
    if let (Some(mut measured), [point], [outcome]) =
        (measured, &mut all.points[..], &all.outcomes[..])
    {
        measured.sort_unstable();
        let sum: i128 = measured.iter().map(|&ps| i128::from(ps)).sum();
        point.measured_mean_us = Some(sum as f64 / measured.len().max(1) as f64 / 1e6);
        point.ks_distance = apart(&outcome.total, &measured);
    }
    Ok(all)
}

/// The Kolmogorov-Smirnov distance of a distribution, as finely as its bins have it, to sorted times.
fn apart(all: &Distribution, sorted: &[i64]) -> Option<f64> {
    if all.is_empty() || sorted.is_empty() {
        return None;
    }
    let (mut below, mut most) = (0u64, 0.0f64);
    let measured = |count: usize| count as f64 / sorted.len() as f64;
    let share = |count: u64| count as f64 / all.len() as f64;
    for bin in all.bins() {
        let before = measured(sorted.partition_point(|&ps| ps < bin.low));
        most = most.max((share(below) - before).abs());
        below += bin.count;
        let after = measured(sorted.partition_point(|&ps| ps <= bin.high));
        most = most.max((share(below) - after).abs());
    }
    Some(most)
}

/// Simulates one shard of the samples.
pub fn simulate_shard(request: &Request, work: &Work<'_>, shard: Shard) -> Result<Partial> {
    if request.size.is_some() && request.op != Op::Alltoall {
        bail!("--size requires --op alltoall, whose ranks all send the same: omit it");
    }
    if let Some(&ranks) = request.ranks.iter().find(|ranks| **ranks > MOST_RANKS) {
        return Err(ResampleError::TooManyProcessors(ranks).into());
    }
    // An unknown algorithm is an error before anything is loaded.
    request.schedule(2)?;
    let loaded = request.noise.load(work)?;
    let mode = work.in_pool(|| request.mode(&loaded, work))??;
    let pairs = |ranks: u64| match request.schedule(ranks) {
        Ok(Schedule::Rounds(collective)) => collective.messages(),
        _ => ranks.saturating_mul(ranks - 1) / 2,
    };
    let samples = shard.range(request.samples);
    let count = samples.end - samples.start;
    let total = request.ranks.iter().map(|&ranks| pairs(ranks).saturating_mul(count));
    work.watch.expect(total.fold(0, u64::saturating_add));
    // Largest first, so that an infeasible point fails early.
    let mut order: Vec<usize> = (0..request.ranks.len()).collect();
    order.sort_by_key(|&index| Reverse(request.ranks[index]));
    let mut outcomes: Vec<(usize, AlltoallResult)> = Vec::new();
    for index in order {
        let ranks = request.ranks[index];
        work.watch.now(&format!("{ranks} ranks"));
        let config = Config {
            processors: ranks,
            samples: request.samples,
            schedule: request.schedule(ranks)?,
            mode: mode.clone(),
            // Each point has its own random stream.
            seed: draw(work.seed, ranks),
        };
        let counting = work.counting(pairs(ranks));
        let samples = samples.clone();
        let outcome = work.in_pool(|| alltoall::share(&config, samples, Some(&counting)))??;
        outcomes.push((index, outcome));
    }
    outcomes.sort_by_key(|(index, _)| *index);
    let points = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
    Ok(Partial { about: request.about(work, &mode, &loaded), points })
}

impl Request {
    fn algorithm(&self) -> &str {
        match &self.algorithm {
            Some(name) => name,
            None if self.op == Op::Alltoall => TOURNAMENT,
            None => self.op.usual_algorithm(),
        }
    }

    fn schedule(&self, ranks: u64) -> Result<Schedule> {
        let algorithm = self.algorithm();
        if self.op == Op::Alltoall && algorithm == TOURNAMENT {
            return Ok(Schedule::Tournament);
        }
        let shape = Shape { op: self.op, ranks, bytes: 1, arity: 2, segment: None };
        Ok(Schedule::Rounds(Collective::new(Some(algorithm), shape)?))
    }

    fn mode<'a>(&self, loaded: &'a Loaded, work: &Work<'_>) -> Result<Mode<'a>> {
        let noisy = !loaded.noise.is_none();
        if let Some(path) = &self.resample {
            if noisy {
                bail!(
                    "measured exchanges already include noise: omit --noise, or pass uninterrupted \
                     exchanges with --exchange"
                );
            }
            if self.source == Some(Source::Trace) {
                bail!("--mode trace requires uninterrupted exchanges: pass them with --exchange");
            }
            return Ok(Mode::Resample(Times::read(path)?.sampler()?));
        }
        let exchange = self.exchange.load()?;
        match (self.source, exchange) {
            (None, Exchange::Drawn(sampler)) if !noisy => Ok(Mode::Resample(sampler)),
            (None | Some(Source::Trace), exchange) => {
                Ok(Mode::Trace { exchange, noise: &loaded.noise })
            }
            (Some(Source::Resample), exchange) => {
                Ok(Mode::Resample(simulated(exchange, loaded, work)?))
            }
        }
    }

    fn about(&self, work: &Work<'_>, mode: &Mode<'_>, loaded: &Loaded) -> About {
        let exchange = match &self.resample {
            Some(path) => path.display().to_string(),
            None => self.exchange.words(),
        };
        let source = match mode {
            Mode::Resample(_) => Source::Resample,
            Mode::Trace { .. } => Source::Trace,
        };
        About {
            seed: work.seed,
            op: self.op.name().to_owned(),
            algorithm: self.algorithm().to_owned(),
            noise: loaded.words.clone(),
            noise_model: loaded.model.name().to_owned(),
            mode: source.name().to_owned(),
            exchange,
            size: self.size,
            remarks: loaded.remarks.clone(),
        }
    }

    /// Everything that determines the results.
    pub fn settings(&self, work: &Work<'_>) -> Result<Settings> {
        let mut settings = self.noise.settings()?;
        let resample = match &self.resample {
            Some(path) => shard::file(&open::split_run(path).0)?,
            None => Value::Null,
        };
        settings.insert("resample".to_owned(), resample);
        settings.insert("exchange".to_owned(), self.exchange.content()?);
        settings.insert("op".to_owned(), self.op.name().into());
        settings.insert("algorithm".to_owned(), self.algorithm().into());
        settings.insert("mode".to_owned(), self.source.map(Source::name).into());
        settings.insert("ranks".to_owned(), self.ranks.clone().into());
        settings.insert("samples".to_owned(), self.samples.into());
        settings.insert("size".to_owned(), self.size.into());
        settings.insert("seed".to_owned(), work.seed.into());
        Ok(settings)
    }
}

/// Simulated whole exchanges under this noise, to resample.
fn simulated(exchange: Exchange, loaded: &Loaded, work: &Work<'_>) -> Result<Sampler> {
    let config = exchange::Config {
        exchange,
        noise: &loaded.noise,
        order: exchange::Order::InTime,
        samples: alltoall::SAMPLES,
        per_walk: exchange::PER_WALK,
        seed: work.seed,
        measured: &[],
    };
    Ok(Sampler::of(&exchange::run(&config, None)?.series)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_is_that_of_the_definition() {
        let all = Distribution::of(&[1_000_000; 4]).unwrap();
        assert_eq!(apart(&all, &[1_000_000; 9]), Some(0.0));
        // Two of four are shorter, one is longer.
        assert_eq!(apart(&all, &[500_000, 600_000, 1_000_000, 2_000_000]), Some(0.5));
        assert_eq!(apart(&all, &[5_000_000]), Some(1.0));
        assert_eq!((apart(&all, &[]), apart(&Distribution::of(&[]).unwrap(), &[1])), (None, None));
    }
}
