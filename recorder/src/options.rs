//! What to record, as plain values.

use std::{ffi::OsString, fmt, path::PathBuf, str::FromStr, time::Duration};

use trace::Source;

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
    /// End when something happens.
    pub until: Option<Until>,
    /// Count what keeps the tick running.
    pub audit: bool,
}

impl Options {
    /// Whether a recording without kernel records would be useless.
    #[must_use]
    pub fn needs_sources(&self) -> bool {
        let trigger = self.until.as_ref().map(|until| &until.condition.trigger);
        let waits_for_one = trigger.is_some_and(|trigger| *trigger != Trigger::Detour);
        self.no_probe || self.program.is_some() || waits_for_one
    }
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

/// Ends a recording when something happens, and keeps only the time before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Until {
    pub condition: Condition,
    /// How much of the recording is kept.
    pub keep: Duration,
}

/// `detour>500us`, `source=fakemond>100us` or `process=fakemond>100us`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub trigger: Trigger,
    pub longer_ns: u64,
}

/// What has to take long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A detour as a whole.
    Detour,
    /// A source, by its name.
    Source(String),
    /// A process with all that it causes, by its name or unit.
    Process(String),
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.trigger {
            Trigger::Detour => write!(f, "detour")?,
            Trigger::Source(name) => write!(f, "source={name}")?,
            Trigger::Process(name) => write!(f, "process={name}")?,
        }
        match self.longer_ns {
            ns if ns > 0 && ns.is_multiple_of(1_000_000) => write!(f, ">{}ms", ns / 1_000_000),
            ns if ns > 0 && ns.is_multiple_of(1_000) => write!(f, ">{}us", ns / 1_000),
            ns => write!(f, ">{ns}ns"),
        }
    }
}

impl Condition {
    /// Whether this is the source to wait for.
    #[must_use]
    pub fn names(&self, source: &Source) -> bool {
        match &self.trigger {
            Trigger::Detour => false,
            Trigger::Source(name) => source.name == *name,
            Trigger::Process(name) => {
                let process = source.process_key();
                process.process == *name || process.unit.as_ref() == Some(name)
            }
        }
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Condition, String> {
        let wrong = || {
            format!(
                "'{text}' is not a condition (expected detour>500us, source=NAME>500us or \
                 process=NAME>500us)"
            )
        };
        let (subject, length) = text.rsplit_once('>').ok_or_else(wrong)?;
        let trigger = match subject.trim().split_once('=') {
            None if subject.trim() == "detour" => Trigger::Detour,
            Some(("source", name)) if !name.is_empty() => Trigger::Source(name.to_owned()),
            Some(("process", name)) if !name.is_empty() => Trigger::Process(name.to_owned()),
            _ => return Err(wrong()),
        };
        let length = length.trim();
        let digits = length.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let (number, unit) = length.split_at(digits);
        let scale = match unit {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            _ => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        Ok(Condition { trigger, longer_ns: (number * scale).round() as u64 })
    }
}
