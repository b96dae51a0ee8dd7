//! `detour report`: the sources of noise as text, JSON or HTML.

use std::{io::Write, path::Path, process::ExitCode};

use anyhow::{Result, bail};
use study::{files, open, projection::Request, summary::summarise};

use crate::{Verbosity, cli, output, page};

pub fn run(options: &cli::Report, verbosity: Verbosity) -> Result<ExitCode> {
    files::check([&options.html])?;
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
        write!(out, "{}", report::text(summary, output::layout(options.all)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write_page(path: &Path, options: &cli::Report, verbosity: Verbosity) -> Result<ExitCode> {
    let [trace] = options.traces.as_slice() else {
        bail!("--html takes a single trace: run `detour report` once per trace");
    };
    let reader = open::open(trace)?;
    let summarised = summarise(&reader);
    let request = (!options.no_projection).then(|| Request {
        ranks: options.ranks.clone(),
        runs: options.runs,
        net: options.net,
        rendezvous: options.rendezvous.into(),
    });
    options.work.run(verbosity.quiet, |work| {
        page::write(path, &reader, &summarised, request.as_ref(), work)
    })?;
    if options.json {
        writeln!(std::io::stdout(), "{}", report::json_text(&summarised.0)?)?;
    }
    if !verbosity.quiet {
        tell!("wrote {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}
