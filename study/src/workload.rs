//! The job to simulate: a collective, a loop of them, or a GOAL schedule. For studies of what a recording
//! costs it.

use std::path::PathBuf;

use anyhow::{Context, Result};
use simulate::{
    event::{self, Rendezvous, Rules, Schedule},
    goal::CalcUnit,
    graph::Graph,
    job::Job,
    loggops::Params,
    noise::{Model, Noise},
    replay,
    sweep::{self, Plan, SweepError, Traced},
    whatif::Runs,
};

use crate::{goal, job, network};

/// Which job to simulate.
#[derive(Clone, Debug)]
pub struct Request {
    pub kind: JobKind,
    pub net: Params,
    pub rendezvous: Rendezvous,
    /// Factor by which the network is faster.
    pub net_scale: f64,
    /// How detours delay work.
    pub model: Model,
}

/// A job of collectives, or one from a file.
#[derive(Clone, Debug)]
pub enum JobKind {
    Collectives {
        job: job::Request,
        ranks: u64,
        /// Vector or block size, bytes.
        size: u64,
    },
    /// A GOAL file.
    Goal { file: PathBuf, unit: CalcUnit },
}

/// Ranks of a job unless specified.
pub const RANKS: u64 = 1 << 16;

/// A job, its network and its rules.
pub struct Workload {
    kind: Kind,
    params: Params,
    net: String,
    pub model: Model,
    /// `allreduce (dissemination) of 1 B`.
    pub words: String,
}

enum Kind {
    Collectives(Job, Graph),
    Schedule(Box<Schedule>, event::Options),
}

impl Request {
    pub fn workload(&self) -> Result<Workload> {
        let params = self.net.scaled(self.net_scale)?;
        let (kind, words) = match &self.kind {
            JobKind::Goal { file, unit } => {
                let schedule = goal::read(file, *unit)?;
                // The loggopsim noise model implies LogGOPSim's rules, as for a collective.
                let peer = self.model == Model::LogGopSim;
                let rules = if peer { Rules::Loggopsim } else { Rules::Loggops };
                let options = event::Options { model: rules, rendezvous: self.rendezvous };
                let words = format!("the schedule {}", file.display());
                (Kind::Schedule(Box::new(schedule), options), words)
            }
            JobKind::Collectives { job, ranks, size } => {
                let graph = job.graph;
                let job = job.job(*ranks, *size, params)?.with_rendezvous(self.rendezvous);
                let words = words(&job, *size);
                (Kind::Collectives(job, graph), words)
            }
        };
        let mut net = network::describe(&self.net);
        if self.net_scale != 1.0 {
            net += &format!(" / {}", self.net_scale);
        }
        Ok(Workload { kind, params, net, model: self.model, words })
    }
}

fn words(job: &Job, size: u64) -> String {
    let body: Vec<String> =
        job.body().iter().map(|c| format!("{} ({})", c.shape().op.name(), c.algorithm())).collect();
    let mut words = format!("{} of {size} B", body.join(", "));
    if job.iterations() > 1 {
        words = format!("{} times {words}", job.iterations());
    }
    if job.compute() > 0 {
        words += &format!(" after {} us of compute", job.compute() as f64 / 1e6);
    }
    words
}

impl Workload {
    pub fn ranks(&self) -> u64 {
        match &self.kind {
            Kind::Collectives(job, _) => job.ranks(),
            Kind::Schedule(schedule, _) => u64::from(schedule.ranks()),
        }
    }

    pub fn messages(&self) -> u64 {
        match &self.kind {
            Kind::Collectives(job, _) => job.messages(),
            Kind::Schedule(schedule, _) => schedule.messages(),
        }
    }

    /// The network as `--net` takes it.
    pub fn net(&self) -> &str {
        &self.net
    }

    /// The time of each run under this noise, ps.
    pub fn times(&self, noise: &Noise, plan: &Plan<'_>) -> Result<Vec<i64>, SweepError> {
        match &self.kind {
            Kind::Collectives(job, graph) => sweep::times(job, *graph, noise, plan),
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
        let times = self.times(&silent, &plan).context("cannot simulate the job")?;
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
            Kind::Collectives(job, graph) => sweep::times_of(job, *graph, noise, self.plan, runs),
            // The critical path of a schedule is not known here, so all runs are simulated.
            Kind::Schedule(..) => self.workload.times(noise, self.plan),
        }
    }

    fn traced(&self, noise: &Noise) -> Result<Option<Vec<Traced>>, SweepError> {
        match &self.workload.kind {
            Kind::Collectives(job, graph) => sweep::traced(job, *graph, noise, self.plan),
            Kind::Schedule(..) => Ok(None),
        }
    }

    fn spared(&self, runs: u64) {
        (self.plan.progress)(runs.saturating_mul(self.workload.messages()));
    }
}
