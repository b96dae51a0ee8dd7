//! The overhead of this process at run time: the CPU time of all its threads except the probes, whose
//! purpose is to occupy a CPU.

use std::{collections::HashMap, fs};

use crate::{node::files::text, probe::pinned::PROBE_THREAD};

/// CPU time of a thread when last read; probes are only remembered so that they can be skipped, since
/// reading their names costs as much as their times.
enum Seen {
    Probe,
    Took(u64),
}

#[derive(Default)]
pub struct OwnCost {
    /// Including those that have ended, since their time still counts.
    threads: HashMap<String, Seen>,
    /// Of threads whose number has been reused.
    gone_ns: u64,
}

impl OwnCost {
    /// CPU time so far; of a thread that has ended, its last value. None if the kernel does not report
    /// it.
    pub fn cpu_ns(&mut self) -> Option<u64> {
        for task in fs::read_dir("/proc/self/task").ok()?.flatten() {
            let tid = task.file_name().to_string_lossy().into_owned();
            let seen = self.threads.entry(tid).or_insert_with(|| {
                let is_probe = text(task.path().join("comm")) == PROBE_THREAD;
                if is_probe { Seen::Probe } else { Seen::Took(0) }
            });
            let Seen::Took(before) = seen else { continue };
            let times = text(task.path().join("schedstat"));
            let took = times.split_whitespace().next().and_then(|ns| ns.parse().ok());
            // A thread that has just ended cannot be read any more.
            let Some(took) = took else { continue };
            // A reused number starts from zero.
            if took < *before {
                self.gone_ns += *before;
            }
            *before = took;
        }
        let took = |seen: &Seen| if let Seen::Took(ns) = seen { *ns } else { 0 };
        let total = self.gone_ns + self.threads.values().map(took).sum::<u64>();
        (total > 0).then_some(total)
    }
}
