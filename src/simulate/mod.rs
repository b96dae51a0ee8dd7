//! `detour simulate`: the offline simulator. One module per subcommand.

mod alltoall;
mod app;
mod collective;
mod cycle;
mod exchange;
mod goal;
mod skeleton;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use study::run::shards::Whole;

use crate::{Verbosity, output};

#[derive(Args)]
pub struct Simulate {
    #[command(subcommand)]
    command: Box<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Simulate a collective operation, or a loop of them, in the LogGOPS model
    Collective(collective::Options),
    /// Simulate exchanges between two noisy nodes: the distribution of their times
    Exchange(exchange::Options),
    /// Simulate an all-to-all of pairwise exchanges: how long ranks wait for each other
    Alltoall(alltoall::Options),
    /// Simulate cycles of compute and butterfly allreduce, with and without redundant exchanges
    Cycle(cycle::Options),
    /// Simulate an MPI program from its trace, at its own size and extrapolated
    App(app::Options),
    /// Simulate a model of a program: its compute, messages between neighbours and collectives
    Skeleton(skeleton::Options),
    /// Simulate a GOAL schedule of sends, receives and computation
    Goal(goal::Options),
}

pub fn run(options: &Simulate, verbosity: Verbosity) -> Result<ExitCode> {
    match &*options.command {
        Command::Collective(options) => collective::run(options, verbosity)?,
        Command::Exchange(options) => exchange::run(options, verbosity)?,
        Command::Alltoall(options) => alltoall::run(options, verbosity)?,
        Command::Cycle(options) => cycle::run(options, verbosity)?,
        Command::App(options) => app::run(options, verbosity)?,
        Command::Skeleton(options) => skeleton::run(options, verbosity)?,
        Command::Goal(options) => goal::run(options, verbosity)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the merged shards of any simulation.
pub fn print(result: &Whole, json: bool) -> Result<()> {
    output::remark(result.remarks());
    match result {
        Whole::Goal(finishes) => goal::print(finishes, json),
        result => output::print(result, json, report::simulation),
    }
}

/// Parses exchange times; file names need not be UTF-8.
fn samples() -> impl clap::builder::TypedValueParser<Value = study::network::samples::Spec> {
    use clap::builder::{OsStringValueParser, TypedValueParser};
    use study::network::samples::{Spec, parse};
    OsStringValueParser::new().try_map(|argument| match argument.to_str() {
        Some(text) => parse(text),
        None => Ok(Spec::File(argument.into())),
    })
}
