//! `detour simulate exchange`: the distribution of the time of an exchange between two nodes under
//! noise.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use simulate::resample::{
    Distribution,
    exchange::{self, Order},
};
use study::{
    jobs::exchange::{Request, simulate, simulate_shard},
    network::samples::Spec,
    run::{shards::Partial, work::Work},
};

use super::samples;
use crate::{
    Verbosity,
    options::{figures, noise, shard, work},
    output,
};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Duration of an uninterrupted exchange: a time, or a file of times (one per line in us, netgauge's
    /// round trips, .hlog, .hgrm, CSV)
    #[arg(long, value_name = "TIME|FILE", default_value = "150us", value_parser = samples())]
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
    #[command(flatten)]
    figures: figures::Options,
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

pub fn run(options: &Options, verbosity: Verbosity) -> Result<()> {
    let Options { hlog, hgrm, csv, share, figures, json, .. } = options;
    output::check([hlog, hgrm, csv, &share.output, &figures.svg, &figures.html])?;
    figures.check(*json)?;
    let request = options.request();
    let shard = |work: &Work<'_>, shard| {
        Ok((request.settings(work)?, Partial::Exchange(simulate_shard(&request, work, shard)?)))
    };
    if options.share.run(&options.work, verbosity.quiet, shard)? {
        return Ok(());
    }
    let exchanges = options.work.run(verbosity.quiet, |work| simulate(&request, work))?;
    options.write_files(&exchanges.distribution)?;
    figures.write(|| report::exchange_pictures(&exchanges))?;
    match figures.to_stdout() {
        true => Ok(()),
        false => output::print(&exchanges, *json, report::exchange),
    }
}

impl Options {
    fn request(&self) -> Request {
        Request {
            exchange: self.exchange.clone(),
            noise: self.noise.request(),
            order: match self.order {
                OrderName::InTime => Order::InTime,
                OrderName::Independent => Order::Independent,
            },
            samples: self.samples,
            per_walk: self.per_walk,
            measured: self.measured.clone(),
        }
    }

    fn write_files(&self, distribution: &Distribution) -> Result<()> {
        if let Some(path) = &self.hlog {
            let named = [("exchange", distribution)];
            output::save(path, |out| Ok(Distribution::write_hlog(&named, out)?))?;
        }
        if let Some(path) = &self.hgrm {
            output::save(path, |out| Ok(distribution.write_hgrm(out)?))?;
        }
        if let Some(path) = &self.csv {
            output::save(path, |out| Ok(distribution.write_csv(out)?))?;
        }
        Ok(())
    }
}
