//! `detour simulate`: the offline simulator. One file per subcommand; `noise`, `network` and `work`
//! are what they share.

mod collective;
mod network;
mod noise;
mod points;
mod resume;
mod work;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::Verbosity;

#[derive(Args)]
pub struct Simulate {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A collective operation, or a loop of them, in the LogGOPS model
    Collective(collective::Options),
}

pub fn run(options: &Simulate, verbosity: Verbosity) -> Result<ExitCode> {
    match &options.command {
        Command::Collective(options) => collective::run(options, verbosity),
    }
}
