//! Latencies that vary, for the messages of a schedule. A message's draw depends on its sender and on how
//! many messages that sender's program has before it, as in the round engine.

use std::collections::HashMap;

use super::schedule::{Kind, Schedule};
use crate::noise::{RunLatencies, RunNoise};

/// Empty if latencies do not vary.
#[derive(Debug, Default)]
pub(crate) struct Latencies<'a> {
    run: Option<RunLatencies<'a>>,
    /// Messages before each operation, in its rank.
    numbers: Vec<u32>,
    /// Messages of each rank before the schedule; empty for none.
    before: &'a [u64],
    /// When the last message between two ranks arrives.
    last: HashMap<(u32, u32), i64>,
}

impl<'a> Latencies<'a> {
    pub fn new(schedule: &Schedule, noise: &RunNoise<'a>, before: &'a [u64]) -> Latencies<'a> {
        let Some(run) = noise.latencies() else { return Latencies::default() };
        let mut numbers = Vec::with_capacity(schedule.operations());
        for rank in 0..schedule.ranks() {
            let mut sends = 0;
            for op in schedule.of_rank(rank) {
                numbers.push(sends);
                sends += u32::from(schedule.kind(op) == Kind::Send);
            }
        }
        Latencies { run: Some(*run), numbers, before, last: HashMap::new() }
    }

    /// How far the latency of a message differs from L.
    #[inline]
    pub fn of(&self, rank: u32, op: u32) -> i64 {
        match &self.run {
            None => 0,
            Some(run) => {
                let before = self.before.get(rank as usize).copied().unwrap_or(0);
                run.deviation(u64::from(rank), before + u64::from(self.numbers[op as usize]))
            }
        }
    }

    /// When a message arrives that must not overtake an earlier one between the same ranks. Only for
    /// messages whose receive depends on the order of arrival.
    #[inline]
    pub fn in_order(&mut self, from: u32, to: u32, arrival: i64) -> i64 {
        if self.run.is_none() {
            return arrival;
        }
        let last = self.last.entry((from, to)).or_insert(arrival);
        *last = arrival.max(*last);
        *last
    }
}
