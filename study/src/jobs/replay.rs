//! A program to be re-enacted with real calls of MPI: what it is, and whether it can be.

use std::{collections::HashMap, path::PathBuf};

use anyhow::{Context, Result, bail};
use application::{Application, Play, Step};
use mpi_abi::Call;
use serde::Serialize;
use simulate::{event, loggops::Params, noise::Noise};

use crate::{
    decide::programs::Programs,
    jobs::{
        app::Source,
        hypotheses::{self, CannotEnd, Change, Question},
    },
};

#[derive(Clone, Debug)]
pub struct Request {
    /// Directory of the trace.
    pub dir: PathBuf,
    /// Changes to the program.
    pub questions: Vec<Question>,
    /// Requests complete in the traced order.
    pub deterministic: bool,
    /// Long computation sleeps.
    pub sleep: bool,
}

/// A program that can be re-enacted.
#[derive(Clone, Debug)]
pub struct Replay {
    application: Application,
    sleep_ns: u64,
    /// What recording a call cost in the trace.
    call_ns: Vec<u64>,
    pub remarks: Vec<String>,
}

/// How a re-enactment deviates from its trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Deviation {
    /// Changes to the program.
    pub hypotheses: Vec<String>,
    pub deterministic: bool,
    #[serde(flatten)]
    pub programs: Programs,
}

/// Shorter computation spins even if long computation sleeps.
const SLEEP_NS: u64 = 1_000_000;

impl Request {
    /// Reads the trace and changes the program; fails if it cannot be re-enacted.
    pub fn load(&self, threads: usize) -> Result<Replay> {
        let source =
            Source { deterministic: self.deterministic, ..Source::of(vec![self.dir.clone()]) };
        let read = source.load(threads)?;
        let traced = read.application;
        let mut application = traced.clone();
        let mut remarks = read.remarks;
        for Question { text, change } in &self.questions {
            let named = || format!("--if '{text}'");
            match change {
                Change::Program(hypothesis) => {
                    let note = hypotheses::note(&application, hypothesis);
                    remarks.extend(note.map(|note| format!("{text}: {note}")));
                    application = application.under(hypothesis).with_context(named)?;
                }
                Change::Map(_) => bail!(
                    "--if '{text}' cannot be replayed: the MPI library chooses the algorithms of collectives (set \
                     them with its own options, or use detour simulate app)"
                ),
                Change::NetScale(_) => bail!(
                    "--if '{text}' cannot be replayed: replay uses the real network (use detour \
                     simulate app)"
                ),
                Change::Without(_) => bail!(
                    "--if '{text}' cannot be replayed: replay runs under the real noise (use \
                     detour simulate app)"
                ),
                Change::Auto => bail!(
                    "--if auto cannot be replayed: specify one change (detour simulate app --if \
                     auto ranks them)"
                ),
            }
        }
        let named = || format!("cannot replay {}", self.dir.display());
        application.check_replay().with_context(named)?;
        if !self.questions.is_empty() {
            ends(&source, &traced, &application).with_context(named)?;
        }
        Ok(Replay {
            application,
            sleep_ns: if self.sleep { SLEEP_NS } else { 0 },
            call_ns: read.about.ranks.iter().map(|rank| rank.cost_ns as u64).collect(),
            remarks,
        })
    }
}

/// A changed program may wait for something that never comes: then it is not started. Messages that are not longer
/// than those of the trace are buffered as they were there; whether longer ones are depends on the MPI library, so the
/// program must end without.
fn ends(source: &Source, traced: &Application, changed: &Application) -> Result<()> {
    let ranks = u64::from(changed.ranks());
    let net = Params::FREE;
    let plan = source.plan(changed, ranks, Some(&net), false)?;
    let schedule = unbuffered(traced, changed).schedule(&plan)?;
    let options = event::Options::default();
    match event::run(&schedule, &net, &options, &Noise::none().run(0, 0)) {
        Ok(_) => Ok(()),
        Err(error) => Err(match changed.why_stuck(&plan, &error) {
            Some(why) => CannotEnd(why).into(),
            None => error.into(),
        }),
    }
}

/// The changed program with sends that wait for their receive, where they are longer than those of the trace with
/// the same tag.
fn unbuffered(traced: &Application, changed: &Application) -> Application {
    let mut longest: HashMap<u32, u64> = HashMap::new();
    for step in traced.tapes.iter().flat_map(|tape| &tape.steps) {
        if let Step::Send { channel, bytes, .. } = *step {
            let longest = longest.entry(channel).or_default();
            *longest = bytes.max(*longest);
        }
    }
    let mut unbuffered = changed.clone();
    for step in unbuffered.tapes.iter_mut().flat_map(|tape| &mut tape.steps) {
        let Step::Send { channel, bytes, request, mpi, .. } = step else { continue };
        let is_longer = *bytes > longest.get(channel).copied().unwrap_or(0);
        let copies = [Call::Bsend, Call::Ibsend, Call::Bsend_init].map(Call::number).contains(mpi);
        if is_longer && !copies {
            let waits = if *request == NO_REQUEST { Call::Ssend } else { Call::Issend };
            *mpi = waits.number();
        }
    }
    unbuffered
}

/// The request of a step that starts none.
const NO_REQUEST: u32 = u32::MAX;

impl Replay {
    pub fn ranks(&self) -> u32 {
        self.application.ranks()
    }

    /// The script of a rank; `ns_per_tick` is the length of a tick of its clock.
    pub fn script(&self, rank: u32, ns_per_tick: f64) -> Result<Vec<u64>> {
        let play = Play {
            sleep_ns: self.sleep_ns,
            ticks: ((1u64 << 32) as f64 / ns_per_tick).round() as u64,
            call_ns: self.call_ns.get(rank as usize).copied().unwrap_or(0),
        };
        Ok(self.application.script(rank, &play)?)
    }
}
