//! The job to simulate: a collective, a loop of them, a traced program, or a GOAL schedule. For studies of what a recording
//! costs it.

use std::path::PathBuf;

use analysis::words::time;
use anyhow::{Context, Result};
use serde::Serialize;
use simulate::{
    event::{self, Rendezvous, Rules, Schedule},
    goal::CalcUnit,
    graph::Graph,
    job::Progress,
    loggops::{Local, Params},
    noise::{Latencies, Model, Noise},
    replay,
    sweep::{self, Plan, SweepError, Traced},
    whatif::Runs,
};

use crate::{
    jobs::{app, blocks::Sizes, goal, job},
    network,
    network::variation,
    units,
};

/// Which job to simulate.
#[derive(Clone, Debug)]
pub struct Request {
    pub kind: JobKind,
    pub net: Params,
    /// Between ranks of one node; None if that is the same network.
    pub local: Option<Local>,
    pub rendezvous: Rendezvous,
    /// Factor by which the network is faster.
    pub net_scale: f64,
    /// None if every message takes L.
    pub latency: Option<variation::Request>,
    /// How detours delay work.
    pub model: Model,
}

/// A job of collectives, or one from a file.
#[derive(Clone, Debug)]
pub enum JobKind {
    Collectives {
        job: job::Request,
        /// None for as many as the recording supports, up to [`RANKS`].
        ranks: Option<u64>,
        /// Vector or block size, bytes.
        size: u64,
    },
    /// A GOAL file.
    Goal { file: PathBuf, unit: CalcUnit },
    /// A traced program; at its own size if `ranks` is None.
    App { source: app::Source, ranks: Option<u64> },
}

/// The default job of every projection: collectives on a current network with computation between them,
/// because few jobs do nothing but communicate.
pub const NET: &str = "alps";
pub const ITERATIONS: &str = "100";
pub const COMPUTE: &str = "1ms";
pub const SIZE: &str = "8";
/// Ranks of a job unless specified; fewer if the recording does not support them.
pub const RANKS: u64 = 1 << 12;

/// The job in parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Job {
    /// Description of the job.
    pub text: String,
    pub ranks: u64,
    /// Null if every rank is on a CPU of its own choice.
    pub ranks_per_node: Option<u64>,
    /// Compute time before each collective.
    pub compute_us: f64,
    pub iterations: u64,
    /// The collective operations; null for a schedule.
    pub op: Option<String>,
    /// Vector or block size, bytes.
    pub size: Option<u64>,
    pub net: String,
}

/// A job, its network and its rules.
pub struct Workload {
    kind: Kind,
    params: Params,
    net: String,
    latencies: Option<Latencies>,
    pub model: Model,
    /// `allreduce (dissemination) of 1 B`.
    pub words: String,
}

enum Kind {
    Collectives(simulate::job::Job, Graph, u64),
    Schedule(Box<Schedule>, event::Options),
}

impl Request {
    /// The usual job.
    pub fn usual() -> Result<Request> {
        let text = anyhow::Error::msg;
        let job = job::Request {
            iterations: ITERATIONS.parse()?,
            compute: units::picoseconds(COMPUTE).map_err(text)?,
            ..job::Request::default()
        };
        Ok(Request {
            kind: JobKind::Collectives { job, ranks: None, size: units::size(SIZE).map_err(text)? },
            net: network::parse(NET).map_err(text)?,
            local: None,
            rendezvous: network::RENDEZVOUS,
            net_scale: 1.0,
            latency: None,
            model: Model::default(),
        })
    }

    /// Time between two synchronisations, ps; None for a schedule.
    pub fn interval(&self) -> Result<Option<i64>> {
        let JobKind::Collectives { job, size, .. } = &self.kind else { return Ok(None) };
        let sizes = job.sizes.as_ref().map(Sizes::of_pair);
        let pair = job::Request { sizes, ..job.clone() };
        let kind = JobKind::Collectives { job: pair, ranks: Some(2), size: *size };
        // Without noise, every message takes L.
        let pair = Request { kind, latency: None, ..self.clone() }.workload(None)?;
        Ok(Some(pair.noiseless()? / i64::try_from(job.iterations.max(1))?))
    }

    /// Of a schedule. The loggopsim noise model implies LogGOPSim's rules, as for a collective.
    fn rules(&self) -> event::Options {
        let peer = self.model == Model::LogGopSim;
        let model = if peer { Rules::Loggopsim } else { Rules::Loggops };
        event::Options { model, rendezvous: self.rendezvous, local: self.local }
    }

    /// The workload with the number of ranks that was asked for, or that is supported.
    pub fn workload(&self, supported: Option<u64>) -> Result<Workload> {
        let params = self.net.scaled(self.net_scale)?;
        let (kind, words) = match &self.kind {
            JobKind::Goal { file, unit } => {
                let schedule = goal::read(file, *unit)?;
                let words = format!("the schedule {}", file.display());
                (Kind::Schedule(Box::new(schedule), self.rules()), words)
            }
            JobKind::App { source, ranks } => {
                let program = source.load(1)?;
                let own = program.application.ranks().into();
                let ranks = ranks.unwrap_or(own);
                let application = program.at(ranks)?;
                let schedule = source.schedule(&application, ranks, Some(&params), false)?;
                let words = format!("the program {}", program.about.command.join(" "));
                (Kind::Schedule(Box::new(schedule), self.rules()), words)
            }
            JobKind::Collectives { job, ranks, size } => {
                let (graph, sizes) = (job.graph, job.sizes.clone());
                let ranks = ranks.unwrap_or_else(|| RANKS.min(supported.unwrap_or(RANKS)));
                let job = job.job(ranks, *size, params)?.with_rendezvous(self.rendezvous);
                let job = job.with_local(self.local)?;
                let words = words(&job, *size, sizes.as_ref());
                (Kind::Collectives(job, graph, *size), words)
            }
        };
        let mut net = network::describe(&self.net);
        if self.net_scale != 1.0 {
            net += &format!(" / {}", self.net_scale);
        }
        if let Some(local) = &self.local {
            net += &format!(", within a node {}", network::describe(&local.params));
        }
        let variation = self.latency.as_ref().map(variation::Request::load).transpose()?;
        let latencies = variation.map(|all| all.of(&params)).transpose()?;
        Ok(Workload { kind, params, net, latencies, model: self.model, words })
    }
}

fn words(job: &simulate::job::Job, size: u64, sizes: Option<&Sizes>) -> String {
    let all = job.body().iter().zip(job.algorithms());
    let body: Vec<String> =
        all.map(|(c, algorithm)| format!("{} ({algorithm})", c.shape().op.name())).collect();
    let size = match sizes {
        Some(sizes) => format!("blocks of {}", sizes.text),
        None => format!("{size} B"),
    };
    let mut words = format!("{} of {size}", body.join(", "));
    if job.iterations() > 1 {
        words = format!("{} times {words}", job.iterations());
    }
    let compute = time(job.compute() as f64 / 1e3);
    match job.overlap() {
        Some(Progress::InCalls) => {
            words += &format!(" during {compute} of compute, with progress in calls");
        }
        Some(Progress::Always) => words += &format!(" during {compute} of compute"),
        None if job.compute() > 0 => words += &format!(" after {compute} of compute"),
        None => {}
    }
    words
}

impl Workload {
    pub fn ranks(&self) -> u64 {
        match &self.kind {
            Kind::Collectives(job, ..) => job.ranks(),
            Kind::Schedule(schedule, _) => u64::from(schedule.ranks()),
        }
    }

    pub fn messages(&self) -> u64 {
        match &self.kind {
            Kind::Collectives(job, ..) => job.messages(),
            Kind::Schedule(schedule, _) => schedule.messages(),
        }
    }

    /// The job in parts.
    pub fn parts(&self, ranks_per_node: Option<u64>) -> Job {
        let (compute, iterations, op, size) = match &self.kind {
            Kind::Collectives(job, _, size) => {
                let ops: Vec<&str> = job.body().iter().map(|c| c.shape().op.name()).collect();
                (job.compute(), job.iterations(), Some(ops.join(",")), Some(*size))
            }
            Kind::Schedule(..) => (0, 1, None, None),
        };
        Job {
            text: self.words.clone(),
            ranks: self.ranks(),
            ranks_per_node,
            compute_us: compute as f64 / 1e6,
            iterations,
            op,
            size,
            net: self.net.clone(),
        }
    }

    /// The network as `--net` takes it.
    pub fn net(&self) -> &str {
        &self.net
    }

    /// This noise on a network that varies, if it does.
    fn varied(&self, noise: &Noise) -> Noise {
        noise.clone().with_latencies(self.latencies.clone())
    }

    /// The time of each run under this noise, ps.
    pub fn times(&self, noise: &Noise, plan: &Plan<'_>) -> Result<Vec<i64>, SweepError> {
        self.times_as_is(&self.varied(noise), plan)
    }

    fn times_as_is(&self, noise: &Noise, plan: &Plan<'_>) -> Result<Vec<i64>, SweepError> {
        match &self.kind {
            Kind::Collectives(job, graph, _) => sweep::times(job, *graph, noise, plan),
            Kind::Schedule(schedule, options) => {
                Ok(replay::run(schedule, &self.params, options, noise, plan)?.times)
            }
        }
    }

    /// Runs that can be compared pairwise.
    pub fn runs<'a>(&'a self, plan: &'a Plan<'a>) -> Paired<'a> {
        Paired { workload: self, plan }
    }

    /// Its time without noise, ps.
    pub fn noiseless(&self) -> Result<i64> {
        let silent = Noise::none().with_model(self.model);
        let plan = Plan { runs: 1, seed: 0, threads: 1, memory: u64::MAX, progress: &|_| true };
        let times = self.times_as_is(&silent, &plan).context("cannot simulate the job")?;
        Ok(times.first().copied().unwrap_or(0))
    }
}

pub struct Paired<'a> {
    workload: &'a Workload,
    plan: &'a Plan<'a>,
}

impl Runs for Paired<'_> {
    fn count(&self) -> u64 {
        self.plan.runs
    }

    fn times(&self, noise: &Noise, runs: &[u64]) -> Result<Vec<i64>, SweepError> {
        match &self.workload.kind {
            Kind::Collectives(job, graph, _) => {
                sweep::times_of(job, *graph, &self.workload.varied(noise), self.plan, runs)
            }
            // The critical path of a schedule is not known here, so all runs are simulated.
            Kind::Schedule(..) => self.workload.times(noise, self.plan),
        }
    }

    fn traced(&self, noise: &Noise) -> Result<Option<Vec<Traced>>, SweepError> {
        match &self.workload.kind {
            Kind::Collectives(job, graph, _) => {
                sweep::traced(job, *graph, &self.workload.varied(noise), self.plan)
            }
            Kind::Schedule(..) => Ok(None),
        }
    }

    fn spared(&self, runs: u64) {
        (self.plan.progress)(runs.saturating_mul(self.workload.messages()));
    }
}
