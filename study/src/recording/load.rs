//! Whether the node was idle while it was recorded: what computes there is load, not noise, and says nothing
//! about what a job of one's own would wait for.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use analysis::{ProcessRow, SourceRow, Summary};
use serde::Serialize;
use trace::{Class, Mode};

use crate::{
    decide::{
        action::LOAD_PCT,
        advice::{Advice, AdvisedSource, Place, Remedy},
    },
    recording::{open::AnyReader, summary::summarise},
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
    /// Whether the simulated job is without their time: always so in a recording without the probe,
    /// where they are assumed to be the job.
    pub busy_left_out: bool,
    /// Whether this is about the CPUs of a recorded program.
    #[serde(skip)]
    pub of_program: bool,
}

/// A process that keeps the node busy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Busy {
    pub process: String,
    /// Of one CPU. For a recorded program, while its threads waited.
    pub cpu_pct: f64,
    /// Scheduling policy and priority of its most costly threads, if recorded: `SCHED_FIFO 40`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// What to do about a process under a real-time policy; empty for any other.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<Remedy>,
    #[serde(skip)]
    pub pids: Vec<u32>,
}

impl Busy {
    pub fn new(process: &str, cpu_pct: f64) -> Busy {
        let process = process.to_owned();
        Busy { process, cpu_pct, policy: None, advice: Vec::new(), pids: Vec::new() }
    }

    /// Whether it preempts every ordinary thread.
    pub fn is_real_time(&self) -> bool {
        let policies = ["SCHED_FIFO", "SCHED_RR", "SCHED_DEADLINE"];
        self.policy
            .as_ref()
            .is_some_and(|policy| policies.iter().any(|name| policy.starts_with(name)))
    }
}

impl Load {
    /// Of a recording, without the processes to ignore: names, units or classes.
    pub fn of(summary: &Summary, exclude: &[String]) -> Load {
        let busy_left_out = summary.mode == Mode::KernelOnly;
        let of_program = summary.mode == Mode::Program;
        let duration_ns = (summary.duration_s * 1e9).max(1.0);
        let watched_ns = match of_program {
            true => duration_ns * cpus_of_program(summary) as f64,
            false => summary.cpus.iter().map(|cpu| cpu.window_s * 1e9).sum(),
        };
        if watched_ns <= 0.0 {
            return Load { busy_left_out, of_program, ..Load::default() };
        }
        let is_process = |row: &&ProcessRow| {
            row.class == Class::Thread && !row.own && !row.program && !is_excluded(row, exclude)
        };
        // Without the probe, the job itself ran: a service of the node is not it, however busy.
        let is_process = |row: &&ProcessRow| {
            is_process(row) && !(busy_left_out && is_of_the_node(row.unit.as_deref()))
        };
        let processes = || summary.processes.iter().filter(is_process);
        // What several threads of a program wait for at once takes its time once.
        let once = |row: &ProcessRow| row.cost_ns_total as f64 * distinct(row.count, row.hits);
        let used: f64 = processes().map(once).sum();
        let any_source = !summary.sources.is_empty() && !of_program;
        let idle_pct = (100.0 * (1.0 - used / watched_ns)).clamp(0.0, 100.0);
        // The same program in several units is one load.
        let mut cpu_pct: BTreeMap<&str, f64> = BTreeMap::new();
        for row in processes() {
            let pct = cpu_pct.entry(&row.process).or_default();
            *pct = (*pct + 100.0 * once(row) / duration_ns).min(100.0 * watched_ns / duration_ns);
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
        let busy = busy.map(|(process, cpu_pct)| {
            let rows = || processes().filter(|row| row.process == process);
            Busy {
                process: process.to_owned(),
                cpu_pct,
                policy: rows().find_map(|row| policy_of(summary, row)),
                advice: Vec::new(),
                pids: rows().flat_map(|row| row.pids.iter().copied()).collect(),
            }
        });
        let mut busy: Vec<Busy> = busy.collect();
        busy.sort_by(|a, b| b.cpu_pct.total_cmp(&a.cpu_pct));
        Load { idle_pct: any_source.then_some(idle_pct), busy, busy_left_out, of_program }
    }

    /// With what to do about processes under a real-time policy.
    #[must_use]
    pub fn advised(mut self, advice: &Advice, place: &Place) -> Load {
        for busy in self.busy.iter_mut().filter(|busy| busy.is_real_time()) {
            let subject = AdvisedSource {
                class: Class::Thread,
                name: &busy.process,
                pids: &busy.pids,
                unit: None,
                detail: None,
                policy: busy.policy.as_deref(),
                program: false,
            };
            busy.advice = advice.remedies(&subject, place);
        }
        self
    }

    /// The same, from the recording itself.
    pub fn of_recording(reader: &AnyReader, exclude: &[String]) -> Load {
        Load::of(&summarise(reader).0, exclude)
    }

    /// Whether results count the load as if it were noise.
    pub fn is_counted(&self) -> bool {
        !self.busy.is_empty() && !self.busy_left_out
    }

    /// Whether a process is load: nothing to switch off.
    pub fn is(&self, process: &str) -> bool {
        self.busy.iter().any(|busy| busy.process == process)
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
    let foreign = |row: &&SourceRow| row.class == Class::Thread && !row.own && !row.program;
    for row in summary.sources.iter().filter(foreign) {
        rows.insert((&row.name, row.unit.as_deref()), row);
    }
    let mut busiest = HashMap::new();
    for process in summary.processes.iter().filter(|row| row.class == Class::Thread) {
        let mut cpus: HashMap<u32, f64> = HashMap::new();
        for source in process.sources.iter().filter(|source| source.class == Class::Thread) {
            let row = rows.get(&(&*source.name, source.unit.as_deref()));
            for part in row.into_iter().flat_map(|row| &row.per_cpu) {
                *cpus.entry(part.cpu).or_default() +=
                    part.cost_ns_total as f64 * distinct(part.count, part.hits);
            }
        }
        let most = cpus.into_values().fold(0.0, f64::max);
        let known = busiest.entry(&*process.process).or_insert(0.0);
        *known = most.max(*known);
    }
    busiest
}

/// The share of the costs to threads that counts for a CPU: an interruption that hits several threads is one.
fn distinct(count: u64, hits: u64) -> f64 {
    if hits == 0 { 1.0 } else { count.clamp(1, hits) as f64 / hits as f64 }
}

/// On how many CPUs a recorded program ran, as far as something interrupted it there.
fn cpus_of_program(summary: &Summary) -> usize {
    let parts = summary.sources.iter().flat_map(|row| &row.per_cpu);
    let seen = parts.map(|part| part.cpu).collect::<BTreeSet<_>>().len();
    seen.max(summary.self_competition.as_ref().map_or(0, |found| found.cpus))
}

/// The policy of a process's most costly threads.
fn policy_of(summary: &Summary, process: &ProcessRow) -> Option<String> {
    let source = process.sources.iter().find(|source| source.class == Class::Thread)?;
    let is_it = |row: &&SourceRow| {
        row.class == Class::Thread
            && (row.own, row.program) == (process.own, process.program)
            && (&row.name, &row.unit) == (&source.name, &source.unit)
    };
    let policies = summary.sources.iter().find(is_it)?.policy.as_deref()?;
    policies.split(',').next().map(|policy| policy.trim().to_owned())
}
