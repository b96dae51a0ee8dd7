//! The options of a job of collectives; `detour simulate collective` simulates it, `detour goal gen`
//! writes it as a schedule.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use simulate::{
    collectives::{Collective, Op, Shape},
    graph::Graph,
    job::Job,
    loggops::Params,
};

use crate::units;

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Collective operation, or a comma-separated list to run in sequence
    #[arg(long, value_delimiter = ',', default_value = "allreduce", value_parser = parse_op)]
    op: Vec<Op>,
    /// Algorithm: dissemination, binomial, nary, chain, pipelined, recursive-doubling, ring, linear
    /// [default: depends on the operation]
    #[arg(long)]
    algorithm: Option<String>,
    /// Algorithm for one operation (bcast=chain); may be repeated
    #[arg(long, value_name = "OP=ALGORITHM", value_parser = parse_mapping)]
    map: Vec<(Op, String)>,
    /// Number of iterations
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: u64,
    /// Compute time before each collective
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::picoseconds)]
    pub compute: i64,
    /// CPU time to reduce one byte
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::femtoseconds)]
    reduction: i64,
    /// Children per rank in tree algorithms
    #[arg(long, default_value_t = 2)]
    arity: u64,
    /// Segment size for tree algorithms
    #[arg(long, value_parser = units::size)]
    segment: Option<u64>,
    /// Dependencies between operations
    #[arg(long, value_enum, default_value_t)]
    graph: GraphName,
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

fn parse_op(text: &str) -> Result<Op, String> {
    Op::ALL.into_iter().find(|op| op.name() == text).ok_or_else(|| {
        let known: Vec<_> = Op::ALL.iter().map(|op| op.name()).collect();
        format!("unknown collective operation '{text}' (expected one of {})", known.join(", "))
    })
}

fn parse_mapping(text: &str) -> Result<(Op, String), String> {
    let (op, algorithm) = text.split_once('=').ok_or("expected OP=ALGORITHM, e.g. bcast=chain")?;
    Ok((parse_op(op)?, algorithm.to_owned()))
}

impl Options {
    /// The job for a given number of ranks and a vector or block size in bytes.
    pub fn job(&self, ranks: u64, bytes: u64, params: Params) -> Result<Job> {
        if self.op.len() > 1 && self.algorithm.is_some() {
            bail!("--algorithm requires a single operation; use --map OP=ALGORITHM for several");
        }
        let mut body = Vec::new();
        for &op in &self.op {
            let mapped = self.map.iter().rev().find(|(mapped, _)| *mapped == op);
            let algorithm = self.algorithm.as_deref().or(mapped.map(|(_, name)| name.as_str()));
            let shape = Shape { op, ranks, bytes, arity: self.arity, segment: self.segment };
            body.push(Collective::new(algorithm, shape)?);
        }
        Ok(Job::of(body, params)?
            .with_reduction(self.reduction)?
            .repeated(self.iterations, self.compute)?)
    }

    pub fn graph(&self) -> Graph {
        match self.graph {
            GraphName::InOrder => Graph::InOrder,
            GraphName::LogGopSim => Graph::LogGopSim,
        }
    }

    /// `allreduce,barrier`.
    pub fn operations(&self) -> String {
        self.op.iter().map(|op| op.name()).collect::<Vec<_>>().join(",")
    }

    /// All options that determine the job, as text.
    pub fn describe(&self) -> String {
        format!(
            "{} {:?} {:?} {} {} {} {} {:?} {}",
            self.operations(),
            self.algorithm,
            self.map.iter().map(|(op, name)| (op.name(), name)).collect::<Vec<_>>(),
            self.iterations,
            self.compute,
            self.reduction,
            self.arity,
            self.segment,
            self.graph().name(),
        )
    }
}
