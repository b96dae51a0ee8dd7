//! How much memory the cgroups of this process leave it: a batch job often gets less than the node has.
//! cgroup v1 and v2 may both be mounted, and either may have the limit.

use std::path::{Path, PathBuf};

use crate::node::files::text;

/// The minimum headroom of all cgroups above this process, bytes; `u64::MAX` without a limit.
pub fn headroom() -> u64 {
    let (mounts, own) = (text("/proc/self/mountinfo"), text("/proc/self/cgroup"));
    hierarchies(&mounts, &own)
        .iter()
        .flat_map(|hierarchy| {
            hierarchy.directories().map(|directory| hierarchy.left_in(&directory))
        })
        .min()
        .unwrap_or(u64::MAX)
}

/// A hierarchy that can limit memory.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    mounted_at: PathBuf,
    /// The cgroup of this process, below the mount point.
    own: PathBuf,
    v2: bool,
}

impl Hierarchy {
    /// The cgroup of this process and all visible ancestors.
    fn directories(&self) -> impl Iterator<Item = PathBuf> {
        let directory = self.mounted_at.join(&self.own);
        let visible = |directory: &&Path| directory.starts_with(&self.mounted_at);
        let all: Vec<PathBuf> =
            directory.ancestors().take_while(visible).map(Path::to_path_buf).collect();
        all.into_iter()
    }

    fn left_in(&self, directory: &Path) -> u64 {
        let (limit, used, cached) = match self.v2 {
            true => ("memory.max", "memory.current", "inactive_file"),
            false => ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        };
        let number = |file: &str| text(directory.join(file)).parse::<u64>().ok();
        let (Some(limit), Some(used)) = (number(limit), number(used)) else { return u64::MAX };
        // Inactive file pages are reclaimed before the OOM killer runs.
        let statistics = text(directory.join("memory.stat"));
        let cached = statistics.lines().find_map(|line| {
            line.strip_prefix(cached)?.strip_prefix(' ')?.trim().parse::<u64>().ok()
        });
        limit.saturating_sub(used.saturating_sub(cached.unwrap_or(0)))
    }
}

/// From the texts of /proc/self/mountinfo and /proc/self/cgroup.
fn hierarchies(mountinfo: &str, own: &str) -> Vec<Hierarchy> {
    let path = |v2: bool| {
        own.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let is_it = match v2 {
                true => controllers.is_empty(),
                false => controllers.split(',').any(|controller| controller == "memory"),
            };
            is_it.then_some(path)
        })
    };
    let hierarchy = |line: &str| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut words = mount.split(' ').skip(3);
        let (root, mounted_at) = (words.next()?, words.next()?);
        let mut words = filesystem.split(' ');
        let v2 = match words.next()? {
            "cgroup2" => true,
            "cgroup" if words.next_back()?.split(',').any(|option| option == "memory") => false,
            _ => return None,
        };
        let path = path(v2)?;
        // A container may see only part of the hierarchy, at its root. If its own cgroup is outside that
        // part, the root of it is the best available.
        let own = Path::new(path).strip_prefix(root).or_else(|_| Path::new(path).strip_prefix("/"));
        let own = own.map(Path::to_path_buf).unwrap_or_default();
        let mounted_at = PathBuf::from(mounted_at);
        let own = if mounted_at.join(&own).is_dir() { own } else { PathBuf::new() };
        Some(Hierarchy { mounted_at, own, v2 })
    };
    mountinfo.lines().filter_map(hierarchy).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_tightest_limit_above_this_process_counts_in_both_versions() {
        let scratch = std::env::temp_dir().join(format!("detour-limits-{}", std::process::id()));
        let write = |file: &str, value: &str| {
            let file = scratch.join(file);
            fs::create_dir_all(file.parent().expect("a directory")).expect("created");
            fs::write(file, value).expect("written");
        };
        // A job whose own limit is wider than that of the user above it.
        write("v1/user/job/memory.limit_in_bytes", "134217728\n");
        write("v1/user/job/memory.usage_in_bytes", "1000\n");
        write("v1/user/memory.limit_in_bytes", "100000000\n");
        write("v1/user/memory.usage_in_bytes", "30000000\n");
        write("v1/user/memory.stat", "inactive_file 7\ntotal_inactive_file 10000000\n");
        write("v1/memory.limit_in_bytes", "9223372036854771712\n");
        write("v1/memory.usage_in_bytes", "5000\n");
        write("v2/job/memory.max", "max\n");
        write("v2/job/memory.current", "5\n");
        let place = scratch.display();
        let mounts = format!(
            "30 20 0:26 / /proc rw - proc proc rw\n\
             31 20 0:27 / {place}/cpu rw,relatime - cgroup cgroup rw,cpu\n\
             32 20 0:28 / {place}/v1 rw,relatime shared:5 - cgroup cgroup rw,memory\n\
             33 20 0:29 / {place}/v2 rw,relatime - cgroup2 cgroup2 rw\n"
        );
        let left = |own: &str| {
            let found = hierarchies(&mounts, own);
            let of = |h: &Hierarchy| h.directories().map(|d| h.left_in(&d)).min();
            (found.len(), found.iter().filter_map(of).min())
        };
        assert_eq!(left("4:memory:/user/job\n0::/job\n"), (2, Some(80_000_000)));
        assert_eq!(left("4:cpu,memory:/\n0::/job\n"), (2, Some(9_223_372_036_854_766_712)));
        write("v2/job/memory.max", "50000000\n");
        assert_eq!(left("4:memory:/user/job\n0::/job\n"), (2, Some(49_999_995)));
        // In a container the mount is of its own cgroup.
        let inside = mounts.replace("0:28 / ", "0:28 /docker/abc ");
        let found = hierarchies(&inside, "4:memory:/docker/abc/user\n");
        assert_eq!(found[0].own, Path::new("user"));
        fs::remove_dir_all(&scratch).expect("removed");
    }

    #[test]
    fn nonsense_limits_nothing() {
        assert_eq!(hierarchies("nonsense\n - \n", "x\n::\n"), []);
    }
}
