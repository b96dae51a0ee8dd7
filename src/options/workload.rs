//! The job to simulate: a collective, a loop of them, a traced program, or a GOAL schedule. For commands that
//! evaluate what a recording costs it.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use simulate::{
    goal::CalcUnit,
    loggops::{Local, Params},
};
use study::jobs::{
    app, goal,
    workload::{JobKind, Request},
};

use super::{
    job, latency,
    network::{self, RendezvousName},
    noise::ModelName,
    placement,
};
use crate::units;

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Number of ranks [default: 4Ki, or fewer if the recording is too short; with --app as traced]
    #[arg(long, value_parser = parse_ranks, conflicts_with = "goal")]
    ranks: Option<u64>,
    /// Read the options of the job from this TOML file (op = "allreduce", compute = "1ms", ...); options on
    /// the command line take precedence
    #[arg(long, value_name = "FILE")]
    job: Option<PathBuf>,
    #[command(flatten)]
    collectives: job::Options,
    /// Vector or block size in bytes
    #[arg(long, default_value = study::jobs::workload::SIZE, value_parser = units::size)]
    size: u64,
    /// Simulate a GOAL schedule, text or binary, instead of a collective
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["op", "algorithm", "map", "iterations", "compute", "reduction", "arity", "segment", "graph", "nonblocking", "size", "sizes"]
    )]
    goal: Option<PathBuf>,
    /// Simulate a traced MPI program, a directory written by `detour mpi record`, instead of a collective; several
    /// sizes of it as DIR1,DIR2
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["goal", "op", "algorithm", "map", "iterations", "compute", "reduction", "arity", "segment", "graph", "size", "sizes"]
    )]
    app: Option<PathBuf>,
    /// Time unit of calcs in the schedule
    #[arg(long, value_name = "TIME", default_value = "1ns", value_parser = goal::calc_unit)]
    calc_unit: CalcUnit,
    /// Network: chic, altix, cnl, zeptoos, xt4, alps, daint; a file of `detour mpi net`; or
    /// L=..,o=..,g=..,G=..,O=..,S=.. (os=.. and or=.. for an o of sender and receiver;
    /// omitted parameters are 0, S unlimited; sizes=FILE for measured times of the bytes instead of G
    /// and O)
    #[arg(long, default_value = study::jobs::workload::NET, value_parser = network::parse)]
    net: Params,
    /// Network between ranks of one node, as for --net; requires --ranks-per-node [default: the same]
    #[arg(long, value_name = "NET", value_parser = network::parse, requires = "ranks_per_node")]
    net_local: Option<Params>,
    /// Rendezvous protocol for messages larger than S bytes
    #[arg(long, value_enum, default_value_t)]
    rendezvous: RendezvousName,
    /// Speed up the network by this factor (scales L, g and G, not o)
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    net_scale: f64,
    #[command(flatten)]
    latency: latency::Options,
    /// How detours delay work
    #[arg(long, value_enum, default_value = "preempt")]
    noise_model: ModelName,
    /// Repeat the trace if a run is longer than it
    #[arg(long)]
    pub repeat_trace: bool,
    #[command(flatten)]
    placement: placement::Options,
    /// Ignore this process or source, as if it had not run: a name, unit or class; may be repeated
    #[arg(long, value_name = "PROCESS")]
    exclude: Vec<String>,
    /// Extend recordings by fitted tails: longer detours than recorded are drawn from them (`detour
    /// tail` shows them)
    #[arg(long)]
    tail: bool,
}

fn parse_ranks(text: &str) -> Result<u64, String> {
    match units::rank_count(text)? {
        0 => Err("a job needs at least 1 rank".to_owned()),
        ranks => Ok(ranks),
    }
}

impl Options {
    pub fn placement(&self) -> study::noise::placement::Request {
        self.placement.request()
    }

    pub fn exclude(&self) -> Vec<String> {
        self.exclude.clone()
    }

    pub fn tail(&self) -> bool {
        self.tail
    }

    pub fn request(&self) -> Result<Request> {
        let kind = match (&self.goal, &self.app) {
            (Some(file), _) => JobKind::Goal { file: file.clone(), unit: self.calc_unit },
            (None, Some(dir)) => JobKind::App {
                source: app::Source::of(app::directories(&dir.to_string_lossy())),
                ranks: self.ranks,
            },
            (None, None) => JobKind::Collectives {
                job: self.collectives.request()?,
                ranks: self.ranks,
                size: self.size,
            },
        };
        let local = |params| {
            let ranks_per_node = self.placement.request().ranks_per_node?;
            Some(Local { params, ranks_per_node })
        };
        Ok(Request {
            kind,
            local: self.net_local.and_then(local),
            net: self.net,
            rendezvous: self.rendezvous.into(),
            net_scale: self.net_scale,
            latency: self.latency.request(),
            model: self.noise_model.into(),
        })
    }
}
