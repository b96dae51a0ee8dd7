//! The ring: every rank sends to the next, P - 1 times. Allreduce goes around twice with parts of 1/P:
//! once to reduce, once to distribute.

use std::ops::ControlFlow;

use super::{Algorithm, Blocks, Op, Pattern, Shape, Span, Visit, vector};

pub struct Ring;

impl Algorithm for Ring {
    fn name(&self) -> &'static str {
        "ring"
    }

    fn ops(&self) -> &'static [Op] {
        &[Op::Allgather, Op::ReduceScatter, Op::Allreduce]
    }

    fn rounds(&self, shape: &Shape, visit: &mut Visit<'_>) -> ControlFlow<()> {
        let bytes = match shape.op {
            Op::Allreduce => shape.bytes.div_ceil(shape.ranks),
            _ => shape.bytes,
        };
        let pattern = Pattern::Shift { distance: 1 };
        if shape.op != Op::Allgather {
            for _ in 1..shape.ranks {
                visit(&[Span { pattern, bytes, reduce: bytes }])?;
            }
        }
        if shape.op != Op::ReduceScatter {
            for _ in 1..shape.ranks {
                visit(&[Span { pattern, bytes, reduce: 0 }])?;
            }
        }
        ControlFlow::Continue(())
    }

    fn ops_of_blocks(&self) -> &'static [Op] {
        &[Op::Allgatherv, Op::ReduceScatter]
    }

    fn rounds_of_blocks(
        &self,
        shape: &Shape,
        blocks: &Blocks,
        visit: &mut Visit<'_>,
    ) -> ControlFlow<()> {
        vector::ring(shape, blocks, visit)
    }
}
