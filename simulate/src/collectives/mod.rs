//! Collective operations as rounds of messages between ranks, without times. One file per algorithm;
//! engines, GOAL and the command line find them through [`ALGORITHMS`].
//!
//! A round is a few [`Span`]s: regular sets of messages, described rather than listed, so that a
//! collective over millions of ranks takes no memory. In a round a rank sends at most once and
//! receives at most once; if it does both, the send is issued first and neither waits for the other. A
//! rank's rounds run in order.

mod binomial;
mod dissemination;
mod linear;
mod pairwise;
mod recursive_doubling;
mod ring;
mod tree;
mod vector;

use std::ops::ControlFlow;

pub use vector::Blocks;

use thiserror::Error;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CollectiveError {
    #[error("a job needs at least 1 rank")]
    NoRanks,
    #[error("too many ranks: {ranks} (at most 2^32)")]
    TooManyRanks { ranks: u64 },
    #[error("unknown algorithm '{name}' (expected one of {known})")]
    UnknownAlgorithm { name: String, known: String },
    #[error("{algorithm} does not support {op} (supported by {known})")]
    NotFor { algorithm: &'static str, op: &'static str, known: String },
    #[error("a tree needs at least one child per rank")]
    NoChildren,
    #[error("a segment needs at least one byte")]
    EmptySegment,
    #[error("{bytes} bytes in segments of {segment} exceed 2^24 segments; use larger segments")]
    TooManySegments { bytes: u64, segment: u64 },
    #[error(
        "{op} has no block sizes of its own for each rank (expected gatherv, scatterv, allgatherv, \
         alltoallv or reduce-scatter)"
    )]
    NoVector { op: &'static str },
    #[error("{algorithm} does not support {op} with different block sizes (supported by {known})")]
    NotForBlocks { algorithm: &'static str, op: &'static str, known: String },
    #[error("{given} block sizes for {op} over {ranks} ranks (expected at most {expected})")]
    TooManyBlocks { op: &'static str, ranks: u64, expected: u64, given: usize },
    #[error(
        "{op} over {ranks} ranks sends {messages} messages of different sizes (at most 2^26): simulate \
         fewer ranks"
    )]
    TooManyMessages { op: &'static str, ranks: u64, messages: u64 },
    #[error("a list of block sizes needs at least one")]
    NoBlocks,
    #[error("no block size is between {from} and {to} bytes")]
    EmptyRange { from: u64, to: u64 },
}

/// The collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Allreduce,
    Barrier,
    Bcast,
    Reduce,
    Allgather,
    Alltoall,
    Scatter,
    Gather,
    Scan,
    Exscan,
    ReduceScatter,
    Gatherv,
    Scatterv,
    Allgatherv,
    Alltoallv,
}

impl Op {
    pub const ALL: [Op; 15] = [
        Op::Allreduce,
        Op::Barrier,
        Op::Bcast,
        Op::Reduce,
        Op::Allgather,
        Op::Alltoall,
        Op::Scatter,
        Op::Gather,
        Op::Scan,
        Op::Exscan,
        Op::ReduceScatter,
        Op::Gatherv,
        Op::Scatterv,
        Op::Allgatherv,
        Op::Alltoallv,
    ];

    /// Those whose blocks are all of one size.
    pub fn regular() -> impl Iterator<Item = Op> {
        Op::ALL.into_iter().filter(|op| op.evened() == *op)
    }

    /// The operation with blocks of one size.
    pub const fn evened(self) -> Op {
        match self {
            Op::Gatherv => Op::Gather,
            Op::Scatterv => Op::Scatter,
            Op::Allgatherv => Op::Allgather,
            Op::Alltoallv => Op::Alltoall,
            op => op,
        }
    }

    /// Whether blocks may have different sizes.
    pub const fn has_blocks(self) -> bool {
        matches!(
            self,
            Op::Gatherv | Op::Scatterv | Op::Allgatherv | Op::Alltoallv | Op::ReduceScatter
        )
    }

    /// The name used in the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Allreduce => "allreduce",
            Op::Barrier => "barrier",
            Op::Bcast => "bcast",
            Op::Reduce => "reduce",
            Op::Allgather => "allgather",
            Op::Alltoall => "alltoall",
            Op::Scatter => "scatter",
            Op::Gather => "gather",
            Op::Scan => "scan",
            Op::Exscan => "exscan",
            Op::ReduceScatter => "reduce-scatter",
            Op::Gatherv => "gatherv",
            Op::Scatterv => "scatterv",
            Op::Allgatherv => "allgatherv",
            Op::Alltoallv => "alltoallv",
        }
    }

    /// The default algorithm: the noise study's choice for small messages.
    pub const fn usual_algorithm(self) -> &'static str {
        match self {
            Op::Allreduce | Op::Barrier | Op::Allgather | Op::Alltoall | Op::Allgatherv => {
                "dissemination"
            }
            Op::Bcast | Op::Reduce | Op::Scatter | Op::Gather => "binomial",
            Op::Scan | Op::Exscan | Op::ReduceScatter => "recursive-doubling",
            // As in Open MPI and MPICH.
            Op::Gatherv | Op::Scatterv => "linear",
            Op::Alltoallv => "pairwise",
        }
    }

    /// The default algorithm if blocks have different sizes.
    pub const fn usual_algorithm_for_blocks(self) -> &'static str {
        match self {
            Op::ReduceScatter => "ring",
            op => op.usual_algorithm(),
        }
    }
}

/// A regular set of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Every rank sends to the rank `distance` places up, wrapping around; 0 < distance < ranks.
    Shift { distance: u64 },
    /// Ranks below `ranks` swap with the rank whose number differs in the bits of the mask; `ranks` is
    /// a multiple of the first power of two above the mask.
    Swap { ranks: u64, mask: u64 },
    /// `src + i * src_step` sends to `dst + i * dst_step`.
    Edges { src: u64, src_step: u64, dst: u64, dst_step: u64, count: u64 },
}

/// Messages of one pattern and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub pattern: Pattern,
    pub bytes: u64,
    /// Bytes the receiver then combines with its own.
    pub reduce: u64,
}

impl Span {
    /// (sender, receiver) of each message, in ascending order of the sender within a pattern.
    pub fn edges(&self, ranks: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let pattern = self.pattern;
        (0..self.messages(ranks)).map(move |i| match pattern {
            Pattern::Shift { distance } => (i, (i + distance) % ranks),
            Pattern::Swap { mask, .. } => (i, i ^ mask),
            Pattern::Edges { src, src_step, dst, dst_step, .. } => {
                (src + i * src_step, dst + i * dst_step)
            }
        })
    }

    pub fn messages(&self, ranks: u64) -> u64 {
        match self.pattern {
            Pattern::Shift { .. } => ranks,
            Pattern::Swap { ranks, .. } => ranks,
            Pattern::Edges { count, .. } => count,
        }
    }

    /// Every rank sends and receives.
    pub fn is_full(&self, ranks: u64) -> bool {
        match self.pattern {
            Pattern::Shift { .. } => true,
            Pattern::Swap { ranks: all, .. } => all == ranks,
            Pattern::Edges { .. } => false,
        }
    }
}

/// The parameters of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub op: Op,
    pub ranks: u64,
    /// Bytes of the vector; for operations that move a block per pair of ranks, bytes of one block.
    pub bytes: u64,
    /// Children per rank of a tree.
    pub arity: u64,
    /// Trees split a large message into segments of this many bytes.
    pub segment: Option<u64>,
}

/// Receives the rounds of a collective in order, and may stop.
pub type Visit<'a> = dyn FnMut(&[Span]) -> ControlFlow<()> + 'a;

pub trait Algorithm: Sync {
    fn name(&self) -> &'static str;
    fn ops(&self) -> &'static [Op];
    /// Into which messages are divided unless the user says otherwise.
    fn segment(&self) -> Option<u64> {
        None
    }
    /// Calls `visit` with each round; `shape` has been checked, and its operation is a regular one.
    fn rounds(&self, shape: &Shape, visit: &mut Visit<'_>) -> ControlFlow<()>;
    /// The operations whose blocks may have different sizes.
    fn ops_of_blocks(&self) -> &'static [Op] {
        &[]
    }
    /// The rounds of one of these.
    fn rounds_of_blocks(&self, _: &Shape, _: &Blocks, _: &mut Visit<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
    /// Whether it has this operation.
    fn supports(&self, op: Op) -> bool {
        self.ops().contains(&op) || self.ops_of_blocks().contains(&op)
    }
}

/// Each is a round.
const MOST_SEGMENTS: u64 = 1 << 24;

/// They are described one by one.
const MOST_DIFFERENT: u64 = 1 << 26;

pub static ALGORITHMS: [&dyn Algorithm; 9] = [
    &dissemination::Dissemination,
    &binomial::Binomial,
    &tree::NARY,
    &tree::CHAIN,
    &tree::PIPELINED,
    &recursive_doubling::RecursiveDoubling,
    &ring::Ring,
    &pairwise::Pairwise,
    &linear::Linear,
];

/// A collective operation with its algorithm, validated.
#[derive(Clone, Copy)]
pub struct Collective {
    algorithm: &'static dyn Algorithm,
    shape: Shape,
    /// None if they all have the size of the shape.
    blocks: Option<Blocks>,
}

impl std::fmt::Debug for Collective {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {:?}", self.algorithm.name(), self.shape, self.blocks)
    }
}

/// Rank numbers are stored in 32 bits.
pub const MAX_RANKS: u64 = 1 << 32;

impl Collective {
    /// `algorithm` None selects the default one.
    pub fn new(algorithm: Option<&str>, shape: Shape) -> Result<Collective, CollectiveError> {
        let name = algorithm.unwrap_or(shape.op.usual_algorithm());
        let names = |list: &mut dyn Iterator<Item = &&'static dyn Algorithm>| {
            list.map(|a| a.name()).collect::<Vec<_>>().join(", ")
        };
        let Some(algorithm) = ALGORITHMS.iter().find(|a| a.name() == name) else {
            let known = names(&mut ALGORITHMS.iter());
            return Err(CollectiveError::UnknownAlgorithm { name: name.to_owned(), known });
        };
        if !algorithm.supports(shape.op) {
            let known = names(&mut ALGORITHMS.iter().filter(|a| a.supports(shape.op)));
            let op = shape.op.name();
            return Err(CollectiveError::NotFor { algorithm: algorithm.name(), op, known });
        }
        match shape {
            Shape { ranks: 0, .. } => return Err(CollectiveError::NoRanks),
            Shape { ranks, .. } if ranks > MAX_RANKS => {
                return Err(CollectiveError::TooManyRanks { ranks });
            }
            Shape { arity: 0, .. } => return Err(CollectiveError::NoChildren),
            Shape { segment: Some(0), .. } => return Err(CollectiveError::EmptySegment),
            _ => {}
        }
        if let Some(segment) = shape.segment.or(algorithm.segment())
            && shape.bytes / segment > MOST_SEGMENTS
        {
            return Err(CollectiveError::TooManySegments { bytes: shape.bytes, segment });
        }
        Ok(Collective { algorithm: *algorithm, shape, blocks: None })
    }

    /// The same with blocks of different sizes, if the operation has any.
    pub fn of_blocks(
        algorithm: Option<&str>,
        shape: Shape,
        blocks: Blocks,
    ) -> Result<Collective, CollectiveError> {
        let op = shape.op;
        if !op.has_blocks() {
            return Err(CollectiveError::NoVector { op: op.name() });
        }
        let name = algorithm.unwrap_or(op.usual_algorithm_for_blocks());
        let collective = Collective::new(Some(name), shape)?;
        let can = |algorithm: &dyn Algorithm| algorithm.ops_of_blocks().contains(&op);
        if !can(collective.algorithm) {
            let known = ALGORITHMS.iter().filter(|known| can(**known)).map(|known| known.name());
            return Err(CollectiveError::NotForBlocks {
                algorithm: collective.algorithm.name(),
                op: op.name(),
                known: known.collect::<Vec<_>>().join(", "),
            });
        }
        blocks.check(&shape)?;
        let messages = collective.messages();
        if messages > MOST_DIFFERENT {
            return Err(CollectiveError::TooManyMessages {
                op: op.name(),
                ranks: shape.ranks,
                messages,
            });
        }
        Ok(Collective { blocks: Some(blocks), ..collective })
    }

    pub fn algorithm(&self) -> &'static str {
        self.algorithm.name()
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    pub fn ranks(&self) -> u64 {
        self.shape.ranks
    }

    pub fn rounds(&self, visit: &mut Visit<'_>) -> ControlFlow<()> {
        if self.shape.ranks < 2 {
            return ControlFlow::Continue(());
        }
        match &self.blocks {
            Some(blocks) => self.algorithm.rounds_of_blocks(&self.shape, blocks, visit),
            None => {
                let shape = Shape { op: self.shape.op.evened(), ..self.shape };
                self.algorithm.rounds(&shape, visit)
            }
        }
    }

    pub fn messages(&self) -> u64 {
        let mut messages = 0u64;
        let _ = self.rounds(&mut |round| {
            let sum: u64 = round.iter().map(|span| span.messages(self.shape.ranks)).sum();
            messages = messages.saturating_add(sum);
            ControlFlow::Continue(())
        });
        messages
    }
}

/// Rounds of doubling until every rank is reached: ceil(log2(ranks)).
fn doublings(ranks: u64) -> u32 {
    ranks.next_power_of_two().trailing_zeros()
}

/// Bytes that receivers combine, for operations that do.
fn reduced(op: Op, bytes: u64) -> u64 {
    match op {
        Op::Allreduce | Op::Reduce | Op::Scan | Op::Exscan | Op::ReduceScatter => bytes,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
