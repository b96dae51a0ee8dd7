//! `detour simulate alltoall`: an all-to-all of pairwise exchanges, or another operation by resampled exchanges,
//! and how long its ranks wait for each other.

use std::{io::Write, path::PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};
use simulate::{
    collectives::Op,
    resample::{Distribution, alltoall},
};
use study::{
    jobs::{
        alltoall::{MOST_SAMPLES, Request, Source, simulate, simulate_shard},
        job::parse_op,
    },
    network::samples::Spec,
    run::{shards::Partial, work::Work},
};

use super::samples;
use crate::{
    Verbosity,
    options::{figures, noise, shard, work},
    output, units,
};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Operation, whose messages are all exchanges
    #[arg(long, default_value = "alltoall", value_parser = parse_op)]
    op: Op,
    /// Algorithm [default: tournament for alltoall, otherwise as in `detour simulate collective`]
    #[arg(long, value_name = "NAME")]
    algorithm: Option<String>,
    /// Rank counts, e.g. 4,32 or 2..64 (powers of two); each from 2 to 65536
    #[arg(long, value_name = "LIST", default_value = "2..32", value_parser = at_least_two)]
    ranks: std::vec::Vec<u64>,
    /// Number of all-to-alls per point
    #[arg(long, default_value_t = alltoall::SAMPLES, value_parser = clap::value_parser!(u64).range(1..=MOST_SAMPLES))]
    samples: u64,
    /// Duration of an uninterrupted exchange: a time, or a file of times (one per line in us, netgauge's
    /// round trips, .hlog, .hgrm, CSV)
    #[arg(long, value_name = "TIME|FILE", default_value = "150us", value_parser = samples())]
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
    /// Measured times of the whole operation to compare with (files as for --exchange); requires one rank count
    #[arg(long, value_name = "FILE", conflicts_with = "shard")]
    measured: Option<PathBuf>,
    #[command(flatten)]
    work: work::Options,
    #[command(flatten)]
    share: shard::Options,
    /// Write idle and total times of every point as an HdrHistogram log
    #[arg(long, value_name = "FILE", conflicts_with = "shard")]
    hlog: Option<PathBuf>,
    /// Write idle and total times of every point as CSV, one line per bin
    #[arg(long, value_name = "FILE", conflicts_with = "shard")]
    csv: Option<PathBuf>,
    #[command(flatten)]
    figures: figures::Options,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModeName {
    /// Draw independent samples of whole exchanges, measured or simulated
    Resample,
    /// Simulate uninterrupted exchanges under both partners' noise, in time order
    Trace,
}

fn at_least_two(text: &str) -> Result<Vec<u64>, String> {
    let ranks = units::ranks(text)?;
    if ranks.contains(&1) {
        return Err("an all-to-all needs at least 2 ranks".to_owned());
    }
    Ok(ranks)
}

pub fn run(options: &Options, verbosity: Verbosity) -> Result<()> {
    let figures = &options.figures;
    output::check([
        &options.hlog,
        &options.csv,
        &options.share.output,
        &figures.svg,
        &figures.html,
    ])?;
    figures.check(options.json)?;
    let request = options.request();
    let shard = |work: &Work<'_>, shard| {
        Ok((request.settings(work)?, Partial::Alltoall(simulate_shard(&request, work, shard)?)))
    };
    if options.share.run(&options.work, verbosity.quiet, shard)? {
        return Ok(());
    }
    let alltoalls = options.work.run(verbosity.quiet, |work| simulate(&request, work))?;
    if let Some(path) = &options.hlog {
        let named = alltoalls.distributions();
        let named: Vec<_> = named.iter().map(|(name, all)| (name.as_str(), *all)).collect();
        output::save(path, |out| Ok(Distribution::write_hlog(&named, out)?))?;
    }
    if let Some(path) = &options.csv {
        output::save(path, |out| Ok(out.write_all(alltoalls.csv().as_bytes())?))?;
    }
    figures.write(|| report::alltoall_pictures(&alltoalls))?;
    let csv_there = options.csv.as_deref().is_some_and(trace::is_stdout);
    match figures.to_stdout() || csv_there {
        true => Ok(()),
        false => output::print(&alltoalls, options.json, report::alltoall),
    }
}

impl Options {
    fn request(&self) -> Request {
        Request {
            op: self.op,
            algorithm: self.algorithm.clone(),
            ranks: self.ranks.clone(),
            samples: self.samples,
            exchange: self.exchange.clone(),
            resample: self.resample.clone(),
            source: self.mode.map(|mode| match mode {
                ModeName::Resample => Source::Resample,
                ModeName::Trace => Source::Trace,
            }),
            noise: self.noise.request(),
            size: self.size,
            measured: self.measured.clone(),
        }
    }
}
