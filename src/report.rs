//! `detour report`: the sources of noise as text, JSON or HTML.

use std::{
    io::{IsTerminal, Write},
    path::Path,
    process::ExitCode,
};

use analysis::{Contents, Costs, Summariser, Summary};
use anyhow::{Result, bail};
use trace::Reader;

use crate::{Verbosity, cli, open, page, results, simulate::projection::Settings};

pub fn run(options: &cli::Report, verbosity: Verbosity) -> Result<ExitCode> {
    results::check([&options.html])?;
    if let Some(path) = &options.html {
        return write_page(path, options, verbosity);
    }
    let mut summaries = Vec::new();
    for path in &options.traces {
        summaries.push(summarise(&open::open(path)?).0);
    }
    let mut out = std::io::stdout().lock();
    if options.json {
        match summaries.as_slice() {
            [one] => writeln!(out, "{}", report::json_text(one)?)?,
            several => {
                let texts: Result<Vec<String>, _> = several.iter().map(report::json_text).collect();
                writeln!(out, "[{}]", texts?.join(",\n"))?;
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    for (index, summary) in summaries.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        write!(out, "{}", report::text(summary, layout(options.all)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write_page(path: &Path, options: &cli::Report, verbosity: Verbosity) -> Result<ExitCode> {
    let [trace] = options.traces.as_slice() else {
        bail!("--html takes a single trace: run `detour report` once per trace");
    };
    let reader = open::open(trace)?;
    let summarised = summarise(&reader);
    let projection = (!options.no_projection).then(|| Settings {
        ranks: options.ranks.clone(),
        runs: options.runs,
        net: options.net,
        rendezvous: options.rendezvous,
        seed: options.work.seed,
        threads: options.work.threads(),
        quiet: verbosity.quiet,
    });
    if !page::write(path, &reader, &summarised, &page::Options { projection })? {
        return Ok(ExitCode::from(130));
    }
    if options.json {
        writeln!(std::io::stdout(), "{}", report::json_text(&summarised.0)?)?;
    }
    if !verbosity.quiet {
        tell!("wrote {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// An unreadable block ends the summary, but the report is still printed.
pub fn summarise<R: std::io::Read + std::io::Seek>(reader: &Reader<R>) -> (Summary, Costs) {
    let mut summariser = Summariser::new(reader.manifest().mode);
    let mut broken = None;
    for block in reader.blocks() {
        match block {
            Ok(block) => summariser.add(&block, reader.sources()),
            Err(error) => {
                broken = Some(error.to_string());
                break;
            }
        }
    }
    let truncated = broken.or(open::not_whole(reader));
    summariser.finish_with_costs(&Contents::of(reader, truncated.as_deref()))
}

pub fn layout(all: bool) -> report::Options {
    let terminal = std::io::stdout().is_terminal();
    let width = terminal_size::terminal_size().filter(|_| terminal);
    let width = width.map_or(100, |(width, _)| usize::from(width.0));
    let colour = terminal && std::env::var_os("NO_COLOR").is_none();
    report::Options { width, colour, all, ..report::Options::default() }
}
