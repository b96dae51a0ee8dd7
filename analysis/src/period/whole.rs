//! The recording the start times are part of: a period must hold for all of it.

use super::{DEAD, gaps, lattice, thinned};

/// Bounds of rate times period: a periodic source occurs about once per period. Below, it pauses, or
/// most occurrences are missed; above, it comes in bursts, or most of its events are unrelated.
const ONCE: std::ops::RangeInclusive<f64> = 0.75..=1.25;
/// The period must hold in each of `PARTS` parts of the recording, or in fewer parts with at least
/// `PART_EVENTS` events.
const PARTS: usize = 8;
const PART_EVENTS: usize = 16;
/// Bounds of rate times period in a part, where chance has more influence.
const IN_PART: std::ops::RangeInclusive<f64> = 0.5..=1.5;
/// Share of all gaps that must be one period long, within a tenth. With two threads that take turns of
/// one or two ticks each, half are three ticks long.
const SINGLE: f64 = 0.6;
/// The same in a part, where there are few gaps.
const SINGLE_IN_PART: f64 = 0.4;

/// Time slices of [`Later`].
const SLICES: usize = 32;
/// Their initial length; a power of two, so that slices of different lengths nest.
const FINEST_NS: u64 = 1 << 26;

/// Events whose start times were not kept, counted per slice of time. Slices double in length as the
/// recording grows, so memory is constant.
#[derive(Clone, Debug)]
pub struct Later {
    slice_ns: u64,
    counts: [u32; SLICES],
}

impl Default for Later {
    fn default() -> Self {
        Later { slice_ns: FINEST_NS, counts: [0; SLICES] }
    }
}

impl Later {
    pub fn add(&mut self, start_ns: u64) {
        while start_ns / self.slice_ns >= SLICES as u64 {
            self.coarsen();
        }
        let count = &mut self.counts[(start_ns / self.slice_ns) as usize];
        *count = count.saturating_add(1);
    }

    pub fn merge(&mut self, other: &Later) {
        let mut other = other.clone();
        while self.slice_ns < other.slice_ns {
            self.coarsen();
        }
        while other.slice_ns < self.slice_ns {
            other.coarsen();
        }
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(more);
        }
    }

    fn coarsen(&mut self) {
        for slice in 0..SLICES {
            self.counts[slice] = match self.counts.get(2 * slice..2 * slice + 2) {
                Some(pair) => pair[0].saturating_add(pair[1]),
                None => 0,
            };
        }
        self.slice_ns *= 2;
    }

    /// Start, end and count of each slice.
    fn slices(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        let length = self.slice_ns as f64;
        self.counts.iter().enumerate().map(move |(slice, &count)| {
            (slice as f64 * length, (slice + 1) as f64 * length, f64::from(count))
        })
    }
}

/// A source on a lane, over the time the lane was watched.
#[derive(Clone, Copy, Debug)]
pub struct Whole<'a> {
    pub from_ns: u64,
    pub to_ns: u64,
    /// All of its events.
    pub events: u64,
    /// Those after the kept start times.
    pub later: Option<&'a Later>,
}

impl Whole<'_> {
    /// Whether the source occurs about once per period, from beginning to end.
    pub fn keeps(&self, starts: &[u64], period: f64) -> bool {
        let length = self.to_ns.saturating_sub(self.from_ns) as f64;
        if length <= 0.0 || !ONCE.contains(&(self.events as f64 * period / length)) {
            return false;
        }
        let times: Vec<f64> = starts.iter().map(|&start| start as f64).collect();
        let Some(&last) = times.last() else { return false };
        let (from, to) = (self.from_ns as f64, self.to_ns as f64);
        if single_gaps(&times, period) < SINGLE {
            return false;
        }
        let kept_to = if self.later.is_some() { last } else { to };
        let parts = (times.len() / PART_EVENTS).clamp(1, PARTS);
        let length = (kept_to - from) / parts as f64;
        let mut rest = times.as_slice();
        for part in 1..=parts {
            let end = if part == parts { f64::INFINITY } else { from + part as f64 * length };
            let (own, after) = rest.split_at(rest.partition_point(|&time| time < end));
            rest = after;
            let steady = parts == 1 || single_gaps(own, period) >= SINGLE_IN_PART;
            if !steady || !is_usual(own.len() as f64, length, period) {
                return false;
            }
        }
        self.later.is_none_or(|later| goes_on(later, last, to, period))
    }
}

/// Whether there are about as many events as periods, give or take one at each end.
fn is_usual(events: f64, length: f64, period: f64) -> bool {
    let expected = length / period;
    (IN_PART.start() * expected - 1.0..=IN_PART.end() * expected + 1.0).contains(&events)
}

/// Share of the gaps that are one period long.
fn single_gaps(times: &[f64], period: f64) -> f64 {
    let kept = thinned(times, DEAD * period);
    let single =
        gaps(&kept).filter(|&gap| lattice::multiple(gap, period, 0.1) == Some(1.0)).count();
    single as f64 / kept.len().saturating_sub(1).max(1) as f64
}

/// Whether events continue at the rate of the period after the last kept start time.
fn goes_on(later: &Later, last: f64, to: f64, period: f64) -> bool {
    let (mut length, mut events) = (0.0, 0.0);
    for (begin, end, count) in later.slices() {
        let (begin, end) = (begin.max(last), end.min(to));
        if end <= begin {
            continue;
        }
        length += end - begin;
        events += count;
        if length >= PART_EVENTS as f64 * period {
            if !is_usual(events, length, period) {
                return false;
            }
            (length, events) = (0.0, 0.0);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_hold_all_events_however_long_it_takes() {
        let (mut all, mut even, mut odd) = (Later::default(), Later::default(), Later::default());
        for second in 0..10_000u64 {
            let start = second * 1_000_000_000;
            all.add(start);
            if second % 2 == 0 { &mut even } else { &mut odd }.add(start);
        }
        let events = |later: &Later| later.slices().map(|(_, _, count)| count).sum::<f64>();
        assert_eq!(events(&all), 10_000.0);
        // The end is within the second half of the slices.
        let longest = all.slices().map(|(_, end, _)| end).fold(0.0, f64::max);
        assert!((9_999e9..2.0 * 9_999e9).contains(&longest), "{longest}");
        even.merge(&odd);
        assert_eq!((events(&even), even.slice_ns), (10_000.0, all.slice_ns));
        all.add(u64::MAX);
        assert_eq!(events(&all), 10_001.0);
    }

    #[test]
    fn a_beat_that_stops_after_the_kept_start_times_does_not_go_on() {
        let second = 1e9;
        let mut later = Later::default();
        for tick in 0..25_000u64 {
            later.add(10_000_000_000 + tick * 4_000_000);
        }
        assert!(goes_on(&later, 10.0 * second, 110.0 * second, 4e6));
        assert!(!goes_on(&later, 10.0 * second, 140.0 * second, 4e6));
        assert!(!goes_on(&later, 10.0 * second, 110.0 * second, 1e6));
    }
}
