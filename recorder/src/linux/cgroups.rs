//! cgroups by the id the kernel gives them, and the systemd unit in a cgroup's path.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// A walk costs milliseconds on a busy node; new cgroups appear all the time.
const RESCAN_PAUSE: Duration = Duration::from_millis(200);

/// Finds paths of cgroup v2 directories by inode number, which is the cgroup's id.
pub struct Cgroups {
    root: Option<PathBuf>,
    paths: HashMap<u64, String>,
    last_scan: Option<Instant>,
}

impl Cgroups {
    pub fn of_this_machine() -> Cgroups {
        let root = mount_point(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default());
        Cgroups { root, paths: HashMap::new(), last_scan: None }
    }

    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// The path below the mount point: `/` for the root.
    pub fn path(&mut self, id: u64) -> Option<&str> {
        if !self.paths.contains_key(&id)
            && self.last_scan.is_none_or(|last| last.elapsed() > RESCAN_PAUSE)
        {
            self.scan();
        }
        self.paths.get(&id).map(String::as_str)
    }

    fn scan(&mut self) {
        let Some(root) = self.root.clone() else { return };
        let mut open = vec![root.clone()];
        while let Some(directory) = open.pop() {
            if let Ok(meta) = fs::metadata(&directory) {
                let below = directory.strip_prefix(&root).unwrap_or(Path::new(""));
                self.paths.insert(meta.ino(), format!("/{}", below.display()));
            }
            let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
            open.extend(
                entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()),
            );
        }
        self.last_scan = Some(Instant::now());
    }
}

/// Where cgroup v2 is mounted, from the text of /proc/self/mountinfo.
fn mount_point(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        (filesystem.split(' ').next()? == "cgroup2")
            .then(|| mount.split(' ').nth(4).map(PathBuf::from))?
    })
}

/// The unit a cgroup belongs to: the innermost service or scope; else the path itself; None for the
/// root, which is nobody's.
pub fn unit(path: &str) -> Option<String> {
    let is_unit = |part: &&str| {
        [".service", ".scope", ".socket", ".mount", ".swap"].iter().any(|end| part.ends_with(end))
    };
    match path.rsplit('/').find(is_unit) {
        Some(unit) => Some(unit.to_owned()),
        None if path == "/" || path.is_empty() => None,
        None => Some(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_unit_names_a_cgroup() {
        let cases = [
            ("/", None),
            ("/system.slice/cron.service", Some("cron.service")),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/a.service",
                Some("a.service"),
            ),
            ("/system.slice/slurmstepd.scope/job_5/step_0", Some("slurmstepd.scope")),
            ("/kubepods/pod1", Some("/kubepods/pod1")),
        ];
        for (path, expected) in cases {
            assert_eq!(unit(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn the_mount_point_is_found_among_others() {
        let text = "30 20 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                    41 30 0:37 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(text), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(mount_point("nonsense"), None);
    }
}
