//! What this process takes for itself, while it runs: the CPU time of all its threads but the probes,
//! whose job it is to take a CPU whole.

use std::{collections::HashMap, fs};

use crate::{machine::text, probes::PROBE_THREAD};

/// What a thread took when it was last looked at; probes are only remembered to be none of it, since
/// reading their names costs as much as their times.
enum Seen {
    Probe,
    Took(u64),
}

#[derive(Default)]
pub struct OwnCost {
    /// Those that have ended, too: what is taken stays taken.
    threads: HashMap<String, Seen>,
    /// Of threads whose number another one has now.
    gone_ns: u64,
}

impl OwnCost {
    /// CPU time so far; of a thread that has ended, as far as it was seen. None where the kernel does
    /// not tell.
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
            // One that ended just now has nothing to say any more.
            let Some(took) = took else { continue };
            // A number that is given again counts from nothing.
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
