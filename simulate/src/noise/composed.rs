//! A lane's detours with their composition, so that its noise can be rebuilt without some of its
//! sources.
//!
//! One rule defines "without a source": a detour begins when it began and is shorter by the source's
//! part in it. A detour of length zero is dropped. The span is kept, so that ranks are at the same
//! positions in the noise with and without.
//!
//! Recordings are in nanoseconds, and so is this; a [`Timeline`] built from it is in picoseconds.

use super::{Shares, Timeline, TimelineError, UNKNOWN};

/// One measured CPU, or one thread of a recorded program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Composed {
    /// Start and length of the observation, on the recording's clock.
    from_ns: u64,
    span_ns: u64,
    /// Since `from_ns`.
    starts: Vec<u64>,
    /// End of the parts of each detour in `parts`.
    ends: Vec<u32>,
    parts: Vec<Part>,
}

/// Ten million detours are common, so a part takes eight bytes. Times above 4 s are split into several
/// parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    source: u32,
    ns: u32,
}

/// Time taken by a source on all lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Detours it contributed to.
    pub detours: u64,
    pub ns: u64,
    /// Its largest contribution to one detour.
    pub longest_ns: u64,
}

impl Composed {
    /// A lane observed from this time, for at least this long: detours may extend it.
    pub fn new(from_ns: u64, span_ns: u64) -> Composed {
        Composed { from_ns, span_ns, ..Composed::default() }
    }

    /// Adds a detour, with its parts as (source, time); sources are small numbers. Time not covered by
    /// the parts is unattributed; parts beyond its length are inconsistent and dropped.
    pub fn push(
        &mut self,
        start_ns: u64,
        len_ns: u64,
        parts: impl IntoIterator<Item = (u32, u64)>,
    ) -> Result<(), TimelineError> {
        let start = start_ns.saturating_sub(self.from_ns);
        // Before it is split into parts: a damaged file may claim centuries.
        Timeline::check_span(1_000 * (i128::from(start) + i128::from(len_ns)))?;
        let end = start + len_ns;
        let mut left = len_ns;
        // Not a source that could be removed.
        let nobody = std::iter::once((UNKNOWN, u64::MAX));
        for (source, ns) in parts.into_iter().chain(nobody) {
            let mut ns = ns.min(left);
            left -= ns;
            while ns > 0 {
                let piece = u32::try_from(ns).unwrap_or(u32::MAX);
                ns -= u64::from(piece);
                self.add(source, piece);
            }
        }
        let ends = u32::try_from(self.parts.len());
        self.ends.push(ends.map_err(|_| TimelineError::TooMany(self.parts.len()))?);
        self.starts.push(start);
        self.span_ns = self.span_ns.max(end);
        Ok(())
    }

    /// Consecutive parts of one source are merged; the order is that of time.
    fn add(&mut self, source: u32, ns: u32) {
        let first = self.ends.last().map_or(0, |&end| end as usize);
        let last = self.parts[first..].last_mut().filter(|part| part.source == source);
        match last.and_then(|part| Some((part.ns.checked_add(ns)?, part))) {
            Some((sum, part)) => part.ns = sum,
            None => self.parts.push(Part { source, ns }),
        }
    }

    /// The part between two times on the recording's clock. Detours that cross them are dropped.
    #[must_use]
    pub fn within(&self, from_ns: u64, to_ns: u64) -> Composed {
        let mut cut = Composed::new(from_ns, to_ns.saturating_sub(from_ns));
        for (start, own) in self.starts.iter().zip(self.each()) {
            let start = self.from_ns.saturating_add(*start);
            let length = own.iter().map(|part| u64::from(part.ns)).sum();
            if start >= from_ns && start.saturating_add(length) <= to_ns {
                cut.parts.extend_from_slice(own);
                // No more than there were.
                cut.ends.push(cut.parts.len() as u32);
                cut.starts.push(start - from_ns);
            }
        }
        cut
    }

    /// The same lane without some sources.
    #[must_use]
    pub fn lacking(self, removed: &[bool]) -> Composed {
        if !removed.contains(&true) {
            return self;
        }
        let mut left = Composed::new(self.from_ns, self.span_ns);
        for (&start, own) in self.starts.iter().zip(self.each()) {
            let before = left.parts.len();
            left.parts.extend(own.iter().filter(|part| !is_in(removed, part.source)));
            if left.parts.len() > before {
                left.ends.push(left.parts.len() as u32);
                left.starts.push(start);
            }
        }
        left
    }

    /// The same detours, all of one source.
    #[must_use]
    pub fn of_source(mut self, source: u32) -> Composed {
        self.parts.iter_mut().for_each(|part| part.source = source);
        self
    }

    pub fn len(&self) -> usize {
        self.starts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    pub fn from_ns(&self) -> u64 {
        self.from_ns
    }

    pub fn span_ns(&self) -> u64 {
        self.span_ns
    }

    /// The detours as recorded.
    pub fn timeline(&self) -> Result<Timeline, TimelineError> {
        self.without(&[])
    }

    /// The detours without the sources for which `removed` is true; sources beyond its end are kept.
    pub fn without(&self, removed: &[bool]) -> Result<Timeline, TimelineError> {
        let left = self.lengths(|source| !is_in(removed, source));
        let detours = self.starts.iter().zip(left);
        Timeline::check_span(1_000 * i128::from(self.span_ns))?;
        Timeline::new(detours.map(|(&start, ns)| (ps(start), ps(ns))), ps(self.span_ns))
    }

    /// The same with the attribution of detours; `numbers` maps sources to the numbers used there.
    pub fn shared_without(
        &self,
        removed: &[bool],
        numbers: &[u32],
    ) -> Result<Timeline, TimelineError> {
        let number = |source: u32| numbers.get(source as usize).copied().unwrap_or(UNKNOWN);
        let mut shares = Shares::default();
        for own in self.each() {
            let kept = own.iter().filter(|part| !is_in(removed, part.source));
            let length = kept.clone().map(|part| u64::from(part.ns)).sum();
            // A timeline has no zero-length detours.
            if length > 0 {
                shares.push(ps(length), kept.map(|part| (number(part.source), ps(part.ns.into()))));
            }
        }
        self.without(removed)?.shared_by(shares)
    }

    /// Each detour: its start since the start of the lane, and what each source took in it.
    pub fn for_each(&self, mut tell: impl FnMut(u64, &[(u32, u64)])) {
        let mut sums: Vec<(u32, u64)> = Vec::new();
        for (&start, own) in self.starts.iter().zip(self.each()) {
            sums.clear();
            for part in own {
                match sums.iter_mut().find(|(source, _)| *source == part.source) {
                    Some((_, sum)) => *sum += u64::from(part.ns),
                    None => sums.push((part.source, u64::from(part.ns))),
                }
            }
            tell(start, &sums);
        }
    }

    /// The same lane with other lengths: `change` gets what each source took in a detour. What becomes longer
    /// delays what it would overlap; what does not fit into the span is cut, so that the span stays.
    #[must_use]
    pub fn changed(&self, mut change: impl FnMut(&mut [(u32, u64)])) -> Composed {
        let mut lane = Composed::new(self.from_ns, self.span_ns);
        let (mut free_at, mut own) = (0, Vec::new());
        self.for_each(|start, parts| {
            own.clear();
            own.extend_from_slice(parts);
            change(&mut own);
            let start = start.max(free_at);
            let length = own.iter().map(|(_, ns)| *ns).fold(0, u64::saturating_add);
            let length = length.min(self.span_ns.saturating_sub(start));
            free_at = start + length;
            if length > 0 {
                // Ends within the span, which was accepted before, and has no more parts.
                let pushed = lane.push(self.from_ns + start, length, own.iter().copied());
                debug_assert_eq!(pushed, Ok(()));
            }
        });
        lane
    }

    /// Time taken by these sources, detour by detour, as (start, time) since the start of the lane.
    pub(crate) fn only(&self, sources: &[bool]) -> impl Iterator<Item = (u64, u64)> {
        let taken = self.lengths(|source| is_in(sources, source));
        self.starts.iter().copied().zip(taken).filter(|&(_, ns)| ns > 0)
    }

    fn lengths(&self, counts: impl Fn(u32) -> bool) -> impl Iterator<Item = u64> {
        self.each().map(move |own| {
            own.iter().filter(|part| counts(part.source)).map(|part| u64::from(part.ns)).sum()
        })
    }

    /// The parts of each detour in turn.
    fn each(&self) -> impl Iterator<Item = &[Part]> {
        let mut first = 0;
        self.ends.iter().map(move |&end| {
            let own = &self.parts[first..end as usize];
            first = end as usize;
            own
        })
    }

    /// Marks the sources of all detours that overlap the time between two positions in the timeline,
    /// both in ps from the start of the lane; the timeline repeats at its end.
    pub(crate) fn sources_between(&self, from: i64, to: i64, sources: &mut [bool]) {
        let span = ps(self.span_ns);
        if span <= 0 || self.starts.is_empty() {
            return;
        }
        if to - from >= span {
            return self.mark(0, self.starts.len(), sources);
        }
        let (first, last) = (from.rem_euclid(span), to.rem_euclid(span));
        if first <= last {
            self.mark_between(first, last, sources);
        } else {
            self.mark_between(first, span, sources);
            self.mark_between(0, last, sources);
        }
    }

    fn mark_between(&self, from: i64, to: i64, sources: &mut [bool]) {
        // The previous one may overlap; detours do not overlap each other, so no other does.
        let first = self.starts.partition_point(|&start| ps(start) < from).saturating_sub(1);
        let end = self.starts.partition_point(|&start| ps(start) <= to);
        self.mark(first, end.max(first), sources);
    }

    fn mark(&self, first: usize, end: usize, sources: &mut [bool]) {
        for part in &self.parts[self.parts_before(first)..self.parts_before(end)] {
            if let Some(marked) = sources.get_mut(part.source as usize) {
                *marked = true;
            }
        }
    }

    /// As long a lane, made of equal parts of this one in the order of their numbers: a part may come several times or
    /// never. What reaches into the next part delays what it would overlap.
    #[must_use]
    pub fn rearranged(&self, order: &[usize]) -> Composed {
        let mut lane = Composed::new(self.from_ns, self.span_ns);
        let edge = |part: usize| {
            (u128::from(self.span_ns) * part as u128 / order.len().max(1) as u128) as u64
        };
        let before = |ns: u64| self.starts.partition_point(|&start| start < ns);
        let mut free_at = 0;
        for (place, &part) in order.iter().enumerate() {
            let (from, to) = (edge(part), edge(part + 1));
            for index in before(from)..before(to) {
                let own = &self.parts[self.parts_before(index)..self.parts_before(index + 1)];
                let start = (edge(place) + self.starts[index] - from).max(free_at);
                let length = own.iter().map(|part| u64::from(part.ns)).sum::<u64>();
                let length = length.min(self.span_ns.saturating_sub(start));
                free_at = start + length;
                if length > 0 {
                    let own = own.iter().map(|part| (part.source, u64::from(part.ns)));
                    // Within the span, which was accepted before.
                    let pushed = lane.push(self.from_ns + start, length, own);
                    debug_assert_eq!(pushed, Ok(()));
                }
            }
        }
        lane
    }

    /// How many parts the detours before this one have.
    fn parts_before(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.ends[before] as usize)
    }

    /// Total time of all detours.
    pub fn total_ns(&self) -> u64 {
        self.parts.iter().map(|part| u64::from(part.ns)).sum()
    }

    /// Adds each source's time on this lane to the total of its group. Sources without a group are
    /// ignored.
    pub fn account(&self, group_of: &[u32], accounts: &mut [Taken]) {
        // Time of each group in one detour, which may have several parts of it; all zero between
        // detours.
        let mut took = vec![0u64; accounts.len()];
        let group = |part: &Part| group_of.get(part.source as usize).map(|&group| group as usize);
        for own in self.each() {
            for part in own {
                if let Some(took) = group(part).and_then(|group| took.get_mut(group)) {
                    *took += u64::from(part.ns);
                }
            }
            for part in own {
                let Some(group) = group(part) else { continue };
                let Some(ns) = took.get_mut(group).map(std::mem::take).filter(|&ns| ns > 0) else {
                    continue;
                };
                let taken = &mut accounts[group];
                taken.detours += 1;
                taken.ns += ns;
                taken.longest_ns = taken.longest_ns.max(ns);
            }
        }
    }
}

fn is_in(set: &[bool], source: u32) -> bool {
    set.get(source as usize).copied().unwrap_or(false)
}

/// Times of a damaged file saturate, which the timeline rejects.
fn ps(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX).saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_come_in_the_order_given_and_delay_each_other() {
        let mut lane = Composed::new(1_000, 100);
        for (start, ns) in [(1_000, 5), (1_045, 10), (1_052 + 5, 3), (1_090, 10)] {
            lane.push(start, ns, [(7, ns)]).unwrap();
        }
        let list = |lane: &Composed| {
            let mut list = Vec::new();
            lane.for_each(|start, parts| list.push((start, parts.to_vec())));
            list
        };
        assert_eq!(lane.rearranged(&[0, 1]), lane);
        // What begins in the first half goes on in the second one, and is cut at the end.
        let twice = lane.rearranged(&[0, 0]);
        assert_eq!(
            list(&twice),
            [(0, vec![(7, 5)]), (45, vec![(7, 10)]), (55, vec![(7, 5)]), (95, vec![(7, 5)])]
        );
        assert_eq!((twice.from_ns(), twice.span_ns()), (1_000, 100));
        assert_eq!(list(&lane.rearranged(&[1, 0]))[0], (7, vec![(7, 3)]));
        assert_eq!(lane.rearranged(&[]).len(), 0);
    }

    fn list(timeline: &Timeline) -> Vec<(i64, i64)> {
        (0..timeline.len())
            .map(|i| (timeline.start(i), timeline.end(i) - timeline.start(i)))
            .collect()
    }

    #[test]
    fn what_becomes_longer_delays_what_follows() {
        let mut lane = Composed::new(100, 1000);
        for start in [150, 200, 900] {
            lane.push(start, 10, [(1, 4), (2, 6)]).unwrap();
        }
        assert_eq!(lane.changed(|_| ()), lane);
        let longer = lane.changed(|parts| parts[0].1 = 60);
        let mut told = Vec::new();
        longer.for_each(|start, parts| told.push((start, parts.to_vec())));
        let parts = vec![(1, 60), (2, 6)];
        assert_eq!(told, [(50, parts.clone()), (116, parts.clone()), (800, parts)]);
        let beyond = lane.changed(|parts| parts[1].1 = u64::MAX);
        assert_eq!((beyond.span_ns(), beyond.len()), (1000, 1));
        assert!(lane.changed(|parts| parts.fill((1, 0))).is_empty());
    }

    #[test]
    fn what_a_source_took_in_a_detour_is_told_once() {
        let mut lane = Composed::new(100, 1000);
        lane.push(150, 10, [(1, 3), (2, 4), (1, 2)]).unwrap();
        lane.push(300, 5, [(2, 9)]).unwrap();
        let mut told = Vec::new();
        lane.for_each(|start, parts| told.push((start, parts.to_vec())));
        assert_eq!(told, [(50, vec![(1, 5), (2, 4), (UNKNOWN, 1)]), (200, vec![(2, 5)])]);
    }

    #[test]
    fn a_detour_of_centuries_is_refused_before_it_takes_memory() {
        for (start, length) in [(0, u64::MAX), (u64::MAX, 1), (1_000, 1 << 62)] {
            let mut lane = Composed::new(0, 0);
            let refused = lane.push(start, length, [(0, length)]);
            let ps = 1_000 * (i128::from(start) + i128::from(length));
            assert_eq!(refused, Err(TimelineError::TooLong { ps }));
            assert!(lane.is_empty() && lane.parts.is_empty());
        }
        let refused = Composed::new(0, u64::MAX).timeline().unwrap_err().to_string();
        assert!(refused.starts_with("a span of 18446744073.709551615s is too long"), "{refused}");
    }

    #[test]
    fn a_detour_without_a_source_begins_when_it_began_and_is_shorter() {
        let mut lane = Composed::new(1_000, 500);
        lane.push(1_100, 50, [(0, 20), (1, 10), (0, 5)]).unwrap();
        lane.push(1_200, 30, [(1, 30)]).unwrap();
        assert_eq!(list(&lane.timeline().unwrap()), [(100_000, 50_000), (200_000, 30_000)]);
        let without = lane.without(&[false, true]).unwrap();
        assert_eq!(list(&without), [(100_000, 40_000)]);
        assert_eq!(without.span(), 500_000);
        // 15 of the first are unattributed: they stay.
        assert_eq!(list(&lane.without(&[true, true]).unwrap()), [(100_000, 15_000)]);
        let mut accounts = [Taken::default(); 2];
        lane.account(&[0, 1], &mut accounts);
        assert_eq!(accounts[0], Taken { detours: 1, ns: 25, longest_ns: 25 });
        assert_eq!(accounts[1], Taken { detours: 2, ns: 40, longest_ns: 30 });
        // Two sources in one group are in one detour once.
        let mut together = [Taken::default(); 1];
        lane.account(&[0, 0], &mut together);
        assert_eq!(together[0], Taken { detours: 2, ns: 65, longest_ns: 35 });
    }

    #[test]
    fn a_part_of_a_lane_has_its_own_beginning_and_end() {
        let mut lane = Composed::new(1_000, 500);
        for (start, len) in [(1_090, 20), (1_100, 50), (1_200, 30), (1_390, 20)] {
            lane.push(start, len, [(0, len)]).unwrap();
        }
        let part = lane.within(1_100, 1_400);
        assert_eq!((part.from_ns(), part.span_ns()), (1_100, 300));
        assert_eq!(list(&part.timeline().unwrap()), [(0, 50_000), (100_000, 30_000)]);
        assert_eq!(part.total_ns(), 80);
    }

    #[test]
    fn what_is_left_of_a_detour_is_shared_in_the_order_of_time() {
        let mut lane = Composed::new(0, 500);
        lane.push(100, 50, [(0, 20), (1, 10), (0, 5), (0, 5)]).unwrap();
        lane.push(200, 30, [(1, 30)]).unwrap();
        lane.push(300, 10, [(2, 10)]).unwrap();
        let told = |timeline: &Timeline, detour: usize| {
            let mut told = Vec::new();
            let length = timeline.end(detour) - timeline.start(detour);
            timeline.origin().tell(detour, length, |source, ps| told.push((source, ps)));
            told
        };
        let all = lane.shared_without(&[], &[7, 8]).unwrap();
        assert_eq!(told(&all, 0), [(7, 20_000), (8, 10_000), (7, 10_000), (UNKNOWN, 10_000)]);
        // Nothing remains of the second, so the third is now the second; its source has no number.
        let without = lane.shared_without(&[false, true], &[7, 8]).unwrap();
        assert_eq!(list(&without), list(&lane.without(&[false, true]).unwrap()));
        assert_eq!(told(&without, 0), [(7, 20_000), (7, 10_000), (UNKNOWN, 10_000)]);
        assert_eq!(told(&without, 1), [(UNKNOWN, 10_000)]);
    }

    #[test]
    fn long_parts_and_parts_that_contradict_the_detour_are_taken_care_of() {
        let mut lane = Composed::new(0, 0);
        let hour = 3_600_000_000_000;
        lane.push(5, hour, [(0, hour - 7), (1, hour)]).unwrap();
        assert_eq!(list(&lane.timeline().unwrap()), [(5_000, hour as i64 * 1_000)]);
        assert_eq!(list(&lane.without(&[true]).unwrap()), [(5_000, 7_000)]);
        assert_eq!(lane.span_ns(), hour + 5);
    }

    proptest! {
        #[test]
        fn what_is_removed_and_what_is_left_add_up(
            detours in prop::collection::vec((1u64..100, prop::collection::vec((0u32..4, 1u64..50), 0..5), 0u64..20), 0..30),
            removed in prop::collection::vec(any::<bool>(), 4),
        ) {
            let mut lane = Composed::new(0, 1);
            let (mut at, mut whole) = (0, 0);
            for (gap, parts, nobody) in detours {
                let len = parts.iter().map(|&(_, ns)| ns).sum::<u64>() + nobody;
                lane.push(at + gap, len, parts).unwrap();
                at += gap + len;
                whole += len;
            }
            let left: i64 = list(&lane.without(&removed).unwrap()).iter().map(|d| d.1).sum();
            let taken: u64 = lane.only(&removed).map(|d| d.1).sum();
            prop_assert_eq!(left as u64 / 1_000 + taken, whole);
            let mut accounts = [Taken::default(); 4];
            lane.account(&[0, 1, 2, 3], &mut accounts);
            let summed: u64 =
                accounts.iter().zip(&removed).filter(|(_, r)| **r).map(|(a, _)| a.ns).sum();
            prop_assert_eq!(summed, taken);
        }
    }
}
