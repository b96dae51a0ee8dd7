//! `detour mpi start`, which `detour mpi record` uses: waits until the recording of the node has started,
//! then becomes the program. So the program has a PID before it runs, and only it is preloaded.

use std::{
    ffi::OsString,
    fs,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::Result;
use clap::Args;

/// A program starts without its noise being recorded rather than not at all.
const LONGEST: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(5);

#[derive(Args)]
pub struct Options {
    /// Wait until this file exists
    #[arg(long, value_name = "FILE")]
    after: Option<PathBuf>,
    /// Write the PID to this file before the program starts
    #[arg(long, value_name = "FILE")]
    mark: Option<PathBuf>,
    /// Library to preload
    #[arg(long, value_name = "FILE")]
    preload: OsString,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    use rustix::process::{Signal, set_parent_process_death_signal};
    // Nobody else would end it while it waits.
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
    let begin = Instant::now();
    // If the directory is gone, the job has ended already.
    let waits = |file: &PathBuf| !file.exists() && file.parent().is_some_and(|node| node.exists());
    while options.after.as_ref().is_some_and(waits) && begin.elapsed() < LONGEST {
        std::thread::sleep(STEP);
    }
    let _ = set_parent_process_death_signal(None);
    if let Some(mark) = &options.mark {
        fs::write(mark, std::process::id().to_string())?;
    }
    let error = command(&options.command, &options.preload).exec();
    tell!("detour: cannot run {}: {error}", options.command[0].display());
    Ok(ExitCode::from(super::record::cannot_run(&error)))
}

/// The program with the library preloaded, before those it has anyway.
pub fn command(command: &[OsString], preload: &OsString) -> Command {
    let mut libraries = preload.clone();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        libraries.push(":");
        libraries.push(others);
    }
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]).env("LD_PRELOAD", libraries);
    program
}
