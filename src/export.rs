//! `detour export`: writes a recording in another tool's format.

use std::{io::Write, process::ExitCode};

use ::simulate::{noise::Detours, quantum};
use anyhow::{Context, Result, bail};
use trace::{Lane, LaneId, export};

use crate::{
    cli::{self, Format},
    open::{self, AnyReader},
    results,
};

pub fn run(options: &cli::Export) -> Result<ExitCode> {
    let reader = open::open(&options.trace)?;
    let lane = options.cpu.map(|cpu| lane_of(&reader, cpu)).transpose()?;
    match &options.output {
        None => write(&reader, options, lane, &mut std::io::stdout().lock())?,
        Some(path) => results::save(path, |out| write(&reader, options, lane, out))?,
    }
    open::warn_if_not_whole(&reader);
    Ok(ExitCode::SUCCESS)
}

fn lane_of(reader: &AnyReader, cpu: u32) -> Result<LaneId> {
    let all = (0u32..).zip(reader.lanes());
    let lanes: Vec<u32> =
        all.filter(|(_, lane)| **lane == Lane::Cpu { cpu }).map(|(id, _)| id).collect();
    match lanes[..] {
        [] => bail!("{} has no CPU {cpu}", reader.name()),
        [lane] => Ok(LaneId(lane)),
        _ => bail!(
            "{} has a CPU {cpu} on each of {} nodes: omit -c, or export the trace of a single node",
            reader.name(),
            lanes.len()
        ),
    }
}

fn write(
    reader: &AnyReader,
    options: &cli::Export,
    lane: Option<LaneId>,
    out: &mut dyn Write,
) -> Result<()> {
    let format = match options.to {
        Format::Netgauge => export::ExportFormat::Netgauge,
        Format::Loggopsim => export::ExportFormat::LogGopSim,
        Format::Csv => export::ExportFormat::Csv,
        Format::RecordsCsv => export::ExportFormat::RecordsCsv,
        Format::Json => export::ExportFormat::Json,
        Format::Hlog => export::ExportFormat::HistogramLog,
        Format::Hgrm => export::ExportFormat::Percentiles,
        Format::Openmetrics => return metrics(reader, options, lane, out),
        Format::Perfetto => export::ExportFormat::Perfetto,
        Format::Parquet => export::ExportFormat::Parquet,
        Format::Fwq | Format::Ftq => return series(reader, options, lane, out),
    };
    export::export(reader, format, lane, out)?;
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
    let (summary, _) = crate::report::summarise(reader);
    let bounds = report::Bounds { sources: options.top as usize };
    write!(out, "{}", report::openmetrics(&summary, bounds))?;
    Ok(())
}

/// Fixed work and fixed time quanta, lane by lane.
fn series(
    reader: &AnyReader,
    options: &cli::Export,
    lane: Option<LaneId>,
    out: &mut dyn Write,
) -> Result<()> {
    let quantum_ns = options.quantum.as_nanos() as u64;
    if reader.lanes().is_empty() {
        bail!("{} has no CPUs or threads to export", reader.name());
    }
    let fwq = options.to == Format::Fwq;
    writeln!(out, "{}", if fwq { "lane,start_ns,took_ns" } else { "lane,start_ns,work_ns" })?;
    for index in 0..reader.lanes().len() as u32 {
        if lane.is_some_and(|wanted| wanted.0 != index) {
            continue;
        }
        let mut detours = Vec::new();
        for block in reader.blocks_of(LaneId(index)) {
            detours.extend(block?.detours.iter().map(|d| (d.start_ns, d.len_ns)));
        }
        let detours = Detours::new(detours).with_context(|| {
            format!("cannot compute quanta for lane {index} of {}", reader.name())
        })?;
        let (from, to) = match reader.totals(LaneId(index)) {
            Some(totals) => (totals.from_ns, totals.to_ns),
            None => detours.span(),
        };
        let name = export::lane_cell(reader, LaneId(index));
        if fwq {
            for (start, took) in quantum::fixed_work(&detours, from, to, quantum_ns)? {
                writeln!(out, "{name},{start},{took}")?;
            }
        } else {
            for (start, work) in quantum::fixed_time(&detours, from, to, quantum_ns)? {
                writeln!(out, "{name},{start},{work}")?;
            }
        }
    }
    Ok(())
}
