//! Why a recording cannot be made, and what to do about it.

use thiserror::Error;
use trace::TraceError;

use crate::{kernel::bpf::BpfError, probe::pinned::ProbesError};

#[derive(Debug, Error)]
pub enum RecordError {
    #[error("CPU {cpu} does not exist or is offline (online: {online})")]
    UnknownCpu { cpu: u32, online: String },
    #[error(
        "CPU {cpu} is outside the cpuset of this process (allowed: {allowed}): \
         choose other CPUs with -c, or widen the cpuset"
    )]
    OutsideCpuset { cpu: u32, allowed: String },
    #[error("CPU {0} is both measured and housekeeping: remove it from -c or from -H")]
    BothWays(u32),
    #[error("--fifo on every CPU would lock up the machine: leave one unmeasured, with -c or -H")]
    FifoEverywhere,
    #[error("no CPU left to measure: -H takes every CPU that this process may use")]
    NothingToMeasure,
    #[error(transparent)]
    Bpf(#[from] BpfError),
    #[error(transparent)]
    Probes(#[from] ProbesError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("nothing to record without the probe and without BPF: drop --no-probe or --no-bpf")]
    NothingToRecord,
    #[error("stopped before the recording began: nothing was written")]
    Stopped,
    #[error("process {0} does not exist")]
    NoProcess(u32),
    #[error(
        "{0} is not a cgroup: specify a directory below the cgroup v2 mount point, or the name of \
         a systemd unit that is running"
    )]
    NoCgroup(String),
    #[error("ambiguous cgroup '{name}' (matches {})", .paths.join(", "))]
    SeveralCgroups { name: String, paths: Vec<String> },
    #[error("cannot run {command}: {source}")]
    Command { command: String, source: std::io::Error },
    #[error("cannot start the recorder's threads: {0}")]
    Thread(std::io::Error),
    #[error("the writer thread panicked; the file contains what was written before")]
    WriterBroke,
}

impl RecordError {
    /// The exit code of a shell whose command cannot be run: 127 if there is no such program, 126 if
    /// there is one that cannot be executed. None for other errors.
    pub fn command_exit_code(&self) -> Option<u8> {
        match self {
            RecordError::Command { source, .. } => match source.kind() {
                std::io::ErrorKind::NotFound => Some(127),
                _ => Some(126),
            },
            _ => None,
        }
    }
}
