//! The `detour` command: reads the command line and calls one small module per subcommand.

#![forbid(unsafe_code)]

/// Prints a message to stderr. Unlike `eprintln!`, it does not panic if stderr is closed: a panic would
/// lose the exit code of a recorded command.
macro_rules! tell {
    ($($said:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($said)*);
    }};
}

mod blame;
mod cli;
mod demo;
mod diff;
mod dist;
mod doctor;
mod export;
mod goal;
mod import;
#[cfg(target_os = "linux")]
mod inject;
#[cfg(target_os = "linux")]
mod isolation;
mod manual;
mod merge;
mod mpi;
mod net;
mod options;
mod output;
mod page;
mod record;
mod report;
mod signals;
mod simulate;
mod tail;
mod top;
mod units;
mod whatif;

use std::process::ExitCode;

use cli::Command;
use options::work::INTERRUPTED;
use study::error::{in_words, was_stopped};

fn main() -> ExitCode {
    let cli = cli::read();
    output::set(output::Manners { colour: cli.color, quiet: cli.quiet, no_pager: cli.no_pager });
    let verbosity = Verbosity { quiet: cli.quiet, verbose: cli.verbose };
    let failed = cli.command.failure_status();
    let result = match cli.command {
        Command::Doctor(options) => doctor::run(&options, verbosity),
        Command::Record(options) => record::run(options, verbosity),
        Command::Top(options) => top::run(options),
        Command::Report(options) => report::run(options, verbosity),
        Command::Import(options) => import::run(&options),
        Command::Export(options) => export::run(&options),
        Command::Simulate(options) => simulate::run(&options, verbosity),
        Command::Goal(options) => goal::run(&options),
        Command::Tail(options) => tail::run(&options),
        Command::Diff(options) => diff::run(&options, verbosity),
        Command::Blame(options) => blame::run(&options),
        Command::Dist(options) => dist::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Whatif(options) => whatif::run(&options, verbosity),
        Command::Mpi(options) => mpi::run(&options, verbosity),
        Command::Net(options) => net::run(&options, verbosity),
        Command::Merge(options) => merge::run(&options, verbosity),
        Command::Demo(options) => demo::run(&options, verbosity),
        Command::Man(options) => manual::man(&options),
        #[cfg(target_os = "linux")]
        Command::Inject(options) => inject::run(&options, verbosity),
        Command::Completions(options) => manual::completions(&options),
    };
    match result {
        Ok(code) => code,
        // `detour report | head` is not a failure.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) if was_stopped(&error) => ExitCode::from(INTERRUPTED),
        Err(error) => {
            // The message may quote the contents of an untrusted file.
            let said = ::report::message_safe(&in_words(&error));
            tell!("detour: {said}");
            ExitCode::from(failed)
        }
    }
}

#[derive(Clone, Copy)]
struct Verbosity {
    quiet: bool,
    verbose: bool,
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
