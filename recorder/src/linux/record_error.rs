//! Why a recording cannot be made, and what to do about it.

use thiserror::Error;
use trace::TraceError;

use crate::{bpf::BpfError, probes::ProbesError};

#[derive(Debug, Error)]
pub enum RecordError {
    #[error("CPU {cpu} does not exist or is offline; online are {online}")]
    UnknownCpu { cpu: u32, online: String },
    #[error(
        "CPU {cpu} is outside the cpuset of this process, which may use {allowed}: \
         choose among those with -c, or widen the cpuset"
    )]
    OutsideCpuset { cpu: u32, allowed: String },
    #[error("CPU {0} cannot be measured and do the housekeeping: take it out of -c or of -H")]
    BothWays(u32),
    #[error(
        "--fifo on every CPU would lock the machine up: leave one for everything else, with -c or -H"
    )]
    FifoEverywhere,
    #[error("no CPU is left to measure: -H takes all that this process may use")]
    NothingToMeasure,
    #[error(transparent)]
    Bpf(#[from] BpfError),
    #[error(transparent)]
    Probes(#[from] ProbesError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(
        "without the probe and without BPF there is nothing to record: drop --no-probe or --no-bpf"
    )]
    NothingToRecord,
    #[error("stopped before the recording began: nothing was written")]
    Stopped,
    #[error("process {0} does not exist")]
    NoProcess(u32),
    #[error("{0} is not a cgroup: give a directory below the cgroup v2 mount point")]
    NoCgroup(String),
    #[error("cannot run {command}: {source}")]
    Command { command: String, source: std::io::Error },
    #[error("cannot start the recorder's threads: {0}")]
    Thread(std::io::Error),
    #[error("the writer's thread broke; the file holds what was written before")]
    WriterBroke,
}

impl RecordError {
    /// How a shell would end whose command cannot be run: 127 when there is no such program, 126 when
    /// there is one that cannot be run. None for other errors.
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
