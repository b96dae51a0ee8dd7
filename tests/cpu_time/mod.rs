//! CPU time for tests that claim how much work something is. The wall clock measures what else runs on
//! the machine; CPU time is the work's own, apart from what caches and a shared core make of it, which
//! is why the least of several tries counts.

use std::time::Duration;

// Each test takes what it needs.
#[allow(dead_code)]
const TRIES: u32 = 5;

/// The least CPU time this thread needed for the work, of several tries.
#[allow(dead_code)]
pub fn least(mut work: impl FnMut()) -> Duration {
    let mut once = || {
        let begin = of_this_thread();
        work();
        of_this_thread() - begin
    };
    (0..TRIES).map(|_| once()).min().unwrap_or_default()
}

/// How many times the CPU time of `less` does `more` need?
#[allow(dead_code)]
pub fn ratio(less: impl FnMut(), more: impl FnMut()) -> f64 {
    // A clock tick of the accounting is no reason to divide by zero.
    least(more).as_secs_f64() / least(less).as_secs_f64().max(1e-6)
}

fn of_this_thread() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
