//! Ranks that may have been hit by a detour, deferred while the hot loop continues, and resolved in
//! batches: each lookup misses the cache, and together the misses overlap.
//!
//! Nearly all of them turn out to be clear: a rank waited for a message while a detour came and went.
//! They only need the time of their next one. Those that were hit are computed exactly, also in
//! batches ([`Walk`]).

use super::{
    vectors::{Costs, Ranks, ReceiveOrder, Step, untrusted},
    walk::Walk,
};
use crate::{
    noise::{Local, Many, RunNoise, WorkError},
    simd::{self, List, Vector},
};

/// Ranks whose time without detours lies beyond their clear time.
#[derive(Debug, Default)]
pub struct Aside {
    places: List,
    /// When the message arrived.
    arrived: List,
    /// When the rank's last send left its CPU.
    own: List,
    /// Their positions in the noise, and the first detour there that has not ended.
    positions: List,
    indices: List,
    /// The latest time for which their noise is defined.
    limits: List,
    /// Those that were hit.
    hit: List,
}

impl Aside {
    /// Adds the lanes of a mask; there must be room.
    #[inline(always)]
    pub fn push<V: Vector>(&mut self, mask: u8, places: V, arrived: V, own: V) {
        // One length applies to all lists.
        let at = self.places.len();
        self.arrived.set(at, arrived.compress(mask));
        self.own.set(at, own.compress(mask));
        self.places.push(mask, places);
    }

    /// Whether there is no room for this many more.
    #[inline(always)]
    pub fn is_full(&self, more: usize) -> bool {
        self.places.len() + more > simd::MOST
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub fn clear(&mut self) {
        self.places.set_len(0);
    }
}

/// Corrects times and clear times. `time` holds the values without detours.
pub struct Settle<'a, 'n, const GAPS: bool> {
    pub aside: &'a mut Aside,
    pub ranks: &'a Ranks,
    pub step: &'a Step,
    pub noise: &'a RunNoise<'n>,
    pub time: &'a mut [i64],
    pub clear: &'a mut [i64],
    pub order: ReceiveOrder<'a>,
}

impl<const GAPS: bool> simd::Kernel for Settle<'_, '_, GAPS> {
    type Output = Result<(), WorkError>;

    #[inline(always)]
    fn run<V: Vector>(mut self) -> Self::Output {
        if self.noise.is_none() {
            return Err(WorkError::Overflow);
        }
        match self.noise.many() {
            Some(many) => {
                self.look_up::<V>(&many);
                self.hit::<V>(&many)?;
            }
            None => {
                for at in 0..self.aside.places.len() {
                    self.one(at)?;
                }
            }
        }
        self.aside.clear();
        Ok(())
    }
}

impl<const GAPS: bool> Settle<'_, '_, GAPS> {
    /// Finds those that were hit, and the next detours of the others.
    #[inline(always)]
    fn look_up<V: Vector>(&mut self, many: &Many<'_>) {
        let Settle { aside, ranks, step, clear, .. } = self;
        let Aside { places, arrived, own, positions, indices, limits, hit } = &mut **aside;
        positions.set_len(places.len());
        for at in places.steps() {
            let ranks: V = ranks.at_each(places.at(at));
            let turn = many.turn(ranks);
            positions.set(at, many.positions(&turn, arrived.at(at)));
            limits.set(at, turn.limit);
        }
        many.first_after::<V>(positions, indices);
        hit.set_len(0);
        let costs = Costs::<V>::new(step);
        for at in places.steps() {
            let (place, arrived, position): (V, V, V) =
                (places.at(at), arrived.at(at), positions.at(at));
            let start: V = many.lookup().starts(indices.at(at));
            let until = start.sub(position).add(arrived).min(limits.at(at));
            let done = costs.without_detours::<GAPS>(own.at(at), arrived);
            let known = positions.there(at) & position.above(V::splat(-1));
            let free = known & !done.above(until);
            until.scatter(free, clear, place);
            hit.push(positions.there(at) & !free, simd::count_from::<V>(at));
        }
    }

    /// Computes those that were hit exactly.
    #[inline(always)]
    fn hit<V: Vector>(&mut self, many: &Many<'_>) -> Result<(), WorkError> {
        for at in self.aside.hit.steps() {
            let Aside { places, arrived, own, positions, indices, hit, .. } = &*self.aside;
            let (there, which) = (hit.there(at), hit.at(at));
            let place: V = places.gather(which);
            let position: V = positions.gather(which);
            let turn = many.turn(self.ranks.at_each(place));
            let mut walk = Walk {
                lookup: many.lookup(),
                known: there & position.above(V::splat(-1)),
                index: indices.gather(which),
                end: turn.base.add(turn.span),
            };
            // Positions are times with an earlier origin.
            let earlier = position.sub(arrived.gather(which));
            let own = own.gather(which).add(earlier);
            let ([received, posted], time, until) =
                exactly_each::<V, GAPS>(self.step, &mut walk, position, own);
            let (time, until) = (time.sub(earlier), until.sub(earlier).min(turn.limit));
            let until = until.select(time.above(until), until.add(V::splat(untrusted(0))));
            let known = walk.known & !time.above(turn.limit);
            time.scatter(known, self.time, place);
            until.scatter(known, self.clear, place);
            if self.order.matters() {
                // What is there is no earlier than when the receive was posted.
                let before = V::gather(self.order.received, V::splat(0).select(known, place));
                received.sub(earlier).max(before).scatter(known, self.order.received, place);
                posted.sub(earlier).scatter(known, self.order.posted, place);
            }
            let mut others = there & !known;
            while others != 0 {
                let lane = others.trailing_zeros() as usize;
                others &= others - 1;
                self.one(self.aside.hit.one(at + lane) as usize)?;
            }
        }
        Ok(())
    }

    /// A single one, with any noise.
    #[cold]
    #[inline(never)]
    fn one(&mut self, at: usize) -> Result<(), WorkError> {
        let Aside { places, arrived, own, .. } = &*self.aside;
        let place = places.one(at) as usize;
        let local = self.noise.local(self.ranks.at(place));
        let (received, posted);
        ([received, posted], self.time[place], self.clear[place]) =
            exactly::<GAPS>(self.step, &local, arrived.one(at), own.one(at))?;
        if self.order.matters() {
            let last = &mut self.order.received[place];
            *last = received.max(*last);
            self.order.posted[place] = posted;
        }
        Ok(())
    }
}

/// When each rank's receive ended and its next send began, when that has left its CPU, and the start of its next detour after the receive, as
/// positions in the noise.
#[inline(always)]
fn exactly_each<V: Vector, const GAPS: bool>(
    step: &Step,
    walk: &mut Walk<'_, V>,
    arrived: V,
    own: V,
) -> ([V; 2], V, V) {
    let Step { message, between, send_wait, send, last } = *step;
    let worked = walk.work(arrived, message.recv_cpu);
    let received = worked.max(own);
    let until = walk.next(received);
    let (mut time, mut posted) = (received, received);
    if between > 0 {
        time = walk.work(time, between);
    }
    if !last {
        if GAPS {
            time = time.max(own.add(V::splat(send_wait)));
        }
        posted = time;
        time = walk.work(time, send);
    }
    ([worked, posted], time, until)
}

/// When the rank's receive ended and its next send began, when that has left its CPU, and until when it is clear.
fn exactly<const GAPS: bool>(
    step: &Step,
    local: &Local<'_>,
    arrived: i64,
    own: i64,
) -> Result<([i64; 2], i64, i64), WorkError> {
    let Step { message, between, send_wait, send, last } = *step;
    let mut cursor = local.at(arrived);
    let worked = cursor.work(arrived, message.recv_cpu)?;
    let received = worked.max(own);
    // The clear time counts from here, regardless of how far the cursor advances.
    let clear_until = cursor.clear_until(received);
    let (mut time, mut posted) = (received, received);
    if between > 0 {
        time = cursor.work(time, between)?;
    }
    if !last {
        if GAPS {
            time = time.max(own + send_wait);
        }
        posted = time;
        time = cursor.work(time, send)?;
    }
    let clear = if clear_until < time { untrusted(clear_until) } else { clear_until };
    Ok(([worked, posted], time, clear))
}
