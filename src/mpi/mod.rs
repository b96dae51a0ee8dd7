//! `detour mpi`: traces of MPI programs.

#[cfg(target_os = "linux")]
mod noise;
#[cfg(target_os = "linux")]
mod record;
#[cfg(target_os = "linux")]
mod start;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::Verbosity;

#[derive(Args)]
pub struct Mpi {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[cfg(target_os = "linux")]
    /// Run a rank of an MPI program, or a whole job, and record its MPI calls
    Record(record::Options),
    /// Start a program once a file exists
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Start(start::Options),
}

pub fn run(options: &Mpi, verbosity: Verbosity) -> Result<ExitCode> {
    match &options.command {
        #[cfg(target_os = "linux")]
        Command::Record(options) => record::run(options, verbosity),
        #[cfg(target_os = "linux")]
        Command::Start(options) => start::run(options),
    }
}
