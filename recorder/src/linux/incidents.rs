//! What may happen to a node while it is recorded, and what the recording says about it: CPUs that are
//! taken away, and suspension.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{machine, probes::Probe};

/// Shorter differences of two clocks are how they are read, not sleep.
const SUSPENDED_FROM_NS: u64 = 1_000_000;

pub struct Incidents {
    suspended_ns: u64,
    /// CPUs that are gone, and when that was seen.
    gone: RefCell<BTreeMap<u32, Duration>>,
    /// CPUs whose probe had to be put back.
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

    /// Ends the probes that can no longer run on their CPU: what they would see from then on is
    /// another one's noise. The others go on; those that some kernels move at every change of the
    /// cpuset are put back. True when there are more without a CPU than before.
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

    /// One sentence each.
    pub fn said(&self) -> Vec<String> {
        let mut said: Vec<String> = self
            .gone
            .borrow()
            .iter()
            .map(|(cpu, passed)| {
                let seconds = passed.as_secs_f64();
                format!(
                    "CPU {cpu} was taken away from the recorder after {seconds:.1} s (its cpuset \
                     changed, or the CPU went offline): the recording of this CPU ends there"
                )
            })
            .collect();
        for cpu in self.moved.borrow().iter() {
            said.push(format!(
                "the probe of CPU {cpu} was moved by a change of the cpuset, and put back within \
                 0.2 s: detours of that moment may be another CPU's"
            ));
        }
        let suspended_ns = machine::suspended_ns().saturating_sub(self.suspended_ns);
        if suspended_ns >= SUSPENDED_FROM_NS {
            let seconds = suspended_ns as f64 / 1e9;
            said.push(format!(
                "the machine was suspended for {seconds:.3} s meanwhile; that time is not recorded"
            ));
        }
        said
    }
}
