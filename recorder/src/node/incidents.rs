//! Incidents on a node while it is recorded: CPUs that are taken away, and suspension.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{node::machine, probe::pinned::Probe};

/// Shorter differences of the two clocks come from reading them, not from suspension.
const SUSPENDED_FROM_NS: u64 = 1_000_000;

pub struct Incidents {
    suspended_ns: u64,
    /// CPUs that are gone, and when that was noticed.
    gone: RefCell<BTreeMap<u32, Duration>>,
    /// CPUs whose probe had to be moved back.
    moved: RefCell<BTreeSet<u32>>,
}

impl Incidents {
    pub fn start() -> Incidents {
        Incidents {
            suspended_ns: machine::suspended_ns(),
            gone: RefCell::default(),
            moved: RefCell::default(),
        }
    }

    /// Ends the probes that can no longer run on their CPU: from then on they would see another CPU's
    /// noise. The others continue; those that some kernels migrate on every cpuset change are moved
    /// back. True if more probes have lost their CPU than before.
    pub fn look(&self, passed: Duration, probes: &[Probe]) -> bool {
        let before = self.gone.borrow().len();
        for probe in probes {
            let (cpu, tid) = (probe.ready.cpu, probe.ready.tid);
            if self.has_gone(cpu) || machine::is_pinned(tid, cpu) {
                continue;
            }
            if machine::put_back(tid, cpu) {
                self.moved.borrow_mut().insert(cpu);
            } else {
                probe.ready.jumps.end_at(0);
                self.gone.borrow_mut().insert(cpu, passed);
            }
        }
        self.gone.borrow().len() > before
    }

    pub fn has_gone(&self, cpu: u32) -> bool {
        self.gone.borrow().contains_key(&cpu)
    }

    /// There were probes, and all have lost their CPU.
    pub fn no_probe_is_left(&self, probes: &[Probe]) -> bool {
        !probes.is_empty() && self.gone.borrow().len() == probes.len()
    }

    /// One remark per incident.
    pub fn said(&self) -> Vec<String> {
        let mut said: Vec<String> = self
            .gone
            .borrow()
            .iter()
            .map(|(cpu, passed)| {
                let seconds = passed.as_secs_f64();
                format!(
                    "CPU {cpu} was taken away from the recorder after {seconds:.1} s (cpuset \
                     change or CPU offline): the recording of this CPU ends there"
                )
            })
            .collect();
        for cpu in self.moved.borrow().iter() {
            said.push(format!(
                "the probe of CPU {cpu} was migrated by a cpuset change and moved back within \
                 0.5 s: detours in that interval may belong to another CPU"
            ));
        }
        let suspended_ns = machine::suspended_ns().saturating_sub(self.suspended_ns);
        if suspended_ns >= SUSPENDED_FROM_NS {
            let seconds = suspended_ns as f64 / 1e9;
            said.push(format!(
                "the machine was suspended for {seconds:.3} s; that time is not recorded"
            ));
        }
        said
    }
}
