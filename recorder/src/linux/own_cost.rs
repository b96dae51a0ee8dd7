//! What this process takes for itself, while it runs: the CPU time of all its threads but the probes,
//! whose job it is to take a CPU whole.

use std::{collections::HashMap, fs};

use crate::{machine::text, probes};

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
                let is_probe = text(task.path().join("comm")) == probes::PROBE_THREAD;
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

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::machine::thread_cpu_ns;

    #[test]
    fn work_shows_and_a_probes_work_does_not() {
        let mut own = OwnCost::default();
        // Kernels without scheduler statistics tell nothing.
        let Some(before) = own.cpu_ns() else { return };
        let (works, may_end) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().name(probes::PROBE_THREAD.to_owned());
            let probe = builder.spawn_scoped(scope, || {
                spin();
                works.wait();
                may_end.wait();
            });
            assert!(probe.is_ok());
            spin();
            works.wait();
            let after = own.cpu_ns().unwrap_or(0);
            may_end.wait();
            // Other tests of this process run meanwhile; more is no surprise, less is.
            assert!(after >= before + 20_000_000, "{before} {after}");
            assert!(own.threads.values().any(|seen| matches!(seen, Seen::Probe)));
        });
    }

    #[test]
    fn what_a_thread_took_stays_when_it_ends() {
        let mut own = OwnCost::default();
        let (seen, may_end) = (Barrier::new(2), Barrier::new(2));
        let (before, with_it) = std::thread::scope(|scope| {
            let before = own.cpu_ns();
            scope.spawn(|| {
                spin();
                seen.wait();
                may_end.wait();
            });
            seen.wait();
            let with_it = own.cpu_ns();
            may_end.wait();
            (before, with_it)
        });
        // Kernels without scheduler statistics tell nothing.
        let (Some(before), Some(with_it)) = (before, with_it) else { return };
        assert!(with_it >= before + 20_000_000, "{before} {with_it}");
        assert!(own.cpu_ns() >= Some(with_it));
    }

    /// For 30 ms of this thread's time.
    fn spin() {
        let start = thread_cpu_ns();
        while thread_cpu_ns() - start < 30_000_000 {
            std::hint::spin_loop();
        }
    }
}
