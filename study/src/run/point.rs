//! One point of a sweep: many runs of one job and their statistics.

use std::{
    io::{BufWriter, Write},
    path::Path,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Deserializer, Serialize};
use simulate::stats::{Estimate, NoRuns, Sample};
use trace::NewFile;

use crate::{explain::blame::Blame, files, run::shard};

/// The parameters of a series of points.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Vector or block size, bytes; 0 for a program, whose messages have sizes of their own.
    pub size: u64,
    /// Factor by which the network is faster.
    pub net_scale: f64,
    /// All ranks see the same detours at the same time.
    pub coscheduled: bool,
    /// The operation, if the sweep has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// The algorithm, if the sweep has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// The network, if the sweep has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<String>,
    /// The noise, if the sweep has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<String>,
    /// The block sizes of a vector operation, if they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<String>,
    /// The part of a program's communication, if the sweep has several: `all`, `p2p` or `collectives`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
}

impl Series {
    /// What the sweep has several of, by name.
    fn chosen(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let Series { op, algorithm, sizes, net, noise, only, .. } = self;
        let all = [
            ("op", op),
            ("algorithm", algorithm),
            ("sizes", sizes),
            ("net", net),
            ("noise", noise),
            ("only", only),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }

    /// Distinguishes it from the other series of a sweep.
    pub fn label(&self) -> String {
        let mut words: Vec<String> = self.chosen().map(|(_, value)| value.to_owned()).collect();
        if self.size > 0 {
            words.push(format!("{} B", self.size));
        }
        if self.net_scale != 1.0 {
            words.push(format!("net x{}", self.net_scale));
        }
        if self.coscheduled {
            words.push("coscheduled".to_owned());
        }
        if words.is_empty() { "as traced".to_owned() } else { words.join(", ") }
    }
}

/// The runs of a point, or a shard of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Runs {
    pub series: Series,
    pub ranks: u64,
    /// Per run.
    pub messages: u64,
    pub noiseless_ps: i64,
    pub times_ps: Vec<i64>,
    /// Wall time of the simulation, summed over shards.
    pub took_s: f64,
}

impl Runs {
    /// Appends the runs of the next shard.
    pub fn join(&mut self, next: Runs) -> Result<()> {
        let what =
            |runs: &Runs| (runs.series.clone(), runs.ranks, runs.messages, runs.noiseless_ps);
        shard::agree(&what(self), &what(&next))?;
        self.times_ps.extend(next.times_ps);
        self.took_s += next.took_s;
        Ok(())
    }
}

/// A time as a multiple of the noiseless one, which is 0 on a network that takes no time: infinite, unless both are 0.
pub fn slowdown(time: f64, noiseless: f64) -> f64 {
    match () {
        () if noiseless > 0.0 => time / noiseless,
        () if time > 0.0 => f64::INFINITY,
        // A single rank waits for nothing and takes no time.
        () => 1.0,
    }
}

/// JSON has no infinity: it is written as null.
fn or_infinite<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::INFINITY))
}

/// Of 5 runs, 1 - 2/2^5 = 94 % of all ranges have the true median inside.
pub const FEWEST_FOR_INTERVAL: u64 = 6;

/// Enough for a figure.
const MOST_OUTLIERS: usize = 100;

/// Statistics of the runs of one job. Intervals are 95 % confidence intervals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub ranks: u64,
    pub runs: u64,
    /// Messages per run.
    pub messages: u64,
    /// Speed of the simulator.
    pub messages_per_s: f64,
    #[serde(flatten)]
    pub series: Series,
    pub noiseless_us: f64,
    pub min_us: f64,
    pub q25_us: f64,
    pub q25_ci95_us: [f64; 2],
    pub median_us: f64,
    /// Of fewer than 6 runs only their range, which holds the true median less often
    pub median_ci95_us: [f64; 2],
    /// The interval of the median again, as separate columns.
    pub median_low_us: f64,
    pub median_high_us: f64,
    pub q75_us: f64,
    pub q75_ci95_us: [f64; 2],
    pub p99_us: f64,
    pub p99_ci95_us: [f64; 2],
    pub max_us: f64,
    pub mean_us: f64,
    /// The most extreme runs within 1.5 times the interquartile range.
    pub whiskers_us: [f64; 2],
    /// Runs beyond the whiskers.
    pub outliers: usize,
    /// Their times; of more than 100, evenly many from the shortest to the longest.
    #[serde(default)]
    pub outliers_us: Vec<f64>,
    /// Median and maximum as multiples of the noiseless time; null if only that is 0.
    #[serde(deserialize_with = "or_infinite")]
    pub slowdown_median: f64,
    #[serde(deserialize_with = "or_infinite")]
    pub slowdown_max: f64,
    /// Of a skeleton without noise: share of communication in the time of a rank, and that of collectives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub communication_pct: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collectives_pct: Option<f64>,
    /// If requested.
    #[serde(default, skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub blame: Option<Blame>,
}

impl Point {
    /// The statistics of all runs of a point.
    pub fn of(runs: &Runs) -> Result<Point, NoRuns> {
        let sample = Sample::new(runs.times_ps.clone())?;
        let plot = sample.boxplot();
        let us = |ps: i64| ps as f64 / 1e6;
        let estimate = |p: f64| {
            let Estimate { value, low, high } = sample.estimate(p);
            (value / 1e6, [low / 1e6, high / 1e6])
        };
        let (q25_us, q25_ci95_us) = estimate(0.25);
        let (median_us, median_ci95_us) = estimate(0.5);
        let (q75_us, q75_ci95_us) = estimate(0.75);
        let (p99_us, p99_ci95_us) = estimate(0.99);
        let (noiseless_us, max_us) = (us(runs.noiseless_ps), us(sample.max()));
        let count = runs.times_ps.len() as u64;
        Ok(Point {
            ranks: runs.ranks,
            runs: count,
            messages: runs.messages,
            series: runs.series.clone(),
            noiseless_us,
            min_us: us(sample.min()),
            q25_us,
            q25_ci95_us,
            median_us,
            median_ci95_us,
            median_low_us: median_ci95_us[0],
            median_high_us: median_ci95_us[1],
            q75_us,
            q75_ci95_us,
            p99_us,
            p99_ci95_us,
            max_us,
            mean_us: sample.mean() / 1e6,
            whiskers_us: [us(plot.whisker_low), us(plot.whisker_high)],
            outliers: plot.outliers,
            outliers_us: sample.outliers(MOST_OUTLIERS).into_iter().map(us).collect(),
            slowdown_median: slowdown(median_us, noiseless_us),
            slowdown_max: slowdown(max_us, noiseless_us),
            messages_per_s: runs.messages.saturating_mul(count) as f64 / runs.took_s.max(1e-9),
            communication_pct: None,
            collectives_pct: None,
            blame: None,
        })
    }

    /// Whether [`Point::median_ci95_us`] is what its name says: all runs of a few are on one side of the true median more
    /// often than one time in 20, so that not even their range is.
    #[must_use]
    pub fn has_interval(&self) -> bool {
        self.runs >= FEWEST_FOR_INTERVAL
    }

    /// Ranks, noiseless time and median in ps, for the search of a knee.
    pub fn for_knee(&self) -> (u64, i64, Estimate) {
        let ps = |us: f64| us * 1e6;
        let [low, high] = match self.has_interval() {
            true => self.median_ci95_us,
            false => [0.0, f64::INFINITY],
        };
        let median = Estimate { value: ps(self.median_us), low: ps(low), high: ps(high) };
        (self.ranks, ps(self.noiseless_us).round() as i64, median)
    }
}

/// Names of the further columns: what the sweep has several of.
fn further_columns(series: &Series) -> String {
    series.chosen().map(|(name, _)| format!(",{name}")).collect()
}

/// Their values. Noise and networks are written with commas.
fn further_values(series: &Series) -> String {
    series.chosen().map(|(_, value)| format!(",\"{}\"", value.replace('"', "\"\""))).collect()
}

/// The points as CSV.
pub fn csv(points: &[Point]) -> String {
    let mut text = "ranks,size,net_scale,coscheduled,runs,messages,noiseless_us,min_us,q25_us,\
                    median_us,q75_us,p99_us,max_us,mean_us,slowdown_median,slowdown_max,\
                    median_low_us,median_high_us,messages_per_s,outliers"
        .to_owned();
    text += &points.first().map_or_else(String::new, |point| further_columns(&point.series));
    text.push('\n');
    for p in points {
        let Series { size, net_scale, coscheduled, .. } = &p.series;
        let first =
            format!("{},{size},{net_scale},{coscheduled},{},{}", p.ranks, p.runs, p.messages);
        let figures = [
            p.noiseless_us,
            p.min_us,
            p.q25_us,
            p.median_us,
            p.q75_us,
            p.p99_us,
            p.max_us,
            p.mean_us,
            p.slowdown_median,
            p.slowdown_max,
            p.median_low_us,
            p.median_high_us,
            p.messages_per_s,
        ];
        let figures = figures.map(|figure| figure.to_string()).join(",");
        text += &format!("{first},{figures},{}{}\n", p.outliers, further_values(&p.series));
    }
    text
}

/// A CSV file with the time of every run.
pub struct Times {
    file: BufWriter<NewFile>,
    has_header: bool,
}

impl Times {
    pub fn create(path: &Path) -> Result<Times> {
        Ok(Times { file: files::create(path)?, has_header: false })
    }

    pub fn write(&mut self, runs: &Runs) -> Result<()> {
        let Series { size, net_scale, coscheduled, .. } = &runs.series;
        if !std::mem::replace(&mut self.has_header, true) {
            let further = further_columns(&runs.series);
            writeln!(self.file, "ranks,size,net_scale,coscheduled,run,time_us{further}")?;
        }
        let further = further_values(&runs.series);
        for (run, ps) in runs.times_ps.iter().enumerate() {
            let us = *ps as f64 / 1e6;
            writeln!(
                self.file,
                "{},{size},{net_scale},{coscheduled},{run},{us}{further}",
                runs.ranks
            )?;
        }
        Ok(())
    }

    /// Completes the file.
    pub fn finish(self) -> Result<()> {
        files::finish(self.file).context("cannot write the run times")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point() -> Point {
        let series = Series { size: 8, net_scale: 2.5, coscheduled: true, ..Series::default() };
        let times_ps = (0..40).map(|run| 1_000_003 * (run + 1)).collect();
        let runs =
            Runs { series, ranks: 4, messages: 8, noiseless_ps: 900_001, times_ps, took_s: 0.1 };
        Point::of(&runs).unwrap()
    }

    /// A resumed sweep must give the same results as an uninterrupted one.
    #[test]
    fn a_point_comes_back_to_the_last_bit() {
        let text = serde_json::to_string(&point()).unwrap();
        assert_eq!(serde_json::from_str::<Point>(&text).unwrap(), point());
    }

    #[test]
    fn a_time_over_a_noiseless_time_of_zero_is_infinite_and_comes_back() {
        let of = |times_ps: Vec<i64>| {
            let series = point().series;
            let runs =
                Runs { series, ranks: 2, messages: 2, noiseless_ps: 0, times_ps, took_s: 0.1 };
            Point::of(&runs).unwrap()
        };
        let noisy = of([vec![0; 6], vec![340_700_000]].concat());
        assert_eq!((noisy.slowdown_median, noisy.slowdown_max), (1.0, f64::INFINITY));
        let value = serde_json::to_value(&noisy).unwrap();
        assert_eq!(value["slowdown_max"], serde_json::Value::Null);
        assert_eq!(serde_json::from_value::<Point>(value.clone()).unwrap(), noisy);
        let mut without = value;
        without.as_object_mut().unwrap().remove("slowdown_max");
        assert!(serde_json::from_value::<Point>(without).is_err());
        assert!(csv(&[noisy]).contains(",1,inf,"));
        let silent = of(vec![0; 7]);
        assert_eq!((silent.slowdown_median, silent.slowdown_max), (1.0, 1.0));
    }

    #[test]
    fn what_a_sweep_has_several_of_is_in_the_label_and_in_further_columns() {
        let series = Series {
            op: Some("bcast,barrier".to_owned()),
            noise: Some("poisson:1kHz,\"x\"".to_owned()),
            ..point().series
        };
        assert_eq!(series.label(), "bcast,barrier, poisson:1kHz,\"x\", 8 B, net x2.5, coscheduled");
        let text = csv(&[Point { series, ..point() }]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with(",outliers,op,noise"), "{text}");
        assert!(lines[1].ends_with(",\"bcast,barrier\",\"poisson:1kHz,\"\"x\"\"\""), "{text}");
    }

    #[test]
    fn csv_has_a_figure_for_every_column() {
        let text = csv(&[point()]);
        let columns: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [20, 20]);
        assert!(text.lines().nth(1).unwrap().starts_with("4,8,2.5,true,40,8,0.900001,"), "{text}");
    }
}
