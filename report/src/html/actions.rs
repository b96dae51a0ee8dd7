//! What to do first, on top of the page.

use study::decide::{action::Action, decision::Decision};

use super::tables::{limited, micro};
use crate::{
    actions::{few, headline, job_said, label, loads, remarks, reserves, title},
    words::{interval_said, percent_said},
};

/// The job, and at most three actions.
pub(super) struct Actions {
    pub(super) headline: String,
    /// What most of it is due to, if nothing can be done about that.
    /// And how sure that is.
    pub(super) beyond: Vec<String>,
    /// What the job is.
    pub(super) job: String,
    /// Above the actions: at how many ranks the gains are.
    pub(super) title: String,
    pub(super) list: Vec<Shown>,
    /// Sources excluded from the actions as load, with commands.
    pub(super) loads: Vec<(String, Vec<String>)>,
    /// That there are none, unless a load may hide what is worth doing.
    pub(super) nothing: bool,
    pub(super) remarks: Vec<String>,
}

pub(super) struct Shown {
    pub(super) name: String,
    pub(super) what: String,
    pub(super) gain: String,
    pub(super) interval: String,
    pub(super) commands: Vec<String>,
    pub(super) undo: String,
    pub(super) risk: String,
}

/// Or why no job was simulated.
pub(super) fn actions(decision: &Decision) -> Result<Actions, String> {
    let (Some(job), Some(time)) = (&decision.job, &decision.job_time) else {
        let why = decision.not_simulated.as_deref().unwrap_or("no job was simulated");
        return Err(limited(why));
    };
    let (headline, beyond) = headline(decision, job, time);
    Ok(Actions {
        headline: micro(&limited(&headline)),
        beyond: beyond
            .into_iter()
            .chain(reserves(decision))
            .map(|text| micro(&limited(&text)))
            .collect(),
        title: title(job.ranks),
        job: limited(&job_said(job, decision.job_runs)),
        list: decision.actions.iter().map(shown).collect(),
        nothing: decision.actions.is_empty() && !decision.load.is_counted(),
        loads: loads(&decision.load)
            .map(|said| {
                let commands = said.remedies.iter().flat_map(|remedy| &remedy.run);
                (limited(&said.text), commands.map(|line| limited(line)).collect())
            })
            .collect(),
        remarks: remarks(decision).map(|remark| micro(&limited(&remark))).collect(),
    })
}

/// For figures that belong together on a line.
pub(super) fn unbroken(text: &str) -> String {
    text.replace(' ', "\u{a0}")
}

pub(super) fn shown(action: &Action) -> Shown {
    let commands = std::iter::once(&action.command).chain(&action.further_commands);
    Shown {
        name: limited(&label(action)),
        what: limited(&action.text),
        gain: unbroken(&percent_said(action.gain_pct)),
        interval: {
            let interval = unbroken(&interval_said(action.gain_ci95_pct));
            few(action.detours).map_or(interval.clone(), |few| format!("{interval}; {few}"))
        },
        commands: commands.map(|line| limited(line)).collect(),
        undo: limited(&action.undo),
        risk: limited(&action.risk),
    }
}
