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

mod cli;
mod demo;
mod diff;
mod doctor;
mod export;
mod goal;
mod import;
mod manual;
mod merge;
mod open;
mod page;
mod record;
mod report;
mod results;
mod simulate;
mod top;
mod units;
mod whatif;

use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let verbosity = Verbosity { quiet: cli.quiet, verbose: cli.verbose };
    let result = match cli.command {
        Command::Doctor(options) => doctor::run(&options),
        Command::Record(options) => record::run(options, verbosity),
        Command::Top(options) => top::run(options),
        Command::Report(options) => report::run(&options, verbosity),
        Command::Import(options) => import::run(&options),
        Command::Export(options) => export::run(&options),
        Command::Simulate(options) => simulate::run(&options, verbosity),
        Command::Goal(options) => goal::run(&options),
        Command::Diff(options) => diff::run(&options, verbosity),
        Command::Whatif(options) => whatif::run(&options, verbosity),
        Command::Merge(options) => merge::run(&options, verbosity),
        Command::Demo(options) => demo::run(&options, verbosity),
        Command::Man(options) => manual::man(&options),
        Command::Completions(options) => manual::completions(&options),
    };
    match result {
        Ok(code) => code,
        // `detour report | head` is not a failure.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // The message may quote the contents of an untrusted file.
            let said = ::report::message_safe(&in_words(&error));
            tell!("detour: {said}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Clone, Copy)]
struct Verbosity {
    quiet: bool,
    verbose: bool,
}

/// The error with its causes, each once: some messages already contain their cause and a hint.
fn in_words(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| {
        if said.is_empty() {
            cause
        } else if said.contains(&cause) {
            said
        } else {
            format!("{said}: {cause}")
        }
    })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn causes_are_said_once() {
        let cause = || anyhow!("no space left");
        assert_eq!(in_words(&cause().context("cannot write x")), "cannot write x: no space left");
        let named = cause().context("cannot write x: no space left; free some");
        assert_eq!(in_words(&named), "cannot write x: no space left; free some");
        let far = Err::<(), _>(named).context("cannot merge");
        let said = far.map_err(|error| in_words(&error));
        assert_eq!(said, Err("cannot merge: cannot write x: no space left; free some".to_owned()));
    }
}
