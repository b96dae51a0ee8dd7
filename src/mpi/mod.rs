//! `detour mpi`: traces of MPI programs.

mod import;
#[cfg(target_os = "linux")]
mod noise;
#[cfg(target_os = "linux")]
mod once;
#[cfg(target_os = "linux")]
mod record;
mod report;
#[cfg(target_os = "linux")]
mod start;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::Verbosity;

/// PID of the process that started this rank. It starts all ranks of the node, and those of no other job.
#[cfg(target_os = "linux")]
fn launcher() -> i32 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get())
}

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
    /// Show where the time of a recorded program went: calls, waits, who waited for whom
    Report(report::Options),
    /// Convert traces of liballprof
    Import(import::Options),
    /// Start a program once a file exists
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Start(start::Options),
}

pub fn run(options: &Mpi, verbosity: Verbosity) -> Result<ExitCode> {
    // Only recording says anything that could be left out.
    #[cfg(not(target_os = "linux"))]
    let _ = verbosity;
    match &options.command {
        #[cfg(target_os = "linux")]
        Command::Record(options) => record::run(options, verbosity),
        Command::Report(options) => report::run(options).map(|()| ExitCode::SUCCESS),
        Command::Import(options) => import::run(options).map(|()| ExitCode::SUCCESS),
        #[cfg(target_os = "linux")]
        Command::Start(options) => start::run(options),
    }
}
