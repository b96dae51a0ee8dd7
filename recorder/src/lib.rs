//! Everything that touches the machine: hooks and the kernel's BTF, the probe and its clock, CPUs,
//! names, the threads that read and write, and the composition of detours with kernel records.
//!
//! The input is what to record ([`Options`]), the output a trace file, or the same events live
//! ([`Feed`]). Recording needs Linux; elsewhere only plain values and pure code of this crate exist.

#![cfg_attr(not(target_os = "linux"), allow(dead_code))]

#[cfg(target_os = "linux")]
mod account;
mod feed;
#[cfg(target_os = "linux")]
pub mod inject;
#[cfg(target_os = "linux")]
pub mod kernel;
#[cfg(target_os = "linux")]
mod launch;
#[cfg(target_os = "linux")]
mod naming;
#[cfg(target_os = "linux")]
mod node;
mod options;
mod output_name;
mod pipeline;
#[cfg(target_os = "linux")]
pub mod probe;
#[cfg(target_os = "linux")]
mod record;
#[cfg(target_os = "linux")]
mod record_error;
#[cfg(target_os = "linux")]
mod start;

use trace::cpulist;

pub use cpulist::{CpuListError, CpuSet, format as format_cpus, parse as parse_cpus};
pub use feed::{Delivery, Feed, State};
#[cfg(target_os = "linux")]
pub use node::{doctor, files, machine, memory, own_cost::OwnCost, privileges::give_up};
pub use options::{Condition, Options, ProgramOption, Threshold, Trigger, Until};
pub use output_name::{command_line, fill_in, output_name};
pub use pipeline::clock_line::ClockLine;
#[cfg(target_os = "linux")]
pub use pipeline::until::Met;
#[cfg(target_os = "linux")]
pub use probe::PROBE_THREAD;
#[cfg(target_os = "linux")]
pub use record::{RecordResult, Watch, record};
#[cfg(target_os = "linux")]
pub use record_error::RecordError;
