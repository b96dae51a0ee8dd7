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
    threads: HashMap<String, Seen>,
    /// Of threads that are gone: what is taken stays taken.
    gone_ns: u64,
}

impl OwnCost {
    /// CPU time so far; of a thread that has ended, as far as it was seen. None where the kernel does
    /// not tell.
    pub fn cpu_ns(&mut self) -> Option<u64> {
        let mut there = HashMap::with_capacity(self.threads.len());
        for task in fs::read_dir("/proc/self/task").ok()?.flatten() {
            let tid = task.file_name().to_string_lossy().into_owned();
            let before = self.threads.remove(&tid);
            let name = || text(task.path().join("comm"));
            let now = match before {
                Some(Seen::Probe) => Seen::Probe,
                None if name() == probes::THREAD_NAME => Seen::Probe,
                before => {
                    let times = text(task.path().join("schedstat"));
                    let took = times.split_whitespace().next().and_then(|ns| ns.parse().ok());
                    // It ended just now, or its number was given again and counts from nothing.
                    if let Some(Seen::Took(before)) = before
                        && took.is_none_or(|took| took < before)
                    {
                        self.gone_ns += before;
                    }
                    let Some(took) = took else { continue };
                    Seen::Took(took)
                }
            };
            there.insert(tid, now);
        }
        self.gone_ns += sum(&self.threads);
        self.threads = there;
        let total = self.gone_ns + sum(&self.threads);
        (total > 0).then_some(total)
    }
}

fn sum(threads: &HashMap<String, Seen>) -> u64 {
    let took = |seen: &Seen| if let Seen::Took(ns) = seen { *ns } else { 0 };
    threads.values().map(took).sum()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn work_shows_and_a_probes_work_does_not() {
        let mut own = OwnCost::default();
        // Kernels without scheduler statistics tell nothing.
        let Some(before) = own.cpu_ns() else { return };
        let spin = || {
            let start = machine_time();
            while machine_time() - start < 30_000_000 {
                std::hint::spin_loop();
            }
        };
        std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().name(probes::THREAD_NAME.to_owned());
            let probe = builder.spawn_scoped(scope, || {
                std::thread::sleep(Duration::from_millis(1));
                spin();
                let until = Instant::now() + Duration::from_millis(100);
                while Instant::now() < until {}
            });
            assert!(probe.is_ok());
            spin();
            let after = own.cpu_ns().unwrap_or(0);
            // Other tests of this process run meanwhile; more is no surprise, less is.
            assert!(after >= before + 20_000_000, "{before} {after}");
            assert!(own.threads.values().any(|seen| matches!(seen, Seen::Probe)));
        });
    }

    #[test]
    fn what_a_thread_took_stays_when_it_ends() {
        let mut own = OwnCost::default();
        let (seen, may_end) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        let (before, with_it) = std::thread::scope(|scope| {
            let before = own.cpu_ns();
            scope.spawn(|| {
                let start = machine_time();
                while machine_time() - start < 30_000_000 {
                    std::hint::spin_loop();
                }
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

    fn machine_time() -> u64 {
        crate::machine::thread_cpu_ns()
    }
}
