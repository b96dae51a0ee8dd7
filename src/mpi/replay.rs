//! `detour mpi replay`: re-enacts a recorded program with real MPI calls.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use clap::Args;
use link::mpi::Rank;
use mpi_recorder::{launcher::Task, worker::Recording};
use study::{
    decide::programs,
    jobs::{
        hypotheses::{self, Question},
        replay::{Deviation, Request},
    },
};

use super::{
    net::{Library, once_failed},
    record::{Claim, prepare},
};
use crate::{Verbosity, options::work, output};

#[derive(Args)]
pub struct Options {
    /// Directory of the trace
    directory: PathBuf,
    /// Directory for the traces of the replay; all ranks need the same
    #[arg(short, long, value_name = "DIR", default_value = "detour-replay")]
    output: PathBuf,
    /// Change the program first: scale REGION 0.5, balance REGION, drop REGION, drop tag 17, drop MPI_CALL, resize
    /// tag 17 0.25, nonblocking REGION; scale and balance also take `after MPI_CALL` as REGION; may be repeated
    #[arg(long = "if", value_name = "HYPOTHESIS", value_parser = hypotheses::parse)]
    questions: Vec<Question>,
    /// MPI_Waitany, MPI_Waitsome and tests complete the same requests as in the trace, not those
    /// that complete first
    #[arg(long)]
    deterministic: bool,
    /// Sleep instead of spinning where the program computed for more than 1 ms; use it with more
    /// ranks than CPUs
    #[arg(long)]
    sleep: bool,
    /// Show every row of every table, at full width
    #[arg(short, long)]
    all: bool,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    library: Library,
}

/// Ranks may end much later than the first.
const LONGEST: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(20);

pub fn run(options: &Options, verbosity: Verbosity) -> Result<ExitCode> {
    once_failed(replay(options, verbosity))
}

fn replay(options: &Options, verbosity: Verbosity) -> Result<()> {
    let task = Task::of_environment();
    let request = Request {
        dir: options.directory.clone(),
        questions: options.questions.clone(),
        deterministic: options.deterministic,
        sleep: options.sleep,
    };
    // Everything that can be refused is refused before a rank has started.
    let program = request.load(work::threads(None))?;
    let directory = prepare(&options.output, task)?;
    let claim = Claim::new(&directory, task)?;
    let command = command(options);
    let recording = Recording { directory: &directory, command: &command };
    let mut rank = Rank::player(options.library.mpi.as_deref(), &recording)?;
    let (own, ranks) = (rank.rank(), rank.size());
    if ranks != program.ranks() {
        rank.finish()?;
        bail!(
            "{} is a trace of {} ranks, this job has {ranks}: start it with `mpirun -n {} detour mpi replay`",
            options.directory.display(),
            program.ranks(),
            program.ranks()
        );
    }
    let script = program.script(own, rank.ns_per_tick())?;
    rank.play(&script)?;
    rank.finish()?;
    drop(claim);
    if own != 0 {
        return Ok(());
    }
    if !verbosity.quiet {
        for remark in &program.remarks {
            tell!("{remark}");
        }
    }
    await_all(&directory, ranks)?;
    let deviation = Deviation {
        hypotheses: options.questions.iter().map(|question| question.text.clone()).collect(),
        deterministic: options.deterministic,
        programs: programs::compare(&options.directory, &directory, work::threads(None))?,
    };
    output::print(&deviation, options.json, |deviation, layout| {
        report::deviation(deviation, report::Options { all: options.all, ..layout })
    })
}

/// The command line of the trace.
fn command(options: &Options) -> Vec<OsString> {
    let mut command: Vec<OsString> =
        ["detour", "mpi", "replay"].into_iter().map(OsString::from).collect();
    command.push(options.directory.clone().into_os_string());
    for question in &options.questions {
        command.extend(["--if".into(), question.text.clone().into()]);
    }
    if options.deterministic {
        command.push("--deterministic".into());
    }
    command
}

/// Waits until the files of all ranks are complete.
fn await_all(directory: &Path, ranks: u32) -> Result<()> {
    let begin = Instant::now();
    loop {
        let complete = program::open(directory)
            .is_ok_and(|program| program.ranks.iter().all(|rank| rank.finalized));
        if complete {
            return Ok(());
        }
        if begin.elapsed() > LONGEST {
            bail!(
                "the traces of the {ranks} ranks in {} are incomplete: if the nodes do not share a \
                 file system, merge their directories with `detour merge` and compare them with \
                 `detour diff`",
                directory.display()
            );
        }
        std::thread::sleep(STEP);
    }
}
