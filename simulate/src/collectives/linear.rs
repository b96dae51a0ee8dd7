//! The linear algorithm: the root exchanges with every rank in turn; in all-to-all operations, every
//! rank exchanges with the next rank, then with the one after that, and so on.

use std::ops::ControlFlow;

use super::{Algorithm, Blocks, Op, Pattern, Shape, Span, Visit, reduced, tree::both_ways, vector};

pub struct Linear;

impl Algorithm for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn ops(&self) -> &'static [Op] {
        &[
            Op::Bcast,
            Op::Reduce,
            Op::Scatter,
            Op::Gather,
            Op::Barrier,
            Op::Allreduce,
            Op::Allgather,
            Op::Alltoall,
        ]
    }

    fn rounds(&self, shape: &Shape, visit: &mut Visit<'_>) -> ControlFlow<()> {
        let mut rooted = |down: bool| {
            for rank in 1..shape.ranks {
                let (src, dst) = if down { (0, rank) } else { (rank, 0) };
                let pattern = Pattern::Edges { src, src_step: 1, dst, dst_step: 1, count: 1 };
                let reduce = if down { 0 } else { reduced(shape.op, shape.bytes) };
                visit(&[Span { pattern, bytes: shape.bytes, reduce }])?;
            }
            ControlFlow::Continue(())
        };
        match shape.op {
            Op::Scatter => rooted(true),
            Op::Gather => rooted(false),
            Op::Allgather | Op::Alltoall => {
                for distance in 1..shape.ranks {
                    let pattern = Pattern::Shift { distance };
                    visit(&[Span { pattern, bytes: shape.bytes, reduce: 0 }])?;
                }
                ControlFlow::Continue(())
            }
            _ => both_ways(shape, |down, _| rooted(down)),
        }
    }

    fn ops_of_blocks(&self) -> &'static [Op] {
        &[Op::Gatherv, Op::Scatterv, Op::Allgatherv, Op::Alltoallv]
    }

    fn rounds_of_blocks(
        &self,
        shape: &Shape,
        blocks: &Blocks,
        visit: &mut Visit<'_>,
    ) -> ControlFlow<()> {
        match shape.op {
            Op::Gatherv | Op::Scatterv => {
                vector::rooted(shape, blocks, shape.op == Op::Scatterv, visit)
            }
            _ => vector::to_each(shape, blocks, false, visit),
        }
    }
}
