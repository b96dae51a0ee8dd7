//! Reads other tools' noise files: netgauge, LogGOPSim, CSV, JSON, and HdrHistogram logs.
//!
//! The input is bytes, the result runs: lists of detours with what the file says about how they were
//! measured. The format is detected from the content. Times become nanoseconds as `f64`, as exact as in
//! the file. A malformed line is an error with its number, unless [`ImportOptions::lenient`] is set:
//! then it is skipped and counted. If more lines are skipped than read, the format was wrong, which is
//! an error in either case.
//!
//! JSON is read in these shapes, and [`crate::export`] writes the last:
//! `[[start, length], …]`, `[{"start_ns": …, "len_ns": …}, …]`, `{"detours": […]}` and
//! `{"runs": [{"t_min_ns": …, "threshold_ns": …, "from_ns": …, "span_ns": …, "header": {…}, "detours": […]},
//! …]}`.

mod check;
mod clock_step;
mod csv;
mod detect;
mod histogram;
mod json;
mod netgauge;
mod round_trips;
mod to_trace;
mod unit;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

pub use detect::Format;
pub use round_trips::{RoundTrips, round_trips};
pub use to_trace::{ImportedTrace, imported_to_trace, runs_to_trace};

/// Limit of the decompressed size; noise files are a few megabytes. In memory they take several times as
/// much.
const MAX_TEXT: u64 = 256 << 20;
/// Memory limit of the xz decoder: `xz -9` needs 65 MiB.
const XZ_MEMORY_KIB: u32 = 256 << 10;

/// A file of another tool, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    pub format: Format,
    pub runs: Vec<ImportedRun>,
}

/// One measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportedRun {
    /// Metadata of the run, as in the file.
    pub header: BTreeMap<String, String>,
    pub t_min_ns: Option<f64>,
    pub threshold_ns: Option<f64>,
    /// The clock's resolution, if all lengths are multiples of a coarse step.
    pub clock_step_ns: Option<f64>,
    /// When the measurement began, on the clock of the detours' starts. If not in the file, 0, or the
    /// first detour if the clock was started long before the measurement.
    pub from_ns: f64,
    /// Whether that is in the file.
    pub from_known: bool,
    /// How long the measurement lasted: from the file, or else up to the end of the last detour.
    pub span_ns: f64,
    /// Start and length, nanoseconds, in time order, without overlap. Empty if the file contains only a
    /// distribution.
    pub detours: Vec<(f64, f64)>,
    /// Length (nanoseconds) and count, ascending, for files that contain only a distribution.
    pub distribution: Vec<(f64, u64)>,
    /// Of each of these, the smallest length that is counted with it: the lower end of its bin. As many.
    pub from: Vec<f64>,
    /// Lines skipped under [`ImportOptions::lenient`].
    pub skipped_lines: u64,
    /// Remarks for readers of the results, as text.
    pub remarks: Vec<String>,
    /// The one of them about a window that begins at the first detour.
    pub window_remark: Option<String>,
}

impl ImportedRun {
    /// Number of detours, whether or not their times are known.
    pub fn count(&self) -> u64 {
        let counts = self.distribution.iter().map(|(_, count)| *count);
        counts.fold(self.detours.len() as u64, u64::saturating_add)
    }

    /// Lines or list entries that were read.
    pub fn rows(&self) -> u64 {
        (self.detours.len() + self.distribution.len()) as u64
    }

    /// Time lost, nanoseconds.
    pub fn lost_ns(&self) -> f64 {
        let known = self.detours.iter().map(|&(_, length)| length);
        let counted = self.distribution.iter().map(|&(length, count)| length * count as f64);
        // Starts at 0.0 because an empty sum of floats is -0.
        known.chain(counted).fold(0.0, |sum, ns| sum + ns)
    }

    /// Share of the measured time that was lost, per cent; 0 if no time was measured.
    pub fn noise_pct(&self) -> f64 {
        if self.span_ns > 0.0 { 100.0 * self.lost_ns() / self.span_ns } else { 0.0 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportOptions {
    /// Skip and count malformed lines instead of failing.
    pub lenient: bool,
    /// Read as this format instead of detecting it.
    pub format: Option<Format>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    #[error("cannot read {file}: {source}; check the path and the permissions")]
    Io {
        file: String,
        #[source]
        source: io::Error,
    },
    #[error("{file} is compressed ({what}): decompress it first with `{tool}`")]
    Compressed { file: String, what: &'static str, tool: &'static str },
    #[error("cannot decompress {file}: {source}; check it with `xz -t`")]
    Xz {
        file: String,
        #[source]
        source: io::Error,
    },
    #[error("{file} is larger than {limit} bytes: split it")]
    TooLarge { file: String, limit: u64 },
    #[error("{file} is already a detour trace: use it directly")]
    AlreadyATrace { file: String },
    #[error(
        "{file} has an unknown format ({why}); expected a netgauge or LogGOPSim noise file, CSV, \
         JSON, .hlog or .hgrm"
    )]
    UnknownFormat { file: String, why: &'static str },
    #[error("{file}, line {line}: {why}; expected {expected}")]
    Line { file: String, line: u64, why: String, expected: &'static str },
    #[error("{file}: {why}")]
    Content { file: String, why: String },
    #[error("{file} contains no detours: nothing to import")]
    Empty { file: String },
    #[error(
        "{skipped} of {lines} lines of {file} are malformed (not valid {format}): too many to skip; run \
         without --lenient to see the first of them"
    )]
    MostlyUnreadable { file: String, format: Format, skipped: u64, lines: u64 },
    #[error(
        "{file} contains netgauge round-trip times, not detours: use it with `detour simulate \
         exchange` and --exchange or --measured"
    )]
    RoundTrips { file: String },
    #[error("a distribution has no start times: it can be compared but not converted to a trace")]
    NoTimes,
}

/// Reads a file, xz-compressed or plain.
pub fn import_file(
    path: impl AsRef<Path>,
    options: &ImportOptions,
) -> Result<Imported, ImportError> {
    let path = path.as_ref();
    import_bytes(&path.display().to_string(), &read_file(path)?, options)
}

/// A file's bytes, up to just above the limit that [`unpacked`] enforces.
pub fn read_file(path: &Path) -> Result<Vec<u8>, ImportError> {
    let fail = |source| ImportError::Io { file: path.display().to_string(), source };
    let file = File::open(path).map_err(fail)?;
    let mut bytes = Vec::new();
    file.take(MAX_TEXT + 1).read_to_end(&mut bytes).map_err(fail)?;
    Ok(bytes)
}

/// Reads a file's content; `file` is for messages.
pub fn import_bytes(
    file: &str,
    bytes: &[u8],
    options: &ImportOptions,
) -> Result<Imported, ImportError> {
    import_text(file, &unpacked(file, bytes)?, options)
}

/// A file's content, decompressed if it is xz; `file` is for messages.
pub fn unpacked<'a>(file: &str, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, ImportError> {
    if bytes.len() as u64 > MAX_TEXT {
        return Err(ImportError::TooLarge { file: file.to_owned(), limit: MAX_TEXT });
    }
    match bytes.starts_with(b"\xfd7zXZ\0") {
        true => unpack_xz(file, bytes).map(Cow::Owned),
        false => Ok(Cow::Borrowed(bytes)),
    }
}

fn unpack_xz(file: &str, bytes: &[u8]) -> Result<Vec<u8>, ImportError> {
    let mut text = Vec::new();
    lzma_rust2::XzReader::new_mem_limit(bytes, true, XZ_MEMORY_KIB)
        .take(MAX_TEXT + 1)
        .read_to_end(&mut text)
        .map_err(|source| ImportError::Xz { file: file.to_owned(), source })?;
    if text.len() as u64 > MAX_TEXT {
        return Err(ImportError::TooLarge { file: file.to_owned(), limit: MAX_TEXT });
    }
    Ok(text)
}

fn import_text(file: &str, bytes: &[u8], options: &ImportOptions) -> Result<Imported, ImportError> {
    // Some editors write a byte order mark.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let format = match options.format {
        Some(format) => format,
        None => detect::detect(file, bytes, options.lenient)?,
    };
    if format == Format::LogGopSim && options.format.is_none() && round_trips(bytes).is_some() {
        return Err(ImportError::RoundTrips { file: file.to_owned() });
    }
    let source = Text { file, bytes, lenient: options.lenient };
    let mut runs = match format {
        Format::Netgauge => netgauge::read_netgauge(&source)?,
        Format::LogGopSim => netgauge::read_loggopsim(&source)?,
        Format::Csv => csv::read(&source)?,
        Format::Json => json::read(&source)?,
        Format::HistogramLog => histogram::read_log(&source)?,
        Format::Percentiles => histogram::read_percentiles(&source)?,
    };
    let skipped: u64 = runs.iter().map(|run| run.skipped_lines).sum();
    let read: u64 = runs.iter().map(ImportedRun::rows).sum();
    if skipped > read {
        let (file, lines) = (file.to_owned(), skipped + read);
        return Err(ImportError::MostlyUnreadable { file, format, skipped, lines });
    }
    // A run without detours is valid if the file says how long it lasted.
    if runs.iter().all(|run| run.count() == 0 && run.span_ns <= 0.0) {
        return Err(ImportError::Empty { file: file.to_owned() });
    }
    begin_at_first_detour(&mut runs, format);
    for run in &mut runs {
        finish(run);
        if !check::is_time(run.from_ns) || !check::is_time(run.span_ns) {
            return Err(source.content_error(format!(
                "the measured time is out of range ({} ns from {} ns)",
                run.span_ns, run.from_ns
            )));
        }
    }
    Ok(Imported { format, runs })
}

/// Times on a clock that was started long before the measurement, such as that of the host: the time
/// since its 0 was not watched.
fn begin_at_first_detour(runs: &mut [ImportedRun], format: Format) {
    let begins = |run: &ImportedRun| {
        let (&(first, _), &(start, length)) = (run.detours.first()?, run.detours.last()?);
        let span = run.span_ns.max(start + length - first);
        (!run.from_known && first > span).then_some((first, span))
    };
    // A run that is nothing but one detour has no time in between that would be its measured time.
    let has_gaps = |run: &ImportedRun, span: f64| run.lost_ns() < span;
    let own = |run: &ImportedRun| begins(run).filter(|&(_, span)| has_gaps(run, span));
    let Some(earliest) = runs.iter().filter_map(own).map(|(first, _)| first).reduce(f64::min)
    else {
        return;
    };
    for run in runs {
        let from = match begins(run) {
            Some((first, span)) if has_gaps(run, span) => first,
            // The other runs show where the clock was.
            Some((first, _)) if first > earliest => earliest,
            _ => continue,
        };
        run.from_ns = from;
        let remark = format!(
            "the file does not say when the measurement began, and its times are far from 0: it is \
             taken to begin at the first detour; to give its begin and end, {}",
            format.how_to_give_the_window()
        );
        run.remarks.push(remark.clone());
        run.window_remark = Some(remark);
    }
}

/// What all formats have in common once the detours are known.
fn finish(run: &mut ImportedRun) {
    let end = run.detours.last().map_or(0.0, |(start, length)| start + length);
    // Detours cannot start before the window, so extend it.
    run.from_ns = run.detours.first().map_or(run.from_ns, |(start, _)| run.from_ns.min(*start));
    // Periods are often given only to the hundredth of a second: the last detour may end later.
    run.span_ns = run.span_ns.max(end - run.from_ns);
    run.clock_step_ns = clock_step::detect(&run.detours);
    if let Some(step) = run.clock_step_ns {
        run.remarks.push(format!(
            "clock resolution is about {step:.0} ns: shorter detours are not visible and lengths \
             are multiples of it"
        ));
    }
    if let Some(remark) = run.t_min_ns.and_then(|t_min| unusual(t_min, run.threshold_ns)) {
        run.remarks.push(remark);
    }
    if run.skipped_lines > 0 {
        run.remarks.push(format!("{} lines skipped as malformed", run.skipped_lines));
    }
}

/// Duration of a loop of two timestamps, nanoseconds: a few on a quiet machine with a counter readable
/// from user space, a few hundred with a system call.
const USUAL_T_MIN_NS: std::ops::RangeInclusive<f64> = 1.0..=200.0;

fn unusual(t_min_ns: f64, threshold_ns: Option<f64>) -> Option<String> {
    if USUAL_T_MIN_NS.contains(&t_min_ns) {
        return None;
    }
    let usual = "a loop of two timestamps takes 5 to 100 ns";
    if t_min_ns < *USUAL_T_MIN_NS.start() {
        return Some(format!(
            "t_min is {t_min_ns:.3} ns, shorter than any clock read ({usual}): check the unit"
        ));
    }
    let hidden = match threshold_ns {
        Some(threshold) => format!("detours below the threshold of {threshold:.0} ns"),
        None => "short detours".to_owned(),
    };
    Some(format!(
        "t_min is {t_min_ns:.0} ns, unusually long ({usual}): the clock was slow, or every \
         iteration was interrupted; {hidden} are not in this file"
    ))
}

/// The content of a file, and what error messages about it need.
struct Text<'a> {
    file: &'a str,
    bytes: &'a [u8],
    lenient: bool,
}

impl<'a> Text<'a> {
    /// Lines that are not empty, trimmed, with their numbers. Invalid UTF-8 becomes replacement
    /// characters: harmless in comments, and an error elsewhere.
    fn lines(&self) -> impl Iterator<Item = (u64, std::borrow::Cow<'a, str>)> + use<'a> {
        (1..)
            .zip(self.bytes.split(|&b| b == b'\n'))
            .map(|(number, line)| (number, String::from_utf8_lossy(line.trim_ascii())))
            .filter(|(_, line)| !line.is_empty())
    }

    fn line_error(&self, line: u64, why: impl Into<String>, expected: &'static str) -> ImportError {
        ImportError::Line { file: self.file.to_owned(), line, why: why.into(), expected }
    }

    fn content_error(&self, why: impl Into<String>) -> ImportError {
        ImportError::Content { file: self.file.to_owned(), why: why.into() }
    }
}
