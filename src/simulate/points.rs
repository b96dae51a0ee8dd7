//! One point of a sweep: many runs of one job and their statistics.

use std::{
    io::{BufWriter, Write},
    ops::Range,
    path::Path,
    time::Instant,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use simulate::{
    graph::Graph,
    job::Job,
    noise::Noise,
    stats::{Estimate, Knee, NoRuns, Sample},
    sweep::{self, SweepError},
};
use trace::NewFile;

use super::{shard, work::Progress};
use crate::results;

/// The parameters of a series of points.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    pub size: u64,
    pub net_scale: f64,
    /// All ranks see the same detours at the same time.
    pub coscheduled: bool,
}

impl Series {
    /// Empty if there is only one series.
    pub fn words(&self, several: bool) -> String {
        if !several {
            return String::new();
        }
        let mut words = vec![format!("{} B", self.size)];
        if self.net_scale != 1.0 {
            words.push(format!("net x{}", self.net_scale));
        }
        if self.coscheduled {
            words.push("coscheduled".to_owned());
        }
        words.join(", ")
    }
}

pub struct Plan<'a> {
    pub runs: u64,
    pub seed: u64,
    pub threads: usize,
    pub memory: u64,
    pub graph: Graph,
    pub progress: &'a Progress,
}

impl Plan<'_> {
    /// The runs of one point, with a progress callback.
    pub fn runs<'a>(&self, progress: &'a (dyn Fn(u64) -> bool + Sync)) -> sweep::Plan<'a> {
        let Plan { runs, seed, threads, memory, .. } = *self;
        sweep::Plan { runs, seed, threads, memory, progress }
    }
}

/// The runs of a point, or a shard of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Runs {
    pub series: Series,
    pub ranks: u64,
    /// Per run.
    messages: u64,
    noiseless_ps: i64,
    pub times_ps: Vec<i64>,
    /// Wall time of the simulation, summed over shards.
    took_s: f64,
}

impl Runs {
    /// Appends the runs of the next shard.
    pub fn join(&mut self, next: Runs) -> Result<()> {
        let what = |runs: &Runs| (runs.series, runs.ranks, runs.messages, runs.noiseless_ps);
        shard::agree(&what(self), &what(&next))?;
        self.times_ps.extend(next.times_ps);
        self.took_s += next.took_s;
        Ok(())
    }
}

/// Simulates some runs of a point; None if interrupted.
pub fn simulate(
    job: &Job,
    series: &Series,
    noise: &Noise,
    plan: &Plan<'_>,
    runs: Range<u64>,
) -> Result<Option<Runs>> {
    let noiseless_ps = sweep::noiseless(job, plan.graph, noise.model())?;
    let begin = Instant::now();
    let advance = |messages| plan.progress.advance(messages);
    let runs: Vec<u64> = runs.collect();
    let times_ps = match sweep::times_of(job, plan.graph, noise, &plan.runs(&advance), &runs) {
        Ok(times) => times,
        Err(SweepError::Stopped) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(Runs {
        series: *series,
        ranks: job.ranks(),
        messages: job.messages(),
        noiseless_ps,
        times_ps,
        took_s: begin.elapsed().as_secs_f64(),
    }))
}

#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub series: Series,
    pub ranks: u64,
    pub runs: u64,
    pub messages: u64,
    noiseless_us: f64,
    min_us: f64,
    q25: Estimate,
    median: Estimate,
    q75: Estimate,
    p99: Estimate,
    max_us: f64,
    mean_us: f64,
    whiskers_us: (f64, f64),
    outliers: usize,
    messages_per_s: f64,
}

/// The CSV file with the time of every run.
pub struct Times(BufWriter<NewFile>);

impl Times {
    pub fn create(path: &Path) -> Result<Times> {
        let cannot = || format!("cannot write {}", path.display());
        let mut file = results::create(path)?;
        writeln!(file, "ranks,size,net_scale,coscheduled,run,time_us").with_context(cannot)?;
        Ok(Times(file))
    }

    pub fn write(&mut self, runs: &Runs) -> Result<()> {
        let Series { size, net_scale, coscheduled } = runs.series;
        for (run, ps) in runs.times_ps.iter().enumerate() {
            let us = *ps as f64 / 1e6;
            writeln!(self.0, "{},{size},{net_scale},{coscheduled},{run},{us}", runs.ranks)?;
        }
        Ok(())
    }

    /// Completes the file.
    pub fn finish(self) -> Result<()> {
        results::finish(self.0).context("cannot write the run times")
    }
}

type Figure = fn(&Point) -> f64;

/// The figures of a point, by their names in CSV and JSON.
const COLUMNS: [(&str, Figure); 14] = [
    ("noiseless_us", |p| p.noiseless_us),
    ("min_us", |p| p.min_us),
    ("q25_us", |p| p.q25.value),
    ("median_us", |p| p.median.value),
    ("q75_us", |p| p.q75.value),
    ("p99_us", |p| p.p99.value),
    ("max_us", |p| p.max_us),
    ("mean_us", |p| p.mean_us),
    ("slowdown_median", |p| ratio(p.median.value, p.noiseless_us)),
    ("slowdown_max", |p| ratio(p.max_us, p.noiseless_us)),
    ("median_low_us", |p| p.median.low),
    ("median_high_us", |p| p.median.high),
    ("messages_per_s", |p| p.messages_per_s),
    ("outliers", |p| p.outliers as f64),
];

fn ratio(time: f64, noiseless: f64) -> f64 {
    if noiseless > 0.0 { time / noiseless } else { 1.0 }
}

impl Point {
    /// The statistics of all runs of a point.
    pub fn of(runs: &Runs) -> Result<Point, NoRuns> {
        let sample = Sample::new(runs.times_ps.clone())?;
        let plot = sample.boxplot();
        let us = |ps: i64| ps as f64 / 1e6;
        let estimate = |p: f64| {
            let Estimate { value, low, high } = sample.estimate(p);
            Estimate { value: value / 1e6, low: low / 1e6, high: high / 1e6 }
        };
        let count = runs.times_ps.len() as u64;
        Ok(Point {
            series: runs.series,
            ranks: runs.ranks,
            runs: count,
            messages: runs.messages,
            noiseless_us: us(runs.noiseless_ps),
            min_us: us(sample.min()),
            q25: estimate(0.25),
            median: estimate(0.5),
            q75: estimate(0.75),
            p99: estimate(0.99),
            max_us: us(sample.max()),
            mean_us: sample.mean() / 1e6,
            whiskers_us: (us(plot.whisker_low), us(plot.whisker_high)),
            outliers: plot.outliers,
            messages_per_s: (runs.messages.saturating_mul(count)) as f64 / runs.took_s.max(1e-9),
        })
    }

    pub fn json(&self) -> Value {
        let between = |e: &Estimate| json!([e.low, e.high]);
        let mut value = json!({
            "ranks": self.ranks,
            "runs": self.runs,
            "messages": self.messages,
            "size": self.series.size,
            "net_scale": self.series.net_scale,
            "coscheduled": self.series.coscheduled,
            "q25_ci95_us": between(&self.q25),
            "median_ci95_us": between(&self.median),
            "q75_ci95_us": between(&self.q75),
            "p99_ci95_us": between(&self.p99),
            "whiskers_us": [self.whiskers_us.0, self.whiskers_us.1],
        });
        if let Value::Object(map) = &mut value {
            for (name, number) in COLUMNS {
                map.insert(name.to_owned(), json!(number(self)));
            }
            map.insert("outliers".to_owned(), json!(self.outliers));
        }
        value
    }

    /// Parses the output of [`Point::json`]; None for anything else.
    pub fn from_json(value: &Value) -> Option<Point> {
        let number = |name: &str| value.get(name)?.as_f64();
        let whole = |name: &str| value.get(name)?.as_u64();
        let pair = |name: &str| {
            let list = value.get(name)?.as_array()?;
            Some((list.first()?.as_f64()?, list.get(1)?.as_f64()?))
        };
        let estimate = |name: &str, between: &str| {
            let (low, high) = pair(between)?;
            Some(Estimate { value: number(name)?, low, high })
        };
        Some(Point {
            series: Series {
                size: whole("size")?,
                net_scale: number("net_scale")?,
                coscheduled: value.get("coscheduled")?.as_bool()?,
            },
            ranks: whole("ranks")?,
            runs: whole("runs")?,
            messages: whole("messages")?,
            noiseless_us: number("noiseless_us")?,
            min_us: number("min_us")?,
            q25: estimate("q25_us", "q25_ci95_us")?,
            median: estimate("median_us", "median_ci95_us")?,
            q75: estimate("q75_us", "q75_ci95_us")?,
            p99: estimate("p99_us", "p99_ci95_us")?,
            max_us: number("max_us")?,
            mean_us: number("mean_us")?,
            whiskers_us: pair("whiskers_us")?,
            outliers: whole("outliers")? as usize,
            messages_per_s: number("messages_per_s")?,
        })
    }

    pub fn for_knee(&self) -> (u64, i64, Estimate) {
        let ps = |us: f64| us * 1e6;
        let Estimate { value, low, high } = self.median;
        let median = Estimate { value: ps(value), low: ps(low), high: ps(high) };
        (self.ranks, ps(self.noiseless_us).round() as i64, median)
    }

    pub fn row(&self, several: bool) -> report::SlowdownRow {
        report::SlowdownRow {
            series: self.series.words(several),
            ranks: self.ranks,
            noiseless: self.noiseless_us,
            min: self.min_us,
            q25: self.q25.value,
            median: self.median.value,
            median_between: (self.median.low, self.median.high),
            q75: self.q75.value,
            p99: self.p99.value,
            max: self.max_us,
        }
    }
}

/// Converts to the report's type.
pub fn knee(knee: Knee) -> report::Knee {
    let Knee { ranks, above, smallest } = knee;
    report::Knee { ranks, above, smallest }
}

pub fn csv(points: &[Point]) -> String {
    let names: Vec<_> = COLUMNS.iter().map(|(name, _)| *name).collect();
    let mut text = format!("ranks,size,net_scale,coscheduled,runs,messages,{}\n", names.join(","));
    for point in points {
        let Series { size, net_scale, coscheduled } = point.series;
        text += &format!(
            "{},{size},{net_scale},{coscheduled},{},{}",
            point.ranks, point.runs, point.messages
        );
        for (_, number) in COLUMNS {
            text += &format!(",{}", number(point));
        }
        text.push('\n');
    }
    text
}
