//! Jobs of collectives: simulated by [`collective`](crate::jobs::collective), or written as a schedule.

use anyhow::{Context, Result, bail};
use simulate::{
    collectives::{Collective, CollectiveError, Op, Shape},
    cycle,
    graph::Graph,
    job::{Job, Progress},
    loggops::Params,
};

use crate::jobs::blocks::Sizes;

/// A collective operation, or a loop of them.
#[derive(Clone, Debug)]
pub struct Request {
    /// In sequence.
    pub ops: Vec<Op>,
    /// Algorithm of a single operation; None for its default.
    pub algorithm: Option<String>,
    /// Algorithms of individual operations; the last one given counts.
    pub map: Vec<(Op, String)>,
    pub iterations: u64,
    /// Compute time before each collective, ps.
    pub compute: i64,
    /// CPU time to reduce one byte, fs.
    pub reduction: i64,
    /// Children per rank in tree algorithms.
    pub arity: u64,
    /// Segment size for tree algorithms, bytes.
    pub segment: Option<u64>,
    pub graph: Graph,
    /// Compute overlaps the collectives, which progress like this; None if they block.
    pub nonblocking: Option<Progress>,
    /// Block sizes of vector operations; None for blocks of one size.
    pub sizes: Option<Sizes>,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            ops: vec![Op::Allreduce],
            algorithm: None,
            map: Vec::new(),
            iterations: 1,
            compute: 0,
            reduction: 0,
            arity: 2,
            segment: None,
            graph: Graph::InOrder,
            nonblocking: None,
            sizes: None,
        }
    }
}

/// An operation by name.
pub fn parse_op(text: &str) -> Result<Op, String> {
    Op::ALL.into_iter().find(|op| op.name() == text).ok_or_else(|| {
        let known: Vec<_> = Op::ALL.iter().map(|op| op.name()).collect();
        format!("unknown collective operation '{text}' (expected one of {})", known.join(", "))
    })
}

/// `bcast=chain`.
pub fn parse_mapping(text: &str) -> Result<(Op, String), String> {
    let (op, algorithm) = text.split_once('=').ok_or("expected OP=ALGORITHM, e.g. bcast=chain")?;
    Ok((parse_op(op)?, algorithm.to_owned()))
}

impl Request {
    /// The job for a given number of ranks and a vector or block size in bytes.
    pub fn job(&self, ranks: u64, bytes: u64, params: Params) -> Result<Job> {
        if self.ops.len() > 1 && self.algorithm.is_some() {
            bail!("--algorithm requires a single operation; use --map OP=ALGORITHM for several");
        }
        if self.sizes.is_some() && !self.ops.iter().any(|op| op.has_blocks()) {
            let op = self.ops.first().map_or("none", |op| op.name());
            return Err(CollectiveError::NoVector { op }).context("--sizes does not apply");
        }
        Ok(self
            .body(ranks, bytes, params)?
            .with_reduction(self.reduction)?
            .repeated(self.iterations, self.compute)?
            .nonblocking(self.nonblocking)?)
    }

    fn body(&self, ranks: u64, bytes: u64, params: Params) -> Result<Job> {
        let redundant = |op: &Op| self.algorithm_of(*op) == Some(cycle::NAME);
        if self.ops.iter().any(redundant) {
            if self.ops != [Op::Allreduce] {
                bail!("{} requires --op allreduce, alone", cycle::NAME);
            }
            return Ok(Job::redundant_butterfly(ranks, bytes, params)?);
        }
        let one = |&op: &Op| {
            let shape = Shape { op, ranks, bytes, arity: self.arity, segment: self.segment };
            match &self.sizes {
                Some(sizes) if op.has_blocks() => {
                    Collective::of_blocks(self.algorithm_of(op), shape, sizes.blocks)
                }
                _ => Collective::new(self.algorithm_of(op), shape),
            }
        };
        Ok(Job::of(self.ops.iter().map(one).collect::<Result<_, _>>()?, params)?)
    }

    /// Whether all blocks have sizes of their own, and none the size of the vector.
    pub fn is_of_blocks(&self) -> bool {
        self.sizes.is_some() && self.ops.iter().all(|op| op.has_blocks())
    }

    /// About the network: what the algorithm does not use of it.
    pub fn remark(&self, params: &Params) -> Option<String> {
        let redundant = self.ops.iter().any(|op| self.algorithm_of(*op) == Some(cycle::NAME));
        let used = Params { gap: 0, overhead_per_byte_fs: 0, ..*params };
        let used = Params { recv_overhead: used.send_overhead, ..used };
        (redundant && used != *params).then(|| {
            format!(
                "{} uses only L, o (that of the sender) and G of the network; receives take CPU time in \
                 program order, as in `detour simulate cycle`",
                cycle::NAME
            )
        })
    }

    /// `allreduce,barrier`.
    pub fn operations(&self) -> String {
        self.ops.iter().map(|op| op.name()).collect::<Vec<_>>().join(",")
    }

    /// The algorithm of each operation, as chosen.
    pub fn algorithms(&self) -> String {
        let all =
            self.ops.iter().map(|&op| self.algorithm_of(op).unwrap_or(self.usual_algorithm(op)));
        all.collect::<Vec<_>>().join(",")
    }

    fn usual_algorithm(&self, op: Op) -> &'static str {
        match self.sizes {
            Some(_) => op.usual_algorithm_for_blocks(),
            None => op.usual_algorithm(),
        }
    }

    /// None for the default one.
    fn algorithm_of(&self, op: Op) -> Option<&str> {
        let mapped = self.map.iter().rev().find(|(mapped, _)| *mapped == op);
        self.algorithm.as_deref().or(mapped.map(|(_, name)| name.as_str()))
    }

    /// The options that differ from those of another job, each after a space.
    pub fn options(&self, usual: &Request) -> String {
        let mut text = String::new();
        let mut option = |differs: bool, name: &str, value: String| {
            if differs {
                text += &format!(" --{name} {value}");
            }
        };
        option(self.ops != usual.ops, "op", self.operations());
        let algorithm = self.algorithm.clone().unwrap_or_default();
        option(self.algorithm.is_some(), "algorithm", algorithm);
        for (op, algorithm) in &self.map {
            option(true, "map", format!("{}={algorithm}", op.name()));
        }
        let iterations = self.iterations;
        option(iterations != usual.iterations, "iterations", iterations.to_string());
        option(self.compute != usual.compute, "compute", format!("{}ps", self.compute));
        option(self.reduction != usual.reduction, "reduction", format!("{}fs", self.reduction));
        option(self.arity != usual.arity, "arity", self.arity.to_string());
        let segment = self.segment.map(|bytes| bytes.to_string()).unwrap_or_default();
        option(self.segment.is_some(), "segment", segment);
        option(self.graph.name() != usual.graph.name(), "graph", self.graph.name().to_owned());
        let progress = self.nonblocking.map_or("", Progress::name).to_owned();
        option(self.nonblocking.is_some(), "nonblocking", progress);
        let sizes = self.sizes.as_ref().map(|sizes| sizes.text.clone()).unwrap_or_default();
        option(self.sizes.is_some(), "sizes", sizes);
        text
    }

    /// Everything that determines the job, as text.
    pub fn describe(&self) -> String {
        let nonblocking =
            self.nonblocking.map_or_else(String::new, |how| format!(" {}", how.name()));
        let sizes = self.sizes.as_ref();
        let sizes = sizes.map_or_else(String::new, |sizes| format!(" {}", sizes.describe()));
        format!(
            "{} {:?} {:?} {} {} {} {} {:?} {}{nonblocking}{sizes}",
            self.operations(),
            self.algorithm,
            self.map.iter().map(|(op, name)| (op.name(), name)).collect::<Vec<_>>(),
            self.iterations,
            self.compute,
            self.reduction,
            self.arity,
            self.segment,
            self.graph.name(),
        )
    }
}
