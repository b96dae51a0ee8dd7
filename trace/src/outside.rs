//! Time in detours that no record explains: of two kinds, told apart by length.

use crate::Mode;

/// Where time outside the kernel stops being the processor's own business.
pub const LONG_NS: u64 = 1_000;

/// Which of the two kinds so much time in a detour is of.
#[inline]
pub fn outside_kind(outside_ns: u64) -> usize {
    usize::from(outside_ns >= LONG_NS)
}

/// What the two are called. Without kernel records nothing is known to lie outside the kernel.
pub fn outside_names(mode: Mode) -> [&'static str; 2] {
    match mode.has_sources() {
        true => ["microarchitecture", "hypervisor_or_smi"],
        false => ["unattributed_short", "unattributed_long"],
    }
}
