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
    (0..TRIES).map(|_| taken(&mut work)).min().unwrap_or_default()
}

/// How much more CPU time `more` takes than its share, if it is `size` times as much work as `less`: 1
/// if the time is proportional to the work, `size` if it grows with its square. `less` runs `size` times,
/// so that both take about as long: time stolen from a virtual CPU counts as CPU time, and it hits long
/// work more surely than short work. They alternate, so that a busy moment hits both.
#[allow(dead_code)]
pub fn growth(size: u32, mut less: impl FnMut(), mut more: impl FnMut()) -> f64 {
    let mut smallest = [Duration::MAX; 2];
    for _ in 0..TRIES {
        smallest[0] = smallest[0].min(taken(|| (0..size).for_each(|_| less())));
        smallest[1] = smallest[1].min(taken(&mut more));
    }
    // Avoids a division by zero within one clock tick.
    smallest[1].as_secs_f64() / smallest[0].as_secs_f64().max(1e-6)
}

fn taken(work: impl FnOnce()) -> Duration {
    let begin = of_this_thread();
    work();
    of_this_thread() - begin
}

fn of_this_thread() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
