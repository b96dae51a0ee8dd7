//! `detour simulate`: the offline simulator. One module per subcommand. They share `noise`, `network` and
//! `work`; `shard` splits their runs across machines, `samples` reads exchange times, and `blame` and
//! `timeline` explain what each rank did. `recorded` and `workload` serve commands that simulate what a
//! recording costs one job.

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
    /// Simulate a collective operation, or a loop of them, in the LogGOPS model
    Collective(collective::Options),
    /// Simulate exchanges between two noisy nodes: the distribution of their times
    Exchange(exchange::Options),
    /// Simulate an all-to-all of pairwise exchanges: how long ranks wait for each other
    Alltoall(alltoall::Options),
    /// Simulate cycles of compute and butterfly allreduce, with and without redundant exchanges
    Cycle(cycle::Options),
    /// Simulate a GOAL schedule of sends, receives and computation
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

/// Sets the number of threads of simulations that parallelise a single run.
fn on_threads(work: &work::Options) -> Result<()> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(work.threads());
    pool.build_global().context("cannot start the threads: use fewer with -j")
}

/// Progress callback for simulations that cannot be stopped: they have nothing to save, so Ctrl-C exits
/// the process. `weight` is the weight of one step.
fn counting(progress: &work::Progress, weight: u64) -> impl Fn(u64) + Sync {
    move |steps| {
        if !progress.advance(steps.saturating_mul(weight)) {
            progress.finish();
            std::process::exit(130);
        }
    }
}
