//! CPU time for tests that assert how much work something is. The wall clock depends on what else runs
//! on the machine; CPU time does not, except for caches and a shared core, so the minimum of several
//! attempts counts.

use std::time::Duration;

// Each test uses what it needs.
#[allow(dead_code)]
const TRIES: u32 = 5;

/// The minimum CPU time of this thread for the work, over several attempts.
#[allow(dead_code)]
pub fn least(mut work: impl FnMut()) -> Duration {
    let mut once = || {
        let begin = of_this_thread();
        work();
        of_this_thread() - begin
    };
    (0..TRIES).map(|_| once()).min().unwrap_or_default()
}

/// The ratio of the CPU times of `more` and `less`.
#[allow(dead_code)]
pub fn ratio(less: impl FnMut(), more: impl FnMut()) -> f64 {
    // Avoids a division by zero within one clock tick.
    least(more).as_secs_f64() / least(less).as_secs_f64().max(1e-6)
}

fn of_this_thread() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
