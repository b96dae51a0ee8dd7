//! The job to simulate: a collective, a loop of them, or a GOAL schedule. For commands that evaluate what
//! a recording costs it.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use simulate::{
    event::{self, Rules, Schedule},
    goal::CalcUnit,
    graph::Graph,
    job::Job,
    loggops::Params,
    noise::{Model, Noise},
    replay,
    sweep::{self, Plan, SweepError, Traced},
    whatif::Runs,
};

use super::{
    job,
    network::{self, RendezvousName},
    noise::ModelName,
};
use crate::{goal::file, units};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Number of ranks [default: 64Ki]
    #[arg(long, value_parser = parse_ranks, conflicts_with = "goal")]
    ranks: Option<u64>,
    #[command(flatten)]
    job: job::Options,
    /// Vector or block size in bytes
    #[arg(long, default_value = "1", value_parser = units::size)]
    size: u64,
    /// Simulate a GOAL schedule, text or binary, instead of a collective
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["op", "algorithm", "map", "iterations", "compute", "reduction", "arity", "segment", "graph", "size"]
    )]
    goal: Option<PathBuf>,
    /// Time unit of calcs in the schedule
    #[arg(long, value_name = "TIME", default_value = "1ns", value_parser = file::calc_unit)]
    calc_unit: CalcUnit,
    /// Network name (chic, altix, cnl, zeptoos, xt4, alps, daint) or L=..,o=..,g=..,G=..,O=..,S=..
    #[arg(long, default_value = "cnl", value_parser = network::parse)]
    net: Params,
    /// Rendezvous protocol for messages larger than S bytes
    #[arg(long, value_enum, default_value_t)]
    rendezvous: RendezvousName,
    /// Speed up the network by this factor (scales L, g and G, not o)
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    net_scale: f64,
    /// How detours delay work
    #[arg(long, value_enum, default_value = "preempt")]
    noise_model: ModelName,
    /// Repeat the trace if a run is longer than it
    #[arg(long)]
    pub repeat_trace: bool,
}

const DEFAULT_RANKS: u64 = 1 << 16;

fn parse_ranks(text: &str) -> Result<u64, String> {
    match units::rank_count(text)? {
        0 => Err("a job needs at least 1 rank".to_owned()),
        ranks => Ok(ranks),
    }
}

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

impl Options {
    pub fn workload(&self) -> Result<Workload> {
        let params = self.net.scaled(self.net_scale)?;
        let model = self.noise_model.model();
        let (kind, words) = match &self.goal {
            Some(path) => {
                let schedule = file::read(path, self.calc_unit)?;
                // The loggopsim noise model implies LogGOPSim's rules, as for a collective.
                let peer = model == Model::LogGopSim;
                let rules = if peer { Rules::Loggopsim } else { Rules::Loggops };
                let rendezvous = self.rendezvous.rendezvous();
                let options = event::Options { model: rules, rendezvous };
                let words = format!("the schedule {}", path.display());
                (Kind::Schedule(Box::new(schedule), options), words)
            }
            None => {
                let ranks = self.ranks.unwrap_or(DEFAULT_RANKS);
                let job = self.job.job(ranks, self.size, params)?;
                let job = job.with_rendezvous(self.rendezvous.rendezvous());
                let words = self.words(&job);
                (Kind::Collectives(job, self.job.graph()), words)
            }
        };
        let mut net = network::describe(&self.net);
        if self.net_scale != 1.0 {
            net += &format!(" / {}", self.net_scale);
        }
        Ok(Workload { kind, params, net, model, words })
    }

    fn words(&self, job: &Job) -> String {
        let body: Vec<String> = job
            .body()
            .iter()
            .map(|c| format!("{} ({})", c.shape().op.name(), c.algorithm()))
            .collect();
        let mut words = format!("{} of {} B", body.join(", "), self.size);
        if job.iterations() > 1 {
            words = format!("{} times {words}", job.iterations());
        }
        if job.compute() > 0 {
            words += &format!(" after {} us of compute", job.compute() as f64 / 1e6);
        }
        words
    }
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
