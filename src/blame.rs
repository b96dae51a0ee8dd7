//! `detour blame`: the critical path and the waits of a real run, by cause.

use std::{fs, io::Write, path::PathBuf, process::ExitCode};

use anyhow::{Result, bail};
use clap::Args;
use study::{explain::traced, files};

use crate::{options::work, output};

#[derive(Args)]
pub struct Options {
    /// Directory of the traces, as written by `detour mpi record --noise`
    directory: PathBuf,
    /// Additional recordings of the ranks [default: only those in the directory]
    recordings: Vec<PathBuf>,
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
    /// Write CSV of the waiting to this file: by rank, by region, by cause
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    output::check([&options.html, &options.csv])?;
    if options.json && options.html.as_ref().is_some_and(|path| trace::is_stdout(path)) {
        bail!("both the page and --json would go to stdout: specify a file with --html");
    }
    let program = match options.partial {
        true => program::open_partial(&options.directory)?,
        false => program::open(&options.directory)?,
    };
    let mut recordings = options.recordings.clone();
    let given: Vec<_> = recordings.iter().filter_map(|path| fs::canonicalize(path).ok()).collect();
    for path in traced::recordings_in(&options.directory)? {
        if !fs::canonicalize(&path).is_ok_and(|path| given.contains(&path)) {
            recordings.push(path);
        }
    }
    for written in options.html.iter().chain(&options.csv) {
        files::not_over(&recordings, written)?;
    }
    let threads = work::threads(options.threads);
    let (blame, drawn) = traced::blame(&program, &recordings, threads, work::memory())?;
    if let Some(path) = &options.csv {
        output::save(path, |out| Ok(out.write_all(traced::csv(&blame).as_bytes())?))?;
        if trace::is_stdout(path) {
            return Ok(ExitCode::SUCCESS);
        }
    }
    if let Some(path) = &options.html {
        let page = report::traced_html(&blame, &drawn, &options.directory, path)?;
        output::save(path, |out| Ok(out.write_all(page.as_bytes())?))?;
        // As `detour report`: the page is the report.
        if !options.json {
            return Ok(ExitCode::SUCCESS);
        }
    }
    output::print(&blame, options.json, |blame, layout| {
        report::traced(blame, &drawn.profile, report::Options { all: options.all, ..layout })
    })?;
    Ok(ExitCode::SUCCESS)
}
