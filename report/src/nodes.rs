//! The nodes of a merged trace: one line each, and outliers.

use std::fmt::Write;

use analysis::{FAR, FEWEST_NODES, Losses, Measure, NodeRow, Outlier, Summary};

use crate::Options;
use crate::grid::{Column, Grid, Tone};
use crate::words::label_of;
use crate::words::{count, percent, plural, safe, tight, time, wrap};

pub(crate) fn nodes(summary: &Summary, options: Options) -> Option<String> {
    if summary.nodes.is_empty() {
        return None;
    }
    let style = options.style();
    let mut rows: Vec<&NodeRow> = summary.nodes.iter().collect();
    let shown = options.shown(rows.len());
    if shown < rows.len() {
        // Only the noisiest.
        rows.sort_by(|a, b| b.noise_pct.total_cmp(&a.noise_pct));
    }
    let mut grid = Grid::new(vec![
        Column::text("host", 8),
        Column::text("kernel", 8),
        Column::number("start").expendable(2),
        Column::number("CPUs").expendable(3),
        Column::number("watched").expendable(1),
        Column::number("detours"),
        Column::number("taken"),
        Column::number("noise"),
        Column::number("lost"),
    ]);
    let several_kernels = summary.nodes.windows(2).any(|pair| pair[0].kernel != pair[1].kernel);
    for node in &rows[..shown] {
        grid.row(
            Tone::Plain,
            vec![
                safe(&node.host),
                if several_kernels { safe(&node.kernel) } else { String::new() },
                format!("+{}", tight((node.started_after_s * 1e9) as u64)),
                node.lanes.to_string(),
                tight((node.window_s * 1e9) as u64),
                count(node.detours),
                tight(node.taken_ns_total),
                percent(node.noise_pct),
                lost(&node.lost),
            ],
        );
    }
    let mut text = format!("{}\n{}", style.title("Nodes"), grid.render(style));
    if shown < rows.len() {
        let more = plural((rows.len() - shown) as u64, "more node");
        let _ = write!(text, "\nand {more} with less noise (--all shows them)");
    }
    for line in remarks(summary, options) {
        text.push('\n');
        text.push_str(&wrap(&line, style.width, "    "));
    }
    Some(text)
}

pub(crate) fn lost(losses: &Losses) -> String {
    let kinds = [losses.records, losses.detours, losses.unwritten];
    let sum = kinds.into_iter().try_fold(0u64, |sum, lost| Some(sum.saturating_add(lost?)));
    match sum {
        Some(lost) => count(lost),
        None => "unknown".to_owned(),
    }
}

/// The spread of the start times, and outliers.
pub(crate) fn remarks(summary: &Summary, options: Options) -> Vec<String> {
    let last = summary.nodes.iter().map(|node| node.started_after_s).fold(0.0, f64::max);
    let mut lines = vec![match last {
        0.0 => "Started at the same time, by their own clocks.".to_owned(),
        last => format!("Started within {} of each other, by their own clocks.", time(last * 1e9)),
    }];
    if summary.nodes.len() < FEWEST_NODES {
        lines.push(format!("Finding outliers requires at least {FEWEST_NODES} nodes."));
        return lines;
    }
    if summary.outliers.is_empty() {
        lines.push(format!(
            "No outliers (more than {FAR} robust deviations and half the median off)."
        ));
        return lines;
    }
    lines.push(format!(
        "Outliers (off the median by more than {FAR} robust deviations and half the median):"
    ));
    let shown = options.shown(summary.outliers.len());
    lines.extend(summary.outliers[..shown].iter().map(said));
    if shown < summary.outliers.len() {
        let more = summary.outliers.len() - shown;
        lines.push(format!("and {more} more (--all shows them)"));
    }
    lines
}

/// `node07: fakemond takes 3.2 % of the time; the median is 0.1 %`.
fn said(outlier: &Outlier) -> String {
    let host = safe(&outlier.host);
    let what = outlier.source().map(|(class, name)| label_of(class, name));
    let what = what.unwrap_or("all noise".to_owned());
    let unit = outlier.unit.as_ref().map(|unit| format!(" of {}", safe(unit)));
    let unit = unit.unwrap_or_default();
    match outlier.measure {
        Measure::RateHz => format!(
            "  {host}: {what}{unit} occurs {:.3} times a second; the median is {:.3}",
            outlier.value, outlier.median
        ),
        Measure::NoisePct => format!(
            "  {host}: {what}{unit} takes {} of the time; the median is {}",
            percent(outlier.value),
            percent(outlier.median)
        ),
    }
}
