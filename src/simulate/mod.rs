//! `detour simulate`: the offline simulator. One file per subcommand; `noise`, `network` and `work`
//! are what they share, `shard` divides their runs among machines, `samples` is for those that draw
//! exchange times, `blame` and `timeline` for those that can say what each rank did. `recorded` and
//! `workload` are for commands that simulate what a recording does to one job.

mod alltoall;
mod blame;
mod collective;
mod cycle;
mod exchange;
mod goal;
pub mod job;
pub mod network;
pub mod noise;
mod points;
pub mod projection;
pub mod recorded;
mod resume;
mod samples;
pub mod shard;
mod sources;
mod timeline;
pub mod work;
pub mod workload;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

use crate::Verbosity;

#[derive(Args)]
pub struct Simulate {
    #[command(subcommand)]
    command: Box<Command>,
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
    /// A schedule of sends, receives and computation: GOAL text or binary
    Goal(goal::Options),
}

pub fn run(options: &Simulate, verbosity: Verbosity) -> Result<ExitCode> {
    match &*options.command {
        Command::Collective(options) => collective::run(options, verbosity),
        Command::Exchange(options) => exchange::run(options, verbosity),
        Command::Alltoall(options) => alltoall::run(options, verbosity),
        Command::Cycle(options) => cycle::run(options, verbosity),
        Command::Goal(options) => goal::run(options, verbosity),
    }
}

/// Sets how many threads the simulations that divide a run among themselves take.
fn on_threads(work: &work::Options) -> Result<()> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(work.threads());
    pool.build_global().context("cannot start so many threads: give fewer with -j")
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
