//! Schedules one after another on the same ranks: the CPUs, the NICs and the position in the noise are
//! carried from one to the next. A program that repeats its steps then needs the memory of one
//! iteration.
//!
//! The times are those of a single schedule of all iterations in which every operation of a rank requires
//! all operations of that rank's earlier iterations. Ranks need not be in the same iteration for that:
//! - A message is received in the iteration in which it is sent, since its receive is determined in advance.
//!   If a fast rank sends to one that is still in the previous iteration, the message waits for its receive.
//! - A receive takes the NIC and the CPU once it is posted, and it is posted when the rank's previous
//!   iteration has ended. So an early message delays nothing there, and the receives of two iterations never
//!   compete.
//! - All other state belongs to a rank: until when its CPU and NIC are busy (a gap may outlast the
//!   iteration), the end of its last receive, its position in the noise, the messages it has sent.

use super::{
    EventError, Options, Rules, Scratch, engine,
    schedule::{Kind, Schedule},
    state::Slot,
    work::Met,
};
use crate::{loggops::Params, noise::RunNoise, rounds::RankSlices};

/// The ranks as the schedules so far have left them. The default is the start of a run.
#[derive(Debug, Default)]
pub struct Carried {
    pub(super) slots: Vec<Slot>,
    /// First slot of each rank, and the total.
    layout: Vec<u32>,
    pub(super) ends: Vec<i64>,
    /// Messages that each rank has sent, if their latencies vary.
    pub(super) sent: Vec<u64>,
}

impl Carried {
    /// When each rank has finished the schedules so far, ps; empty before the first.
    pub fn ends(&self) -> &[i64] {
        &self.ends
    }

    /// Ranks with one CPU and one NIC each, as something else has left them.
    pub fn set(&mut self, ranks: &RankSlices<'_>) {
        let count = ranks.ranks();
        if self.layout.len() != count + 1 {
            self.layout = (0..=count as u32).collect();
        }
        self.slots.clear();
        self.slots.extend((0..count).map(|rank| Slot {
            cpu_free: ranks.ends[rank],
            received: ranks.received[rank],
            send_free: ranks.send_free[rank],
            recv_free: ranks.recv_free[rank],
            met: Met::known(ranks.clear_from[rank], ranks.clear_until[rank]),
            end: ranks.ends[rank],
        }));
        self.ends.clear();
        self.ends.extend_from_slice(ranks.ends);
    }

    /// Leaves the ranks to something else; they have one CPU and one NIC each.
    pub fn get(&self, ranks: &mut RankSlices<'_>) {
        ranks.ends.copy_from_slice(&self.ends);
        for (rank, slot) in self.slots.iter().enumerate() {
            ranks.received[rank] = slot.received;
            ranks.send_free[rank] = slot.send_free;
            ranks.recv_free[rank] = slot.recv_free;
            (ranks.clear_from[rank], ranks.clear_until[rank]) = slot.met.clear();
        }
    }

    /// Whether ranks have one CPU and one NIC each.
    pub fn is_simple(&self) -> bool {
        self.ends.len() == self.slots.len()
    }

    /// Back to the start of a run; memory is kept.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.layout.clear();
        self.ends.clear();
        self.sent.clear();
    }

    /// Memory for this schedule, bytes.
    pub fn memory(schedule: &Schedule) -> u64 {
        let ranks = u64::from(schedule.ranks());
        let slots = schedule.slots.last().copied().unwrap_or(0);
        u64::from(slots) * size_of::<Slot>() as u64 + ranks * 28
    }

    fn fits(&self, schedule: &Schedule, options: &Options) -> Result<(), EventError> {
        let refused = |why| Err(EventError::NotContinued(why));
        if options.model == Rules::Loggopsim {
            return refused("not by LogGOPSim's rules");
        }
        if !schedule.is_settled() {
            return refused("which receive gets a message depends on the times");
        }
        if !self.ends.is_empty() && self.layout != schedule.slots {
            return refused("it has other ranks, CPUs or NICs");
        }
        Ok(())
    }
}

/// Runs a schedule from where the previous ones have left the ranks; each begins when all it has done so
/// far has ended. Returns the number of messages. After an error, `carried` is at the start of a run.
pub fn run_on(
    scratch: &mut Scratch,
    schedule: &Schedule,
    params: &Params,
    options: &Options,
    noise: &RunNoise,
    carried: &mut Carried,
) -> Result<u64, EventError> {
    carried.fits(schedule, options)?;
    let result = engine::run_on(&mut scratch.engine, schedule, params, options, noise, carried);
    let result = result.inspect_err(|_| carried.clear())?;
    if carried.ends.is_empty() {
        carried.layout.clone_from(&schedule.slots);
    }
    carried.ends = result.ends;
    if noise.latencies().is_some() {
        carried.sent.resize(schedule.ranks() as usize, 0);
        for (rank, sent) in (0..).zip(&mut carried.sent) {
            let sends = schedule.of_rank(rank).filter(|&op| schedule.kind(op) == Kind::Send);
            *sent += sends.count() as u64;
        }
    }
    Ok(result.messages)
}
