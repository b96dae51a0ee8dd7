//! Exchange times: a constant, or a file of measured times.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use formats::import::{self, ImportOptions, ImportedRun};
use serde_json::Value;
use simulate::resample::{Exchange, LONGEST, Sampler};

use crate::{open, shard, units};

/// `150us`, or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    Constant(i64),
    File(PathBuf),
}

/// An argument that starts like a number is a time, unless a file of that name exists.
pub fn parse(text: &str) -> Result<Spec, String> {
    let path = Path::new(text);
    match units::picoseconds(text) {
        Ok(time) if time <= LONGEST => Ok(Spec::Constant(time)),
        Ok(_) => Err(format!("'{text}' is too long (maximum: 13 days)")),
        Err(wrong) => {
            let number = text.trim_start().starts_with(|c: char| c.is_ascii_digit() || c == '-');
            if number && !path.exists() { Err(wrong) } else { Ok(Spec::File(path.to_path_buf())) }
        }
    }
}

impl Spec {
    pub fn load(&self) -> Result<Exchange> {
        match self {
            Spec::Constant(time) => Ok(Exchange::Constant(*time)),
            Spec::File(path) => Ok(Exchange::Drawn(Times::read(path)?.sampler()?)),
        }
    }

    /// What determines the samples: the time, or the content of the file.
    pub fn content(&self) -> Result<Value> {
        match self {
            Spec::Constant(_) => Ok(self.words().into()),
            Spec::File(path) => shard::file(&open::split_run(path).0),
        }
    }

    /// As on the command line, up to formatting.
    pub fn words(&self) -> String {
        match self {
            Spec::Constant(time) => format!("{}us", *time as f64 / 1e6),
            Spec::File(path) => path.display().to_string(),
        }
    }
}

/// Mean time of an uninterrupted exchange, us.
pub fn mean_us(exchange: &Exchange) -> f64 {
    match exchange {
        Exchange::Constant(time) => *time as f64 / 1e6,
        Exchange::Drawn(sampler) => sampler.mean() / 1e6,
    }
}

/// Measured times in ps, with counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times(Vec<(i64, u64)>);

/// Maximum number of times to compare with; more would only use memory.
const COMPARED: u128 = 1 << 24;

impl Times {
    /// Reads one time per line in us, a JSON array of times, netgauge's round trips (half of each, as in
    /// the file), or a file that `detour import` reads: an HdrHistogram, or the lengths of detours.
    pub fn read(path: &Path) -> Result<Times> {
        let cannot = || format!("cannot read exchange times from {}", path.display());
        Self::read_any(path).with_context(cannot)
    }

    fn read_any(path: &Path) -> Result<Times> {
        let (file, run) = open::split_run(path);
        let name = file.display().to_string();
        let packed = import::read_file(&file)?;
        let bytes = import::unpacked(&name, &packed)?;
        if let Some(times) = lines(&String::from_utf8_lossy(&bytes))? {
            return Ok(times);
        }
        if let Some(times) = json_list(&bytes)? {
            return Ok(times);
        }
        if let Some(sizes) = import::round_trips(&bytes) {
            return of_round_trips(&sizes, run);
        }
        let imported = import::import_bytes(&name, &bytes, &ImportOptions::default());
        let runs = match imported {
            Ok(imported) => imported.runs,
            Err(import::ImportError::AlreadyATrace { .. }) => {
                bail!("the file is a recording of detours: use it with --noise")
            }
            Err(error) => {
                return Err(anyhow!(error).context("not a list of times in us, one per line"));
            }
        };
        let runs = match run {
            Some(number) => vec![open::pick(&runs, number, &name)?],
            None => runs,
        };
        let unit = unit_ps(&runs, &bytes)?;
        let mut counts = Vec::new();
        for run in &runs {
            counts.extend(run.distribution.iter().map(|&(value, count)| (value, count, unit)));
            counts.extend(run.detours.iter().map(|&(_, length)| (length, 1, 1e3)));
        }
        counts
            .into_iter()
            .map(|(value, count, unit)| Ok((whole_ps(value * unit)?, count)))
            .collect::<Result<Vec<_>>>()
            .map(Times)
    }

    pub fn sampler(&self) -> Result<Sampler> {
        Ok(Sampler::of_counts(self.0.iter().copied())?)
    }

    /// Each time repeated by its count, scaled down in proportion if there are too many.
    pub fn list(&self) -> Vec<i64> {
        let total: u128 = self.0.iter().map(|&(_, count)| u128::from(count)).sum();
        let kept = total.min(COMPARED);
        let (mut list, mut so_far) = (Vec::new(), 0u128);
        for &(time, count) in &self.0 {
            so_far += u128::from(count);
            let length = so_far * kept / total.max(1);
            list.resize(length as usize, time);
        }
        list
    }
}

/// netgauge's round trips of one message size: the only one, or the one selected with `FILE#2`.
fn of_round_trips(sizes: &[import::RoundTrips], picked: Option<usize>) -> Result<Times> {
    let known = || sizes.iter().map(|size| size.bytes.to_string()).collect::<Vec<_>>().join(", ");
    let size = match (sizes, picked) {
        ([only], None) => only,
        (_, None) => bail!(
            "round trips of {} message sizes ({} bytes): select one, e.g. FILE#1 for the first",
            sizes.len(),
            known()
        ),
        (_, Some(number)) => number
            .checked_sub(1)
            .and_then(|at| sizes.get(at))
            .with_context(|| format!("round trips of {} bytes only; no #{number}", known()))?,
    };
    size.half_us.iter().map(|&us| Ok((whole_ps(us * 1e6)?, 1))).collect::<Result<_>>().map(Times)
}

/// `[2.1, 2.3]` in us, alone or as `half_round_trip_us` of an object; None for anything else.
fn json_list(bytes: &[u8]) -> Result<Option<Times>> {
    if !bytes.trim_ascii_start().starts_with(b"[") && !bytes.trim_ascii_start().starts_with(b"{") {
        return Ok(None);
    }
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return Ok(None) };
    let list = value.get("half_round_trip_us").unwrap_or(&value).as_array();
    let numbers: Option<Vec<f64>> = list.and_then(|list| list.iter().map(Value::as_f64).collect());
    let Some(numbers) = numbers.filter(|numbers| !numbers.is_empty()) else { return Ok(None) };
    numbers
        .into_iter()
        .map(|us| Ok((whole_ps(us * 1e6)?, 1)))
        .collect::<Result<_>>()
        .map(Times)
        .map(Some)
}

/// None if the first line is not a single number.
fn lines(text: &str) -> Result<Option<Times>> {
    let rows = || {
        let rows = (1u64..).zip(text.lines()).map(|(number, row)| (number, row.trim()));
        rows.filter(|(_, row)| !row.is_empty() && !row.starts_with('#'))
    };
    let first = rows().next();
    if first.is_none_or(|(_, row)| row.parse::<f64>().is_err()) {
        return Ok(None);
    }
    let mut times = Vec::new();
    for (number, row) in rows() {
        let time = row.parse::<f64>().map_err(|_| anyhow!("'{row}' is not a number"));
        let time = time.and_then(|us| whole_ps(us * 1e6));
        times.push((time.with_context(|| format!("line {number}: expected one time in us"))?, 1));
    }
    Ok(Some(Times(times)))
}

fn whole_ps(ps: f64) -> Result<i64> {
    if !(0.0..=LONGEST as f64).contains(&ps) {
        bail!("exchange time {} us is out of range (0 to 13 days)", ps / 1e6);
    }
    Ok(ps.round() as i64)
}

/// Histograms are in nanoseconds, except our own of times below a microsecond, which name their unit.
fn unit_ps(runs: &[ImportedRun], bytes: &[u8]) -> Result<f64> {
    if runs.iter().any(|run| run.header.get("unit").is_some_and(|unit| unit == "ps")) {
        return Ok(1.0);
    }
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(1 << 16)]);
    let units = head.lines().find_map(|line| line.split_once("simulated times in "));
    let Some((_, units)) = units else { return Ok(1e3) };
    let has = |wanted: &str| units.split(',').any(|unit| unit.trim() == wanted);
    if has("ps") && has("ns") {
        bail!("histograms in different units: use a file with a single histogram");
    }
    Ok(if has("ps") { 1.0 } else { 1e3 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_is_a_time_or_a_file() {
        assert_eq!(parse("150us"), Ok(Spec::Constant(150_000_000)));
        assert_eq!(parse("times.txt"), Ok(Spec::File("times.txt".into())));
        for bad in ["150", "-1us", "9999999s", "12 parsecs"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn lines_of_one_number_are_microseconds() {
        let times = lines("# measured\n150\n\n 150.5 \n150\n").unwrap().unwrap();
        assert_eq!(times.list(), [150_000_000, 150_500_000, 150_000_000]);
        assert_eq!(lines("start_ns,length_ns\n1,2\n").unwrap(), None);
        assert_eq!(lines("").unwrap(), None);
        for bad in ["1\n-2\n", "1\ntwo\n", "1\nnan\n", "1\n1e30\n"] {
            let error = lines(bad).unwrap_err();
            assert!(format!("{error:#}").contains("line 2"), "{error:#}");
        }
    }

    #[test]
    fn very_many_times_are_thinned_out_in_proportion() {
        let times = Times(vec![(1, 3 << 40), (2, 1 << 40)]);
        let list = times.list();
        assert_eq!(list.len() as u128, COMPARED);
        assert_eq!(list.iter().filter(|&&time| time == 1).count() as u128, COMPARED / 4 * 3);
    }
}
