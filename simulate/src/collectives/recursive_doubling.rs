//! Recursive doubling (the butterfly): in round r ranks swap with the rank whose number differs in bit
//! r. If P is not a power of two, the ranks beyond the largest power of two first hand their part to a
//! lower rank, and get the result last.
//!
//! Recursive halving runs the rounds backwards with ever smaller parts (reduce-scatter). Scan and exscan
//! send to the rank 2^r places up, without wrapping around.

use std::ops::ControlFlow;

use super::{Algorithm, Op, Pattern, Shape, Span, Visit, doublings, reduced};

pub struct RecursiveDoubling;

impl Algorithm for RecursiveDoubling {
    fn name(&self) -> &'static str {
        "recursive-doubling"
    }

    fn ops(&self) -> &'static [Op] {
        &[Op::Allreduce, Op::Barrier, Op::Allgather, Op::ReduceScatter, Op::Scan, Op::Exscan]
    }

    fn rounds(&self, shape: &Shape, visit: &mut Visit<'_>) -> ControlFlow<()> {
        if matches!(shape.op, Op::Scan | Op::Exscan) {
            return scan(shape, visit);
        }
        let ranks = 1 << shape.ranks.ilog2();
        let beyond = shape.ranks - ranks;
        let block = |blocks: u64| shape.bytes.saturating_mul(blocks);
        // If there are extra ranks, some lower ranks represent two; all messages are assumed to be as
        // large as the largest.
        let doubled = if beyond > 0 { 2 } else { 1 };
        if beyond > 0 {
            let bytes = if shape.op == Op::ReduceScatter { block(shape.ranks) } else { block(1) };
            visit(&[fold(shape.op, ranks, 0, beyond, bytes)])?;
        }
        let rounds = ranks.trailing_zeros();
        for step in 0..rounds {
            let (mask, bytes) = match shape.op {
                Op::Allgather => (1 << step, block((doubled << step).min(shape.ranks))),
                Op::ReduceScatter => {
                    let mask = ranks >> (step + 1);
                    (mask, block((doubled * mask).min(shape.ranks)))
                }
                _ => (1 << step, block(1)),
            };
            let pattern = Pattern::Swap { ranks, mask };
            visit(&[Span { pattern, bytes, reduce: reduced(shape.op, bytes) }])?;
        }
        if beyond > 0 {
            let bytes = if shape.op == Op::Allgather { block(shape.ranks) } else { block(1) };
            visit(&[Span { reduce: 0, ..fold(shape.op, 0, ranks, beyond, bytes) }])?;
        }
        ControlFlow::Continue(())
    }
}

fn fold(op: Op, src: u64, dst: u64, count: u64, bytes: u64) -> Span {
    let pattern = Pattern::Edges { src, src_step: 1, dst, dst_step: 1, count };
    Span { pattern, bytes, reduce: reduced(op, bytes) }
}

fn scan(shape: &Shape, visit: &mut Visit<'_>) -> ControlFlow<()> {
    let rounds = doublings(shape.ranks);
    for round in 0..rounds {
        let distance = 1 << round;
        let span = fold(shape.op, 0, distance, shape.ranks - distance, shape.bytes);
        // A rank of an exscan combines what it receives with its result, which is empty in the first
        // round, and with what it forwards, which ends with the last but one.
        let times = match shape.op {
            Op::Exscan => u64::from(round > 0) + u64::from(round + 1 < rounds),
            _ => 1,
        };
        visit(&[Span { reduce: span.reduce.saturating_mul(times), ..span }])?;
    }
    ControlFlow::Continue(())
}
