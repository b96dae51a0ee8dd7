//! `detour goal`: GOAL schedule files. One module per subcommand.

mod check;
mod convert;
mod from;
mod generate;
mod stats;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use simulate::goal::Form;

#[derive(Args)]
pub struct Goal {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Generate a schedule from collective operations, or from a model of a program
    Gen(Box<generate::Options>),
    /// Write the schedule of a traced MPI program
    From(from::Options),
    /// Convert between text and binary
    Convert(convert::Options),
    /// Check a schedule for syntax errors and deadlocks
    Check(check::Options),
    /// Print statistics of a schedule
    Stats(stats::Options),
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FormName {
    Text,
    /// Binary format of LogGOPSim's txt2bin
    Binary,
}

impl From<FormName> for Form {
    fn from(name: FormName) -> Form {
        match name {
            FormName::Text => Form::Text,
            FormName::Binary => Form::Binary,
        }
    }
}

pub fn run(options: &Goal) -> Result<ExitCode> {
    match &options.command {
        Command::Gen(options) => generate::run(options),
        Command::From(options) => from::run(options),
        Command::Convert(options) => convert::run(options),
        Command::Check(options) => check::run(options),
        Command::Stats(options) => stats::run(options),
    }
}
