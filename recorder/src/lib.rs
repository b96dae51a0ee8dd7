//! Everything that touches the machine: hooks and the kernel's BTF, the probe and its clock, CPUs,
//! names, the threads that read and write, and the merge of detours with kernel records.
//!
//! The input is what to record ([`Options`]), the output a trace file, or the same events live
//! ([`Feed`]). Recording needs Linux; elsewhere only the plain values of this crate exist.

mod feed;
#[cfg(target_os = "linux")]
mod linux;
mod options;

use trace::cpulist;

pub use cpulist::{CpuListError, CpuSet, format as format_cpus, parse as parse_cpus};
pub use feed::{Delivery, Feed, State};
#[cfg(target_os = "linux")]
pub use linux::*;
pub use options::{Options, ProgramOption, Threshold};
