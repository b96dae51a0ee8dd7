//! `detour mpi`: traces of MPI programs, and measurements of the network by MPI.

mod import;
#[cfg(target_os = "linux")]
mod latency;
#[cfg(target_os = "linux")]
mod net;
#[cfg(target_os = "linux")]
mod noise;
#[cfg(target_os = "linux")]
mod once;
#[cfg(target_os = "linux")]
mod record;
#[cfg(target_os = "linux")]
mod replay;
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
    /// Measure the network between two ranks: L, os, or, g, G, O and S for --net
    ///
    /// Started by a launcher with two ranks, on one node or on two: mpirun -n 2 detour mpi net -o net.toml
    #[cfg(target_os = "linux")]
    Net(net::Options),
    /// Time exchanges between all pairs of ranks
    ///
    /// Started by a launcher with any number of ranks: mpirun -n 8 detour mpi latency -o latencies.json
    ///
    /// In each round of a cycle all ranks are paired, and all pairs exchange messages at the same
    /// time; after a cycle every rank has been paired with every other. The minima of cycles show
    /// the hardware, all exchanges also show disturbances.
    #[cfg(target_os = "linux")]
    Latency(Box<latency::Options>),
    /// Replay a recorded program with real MPI calls, busy-waiting instead of computing
    ///
    /// Started by a launcher with as many ranks as the trace has: mpirun -n 4 detour mpi replay DIR -o NEW
    ///
    /// The run is recorded like any other, and compared with the trace region by region. With --if, the program is
    /// changed first, so that the change is measured on the real network.
    #[cfg(target_os = "linux")]
    Replay(Box<replay::Options>),
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
        Command::Net(options) => net::run(options, verbosity),
        #[cfg(target_os = "linux")]
        Command::Latency(options) => latency::run(options, verbosity),
        #[cfg(target_os = "linux")]
        Command::Replay(options) => replay::run(options, verbosity),
        #[cfg(target_os = "linux")]
        Command::Start(options) => start::run(options),
    }
}
