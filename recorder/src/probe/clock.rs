//! Clocks: the counter that the probe reads, and CLOCK_MONOTONIC as the kernel side uses it.

use crate::pipeline::clock_line::Anchor;

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
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
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
