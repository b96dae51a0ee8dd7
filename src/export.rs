//! `detour export`: writes a recording in another tool's format.

use std::{io::Write, process::ExitCode};

use anyhow::{Result, bail};
use formats::export::{ExportFormat, export as write_format};
use study::recording::{
    export::{self, Quantum},
    open::{self, AnyReader},
    summary::summarise,
};
use trace::LaneId;

use crate::{
    cli::{self, Format as Name},
    output,
};

pub fn run(options: &cli::Export) -> Result<ExitCode> {
    output::check([&options.output])?;
    let reader = open::open(&options.trace)?;
    let lane = options.cpu.map(|cpu| export::lane_of(&reader, cpu)).transpose()?;
    match &options.output {
        None => write(&reader, options, lane, &mut std::io::stdout().lock())?,
        Some(path) => output::save(path, |out| write(&reader, options, lane, out))?,
    }
    output::remark(open::remark_if_not_whole(&reader).as_slice());
    Ok(ExitCode::SUCCESS)
}

fn write(
    reader: &AnyReader,
    options: &cli::Export,
    lane: Option<LaneId>,
    out: &mut dyn Write,
) -> Result<()> {
    let quantum_ns = options.quantum.as_nanos() as u64;
    let format = match options.to {
        Name::Netgauge => ExportFormat::Netgauge,
        Name::Loggopsim => ExportFormat::LogGopSim,
        Name::Csv => ExportFormat::Csv,
        Name::RecordsCsv => ExportFormat::RecordsCsv,
        Name::Json => ExportFormat::Json,
        Name::Hlog => ExportFormat::HistogramLog,
        Name::Hgrm => ExportFormat::Percentiles,
        Name::Perfetto => ExportFormat::Perfetto,
        Name::Parquet => ExportFormat::Parquet,
        Name::Fwq => return export::quanta(reader, Quantum::FixedWork(quantum_ns), lane, out),
        Name::Ftq => return export::quanta(reader, Quantum::FixedTime(quantum_ns), lane, out),
        Name::Openmetrics => return metrics(reader, options, lane, out),
    };
    write_format(reader, format, lane, out)?;
    Ok(())
}

/// Metrics cover the whole recording: a part of it would have other values under the same names.
fn metrics(
    reader: &AnyReader,
    options: &cli::Export,
    lane: Option<LaneId>,
    out: &mut dyn Write,
) -> Result<()> {
    if lane.is_some() {
        bail!("-c does not apply to openmetrics, which covers all CPUs of a recording: omit -c");
    }
    let (summary, _) = summarise(reader);
    let bounds = report::Bounds { sources: options.top as usize };
    write!(out, "{}", report::openmetrics(&summary, bounds))?;
    Ok(())
}
