//! The cost of one iteration of the probe's loop, compared with a loop that only reads the clock
//! twice: part of `cargo xtask bench`. Prints one JSON object.
//!
//! Both run in short turns, alternately, and the best turn of each counts: other activity on the
//! machine affects both equally, and the best turn not at all.

use std::error::Error;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use recorder::probe::clock::Monotonic as Clock;
#[cfg(target_arch = "x86_64")]
use recorder::probe::clock::Tsc as Clock;
#[cfg(target_arch = "aarch64")]
use recorder::probe::clock::VirtualCounter as Clock;
use recorder::{
    CpuSet, machine,
    probe::{
        Jumps, TimerCost, assess,
        clock::{Counter, monotonic_ns},
        run,
    },
};

/// Much longer than starting the loop takes, much shorter than a tick.
const TURN_NS: f64 = 300_000.0;
/// Multiples of t_min, as in `detour record`.
const THRESHOLD: u64 = 9;

fn main() -> Result<(), Box<dyn Error>> {
    let turns = std::env::args().nth(1).map_or(Ok(2_000), |n| n.parse::<u32>())?;
    if let Some(cpu) = machine::allowed().last() {
        machine::pin(&CpuSet::from([*cpu]));
    }
    let ticks_per_ns = ticks_per_ns();
    let turn = (TURN_NS * ticks_per_ns) as u64;
    let TimerCost { t_min, push, .. } = assess::<Clock>(1_000_000);
    let (mut probe, mut bare) = (f64::MAX, f64::MAX);
    for _ in 0..turns {
        probe = probe.min(probe_turn(turn, t_min * THRESHOLD, push)?);
        bare = bare.min(bare_turn(turn));
    }
    let figures = serde_json::json!({
        "clock": Clock::NAME,
        "t_min_ns": t_min as f64 / ticks_per_ns,
        "probe_ns": probe / ticks_per_ns,
        "bare_ns": bare / ticks_per_ns,
    });
    println!("{figures}");
    Ok(())
}

/// Ticks from one reading to the next in the probe's own loop.
fn probe_turn(ticks: u64, threshold: u64, push: u64) -> Result<f64, Box<dyn Error>> {
    let jumps = Jumps::new(1024)?;
    jumps.end_at(Clock::read() + ticks);
    let run = run::<Clock>(&jumps, threshold, push);
    Ok((run.last - run.first) as f64 / run.iterations as f64)
}

/// The same with two readings per iteration of an otherwise empty loop.
#[inline(never)]
fn bare_turn(ticks: u64) -> f64 {
    let first = Clock::read();
    let end = first + ticks;
    let mut readings = 0u64;
    loop {
        let _ = Clock::read();
        let now = Clock::read();
        readings += 2;
        if now >= end {
            return (now - first) as f64 / readings as f64;
        }
    }
}

fn ticks_per_ns() -> f64 {
    let moment = || (Clock::read(), monotonic_ns());
    let (ticks, ns) = moment();
    std::thread::sleep(std::time::Duration::from_millis(50));
    let (ticks_after, ns_after) = moment();
    (ticks_after - ticks) as f64 / (ns_after - ns) as f64
}
