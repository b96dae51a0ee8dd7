//! `detour simulate app`: an MPI program under noise, at its own size and extrapolated.

use std::{io::Write, path::PathBuf};

use anyhow::{Result, bail};
use application::Rules;
use clap::{Args, ValueEnum};
use simulate::loggops::Params;
use study::{
    error::was_stopped,
    jobs::{
        app::{Part, Request, Source, directories, rules, simulate, simulate_shard},
        hypotheses,
    },
    run::{point, shards::Partial, work::Work},
};

use crate::{
    Verbosity,
    options::{figures, network, shard, sweep, work},
    output, units,
};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Trace of a program: a directory written by `detour mpi record` or `detour mpi import`; several sizes of the
    /// program as DIR1,DIR2
    #[arg(value_name = "DIR")]
    dirs: String,
    /// Rank counts. From one trace, multiples of its own: point-to-point messages are repeated,
    /// collectives have all ranks. From several traces, any: communication partners are inferred as
    /// functions of rank and number of ranks [default: the largest traced one]
    #[arg(long, value_name = "LIST", value_parser = units::ranks)]
    ranks: Option<std::vec::Vec<u64>>,
    /// Runs per point
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1 << 28))]
    runs: u64,
    /// Algorithms of collectives: allreduce<4KiB=recursive-doubling,allreduce=ring (the first that applies)
    #[arg(long, value_name = "RULES", value_parser = rules)]
    map: Option<Rules>,
    /// Wildcard receives match the traced message
    #[arg(long)]
    as_traced: bool,
    /// MPI_Waitany, MPI_Waitsome and tests complete the same requests as in the trace, not those
    /// that complete first
    #[arg(long)]
    deterministic: bool,
    /// Compare the first series with a changed program: scale REGION 0.5, balance REGION, drop REGION, drop tag 17,
    /// drop MPI_CALL, resize tag 17 0.25, map RULES, nonblocking REGION, net-scale 10, without
    /// SOURCE, or auto for all of these; scale and balance also take `after MPI_CALL` as REGION; may be repeated
    #[arg(long = "if", value_name = "HYPOTHESIS", value_parser = hypotheses::parse, conflicts_with = "shard")]
    questions: Vec<hypotheses::Question>,
    /// Show how the time depends on L, o, g and G, the range in which that holds, and on each source of noise
    #[arg(long, conflicts_with = "shard")]
    sensitivity: bool,
    /// Simulate only a part of the communication; several (all,p2p,collectives) become one series
    /// each
    #[arg(
        long,
        value_enum,
        value_name = "PARTS",
        value_delimiter = ',',
        default_value = "all",
        hide_default_value = true
    )]
    only: Vec<OnlyName>,
    /// Network: chic, altix, cnl, zeptoos, xt4, alps, daint; a file of `detour mpi net`; or
    /// L=..,o=..,g=..,G=..,O=..,S=.. (os=.. and or=.. for an o of sender and receiver;
    /// omitted parameters are 0, S unlimited); one series per network of a list ('cnl|xt4')
    #[arg(
        long,
        value_delimiter = '|',
        default_value = study::jobs::workload::NET,
        value_parser = network::parse
    )]
    net: Vec<Params>,
    #[command(flatten)]
    sweep: sweep::Options,
    /// Break down the critical path, and attribute its noise to sources
    #[arg(long, conflicts_with = "shard")]
    blame: bool,
    #[command(flatten)]
    work: work::Options,
    #[command(flatten)]
    share: shard::Options,
    #[command(flatten)]
    figures: figures::Options,
    /// Save finished points to this file, and resume from it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["shard", "questions"])]
    resume: Option<PathBuf>,
    /// Write CSV with one line per point to this file
    #[arg(long, value_name = "FILE", conflicts_with = "shard")]
    csv: Option<PathBuf>,
    /// Write waiting times as CSV to this file: by rank, by region and by cause, before and after
    /// each --if
    #[arg(long, value_name = "FILE", conflicts_with = "shard")]
    waits_csv: Option<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum OnlyName {
    /// All communication
    All,
    /// Point-to-point messages
    P2p,
    /// Collectives
    Collectives,
}

pub fn run(options: &Options, verbosity: Verbosity) -> Result<()> {
    let Options { csv, waits_csv, share, figures, .. } = options;
    output::check([csv, waits_csv, &share.output, &figures.svg, &figures.html])?;
    if waits_csv.is_some() && !options.blame && options.questions.is_empty() {
        bail!("--waits-csv requires --blame or --if");
    }
    figures.check(options.json)?;
    let request = options.request();
    let shard = |work: &Work<'_>, shard| {
        Ok((request.settings(work)?, Partial::App(simulate_shard(&request, work, shard)?)))
    };
    if options.share.run(&options.work, verbosity.quiet, shard)? {
        return Ok(());
    }
    let sweep = options.work.run(verbosity.quiet, |work| simulate(&request, work));
    if sweep.as_ref().is_err_and(was_stopped) && options.resume.is_some() {
        tell!("interrupted; run the same command again to resume");
    }
    let sweep = sweep?;
    if let Some(path) = &options.csv {
        output::save(path, |out| Ok(out.write_all(point::csv(&sweep.points).as_bytes())?))?;
        if trace::is_stdout(path) {
            return Ok(());
        }
    }
    if let Some(path) = &options.waits_csv {
        output::save(path, |out| Ok(out.write_all(sweep.waits_csv().as_bytes())?))?;
        if trace::is_stdout(path) {
            return Ok(());
        }
    }
    figures.write(|| report::app_pictures(&sweep))?;
    if figures.to_stdout() {
        return Ok(());
    }
    output::print(&sweep, options.json, report::app)
}

impl Options {
    fn request(&self) -> Request {
        Request {
            source: Source {
                dirs: directories(&self.dirs),
                rules: self.map.clone().unwrap_or_default(),
                as_traced: self.as_traced,
                deterministic: self.deterministic,
                only: None,
            },
            parts: self.parts(),
            ranks: self.ranks.clone().unwrap_or_default(),
            runs: self.runs,
            nets: self.net.clone(),
            rendezvous: self.sweep.rendezvous.into(),
            net_scales: self.sweep.net_scale.clone(),
            net_local: self.sweep.net_local,
            latency: self.sweep.latency.request(),
            with_coscheduled: self.sweep.with_coscheduled,
            blame: self.blame,
            noise: self.sweep.noise(),
            questions: self.questions.clone(),
            sensitivity: self.sensitivity,
            resume: self.resume.clone(),
        }
    }

    /// Each part once.
    fn parts(&self) -> Vec<Part> {
        let mut parts = Vec::new();
        for name in &self.only {
            let part = match name {
                OnlyName::All => Part::All,
                OnlyName::P2p => Part::PointToPoint,
                OnlyName::Collectives => Part::Collectives,
            };
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        parts
    }
}
