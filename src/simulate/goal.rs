//! `detour simulate goal`: a GOAL schedule of sends, receives and computation, rank by rank.

use std::{io::Write, path::PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};
use simulate::{event::Rules, goal::CalcUnit, loggops::Params};
use study::{
    explain::picture::{Format, format_of},
    jobs::{
        goal::calc_unit,
        schedule::{Finishes, Request, Unit, simulate, simulate_shard},
    },
    run::{shards::Partial, work::Work},
};

use crate::{
    Verbosity,
    options::{
        figures, latency,
        network::{self, RendezvousName},
        noise, shard, work,
    },
    output,
};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// GOAL schedule, text or binary; - for stdin
    file: PathBuf,
    /// Simulation rules
    #[arg(long, value_enum, default_value_t)]
    model: RulesName,
    /// Time unit of the output [default: ns; in text, the most readable one]
    #[arg(long, value_enum)]
    unit: Option<UnitName>,
    /// Time unit of calcs in FILE
    #[arg(long, value_name = "TIME", default_value = "1ns", value_parser = calc_unit)]
    calc_unit: CalcUnit,
    /// Start offset of each rank in its noise trace: a JSON array with one offset in ns per rank
    #[arg(long, value_name = "FILE", conflicts_with_all = ["coscheduled", "synchronised"])]
    offsets: Option<PathBuf>,
    /// Rendezvous protocol for messages larger than S bytes [default: handshake; --model loggopsim uses
    /// LogGOPSim's]
    #[arg(long, value_enum)]
    rendezvous: Option<RendezvousName>,
    /// Network: chic, altix, cnl, zeptoos, xt4, alps, daint; a file of `detour mpi net`; or
    /// L=..,o=..,g=..,G=..,O=..,S=.. (os=.. and or=.. for an o of sender and receiver;
    /// omitted parameters are 0, S unlimited)
    #[arg(long, default_value = "cnl", value_parser = network::parse)]
    net: Params,
    /// Network between ranks of one node, as for --net; requires --ranks-per-node [default: the same]
    #[arg(long, value_name = "NET", value_parser = network::parse, requires = "ranks_per_node")]
    net_local: Option<Params>,
    /// Speed up the network by this factor (scales L, g and G, not o)
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    net_scale: f64,
    #[command(flatten)]
    latency: latency::Options,
    /// Number of runs, each with different noise; the first is reported rank by rank
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1 << 28))]
    runs: u64,
    /// Break down the critical path, and attribute its noise to sources
    #[arg(long, conflicts_with = "shard")]
    blame: bool,
    /// Write a timeline of the first run: a diagram (.svg) or a trace for ui.perfetto.dev (.json)
    #[arg(long, value_name = "FILE", conflicts_with = "shard")]
    timeline: Option<PathBuf>,
    #[command(flatten)]
    noise: noise::Options,
    #[command(flatten)]
    work: work::Options,
    #[command(flatten)]
    share: shard::Options,
    #[command(flatten)]
    figures: figures::Options,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum RulesName {
    /// Exact LogGOPS model
    #[default]
    Loggops,
    /// As LogGOPSim, including its quirks
    Loggopsim,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum UnitName {
    Ps,
    #[default]
    Ns,
}

pub fn run(options: &Options, verbosity: Verbosity) -> Result<()> {
    let figures = &options.figures;
    output::check([&options.timeline, &options.share.output, &figures.svg, &figures.html])?;
    figures.check(options.json)?;
    let request = options.request();
    let quiet = verbosity.quiet || options.runs == 1;
    let shard = |work: &Work<'_>, shard| {
        Ok((request.settings(work)?, Partial::Goal(simulate_shard(&request, work, shard)?)))
    };
    if options.share.run(&options.work, quiet, shard)? {
        return Ok(());
    }
    let finishes = options.work.run(quiet, |work| simulate(&request, work))?;
    figures.write(|| report::goal_pictures(&finishes))?;
    if !figures.to_stdout() {
        print(&finishes, options.json)?;
    }
    if verbosity.verbose {
        let rate = finishes.messages_per_s;
        tell!("detour: simulated {rate:.0} messages per second of wall time");
    }
    options.draw(&finishes)
}

/// JSON is on one line: a million ranks would otherwise be a million lines.
pub fn print(finishes: &Finishes, json: bool) -> Result<()> {
    if finishes.unfinished > 0 {
        tell!(
            "detour: warning: {} of {} operations never executed, which LogGOPSim would not report; \
             --model loggops shows why",
            finishes.unfinished,
            finishes.operations
        );
    }
    match json {
        true => output::put(&(report::json_line(finishes)? + "\n")),
        false => output::put(&report::schedule(finishes, output::layout(false))),
    }
}

impl Options {
    fn request(&self) -> Request {
        Request {
            file: self.file.clone(),
            rules: match self.model {
                RulesName::Loggops => Rules::Loggops,
                RulesName::Loggopsim => Rules::Loggopsim,
            },
            unit: self.unit.map(|unit| match unit {
                UnitName::Ps => Unit::Ps,
                UnitName::Ns => Unit::Ns,
            }),
            calc_unit: self.calc_unit,
            offsets: self.offsets.clone(),
            rendezvous: self.rendezvous.map(Into::into),
            net: self.net,
            net_scale: self.net_scale,
            net_local: self.net_local,
            latency: self.latency.request(),
            runs: self.runs,
            blame: self.blame,
            picture: self.timeline.clone(),
            noise: self.noise.request_on(self.net_local.is_some()),
        }
    }

    /// Writes the timeline of the first run, if requested.
    fn draw(&self, finishes: &Finishes) -> Result<()> {
        let (Some(path), Some(picture)) = (&self.timeline, &finishes.picture) else {
            return Ok(());
        };
        let format = format_of(path)?;
        output::save(path, |out| match format {
            Format::Svg => Ok(out.write_all(report::diagram(picture).as_bytes())?),
            Format::Json => Ok(report::trace_events(picture, out)?),
        })
    }
}
