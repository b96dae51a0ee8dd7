//! The clock that calls are timed with: the processor's counter where it runs evenly, otherwise
//! `CLOCK_MONOTONIC`. A tick is a step of the counter, or a nanosecond.

use crate::sys;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use mpi_abi::{Anchor, Clock};

static COUNTER: AtomicBool = AtomicBool::new(false);
static TICKS_PER_US: AtomicU64 = AtomicU64::new(1000);

/// Now, in ticks.
#[inline(always)]
pub fn ticks() -> u64 {
    if COUNTER.load(Ordering::Relaxed) { sys::counter() } else { sys::monotonic_ns() }
}

/// Now, on both clocks.
pub fn anchor() -> Anchor {
    if COUNTER.load(Ordering::Relaxed) {
        sys::anchor(sys::counter)
    } else {
        let ns = sys::monotonic_ns();
        Anchor { ticks: ns, ns }
    }
}

/// Ticks in a microsecond, as far as [`compare`] could tell.
pub fn ticks_per_us() -> u64 {
    TICKS_PER_US.load(Ordering::Relaxed)
}

/// Takes the rate of the counter from two readings of both clocks.
pub fn compare(first: Anchor, last: Anchor) {
    let us = last.ns.saturating_sub(first.ns) / 1000;
    if let Some(ticks) = last.ticks.saturating_sub(first.ticks).checked_div(us) {
        TICKS_PER_US.store(ticks.max(1), Ordering::Relaxed);
    }
}

/// Uses the processor's counter if it runs evenly: the kernel itself keeps time with it, or the processor
/// says that it neither changes its rate nor stops.
pub fn choose() -> Clock {
    let mut text = [0u8; 16];
    let path = c"/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let length = sys::read_file(path, &mut text);
    let source = text.get(..length).unwrap_or(&[]).trim_ascii_end();
    let even = if cfg!(target_arch = "aarch64") {
        source == b"arch_sys_counter"
    } else if cfg!(target_arch = "x86_64") {
        source == b"tsc" || (source != b"hpet" && source != b"acpi_pm" && has_even_tsc())
    } else {
        false
    };
    COUNTER.store(even, Ordering::Relaxed);
    match even {
        false => Clock::Monotonic,
        true if cfg!(target_arch = "x86_64") => Clock::Tsc,
        true => Clock::Cntvct,
    }
}

/// hpet and acpi_pm are what the kernel falls back to when it has found the counter unstable, so the flags
/// only count with other clock sources (those of hypervisors).
fn has_even_tsc() -> bool {
    let mut text = [0u8; 4096];
    let length = sys::read_file(c"/proc/cpuinfo", &mut text);
    let text = text.get(..length).unwrap_or(&[]);
    let has = |word: &[u8]| text.split(u8::is_ascii_whitespace).any(|found| found == word);
    has(b"constant_tsc") && has(b"nonstop_tsc")
}
