//! What one rank does in a collective, round by round.

use std::ops::ControlFlow;

use simulate::collectives::{Collective, Pattern};

/// A round in which the rank sends, receives or both: the other rank and the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub to: Option<(u32, u64)>,
    pub from: Option<(u32, u64)>,
}

/// Where the rank sends to in a pattern, and where it receives from.
fn peers(pattern: Pattern, ranks: u64, rank: u64) -> (Option<u64>, Option<u64>) {
    match pattern {
        Pattern::Shift { distance } => {
            let distance = distance % ranks;
            (Some((rank + distance) % ranks), Some((rank + ranks - distance) % ranks))
        }
        Pattern::Swap { ranks, mask } => {
            let other = (rank < ranks).then_some(rank ^ mask);
            (other, other)
        }
        Pattern::Edges { src, src_step, dst, dst_step, count } => {
            let place = |first: u64, step: u64| {
                let beyond = rank.checked_sub(first)?;
                let place = beyond.checked_div(step).unwrap_or(0);
                (place * step == beyond && place < count).then_some(place)
            };
            let to = place(src, src_step).map(|place| dst + place * dst_step);
            let from = place(dst, dst_step).map(|place| src + place * src_step);
            (to, from)
        }
    }
}

/// The rounds in which this rank takes part.
pub fn parts(collective: &Collective, rank: u32) -> Vec<Part> {
    let ranks = collective.ranks();
    let mut parts = Vec::new();
    let _ = collective.rounds(&mut |spans| {
        let mut part = Part { to: None, from: None };
        for span in spans {
            let (to, from) = peers(span.pattern, ranks, u64::from(rank));
            part.to = part.to.or(to.map(|to| (to as u32, span.bytes)));
            part.from = part.from.or(from.map(|from| (from as u32, span.bytes)));
        }
        if part.to.is_some() || part.from.is_some() {
            parts.push(part);
        }
        ControlFlow::Continue(())
    });
    parts
}

#[cfg(test)]
mod tests {
    use simulate::collectives::{ALGORITHMS, Shape};

    use super::*;

    #[test]
    fn the_parts_of_all_ranks_are_the_messages_of_the_collective() {
        for ranks in [1, 2, 3, 5, 8, 13, 16] {
            for algorithm in ALGORITHMS {
                for op in algorithm.ops() {
                    let shape = Shape { op: *op, ranks, bytes: 20_000, arity: 3, segment: None };
                    let collective = Collective::new(Some(algorithm.name()), shape).unwrap();
                    check(&collective);
                }
            }
        }
    }

    fn check(collective: &Collective) {
        let ranks = collective.ranks();
        let mut sent: Vec<(u64, u64, u64)> = Vec::new();
        let _ = collective.rounds(&mut |spans| {
            for span in spans {
                sent.extend(span.edges(ranks).map(|(from, to)| (from, to, span.bytes)));
            }
            ControlFlow::Continue(())
        });
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for rank in 0..ranks as u32 {
            for part in parts(collective, rank) {
                let rank = u64::from(rank);
                sends.extend(part.to.map(|(to, bytes)| (rank, u64::from(to), bytes)));
                receives.extend(part.from.map(|(from, bytes)| (u64::from(from), rank, bytes)));
            }
        }
        for list in [&mut sent, &mut sends, &mut receives] {
            list.sort_unstable();
        }
        assert_eq!(sends, sent, "{collective:?}");
        assert_eq!(receives, sent, "{collective:?}");
    }
}
