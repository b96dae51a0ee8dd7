//! The tournament: who exchanges messages with whom in which round, so that every rank meets every other once and
//! all pairs of a round are disjoint; and the exchanges of a whole job.

#[cfg(target_os = "linux")]
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use crate::{
    Result,
    mpi::{Exchanged, Rank},
};

/// Number of rounds for so many ranks.
#[must_use]
pub fn rounds(ranks: u32) -> u32 {
    match ranks {
        0 | 1 => 0,
        _ => ranks.next_multiple_of(2) - 1,
    }
}

/// Whom a rank meets in a round, by the circle method; None if it pauses, which happens once to each rank of an odd
/// number.
#[must_use]
pub fn opponent(rank: u32, round: u32, ranks: u32) -> Option<u32> {
    let circle = u64::from(rounds(ranks));
    if circle == 0 || rank >= ranks {
        return None;
    }
    let (rank, round) = (u64::from(rank), u64::from(round) % circle);
    // All but the last of an even number sit in a circle and meet whom the round mirrors them to; who is mirrored to
    // himself meets the last.
    let last = circle;
    let opponent = if rank == last {
        // The one with 2 r = round, modulo an odd number.
        round * last.div_ceil(2) % circle
    } else {
        match (round + circle - rank) % circle {
            mirrored if mirrored == rank => last,
            mirrored => mirrored,
        }
    };
    u32::try_from(opponent).ok().filter(|&opponent| opponent < ranks)
}

/// How much is exchanged.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Size of a message.
    pub bytes: u64,
    /// Exchanges of a pair in a cycle.
    pub exchanges: u64,
    /// Turns of every pair; None for as many as fit into the duration.
    pub cycles: Option<u64>,
    pub duration: Option<Duration>,
}

/// Exchanges messages with all other ranks, all pairs of a round at the same time, cycle by cycle. `each` takes the
/// times of this rank: the cycle, the other rank, and both sides of every exchange. `done` receives the number of
/// finished cycles. Returns that number.
///
/// # Errors
/// If the MPI process of this rank ends.
#[cfg(target_os = "linux")]
pub fn run(
    rank: &mut Rank,
    plan: &Plan,
    each: &mut dyn FnMut(u64, u32, Exchanged),
    done: &mut dyn FnMut(u64, Duration),
) -> Result<u64> {
    let begin = Instant::now();
    let (own, ranks) = (rank.rank(), rank.size());
    let mut cycle = 0;
    loop {
        for round in 0..rounds(ranks) {
            rank.barrier()?;
            if let Some(peer) = opponent(own, round, ranks) {
                let exchanged =
                    rank.exchange(peer, plan.bytes as usize, plan.exchanges as usize)?;
                each(cycle, peer, exchanged);
            }
        }
        cycle += 1;
        done(cycle, begin.elapsed());
        let mut go_on = plan.cycles.is_none_or(|cycles| cycle < cycles);
        if let Some(duration) = plan.duration {
            // One rank's clock decides for all.
            let fits = go_on && begin.elapsed() < duration;
            go_on = rank.broadcast(vec![u8::from(fits)])?.first() == Some(&1);
        }
        if !go_on {
            return Ok(cycle);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_rank_meets_every_other_once_and_all_pairs_of_a_round_are_disjoint() {
        for ranks in 0..=33 {
            let mut met = BTreeSet::new();
            for round in 0..rounds(ranks) {
                let mut pauses = 0;
                for rank in 0..ranks {
                    let Some(other) = opponent(rank, round, ranks) else {
                        pauses += 1;
                        continue;
                    };
                    assert_ne!(other, rank);
                    assert_eq!(opponent(other, round, ranks), Some(rank), "{rank} {round} {ranks}");
                    if rank < other {
                        assert!(met.insert((rank, other)), "{rank} and {other} meet twice");
                    }
                }
                assert_eq!(pauses, ranks % 2);
            }
            let ranks = u64::from(ranks);
            assert_eq!(met.len() as u64, ranks * ranks.saturating_sub(1) / 2);
        }
    }
}
