//! What two recordings have in common, and whether that is enough to compare them.
//!
//! Recordings of different modes measure different things: the probe sees detours of a CPU, records
//! alone show what the kernel did on a CPU that may have been idle, and a program's threads are watched
//! only while they want to run. Those are rejected. Recordings that differ in CPUs or thresholds are
//! compared on the CPUs, and above the threshold, that both recorded.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use thiserror::Error;
use trace::{
    Lane, Mode, Source,
    cpulist::{self, CpuSet},
};

use crate::Contents;

/// Thresholds within this factor count as equal: a multiple of t_min varies a little between recordings.
const SAME_THRESHOLD: f64 = 1.1;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum Incomparable {
    #[error(
        "they were recorded in different modes ({before}; {after}): {why}; record both with the \
         same options"
    )]
    Modes { before: Mode, after: Mode, why: &'static str },
    #[error(
        "no CPU in common (CPU {before} before, CPU {after} after); record the same CPUs with -c"
    )]
    Cpus { before: String, after: String },
}

/// The part of a recording that is compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// By lane; None for all.
    lanes: Option<Vec<bool>>,
    /// Shorter detours, and records outside detours, are excluded; 0 to exclude none.
    pub shortest_ns: u64,
    /// What processes make the kernel do has rows of its own.
    pub without_causes: bool,
}

impl Part {
    #[must_use]
    pub fn has(&self, lane: u32) -> bool {
        self.lanes.as_ref().is_none_or(|lanes| lanes.get(lane as usize) == Some(&true))
    }
}

/// What is compared, with warnings.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Scope {
    /// CPUs that both recorded, if they differ.
    pub only_cpus: Option<String>,
    /// Only detours of at least this length, if thresholds differ.
    pub only_from_ns: Option<f64>,
    /// Other differences between the recordings, as sentences.
    pub warnings: Vec<String>,
    #[serde(skip)]
    pub before: Part,
    #[serde(skip)]
    pub after: Part,
}

/// # Errors
/// If nothing was recorded by both in the same mode.
pub fn scope(before: &Contents<'_>, after: &Contents<'_>) -> Result<Scope, Incomparable> {
    let modes = (before.manifest.mode, after.manifest.mode);
    if let Some(why) = incomparable(modes.0, modes.1) {
        return Err(Incomparable::Modes { before: modes.0, after: modes.1, why });
    }
    let mut scope = Scope { warnings: warnings(before, after), ..Scope::default() };
    if modes.0 != Mode::Imported && modes.1 != Mode::Imported {
        common_cpus(before, after, &mut scope)?;
    }
    if let Some(shortest) = common_threshold(before, after, &scope) {
        scope.only_from_ns = Some(shortest);
        scope.before.shortest_ns = shortest.ceil() as u64;
        scope.after.shortest_ns = scope.before.shortest_ns;
    }
    for (when, one, other) in [("before", before, after), ("after", after, before)] {
        if lacks_causes(one.sources, other.sources) {
            (scope.before.without_causes, scope.after.without_causes) = (true, true);
            scope.warnings.push(format!(
                "The recording {when} lacks the causes of kernel work: in both, processes are compared without \
                 their timers and interrupts, which have rows of their own."
            ));
        }
    }
    Ok(scope)
}

/// Whether a recording without causes has a source that the other one attributes to a process.
fn lacks_causes(one: &[Source], other: &[Source]) -> bool {
    let caused = || other.iter().filter(|source| source.cause.is_some());
    let kinds: BTreeSet<_> = caused().map(|source| (source.class, source.name.as_str())).collect();
    one.iter().all(|source| source.cause.is_none())
        && one.iter().any(|source| kinds.contains(&(source.class, source.name.as_str())))
}

/// Why recordings of these two modes cannot be compared.
fn incomparable(before: Mode, after: Mode) -> Option<&'static str> {
    let pair = |a, b| (before, after) == (a, b) || (before, after) == (b, a);
    if before == after || pair(Mode::ProbeOnly, Mode::Imported) {
        return None;
    }
    Some(match (before, after) {
        (Mode::Program, _) | (_, Mode::Program) => {
            "one is of a program's threads and one of CPUs, so their shares have different bases"
        }
        _ if before.has_sources() != after.has_sources() => {
            "one attributes its noise and one does not, so sources cannot be compared"
        }
        _ => {
            "without the probe a CPU may idle, and it is not known what a program on it would lose"
        }
    })
}

/// The CPU of each lane, with its host if there are several. None for threads.
fn cpus<'a>(contents: &Contents<'a>, with_host: bool) -> Vec<Option<(&'a str, u32)>> {
    let manifest = contents.manifest;
    let key = |(id, lane): (u32, &Lane)| {
        let &Lane::Cpu { cpu } = lane else { return None };
        let host = manifest.node_of(id).map_or(manifest.host.as_str(), |node| &node.host);
        Some((if with_host { host } else { "" }, cpu))
    };
    (0..).zip(contents.lanes).map(key).collect()
}

fn common_cpus(
    before: &Contents<'_>,
    after: &Contents<'_>,
    scope: &mut Scope,
) -> Result<(), Incomparable> {
    let several = |contents: &Contents<'_>| !contents.manifest.nodes.is_empty();
    let with_host = several(before) || several(after);
    let (lanes_before, lanes_after) = (cpus(before, with_host), cpus(after, with_host));
    let set = |lanes: &[Option<(&str, u32)>]| -> BTreeSet<(String, u32)> {
        lanes.iter().flatten().map(|&(host, cpu)| (host.to_owned(), cpu)).collect()
    };
    let (of_before, of_after) = (set(&lanes_before), set(&lanes_after));
    if of_before == of_after || of_before.is_empty() || of_after.is_empty() {
        return Ok(());
    }
    let common: BTreeSet<_> = of_before.intersection(&of_after).cloned().collect();
    if common.is_empty() {
        let hosts = |set: &BTreeSet<(String, u32)>| -> BTreeSet<String> {
            set.iter().map(|(host, _)| host.clone()).collect()
        };
        // Jobs on different nodes: there is a warning.
        if with_host && hosts(&of_before).is_disjoint(&hosts(&of_after)) {
            return Ok(());
        }
        return Err(Incomparable::Cpus { before: words(&of_before), after: words(&of_after) });
    }
    let kept = |lanes: &[Option<(&str, u32)>]| {
        let has = |lane: &Option<(&str, u32)>| {
            lane.is_some_and(|(host, cpu)| common.contains(&(host.to_owned(), cpu)))
        };
        Some(lanes.iter().map(has).collect())
    };
    scope.before.lanes = kept(&lanes_before);
    scope.after.lanes = kept(&lanes_after);
    scope.only_cpus = Some(words(&common));
    Ok(())
}

/// `0-3,7`, or `0-3 of node1, 0 of node2`.
fn words(cpus: &BTreeSet<(String, u32)>) -> String {
    let mut by_host: BTreeMap<&str, CpuSet> = BTreeMap::new();
    for (host, cpu) in cpus {
        by_host.entry(host).or_default().insert(*cpu);
    }
    let each = by_host.iter().map(|(host, cpus)| match *host {
        "" => cpulist::format(cpus),
        host => format!("{} of {host}", cpulist::format(cpus)),
    });
    each.collect::<Vec<_>>().join(", ")
}

/// The higher of the two thresholds, if they differ.
fn common_threshold(before: &Contents<'_>, after: &Contents<'_>, scope: &Scope) -> Option<f64> {
    // A program is recorded without a probe, and without a threshold unless one is given.
    let threshold = |contents: &Contents<'_>, part: &Part| match contents.manifest.mode {
        Mode::Program => Some(threshold_ns(contents, part).unwrap_or(0.0)),
        _ => threshold_ns(contents, part),
    };
    let (a, b) = (threshold(before, &scope.before)?, threshold(after, &scope.after)?);
    (a.max(b) > SAME_THRESHOLD * a.min(b)).then_some(a.max(b))
}

/// The highest threshold of the CPUs or threads of the part, if known.
pub(crate) fn threshold_ns(contents: &Contents<'_>, part: &Part) -> Option<f64> {
    let of_lane = |(id, lane): (u32, &Lane)| {
        let mut settings = contents.manifest.cpus_of(id).iter();
        let settings = match *lane {
            Lane::Cpu { cpu } => settings.find(|settings| settings.cpu == cpu),
            // A program has a single threshold.
            Lane::Thread { .. } => settings.next(),
        };
        settings.map(|settings| settings.threshold_ns).filter(|ns| *ns > 0.0)
    };
    let lanes = (0..).zip(contents.lanes).filter(|(id, _)| part.has(*id));
    lanes.filter_map(of_lane).max_by(f64::total_cmp)
}

fn warnings(before: &Contents<'_>, after: &Contents<'_>) -> Vec<String> {
    let (a, b) = (before.manifest, after.manifest);
    let mut warnings = Vec::new();
    for (what, a, b) in [("host", &a.host, &b.host), ("kernel", &a.kernel, &b.kernel)] {
        if a != b {
            warnings.push(format!("The {what} differs: {a} before, {b} after."));
        }
    }
    if (a.mode, b.mode) == (Mode::Program, Mode::Program) && before.lanes.len() != after.lanes.len()
    {
        warnings.push(format!(
            "The number of threads differs: {} before, {} after. Rates are sums over all threads \
             and differ for that reason alone.",
            before.lanes.len(),
            after.lanes.len()
        ));
    }
    let hooks = |of: &[String], other: &[String]| -> Vec<String> {
        of.iter().filter(|hook| !other.contains(hook)).cloned().collect()
    };
    for (when, only) in [
        ("before", hooks(&a.hooks_attached, &b.hooks_attached)),
        ("after", hooks(&b.hooks_attached, &a.hooks_attached)),
    ] {
        if !only.is_empty() {
            warnings.push(format!(
                "Hooks attached only {when}: {}. What only they see is missing on the other side.",
                only.join(", ")
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use trace::{CpuSettings, Manifest, Node};

    use super::*;

    fn manifest(mode: Mode, cpus: &[u32], threshold_ns: f64) -> Manifest {
        let settings = |&cpu: &u32| CpuSettings { cpu, threshold_ns, ..CpuSettings::default() };
        Manifest {
            host: "node".into(),
            mode,
            lanes: cpus.iter().map(|&cpu| Lane::Cpu { cpu }).collect(),
            cpus: cpus.iter().map(settings).collect(),
            ..Manifest::default()
        }
    }

    #[test]
    fn programs_with_different_numbers_of_threads_are_compared_with_a_warning() {
        let program = |threads: u32| {
            let thread = |tid| Lane::Thread { pid: 1, tid, name: "work".into() };
            Manifest {
                lanes: (0..threads).map(thread).collect(),
                ..manifest(Mode::Program, &[], 0.0)
            }
        };
        let warned = |before: &Manifest, after: &Manifest| {
            scope(&of(before), &of(after)).expect("comparable").warnings.join(" ")
        };
        let said = warned(&program(3), &program(5));
        assert!(said.contains("The number of threads differs: 3 before, 5 after"), "{said}");
        assert_eq!(warned(&program(3), &program(3)), "");
    }

    fn of(manifest: &Manifest) -> Contents<'_> {
        let lanes = &manifest.lanes;
        Contents { manifest, sources: &[], lanes, trailer: None, cut_off: &[], truncated: None }
    }

    fn between(before: &Manifest, after: &Manifest) -> Result<Scope, Incomparable> {
        scope(&of(before), &of(after))
    }

    #[test]
    fn recordings_made_in_different_ways_are_refused_but_for_two_without_names() {
        use Mode::*;
        let modes = [Attributed, ProbeOnly, KernelOnly, Program, Imported];
        for a in modes {
            for b in modes {
                let found = between(&manifest(a, &[0], 0.0), &manifest(b, &[0], 0.0));
                let alike =
                    a == b || [(ProbeOnly, Imported), (Imported, ProbeOnly)].contains(&(a, b));
                assert_eq!(found.is_ok(), alike, "{a} and {b}");
            }
        }
    }

    #[test]
    fn causes_that_one_recording_lacks_are_ignored_in_both() {
        let source = |name: &str, cause: Option<&str>| Source {
            class: trace::Class::Timer,
            name: name.into(),
            cause: cause.map(|process| trace::Cause {
                process: process.into(),
                unit: None,
                own: false,
                program: false,
            }),
            unit: None,
            detail: None,
            pids: Vec::new(),
            own: false,
            program: false,
            policy: None,
        };
        let manifest = manifest(Mode::Attributed, &[0], 180.0);
        let between = |before: &[Source], after: &[Source]| {
            let of = |sources| Contents { sources, ..of(&manifest) };
            scope(&of(before), &of(after)).unwrap()
        };
        let new = [source("tick", None), source("hrtimer_wakeup", Some("daemon"))];
        let old = [source("tick", None), source("hrtimer_wakeup", None)];
        for (found, when) in [(between(&old, &new), "before"), (between(&new, &old), "after")] {
            assert!(found.before.without_causes && found.after.without_causes);
            assert!(found.warnings[0].starts_with(&format!("The recording {when} lacks")));
        }
        // A node on which no process set a timer lacks nothing.
        for quiet in [&old[..1], &new] {
            assert_eq!(between(quiet, &new), Scope::default());
        }
    }

    #[test]
    fn only_the_cpus_that_both_recorded_are_compared() {
        let before = manifest(Mode::Attributed, &[0, 1, 2, 3, 7], 180.0);
        let after = manifest(Mode::Attributed, &[7, 2, 3, 9], 180.0);
        let found = between(&before, &after).unwrap();
        assert_eq!(found.only_cpus.as_deref(), Some("2,3,7"));
        assert_eq!(found.before.lanes, Some(vec![false, false, true, true, true]));
        assert_eq!(found.after.lanes, Some(vec![true, true, true, false]));
        assert_eq!(between(&before, &before).unwrap(), Scope::default());
        let none = between(&before, &manifest(Mode::Attributed, &[4, 5], 180.0)).unwrap_err();
        assert!(none.to_string().contains("CPU 0-3,7 before, CPU 4,5 after"), "{none}");
    }

    #[test]
    fn where_thresholds_differ_only_what_both_would_have_seen_is_compared() {
        let with = |threshold| manifest(Mode::Attributed, &[0], threshold);
        assert_eq!(between(&with(180.0), &with(190.0)).unwrap().only_from_ns, None);
        let found = between(&with(180.0), &with(1000.0)).unwrap();
        assert_eq!((found.only_from_ns, found.after.shortest_ns), (Some(1000.0), 1000));
        assert_eq!(found.before, found.after);
        // An imported file may have no threshold.
        assert_eq!(between(&with(180.0), &with(0.0)).unwrap().only_from_ns, None);
    }

    #[test]
    fn nodes_of_jobs_are_told_apart_by_host_and_other_hosts_are_a_warning() {
        let job = |hosts: &[&str]| {
            let node = |(index, host): (usize, &&str)| Node {
                host: (*host).into(),
                first_lane: 2 * index as u32,
                lanes: 2,
                ..Node::default()
            };
            Manifest {
                host: hosts.join(", "),
                lanes: hosts.iter().flat_map(|_| [0, 1].map(|cpu| Lane::Cpu { cpu })).collect(),
                nodes: hosts.iter().enumerate().map(node).collect(),
                ..manifest(Mode::Attributed, &[], 0.0)
            }
        };
        let found = between(&job(&["a", "b"]), &job(&["b", "c"])).unwrap();
        assert_eq!(found.only_cpus.as_deref(), Some("0,1 of b"));
        assert_eq!(found.before.lanes, Some(vec![false, false, true, true]));
        let others = between(&job(&["a"]), &job(&["c"])).unwrap();
        assert_eq!((others.only_cpus, others.warnings.len()), (None, 1));
        let (one, mut other) =
            (manifest(Mode::Attributed, &[0], 0.0), manifest(Mode::Attributed, &[0], 0.0));
        other.host = "elsewhere".into();
        other.hooks_attached.push("page_fault_user".into());
        let said = between(&one, &other).unwrap().warnings;
        assert!(said[0].contains("node before, elsewhere after"), "{said:?}");
        assert!(said[1].contains("only after: page_fault_user"), "{said:?}");
    }
}
