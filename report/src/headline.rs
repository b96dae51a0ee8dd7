//! The report in a sentence or two.

use analysis::{SourceRow, Summary};
use trace::{Mode, OutsideEvidence};

use crate::Options;
use crate::words::{
    count, cpu_list, label_of, outside_label, percent_said, plural, safe, time, wrap,
};

/// Sources named in the headline.
const NAMED: usize = 2;

pub(crate) fn headline(summary: &Summary, options: Options) -> Option<String> {
    let style = options.style();
    let mut text = style.title(&wrap(&sentence(summary), style.width, ""));
    if let Some(finding) = in_its_own_way(summary) {
        text.push('\n');
        text.push_str(&wrap(&finding, style.width, ""));
    }
    if let Some(warning) = warning(summary) {
        text.push('\n');
        text.push_str(&wrap(&warning, style.width, ""));
    }
    Some(text)
}

/// Host, duration, total noise and the largest sources.
pub(crate) fn sentence(summary: &Summary) -> String {
    // Imported files name neither host nor kernel.
    let mut sentence = String::new();
    if !summary.host.is_empty() {
        sentence.push_str(&format!("{}, ", safe(&summary.host)));
    }
    if !summary.kernel.is_empty() {
        sentence.push_str(&format!("kernel {}, ", safe(&summary.kernel)));
    }
    sentence.push_str(&format!("{}{}: ", time(summary.duration_s * 1e9), place(summary)));
    sentence.push_str(&verdict(summary));
    let most: Vec<String> = largest(summary)
        .into_iter()
        .filter(|(_, share_pct)| *share_pct >= 1.0)
        .take(NAMED)
        .map(|(name, share_pct)| format!("{name} ({})", percent_said(share_pct)))
        .collect();
    if !most.is_empty() {
        sentence.push_str(&format!(" Top: {}.", most.join(", ")));
    }
    sentence
}

/// Sources and their shares of the time, largest first. Unexplained time is included: where it
/// dominates, the other sources are not the problem.
fn largest(summary: &Summary) -> Vec<(String, f64)> {
    let named = summary.sources.iter().map(|source| {
        let whose = match source {
            source if source.own => ", the recorder itself",
            source if source.program => ", the program itself",
            _ => "",
        };
        (format!("{}{whose}", label(source)), source.share_pct)
    });
    let outside = summary.outside_kernel.iter().filter_map(|row| {
        let share_pct = 100.0 * row.cost_ns_total as f64 / summary.taken_ns_total.max(1) as f64;
        // None where kernel events were not recorded; the verdict states that.
        Some((outside_label(&row.class)?.to_owned(), share_pct))
    });
    let mut all: Vec<(String, f64)> = named.chain(outside).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all
}

/// Readable name of a class outside the kernel with its evidence, if any: `hypervisor (steal time 120 ms)`.
pub(crate) fn outside_label_with_evidence(
    class: &str,
    evidence: &OutsideEvidence,
) -> Option<String> {
    let label = outside_label(class)?;
    let steal = || match evidence.steal_ns? {
        0 => Some("no steal time counted".to_owned()),
        ns => Some(format!("steal time {}", time(ns as f64))),
    };
    let smi = || match evidence.smi? {
        0 => Some("no SMI counted".to_owned()),
        n => Some(format!("{} counted", count(n))),
    };
    let said = match class {
        "hypervisor" => steal(),
        "unexplained" if evidence.lost_records_ns > 0 => {
            Some(format!("{} of records lost", time(evidence.lost_records_ns as f64)))
        }
        "smi" | "unexplained" => smi(),
        "hypervisor_or_smi" => {
            let smi = evidence.smi.map(|n| plural(n, "SMI") + " counted");
            let said: Vec<String> = steal().into_iter().chain(smi).collect();
            (!said.is_empty()).then(|| said.join(", "))
        }
        _ => None,
    };
    Some(match said {
        Some(said) => format!("{label} ({said})"),
        None => label.to_owned(),
    })
}

/// Shown before anything else: whether the recording is truncated or damaged, and whether events are
/// missing.
pub(crate) fn warning(summary: &Summary) -> Option<String> {
    let cut_off = summary.truncated.as_ref().map(|reason| {
        format!("This recording is incomplete: {}. What could be read is intact.", safe(reason))
    });
    let all: Vec<String> = cut_off.into_iter().chain(missing(summary)).collect();
    (!all.is_empty()).then(|| all.join(" "))
}

/// Lost events, one sentence per kind.
fn missing(summary: &Summary) -> Vec<String> {
    let lost = &summary.lost;
    let some = |count: Option<u64>| count.filter(|&count| count > 0);
    let mut said = Vec::new();
    if let Some(records) = some(lost.records) {
        // The probe still sees the lost time, but not its source.
        let without = match summary.mode {
            Mode::Attributed => "not attributed",
            _ => "missing here",
        };
        said.push(format!(
            "{} lost: ring buffer full ({} of kernel time, {without}); increase --buffer.",
            plural(records, "record"),
            time(lost.records_ns.unwrap_or(0) as f64)
        ));
    }
    if let Some(detours) = some(lost.detours) {
        said.push(format!(
            "{} lost: probe buffer full; actual noise is higher.",
            plural(detours, "detour")
        ));
    }
    if let Some(runs) = some(lost.skipped) {
        said.push(format!(
            "{} skipped by the kernel: their records are missing.",
            plural(runs, "BPF run")
        ));
    }
    if let Some(events) = some(lost.unwritten) {
        said.push(match summary.truncated {
            Some(_) => format!("{} not written.", plural(events, "event")),
            None => format!("{} not written; actual noise is higher.", plural(events, "event")),
        });
    }
    said
}

/// Smallest share of the wanted time, in percent, at which self-competition is reported.
const OWN_WAY_PCT: f64 = 1.0;

/// The finding for a program whose threads compete with each other.
pub(crate) fn in_its_own_way(summary: &Summary) -> Option<String> {
    let found = summary.self_competition.as_ref()?;
    if found.wanted_pct < OWN_WAY_PCT {
        return None;
    }
    let cpus = plural(found.cpus as u64, "CPU");
    let crowd = if found.runnable_threads > found.cpus as f64 + 0.05 {
        format!("{} runnable threads for {cpus}", about(found.runnable_threads))
    } else {
        let shared = cpu_list(found.contested_cpus.iter().copied());
        format!("its threads shared {} (of {cpus} used)", crate::words::cpu_list_said(&shared))
    };
    Some(format!(
        "The program competes with itself: {crowd}. Waiting for its own threads took {} of the time \
         they wanted to run.",
        percent_said(found.wanted_pct)
    ))
}

/// Whole numbers without decimals, others with one.
fn about(value: f64) -> String {
    let whole = (value - value.round()).abs() < 0.05;
    if whole { format!("{value:.0}") } else { format!("{value:.1}") }
}

fn place(summary: &Summary) -> String {
    if !summary.threads.is_empty() {
        return format!(" of {}", plural(summary.threads.len() as u64, "thread"));
    }
    if !summary.nodes.is_empty() {
        let cpus = plural(summary.cpus.len() as u64, "CPU");
        let what = trace::nodes_or_recordings(summary.nodes.iter().map(|node| node.host.as_str()));
        return format!(" on {cpus} of {}", plural(summary.nodes.len() as u64, what));
    }
    let cpus = cpu_list(summary.cpus.iter().map(|c| c.cpu));
    match summary.cpus.len() {
        0 => String::new(),
        1 => format!(" on CPU {cpus}"),
        _ => format!(" on CPUs {cpus}"),
    }
}

fn verdict(summary: &Summary) -> String {
    let noise = percent_said(summary.noise_pct);
    if summary.taken_ns_total == 0 && summary.duration_s == 0.0 {
        return "this recording is empty.".to_owned();
    }
    if summary.taken_ns_total == 0 {
        return "no noise recorded.".to_owned();
    }
    let named = match summary.attributed.time_pct {
        Some(pct) => format!("{} of it is attributed.", percent_said(pct)),
        None => "cost is the net time of the kernel records.".to_owned(),
    };
    match summary.mode {
        Mode::Attributed => format!("noise took {noise} of CPU time; {named}"),
        Mode::ProbeOnly | Mode::Imported => format!(
            "noise took {noise} of CPU time in {}. None of it is attributed: kernel events were \
             not recorded.",
            plural(summary.detours, "detour")
        ),
        Mode::KernelOnly => format!(
            "kernel records account for {noise} of CPU time. No probe ran: cost is net time, \
             without entry and exit."
        ),
        Mode::Program if summary.wanted_ns_total.is_some() => {
            format!("noise took {noise} of the time they wanted to run; {named}")
        }
        Mode::Program => format!("noise took {noise} of their time; {named}"),
    }
}

/// Readable name of a source: threads by name, everything else with its class.
#[must_use]
pub fn label(source: &SourceRow) -> String {
    label_of(source.class, &source.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_says_what_the_evidence_says() {
        let said = |class: &str, steal_ns, smi| {
            let evidence = OutsideEvidence { hypervisor: None, steal_ns, smi, lost_records_ns: 0 };
            outside_label_with_evidence(class, &evidence).unwrap_or_default()
        };
        assert_eq!(said("hypervisor", Some(120_000_000), None), "hypervisor (steal time 120 ms)");
        assert_eq!(said("hypervisor", Some(0), Some(0)), "hypervisor (no steal time counted)");
        assert_eq!(said("hypervisor", None, None), "hypervisor");
        assert_eq!(said("smi", Some(0), Some(7)), "SMI (7 counted)");
        assert_eq!(said("unexplained", None, None), "unexplained");
        assert_eq!(said("unexplained", Some(0), Some(0)), "unexplained (no SMI counted)");
        let both = "hypervisor or SMI (steal time 10.0 ms, 1 SMI counted)";
        assert_eq!(said("hypervisor_or_smi", Some(10_000_000), Some(1)), both);
        assert_eq!(said("unattributed_long", None, None), "");
        let lossy = OutsideEvidence { lost_records_ns: 754_000_000, ..OutsideEvidence::default() };
        let said = outside_label_with_evidence("unexplained", &lossy);
        assert_eq!(said.as_deref(), Some("unexplained (754 ms of records lost)"));
    }
}
