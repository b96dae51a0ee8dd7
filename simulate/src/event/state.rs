//! The state of a run: the stage of each operation, and until when each CPU and NIC is busy.

use std::collections::HashMap;

use super::{
    bits::Bits,
    schedule::{NOBODY, Schedule},
    work::Met,
};
use crate::{huge_pages, simd::prefetch};

/// The stage of an operation: dependencies left, or one of those below.
pub(crate) type Stage = u8;

pub(crate) const DONE: Stage = u8::MAX;
/// A receive waits for its message.
pub(crate) const POSTED: Stage = u8::MAX - 1;
/// A message waits for its receive.
pub(crate) const SENT: Stage = u8::MAX - 2;
/// A receive has its message.
pub(crate) const MATCHED: Stage = u8::MAX - 3;
/// A receive has acknowledged the request, or the sender has got the acknowledgement.
pub(crate) const GRANTED: Stage = u8::MAX - 4;
/// All dependencies are satisfied; its time has not come.
pub(crate) const QUEUED: Stage = u8::MAX - 5;
/// More dependencies are left than a byte can count.
const MANY: Stage = u8::MAX - 6;

/// The stages of the operations. Times and stages are stored separately: a rank's stages fit in one or
/// two cache lines, and a run stalls on whatever it touches for the first time.
#[derive(Debug, Default)]
pub(crate) struct States {
    times: Vec<i64>,
    stages: Vec<Stage>,
    /// Dependencies left of those that have [`MANY`].
    many: HashMap<u32, u32>,
    /// Empty if all pairings are fixed.
    others: Vec<u32>,
}

impl States {
    /// Reserves room for a run of this schedule; [`States::begin_rank`] adds the operations.
    fn prepare(&mut self, schedule: &Schedule) {
        let operations = schedule.operations();
        self.times.clear();
        huge_pages::reserve_exact(&mut self.times, operations);
        self.stages.clear();
        huge_pages::reserve_exact(&mut self.stages, operations);
        self.many.clear();
        self.others.clear();
        if !schedule.is_settled() {
            self.others.resize(operations, NOBODY);
        }
    }

    /// Resets the next rank's operations. Rank by rank, as each begins: what was just written is then
    /// read from the cache.
    #[inline]
    pub fn begin_rank(&mut self, schedule: &Schedule, rank: u32) {
        let end = schedule.of_rank(rank).end as usize;
        let edges = schedule.ops[self.times.len()].successors..schedule.ops[end].successors;
        self.times.resize(end, 0);
        self.stages.resize(end, 0);
        for &successor in &schedule.edges[edges.start as usize..edges.end as usize] {
            let left = &mut self.stages[successor as usize];
            if *left < MANY - 1 {
                *left += 1;
            } else {
                self.one_more_of_many(successor);
            }
        }
    }

    #[cold]
    fn one_more_of_many(&mut self, op: u32) {
        self.stages[op as usize] = MANY;
        *self.many.entry(op).or_insert(u32::from(MANY) - 1) += 1;
    }

    /// One dependency is satisfied at `time`; returns whether it was the last one.
    #[inline]
    pub fn fulfil(&mut self, op: u32, time: i64) -> bool {
        let ready = &mut self.times[op as usize];
        *ready = time.max(*ready);
        let left = &mut self.stages[op as usize];
        if *left == MANY {
            self.one_less_of_many(op);
            return false;
        }
        *left -= 1;
        *left == 0
    }

    #[cold]
    fn one_less_of_many(&mut self, op: u32) {
        if let Some(left) = self.many.get_mut(&op) {
            *left -= 1;
            if let Ok(few @ 0..MANY) = Stage::try_from(*left) {
                self.stages[op as usize] = few;
                self.many.remove(&op);
            }
        }
    }

    #[inline]
    pub fn stage(&self, op: u32) -> Stage {
        self.stages[op as usize]
    }

    #[inline]
    pub fn set_stage(&mut self, op: u32, stage: Stage) {
        self.stages[op as usize] = stage;
    }

    /// When it is ready, as far as known; for a message: when its first byte reaches the receiver.
    #[inline]
    pub fn time(&self, op: u32) -> i64 {
        self.times[op as usize]
    }

    #[inline]
    pub fn set_time(&mut self, op: u32, time: i64) {
        self.times[op as usize] = time;
    }

    /// The message that a receive was matched with in this run, if not determined in advance.
    #[inline]
    pub fn other(&self, op: u32) -> u32 {
        self.others[op as usize]
    }

    pub fn set_other(&mut self, op: u32, other: u32) {
        self.others[op as usize] = other;
    }

    /// Prefetches an operation. Stages are few enough to be cached.
    #[inline]
    pub fn prefetch(&self, op: u32) {
        prefetch(&self.times, op as usize);
    }
}

/// A CPU and a NIC of the same index; most ranks have one of each. One cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(crate) struct Slot {
    pub cpu_free: i64,
    /// End of the previous receive on this CPU.
    pub received: i64,
    pub send_free: i64,
    pub recv_free: i64,
    pub met: Met,
    /// End of the last operation on this CPU.
    pub end: i64,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// The requests of choices in a run, by name, and the choices under way.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// When each request was complete; [`NOT_YET`] if that is unknown.
    pub ends: Vec<i64>,
    /// The request that a name stands for: its own, until a choice takes that in place of another.
    pub stands_for: Vec<u32>,
    /// Completed by a test that found nothing in the trace.
    pub drawn: Vec<bool>,
    /// By rank: the choice that waits for requests.
    pub waits: Vec<u32>,
    /// Requests that a choice may take: end, position in its list and name.
    pub live: Vec<(i64, u32, u32)>,
}

pub(crate) const NOT_YET: i64 = i64::MAX;

impl Requests {
    fn prepare(&mut self, schedule: &Schedule) {
        let Requests { ends, stands_for, drawn, waits, .. } = self;
        let names = schedule.choices.count();
        let ranks = if names == 0 { 0 } else { schedule.ranks() as usize };
        ends.clear();
        ends.resize(names, NOT_YET);
        stands_for.clear();
        stands_for.extend(0..names as u32);
        drawn.clear();
        drawn.resize(names, false);
        waits.clear();
        waits.resize(ranks, NOBODY);
    }
}

/// A run's memory, reused by the next one: a fresh page costs more than computing its contents.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub states: States,
    pub slots: Vec<Slot>,
    /// For each message with fixed pairing, the end that came first, sent or posted: the other end
    /// checks for it, and the states are far apart.
    pub there: Bits,
    /// Sends and calcs of each rank in the queue, and receives still to be posted.
    pub waiting: Vec<u32>,
    pub requests: Requests,
    /// The next run continues with the slots as they are.
    pub keeps_slots: bool,
}

/// Memory of a run, bytes.
pub(crate) fn bytes(schedule: &Schedule) -> usize {
    let slots = schedule.slots.last().copied().unwrap_or(0) as usize;
    let other = if schedule.is_settled() { 0 } else { size_of::<u32>() };
    let operation = size_of::<i64>() + size_of::<Stage>() + other;
    let rank = size_of::<u32>();
    let name = size_of::<i64>() + size_of::<u32>() + size_of::<bool>();
    schedule.choices.count() * name
        + schedule.operations() * operation
        + slots * size_of::<Slot>()
        + schedule.ranks() as usize * rank
}

impl Buffers {
    /// Reserves room for a run of this schedule; [`States::begin_rank`] adds the states.
    pub fn prepare(self, schedule: &Schedule) -> Buffers {
        let Buffers { mut states, mut slots, mut there, mut waiting, mut requests, keeps_slots } =
            self;
        states.prepare(schedule);
        if !keeps_slots {
            slots.clear();
        }
        let count = schedule.slots.last().copied().unwrap_or(0) as usize;
        huge_pages::reserve_exact(&mut slots, count);
        slots.resize(count, Slot::default());
        there.reset(schedule.operations());
        waiting.clear();
        waiting.resize(schedule.ranks() as usize, 0);
        requests.prepare(schedule);
        Buffers { states, slots, there, waiting, requests, keeps_slots }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ScheduleBuilder;
    use super::*;

    #[test]
    fn any_number_of_dependencies_is_counted() {
        for count in [1, i64::from(MANY) - 1, i64::from(MANY), 1_000] {
            let mut builder = ScheduleBuilder::new(1);
            builder.begin_rank();
            let last = builder.calc(1, 0);
            for _ in 0..count {
                let before = builder.calc(1, 0);
                builder.requires(last, before);
            }
            let schedule = builder.finish().unwrap();
            let mut states = States::default();
            // Twice: nothing may remain from the previous run.
            for _ in 0..2 {
                states.prepare(&schedule);
                states.begin_rank(&schedule, 0);
                let free: Vec<bool> = (0..count).map(|time| states.fulfil(0, time)).collect();
                assert_eq!(free.iter().position(|&free| free), Some(count as usize - 1));
                assert_eq!(states.time(0), count - 1);
                assert_eq!((states.stage(0), states.stage(1)), (0, 0));
            }
        }
    }
}
