//! `detour report`: who took the time.

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
};

use analysis::{Contents, Summariser, Summary};
use anyhow::Result;
use trace::Reader;

use crate::{cli, open};

pub fn run(options: &cli::Report) -> Result<ExitCode> {
    let mut summaries = Vec::new();
    for path in &options.traces {
        summaries.push(summarise(&open::open(path)?));
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

/// A damaged block ends the reading, not the report.
pub fn summarise<R: std::io::Read + std::io::Seek>(reader: &Reader<R>) -> Summary {
    let mut summariser = Summariser::new();
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
    let damaged = reader.damaged_blocks();
    let damaged = damaged.first().map(|first| {
        format!("{} damaged blocks were left out; the first: {}", damaged.len(), first.why)
    });
    let truncated = broken.or(damaged).or(reader.truncated().map(str::to_owned));
    summariser.finish(&Contents {
        manifest: reader.manifest(),
        sources: reader.sources(),
        lanes: reader.lanes(),
        trailer: reader.trailer(),
        truncated: truncated.as_deref(),
    })
}

pub fn layout(all: bool) -> report::Options {
    let terminal = std::io::stdout().is_terminal();
    let width = terminal_size::terminal_size().filter(|_| terminal);
    let width = width.map_or(100, |(width, _)| usize::from(width.0));
    let colour = terminal && std::env::var_os("NO_COLOR").is_none();
    report::Options { width, colour, all, ..report::Options::default() }
}
