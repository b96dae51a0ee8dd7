//! `detour simulate exchange`: the distribution of the time of an exchange between two nodes under
//! noise.

use std::{io::Write, path::PathBuf, process::ExitCode};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::json;
use simulate::resample::{
    Distribution,
    exchange::{self, Config, Order, Outcome},
};

use super::{
    noise,
    samples::{self, Spec, Times},
    shard::{self, Settings},
    work,
};
use crate::{Verbosity, report as layout, results};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Duration of an uninterrupted exchange: a time, or a file of times (one per line in us, netgauge's
    /// round trips, .hlog, .hgrm, CSV)
    #[arg(long, value_name = "TIME|FILE", default_value = "150us", value_parser = samples::parser())]
    exchange: Spec,
    #[command(flatten)]
    noise: noise::Options,
    /// How exchanges are placed in the noise traces
    #[arg(long, value_enum, default_value_t)]
    order: OrderName,
    /// Number of exchanges to simulate
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1 << 28))]
    samples: u64,
    /// Exchanges per pair of nodes, before another pair starts elsewhere in the traces
    #[arg(
        long,
        value_name = "EXCHANGES",
        default_value_t = exchange::PER_WALK,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    per_walk: u64,
    /// Measured exchange times to compare with (files as for --exchange)
    #[arg(long, value_name = "FILE", conflicts_with = "shard")]
    measured: Option<PathBuf>,
    #[command(flatten)]
    work: work::Options,
    #[command(flatten)]
    share: shard::Options,
    /// Write the distribution as an HdrHistogram log
    #[arg(long, value_name = "FILE", conflicts_with = "shard")]
    hlog: Option<PathBuf>,
    /// Write the distribution as HdrHistogram percentiles
    #[arg(long, value_name = "FILE", conflicts_with = "shard")]
    hgrm: Option<PathBuf>,
    /// Write the distribution as CSV, one line per bin
    #[arg(long, value_name = "FILE", conflicts_with = "shard")]
    csv: Option<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum OrderName {
    /// Back to back in trace order, preserving correlation between consecutive exchanges
    #[default]
    InTime,
    /// Each at an independent random position
    Independent,
}

impl OrderName {
    fn order(self) -> (Order, &'static str) {
        match self {
            OrderName::InTime => (Order::InTime, "in-time"),
            OrderName::Independent => (Order::Independent, "independent"),
        }
    }
}

pub fn run(options: &Options, verbosity: Verbosity) -> Result<ExitCode> {
    let files = [&options.hlog, &options.hgrm, &options.csv, &options.share.output];
    results::check(files)?;
    super::on_threads(&options.work)?;
    // The series, its sorted copy, and the copy for the comparison.
    if options.samples.saturating_mul(3 * 8) > work::memory() {
        bail!("{} samples do not fit in memory: use fewer --samples", options.samples);
    }
    let loaded = options.noise.load(options.work.seed)?;
    let measured = match &options.measured {
        Some(path) => Times::read(path)?.list(),
        None => Vec::new(),
    };
    let config = Config {
        exchange: options.exchange.load()?,
        noise: &loaded.noise,
        order: options.order.order().0,
        samples: options.samples,
        per_walk: options.per_walk,
        seed: options.work.seed,
        measured: &measured,
    };
    let walks = options.share.range(config.walks());
    let ours = (walks.end - walks.start).saturating_mul(options.per_walk).min(options.samples);
    let progress = work::Progress::new(ours, verbosity.quiet)?;
    progress.now("exchanges".to_owned());
    let series = exchange::share(&config, walks, Some(&super::counting(&progress, 1)));
    progress.finish();
    let uninterrupted_us = samples::mean_us(&config.exchange);
    let results = Results {
        head: options.head(uninterrupted_us, &loaded),
        uninterrupted_us,
        per_walk: options.per_walk,
        series_ps: series?,
    };
    if options.share.is_some() {
        options.share.write(options.settings()?, shard::Results::Exchange(results))?;
        return Ok(ExitCode::SUCCESS);
    }
    let outcome = results.outcome(&measured)?;
    options.write_files(&outcome.distribution)?;
    results.write_outcome(&outcome, options.json)?;
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn write_files(&self, distribution: &Distribution) -> Result<()> {
        if let Some(path) = &self.hlog {
            let named = [("exchange", distribution)];
            results::save(path, |out| Ok(Distribution::write_hlog(&named, out)?))?;
        }
        if let Some(path) = &self.hgrm {
            results::save(path, |out| Ok(distribution.write_hgrm(out)?))?;
        }
        if let Some(path) = &self.csv {
            results::save(path, |out| Ok(distribution.write_csv(out)?))?;
        }
        Ok(())
    }

    /// Everything that determines the results.
    fn settings(&self) -> Result<Settings> {
        let mut settings = self.noise.settings()?;
        settings.insert("exchange".to_owned(), self.exchange.content()?);
        settings.insert("order".to_owned(), self.order.order().1.into());
        settings.insert("samples".to_owned(), self.samples.into());
        settings.insert("per_walk".to_owned(), self.per_walk.into());
        settings.insert("seed".to_owned(), self.work.seed.into());
        Ok(settings)
    }

    /// The settings shown in the output.
    fn head(&self, uninterrupted_us: f64, loaded: &noise::Loaded) -> Settings {
        let value = json!({
            "seed": self.work.seed,
            "noise": loaded.words,
            "noise_model": loaded.model,
            "order": self.order.order().1,
            "exchange": self.exchange.words(),
            "uninterrupted_mean_us": uninterrupted_us,
            "per_walk": self.per_walk,
        });
        value.as_object().cloned().unwrap_or_default()
    }
}

/// A shard of the exchanges, or all of them.
#[derive(Serialize, Deserialize)]
pub struct Results {
    head: Settings,
    uninterrupted_us: f64,
    per_walk: u64,
    series_ps: Vec<i64>,
}

impl Results {
    pub fn join(&mut self, next: Results) -> Result<()> {
        shard::agree(&self.head, &next.head)?;
        self.series_ps.extend(next.series_ps);
        Ok(())
    }

    pub fn write(&self, json: bool) -> Result<()> {
        self.write_outcome(&self.outcome(&[])?, json)
    }

    fn outcome(&self, measured: &[i64]) -> Result<Outcome> {
        Ok(Outcome::of(self.series_ps.clone(), self.per_walk, measured)?)
    }

    fn write_outcome(&self, outcome: &Outcome, json: bool) -> Result<()> {
        let us = |ps: i64| ps as f64 / 1e6;
        let all = &outcome.summary;
        let mut out = std::io::stdout().lock();
        if json {
            let mut value = json!({
                "samples": all.samples,
                "mean_us": all.mean / 1e6,
                "sd_us": all.sd / 1e6,
                "min_us": us(all.min),
                "q25_us": us(all.q25),
                "median_us": us(all.median),
                "q75_us": us(all.q75),
                "p99_us": us(all.p99),
                "max_us": us(all.max),
                "skewness": all.skewness,
                "autocorrelation": all.autocorrelation,
                "ks_distance": outcome.ks_distance,
            });
            shard::put_first(&mut value, &self.head);
            writeln!(out, "{}", serde_json::to_string_pretty(&value)?)?;
            return Ok(());
        }
        let figures = report::ExchangeFigures {
            samples: all.samples,
            uninterrupted: self.uninterrupted_us,
            mean: all.mean / 1e6,
            sd: all.sd / 1e6,
            min: us(all.min),
            q25: us(all.q25),
            median: us(all.median),
            q75: us(all.q75),
            p99: us(all.p99),
            max: us(all.max),
            skewness: all.skewness,
            autocorrelation: all.autocorrelation,
            ks_distance: outcome.ks_distance,
        };
        write!(out, "{}", report::exchange(&figures, layout::layout(true)))?;
        Ok(())
    }
}
