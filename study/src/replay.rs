//! A program to be re-enacted with real calls of MPI: what it is, and whether it can be.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use application::{Application, Play};
use serde::Serialize;
use simulate::{event, loggops::Params, noise::Noise, replay};

use crate::{
    app::Source,
    hypotheses::{Change, Question},
    programs::Programs,
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
        let mut application = read.application;
        for Question { text, change } in &self.questions {
            let named = || format!("--if '{text}'");
            match change {
                Change::Program(hypothesis) => {
                    application = application.under(hypothesis).with_context(named)?;
                }
                Change::Map(_) => bail!(
                    "--if '{text}' cannot be replayed: the MPI library chooses the algorithms of collectives (set \
                     them with its own options, or use detour simulate app)"
                ),
                Change::NetScale(_) => bail!(
                    "--if '{text}' cannot be replayed: the network is the real one (use detour simulate app)"
                ),
                Change::Without(_) => bail!(
                    "--if '{text}' cannot be replayed: the noise is that of the nodes (use detour simulate app)"
                ),
                Change::Auto => bail!(
                    "--if auto cannot be replayed: name one change at a time (detour simulate app --if auto ranks \
                     them)"
                ),
            }
        }
        let named = || format!("cannot replay {}", self.dir.display());
        application.check_replay().with_context(named)?;
        if !self.questions.is_empty() {
            ends(&source, &application).with_context(named)?;
        }
        Ok(Replay {
            application,
            sleep_ns: if self.sleep { SLEEP_NS } else { 0 },
            call_ns: read.about.ranks.iter().map(|rank| rank.cost_ns as u64).collect(),
            remarks: read.remarks,
        })
    }
}

/// A changed program may wait for something that never comes: then it is not started.
fn ends(source: &Source, application: &Application) -> Result<()> {
    let ranks = u64::from(application.ranks());
    let net = Params::FREE;
    let schedule = source.schedule(application, ranks, Some(&net), false)?;
    let options = event::Options::default();
    replay::log(&schedule, &net, &options, &Noise::none(), 0, 0)?;
    Ok(())
}

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
