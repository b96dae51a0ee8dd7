//! `detour demo`: the main job in one go. Where this machine cannot record, a recording that comes
//! with the program takes its place.

use std::{
    io::{Cursor, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::Result;
use trace::Reader;

use crate::{Verbosity, cli, record, report as report_command};

/// Recorded on a two-CPU virtual machine by `detour record -d 2s`.
static BUNDLED: &[u8] = include_bytes!("../fixtures/demo.detour");

pub fn run(options: &cli::Demo, verbosity: Verbosity) -> Result<ExitCode> {
    if !cfg!(target_os = "linux") {
        eprintln!("detour: recording needs Linux; this is a recording that comes with the program");
        let reader = Reader::named(Cursor::new(BUNDLED), "the bundled recording".to_owned())?;
        return show(&reader);
    }
    let seconds = options.duration.as_secs_f64();
    if !verbosity.quiet {
        eprintln!("recording this machine for {seconds} s on every CPU this process may use ...");
    }
    let recording = recorder::Options {
        duration: Some(options.duration),
        output: record::output_name(options.output.as_deref()),
        command_line: std::env::args().collect(),
        ..recorder::Options::default()
    };
    let outcome = record::perform(&recording, verbosity)?;
    for remark in &outcome.remarks {
        eprintln!("detour: {remark}");
    }
    let reader = Reader::open(&outcome.output)?;
    let code = show(&reader)?;
    if !verbosity.quiet {
        next_steps(&outcome.output);
    }
    if let Some(error) = outcome.write_error {
        anyhow::bail!("the recording is incomplete: {error}");
    }
    Ok(code)
}

fn show<R: std::io::Read + std::io::Seek>(reader: &Reader<R>) -> Result<ExitCode> {
    let summary = report_command::summarise(reader);
    let mut out = std::io::stdout().lock();
    write!(out, "{}", report::text(&summary, report_command::layout(false)))?;
    Ok(ExitCode::SUCCESS)
}

fn next_steps(trace: &Path) {
    let trace = trace.display();
    eprintln!("\nThe recording is in {trace}. Next:");
    eprintln!("  detour report {trace} --all --json   everything, for scripts");
    eprintln!("  detour record -- COMMAND             what the node takes from one program");
    eprintln!("  detour doctor                        what this machine could record better");
}
