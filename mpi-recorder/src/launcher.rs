//! What the environment says about this process's place in an MPI job, for the launchers in use: Open MPI
//! and others with PMIx, MPICH and others with PMI, Slurm.

use std::env;

/// This process in its job. Everything is None outside a launcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Rank in COMM_WORLD.
    pub rank: Option<u32>,
    /// Rank among those of this node, and how many there are.
    pub local_rank: Option<u32>,
    pub local_size: Option<u32>,
}

const RANKS: [&str; 3] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"];
const LOCAL_RANKS: [&str; 4] =
    ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID"];
const LOCAL_SIZES: [&str; 3] = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"];

/// Slurm steps that run no tasks of the program: external, batch script, interactive shell.
const NO_STEPS: [u32; 3] = [u32::MAX - 3, u32::MAX - 4, u32::MAX - 5];

impl Task {
    /// Of this process.
    #[must_use]
    pub fn of_environment() -> Task {
        Task::of(|name| env::var(name).ok())
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Task {
        let first = |names: &[&str]| {
            names.iter().find_map(|name| variable(name)?.trim().parse::<u32>().ok())
        };
        let in_step = variable("SLURM_STEP_ID").is_some_and(|step| {
            step.trim().parse().is_ok_and(|step: u32| !NO_STEPS.contains(&step))
        });
        // The script of a job and an interactive shell are processes 0 of steps without ranks.
        let rank = first(&RANKS).or_else(|| first(&["SLURM_PROCID"]).filter(|_| in_step));
        // An allocation of Slurm sets these even where mpirun is the launcher, outside of its tasks.
        let local_size = first(&LOCAL_SIZES).or_else(|| slurm_tasks(&variable));
        Task { rank, local_rank: rank.and(first(&LOCAL_RANKS)), local_size: rank.and(local_size) }
    }
}

/// Tasks on this node: the list `2(x3),1` has one number a node.
fn slurm_tasks(variable: impl Fn(&str) -> Option<String>) -> Option<u32> {
    let node: u64 = variable("SLURM_NODEID")?.parse().ok()?;
    let list =
        variable("SLURM_STEP_TASKS_PER_NODE").or_else(|| variable("SLURM_TASKS_PER_NODE"))?;
    let mut first = 0u64;
    for item in list.split(',') {
        let (tasks, times) = match item.split_once("(x") {
            Some((tasks, times)) => (tasks, times.trim_end_matches(')').parse().ok()?),
            None => (item, 1u64),
        };
        if node < first.saturating_add(times) {
            return tasks.parse().ok();
        }
        first = first.saturating_add(times);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(variables: &[(&str, &str)]) -> Task {
        Task::of(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn every_launcher_says_where_a_process_is() {
        let task_of = |rank, local_rank, local_size| Task {
            rank: Some(rank),
            local_rank: Some(local_rank),
            local_size: Some(local_size),
        };
        let open_mpi = [
            ("OMPI_COMM_WORLD_RANK", "5"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
        ];
        assert_eq!(task(&open_mpi), task_of(5, 1, 4));
        let hydra = [("PMI_RANK", "3"), ("MPI_LOCALRANKID", "0"), ("MPI_LOCALNRANKS", "2")];
        assert_eq!(task(&hydra), task_of(3, 0, 2));
        let slurm = [
            ("SLURM_PROCID", "6"),
            ("SLURM_LOCALID", "0"),
            ("SLURM_NODEID", "3"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_TASKS_PER_NODE", "2(x3),1"),
        ];
        assert_eq!(task(&slurm), task_of(6, 0, 1));
        let script = [("SLURM_PROCID", "0"), ("SLURM_STEP_ID", "4294967291")];
        assert_eq!(task(&script), Task::default());
        assert_eq!(task(&[]), Task::default());
        assert_eq!(task(&[("PMI_RANK", "x"), ("MPI_LOCALNRANKS", "2")]), Task::default());
    }
}
