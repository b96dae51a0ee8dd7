//! `detour diff`: compares two recordings source by source, and what their noise costs a job; or two runs of an MPI
//! program.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use analysis::{Summary, views::Views};
use anyhow::{Result, bail};
use clap::Args;
use report::Side;
use serde::Serialize;
use study::{
    decide::{
        advice::Advice,
        compare::{self, Compared, Request, compare},
        decision,
    },
    recording::{open, summary::summarise},
};

use crate::{
    Verbosity,
    cli::By,
    options::{work, workload},
    output, page, units,
};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Recording before the change, or the directory of a program's trace
    before: PathBuf,
    /// Recording after the change, or the directory of another run's trace
    after: PathBuf,
    #[command(flatten)]
    workload: workload::Options,
    /// Simulated runs of the job per recording, and for the gain of each action [default: 100, and 12 for
    /// actions]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    runs: Option<u64>,
    /// Exit with status 1 if the job takes longer than before by more than this, with 95 % confidence, and
    /// with 3 if that cannot be judged
    #[arg(long, value_name = "PERCENT", value_parser = units::percent)]
    fail_if_worse: Option<f64>,
    /// Rows of the table
    #[arg(long, value_enum, default_value_t)]
    by: By,
    /// Also show rows that did not change
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

impl Options {
    /// Whether the exit status says what the comparison found.
    pub fn is_gate(&self) -> bool {
        self.fail_if_worse.is_some()
    }
}

/// The comparison with its headline, for scripts that show only that.
#[derive(Serialize)]
struct Diff {
    #[serde(flatten)]
    compared: Compared,
    verdict: String,
}

pub fn run(options: &Options, verbosity: Verbosity) -> Result<ExitCode> {
    output::check([&options.html])?;
    match [&options.before, &options.after].map(|path| is_program(path)) {
        [true, true] => return programs(options),
        [false, false] => {}
        _ => bail!(
            "{} and {} are not comparable: one is the trace of a program, the other a recording",
            options.before.display(),
            options.after.display()
        ),
    }
    let request = Request {
        runs: options.runs.unwrap_or(compare::RUNS),
        action_runs: options.runs.unwrap_or(decision::RUNS),
        repeat: options.workload.repeat_trace,
        placement: options.workload.placement(),
        exclude: options.workload.exclude(),
        by: options.by.into(),
        tail: options.workload.tail(),
    };
    let workload = options.workload.request()?;
    let compared = options.work.run(verbosity.quiet, |work| {
        let advice = Advice::built_in()?;
        compare(&options.before, &options.after, &workload, &request, Some(&advice), work)
    })?;
    if let Some(path) = &options.html {
        let [before, after] = [&options.before, &options.after].map(|path| figures(path));
        let (before, after) = (before?, after?);
        let sides = [&before, &after].map(|(summary, views)| Side { summary, views });
        let page = report::diff_html(&compared, Some(sides))?;
        output::save(path, |out| Ok(out.write_all(page.as_bytes())?))?;
    }
    let page_only = options.html.as_ref().is_some_and(|path| trace::is_stdout(path));
    let verdict = report::diff_headline(&compared.comparison);
    let gate = options.fail_if_worse.map(|most| gate(&compared, most));
    if !page_only {
        output::print(&Diff { compared, verdict }, options.json, |diff, layout| {
            report::diff(&diff.compared, report::Options { all: options.all, ..layout })
        })?;
    }
    if let Some(worse) = gate.transpose()?.flatten() {
        tell!("detour: {worse}");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether this is the directory of a program's trace: recordings are files.
fn is_program(path: &Path) -> bool {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with("rank-") && name.ends_with(".mpi"))
    })
}

fn programs(options: &Options) -> Result<ExitCode> {
    if options.html.is_some() {
        bail!(
            "--html requires recordings; for a page per program, use `detour mpi report DIR --html \
             FILE`"
        );
    }
    let threads = options.work.threads();
    let compared = study::decide::programs::compare(&options.before, &options.after, threads)?;
    output::print(&compared, options.json, |compared, layout| {
        report::programs(compared, report::Options { all: options.all, ..layout })
    })?;
    let worse = options.fail_if_worse.filter(|most| compared.change_pct > *most);
    if let Some(most) = worse {
        let change = compared.change_pct;
        tell!(
            "detour: worse: the program takes {change:.2} % longer than before, more than {most} %"
        );
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// What the figures of a recording need.
fn figures(path: &Path) -> Result<(Summary, Views)> {
    let reader = open::open(path)?;
    let summary = summarise(&reader).0;
    let views = page::views(&reader, &summary);
    Ok((summary, views))
}

/// Why the second recording fails the gate, if it does: all of the interval has to be worse.
fn gate(compared: &Compared, most_pct: f64) -> Result<Option<String>> {
    let Some(projected) = &compared.projected else {
        let why = compared.not_projected.as_deref().unwrap_or("the job cannot be simulated");
        bail!("--fail-if-worse requires the job to be simulated: {why}");
    };
    let [low, high] = projected.change_ci95_pct;
    Ok((low > most_pct).then(|| {
        format!(
            "worse: the job takes {:.2} % longer than before ({low:.2} % to {high:.2} %), more than \
             {most_pct} %",
            projected.change_pct
        )
    }))
}
