//! `detour whatif`: what each source of a recording costs a job of so many ranks, and what to do
//! about it.

mod output;
mod study;

use std::{io::Write, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::Args;
use report::advice::{Advice, Advised, Place, Subject};

pub use study::{Asked, Study, check, study};

use crate::{
    Verbosity,
    open::{self, AnyReader, Opened},
    report as layout,
    simulate::{recorded::Source, work, workload},
};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// A recording with sources
    trace: PathBuf,
    #[command(flatten)]
    workload: workload::Options,
    /// Runs with and without each source, in pairs
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    runs: u64,
    /// Also with these removed together: a name, unit or class; may be repeated
    #[arg(long, value_name = "SOURCE")]
    remove: Vec<String>,
    /// Also with each source moved to this CPU
    #[arg(long, value_name = "CPU")]
    shift: Option<u32>,
    /// Also with each source co-scheduled: at work on all nodes at the same time
    #[arg(long)]
    quantise: bool,
    /// Sources to ask for one by one; the others are asked for together
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// All sources: asked for one by one, and shown
    #[arg(short, long, conflicts_with = "top")]
    all: bool,
    /// A table of advice of your own, looked through before the one of detour; may be repeated
    #[arg(long, value_name = "FILE")]
    advice: Vec<PathBuf>,
    #[command(flatten)]
    work: work::Options,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options, verbosity: Verbosity) -> Result<ExitCode> {
    let advice = tables(&options.advice)?;
    let reader = open_attributed(&options.trace)?;
    let workload = options.workload.workload()?;
    let asked = Asked {
        remove: options.remove.clone(),
        shift: options.shift,
        quantise: options.quantise,
        top: if options.all { usize::MAX - 1 } else { options.top },
        repeat: options.workload.repeat_trace,
    };
    let progress = work::Progress::new(0, verbosity.quiet)?;
    progress.now(format!("{} ranks", workload.ranks()));
    let advance = |messages| progress.advance(messages);
    let plan = options.work.plan(options.runs, &advance);
    let each = workload.messages().saturating_mul(options.runs);
    let begin = |sweeps: u64| progress.expect(sweeps.saturating_mul(each));
    let studied = study(&reader, &workload, &asked, &plan, &begin);
    progress.finish();
    let Some(studied) = studied? else { return Ok(ExitCode::from(130)) };

    let advised = advised(&studied, &advice, &place(&reader));
    let mut out = std::io::stdout().lock();
    if options.json {
        let context = output::Context {
            reader: &reader,
            workload: &workload,
            asked: &asked,
            seed: options.work.seed,
        };
        let value = output::json(&studied, &context, &advised);
        writeln!(out, "{}", report::json_value_text(&value)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let layout = layout::layout(options.all);
    let results = output::figures(&studied, &reader, &workload, &asked);
    write!(out, "{}", report::whatif(&results, layout))?;
    let named: Vec<Advised> = advised.into_iter().map(|(_, advised)| advised).collect();
    if let Some(text) = report::advice::advice(&named, layout) {
        writeln!(out, "\n{text}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A recording that says whose its detours are.
pub fn open_attributed(path: &std::path::Path) -> Result<AnyReader> {
    match open::open_as_it_is(path)? {
        Opened::Trace(reader) => {
            check(&reader)?;
            Ok(*reader)
        }
        Opened::Runs(_) => anyhow::bail!(
            "{} is another tool's noise file: it has times of detours, but no sources. `detour \
             simulate` takes it as --noise; sources need a recording of `detour record`",
            path.display()
        ),
    }
}

/// The table of advice, with those of one's own before it; the last one given goes first.
pub fn tables(files: &[PathBuf]) -> Result<Advice> {
    let mut advice = Advice::built_in()?;
    for path in files {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        advice = advice.extended(&path.display().to_string(), &text)?;
    }
    Ok(advice)
}

/// The node that commands are written for. Nodes of a job that differ have none in common.
pub fn place(reader: &AnyReader) -> Place {
    let manifest = reader.manifest();
    let differ = !manifest.nodes.is_empty() && manifest.isolation == trace::Isolation::default();
    if differ { Place::default() } else { Place::of(manifest) }
}

/// A source as advice calls it.
fn label(source: &Source) -> String {
    let label = report::label(source.key.class, &source.key.name);
    if source.program { format!("{label}, the program itself") } else { label }
}

/// Advice for what costs something, most to gain first, each with its place in the rows. The recorder's own
/// threads are gone when it is.
pub fn advised(study: &Study, advice: &Advice, place: &Place) -> Vec<(usize, Advised)> {
    let mut list = Vec::new();
    for (index, row) in study.rows.iter().enumerate() {
        let Some(answer) = row.answer else { continue };
        let gain = answer.removed;
        if row.source.key.own || !gain.effect().helps() {
            continue;
        }
        let source = &row.source;
        let subject = Subject {
            class: source.key.class,
            name: &source.key.name,
            unit: source.key.unit.as_deref(),
            detail: source.detail.as_deref(),
            program: source.program,
        };
        let advised = Advised {
            label: label(source),
            gain: report::to_gain(&output::gain_figures(&gain), gain.runs),
            remedies: advice.remedies(&subject, place),
        };
        list.push((index, advised));
    }
    list
}
