//! Which processors exchange with each other, and when: the tournament of the all-to-all, or the rounds of any
//! collective.
//!
//! In a round of a collective, every message is an exchange. It starts when both partners are ready. A processor
//! that receives is done with the exchange in which it does; one that only sends, with its receiver. So two
//! processors whose messages cross, or of which one only sends, are done together.

use std::ops::ControlFlow;

use crate::collectives::{Collective, Span};

use super::pairing;

/// Whose exchanges are simulated.
#[derive(Clone, Copy, Debug, Default)]
pub enum Schedule {
    /// An all-to-all of pairs.
    #[default]
    Tournament,
    Rounds(Collective),
}

/// An exchange in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meeting {
    /// Selects its random draw.
    pub number: u64,
    pub one: usize,
    pub other: usize,
    /// The other is done with it as well.
    pub both: bool,
}

const NONE: u32 = u32::MAX;

/// Calls `meet` with the exchanges of each round.
pub(super) fn rounds<E>(
    collective: &Collective,
    mut meet: impl FnMut(&[Meeting]) -> Result<(), E>,
) -> Result<(), E> {
    let ranks = collective.ranks();
    let mut from = vec![NONE; ranks as usize];
    let mut meetings = Vec::new();
    let (mut index, mut failed) = (0, None);
    let _ = collective.rounds(&mut |round| {
        in_round(round, ranks, index, &mut from, &mut meetings);
        index += 1;
        match meet(&meetings) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    failed.map_or(Ok(()), Err)
}

fn in_round(round: &[Span], ranks: u64, index: u64, from: &mut [u32], meetings: &mut Vec<Meeting>) {
    meetings.clear();
    let messages = || round.iter().flat_map(|span| span.edges(ranks));
    for (sender, receiver) in messages() {
        from[receiver as usize] = sender as u32;
    }
    for (other, one) in messages() {
        let (one, other) = (one as usize, other as usize);
        let back = from[other];
        let crosses = back as usize == one;
        // Of two that cross, the first stands for both.
        if crosses && other < one {
            continue;
        }
        let number = index * ranks + one as u64;
        meetings.push(Meeting { number, one, other, both: crosses || back == NONE });
    }
    // Only what was set: a round may have few messages.
    messages().for_each(|(_, receiver)| from[receiver as usize] = NONE);
}

/// How many exchanges a sample has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// Over all processors: an exchange counts for each that is done with it.
    pub ends: u64,
    /// On the longest chain, if all take equally long and no processor sits out.
    pub depth: u64,
    /// None takes longer than this many of the longest exchanges.
    pub rounds: u64,
}

impl Schedule {
    pub(super) fn extent(&self, processors: u64) -> Extent {
        match self {
            Schedule::Tournament => Extent {
                ends: processors * (processors - 1),
                depth: processors - 1,
                rounds: pairing::steps(processors),
            },
            Schedule::Rounds(collective) => {
                let mut extent = Extent { ends: 0, depth: 0, rounds: 0 };
                let mut done = vec![0u64; processors as usize];
                let mut before = done.clone();
                let counted = rounds(collective, |meetings| {
                    extent.rounds += 1;
                    for &Meeting { one, other, .. } in meetings {
                        (before[one], before[other]) = (done[one], done[other]);
                    }
                    for &Meeting { one, other, both, .. } in meetings {
                        let end = before[one].max(before[other]) + 1;
                        done[one] = end;
                        if both {
                            done[other] = end;
                        }
                        extent.ends += 1 + u64::from(both);
                        extent.depth = extent.depth.max(end);
                    }
                    Ok::<_, std::convert::Infallible>(())
                });
                let Ok(()) = counted;
                extent
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::{Op, Shape};

    fn collective(op: Op, algorithm: &str, ranks: u64) -> Collective {
        let shape = Shape { op, ranks, bytes: 1, arity: 2, segment: None };
        Collective::new(Some(algorithm), shape).unwrap()
    }

    fn all(collective: &Collective) -> Vec<Vec<Meeting>> {
        let mut all = Vec::new();
        rounds(collective, |meetings| {
            all.push(meetings.to_vec());
            Ok::<_, ()>(())
        })
        .unwrap();
        all
    }

    #[test]
    fn partners_meet_as_the_algorithm_has_them() {
        let doubling = all(&collective(Op::Allreduce, "recursive-doubling", 4));
        let pairs: Vec<Vec<(usize, usize, bool)>> =
            doubling.iter().map(|r| r.iter().map(|m| (m.one, m.other, m.both)).collect()).collect();
        let expected: [&[_]; 2] = [&[(0, 1, true), (2, 3, true)], &[(0, 2, true), (1, 3, true)]];
        assert_eq!(pairs, expected);
        // Each waits for one and is waited for by another.
        let around = all(&collective(Op::Barrier, "dissemination", 5));
        assert_eq!(around.len(), 3);
        assert!(around.iter().all(|round| round.len() == 5 && round.iter().all(|m| !m.both)));
        assert!(around[1].contains(&Meeting { number: 5, one: 0, other: 3, both: false }));
        // The root only sends: it is done with its receiver.
        let tree = all(&collective(Op::Bcast, "binomial", 8));
        assert!(tree.iter().flatten().all(|meeting| meeting.both));
        assert_eq!(tree.iter().map(Vec::len).sum::<usize>(), 7);
    }

    #[test]
    fn the_longest_chain_is_that_of_the_algorithm() {
        let depth = |op, algorithm, ranks| {
            Schedule::Rounds(collective(op, algorithm, ranks)).extent(ranks).depth
        };
        assert_eq!(depth(Op::Allreduce, "recursive-doubling", 16), 4);
        assert_eq!(depth(Op::Barrier, "dissemination", 17), 5);
        assert_eq!(depth(Op::Bcast, "binomial", 16), 4);
        assert_eq!(depth(Op::Alltoall, "pairwise", 16), 15);
        assert_eq!(depth(Op::Gather, "linear", 9), 8);
        let extent = Schedule::Tournament.extent(6);
        assert_eq!((extent.ends, extent.depth, extent.rounds), (30, 5, 5));
        let extent =
            Schedule::Rounds(collective(Op::Allreduce, "recursive-doubling", 16)).extent(16);
        assert_eq!((extent.ends, extent.rounds), (64, 4));
    }
}
