//! One round over one array, in place.

use super::{
    array::Array,
    aside::{Aside, Settle},
    periodic,
    vectors::{Block, LANES, Ranks, ReceiveOrder, Source, Step, Varied},
};
use crate::{
    noise::{RunNoise, WorkError},
    simd,
};

/// Ranks whose old times are saved at once; their arrays fit in the L1 cache.
const BLOCK: usize = 1024;

pub struct Round<'a, 'n> {
    pub ranks: Ranks,
    pub time: &'a mut [i64],
    pub clear: &'a mut [i64],
    /// Empty if gaps do not matter.
    pub recv_free: &'a mut [i64],
    pub order: ReceiveOrder<'a>,
    pub varied: Option<Varied<'a>>,
    pub noise: &'a RunNoise<'n>,
    pub step: Step,
    pub aside: &'a mut Aside,
}

/// The times of each rank's partner, whose number differs by this bit. The length is known when compiled: a call of
/// memcpy for a few numbers takes longer than the rest of the round.
#[inline(always)]
fn cross<const MASK: usize>(times: &[i64], from: &mut [i64]) {
    cross_any(times, from, MASK);
}

#[inline(always)]
fn cross_any(times: &[i64], from: &mut [i64], mask: usize) {
    for (times, pair) in times.chunks_exact(2 * mask).zip(from.chunks_exact_mut(2 * mask)) {
        pair[..mask].copy_from_slice(&times[mask..]);
        pair[mask..].copy_from_slice(&times[..mask]);
    }
}

impl Round<'_, '_> {
    /// Receiver j receives from j - distance. In place: receivers are processed top down or bottom up,
    /// whichever has to save less, so that times still needed are not overwritten.
    pub fn shift(&mut self, distance: usize, saved: &mut Array) -> Result<(), WorkError> {
        self.shift_all(distance, saved)?;
        self.settle()
    }

    fn shift_all(&mut self, distance: usize, saved: &mut Array) -> Result<(), WorkError> {
        let ranks = self.time.len();
        if ranks.is_multiple_of(distance) && distance > BLOCK {
            // Columns of the array folded at `distance` are independent of each other: only a piece of
            // the last row has to be saved.
            for column in (0..distance).step_by(BLOCK) {
                let width = BLOCK.min(distance - column);
                let last = ranks - distance + column;
                saved.copy([&self.time[last..last + width]].into_iter());
                for row in (1..ranks / distance).rev() {
                    let receivers = row * distance + column;
                    self.receive(receivers, width, Source::At(receivers - distance))?;
                }
                self.receive(column, width, Source::Elsewhere(saved))?;
            }
            return Ok(());
        }
        if distance <= ranks / 2 {
            saved.copy([&self.time[ranks - distance..]].into_iter());
            return self.shift_above(saved, distance);
        }
        let up = ranks - distance;
        saved.copy([&self.time[..up]].into_iter());
        self.receive(0, distance, Source::At(up))?;
        self.receive(distance, up, Source::Elsewhere(saved))
    }

    /// All receive from `distance` below, the first ones from `before`, which is as long.
    pub fn shift_from(&mut self, before: &[i64], distance: usize) -> Result<(), WorkError> {
        self.shift_above(before, distance)?;
        self.settle()
    }

    fn shift_above(&mut self, before: &[i64], distance: usize) -> Result<(), WorkError> {
        let ranks = self.time.len();
        let first = distance.min(ranks);
        // Most of them where vectors are aligned to cache lines.
        let even = first.next_multiple_of(LANES).min(ranks);
        self.receive(even, ranks - even, Source::At(even - first))?;
        self.receive(first, even - first, Source::At(0))?;
        self.receive(0, first, Source::Elsewhere(&before[..first]))
    }

    /// All receive from `distance` below, except the first ones, which only send.
    pub fn shift_up(&mut self, distance: usize) -> Result<(), WorkError> {
        self.receive(distance, self.time.len() - distance, Source::At(0))?;
        self.settle()
    }

    /// Pairs of ranks whose numbers differ in one bit.
    pub fn swap(&mut self, mask: usize, saved: &mut Array) -> Result<(), WorkError> {
        self.swap_all(mask, saved)?;
        self.settle()
    }

    fn swap_all(&mut self, mask: usize, saved: &mut Array) -> Result<(), WorkError> {
        let ranks = self.time.len();
        if mask < BLOCK {
            for first in (0..ranks).step_by(BLOCK) {
                let width = BLOCK.min(ranks - first);
                let mut from = [0; BLOCK];
                let times = &self.time[first..first + width];
                match mask {
                    1 => cross::<1>(times, &mut from),
                    2 => cross::<2>(times, &mut from),
                    4 => cross::<4>(times, &mut from),
                    8 => cross::<8>(times, &mut from),
                    _ => cross_any(times, &mut from, mask),
                }
                self.receive(first, width, Source::Elsewhere(&from[..width]))?;
            }
            return Ok(());
        }
        for low in (0..ranks).step_by(2 * mask) {
            for first in (low..low + mask).step_by(BLOCK) {
                saved.copy([&self.time[first..first + BLOCK]].into_iter());
                self.receive(first, BLOCK, Source::At(first + mask))?;
                self.receive(first + mask, BLOCK, Source::Elsewhere(saved))?;
            }
        }
        Ok(())
    }

    /// Receivers `first..first + width` receive from these senders.
    fn receive(&mut self, first: usize, width: usize, source: Source<'_>) -> Result<(), WorkError> {
        if self.recv_free.is_empty() {
            simd::widest(self.block::<false>(first, width, source))
        } else {
            simd::widest(self.block::<true>(first, width, source))
        }
    }

    /// No rank remains deferred at the end of a round.
    fn settle(&mut self) -> Result<(), WorkError> {
        let Round { ranks, time, clear, recv_free, order, noise, step, aside, .. } = self;
        if aside.is_empty() {
            return Ok(());
        }
        let order = order.reborrow();
        if recv_free.is_empty() {
            simd::widest(Settle::<false> { aside, ranks, step, noise, time, clear, order })
        } else {
            simd::widest(Settle::<true> { aside, ranks, step, noise, time, clear, order })
        }
    }

    fn block<'b, const GAPS: bool>(
        &'b mut self,
        first: usize,
        width: usize,
        source: Source<'b>,
    ) -> Block<'b, 'b, GAPS> {
        let Round { ranks, time, clear, recv_free, order, varied, noise, step, aside } = self;
        // The arithmetic does not keep the end of a receive.
        let periodic = if order.matters() { None } else { noise.periodic() };
        let periodic = periodic.filter(|noise| periodic::fits(noise, step));
        let varied = *varied;
        Block {
            periodic,
            ranks,
            first,
            width,
            source,
            time,
            clear,
            recv_free,
            order: order.reborrow(),
            varied,
            step,
            noise,
            aside,
        }
    }
}
