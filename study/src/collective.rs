//! The time of a collective, or of a loop of them, under noise: a sweep over rank counts.

use std::{ops::Range, path::PathBuf, time::Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use simulate::{
    blame as blaming,
    event::Rendezvous,
    graph,
    job::Job,
    loggops::Params,
    noise::{Model, Noise, Offsets},
    stats::{self, Knee},
    sweep,
};

use crate::{
    blame::{self, Blame},
    job, network,
    noise::{self, Loaded, requires_noise},
    point::{Point, Runs, Series, Times},
    resume::Finished,
    shard::{self, Settings, Shard},
    work::Work,
};

/// What to simulate: one point for each rank count, size and network speed.
#[derive(Clone, Debug)]
pub struct Request {
    pub job: job::Request,
    pub ranks: Vec<u64>,
    /// Runs per point.
    pub runs: u64,
    /// Vector or block sizes, bytes.
    pub sizes: Vec<u64>,
    pub net: Params,
    pub rendezvous: Rendezvous,
    /// Factors by which the network is faster.
    pub net_scales: Vec<f64>,
    /// Repeat each series with co-scheduled noise.
    pub with_coscheduled: bool,
    /// Break down the critical path.
    pub blame: bool,
    pub noise: noise::Request,
    /// Save finished points to this file, and resume from it.
    pub resume: Option<PathBuf>,
    /// Write the time of every run to this file.
    pub times: Option<PathBuf>,
}

/// Times of a collective under noise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sweep {
    #[serde(flatten)]
    pub about: About,
    pub points: Vec<Point>,
    /// The knee of the first series.
    #[serde(flatten)]
    pub knee: KneeKeys,
    pub knees: Vec<SeriesKnee>,
}

/// What was simulated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    pub seed: u64,
    pub noise: String,
    pub noise_model: String,
    pub net: String,
    pub rendezvous: String,
    pub graph: String,
    pub op: String,
    pub algorithm: String,
    pub iterations: u64,
    pub compute_us: f64,
    /// About the noise.
    pub remarks: Vec<String>,
}

/// Where noise takes over in one series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SeriesKnee {
    #[serde(flatten)]
    pub series: Series,
    #[serde(flatten)]
    pub knee: KneeKeys,
}

/// The rank count from which noise dominates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KneeKeys {
    /// The smallest simulated rank count from which noise dominates; null if there is none.
    pub knee_ranks: Option<u64>,
    /// The largest smaller one at which it certainly does not.
    pub knee_above_ranks: Option<u64>,
    /// Noise may also dominate at fewer ranks.
    pub knee_is_upper_bound: bool,
    #[serde(skip)]
    pub knee: Option<Knee>,
}

impl KneeKeys {
    fn of(knee: Option<Knee>) -> KneeKeys {
        KneeKeys {
            knee_ranks: knee.map(|knee| knee.ranks),
            knee_above_ranks: knee.and_then(|knee| knee.above),
            knee_is_upper_bound: knee.is_some_and(|knee| knee.is_upper_bound()),
            knee,
        }
    }
}

impl Sweep {
    fn of(about: About, points: Vec<Point>) -> Sweep {
        let mut series: Vec<Series> = Vec::new();
        for point in &points {
            if !series.contains(&point.series) {
                series.push(point.series);
            }
        }
        let knee = |series: Series| {
            let own = points.iter().filter(|point| point.series == series);
            let knee = stats::knee(&own.map(Point::for_knee).collect::<Vec<_>>());
            SeriesKnee { series, knee: KneeKeys::of(knee) }
        };
        let knees: Vec<SeriesKnee> = series.into_iter().map(knee).collect();
        let knee = knees.first().map_or(KneeKeys::default(), |first| first.knee);
        Sweep { about, points, knee, knees }
    }

    /// Whether there is any noise.
    pub fn is_noisy(&self) -> bool {
        self.about.noise != "none"
    }
}

/// The runs of a sweep, or a shard of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Partial {
    about: About,
    points: Vec<Runs>,
}

impl Partial {
    pub fn join(&mut self, next: Partial) -> Result<()> {
        shard::agree(&self.about, &next.about)?;
        shard::agree(&self.points.len(), &next.points.len())?;
        for (all, next) in self.points.iter_mut().zip(next.points) {
            all.join(next)?;
        }
        Ok(())
    }

    pub fn finish(self) -> Result<Sweep> {
        let points: Result<Vec<Point>, _> = self.points.iter().map(Point::of).collect();
        Ok(Sweep::of(self.about, points?))
    }
}

/// Simulates all runs.
pub fn simulate(request: &Request, work: &Work<'_>) -> Result<Sweep> {
    simulate_each(request, work, &mut |_| Ok(()))
}

/// The same; `finished_point` sees each point as soon as it is known.
pub fn simulate_each(
    request: &Request,
    work: &Work<'_>,
    finished_point: &mut dyn FnMut(&Point) -> Result<()>,
) -> Result<Sweep> {
    let simulation = Simulation::new(request, work)?;
    let mut finished = match &request.resume {
        Some(path) => {
            Finished::open(path, &Value::Object(request.point_settings(work)?).to_string())?
        }
        None => Finished::nowhere(),
    };
    let mut times = request.times.as_deref().map(Times::create).transpose()?;
    let runs = 0..request.runs;
    simulation.expect(&runs, if request.blame { 2 } else { 1 });
    let mut points: Vec<Point> = Vec::new();
    for (series, job) in &simulation.jobs {
        let blame = match request.blame {
            true => Some(simulation.blame(series, job)?),
            false => None,
        };
        let point = match finished.find(series, job.ranks()) {
            Some(point) => {
                work.watch.advance(job.messages().saturating_mul(request.runs));
                point
            }
            None => {
                let runs = simulation.runs(series, job, runs.clone())?;
                if let Some(times) = &mut times {
                    times.write(&runs)?;
                }
                let point = Point::of(&runs)?;
                finished.add(&point)?;
                point
            }
        };
        finished_point(&point)?;
        points.push(Point { blame, ..point });
    }
    if let Some(times) = times {
        times.finish()?;
    }
    Ok(Sweep::of(simulation.about()?, points))
}

/// Simulates one shard of the runs.
pub fn simulate_shard(request: &Request, work: &Work<'_>, shard: Shard) -> Result<Partial> {
    let simulation = Simulation::new(request, work)?;
    let runs = shard.range(request.runs);
    simulation.expect(&runs, 1);
    let of_point = |(series, job): &(Series, Job)| simulation.runs(series, job, runs.clone());
    let points = simulation.jobs.iter().map(of_point).collect::<Result<Vec<Runs>>>()?;
    Ok(Partial { about: simulation.about()?, points })
}

struct Simulation<'a> {
    request: &'a Request,
    work: &'a Work<'a>,
    loaded: Loaded,
    /// The same noise, co-scheduled.
    together: Noise,
    jobs: Vec<(Series, Job)>,
}

impl<'a> Simulation<'a> {
    fn new(request: &'a Request, work: &'a Work<'a>) -> Result<Simulation<'a>> {
        let loaded = request.noise.load_for(work, Model::default(), request.blame)?;
        if request.with_coscheduled && loaded.noise.is_none() {
            return Err(requires_noise("--with-coscheduled"));
        }
        let together = loaded.noise.clone().with_offsets(Offsets::Shared);
        Ok(Simulation { request, work, loaded, together, jobs: request.jobs()? })
    }

    fn expect(&self, runs: &Range<u64>, passes: u64) {
        let runs = (runs.end - runs.start) * passes;
        let total = self.jobs.iter().map(|(_, job)| job.messages().saturating_mul(runs));
        self.work.watch.expect(total.fold(0, u64::saturating_add));
    }

    fn noise(&self, series: &Series) -> &Noise {
        if series.coscheduled { &self.together } else { &self.loaded.noise }
    }

    fn runs(&self, series: &Series, job: &Job, runs: Range<u64>) -> Result<Runs> {
        self.work.watch.now(&format!("{} ranks {}", job.ranks(), series.label()));
        let (graph, noise) = (self.request.job.graph, self.noise(series));
        let noiseless_ps = sweep::noiseless(job, graph, noise.model())?;
        let begin = Instant::now();
        let advance = |messages| self.work.watch.advance(messages);
        let plan = self.work.plan(self.request.runs, &advance);
        let runs: Vec<u64> = runs.collect();
        let times_ps = sweep::times_of(job, graph, noise, &plan, &runs)?;
        Ok(Runs {
            series: *series,
            ranks: job.ranks(),
            messages: job.messages(),
            noiseless_ps,
            times_ps,
            took_s: begin.elapsed().as_secs_f64(),
        })
    }

    /// Repeats the runs as an explicit schedule and attributes their time.
    fn blame(&self, series: &Series, job: &Job) -> Result<Blame> {
        self.work.watch.now(&format!("{} ranks, blame", job.ranks()));
        let (graph, noise) = (self.request.job.graph, self.noise(series));
        let schedule = graph::schedule(job, graph)?;
        let rules = sweep::rules(job, graph, noise.model());
        blame::check(&schedule, rules.model, self.work.memory())?;
        let advance = |messages| self.work.watch.advance(messages);
        let plan = self.work.plan(self.request.runs, &advance);
        let blames = blaming::blame_runs(&schedule, job.params(), &rules, noise, &plan)?;
        Ok(Blame::of(&blames, &self.loaded.sources)?)
    }

    fn about(&self) -> Result<About> {
        let Request { job, net, rendezvous, .. } = self.request;
        let body = self.jobs.first().map(|(_, job)| job.body().to_vec()).unwrap_or_default();
        Ok(About {
            seed: self.work.seed,
            noise: self.loaded.words.clone(),
            noise_model: self.loaded.model.name().to_owned(),
            net: network::describe(net),
            rendezvous: rendezvous.name().to_owned(),
            graph: job.graph.name().to_owned(),
            op: job.operations(),
            algorithm: body.iter().map(|c| c.algorithm()).collect::<Vec<_>>().join(","),
            iterations: job.iterations,
            compute_us: job.compute as f64 / 1e6,
            remarks: self.loaded.remarks.clone(),
        })
    }
}

impl Request {
    /// In the order in which they are simulated.
    pub fn series(&self) -> Vec<Series> {
        let mut series = Vec::new();
        for &size in &self.sizes {
            for &net_scale in &self.net_scales {
                series.push(Series { size, net_scale, coscheduled: false });
                if self.with_coscheduled {
                    series.push(Series { size, net_scale, coscheduled: true });
                }
            }
        }
        series
    }

    fn jobs(&self) -> Result<Vec<(Series, Job)>> {
        let mut jobs = Vec::new();
        for series in self.series() {
            let params = self.net.scaled(series.net_scale)?;
            for &ranks in &self.ranks {
                let job = self.job.job(ranks, series.size, params)?;
                jobs.push((series, job.with_rendezvous(self.rendezvous)));
            }
        }
        Ok(jobs)
    }

    /// Everything that determines a point's figures; identifies a --resume file.
    fn point_settings(&self, work: &Work<'_>) -> Result<Settings> {
        let mut settings = self.noise.settings()?;
        settings.insert("job".to_owned(), self.job.describe().into());
        settings.insert("runs".to_owned(), self.runs.into());
        settings.insert("net".to_owned(), format!("{:?}", self.net).into());
        settings.insert("rendezvous".to_owned(), self.rendezvous.name().into());
        settings.insert("seed".to_owned(), work.seed.into());
        Ok(settings)
    }

    /// The same plus the list of points: shards must have the same points.
    pub fn settings(&self, work: &Work<'_>) -> Result<Settings> {
        let mut settings = self.point_settings(work)?;
        settings.insert("ranks".to_owned(), self.ranks.clone().into());
        settings.insert("size".to_owned(), self.sizes.clone().into());
        settings.insert("net_scale".to_owned(), self.net_scales.clone().into());
        settings.insert("with_coscheduled".to_owned(), self.with_coscheduled.into());
        Ok(settings)
    }
}
