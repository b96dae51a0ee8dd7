//! `detour simulate collective`: the time of a collective under noise, as a sweep over rank counts.

use std::{io::Write, path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
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
    blame as blaming, job,
    network::{self, RendezvousName},
    noise,
    points::{self, Point, Runs, Series},
    resume::Finished,
    shard::{self, Settings},
    sources::Sources,
    work,
};
use crate::{Verbosity, report as layout, results, units};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    #[command(flatten)]
    job: job::Options,
    /// Rank counts, as 1000,5000 or 2..1Mi (powers of two)
    #[arg(long, value_name = "LIST", default_value = "2..1Mi", value_parser = units::ranks)]
    ranks: std::vec::Vec<u64>,
    /// Runs per point
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1 << 28))]
    runs: u64,
    /// Vector or block sizes in bytes; one series per size
    #[arg(long, value_name = "LIST", default_value = "1", value_parser = units::sizes)]
    size: std::vec::Vec<u64>,
    /// Network name (chic, altix, cnl, zeptoos, xt4, alps, daint) or L=..,o=..,g=..,G=..,O=..,S=..
    #[arg(long, default_value = "cnl", value_parser = network::parse)]
    net: Params,
    /// Rendezvous protocol for messages larger than S bytes
    #[arg(long, value_enum, default_value_t)]
    rendezvous: RendezvousName,
    /// Speed up the network by these factors (scales L, g and G, not o); one series per factor
    #[arg(long, value_name = "FACTOR", value_delimiter = ',', default_value = "1")]
    net_scale: Vec<f64>,
    /// Repeat each series with co-scheduled noise: all ranks see the same detours at the same time
    #[arg(long, conflicts_with_all = ["coscheduled", "synchronised"])]
    with_coscheduled: bool,
    /// Break down the critical path, and attribute its noise to sources
    #[arg(long, conflicts_with = "shard")]
    blame: bool,
    #[command(flatten)]
    noise: noise::Options,
    #[command(flatten)]
    work: work::Options,
    #[command(flatten)]
    share: shard::Options,
    /// Save finished points to this file, and resume from it
    #[arg(long, value_name = "FILE", conflicts_with = "shard")]
    resume: Option<PathBuf>,
    /// Write CSV with one line per point to this file
    #[arg(long, value_name = "FILE", conflicts_with = "shard")]
    csv: Option<PathBuf>,
    /// Write CSV with the time of every run to this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["resume", "shard"])]
    times: Option<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options, verbosity: Verbosity) -> Result<ExitCode> {
    results::check([&options.csv, &options.times, &options.share.output])?;
    let loaded = options.noise.load_for(options.work.seed, Model::default(), options.blame)?;
    if options.with_coscheduled && loaded.noise.is_none() {
        return Err(noise::requires_noise("--with-coscheduled"));
    }
    let series = options.series()?;
    let jobs = options.jobs(&series)?;
    let mut finished = match &options.resume {
        Some(path) => Finished::open(path, &Value::Object(options.settings()?).to_string())?,
        None => Finished::nowhere(),
    };
    let passes = if options.blame { 2 } else { 1 };
    let range = options.share.range(options.runs);
    let runs = range.end - range.start;
    let total = jobs.iter().map(|(_, job)| job.messages().saturating_mul(runs * passes));
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
    let mut share: Vec<Runs> = Vec::new();
    let mut blames: Vec<Blames> = Vec::new();
    for (series, job) in &jobs {
        let noise = if series.coscheduled { &together } else { &loaded.noise };
        if options.blame {
            progress.now(format!("{} ranks, blame", job.ranks()));
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
            progress.advance(job.messages().saturating_mul(runs));
            rows.push(point);
            continue;
        }
        progress.now(format!("{} ranks {}", job.ranks(), series.words(true)));
        match points::simulate(job, series, noise, &plan, range.clone())? {
            Some(runs) if options.share.is_some() => share.push(runs),
            Some(runs) => {
                if let Some(times) = &mut times {
                    times.write(&runs)?;
                }
                let point = Point::of(&runs)?;
                finished.add(&point)?;
                rows.push(point);
            }
            None => {
                progress.finish();
                if options.resume.is_some() {
                    tell!("interrupted; run the same command again to resume");
                }
                return Ok(ExitCode::from(130));
            }
        }
    }
    progress.finish();
    if let Some(times) = times {
        times.finish()?;
    }
    let (head, noisy) = (options.head(&series, &loaded)?, !loaded.noise.is_none());
    if options.share.is_some() {
        let results = Results { head, noisy, points: share };
        options.share.write(options.share_settings()?, shard::Results::Collective(results))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(path) = &options.csv {
        results::save(path, |out| Ok(out.write_all(points::csv(&rows).as_bytes())?))?;
    }
    let sources = &loaded.sources;
    let output = Output { head: &head, noisy, points: &rows, blames: &blames, sources };
    output.write(options.json)?;
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
                let job = self.job.job(ranks, series.size, params)?;
                jobs.push((*series, job.with_rendezvous(self.rendezvous.rendezvous())));
            }
        }
        Ok(jobs)
    }

    /// Repeats the runs as an explicit schedule and attributes their time.
    fn blames(&self, job: &Job, noise: &Noise, plan: &points::Plan<'_>) -> Result<Blames> {
        let schedule = graph::schedule(job, plan.graph)?;
        let rules = sweep::rules(job, plan.graph, noise.model());
        blaming::check(&schedule, rules.model, plan.memory)?;
        let advance = |messages| plan.progress.advance(messages);
        let plan = plan.runs(&advance);
        Ok(blame::blame_runs(&schedule, job.params(), &rules, noise, &plan)?)
    }

    /// Everything that determines a point's figures; identifies a --resume file.
    fn settings(&self) -> Result<Settings> {
        let mut settings = self.noise.settings()?;
        settings.insert("job".to_owned(), self.job.describe().into());
        settings.insert("runs".to_owned(), self.runs.into());
        settings.insert("net".to_owned(), format!("{:?}", self.net).into());
        let rendezvous = network::rendezvous_name(self.rendezvous.rendezvous());
        settings.insert("rendezvous".to_owned(), rendezvous.into());
        settings.insert("seed".to_owned(), self.work.seed.into());
        Ok(settings)
    }

    /// The same plus the list of points: shards must have the same points.
    fn share_settings(&self) -> Result<Settings> {
        let mut settings = self.settings()?;
        settings.insert("ranks".to_owned(), self.ranks.clone().into());
        settings.insert("size".to_owned(), self.size.clone().into());
        settings.insert("net_scale".to_owned(), self.net_scale.clone().into());
        settings.insert("with_coscheduled".to_owned(), self.with_coscheduled.into());
        Ok(settings)
    }

    /// The settings shown in the output.
    fn head(&self, series: &[Series], loaded: &noise::Loaded) -> Result<Settings> {
        let first = self.jobs(&series[..1])?;
        let body = first.first().map(|(_, job)| job.body().to_vec()).unwrap_or_default();
        let value = json!({
            "seed": self.work.seed,
            "noise": loaded.words,
            "noise_model": loaded.model,
            "net": network::describe(&self.net),
            "rendezvous": network::rendezvous_name(self.rendezvous.rendezvous()),
            "graph": self.job.graph().name(),
            "op": self.job.operations(),
            "algorithm": body.iter().map(|c| c.algorithm()).collect::<Vec<_>>().join(","),
            "iterations": self.job.iterations,
            "compute_us": self.job.compute as f64 / 1e6,
        });
        Ok(value.as_object().cloned().unwrap_or_default())
    }
}

/// A shard of the runs, or all of them.
#[derive(Serialize, Deserialize)]
pub struct Results {
    head: Settings,
    noisy: bool,
    points: Vec<Runs>,
}

impl Results {
    pub fn join(&mut self, next: Results) -> Result<()> {
        let what = |results: &Results| (results.noisy, results.points.len());
        shard::agree(&self.head, &next.head)?;
        shard::agree(&what(self), &what(&next))?;
        for (all, next) in self.points.iter_mut().zip(next.points) {
            all.join(next)?;
        }
        Ok(())
    }

    pub fn write(&self, json: bool) -> Result<()> {
        let points: Result<Vec<Point>, _> = self.points.iter().map(Point::of).collect();
        Output {
            head: &self.head,
            noisy: self.noisy,
            points: &points?,
            blames: &[],
            sources: &Sources::default(),
        }
        .write(json)
    }
}

/// Adds the keys of a knee.
fn put_knee(value: &mut Value, knee: Option<stats::Knee>) {
    value["knee_ranks"] = json!(knee.map(|knee| knee.ranks));
    value["knee_above_ranks"] = json!(knee.and_then(|knee| knee.above));
    value["knee_is_upper_bound"] = json!(knee.is_some_and(|knee| knee.is_upper_bound()));
}

/// The output.
struct Output<'a> {
    head: &'a Settings,
    noisy: bool,
    points: &'a [Point],
    blames: &'a [Blames],
    sources: &'a Sources,
}

impl Output<'_> {
    /// Each series with the rank count at which noise dominates.
    fn knees(&self) -> Vec<(Series, Option<stats::Knee>)> {
        let mut series: Vec<Series> = Vec::new();
        for point in self.points {
            if !series.contains(&point.series) {
                series.push(point.series);
            }
        }
        let knee = |series: Series| {
            let own = self.points.iter().filter(|point| point.series == series);
            (series, stats::knee(&own.map(Point::for_knee).collect::<Vec<_>>()))
        };
        series.into_iter().map(knee).collect()
    }

    fn write(&self, json: bool) -> Result<()> {
        let text = if json { self.json()? } else { self.text()? };
        write!(std::io::stdout().lock(), "{text}")?;
        Ok(())
    }

    fn json(&self) -> Result<String> {
        let knees = self.knees();
        let knees_json: Vec<_> = knees
            .iter()
            .map(|(s, knee)| {
                let mut value = json!({
                    "size": s.size, "net_scale": s.net_scale, "coscheduled": s.coscheduled,
                });
                put_knee(&mut value, *knee);
                value
            })
            .collect();
        let mut points: Vec<_> = self.points.iter().map(Point::json).collect();
        for (point, blames) in points.iter_mut().zip(self.blames) {
            point["blame"] = blaming::json(blames, self.sources)?;
        }
        let mut value = Value::Object(self.head.clone());
        value["points"] = points.into();
        put_knee(&mut value, knees.first().and_then(|(_, knee)| *knee));
        value["knees"] = knees_json.into();
        Ok(report::json_safe(&serde_json::to_string_pretty(&value)?) + "\n")
    }

    fn text(&self) -> Result<String> {
        let knees = self.knees();
        let several = knees.len() > 1;
        let rows: Vec<_> = self.points.iter().map(|point| point.row(several)).collect();
        let knees: Vec<_> =
            knees.iter().map(|(s, knee)| (s.words(several), knee.map(points::knee))).collect();
        let knees = if self.noisy { &knees[..] } else { &[][..] };
        let mut text = report::slowdown(&rows, knees, layout::layout(true));
        let mut lines = Vec::new();
        for (point, blames) in self.points.iter().zip(self.blames) {
            let figures = blaming::figures(blames, self.sources)?;
            let series = point.series.words(several);
            lines.push(report::BlameRow { series, ranks: point.ranks, figures });
        }
        if !lines.is_empty() {
            text += &format!("\n{}", report::blame_sweep(&lines, layout::layout(false)));
        }
        Ok(text)
    }
}
