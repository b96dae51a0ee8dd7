//! The table of sources, ranked by time taken, and their details.

use analysis::{CostBasis, SourceRow, Summary};

use crate::Options;
use crate::grid::{Column, Grid, Tone};
use crate::headline::label;
use crate::words::{count, name, percent, plural, rate, safe, tight, time, wrap};

/// A source with at least this share of the time is highlighted.
const STRONG_PCT: f64 = 10.0;
/// Position of the column with net times.
const NET: usize = 7;

pub(crate) fn sources(summary: &Summary, options: Options) -> Option<String> {
    if summary.sources.is_empty() {
        return None;
    }
    let style = options.style();
    let mut grid = Grid::new(vec![
        Column::text("class", 10),
        Column::text("name", 14),
        Column::text("unit", 12).expendable(1),
        Column::text("policy", 8).expendable(3),
        Column::number("count"),
        Column::number("hits").expendable(2),
        Column::number("/s").expendable(5),
        Column::number("net").expendable(3),
        Column::number("cost"),
        Column::number("p50").expendable(2),
        Column::number("p99").expendable(4),
        Column::number("max"),
        Column::number("period").expendable(1),
        Column::number("share"),
    ]);
    let shown = options.shown(summary.sources.len());
    let (top, rest) = summary.sources.split_at(shown);
    for source in top {
        let mut cells = cells(source);
        // Without detours cost equals net time: show it once.
        if summary.cost_basis == CostBasis::Records {
            cells[NET].clear();
        }
        grid.row(tone(source.own, source.share_pct), cells);
    }
    let mut text = style.title("Sources by time taken");
    text.push('\n');
    text.push_str(&grid.render(style));
    if !rest.is_empty() {
        let cost: u64 = rest.iter().map(|s| s.cost_ns_total).fold(0, u64::saturating_add);
        text.push_str(&format!(
            "\nand {}, {} in total (--all shows them)",
            plural(rest.len() as u64, "more source"),
            time(cost as f64)
        ));
    }
    text += &legend(top.iter().map(|source| (source.own, source.program)));
    if top.iter().any(|s| s.hits != s.count) {
        text.push_str("\nhits: an event counts once for each thread it hits");
    }
    Some(text)
}

/// How to show a row.
pub(crate) fn tone(own: bool, share_pct: f64) -> Tone {
    match own {
        true => Tone::Dim,
        false if share_pct >= STRONG_PCT => Tone::Strong,
        false => Tone::Plain,
    }
}

fn cells(source: &SourceRow) -> Vec<String> {
    vec![
        source.class.name().to_owned(),
        format!("{}{}", name(&source.name), mark(source.own, source.program)),
        source.unit.as_deref().map(safe).unwrap_or_default(),
        source.policy.as_deref().map(policy).unwrap_or_default(),
        count(source.count),
        if source.hits == source.count { String::new() } else { count(source.hits) },
        rate(source.rate_hz),
        tight(source.net_ns_total),
        tight(source.cost_ns_total),
        tight(source.cost_ns_p50),
        tight(source.cost_ns_p99),
        tight(source.cost_ns_max),
        source.period_ns.map(tight).unwrap_or_default(),
        percent(source.share_pct),
    ]
}

/// Appended to a name.
pub(crate) fn mark(own: bool, program: bool) -> &'static str {
    match (own, program) {
        (true, _) => "*",
        (_, true) => "^",
        _ => "",
    }
}

/// What the marks of these rows mean.
pub(crate) fn legend(mut rows: impl Iterator<Item = (bool, bool)> + Clone) -> String {
    let own = rows.clone().any(|(own, _)| own).then_some("\n* the recorder itself");
    let program = rows.any(|(_, program)| program).then_some("\n^ the program itself");
    own.into_iter().chain(program).collect()
}

/// `FIFO 60`, `nice -20`: short enough for a column. Ordinary threads are the rule: `OTHER`.
pub(crate) fn policy(policy: &str) -> String {
    let short = policy.strip_prefix("SCHED_").unwrap_or(policy);
    safe(match short.strip_prefix("OTHER ") {
        Some("nice 0") => "OTHER",
        Some(nice) => nice,
        None => short,
    })
}

/// Details of each source in the table.
pub(crate) fn details(summary: &Summary, options: Options) -> Option<String> {
    let style = options.style();
    let lines: Vec<String> = summary
        .sources
        .iter()
        .take(options.shown(summary.sources.len()))
        .filter_map(|s| {
            let line = format!("{}: {}", label(s), safe(s.detail.as_deref()?));
            Some(wrap(&line, style.width, "    "))
        })
        .collect();
    (!lines.is_empty()).then(|| format!("{}\n{}", style.title("Source details"), lines.join("\n")))
}
