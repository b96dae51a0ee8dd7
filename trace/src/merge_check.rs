//! Checks whether recordings can be the nodes of one job: all recorded at the same time, no CPU or
//! thread of a host recorded twice.
//!
//! A host is identified by the boot id of its kernel, whatever its name: containers have names of their
//! own, and many hosts are called `localhost`. Without boot ids, names count. Recorders can share a host if they watch different CPUs or threads, as one
//! recorder per rank does. A recording without a start time (another tool's file) may be from any time.

use std::{collections::HashMap, hash::Hash};

use thiserror::Error;

use crate::model::Lane;

#[derive(Debug, Error)]
pub enum NodesError {
    #[error(
        "{one} and {other} have neither host nor time and cannot be distinguished as nodes \
         (--force merges them anyway)"
    )]
    Nameless { one: String, other: String },
    #[error("{one} and {other} are the same recording of {host}: omit one")]
    Twice { one: String, other: String, host: String },
    #[error(
        "{one} and {other} both recorded {lane} of {host} at the same time, so its noise would count \
         twice: omit one (--force merges them anyway)"
    )]
    SameLane { one: String, other: String, host: String, lane: String },
    #[error(
        "{one} ended {apart} before {other} began: recordings of one job overlap in time, unless the \
         clocks of its nodes differ (--force merges them anyway)"
    )]
    NotSimultaneous { one: String, other: String, apart: String },
}

/// The metadata that the check needs.
#[derive(Clone, Debug)]
pub(crate) struct NodeFacts<'a> {
    /// The file.
    pub(crate) name: &'a str,
    pub(crate) host: &'a str,
    pub(crate) boot_id: &'a str,
    pub(crate) started_monotonic_ns: u64,
    /// Seconds since 1970; None if unknown.
    pub(crate) window: Option<(f64, f64)>,
    pub(crate) lanes: &'a [Lane],
}

impl NodeFacts<'_> {
    /// Whether both may be from the same kernel.
    fn same_host(&self, other: &NodeFacts<'_>) -> bool {
        match self.boot_id.is_empty() || other.boot_id.is_empty() {
            true => self.host == other.host,
            false => self.boot_id == other.boot_id,
        }
    }

    fn same_start(&self, other: &NodeFacts<'_>) -> bool {
        let from = |facts: &NodeFacts| facts.window.map(|(from, _)| from.to_bits());
        from(self) == from(other) && self.started_monotonic_ns == other.started_monotonic_ns
    }
}

/// The recordings seen so far, by host and something else that they may share.
struct Seen<'a, Key>(HashMap<(Host<'a>, Key), Vec<&'a NodeFacts<'a>>>);

/// A recording without a boot id can only be recognised by its name, so names are always looked up too.
#[derive(PartialEq, Eq, Hash)]
enum Host<'a> {
    Name(&'a str),
    Boot(&'a str),
}

impl<'a, Key: Copy + Eq + Hash> Seen<'a, Key> {
    /// One of the same host that fulfils a condition, if there is any; adds this one.
    fn find_and_add(
        &mut self,
        node: &'a NodeFacts<'a>,
        key: Key,
        is_it: impl Fn(&NodeFacts<'_>) -> bool,
    ) -> Option<&'a NodeFacts<'a>> {
        let boot = (!node.boot_id.is_empty()).then_some(Host::Boot(node.boot_id));
        let mut found = None;
        for host in boot.into_iter().chain([Host::Name(node.host)]) {
            let before = self.0.entry((host, key)).or_default();
            let same = |other: &&&NodeFacts<'_>| other.same_host(node) && is_it(other);
            found = found.or_else(|| before.iter().find(same).copied());
            before.push(node);
        }
        found
    }
}

/// The first pair of recordings that cannot be nodes of one job, and why.
pub(crate) fn check(nodes: &[NodeFacts<'_>]) -> Result<(), NodesError> {
    same_recording(nodes)?;
    simultaneous(nodes)?;
    same_lane(nodes)
}

fn same_recording(nodes: &[NodeFacts<'_>]) -> Result<(), NodesError> {
    let mut seen = Seen(HashMap::new());
    for node in nodes {
        // Recorders on one host may start at the same time; their lanes distinguish them.
        let is_it = |other: &NodeFacts<'_>| other.same_start(node) && other.lanes == node.lanes;
        if let Some(twin) = seen.find_and_add(node, node.started_monotonic_ns, is_it) {
            let (one, other) = (twin.name.to_owned(), node.name.to_owned());
            return Err(match node.host {
                "" => NodesError::Nameless { one, other },
                host => NodesError::Twice { one, other, host: host.to_owned() },
            });
        }
    }
    Ok(())
}

/// Intervals overlap pairwise if the last one begins before the first one ends.
fn simultaneous(nodes: &[NodeFacts<'_>]) -> Result<(), NodesError> {
    let known = || nodes.iter().filter_map(|node| Some((node, node.window?)));
    let last = known().max_by(|(_, a), (_, b)| a.0.total_cmp(&b.0));
    let first = known().min_by(|(_, a), (_, b)| a.1.total_cmp(&b.1));
    let (Some((later, (from, _))), Some((earlier, (_, to)))) = (last, first) else { return Ok(()) };
    // A recording without events ends where it begins.
    if from <= to || std::ptr::eq(later, earlier) {
        return Ok(());
    }
    Err(NodesError::NotSimultaneous {
        one: earlier.name.to_owned(),
        other: later.name.to_owned(),
        apart: apart(from - to),
    })
}

fn same_lane(nodes: &[NodeFacts<'_>]) -> Result<(), NodesError> {
    let mut seen = Seen(HashMap::new());
    for node in nodes.iter().filter(|node| !node.host.is_empty()) {
        for lane in node.lanes {
            if let Some(other) = seen.find_and_add(node, lane, |_| true) {
                return Err(NodesError::SameLane {
                    one: other.name.to_owned(),
                    other: node.name.to_owned(),
                    host: match other.host == node.host {
                        true => node.host.to_owned(),
                        // Containers, or a host that was renamed.
                        false => format!("one machine ({} and {})", other.host, node.host),
                    },
                    lane: match lane {
                        Lane::Cpu { cpu } => format!("CPU {cpu}"),
                        Lane::Thread { tid, name, .. } => format!("thread {tid} ({name})"),
                    },
                });
            }
        }
    }
    Ok(())
}

fn apart(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7_200.0 => format!("{:.0} minutes", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} hours", s / 3_600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: f64 = 86_400.0;

    fn cpus(cpus: std::ops::Range<u32>) -> Vec<Lane> {
        cpus.map(|cpu| Lane::Cpu { cpu }).collect()
    }

    fn node<'a>(host: &'a str, lanes: &'a [Lane], from: f64, to: f64) -> NodeFacts<'a> {
        NodeFacts {
            name: host,
            host: host.trim_end_matches(char::is_numeric),
            boot_id: "",
            started_monotonic_ns: (from * 1e3) as u64,
            window: (from > 0.0).then_some((from, to)),
            lanes,
        }
    }

    fn complaint(nodes: &[NodeFacts<'_>]) -> String {
        check(nodes).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn recordings_have_to_overlap_in_time() {
        let lanes = cpus(0..2);
        let (a, b) = (node("a", &lanes, 1000.0, 1010.0), node("b", &lanes, 1009.0, 1019.0));
        assert_eq!(complaint(&[a.clone(), b]), "");
        let next_day = node("c", &lanes, 1000.0 + DAY, 1010.0 + DAY);
        let said = complaint(&[next_day.clone(), a.clone()]);
        assert!(said.starts_with("a ended 24.0 hours before c began"), "{said}");
        assert!(said.contains("--force"), "{said}");
        // A third one that lasts all day does not make the others overlap.
        let all_day = node("d", &lanes, 1005.0, 1005.0 + DAY);
        assert_ne!(complaint(&[a.clone(), all_day, next_day]), "");
        // A file without a start time may be from any time.
        assert_eq!(complaint(&[a, node("e", &lanes, 0.0, 0.0)]), "");
    }

    #[test]
    fn a_cpu_of_a_host_is_recorded_once() {
        let (low, middle, high) = (cpus(0..2), cpus(1..4), cpus(2..4));
        let one = node("a1", &low, 1000.0, 1010.0);
        let said = complaint(&[one.clone(), node("a2", &middle, 1002.0, 1012.0)]);
        assert!(said.contains("a1 and a2 both recorded CPU 1 of a"), "{said}");
        assert!(said.contains("--force"), "{said}");
        // One recorder for each half of the node.
        assert_eq!(complaint(&[one.clone(), node("a2", &high, 1002.0, 1012.0)]), "");
        let same = complaint(&[one.clone(), node("b", &low, 1000.0, 1010.0), one]);
        assert!(same.contains("the same recording of a: omit one"), "{same}");
    }

    #[test]
    fn hosts_are_told_apart_by_their_boot_ids_whatever_their_names() {
        let lanes = cpus(0..2);
        let one = node("localhost1", &lanes, 1000.0, 1010.0);
        let other = node("localhost2", &lanes, 1001.0, 1011.0);
        let with = |node: &NodeFacts<'_>, boot_id: &'static str| -> String {
            let (one, node) = (one.clone(), node.clone());
            complaint(&[NodeFacts { boot_id: "x", ..one }, NodeFacts { boot_id, ..node }])
        };
        assert_eq!(with(&other, "y"), "");
        // A container has a name of its own.
        let container = node("c0ffee", &lanes, 1001.0, 1011.0);
        assert_eq!(with(&container, "y"), "");
        let said = with(&container, "x");
        assert!(said.contains("CPU 0 of one machine (localhost and c0ffee)"), "{said}");
        assert_ne!(with(&other, "x"), "");
        assert_ne!(with(&other, ""), "");
    }

    #[test]
    fn threads_are_told_apart_by_number_and_name() {
        let thread = |tid| vec![Lane::Thread { pid: 7, tid, name: "rank".to_owned() }];
        let (seven, eight) = (thread(7), thread(8));
        let of = |name, lanes, from| node(name, lanes, from, 1010.0);
        assert_eq!(complaint(&[of("a1", &seven, 1000.0), of("a2", &eight, 1001.0)]), "");
        let said = complaint(&[of("a1", &seven, 1000.0), of("a2", &seven, 1001.0)]);
        assert!(said.contains("thread 7 (rank) of a"), "{said}");
    }

    #[test]
    fn files_without_host_and_time_cannot_be_told_apart() {
        let lanes = cpus(0..1);
        let nameless = || node("", &lanes, 0.0, 0.0);
        assert!(complaint(&[nameless(), nameless()]).contains("neither host nor time"));
    }
}
