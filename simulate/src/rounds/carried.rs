//! Ranks as earlier jobs and schedules have left them, as arrays that the kernels work on in place.

use super::{FOREVER, RunError, array::Array, vectors::untrusted};
use crate::{
    noise::{RunNoise, WorkError},
    simd::{self, List, Vector},
};

/// Arrays of a [`RankStates`].
const ARRAYS: u64 = 6;

/// What ranks carry from one job to the next, ps; each array has one number per rank.
#[derive(Debug, Default)]
pub struct RankStates {
    /// When the rank is done with everything so far.
    pub ends: Array,
    /// When its last receive ended.
    pub received: Array,
    /// When its NIC accepts the next message from the CPU, and the next incoming one.
    pub send_free: Array,
    pub recv_free: Array,
    /// No detour between these: most work needs no lookup. Only what is known, never what is there.
    pub(crate) clear_from: Array,
    pub(crate) clear_until: Array,
}

/// The states of some consecutive ranks.
#[derive(Debug)]
pub struct RankSlices<'a> {
    pub ends: &'a mut [i64],
    pub received: &'a mut [i64],
    pub send_free: &'a mut [i64],
    pub recv_free: &'a mut [i64],
    pub(crate) clear_from: &'a mut [i64],
    pub(crate) clear_until: &'a mut [i64],
}

impl RankStates {
    /// This many ranks at the start of a run.
    pub fn start(&mut self, ranks: u64) -> Result<(), RunError> {
        let RankStates { ends, received, send_free, recv_free, clear_from, clear_until } = self;
        for array in [ends, received, send_free, recv_free, clear_from] {
            array.resize(ranks, ARRAYS)?;
            array.fill(0);
        }
        clear_until.resize(ranks, ARRAYS)?;
        clear_until.fill(-1);
        Ok(())
    }

    pub fn ranks(&self) -> usize {
        self.ends.len()
    }

    pub fn slices(&mut self) -> RankSlices<'_> {
        RankSlices {
            ends: &mut self.ends,
            received: &mut self.received,
            send_free: &mut self.send_free,
            recv_free: &mut self.recv_free,
            clear_from: &mut self.clear_from,
            clear_until: &mut self.clear_until,
        }
    }
}

impl<'a> RankSlices<'a> {
    pub fn ranks(&self) -> usize {
        self.ends.len()
    }

    /// The first ones, and the others.
    #[must_use]
    pub fn split_at(self, first: usize) -> (RankSlices<'a>, RankSlices<'a>) {
        let (ends, ends_after) = self.ends.split_at_mut(first);
        let (received, received_after) = self.received.split_at_mut(first);
        let (send_free, send_free_after) = self.send_free.split_at_mut(first);
        let (recv_free, recv_free_after) = self.recv_free.split_at_mut(first);
        let (clear_from, clear_from_after) = self.clear_from.split_at_mut(first);
        let (clear_until, clear_until_after) = self.clear_until.split_at_mut(first);
        (
            RankSlices { ends, received, send_free, recv_free, clear_from, clear_until },
            RankSlices {
                ends: ends_after,
                received: received_after,
                send_free: send_free_after,
                recv_free: recv_free_after,
                clear_from: clear_from_after,
                clear_until: clear_until_after,
            },
        )
    }
}

/// The first send of a job by ranks that begin it at different times.
pub(super) struct FirstSend<'a, 'n> {
    pub noise: &'a RunNoise<'n>,
    pub send: i64,
    /// When the send begins; then when it has left the CPU.
    pub time: &'a mut [i64],
    /// Until when no detour follows; untrusted if one was met.
    pub clear: &'a mut [i64],
    /// What is known of that.
    pub clear_from: &'a [i64],
    pub clear_until: &'a [i64],
}

impl simd::Kernel for FirstSend<'_, '_> {
    type Output = Result<(), WorkError>;

    #[inline(always)]
    fn run<V: Vector>(self) -> Self::Output {
        let FirstSend { noise, send, time, clear, clear_from, clear_until } = self;
        if noise.is_none() {
            for time in time.iter_mut() {
                *time += send;
            }
            clear.fill(FOREVER);
            return Ok(());
        }
        let mut unknown = Unknown::default();
        let ranks = time.len();
        for rank in 0..ranks {
            let (begin, until) = (time[rank], clear_until[rank]);
            if clear_from[rank] <= begin && begin + send <= until {
                time[rank] = begin + send;
                clear[rank] = until;
                continue;
            }
            unknown.ranks.push(1, V::splat(rank as i64));
            unknown.begins.push(1, V::splat(begin));
            if unknown.ranks.len() == simd::MOST {
                unknown.look_up::<V>(noise, send, time, clear)?;
            }
        }
        unknown.look_up::<V>(noise, send, time, clear)
    }
}

/// Ranks whose next detours have to be looked up, together: the cache misses overlap.
#[derive(Default)]
struct Unknown {
    ranks: List,
    begins: List,
    positions: List,
    limits: List,
    indices: List,
    hit: List,
}

impl Unknown {
    #[inline(always)]
    fn look_up<V: Vector>(
        &mut self,
        noise: &RunNoise<'_>,
        send: i64,
        time: &mut [i64],
        clear: &mut [i64],
    ) -> Result<(), WorkError> {
        let Unknown { ranks, begins, positions, limits, indices, hit } = self;
        hit.set_len(0);
        match noise.many() {
            None => {
                for at in ranks.steps() {
                    hit.push(ranks.there(at), simd::count_from::<V>(at));
                }
            }
            Some(many) => {
                positions.set_len(ranks.len());
                for at in ranks.steps() {
                    let turn = many.turn(ranks.at::<V>(at));
                    positions.set(at, many.positions(&turn, begins.at(at)));
                    limits.set(at, turn.limit);
                }
                many.first_after::<V>(positions, indices);
                for at in ranks.steps() {
                    let (begin, position): (V, V) = (begins.at(at), positions.at(at));
                    let start: V = many.lookup().starts(indices.at(at));
                    let until = start.sub(position).add(begin).min(limits.at(at));
                    let done = begin.add(V::splat(send));
                    let known = positions.there(at) & position.above(V::splat(-1));
                    let free = known & !done.above(until);
                    done.scatter(free, time, ranks.at(at));
                    until.scatter(free, clear, ranks.at(at));
                    hit.push(positions.there(at) & !free, simd::count_from::<V>(at));
                }
            }
        }
        for at in (0..hit.len()).map(|at| hit.one(at) as usize) {
            let (rank, begin) = (ranks.one(at) as usize, begins.one(at));
            let local = noise.local(rank as u64);
            let sent = local.preempt(begin, send)?;
            let until = local.clear_until(begin);
            time[rank] = sent;
            clear[rank] = if until < sent { untrusted(until) } else { until };
        }
        ranks.set_len(0);
        begins.set_len(0);
        Ok(())
    }
}
