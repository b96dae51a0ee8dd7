//! `detour simulate cycle`: repeated compute and butterfly allreduce under noise, and how much
//! of the lost time redundant exchanges recover.

use std::ffi::OsString;

use anyhow::Result;
use clap::Args;
use simulate::loggops::Params;
use study::{
    jobs::cycle::{
        Request, Rounds, parse_cycles, parse_rounds, powers_of_two, simulate, simulate_shard,
    },
    noise,
    run::{shards::Partial, work::Work},
};

use crate::{
    Verbosity,
    options::{figures, network, shard, work},
    output, units,
};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Rank counts, all powers of two, e.g. 1024,4096 or 2..8Mi
    #[arg(long, value_name = "LIST", default_value = "2..64Ki", value_parser = powers_of_two)]
    ranks: std::vec::Vec<u64>,
    /// Period of the detours on each rank: a time or a rate (100Hz)
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = units::period)]
    period: i64,
    /// Length of a detour
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = units::picoseconds)]
    duration: i64,
    /// Noise instead of --period and --duration: a trace (or several: A,B), periodic:1000Hz,200us, or
    /// poisson:1000Hz,200us for random arrivals; may be repeated to superpose; one row for each of a
    /// list of rates and lengths (periodic:1kHz|10Hz,16us|50us)
    #[arg(long, value_name = "NOISE", conflicts_with_all = ["period", "duration"])]
    noise: Vec<OsString>,
    /// Omit this source of a recording: a name, unit or class; may be repeated
    #[arg(long, value_name = "SOURCE", requires = "noise")]
    without: Vec<String>,
    /// Co-schedule noise: all ranks see the same detours at the same time
    #[arg(long, requires = "noise")]
    coscheduled: bool,
    /// Repeat the trace if a run is longer than it
    #[arg(long, requires = "noise")]
    repeat_trace: bool,
    /// Compute time per cycle
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::picoseconds)]
    work: i64,
    /// Numbers of cycles of compute and allreduce, e.g. 10, 1,2,5 or 1-10; one row each
    #[arg(long, value_name = "LIST", default_value = "10", value_parser = parse_cycles)]
    cycles: std::vec::Vec<u32>,
    /// Runs per point; confidence intervals need at least 2
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    runs: u64,
    /// Vector size in bytes
    #[arg(long, default_value = "1", value_parser = units::size)]
    size: u64,
    /// Network: only L, o and G are used
    #[arg(long, default_value = "L=1us,o=1ns,G=1ns", value_parser = network::parse)]
    net: Params,
    /// Rounds with redundant exchanges: 1-22, 1,3,5-7, all, all-but-first or none
    #[arg(long, value_name = "ROUNDS", default_value = "all-but-first", value_parser = parse_rounds)]
    redundant_rounds: Rounds,
    #[command(flatten)]
    run: work::Options,
    #[command(flatten)]
    share: shard::Options,
    #[command(flatten)]
    figures: figures::Options,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options, verbosity: Verbosity) -> Result<()> {
    let figures = &options.figures;
    output::check([&options.share.output, &figures.svg, &figures.html])?;
    figures.check(options.json)?;
    let request = options.request();
    if !verbosity.quiet {
        output::remark(&request.remarks());
    }
    let shard = |work: &Work<'_>, shard| {
        Ok((request.settings(work)?, Partial::Cycle(simulate_shard(&request, work, shard)?)))
    };
    if options.share.run(&options.run, verbosity.quiet, shard)? {
        return Ok(());
    }
    let cycles = options.run.run(verbosity.quiet, |work| simulate(&request, work))?;
    figures.write(|| report::cycle_pictures(&cycles))?;
    match figures.to_stdout() {
        true => Ok(()),
        false => output::print(&cycles, options.json, report::cycle),
    }
}

impl Options {
    fn request(&self) -> Request {
        Request {
            ranks: self.ranks.clone(),
            period: self.period,
            duration: self.duration,
            noise: (!self.noise.is_empty()).then(|| noise::Request {
                noise: self.noise.clone(),
                without: self.without.clone(),
                coscheduled: self.coscheduled,
                repeat_trace: self.repeat_trace,
                ..noise::Request::default()
            }),
            compute: self.work,
            cycles: self.cycles.clone(),
            runs: self.runs,
            size: self.size,
            net: self.net,
            redundant_rounds: self.redundant_rounds.clone(),
        }
    }
}
