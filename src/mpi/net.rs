//! `detour mpi net`: the LogGOPS parameters of the network between two ranks of an MPI job.

use std::{ffi::OsString, process::ExitCode};

use anyhow::{Result, bail};
use clap::Args;
use link::{measure::serve, mpi::Rank};
use report::message_safe;
use study::error::in_words;

use super::once;
use crate::{Verbosity, net::Measurement};

#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    measurement: Measurement,
    #[command(flatten)]
    library: Library,
}

/// Which MPI.
#[derive(Args)]
pub struct Library {
    /// MPI library to load, as a file or a name [default: that of the launcher]
    #[arg(long, value_name = "LIBRARY")]
    pub mpi: Option<OsString>,
}

impl Library {
    /// Starts the MPI process of this rank.
    pub fn start(&self) -> Result<Rank> {
        Ok(Rank::start(self.mpi.as_deref())?)
    }
}

/// Runs a rank. What is wrong for all is said once.
pub fn once_failed(result: Result<()>) -> Result<ExitCode> {
    match result {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            let task = mpi_recorder::launcher::Task::of_environment();
            once::say(&format!("detour: {}", message_safe(&in_words(&error))), task);
            Ok(ExitCode::FAILURE)
        }
    }
}

pub fn run(options: &Options, verbosity: Verbosity) -> Result<ExitCode> {
    once_failed(measure(options, verbosity))
}

fn measure(options: &Options, verbosity: Verbosity) -> Result<()> {
    options.measurement.check()?;
    let mut rank = options.library.start()?;
    if rank.size() != 2 {
        let ranks = rank.size();
        rank.finish()?;
        bail!(
            "the network is measured between 2 ranks, this job has {ranks}: start it with `mpirun -n 2 detour \
             mpi net`, on two nodes for the network between them"
        );
    }
    let host = recorder::machine::host();
    if rank.rank() == 1 {
        rank.send(0, host.as_bytes())?;
        serve(&mut rank.link(0))?;
        return Ok(rank.finish()?);
    }
    let other = String::from_utf8_lossy(&rank.receive(1)?).into_owned();
    let measured = options.measurement.run(&mut rank.link(1), verbosity)?;
    let version = rank.version();
    rank.finish()?;
    options.measurement.finish(&measured, [host, other], &version)
}
