//! `detour goal`: GOAL schedule files. One module per subcommand; `file` reads and writes schedules,
//! also for `detour simulate goal`.

mod check;
mod convert;
pub mod file;
mod generate;
mod stats;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

#[derive(Args)]
pub struct Goal {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Generate a schedule from a collective operation or a loop of them
    Gen(generate::Options),
    /// Convert between text and binary
    Convert(convert::Options),
    /// Check a schedule for syntax errors and deadlocks
    Check(check::Options),
    /// Print statistics of a schedule
    Stats(stats::Options),
}

pub fn run(options: &Goal) -> Result<ExitCode> {
    match &options.command {
        Command::Gen(options) => generate::run(options),
        Command::Convert(options) => convert::run(options),
        Command::Check(options) => check::run(options),
        Command::Stats(options) => stats::run(options),
    }
}
