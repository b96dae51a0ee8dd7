//! The table of processes, each with all that it causes and what a job would gain without it; and of
//! classes of sources.

use analysis::{CostBasis, ProcessRow, Summary};
use trace::Class;

use crate::Options;
use crate::grid::{Column, Grid, Tone};
use crate::sources::{legend, mark, tone};
use crate::words::{
    count, interval_said, label_of, name, percent, plural, safe, tight, time, wrap,
};

pub(crate) fn processes(summary: &Summary, options: Options) -> Option<String> {
    if summary.processes.is_empty() {
        return None;
    }
    let style = options.style();
    let mut grid = Grid::new(vec![
        Column::text("process", 14),
        Column::text("kind", 7),
        Column::text("unit", 12).expendable(1),
        Column::number("pid").expendable(3),
        Column::number("sources").expendable(4),
        Column::number("count"),
        Column::number("hits").expendable(2),
        Column::number("cost"),
        Column::number("share"),
        Column::number("gain"),
        Column::number("95 % interval").expendable(2),
    ]);
    let (rows, by) = ranked(summary);
    let (top, rest) = rows.split_at(options.shown(rows.len()));
    for process in top {
        grid.row(tone(process.own, process.share_pct), cells(process));
    }
    let mut text = style.title(&format!("Processes and kernel sources by {by}"));
    text.push('\n');
    text.push_str(&grid.render(style));
    if !rest.is_empty() {
        let cost: u64 = rest.iter().map(|p| p.cost_ns_total).fold(0, u64::saturating_add);
        let more = plural(rest.len() as u64, "more row");
        text += &format!("\nand {more}, {} in total (--all shows them)", time(cost as f64));
    }
    text += &legend(top.iter().map(|process| (process.own, process.program)));
    if let Some(parts) = parts(top, options) {
        text.push('\n');
        text.push_str(&parts);
    }
    Some(text)
}

/// What matters first: what the job gains most from, if that was simulated, then what takes most time.
pub(crate) fn ranked(summary: &Summary) -> (Vec<&ProcessRow>, &'static str) {
    let mut rows: Vec<&ProcessRow> = summary.processes.iter().collect();
    if rows.iter().all(|row| row.gain_pct.is_none()) {
        return (rows, "time taken");
    }
    // The sort is stable: ties stay in the order of the time taken.
    let gain = |row: &ProcessRow| row.gain_pct.unwrap_or(f64::NEG_INFINITY);
    rows.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
    (rows, "what the job gains without them")
}

fn cells(process: &ProcessRow) -> Vec<String> {
    let pids = match process.pids.as_slice() {
        [] => String::new(),
        [one] => one.to_string(),
        [first, ..] => format!("{first}.."),
    };
    vec![
        format!("{}{}", name(&process.process), mark(process.own, process.program)),
        kind(process.class).to_owned(),
        process.unit.as_deref().map(safe).unwrap_or_default(),
        pids,
        process.sources.len().to_string(),
        count(process.count),
        if process.hits == process.count { String::new() } else { count(process.hits) },
        tight(process.cost_ns_total),
        percent(process.share_pct),
        process.gain_pct.map(percent).unwrap_or_default(),
        process.gain_ci95_pct.map(interval_said).unwrap_or_default(),
    ]
}

/// A process, or the class of a source.
fn kind(class: Class) -> &'static str {
    if class == Class::Thread { "process" } else { class.name() }
}

/// What processes consist of, unless that is a single source.
fn parts(processes: &[&ProcessRow], options: Options) -> Option<String> {
    let style = options.style();
    let of = |process: &ProcessRow| {
        if process.sources.len() < 2 {
            return None;
        }
        let parts: Vec<String> = process
            .sources
            .iter()
            .map(|s| {
                let label = label_of(s.class, &s.name);
                format!("{} {} in {}", safe(&label), tight(s.cost_ns_total), count(s.count))
            })
            .collect();
        let line = format!("{}: {}", name(&process.process), parts.join(", "));
        Some(wrap(&line, style.width, "    "))
    };
    let lines: Vec<String> = processes.iter().filter_map(|process| of(process)).collect();
    (!lines.is_empty()).then(|| format!("{}\n{}", style.title("Made up of"), lines.join("\n")))
}

/// One row per class of sources.
pub(crate) fn classes(summary: &Summary, options: Options) -> Option<String> {
    if summary.sources.is_empty() {
        return None;
    }
    let style = options.style();
    let mut grid = Grid::new(vec![
        Column::text("class", 12),
        Column::number("sources"),
        Column::number("count"),
        Column::number("net"),
        Column::number("cost"),
        Column::number("max"),
        Column::number("share"),
    ]);
    let row = |class: Class| {
        let sources = || summary.sources.iter().filter(move |source| source.class == class);
        let sum =
            |of: fn(&analysis::SourceRow) -> u64| sources().map(of).fold(0, u64::saturating_add);
        let cost = sum(|s| s.cost_ns_total);
        let share: f64 = sources().map(|s| s.share_pct).sum();
        let longest = sources().map(|s| s.cost_ns_max).max().unwrap_or(0);
        let net = match summary.cost_basis {
            CostBasis::Detours => tight(sum(|s| s.net_ns_total)),
            CostBasis::Records => String::new(),
        };
        let cells = vec![
            class.name().to_owned(),
            sources().count().to_string(),
            count(sum(|s| s.count)),
            net,
            tight(cost),
            tight(longest),
            percent(share),
        ];
        (cost, cells)
    };
    let present = |class: &Class| summary.sources.iter().any(|source| source.class == *class);
    let mut rows: Vec<(u64, Vec<String>)> =
        Class::ALL.into_iter().filter(present).map(row).collect();
    rows.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
    rows.into_iter().for_each(|(_, cells)| grid.row(Tone::Plain, cells));
    Some(format!("{}\n{}", style.title("Classes by time taken"), grid.render(style)))
}
