//! What touches the machine: hooks and the kernel's BTF, the probe and its clock, CPUs, names, the
//! threads that read and write, and the merge of detours with kernel records.
//!
//! In: what to record ([`Options`]). Out: a trace file. Recording needs Linux; elsewhere only the
//! plain values of this crate exist.

mod cpulist;

pub use cpulist::{CpuListError, CpuSet, format as format_cpus, parse as parse_cpus};

#[cfg(target_os = "linux")]
mod account;
#[cfg(target_os = "linux")]
mod assemble;
#[cfg(target_os = "linux")]
pub mod bpf;
#[cfg(all(target_os = "linux", feature = "bpf-log"))]
mod bpf_log;
#[cfg(target_os = "linux")]
mod btf;
#[cfg(target_os = "linux")]
mod cgroups;
#[cfg(target_os = "linux")]
mod choice;
#[cfg(target_os = "linux")]
pub mod clock;
#[cfg(target_os = "linux")]
mod closure;
#[cfg(target_os = "linux")]
mod counters;
#[cfg(target_os = "linux")]
pub mod doctor;
#[cfg(target_os = "linux")]
mod drain;
#[cfg(target_os = "linux")]
mod gaps;
#[cfg(target_os = "linux")]
mod hooks;
#[cfg(target_os = "linux")]
pub mod machine;
#[cfg(target_os = "linux")]
mod merge;
#[cfg(target_os = "linux")]
mod names;
#[cfg(target_os = "linux")]
pub mod probe;
#[cfg(target_os = "linux")]
mod probes;
#[cfg(target_os = "linux")]
mod program;
#[cfg(target_os = "linux")]
mod record;
#[cfg(target_os = "linux")]
mod rules;
#[cfg(target_os = "linux")]
mod shared;
#[cfg(target_os = "linux")]
mod subject;
#[cfg(target_os = "linux")]
mod symbols;
#[cfg(target_os = "linux")]
mod targets;
#[cfg(target_os = "linux")]
mod threads;

mod options;

pub use options::{Options, ProgramOption, Threshold};
#[cfg(target_os = "linux")]
pub use record::{Outcome, RecordError, Watch, record};
