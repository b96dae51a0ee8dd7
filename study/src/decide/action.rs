//! What to do first: at most three actions with the largest gains, each with its command, its risk and how
//! to undo it.

use serde::Serialize;
use trace::{Class, ProcessKey};

use crate::{
    decide::{
        advice::{Need, Remedy},
        whatif::OfProcess,
    },
    recording::load::{Busy, Load, is_of_the_node},
};

/// Actions shown.
const MOST: usize = 3;
/// A process that used at least this share of a CPU's time is load, not noise, in percent. Daemons use
/// less.
pub const LOAD_PCT: f64 = 25.0;
/// The smallest gain worth an action, in percent.
pub const WORTHWHILE_PCT: f64 = 0.5;

/// Names that stand for several processes, or for one that is gone.
const PLACEHOLDERS: [&str; 3] = ["(exited)", "(unknown)", "(too many different names)"];

/// Something to do about a process or source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Action {
    /// The process, or the source of the kernel itself.
    pub process: String,
    /// `thread` for a process, otherwise the class of the source.
    pub class: Class,
    pub unit: Option<String>,
    /// What to do.
    pub text: String,
    /// The first command, or line of a file.
    pub command: String,
    /// What else belongs to it.
    pub further_commands: Vec<String>,
    pub undo: String,
    pub risk: String,
    /// What the job gains without it.
    pub gain_pct: f64,
    pub gain_ci95_pct: [f64; 2],
    pub ranks: u64,
    /// How many detours of the recording the gain rests on.
    pub detours: u64,
}

/// What was seen fewer times than this may be chance: the interval is that of the simulated runs, which all
/// draw from the same recording.
pub const FEW_DETOURS: u64 = 30;

impl Action {
    /// Whether it removes what this process causes.
    pub fn removes(&self, key: &ProcessKey) -> bool {
        key.class == self.class && key.process == self.process && key.unit == self.unit && !key.own
    }
}

/// The actions for processes in the order of their gains. The interval has to lie above zero: a gain that
/// may be none is not worth a risk. Load is nothing to switch off: what is left out for that is in `load`
/// afterwards.
pub fn choose(processes: &[OfProcess], load: &mut Load, ranks: u64) -> Vec<Action> {
    let mut actions: Vec<Action> = Vec::new();
    for process in processes {
        let change = &process.answer.removed;
        // What no kernel event explains has no switch on this node, and what has no name no command.
        let nameless =
            process.process.trim().is_empty() || PLACEHOLDERS.contains(&&*process.process);
        // Load is not noise. What a program's thread lost of the time it wanted to run may be little of the CPU's.
        let left_out = load.busy_left_out && is_of_the_node(process.unit.as_deref());
        let is_exempt = load.of_program || process.program || left_out;
        let takes_much = !is_exempt && process.busiest_cpu_pct >= LOAD_PCT;
        let is_load = process.class == Class::Thread && (load.is(&process.process) || takes_much);
        let outside = process.class == Class::OutsideKernel;
        if !change.is_worthwhile() || process.own || process.init || nameless || outside {
            continue;
        }
        if is_load {
            if !load.is(&process.process) {
                load.busy.push(Busy::new(&process.process, process.busiest_cpu_pct));
            }
            continue;
        }
        let Some((remedy, command, further)) = process.advice.iter().find_map(with_command) else {
            continue;
        };
        // One command that helps against several is done once, for the largest.
        if actions.len() < MOST && actions.iter().all(|action| action.command != *command) {
            let action = Action {
                process: process.process.clone(),
                class: process.class,
                unit: process.unit.clone(),
                text: remedy.what.clone(),
                command: command.clone(),
                further_commands: further.to_vec(),
                undo: remedy.undo.clone(),
                risk: match remedy.needs {
                    // Moved, not removed.
                    Some(Need::Housekeeping) => {
                        format!("{}; run no rank on the housekeeping CPUs", remedy.risk)
                    }
                    _ => remedy.risk.clone(),
                },
                gain_pct: change.gain_pct,
                gain_ci95_pct: change.gain_ci95_pct,
                ranks,
                detours: process.detours,
            };
            actions.push(action);
        }
    }
    actions
}

fn with_command(remedy: &Remedy) -> Option<(&Remedy, &String, &[String])> {
    let (command, further) = remedy.run.split_first()?;
    (!remedy.undo.is_empty()).then_some((remedy, command, further))
}
