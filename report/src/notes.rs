//! Notes on the recording itself: how much of the detours is attributed, what was lost, its overhead,
//! and what it could not see.

use analysis::{Attributed, Summary, words::shell_quoted};
use trace::{CgroupTotals, Mode};

use crate::Options;
use crate::words::{count, percent_said, plural, safe, time, wrap};

/// Cgroups listed that were throttled or waited.
const CGROUPS: usize = 5;

/// Cgroups that waited for a CPU for less than this share of the recording are not listed.
const WAITED_PCT: f64 = 1.0;

/// CPUs listed with their steal time, largest first.
const STEAL_CPUS: usize = 4;

pub(crate) fn notes(summary: &Summary, options: Options) -> Option<String> {
    let style = options.style();
    let body: Vec<String> = lines(summary).iter().map(|l| wrap(l, style.width, "    ")).collect();
    Some(format!("{}\n{}", style.title("About this recording"), body.join("\n")))
}

/// One note per line.
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
        lines.push(format!("Balance: net times sum to the wall time {how}."));
    }
    lines.extend(cgroups(summary));
    lines.extend(steal(summary));
    lines.extend(overhead(summary));
    if summary.cpus.iter().any(|c| !c.window_known)
        || summary.threads.iter().any(|t| !t.window_known)
    {
        lines.push("Watched time: not recorded; assumed from first to last event.".to_owned());
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
    lines.extend(summary.remarks.iter().map(|r| format!("Note: {}", safe(r))));
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
    let Some(all) = said("Attributed", &summary.attributed) else { return Vec::new() };
    let long = said("of those of 1 us or longer", &summary.attributed_over_1us);
    let entry = format!(
        "{} of the cost is entry and exit, beyond the net times",
        time(summary.entry_exit_ns_total as f64)
    );
    let parts: Vec<String> = [Some(all), long, Some(entry)].into_iter().flatten().collect();
    vec![format!("{}.", parts.join("; "))]
}

/// What quotas and full CPUs did to cgroups, by the kernel's counters.
fn cgroups(summary: &Summary) -> Vec<String> {
    let of = |cgroup: &CgroupTotals| {
        let host = cgroup.host.as_deref().map(|host| format!("{}: ", safe(host)));
        let named = format!("{}{}", host.unwrap_or_default(), safe(&cgroup.cgroup));
        let mut parts = Vec::new();
        if cgroup.throttled_periods > 0 {
            let quota = match (cgroup.quota_us, cgroup.period_us) {
                (Some(quota), Some(period)) => {
                    let [quota, period] = [quota, period].map(|us| time(us as f64 * 1e3));
                    format!(" (quota {quota} per {period})")
                }
                _ => String::new(),
            };
            parts.push(format!(
                "throttled in {} of {}{quota}, {} in total",
                count(cgroup.throttled_periods),
                plural(cgroup.periods, "period"),
                time(cgroup.throttled_ns as f64)
            ));
        }
        let waited_pct = |ns: u64| 100.0 * ns as f64 / (summary.duration_s * 1e9);
        if let Some(pct) = cgroup.waited_ns.map(waited_pct).filter(|&pct| pct >= WAITED_PCT) {
            parts.push(format!("waited for a CPU {} of the time", percent_said(pct.min(100.0))));
        }
        (!parts.is_empty()).then(|| format!("Cgroup {named}: {}.", parts.join("; ")))
    };
    let (listed, mut lines): (Vec<&CgroupTotals>, Vec<String>) =
        summary.cgroups.iter().filter_map(|cgroup| Some((cgroup, of(cgroup)?))).unzip();
    if lines.len() > CGROUPS {
        let more = plural((lines.len() - CGROUPS) as u64, "more cgroup");
        lines.truncate(CGROUPS);
        lines.push(format!("{more} throttled or waiting (see cgroups in --json)."));
    }
    if let Some(first) = listed.first() {
        let host = first.host.as_deref().map(|host| format!("on {}: ", safe(host)));
        lines.push(format!(
            "{}detour record --cgroup {} shows every wait, and what ran instead.",
            host.unwrap_or_default(),
            safe(&shell_quoted(&first.cgroup))
        ));
    }
    lines
}

/// Also shown for programs, which have no table of time outside the kernel.
fn steal(summary: &Summary) -> Option<String> {
    let evidence = &summary.outside_evidence;
    let ns = evidence.steal_ns?;
    // No steal time on bare metal.
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
        Some(name) => format!(" ({})", safe(name)),
        None => String::new(),
    };
    let where_ = if most.is_empty() { String::new() } else { format!(" ({})", most.join(", ")) };
    Some(format!("Steal time{by}, from /proc/stat: {}{where_}.", time(ns as f64)))
}

fn beside(summary: &Summary) -> Option<String> {
    let beside = summary.beside_detours;
    (beside.records > 0 && summary.detours > 0).then(|| {
        format!(
            "Outside any detour: {}, {} in total (below the threshold, or at the edges).",
            plural(beside.records, "record"),
            time(beside.cost_ns_total as f64)
        )
    })
}

fn lost(summary: &Summary) -> String {
    let lost = &summary.lost;
    let kinds = [
        (lost.records, "record", "to a full ring buffer"),
        (lost.detours, "detour", "to a full probe buffer"),
        (lost.unmatched, "entry or exit", "without counterpart"),
        (lost.overflow, "interruption", "nested too deeply"),
        (lost.unwritten, "event", "not written to the file"),
        (lost.skipped, "BPF run", "skipped by the kernel"),
    ];
    if kinds.iter().any(|(n, _, _)| n.is_none()) {
        return "Lost: unknown (the recording is truncated).".to_owned();
    }
    let parts: Vec<String> = kinds
        .iter()
        .filter_map(|&(n, what, why)| n.filter(|&n| n > 0).map(|n| (n, what, why)))
        .map(|(n, what, why)| match (n, what) {
            (2.., "entry or exit") => format!("{} entries or exits {why}", count(n)),
            (_, "record") => {
                let taken = time(lost.records_ns.unwrap_or(0) as f64);
                format!("{} ({taken}) {why}{}", plural(n, what), where_lost(summary))
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

/// The CPUs whose ring buffers were full, worst first, and the remedy.
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
        named.push(plural((lossy.len() - SHOWN) as u64, "more CPU"));
    }
    format!(" ({}; increase --buffer)", named.join(", "))
}

fn damage(summary: &Summary) -> Vec<String> {
    let mut lines = Vec::new();
    if summary.unbalanced_detours > 0 {
        lines.push(format!(
            "Unbalanced: the parts of {} do not sum to the total.",
            plural(summary.unbalanced_detours, "detour")
        ));
    }
    if summary.unknown_source_records > 0 {
        lines.push(format!(
            "Damaged: {} with an unknown source, ignored.",
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
            || " (time unknown)".to_owned(),
            |ns| format!(", {} in total", time(ns as f64)),
        );
        parts.push(format!("{}{took}", plural(events, "BPF run")));
    }
    if let Some(pct) = own.cpu_pct {
        parts.push(format!("{} of the measured CPUs' time", percent_said(pct)));
    }
    if let Some(ns) = own.reader_cpu_ns.filter(|&n| n > 0) {
        parts.push(format!("{} of CPU time for reading and writing", time(ns as f64)));
    }
    (!parts.is_empty()).then(|| format!("Overhead: {}.", parts.join(", ")))
}
