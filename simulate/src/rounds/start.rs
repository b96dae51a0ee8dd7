//! The start of a run: finds each rank's position in its noise and issues its first send. Done when
//! the rank is first needed, so that the result is still in the cache.

use super::{FOREVER, vectors::untrusted};
use crate::{
    noise::{RunNoise, WorkError},
    simd::{self, List, Vector},
};

/// Which ranks have begun.
#[derive(Debug, Default)]
pub struct Start {
    /// Ranks below this one have not begun.
    below: usize,
    /// Their first work.
    work: i64,
}

impl Start {
    /// No rank has begun.
    pub fn new(ranks: usize, work: i64, noise: &RunNoise<'_>) -> Result<Start, WorkError> {
        if noise.is_none() && work > FOREVER {
            return Err(WorkError::Overflow);
        }
        Ok(Start { below: ranks, work })
    }

    /// Starts all ranks from this one on that have not begun. The arrays are those of all ranks.
    pub fn from(
        &mut self,
        rank: usize,
        noise: &RunNoise<'_>,
        time: &mut [i64],
        clear: &mut [i64],
    ) -> Result<(), WorkError> {
        if rank >= self.below {
            return Ok(());
        }
        let (time, clear) = (&mut time[rank..self.below], &mut clear[rank..self.below]);
        self.below = rank;
        time.fill(self.work);
        if noise.is_none() {
            clear.fill(FOREVER);
            return Ok(());
        }
        simd::widest(Begin { noise, work: self.work, first: rank, time, clear })
    }
}

struct Begin<'a, 'n> {
    noise: &'a RunNoise<'n>,
    work: i64,
    /// First rank of the arrays; times are those without detours.
    first: usize,
    time: &'a mut [i64],
    clear: &'a mut [i64],
}

impl simd::Kernel for Begin<'_, '_> {
    type Output = Result<(), WorkError>;

    #[inline(always)]
    fn run<V: Vector>(self) -> Self::Output {
        let Begin { noise, work, first, time, clear } = self;
        let Some(many) = noise.many() else {
            for (rank, (time, clear)) in (first as u64..).zip(time.iter_mut().zip(clear)) {
                *clear = noise.local(rank).clear_until(0);
                if work > *clear {
                    *time = noise.local(rank).preempt(0, work)?;
                    *clear = untrusted(*clear);
                }
            }
            return Ok(());
        };
        let [mut positions, mut limits, mut indices, mut hit] = <[List; 4]>::default();
        let batches = time.chunks_mut(simd::MOST).zip(clear.chunks_mut(simd::MOST));
        for (batch, (times, clears)) in batches.enumerate() {
            let first = first + batch * simd::MOST;
            positions.set_len(times.len());
            for at in positions.steps() {
                let ranks: V = simd::count_from(first + at);
                let turn = many.turn(ranks);
                positions.set(at, many.positions(&turn, V::splat(0)));
                limits.set(at, turn.limit);
            }
            many.first_after::<V>(&positions, &mut indices);
            hit.set_len(0);
            for at in positions.steps() {
                let start: V = many.lookup().starts(indices.at(at));
                let until = start.sub(positions.at(at)).min(limits.at(at));
                let met = positions.there(at) & V::splat(work).above(until);
                hit.push(met, simd::count_from::<V>(at));
                match clears[at..].first_chunk_mut() {
                    Some(clears) => until.store(clears),
                    None => {
                        let mut few = [0; simd::LANES];
                        until.store(&mut few);
                        let rest = clears.len() - at;
                        clears[at..].copy_from_slice(&few[..rest]);
                    }
                }
            }
            for at in (0..hit.len()).map(|at| hit.one(at) as usize) {
                times[at] = noise.local((first + at) as u64).preempt(0, work)?;
                clears[at] = untrusted(clears[at]);
            }
        }
        Ok(())
    }
}
