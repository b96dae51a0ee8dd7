//! A recording's summary as OpenMetrics text, which the node exporter's textfile collector also accepts
//! as Prometheus format: gauges only, no timestamps.
//!
//! Recordings are independent, so the values are gauges: counters would appear to reset with each one.
//! Label cardinality is bounded: a limited number of sources by name, the rest as `other`, values
//! truncated, and no process or thread IDs.

use std::{collections::BTreeMap, fmt::Write};

use analysis::{SourceRow, Summary};
use trace::Class;

use crate::words::{harmless, time};

/// The longest label value; cgroup paths of containers are longer.
const LONGEST: usize = 64;
const OTHER: &str = "other";

/// How many sources are listed by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub sources: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { sources: 20 }
    }
}

/// The summary as metrics.
#[must_use]
pub fn openmetrics(summary: &Summary, bounds: Bounds) -> String {
    let mut out = Text::default();
    let about = [
        ("host", summary.host.as_str()),
        ("kernel", summary.kernel.as_str()),
        ("version", summary.detour_version.as_str()),
        ("mode", mode(summary)),
    ];
    out.family("detour_recording", "", "The recording that the other metrics describe.");
    out.sample("detour_recording", &about, 1.0);
    let plain = [
        (
            "detour_recording_start_time_seconds",
            "seconds",
            "Start of the recording, since the epoch.",
            Some(summary.started_unix_s),
        ),
        (
            "detour_recording_duration_seconds",
            "seconds",
            "Duration of the recording.",
            Some(summary.duration_s),
        ),
        (
            "detour_noise_ratio",
            "ratio",
            "Share of the watched time lost to noise; for a program, of the time it wanted to run.",
            Some(summary.noise_pct / 100.0),
        ),
        (
            "detour_attributed_ratio",
            "ratio",
            "Share of the detour time that is attributed.",
            summary.attributed.time_pct.map(|pct| pct / 100.0),
        ),
        (
            "detour_overhead_ratio",
            "ratio",
            "Share of the watched time taken by the recorder itself.",
            summary.overhead.cpu_pct.map(|pct| pct / 100.0),
        ),
        (
            "detour_closure_error_ratio",
            "ratio",
            "Wall time minus all net times, as a share of wall time, on the worst CPU.",
            summary.closure_error,
        ),
    ];
    for (name, unit, help, value) in plain {
        if let Some(value) = value {
            out.family(name, unit, help);
            out.sample(name, &[], value);
        }
    }
    lost(summary, &mut out);
    cpus(summary, &mut out);
    program(summary, &mut out);
    sources(summary, bounds, &mut out);
    out.0.push_str("# EOF\n");
    out.0
}

fn mode(summary: &Summary) -> &'static str {
    match summary.mode {
        trace::Mode::Attributed => "attributed",
        trace::Mode::ProbeOnly => "probe_only",
        trace::Mode::KernelOnly => "kernel_only",
        trace::Mode::Program => "program",
        trace::Mode::Imported => "imported",
    }
}

fn lost(summary: &Summary, out: &mut Text) {
    let lost = &summary.lost;
    let parts = [
        ("records", lost.records),
        ("detours", lost.detours),
        ("unmatched", lost.unmatched),
        ("overflow", lost.overflow),
        ("unwritten", lost.unwritten),
        ("skipped", lost.skipped),
    ];
    let name = "detour_lost_events";
    if parts.iter().any(|(_, count)| count.is_some()) {
        out.family(name, "", "Events that the recording lost.");
    }
    for (what, count) in parts {
        if let Some(count) = count {
            out.sample(name, &[("what", what)], count as f64);
        }
    }
}

/// Name, unit, help, and the value of a row.
type Column<T> = (&'static str, &'static str, &'static str, fn(&T) -> f64);

fn cpus(summary: &Summary, out: &mut Text) {
    if summary.cpus.is_empty() {
        return;
    }
    let columns: [Column<analysis::CpuRow>; 3] = [
        ("detour_cpu_noise_ratio", "ratio", "Share of a CPU's time lost to noise.", |cpu| {
            cpu.noise_pct / 100.0
        }),
        ("detour_cpu_detours", "", "Detours on a CPU in the recording.", |cpu| cpu.detours as f64),
        ("detour_cpu_longest_seconds", "seconds", "The longest detour on a CPU.", |cpu| {
            cpu.longest_ns as f64 / 1e9
        }),
    ];
    for (name, unit, help, value) in columns {
        out.family(name, unit, help);
        for cpu in &summary.cpus {
            let number = cpu.cpu.to_string();
            // Every node of a merged trace has a CPU 0.
            let host = cpu.host.as_deref().map(|host| ("host", host));
            let labels: Vec<(&str, &str)> = host.into_iter().chain([("cpu", &*number)]).collect();
            out.sample(name, &labels, value(cpu));
        }
    }
}

/// Waits of a recorded program. Threads are not distinguished: their IDs change with every run.
fn program(summary: &Summary, out: &mut Text) {
    let shortest = time(summary.wakeup_latency_from_ns.unwrap_or(0) as f64);
    let woken = format!("Wake-ups of a program's threads with a latency of {shortest} or longer.");
    let plain: [(&str, &str, &str, Option<f64>); 4] = [
        (
            "detour_program_wanted_seconds",
            "seconds",
            "Time the threads of a program ran or wanted to run, in total.",
            summary.wanted_ns_total.map(seconds),
        ),
        (
            "detour_program_self_wait_seconds",
            "seconds",
            "Time threads of a program waited for each other.",
            summary.self_competition.as_ref().map(|found| seconds(found.wait_ns_total)),
        ),
        (
            "detour_program_runnable_threads",
            "",
            "Mean number of runnable threads while a program's threads waited for each other.",
            summary.self_competition.as_ref().map(|found| found.runnable_threads),
        ),
        (
            "detour_program_wakeups",
            "",
            &woken,
            summary.wakeup_latency.map(|latency| latency.count as f64),
        ),
    ];
    for (name, unit, help, value) in plain {
        if let Some(value) = value {
            out.family(name, unit, help);
            out.sample(name, &[], value);
        }
    }
    if let Some(latency) = summary.wakeup_latency {
        let name = "detour_program_wakeup_latency_seconds";
        let help = format!(
            "Wake-up latency: quantiles over all threads, of latencies of {shortest} or longer."
        );
        out.family(name, "seconds", &help);
        let quantiles = [("0.5", latency.ns_p50), ("0.99", latency.ns_p99), ("1", latency.ns_max)];
        for (quantile, ns) in quantiles {
            out.sample(name, &[("q", quantile)], seconds(ns));
        }
    }
    if summary.waits.is_empty() {
        return;
    }
    let columns: [Column<analysis::WaitRow>; 3] = [
        ("detour_program_wait_seconds", "seconds", "Time threads waited for a CPU.", |wait| {
            seconds(wait.wait_ns_total)
        }),
        ("detour_program_waits", "", "How often threads waited for a CPU.", |wait| {
            wait.count as f64
        }),
        ("detour_program_wait_longest_seconds", "seconds", "The longest such wait.", |wait| {
            seconds(wait.wait_ns_max)
        }),
    ];
    for (name, unit, help, value) in columns {
        out.family(name, unit, help);
        for wait in &summary.waits {
            out.sample(name, &[("kind", wait.kind.name())], value(wait));
        }
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// One line of each source metric.
#[derive(Clone, Copy, Default)]
struct Figures {
    taken_ns: u64,
    count: u64,
    hits: u64,
    longest_ns: u64,
}

impl Figures {
    fn add(&mut self, row: &SourceRow) {
        self.taken_ns = self.taken_ns.saturating_add(row.cost_ns_total);
        self.count = self.count.saturating_add(row.count);
        self.hits = self.hits.saturating_add(row.hits);
        self.longest_ns = self.longest_ns.max(row.cost_ns_max);
    }
}

fn sources(summary: &Summary, bounds: Bounds, out: &mut Text) {
    let mut named: BTreeMap<(Class, String, String), Figures> = BTreeMap::new();
    for (rank, row) in summary.sources.iter().enumerate() {
        let key = match rank < bounds.sources {
            true => (row.class, bounded(&row.name), bounded(row.unit.as_deref().unwrap_or(""))),
            false => (row.class, OTHER.to_owned(), String::new()),
        };
        // Sources truncated to the same label are merged.
        named.entry(key).or_default().add(row);
    }
    for row in &summary.outside_kernel {
        let key = (Class::OutsideKernel, row.class.clone(), String::new());
        let figures = named.entry(key).or_default();
        figures.taken_ns = figures.taken_ns.saturating_add(row.cost_ns_total);
        figures.count = figures.count.saturating_add(row.count);
        figures.hits = figures.hits.saturating_add(row.count);
        figures.longest_ns = figures.longest_ns.max(row.cost_ns_max);
    }
    if named.is_empty() {
        return;
    }
    let columns: [Column<Figures>; 4] = [
        ("detour_source_taken_seconds", "seconds", "Time a source took in the recording.", |f| {
            f.taken_ns as f64 / 1e9
        }),
        ("detour_source_interruptions", "", "Occurrences of a source in the recording.", |f| {
            f.count as f64
        }),
        (
            "detour_source_hits",
            "",
            "Hits of a source: an event counts once for each thread or CPU it hits.",
            |f| f.hits as f64,
        ),
        ("detour_source_longest_seconds", "seconds", "The longest occurrence of a source.", |f| {
            f.longest_ns as f64 / 1e9
        }),
    ];
    for (name, unit, help, value) in columns {
        out.family(name, unit, help);
        for ((class, source, cgroup), figures) in &named {
            let labels = [("class", class.name()), ("name", source), ("unit", cgroup)];
            out.sample(name, &labels, value(figures));
        }
    }
}

fn bounded(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

#[derive(Default)]
struct Text(String);

impl Text {
    /// Writing to a string cannot fail.
    fn family(&mut self, name: &str, unit: &str, help: &str) {
        let _ = writeln!(self.0, "# TYPE {name} gauge");
        if !unit.is_empty() {
            let _ = writeln!(self.0, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.0, "# HELP {name} {help}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> =
            labels.iter().map(|(label, text)| format!("{label}=\"{}\"", escaped(text))).collect();
        let braces =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{braces} {value}");
    }
}

/// Escaped as both formats require; names come from processes, so nothing in them may end the line.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            c if !harmless(c) => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
