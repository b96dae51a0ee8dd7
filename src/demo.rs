//! `detour demo`: record, report and project in one command. On machines that cannot record, it uses a
//! bundled recording.

use std::{io::Cursor, path::Path, process::ExitCode};

use anyhow::Result;
use study::{
    decide::{advice::Advice, decision::decide},
    recording::{
        open::{self, AnyReader, Input},
        summary::summarise,
    },
};
use trace::Reader;

use crate::{Verbosity, cli, output, page, record};

/// One of the two CPUs of a virtual machine, beside `loadgen daemon --cpu 1 --period-us 50000 --burn-us 400`: recorded by
/// `detour record -c 1 -d 8s`.
static BUNDLED: &[u8] = include_bytes!("../fixtures/demo.detour");

pub fn run(options: &cli::Demo, verbosity: Verbosity) -> Result<ExitCode> {
    if !cfg!(target_os = "linux") {
        tell!("detour: recording requires Linux; showing a bundled recording instead");
        let input = Box::new(Cursor::new(BUNDLED)) as Box<dyn Input>;
        let reader = Reader::named(input, "the bundled recording".to_owned())?;
        return show(&reader, None, options, verbosity);
    }
    // An invalid job is found before anything is recorded.
    options.judged.decision()?;
    let output = recorder::output_name(options.output.as_deref());
    output::check([&Some(options.html.clone()), &Some(output.clone())])?;
    let seconds = options.duration.as_secs_f64();
    if !verbosity.quiet {
        tell!("recording all CPUs available to this process for {seconds} s ...");
    }
    let recording = recorder::Options {
        duration: Some(options.duration),
        output,
        command_line: recorder::command_line(),
        ..recorder::Options::default()
    };
    let outcome = record::perform(&recording, verbosity)?;
    for remark in &outcome.remarks {
        tell!("detour: {remark}");
    }
    let reader = open::open(&outcome.output)?;
    let shown = show(&reader, Some(&outcome.output), options, verbosity);
    if let Some(error) = outcome.write_error {
        anyhow::bail!("the recording is incomplete: {error}");
    }
    shown
}

/// Prints the tables, writes the page, and ends with what to do: that is what stays on the screen.
fn show(
    reader: &AnyReader,
    trace: Option<&Path>,
    options: &cli::Demo,
    verbosity: Verbosity,
) -> Result<ExitCode> {
    let (summary, costs) = summarise(reader);
    let (judged, quiet) = (&options.judged, verbosity.quiet);
    let (job, request) = (judged.decision()?, judged.projection(true)?);
    let advice = Advice::built_in()?;
    let report = judged.work.run(quiet, |work| decide(reader, summary, &job, &advice, work))?;
    let layout = output::layout(false);
    output::put(&report::text(&report.summary, layout))?;
    if !quiet {
        tell!("\nprojecting to {} ranks ...", request.ranks.iter().max().copied().unwrap_or(0));
    }
    judged.work.run(quiet, |work| {
        page::write(&options.html, reader, (&report, &costs), Some(&request), work)
    })?;
    if let Some(trace) = trace.filter(|_| !verbosity.quiet) {
        next_steps(trace);
    }
    output::put(&format!("\n{}\n", report::decision(&report.decision, layout).trim_end()))?;
    Ok(ExitCode::SUCCESS)
}

fn next_steps(trace: &Path) {
    let trace = trace.display();
    tell!("\nNext steps:");
    tell!("  detour whatif {trace}   what each process costs, and more remedies");
    tell!("  detour record -- COMMAND   noise seen by one program");
    tell!("  detour doctor   what limits recording on this machine");
}
