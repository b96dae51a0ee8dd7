//! `detour simulate alltoall`: an all-to-all of pairwise exchanges, and how long its ranks wait for each
//! other.

use std::{cmp::Reverse, io::Write, path::PathBuf, process::ExitCode};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use simulate::{
    noise::draw,
    resample::{
        Distribution, Exchange, Sampler,
        alltoall::{self, Config, Mode, Outcome},
        exchange,
    },
};

use super::{
    noise,
    samples::{self, Spec, Times},
    shard::{self, Settings},
    work,
};
use crate::{Verbosity, open, report as layout, results, units};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Rank counts, as 4,32 or 2..64 (powers of two); each from 2 to 65536
    #[arg(long, value_name = "LIST", default_value = "2..32", value_parser = at_least_two)]
    ranks: std::vec::Vec<u64>,
    /// Number of all-to-alls per point
    #[arg(long, default_value_t = alltoall::SAMPLES, value_parser = clap::value_parser!(u64).range(1..=MOST_SAMPLES))]
    samples: u64,
    /// Duration of an uninterrupted exchange: a time, or a file of times (one per line in us, netgauge's
    /// round trips, .hlog, .hgrm, CSV)
    #[arg(long, value_name = "TIME|FILE", default_value = "150us", value_parser = samples::parser())]
    exchange: Spec,
    /// Resample measured exchange times, which include noise (files as for --exchange)
    #[arg(
        long,
        visible_alias = "measured-exchange",
        value_name = "FILE",
        conflicts_with = "exchange"
    )]
    resample: Option<PathBuf>,
    /// Source of exchange times [default: trace; resample if there is a file of times and no noise]
    #[arg(long, value_enum)]
    mode: Option<ModeName>,
    #[command(flatten)]
    noise: noise::Options,
    /// Bytes each rank sends per exchange, to print throughput in MB/s
    #[arg(long, value_name = "BYTES", value_parser = units::size)]
    size: Option<u64>,
    #[command(flatten)]
    work: work::Options,
    #[command(flatten)]
    share: shard::Options,
    /// Write idle and total times of every point as an HdrHistogram log
    #[arg(long, value_name = "FILE", conflicts_with = "shard")]
    hlog: Option<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

const MOST_SAMPLES: u64 = 1 << 40;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModeName {
    /// Draw independent samples of whole exchanges, measured or simulated
    Resample,
    /// Simulate uninterrupted exchanges under both partners' noise, in time order
    Trace,
}

impl ModeName {
    fn name(self) -> &'static str {
        match self {
            ModeName::Resample => "resample",
            ModeName::Trace => "trace",
        }
    }
}

fn at_least_two(text: &str) -> Result<Vec<u64>, String> {
    let ranks = units::ranks(text)?;
    if ranks.contains(&1) {
        return Err("an all-to-all needs at least 2 ranks".to_owned());
    }
    Ok(ranks)
}

pub fn run(options: &Options, verbosity: Verbosity) -> Result<ExitCode> {
    results::check([&options.hlog, &options.share.output])?;
    super::on_threads(&options.work)?;
    let loaded = options.noise.load(options.work.seed)?;
    let mode = options.mode(&loaded)?;
    let pairs = |ranks: u64| ranks.saturating_mul(ranks - 1) / 2;
    let samples = options.share.range(options.samples);
    let count = samples.end - samples.start;
    let total = options.ranks.iter().map(|&ranks| pairs(ranks).saturating_mul(count));
    let progress = work::Progress::new(total.fold(0, u64::saturating_add), verbosity.quiet)?;
    // Largest first, so that an infeasible point fails early.
    let mut order: Vec<usize> = (0..options.ranks.len()).collect();
    order.sort_by_key(|&index| Reverse(options.ranks[index]));
    let mut outcomes: Vec<(usize, Outcome)> = Vec::new();
    for index in order {
        let ranks = options.ranks[index];
        progress.now(format!("{ranks} ranks"));
        let config = Config {
            processors: ranks,
            samples: options.samples,
            mode: mode.clone(),
            // Each point has its own random stream.
            seed: draw(options.work.seed, ranks),
        };
        let counting = super::counting(&progress, pairs(ranks));
        let outcome = alltoall::share(&config, samples.clone(), Some(&counting));
        if outcome.is_err() {
            progress.finish();
        }
        outcomes.push((index, outcome?));
    }
    progress.finish();
    outcomes.sort_by_key(|(index, _)| *index);
    let results = Results {
        head: options.head(&mode, &loaded),
        size: options.size,
        points: outcomes.into_iter().map(|(_, outcome)| outcome).collect(),
    };
    if options.share.is_some() {
        options.share.write(options.settings()?, shard::Results::Alltoall(results))?;
        return Ok(ExitCode::SUCCESS);
    }
    options.write_hlog(&results.points)?;
    results.write(options.json)?;
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn mode<'a>(&self, loaded: &'a noise::Loaded) -> Result<Mode<'a>> {
        let noisy = !loaded.noise.is_none();
        if let Some(path) = &self.resample {
            if noisy {
                bail!(
                    "measured exchanges already include noise: omit --noise, or pass uninterrupted \
                     exchanges with --exchange"
                );
            }
            if self.mode == Some(ModeName::Trace) {
                bail!("--mode trace requires uninterrupted exchanges: pass them with --exchange");
            }
            return Ok(Mode::Resample(Times::read(path)?.sampler()?));
        }
        let exchange = self.exchange.load()?;
        match (self.mode, exchange) {
            (None, Exchange::Drawn(sampler)) if !noisy => Ok(Mode::Resample(sampler)),
            (None | Some(ModeName::Trace), exchange) => {
                Ok(Mode::Trace { exchange, noise: &loaded.noise })
            }
            (Some(ModeName::Resample), exchange) => {
                Ok(Mode::Resample(self.simulated(exchange, loaded)?))
            }
        }
    }

    /// Simulated whole exchanges under this noise, to resample.
    fn simulated(&self, exchange: Exchange, loaded: &noise::Loaded) -> Result<Sampler> {
        let config = exchange::Config {
            exchange,
            noise: &loaded.noise,
            order: exchange::Order::InTime,
            samples: alltoall::SAMPLES,
            per_walk: exchange::PER_WALK,
            seed: self.work.seed,
            measured: &[],
        };
        Ok(Sampler::of(&exchange::run(&config, None)?.series)?)
    }

    fn write_hlog(&self, outcomes: &[Outcome]) -> Result<()> {
        let Some(path) = &self.hlog else { return Ok(()) };
        let mut named = Vec::new();
        for outcome in outcomes {
            let name = |what: &str| format!("{what}_{}", outcome.processors);
            named.push((name("idle"), &outcome.idle_first));
            named.push((name("idle_all"), &outcome.idle));
            named.push((name("total"), &outcome.total));
        }
        let named: Vec<_> = named.iter().map(|(name, all)| (name.as_str(), *all)).collect();
        results::save(path, |out| Ok(Distribution::write_hlog(&named, out)?))
    }

    /// Everything that determines the results.
    fn settings(&self) -> Result<Settings> {
        let mut settings = self.noise.settings()?;
        let resample = match &self.resample {
            Some(path) => shard::file(&open::split_run(path).0)?,
            None => Value::Null,
        };
        settings.insert("resample".to_owned(), resample);
        settings.insert("exchange".to_owned(), self.exchange.content()?);
        settings.insert("mode".to_owned(), self.mode.map(ModeName::name).into());
        settings.insert("ranks".to_owned(), self.ranks.clone().into());
        settings.insert("samples".to_owned(), self.samples.into());
        settings.insert("size".to_owned(), self.size.into());
        settings.insert("seed".to_owned(), self.work.seed.into());
        Ok(settings)
    }

    /// The settings shown in the output.
    fn head(&self, mode: &Mode<'_>, loaded: &noise::Loaded) -> Settings {
        let exchange = match &self.resample {
            Some(path) => path.display().to_string(),
            None => self.exchange.words(),
        };
        let mode = match mode {
            Mode::Resample(_) => ModeName::Resample,
            Mode::Trace { .. } => ModeName::Trace,
        };
        let value = json!({
            "seed": self.work.seed,
            "noise": loaded.words,
            "noise_model": loaded.model,
            "mode": mode.name(),
            "exchange": exchange,
            "size": self.size,
        });
        value.as_object().cloned().unwrap_or_default()
    }
}

/// A shard of the samples, or all of them.
#[derive(Serialize, Deserialize)]
pub struct Results {
    head: Settings,
    /// Bytes each rank sends per exchange.
    size: Option<u64>,
    points: Vec<Outcome>,
}

impl Results {
    pub fn join(&mut self, next: Results) -> Result<()> {
        let what = |results: &Results| {
            results.points.iter().map(|point| point.processors).collect::<Vec<_>>()
        };
        shard::agree(&self.head, &next.head)?;
        shard::agree(&what(self), &what(&next))?;
        for (all, next) in self.points.iter_mut().zip(&next.points) {
            all.join(next)?;
        }
        Ok(())
    }

    /// Bytes each rank sends, divided by the mean total time.
    fn throughput(&self, outcome: &Outcome) -> Option<f64> {
        let sent = self.size? as f64 * (outcome.processors - 1) as f64;
        let total_us = outcome.total.mean() / 1e6;
        (total_us > 0.0).then(|| sent / total_us)
    }

    fn json(&self, outcome: &Outcome) -> Value {
        let us = |ps: i64| ps as f64 / 1e6;
        let (first, all, total) = (&outcome.idle_first, &outcome.idle, &outcome.total);
        let mut value = json!({
            "ranks": outcome.processors,
            "samples": outcome.samples,
            "idle_zero_pct": 100.0 * first.zero_share(),
            "idle_mean_us": first.mean() / 1e6,
            "idle_p99_us": us(first.quantile(0.99)),
            "idle_max_us": us(first.max()),
            "idle_all_zero_pct": 100.0 * all.zero_share(),
            "idle_all_mean_us": all.mean() / 1e6,
            "idle_all_p99_us": us(all.quantile(0.99)),
            "idle_all_max_us": us(all.max()),
            "exchange_mean_us": outcome.exchange_mean() / 1e6,
            "total_mean_us": total.mean() / 1e6,
            "total_p99_us": us(total.quantile(0.99)),
            "total_max_us": us(total.max()),
            "relative_throughput": outcome.relative_throughput(),
        });
        if let (Some(_), Value::Object(map)) = (self.size, &mut value) {
            map.insert("throughput_mb_s".to_owned(), json!(self.throughput(outcome)));
        }
        value
    }

    pub fn write(&self, json: bool) -> Result<()> {
        let likely = |point: &Outcome| {
            (2..=1 << 16).contains(&point.processors)
                && (1..=MOST_SAMPLES).contains(&point.samples)
                && point.total.len() == point.samples
        };
        // The files may have been edited; sums must not overflow.
        if !self.points.iter().all(likely) {
            bail!("invalid number of ranks or samples: was a file edited?");
        }
        let mut out = std::io::stdout().lock();
        if json {
            let points: Vec<_> = self.points.iter().map(|point| self.json(point)).collect();
            let mut value = json!({ "points": points });
            shard::put_first(&mut value, &self.head);
            writeln!(out, "{}", serde_json::to_string_pretty(&value)?)?;
            return Ok(());
        }
        let us = |ps: i64| ps as f64 / 1e6;
        let rows: Vec<_> = self
            .points
            .iter()
            .map(|outcome| report::AlltoallRow {
                ranks: outcome.processors,
                idle_zero_pct: 100.0 * outcome.idle_first.zero_share(),
                idle_mean: outcome.idle_first.mean() / 1e6,
                idle_p99: us(outcome.idle_first.quantile(0.99)),
                idle_max: us(outcome.idle_first.max()),
                total_mean: outcome.total.mean() / 1e6,
                total_p99: us(outcome.total.quantile(0.99)),
                relative_throughput: outcome.relative_throughput(),
                throughput_mb_s: self.throughput(outcome),
            })
            .collect();
        write!(out, "{}", report::alltoall(&rows, layout::layout(true)))?;
        Ok(())
    }
}
