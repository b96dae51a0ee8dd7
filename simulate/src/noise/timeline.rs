//! A sequence of detours that repeats at its end: a trace of some seconds, or one period of something
//! periodic. Built once, then read-only: finding a rank's position takes one table lookup and a short
//! scan.

use thiserror::Error;

use crate::time::{LongTime, Time};

use super::{
    lookup::Lookup,
    origin::{Origin, Shares},
};

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TimelineError {
    #[error("the trace has zero length")]
    Empty,
    #[error("a span of {} is too long (at most 50 days)", LongTime(*ps))]
    TooLong { ps: i128 },
    #[error("detours overlap or are out of order at {}", Time(*at_ps))]
    OutOfOrder { at_ps: i64 },
    #[error("a detour at {} has a negative length", Time(*at_ps))]
    Negative { at_ps: i64 },
    #[error("detours fill the whole span, leaving no time for work")]
    NoTimeLeft,
    #[error("periodic noise of {} every {} leaves no time for work", Time(*length_ps), Time(*period_ps))]
    PeriodTooShort { period_ps: i64, length_ps: i64 },
    #[error("too many detours for a timeline: {0} (at most 4 billion)")]
    TooMany(usize),
    #[error(
        "the sources of noise together have {0} detours (at most {MOST_SUPERPOSED}): give them in \
         separate simulations, or use a shorter recording"
    )]
    TooManySuperposed(u128),
    #[error("sources given for {given} of {detours} detours")]
    SourcesMissing { given: usize, detours: usize },
}

/// Longest span: sums of a few of them still fit in 63 bits.
pub(crate) const MAX_SPAN: i64 = 1 << 62;

/// Detours of several sources of noise on one node: 2 GiB while they are sorted.
const MOST_SUPERPOSED: u128 = 1 << 26;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    lookup: Lookup,
    /// Start of the last detour of the source, which LogGOPSim takes for the length.
    last_start: i64,
    span: i64,
    /// Time in one span outside detours.
    free: i64,
    periodic: bool,
    /// Repeats even if a run may not be longer than a trace: it was not recorded.
    endless: bool,
    origin: Origin,
}

impl Timeline {
    /// Detours as (start, length) in time order, without overlap, and the measured time. A detour that
    /// ends after the span extends it.
    pub fn new(
        detours: impl IntoIterator<Item = (i64, i64)>,
        span: i64,
    ) -> Result<Timeline, TimelineError> {
        let mut kept = Vec::new();
        let (mut last_end, mut lost) = (0, 0i64);
        let mut last_start = 0;
        for (start, length) in detours {
            if length < 0 {
                return Err(TimelineError::Negative { at_ps: start });
            }
            if start < last_end {
                return Err(TimelineError::OutOfOrder { at_ps: start });
            }
            Timeline::check_span(i128::from(start) + i128::from(length))?;
            last_end = start + length;
            last_start = start;
            if length > 0 {
                lost += length;
                kept.push([start, last_end]);
            }
        }
        let span = span.max(last_end);
        if span <= 0 {
            return Err(TimelineError::Empty);
        }
        Timeline::check_span(i128::from(span))?;
        if lost >= span {
            return Err(TimelineError::NoTimeLeft);
        }
        if kept.len() >= u32::MAX as usize {
            return Err(TimelineError::TooMany(kept.len()));
        }
        // After the last detour comes the first one of the next turn.
        let again = kept.first().map_or(MAX_SPAN, |[start, _]| span + start);
        Ok(Timeline {
            lookup: Lookup::new(kept, span, again),
            last_start,
            span,
            free: span - lost,
            periodic: false,
            endless: false,
            origin: Origin::Unknown,
        })
    }

    /// Whether a timeline of so many picoseconds is possible: they may not even fit in 64 bits.
    pub fn check_span(ps: i128) -> Result<(), TimelineError> {
        if ps >= i128::from(MAX_SPAN) { Err(TimelineError::TooLong { ps }) } else { Ok(()) }
    }

    /// A detour of this length at the start of every period, forever.
    pub fn periodic(period: i64, length: i64) -> Result<Timeline, TimelineError> {
        if period <= 0 || length < 0 || length >= period {
            return Err(TimelineError::PeriodTooShort { period_ps: period, length_ps: length });
        }
        let timeline = Timeline::new([(0, length)], period)?;
        Ok(Timeline { periodic: true, endless: true, ..timeline })
    }

    /// A sample of noise that goes on forever: runs may be longer than it.
    #[must_use]
    pub fn endless(self) -> Timeline {
        Timeline { endless: true, ..self }
    }

    /// Attributes all detours to this source.
    #[must_use]
    pub fn of_source(self, source: u32) -> Timeline {
        Timeline { origin: Origin::One(source), ..self }
    }

    /// The attribution of each detour: one entry for each of non-zero length.
    pub fn shared_by(self, sources: Shares) -> Result<Timeline, TimelineError> {
        if sources.len() != self.detours().len() {
            let (given, detours) = (sources.len(), self.detours().len());
            return Err(TimelineError::SourcesMissing { given, detours });
        }
        Ok(Timeline { origin: Origin::Each(sources), ..self })
    }

    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Several sources active on one node. Overlapping detours are serialised. The span is that of the
    /// longest recorded one; shorter ones repeat, endless ones continue.
    pub fn superposed(parts: &[Timeline]) -> Result<Timeline, TimelineError> {
        let recorded = parts.iter().filter(|part| !part.endless);
        let span = recorded.map(|part| part.span).max();
        // Only endless ones: as long as the longest sample, and long enough for the phases of periodic
        // ones to drift past each other.
        let long = |part: &Timeline| part.span.saturating_mul(if part.periodic { 1000 } else { 1 });
        let is_endless = span.is_none();
        let span = match (span, parts) {
            (Some(span), _) => span,
            (None, [only]) => return Ok(only.clone()),
            (None, _) => parts.iter().map(long).max().unwrap_or(0),
        };
        let repeats = |part: &Timeline| 1 + span as u128 / part.span.max(1) as u128;
        let total = parts.iter().map(|part| part.detours().len() as u128 * repeats(part)).sum();
        if total > MOST_SUPERPOSED {
            return Err(TimelineError::TooManySuperposed(total));
        }
        let mut all = Vec::new();
        for (layer, part) in parts.iter().enumerate().filter(|(_, p)| !p.detours().is_empty()) {
            let mut base = 0i64;
            'repeat: while base < span {
                for (index, &[start, end]) in part.detours().iter().enumerate() {
                    if base.saturating_add(start) >= span {
                        break 'repeat;
                    }
                    all.push((base + start, end - start, layer, index));
                }
                base = base.saturating_add(part.span);
            }
        }
        all.sort_unstable();
        let mut free_at = 0;
        for (start, length, ..) in &mut all {
            *start = (*start).max(free_at);
            free_at = *start + *length;
        }
        let together = Timeline::new(all.iter().map(|&(start, length, ..)| (start, length)), span)?;
        let together = Timeline { endless: is_endless, ..together };
        if parts.iter().all(|part| part.origin == Origin::Unknown) {
            return Ok(together);
        }
        let mut sources = Shares::default();
        let mut shares = Vec::new();
        for (_, length, layer, index) in all {
            parts[layer].origin.tell(index, length, |source, ps| shares.push((source, ps)));
            sources.push(length, shares.drain(..));
        }
        together.shared_by(sources)
    }

    /// Detours in one span.
    pub fn len(&self) -> usize {
        self.detours().len()
    }

    pub fn is_empty(&self) -> bool {
        self.detours().is_empty()
    }

    pub fn span(&self) -> i64 {
        self.span
    }

    pub fn is_periodic(&self) -> bool {
        self.periodic
    }

    pub(crate) fn is_endless(&self) -> bool {
        self.endless
    }

    pub(crate) fn free(&self) -> i64 {
        self.free
    }

    pub(crate) fn last_start(&self) -> i64 {
        self.last_start
    }

    #[inline]
    pub(crate) fn start(&self, index: usize) -> i64 {
        self.detours()[index][0]
    }

    #[inline]
    pub(crate) fn end(&self, index: usize) -> i64 {
        self.detours()[index][1]
    }

    /// Fraction of the time taken by detours.
    pub fn share(&self) -> f64 {
        (self.span - self.free) as f64 / self.span as f64
    }

    /// Start and end of each.
    pub(super) fn detours(&self) -> &[[i64; 2]] {
        self.lookup.detours()
    }

    /// The first detour that ends after a position in the span; `len()` if none does.
    #[inline]
    pub(crate) fn first_after(&self, position: i64) -> usize {
        debug_assert!((0..=self.span).contains(&position));
        self.lookup.first_after(position)
    }

    pub(super) fn lookup(&self) -> &Lookup {
        &self.lookup
    }

    /// The spans of this single timeline, as a slice.
    pub(super) fn spans(&self) -> &[i64] {
        std::slice::from_ref(&self.span)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_position_finds_the_first_detour_that_has_not_ended(
            gaps in prop::collection::vec((0i64..100, 1i64..50), 0..40), tail in 1i64..100,
        ) {
            let mut at = 0;
            let mut list = Vec::new();
            for (gap, length) in gaps {
                list.push((at + gap, length));
                at += gap + length;
            }
            let timeline = Timeline::new(list.clone(), at + tail).unwrap();
            for position in 0..timeline.span() {
                let expected = list.iter().position(|&(s, l)| s + l > position);
                prop_assert_eq!(timeline.first_after(position), expected.unwrap_or(list.len()));
            }
        }
    }

    #[test]
    fn what_cannot_be_a_timeline_is_refused() {
        assert_eq!(Timeline::new([], 0), Err(TimelineError::Empty));
        assert_eq!(Timeline::new([(0, 10)], 5), Err(TimelineError::NoTimeLeft));
        assert_eq!(
            Timeline::new([(5, 5), (7, 1)], 20),
            Err(TimelineError::OutOfOrder { at_ps: 7 })
        );
        assert!(Timeline::new([(i64::MAX - 1, 5)], 20).is_err());
        assert!(Timeline::periodic(10, 10).is_err());
        assert!(Timeline::periodic(0, 0).is_err());
    }

    #[test]
    fn superposed_detours_wait_for_each_other() {
        let a = Timeline::new([(10, 10), (50, 5)], 100).unwrap();
        let b = Timeline::periodic(40, 4).unwrap();
        let both = Timeline::superposed(&[a, b]).unwrap();
        let list: Vec<_> = (0..both.len()).map(|i| (both.start(i), both.end(i))).collect();
        assert_eq!(list, [(0, 4), (10, 20), (40, 44), (50, 55), (80, 84)]);
        let c = Timeline::new([(12, 3)], 100).unwrap();
        let a = Timeline::new([(10, 10)], 100).unwrap();
        let both = Timeline::superposed(&[a, c]).unwrap();
        assert_eq!((both.start(1), both.end(1)), (20, 23));
    }

    #[test]
    fn superposed_noise_that_would_not_fit_is_refused() {
        let recorded = Timeline::new([(10, 10)], 10_000_000_000_000).unwrap();
        let dense = Timeline::periodic(10_000, 1_000).unwrap();
        let refused = Timeline::superposed(&[recorded.clone(), dense]);
        assert!(matches!(refused, Err(TimelineError::TooManySuperposed(1_000_000_000..))));
        // Without detours, nothing repeats.
        let nothing = Timeline::periodic(1, 0).unwrap();
        let both = Timeline::superposed(&[nothing, recorded.clone()]).unwrap();
        assert_eq!((both.len(), both.span()), (1, recorded.span()));
        let endless = [Timeline::periodic(i64::MAX / 4, 5), Timeline::periodic(i64::MAX / 8, 7)];
        let _ = Timeline::superposed(&endless.map(Result::unwrap));
    }

    #[test]
    fn superposed_detours_keep_their_sources() {
        let mut sources = Shares::default();
        sources.push(10, [(5, 4), (6, 6)]);
        let a = Timeline::new([(10, 10), (30, 0)], 100).unwrap().shared_by(sources).unwrap();
        let b = Timeline::new([(12, 3)], 100).unwrap().of_source(9);
        let both = Timeline::superposed(&[a.clone(), b]).unwrap();
        let told = |index| {
            let mut told = Vec::new();
            let length = both.end(index) - both.start(index);
            both.origin().tell(index, length, |source, ps| told.push((source, ps)));
            told
        };
        assert_eq!(told(0), [(5, 4), (6, 6)]);
        assert_eq!(told(1), [(9, 3)]);
        assert!(a.shared_by(Shares::default()).is_err());
    }
}
