//! Exact preemption by periodic noise, for neighbouring ranks together. Under noise that hits every
//! rank several times per run, lookups would be nearly all of the work. But a rank's clear time is the
//! start of a detour, and the others are whole periods away: the position of any time in its period,
//! and the end of work that begins there, take a few additions.

use super::vectors::{LANES, Step, is_untrusted, trusted, untrusted};
use crate::{
    noise::Periodic,
    simd::{self, Vector},
};

/// Neighbouring ranks, as in the hot loop.
pub struct Hit<'a, const GAPS: bool> {
    pub noise: Periodic,
    pub step: &'a Step,
    pub own: &'a [i64; LANES],
    pub from: &'a [i64; LANES],
    pub clear: &'a [i64; LANES],
    pub recv_free: &'a [i64; LANES],
}

/// Whether the arithmetic suffices: no piece of work meets more than one detour, and a send with the
/// detours around it takes no longer than a period.
pub fn fits(noise: &Periodic, step: &Step) -> bool {
    let longest = step.message.recv_cpu.max(step.between).max(step.send);
    longest <= noise.period - 2 * noise.length
}

/// Later times are left to the checked path.
const LATEST: i64 = 1 << 59;

impl<const GAPS: bool> simd::Kernel for Hit<'_, GAPS> {
    /// Times, clear times, and whether they are valid.
    type Output = ([i64; LANES], [i64; LANES], bool);

    #[inline(always)]
    fn run<V: Vector>(self) -> Self::Output {
        let Hit { noise, step, own, from, clear, recv_free } = self;
        let Step { message, between, send_wait, send, last } = *step;
        let clock = Clock { period: noise.period, length: noise.length };
        let (mut done, mut next_clear, mut wrong) = ([0; LANES], [0; LANES], 0);
        for lane in 0..LANES {
            let own = own[lane];
            let mut begin = from[lane] + message.latency;
            if GAPS {
                begin = begin.max(recv_free[lane]);
            }
            // A message that arrived before this rank's send began is done when the send is: assuming
            // it a little later makes no difference.
            let earliest = own - message.recv_cpu - 2 * noise.length;
            let begin = (begin + message.transfer).max(earliest);
            // The start of a nearby detour.
            let clear = clear[lane];
            let start = if is_untrusted(clear) { trusted(clear) } else { clear };

            let (place, off) = clock.place(begin - start);
            wrong |= off;
            let (worked, place) = clock.work(begin, place, message.recv_cpu);
            let (own_place, off) = clock.place(own - start);
            wrong |= off;
            let received = worked.max(own);
            let place = if worked > own { place } else { own_place };
            let next = received + if place == 0 { 0 } else { noise.period - place };

            let (mut time, mut place) = (received, place);
            if between > 0 {
                (time, place) = clock.work(time, place, between);
            }
            if !last {
                if GAPS {
                    let wait = (own + send_wait - time).max(0);
                    let (waited, off) = clock.place(place + wait);
                    (time, place) = (time + wait, waited);
                    wrong |= off;
                }
                (time, _) = clock.work(time, place, send);
            }
            next_clear[lane] = if next < time { untrusted(next) } else { next };
            done[lane] = time;
            wrong |= LATEST - time;
        }
        (done, next_clear, wrong >= 0)
    }
}

#[derive(Clone, Copy)]
struct Clock {
    period: i64,
    length: i64,
}

impl Clock {
    /// The position in its period of a time at this distance from the start of one; the second value
    /// is negative if the distance is too large.
    #[inline(always)]
    fn place(&self, from_start: i64) -> (i64, i64) {
        let mut place = from_start;
        for _ in 0..2 {
            place += if place < 0 { self.period } else { 0 };
        }
        for _ in 0..2 {
            place -= if place >= self.period { self.period } else { 0 };
        }
        (place, place | (self.period - 1 - place))
    }

    /// When work begun at this time and position ends, and the position then.
    #[inline(always)]
    fn work(&self, time: i64, place: i64, work: i64) -> (i64, i64) {
        // Nothing begins inside a detour; zero work at its very start is not inside.
        let inside = place < self.length && (place > 0 || work > 0);
        let wait = if inside { self.length - place } else { 0 };
        // Time to the next one from here.
        let free = self.period - place - wait;
        let took = wait + work + if work > free { self.length } else { 0 };
        let place = place + took;
        (time + took, if place >= self.period { place - self.period } else { place })
    }
}
