//! `detour mpi report`: the profile of a recorded program.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};
use clap::Args;
use program::Program;
use study::{
    error::in_words,
    explain::traced::{self, DrawnHit},
};

use crate::{options::work, output};

#[derive(Args)]
pub struct Options {
    /// Directory of the traces
    directory: PathBuf,
    /// Also read runs with missing ranks
    #[arg(long)]
    partial: bool,
    /// Show every row of every table, at full width
    #[arg(short, long)]
    all: bool,
    /// Number of threads [default: all CPUs this process may use]
    #[arg(short = 'j', long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Option<u32>,
    /// Write an HTML report to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<()> {
    output::check([&options.html])?;
    if options.json && options.html.as_ref().is_some_and(|path| trace::is_stdout(path)) {
        bail!("both the page and --json would go to stdout: specify a file with --html");
    }
    let program = match options.partial {
        true => program::open_partial(&options.directory)?,
        false => program::open(&options.directory)?,
    };
    let threads = work::threads(options.threads);
    let profile = match &options.html {
        None => program::profile(&program, threads)?,
        Some(path) => {
            let (profile, timeline) = program::profile_over_time(&program, threads)?;
            let noise = match &timeline {
                Some(_) => noise(&program, &options.directory, threads),
                None => Default::default(),
            };
            let directory = &options.directory;
            let page = report::profile_html(&profile, timeline.as_ref(), &noise, directory, path)?;
            output::save(path, |out| Ok(out.write_all(page.as_bytes())?))?;
            // As `detour report`: the page is the report.
            if !options.json {
                return Ok(());
            }
            profile
        }
    };
    output::print(&profile, options.json, |profile, layout| {
        report::profile(profile, report::Options { all: options.all, ..layout })
    })
}

/// The hits of noise that were recorded beside the traces. A recording that cannot be used is no reason to refuse a
/// page: it says so.
fn noise(program: &Program, directory: &Path, threads: usize) -> (Vec<DrawnHit>, Vec<String>) {
    let hits = traced::recordings_in(directory).and_then(|recordings| match recordings[..] {
        [] => Ok(Default::default()),
        _ => traced::longest_hits(program, &recordings, threads),
    });
    hits.unwrap_or_else(|error| {
        (Vec::new(), vec![format!("Noise is not marked: {}", in_words(&error))])
    })
}
