//! Exchange times: a constant, or a file of measured times; as a distribution ([`Times`]) or in the order of
//! the measurement ([`Series`]).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use distribution::grid::Atom;
use formats::import::{self, ImportOptions, ImportedRun};
use serde_json::Value;
use simulate::resample::{Exchange, LONGEST, Sampler, ks_distance};

use crate::{recording::open, run::shard, units};

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

/// Measured times in ps, with counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    counts: Vec<(i64, u64)>,
    /// Of a histogram, the lower end of the bin of each; the times are the upper ends.
    from: Option<Vec<i64>>,
    /// They were rounded down to multiples of this.
    unit_ps: i64,
}

/// The first line of the CSV files of `simulate exchange` and `simulate alltoall`.
const BINS: &str = "from_ps,to_ps,count,cumulative";

/// A bin is narrow if its times differ by one part in this many at most. Those of an HdrHistogram with 2 digits are.
const NARROW: i64 = 64;

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
        match Series::of_bytes(&bytes, run)? {
            Some(series) => {
                let counts = series.values_ps.into_iter().map(|time| (time, 1)).collect();
                Ok(Times { counts, from: None, unit_ps: 1 })
            }
            None => Self::of_imported(&name, &bytes, run),
        }
    }

    /// The distribution, or the detours, in a file of another tool.
    pub fn of_imported(name: &str, bytes: &[u8], run: Option<usize>) -> Result<Times> {
        if bytes.starts_with(BINS.as_bytes()) {
            return Self::of_bins(&String::from_utf8_lossy(bytes));
        }
        let imported = import::import_bytes(name, bytes, &ImportOptions::default());
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
            Some(number) => vec![open::pick(&runs, number, name)?],
            None => runs,
        };
        let unit = unit_ps(&runs, bytes)?;
        let mut counts = Vec::new();
        for run in &runs {
            counts.extend(run.distribution.iter().map(|&(value, count)| (value, count, unit)));
            counts.extend(run.detours.iter().map(|&(_, length)| (length, 1, 1e3)));
        }
        let counts: Vec<(i64, u64)> = counts
            .into_iter()
            .map(|(value, count, unit)| Ok((whole_ps(value * unit)?, count)))
            .collect::<Result<_>>()?;
        let only_bins = runs.iter().all(|run| run.detours.is_empty());
        let from = runs.iter().flat_map(|run| &run.from);
        let from: Vec<i64> = from.map(|&from| whole_ps(from * unit)).collect::<Result<_>>()?;
        let from = (only_bins && from.len() == counts.len()).then_some(from);
        Ok(Times { counts, from, unit_ps: unit as i64 })
    }

    /// The bins that `simulate exchange --csv` writes.
    fn of_bins(text: &str) -> Result<Times> {
        let (mut counts, mut from) = (Vec::new(), Vec::new());
        for (number, row) in (1u64..).zip(text.lines()).skip(1).filter(|(_, row)| !row.is_empty()) {
            let mut columns = row.split(',').map(|column| column.trim().parse::<i64>().ok());
            let mut next = || columns.next().flatten();
            match (next(), next(), next()) {
                (Some(low), Some(high), Some(count))
                    if 0 <= low && low < high && high <= LONGEST && count >= 0 =>
                {
                    counts.push((high - 1, count as u64));
                    from.push(low);
                }
                _ => bail!("line {number}: expected {BINS}"),
            }
        }
        Ok(Times { counts, from: Some(from), unit_ps: 1 })
    }

    /// Times and counts.
    pub fn counts(&self) -> &[(i64, u64)] {
        &self.counts
    }

    /// The bins of a histogram, in order. None if single values are known, or if bins overlap, as those of several
    /// histograms in one file may.
    pub fn bins(&self) -> Option<Vec<Atom>> {
        let ends = self.from.as_ref()?.iter().zip(&self.counts);
        let mut bins: Vec<Atom> =
            ends.map(|(&low, &(high, count))| Atom { low, high, count }).collect();
        bins.retain(|bin| bin.count > 0);
        bins.sort_unstable_by_key(|bin| (bin.low, bin.high));
        bins.dedup_by(|next, bin| {
            let same = (next.low, next.high) == (bin.low, bin.high);
            bin.count += if same { next.count } else { 0 };
            same
        });
        let apart = bins.windows(2).all(|pair| pair[0].high < pair[1].low);
        // What was rounded down belongs to the bin.
        for at in 0..bins.len() {
            let next = bins.get(at + 1).map_or(i64::MAX, |next| next.low);
            bins[at].high = (bins[at].high + self.unit_ps - 1).min(next - 1).max(bins[at].high);
        }
        (apart && !bins.is_empty()).then_some(bins)
    }

    /// Kolmogorov-Smirnov distance to other times. Of a histogram, the shares are known at the ends of its bins, and
    /// only these are compared.
    pub fn distance(&self, times: &[i64]) -> Option<f64> {
        let Some(bins) = self.bins() else { return ks_distance(times, &self.list()) };
        let total: u64 = bins.iter().map(|bin| bin.count).sum();
        if times.is_empty() {
            return None;
        }
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let share =
            |end: i64| sorted.partition_point(|&time| time <= end) as f64 / sorted.len() as f64;
        let (mut before, mut distance) = (0, 0.0f64);
        for bin in bins {
            for (end, count) in [(bin.low - 1, 0), (bin.high, bin.count)] {
                before += count;
                distance = distance.max((share(end) - before as f64 / total as f64).abs());
            }
        }
        Some(distance)
    }

    pub fn sampler(&self) -> Result<Sampler> {
        Ok(Sampler::of_counts(self.drawn())?)
    }

    /// What is drawn for each time and how often: of a bin the middle, since its upper end would make all times too
    /// long. Wide bins, as between two percentiles, keep their upper ends: nothing says where their times are, and
    /// the last of them is the longest time.
    fn drawn(&self) -> impl Iterator<Item = (i64, u64)> {
        self.counts.iter().enumerate().map(|(at, &(high, count))| {
            let low = self.from.as_ref().map_or(high, |from| from[at]);
            let narrow = high - low <= high / NARROW;
            (if narrow { low + (high - low) / 2 } else { high }, count)
        })
    }

    /// Each time repeated by its count, scaled down in proportion if there are too many.
    pub fn list(&self) -> Vec<i64> {
        let total: u128 = self.counts.iter().map(|&(_, count)| u128::from(count)).sum();
        let kept = total.min(COMPARED);
        let (mut list, mut so_far) = (Vec::new(), 0u128);
        for &(time, count) in &self.counts {
            so_far += u128::from(count);
            let length = so_far * kept / total.max(1);
            list.resize(length as usize, time);
        }
        list
    }
}

/// Measured times in the order of the measurement, for everything that depends on what follows what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    pub values_ps: Vec<i64>,
    /// Number of consecutive samples that belong together; the next block was measured at another time. The
    /// last block may be shorter.
    pub block: usize,
}

impl Series {
    /// Reads one time per line in us, a JSON array of times, an object with `half_round_trip_us` and
    /// perhaps `block`, or netgauge's round trips. What does not state its blocks is a single block.
    pub fn read(path: &Path) -> Result<Series> {
        let read = || {
            let (file, run) = open::split_run(path);
            let name = file.display().to_string();
            let packed = import::read_file(&file)?;
            let bytes = import::unpacked(&name, &packed)?;
            Self::of_bytes(&bytes, run)?.context(
                "not a list of times in us in the order of their measurement (one per line, a JSON array, \
                 or a file of `detour mpi latency` or netgauge)",
            )
        };
        read().with_context(|| format!("cannot read latencies from {}", path.display()))
    }

    /// None if the content is none of these; `picked` selects one of several message sizes.
    pub fn of_bytes(bytes: &[u8], picked: Option<usize>) -> Result<Option<Series>> {
        if let Some(series) = lines(&String::from_utf8_lossy(bytes))? {
            return Ok(Some(series));
        }
        if let Some(series) = json_list(bytes)? {
            return Ok(Some(series));
        }
        import::round_trips(bytes).map(|sizes| of_round_trips(&sizes, picked)).transpose()
    }

    /// A single block; the times are in us.
    fn of_us(times: impl IntoIterator<Item = f64>) -> Result<Series> {
        let values_ps =
            times.into_iter().map(|us| whole_ps(us * 1e6)).collect::<Result<Vec<_>>>()?;
        Ok(Series { block: values_ps.len(), values_ps })
    }

    /// The blocks, in order.
    pub fn blocks(&self) -> impl Iterator<Item = &[i64]> {
        self.values_ps.chunks(self.block.max(1))
    }
}

/// netgauge's round trips of one message size: the only one, or the one selected with `FILE#2`.
fn of_round_trips(sizes: &[import::RoundTrips], picked: Option<usize>) -> Result<Series> {
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
    Series::of_us(size.half_us.iter().copied())
}

/// `[2.1, 2.3]` in us, alone or as `half_round_trip_us` of an object; None for anything else.
fn json_list(bytes: &[u8]) -> Result<Option<Series>> {
    if !bytes.trim_ascii_start().starts_with(b"[") && !bytes.trim_ascii_start().starts_with(b"{") {
        return Ok(None);
    }
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return Ok(None) };
    let list = value.get("half_round_trip_us").unwrap_or(&value).as_array();
    let numbers: Option<Vec<f64>> = list.and_then(|list| list.iter().map(Value::as_f64).collect());
    let Some(numbers) = numbers.filter(|numbers| !numbers.is_empty()) else { return Ok(None) };
    let mut series = Series::of_us(numbers)?;
    if let Some(block) = value.get("block") {
        let block = block.as_u64().and_then(|block| usize::try_from(block).ok());
        let block = block.filter(|&block| block > 0);
        let block = block.context("block: expected a number of samples")?;
        series.block = block.min(series.values_ps.len());
    }
    Ok(Some(series))
}

/// None if the first line is not a single number.
fn lines(text: &str) -> Result<Option<Series>> {
    let rows = || {
        let rows = (1u64..).zip(text.lines()).map(|(number, row)| (number, row.trim()));
        rows.filter(|(_, row)| !row.is_empty() && !row.starts_with('#'))
    };
    let first = rows().next();
    if first.is_none_or(|(_, row)| row.parse::<f64>().is_err()) {
        return Ok(None);
    }
    let mut values_ps = Vec::new();
    for (number, row) in rows() {
        let time = row.parse::<f64>().map_err(|_| anyhow!("'{row}' is not a number"));
        let time = time.and_then(|us| whole_ps(us * 1e6));
        values_ps.push(time.with_context(|| format!("line {number}: expected one time in us"))?);
    }
    Ok(Some(Series { block: values_ps.len(), values_ps }))
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
        assert_eq!(times.values_ps, [150_000_000, 150_500_000, 150_000_000]);
        assert_eq!(times.block, 3);
        assert_eq!(lines("start_ns,length_ns\n1,2\n").unwrap(), None);
        assert_eq!(lines("").unwrap(), None);
        for bad in ["1\n-2\n", "1\ntwo\n", "1\nnan\n", "1\n1e30\n"] {
            let error = lines(bad).unwrap_err();
            assert!(format!("{error:#}").contains("line 2"), "{error:#}");
        }
    }

    #[test]
    fn a_series_keeps_the_order_and_the_blocks() {
        let read = |text: &str| Series::of_bytes(text.as_bytes(), None);
        let stated =
            read(r#"{"system": "x", "block": 2, "half_round_trip_us": [3, 1, 2]}"#).unwrap();
        let stated = stated.unwrap();
        assert_eq!(stated, Series { values_ps: vec![3_000_000, 1_000_000, 2_000_000], block: 2 });
        assert_eq!(stated.blocks().map(<[i64]>::len).collect::<Vec<_>>(), [2, 1]);
        for whole in ["3\n1\n2\n", "[3, 1, 2]", "16 3\n16 1\n16 2\n"] {
            let series = read(whole).unwrap().unwrap();
            assert_eq!(series, Series { block: 3, ..stated.clone() }, "{whole}");
        }
        assert!(read(r#"{"half_round_trip_us": [1], "block": 0}"#).is_err());
        assert!(read(r#"{"half_round_trip_us": [-1]}"#).is_err());
        assert_eq!(read("time,length\n").unwrap(), None);
    }

    /// What `simulate exchange` writes, read back: the distance is that of the times themselves.
    #[test]
    fn histograms_are_compared_at_the_ends_of_their_bins() {
        use simulate::resample::Distribution;
        let normal = |key, i| ::distribution::normal(random::draw(key, i));
        let constant = vec![150_000_000; 1_000];
        let noisy: Vec<i64> = (0..20_000u64)
            .map(|i| 150_000_000 + i64::from(i % 20 == 3) * (2e6 * normal(1, i).exp()) as i64)
            .collect();
        let other: Vec<i64> = noisy.iter().map(|ps| ps + 300_000).collect();
        for times in [&constant, &noisy] {
            let all = Distribution::of(times).unwrap();
            let (mut hlog, mut hgrm, mut csv) = (Vec::new(), Vec::new(), Vec::new());
            Distribution::write_hlog(&[("exchange", &all)], &mut hlog).unwrap();
            all.write_hgrm(&mut hgrm).unwrap();
            all.write_csv(&mut csv).unwrap();
            for (name, bytes) in [("z.hlog", hlog), ("z.hgrm", hgrm), ("z.csv", csv)] {
                let read = Times::of_imported(name, &bytes, None).unwrap();
                assert!(read.bins().is_some(), "{name}");
                assert_eq!(read.distance(times), Some(0.0), "{name}");
                // Every other time is beyond the bin of the shortest.
                let apart = read.distance(&other).unwrap();
                assert!((0.9..=1.0).contains(&apart), "{name}: {apart}");
                let sum: u64 = read.counts().iter().map(|(_, count)| count).sum();
                assert_eq!(sum, times.len() as u64, "{name}");
                // The 128 ns of a bin, or those up to the next row.
                let bins = read.bins().unwrap();
                assert!((bins[0].low..=bins[0].high).contains(&150_000_000), "{name}: {bins:?}");
                assert!(bins[0].high - bins[0].low < 150_000, "{name}: {bins:?}");
            }
        }
        for bad in ["5,5,1,1", "1,2", "-1,2,3,1", "1,2,x,1"] {
            let error = Times::of_bins(&format!("{BINS}\n{bad}\n")).unwrap_err();
            assert!(error.to_string().starts_with("line 2"), "{error}");
        }
    }

    #[test]
    fn times_drawn_from_a_histogram_have_the_mean_of_those_in_it() {
        use simulate::resample::Distribution;
        let times: Vec<i64> =
            (0..20_000).map(|i| 150_000_000 + (random::draw(1, i) % 100_000_000) as i64).collect();
        let mean = times.iter().sum::<i64>() as f64 / times.len() as f64;
        let mut hlog = Vec::new();
        let all = Distribution::of(&times).unwrap();
        Distribution::write_hlog(&[("exchange", &all)], &mut hlog).unwrap();
        let read = Times::of_imported("z.hlog", &hlog, None).unwrap();
        let mean_of = |times: &mut dyn Iterator<Item = (i64, u64)>| {
            times.map(|(time, count)| time as f64 * count as f64).sum::<f64>() / 20_000.0
        };
        let drawn = mean_of(&mut read.drawn());
        assert!((drawn / mean - 1.0).abs() < 2e-5, "{drawn} {mean}");
        // The upper ends are too long.
        let upper = mean_of(&mut read.counts.iter().copied());
        assert!(upper / mean - 1.0 > 1e-4, "{upper} {mean}");
        // Between two percentiles, the longest time stays.
        let wide = Times { counts: vec![(2_000, 1)], from: Some(vec![1_000]), unit_ps: 1 };
        assert_eq!(wide.drawn().collect::<Vec<_>>(), [(2_000, 1)]);
    }

    #[test]
    fn very_many_times_are_thinned_out_in_proportion() {
        let times = Times { counts: vec![(1, 3 << 40), (2, 1 << 40)], from: None, unit_ps: 1 };
        let list = times.list();
        assert_eq!(list.len() as u128, COMPARED);
        assert_eq!(list.iter().filter(|&&time| time == 1).count() as u128, COMPARED / 4 * 3);
    }
}
