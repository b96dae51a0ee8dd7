//! CPU quotas of cgroups: which one a task that is throttled has used up.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use crate::{names::Names, program::Quota};

pub struct Quotas {
    /// Where the cgroups of the CPU controller are, and whether they are those of version 2.
    mount: Option<(PathBuf, bool)>,
    /// By process.
    known: HashMap<u32, Option<Quota>>,
    groups: HashMap<String, Quota>,
}

impl Quotas {
    pub fn of_this_machine() -> Quotas {
        let mount = mount(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default());
        Quotas { mount, known: HashMap::new(), groups: HashMap::new() }
    }

    /// The quota that a task is under: its cgroup's, or that of one above it. Looked up once per process.
    pub fn of(&mut self, tid: u32, names: &mut Names) -> Option<Quota> {
        let process = names.tgid(tid).unwrap_or(tid);
        if let Some(&known) = self.known.get(&process) {
            return known;
        }
        let path = names.in_proc(tid).and_then(|tid| self.limited(tid));
        let quota = path.map(|path| match self.groups.get(&path) {
            Some(&quota) => quota,
            None => {
                let source = names.quota(Some(path.clone()));
                let quota = Quota { group: self.groups.len() as u32, source };
                self.groups.insert(path, quota);
                quota
            }
        });
        self.known.insert(process, quota);
        quota
    }

    fn limited(&self, tid: u32) -> Option<String> {
        let (root, v2) = self.mount.as_ref()?;
        let path = path(&fs::read_to_string(format!("/proc/{tid}/cgroup")).ok()?, *v2)?;
        let directory = root.join(path.trim_start_matches('/'));
        // Of several, the one that stops its tasks most often.
        let limited = directory
            .ancestors()
            .take_while(|directory| directory.starts_with(root) && *directory != root)
            .filter(|directory| has_quota(directory, *v2))
            .max_by_key(|directory| (throttled(directory), directory.as_os_str().len()))?;
        Some(format!("/{}", limited.strip_prefix(root).ok()?.display()))
    }
}

/// Where the CPU controller is mounted, from the text of /proc/self/mountinfo.
fn mount(mountinfo: &str) -> Option<(PathBuf, bool)> {
    let mut unified = None;
    for line in mountinfo.lines() {
        let Some((mount, filesystem)) = line.split_once(" - ") else { continue };
        let Some(place) = mount.split(' ').nth(4).map(PathBuf::from) else { continue };
        let mut words = filesystem.split(' ');
        match words.next() {
            Some("cgroup") if words.last().is_some_and(|o| o.split(',').any(|o| o == "cpu")) => {
                return Some((place, false));
            }
            Some("cgroup2") => unified = unified.or(Some((place, true))),
            _ => {}
        }
    }
    unified
}

/// A task's cgroup in the hierarchy of the CPU controller, from the text of /proc/PID/cgroup.
fn path(text: &str, v2: bool) -> Option<String> {
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let found = match v2 {
            true => controllers.is_empty(),
            false => controllers.split(',').any(|controller| controller == "cpu"),
        };
        found.then(|| path.to_owned())
    })
}

fn has_quota(directory: &Path, v2: bool) -> bool {
    let text = |file| fs::read_to_string(directory.join(file)).unwrap_or_default();
    match v2 {
        true => text("cpu.max").split(' ').next().is_some_and(|max| max.parse::<u64>().is_ok()),
        false => text("cpu.cfs_quota_us").trim().parse::<u64>().is_ok(),
    }
}

/// How often a cgroup was throttled.
fn throttled(directory: &Path) -> u64 {
    let stat = fs::read_to_string(directory.join("cpu.stat")).unwrap_or_default();
    let times = stat.lines().find_map(|line| line.strip_prefix("nr_throttled "));
    times.and_then(|times| times.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_controller_is_found_in_either_version() {
        let v1 = "41 30 0:37 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n\
                  42 30 0:38 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n\
                  43 30 0:39 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n";
        assert_eq!(mount(v1), Some((PathBuf::from("/sys/fs/cgroup/cpu"), false)));
        let v2 = "41 30 0:37 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n";
        assert_eq!(mount(v2), Some((PathBuf::from("/sys/fs/cgroup"), true)));
        assert_eq!(mount("nonsense"), None);
        let text = "4:cpuset:/a\n3:cpu,cpuacct:/b:c\n0::/d\n";
        assert_eq!(path(text, false).as_deref(), Some("/b:c"));
        assert_eq!(path(text, true).as_deref(), Some("/d"));
    }
}
