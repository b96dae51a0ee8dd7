//! `detour mpi report`: the profile of a recorded program.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::{options::work, output};

#[derive(Args)]
pub struct Options {
    /// Directory of the traces
    directory: PathBuf,
    /// Also read runs with missing ranks
    #[arg(long)]
    partial: bool,
    /// Number of threads [default: all CPUs this process may use]
    #[arg(short = 'j', long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Option<u32>,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<()> {
    let program = match options.partial {
        true => program::open_partial(&options.directory)?,
        false => program::open(&options.directory)?,
    };
    let profile = program::profile(&program, work::threads(options.threads))?;
    output::print(&profile, options.json, |profile, layout| program::text(profile, layout.width))
}
