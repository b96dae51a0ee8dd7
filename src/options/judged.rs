//! The job by which a recording is judged, and how it is simulated: for commands that end with what to do.

use std::path::PathBuf;

use analysis::Part;
use anyhow::Result;
use clap::Args;
use simulate::loggops::Params;
use study::{
    decide::{
        decision,
        projection::{self, Request},
    },
    jobs::workload::{self, JobKind},
    network as networks,
};

use super::{
    job, latency,
    network::{self, RendezvousName},
    placement, work,
};
use crate::units;

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Rank counts of the HTML report, e.g. 1000,5000 or 2..1Mi (powers of two); the largest one is
    /// that of the job [default: 2..1Mi; for the job 4Ki, or fewer if the recording is too short]
    #[arg(long, value_name = "LIST", value_parser = units::ranks)]
    ranks: Option<std::vec::Vec<u64>>,
    /// Read the options of the job from this TOML file (op = "allreduce", compute = "1ms", ...); options on
    /// the command line take precedence
    #[arg(long, value_name = "FILE")]
    job: Option<PathBuf>,
    #[command(flatten)]
    collectives: job::Options,
    /// Vector or block size in bytes
    #[arg(long, default_value = study::jobs::workload::SIZE, value_parser = units::size)]
    size: u64,
    /// Simulated runs of the job; on the page, per point of its figures (fewer beyond 32 Ki ranks)
    /// [default: 12; 40 with --html and --baseline]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub runs: Option<u64>,
    /// Network: chic, altix, cnl, zeptoos, xt4, alps, daint; a file of `detour mpi net`; or
    /// L=..,o=..,g=..,G=..,O=..,S=.. (os=.. and or=.. for an o of sender and receiver;
    /// omitted parameters are 0, S unlimited)
    #[arg(long, default_value = projection::NET, value_parser = network::parse)]
    net: Params,
    /// Network between ranks of one node, as for --net; requires --ranks-per-node [default: the same]
    #[arg(long, value_name = "NET", value_parser = network::parse, requires = "ranks_per_node")]
    net_local: Option<Params>,
    /// Rendezvous protocol for messages larger than S bytes
    #[arg(long, value_enum, default_value_t)]
    rendezvous: RendezvousName,
    #[command(flatten)]
    latency: latency::Options,
    #[command(flatten)]
    placement: placement::Options,
    /// Ignore this process or source in simulations, as if it had not run: a name, unit or class; may be
    /// repeated
    #[arg(long, value_name = "PROCESS")]
    pub exclude: Vec<String>,
    /// In all simulations, extend the recording by fitted tails: longer detours than recorded are
    /// drawn from them (`detour tail` shows them). The projections of the HTML report do this by
    /// default; its job curves show both
    #[arg(long)]
    pub tail: bool,
    #[command(flatten)]
    pub work: work::Options,
}

impl Options {
    pub fn placement(&self) -> study::noise::placement::Request {
        self.placement.request()
    }

    /// The job.
    pub fn workload(&self) -> Result<workload::Request> {
        Ok(workload::Request {
            kind: JobKind::Collectives {
                job: self.collectives.request()?,
                ranks: self.ranks.as_ref().and_then(|ranks| ranks.iter().max().copied()),
                size: self.size,
            },
            net: self.net,
            local: networks::local(self.net_local, &self.placement())?,
            rendezvous: self.rendezvous.into(),
            latency: self.latency.request(),
            ..workload::Request::usual()?
        })
    }

    /// What to do about the noise.
    pub fn decision(&self) -> Result<decision::Request> {
        Ok(decision::Request {
            workload: self.workload()?,
            part: Part::default(),
            placement: self.placement(),
            runs: self.runs.unwrap_or(decision::RUNS),
            exclude: self.exclude.clone(),
            tail: self.tail,
        })
    }

    /// The figures of the page, with fitted tails or without.
    pub fn projection(&self, tail: bool) -> Result<Request> {
        let usual = Request::usual()?;
        Ok(Request {
            ranks: self.ranks.clone().unwrap_or(usual.ranks),
            runs: self.runs.unwrap_or(projection::RUNS),
            workload: self.workload()?,
            placement: self.placement(),
            exclude: self.exclude.clone(),
            tail,
            decision_runs: self.runs.unwrap_or(decision::RUNS),
            decision_tail: self.tail,
        })
    }
}
