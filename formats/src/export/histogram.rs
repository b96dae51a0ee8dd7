//! Distributions of detour lengths, as HdrHistogram files. Values are nanoseconds, three digits.

use std::io::{Read, Seek, Write};
use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::ExportError;
use super::lanes::{self, Detours};
use trace::LaneId;
use trace::Reader;

const DIGITS: u8 = 3;
/// Percentile lines per halving of the distance to 100 %, as in the other implementations.
const TICKS_PER_HALF: u32 = 5;
/// Longer values (146 years) are not lengths; the file formats hold signed numbers.
const LONGEST: u64 = 1 << 62;

pub(super) fn log<R: Read + Seek>(
    reader: &Reader<R>,
    all: &[LaneId],
    out: &mut impl Write,
) -> Result<u64, ExportError> {
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("[Histogram log format version 1.3]")
        .add_comment("lengths of detours in ns, one interval per lane")
        .begin_log_with(out, &mut serializer)?;
    let mut rows = 0;
    for &lane in all {
        let (from, to) = lanes::span(reader, lane);
        let lengths = lengths(reader, &[lane])?;
        rows += lengths.len();
        let name: String = lanes::name(reader, lane)
            .chars()
            .map(|c| if c == ',' || c.is_whitespace() || c.is_control() { '_' } else { c })
            .collect();
        let (start, length) = (Duration::from_nanos(from), Duration::from_nanos(to - from));
        log.write_histogram(&lengths, start, length, Tag::new(&name))
            .map_err(|error| ExportError::Histogram(format!("{error:?}")))?;
    }
    Ok(rows)
}

pub(super) fn percentiles<R: Read + Seek>(
    reader: &Reader<R>,
    all: &[LaneId],
    out: &mut impl Write,
) -> Result<u64, ExportError> {
    let lengths = lengths(reader, all)?;
    let total = lengths.len();
    writeln!(
        out,
        "{:>12} {:>14} {:>10} {:>14}",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    )?;
    writeln!(out)?;
    let mut so_far = 0;
    for step in lengths.iter_quantiles(TICKS_PER_HALF) {
        so_far += step.count_since_last_iteration();
        let (value, quantile) = (step.value_iterated_to() as f64, step.quantile_iterated_to());
        write!(out, "{value:>12.3} {quantile:>2.12} {so_far:>10}")?;
        match 1.0 / (1.0 - quantile) {
            odds if odds.is_finite() => writeln!(out, " {odds:>14.2}")?,
            _ => writeln!(out)?,
        }
    }
    let (mean, deviation) = (lengths.mean(), lengths.stdev());
    writeln!(out, "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]")?;
    writeln!(out, "#[Max     = {:>12.3}, Total count    = {total:>12}]", lengths.max() as f64)?;
    let (buckets, sub) = (lengths.buckets(), lengths.distinct_values());
    writeln!(out, "#[Buckets = {buckets:>12}, SubBuckets     = {sub:>12}]")?;
    let span: u128 = all
        .iter()
        .map(|&lane| lanes::span(reader, lane))
        .map(|(from, to)| u128::from(to - from))
        .sum();
    writeln!(out, "# span_ns = {span}")?;
    Ok(total)
}

fn lengths<R: Read + Seek>(
    reader: &Reader<R>,
    all: &[LaneId],
) -> Result<Histogram<u64>, ExportError> {
    let wrong = |error: &dyn std::fmt::Display| ExportError::Histogram(error.to_string());
    let mut lengths = Histogram::new(DIGITS).map_err(|error| wrong(&error))?;
    for &lane in all {
        for detour in Detours::of(reader, lane) {
            let length = detour?.len_ns.min(LONGEST);
            lengths.record(length).map_err(|error| wrong(&error))?;
        }
    }
    Ok(lengths)
}
