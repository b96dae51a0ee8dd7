//! `detour goal gen`: what the simulator knows as a job of collectives, as a schedule for anyone.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::Args;
use simulate::{goal::CalcUnit, graph, loggops::Params};

use super::file::{self, FormName};
use crate::{simulate::job, units};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    #[command(flatten)]
    job: job::Options,
    /// Rank count: 1000, 64Ki, 2^20
    #[arg(long, value_parser = units::rank_count)]
    ranks: u64,
    /// Bytes of the vector, or of one block
    #[arg(long, default_value = "1", value_parser = units::size)]
    size: u64,
    /// What a calc counts
    #[arg(long, value_name = "TIME", default_value = "1ns", value_parser = file::calc_unit)]
    calc_unit: CalcUnit,
    /// The form to write
    #[arg(long, value_enum, default_value = "text")]
    to: FormName,
    /// File to write [default: standard output]
    #[arg(short, long)]
    output: Option<PathBuf>,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    if options.ranks == 0 {
        anyhow::bail!("a schedule has at least 1 rank");
    }
    // A schedule does not depend on the network.
    let job = options.job.job(options.ranks, options.size, Params::FREE)?;
    let schedule = graph::schedule(&job, options.job.graph())?;
    file::write(options.output.as_deref(), options.to.form(), &schedule, options.calc_unit)?;
    Ok(ExitCode::SUCCESS)
}
