//! Detects formats by content. Extensions are unreliable, and noise files are often just `.txt`.

use std::fmt;

use super::ImportError;

/// Formats that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// netgauge's noise benchmark (`selfish`).
    Netgauge,
    /// A noise file as LogGOPSim reads it.
    LogGopSim,
    Csv,
    Json,
    /// HdrHistogram interval log, `.hlog`.
    HistogramLog,
    /// HdrHistogram percentile table, `.hgrm`.
    Percentiles,
}

impl Format {
    pub const fn name(self) -> &'static str {
        match self {
            Format::Netgauge => "netgauge",
            Format::LogGopSim => "loggopsim",
            Format::Csv => "csv",
            Format::Json => "json",
            Format::HistogramLog => "hlog",
            Format::Percentiles => "hgrm",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

pub(super) fn detect(file: &str, bytes: &[u8]) -> Result<Format, ImportError> {
    let file = || file.to_owned();
    let packed: [(&[u8], _, _); 4] = [
        (b"\x1f\x8b", "gzip", "gzip -d"),
        (b"\x28\xb5\x2f\xfd", "zstd", "zstd -d"),
        (b"BZh", "bzip2", "bzip2 -d"),
        (b"PK\x03\x04", "zip", "unzip"),
    ];
    if let Some(&(_, what, tool)) = packed.iter().find(|(magic, ..)| bytes.starts_with(magic)) {
        return Err(ImportError::Compressed { file: file(), what, tool });
    }
    if trace::is_trace(bytes) {
        return Err(ImportError::AlreadyATrace { file: file() });
    }
    // The beginning is enough, and limits the cost of a huge single-line file.
    let head = bytes.get(..bytes.len().min(1 << 16)).unwrap_or(bytes);
    if head.contains(&0) {
        return Err(ImportError::UnknownFormat { file: file(), why: "it is binary" });
    }
    let head = String::from_utf8_lossy(head);
    let lines = || head.lines().map(str::trim).filter(|line| !line.is_empty());
    let Some(first) = lines().next() else {
        return Err(ImportError::UnknownFormat { file: file(), why: "it is empty" });
    };
    if lines().any(|line| line.contains("HISTFAAA") || line.starts_with("\"StartTimestamp\"")) {
        return Ok(Format::HistogramLog);
    }
    if first.starts_with("Value") && first.contains("Percentile") {
        return Ok(Format::Percentiles);
    }
    if first.starts_with(['[', '{']) {
        return Ok(Format::Json);
    }
    let comments = || lines().take_while(|line| line.starts_with('#'));
    if comments().any(|line| line.contains("selfish") || line.contains("Minimal cycle length")) {
        return Ok(Format::Netgauge);
    }
    match lines().find(|line| !line.starts_with('#')) {
        Some(row)
            if row.contains(|c: char| c.is_ascii_alphabetic())
                && row.contains([',', ';', '\t']) =>
        {
            Ok(Format::Csv)
        }
        Some(row) if row.split_whitespace().all(|word| word.parse::<f64>().is_ok()) => {
            Ok(Format::LogGopSim)
        }
        None => Ok(Format::LogGopSim),
        Some(_) => Err(ImportError::UnknownFormat {
            file: file(),
            why: "its first line is neither a header nor numbers",
        }),
    }
}
