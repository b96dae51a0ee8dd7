//! Binomial trees, numbered as they grow: in round r, rank i < 2^r sends to i + 2^r. Towards the root
//! the rounds run backwards. Segments of a large message are pipelined through the tree.

use std::ops::ControlFlow;

use super::{
    Algorithm, Op, Pattern, Shape, Span, Visit, doublings, reduced,
    tree::{both_ways, in_segments},
};

pub struct Binomial;

impl Algorithm for Binomial {
    fn name(&self) -> &'static str {
        "binomial"
    }

    fn ops(&self) -> &'static [Op] {
        &[Op::Bcast, Op::Reduce, Op::Scatter, Op::Gather, Op::Allreduce, Op::Barrier]
    }

    fn rounds(&self, shape: &Shape, visit: &mut Visit<'_>) -> ControlFlow<()> {
        match shape.op {
            Op::Scatter => blocks(shape, true, visit),
            Op::Gather => blocks(shape, false, visit),
            _ => both_ways(shape, |down, part| {
                in_segments(part, |bytes| whole(part, down, bytes, visit))
            }),
        }
    }
}

/// One message per edge, all of the same size.
fn whole(shape: &Shape, down: bool, bytes: u64, visit: &mut Visit<'_>) -> ControlFlow<()> {
    let rounds = doublings(shape.ranks);
    for step in 0..rounds {
        let round = if down { step } else { rounds - 1 - step };
        let half = 1u64 << round;
        let count = half.min(shape.ranks - half);
        let reduce = if down { 0 } else { reduced(shape.op, bytes) };
        visit(&[Span { pattern: edges(down, 0, half, count), bytes, reduce }])?;
    }
    ControlFlow::Continue(())
}

/// The block of every rank below the child travels over its edge.
fn blocks(shape: &Shape, down: bool, visit: &mut Visit<'_>) -> ControlFlow<()> {
    let rounds = doublings(shape.ranks);
    for step in 0..rounds {
        let round = if down { step } else { rounds - 1 - step };
        let half = 1u64 << round;
        let end = (2 * half).min(shape.ranks);
        // The subtree of child v has v, v + 2 * half, v + 4 * half and so on: the first children have
        // one more than the last.
        let most = (shape.ranks - half).div_ceil(2 * half);
        let fewer_from = (shape.ranks - (most - 1) * 2 * half).clamp(half, end);
        let span = |from: u64, to: u64, blocks: u64| Span {
            pattern: edges(down, from - half, from, to - from),
            bytes: shape.bytes.saturating_mul(blocks),
            reduce: 0,
        };
        let spans = [span(half, fewer_from, most), span(fewer_from, end, most - 1)];
        let used = if fewer_from == end { &spans[..1] } else { &spans[..] };
        visit(used)?;
    }
    ControlFlow::Continue(())
}

fn edges(down: bool, parent: u64, child: u64, count: u64) -> Pattern {
    let (src, dst) = if down { (parent, child) } else { (child, parent) };
    Pattern::Edges { src, src_step: 1, dst, dst_step: 1, count }
}
