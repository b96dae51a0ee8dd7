//! What to do first, on top of every report: at most three actions, each with its command, what it gains,
//! its risk and how to undo it.

use analysis::words::{interval_said, percent_said, shell_quoted};
use study::{
    action::{Action, WORTHWHILE_PCT},
    decision::{Beyond, Busy, Decision},
    whatif::Baseline,
    workload::Job,
};

use crate::{
    Options,
    words::{capital, count, label_of, outside_label, safe, unpunctuated, wrap},
};

/// The decision of a report.
#[must_use]
pub fn decision(decision: &Decision, options: Options) -> String {
    let style = options.style();
    let mut parts = Vec::new();
    if let Some(text) = not_idle(decision) {
        parts.push(wrap(&text, style.width, ""));
    }
    match (&decision.job, &decision.job_time) {
        (Some(job), Some(time)) => {
            let title = headline(job, time, &decision.actions, &decision.beyond);
            parts.push(style.title(&wrap(&title, style.width, "")));
            parts.push(wrap(&job_said(job), style.width, ""));
            parts.push(actions(&decision.actions, options));
        }
        _ => {
            if let Some(why) = &decision.not_simulated {
                let text = format!("No job was simulated: {}.", safe(why.trim_end_matches('.')));
                parts.push(wrap(&text, style.width, ""));
            }
        }
    }
    let remarks = decision.job_remarks.iter().map(|remark| format!("{}.", capital(&safe(remark))));
    parts.extend(remarks.map(|remark| wrap(&remark, style.width, "")));
    if parts.is_empty() { String::new() } else { parts.join("\n") + "\n\n" }
}

/// `A job of this kind on 4096 ranks runs 7 % longer than on silent nodes; without X it gets 4 % shorter.`
pub(crate) fn headline(
    job: &Job,
    time: &Baseline,
    actions: &[Action],
    beyond: &[Beyond],
) -> String {
    let mut sentence = format!(
        "A job of this kind on {} ranks runs {} on silent nodes",
        count(job.ranks),
        longer(time.slowdown_median)
    );
    if let Some(first) = actions.first() {
        sentence += &format!(
            "; without {} it gets {} shorter",
            safe(&label(first)),
            percent_said(first.gain_pct)
        );
    }
    sentence.push('.');
    let larger = |gain: f64| actions.first().is_none_or(|action| gain > action.gain_pct);
    if let Some(outside) = beyond.first().filter(|outside| larger(outside.gain_pct)) {
        sentence += &format!(
            " {} of its time is due to what nothing on this node can switch off: {}.",
            percent_said(outside.gain_pct),
            match &outside.process {
                Some(process) => format!("{}, which is process 1", safe(process)),
                None =>
                    outside_label(&outside.class).unwrap_or("time outside the kernel").to_owned(),
            }
        );
    }
    sentence
}

/// `The job: 100 times allreduce of 8 B after 1.00 ms of compute, 2 ranks per node, network L=1.9us,...`
pub(crate) fn job_said(job: &Job) -> String {
    let nodes = match job.ranks_per_node {
        Some(ranks) if ranks > 1 => format!(", {ranks} ranks per node"),
        _ => String::new(),
    };
    format!("The job: {}{nodes}, network {}", safe(&job.text), safe(&job.net))
}

/// `7 % longer than`, or `18.7 times as long as`.
fn longer(slowdown: f64) -> String {
    match 100.0 * (slowdown - 1.0).max(0.0) {
        pct if pct < 100.0 => format!("{} longer than", percent_said(pct)),
        _ => format!("{slowdown:.1} times as long as"),
    }
}

pub(crate) fn label(action: &Action) -> String {
    label_of(action.class, &action.process)
}

/// The actions, or that there is none.
pub(crate) fn actions(actions: &[Action], options: Options) -> String {
    let style = options.style();
    if actions.is_empty() {
        return format!(
            "Nothing is worth doing: no action is known that is sure to gain this job {} or more.",
            percent_said(WORTHWHILE_PCT)
        );
    }
    let mut text = style.title("Do this first");
    for (number, action) in (1..).zip(actions) {
        let what = format!("{}: {}", safe(&label(action)), safe(&action.text));
        let interval = interval_said(action.gain_ci95_pct);
        let gain = format!("gains {} ({interval})", percent_said(action.gain_pct));
        text +=
            &format!("\n{number}. {}", wrap(&format!("{what}; {gain}"), style.width - 3, "   "));
        // Not wrapped, so that commands can be copied.
        for line in std::iter::once(&action.command).chain(&action.further_commands) {
            text += &format!("\n       {}", safe(line));
        }
        let after =
            format!("Undo: {}. Risk: {}.", unpunctuated(&action.undo), unpunctuated(&action.risk));
        text += &format!("\n   {}", wrap(&after, style.width - 3, "   "));
    }
    text
}

/// Load is not noise.
pub(crate) fn not_idle(decision: &Decision) -> Option<String> {
    const NAMED: usize = 4;
    let busy = &decision.busy;
    if busy.is_empty() {
        return None;
    }
    let named = busy.iter().take(NAMED);
    let named: Vec<String> = named
        .map(|b| format!("{} ({} of a CPU)", safe(&b.process), percent_said(b.cpu_pct)))
        .collect();
    let more = match busy.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let idle = |pct: f64| format!(" ({} idle)", percent_said(pct));
    let idle = decision.idle_pct.map_or_else(String::new, idle);
    let what = format!("The node was not idle{idle}: {}{more}.", named.join(", "));
    if decision.busy_left_out {
        return Some(format!("{what} This is load, not noise, and left out of what follows."));
    }
    let option = |busy: &Busy| format!("--exclude {}", safe(&shell_quoted(&busy.process)));
    let options: Vec<String> = busy.iter().take(NAMED).map(option).collect();
    Some(format!(
        "{what} This is load, not noise: record again without it, or leave it out with {}.",
        options.join(" ")
    ))
}
