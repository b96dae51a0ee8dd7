//! The noise of one rank: a timeline and the rank's offset in it. All three models answer the same
//! question: when does work begun at a given time end?

use thiserror::Error;

use super::{Timeline, timeline::MAX_SPAN};

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WorkError {
    #[error(
        "the run is longer than the noise trace ({}), which would repeat; record longer, simulate \
         a shorter run, or pass --repeat-trace",
        in_words(*span_ps)
    )]
    TraceTooShort { span_ps: i64 },
    #[error("the run exceeds 50 days of simulated time; simulate a shorter run")]
    Overflow,
    #[error(
        "an operation of {} is not shorter than the noise trace ({}), which the loggopsim model \
         does not support; record longer, or use --noise-model preempt",
        in_words(*length_ps),
        in_words(*trace_ps)
    )]
    LongerThanTrace { length_ps: i64, trace_ps: i64 },
}

/// Picoseconds in a readable unit, for messages.
fn in_words(ps: i64) -> String {
    match ps as f64 {
        ps if ps >= 1e12 => format!("{:.3} s", ps / 1e12),
        ps if ps >= 1e9 => format!("{:.3} ms", ps / 1e9),
        ps => format!("{:.3} us", ps / 1e6),
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Local<'a> {
    timeline: &'a Timeline,
    /// Position in the timeline at time 0.
    offset: i64,
    /// Last time for which the noise is defined.
    limit: i64,
}

impl<'a> Local<'a> {
    /// With `repeat` a run may be longer than the timeline.
    pub fn new(timeline: &'a Timeline, offset: i64, repeat: bool) -> Local<'a> {
        debug_assert!((0..timeline.span()).contains(&offset));
        let repeat = repeat || timeline.is_endless();
        Local { timeline, offset, limit: if repeat { MAX_SPAN } else { timeline.span() } }
    }

    pub(super) fn timeline(&self) -> &'a Timeline {
        self.timeline
    }

    fn check(&self, time: i64) -> Result<i64, WorkError> {
        if time <= self.limit {
            return Ok(time);
        }
        if self.limit == MAX_SPAN {
            return Err(WorkError::Overflow);
        }
        Err(WorkError::TraceTooShort { span_ps: self.timeline.span() })
    }

    /// Exact preemption: work begun at `time` is interrupted by each detour and continues after it.
    /// Work that ends as a detour begins is not hit by it; nothing begins inside a detour.
    pub fn preempt(&self, time: i64, work: i64) -> Result<i64, WorkError> {
        self.at(time).work(time, work)
    }

    /// Until when work that begins at `time` or later meets no detour; before `time` if it is inside
    /// one. Never beyond the limit, so that comparing with it detects that as well.
    pub fn clear_until(&self, time: i64) -> i64 {
        self.at(time).clear_until(time)
    }

    /// When work begun at `time` ends, as in [`Local::preempt`], and when the rank is known to be clear of detours.
    pub fn preempt_and_clear(&self, time: i64, work: i64) -> Result<(i64, Clear), WorkError> {
        self.at(time).work_and_clear(time, work)
    }

    /// A walk through the detours from a given time.
    #[inline]
    pub fn at(&self, time: i64) -> Cursor<'a> {
        let span = self.timeline.span();
        let position = time + self.offset;
        // Division only if a run has wrapped around the trace.
        let position = if position < span { position } else { position % span };
        let next = self.timeline.first_after(position);
        Cursor { local: *self, next, turn: time - position }
    }

    /// LogGOPSim's rule: the rest of the detour at the start, and all of each that begins within the
    /// nominal length. The span is the start of the last detour, the position wraps at the span minus
    /// the length, and the first detour only counts from inside.
    pub fn loggopsim(&self, time: i64, work: i64) -> Result<i64, WorkError> {
        self.loggopsim_telling(time, work, |_, _| {})
    }

    /// [`Local::loggopsim`], reporting each detour and how much of it counts.
    #[inline(always)]
    pub(super) fn loggopsim_telling(
        &self,
        time: i64,
        work: i64,
        mut tell: impl FnMut(usize, i64),
    ) -> Result<i64, WorkError> {
        let trace = self.timeline.last_start();
        if work >= trace {
            return Err(WorkError::LongerThanTrace { length_ps: work, trace_ps: trace });
        }
        let position = (time + self.offset) % (trace - work);
        let mut next = self.timeline.first_after(position);
        let mut noise = 0;
        if next < self.timeline.len()
            && self.timeline.start(next) <= position
            && position > self.timeline.start(0)
        {
            let rest = self.timeline.end(next) - position;
            tell(next, rest);
            noise += rest;
            next += 1;
        }
        // The first detour does not count from before.
        next = next.max(1);
        while next < self.timeline.len() && self.timeline.start(next) < position + work {
            if self.timeline.start(next) >= position {
                let whole = self.timeline.end(next) - self.timeline.start(next);
                tell(next, whole);
                noise += whole;
            }
            next += 1;
        }
        self.check(time + work + noise)
    }
}

/// No detour between these times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clear {
    pub from: i64,
    pub until: i64,
}

/// What a piece of work meets.
pub(super) enum Met {
    /// A detour of the timeline, from this time (or from when the work began in it) to that.
    Detour { index: usize, from: i64, to: i64 },
    /// All detours, this many times.
    Turns(i64),
}

/// A position in a rank's noise that moves forward: consecutive pieces of work need one lookup.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    local: Local<'a>,
    /// The first detour that has not ended; the number of detours if there is none.
    next: usize,
    /// When the current turn of the timeline began.
    turn: i64,
}

/// Beyond this many detours a new lookup is faster than walking on.
const NEAR: usize = 4;

impl<'a> Cursor<'a> {
    /// The same rank at any time.
    pub fn moved_to(&self, time: i64) -> Cursor<'a> {
        self.local.at(time)
    }

    /// [`Local::preempt_and_clear`] from here: one lookup for both. The next work may begin at the start of what is
    /// clear, or later.
    pub fn work_and_clear(&mut self, time: i64, work: i64) -> Result<(i64, Clear), WorkError> {
        let done = self.work(time, work)?;
        let from = if done == time + work { time } else { done };
        Ok((done, Clear { from, until: self.clear_until(from) }))
    }

    /// Moves to a time no earlier than the last one.
    #[inline]
    fn seek(&mut self, time: i64) {
        let timeline = self.local.timeline;
        let near = self.next + NEAR;
        let this_turn = time - self.turn < timeline.span();
        while this_turn && self.next < near {
            if self.next == timeline.len() || self.turn + timeline.end(self.next) > time {
                return;
            }
            self.next += 1;
        }
        *self = self.local.at(time);
    }

    /// [`Local::preempt`] from here.
    pub fn work(&mut self, time: i64, work: i64) -> Result<i64, WorkError> {
        self.work_telling(time, work, |_| {})
    }

    /// [`Cursor::work`], reporting what it meets.
    #[inline(always)]
    pub(super) fn work_telling(
        &mut self,
        time: i64,
        work: i64,
        mut tell: impl FnMut(Met),
    ) -> Result<i64, WorkError> {
        self.seek(time);
        let timeline = self.local.timeline;
        let (mut now, mut left) = (time, work);
        loop {
            if self.next == timeline.len() {
                if timeline.is_empty() {
                    break;
                }
                // Whole turns at once: each does the same amount of work.
                let turns = (left - 1).max(0) / timeline.free();
                left -= turns * timeline.free();
                if turns > 0 {
                    tell(Met::Turns(turns));
                }
                now = self.after(now, turns)?;
                // Saturates: the check of `now` below catches times beyond the limit.
                let turn = self.turn.saturating_add(timeline.span().saturating_mul(turns));
                let start = turn.saturating_add(timeline.span()).saturating_add(timeline.start(0));
                if now + left <= start {
                    self.turn = turn;
                    break;
                }
                self.turn = turn + timeline.span();
                self.next = 0;
            }
            let start = self.turn + timeline.start(self.next);
            if now + left <= start {
                break;
            }
            left -= (start - now).max(0);
            let end = self.turn + timeline.end(self.next);
            tell(Met::Detour { index: self.next, from: now.max(start), to: end });
            now = end;
            self.next += 1;
            self.local.check(now)?;
        }
        self.local.check(now + left)
    }

    /// [`Local::clear_until`] from here.
    pub fn clear_until(&mut self, time: i64) -> i64 {
        self.seek(time);
        let timeline = self.local.timeline;
        let start = if self.next < timeline.len() {
            self.turn + timeline.start(self.next)
        } else if timeline.is_empty() {
            self.local.limit
        } else {
            self.turn + timeline.span() + timeline.start(0)
        };
        start.min(self.local.limit)
    }

    /// The time this many turns later.
    fn after(&self, time: i64, turns: i64) -> Result<i64, WorkError> {
        let span = self.local.timeline.span();
        let later = turns.checked_mul(span).and_then(|by| by.checked_add(time));
        self.local.check(later.unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn timeline(list: &[(i64, i64)], span: i64) -> Timeline {
        Timeline::new(list.iter().copied(), span).unwrap()
    }

    #[test]
    fn work_goes_on_after_each_detour_and_round_the_end_of_the_trace() {
        let trace = timeline(&[(100, 50), (200, 50)], 300);
        let at = |offset| Local::new(&trace, offset, true);
        assert_eq!(at(0).preempt(0, 100), Ok(100));
        assert_eq!(at(0).preempt(0, 101), Ok(151));
        assert_eq!(at(0).preempt(0, 151), Ok(251));
        assert_eq!(at(120).preempt(0, 10), Ok(40));
        assert_eq!(at(250).preempt(0, 150), Ok(150));
        assert_eq!(at(250).preempt(0, 151), Ok(201));
        assert_eq!(at(0).preempt(0, 400), Ok(600));
        assert_eq!(at(0).clear_until(0), 100);
        assert_eq!(at(0).clear_until(120), 100);
        assert_eq!(at(0).clear_until(150), 200);
        assert_eq!(at(0).clear_until(260), 400);
    }

    #[test]
    fn a_second_of_work_under_periodic_noise_takes_a_ninth_more_however_it_is_cut() {
        let trace = Timeline::periodic(1_000_000_000, 100_000_000).unwrap();
        let local = Local::new(&trace, 100_000_000, false);
        let second = 1_000_000_000_000;
        let whole = local.preempt(0, second).unwrap();
        assert_eq!(whole, 1_111_100_000_000);
        let mut now = 0;
        for _ in 0..100_000 {
            now = local.preempt(now, second / 100_000).unwrap();
        }
        assert_eq!(now, whole);
    }

    #[test]
    fn a_run_longer_than_the_trace_is_refused_unless_asked_for() {
        let trace = timeline(&[(100, 50)], 300);
        assert_eq!(
            Local::new(&trace, 0, false).preempt(0, 251),
            Err(WorkError::TraceTooShort { span_ps: 300 })
        );
        assert_eq!(Local::new(&trace, 0, true).preempt(0, 251), Ok(301));
        assert!(Local::new(&trace, 0, false).clear_until(200) <= 300);
    }

    #[test]
    fn the_peer_adds_what_its_nominal_window_meets() {
        let trace = timeline(&[(10, 5), (100, 50), (200, 50), (1000, 1)], 1001);
        let local = Local::new(&trace, 0, true);
        assert_eq!(local.loggopsim(90, 10), Ok(100));
        assert_eq!(local.loggopsim(90, 11), Ok(151));
        assert_eq!(local.loggopsim(120, 10), Ok(160));
        // The window is not extended by the noise in it.
        assert_eq!(local.loggopsim(90, 60), Ok(200));
        assert_eq!(local.loggopsim(90, 111), Ok(301));
        assert_eq!(local.loggopsim(0, 50), Ok(50));
        assert_eq!(local.loggopsim(12, 50), Ok(65));
        assert!(local.loggopsim(0, 1000).is_err());
    }

    proptest! {
        #[test]
        fn nothing_is_met_before_the_time_that_is_said_to_be_clear(
            gaps in prop::collection::vec((0i64..100, 1i64..50), 1..20),
            tail in 1i64..50, offset in 0i64..1000, time in 0i64..3000, work in 0i64..200,
        ) {
            let mut at = 0;
            let mut list = Vec::new();
            for (gap, length) in gaps {
                list.push((at + gap, length));
                at += gap + length;
            }
            let trace = timeline(&list, at + tail);
            let local = Local::new(&trace, offset % trace.span(), true);
            let done = local.preempt(time, work).unwrap();
            let clear = local.clear_until(time);
            prop_assert_eq!(done == time + work && done <= clear, time + work <= clear);
            // In one piece or split, from here or from the split.
            let first = local.preempt(time, work / 2).unwrap();
            prop_assert_eq!(local.preempt(first, work - work / 2).unwrap(), done);
            // One walk finds what two lookups find, also if it goes on from there.
            let mut cursor = local.at(time);
            for more in [work, 7, work / 3, 0, 150] {
                let (done, found) = cursor.work_and_clear(time, more).unwrap();
                prop_assert_eq!(done, local.preempt(time, more).unwrap());
                let from = if done == time + more { time } else { done };
                prop_assert_eq!(found, Clear { from, until: local.clear_until(from) });
                cursor = cursor.moved_to(time);
                let (later, begin) = (local.preempt(found.from, more), found.from);
                let mut goes_on = local.at(time);
                goes_on.work_and_clear(time, more).unwrap();
                prop_assert_eq!(goes_on.work_and_clear(begin, more).map(|(done, _)| done), later);
            }
        }
    }
}
