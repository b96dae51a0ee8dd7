//! The node that commands are written for: which CPUs can be reserved for the job, which remain for
//! housekeeping, and what else decides whether a remedy applies. Taken from the recording's manifest.
//!
//! CPUs are assigned by whole cores, because the second hardware thread of a core disturbs the first.
//! The core of the boot CPU always stays with housekeeping: the kernel excludes it from `nohz_full`. A
//! node with a single core has no CPU to spare, and gets no such advice.

use std::collections::BTreeSet;

use trace::{
    Isolation, Manifest,
    cpulist::{self, CpuSet},
};

/// A NUMA node with at least this many cores gets its own housekeeping core.
const CORES_PER_NODE: usize = 4;

/// The node. The default is one about which nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// None if the recording does not list the CPUs.
    pub split: Option<Split>,
    /// Ticks per second; 0 if unknown.
    pub tick_hz: u32,
    /// Whether cores have several hardware threads; None if unknown.
    pub smt: Option<bool>,
    /// None if unknown.
    pub numa_nodes: Option<u32>,
}

/// The split of the CPUs. Both sets are empty if there is nothing to split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    pub job: CpuSet,
    pub housekeeping: CpuSet,
}

impl Place {
    /// The node of a recording; none if the nodes of a job differ.
    #[must_use]
    pub fn of_recording(manifest: &Manifest) -> Place {
        let differ = !manifest.nodes.is_empty() && manifest.isolation == Isolation::default();
        if differ { Place::default() } else { Place::of(manifest) }
    }

    #[must_use]
    pub fn of(manifest: &Manifest) -> Place {
        let topology = &manifest.topology;
        let set = |text: &str| cpulist::parse(text).unwrap_or_default();
        let online = set(&topology.online);
        // At most one list per CPU: the file may be damaged.
        let sets = |lists: &[String]| -> Vec<CpuSet> {
            lists.iter().take(online.len()).map(|list| set(list)).collect()
        };
        let (siblings, nodes) = (sets(&topology.smt_siblings), sets(&topology.numa_cpus));
        let measured = set(&manifest.isolation.measured);
        let housekeeping = set(&manifest.isolation.housekeeping);
        let known = !online.is_empty();
        Place {
            split: known.then(|| split(&online, &siblings, &nodes, &measured, &housekeeping)),
            tick_hz: manifest.tick_hz,
            smt: known.then(|| siblings.iter().any(|core| core.len() > 1)),
            numa_nodes: known.then_some(topology.numa_nodes),
        }
    }

    /// Whether CPUs can be reserved for the job; true unless known otherwise.
    pub(crate) fn can_isolate(&self) -> bool {
        self.split.as_ref().is_none_or(|split| !split.job.is_empty())
    }
}

fn split(
    online: &CpuSet,
    siblings: &[CpuSet],
    nodes: &[CpuSet],
    measured: &CpuSet,
    housekeeping: &CpuSet,
) -> Split {
    let cores = cores(online, siblings);
    let whole = |cpus: &CpuSet| -> CpuSet {
        cores.iter().filter(|core| !core.is_disjoint(cpus)).flatten().copied().collect()
    };
    let boot: CpuSet = online.first().copied().into_iter().collect();
    // The recording's housekeeping cores stay housekeeping, except those that were also measured.
    let left = cores.iter().filter(|core| !core.is_disjoint(housekeeping));
    let mut kept: CpuSet =
        left.filter(|core| core.is_disjoint(measured)).flatten().copied().collect();
    if housekeeping.is_empty() {
        for node in nodes {
            let own: Vec<&CpuSet> = cores.iter().filter(|core| core.is_subset(node)).collect();
            if own.len() >= CORES_PER_NODE {
                kept.extend(own[0]);
            }
        }
    }
    kept.extend(whole(&boot));
    let without =
        |cpus: &CpuSet, kept: &CpuSet| -> CpuSet { cpus.difference(kept).copied().collect() };
    let mut job = without(&whole(measured), &kept);
    // Recorded on the boot CPU alone, or on unknown CPUs: the job runs on the others.
    if job.is_empty() {
        job = without(online, &whole(&boot));
    }
    if job.is_empty() {
        return Split::default();
    }
    let housekeeping = without(online, &job);
    Split { job, housekeeping }
}

/// Online CPUs by core, in the order of their first CPU.
fn cores(online: &CpuSet, siblings: &[CpuSet]) -> Vec<CpuSet> {
    let mut cores: BTreeSet<Vec<u32>> = BTreeSet::new();
    for cpu in online {
        let core = siblings.iter().find(|core| core.contains(cpu));
        let threads =
            core.map_or_else(|| vec![*cpu], |c| c.intersection(online).copied().collect());
        cores.insert(threads);
    }
    cores.into_iter().map(|threads| threads.into_iter().collect()).collect()
}

/// Mask in the kernel's format: `ff,ffffffff`.
pub(crate) fn mask(cpus: &CpuSet) -> String {
    let words = cpus.last().map_or(1, |last| last / 32 + 1);
    let word = |index: u32| -> u32 {
        cpus.range(32 * index..32 * (index + 1)).fold(0, |word, cpu| word | 1 << (cpu % 32))
    };
    let first = format!("{:x}", word(words - 1));
    (0..words - 1).rev().fold(first, |text, index| format!("{text},{:08x}", word(index)))
}

#[cfg(test)]
mod tests {
    use trace::Topology;

    use super::*;

    /// A node in a recording of all its CPUs: hardware threads numbered as Linux usually does, the
    /// second of each core after the first of all cores.
    fn place(cpus: u32, smt: bool, nodes: u32, isolation: (&str, &str)) -> Place {
        let cores = if smt { cpus / 2 } else { cpus };
        let siblings = (0..cores).map(|core| format!("{core},{}", core + cores));
        let per_node = cores / nodes;
        let node = |node: u32| {
            let (first, last) = (node * per_node, (node + 1) * per_node - 1);
            match smt {
                true => format!("{first}-{last},{}-{}", first + cores, last + cores),
                false => format!("{first}-{last}"),
            }
        };
        Place::of(&Manifest {
            topology: Topology {
                online: format!("0-{}", cpus - 1).replace("0-0", "0"),
                numa_nodes: nodes,
                smt_siblings: if smt { siblings.collect() } else { Vec::new() },
                numa_cpus: (0..nodes).map(node).collect(),
                ..Topology::default()
            },
            isolation: Isolation {
                measured: isolation.0.into(),
                housekeeping: isolation.1.into(),
                ..Isolation::default()
            },
            ..Manifest::default()
        })
    }

    fn lists(place: &Place) -> (String, String) {
        let split = place.split.as_ref().expect("known");
        (cpulist::format(&split.job), cpulist::format(&split.housekeeping))
    }

    #[test]
    fn some_core_is_always_left_to_housekeeping() {
        let of = |cpus, smt, nodes, isolation| lists(&place(cpus, smt, nodes, isolation));
        let both = |job: &str, rest: &str| (job.to_owned(), rest.to_owned());
        // Nothing to split: a single CPU, or a single core.
        assert_eq!(of(1, false, 1, ("0", "")), both("", ""));
        assert_eq!(of(2, true, 1, ("0,1", "")), both("", ""));
        assert_eq!(of(2, false, 1, ("0,1", "")), both("1", "0"));
        assert_eq!(of(16, false, 1, ("0-15", "")), both("1-15", "0"));
        assert_eq!(of(16, true, 1, ("0-15", "")), both("1-7,9-15", "0,8"));
        // A housekeeping core in each of two NUMA nodes.
        assert_eq!(of(128, false, 2, ("0-127", "")), both("1-63,65-127", "0,64"));
        assert_eq!(of(128, true, 2, ("0-127", "")), both("1-31,33-63,65-95,97-127", "0,32,64,96"));
        // As requested, by whole cores and never with the boot CPU.
        assert_eq!(of(2, false, 1, ("1", "0")), both("1", "0"));
        assert_eq!(of(2, false, 1, ("0", "1")), both("1", "0"));
        assert_eq!(of(16, true, 1, ("3", "0-2,4-15")), both("3,11", "0-2,4-10,12-15"));
        assert_eq!(of(16, true, 1, ("2-7", "0,1")), both("2-7,10-15", "0,1,8,9"));
    }

    #[test]
    fn masks_are_those_of_the_kernel() {
        let mask = |text: &str| super::mask(&cpulist::parse(text).unwrap());
        assert_eq!(mask("0"), "1");
        assert_eq!(mask("0,1,8,9"), "303");
        assert_eq!(mask("0,64"), "1,00000000,00000001");
        assert_eq!(mask("31,32"), "1,80000000");
    }
}
