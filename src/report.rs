//! `detour report`: what to do about the noise of a recording, and its sources, as text, JSON or HTML.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use study::{
    decide::{
        advice::Advice,
        compare,
        decision::{Decision, Report, decide},
        fleet, projection,
    },
    recording::{longest::longest, open, open::AnyReader, summary::summarise},
    run::work::Work,
};

use crate::{Verbosity, cli, output, page};

pub fn run(mut options: cli::Report, verbosity: Verbosity) -> Result<ExitCode> {
    output::check([&options.html])?;
    if options.traces.is_empty() && options.baseline.is_some() {
        bail!("--baseline requires recordings to check");
    }
    if options.traces.is_empty() {
        let trace = newest_recording()?;
        let name = trace.display().to_string();
        tell!("detour: showing {}, the newest recording here", report::message_safe(&name));
        options.traces.push(trace);
    }
    let options = &options;
    if let Some(path) = &options.html {
        return write_page(path, options, verbosity);
    }
    if let Some(baseline) = &options.baseline {
        return check(baseline, options, verbosity);
    }
    let mut reports = Vec::new();
    for path in &options.traces {
        let reader = open::open(path)?;
        let summary = summarise(&reader).0;
        let report = options
            .judged
            .work
            .run(verbosity.quiet, |work| judge(options, &reader, summary, work))?;
        let longest = match options.longest {
            0 => Vec::new(),
            most => longest(&reader, most.into())?,
        };
        reports.push(Report { longest, ..report });
    }
    if options.json {
        match reports.as_slice() {
            [one] => output::put(&(report::json_text(one)? + "\n"))?,
            several => {
                let texts: Result<Vec<String>, _> = several.iter().map(report::json_text).collect();
                output::put(&format!("[{}]\n", texts?.join(",\n")))?;
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let layout = report::Options { by: options.by.into(), ..output::layout(options.all) };
    let text = |report: &Report| {
        let mut text = report::decided(report, layout);
        if options.longest > 0 {
            text += &format!("\n{}", report::longest(&report.longest, layout));
        }
        text
    };
    output::page(&reports.iter().map(text).collect::<Vec<_>>().join("\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// The newest recording in this directory.
fn newest_recording() -> Result<PathBuf> {
    let mut newest: Option<(std::time::SystemTime, PathBuf)> = None;
    for entry in std::fs::read_dir(".").context("cannot read this directory")?.flatten() {
        let path = entry.path();
        let written = entry.metadata().and_then(|facts| facts.modified());
        if let (true, Ok(written)) = (path.extension() == Some("detour".as_ref()), written)
            && newest.as_ref().is_none_or(|(before, _)| written > *before)
        {
            newest = Some((written, path));
        }
    }
    let newest = newest.map(|(_, path)| path.strip_prefix("./").map(Into::into).unwrap_or(path));
    newest.context("no recording in this directory: specify one, or run `detour record`")
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
        return Ok(Report { summary, decision, longest: Vec::new() });
    }
    let request = options.judged.decision()?;
    decide(reader, summary, &request, &Advice::built_in()?, work)
}

/// Every trace against a good node.
fn check(baseline: &Path, options: &cli::Report, verbosity: Verbosity) -> Result<ExitCode> {
    let judged = &options.judged;
    let request = compare::Request {
        runs: judged.runs.unwrap_or(projection::RUNS),
        // Without advice there are no actions.
        action_runs: 0,
        repeat: true,
        placement: judged.placement(),
        exclude: judged.exclude.clone(),
        by: options.by.into(),
        tail: judged.tail,
    };
    let workload = judged.workload()?;
    let fleet = options.judged.work.run(verbosity.quiet, |work| {
        fleet::check(baseline, &options.traces, options.tolerance, &workload, &request, work)
    })?;
    let failed = fleet.failed > 0;
    output::print(&fleet, options.json, |fleet, layout| {
        report::fleet(fleet, report::Options { all: options.all, ..layout })
    })?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn write_page(path: &Path, options: &cli::Report, verbosity: Verbosity) -> Result<ExitCode> {
    let [trace] = options.traces.as_slice() else {
        bail!("--html takes a single trace: run `detour report` once per trace");
    };
    let reader = open::open(trace)?;
    let (summary, costs) = summarise(&reader);
    let projection = || options.judged.projection(!options.no_tail);
    let request = (!options.no_projection).then(projection).transpose()?;
    let report = options.judged.work.run(verbosity.quiet, |work| {
        let report = judge(options, &reader, summary, work)?;
        page::write(path, &reader, (&report, &costs), request.as_ref(), work)?;
        Ok(report)
    })?;
    if options.json {
        output::put(&(report::json_text(&report)? + "\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
