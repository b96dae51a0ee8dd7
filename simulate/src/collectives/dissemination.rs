//! Dissemination: in round r every rank sends to the rank 2^r places up. After ceil(log2 P) rounds
//! every rank depends on every other, for any P.

use std::ops::ControlFlow;

use super::{Algorithm, Blocks, Op, Pattern, Shape, Span, Visit, doublings, reduced, vector};

pub struct Dissemination;

impl Algorithm for Dissemination {
    fn name(&self) -> &'static str {
        "dissemination"
    }

    fn ops(&self) -> &'static [Op] {
        &[Op::Allreduce, Op::Barrier, Op::Allgather, Op::Alltoall]
    }

    fn rounds(&self, shape: &Shape, visit: &mut Visit<'_>) -> ControlFlow<()> {
        for round in 0..doublings(shape.ranks) {
            let distance = 1 << round;
            let blocks = match shape.op {
                // Everything gathered so far, unless the receiver lacks less.
                Op::Allgather => distance.min(shape.ranks - distance),
                // Blocks whose remaining distance has this bit set (Bruck).
                Op::Alltoall => ones_below(shape.ranks, round),
                _ => 1,
            };
            let bytes = shape.bytes.saturating_mul(blocks);
            let pattern = Pattern::Shift { distance };
            visit(&[Span { pattern, bytes, reduce: reduced(shape.op, bytes) }])?;
        }
        ControlFlow::Continue(())
    }

    fn ops_of_blocks(&self) -> &'static [Op] {
        &[Op::Allgatherv]
    }

    fn rounds_of_blocks(
        &self,
        shape: &Shape,
        blocks: &Blocks,
        visit: &mut Visit<'_>,
    ) -> ControlFlow<()> {
        vector::dissemination(shape, blocks, visit)
    }
}

/// How many numbers below `end` have this bit set.
fn ones_below(end: u64, bit: u32) -> u64 {
    let half = 1u64 << bit;
    let whole = end / (2 * half) * half;
    whole + (end % (2 * half)).saturating_sub(half)
}

#[cfg(test)]
mod tests {
    use super::ones_below;

    #[test]
    fn set_bits_are_counted() {
        for end in 0..200u64 {
            for bit in 0..9 {
                let expected = (0..end).filter(|n| n >> bit & 1 == 1).count() as u64;
                assert_eq!(ones_below(end, bit), expected, "{end} {bit}");
            }
        }
    }
}
