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

    /// Where a file of this format says when the measurement began and ended.
    pub(super) const fn how_to_give_the_window(self) -> &'static str {
        match self {
            Format::Netgauge | Format::LogGopSim => "add the line '# Watched [ns]: BEGIN END'",
            Format::Csv => {
                "add columns watched_from_ns and watched_to_ns, with values in a row of each lane"
            }
            Format::Json => "add from_ns and span_ns to each run",
            Format::HistogramLog | Format::Percentiles => "use a format with times",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// With `lenient`, malformed lines at the beginning do not matter.
pub(super) fn detect(file: &str, bytes: &[u8], lenient: bool) -> Result<Format, ImportError> {
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
        Some(row) if is_numbers(row) => Ok(Format::LogGopSim),
        None => Ok(Format::LogGopSim),
        Some(_) if lenient && any_row_of_numbers(bytes) => Ok(Format::LogGopSim),
        Some(_) => Err(ImportError::UnknownFormat {
            file: file(),
            why: "its first line is neither a header nor numbers",
        }),
    }
}

fn is_numbers(row: &str) -> bool {
    row.split_whitespace().all(|word| word.parse::<f64>().is_ok())
}

/// Whether some line is a detour of a noise file, however many are not.
fn any_row_of_numbers(bytes: &[u8]) -> bool {
    bytes.split(|&byte| byte == b'\n').any(|line| {
        let row = std::str::from_utf8(line).unwrap_or_default();
        row.split_whitespace().count() > 1 && is_numbers(row)
    })
}

#[cfg(test)]
mod tests {
    use super::super::{ImportOptions, import_bytes};

    /// A file whose malformed lines come first is not of an unknown format.
    #[test]
    fn a_mostly_malformed_file_is_called_that() {
        let bad = "garbage here\n".repeat(90);
        let good =
            |lines: u64| (0..lines).map(|i| format!("{} 0.001\n", i + 1)).collect::<String>();
        let read = |text: &str, lenient| {
            let options = ImportOptions { lenient, ..ImportOptions::default() };
            import_bytes("noise.txt", text.as_bytes(), &options)
        };
        let mostly = read(&format!("{bad}{}", good(10)), true).expect_err("mostly malformed");
        assert!(
            mostly.to_string().contains("90 of 100 lines of noise.txt are malformed"),
            "{mostly}"
        );
        let some = read(&format!("{bad}{}", good(200)), true).expect("a few are skipped");
        assert_eq!((some.runs[0].skipped_lines, some.runs[0].count()), (90, 200));
        let strict = read(&format!("{bad}{}", good(200)), false).expect_err("not lenient");
        assert!(strict.to_string().contains("unknown format"), "{strict}");
        let none = read(&bad, true).expect_err("nothing of a noise file");
        assert!(none.to_string().contains("unknown format"), "{none}");
    }
}
