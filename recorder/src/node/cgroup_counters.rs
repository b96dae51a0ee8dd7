//! What quotas and full CPUs did to cgroups while the node was recorded, by the kernel's own counters: read
//! once before and once after the recording, so that it costs the recording nothing.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use trace::CgroupTotals;

use crate::{
    naming::{cgroups, quotas},
    node::files,
};

/// Cgroups that are read. Kubernetes nodes have a few thousand.
const MAX_READ: usize = 10_000;

/// Cgroups that are kept, the longest delayed first.
const MAX_KEPT: usize = 64;

/// Shorter waits for a CPU are not worth a row: every cgroup has some.
const WAITED_FROM_NS: u64 = 1_000_000;

/// The counters at the start of a recording.
pub struct CgroupCounters {
    /// The mount point of the CPU controller, and whether it is cgroup v2.
    mount: Option<(PathBuf, bool)>,
    before: BTreeMap<PathBuf, Counters>,
}

#[derive(Clone, Copy, Default)]
struct Counters {
    periods: u64,
    throttled_periods: u64,
    throttled_ns: u64,
    waited_ns: Option<u64>,
}

impl CgroupCounters {
    pub fn start() -> CgroupCounters {
        let mount = quotas::mount(&files::text("/proc/self/mountinfo"));
        let before = mount.as_ref().map(|(root, _)| read(root)).unwrap_or_default();
        CgroupCounters { mount, before }
    }

    /// The cgroups that were delayed since. One that ended in between took its counters with it.
    pub fn stop(&self) -> Vec<CgroupTotals> {
        let Some((root, v2)) = &self.mount else { return Vec::new() };
        let delayed = read(root).into_iter().filter_map(|(directory, after)| {
            // A cgroup that was made in between counts from its start.
            let before = self.before.get(&directory).copied().unwrap_or_default();
            let totals = since(before, after);
            let waited = totals.waited_ns.is_some_and(|ns| ns >= WAITED_FROM_NS);
            if totals.throttled_periods == 0 && totals.throttled_ns == 0 && !waited {
                return None;
            }
            let (quota_us, period_us) = quotas::quota(&directory, *v2).unzip();
            let cgroup = format!("/{}", directory.strip_prefix(root).ok()?.display());
            Some(CgroupTotals { cgroup, quota_us, period_us, ..totals })
        });
        CgroupTotals::longest(delayed.collect(), MAX_KEPT)
    }
}

/// The counters of all cgroups but the root, which has no quota and is the whole machine.
fn read(root: &Path) -> BTreeMap<PathBuf, Counters> {
    let below = cgroups::directories(root).filter(|directory| directory != root).take(MAX_READ);
    let counters = below.filter_map(|directory| {
        let text = |file| fs::read_to_string(directory.join(file)).ok();
        let stat = text("cpu.stat")?;
        let pressure = text("cpu.pressure");
        Some((directory, parse(&stat, pressure.as_deref())))
    });
    counters.collect()
}

/// From the texts of `cpu.stat`, of either version of cgroups, and `cpu.pressure`.
fn parse(stat: &str, pressure: Option<&str>) -> Counters {
    let value = |key: &str| {
        let of_line = |line: &str| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok();
        stat.lines().find_map(of_line)
    };
    let throttled_us = value("throttled_usec").map(|us: u64| us.saturating_mul(1_000));
    let waited_us = pressure.and_then(|text| {
        let some = text.lines().find(|line| line.starts_with("some "))?;
        some.split_once("total=")?.1.trim().parse::<u64>().ok()
    });
    Counters {
        periods: value("nr_periods").unwrap_or(0),
        throttled_periods: value("nr_throttled").unwrap_or(0),
        throttled_ns: throttled_us.or_else(|| value("throttled_time")).unwrap_or(0),
        waited_ns: waited_us.map(|us| us.saturating_mul(1_000)),
    }
}

fn since(before: Counters, after: Counters) -> CgroupTotals {
    CgroupTotals {
        periods: after.periods.saturating_sub(before.periods),
        throttled_periods: after.throttled_periods.saturating_sub(before.throttled_periods),
        throttled_ns: after.throttled_ns.saturating_sub(before.throttled_ns),
        waited_ns: after.waited_ns.map(|ns| ns.saturating_sub(before.waited_ns.unwrap_or(0))),
        ..CgroupTotals::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_either_version_are_read() {
        let v1 = parse("nr_periods 12\nnr_throttled 5\nthrottled_time 400123\n", None);
        assert_eq!((v1.periods, v1.throttled_periods, v1.throttled_ns), (12, 5, 400_123));
        assert_eq!(v1.waited_ns, None);
        let v2 = "usage_usec 9\nnr_periods 3\nnr_throttled 2\nthrottled_usec 70\nnr_bursts 0\n";
        let pressure = "some avg10=0.00 avg60=0.12 avg300=0.02 total=1234\n\
                        full avg10=0.00 avg60=0.00 avg300=0.00 total=99\n";
        let v2 = parse(v2, Some(pressure));
        assert_eq!((v2.periods, v2.throttled_periods, v2.throttled_ns), (3, 2, 70_000));
        assert_eq!(v2.waited_ns, Some(1_234_000));
        assert_eq!(since(v1, v1).throttled_periods, 0);
        assert_eq!(since(Counters::default(), v2).waited_ns, Some(1_234_000));
    }
}
