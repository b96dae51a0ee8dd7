//! What to do first, on top of every report: at most three actions, each with its command, what it gains,
//! its risk and how to undo it.

use analysis::words::{interval_said, percent_said, shell_quoted};
use study::{
    decide::{
        action::{Action, FEW_DETOURS, WORTHWHILE_PCT},
        advice::Remedy,
        decision::{Beyond, Decision},
        whatif::Baseline,
    },
    jobs::workload::Job,
    recording::load::{Busy, Load},
};
use trace::Class;

use crate::{
    Options,
    words::{capital, count, label_of, outside_label, plural, safe, unpunctuated, wrap},
};

/// The decision of a report.
#[must_use]
pub fn decision(decision: &Decision, options: Options) -> String {
    let style = options.style();
    let mut parts = Vec::new();
    parts.extend(not_idle(&decision.load, "").map(|text| wrap(&text, style.width, "")));
    match (&decision.job, &decision.job_time) {
        (Some(job), Some(time)) => {
            let (title, beyond) = headline(decision, job, time);
            let title = [title].into_iter().chain(beyond).chain(reserves(decision));
            let title = title.collect::<Vec<_>>().join(" ");
            parts.push(style.title(&wrap(&title, style.width, "")));
            parts.push(wrap(&job_said(job, decision.job_runs), style.width, ""));
            parts.extend(actions_beside(&decision.actions, &decision.load, options));
        }
        _ => {
            if let Some(why) = &decision.not_simulated {
                let text = format!("No job was simulated: {}.", safe(why.trim_end_matches('.')));
                parts.push(wrap(&text, style.width, ""));
            }
        }
    }
    parts.extend(remarks(decision).map(|remark| wrap(&remark, style.width, "")));
    if parts.is_empty() { String::new() } else { parts.join("\n") + "\n\n" }
}

/// `A job of this kind on 4096 ranks runs 7 % longer than on silent nodes; without X it gets 4 % shorter.`,
/// and what most of it is due to, if nothing can be done about that.
pub(crate) fn headline(
    decision: &Decision,
    job: &Job,
    time: &Baseline,
) -> (String, Option<String>) {
    if decision.load.is_counted() {
        let sentence = format!(
            "No estimate for a job of this kind on {} ranks: the load would be counted as noise.",
            count(job.ranks)
        );
        return (sentence, None);
    }
    let (actions, beyond) = (&decision.actions, &decision.beyond);
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
    let outside = beyond.first().filter(|outside| larger(outside.gain_pct));
    (sentence, outside.map(beyond_said))
}

/// Why the headline may be wrong: it rests on little, or on too few detours for so many ranks.
pub(crate) fn reserves(decision: &Decision) -> Vec<String> {
    if decision.load.is_counted() || decision.job_time.is_none() {
        return Vec::new();
    }
    // Unless the headline has it.
    let is_said = |process: &str| {
        let of = |outside: &&Beyond| outside.process.as_deref() == Some(process);
        decision.beyond.iter().find(of).is_some_and(|outside| few(outside.detours).is_some())
    };
    let rests_on = decision.rests_on.as_ref().filter(|rests_on| !is_said(&rests_on.process));
    let rests_on = rests_on.map(|rests_on| {
        let what = match rests_on.class {
            Class::OutsideKernel => outside_label(&rests_on.process).map(str::to_owned),
            _ => None,
        };
        let what = what.unwrap_or_else(|| safe(&label_of(rests_on.class, &rests_on.process)));
        format!("This rests on {} of {what}.", plural(rests_on.detours, "event"))
    });
    rests_on.into_iter().chain(decision.unsupported.as_deref().map(sentence)).collect()
}

/// About the simulation, without what the headline says.
pub(crate) fn remarks(decision: &Decision) -> impl Iterator<Item = String> {
    let said = reserves(decision);
    decision
        .job_remarks
        .iter()
        .map(|remark| sentence(remark))
        .filter(move |remark| !said.contains(remark))
}

fn sentence(remark: &str) -> String {
    format!("{}.", capital(&safe(remark)))
}

fn beyond_said(outside: &Beyond) -> String {
    let what = match &outside.process {
        Some(process) => format!("{}, which is process 1", safe(process)),
        None => outside_label(&outside.class).unwrap_or("time outside the kernel").to_owned(),
    };
    let few = few(outside.detours);
    let few = few.map_or_else(String::new, |few| format!(" ({few}: record longer to be sure)"));
    format!(
        "{} of its time is due to sources that cannot be disabled here: {what}{few}.",
        percent_said(outside.gain_pct)
    )
}

/// That a gain rests on little: its interval is only that of the simulated runs.
pub(crate) fn few(detours: u64) -> Option<String> {
    (detours < FEW_DETOURS).then(|| format!("seen only {}", times(detours)))
}

fn times(n: u64) -> String {
    if n == 1 { "once".to_owned() } else { format!("{n} times") }
}

/// `The job: 100 times allreduce of 8 B after 1.00 ms of compute, 2 ranks per node, network L=1.9us,...`
pub(crate) fn job_said(job: &Job, runs: Option<u64>) -> String {
    let nodes = match job.ranks_per_node {
        Some(ranks) if ranks > 1 => format!(", {ranks} ranks per node"),
        _ => String::new(),
    };
    let runs = runs.map_or_else(String::new, |runs| format!("; median of {}", plural(runs, "run")));
    format!("The job: {}{nodes}, network {}{runs}", safe(&job.text), safe(&job.net))
}

/// `7 % longer than`, or `18.7 times as long as`.
fn longer(slowdown: f64) -> String {
    match 100.0 * (slowdown - 1.0).max(0.0) {
        // On a network that takes no time.
        f64::INFINITY => "longer than".to_owned(),
        pct if pct < 100.0 => format!("{} longer than", percent_said(pct)),
        _ => format!("{slowdown:.1} times as long as"),
    }
}

pub(crate) fn label(action: &Action) -> String {
    label_of(action.class, &action.process)
}

/// The actions, and what is none because it is load. That none is worth doing is not said beside a load:
/// it may hide some.
pub(crate) fn actions_beside(list: &[Action], load: &Load, options: Options) -> Option<String> {
    let style = options.style();
    let mut parts = Vec::new();
    for Said { text, remedies } in loads(load) {
        parts.push(wrap(&text, style.width, ""));
        for Remedy { what, run, undo, risk, .. } in remedies {
            let what = format!("To {}:", safe(what));
            parts.push(format!("   {}", wrap(&what, style.width - 3, "   ")));
            parts.extend(run.iter().map(|line| format!("       {}", safe(line))));
            let after = format!("Undo: {}. Risk: {}.", unpunctuated(undo), unpunctuated(risk));
            parts.push(format!("   {}", wrap(&after, style.width - 3, "   ")));
        }
    }
    if !list.is_empty() || !load.is_counted() {
        parts.push(actions(list, options));
    }
    (!parts.is_empty()).then(|| parts.join("\n"))
}

/// A process that is load, and what to do about it.
pub(crate) struct Said<'a> {
    pub(crate) text: String,
    pub(crate) remedies: &'a [Remedy],
}

/// Sources excluded from the actions as load: beside a recorded program, or under a real-time policy.
/// Otherwise, that the node was not idle says enough.
pub(crate) fn loads(load: &Load) -> impl Iterator<Item = Said<'_>> {
    let busy = load.busy.iter().filter(|_| load.is_counted()).take(NAMED);
    let told = busy.filter(|busy| load.of_program || busy.is_real_time());
    told.map(|busy| {
        let (name, option) = (safe(&busy.process), exclude(busy));
        let policy = busy.policy.as_deref().filter(|_| busy.is_real_time());
        let policy = policy.map_or_else(String::new, |policy| {
            format!("; {} preempts every ordinary thread", safe(policy))
        });
        let text = format!(
            "Load: {name} took {} of a CPU. Exclude it with {option}, or move the program or the \
             load{policy}.",
            percent_said(busy.cpu_pct)
        );
        Said { text, remedies: &busy.advice }
    })
}

/// Processes that are named.
const NAMED: usize = 4;

fn exclude(busy: &Busy) -> String {
    format!("--exclude {}", safe(&shell_quoted(&busy.process)))
}

/// Above the actions.
pub(crate) fn title(ranks: u64) -> String {
    format!("Do this first (gains on {} ranks)", count(ranks))
}

/// The actions, or that there is none.
fn actions(actions: &[Action], options: Options) -> String {
    let style = options.style();
    let Some(first) = actions.first() else {
        return format!(
            "No action recommended: none is certain to save {} or more of this job.",
            percent_said(WORTHWHILE_PCT)
        );
    };
    let mut text = style.title(&title(first.ranks));
    for (number, action) in (1..).zip(actions) {
        let what = format!("{}: {}", safe(&label(action)), safe(&action.text));
        let interval = interval_said(action.gain_ci95_pct);
        let rare = few(action.detours).map_or_else(String::new, |few| format!("; {few}"));
        let gain = format!("gains {} ({interval}{rare})", percent_said(action.gain_pct));
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

/// Load is not noise. `when` is ` before` or ` after` if there are two recordings.
pub(crate) fn not_idle(load: &Load, when: &str) -> Option<String> {
    let busy = &load.busy;
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
    let idle = load.idle_pct.map_or_else(String::new, idle);
    let who = if load.of_program { "program was not alone" } else { "node was not idle" };
    let what = format!("The {who}{when}{idle}: {}{more}.", named.join(", "));
    if load.busy_left_out {
        return Some(format!("{what} This is load, not noise, and excluded below."));
    }
    let options: Vec<String> = busy.iter().take(NAMED).map(exclude).collect();
    Some(format!(
        "{what} This is load, not noise: record again without it, or exclude it with {}.",
        options.join(" ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use study::decide::advice::{Advice, AdvisedSource, Place, Split};

    fn action(class: Class, process: &str, unit: Option<&str>) -> Option<Action> {
        let split = Split { job: (1..64).collect(), housekeeping: (0..1).collect() };
        let place =
            Place { split: Some(split), tick_hz: 250, smt: Some(true), numa_nodes: Some(2) };
        let pids = [812_000, 812_001];
        let subject = AdvisedSource {
            class,
            name: process,
            pids: &pids,
            unit,
            detail: None,
            policy: None,
            program: false,
        };
        let advice = Advice::built_in().expect("the table");
        let remedies = advice.remedies(&subject, &place);
        let remedy = remedies.into_iter().find(|r| !r.undo.is_empty() && !r.run.is_empty())?;
        let (command, further) = remedy.run.split_first()?;
        Some(Action {
            process: process.to_owned(),
            class,
            unit: unit.map(str::to_owned),
            text: remedy.what,
            command: command.clone(),
            further_commands: further.to_vec(),
            undo: remedy.undo,
            risk: format!("{}; run no rank on the housekeeping CPUs", remedy.risk),
            gain_pct: 12.34,
            gain_ci95_pct: [10.12, 14.56],
            ranks: 4096,
            detours: 12,
        })
    }

    /// On a terminal of 80x24, three actions and the headline are on the screen together, with the command
    /// typed or the prompt below them.
    #[test]
    fn three_actions_fit_on_a_screen() {
        let options = Options { width: 80, ..Options::default() };
        let all = [
            (Class::Timer, "tick", None),
            (Class::Timer, "hrtimer: watchdog_timer_fn", None),
            (Class::Irq, "virtio0-input", None),
            (Class::Kthread, "kworker: vmstat_update", None),
            (Class::Kthread, "kworker: flush_memcg_stats_dwork", None),
            (Class::Kthread, "kdamond.0", None),
            (Class::Kthread, "rcu_preempt", None),
            (Class::Softirq, "NET_RX", None),
            (Class::Thread, "fakemond", None),
            (Class::Thread, "python3", None),
            (Class::Thread, "fakemond", Some("monitoring-agent.service")),
            (Class::Thread, "sshd", Some("sshd.service")),
            (Class::Thread, "agent", Some("/kubepods/pod1")),
        ];
        for (class, name, unit) in all {
            let action =
                action(class, name, unit).unwrap_or_else(|| panic!("{name} has no action"));
            let text = actions(&[action], options);
            // The title, and not more than a third of what the headline leaves.
            assert!(text.lines().count() <= 1 + 7, "{text}");
        }
        assert_eq!(action(Class::Thread, "bash", None).map(|action| action.command), None);
    }
}
