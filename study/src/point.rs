//! One point of a sweep: many runs of one job and their statistics.

use std::{
    io::{BufWriter, Write},
    path::Path,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use simulate::stats::{Estimate, NoRuns, Sample};
use trace::NewFile;

use crate::{blame::Blame, files, shard};

/// The parameters of a series of points.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Vector or block size, bytes.
    pub size: u64,
    /// Factor by which the network is faster.
    pub net_scale: f64,
    /// All ranks see the same detours at the same time.
    pub coscheduled: bool,
}

impl Series {
    /// Distinguishes it from the other series of a sweep.
    pub fn label(&self) -> String {
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
        let what = |runs: &Runs| (runs.series, runs.ranks, runs.messages, runs.noiseless_ps);
        shard::agree(&what(self), &what(&next))?;
        self.times_ps.extend(next.times_ps);
        self.took_s += next.took_s;
        Ok(())
    }
}

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
    /// Median and maximum as multiples of the noiseless time.
    pub slowdown_median: f64,
    pub slowdown_max: f64,
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
        // A single rank waits for nothing and takes no time.
        let ratio = |time: f64| if noiseless_us > 0.0 { time / noiseless_us } else { 1.0 };
        let count = runs.times_ps.len() as u64;
        Ok(Point {
            ranks: runs.ranks,
            runs: count,
            messages: runs.messages,
            series: runs.series,
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
            slowdown_median: ratio(median_us),
            slowdown_max: ratio(max_us),
            messages_per_s: runs.messages.saturating_mul(count) as f64 / runs.took_s.max(1e-9),
            blame: None,
        })
    }

    /// Ranks, noiseless time and median in ps, for the search of a knee.
    pub fn for_knee(&self) -> (u64, i64, Estimate) {
        let ps = |us: f64| us * 1e6;
        let [low, high] = self.median_ci95_us;
        let median = Estimate { value: ps(self.median_us), low: ps(low), high: ps(high) };
        (self.ranks, ps(self.noiseless_us).round() as i64, median)
    }
}

/// The points as CSV.
pub fn csv(points: &[Point]) -> String {
    let mut text = "ranks,size,net_scale,coscheduled,runs,messages,noiseless_us,min_us,q25_us,\
                    median_us,q75_us,p99_us,max_us,mean_us,slowdown_median,slowdown_max,\
                    median_low_us,median_high_us,messages_per_s,outliers\n"
        .to_owned();
    for p in points {
        let Series { size, net_scale, coscheduled } = p.series;
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
        text += &format!("{first},{figures},{}\n", p.outliers);
    }
    text
}

/// A CSV file with the time of every run.
pub struct Times(BufWriter<NewFile>);

impl Times {
    pub fn create(path: &Path) -> Result<Times> {
        let cannot = || format!("cannot write {}", path.display());
        let mut file = files::create(path)?;
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
        files::finish(self.0).context("cannot write the run times")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point() -> Point {
        let series = Series { size: 8, net_scale: 2.5, coscheduled: true };
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
    fn csv_has_a_figure_for_every_column() {
        let text = csv(&[point()]);
        let columns: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [20, 20]);
        assert!(text.lines().nth(1).unwrap().starts_with("4,8,2.5,true,40,8,0.900001,"), "{text}");
    }
}
