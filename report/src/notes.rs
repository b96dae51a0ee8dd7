//! What the reader has to know about the recording: how far it explains the detours, what was lost,
//! what it cost, what it could not see.

use analysis::{Attributed, Summary};
use trace::Mode;

use crate::Options;
use crate::words::{count, percent_said, plural, safe, time, wrap};

/// CPUs whose steal time is named, those with the most.
const STEAL_CPUS: usize = 4;

pub(crate) fn notes(summary: &Summary, options: Options) -> Option<String> {
    let style = options.style();
    let body: Vec<String> = lines(summary).iter().map(|l| wrap(l, style.width, "    ")).collect();
    Some(format!("{}\n{}", style.title("About this recording"), body.join("\n")))
}

/// One line per thing to know.
pub(crate) fn lines(summary: &Summary) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    lines.extend(explained(summary));
    lines.extend(beside(summary));
    lines.push(lost(summary));
    lines.extend(damage(summary));
    if let Some(error) = summary.closure_error {
        let how = match error {
            0.0 => "exactly".to_owned(),
            error => format!("within {error:.1e}"),
        };
        lines.push(format!("Account: net times add up to the wall time {how}."));
    }
    lines.extend(steal(summary));
    lines.extend(overhead(summary));
    if summary.cpus.iter().any(|c| !c.window_known)
        || summary.threads.iter().any(|t| !t.window_known)
    {
        lines
            .push("Watched time: not recorded; taken from the first event to the last.".to_owned());
    }
    for hook in &summary.hooks_missing {
        lines.push(format!(
            "Missing hook {}: {} ({})",
            safe(&hook.hook),
            safe(&hook.lost),
            safe(&hook.why)
        ));
    }
    lines.extend(summary.limits.iter().map(|l| format!("Limit: {}", safe(l))));
    lines.extend(summary.remarks.iter().map(|r| format!("Remark: {}", safe(r))));
    lines
}

fn explained(summary: &Summary) -> Vec<String> {
    if !matches!(summary.mode, Mode::Attributed | Mode::Program) {
        return Vec::new();
    }
    let said = |what: &str, a: &Attributed| {
        let (time_pct, count_pct) = (a.time_pct?, a.count_pct?);
        Some(format!(
            "{what}: {} of the time and {} of the detours",
            percent_said(time_pct),
            percent_said(count_pct)
        ))
    };
    let Some(all) = said("Named", &summary.attributed) else { return Vec::new() };
    let long = said("of those from 1 us on", &summary.attributed_over_1us);
    let entry = format!(
        "{} of the cost is entry and exit, beyond the kernel's own net times",
        time(summary.entry_exit_ns_total as f64)
    );
    let parts: Vec<String> = [Some(all), long, Some(entry)].into_iter().flatten().collect();
    vec![format!("{}.", parts.join("; "))]
}

/// Said for programs as well, where no table shows what is outside the kernel.
fn steal(summary: &Summary) -> Option<String> {
    let evidence = &summary.outside_evidence;
    let ns = evidence.steal_ns?;
    // On bare metal there is nobody to steal.
    if ns == 0 && evidence.hypervisor.is_none() {
        return None;
    }
    let mut cpus: Vec<(u64, String)> = summary
        .cpus
        .iter()
        .filter_map(|c| Some((c.steal_ns.filter(|&ns| ns > 0)?, c)))
        .map(|(ns, c)| {
            let host = c.host.as_deref().map(|host| format!("{} ", safe(host))).unwrap_or_default();
            (ns, format!("{} on {host}CPU {}", time(ns as f64), c.cpu))
        })
        .collect();
    cpus.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    let most: Vec<String> = cpus.into_iter().take(STEAL_CPUS).map(|(_, said)| said).collect();
    let by = match &evidence.hypervisor {
        Some(name) => format!(" by the hypervisor ({})", safe(name)),
        None => String::new(),
    };
    let where_ = if most.is_empty() { String::new() } else { format!(": {}", most.join(", ")) };
    Some(format!("Steal time{by}, as /proc/stat counts it: {}{where_}.", time(ns as f64)))
}

fn beside(summary: &Summary) -> Option<String> {
    let beside = summary.beside_detours;
    (beside.records > 0 && summary.detours > 0).then(|| {
        format!(
            "Beside the detours: {} of {} in all, in no detour (below the threshold, or at the edges).",
            plural(beside.records, "record"),
            time(beside.cost_ns_total as f64)
        )
    })
}

fn lost(summary: &Summary) -> String {
    let lost = &summary.lost;
    let kinds = [
        (lost.records, "record", "that found the ring full"),
        (lost.detours, "detour", "that found the probe's buffer full"),
        (lost.unmatched, "entry or exit", "without counterpart"),
        (lost.overflow, "interruption", "nested too deep"),
        (lost.unwritten, "event", "not written to the file"),
    ];
    if kinds.iter().any(|(n, _, _)| n.is_none()) {
        return "Lost: unknown, the recording ends before it says.".to_owned();
    }
    let parts: Vec<String> = kinds
        .iter()
        .filter_map(|&(n, what, why)| n.filter(|&n| n > 0).map(|n| (n, what, why)))
        .map(|(n, what, why)| match (n, what) {
            (2.., "entry or exit") => format!("{} entries or exits {why}", count(n)),
            (_, "record") => {
                let taken = time(lost.records_ns.unwrap_or(0) as f64);
                format!("{} of {taken} in all {why}{}", plural(n, what), where_lost(summary))
            }
            _ => format!("{} {why}", plural(n, what)),
        })
        .collect();
    if parts.is_empty() {
        "Lost: nothing.".to_owned()
    } else {
        format!("Lost: {}.", parts.join(", "))
    }
}

/// The CPUs whose rings were full, the worst first, and what to do about it.
fn where_lost(summary: &Summary) -> String {
    const SHOWN: usize = 4;
    let cpus = summary.entries.iter().flat_map(|entries| &entries.cpus);
    let mut lossy: Vec<(u64, u32)> =
        cpus.filter(|cpu| cpu.lost > 0).filter_map(|cpu| Some((cpu.lost, cpu.cpu?))).collect();
    if lossy.is_empty() {
        return String::new();
    }
    lossy.sort_unstable_by_key(|&(lost, cpu)| (u64::MAX - lost, cpu));
    let named = lossy.iter().take(SHOWN).map(|(lost, cpu)| format!("CPU {cpu}: {}", count(*lost)));
    let mut named: Vec<String> = named.collect();
    if lossy.len() > SHOWN {
        named.push(format!("{} more", plural((lossy.len() - SHOWN) as u64, "CPU")));
    }
    format!(" ({}; record with a larger --buffer)", named.join(", "))
}

fn damage(summary: &Summary) -> Vec<String> {
    let mut lines = Vec::new();
    if summary.unbalanced_detours > 0 {
        lines.push(format!(
            "Unbalanced: the parts of {} do not add up to the whole.",
            plural(summary.unbalanced_detours, "detour")
        ));
    }
    if summary.unknown_source_records > 0 {
        lines.push(format!(
            "Damaged: {} without a known source, left out.",
            plural(summary.unknown_source_records, "record")
        ));
    }
    lines
}

fn overhead(summary: &Summary) -> Option<String> {
    let own = &summary.overhead;
    let mut parts = Vec::new();
    if let Some(events) = own.events.filter(|&n| n > 0) {
        let took = own.bpf_ns_total.map_or_else(
            || " (time not known)".to_owned(),
            |ns| format!(" of {} in all", time(ns as f64)),
        );
        parts.push(format!("{}{took}", plural(events, "BPF run")));
    }
    if let Some(pct) = own.cpu_pct {
        parts.push(format!("{} of the measured CPUs' time", percent_said(pct)));
    }
    if let Some(ns) = own.reader_cpu_ns.filter(|&n| n > 0) {
        parts.push(format!("{} of CPU time to read and write", time(ns as f64)));
    }
    (!parts.is_empty()).then(|| format!("Own overhead: {}.", parts.join(", ")))
}
