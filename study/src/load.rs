//! Whether the node was idle while it was recorded: what computes there is load, not noise, and says nothing
//! about what a job of one's own would wait for.

use std::collections::{BTreeMap, HashMap};

use analysis::{ProcessRow, SourceRow, Summary};
use serde::Serialize;
use trace::{Class, Mode};

use crate::{
    action::{Action, LOAD_PCT},
    open::AnyReader,
    summary::summarise,
};

/// A node that is idle for less than this is busy even if no single process is: a build is many.
const MOSTLY_IDLE_PCT: f64 = 60.0;
/// Those that are named then, in percent of a CPU.
const NAMED_PCT: f64 = 5.0;

/// What kept a node busy.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Load {
    /// Share of the measured CPUs' time that processes left over. Null for a recorded program.
    pub idle_pct: Option<f64>,
    /// Processes that used a quarter of a CPU or more, largest first: load, not noise; of a node that is less
    /// than 60 % idle, all from 5 % but services. Without those excluded.
    pub busy: Vec<Busy>,
    /// Whether the simulated job is without their time: always so in a recording without the probe, where
    /// they are taken for the job that ran.
    pub busy_left_out: bool,
}

/// A process that keeps the node busy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Busy {
    pub process: String,
    /// Of one CPU.
    pub cpu_pct: f64,
}

impl Load {
    /// Of a recording, without the processes to ignore: names, units or classes.
    pub fn of(summary: &Summary, exclude: &[String]) -> Load {
        let busy_left_out = summary.mode == Mode::KernelOnly;
        let watched_ns: f64 = summary.cpus.iter().map(|cpu| cpu.window_s * 1e9).sum();
        // The threads of a recorded program are not recorded as sources unless they wait for each other,
        // so nothing is known there.
        if summary.mode == Mode::Program || watched_ns <= 0.0 {
            return Load { busy_left_out, ..Load::default() };
        }
        let is_process = |row: &&ProcessRow| {
            row.class == Class::Thread && !row.own && !row.program && !is_excluded(row, exclude)
        };
        // Without the probe, the job itself ran: a service of the node is not it, however busy.
        let is_process = |row: &&ProcessRow| {
            is_process(row) && !(busy_left_out && is_of_the_node(row.unit.as_deref()))
        };
        let processes = || summary.processes.iter().filter(is_process);
        let used: f64 = processes().map(|row| row.cost_ns_total as f64).sum();
        let any_source = !summary.sources.is_empty();
        let idle_pct = (100.0 * (1.0 - used / watched_ns)).clamp(0.0, 100.0);
        let duration_ns = (summary.duration_s * 1e9).max(1.0);
        // The same program in several units is one load.
        let mut cpu_pct: BTreeMap<&str, f64> = BTreeMap::new();
        for row in processes() {
            *cpu_pct.entry(&row.process).or_default() +=
                100.0 * row.cost_ns_total as f64 / duration_ns;
        }
        // On a single CPU: an agent that takes little on each of many is noise.
        let busiest = busiest(summary);
        let largest = |process: &str| busiest.get(process).copied().unwrap_or(0.0);
        // Many small ones count as well, unless the job itself kept the node busy; services never do.
        let many = !busy_left_out && idle_pct < MOSTLY_IDLE_PCT;
        let is_service = |process: &str| {
            processes()
                .filter(|row| row.process == process)
                .all(|row| is_of_the_node(row.unit.as_deref()))
        };
        cpu_pct.retain(|process, pct| {
            let alone = 100.0 * largest(process) / duration_ns >= LOAD_PCT;
            alone || many && *pct >= NAMED_PCT && !is_service(process)
        });
        let busy = cpu_pct.into_iter();
        let busy = busy.map(|(process, cpu_pct)| Busy { process: process.to_owned(), cpu_pct });
        let mut busy: Vec<Busy> = busy.collect();
        busy.sort_by(|a, b| b.cpu_pct.total_cmp(&a.cpu_pct));
        Load { idle_pct: any_source.then_some(idle_pct), busy, busy_left_out }
    }

    /// The same, from the recording itself.
    pub fn of_recording(reader: &AnyReader, exclude: &[String]) -> Load {
        Load::of(&summarise(reader).0, exclude)
    }

    /// Whether results count the load as if it were noise.
    pub fn is_counted(&self) -> bool {
        !self.busy.is_empty() && !self.busy_left_out
    }

    /// Whether an action is about a process that is load: nothing to switch off.
    pub fn has(&self, action: &Action) -> bool {
        action.class == Class::Thread && self.busy.iter().any(|b| b.process == action.process)
    }
}

/// Whether a unit is a service of the node itself, and not one below which jobs or users run.
pub fn is_of_the_node(unit: Option<&str>) -> bool {
    const HOSTS: [&str; 14] = [
        "user@",
        "slurm",
        "pbs",
        "sge",
        "gridengine",
        "condor",
        "lsf",
        "flux",
        "docker",
        "containerd",
        "kubelet",
        "k3s",
        "ssh",
        "cron",
    ];
    unit.is_some_and(|unit| {
        unit.ends_with(".service") && !HOSTS.iter().any(|host| unit.starts_with(host))
    })
}

fn is_excluded(row: &ProcessRow, exclude: &[String]) -> bool {
    let class = row.class.name();
    exclude.iter().any(|name| {
        *name == row.process
            || row.unit.as_ref() == Some(name)
            || name == class
            || name.strip_prefix("process:") == Some(&*row.process)
            || name.strip_prefix(class).and_then(|rest| rest.strip_prefix(':'))
                == Some(&*row.process)
    })
}

/// The most time that each process took on one CPU, in its threads.
fn busiest(summary: &Summary) -> HashMap<&str, f64> {
    let mut rows: HashMap<(&str, Option<&str>), &SourceRow> = HashMap::new();
    for row in summary.sources.iter().filter(|row| row.class == Class::Thread && !row.own) {
        rows.insert((&row.name, row.unit.as_deref()), row);
    }
    let mut busiest = HashMap::new();
    for process in summary.processes.iter().filter(|row| row.class == Class::Thread) {
        let mut cpus: HashMap<u32, u64> = HashMap::new();
        for source in process.sources.iter().filter(|source| source.class == Class::Thread) {
            let row = rows.get(&(&*source.name, source.unit.as_deref()));
            for part in row.into_iter().flat_map(|row| &row.per_cpu) {
                let cpu = cpus.entry(part.cpu).or_default();
                *cpu = cpu.saturating_add(part.cost_ns_total);
            }
        }
        let most = cpus.into_values().max().unwrap_or(0) as f64;
        let known = busiest.entry(&*process.process).or_insert(0.0);
        *known = most.max(*known);
    }
    busiest
}
