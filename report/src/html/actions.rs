//! What to do first, on top of the page.

use study::{action::Action, decision::Decision};

use super::tables::{limited, micro};
use crate::{
    actions::{few, headline, job_said, label},
    words::{interval_said, percent_said},
};

/// The job, and at most three actions.
pub(super) struct Actions {
    pub(super) headline: String,
    /// What most of it is due to, if nothing can be done about that.
    pub(super) beyond: Option<String>,
    /// What the job is.
    pub(super) job: String,
    pub(super) list: Vec<Shown>,
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
        beyond: beyond.map(|text| micro(&limited(&text))),
        job: limited(&job_said(job)),
        list: decision.actions.iter().map(shown).collect(),
        nothing: decision.actions.is_empty() && !decision.load.is_counted(),
        remarks: decision.job_remarks.iter().map(|remark| micro(&limited(remark))).collect(),
    })
}

pub(super) fn shown(action: &Action) -> Shown {
    let commands = std::iter::once(&action.command).chain(&action.further_commands);
    Shown {
        name: limited(&label(action)),
        what: limited(&action.text),
        gain: percent_said(action.gain_pct),
        interval: match few(action.detours) {
            Some(few) => format!("{}; {few}", interval_said(action.gain_ci95_pct)),
            None => interval_said(action.gain_ci95_pct),
        },
        commands: commands.map(|line| limited(line)).collect(),
        undo: limited(&action.undo),
        risk: limited(&action.risk),
    }
}
