//! `detour simulate`: the offline simulator. One file per subcommand; `noise`, `network` and `work`
//! are what they share, and `samples` is for those that draw exchange times.

mod alltoall;
mod collective;
mod cycle;
mod exchange;
mod network;
mod noise;
mod points;
mod resume;
mod samples;
mod work;

use std::{os::unix::process::CommandExt, process::ExitCode};

use anyhow::{Context, Result};
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
    /// Exchanges between two nodes that are interrupted: the distribution of their times
    Exchange(exchange::Options),
    /// An all-to-all of pairwise exchanges: how long processors wait for each other
    Alltoall(alltoall::Options),
    /// Cycles of compute and a butterfly allreduce, with and without redundant exchanges
    Cycle(cycle::Options),
}

pub fn run(options: &Simulate, verbosity: Verbosity) -> Result<ExitCode> {
    match &options.command {
        Command::Collective(options) => collective::run(options, verbosity),
        Command::Exchange(options) => exchange::run(options, verbosity),
        Command::Alltoall(options) => alltoall::run(options, verbosity),
        Command::Cycle(options) => cycle::run(options, verbosity),
    }
}

/// What the simulations on rayon's pool read their number of threads from, once.
const THREADS: &str = "RAYON_NUM_THREADS";

/// Sees to it that this process's pool has as many threads as asked for; to be called first. The pool
/// looks at its environment, which a process cannot safely change for itself: it starts over.
fn on_threads(work: &work::Options) -> Result<()> {
    let here = std::env::var(THREADS).ok().and_then(|threads| threads.parse().ok());
    let usual = || std::thread::available_parallelism().map_or(1, |threads| threads.get());
    if here.filter(|&threads| threads > 0).unwrap_or_else(usual) == work.threads() {
        return Ok(());
    }
    let program = std::env::current_exe().context("cannot find this program to start it over")?;
    let mut again = std::process::Command::new(program);
    again.args(std::env::args_os().skip(1)).env(THREADS, work.threads().to_string());
    Err(again.exec()).context("cannot start over with so many threads: leave out -j")
}

/// For simulations that tell how far they are but cannot be told to stop: they have nothing to save,
/// so that Ctrl-C ends the command. `weight` is what one of their steps counts for.
fn counting(progress: &work::Progress, weight: u64) -> impl Fn(u64) + Sync {
    move |steps| {
        if !progress.advance(steps.saturating_mul(weight)) {
            progress.finish();
            std::process::exit(130);
        }
    }
}
