//! Tables other than the sources: threads, waits, CPUs, units, and time outside the kernel.

use std::fmt::Write;

use analysis::{CpuRow, Summary};
use trace::{Mode, Wait};

use crate::Options;
use crate::grid::{Column, Grid, Tone};
use crate::headline::outside_label_with_evidence;
use crate::words::{count, cpu_list, frequency, name, percent, plural, safe, tight, time, wrap};

/// CPUs shown by default: the noisiest.
const CPUS: usize = 16;

pub(crate) fn threads(summary: &Summary, options: Options) -> Option<String> {
    if summary.threads.is_empty() {
        return None;
    }
    let style = options.style();
    let mut grid = Grid::new(vec![
        Column::text("host", 8),
        Column::text("thread", 15),
        Column::number("pid").expendable(2),
        Column::number("tid"),
        Column::number("watched").expendable(1),
        Column::number("wanted"),
        Column::number("detours").expendable(1),
        Column::number("lost"),
        Column::number("longest"),
        Column::number("share"),
        Column::number("woken").expendable(2),
        Column::number("p50").expendable(2),
        Column::number("p99").expendable(2),
        Column::number("max").expendable(2),
    ]);
    let shown = options.shown(summary.threads.len());
    let (top, rest) = summary.threads.split_at(shown);
    for t in top {
        grid.row(
            Tone::Plain,
            vec![
                safe(t.host.as_deref().unwrap_or_default()),
                name(&t.name),
                t.pid.to_string(),
                t.tid.to_string(),
                tight((t.window_s * 1e9) as u64),
                t.wanted_ns.map(tight).unwrap_or_default(),
                count(t.detours),
                tight(t.lost_ns_total),
                tight(t.longest_ns),
                percent(t.lost_pct),
                t.wakeup_latency.map(|l| count(l.count)).unwrap_or_default(),
                t.wakeup_latency.map(|l| tight(l.ns_p50)).unwrap_or_default(),
                t.wakeup_latency.map(|l| tight(l.ns_p99)).unwrap_or_default(),
                t.wakeup_latency.map(|l| tight(l.ns_max)).unwrap_or_default(),
            ],
        );
    }
    let mut text = format!("{}\n{}", style.title("Threads by time lost"), grid.render(style));
    if let Some(explained) = columns_of_threads(summary) {
        let _ = write!(text, "\n{}", wrap(&explained, style.width, ""));
    }
    if !rest.is_empty() {
        let lost: u64 = rest.iter().map(|t| t.lost_ns_total).fold(0, u64::saturating_add);
        let more = plural(rest.len() as u64, "more thread");
        let _ = write!(text, "\nand {more}, {} in total (--all shows them)", time(lost as f64));
    }
    Some(text)
}

/// Explains the thread columns that are present.
fn columns_of_threads(summary: &Summary) -> Option<String> {
    let wanted = "wanted: running or runnable; share: of wanted time";
    let parts = [summary.wanted_ns_total.map(|_| wanted.to_owned()), woken(summary)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Explains the wake-up columns: shorter waits are not in the file.
pub(crate) fn woken(summary: &Summary) -> Option<String> {
    let from = time(summary.wakeup_latency_from_ns? as f64);
    Some(format!(
        "woken: wake-ups with a latency of {from} or longer (p50, p99, max of these latencies)"
    ))
}

/// Waits of a program's threads for a CPU, by kind.
pub(crate) fn waits(summary: &Summary, options: Options) -> Option<String> {
    if summary.waits.is_empty() {
        return None;
    }
    let style = options.style();
    let mut grid = Grid::new(vec![
        Column::text("wait", 9),
        Column::text("", 20).expendable(2),
        Column::number("count"),
        Column::number("time"),
        Column::number("p50").expendable(1),
        Column::number("p99").expendable(1),
        Column::number("max"),
        Column::number("share"),
    ]);
    for row in &summary.waits {
        grid.row(
            Tone::Plain,
            vec![
                row.kind.name().to_owned(),
                wait_words(row.kind).to_owned(),
                count(row.count),
                tight(row.wait_ns_total),
                tight(row.wait_ns_p50),
                tight(row.wait_ns_p99),
                tight(row.wait_ns_max),
                percent(row.wanted_pct),
            ],
        );
    }
    let title = "Waits for a CPU by kind, and their share of the time threads wanted to run";
    Some(format!("{}\n{}", style.title(&wrap(title, style.width, "")), grid.render(style)))
}

/// Describes a kind of wait.
pub(crate) fn wait_words(kind: Wait) -> &'static str {
    match kind {
        Wait::None => "",
        Wait::Preempted => "another thread took the CPU",
        Wait::Woken => "wake-up latency",
        Wait::New => "from creation to first run",
        Wait::Throttled => "cgroup CPU quota exhausted",
        Wait::Migrated => "on the new CPU after migration",
    }
}

pub(crate) fn cpus(summary: &Summary, options: Options) -> Option<String> {
    if summary.cpus.is_empty() {
        return None;
    }
    let style = options.style();
    let mut cpus: Vec<&CpuRow> = summary.cpus.iter().collect();
    let mut left_out: &[&CpuRow] = &[];
    if !options.all && cpus.len() > CPUS {
        cpus.sort_by(|a, b| b.noise_pct.total_cmp(&a.noise_pct).then(a.cpu.cmp(&b.cpu)));
        left_out = &cpus[CPUS..];
    }
    let mut grid = Grid::new(vec![
        Column::text("host", 8),
        Column::number("cpu"),
        Column::number("t_min").expendable(3),
        Column::number("threshold").expendable(4),
        Column::number("watched").expendable(5),
        Column::number("detours"),
        Column::number("taken"),
        Column::number("longest"),
        Column::number("by threads").expendable(2),
        Column::number("switches").expendable(1),
        Column::number("noise"),
    ]);
    let probed = summary.mode != Mode::KernelOnly;
    let named = summary.mode == Mode::Attributed;
    let if_probed = |text: String| if probed { text } else { String::new() };
    for c in &cpus[..cpus.len() - left_out.len()] {
        grid.row(
            Tone::Plain,
            vec![
                safe(c.host.as_deref().unwrap_or_default()),
                c.cpu.to_string(),
                c.t_min_ns.filter(|_| probed).map(|t| time(t).replace(' ', "")).unwrap_or_default(),
                c.threshold_ns
                    .filter(|_| probed)
                    .map(|t| time(t).replace(' ', ""))
                    .unwrap_or_default(),
                tight((c.window_s * 1e9) as u64),
                if_probed(count(c.detours)),
                if_probed(tight(c.detour_ns_total)),
                if_probed(tight(c.longest_ns)),
                if named { count(c.thread_detours) } else { String::new() },
                c.context_switches.map(count).unwrap_or_default(),
                percent(c.noise_pct),
            ],
        );
    }
    let mut text = format!("{}\n{}", style.title("CPUs"), grid.render(style));
    if let [first, .., last] | [first @ last] = left_out {
        let more = plural(left_out.len() as u64, "more CPU");
        let (high, low) = (percent(first.noise_pct), percent(last.noise_pct));
        let _ = write!(text, "\nand {more} with noise of {high} to {low} (--all shows them)");
    }
    for line in resolution(summary).into_iter().chain(switch_check(summary)) {
        text.push('\n');
        text.push_str(&wrap(&line, style.width, "    "));
    }
    Some(text)
}

/// Resolution of the probe, from the t_min of each CPU.
fn resolution(summary: &Summary) -> Option<String> {
    let all = || summary.cpus.iter().filter_map(|c| c.resolution_hz);
    let (low, high) = (all().reduce(f64::min)?, all().reduce(f64::max)?);
    let range = match (frequency(low), frequency(high)) {
        (low, high) if low == high => low,
        (low, high) => format!("{low} to {high}"),
    };
    Some(format!("Probe resolution, 1/(2 t_min): noise up to {range}"))
}

/// perf counts the probe's context switches independently; each should be a detour in which another
/// thread ran.
fn switch_check(summary: &Summary) -> Vec<String> {
    if summary.mode != Mode::Attributed {
        return Vec::new();
    }
    let differ = |c: &&CpuRow| {
        c.context_switches
            .is_some_and(|n| n.abs_diff(c.thread_detours) > 2.max(n.max(c.thread_detours) / 20))
    };
    let cpus = cpu_list(summary.cpus.iter().filter(differ).map(|c| c.cpu));
    if cpus.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "On CPU {cpus}, the probe's context switches (counted by perf) and the detours in which a \
         thread ran differ by more than 5 %: some were missed."
    )]
}

pub(crate) fn units(summary: &Summary, options: Options) -> Option<String> {
    if summary.units.is_empty() {
        return None;
    }
    let style = options.style();
    let mut grid = Grid::new(vec![
        Column::text("unit", 20),
        Column::number("sources").expendable(1),
        Column::number("count"),
        Column::number("hits").expendable(1),
        Column::number("cost"),
        Column::number("share"),
    ]);
    let shown = options.shown(summary.units.len());
    let (top, rest) = summary.units.split_at(shown);
    for u in top {
        grid.row(
            Tone::Plain,
            vec![
                safe(&u.unit),
                u.sources.to_string(),
                count(u.count),
                if u.hits == u.count { String::new() } else { count(u.hits) },
                tight(u.cost_ns_total),
                percent(u.share_pct),
            ],
        );
    }
    let mut text = format!("{}\n{}", style.title("Units"), grid.render(style));
    if !rest.is_empty() {
        let cost: u64 = rest.iter().map(|u| u.cost_ns_total).fold(0, u64::saturating_add);
        let more = plural(rest.len() as u64, "more unit");
        let _ = write!(text, "\nand {more}, {} in total (--all shows them)", time(cost as f64));
    }
    Some(text)
}

pub(crate) fn outside(summary: &Summary, options: Options) -> Option<String> {
    if summary.outside_kernel.is_empty() {
        return None;
    }
    let style = options.style();
    let mut grid = Grid::new(vec![
        Column::text("class", 12),
        Column::text("length", 7),
        Column::number("count"),
        Column::number("time"),
        Column::number("p50").expendable(2),
        Column::number("p99").expendable(3),
        Column::number("max").expendable(1),
        Column::number("share"),
    ]);
    let recorded = summary.mode.has_sources();
    for row in &summary.outside_kernel {
        let label = outside_label_with_evidence(&row.class, &summary.outside_evidence);
        let (class, length) = match (row.class.as_str(), &label) {
            ("microarchitecture", Some(label)) => (label.as_str(), "< 1 us"),
            (_, Some(label)) => (label.as_str(), ">= 1 us"),
            ("unattributed_short", None) => ("not attributed", "< 1 us"),
            ("unattributed_long", None) => ("not attributed", ">= 1 us"),
            (other, None) => (other, ""),
        };
        let share = if summary.taken_ns_total == 0 {
            0.0
        } else {
            row.cost_ns_total as f64 / summary.taken_ns_total as f64 * 100.0
        };
        grid.row(
            Tone::Plain,
            vec![
                safe(class),
                length.to_owned(),
                count(row.count),
                tight(row.cost_ns_total),
                tight(row.cost_ns_p50),
                tight(row.cost_ns_p99),
                tight(row.cost_ns_max),
                percent(share),
            ],
        );
    }
    let title = if recorded { "Outside the kernel" } else { "Detours" };
    let mut text = format!("{}\n{}", style.title(title), grid.render(style));
    // SMIs leave no trace in the kernel; a count, where available, narrows the cause down.
    if let Some(smi) = summary.outside_evidence.smi {
        let _ = write!(text, "\nSystem management interrupts counted: {}", count(smi));
    }
    Some(text)
}
