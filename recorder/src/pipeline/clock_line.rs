//! From readings of the probe's counter to CLOCK_MONOTONIC: piecewise linear between moments that are
//! known on both clocks.

use std::collections::VecDeque;

/// One moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    pub ticks: u64,
    pub ns: u64,
}

/// Converts counter readings to nanoseconds, piecewise between anchors. Old anchors are dropped, so that
/// it stays small however long a recording lasts; but not the first ones, since the first readings of
/// the probes are converted again at the end.
#[derive(Clone, Debug, Default)]
pub struct ClockLine {
    anchors: VecDeque<Anchor>,
}

/// 512 anchors at ten per second: nearly a minute.
const KEPT_ANCHORS: usize = 512;
/// Slightly more than a second from the start: probes begin after the third.
const FIRST_ANCHORS: usize = 16;

impl ClockLine {
    pub fn push(&mut self, anchor: Anchor) {
        if self.anchors.back().is_some_and(|last| anchor.ticks <= last.ticks) {
            return;
        }
        if self.anchors.len() == KEPT_ANCHORS {
            self.anchors.remove(FIRST_ANCHORS);
        }
        self.anchors.push_back(anchor);
    }

    /// Readings up to here lie between two anchors and are older than the second-to-last one: everything
    /// else about that time has arrived.
    pub fn settled_to(&self) -> Option<u64> {
        self.anchors.len().checked_sub(2).map(|index| self.anchors[index].ticks)
    }

    /// Ticks per nanosecond over all anchors kept.
    pub fn slope(&self) -> Option<f64> {
        let (first, last) = (self.anchors.front()?, self.anchors.back()?);
        let ns = last.ns.checked_sub(first.ns).filter(|ns| *ns > 0)?;
        Some((last.ticks - first.ticks) as f64 / ns as f64)
    }

    /// A reading in nanoseconds; beyond the ends, the nearest piece is extrapolated. None before two
    /// anchors are known.
    pub fn ns(&self, ticks: u64) -> Option<u64> {
        if self.anchors.len() < 2 {
            return None;
        }
        let after = self.anchors.partition_point(|a| a.ticks <= ticks);
        let right = after.clamp(1, self.anchors.len() - 1);
        let (a, b) = (self.anchors[right - 1], self.anchors[right]);
        let offset = ticks.wrapping_sub(a.ticks) as i64 as i128;
        let ns =
            offset * i128::from(b.ns.wrapping_sub(a.ns) as i64) / i128::from(b.ticks - a.ticks);
        Some((i128::from(a.ns) + ns).clamp(0, i128::from(u64::MAX)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(anchors: &[(u64, u64)]) -> ClockLine {
        let mut line = ClockLine::default();
        for &(ticks, ns) in anchors {
            line.push(Anchor { ticks, ns });
        }
        line
    }

    #[test]
    fn readings_between_anchors_follow_the_local_slope() {
        let line = line(&[(1000, 500), (3000, 1500), (5000, 3500)]);
        assert_eq!(line.ns(1000), Some(500));
        assert_eq!(line.ns(2000), Some(1000));
        assert_eq!(line.ns(3000), Some(1500));
        assert_eq!(line.ns(4000), Some(2500));
        assert_eq!(line.ns(0), Some(0));
        assert_eq!(line.ns(6000), Some(4500));
    }

    #[test]
    fn one_anchor_is_not_a_line_and_time_never_runs_back() {
        let mut line = line(&[(1000, 500)]);
        assert_eq!(line.ns(1000), None);
        line.push(Anchor { ticks: 900, ns: 400 });
        assert_eq!(line.settled_to(), None);
    }

    #[test]
    fn many_anchors_are_forgotten_but_not_the_last_ones() {
        let mut line = ClockLine::default();
        for i in 0..10_000u64 {
            line.push(Anchor { ticks: i * 200, ns: i * 100 });
        }
        assert_eq!(line.anchors.len(), KEPT_ANCHORS);
        assert_eq!(line.ns(9_999 * 200 - 100), Some(9_999 * 100 - 50));
    }

    #[test]
    fn the_first_readings_stay_where_they_were_however_the_clock_drifts() {
        const ANCHORS: u64 = 36_000;
        // Two ticks per nanosecond, drifting slightly from one piece to the next: 36 parts per million
        // in an hour.
        let mut line = ClockLine::default();
        let mut last = Anchor { ticks: 0, ns: 0 };
        let mut at_first = None;
        for piece in 0..ANCHORS {
            line.push(last);
            if piece == 5 {
                at_first = line.ns(500_000_000);
            }
            last.ticks += 200_000_000 + piece / 5;
            last.ns += 100_000_000;
        }
        assert_eq!(at_first, Some(250_000_000));
        assert_eq!(line.ns(500_000_000), at_first);
    }
}
