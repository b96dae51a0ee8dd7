//! `detour goal gen`: writes a job of collectives as a GOAL schedule, for any simulator.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::Args;
use simulate::{goal::CalcUnit, graph, loggops::Params};
use study::goal;

use super::FormName;
use crate::{options::job, units};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    #[command(flatten)]
    job: job::Options,
    /// Rank count: 1000, 64Ki, 2^20
    #[arg(long, value_parser = units::rank_count)]
    ranks: u64,
    /// Vector or block size in bytes
    #[arg(long, default_value = "1", value_parser = units::size)]
    size: u64,
    /// Time unit of calcs
    #[arg(long, value_name = "TIME", default_value = "1ns", value_parser = goal::calc_unit)]
    calc_unit: CalcUnit,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    to: FormName,
    /// Output file [default: stdout]
    #[arg(short, long)]
    output: Option<PathBuf>,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    if options.ranks == 0 {
        anyhow::bail!("a schedule needs at least 1 rank");
    }
    // A schedule does not depend on the network.
    let request = options.job.request();
    let job = request.job(options.ranks, options.size, Params::FREE)?;
    let schedule = graph::schedule(&job, request.graph)?;
    goal::write(options.output.as_deref(), options.to.into(), &schedule, options.calc_unit)?;
    options.output.iter().for_each(|path| crate::output::say_written(path));
    Ok(ExitCode::SUCCESS)
}
