//! Which threads belong to the program that is recorded: by process, by cgroup, or as the
//! descendants of a command.

use std::collections::HashSet;

use detour_abi::{Task, kind};

use crate::{hash::HashMap, names::Names};

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// All threads of these processes.
    Pids(Vec<u32>),
    /// Everything in this cgroup and below; the path below the mount point of cgroup v2.
    Cgroup(String),
    /// Children of this process, that is of the recorder, and their children.
    Children,
}

pub struct Targets {
    target: Target,
    own_tgid: u32,
    processes: HashSet<u32>,
    /// What was decided for a tid; dropped when the kernel side says something new about it.
    decided: HashMap<u32, bool>,
}

impl Targets {
    pub fn new(target: Target, own_tgid: u32) -> Targets {
        let processes = match &target {
            Target::Pids(pids) => pids.iter().copied().collect(),
            Target::Cgroup(_) | Target::Children => HashSet::new(),
        };
        Targets { target, own_tgid, processes, decided: HashMap::default() }
    }

    /// Takes what the kernel side says about a task, in order.
    pub fn learn(&mut self, task: &Task) {
        self.decided.remove(&task.tid);
        let new_process = task.kind_depth & 15 == kind::FORK && task.tgid != task.parent;
        if new_process {
            let parent_is_ours = self.processes.contains(&task.parent);
            let is_command = self.target == Target::Children && task.parent == self.own_tgid;
            let followed = self.target == Target::Children && (parent_is_ours || is_command);
            if followed {
                self.processes.insert(task.tgid);
            } else if self.target == Target::Children {
                // A pid that was used before by one of ours.
                self.processes.remove(&task.tgid);
            }
        }
    }

    pub fn contains(&mut self, tid: u32, names: &mut Names) -> bool {
        if tid == 0 {
            return false;
        }
        if let Some(&decided) = self.decided.get(&tid) {
            return decided;
        }
        let is_one = match &self.target {
            Target::Pids(_) | Target::Children => {
                names.tgid(tid).is_some_and(|tgid| self.processes.contains(&tgid))
            }
            Target::Cgroup(wanted) => match names.cgroup_path(tid) {
                Some(path) => is_below(&path, wanted),
                // Not known yet: the next slice asks again.
                None => return false,
            },
        };
        self.decided.insert(tid, is_one);
        is_one
    }
}

fn is_below(path: &str, wanted: &str) -> bool {
    let wanted = wanted.trim_end_matches('/');
    path == wanted || path.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_holds_what_is_below_it_and_not_its_neighbours() {
        assert!(is_below("/a/b", "/a"));
        assert!(is_below("/a", "/a/"));
        assert!(is_below("/a/b", "/"));
        assert!(!is_below("/ab", "/a"));
    }
}
