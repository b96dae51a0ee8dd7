//! Exports traces to other tools' formats: netgauge, LogGOPSim, CSV, JSON, HdrHistogram files and, with
//! everything a recording contains, Perfetto traces and Parquet tables.
//!
//! Everything streams: one block per lane is in memory, never the whole trace. What a format cannot
//! represent is left out: histograms have no times, netgauge and LogGOPSim no sources.

mod histogram;
mod lanes;
mod parquet;
mod perfetto;
mod protobuf;
mod text;

pub use text::lane_cell;

use std::io::{self, Read, Seek, Write};

use trace::LaneId;
use trace::Reader;
use trace::TraceError;

/// Formats that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// netgauge's noise file, one run per lane.
    Netgauge,
    /// LogGOPSim's noise file: a single time line, so several lanes become their union.
    LogGopSim,
    /// One row per detour.
    Csv,
    /// One row per kernel record, with its source.
    RecordsCsv,
    /// `{"runs": [...]}`, one per lane.
    Json,
    /// HdrHistogram interval log of the detour lengths, one interval per lane.
    HistogramLog,
    /// HdrHistogram percentile table of the detour lengths.
    Percentiles,
    /// Perfetto's native trace format: a track per lane, class and source.
    Perfetto,
    /// One row per part of a detour, and per record outside detours.
    Parquet,
}

impl ExportFormat {
    pub const ALL: [ExportFormat; 9] = [
        ExportFormat::Netgauge,
        ExportFormat::LogGopSim,
        ExportFormat::Csv,
        ExportFormat::RecordsCsv,
        ExportFormat::Json,
        ExportFormat::HistogramLog,
        ExportFormat::Percentiles,
        ExportFormat::Perfetto,
        ExportFormat::Parquet,
    ];
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("cannot write the exported file: {0}; check free space and permissions")]
    Io(#[from] io::Error),
    #[error("no lane {lane} in the trace (it has lanes 0 to {last})")]
    NoSuchLane { lane: u32, last: u32 },
    #[error("the trace has no lanes: nothing to export")]
    NoLanes,
    #[error("cannot build the histogram: {0}")]
    Histogram(String),
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    pub lanes: u64,
    /// Detours; records for [`ExportFormat::RecordsCsv`]; both for the formats that hold both.
    pub rows: u64,
}

/// Writes the detours of one lane, or of all, to `out`. Buffers internally.
pub fn export<R: Read + Seek>(
    reader: &Reader<R>,
    format: ExportFormat,
    lane: Option<LaneId>,
    out: impl Write,
) -> Result<Exported, ExportError> {
    let count = u32::try_from(reader.lanes().len()).unwrap_or(u32::MAX);
    let lanes: Vec<LaneId> = match lane {
        None if count == 0 => return Err(ExportError::NoLanes),
        None => (0..count).map(LaneId).collect(),
        Some(lane) if lane.0 < count => vec![lane],
        Some(LaneId(lane)) if count > 0 => {
            return Err(ExportError::NoSuchLane { lane, last: count - 1 });
        }
        Some(_) => return Err(ExportError::NoLanes),
    };
    let mut out = io::BufWriter::new(out);
    let rows = match format {
        ExportFormat::Netgauge => text::netgauge(reader, &lanes, &mut out),
        ExportFormat::LogGopSim => text::loggopsim(reader, &lanes, &mut out),
        ExportFormat::Csv => text::csv(reader, lane, &lanes, &mut out),
        ExportFormat::RecordsCsv => text::records_csv(reader, lane, &mut out),
        ExportFormat::Json => text::json(reader, &lanes, &mut out),
        ExportFormat::HistogramLog => histogram::log(reader, &lanes, &mut out),
        ExportFormat::Percentiles => histogram::percentiles(reader, &lanes, &mut out),
        ExportFormat::Perfetto => perfetto::perfetto(reader, lane, &mut out),
        ExportFormat::Parquet => parquet::parquet(reader, lane, &mut out),
    }?;
    out.flush()?;
    Ok(Exported { lanes: lanes.len() as u64, rows })
}
