//! n-ary trees, numbered level by level (the children of i are n i + 1 to n i + n), the chain (one
//! child), and the pipelined tree: a tree that cuts messages into segments.

use std::ops::ControlFlow;

use super::{Algorithm, Op, Pattern, Shape, Span, Visit, reduced};

pub struct Tree {
    name: &'static str,
    ops: &'static [Op],
    /// Overrides the arity of the shape.
    arity: Option<u64>,
    /// Used if the shape does not specify one.
    segment: Option<u64>,
}

const TREE_OPS: &[Op] = &[Op::Bcast, Op::Reduce, Op::Allreduce, Op::Barrier];

pub static NARY: Tree = Tree { name: "nary", ops: TREE_OPS, arity: None, segment: None };
pub static CHAIN: Tree = Tree {
    name: "chain",
    ops: &[Op::Bcast, Op::Reduce, Op::Allreduce, Op::Barrier, Op::Scan],
    arity: Some(1),
    segment: None,
};
pub static PIPELINED: Tree =
    Tree { name: "pipelined", ops: TREE_OPS, arity: None, segment: Some(8 << 10) };

impl Algorithm for Tree {
    fn name(&self) -> &'static str {
        self.name
    }

    fn ops(&self) -> &'static [Op] {
        self.ops
    }

    fn segment(&self) -> Option<u64> {
        self.segment
    }

    fn rounds(&self, shape: &Shape, visit: &mut Visit<'_>) -> ControlFlow<()> {
        let shape = Shape {
            arity: self.arity.unwrap_or(shape.arity),
            segment: shape.segment.or(self.segment),
            ..*shape
        };
        if shape.op == Op::Scan {
            // Along a chain, away from rank 0, combining on the way.
            return in_segments(&shape, |bytes| one_way(&shape, true, bytes, visit));
        }
        both_ways(&shape, |down, part| in_segments(part, |bytes| one_way(part, down, bytes, visit)))
    }
}

/// Operations towards the root, from the root, or both.
pub fn both_ways(
    shape: &Shape,
    mut pass: impl FnMut(bool, &Shape) -> ControlFlow<()>,
) -> ControlFlow<()> {
    if matches!(shape.op, Op::Reduce | Op::Allreduce | Op::Barrier) {
        pass(false, shape)?;
    }
    if matches!(shape.op, Op::Bcast | Op::Allreduce | Op::Barrier) {
        pass(true, shape)?;
    }
    ControlFlow::Continue(())
}

/// Calls `send` with the bytes of each segment, or with all bytes if the message is not segmented.
pub fn in_segments(shape: &Shape, mut send: impl FnMut(u64) -> ControlFlow<()>) -> ControlFlow<()> {
    let Some(segment) = shape.segment.filter(|&segment| segment < shape.bytes) else {
        return send(shape.bytes);
    };
    let mut left = shape.bytes;
    while left > 0 {
        send(left.min(segment))?;
        left -= left.min(segment);
    }
    ControlFlow::Continue(())
}

fn one_way(shape: &Shape, down: bool, bytes: u64, visit: &mut Visit<'_>) -> ControlFlow<()> {
    let levels = Levels { arity: shape.arity, ranks: shape.ranks };
    let combine = if down && shape.op != Op::Scan { 0 } else { reduced(shape.op, bytes) };
    let depth = levels.depth();
    for step in 0..depth {
        let level = if down { step } else { depth - 1 - step };
        let (first, end) = levels.parents(level);
        for child in 0..shape.arity {
            // Parents of this level that have such a child.
            let with_child = (shape.ranks.saturating_sub(1 + child)).div_ceil(shape.arity);
            let count = with_child.min(end).saturating_sub(first);
            if count == 0 {
                break;
            }
            let lower = first * shape.arity + 1 + child;
            let pattern = if down {
                Pattern::Edges { src: first, src_step: 1, dst: lower, dst_step: shape.arity, count }
            } else {
                Pattern::Edges { src: lower, src_step: shape.arity, dst: first, dst_step: 1, count }
            };
            visit(&[Span { pattern, bytes, reduce: combine }])?;
        }
    }
    ControlFlow::Continue(())
}

struct Levels {
    arity: u64,
    ranks: u64,
}

impl Levels {
    /// First rank of a level, or beyond the last rank.
    fn first(&self, level: u64) -> u64 {
        if self.arity == 1 {
            return level;
        }
        let mut first = 0u64;
        for _ in 0..level {
            first = first.saturating_mul(self.arity).saturating_add(1);
            if first >= self.ranks {
                break;
            }
        }
        first
    }

    fn parents(&self, level: u64) -> (u64, u64) {
        (self.first(level), self.first(level + 1).min(self.ranks))
    }

    /// Levels that have children.
    fn depth(&self) -> u64 {
        if self.arity == 1 {
            return self.ranks - 1;
        }
        (0..).find(|&level| self.first(level + 1) >= self.ranks).unwrap_or(0)
    }
}
