//! `detour report`: what to do about the noise of a recording, and its sources, as text, JSON or HTML.

use std::{io::Write, path::Path, process::ExitCode};

use anyhow::{Result, bail};
use study::{
    advice::Advice,
    decision::{self, Decision, Report, decide},
    files, open,
    open::AnyReader,
    projection::Request,
    summary::summarise,
    work::Work,
    workload::{self, JobKind},
};

use crate::{Verbosity, cli, output, page};

pub fn run(options: &cli::Report, verbosity: Verbosity) -> Result<ExitCode> {
    files::check([&options.html])?;
    if let Some(path) = &options.html {
        return write_page(path, options, verbosity);
    }
    let mut reports = Vec::new();
    for path in &options.traces {
        let reader = open::open(path)?;
        let summary = summarise(&reader).0;
        reports.push(
            options.work.run(verbosity.quiet, |work| judge(options, &reader, summary, work))?,
        );
    }
    let mut out = std::io::stdout().lock();
    if options.json {
        match reports.as_slice() {
            [one] => writeln!(out, "{}", report::json_text(one)?)?,
            several => {
                let texts: Result<Vec<String>, _> = several.iter().map(report::json_text).collect();
                writeln!(out, "[{}]", texts?.join(",\n"))?;
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let layout = report::Options { by: options.by.into(), ..output::layout(options.all) };
    for (index, report) in reports.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        write!(out, "{}", report::decided(report, layout))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The summary with what to do about it.
fn judge(
    options: &cli::Report,
    reader: &AnyReader,
    summary: analysis::Summary,
    work: &Work<'_>,
) -> Result<Report> {
    if options.no_projection {
        let why = Some("omitted (--no-projection)".to_owned());
        let decision = Decision { not_simulated: why, ..Decision::default() };
        return Ok(Report { summary, decision });
    }
    let request = decision::Request {
        workload: workload::Request {
            kind: JobKind::Collectives {
                job: options.job.request(),
                ranks: options.ranks.as_ref().and_then(|ranks| ranks.iter().max().copied()),
                size: options.size,
            },
            net: options.net,
            rendezvous: options.rendezvous.into(),
            ..workload::Request::usual()?
        },
        placement: options.placement.request(),
        runs: decision::RUNS,
        exclude: options.exclude.clone(),
    };
    decide(reader, summary, &request, &Advice::built_in()?, work)
}

fn write_page(path: &Path, options: &cli::Report, verbosity: Verbosity) -> Result<ExitCode> {
    let [trace] = options.traces.as_slice() else {
        bail!("--html takes a single trace: run `detour report` once per trace");
    };
    let reader = open::open(trace)?;
    let (summary, costs) = summarise(&reader);
    let usual = Request::usual()?;
    let request = (!options.no_projection).then(|| Request {
        ranks: options.ranks.clone().unwrap_or(usual.ranks),
        runs: options.runs,
        net: options.net,
        rendezvous: options.rendezvous.into(),
        placement: options.placement.request(),
        exclude: options.exclude.clone(),
    });
    let report = options.work.run(verbosity.quiet, |work| {
        let report = judge(options, &reader, summary, work)?;
        page::write(path, &reader, (&report, &costs), request.as_ref(), work)?;
        Ok(report)
    })?;
    if options.json {
        writeln!(std::io::stdout(), "{}", report::json_text(&report)?)?;
    }
    if !verbosity.quiet {
        tell!("wrote {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}
