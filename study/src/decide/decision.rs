//! What to do about the noise of a recording: the job it is judged by, the actions worth taking, and what
//! each process costs the job. And whether the node was idle to begin with: load is not noise.

use std::collections::HashMap;

use analysis::{Part, Summary};
use anyhow::Result;
use serde::Serialize;
use trace::Class;

use crate::{
    decide::{
        action::{Action, FEW_DETOURS},
        advice::{Advice, Place},
        whatif,
        whatif::Baseline,
    },
    error::{self, in_words},
    jobs::workload::{self, Job},
    noise::placement,
    recording::{
        load::Load,
        longest::Longest,
        open::{AnyReader, Size},
        recorded::Recorded,
    },
    run::work::Work,
};

/// Paired runs per question, of all commands that ask, so that they agree; and processes asked about: enough to rank
/// what matters, in seconds.
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
    /// Paired runs that its time and all gains come from. Null if none was simulated.
    pub job_runs: Option<u64>,
    /// What to do first: at most three, largest gain first; empty if nothing is worth doing.
    pub actions: Vec<Action>,
    /// What no process or kernel source of this node explains, largest gain first: nothing here can
    /// switch it off.
    pub beyond: Vec<Beyond>,
    /// Why no job was simulated.
    pub not_simulated: Option<String>,
    #[serde(flatten)]
    pub load: Load,
    /// What costs the job most, if it was seen so rarely that chance decides. Null otherwise.
    pub rests_on: Option<RestsOn>,
    /// About the simulation.
    pub job_remarks: Vec<String>,
    /// The one of them that the recording supports fewer ranks.
    #[serde(skip)]
    pub unsupported: Option<String>,
}

/// A process or source that most of the job's loss is due to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RestsOn {
    pub process: String,
    pub class: Class,
    /// How many detours of the recording it is part of.
    pub detours: u64,
}

/// What costs most, if it was seen rarely.
fn rests_on(processes: &[whatif::OfProcess]) -> Option<RestsOn> {
    let first = processes.first().filter(|first| first.answer.removed.is_worthwhile())?;
    (first.detours < FEW_DETOURS).then(|| RestsOn {
        process: first.process.clone(),
        class: first.class,
        detours: first.detours,
    })
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
    /// How many detours of the recording that rests on.
    pub detours: u64,
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
    let load = Load::of(&summary, &request.exclude);
    let load = load.advised(advice, &Place::of_recording(reader.manifest()));
    // Beside a load that counts as noise, no gain is known, and what took so much takes long to simulate.
    let further = match load.is_counted() {
        true => whatif::Further::OnlyTheJob,
        false => whatif::Further::Nothing,
    };
    let mut decision = Decision { load, ..Decision::default() };
    let asked = match too_large(reader) {
        Some(why) => Err(why),
        None => match ask_of(reader, request, (&decision.load, further), advice, work) {
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
                    detours: process.detours,
                })
                .collect();
            decision.rests_on = rests_on(&asked.processes);
            decision.unsupported = asked.unsupported;
            decision.load = asked.load;
            decision.actions = asked.actions;
            decision.job = Some(asked.parts);
            decision.job_runs = Some(asked.runs);
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
        return Some(format!("the rate of {detours} detours is too high to simulate a job"));
    }
    (detours > Size::MOST_DETOURS || events > Size::MOST_EVENTS)
        .then(|| format!("too many events to simulate here ({events}): use `detour whatif`"))
}

/// Simulates the job with and without each process.
pub(crate) fn ask(
    reader: &AnyReader,
    request: &Request,
    load: &Load,
    advice: &Advice,
    work: &Work<'_>,
) -> Result<whatif::WhatIf> {
    ask_of(reader, request, (load, whatif::Further::Nothing), advice, work)
}

fn ask_of(
    reader: &AnyReader,
    request: &Request,
    (load, further): (&Load, whatif::Further),
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
        load: load.clone(),
        further,
        tail: request.tail,
    };
    whatif::ask(reader, &request.workload, &asked, advice, work)
}
