//! `detour whatif`: what each source of a recording costs a job at a given rank count, and how to avoid
//! it.

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
    /// Recording with sources
    trace: PathBuf,
    #[command(flatten)]
    workload: workload::Options,
    /// Paired runs with and without each source
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
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

/// Opens a recording whose detours are attributed to sources.
pub fn open_attributed(path: &std::path::Path) -> Result<AnyReader> {
    match open::open_as_it_is(path)? {
        Opened::Trace(reader) => {
            check(&reader)?;
            Ok(*reader)
        }
        Opened::Runs(_) => anyhow::bail!(
            "{} is another tool's noise file, which has no sources: use it with `detour simulate \
             --noise`, or record with `detour record`",
            path.display()
        ),
    }
}

/// The built-in advice table, preceded by user tables; the last one given has precedence.
pub fn tables(files: &[PathBuf]) -> Result<Advice> {
    let mut advice = Advice::built_in()?;
    for path in files {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        advice = advice.extended(&path.display().to_string(), &text)?;
    }
    Ok(advice)
}

/// The node that commands are written for; none if the nodes of a job differ.
pub fn place(reader: &AnyReader) -> Place {
    let manifest = reader.manifest();
    let differ = !manifest.nodes.is_empty() && manifest.isolation == trace::Isolation::default();
    if differ { Place::default() } else { Place::of(manifest) }
}

/// The label of a source in the advice.
fn label(source: &Source) -> String {
    let label = report::label(source.key.class, &source.key.name);
    if source.program { format!("{label}, the program itself") } else { label }
}

/// Advice for sources that cost something, largest gain first, each with its row index. The recorder's own
/// threads need none.
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
