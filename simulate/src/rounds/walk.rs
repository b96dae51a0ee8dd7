//! Exact preemption of many ranks together, each at its position among the detours: the vector form of
//! [`Cursor`](crate::noise::Cursor).

use crate::{noise::Lookup, simd::Vector};

/// Work of this many mean distances between detours or more meets several at once.
const LONG: i64 = 4;

pub struct Walk<'a, V> {
    pub lookup: &'a Lookup,
    /// Lanes with valid results; ranks that leave their timeline are removed, and their results are
    /// undefined.
    pub known: u8,
    /// The first detour that has not ended.
    pub index: V,
    /// End of the timeline.
    pub end: V,
}

impl<V: Vector> Walk<'_, V> {
    /// When work begun at these positions ends; positions must not decrease.
    #[inline(always)]
    pub fn work(&mut self, begin: V, work: i64) -> V {
        let mut start = self.next(begin);
        // Its end if there are no more detours.
        let mut done = begin.add(V::splat(work));
        let mut now = begin;
        let long = work / LONG >= self.lookup.spacing();
        loop {
            if long {
                done = self.skip(begin, done);
                start = self.lookup.starts(self.index);
            }
            let met = self.known & done.above(start);
            if met == 0 {
                return done;
            }
            // The next turn's detours are not included.
            self.known &= !(met & !self.end.above(start));
            let end = self.lookup.ends(self.index);
            // Work remaining when it began remains when it is over.
            let later = end.sub(start.max(now));
            done = done.select(met, done.add(later));
            now = now.select(met, end);
            self.forward(met & self.known);
            start = self.lookup.starts(self.index);
        }
    }

    /// Meets all detours that have ended when the work would, again and again until there are none: as many
    /// at a time as fit into the time that the last ones took. Returns when the work would end then.
    #[inline(always)]
    fn skip(&mut self, begin: V, mut done: V) -> V {
        loop {
            let last = self.end.sub(V::splat(1));
            let position = V::splat(0).select(self.known, done.min(last));
            let further = self.lookup.first_after_each(position);
            let some = self.known & further.above(self.index);
            if some == 0 {
                return done;
            }
            let lost = self.lookup.lost_before(further).sub(self.lookup.lost_before(self.index));
            // The part of the first one before the work began; none of a later one is.
            let early = begin.sub(self.lookup.starts(self.index)).max(V::splat(0));
            done = done.select(some, done.add(lost).sub(early));
            self.index = self.index.select(some, further);
        }
    }

    /// The starts of the first detours that have not ended at these positions.
    #[inline(always)]
    pub fn next(&mut self, positions: V) -> V {
        self.known &= self.end.above(positions);
        let over = self.known & !self.lookup.ends(self.index).above(positions);
        if over != 0 {
            // Some are far away: walking there would take longer.
            let positions = V::splat(0).select(over, positions);
            self.index = self.index.select(over, self.lookup.first_after_each(positions));
        }
        self.lookup.starts(self.index)
    }

    #[inline(always)]
    fn forward(&mut self, mask: u8) {
        self.index = self.index.select(mask, self.index.add(V::splat(1)));
    }
}
