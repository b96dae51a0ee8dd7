//! Starts at a round time of the wall clock. Nodes whose clocks agree start together without
//! communicating; one that is ready only after that time starts a whole interval later, which `detour
//! merge` shows.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Waits until `before` ahead of the next multiple of `align`, or until stopped.
pub fn wait(align: Duration, before: Duration, stop: &AtomicBool) {
    const LOOK_EVERY: Duration = Duration::from_millis(50);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let until = next(now() + before, align).saturating_sub(before);
    while !stop.load(Ordering::Relaxed) {
        let left = until.saturating_sub(now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
}

/// The first multiple of `align` that is not in the past.
fn next(now: Duration, align: Duration) -> Duration {
    let (now, align) = (now.as_nanos(), align.as_nanos().max(1));
    let next = now.div_ceil(align) * align;
    Duration::from_nanos(u64::try_from(next).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_multiple_is_never_in_the_past_and_less_than_one_away() {
        let s = Duration::from_secs_f64;
        assert_eq!(next(s(12.25), s(5.0)), s(15.0));
        assert_eq!(next(s(15.0), s(5.0)), s(15.0));
        assert_eq!(next(s(15.1), s(0.25)), s(15.25));
        assert_eq!(next(Duration::ZERO, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn a_wait_ends_when_told_to() {
        let stop = AtomicBool::new(true);
        wait(Duration::from_secs(100_000_000_000), Duration::ZERO, &stop);
    }
}
