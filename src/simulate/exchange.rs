//! `detour simulate exchange`: how long an exchange between two nodes takes when both are
//! interrupted, as a distribution.

use std::{io::Write, path::PathBuf, process::ExitCode};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use serde_json::json;
use simulate::resample::{
    Distribution,
    exchange::{self, Config, Order, Outcome},
};

use super::{
    noise,
    samples::{self, Spec, Times},
    work,
};
use crate::{Verbosity, report as layout};

#[derive(Args)]
pub struct Options {
    /// An uninterrupted exchange: a time, or a file of times (one per line in us, .hlog, .hgrm, CSV)
    #[arg(long, value_name = "TIME|FILE", default_value = "150us", value_parser = samples::parse)]
    exchange: Spec,
    #[command(flatten)]
    noise: noise::Options,
    /// How exchanges meet the interruptions
    #[arg(long, value_enum, default_value_t)]
    order: OrderName,
    /// Exchanges to simulate
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1 << 28))]
    samples: u64,
    /// Exchanges of one pair of nodes, before another pair begins elsewhere in the traces
    #[arg(
        long,
        value_name = "EXCHANGES",
        default_value_t = exchange::PER_WALK,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    per_walk: u64,
    /// Measured exchanges to compare with: a file as for --exchange
    #[arg(long, value_name = "FILE")]
    measured: Option<PathBuf>,
    #[command(flatten)]
    work: work::Options,
    /// The distribution as an HdrHistogram log
    #[arg(long, value_name = "FILE")]
    hlog: Option<PathBuf>,
    /// The distribution as HdrHistogram percentiles
    #[arg(long, value_name = "FILE")]
    hgrm: Option<PathBuf>,
    /// The distribution, one line per bin
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum OrderName {
    /// One after the other through the traces: what has just been will not be again so soon
    #[default]
    InTime,
    /// Each begins anywhere in the traces
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
    super::on_threads(&options.work)?;
    // The series, its sorted copy and that of the comparison.
    if options.samples.saturating_mul(3 * 8) > work::memory() {
        bail!("{} samples do not fit in memory: simulate fewer", options.samples);
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
    let progress = work::Progress::new(options.samples, verbosity.quiet)?;
    progress.now("exchanges".to_owned());
    let outcome = exchange::run(&config, Some(&super::counting(&progress, 1)));
    progress.finish();
    let outcome = outcome?;
    options.write_files(&outcome.distribution)?;
    options.write(&outcome, samples::mean_us(&config.exchange), &loaded)?;
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn write_files(&self, distribution: &Distribution) -> Result<()> {
        if let Some(path) = &self.hlog {
            let named = [("exchange", distribution)];
            samples::save(path, |out| Distribution::write_hlog(&named, out))?;
        }
        if let Some(path) = &self.hgrm {
            samples::save(path, |out| distribution.write_hgrm(out))?;
        }
        if let Some(path) = &self.csv {
            samples::save(path, |out| distribution.write_csv(out))?;
        }
        Ok(())
    }

    fn write(&self, outcome: &Outcome, uninterrupted: f64, loaded: &noise::Loaded) -> Result<()> {
        let us = |ps: i64| ps as f64 / 1e6;
        let all = &outcome.summary;
        let mut out = std::io::stdout().lock();
        if self.json {
            let value = json!({
                "seed": self.work.seed,
                "noise": loaded.words,
                "noise_model": loaded.model,
                "order": self.order.order().1,
                "exchange": self.exchange.words(),
                "uninterrupted_mean_us": uninterrupted,
                "samples": all.samples,
                "per_walk": self.per_walk,
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
            writeln!(out, "{}", serde_json::to_string_pretty(&value)?)?;
            return Ok(());
        }
        let figures = report::ExchangeFigures {
            samples: all.samples,
            uninterrupted,
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
