//! Proves that single operations come after others: an operation's floor is a number such that every
//! operation of its rank below it has ended before the operation begins. Programs that proceed in
//! steps, each waiting for the previous one, have high floors, whatever happens within a step.
//!
//! One pass in program order propagates floors along the dependencies. Those against program order are
//! ignored, which can only make a floor too low.

use super::schedule::Schedule;

/// Floors of the requested ranks.
#[derive(Debug, Default)]
pub(crate) struct Floors {
    floors: Vec<u32>,
    known: Vec<bool>,
}

impl Floors {
    /// Whether each of these operations of a rank, in program order, has ended before the next begins.
    pub fn in_turn(
        &mut self,
        schedule: &Schedule,
        rank: u32,
        ops: impl Iterator<Item = u32>,
    ) -> bool {
        self.know(schedule, rank);
        let mut before = None;
        ops.into_iter().all(|op| {
            let after = before.is_none_or(|before| before < self.floors[op as usize]);
            before = Some(op);
            after
        })
    }

    fn know(&mut self, schedule: &Schedule, rank: u32) {
        if self.known.is_empty() {
            self.floors = vec![0; schedule.operations()];
            self.known = vec![false; schedule.ranks() as usize];
        }
        if std::mem::replace(&mut self.known[rank as usize], true) {
            return;
        }
        let ops = schedule.of_rank(rank);
        self.floors[ops.start as usize..ops.end as usize].fill(ops.start);
        for op in ops {
            let floor = self.floors[op as usize];
            for &successor in schedule.successors(op).iter().filter(|&&successor| successor > op) {
                let other = &mut self.floors[successor as usize];
                *other = floor.max(*other);
                // The operation itself has ended as well.
                *other += u32::from(*other == op);
            }
            for &successor in schedule.start_successors(op) {
                if successor > op {
                    let other = &mut self.floors[successor as usize];
                    *other = floor.max(*other);
                }
            }
        }
    }
}
