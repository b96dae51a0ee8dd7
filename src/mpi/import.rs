//! `detour mpi import`: traces of other collectors.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use program::{Accept, Import};

use crate::output;

#[derive(Args)]
pub struct Options {
    /// Directory of liballprof's traces, one text file per rank
    path: PathBuf,
    /// New directory for the traces
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Also import runs with missing ranks
    #[arg(long)]
    partial: bool,
    /// Skip lines that cannot be parsed; they count as lost calls
    #[arg(long)]
    lenient: bool,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<()> {
    if options.path.is_file() {
        bail!(
            "{} is not a directory of traces: unpack an archive first, e.g. with tar -xf",
            options.path.display()
        );
    }
    let accept = Accept { partial: options.partial, lenient: options.lenient };
    let imported = program::import(&options.path, &options.output, accept)?;
    output::print(&imported, options.json, |imported, _| said(imported))?;
    output::say_written(&options.output);
    Ok(())
}

fn said(imported: &Import) -> String {
    let Import { ranks, missing, lines, events, unrecorded, unknown, .. } = imported;
    let mut text = format!("{ranks} ranks, {lines} lines: {events} calls imported");
    if *unrecorded > 0 {
        text += &format!(", {unrecorded} unsupported calls skipped");
    }
    if *unknown > 0 {
        text += &format!(", {unknown} lines that cannot be parsed");
    }
    text.push('\n');
    if !missing.is_empty() {
        text += &format!("missing ranks: {missing}\n");
    }
    if imported.communicators > 0 {
        text += "These traces lack the members of communicators: programs that use any but \
                 MPI_COMM_WORLD can be reported, but not simulated.\n";
    }
    if imported.tests > 0 {
        text += "These traces lack the results of tests: a request that is only tested counts as \
                 incomplete.\n";
    }
    for example in &imported.examples {
        text += &format!("cannot parse: {}\n", report::message_safe(example));
    }
    text
}
