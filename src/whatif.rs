//! `detour whatif`: what each source of a recording costs a job at a given rank count, and how to avoid
//! it.

use std::{path::PathBuf, process::ExitCode};

use analysis::Part;
use anyhow::Result;
use clap::Args;
use study::{
    decide::{
        advice::Advice,
        decision,
        whatif::{Further, Request, ask, open_attributed},
    },
    recording::load::Load,
};

use crate::{
    Verbosity,
    cli::By,
    options::{work, workload},
    output,
};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Recording with sources
    trace: PathBuf,
    #[command(flatten)]
    workload: workload::Options,
    /// Paired runs with and without each source
    #[arg(long, default_value_t = decision::RUNS, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    runs: u64,
    /// Also remove these sources together: a name, unit or class; may be repeated
    #[arg(long, value_name = "SOURCE")]
    remove: Vec<String>,
    /// Also simulate moving each source to this CPU
    #[arg(long, value_name = "CPU")]
    shift: Option<u32>,
    /// Also simulate co-scheduling each source, so that it runs on all nodes at the same time
    #[arg(long)]
    quantise: bool,
    /// Rows of the table
    #[arg(long, value_enum, default_value_t)]
    by: By,
    /// Number of sources to evaluate individually; the rest are evaluated together
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Evaluate and show all sources individually
    #[arg(short, long, conflicts_with = "top")]
    all: bool,
    /// Additional advice table, consulted before the built-in one; may be repeated
    #[arg(long, value_name = "FILE")]
    advice: Vec<PathBuf>,
    #[command(flatten)]
    work: work::Options,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options, verbosity: Verbosity) -> Result<ExitCode> {
    let advice = Advice::with_tables(&options.advice)?;
    let reader = open_attributed(&options.trace)?;
    let workload = options.workload.request()?;
    let exclude = options.workload.exclude();
    let request = Request {
        load: Load::of_recording(&reader, &exclude),
        runs: options.runs,
        remove: options.remove.clone(),
        shift: options.shift,
        quantise: options.quantise,
        top: if options.all { usize::MAX - 1 } else { options.top },
        repeat: options.workload.repeat_trace,
        part: Part::default(),
        placement: options.workload.placement(),
        exclude,
        further: Further::By(options.by.into()),
        tail: options.workload.tail(),
    };
    let whatif = options
        .work
        .run(verbosity.quiet, |work| ask(&reader, &workload, &request, &advice, work))?;
    // The text has them among its notes.
    if options.json {
        output::remark(&whatif.remarks);
    }
    output::print(&whatif, options.json, |whatif, layout| {
        let layout = report::Options { all: options.all, by: options.by.into(), ..layout };
        let advice = report::advice(whatif, layout);
        let advice = advice.map_or_else(String::new, |advice| format!("\n{advice}\n"));
        report::whatif(whatif, layout) + &advice
    })?;
    Ok(ExitCode::SUCCESS)
}
