//! The job to simulate: a collective, a loop of them, or a GOAL schedule. For commands that evaluate what
//! a recording costs it.

use std::path::PathBuf;

use clap::Args;
use simulate::{goal::CalcUnit, loggops::Params};
use study::{
    goal,
    workload::{JobKind, Request},
};

use super::{
    job,
    network::{self, RendezvousName},
    noise::ModelName,
    placement,
};
use crate::units;

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Number of ranks [default: 4Ki, or fewer if the recording is too short]
    #[arg(long, value_parser = parse_ranks, conflicts_with = "goal")]
    ranks: Option<u64>,
    /// Read the options of the job from this TOML file (op = "allreduce", compute = "1ms", ...); options on
    /// the command line take precedence
    #[arg(long, value_name = "FILE")]
    job: Option<PathBuf>,
    #[command(flatten)]
    collectives: job::Options,
    /// Vector or block size in bytes
    #[arg(long, default_value = study::workload::SIZE, value_parser = units::size)]
    size: u64,
    /// Simulate a GOAL schedule, text or binary, instead of a collective
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["op", "algorithm", "map", "iterations", "compute", "reduction", "arity", "segment", "graph", "size"]
    )]
    goal: Option<PathBuf>,
    /// Time unit of calcs in the schedule
    #[arg(long, value_name = "TIME", default_value = "1ns", value_parser = goal::calc_unit)]
    calc_unit: CalcUnit,
    /// Network name (chic, altix, cnl, zeptoos, xt4, alps, daint) or L=..,o=..,g=..,G=..,O=..,S=..
    #[arg(long, default_value = study::workload::NET, value_parser = network::parse)]
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
    #[command(flatten)]
    placement: placement::Options,
    /// Ignore this process or source, as if it had not run: a name, unit or class; may be repeated
    #[arg(long, value_name = "PROCESS")]
    exclude: Vec<String>,
}

fn parse_ranks(text: &str) -> Result<u64, String> {
    match units::rank_count(text)? {
        0 => Err("a job needs at least 1 rank".to_owned()),
        ranks => Ok(ranks),
    }
}

impl Options {
    pub fn placement(&self) -> study::placement::Request {
        self.placement.request()
    }

    pub fn exclude(&self) -> Vec<String> {
        self.exclude.clone()
    }

    pub fn request(&self) -> Request {
        let kind = match &self.goal {
            Some(file) => JobKind::Goal { file: file.clone(), unit: self.calc_unit },
            None => JobKind::Collectives {
                job: self.collectives.request(),
                ranks: self.ranks,
                size: self.size,
            },
        };
        Request {
            kind,
            net: self.net,
            rendezvous: self.rendezvous.into(),
            net_scale: self.net_scale,
            model: self.noise_model.into(),
        }
    }
}
