//! Distributions as files for other tools: HdrHistogram interval logs (`.hlog`, version 1.3,
//! compressed), percentile tables (`.hgrm`) and CSV. Values are in the distribution's unit, which is
//! named in a comment.

use std::io::{self, Write};
use std::time::Duration;

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use thiserror::Error;

use super::Distribution;

#[derive(Debug, Error)]
pub enum ExportError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("cannot serialise the histogram: {0}")]
    Histogram(String),
}

/// Percentile lines per halving of the distance to 100 %, as in the other implementations.
const TICKS_PER_HALF: u32 = 5;

impl Distribution {
    /// One interval per named distribution.
    pub fn write_hlog(
        named: &[(&str, &Distribution)],
        out: &mut impl Write,
    ) -> Result<(), ExportError> {
        let units: Vec<_> = named.iter().map(|(_, all)| all.unit().name()).collect();
        let mut serializer = V2DeflateSerializer::new();
        let mut log = IntervalLogWriterBuilder::new()
            .add_comment("[Histogram log format version 1.3]")
            .add_comment(&format!("simulated times in {}", units.join(", ")))
            .begin_log_with(out, &mut serializer)?;
        for (name, all) in named {
            let name: String = name
                .chars()
                .map(|c| if c == ',' || c.is_whitespace() || c.is_control() { '_' } else { c })
                .collect();
            log.write_histogram(all.histogram(), Duration::ZERO, Duration::ZERO, Tag::new(&name))
                .map_err(|error| ExportError::Histogram(format!("{error:?}")))?;
        }
        Ok(())
    }

    /// The percentile table.
    pub fn write_hgrm(&self, out: &mut impl Write) -> Result<(), ExportError> {
        let all = self.histogram();
        let unit = self.unit().ps() as f64;
        writeln!(
            out,
            "{:>12} {:>14} {:>10} {:>14}\n",
            "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
        )?;
        let mut so_far = 0;
        for step in all.iter_quantiles(TICKS_PER_HALF) {
            so_far += step.count_since_last_iteration();
            let (value, quantile) = (step.value_iterated_to() as f64, step.quantile_iterated_to());
            write!(out, "{value:>12.3} {quantile:>2.12} {so_far:>10}")?;
            match 1.0 / (1.0 - quantile) {
                odds if odds.is_finite() => writeln!(out, " {odds:>14.2}")?,
                _ => writeln!(out)?,
            }
        }
        let (mean, deviation) = (self.mean() / unit, self.sd() / unit);
        writeln!(out, "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]")?;
        let (max, total) = (self.max() as f64 / unit, self.len());
        writeln!(out, "#[Max     = {max:>12.3}, Total count    = {total:>12}]")?;
        let (buckets, sub) = (all.buckets(), all.distinct_values());
        writeln!(out, "#[Buckets = {buckets:>12}, SubBuckets     = {sub:>12}]")?;
        writeln!(out, "# unit = {}", self.unit().name())?;
        Ok(())
    }

    /// One row per non-empty bin: bounds in ps, count, and the cumulative share.
    pub fn write_csv(&self, out: &mut impl Write) -> Result<(), ExportError> {
        writeln!(out, "from_ps,to_ps,count,cumulative")?;
        let mut so_far = 0;
        for bin in self.bins() {
            so_far += bin.count;
            let share = so_far as f64 / self.len() as f64;
            writeln!(out, "{},{},{},{share:.9}", bin.low, bin.high, bin.count)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;

    fn some() -> Distribution {
        let times: Vec<_> = (1..=1000).map(|i| i * 1_000_000).collect();
        Distribution::of(&times).unwrap()
    }

    /// Reads a log with the library's reader.
    fn read(log: &[u8]) -> Vec<(String, Histogram<u64>)> {
        let unpack = |text: &str| {
            let bit = |c: u8| {
                let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
                alphabet.iter().position(|&a| a == c).unwrap() as u32
            };
            let text = text.trim_end_matches('=').as_bytes();
            let bytes = text.chunks(4).flat_map(|four| {
                let bits = four.iter().fold(0, |bits, &c| bits << 6 | bit(c));
                let bits = bits << (6 * (4 - four.len()));
                bits.to_be_bytes()[1..four.len()].to_vec()
            });
            Deserializer::new().deserialize(&mut bytes.collect::<Vec<u8>>().as_slice()).unwrap()
        };
        let entries = IntervalLogIterator::new(log).map(|entry| entry.unwrap());
        let intervals = entries.filter_map(|entry| match entry {
            LogEntry::Interval(interval) => Some(interval),
            _ => None,
        });
        intervals
            .map(|interval| {
                let tag = interval.tag().map(|tag| tag.as_str().to_owned()).unwrap_or_default();
                (tag, unpack(interval.encoded_histogram()))
            })
            .collect()
    }

    #[test]
    fn a_log_reads_back_as_the_same_histograms() {
        let all = some();
        let mut log = Vec::new();
        Distribution::write_hlog(&[("idle, all", &all), ("total", &all)], &mut log).unwrap();
        let back = read(&log);
        assert_eq!(back.len(), 2);
        assert_eq!(back[0].0, "idle__all");
        assert!(back.iter().all(|(_, histogram)| histogram == all.histogram()));
        assert_eq!(back[1].1.value_at_quantile(0.5), all.histogram().value_at_quantile(0.5));
    }

    #[test]
    fn a_percentile_table_ends_with_all_values() {
        let mut table = Vec::new();
        some().write_hgrm(&mut table).unwrap();
        let table = String::from_utf8(table).unwrap();
        let rows: Vec<_> = table.lines().collect();
        assert!(rows[0].contains("Value") && rows[0].contains("1/(1-Percentile)"));
        let last = rows.iter().rfind(|row| !row.starts_with('#')).unwrap();
        assert!(last.contains(" 1.000000000000 ") && last.contains("1000"), "{last}");
        assert!(table.contains("Total count    =         1000"));
        assert!(table.contains("#[Mean    =   500500.000"));
    }

    #[test]
    fn a_csv_row_per_bin_adds_up() {
        let all = some();
        let mut csv = Vec::new();
        all.write_csv(&mut csv).unwrap();
        let csv = String::from_utf8(csv).unwrap();
        let counts = csv.lines().skip(1).map(|row| row.split(',').nth(2).unwrap());
        assert_eq!(counts.map(|count| count.parse::<u64>().unwrap()).sum::<u64>(), all.len());
        assert!(csv.trim_end().ends_with(",1.000000000"));
    }
}
