//! The options that say what a job of collectives does; `detour simulate collective` runs it, `detour
//! goal gen` writes it out.

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
    /// What the ranks do together; several, separated by commas, one after the other
    #[arg(long, value_delimiter = ',', default_value = "allreduce", value_parser = parse_op)]
    op: Vec<Op>,
    /// How: dissemination, binomial, nary, chain, pipelined, recursive-doubling, ring, linear
    /// [default: the usual one for the operation]
    #[arg(long)]
    algorithm: Option<String>,
    /// The algorithm for an operation (bcast=chain); may be repeated
    #[arg(long, value_name = "OP=ALGORITHM", value_parser = parse_mapping)]
    map: Vec<(Op, String)>,
    /// How many times, one after the other
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: u64,
    /// Compute before each collective
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::picoseconds)]
    pub compute: i64,
    /// CPU time to combine a byte
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::femtoseconds)]
    reduction: i64,
    /// Children per rank of a tree
    #[arg(long, default_value_t = 2)]
    arity: u64,
    /// Trees send in pieces of this size
    #[arg(long, value_parser = units::size)]
    segment: Option<u64>,
    /// Which operation waits for which
    #[arg(long, value_enum, default_value_t)]
    graph: GraphName,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum GraphName {
    /// Each rank does one thing after the other
    #[default]
    InOrder,
    /// As LogGOPSim's generator has it: a send waits for the receive before it, nothing else; in a
    /// dissemination there is a calc between the two. With --noise-model loggopsim, LogGOPSim's rules
    /// for everything
    Peer,
}

fn parse_op(text: &str) -> Result<Op, String> {
    Op::ALL.into_iter().find(|op| op.name() == text).ok_or_else(|| {
        let known: Vec<_> = Op::ALL.iter().map(|op| op.name()).collect();
        format!("'{text}' is no collective operation: {} are", known.join(", "))
    })
}

fn parse_mapping(text: &str) -> Result<(Op, String), String> {
    let (op, algorithm) = text.split_once('=').ok_or("write it like bcast=chain")?;
    Ok((parse_op(op)?, algorithm.to_owned()))
}

impl Options {
    /// The job over so many ranks with vectors (or blocks) of so many bytes.
    pub fn job(&self, ranks: u64, bytes: u64, params: Params) -> Result<Job> {
        if self.op.len() > 1 && self.algorithm.is_some() {
            bail!("--algorithm is for one operation: name them one by one, --map OP=ALGORITHM");
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
            GraphName::Peer => Graph::Peer,
        }
    }

    /// `allreduce,barrier`.
    pub fn operations(&self) -> String {
        self.op.iter().map(|op| op.name()).collect::<Vec<_>>().join(",")
    }

    /// Everything that decides the job, in words.
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
