//! The options of a job of collectives; `detour simulate collective` simulates it, `detour goal gen`
//! writes it as a schedule.

use clap::{Args, ValueEnum};
use simulate::{collectives::Op, graph::Graph};
use study::job::{Request, parse_mapping, parse_op};

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
    iterations: u64,
    /// Compute time before each collective
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::picoseconds)]
    compute: i64,
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

impl Options {
    pub fn request(&self) -> Request {
        Request {
            ops: self.op.clone(),
            algorithm: self.algorithm.clone(),
            map: self.map.clone(),
            iterations: self.iterations,
            compute: self.compute,
            reduction: self.reduction,
            arity: self.arity,
            segment: self.segment,
            graph: match self.graph {
                GraphName::InOrder => Graph::InOrder,
                GraphName::LogGopSim => Graph::LogGopSim,
            },
        }
    }
}
