//! Clocks: the counter that the probe reads, CLOCK_MONOTONIC as the kernel side uses it, and the
//! piecewise linear conversion from the first to the second.

use std::collections::VecDeque;

/// A counter the probe can read in a few nanoseconds.
pub trait Counter: Send + 'static {
    const NAME: &'static str;
    fn read() -> u64;
}

/// The time stamp counter, if the kernel itself uses it.
#[cfg(target_arch = "x86_64")]
pub struct Tsc;

#[cfg(target_arch = "x86_64")]
impl Counter for Tsc {
    const NAME: &'static str = "rdtsc";

    #[inline(always)]
    fn read() -> u64 {
        // SAFETY: reads a register. Not serialised: the loop measures gaps far longer than what could be
        // reordered.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
}

/// arm64's virtual counter.
#[cfg(target_arch = "aarch64")]
pub struct VirtualCounter;

#[cfg(target_arch = "aarch64")]
impl Counter for VirtualCounter {
    const NAME: &'static str = "cntvct";

    #[inline(always)]
    fn read() -> u64 {
        let ticks: u64;
        // SAFETY: reads a register that Linux makes readable from user mode.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack));
        }
        ticks
    }
}

/// CLOCK_MONOTONIC: the fallback everywhere.
pub struct Monotonic;

impl Counter for Monotonic {
    const NAME: &'static str = "clock_gettime";

    #[inline(always)]
    fn read() -> u64 {
        monotonic_ns()
    }
}

/// CLOCK_MONOTONIC in nanoseconds, the clock of `bpf_ktime_get_ns`.
#[inline(always)]
pub fn monotonic_ns() -> u64 {
    #[cfg(target_os = "linux")]
    {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
    #[cfg(not(target_os = "linux"))]
    {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        START.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
    }
}

/// One moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    pub ticks: u64,
    pub ns: u64,
}

/// The tightest of `tries` readings of the monotonic clock between two of the counter.
pub fn anchor<C: Counter>(tries: u32) -> Anchor {
    let mut best = Anchor { ticks: 0, ns: 0 };
    let mut narrowest = u64::MAX;
    for _ in 0..tries.max(1) {
        let before = C::read();
        let ns = monotonic_ns();
        let after = C::read();
        let width = after.wrapping_sub(before);
        if width < narrowest {
            narrowest = width;
            best = Anchor { ticks: before.wrapping_add(width / 2), ns };
        }
    }
    best
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
