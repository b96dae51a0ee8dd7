//! `detour tail`: the longest detours to expect in more time than was recorded.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::Args;
use study::noise::tail::{Request, tails};

use crate::{output, units};

#[derive(Args)]
pub struct Options {
    /// Recording, or another tool's noise file
    trace: PathBuf,
    /// How long the ranks run [default: until ten times the recorded CPU time has passed]
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    time: Option<Duration>,
    /// How many ranks run for that long, each on its own CPU
    #[arg(long, default_value = "1", value_parser = units::rank_count, requires = "time")]
    ranks: u64,
    /// Also predict the rest of each CPU or run from its first tenth, and compare
    #[arg(long)]
    check: bool,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let ahead_s = options.time.map(|time| time.as_secs_f64() * options.ranks as f64);
    let found = tails(&options.trace, Request { ahead_s, check: options.check })?;
    output::print(&found, options.json, report::tails)?;
    Ok(ExitCode::SUCCESS)
}
