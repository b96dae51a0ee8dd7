//! CPUs that go offline, or leave the cpuset, while they are measured. The kernel moves their probes to
//! other CPUs, and what they see there belongs to those: the measurement ends, and the recording says
//! so.

use std::{collections::BTreeMap, time::Duration};

use crate::{machine, probes::Probe};

/// CPUs that are gone, and when they were found to be.
#[derive(Default)]
pub struct Gone(BTreeMap<u32, Duration>);

impl Gone {
    /// Ends the probes that are not where they were put. True when there are more than before.
    pub fn look(&mut self, probes: &[Probe], passed: Duration) -> bool {
        let before = self.0.len();
        for ready in probes.iter().map(|probe| &probe.ready) {
            if !self.contains(ready.cpu) && !machine::is_pinned(ready.tid, ready.cpu) {
                ready.jumps.end_at(0);
                self.0.insert(ready.cpu, passed);
            }
        }
        self.0.len() > before
    }

    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains_key(&cpu)
    }

    pub fn remarks(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(cpu, passed)| {
            let seconds = passed.as_secs_f64();
            format!(
                "CPU {cpu} went offline, or left the cpuset, after {seconds:.1} s; it was measured \
                 up to then"
            )
        })
    }
}
