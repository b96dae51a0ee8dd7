//! Vector operations: every rank, or every pair of ranks, has a block of its own size. The messages are those
//! of the regular operation, each as long as the blocks that it carries. An empty block is an empty message.

use std::ops::ControlFlow;

use random::{draw, key};

use super::{CollectiveError, Op, Pattern, Shape, Span, Visit, doublings, reduced};

/// Keys of the random streams for the sizes.
const OF_RANK: u64 = 31;
const OF_PAIR: u64 = 32;

/// The sizes of the blocks, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// At random between two sizes, inclusive.
    Uniform { from: u64, to: u64, seed: u64 },
    /// By rank, or by sender and receiver; repeated if there are more.
    Listed(&'static [u64]),
}

impl Blocks {
    /// The block of a rank: what it sends or receives, by the operation.
    pub fn of_rank(&self, rank: u64) -> u64 {
        match self {
            Blocks::Uniform { from, to, seed } => {
                within(*from, *to, draw(key(*seed, OF_RANK, 0), rank))
            }
            Blocks::Listed(sizes) => repeated(sizes, rank),
        }
    }

    /// What a rank sends to another.
    pub fn of_pair(&self, ranks: u64, src: u64, dst: u64) -> u64 {
        match self {
            Blocks::Uniform { from, to, seed } => {
                within(*from, *to, draw(key(*seed, OF_PAIR, src), dst))
            }
            Blocks::Listed(sizes) => repeated(sizes, src.saturating_mul(ranks).saturating_add(dst)),
        }
    }

    /// How many blocks an operation has.
    fn count(shape: &Shape) -> u64 {
        match shape.op {
            Op::Alltoallv => shape.ranks.saturating_mul(shape.ranks),
            _ => shape.ranks,
        }
    }

    pub(super) fn check(&self, shape: &Shape) -> Result<(), CollectiveError> {
        match self {
            Blocks::Uniform { from, to, .. } if from > to => {
                Err(CollectiveError::EmptyRange { from: *from, to: *to })
            }
            Blocks::Listed([]) => Err(CollectiveError::NoBlocks),
            Blocks::Listed(sizes) if sizes.len() as u64 > Blocks::count(shape) => {
                Err(CollectiveError::TooManyBlocks {
                    op: shape.op.name(),
                    ranks: shape.ranks,
                    expected: Blocks::count(shape),
                    given: sizes.len(),
                })
            }
            _ => Ok(()),
        }
    }
}

/// A number in `from..=to`, from a random one.
fn within(from: u64, to: u64, drawn: u64) -> u64 {
    let sizes = u128::from(to.saturating_sub(from)) + 1;
    // The upper half of the product is below `sizes`, which exceeds 64 bits only by 1.
    from + ((u128::from(drawn) * sizes) >> 64) as u64
}

fn repeated(sizes: &[u64], index: u64) -> u64 {
    let place = index.checked_rem(sizes.len() as u64).unwrap_or(0);
    sizes.get(place as usize).copied().unwrap_or(0)
}

/// Rank 0 exchanges with every rank in turn.
pub(super) fn rooted(
    shape: &Shape,
    blocks: &Blocks,
    down: bool,
    visit: &mut Visit<'_>,
) -> ControlFlow<()> {
    for rank in 1..shape.ranks {
        let (src, dst) = if down { (0, rank) } else { (rank, 0) };
        visit(&[edges(src, dst, 1, blocks.of_rank(rank), 0)])?;
    }
    ControlFlow::Continue(())
}

/// Every rank passes blocks on to the next one; a reduction ends with the own block, an allgather begins with
/// it.
pub(super) fn ring(shape: &Shape, blocks: &Blocks, visit: &mut Visit<'_>) -> ControlFlow<()> {
    let ranks = shape.ranks;
    let sizes: Vec<u64> = (0..ranks).map(|rank| blocks.of_rank(rank)).collect();
    let ahead = if shape.op == Op::ReduceScatter { 0 } else { 1 };
    for round in 1..ranks {
        let sent = |rank: u64| sizes[((rank + ranks + ahead - round) % ranks) as usize];
        visit(&shift(shape, 1, sent))?;
    }
    ControlFlow::Continue(())
}

/// In round r, every rank sends the blocks that it has to the rank 2^r places up, unless that has them.
pub(super) fn dissemination(
    shape: &Shape,
    blocks: &Blocks,
    visit: &mut Visit<'_>,
) -> ControlFlow<()> {
    let ranks = shape.ranks;
    // The bytes of the blocks below each rank.
    let mut below = vec![0u64];
    for rank in 0..ranks {
        below.push(below[rank as usize].saturating_add(blocks.of_rank(rank)));
    }
    let total = below[ranks as usize];
    for round in 0..doublings(ranks) {
        let distance = 1 << round;
        let held = distance.min(ranks - distance);
        // The own block, and those of the ranks below.
        let sent = |rank: u64| {
            let end = below[rank as usize + 1];
            match (rank + 1).checked_sub(held) {
                Some(first) => end - below[first as usize],
                None => end.saturating_add(total - below[(rank + 1 + ranks - held) as usize]),
            }
        };
        visit(&shift(shape, distance, sent))?;
    }
    ControlFlow::Continue(())
}

/// Every rank sends a block to each other rank, in P - 1 rounds: to the rank r places up, or, in pairs, to
/// i ^ r.
pub(super) fn to_each(
    shape: &Shape,
    blocks: &Blocks,
    in_pairs: bool,
    visit: &mut Visit<'_>,
) -> ControlFlow<()> {
    let ranks = shape.ranks;
    for round in 1..ranks {
        if !in_pairs {
            let sent = |rank: u64| match shape.op {
                Op::Allgatherv => blocks.of_rank(rank),
                _ => blocks.of_pair(ranks, rank, (rank + round) % ranks),
            };
            visit(&shift(shape, round, sent))?;
            continue;
        }
        let sent = |rank: u64| blocks.of_pair(ranks, rank, rank ^ round);
        let first = sent(0);
        let spans: Vec<Span> = match (0..ranks).all(|rank| sent(rank) == first) {
            true => {
                vec![Span {
                    pattern: Pattern::Swap { ranks, mask: round },
                    bytes: first,
                    reduce: 0,
                }]
            }
            false => (0..ranks).map(|rank| edges(rank, rank ^ round, 1, sent(rank), 0)).collect(),
        };
        visit(&spans)?;
    }
    ControlFlow::Continue(())
}

/// Every rank sends this many bytes to the rank `distance` places up. Neighbours that send as much share a span.
fn shift(shape: &Shape, distance: u64, bytes: impl Fn(u64) -> u64) -> Vec<Span> {
    let ranks = shape.ranks;
    let mut spans: Vec<Span> = Vec::new();
    // The last ranks wrap around.
    for (from, to) in [(0, ranks - distance), (ranks - distance, ranks)] {
        let mut rank = from;
        while rank < to {
            let sent = bytes(rank);
            let count = 1 + (rank + 1..to).take_while(|&next| bytes(next) == sent).count() as u64;
            let dst = (rank + distance) % ranks;
            spans.push(edges(rank, dst, count, sent, reduced(shape.op, sent)));
            rank += count;
        }
    }
    if matches!(spans[..], [one, other] if one.bytes == other.bytes) {
        spans.truncate(1);
        spans[0].pattern = Pattern::Shift { distance };
    }
    spans
}

fn edges(src: u64, dst: u64, count: u64, bytes: u64, reduce: u64) -> Span {
    Span { pattern: Pattern::Edges { src, src_step: 1, dst, dst_step: 1, count }, bytes, reduce }
}
