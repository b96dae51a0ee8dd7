//! Pairwise exchange: P - 1 rounds, in each of which every rank exchanges a block with one other. If P is
//! a power of two, rank i exchanges with i ^ r in round r: both ranks of a pair wait for each other only.
//! Otherwise it sends to the rank r places up and receives from the one r places down.

use std::ops::ControlFlow;

use super::{Algorithm, Blocks, Op, Pattern, Shape, Span, Visit, vector};

pub struct Pairwise;

impl Algorithm for Pairwise {
    fn name(&self) -> &'static str {
        "pairwise"
    }

    fn ops(&self) -> &'static [Op] {
        &[Op::Alltoall]
    }

    fn rounds(&self, shape: &Shape, visit: &mut Visit<'_>) -> ControlFlow<()> {
        let ranks = shape.ranks;
        for round in 1..ranks {
            let pattern = match ranks.is_power_of_two() {
                true => Pattern::Swap { ranks, mask: round },
                false => Pattern::Shift { distance: round },
            };
            visit(&[Span { pattern, bytes: shape.bytes, reduce: 0 }])?;
        }
        ControlFlow::Continue(())
    }

    fn ops_of_blocks(&self) -> &'static [Op] {
        &[Op::Alltoallv]
    }

    fn rounds_of_blocks(
        &self,
        shape: &Shape,
        blocks: &Blocks,
        visit: &mut Visit<'_>,
    ) -> ControlFlow<()> {
        vector::to_each(shape, blocks, shape.ranks.is_power_of_two(), visit)
    }
}
