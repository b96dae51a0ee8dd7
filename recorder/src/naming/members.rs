//! Which threads belong to the recorded program: by process, by cgroup, or as the descendants of a
//! command.

use std::{collections::HashSet, path::PathBuf};

use recorder_abi::{Numbers, Task, kind};

use crate::{
    naming::{names::Names, pids},
    pipeline::hash::HashMap,
};

/// What was requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All threads of these processes, by their numbers in the recorder's PID namespace.
    Pids(Vec<u32>),
    /// Everything in this v2 cgroup and below: its directory, and the inode by which the kernel knows
    /// it.
    Cgroup { directory: PathBuf, id: u64 },
    /// Children of this process, the recorder, and their descendants.
    Children,
}

pub struct Members {
    scope: Scope,
    /// The recorder's own process in its PID namespace, and by the kernel's number.
    own_tgid_here: u32,
    own_tgid: Option<u32>,
    /// The kernel's numbers; for [`Scope::Pids`] those of the PID namespace.
    processes: HashSet<u32>,
    /// Decisions per tid; dropped when the kernel side reports something new about it.
    decided: HashMap<u32, bool>,
}

impl Members {
    /// `own_tgid` is the recorder's own process in its PID namespace.
    pub fn new(scope: Scope, own_tgid: u32) -> Members {
        let processes = match &scope {
            Scope::Pids(pids) => pids.iter().copied().collect(),
            Scope::Cgroup { .. } | Scope::Children => HashSet::new(),
        };
        Members {
            scope,
            own_tgid_here: own_tgid,
            own_tgid: pids::own_namespace().is_none().then_some(own_tgid),
            processes,
            decided: HashMap::default(),
        }
    }

    /// Adds a task's numbers in the recorder's PID namespace.
    pub fn learn_numbers(&mut self, numbers: &Numbers) {
        if numbers.tgid_here == self.own_tgid_here {
            self.own_tgid = Some(numbers.tgid);
        }
    }

    /// Adds what the kernel side reports about a task, in order.
    pub fn learn(&mut self, task: &Task) {
        self.decided.remove(&task.tid);
        let new_process = task.kind_depth & 15 == kind::FORK && task.tgid != task.parent;
        if new_process {
            let parent_is_ours = self.processes.contains(&task.parent);
            let is_command = self.scope == Scope::Children && Some(task.parent) == self.own_tgid;
            let followed = self.scope == Scope::Children && (parent_is_ours || is_command);
            if followed {
                self.processes.insert(task.tgid);
            } else if self.scope == Scope::Children {
                // A reused PID of one of ours.
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
        let is_one = match &self.scope {
            Scope::Pids(_) => {
                names.tgid_here(tid).is_some_and(|tgid| self.processes.contains(&tgid))
            }
            Scope::Children => names.tgid(tid).is_some_and(|tgid| self.processes.contains(&tgid)),
            Scope::Cgroup { id, .. } => match names.is_in_cgroup(tid, *id) {
                Some(is_below) => is_below,
                // Not known yet: the next slice asks again.
                None => return false,
            },
        };
        self.decided.insert(tid, is_one);
        is_one
    }
}
