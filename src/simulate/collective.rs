//! `detour simulate collective`: the time of a collective under noise, as a sweep over rank counts.

use std::{
    io::{ErrorKind, Write},
    path::PathBuf,
};

use anyhow::Result;
use clap::Args;
use simulate::loggops::Params;
use study::{
    error::was_stopped,
    jobs::collective::{Request, Sweep, simulate, simulate_each, simulate_shard},
    run::{
        point::{self, Series},
        shards::Partial,
        work::Work,
    },
};

use crate::{
    Verbosity,
    options::{figures, job, network, shard, sweep, work},
    output, units,
};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    #[command(flatten)]
    job: job::Options,
    /// Rank counts, e.g. 1000,5000 or 2..1Mi (powers of two)
    #[arg(long, value_name = "LIST", default_value = "2..1Mi", value_parser = units::ranks)]
    ranks: std::vec::Vec<u64>,
    /// Runs per point
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1 << 28))]
    runs: u64,
    /// Vector or block sizes in bytes; one series per size
    #[arg(long, value_name = "LIST", default_value = "1", value_parser = units::sizes)]
    size: std::vec::Vec<u64>,
    /// Network: chic, altix, cnl, zeptoos, xt4, alps, daint; a file of `detour mpi net`; or
    /// L=..,o=..,g=..,G=..,O=..,S=.. (os=.. and or=.. for an o of sender and receiver;
    /// omitted parameters are 0, S unlimited); one series per network of a list ('cnl|xt4')
    #[arg(long, value_delimiter = '|', default_value = "cnl", value_parser = network::parse)]
    net: Vec<Params>,
    #[command(flatten)]
    sweep: sweep::Options,
    /// Start ranks as a barrier leaves them, and measure each from its own start
    #[arg(long)]
    after_barrier: bool,
    /// Break down the critical path, and attribute its noise to sources
    #[arg(long, conflicts_with = "shard")]
    blame: bool,
    #[command(flatten)]
    work: work::Options,
    #[command(flatten)]
    share: shard::Options,
    /// Save finished points to this file, and resume from it
    #[arg(long, value_name = "FILE", conflicts_with = "shard")]
    resume: Option<PathBuf>,
    /// Write CSV with one line per point to this file
    #[arg(long, value_name = "FILE", conflicts_with = "shard")]
    csv: Option<PathBuf>,
    /// Write CSV with the time of every run to this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["resume", "shard"])]
    times: Option<PathBuf>,
    #[command(flatten)]
    figures: figures::Options,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options, verbosity: Verbosity) -> Result<()> {
    let Options { csv, times, share, figures, json, .. } = options;
    output::check([csv, times, &share.output, &figures.svg, &figures.html])?;
    figures.check(*json)?;
    let request = options.request();
    let shard = |work: &Work<'_>, shard| {
        Ok((request.settings(work)?, Partial::Collective(simulate_shard(&request, work, shard)?)))
    };
    if options.share.run(&options.work, verbosity.quiet, shard)? {
        return Ok(());
    }
    let to_stdout = |path: &PathBuf| trace::is_stdout(path);
    let rows = !options.json
        && !figures.to_stdout()
        && !options.csv.iter().chain(&options.times).any(to_stdout);
    let sweep = options.work.run(verbosity.quiet, |work| match rows {
        true => print_rows(&request, work, options.writes_files()),
        false => simulate(&request, work),
    });
    if sweep.as_ref().is_err_and(was_stopped) && options.resume.is_some() {
        tell!("interrupted; run the same command again to resume");
    }
    let sweep = sweep?;
    if let Some(path) = &options.csv {
        output::save(path, |out| Ok(out.write_all(point::csv(&sweep.points).as_bytes())?))?;
    }
    figures.write(|| report::sweep_pictures(&sweep))?;
    match rows {
        true => output::page(&report::slowdown_findings(&sweep, output::layout(false))),
        false if options.json => output::print(&sweep, true, report::slowdown),
        false => Ok(()),
    }
}

/// Prints each row of the table as soon as it is simulated. If they are no longer read, the simulation
/// continues only for its files.
fn print_rows(request: &Request, work: &Work<'_>, for_files: bool) -> Result<Sweep> {
    let series: Vec<String> = request.series().iter().map(Series::label).collect();
    let table = report::SweepRows::new(&series, output::layout(false));
    let mut header = Some(table.header());
    simulate_each(request, work, &mut |point| {
        let mut printed = Ok(());
        let text = header.take().map_or_else(String::new, |header| header + "\n");
        let text = format!("{text}{}\n", table.row(point));
        work.watch.aside(&mut || printed = std::io::stdout().write_all(text.as_bytes()));
        match printed {
            Err(error) if for_files && error.kind() == ErrorKind::BrokenPipe => Ok(()),
            printed => Ok(printed?),
        }
    })
}

impl Options {
    fn writes_files(&self) -> bool {
        let Options { resume, csv, times, figures, .. } = self;
        [resume, csv, times, &figures.svg, &figures.html].into_iter().any(Option::is_some)
    }

    fn request(&self) -> Request {
        Request {
            jobs: self.job.requests(),
            ranks: self.ranks.clone(),
            runs: self.runs,
            sizes: self.size.clone(),
            nets: self.net.clone(),
            net_local: self.sweep.net_local,
            rendezvous: self.sweep.rendezvous.into(),
            latency: self.sweep.latency.request(),
            after_barrier: self.after_barrier,
            net_scales: self.sweep.net_scale.clone(),
            with_coscheduled: self.sweep.with_coscheduled,
            blame: self.blame,
            noise: self.sweep.noise(),
            resume: self.resume.clone(),
            times: self.times.clone(),
        }
    }
}
