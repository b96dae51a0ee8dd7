//! The probe: a pinned thread per measured CPU that does nothing but read a clock.

pub mod clock;
pub(crate) mod counters;
pub(crate) mod pinned;
mod spin;

pub use pinned::PROBE_THREAD;
pub use spin::{Jump, Jumps, ProbeError, Run, TimerCost, assess, run};
