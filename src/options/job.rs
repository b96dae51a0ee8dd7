//! The options of a job of collectives; `detour simulate collective` simulates it, `detour goal gen`
//! writes it as a schedule.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use simulate::{collectives::Op, graph::Graph, job::Progress};
use study::jobs::{
    blocks::{self, Sizes},
    job::{Request, parse_mapping, parse_op},
};

use crate::units;

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Collective operation, or a comma-separated list to run in sequence; alternatives
    /// ('allreduce|barrier') are series of `detour simulate collective`
    #[arg(long, value_delimiter = ',', default_value = "allreduce", value_parser = parse_ops)]
    op: Vec<Alternatives>,
    /// Algorithm: dissemination, binomial, nary, chain, pipelined, recursive-doubling, ring, pairwise, linear, or
    /// redundant-butterfly (an allreduce with redundant exchanges, with the rules of `detour simulate cycle`); or
    /// alternatives ('ring|linear') as for --op [default: depends on the operation]
    #[arg(long, value_delimiter = '|')]
    algorithm: Vec<String>,
    /// Algorithm for one operation (bcast=chain); may be repeated
    #[arg(long, value_name = "OP=ALGORITHM", value_parser = parse_mapping)]
    map: Vec<(Op, String)>,
    /// Number of iterations [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: Option<u64>,
    /// Compute time before each collective [default: 0]
    #[arg(long, value_name = "TIME", value_parser = units::picoseconds)]
    pub compute: Option<i64>,
    /// CPU time to reduce one byte
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::femtoseconds)]
    reduction: i64,
    /// Children per rank in tree algorithms
    #[arg(long, default_value_t = 2)]
    arity: u64,
    /// Segment size for tree algorithms
    #[arg(long, value_parser = units::size)]
    segment: Option<u64>,
    /// Block sizes of gatherv, scatterv, allgatherv, alltoallv or reduce-scatter: uniform:A..B, drawn at
    /// random (uniform:A..B,SEED for other sizes), or a file with one size per rank (alltoallv: per sender
    /// and receiver), repeated if there are more ranks; alternatives (A|B) are series of `detour simulate
    /// collective` [default: all of --size]
    #[arg(long, value_name = "SIZES", value_delimiter = '|', value_parser = blocks::parse)]
    sizes: Vec<Sizes>,
    /// Nonblocking collectives: start them before the compute time and wait for them after it; they
    /// progress
    #[arg(long, value_enum, value_name = "PROGRESS")]
    nonblocking: Option<ProgressName>,
    /// Dependencies between operations
    #[arg(long, value_enum, default_value_t)]
    graph: GraphName,
}

/// When a nonblocking collective progresses.
#[derive(Clone, Copy, ValueEnum)]
enum ProgressName {
    /// Only inside MPI calls: during compute, only the messages of the first round are in flight
    Calls,
    /// Always, on a dedicated CPU or NIC
    Always,
}

impl From<ProgressName> for Progress {
    fn from(name: ProgressName) -> Progress {
        match name {
            ProgressName::Calls => Progress::InCalls,
            ProgressName::Always => Progress::Always,
        }
    }
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum GraphName {
    /// Each rank executes its operations in program order
    #[default]
    InOrder,
    /// As LogGOPSim's generator: a send depends only on the preceding receive; in a dissemination, with
    /// a calc between the two. With --noise-model loggopsim, LogGOPSim's rules apply throughout
    #[value(name = "peer")]
    LogGopSim,
}

/// What one place of the sequence may be.
#[derive(Clone)]
struct Alternatives(Vec<Op>);

/// `allreduce|barrier`.
fn parse_ops(text: &str) -> Result<Alternatives, String> {
    Ok(Alternatives(text.split('|').map(parse_op).collect::<Result<_, _>>()?))
}

impl Options {
    /// The only job.
    pub fn request(&self) -> Result<Request> {
        match &mut self.requests()[..] {
            [only] => Ok(only.clone()),
            all => bail!(
                "--op, --algorithm and --sizes list {} jobs, which requires `detour simulate collective`: \
                 specify one operation, one algorithm and one distribution of sizes",
                all.len()
            ),
        }
    }

    /// Every combination of the alternatives.
    pub fn requests(&self) -> Vec<Request> {
        let mut sequences: Vec<Vec<Op>> = vec![Vec::new()];
        for Alternatives(ops) in &self.op {
            let with = |before: &Vec<Op>| {
                let before = before.clone();
                ops.iter().map(move |&op| before.iter().copied().chain([op]).collect())
            };
            sequences = sequences.iter().flat_map(with).collect();
        }
        let algorithms: Vec<Option<&String>> = match &self.algorithm[..] {
            [] => vec![None],
            all => all.iter().map(Some).collect(),
        };
        let sizes: Vec<Option<&Sizes>> = match &self.sizes[..] {
            [] => vec![None],
            all => all.iter().map(Some).collect(),
        };
        let mut jobs = Vec::new();
        for ops in &sequences {
            for algorithm in &algorithms {
                let one = |sizes: &Option<&Sizes>| Request {
                    sizes: sizes.cloned(),
                    ..self.one(ops.clone(), algorithm.cloned())
                };
                jobs.extend(sizes.iter().map(one));
            }
        }
        jobs
    }

    fn one(&self, ops: Vec<Op>, algorithm: Option<String>) -> Request {
        Request {
            ops,
            algorithm,
            map: self.map.clone(),
            iterations: self.iterations.unwrap_or(1),
            compute: self.compute.unwrap_or(0),
            reduction: self.reduction,
            arity: self.arity,
            segment: self.segment,
            nonblocking: self.nonblocking.map(Progress::from),
            graph: match self.graph {
                GraphName::InOrder => Graph::InOrder,
                GraphName::LogGopSim => Graph::LogGopSim,
            },
            sizes: None,
        }
    }
}
