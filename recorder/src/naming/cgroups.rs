//! cgroups by kernel id, and the systemd unit in a cgroup's path. The kernel side sends the name of
//! every cgroup in which it sees a task, so nothing is looked up: a cgroup may be gone by the time its
//! records are read.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
};

use recorder_abi::{CgroupName, PIECE_BYTES};

use crate::node::files;

/// Maximum number of cgroups kept. The kernel side keeps fewer, so dropped ones are sent again.
const MANY: usize = 1 << 16;
/// Deeper paths, beyond the kernel's default nesting limit, are not followed.
const MAX_DEPTH: usize = 1 << 12;

struct Node {
    parent: u64,
    name: String,
}

/// The announced cgroups.
pub struct Cgroups {
    nodes: HashMap<u64, Node>,
    /// Incomplete names, by the CPU that sends them.
    open: HashMap<u16, Vec<u8>>,
    many: usize,
}

impl Default for Cgroups {
    fn default() -> Cgroups {
        Cgroups { nodes: HashMap::new(), open: HashMap::new(), many: MANY }
    }
}

impl Cgroups {
    /// Adds a piece of a name, in the order in which its CPU sent it.
    pub fn learn(&mut self, piece: &CgroupName) {
        let name = self.open.entry(piece.cpu).or_default();
        if piece.piece == 0 {
            name.clear();
        }
        // An earlier piece was lost: the whole name is sent again.
        if name.len() != piece.piece as usize * PIECE_BYTES {
            return;
        }
        name.extend(piece.text.iter().flat_map(|word| word.to_ne_bytes()));
        if piece.last == 0 {
            return;
        }
        let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        let name = String::from_utf8_lossy(&name[..length]).into_owned();
        self.nodes.insert(piece.id, Node { parent: piece.parent, name });
        if self.nodes.len() > self.many {
            self.forget();
        }
    }

    /// Keeps those that have children: the others are sent again when a task runs there.
    fn forget(&mut self) {
        let parents: HashSet<u64> = self.nodes.values().map(|node| node.parent).collect();
        self.nodes.retain(|id, _| parents.contains(id));
        self.many = MANY.max(2 * self.nodes.len());
    }

    /// The path in the hierarchy: `/` for the root.
    pub fn path(&self, id: u64) -> Option<String> {
        let mut names = Vec::new();
        let mut node = self.nodes.get(&id)?;
        while node.parent != 0 {
            names.push(node.name.as_str());
            node = self.nodes.get(&node.parent)?;
            if names.len() > MAX_DEPTH {
                return None;
            }
        }
        names.reverse();
        Some(format!("/{}", names.join("/")))
    }

    /// Whether a cgroup is this one or below it; None if its name has not arrived.
    pub fn is_below(&self, mut id: u64, wanted: u64) -> Option<bool> {
        for _ in 0..MAX_DEPTH {
            if id == wanted {
                return Some(true);
            }
            match self.nodes.get(&id)?.parent {
                0 => return Some(false),
                parent => id = parent,
            }
        }
        None
    }
}

/// The mount point of cgroup v2.
pub fn mounted_at() -> Option<PathBuf> {
    mount_point(&files::text("/proc/self/mountinfo"))
}

/// The same from the text of /proc/self/mountinfo.
fn mount_point(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        (filesystem.split(' ').next()? == "cgroup2")
            .then(|| mount.split(' ').nth(4).map(PathBuf::from))?
    })
}

/// The unit of a cgroup: the innermost service or scope; else the path itself; None for the root.
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

/// The directory of a cgroup and all below it.
pub fn directories(top: &Path) -> impl Iterator<Item = PathBuf> {
    let mut open = vec![top.to_path_buf()];
    std::iter::from_fn(move || {
        let directory = open.pop()?;
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        open.extend(entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
        Some(directory)
    })
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

    /// The pieces of a name, as the kernel side splits it.
    fn pieces(id: u64, parent: u64, name: &str) -> Vec<CgroupName> {
        let bytes = name.as_bytes();
        let count = bytes.len() / PIECE_BYTES + 1;
        let piece = |index: usize| {
            let mut text = [0u8; PIECE_BYTES];
            let rest = &bytes[index * PIECE_BYTES..];
            let length = rest.len().min(PIECE_BYTES);
            text[..length].copy_from_slice(&rest[..length]);
            let word =
                |at: usize| u64::from_ne_bytes(text[at..at + 8].try_into().expect("8 bytes"));
            CgroupName {
                id,
                parent,
                text: [word(0), word(8)],
                piece: index as u32,
                last: u8::from(index + 1 == count),
                ..CgroupName::default()
            }
        };
        (0..count).map(piece).collect()
    }

    fn known(named: &[(u64, u64, &str)]) -> Cgroups {
        let mut cgroups = Cgroups::default();
        for &(id, parent, name) in named {
            pieces(id, parent, name).iter().for_each(|piece| cgroups.learn(piece));
        }
        cgroups
    }

    #[test]
    fn names_of_any_length_make_paths() {
        let long = "x".repeat(255);
        for name in ["cron.service", "sixteen-bytes-16", &long] {
            let cgroups = known(&[(30, 20, name), (20, 1, "system.slice"), (1, 0, "")]);
            assert_eq!(cgroups.path(30), Some(format!("/system.slice/{name}")));
            assert_eq!(cgroups.path(1).as_deref(), Some("/"));
        }
        // Without its parent, a name is not a path.
        assert_eq!(known(&[(30, 20, "cron.service")]).path(30), None);
    }

    #[test]
    fn pieces_of_two_cpus_do_not_mix_and_a_lost_one_leaves_no_wrong_name() {
        let mut cgroups = known(&[(1, 0, "")]);
        let other = pieces(3, 1, "another-name-of-more-than-16-bytes");
        for (piece, other) in pieces(2, 1, "a-name-of-more-than-sixteen-bytes").iter().zip(&other) {
            cgroups.learn(piece);
            cgroups.learn(&CgroupName { cpu: 1, ..*other });
        }
        assert_eq!(cgroups.path(2).as_deref(), Some("/a-name-of-more-than-sixteen-bytes"));
        assert_eq!(cgroups.path(3).as_deref(), Some("/another-name-of-more-than-16-bytes"));
        let lossy = pieces(4, 1, "a-third-name-that-has-three-pieces");
        cgroups.learn(&lossy[0]);
        cgroups.learn(&lossy[2]);
        assert_eq!(cgroups.path(4), None);
    }

    #[test]
    fn a_cgroup_holds_what_is_below_it_and_not_its_neighbours() {
        let cgroups = known(&[(1, 0, ""), (2, 1, "a"), (3, 2, "b"), (4, 1, "ab")]);
        assert_eq!(cgroups.is_below(3, 2), Some(true));
        assert_eq!(cgroups.is_below(2, 2), Some(true));
        assert_eq!(cgroups.is_below(3, 1), Some(true));
        assert_eq!(cgroups.is_below(4, 2), Some(false));
        assert_eq!(cgroups.is_below(2, 3), Some(false));
        assert_eq!(cgroups.is_below(77, 2), None);
    }

    #[test]
    fn endless_new_cgroups_do_not_make_an_endless_table() {
        let mut cgroups = known(&[(1, 0, ""), (2, 1, "system.slice")]);
        for id in 100..100 + 2 * MANY as u64 {
            pieces(id, 2, "run-1.service").iter().for_each(|piece| cgroups.learn(piece));
        }
        assert!(cgroups.nodes.len() <= MANY + 2);
        let newest = 100 + 2 * MANY as u64 - 1;
        pieces(newest, 2, "run-2.service").iter().for_each(|piece| cgroups.learn(piece));
        assert_eq!(cgroups.path(newest).as_deref(), Some("/system.slice/run-2.service"));
    }
}
