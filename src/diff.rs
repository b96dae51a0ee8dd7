//! `detour diff`: compares two recordings source by source, and what their noise costs a job.

use std::{io::Write, path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use study::{
    compare::{Compared, Request, compare},
    files,
};

use crate::{
    Verbosity,
    options::{work, workload},
    output,
};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Recording before the change
    before: PathBuf,
    /// Recording after the change
    after: PathBuf,
    #[command(flatten)]
    workload: workload::Options,
    /// Simulated runs of the job per recording
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    runs: u64,
    /// Also show sources that did not change
    #[arg(short, long)]
    all: bool,
    /// Write an HTML report to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    work: work::Options,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

/// The comparison with its headline, for scripts that show only that.
#[derive(Serialize)]
struct Diff {
    #[serde(flatten)]
    compared: Compared,
    verdict: String,
}

pub fn run(options: &Options, verbosity: Verbosity) -> Result<ExitCode> {
    files::check([&options.html])?;
    let request = Request { runs: options.runs, repeat: options.workload.repeat_trace };
    let workload = || options.workload.request().workload();
    let compared = options.work.run(verbosity.quiet, |work| {
        compare(&options.before, &options.after, workload, &request, work)
    })?;
    if let Some(path) = &options.html {
        let page = report::diff_html(&compared);
        files::save(path, |out| Ok(out.write_all(page.as_bytes())?))?;
    }
    let verdict = report::diff_headline(&compared.comparison);
    output::print(&Diff { compared, verdict }, options.json, |diff, layout| {
        report::diff(&diff.compared, report::Options { all: options.all, ..layout })
    })?;
    if let (Some(path), false, false) = (&options.html, verbosity.quiet, options.json) {
        tell!("wrote {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}
