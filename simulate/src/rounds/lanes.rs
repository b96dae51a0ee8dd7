//! The hot loop: neighbouring ranks receive, combine and send on, as if there were no detours. Ranks
//! whose result lies beyond their clear time are put aside, and settled when they are many.

use super::{aside::Aside, periodic::Hit};
use crate::{
    loggops::MessageCost,
    noise::{Periodic, RunNoise, WorkError},
    simd,
};

/// Ranks computed at once: two vectors of the widest kind.
pub const LANES: usize = 16;

/// One for each of them.
static BITS: [i64; LANES] = {
    let mut bits = [0; LANES];
    let mut lane = 0;
    while lane < LANES {
        bits[lane] = 1 << lane;
        lane += 1;
    }
    bits
};

/// A clear time that is not to be trusted comes before everything, but is still known.
const UNTRUSTED: i64 = 1 << 61;

#[inline(always)]
pub fn untrusted(clear: i64) -> i64 {
    clear - UNTRUSTED
}

#[inline(always)]
pub fn is_untrusted(clear: i64) -> bool {
    clear < -UNTRUSTED / 2
}

#[inline(always)]
pub fn trusted(clear: i64) -> i64 {
    clear + UNTRUSTED
}

/// One round for one rank: receive a message, combine, issue the next send.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub message: MessageCost,
    /// Work between the receive and the next send: combining, compute.
    pub between: i64,
    /// The NIC takes the next send so long after the last one left the CPU.
    pub send_wait: i64,
    /// CPU time of the next send; 0 after the last round.
    pub send: i64,
    pub last: bool,
}

/// Which rank a place in an array belongs to: an array holds ranks from `first` on, `width` of them
/// side by side, then the same places `stride` further on, round the end.
#[derive(Clone, Copy)]
pub struct Ranks {
    pub first: usize,
    pub width: usize,
    pub stride: usize,
    pub all: usize,
}

impl Ranks {
    pub fn in_order(first: usize, all: usize) -> Ranks {
        Ranks { first, width: usize::MAX, stride: 0, all }
    }

    #[inline]
    fn at(&self, place: usize) -> u64 {
        // A division of short numbers, and only where there is something to divide.
        let place = match self.stride {
            0 => place,
            stride => {
                let (place, width) = (place as u32, self.width as u32);
                (place / width) as usize * stride + (place % width) as usize
            }
        };
        let rank = self.first + place;
        (if rank < self.all { rank } else { rank - self.all }) as u64
    }
}

/// Where the senders' times are.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// In the same array, from this place on; it may overlap the receivers.
    At(usize),
    Elsewhere(&'a [i64]),
}

impl Source<'_> {
    /// The array that holds them, and where in it the `at`th one is.
    #[inline(always)]
    fn find<'b>(&'b self, time: &'b [i64], at: usize) -> (&'b [i64], usize) {
        match self {
            Source::At(src) => (time, src + at),
            Source::Elsewhere(times) => (times, at),
        }
    }
}

/// Receivers at the places `first..first + width` hear from as many senders.
pub struct Block<'a, 'n, const GAPS: bool> {
    /// Noise whose detours can be told by arithmetic.
    pub periodic: Option<Periodic>,
    pub ranks: &'a Ranks,
    pub first: usize,
    pub width: usize,
    pub source: Source<'a>,
    pub time: &'a mut [i64],
    pub clear: &'a mut [i64],
    /// Empty where gaps do not matter.
    pub recv_free: &'a mut [i64],
    pub step: &'a Step,
    pub noise: &'a RunNoise<'n>,
    pub aside: &'a mut Aside,
}

impl<const GAPS: bool> simd::Kernel for Block<'_, '_, GAPS> {
    type Output = Result<(), WorkError>;

    #[inline(always)]
    fn run(mut self) -> Self::Output {
        let groups = self.width / LANES;
        let rest = self.width % LANES;
        // Senders below are still needed when the receivers above are done, and the other way round.
        let downwards = matches!(self.source, Source::At(src) if src < self.first);
        if downwards {
            if rest > 0 {
                self.few(groups * LANES, rest)?;
            }
            for group in (0..groups).rev() {
                self.group(group * LANES)?;
            }
        } else {
            for group in 0..groups {
                self.group(group * LANES)?;
            }
            if rest > 0 {
                self.few(groups * LANES, rest)?;
            }
        }
        if self.aside.is_empty() { Ok(()) } else { self.settle() }
    }
}

impl<const GAPS: bool> Block<'_, '_, GAPS> {
    /// As many as fit in vectors, from the `at`th on. Everything is loaded before anything is stored,
    /// and nothing is handed on: what is needed again is loaded again, so that all this stays in
    /// registers.
    #[inline(always)]
    fn group(&mut self, at: usize) -> Result<(), WorkError> {
        let place = self.first + at;
        let (senders, sender) = self.source.find(self.time, at);
        let from = chunk(senders, sender);
        let own = chunk(self.time, place);
        let clear = chunk(self.clear, place);
        let free = if GAPS { chunk(self.recv_free, place) } else { own };
        let Lanes { done, free, beyond } =
            Lanes::receive::<GAPS>(self.step, own, from, clear, free);
        if beyond < 0 {
            if let Some(noise) = self.periodic {
                let recv_free = if GAPS { chunk(self.recv_free, place) } else { own };
                let hit = Hit::<GAPS> { noise, step: self.step, own, from, clear, recv_free };
                if let (done, clear, true) = simd::Kernel::run(hit) {
                    *chunk_mut(self.time, place) = done;
                    *chunk_mut(self.clear, place) = clear;
                    if GAPS {
                        *chunk_mut(self.recv_free, place) = free;
                    }
                    return Ok(());
                }
            }
            return self.near_detours(at);
        }
        *chunk_mut(self.time, place) = done;
        if GAPS {
            *chunk_mut(self.recv_free, place) = free;
        }
        Ok(())
    }

    /// Everything is read where it lies: of a copy made here, in pieces, vectors have to wait.
    #[cold]
    #[inline(never)]
    fn near_detours(&mut self, at: usize) -> Result<(), WorkError> {
        let place = self.first + at;
        let (senders, sender) = self.source.find(self.time, at);
        let from = chunk(senders, sender);
        let own = chunk(self.time, place);
        let recv_free = if GAPS { chunk(self.recv_free, place) } else { own };
        let clear = chunk(self.clear, place);
        let again = Again::<GAPS> { step: self.step, own, from, clear, recv_free };
        let (done, next_free, hit) = simd::widest(again);
        again.put_aside(hit, self.aside, self.ranks, place);
        *chunk_mut(self.time, place) = done;
        if GAPS {
            *chunk_mut(self.recv_free, place) = next_free;
        }
        if self.aside.is_full() { self.settle() } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn settle(&mut self) -> Result<(), WorkError> {
        self.aside.settle::<GAPS>(self.step, self.noise, self.time, self.clear)
    }

    /// The last few, with ranks beside them that nothing can happen to.
    #[inline(never)]
    fn few(&mut self, at: usize, used: usize) -> Result<(), WorkError> {
        let place = self.first + at;
        let padded = |values: &[i64], fill: i64| {
            let mut padded = [fill; LANES];
            padded[..used].copy_from_slice(values);
            padded
        };
        let (senders, sender) = self.source.find(self.time, at);
        let from = padded(&senders[sender..sender + used], 0);
        let own = padded(&self.time[place..place + used], 0);
        let clear = padded(&self.clear[place..place + used], i64::MAX);
        let free = if GAPS { padded(&self.recv_free[place..place + used], 0) } else { [0; LANES] };
        let (own, from, step) = (&own, &from, self.step);
        let again = Again::<GAPS> { step, own, from, clear: &clear, recv_free: &free };
        let (done, next_free, hit) = simd::Kernel::run(again);
        again.put_aside(hit, self.aside, self.ranks, place);
        self.time[place..place + used].copy_from_slice(&done[..used]);
        if GAPS {
            self.recv_free[place..place + used].copy_from_slice(&next_free[..used]);
        }
        Ok(())
    }
}

/// What becomes of neighbouring ranks without detours.
struct Lanes {
    done: [i64; LANES],
    free: [i64; LANES],
    /// Negative if one of them lies beyond its clear time.
    beyond: i64,
}

impl Lanes {
    #[inline(always)]
    fn receive<const GAPS: bool>(
        step: &Step,
        own: &[i64; LANES],
        from: &[i64; LANES],
        clear: &[i64; LANES],
        recv_free: &[i64; LANES],
    ) -> Lanes {
        let Step { message, between, send_wait, send, .. } = *step;
        let after_arrival = message.transfer + message.cpu;
        // Plain locals: of fields, the compiler makes no vectors.
        let (mut all, mut free, mut beyond) = ([0; LANES], [0; LANES], 0);
        for lane in 0..LANES {
            let mut begin = from[lane] + message.latency;
            if GAPS {
                begin = begin.max(recv_free[lane]);
                free[lane] = begin + message.gap;
            }
            let next = own[lane].max(begin + after_arrival) + between;
            let done = if GAPS { next.max(own[lane] + send_wait) } else { next } + send;
            all[lane] = done;
            // Both are far from the ends of the range: the sign tells.
            beyond |= clear[lane] - done;
        }
        Lanes { done: all, free, beyond }
    }
}

/// The hot loop once more, for which of the ranks lie beyond their clear times: the loop itself keeps
/// its results in registers and has no time to say so.
#[derive(Clone, Copy)]
struct Again<'a, const GAPS: bool> {
    step: &'a Step,
    own: &'a [i64; LANES],
    from: &'a [i64; LANES],
    clear: &'a [i64; LANES],
    recv_free: &'a [i64; LANES],
}

impl<const GAPS: bool> Again<'_, GAPS> {
    /// Those that were hit; the first of them has this place.
    #[inline]
    fn put_aside(&self, mut hit: u32, aside: &mut Aside, ranks: &Ranks, place: usize) {
        let message = &self.step.message;
        while hit != 0 {
            let lane = hit.trailing_zeros() as usize;
            hit &= hit - 1;
            let mut begin = self.from[lane] + message.latency;
            if GAPS {
                begin = begin.max(self.recv_free[lane]);
            }
            let place = place + lane;
            aside.push(place, ranks.at(place), begin + message.transfer, self.own[lane]);
        }
    }
}

impl<const GAPS: bool> simd::Kernel for Again<'_, GAPS> {
    /// Times, when the NIC takes the next message, and who is beyond: a bit each.
    type Output = ([i64; LANES], [i64; LANES], u32);

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Again { step, own, from, clear, recv_free } = self;
        let lanes = Lanes::receive::<GAPS>(step, own, from, clear, recv_free);
        // A bit each, out of the sign: of comparisons, the compiler makes no vectors.
        let mut hits = [0; LANES];
        for ((hit, bit), (done, clear)) in
            hits.iter_mut().zip(BITS).zip(lanes.done.iter().zip(clear))
        {
            *hit = ((clear - done) >> 63) & bit;
        }
        let hit = hits.iter().fold(0, |all, hit| all | hit);
        (lanes.done, lanes.free, hit as u32)
    }
}

#[inline(always)]
fn chunk(array: &[i64], at: usize) -> &[i64; LANES] {
    array[at..at + LANES].as_array().expect("LANES long")
}

#[inline(always)]
fn chunk_mut(array: &mut [i64], at: usize) -> &mut [i64; LANES] {
    array[at..at + LANES].as_mut_array().expect("LANES long")
}
