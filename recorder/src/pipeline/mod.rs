//! From ring buffers to blocks of a file: entries are read, sorted, named, composed with the probe's
//! detours, and written. What only computes compiles anywhere.

#[cfg(target_os = "linux")]
pub(crate) mod assemble;
pub(crate) mod balance;
pub(crate) mod clock_line;
pub(crate) mod compose;
#[cfg(target_os = "linux")]
pub(crate) mod drain;
pub(crate) mod folded;
pub(crate) mod gaps;
pub(crate) mod hash;
pub(crate) mod order;
#[cfg(target_os = "linux")]
pub(crate) mod output;
pub(crate) mod pace;
pub(crate) mod program;
#[cfg(target_os = "linux")]
pub(crate) mod sleep;
#[cfg(target_os = "linux")]
pub(crate) mod threads;
#[cfg(target_os = "linux")]
pub(crate) mod until;
