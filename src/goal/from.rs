//! `detour goal from`: writes the schedule of a traced MPI program, for any simulator.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use application::Rules;
use clap::Args;
use simulate::{goal::CalcUnit, loggops::Params};
use study::jobs::{
    app::{AtSize, Source, directories, rules},
    goal,
};

use super::FormName;
use crate::{
    options::{network, work},
    output, units,
};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Trace of a program: a directory written by `detour mpi record` or `detour mpi import`; several sizes of the
    /// program as DIR1,DIR2
    #[arg(value_name = "DIR")]
    dirs: String,
    /// Rank count: a multiple of the traced one, or any with several traces [default: the largest traced one]
    #[arg(long, value_parser = units::rank_count)]
    ranks: Option<u64>,
    /// Algorithms of collectives: allreduce<4KiB=recursive-doubling,allreduce=ring (the first that applies)
    #[arg(long, value_name = "RULES", value_parser = rules)]
    map: Option<Rules>,
    /// Wildcard receives match the traced message
    #[arg(long)]
    as_traced: bool,
    /// Network to generate the schedule for, as in `simulate app`: time in calls beyond its
    /// overhead becomes computation [default: it is omitted]
    #[arg(long, value_parser = network::parse)]
    net: Option<Params>,
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
    let source = Source {
        dirs: directories(&options.dirs),
        rules: options.map.clone().unwrap_or_default(),
        as_traced: options.as_traced,
        // GOAL has no choices between requests.
        deterministic: true,
        only: None,
    };
    let program = source.load(work::threads(None))?;
    output::remark(&program.remarks);
    let ranks = options.ranks.unwrap_or(program.application.ranks().into());
    let application = program.at(ranks)?;
    let schedule = source.schedule(&application, ranks, options.net.as_ref(), false)?;
    if let AtSize::Made(application) = &application {
        source.check_made(application, &schedule, options.net.as_ref())?;
    }
    output::remark(&goal::not_written(&schedule));
    goal::write(options.output.as_deref(), options.to.into(), &schedule, options.calc_unit)?;
    options.output.iter().for_each(|path| output::say_written(path));
    Ok(ExitCode::SUCCESS)
}
