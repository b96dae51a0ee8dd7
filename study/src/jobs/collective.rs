//! The time of a collective, or of a loop of them, under noise: a sweep over rank counts.

use std::{ops::Range, path::PathBuf, time::Instant};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use simulate::{
    blame as blaming, cycle,
    event::Rendezvous,
    graph::{self, Graph, GraphError},
    job::Job,
    loggops::Params,
    noise::{Model, Noise},
    stats::{self, Knee},
    sweep,
};

use crate::{
    explain::blame::{self, Blame},
    jobs::{
        choices::{Choice, choices, met},
        job,
    },
    network,
    network::variation::{self, Variation},
    noise::{self, Loaded, requires_noise, tail::Extended},
    run::{
        point::{Point, Runs, Series, Times},
        resume::Finished,
        shard::{self, Settings, Shard},
        work::Work,
    },
};

/// What to simulate: one point for each rank count and series. A series is one choice from each list.
#[derive(Clone, Debug)]
pub struct Request {
    pub jobs: Vec<job::Request>,
    pub ranks: Vec<u64>,
    /// Runs per point.
    pub runs: u64,
    /// Vector or block sizes, bytes.
    pub sizes: Vec<u64>,
    pub nets: Vec<Params>,
    pub rendezvous: Rendezvous,
    /// Between ranks of one node; None if that is the same network.
    pub net_local: Option<Params>,
    /// None if every message takes L.
    pub latency: Option<variation::Request>,
    /// Ranks start as a barrier leaves them, and the time of each counts from its own start.
    pub after_barrier: bool,
    /// Factors by which the network is faster.
    pub net_scales: Vec<f64>,
    /// Repeat each series with co-scheduled noise.
    pub with_coscheduled: bool,
    /// Break down the critical path.
    pub blame: bool,
    /// Each of its variants.
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
    /// The network between ranks of one node; null if it is the same.
    #[serde(default)]
    pub net_local: Option<String>,
    /// File of the latencies of messages, and how they are drawn; null if every message takes L.
    #[serde(default)]
    pub latency: Option<String>,
    /// Whether ranks start as a barrier leaves them.
    #[serde(default)]
    pub after_barrier: bool,
    pub rendezvous: String,
    pub graph: String,
    pub op: String,
    pub algorithm: String,
    pub iterations: u64,
    pub compute_us: f64,
    /// How nonblocking collectives progress during compute; null if they block.
    #[serde(default)]
    pub nonblocking: Option<String>,
    /// About the noise.
    pub remarks: Vec<String>,
    /// With `--tail`, how far each recording was extended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tails: Vec<Extended>,
}

/// Where noise takes over in one series.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    pub(crate) fn of(about: About, points: Vec<Point>) -> Sweep {
        let knees = knees(&points);
        let knee = knees.first().map_or(KneeKeys::default(), |first| first.knee);
        Sweep { about, points, knee, knees }
    }

    /// Whether there is any noise.
    pub fn is_noisy(&self) -> bool {
        self.about.noise != "none" || self.about.latency.is_some()
    }
}

/// Where noise takes over in each series of a sweep.
pub(crate) fn knees(points: &[Point]) -> Vec<SeriesKnee> {
    let mut series: Vec<Series> = Vec::new();
    for point in points {
        if !series.contains(&point.series) {
            series.push(point.series.clone());
        }
    }
    let knee = |series: Series| {
        let own = points.iter().filter(|point| point.series == series);
        let knee = stats::knee(&own.map(Point::for_knee).collect::<Vec<_>>());
        SeriesKnee { series, knee: KneeKeys::of(knee) }
    };
    series.into_iter().map(knee).collect()
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
    for planned in &simulation.points {
        let PlannedPoint { choice, job, .. } = planned;
        let blame = match request.blame {
            true => Some(simulation.blame(planned)?),
            false => None,
        };
        let point = match finished.find(&choice.series, job.ranks()) {
            Some(point) => {
                work.watch.advance(job.messages().saturating_mul(request.runs));
                point
            }
            None => {
                let runs = simulation.runs(planned, runs.clone())?;
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
    let of_point = |point: &PlannedPoint<'_>| simulation.runs(point, runs.clone());
    let points = simulation.points.iter().map(of_point).collect::<Result<Vec<Runs>>>()?;
    Ok(Partial { about: simulation.about()?, points })
}

struct Simulation<'a> {
    request: &'a Request,
    work: &'a Work<'a>,
    /// By number of the variant.
    loaded: Vec<Loaded>,
    variation: Option<Variation>,
    points: Vec<PlannedPoint<'a>>,
}

struct PlannedPoint<'a> {
    choice: Choice<'a>,
    job: Job,
    graph: Graph,
}

impl<'a> Simulation<'a> {
    fn new(request: &'a Request, work: &'a Work<'a>) -> Result<Simulation<'a>> {
        let load = |noise: &noise::Request| noise.load_for(work, Model::default(), request.blame);
        let loaded = request.noise.variants().iter().map(load).collect::<Result<Vec<_>>>()?;
        if request.with_coscheduled && loaded.iter().any(|loaded| loaded.noise.is_none()) {
            return Err(requires_noise("--with-coscheduled"));
        }
        if request.blame && (request.after_barrier || request.net_local.is_some()) {
            bail!(
                "--blame requires one network and ranks that start together: omit it, or --net-local and --after-barrier"
            );
        }
        let variation = request.latency.as_ref().map(variation::Request::load).transpose()?;
        let simulation = Simulation { request, work, loaded, variation, points: request.points()? };
        simulation.check_redundant()?;
        request.remarks().iter().for_each(|remark| work.watch.remark(remark));
        Ok(simulation)
    }

    /// What the redundant butterfly does not support is an error before anything is simulated.
    fn check_redundant(&self) -> Result<()> {
        for point in &self.points {
            if point.job.is_redundant() {
                cycle::config_of(&point.job, &self.noise(point)?)?;
                if self.request.blame {
                    return Err(GraphError::Redundant.into());
                }
            }
        }
        Ok(())
    }

    fn expect(&self, runs: &Range<u64>, passes: u64) {
        let runs = (runs.end - runs.start) * passes;
        let total = self.points.iter().map(|point| point.job.messages().saturating_mul(runs));
        self.work.watch.expect(total.fold(0, u64::saturating_add));
    }

    fn noise(&self, PlannedPoint { choice, job, .. }: &PlannedPoint<'_>) -> Result<Noise> {
        let loaded = &self.loaded[choice.noise];
        met(&choice.series, loaded, self.variation.as_ref(), job.params())
    }

    fn runs(&self, point: &PlannedPoint<'_>, runs: Range<u64>) -> Result<Runs> {
        let PlannedPoint { choice, job, graph } = point;
        self.work.watch.now(&format!("{} ranks {}", job.ranks(), choice.series.label()));
        let (graph, noise) = (*graph, self.noise(point)?);
        let noiseless_ps = sweep::noiseless(job, graph, noise.model())?;
        let begin = Instant::now();
        let advance = |messages| self.work.watch.advance(messages);
        let plan = self.work.plan(self.request.runs, &advance);
        let runs: Vec<u64> = runs.collect();
        let times_ps = sweep::times_of(job, graph, &noise, &plan, &runs)?;
        Ok(Runs {
            series: choice.series.clone(),
            ranks: job.ranks(),
            messages: job.messages(),
            noiseless_ps,
            times_ps,
            took_s: begin.elapsed().as_secs_f64(),
        })
    }

    /// Repeats the runs as an explicit schedule and attributes their time.
    fn blame(&self, point: &PlannedPoint<'_>) -> Result<Blame> {
        let PlannedPoint { choice, job, graph } = point;
        self.work.watch.now(&format!("{} ranks, blame", job.ranks()));
        let (graph, noise) = (*graph, self.noise(point)?);
        let schedule = graph::schedule(job, graph)?;
        let rules = sweep::rules(job, graph, noise.model());
        blame::check(&schedule, rules.model, self.work.memory())?;
        let advance = |messages| self.work.watch.advance(messages);
        let plan = self.work.plan(self.request.runs, &advance);
        let blames = blaming::blame_runs(&schedule, job.params(), &rules, &noise, &plan)?;
        Ok(Blame::of(&blames, &self.loaded[choice.noise].sources)?)
    }

    fn about(&self) -> Result<About> {
        let Request { jobs, nets, net_local, rendezvous, latency, after_barrier, .. } =
            self.request;
        let (first, Some(job)) = (self.loaded.first(), jobs.first()) else {
            bail!("a sweep needs at least one operation");
        };
        let algorithms = self.points.iter().map(|point| algorithms(&point.job));
        let mut remarks = noise::remarks(&self.loaded);
        remarks.extend(self.request.remarks());
        Ok(About {
            seed: self.work.seed,
            noise: several(self.loaded.iter().map(|loaded| loaded.words.clone())),
            noise_model: first.map_or_else(String::new, |first| first.model.name().to_owned()),
            net: several(nets.iter().map(network::describe)),
            net_local: net_local.as_ref().map(network::describe),
            latency: latency.as_ref().map(variation::Request::words),
            after_barrier: *after_barrier,
            rendezvous: rendezvous.name().to_owned(),
            graph: job.graph.name().to_owned(),
            op: several(jobs.iter().map(job::Request::operations)),
            algorithm: several(algorithms),
            iterations: job.iterations,
            compute_us: job.compute as f64 / 1e6,
            nonblocking: job.nonblocking.map(|progress| progress.name().to_owned()),
            remarks,
            tails: first.map_or_else(Vec::new, |first| first.tails.clone()),
        })
    }
}

/// `ring,linear`: the algorithms of a job's collectives.
fn algorithms(job: &Job) -> String {
    job.algorithms().collect::<Vec<_>>().join(",")
}

/// Each of these once, as in a list of the command line.
pub(crate) fn several(all: impl Iterator<Item = String>) -> String {
    let mut different: Vec<String> = Vec::new();
    for one in all {
        if !different.contains(&one) {
            different.push(one);
        }
    }
    different.join("|")
}

impl Request {
    /// About networks of which an algorithm uses only a part, each once.
    fn remarks(&self) -> Vec<String> {
        let all = self.nets.iter().flat_map(|net| self.jobs.iter().map(|job| job.remark(net)));
        let mut remarks: Vec<String> = all.flatten().collect();
        remarks.dedup();
        remarks
    }

    /// In the order in which they are simulated.
    pub fn series(&self) -> Vec<Series> {
        self.choices().into_iter().map(|(_, choice)| choice.series).collect()
    }

    /// The jobs, and the series of each.
    fn choices(&self) -> Vec<(&job::Request, Choice<'_>)> {
        let noises = self.noise.variants();
        // Only what differs distinguishes series.
        let ops = several(self.jobs.iter().map(job::Request::operations)).contains('|');
        // The default algorithm of each operation goes without saying.
        let algorithms = self.jobs.iter().any(|one| {
            let other = |other: &job::Request| {
                other.ops == one.ops && other.algorithms() != one.algorithms()
            };
            self.jobs.iter().any(other)
        });
        let all = self.jobs.iter().flat_map(|job| {
            let alike = Series {
                op: ops.then(|| job.operations()),
                algorithm: algorithms.then(|| job.algorithms()),
                sizes: job.sizes.as_ref().map(|sizes| sizes.text.clone()),
                ..Series::default()
            };
            let sizes = if job.is_of_blocks() { &[0][..] } else { &self.sizes };
            let Request { nets, net_scales, with_coscheduled, .. } = self;
            let all = choices(&alike, nets, &noises, sizes, net_scales, *with_coscheduled);
            all.into_iter().map(move |choice| (job, choice))
        });
        all.collect()
    }

    fn points(&self) -> Result<Vec<PlannedPoint<'_>>> {
        let mut points = Vec::new();
        for (of, choice) in self.choices() {
            let params = choice.net.scaled(choice.series.net_scale)?;
            // Only the network between nodes is scaled.
            let local = network::local(self.net_local, &self.noise.placement)?;
            for &ranks in &self.ranks {
                let job = of.job(ranks, choice.series.size, params)?;
                let job = job.with_rendezvous(self.rendezvous).after_barrier(self.after_barrier);
                let job = job.with_local(local)?;
                points.push(PlannedPoint { choice: choice.clone(), job, graph: of.graph });
            }
        }
        Ok(points)
    }

    /// Everything that determines a point's figures; identifies a --resume file.
    fn point_settings(&self, work: &Work<'_>) -> Result<Settings> {
        let mut settings = self.noise.settings()?;
        let jobs = self.jobs.iter().map(job::Request::describe);
        settings.insert("job".to_owned(), several(jobs).into());
        settings.insert("runs".to_owned(), self.runs.into());
        let nets = self.nets.iter().map(|net| format!("{net:?}"));
        settings.insert("net".to_owned(), several(nets).into());
        settings.insert("rendezvous".to_owned(), self.rendezvous.name().into());
        if let Some(local) = &self.net_local {
            settings.insert("net_local".to_owned(), format!("{local:?}").into());
        }
        if let Some(latency) = &self.latency {
            settings.insert("latency".to_owned(), latency.settings()?);
        }
        if self.after_barrier {
            settings.insert("after_barrier".to_owned(), true.into());
        }
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
