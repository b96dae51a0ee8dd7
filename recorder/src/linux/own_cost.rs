//! What this process takes for itself, while it runs: the CPU time of all its threads but the probes,
//! whose job it is to take a CPU whole.

use std::{collections::HashMap, fs};

use crate::{machine::text, probes};

/// Remembers which threads are probes, since reading their names costs as much as their times.
#[derive(Default)]
pub struct OwnCost {
    probes: HashMap<String, bool>,
}

impl OwnCost {
    /// CPU time so far, of the threads that are there now. None where the kernel does not tell.
    pub fn cpu_ns(&mut self) -> Option<u64> {
        let mut total = 0;
        for task in fs::read_dir("/proc/self/task").ok()?.flatten() {
            let tid = task.file_name().to_string_lossy().into_owned();
            let is_probe = *self
                .probes
                .entry(tid)
                .or_insert_with(|| text(task.path().join("comm")) == probes::THREAD_NAME);
            if !is_probe {
                let times = text(task.path().join("schedstat"));
                total += times.split_whitespace().next()?.parse::<u64>().ok()?;
            }
        }
        Some(total)
    }
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
            assert!(own.probes.values().any(|probe| *probe));
        });
    }

    fn machine_time() -> u64 {
        crate::machine::thread_cpu_ns()
    }
}
