//! What to record, as plain values.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use crate::CpuSet;

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// None: until stopped, or until the program ends.
    pub duration: Option<Duration>,
    /// None: all CPUs this process may use, without the housekeeping ones.
    pub cpus: Option<CpuSet>,
    pub housekeeping: Option<CpuSet>,
    pub threshold: Threshold,
    pub output: PathBuf,
    /// Replace a file that is not a recording.
    pub force: bool,
    /// Size of each measured CPU's ring buffer; None for the default.
    pub ring_bytes: Option<u64>,
    pub no_bpf: bool,
    pub no_probe: bool,
    /// Run the probes under SCHED_FIFO at this priority.
    pub fifo: Option<u32>,
    pub program: Option<ProgramOption>,
    /// Redirect the recorded command's output to standard error: standard output is in use.
    pub stdout_is_taken: bool,
    /// Start at a multiple of this on the wall clock: nodes of a job then start together.
    pub align: Option<Duration>,
    pub command_line: Vec<String>,
    /// Show kernel functions without a name by address, which reveals where the kernel is in memory.
    pub kernel_addresses: bool,
    /// The calling thread needs no capability afterwards: it permanently drops all of them once
    /// everything is attached and open.
    pub give_up_privileges: bool,
}

/// The program to record instead of the node.
#[derive(Clone, Debug)]
pub enum ProgramOption {
    Pids(Vec<u32>),
    Cgroup(PathBuf),
    Command(Vec<OsString>),
}

/// What counts as a detour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// Multiples of t_min.
    Relative(f64),
    /// Nanoseconds.
    Absolute(f64),
}

impl Default for Threshold {
    fn default() -> Self {
        Threshold::Relative(9.0)
    }
}
