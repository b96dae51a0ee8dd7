//! CPU quotas of cgroups: which one a throttled task has exhausted.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    naming::{cgroups, names::Names},
    node::files,
    pipeline::program::Quota,
};

/// Directories searched for a cgroup whose tasks are gone.
const MAX_SEARCHED: usize = 10_000;

pub struct Quotas {
    /// The mount point of the CPU controller, and whether it is cgroup v2.
    mount: Option<(PathBuf, bool)>,
    /// The cgroups of each process, from its own upwards.
    chains: HashMap<u32, Arc<[u32]>>,
    known: HashMap<u32, Quota>,
}

impl Quotas {
    pub fn of_this_machine() -> Quotas {
        let mount = mount(&files::text("/proc/self/mountinfo"));
        Quotas { mount, chains: HashMap::new(), known: HashMap::new() }
    }

    /// The cgroups of a task, by the low bits of their inodes. Looked up once per process.
    pub fn groups(&mut self, tid: u32, names: &mut Names) -> Arc<[u32]> {
        let process = names.tgid(tid).unwrap_or(tid);
        if let Some(known) = self.chains.get(&process) {
            return Arc::clone(known);
        }
        let chain: Arc<[u32]> =
            self.directories(tid, names).iter().filter_map(|directory| id(directory)).collect();
        self.chains.insert(process, Arc::clone(&chain));
        chain
    }

    /// The quota that a task has exhausted: that of the cgroup with this number or, if the kernel does
    /// not report it (0), of the ancestor that has been throttled most often.
    pub fn used_up(&mut self, number: u32, tid: u32, names: &mut Names) -> Quota {
        if let Some(&known) = self.known.get(&number).filter(|_| number != 0) {
            return known;
        }
        let directories = self.directories(tid, names);
        let found = match number {
            0 => self.likely(&directories),
            _ => directories.into_iter().find(|directory| id(directory) == Some(number)),
        };
        let found = found.or_else(|| self.search(number));
        let group = found.as_deref().and_then(id).unwrap_or(number);
        if let Some(&known) = self.known.get(&group) {
            return known;
        }
        let cgroup = found.and_then(|path| self.shown(&path));
        let quota = Quota { group, source: names.quota(cgroup, self.controller()) };
        self.known.insert(group, quota);
        quota
    }

    /// The directories of a task's cgroups, from its own upwards, without the root.
    fn directories(&self, tid: u32, names: &mut Names) -> Vec<PathBuf> {
        let Some((root, v2)) = self.mount.as_ref() else { return Vec::new() };
        let text = names.in_proc(tid).and_then(|tid| files::read(format!("/proc/{tid}/cgroup")));
        let Some(path) = text.and_then(|text| path(&text, *v2)) else { return Vec::new() };
        let directory = root.join(path.trim_start_matches('/'));
        let above = directory.ancestors().take_while(|d| d.starts_with(root) && d != root);
        above.map(Path::to_path_buf).collect()
    }

    fn likely(&self, directories: &[PathBuf]) -> Option<PathBuf> {
        let (_, v2) = self.mount.as_ref()?;
        let limited = directories.iter().filter(|directory| quota(directory, *v2).is_some());
        limited.max_by_key(|d| (throttled(d), d.as_os_str().len())).cloned()
    }

    /// Finds a cgroup whose task ended before its cgroup was known.
    fn search(&self, number: u32) -> Option<PathBuf> {
        let (root, _) = self.mount.as_ref().filter(|_| number != 0)?;
        let mut directories = cgroups::directories(root).take(MAX_SEARCHED);
        directories.find(|directory| id(directory) == Some(number))
    }

    /// As advice about a source reads it.
    fn controller(&self) -> Option<String> {
        self.mount.as_ref().map(controller)
    }

    /// Its path from the root of the hierarchy.
    fn shown(&self, directory: &Path) -> Option<String> {
        let (root, _) = self.mount.as_ref()?;
        Some(format!("/{}", directory.strip_prefix(root).ok()?.display()))
    }
}

/// Which version of cgroups has the CPU controller, and where: the files that set a quota differ.
fn controller((mount, v2): &(PathBuf, bool)) -> String {
    format!("cgroup v{} at {}", if *v2 { 2 } else { 1 }, mount.display())
}

/// The kernel side's number for the cgroup of a directory.
fn id(directory: &Path) -> Option<u32> {
    Some(fs::metadata(directory).ok()?.ino() as u32)
}

/// The mount point of the CPU controller, from the text of /proc/self/mountinfo.
pub fn mount(mountinfo: &str) -> Option<(PathBuf, bool)> {
    let mut unified = None;
    for line in mountinfo.lines() {
        let Some((mount, filesystem)) = line.split_once(" - ") else { continue };
        let Some(place) = mount.split(' ').nth(4).map(PathBuf::from) else { continue };
        let mut words = filesystem.split(' ');
        match words.next() {
            Some("cgroup")
                if words.next_back().is_some_and(|o| o.split(',').any(|o| o == "cpu")) =>
            {
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

/// CPU time per period and the period, both in us. None without a quota of its own.
pub fn quota(directory: &Path, v2: bool) -> Option<(u64, u64)> {
    let text = |file| fs::read_to_string(directory.join(file)).ok();
    if v2 {
        let max = text("cpu.max")?;
        let (quota, period) = max.trim().split_once(' ')?;
        return Some((quota.parse().ok()?, period.parse().ok()?));
    }
    let number = |file| text(file)?.trim().parse().ok();
    Some((number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?))
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
        // As study/advice.toml matches it.
        let detail = |text| mount(text).as_ref().map(controller);
        assert_eq!(detail(v1).as_deref(), Some("cgroup v1 at /sys/fs/cgroup/cpu"));
        assert_eq!(detail(v2).as_deref(), Some("cgroup v2 at /sys/fs/cgroup"));
        let text = "4:cpuset:/a\n3:cpu,cpuacct:/b:c\n0::/d\n";
        assert_eq!(path(text, false).as_deref(), Some("/b:c"));
        assert_eq!(path(text, true).as_deref(), Some("/d"));
    }
}
