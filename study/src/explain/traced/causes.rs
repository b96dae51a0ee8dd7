//! The critical path, and why ranks were late.
//!
//! In: the waits of a run and what its ranks did; out: segments of the critical path, and for each wait the parts of
//! other ranks' time that caused it.
//!
//! Going back in time from any moment of a rank, one comes to the end of its last wait, and from there to the rank
//! that arrived at that moment: nothing before it on the waiting rank mattered. So every moment has one path into
//! the past, without any waiting on it. The path from the end of the last rank is the critical path.
//!
//! A wait ends when the late rank arrives, and begins when the waiting one does. The paths into both moments are the
//! same before some moment in the past, at which they part; as both end there, the lengths of the two paths since then
//! differ by the length of the wait. What the path of the late rank has more of is what it was late by.

use std::collections::BTreeMap;

use program::{Tie, WaitClass, Waited};
use rayon::prelude::*;

use super::{
    contents::{Contents, Part, What},
    noise::{Hit, Noise},
};
use crate::explain::parted::{Compared, Like};

/// No wait: the path reaches the beginning of the run.
const NONE: u32 = u32::MAX;

/// Segments of the two paths of a wait that are compared at most. What is left then has no explanation.
const SEGMENTS: usize = 512;

/// The waits of a run, each with the one before it on its path.
pub struct Waits<'a> {
    waits: &'a [Waited],
    /// By waiting rank, in the order of their ends.
    of_rank: Vec<Vec<u32>>,
    /// For each wait, the last one of the late rank before its arrival.
    before: Vec<u32>,
    /// Begin and end of the run.
    span: (i64, i64),
}

/// A place on a path into the past: a moment of a rank, and the rank's last wait before it.
#[derive(Clone, Copy, Debug)]
struct Place {
    slot: u32,
    at: i64,
    wait: u32,
}

/// A rank cannot go on, because of another one.
#[derive(Clone, Copy, Debug)]
struct Held {
    from: i64,
    to: i64,
    by: u32,
}

/// A part of a path on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub slot: u32,
    pub from: i64,
    pub to: i64,
}

impl<'a> Waits<'a> {
    /// `waits` are in the order of [`program::Dependencies::waits`], fewer than 2^32.
    pub fn new(waits: &'a [Waited], spans: &[(i64, i64)]) -> Waits<'a> {
        let begin = spans.iter().map(|(begin, _)| *begin).min().unwrap_or(0);
        let end = spans.iter().map(|(_, end)| *end).max().unwrap_or(begin);
        let mut of_rank: Vec<Vec<u32>> = vec![Vec::new(); spans.len()];
        let mut before = Vec::with_capacity(waits.len());
        for (number, wait) in (0u32..).zip(waits) {
            // Those that are there already come before this one.
            let last = of_rank.get(wait.late as usize).and_then(|list| list.last());
            before.push(last.copied().unwrap_or(NONE));
            if let Some(list) = of_rank.get_mut(wait.slot as usize) {
                list.push(number);
            }
        }
        Waits { waits, of_rank, before, span: (begin, end.max(begin)) }
    }

    /// Begin and end of the run.
    pub fn span(&self) -> (i64, i64) {
        self.span
    }

    /// The moments of each rank at which paths can begin, end or change to it, in order, and the span of the run.
    pub fn marks(&self) -> Vec<Vec<i64>> {
        let (begin, end) = self.span;
        let mut marks = vec![vec![begin, end]; self.of_rank.len()];
        for wait in self.waits {
            if let Some(list) = marks.get_mut(wait.slot as usize) {
                list.extend([wait.begin, wait.end].map(|at| at.clamp(begin, end)));
            }
            if let Some(list) = marks.get_mut(wait.late as usize) {
                list.push(wait.end.clamp(begin, end));
            }
        }
        marks.par_iter_mut().for_each(|list| {
            list.sort_unstable();
            list.dedup();
            list.shrink_to_fit();
        });
        marks
    }

    fn wait(&self, number: u32) -> Option<&Waited> {
        self.waits.get(number as usize)
    }

    /// A moment of a rank.
    fn at(&self, slot: u32, at: i64) -> Place {
        let list = self.of_rank.get(slot as usize).map_or(&[][..], Vec::as_slice);
        let ended = |number: &u32| self.wait(*number).is_some_and(|wait| wait.end <= at);
        let next = list.partition_point(ended);
        let wait = next.checked_sub(1).and_then(|last| list.get(last)).copied();
        Place { slot, at, wait: wait.unwrap_or(NONE) }
    }

    /// Where a wait came from: the arrival of the late rank.
    fn arrival(&self, number: u32) -> Option<Place> {
        let wait = self.wait(number)?;
        Some(Place { slot: wait.late, at: wait.end, wait: *self.before.get(number as usize)? })
    }

    /// The segment of the path before a place, and the place before that.
    fn back(&self, place: Place) -> (Segment, Option<Place>) {
        let from = self.wait(place.wait).map_or(self.span.0, |wait| wait.end);
        (Segment { slot: place.slot, from, to: place.at }, self.arrival(place.wait))
    }

    /// The critical path into the end of a rank, the last segment first.
    pub fn path(&self, slot: u32, end: i64) -> Vec<Segment> {
        let mut path = Vec::new();
        let mut next = Some(self.at(slot, end));
        while let Some(place) = next {
            let (segment, before) = self.back(place);
            if segment.from < segment.to {
                path.push(segment);
            }
            next = before;
        }
        path
    }

    /// Goes back from both ends of a wait until their paths are one: the segments since then.
    fn parted(&self, number: u32, mut each: impl FnMut(bool, Segment)) {
        let Some(wait) = self.wait(number) else { return };
        let Some(mut late) = self.arrival(number) else { return };
        let mut waiting = self.at(wait.slot, wait.begin);
        for _ in 0..SEGMENTS {
            if (late.slot, late.wait) == (waiting.slot, waiting.wait) {
                let (from, to) = (late.at.min(waiting.at), late.at.max(waiting.at));
                each(late.at > waiting.at, Segment { slot: late.slot, from, to });
                return;
            }
            // The one whose segment begins later: the other path cannot come into that segment any more. At the
            // beginning of the run, both are at its end.
            let order = |place: &Place| if place.wait == NONE { -1 } else { i64::from(place.wait) };
            let of_late = order(&late) >= order(&waiting);
            let place = if of_late { &mut late } else { &mut waiting };
            let (segment, before) = self.back(*place);
            each(of_late, segment);
            match before {
                Some(before) => *place = before,
                None => {
                    let (segment, _) = self.back(if of_late { waiting } else { late });
                    each(!of_late, segment);
                    return;
                }
            }
        }
    }

    /// What each rank loses to noise: its own hits, and those of others in calls that it could not finish without
    /// them. When all have arrived at a collective, or both sides have posted a message, it is complete when the
    /// slowest has done its share; so the one that was interrupted longest meanwhile holds up the others.
    /// The start of MPI is such a collective: `starts` is when each rank called `MPI_Init`, and when it had started.
    pub fn hits(&self, noise: &Noise, ties: &[Tie], starts: &[(i64, i64)]) -> Vec<Vec<Hit>> {
        let own = noise.hits.iter().map(|hits| hits.clone().unwrap_or_default());
        let mut hits: Vec<Vec<Hit>> = own.collect();
        let mut held: Vec<Vec<Held>> = vec![Vec::new(); hits.len()];
        let mut hold = |slot: u32, by: u32, from: i64, to: i64| {
            if let Some(list) = held.get_mut(slot as usize).filter(|_| slot != by && from < to) {
                list.push(Held { from, to, by });
            }
        };
        for Tie { from, slots: [sender, receiver], calls: [sends, receives] } in ties {
            let until = sends.1.min(receives.1);
            hold(*sender, *receiver, sends.0.max(*from), until);
            hold(*receiver, *sender, receives.0.max(*from), until);
        }
        // All have arrived at a moment, and leave when they are done: the slowest holds up the others.
        let mut meet = |from: i64, members: &[(u32, i64)]| {
            let slowest = members
                .iter()
                .map(|(slot, until)| (noise.lost_ns(*slot, from, *until), *slot, *until))
                .max_by_key(|(lost, slot, _)| (*lost, std::cmp::Reverse(*slot)));
            if let Some((1.., slowest, until)) = slowest {
                for (slot, end) in members {
                    hold(*slot, slowest, from, (*end).min(until));
                }
            }
        };
        let is_collective = |number: &u32| {
            self.wait(*number).is_some_and(|wait| wait.class == WaitClass::Collective)
        };
        let mut order: Vec<u32> = (0..self.waits.len() as u32).filter(is_collective).collect();
        let key = |number: &u32| self.wait(*number).map(|wait| (wait.end, wait.late));
        order.sort_unstable_by_key(|number| (key(number), *number));
        for group in order.chunk_by(|a, b| key(a) == key(b)) {
            let waits = || group.iter().filter_map(|number| self.wait(*number));
            let Some((from, last)) = waits().next().map(|wait| (wait.end, wait.late)) else {
                continue;
            };
            // Who was there, and until when.
            let left = waits().map(|wait| wait.late_end).max().unwrap_or(from);
            let members: Vec<(u32, i64)> =
                waits().map(|wait| (wait.slot, wait.call_end)).chain([(last, left)]).collect();
            meet(from, &members);
        }
        let starting = (0..).zip(starts).map(|(slot, (_, started))| (slot, *started));
        if let Some(from) = starts.iter().map(|(arrived, _)| *arrived).max() {
            meet(from, &starting.collect::<Vec<_>>());
        }
        hits.par_iter_mut().zip(held).for_each(|(own, held)| {
            let of_others =
                held.iter().flat_map(|held| noise.hits_within(held.by, held.from, held.to));
            let mut others: Vec<Hit> = of_others.collect();
            others.sort_unstable_by_key(|hit| (hit.from, hit.to, hit.slot));
            let mut added = Vec::new();
            let mut free = i64::MIN;
            for hit in others {
                if let Some(hit) = hit.within(free, i64::MAX) {
                    free = hit.to;
                    uncovered(own, hit, &mut added);
                }
            }
            if !added.is_empty() {
                own.append(&mut added);
                own.sort_unstable_by_key(|hit| hit.from);
            }
        });
        hits
    }

    /// The parts of other ranks' time that caused the waits, summed up.
    pub fn causes(&self, contents: &[Contents], kinds: &[u32]) -> Sums {
        let numbers: Vec<u32> = (0..self.waits.len() as u32).collect();
        numbers
            .par_chunks(1024)
            .map(|numbers| {
                let mut sums = Sums::default();
                let mut compared = Compared::default();
                for number in numbers {
                    let Some(wait) = self.wait(*number) else { continue };
                    let (slot, class) = (wait.slot, wait.class);
                    let region = self.waits_in(wait, contents);
                    self.cause(*number, contents, kinds, &mut compared, |cause, ns| {
                        *sums.causes.entry(cause).or_insert(0) += ns;
                        let waiting = Waiting { slot, region, class, kind: cause.why.kind() };
                        *sums.waiting.entry(waiting).or_insert(0) += ns;
                    });
                }
                sums
            })
            .reduce(Sums::default, |mut all, sums| {
                for (cause, ns) in sums.causes {
                    *all.causes.entry(cause).or_insert(0) += ns;
                }
                for (waiting, ns) in sums.waiting {
                    *all.waiting.entry(waiting).or_insert(0) += ns;
                }
                all
            })
    }

    /// The region in which a rank waited.
    fn waits_in(&self, wait: &Waited, contents: &[Contents]) -> u32 {
        let (begin, end) = self.span;
        let [from, to] = [wait.begin, wait.end].map(|at| at.clamp(begin, end));
        let own = contents.get(wait.slot as usize);
        own.and_then(|own| own.between(from, to).first()).map_or(0, |part| part.region)
    }

    /// Attributes one wait; the times add up to its length.
    fn cause(
        &self,
        number: u32,
        contents: &[Contents],
        kinds: &[u32],
        compared: &mut Compared<Spent>,
        mut each: impl FnMut(Cause, u64),
    ) {
        let Some(wait) = self.wait(number) else { return };
        compared.clear();
        self.parted(number, |of_late, segment| {
            let contents = contents.get(segment.slot as usize);
            let parts = contents.map_or(&[][..], |all| all.between(segment.from, segment.to));
            add(compared, of_late, parts, kinds);
        });
        compared.divide(wait.ns(), |source, ns| {
            let (why, slot, region) = match source {
                Some((what, slot, region)) => (Why::Spent(what), slot, region),
                None => (Why::Unexplained, wait.late, 0),
            };
            let (class, operation) = (wait.class, wait.operation);
            each(Cause { class, operation, why, slot, region }, ns);
        });
    }
}

/// Adds what of a hit is not covered by others, which are in order.
fn uncovered(hits: &[Hit], hit: Hit, added: &mut Vec<Hit>) {
    let first = hits.partition_point(|own| own.to <= hit.from);
    let mut from = hit.from;
    for own in hits[first..].iter().take_while(|own| own.from < hit.to) {
        added.extend(hit.within(from, own.from));
        from = own.to;
    }
    added.extend(hit.within(from, hit.to));
}

/// Why a rank was late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    Spent(What),
    Unexplained,
}

/// Kinds of causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Noise,
    Compute,
    Communication,
    Unexplained,
}

impl Why {
    pub fn kind(self) -> Kind {
        match self {
            Why::Spent(What::Noise(_)) => Kind::Noise,
            Why::Spent(What::Compute) => Kind::Compute,
            Why::Spent(What::Communication(_)) => Kind::Communication,
            Why::Unexplained => Kind::Unexplained,
        }
    }
}

/// All waiting: by cause, and by who waited where. Both add up to it.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    pub causes: BTreeMap<Cause, u64>,
    pub waiting: BTreeMap<Waiting, u64>,
}

/// Waiting of one rank in one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    pub slot: u32,
    pub region: u32,
    pub class: WaitClass,
    pub kind: Kind,
}

/// Waiting of one class and with one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    pub class: WaitClass,
    /// Number of the call that was waited for to complete.
    pub operation: u16,
    pub why: Why,
    /// The rank that was late, or made it late.
    pub slot: u32,
    pub region: u32,
}

/// The time of a part: what, where, in which region.
type Spent = (What, u32, u32);

fn add(compared: &mut Compared<Spent>, of_late: bool, parts: &[Part], kinds: &[u32]) {
    for Part { what, slot, region, ns } in parts {
        let like = match what {
            What::Noise(source) => {
                Like::Noise(kinds.get(*source as usize).copied().unwrap_or(*source))
            }
            What::Compute => Like::Compute(*region),
            What::Communication(_) => Like::Communication,
        };
        compared.add(of_late, like, (*what, *slot, *region), *ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_is_added_where_the_rank_was_not_interrupted_itself() {
        let noise = Noise::made(
            Vec::new(),
            &[&[(10, 20, &[(0, 10)]), (30, 40, &[(0, 10)])], &[(15, 50, &[(1, 35)])]],
        );
        let [own, others] = [0, 1].map(|slot| noise.hits_within(slot, 0, 100));
        let mut added = Vec::new();
        uncovered(&own, others[0], &mut added);
        let spans: Vec<(i64, i64)> = added.iter().map(|hit| (hit.from, hit.to)).collect();
        assert_eq!(spans, [(20, 30), (40, 50)]);
        let mut parts = Vec::new();
        noise.sources_of(&added[1], |source, ns| parts.push((source, ns)));
        assert_eq!(parts, [(1, 10)]);
    }
}
