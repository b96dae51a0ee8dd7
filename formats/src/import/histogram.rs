//! HdrHistogram files: interval logs (`.hlog`) and percentile tables (`.hgrm`). They contain the lengths
//! of detours, not their times; values are read as nanoseconds.

use std::collections::BTreeMap;
use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

use super::check::quote;
use super::{ImportError, ImportedRun, Text};

const COOKIE: [u8; 4] = 0x1c84_9313_u32.to_be_bytes();
const PACKED_COOKIE: [u8; 4] = 0x1c84_9314_u32.to_be_bytes();
/// A five-digit histogram over the whole range has at most six million slots.
const MAX_HISTOGRAM: u64 = 64 << 20;
const PERCENTILES: &str = "rows of value, percentile and total count, as HdrHistogram writes them";

pub(super) fn read_log(text: &Text<'_>) -> Result<Vec<ImportedRun>, ImportError> {
    let mut run = ImportedRun::default();
    let mut sum: Option<Histogram<u64>> = None;
    // The time range of each tag's intervals: those of several CPUs overlap.
    let mut spans: BTreeMap<Option<&str>, (f64, f64)> = BTreeMap::new();
    // One line at a time: the iterator looks far ahead of a line that it does not know.
    let lines = (1..).zip(text.bytes.split_inclusive(|&byte| byte == b'\n'));
    let entries = lines.flat_map(|(number, line)| {
        IntervalLogIterator::new(line).map(move |entry| (number, entry))
    });
    for (number, entry) in entries {
        let entry = entry.map_err(|_| {
            text.line_error(number, "not an interval log line", "start,length,max,histogram")
        })?;
        match entry {
            LogEntry::StartTime(time) => {
                run.header.insert("StartTime".to_owned(), time.as_secs_f64().to_string());
            }
            LogEntry::BaseTime(time) => {
                run.header.insert("BaseTime".to_owned(), time.as_secs_f64().to_string());
            }
            LogEntry::Interval(interval) => {
                let start = interval.start_timestamp().as_secs_f64();
                let end = start + interval.duration().as_secs_f64();
                let tag = interval.tag().map(|tag| tag.as_str());
                let span = spans.entry(tag).or_insert((start, end));
                *span = (span.0.min(start), span.1.max(end));
                match decode(interval.encoded_histogram()).and_then(|part| add(&mut sum, part)) {
                    Ok(()) => {}
                    Err(_) if text.lenient => run.skipped_lines += 1,
                    Err(why) => {
                        return Err(text.content_error(format!("the interval at {start} s: {why}")));
                    }
                }
            }
        }
    }
    if let Some(sum) = sum {
        for bin in sum.iter_recorded() {
            let to = bin.value_iterated_to();
            run.distribution.push((to as f64, bin.count_since_last_iteration()));
            run.from.push(sum.lowest_equivalent(to) as f64);
        }
    }
    run.span_ns = spans.values().map(|(from, to)| (to - from).max(0.0)).sum::<f64>() * 1e9;
    run.remarks.push(DISTRIBUTION_ONLY.to_owned());
    Ok(vec![run])
}

const DISTRIBUTION_ONLY: &str = "a histogram contains the lengths of detours, not their times; \
                                 values are read as nanoseconds";

fn add(sum: &mut Option<Histogram<u64>>, part: Histogram<u64>) -> Result<(), String> {
    match sum {
        None => *sum = Some(part),
        Some(sum) => {
            sum.auto(true);
            sum.add(part).map_err(|error| format!("cannot be added to the others: {error}"))?;
        }
    }
    Ok(())
}

/// Decodes a histogram. The library trusts the lengths in the data, so they are checked first.
fn decode(encoded: &str) -> Result<Histogram<u64>, String> {
    let bytes = STANDARD.decode(encoded.trim()).map_err(|error| format!("not base64: {error}"))?;
    let plain = match bytes.strip_prefix(&PACKED_COOKIE).and_then(|rest| rest.get(4..)) {
        None => bytes,
        Some(packed) => {
            let mut plain = Vec::new();
            ZlibDecoder::new(packed)
                .take(MAX_HISTOGRAM)
                .read_to_end(&mut plain)
                .map_err(|error| format!("cannot decompress: {error}"))?;
            plain
        }
    };
    let length = plain
        .strip_prefix(&COOKIE)
        .and_then(|rest| rest.first_chunk::<4>())
        .map(|length| u32::from_be_bytes(*length) as usize)
        .ok_or("not a version 2 histogram")?;
    // Cookie, length, offset, digits, range and ratio precede the counts.
    let counts = plain.get(40..).ok_or("too short")?;
    if length > counts.len() {
        return Err("truncated".to_owned());
    }
    // The only count whose negation overflows.
    if counts.windows(9).any(|nine| nine.iter().all(|&b| b == 0xff)) {
        return Err("a count is out of range".to_owned());
    }
    Deserializer::new().deserialize(&mut plain.as_slice()).map_err(|error| error.to_string())
}

pub(super) fn read_percentiles(text: &Text<'_>) -> Result<Vec<ImportedRun>, ImportError> {
    let mut run = ImportedRun::default();
    let mut before = 0;
    for (number, line) in text.lines() {
        if line.starts_with("Value") || line.starts_with('"') {
            continue;
        }
        if let Some(comment) = line.strip_prefix('#') {
            note_comment(&mut run, comment);
            continue;
        }
        let last = run.distribution.last().map(|&(value, _)| value);
        match percentile_row(&line, last, before) {
            Ok((value, total)) if total > before => {
                run.distribution.push((value, total - before));
                before = total;
            }
            Ok(_) => {}
            Err(_) if text.lenient => run.skipped_lines += 1,
            Err(why) => return Err(text.line_error(number, why, PERCENTILES)),
        }
    }
    // A row counts what is above the row before it, even if that is several bins below.
    let above = |value: f64| value + if value.fract() == 0.0 { 1.0 } else { 1e-3 };
    let before = run.distribution.iter().map(|&(value, _)| above(value));
    let first = run.distribution.first().map(|&(value, _)| first_from(value, &run.header));
    run.from = first.into_iter().chain(before).take(run.distribution.len()).collect();
    for (from, (value, _)) in run.from.iter_mut().zip(&run.distribution) {
        *from = from.min(*value);
    }
    run.remarks.push(DISTRIBUTION_ONLY.to_owned());
    run.remarks.push(
        "a percentile file has fewer rows than its histogram had bins: all that is between two rows counts with the \
         upper one, so means and the time lost are too large by up to that distance (a .hlog file has all bins)"
            .to_owned(),
    );
    Ok(vec![run])
}

/// The lower end of the first bin, if the file says how many there are for every doubling.
fn first_from(value: f64, header: &BTreeMap<String, String>) -> f64 {
    let sub_buckets = header.get("SubBuckets").and_then(|text| text.parse::<u64>().ok());
    let Some(half) = sub_buckets.map(|sub| sub / 2).filter(|half| *half > 0) else { return value };
    let whole = value.max(0.0) as u64;
    let mut width = 1u64;
    while width <= whole / half / 2 {
        width *= 2;
    }
    (whole / width * width) as f64
}

fn percentile_row(line: &str, last: Option<f64>, before: u64) -> Result<(f64, u64), String> {
    let words: Vec<&str> =
        line.split(|c: char| c.is_whitespace() || c == ',').filter(|w| !w.is_empty()).collect();
    let (Some(value), Some(total)) = (words.first(), words.get(2)) else {
        return Err(format!("`{}` is not a row of a percentile table", quote(line)));
    };
    let value: f64 = value.parse().map_err(|_| format!("`{}` is not a number", quote(value)))?;
    let total: u64 = total.parse().map_err(|_| format!("`{}` is not a count", quote(total)))?;
    if !value.is_finite() || value < 0.0 || last.is_some_and(|last| value < last) || total < before
    {
        return Err("values and counts must not decrease".to_owned());
    }
    Ok((value, total))
}

/// `#[Mean    =      123.45, StdDeviation   =       67.89]`, and `# span_ns = 10` from our own exports.
fn note_comment(run: &mut ImportedRun, comment: &str) {
    for part in comment.trim_matches(|c| c == '[' || c == ']' || c == ' ').split(',') {
        if let Some((key, value)) = part.split_once('=') {
            let (key, value) = (key.trim(), value.trim());
            if key == "span_ns" {
                let span = value.parse::<f64>().ok().filter(|span| span.is_finite());
                run.span_ns = span.unwrap_or(0.0).max(0.0);
            }
            run.header.insert(key.to_owned(), value.to_owned());
        }
    }
}
