//! What to do about the noise of a recording: the job it is judged by, the actions worth taking, and what
//! each process costs the job. And whether the node was idle to begin with: load is not noise.

use std::collections::{BTreeMap, HashMap};

use analysis::{Part, ProcessRow, Summary};
use anyhow::Result;
use serde::Serialize;
use trace::{Class, Mode};

use crate::{
    action::{self, Action},
    advice::Advice,
    error::{self, in_words},
    longest::Longest,
    open::{AnyReader, Size},
    placement,
    recorded::Recorded,
    whatif,
    whatif::Baseline,
    work::Work,
    workload::{self, Job},
};

/// Paired runs per question, and processes asked about: enough to rank what matters, in seconds.
pub const RUNS: u64 = 12;
const TOP: usize = 8;
/// More than this many per second and lane would leave the simulated job hardly any time.
const DENSEST_PER_S: f64 = 1e6;

/// By which job to judge.
#[derive(Clone, Debug)]
pub struct Request {
    pub workload: workload::Request,
    /// The CPUs that count.
    pub part: Part,
    /// Which CPU each rank is on.
    pub placement: placement::Request,
    pub runs: u64,
    /// Processes to ignore: names, units or classes.
    pub exclude: Vec<String>,
    /// Extend the recording by fitted tails.
    pub tail: bool,
}

/// What to do about the noise of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Decision {
    /// The job that gains refer to. Null if none was simulated.
    pub job: Option<Job>,
    /// Its time with the noise of the recording, and without any.
    pub job_time: Option<Baseline>,
    /// What to do first: at most three, largest gain first; empty if nothing is worth doing.
    pub actions: Vec<Action>,
    /// What no process or kernel source of this node explains, largest gain first: nothing here can
    /// switch it off.
    pub beyond: Vec<Beyond>,
    /// Why no job was simulated.
    pub not_simulated: Option<String>,
    /// Share of the measured CPUs' time that processes left over. Null for a recorded program.
    pub idle_pct: Option<f64>,
    /// Processes that used a quarter of a CPU or more, largest first: load, not noise. Without those excluded.
    pub busy: Vec<Busy>,
    /// Whether the simulated job is without their time: always so in a recording without the probe, where
    /// they are taken for the job that ran.
    pub busy_left_out: bool,
    /// About the simulation.
    pub job_remarks: Vec<String>,
}

/// What costs the job something, and cannot be switched off.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Beyond {
    /// As in `outside_kernel`, or `thread` for process 1.
    pub class: String,
    /// The name of process 1, if it is that.
    pub process: Option<String>,
    pub gain_pct: f64,
    pub gain_ci95_pct: [f64; 2],
}

/// A process that keeps the node busy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Busy {
    pub process: String,
    /// Of one CPU.
    pub cpu_pct: f64,
}

/// The summary of a recording with what to do about it, as `detour report --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub summary: Summary,
    #[serde(flatten)]
    pub decision: Decision,
    /// The longest detours, longest first. Empty unless asked for.
    pub longest: Vec<Longest>,
}

/// Simulates the job, and enters the gains into the summary. A recording that cannot be simulated still has
/// a summary.
pub fn decide(
    reader: &AnyReader,
    mut summary: Summary,
    request: &Request,
    advice: &Advice,
    work: &Work<'_>,
) -> Result<Report> {
    // A misspelt name is an error, not a recording that cannot be simulated.
    if !request.exclude.is_empty() {
        Recorded::new(reader).excluded(&request.exclude)?;
    }
    let (idle_pct, mut busy) = load(&summary);
    busy.retain(|busy| !request.exclude.contains(&busy.process));
    let busy_left_out = summary.mode == Mode::KernelOnly;
    let mut decision = Decision { idle_pct, busy, busy_left_out, ..Decision::default() };
    let asked = match too_large(reader) {
        Some(why) => Err(why),
        None => match ask(reader, request, advice, work) {
            Err(error) if error::was_stopped(&error) => return Err(error),
            asked => asked.map_err(|error| in_words(&error)),
        },
    };
    match asked {
        Err(why) => decision.not_simulated = Some(why),
        Ok(asked) => {
            let change = |process: &whatif::OfProcess| (process.key(), process.answer.removed);
            let changes: HashMap<_, _> = asked.processes.iter().map(change).collect();
            for row in &mut summary.processes {
                let change = changes.get(&row.key());
                row.gain_pct = change.map(|change| change.gain_pct);
                row.gain_ci95_pct = change.map(|change| change.gain_ci95_pct);
            }
            let outside = |process: &&whatif::OfProcess| {
                let beyond = process.class == Class::OutsideKernel || process.init;
                beyond && process.answer.removed.is_worthwhile()
            };
            decision.beyond = asked
                .processes
                .iter()
                .filter(outside)
                .map(|process| Beyond {
                    class: match process.init {
                        true => Class::Thread.name().to_owned(),
                        false => process.process.clone(),
                    },
                    process: process.init.then(|| process.process.clone()),
                    gain_pct: process.answer.removed.gain_pct,
                    gain_ci95_pct: process.answer.removed.gain_ci95_pct,
                })
                .collect();
            decision.actions = asked.actions;
            decision.job = Some(asked.parts);
            decision.job_time = Some(asked.baseline);
            decision.job_remarks = asked.remarks;
        }
    }
    Ok(Report { summary, decision, longest: Vec::new() })
}

/// Nothing is simulated for the page of a recording this large: that is left to `detour whatif`.
fn too_large(reader: &AnyReader) -> Option<String> {
    let Size { detours, events } = Size::of(reader);
    let last_ns = reader.block_infos().map(|block| block.last_ns).max().unwrap_or(0);
    let dense = detours as f64 > DENSEST_PER_S * reader.lanes().len() as f64 * last_ns as f64 / 1e9;
    if dense && detours > 1 << 16 {
        return Some(format!("{detours} detours are too many per second to simulate a job"));
    }
    (detours > Size::MOST_DETOURS || events > Size::MOST_EVENTS)
        .then(|| format!("{events} events are too many to simulate here: use `detour whatif`"))
}

/// Simulates the job with and without each process.
pub(crate) fn ask(
    reader: &AnyReader,
    request: &Request,
    advice: &Advice,
    work: &Work<'_>,
) -> Result<whatif::WhatIf> {
    let asked = whatif::Request {
        runs: request.runs,
        remove: Vec::new(),
        shift: None,
        quantise: false,
        top: TOP,
        repeat: true,
        part: request.part.clone(),
        placement: request.placement,
        exclude: request.exclude.clone(),
        further: whatif::Further::Nothing,
        tail: request.tail,
    };
    whatif::ask(reader, &request.workload, &asked, advice, work)
}

/// How idle the node was, and what kept it busy. The threads of a recorded program are not recorded as
/// sources unless they wait for each other, so nothing is known there.
fn load(summary: &Summary) -> (Option<f64>, Vec<Busy>) {
    let watched_ns: f64 = summary.cpus.iter().map(|cpu| cpu.window_s * 1e9).sum();
    if summary.mode == Mode::Program || watched_ns <= 0.0 {
        return (None, Vec::new());
    }
    let is_process = |row: &&ProcessRow| row.class == Class::Thread && !row.own && !row.program;
    let processes = || summary.processes.iter().filter(is_process);
    let used: f64 = processes().map(|row| row.cost_ns_total as f64).sum();
    let duration_ns = (summary.duration_s * 1e9).max(1.0);
    // The same program in several units is one load.
    let mut cpu_pct: BTreeMap<&str, f64> = BTreeMap::new();
    for row in processes() {
        *cpu_pct.entry(&row.process).or_default() += 100.0 * row.cost_ns_total as f64 / duration_ns;
    }
    // On a single CPU: an agent that takes little on each of many is noise.
    let busiest = busiest(summary);
    let largest = |process: &str| busiest.get(process).copied().unwrap_or(0.0);
    cpu_pct.retain(|process, _| 100.0 * largest(process) / duration_ns >= action::LOAD_PCT);
    let busy = cpu_pct.into_iter();
    let busy = busy.map(|(process, cpu_pct)| Busy { process: process.to_owned(), cpu_pct });
    let mut busy: Vec<Busy> = busy.collect();
    busy.sort_by(|a, b| b.cpu_pct.total_cmp(&a.cpu_pct));
    let any_source = !summary.sources.is_empty();
    (any_source.then_some((100.0 * (1.0 - used / watched_ns)).clamp(0.0, 100.0)), busy)
}

/// The most time that each process took on one CPU, in its threads.
fn busiest(summary: &Summary) -> HashMap<&str, f64> {
    let mut rows: HashMap<(&str, Option<&str>), &analysis::SourceRow> = HashMap::new();
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
