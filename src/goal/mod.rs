//! `detour goal`: schedules as files. One file per subcommand; `file` reads and writes them, for
//! `detour simulate goal`, too.

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
    /// Write a collective operation, or a loop of them, as a schedule
    Gen(generate::Options),
    /// Text to binary and back
    Convert(convert::Options),
    /// Whether a schedule can be read and comes to an end, and if not, where the mistake is
    Check(check::Options),
    /// What a schedule consists of
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
