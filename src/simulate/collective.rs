//! `detour simulate collective`: how long a collective takes under noise, for every rank count asked
//! for, as one sweep.

use std::{io::Write, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;
use simulate::{
    blame::{self, Blames},
    graph,
    job::Job,
    loggops::Params,
    noise::{Model, Noise, Offsets},
    stats,
    sweep::{self, SweepError},
};

use super::{
    blame as blaming, job, network, noise,
    points::{self, Point, Series},
    resume::Finished,
    work,
};
use crate::{Verbosity, open, report as layout, units};

#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    job: job::Options,
    /// Rank counts: 1000,5000 or 2..1Mi (the powers of two)
    #[arg(long, value_name = "LIST", default_value = "2..1Mi", value_parser = units::ranks)]
    ranks: std::vec::Vec<u64>,
    /// Runs per point
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1 << 28))]
    runs: u64,
    /// Bytes of the vector, or of one block; several make several series
    #[arg(long, value_name = "LIST", default_value = "1", value_parser = units::sizes)]
    size: std::vec::Vec<u64>,
    /// A network by name (chic, altix, cnl, zeptoos, xt4, alps, daint) or L=..,o=..,g=..,G=..,O=..,S=..
    #[arg(long, default_value = "cnl", value_parser = network::parse)]
    net: Params,
    /// A network so many times faster (L, g and G; o stays); several make several series
    #[arg(long, value_name = "FACTOR", value_delimiter = ',', default_value = "1")]
    net_scale: Vec<f64>,
    /// Each series once more with all ranks meeting the same detours at the same time
    #[arg(long, conflicts_with_all = ["coscheduled", "synchronised"])]
    with_coscheduled: bool,
    /// Say what the time went to: the critical path, and whose noise is on it
    #[arg(long)]
    blame: bool,
    #[command(flatten)]
    noise: noise::Options,
    #[command(flatten)]
    work: work::Options,
    /// Keep finished points in this file, and go on from there
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// One line per point in this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// The time of every single run in this file
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    times: Option<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options, verbosity: Verbosity) -> Result<ExitCode> {
    let loaded = options.noise.load_for(options.work.seed, Model::default(), options.blame)?;
    let series = options.series()?;
    let jobs = options.jobs(&series)?;
    let mut finished = match &options.resume {
        Some(path) => Finished::open(path, &options.fingerprint(&loaded.words)?)?,
        None => Finished::nowhere(),
    };
    let passes = if options.blame { 2 } else { 1 };
    let total = jobs.iter().map(|(_, job)| job.messages().saturating_mul(options.runs * passes));
    let progress = work::Progress::new(total.fold(0, u64::saturating_add), verbosity.quiet)?;
    let plan = points::Plan {
        runs: options.runs,
        seed: options.work.seed,
        threads: options.work.threads(),
        memory: work::memory(),
        graph: options.job.graph(),
        progress: &progress,
    };
    let together = loaded.noise.clone().with_offsets(Offsets::Shared);
    let mut times = match &options.times {
        Some(path) => Some(points::Times::create(path)?),
        None => None,
    };
    let mut rows: Vec<Point> = Vec::new();
    let mut blames: Vec<Blames> = Vec::new();
    for (series, job) in &jobs {
        let noise = if series.coscheduled { &together } else { &loaded.noise };
        if options.blame {
            progress.now(format!("{} ranks, why", job.ranks()));
            match options.blames(job, noise, &plan) {
                Ok(of_job) => blames.push(of_job),
                Err(error) => {
                    progress.finish();
                    return match error.downcast_ref() {
                        Some(SweepError::Stopped) => Ok(ExitCode::from(130)),
                        _ => Err(error),
                    };
                }
            }
        }
        if let Some(point) = finished.find(series, job.ranks()) {
            progress.advance(job.messages().saturating_mul(options.runs));
            rows.push(point);
            continue;
        }
        progress.now(format!("{} ranks {}", job.ranks(), series.words(true)));
        match points::simulate(job, series, noise, &plan)? {
            Some((point, runs)) => {
                if let Some(times) = &mut times {
                    times.write(&point, &runs)?;
                }
                finished.add(&point)?;
                rows.push(point);
            }
            None => {
                progress.finish();
                if options.resume.is_some() {
                    eprintln!("stopped; the same command goes on from here");
                }
                return Ok(ExitCode::from(130));
            }
        }
    }
    progress.finish();
    options.write(&rows, &series, &loaded, &blames)?;
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn series(&self) -> Result<Vec<Series>> {
        let mut series = Vec::new();
        for &size in &self.size {
            for &scale in &self.net_scale {
                series.push(Series { size, net_scale: scale, coscheduled: false });
                if self.with_coscheduled {
                    series.push(Series { size, net_scale: scale, coscheduled: true });
                }
            }
        }
        Ok(series)
    }

    fn jobs(&self, series: &[Series]) -> Result<Vec<(Series, Job)>> {
        let mut jobs = Vec::new();
        for series in series {
            let params = self.net.scaled(series.net_scale)?;
            for &ranks in &self.ranks {
                jobs.push((*series, self.job.job(ranks, series.size, params)?));
            }
        }
        Ok(jobs)
    }

    /// The same runs again, written out as a schedule and looked at.
    fn blames(&self, job: &Job, noise: &Noise, plan: &points::Plan<'_>) -> Result<Blames> {
        let schedule = graph::schedule(job, plan.graph)?;
        blaming::check(&schedule, plan.memory)?;
        let rules = sweep::rules(plan.graph, noise.model());
        let advance = |messages| plan.progress.advance(messages);
        let plan = plan.runs(&advance);
        Ok(blame::blame_runs(&schedule, job.params(), &rules, noise, &plan)?)
    }

    /// Everything that decides a point's figures: a file of finished points is for one of these.
    fn fingerprint(&self, noise: &str) -> Result<String> {
        let mut files = Vec::new();
        for path in noise::files(&self.noise) {
            let metadata = std::fs::metadata(&path)
                .with_context(|| format!("cannot look at {}", path.display()))?;
            files.push((path.display().to_string(), metadata.len()));
        }
        Ok(format!(
            "{} {} {:?} {noise} {} {files:?} seed {}",
            self.job.describe(),
            self.runs,
            self.net,
            self.noise.describe(),
            self.work.seed
        ))
    }

    fn write(
        &self,
        rows: &[Point],
        series: &[Series],
        loaded: &noise::Loaded,
        blames: &[Blames],
    ) -> Result<()> {
        if let Some(path) = &self.csv {
            open::write_text(path, &points::csv(rows))?;
        }
        let several = series.len() > 1;
        let knees: Vec<(Series, Option<u64>)> = series
            .iter()
            .map(|series| {
                let own = rows.iter().filter(|point| point.series == *series);
                (*series, stats::knee(&own.map(Point::for_knee).collect::<Vec<_>>()))
            })
            .collect();
        let mut out = std::io::stdout().lock();
        if self.json {
            let first = self.jobs(&series[..1])?;
            let body = first.first().map(|(_, job)| job.body().to_vec()).unwrap_or_default();
            let knees_json: Vec<_> = knees
                .iter()
                .map(|(s, knee)| {
                    json!({
                        "size": s.size, "net_scale": s.net_scale, "coscheduled": s.coscheduled,
                        "knee_ranks": knee
                    })
                })
                .collect();
            let mut points: Vec<_> = rows.iter().map(Point::json).collect();
            for (point, blames) in points.iter_mut().zip(blames) {
                point["blame"] = blaming::json(blames, &loaded.sources)?;
            }
            let value = json!({
                "seed": self.work.seed,
                "noise": loaded.words,
                "noise_model": loaded.model,
                "net": network::describe(&self.net),
                "graph": self.job.graph().name(),
                "op": self.job.operations(),
                "algorithm": body.iter().map(|c| c.algorithm()).collect::<Vec<_>>().join(","),
                "iterations": self.job.iterations,
                "points": points,
                "knee_ranks": knees.first().and_then(|(_, knee)| *knee),
                "knees": knees_json,
            });
            writeln!(out, "{}", report::json_safe(&serde_json::to_string_pretty(&value)?))?;
            return Ok(());
        }
        let words: Vec<_> = rows.iter().map(|point| point.row(several)).collect();
        let knees: Vec<_> = knees.iter().map(|(s, knee)| (s.words(several), *knee)).collect();
        let knees = if loaded.noise.is_none() { &[][..] } else { &knees[..] };
        write!(out, "{}", report::slowdown(&words, knees, layout::layout(true)))?;
        let mut lines = Vec::new();
        for (point, blames) in rows.iter().zip(blames) {
            let figures = blaming::figures(blames, &loaded.sources)?;
            let series = point.series.words(several);
            lines.push(report::BlameRow { series, ranks: point.ranks, figures });
        }
        if !lines.is_empty() {
            write!(out, "\n{}", report::blame_sweep(&lines, layout::layout(false)))?;
        }
        Ok(())
    }
}
