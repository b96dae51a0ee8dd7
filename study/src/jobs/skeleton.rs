//! Skeletons of parallel programs under noise: models with the communication pattern of a program, as a
//! sweep over rank counts.

use std::time::Instant;

use analysis::words::{plural, time};
use anyhow::{Result, bail};
use serde::Serialize;
use simulate::{
    blame as blaming,
    collectives::Op,
    event::{self, Rendezvous, Rules},
    loggops::Params,
    noise::{Model, Noise},
    skeleton::{self, Call, Imbalance, Only, Pattern, Preset, Program, Skeleton, Solver},
};

use crate::{
    explain::blame::{self, Blame},
    jobs::{
        choices::{Choice, choices, met},
        collective::{self, KneeKeys, SeriesKnee, Sweep, several},
    },
    network,
    network::variation::{self, Variation},
    noise::{self, Loaded, requires_noise, tail::Extended},
    run::{
        point::{Point, Runs, Series},
        work::Work,
    },
};

/// A pattern with the size of its grid, or a preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    Wavefront([u64; 2]),
    Halo([u64; 3]),
    Multigrid([u64; 3]),
    Ocean([u64; 2]),
    Preset(Preset),
}

/// `wavefront:10x10`, `halo:4x4x4`, `multigrid:5x5x5`, `ocean:16x8`.
pub fn parse_pattern(text: &str) -> Result<Name, String> {
    let wrong = || {
        format!(
            "'{text}' is not a pattern (expected wavefront:PxQ, halo:PxQxR, multigrid:PxQxR or \
             ocean:PxQ)"
        )
    };
    let (name, sides) = text.split_once(':').ok_or_else(wrong)?;
    let sides: Option<Vec<u64>> =
        sides.split('x').map(|side| side.parse().ok().filter(|&side| side > 0)).collect();
    match (name, sides.as_deref()) {
        ("wavefront", Some(&[p, q])) => Ok(Name::Wavefront([p, q])),
        ("halo", Some(&[p, q, r])) => Ok(Name::Halo([p, q, r])),
        ("multigrid", Some(&[p, q, r])) => Ok(Name::Multigrid([p, q, r])),
        ("ocean", Some(&[p, q])) => Ok(Name::Ocean([p, q])),
        _ => Err(wrong()),
    }
}

/// `sweep3d`, `amg2006` or `pop`.
pub fn parse_preset(text: &str) -> Result<Name, String> {
    let preset = Preset::ALL.into_iter().find(|preset| preset.name() == text);
    preset
        .map(Name::Preset)
        .ok_or_else(|| format!("unknown preset '{text}' (expected sweep3d, amg2006 or pop)"))
}

/// Either.
pub fn parse_name(text: &str) -> Result<Name, String> {
    if text.contains(':') {
        return parse_pattern(text);
    }
    parse_preset(text).map_err(|_| {
        format!(
            "'{text}' is not a skeleton (expected wavefront:PxQ, halo:PxQxR, multigrid:PxQxR, ocean:PxQ, \
             sweep3d, amg2006 or pop)"
        )
    })
}

/// A skeleton; None for the default of the pattern or preset.
#[derive(Clone, Debug)]
pub struct Description {
    pub name: Name,
    pub iterations: Option<u64>,
    /// Per rank and iteration, ps.
    pub compute: Option<i64>,
    /// Bytes of a message between neighbours.
    pub size: Option<u64>,
    pub imbalance_pct: Option<f64>,
    pub allreduces: Option<u64>,
    pub blocks: Option<u64>,
    pub levels: Option<u64>,
    pub exchanges: Option<u64>,
    pub solver: Option<u64>,
    /// Per rank and iteration of the solver, ps.
    pub solver_compute: Option<i64>,
    pub only: Option<Only>,
}

/// Defaults of a pattern.
const ITERATIONS: u64 = 10;
const COMPUTE: i64 = 1_000_000_000;
/// A nanosecond, the usual unit of GOAL.
const RESOLUTION: i64 = 1_000;
const SIZE: u64 = 1024;
const BLOCKS: u64 = 10;
const LEVELS: u64 = 5;
/// Levels on which only some ranks are active.
const COARSE_LEVELS: u64 = 2;
const SOLVER: u64 = 20;
const SOLVER_COMPUTE: i64 = 20_000_000;
/// Bytes of a reduced number.
const NUMBER: u64 = 8;

impl Description {
    fn usual(&self) -> Skeleton {
        let allreduces = |times| vec![Call { op: Op::Allreduce, bytes: NUMBER, times }];
        let mut calls = allreduces(self.allreduces.unwrap_or(1));
        let pattern = match self.name {
            Name::Preset(preset) => return preset.skeleton(),
            Name::Wavefront(sides) => Pattern::Wavefront { sides, blocks: BLOCKS },
            Name::Halo(sides) => Pattern::Halo { sides, exchanges: 1 },
            Name::Multigrid(sides) => {
                let full = LEVELS - COARSE_LEVELS;
                Pattern::Multigrid { sides, levels: LEVELS, full, exchanges: 1 }
            }
            Name::Ocean(sides) => {
                calls = Vec::new();
                let solver = Solver {
                    iterations: SOLVER,
                    compute: SOLVER_COMPUTE,
                    exchange_every: 1,
                    calls: allreduces(self.allreduces.unwrap_or(2)),
                };
                Pattern::Ocean { sides, exchanges: 1, solver }
            }
        };
        let imbalance = Imbalance { ppm: 0, seed: 1 };
        Skeleton {
            pattern,
            copies: 1,
            iterations: ITERATIONS,
            compute: COMPUTE,
            resolution: RESOLUTION,
            bytes: SIZE,
            imbalance,
            setup: Vec::new(),
            calls,
        }
    }

    /// The skeleton on this many ranks; None for those of its grid.
    pub fn skeleton(&self, ranks: Option<u64>) -> Result<Skeleton> {
        let mut skeleton = self.usual();
        skeleton.iterations = self.iterations.unwrap_or(skeleton.iterations);
        skeleton.compute = self.compute.unwrap_or(skeleton.compute);
        skeleton.bytes = self.size.unwrap_or(skeleton.bytes);
        if let Some(pct) = self.imbalance_pct {
            if pct > 100.0 {
                bail!("--imbalance {pct}% exceeds 100 %: compute would be negative");
            }
            skeleton.imbalance.ppm = (pct * 1e4).round() as u32;
        }
        let name = skeleton.pattern.name();
        let not_for = |option: &str, given: bool| match given {
            true => bail!("{option} does not apply to {name}: omit it"),
            false => Ok(()),
        };
        if matches!(self.name, Name::Preset(_)) && self.allreduces.is_some() {
            bail!(
                "--allreduces does not apply to a preset, whose calls are those of the study: omit it"
            );
        }
        let pattern = &mut skeleton.pattern;
        if let Pattern::Wavefront { blocks, .. } = pattern {
            *blocks = self.blocks.unwrap_or(*blocks);
            not_for("--exchanges", self.exchanges.is_some())?;
        } else {
            not_for("--blocks", self.blocks.is_some())?;
        }
        if let Pattern::Multigrid { levels, full, .. } = pattern {
            if let Some(given) = self.levels {
                *full = given.saturating_sub(levels.saturating_sub(*full)).max(1);
                *levels = given;
            }
        } else {
            not_for("--levels", self.levels.is_some())?;
        }
        if let Pattern::Ocean { solver, .. } = pattern {
            solver.iterations = self.solver.unwrap_or(solver.iterations);
            solver.compute = self.solver_compute.unwrap_or(solver.compute);
        } else {
            not_for("--solver", self.solver.is_some())?;
            not_for("--solver-compute", self.solver_compute.is_some())?;
        }
        if let Pattern::Halo { exchanges, .. }
        | Pattern::Multigrid { exchanges, .. }
        | Pattern::Ocean { exchanges, .. } = pattern
        {
            *exchanges = self.exchanges.unwrap_or(*exchanges);
        }
        Ok(match ranks {
            Some(ranks) => skeleton.with_ranks(ranks)?,
            None => skeleton,
        })
    }

    /// Its steps, without what `--only` excludes.
    pub fn program(&self, ranks: Option<u64>) -> Result<Program> {
        let program = self.skeleton(ranks)?.program()?;
        Ok(match self.only {
            Some(only) => program.only(only),
            None => program,
        })
    }

    /// `pop: ocean 16x8`, or `halo 4x4x4`.
    pub fn words(&self) -> Result<String> {
        let Skeleton { pattern, iterations, compute, imbalance, .. } = self.skeleton(None)?;
        let sides = pattern.sides();
        let sides = match pattern {
            Pattern::Wavefront { .. } | Pattern::Ocean { .. } => &sides[..2],
            _ => &sides[..],
        };
        let sides = sides.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
        let preset = match self.name {
            Name::Preset(preset) => format!("{}: ", preset.name()),
            _ => String::new(),
        };
        let mut words = format!(
            "{preset}{} {sides}, {} with {} of compute",
            pattern.name(),
            plural(iterations, "iteration"),
            time(compute as f64 / 1e3)
        );
        if imbalance.ppm > 0 {
            words += &format!(" +- {} %", f64::from(imbalance.ppm) / 1e4);
        }
        if let Some(only) = self.only {
            words += &format!(", {} only", only.name());
        }
        Ok(words)
    }
}

/// What to simulate: one point for each rank count and series. A series is one choice from each list.
#[derive(Clone, Debug)]
pub struct Request {
    pub model: Description,
    /// Multiples of the ranks of the grid, which is copied; empty for its own.
    pub ranks: Vec<u64>,
    /// Runs per point.
    pub runs: u64,
    pub nets: Vec<Params>,
    pub rendezvous: Rendezvous,
    /// Between ranks of one node; None if that is the same network.
    pub net_local: Option<Params>,
    /// None if every message takes L.
    pub latency: Option<variation::Request>,
    /// Factors by which the network is faster.
    pub net_scales: Vec<f64>,
    /// Repeat each series with co-scheduled noise.
    pub with_coscheduled: bool,
    /// Break down the critical path.
    pub blame: bool,
    /// Each of its variants.
    pub noise: noise::Request,
}

/// Times of a skeleton under noise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Skeletons {
    #[serde(flatten)]
    pub about: About,
    pub points: Vec<Point>,
    /// The knee of the first series.
    #[serde(flatten)]
    pub knee: KneeKeys,
    pub knees: Vec<SeriesKnee>,
}

/// What was simulated.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct About {
    /// The pattern and its sizes. It is a model of a program, not the program.
    pub model: String,
    pub pattern: String,
    /// Null unless it is one.
    pub preset: Option<String>,
    /// What is left of the communication: `p2p` or `collectives`; null for all of it.
    pub only: Option<String>,
    pub iterations: u64,
    /// Compute of a rank per iteration; that of a solver is not included.
    pub compute_us: f64,
    pub imbalance_pct: f64,
    /// Calls of each collective in a run.
    pub calls: Vec<Calls>,
    pub seed: u64,
    pub noise: String,
    pub noise_model: String,
    pub net: String,
    /// The network between ranks of one node; null if it is the same.
    pub net_local: Option<String>,
    /// File of the latencies of messages, and how they are drawn; null if every message takes L.
    pub latency: Option<String>,
    pub rendezvous: String,
    /// About the noise.
    pub remarks: Vec<String>,
    /// With `--tail`, how far each recording was extended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tails: Vec<Extended>,
}

/// Calls of a collective.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Calls {
    pub op: String,
    pub times: u64,
}

impl Skeletons {
    /// The same points as a sweep of a collective, which is displayed in the same way.
    pub fn as_sweep(&self) -> Sweep {
        let About { noise, latency, .. } = &self.about;
        let about = collective::About {
            noise: noise.clone(),
            latency: latency.clone(),
            ..collective::About::default()
        };
        Sweep::of(about, self.points.clone())
    }
}

/// Simulates all runs; `finished_point` sees each point as soon as it is known.
pub fn simulate(
    request: &Request,
    work: &Work<'_>,
    finished_point: &mut dyn FnMut(&Point) -> Result<()>,
) -> Result<Skeletons> {
    let simulation = Simulation::new(request, work)?;
    let mut points = Vec::new();
    for choice in request.choices()? {
        for program in &simulation.programs {
            let point = simulation.point(&choice, program)?;
            finished_point(&point)?;
            points.push(point);
        }
    }
    let knees = collective::knees(&points);
    let knee = knees.first().map_or(KneeKeys::default(), |first| first.knee);
    Ok(Skeletons { about: simulation.about()?, points, knee, knees })
}

impl Request {
    /// In the order in which they are simulated.
    pub fn series(&self) -> Result<Vec<Series>> {
        Ok(self.choices()?.into_iter().map(|choice| choice.series).collect())
    }

    fn choices(&self) -> Result<Vec<Choice<'_>>> {
        let sizes = [self.model.skeleton(None)?.bytes];
        let Request { nets, noise, net_scales, with_coscheduled, .. } = self;
        let alike = Series::default();
        Ok(choices(&alike, nets, &noise.variants(), &sizes, net_scales, *with_coscheduled))
    }
}

struct Simulation<'a> {
    request: &'a Request,
    work: &'a Work<'a>,
    /// By number of the variant.
    loaded: Vec<Loaded>,
    variation: Option<Variation>,
    programs: Vec<Program>,
    rules: event::Options,
}

impl<'a> Simulation<'a> {
    fn new(request: &'a Request, work: &'a Work<'a>) -> Result<Simulation<'a>> {
        let programs: Vec<Program> = match &request.ranks[..] {
            [] => vec![request.model.program(None)?],
            all => all
                .iter()
                .map(|&ranks| request.model.program(Some(ranks)))
                .collect::<Result<_>>()?,
        };
        let load = |noise: &noise::Request| noise.load_for(work, Model::default(), request.blame);
        let loaded = request.noise.variants().iter().map(load).collect::<Result<Vec<_>>>()?;
        if request.with_coscheduled && loaded.iter().any(|loaded| loaded.noise.is_none()) {
            return Err(requires_noise("--with-coscheduled"));
        }
        if request.blame && request.net_local.is_some() {
            bail!("--blame requires one network: omit it, or --net-local");
        }
        let variation = request.latency.as_ref().map(variation::Request::load).transpose()?;
        let rules = event::Options {
            model: Rules::Loggops,
            rendezvous: request.rendezvous,
            local: network::local(request.net_local, &request.noise.placement)?,
        };
        // The runs, one without noise, and once more to find out why.
        let passes =
            request.runs.saturating_add(1).saturating_mul(if request.blame { 2 } else { 1 });
        let messages = programs.iter().map(|program| program.messages().saturating_mul(passes));
        let series = request.series()?.len() as u64;
        work.watch.expect(messages.fold(0, u64::saturating_add).saturating_mul(series));
        Ok(Simulation { request, work, loaded, variation, programs, rules })
    }

    fn noise(&self, choice: &Choice<'_>, params: &Params) -> Result<Noise> {
        met(&choice.series, &self.loaded[choice.noise], self.variation.as_ref(), params)
    }

    fn point(&self, choice: &Choice<'_>, program: &Program) -> Result<Point> {
        let series = &choice.series;
        let (ranks, runs) = (program.ranks(), self.request.runs);
        self.work.watch.now(&format!("{ranks} ranks {}", series.label()));
        let params = choice.net.scaled(series.net_scale)?;
        // First, since it is what may not fit.
        let blame = match self.request.blame {
            true => Some(self.blame(choice, program, &params)?),
            false => None,
        };
        let noise = self.noise(choice, &params)?;
        let bodies = program.bodies()?;
        let (needed, memory) = (bodies.run_memory(&self.rules), self.work.memory());
        if needed > memory {
            bail!(
                "a run of {ranks} ranks needs {} MB of memory, {} MB available: simulate fewer ranks",
                needed >> 20,
                memory >> 20
            );
        }
        let advance = |messages| self.work.watch.advance(messages);
        let plan = self.work.plan(runs, &advance);
        let begin = Instant::now();
        let result = skeleton::runs(&bodies, &params, &self.rules, &noise, &plan)?;
        let share =
            |time: f64| if result.mean_end > 0.0 { 100.0 * time / result.mean_end } else { 0.0 };
        let point = Point::of(&Runs {
            series: series.clone(),
            ranks,
            messages: program.messages(),
            noiseless_ps: result.noiseless,
            times_ps: result.times,
            took_s: begin.elapsed().as_secs_f64(),
        })?;
        Ok(Point {
            communication_pct: Some(share(result.mean_end - program.compute())),
            collectives_pct: Some(share(result.in_collectives)),
            blame,
            ..point
        })
    }

    /// Repeats the runs as one schedule and attributes their time.
    fn blame(&self, choice: &Choice<'_>, program: &Program, params: &Params) -> Result<Blame> {
        self.work.watch.now(&format!("{} ranks, blame", program.ranks()));
        let schedule = program.schedule()?;
        blame::check(&schedule, self.rules.model, self.work.memory())?;
        let noise = self.noise(choice, params)?;
        let advance = |messages| self.work.watch.advance(messages);
        let plan = self.work.plan(self.request.runs, &advance);
        let blames = blaming::blame_runs(&schedule, params, &self.rules, &noise, &plan)?;
        Ok(Blame::of(&blames, &self.loaded[choice.noise].sources)?)
    }

    fn about(&self) -> Result<About> {
        let Request { model, nets, net_local, rendezvous, latency, .. } = self.request;
        let first = self.loaded.first();
        let Skeleton { pattern, iterations, compute, imbalance, .. } = model.skeleton(None)?;
        let calls = self.programs.first().map(Program::calls).unwrap_or_default();
        Ok(About {
            model: model.words()?,
            pattern: pattern.name().to_owned(),
            preset: match model.name {
                Name::Preset(preset) => Some(preset.name().to_owned()),
                _ => None,
            },
            only: model.only.map(|only| only.name().to_owned()),
            iterations,
            compute_us: compute as f64 / 1e6,
            imbalance_pct: f64::from(imbalance.ppm) / 1e4,
            calls: calls
                .into_iter()
                .map(|(op, times)| Calls { op: op.to_owned(), times })
                .collect(),
            seed: self.work.seed,
            noise: several(self.loaded.iter().map(|loaded| loaded.words.clone())),
            noise_model: first.map_or_else(String::new, |first| first.model.name().to_owned()),
            net: several(nets.iter().map(network::describe)),
            net_local: net_local.as_ref().map(network::describe),
            latency: latency.as_ref().map(variation::Request::words),
            rendezvous: rendezvous.name().to_owned(),
            remarks: noise::remarks(&self.loaded),
            tails: first.map_or_else(Vec::new, |first| first.tails.clone()),
        })
    }
}
