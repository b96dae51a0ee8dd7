//! Composes the detours and kernel records of one CPU.
//!
//! The input is detours as seen by the probe and records as sent by the kernel, both in nanoseconds on
//! one clock. The output is events for the trace, where the parts of every detour add up to its length:
//! the net time of each record, the entry and exit cost around it that no tracepoint covers, and the
//! rest, which nothing in the kernel explains.
//!
//! The gaps between a detour's edge and its records are entry and exit cost up to their usual length
//! (see [`crate::pipeline::gaps`]); the excess was taken by something outside the kernel at the same time, for
//! example a hypervisor.
//!
//! A detour becomes visible only after all its records were sent, since the same CPU did both; so a
//! record is settled as soon as a later detour is known.

use std::collections::{HashMap, VecDeque};

use trace::{Class, Detour, Record, RecordFlags, SourceId, Wait};

use crate::pipeline::{
    folded::{Older, Sum, Sums},
    gaps::{Edge, GapModel},
};

/// A named record, before it is known which detour it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    pub class: Class,
    pub record: Record,
}

impl Named {
    pub fn end(&self) -> u64 {
        self.record.start_ns.saturating_add(self.record.gross_ns)
    }

    fn middle(&self) -> u64 {
        self.record.start_ns + self.record.gross_ns / 2
    }
}

/// Receives the events as they are settled.
pub trait Sink {
    /// A record outside detours.
    fn lone(&mut self, record: Record);
    /// A detour and its records.
    fn detour(&mut self, detour: Detour, records: &[Record]);
}

/// The two clocks agree to a few nanoseconds; a record this far outside a detour still belongs to it.
const SLOP_NS: u64 = 100;

/// Records of one detour, beyond which those already on other lanes are joined by source.
const MAX_COMPOSED: usize = 1 << 12;

/// A time in which the probe was off its CPU: a detour, unless it was shorter than the threshold.
struct Away {
    from: u64,
    /// None until the probe has been seen on the CPU again.
    to: Option<u64>,
    /// Its first records, if there were too many.
    sums: Sums,
}

pub struct Matcher {
    cpu: u16,
    pending: VecDeque<Named>,
    /// How many records may wait for a detour.
    room: usize,
    /// Oldest first.
    away: VecDeque<Away>,
    composer: Composer,
}

impl Matcher {
    /// Of a CPU, with room for this many records.
    pub fn new(cpu: u16, room: usize) -> Matcher {
        let (pending, away, composer) = Default::default();
        Matcher { cpu, pending, room, away, composer }
    }

    /// Adds a record, in the order sent by the kernel.
    pub fn record(&mut self, named: Named, sink: &mut impl Sink) {
        let baseline = named.record.flags.contains(RecordFlags::BASELINE);
        if baseline {
            self.ran(named.record.start_ns, named.end());
        }
        // A fault that slept has no CPU time of its own; the records of its thread contain it.
        let slept =
            named.class == Class::PageFault && named.record.flags.contains(RecordFlags::CUT_SHORT);
        if slept || baseline {
            sink.lone(named.record);
            return;
        }
        if self.pending.len() >= self.room
            && let Some(oldest) = self.pending.pop_front()
        {
            self.give_up(&oldest, sink);
        }
        // Nearly always the last to end; a point that was noticed late belongs further ahead.
        let mut at = self.pending.len();
        while at > 0 && self.pending[at - 1].end() > named.end() {
            at -= 1;
        }
        self.pending.insert(at, named);
    }

    /// The probe was on its CPU between two times.
    fn ran(&mut self, from: u64, to: u64) {
        self.was_on(from, from);
        if self.away.len() >= self.room {
            self.away.pop_front();
        }
        self.away.push_back(Away { from: to, to: None, sums: Sums::default() });
    }

    /// The probe was on its CPU at some time between these two.
    pub fn was_on(&mut self, from: u64, to: u64) {
        if let Some(away) = self.away.back_mut().filter(|away| away.from <= from) {
            away.to.get_or_insert(to);
        }
    }

    /// Sends a record on its own for lack of room. If the probe was off its CPU, its time is added to
    /// the detour in which it lies.
    fn give_up(&mut self, named: &Named, sink: &mut impl Sink) {
        let middle = named.middle();
        let index = self.away.partition_point(|away| away.from <= middle.saturating_add(SLOP_NS));
        let away = index.checked_sub(1).and_then(|index| self.away.get_mut(index));
        match away.filter(|away| away.to.is_none_or(|to| middle <= to)) {
            Some(away) => {
                away.sums.add(named);
                let flags = named.record.flags.with(RecordFlags::SUMMED);
                sink.lone(Record { cost_ns: 0, flags, ..named.record });
            }
            None => sink.lone(named.record),
        }
    }

    /// Adds a detour, in time order.
    pub fn detour(&mut self, start: u64, end: u64, sink: &mut impl Sink) {
        let mut kept = 0;
        // Records come in order of their ends, so the relevant ones are at the front; the first that
        // lies completely after the detour ends the search.
        while kept < self.pending.len() {
            let named = self.pending[kept];
            if named.record.start_ns > end.saturating_add(SLOP_NS) {
                break;
            }
            let middle = named.middle();
            if middle.saturating_add(SLOP_NS) < start {
                sink.lone(named.record);
                self.pending.remove(kept);
            } else if middle <= end.saturating_add(SLOP_NS) {
                self.composer.add(named);
                self.pending.remove(kept);
            } else {
                kept += 1;
            }
        }
        let inside = |away: &&mut Away| {
            away.from.saturating_add(SLOP_NS) >= start && away.from <= end.saturating_add(SLOP_NS)
        };
        let mut sums = self.away.iter_mut().filter(inside);
        if let Some((to, whole)) = sums.find_map(|away| std::mem::take(&mut away.sums).take()) {
            // Each of them is an event of its own already.
            let older = Older { cpu: self.cpu, to, whole, ..Older::default() };
            self.composer.add_older(older, true);
        }
        self.composer.compose(start, end, sink);
    }

    /// All detours up to `settled` are known: releases records that ended more than `longest` before.
    /// If the probe was still off its CPU, its detour is not known yet, however long it is.
    pub fn forget_before(&mut self, settled: u64, longest: u64, sink: &mut impl Sink) {
        while let Some(away) = self.away.front()
            && away.to.is_some_and(|to| to <= settled)
        {
            self.away.pop_front();
        }
        let open = self.away.front().map_or(u64::MAX, |away| away.from.saturating_sub(SLOP_NS));
        let time = settled.saturating_sub(longest).min(open);
        while let Some(oldest) = self.pending.front() {
            if oldest.end() >= time {
                break;
            }
            sink.lone(oldest.record);
            self.pending.pop_front();
        }
    }

    /// Everything still waiting is outside detours; what began after the probe had ended is dropped.
    pub fn finish(&mut self, ended: u64, sink: &mut impl Sink) {
        for named in self.pending.drain(..).filter(|named| named.record.start_ns < ended) {
            sink.lone(named.record);
        }
    }
}

/// Attributes the time of a detour to its records.
#[derive(Default)]
pub struct Composer {
    gaps: GapModel,
    chosen: Vec<Named>,
    composed: Vec<Record>,
    /// What the first part of the next detour is made of, if its records are gone.
    older: Option<Older>,
    /// The records behind it are elsewhere in the file.
    counted: bool,
    /// Shorter intervals are not detours; their records stand alone.
    pub shortest_ns: u64,
}

impl Composer {
    /// Adds a record to the next detour, in any order.
    pub fn add(&mut self, named: Named) {
        self.chosen.push(named);
    }

    /// Adds what is known about the time before the records of the next detour; `counted` if the records
    /// behind it are in the file on their own.
    pub fn add_older(&mut self, older: Older, counted: bool) {
        (self.older, self.counted) = (Some(older), counted);
    }

    /// Composes the records added since the last call into a detour from `start` to `end`.
    pub fn compose(&mut self, start: u64, end: u64, sink: &mut impl Sink) {
        self.compose_wait(start, end, Wait::None, sink);
    }

    /// The same for a wait of this kind.
    pub fn compose_wait(&mut self, start: u64, end: u64, wait: Wait, sink: &mut impl Sink) {
        if end - start < self.shortest_ns {
            for named in self.chosen.drain(..) {
                sink.lone(Record { cost_ns: 0, ..named.record });
            }
            self.older = None;
            return;
        }
        let outside_ns = self.attribute(start, end);
        if self.composed.len() > MAX_COMPOSED {
            self.join_repeated();
        }
        let detour = Detour {
            start_ns: start,
            len_ns: end - start,
            outside_ns,
            records: self.composed.len() as u32,
            wait,
        };
        sink.detour(detour, &self.composed);
        self.chosen.clear();
    }

    /// Joins records that are already on another lane, one per source: otherwise hundreds of threads
    /// that wait for the same CPU would write everything that happens there hundreds of times.
    fn join_repeated(&mut self) {
        let mut first: HashMap<SourceId, usize> = HashMap::new();
        let mut kept: Vec<Record> = Vec::new();
        for record in self.composed.drain(..) {
            if !record.flags.contains(RecordFlags::REPEATED) {
                kept.push(record);
                continue;
            }
            match first.get(&record.source) {
                Some(&at) => {
                    let sum = &mut kept[at];
                    sum.gross_ns = sum.gross_ns.saturating_add(record.gross_ns);
                    sum.net_ns = sum.net_ns.saturating_add(record.net_ns);
                    sum.cost_ns = sum.cost_ns.saturating_add(record.cost_ns);
                    sum.flags = sum.flags.with(RecordFlags::SUMMED);
                }
                None => {
                    first.insert(record.source, kept.len());
                    kept.push(record);
                }
            }
        }
        self.composed = kept;
    }

    /// Returns the unexplained time.
    fn attribute(&mut self, start: u64, end: u64) -> u64 {
        self.composed.clear();
        // Parents before children that began in the same nanosecond.
        self.chosen.sort_by_key(|n| (n.record.start_ns, n.record.depth, u64::MAX - n.end()));
        let older = self.older.take();
        let known_to = older.as_ref().map_or(start, |older| older.to.clamp(start, end));
        // Records explain what comes after the first of them, and the sums what is before.
        let first = self.chosen.first().map_or(end, |first| first.record.start_ns);
        let mut outside = 0;
        let mut cursor = first.clamp(start, known_to);
        let front = cursor - start;
        // Where they can have been nested: in what began before the sums end.
        let mut outer = Vec::new();
        let mut before = Edge::Border;
        let mut last_top = 0;
        let mut at = 0;
        while at < self.chosen.len() {
            let top = self.chosen[at];
            last_top = self.composed.len();
            // Records nested in it follow directly.
            let mut after = at + 1;
            while after < self.chosen.len() && self.chosen[after].end() <= top.end() {
                after += 1;
            }
            let from = top.record.start_ns.clamp(cursor, end);
            let to = top.end().clamp(from, end);
            let (entry, beyond) =
                self.gaps.split(before, Edge::Of(top.class, is_point(&top)), from - cursor);
            outside += beyond;
            let mut room = to - from;
            for nested in &self.chosen[at + 1..after] {
                let part = nested.record.net_ns.min(room);
                room -= part;
                self.composed.push(in_detour(nested, part));
            }
            // What the nested ones leave is its own: its net time, except for clipped edges.
            self.composed.insert(last_top, in_detour(&top, room + entry));
            if from < known_to {
                outer.push((last_top, room.min(known_to - from)));
            }
            cursor = to;
            before = Edge::Of(top.class, is_point(&top));
            at = after;
        }
        outside += match before {
            Edge::Border => end - cursor,
            last => {
                let (exit, beyond) = self.gaps.split(last, Edge::Border, end - cursor);
                self.composed[last_top].cost_ns += exit;
                beyond
            }
        };
        match older {
            Some(older) => outside + self.explain_front(&older, start, front, &outer),
            None => outside,
        }
    }

    /// Attributes the time at the front of a detour, and what was nested in its first records (by index,
    /// with their time there), to sums. Returns the unexplained time.
    fn explain_front(
        &mut self,
        older: &Older,
        start: u64,
        front: u64,
        outer: &[(usize, u64)],
    ) -> u64 {
        let room = outer.iter().fold(front, |room, (_, ns)| room + ns);
        let whole: u64 = older.whole.iter().map(|sum| sum.ns).sum();
        let share: u64 = older.partly.iter().map(|(sum, _)| sum.ns).sum();
        let most: u64 = older.partly.iter().map(|(_, most)| most).sum();
        // Something ran all the time. So where it is uncertain how much of it was inside, it fills what
        // the rest does not explain.
        let partly = front.saturating_sub(whole).clamp(share.min(most), most);
        let mut sums = older.whole.clone();
        let scaled = |(sum, of): &(Sum, u64)| Sum { ns: part_of(partly, *of, most), ..*sum };
        sums.extend(older.partly.iter().map(scaled));
        let all: u64 = sums.iter().map(|sum| sum.ns).sum();
        let total = all.min(room);
        let mut rest = total.saturating_sub(front);
        for &(index, ns) in outer {
            let part = rest.min(ns);
            self.composed[index].cost_ns -= part;
            rest -= part;
        }
        let (mut sum_to, mut cost_to) = (0, 0);
        let records = sums.into_iter().map(|sum| {
            sum_to += sum.ns;
            // The difference of rounded sums: the parts add up exactly.
            let cost_ns = part_of(total, sum_to, all) - cost_to;
            cost_to += cost_ns;
            Record {
                start_ns: start,
                gross_ns: cost_ns,
                net_ns: if self.counted { 0 } else { cost_ns },
                cost_ns,
                source: sum.source,
                cpu: older.cpu,
                depth: 0,
                flags: RecordFlags::IN_DETOUR.with(RecordFlags::SUMMED),
            }
        });
        let records: Vec<Record> = records.filter(|record| record.cost_ns > 0).collect();
        self.composed.splice(0..0, records);
        front.saturating_sub(total)
    }
}

/// `whole * part / of`.
fn part_of(whole: u64, part: u64, of: u64) -> u64 {
    (u128::from(whole) * u128::from(part) / u128::from(of.max(1))) as u64
}

fn is_point(named: &Named) -> bool {
    named.record.flags.contains(RecordFlags::POINT)
}

fn in_detour(named: &Named, cost: u64) -> Record {
    Record { cost_ns: cost, flags: named.record.flags.with(RecordFlags::IN_DETOUR), ..named.record }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use trace::SourceId;

    use super::*;

    #[derive(Default)]
    pub(crate) struct Collect {
        pub(crate) lone: Vec<Record>,
        pub(crate) detours: Vec<(Detour, Vec<Record>)>,
    }

    impl Sink for Collect {
        fn lone(&mut self, record: Record) {
            self.lone.push(record);
        }

        fn detour(&mut self, detour: Detour, records: &[Record]) {
            self.detours.push((detour, records.to_vec()));
        }
    }

    pub(crate) fn named(class: Class, start: u64, gross: u64, net: u64, depth: u8) -> Named {
        Named {
            class,
            record: Record {
                start_ns: start,
                gross_ns: gross,
                net_ns: net,
                cost_ns: net,
                source: SourceId(class as u32),
                cpu: 0,
                depth,
                flags: RecordFlags::default(),
            },
        }
    }

    #[test]
    fn a_tick_gets_its_net_time_and_its_entry_and_exit() {
        let (mut matcher, mut sink) = (Matcher::new(0, 1 << 12), Collect::default());
        matcher.record(named(Class::Timer, 1_500, 3_000, 3_000, 1), &mut sink);
        matcher.detour(1_000, 5_500, &mut sink);
        let (detour, records) = &sink.detours[0];
        assert_eq!((detour.len_ns, detour.outside_ns), (4_500, 0));
        assert_eq!(records[0].cost_ns, 4_500);
    }

    #[test]
    fn what_nests_is_subtracted_once() {
        let (mut matcher, mut sink) = (Matcher::new(0, 1 << 12), Collect::default());
        matcher.record(named(Class::Timer, 20_000, 2_000, 2_000, 1), &mut sink);
        matcher.record(named(Class::Thread, 10_000, 50_000, 48_000, 0), &mut sink);
        matcher.detour(9_000, 61_000, &mut sink);
        let (detour, records) = &sink.detours[0];
        assert_eq!(detour.records, 2);
        assert_eq!(records[0].cost_ns, 48_000 + 1_000 + 1_000);
        assert_eq!(records[1].cost_ns, 2_000);
    }

    #[test]
    fn a_steal_with_a_tick_inside_is_still_outside_the_kernel() {
        let (mut matcher, mut sink) = (Matcher::new(0, 1 << 12), Collect::default());
        for i in 0..100 {
            let t = i * 4_000_000;
            matcher.record(named(Class::Timer, t + 500, 3_000, 3_000, 1), &mut sink);
            matcher.detour(t, t + 4_500, &mut sink);
        }
        let t = 400_000_000;
        matcher.record(named(Class::Timer, t + 4_000_000, 3_000, 3_000, 1), &mut sink);
        matcher.detour(t, t + 4_004_000, &mut sink);
        let (detour, _) = sink.detours.last().unwrap();
        assert!(detour.outside_ns > 3_990_000, "{detour:?}");
    }

    #[test]
    fn a_record_between_detours_is_lone_and_a_later_one_waits() {
        let (mut matcher, mut sink) = (Matcher::new(0, 1 << 12), Collect::default());
        matcher.record(named(Class::Irq, 500, 80, 80, 1), &mut sink);
        matcher.record(named(Class::Irq, 2_100, 500, 500, 1), &mut sink);
        matcher.record(named(Class::Irq, 9_000, 500, 500, 1), &mut sink);
        matcher.detour(2_000, 3_000, &mut sink);
        assert_eq!(sink.lone.len(), 1);
        assert_eq!(sink.detours[0].0.records, 1);
        matcher.finish(u64::MAX, &mut sink);
        assert_eq!(sink.lone.len(), 2);
    }

    #[test]
    fn what_came_after_the_probes_last_reading_is_dropped() {
        let (mut matcher, mut sink) = (Matcher::new(0, 1 << 12), Collect::default());
        matcher.record(named(Class::Irq, 500, 80, 80, 1), &mut sink);
        matcher.record(named(Class::Irq, 2_100, 500, 500, 1), &mut sink);
        matcher.finish(2_000, &mut sink);
        assert_eq!(sink.lone.len(), 1);
    }

    #[test]
    fn a_detour_without_records_is_outside_the_kernel() {
        let (mut matcher, mut sink) = (Matcher::new(0, 1 << 12), Collect::default());
        matcher.detour(100, 350, &mut sink);
        assert_eq!(sink.detours[0].0.outside_ns, 250);
    }

    const MS: u64 = 1_000_000;

    /// The probe runs for a millisecond and is then off its CPU for 3.2 s, with a tick every 4 ms. Records
    /// are forgotten as soon as possible. Returns what is known about the detour.
    fn long_detour(room: usize) -> Collect {
        let (mut matcher, mut sink) = (Matcher::new(0, room), Collect::default());
        let mut baseline = named(Class::Thread, 0, MS, MS, 0);
        baseline.record.flags = RecordFlags::BASELINE;
        matcher.record(baseline, &mut sink);
        for tick in 0..800 {
            let start = MS + tick * 4 * MS;
            matcher.record(named(Class::Timer, start + MS, 3 * MS, 3 * MS, 1), &mut sink);
            matcher.forget_before(start, 2_000 * MS, &mut sink);
        }
        let hog = named(Class::Thread, MS, 3_200 * MS, 800 * MS, 0);
        matcher.record(hog, &mut sink);
        matcher.detour(MS - 500, 3_201 * MS, &mut sink);
        sink
    }

    #[test]
    fn a_detour_is_explained_however_long_it_is() {
        for room in [1 << 12, 100, 1] {
            let sink = long_detour(room);
            let (detour, records) = &sink.detours[0];
            assert_eq!(detour.outside_ns, 0, "{room}");
            let cost = |source: u32| -> u64 {
                let of = records.iter().filter(|record| record.source == SourceId(source));
                of.map(|record| record.cost_ns).sum()
            };
            assert_eq!(cost(Class::Timer as u32), 2_400 * MS, "{room}");
            assert_eq!(cost(Class::Thread as u32), 800 * MS + 500, "{room}");
            // Every tick is in the file once, on its own or in the detour.
            let tick = |r: &&Record| r.source == SourceId(Class::Timer as u32) && !r.is_sum();
            assert_eq!(sink.lone.iter().chain(records).filter(tick).count(), 800, "{room}");
            let alone = sink.lone.iter().filter(tick);
            assert!(alone.clone().all(|record| record.cost_ns == 0), "counted twice");
        }
    }

    #[test]
    fn records_are_released_once_the_probe_has_been_seen_again() {
        let (mut matcher, mut sink) = (Matcher::new(0, 100), Collect::default());
        let mut baseline = named(Class::Thread, 0, MS, MS, 0);
        baseline.record.flags = RecordFlags::BASELINE;
        matcher.record(baseline, &mut sink);
        matcher.record(named(Class::Thread, MS, 10_000, 10_000, 0), &mut sink);
        matcher.forget_before(3_000 * MS, 2_000 * MS, &mut sink);
        assert_eq!(sink.lone.len(), 1, "the detour may still be in progress");
        // It is back, but a detour that ended just before may still have to be settled.
        matcher.was_on(3_100 * MS, 3_101 * MS);
        matcher.forget_before(3_050 * MS, 2_000 * MS, &mut sink);
        assert_eq!(sink.lone.len(), 1);
        matcher.forget_before(3_150 * MS, 2_000 * MS, &mut sink);
        assert_eq!(sink.lone.len(), 2, "it was shorter than the threshold");
    }

    proptest! {
        /// The same with little room, and what is older as sums.
        #[test]
        fn the_parts_add_up_with_sums_too(
            raw in prop::collection::vec((0u64..4_000, 1u64..4_000), 1..60),
            room in 1usize..20,
            late in 0u64..5_000,
        ) {
            let (mut matcher, mut sink) = (Matcher::new(0, room), Collect::default());
            let mut baseline = named(Class::Thread, 0, 1_000, 1_000, 0);
            baseline.record.flags = RecordFlags::BASELINE;
            matcher.record(baseline, &mut sink);
            let mut at = 1_000;
            for &(pause, len) in &raw {
                let class = Class::ALL[(len % 9) as usize];
                matcher.record(named(class, at + pause, len, len, 0), &mut sink);
                at += pause + len;
            }
            matcher.detour(900, at + late, &mut sink);
            let (detour, records) = &sink.detours[0];
            let parts: u64 = records.iter().map(|r| r.cost_ns).sum();
            prop_assert_eq!(parts + detour.outside_ns, detour.len_ns);
        }

        /// The central invariant: nothing is lost and nothing invented, however the clocks disagree.
        #[test]
        fn the_parts_of_a_detour_add_up_to_its_length(
            raw in prop::collection::vec((0u64..20_000, 0u64..4_000, 0u64..5_000, 0u8..3), 0..40),
            detours in prop::collection::vec((1u64..3_000, 1u64..6_000), 1..12),
        ) {
            let (mut matcher, mut sink) = (Matcher::new(0, 1 << 12), Collect::default());
            let mut raw = raw;
            raw.sort_by_key(|r| r.0 + r.1);
            for &(start, gross, net, depth) in &raw {
                let class = Class::ALL[(start % 9) as usize];
                matcher.record(named(class, start, gross, net.min(gross), depth), &mut sink);
            }
            let mut at = 0;
            for (pause, len) in detours {
                at += pause;
                matcher.detour(at, at + len, &mut sink);
                at += len;
            }
            matcher.finish(u64::MAX, &mut sink);
            let mut seen = sink.lone.len();
            for (detour, records) in &sink.detours {
                let parts: u64 = records.iter().map(|r| r.cost_ns).sum();
                prop_assert_eq!(parts + detour.outside_ns, detour.len_ns);
                prop_assert_eq!(records.len(), detour.records as usize);
                seen += records.len();
            }
            prop_assert_eq!(seen, raw.len());
        }
    }
}
