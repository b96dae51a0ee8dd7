//! The hot loop: neighbouring ranks receive, combine and forward, as if there were no detours. Ranks
//! whose result lies beyond their clear time are deferred, and resolved in batches.

use super::{
    aside::{Aside, Settle},
    periodic::Hit,
};
use crate::{
    collectives::Pattern,
    loggops::MessageCost,
    noise::{MessageLatencies, Periodic, RunNoise, WorkError},
    simd::{self, Plain, Vector},
};

/// Ranks computed at once: two vectors of the widest type.
pub const LANES: usize = 2 * simd::LANES;

/// An invalid clear time sorts before everything, but can be recovered.
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
    /// Time from the last send leaving the CPU until the NIC accepts the next one.
    pub send_wait: i64,
    /// CPU time of the next send; 0 after the last round.
    pub send: i64,
    pub last: bool,
}

/// The cost of a step, for a vector of ranks.
#[derive(Clone, Copy)]
pub struct Costs<V> {
    latency: V,
    transfer: V,
    gap: V,
    cpu: V,
    between: V,
    send_wait: V,
    send: V,
}

impl<V: Vector> Costs<V> {
    #[inline(always)]
    pub fn new(step: &Step) -> Costs<V> {
        let Step { message, between, send_wait, send, .. } = *step;
        Costs {
            latency: V::splat(message.latency),
            transfer: V::splat(message.transfer),
            gap: V::splat(message.gap),
            cpu: V::splat(message.recv_cpu),
            between: V::splat(between),
            send_wait: V::splat(send_wait),
            send: V::splat(send),
        }
    }

    /// When the rank's next send has left its CPU, without detours.
    #[inline(always)]
    pub fn without_detours<const GAPS: bool>(&self, own: V, arrived: V) -> V {
        let next = own.max(arrived.add(self.cpu)).add(self.between);
        let next = if GAPS { next.max(own.add(self.send_wait)) } else { next };
        next.add(self.send)
    }
}

/// Maps places in an array to ranks: an array holds `width` consecutive ranks starting at `first`,
/// then the same number `stride` further on, wrapping around.
#[derive(Clone, Copy)]
pub struct Ranks {
    first: i64,
    width: i64,
    /// Fixed-point reciprocal of the width.
    inverse: i64,
    stride: i64,
    all: i64,
}

/// Arrays with a stride are shorter than this.
const SHORT: u32 = 20;

impl Ranks {
    pub fn in_order(first: usize, all: usize) -> Ranks {
        Ranks { first: first as i64, width: 1, inverse: 0, stride: 0, all: all as i64 }
    }

    pub fn in_columns(first: usize, width: usize, stride: usize, all: usize) -> Ranks {
        let (first, width, stride, all) = (first as i64, width as i64, stride as i64, all as i64);
        Ranks { first, width, inverse: (1 << (2 * SHORT)) / width + 1, stride, all }
    }

    pub fn at(&self, place: usize) -> u64 {
        self.one(place as i64) as u64
    }

    #[inline(always)]
    fn one(&self, place: i64) -> i64 {
        let row = if self.stride > 0 { place.wrapping_mul(self.inverse) >> (2 * SHORT) } else { 0 };
        let rank = place + self.first + row * (self.stride - self.width);
        if rank >= self.all { rank - self.all } else { rank }
    }

    #[inline(always)]
    pub fn at_each<V: Vector>(&self, places: V) -> V {
        let mut ranks = places.add(V::splat(self.first));
        if self.stride > 0 {
            let row = places.mul(V::splat(self.inverse)).shr(2 * SHORT);
            ranks = ranks.add(row.mul(V::splat(self.stride - self.width)));
        }
        let all = V::splat(self.all);
        ranks.select(!all.above(ranks), ranks.sub(all))
    }
}

/// The latencies of a round's messages, if they vary, and who sends them.
#[derive(Clone, Copy)]
pub struct Varied<'a> {
    pub latencies: MessageLatencies<'a>,
    /// Of all ranks, not only of those in an array.
    pub pattern: Pattern,
}

impl Varied<'_> {
    /// The first of [`LANES`] consecutive senders, if those of the receivers at these places are.
    #[inline(always)]
    fn first_sender(&self, ranks: &Ranks, place: usize) -> Option<usize> {
        let (first, last) = (ranks.one(place as i64), ranks.one((place + LANES - 1) as i64));
        let sender = match self.pattern {
            Pattern::Shift { distance } if first >= distance as i64 => first - distance as i64,
            Pattern::Shift { distance } if last < distance as i64 => {
                first - distance as i64 + ranks.all
            }
            Pattern::Swap { mask, .. } => {
                let (mask, lanes) = (mask as i64, LANES as i64);
                if mask < lanes || first % lanes != 0 {
                    return None;
                }
                first ^ mask
            }
            _ => return None,
        };
        (last - first == LANES as i64 - 1).then_some(sender as usize)
    }

    /// How far the latencies of the messages to the ranks of a group differ from L. No closures: they
    /// would not be compiled for the vectors of the machine.
    #[inline(always)]
    fn of_group<V: Vector>(&self, ranks: &Ranks, place: usize) -> [V; 2] {
        if let Some(first) = self.first_sender(ranks, place) {
            let low = self.latencies.deviations(simd::count_from::<V>(first));
            return [low, self.latencies.deviations(simd::count_from::<V>(first + simd::LANES))];
        }
        let low = self.deviations(ranks, simd::count_from::<V>(place));
        [low, self.deviations(ranks, simd::count_from::<V>(place + simd::LANES))]
    }

    /// How far the latencies of the messages to these ranks differ from L.
    #[inline(always)]
    fn deviations<V: Vector>(&self, ranks: &Ranks, places: V) -> V {
        let receivers = ranks.at_each(places);
        let senders = match self.pattern {
            Pattern::Swap { mask, .. } => receivers.xor(V::splat(mask as i64)),
            Pattern::Shift { distance } => {
                let senders = receivers.sub(V::splat(distance as i64));
                senders.select(V::splat(0).above(senders), senders.add(V::splat(ranks.all)))
            }
            Pattern::Edges { .. } => unreachable!("edges are not full; `can` refuses them"),
        };
        self.latencies.deviations(senders)
    }
}

/// Location of the senders' times.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// In the same array, starting at this place; may overlap the receivers.
    At(usize),
    Elsewhere(&'a [i64]),
}

impl Source<'_> {
    /// The array that holds them, and the index of the `at`th one in it.
    #[inline(always)]
    fn find<'b>(&'b self, time: &'b [i64], at: usize) -> (&'b [i64], usize) {
        match self {
            Source::At(src) => (time, src + at),
            Source::Elsewhere(times) => (times, at),
        }
    }
}

/// What a receive waits for besides its message, for ranks in an array. Empty if that never matters.
pub struct ReceiveOrder<'a> {
    /// When the previous receive ended.
    pub received: &'a mut [i64],
    /// When the send of this round began, with which its receive was posted.
    pub posted: &'a mut [i64],
}

impl ReceiveOrder<'_> {
    pub fn matters(&self) -> bool {
        !self.received.is_empty()
    }

    pub fn reborrow(&mut self) -> ReceiveOrder<'_> {
        ReceiveOrder { received: self.received, posted: self.posted }
    }
}

/// Receivers at the places `first..first + width` receive from as many senders.
pub struct Block<'a, 'n, const GAPS: bool> {
    /// Noise whose detours can be computed arithmetically.
    pub periodic: Option<Periodic>,
    pub ranks: &'a Ranks,
    pub first: usize,
    pub width: usize,
    pub source: Source<'a>,
    pub time: &'a mut [i64],
    pub clear: &'a mut [i64],
    /// Empty if gaps do not matter.
    pub recv_free: &'a mut [i64],
    pub order: ReceiveOrder<'a>,
    pub varied: Option<Varied<'a>>,
    pub step: &'a Step,
    pub noise: &'a RunNoise<'n>,
    pub aside: &'a mut Aside,
}

impl<const GAPS: bool> simd::Kernel for Block<'_, '_, GAPS> {
    type Output = Result<(), WorkError>;

    #[inline(always)]
    fn run<V: Vector>(mut self) -> Self::Output {
        let groups = self.width / LANES;
        let rest = self.width % LANES;
        let costs = Costs::<V>::new(self.step);
        // Senders below are still needed when the receivers above are done, and vice versa.
        match self.source {
            Source::At(src) if src < self.first => {
                if rest > 0 {
                    self.few(groups * LANES, rest)?;
                }
                for group in (0..groups).rev() {
                    self.group(&costs, Source::At(src), group * LANES)?;
                }
            }
            source => {
                for group in 0..groups {
                    self.group(&costs, source, group * LANES)?;
                }
                if rest > 0 {
                    self.few(groups * LANES, rest)?;
                }
            }
        }
        Ok(())
    }
}

impl<const GAPS: bool> Block<'_, '_, GAPS> {
    /// As many as fit in vectors, starting at the `at`th. Everything is loaded before anything is
    /// stored.
    #[inline(always)]
    fn group<V: Vector>(
        &mut self,
        costs: &Costs<V>,
        source: Source<'_>,
        at: usize,
    ) -> Result<(), WorkError> {
        let place = self.first + at;
        let (senders, sender) = source.find(self.time, at);
        let from = chunk(senders, sender);
        let mut from = [V::load(half_of(from, 0)), V::load(half_of(from, 1))];
        if let Some(varied) = &self.varied {
            let [low, high] = varied.of_group::<V>(self.ranks, place);
            from = [from[0].add(low), from[1].add(high)];
        }
        let own = chunk(self.time, place);
        let clear = chunk(self.clear, place);
        let recv_free = if GAPS { chunk(self.recv_free, place) } else { own };
        let group = Group { own, from, clear, recv_free };
        let mut low = Lanes::receive::<GAPS>(costs, group, 0);
        let mut high = Lanes::receive::<GAPS>(costs, group, 1);
        if self.order.matters() {
            let received = chunk_mut(self.order.received, place);
            let posted = chunk_mut(self.order.posted, place);
            for (half, lanes) in [&mut low, &mut high].into_iter().enumerate() {
                let received = half_of_mut(received, half);
                lanes.after::<GAPS>(costs, received, half_of_mut(posted, half), self.noise);
            }
        }
        if V::any_above([low.done, high.done], [low.clear, high.clear]) {
            if let Some(noise) = self.periodic {
                let mut senders = [0; LANES];
                from[0].store(half_of_mut(&mut senders, 0));
                from[1].store(half_of_mut(&mut senders, 1));
                let from = &senders;
                let hit = Hit::<GAPS> { noise, step: self.step, own, from, clear, recv_free };
                if let (done, clear, true) = simd::Kernel::run::<V>(hit) {
                    *chunk_mut(self.time, place) = done;
                    *chunk_mut(self.clear, place) = clear;
                    if GAPS {
                        let free = chunk_mut(self.recv_free, place);
                        low.free.store(half_of_mut(free, 0));
                        high.free.store(half_of_mut(free, 1));
                    }
                    return Ok(());
                }
            }
            let places: V = simd::count_from(place);
            self.aside.push(low.beyond(), places, low.arrived, low.own);
            let places = simd::count_from(place + simd::LANES);
            self.aside.push(high.beyond(), places, high.arrived, high.own);
        }
        let time = chunk_mut(self.time, place);
        low.done.store(half_of_mut(time, 0));
        high.done.store(half_of_mut(time, 1));
        if GAPS {
            let free = chunk_mut(self.recv_free, place);
            low.free.store(half_of_mut(free, 0));
            high.free.store(half_of_mut(free, 1));
        }
        if self.aside.is_full(LANES) { self.settle() } else { Ok(()) }
    }

    /// The state is destructured first: only then does the compiler keep it in registers.
    #[inline(always)]
    fn settle(&mut self) -> Result<(), WorkError> {
        let Block { aside, ranks, step, noise, time, clear, order, .. } = self;
        settle::<GAPS>(aside, ranks, step, noise, time, clear, order.reborrow())
    }

    /// The last few, padded with ranks that are never hit.
    #[inline(always)]
    fn few(&mut self, at: usize, used: usize) -> Result<(), WorkError> {
        let place = self.first + at;
        let padded = |values: &[i64], fill: i64| {
            let mut padded = [fill; LANES];
            padded[..used].copy_from_slice(values);
            padded
        };
        let (senders, sender) = self.source.find(self.time, at);
        let mut from = padded(&senders[sender..sender + used], 0);
        let own = padded(&self.time[place..place + used], 0);
        let clear = padded(&self.clear[place..place + used], i64::MAX);
        let free = if GAPS { padded(&self.recv_free[place..place + used], 0) } else { [0; LANES] };
        if let Some(varied) = &self.varied {
            for (at, from) in from[..used].iter_mut().enumerate() {
                let mut deviations = [0; simd::LANES];
                let place = Plain::splat((place + at) as i64);
                varied.deviations(self.ranks, place).store(&mut deviations);
                *from += deviations[0];
            }
        }
        let after = self.order.matters();
        let [mut received, mut posted] = [&self.order.received, &self.order.posted]
            .map(|all| if after { padded(&all[place..place + used], 0) } else { [0; LANES] });
        let (mut done, mut next_free) = ([0; LANES], [0; LANES]);
        let costs = Costs::<Plain>::new(self.step);
        let from = [Plain::load(half_of(&from, 0)), Plain::load(half_of(&from, 1))];
        let group = Group { own: &own, from, clear: &clear, recv_free: &free };
        for half in 0..2 {
            let mut lanes = Lanes::receive::<GAPS>(&costs, group, half);
            if after {
                let received = half_of_mut(&mut received, half);
                lanes.after::<GAPS>(&costs, received, half_of_mut(&mut posted, half), self.noise);
            }
            let places = simd::count_from(place + half * simd::LANES);
            self.aside.push(lanes.beyond(), places, lanes.arrived, lanes.own);
            lanes.done.store(half_of_mut(&mut done, half));
            lanes.free.store(half_of_mut(&mut next_free, half));
        }
        self.time[place..place + used].copy_from_slice(&done[..used]);
        if after {
            self.order.received[place..place + used].copy_from_slice(&received[..used]);
            self.order.posted[place..place + used].copy_from_slice(&posted[..used]);
        }
        if GAPS {
            self.recv_free[place..place + used].copy_from_slice(&next_free[..used]);
        }
        if self.aside.is_full(LANES) { self.settle() } else { Ok(()) }
    }
}

#[cold]
#[inline(never)]
fn settle<const GAPS: bool>(
    aside: &mut Aside,
    ranks: &Ranks,
    step: &Step,
    noise: &RunNoise<'_>,
    time: &mut [i64],
    clear: &mut [i64],
    order: ReceiveOrder<'_>,
) -> Result<(), WorkError> {
    simd::widest(Settle::<GAPS> { aside, ranks, step, noise, time, clear, order })
}

/// Neighbouring ranks before a round.
#[derive(Clone, Copy)]
struct Group<'a, V> {
    own: &'a [i64; LANES],
    /// The senders' times, with how far the latencies of their messages differ from L.
    from: [V; 2],
    clear: &'a [i64; LANES],
    recv_free: &'a [i64; LANES],
}

/// The result for a vector of ranks without detours.
struct Lanes<V> {
    own: V,
    arrived: V,
    done: V,
    /// When the NIC accepts the next message.
    free: V,
    clear: V,
}

impl<V: Vector> Lanes<V> {
    #[inline(always)]
    fn receive<const GAPS: bool>(costs: &Costs<V>, group: Group<'_, V>, half: usize) -> Lanes<V> {
        let own = V::load(half_of(group.own, half));
        let mut begin = group.from[half].add(costs.latency);
        let mut free = begin;
        if GAPS {
            begin = begin.max(V::load(half_of(group.recv_free, half)));
            free = begin.add(costs.gap);
        }
        let arrived = begin.add(costs.transfer);
        let done = costs.without_detours::<GAPS>(own, arrived);
        Lanes { own, arrived, done, free, clear: V::load(half_of(group.clear, half)) }
    }

    /// Receives no earlier than the previous receive ended; both times become those of this round.
    #[inline(always)]
    fn after<const GAPS: bool>(
        &mut self,
        costs: &Costs<V>,
        received: &mut [i64; simd::LANES],
        posted: &mut [i64; simd::LANES],
        noise: &RunNoise<'_>,
    ) {
        self.arrived = self.arrived.max(V::load(received));
        if !noise.is_none() {
            // Begun before the send, it may meet detours from before the clear time was known.
            let early = V::load(posted).above(self.arrived);
            self.clear = self.clear.select(early, V::splat(untrusted(0)));
        }
        self.done = costs.without_detours::<GAPS>(self.own, self.arrived);
        self.arrived.add(costs.cpu).max(V::load(posted)).store(received);
        self.done.sub(costs.send).store(posted);
    }

    /// Those whose end lies beyond their clear time.
    #[inline(always)]
    fn beyond(&self) -> u8 {
        self.done.above(self.clear)
    }
}

/// The first or the second vector of a group.
#[inline(always)]
fn half_of(group: &[i64; LANES], half: usize) -> &[i64; simd::LANES] {
    group[half * simd::LANES..].first_chunk().expect("two halves")
}

#[inline(always)]
fn half_of_mut(group: &mut [i64; LANES], half: usize) -> &mut [i64; simd::LANES] {
    group[half * simd::LANES..].first_chunk_mut().expect("two halves")
}

#[inline(always)]
fn chunk(array: &[i64], at: usize) -> &[i64; LANES] {
    array[at..at + LANES].as_array().expect("LANES long")
}

#[inline(always)]
fn chunk_mut(array: &mut [i64], at: usize) -> &mut [i64; LANES] {
    array[at..at + LANES].as_mut_array().expect("LANES long")
}
