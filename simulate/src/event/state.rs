//! What changes during a run: how far each operation has come, and until when each CPU and NIC is taken.

use super::{
    bits::Bits,
    schedule::{NOBODY, Schedule},
    work::Met,
};
use crate::roomy;

// What an operation does while no dependency is left: beyond any number of dependencies.
pub(crate) const DONE: u32 = u32::MAX;
/// A receive waits for its message.
pub(crate) const POSTED: u32 = u32::MAX - 1;
/// A message waits for its receive.
pub(crate) const SENT: u32 = u32::MAX - 2;
/// A receive knows its message.
pub(crate) const MATCHED: u32 = u32::MAX - 3;
/// A receive has told its sender to go ahead, or the sender has been told.
pub(crate) const GRANTED: u32 = u32::MAX - 4;
/// All dependencies are fulfilled; its time is to come.
pub(crate) const QUEUED: u32 = u32::MAX - 5;

#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    /// When it is ready, as far as known; of a message: when its first byte is at the receiver.
    pub time: i64,
    /// Dependencies left, or one of the above.
    pub waits: u32,
    /// The message a receive has been matched with in this run, and the other way round.
    pub other: u32,
}

/// A CPU and a NIC of the same index; most ranks have one of each. One line of the cache.
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

/// A run's memory, kept for the next one: a fresh page costs more than what is computed in it.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub states: Vec<State>,
    pub slots: Vec<Slot>,
    /// Of each message whose pairing is fixed the end that came first, sent or posted: whether it is
    /// there is asked by the other end, and the states are far apart.
    pub there: Bits,
    /// Sends and calcs of each rank that are in the queue.
    pub waiting: Vec<u32>,
}

impl Buffers {
    /// Room for a run of this schedule; the states are for [`begin_rank`] to add.
    pub fn prepare(self, schedule: &Schedule) -> Buffers {
        let Buffers { mut states, mut slots, mut there, mut waiting } = self;
        states.clear();
        roomy::reserve_exact(&mut states, schedule.operations());
        slots.clear();
        let count = schedule.slots.last().copied().unwrap_or(0) as usize;
        roomy::reserve_exact(&mut slots, count);
        slots.resize(count, Slot::default());
        there.reset(schedule.operations());
        waiting.clear();
        waiting.resize(schedule.ranks() as usize, 0);
        Buffers { states, slots, there, waiting }
    }
}

/// The states of the next rank's operations as they are before a run. Rank by rank, as each begins: what
/// has been written is read at once.
#[inline]
pub(crate) fn begin_rank(states: &mut Vec<State>, schedule: &Schedule, rank: u32) {
    let ops = schedule.of_rank(rank);
    let fresh = State { time: 0, waits: 0, other: NOBODY };
    states.extend(ops.clone().map(|_| fresh));
    let edges =
        schedule.ops[ops.start as usize].successors..schedule.ops[ops.end as usize].successors;
    for &successor in &schedule.edges[edges.start as usize..edges.end as usize] {
        states[successor as usize].waits += 1;
    }
}
