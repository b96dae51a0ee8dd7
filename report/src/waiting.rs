//! What ranks of simulated runs wait for, as tables.

use study::explain::states::{LateBy, WaitState, Waits, WaitsBy};

use crate::{
    Options,
    grid::{Column, Grid, Tone},
    words::{label_of, percent, percent_said, plural, safe, time, wrap},
};

fn s(s: f64) -> String {
    time(s * 1e9)
}

fn share(part: f64, whole: f64) -> f64 {
    100.0 * part / whole.max(f64::MIN_POSITIVE)
}

/// What made a rank late, in words.
pub(crate) fn late_by(cause: &LateBy) -> String {
    match (&cause.source, cause.call, cause.after) {
        (Some(source), ..) => match source.class {
            Some(class) => label_of(class, &source.name),
            None => safe(&source.name),
        },
        (None, None, Some(after)) => format!("compute after {after}"),
        (None, Some(call), _) => format!("{} of {call}", cause.kind),
        (None, None, None) => cause.kind.to_owned(),
    }
}

/// How much, and what it comes from.
pub(crate) fn said(waits: &Waits) -> String {
    if waits.waiting_ps == 0 {
        return "No rank waits for another.".to_owned();
    }
    let of = |part: f64| percent_said(share(part, waits.waiting_s));
    let parts = |list: &[(&str, f64)]| {
        let some = list.iter().filter(|(_, part)| *part > 0.0);
        some.map(|(name, part)| format!("{name} {}", of(*part))).collect::<Vec<_>>().join(", ")
    };
    let classes = parts(&[
        ("late sender", waits.late_sender_s),
        ("late receiver", waits.late_receiver_s),
        ("collective", waits.collective_s),
        ("network interface", waits.nic_s),
    ]);
    let causes = &waits.causes;
    let causes = parts(&[
        ("noise", causes.noise_s),
        ("computation", causes.compute_s),
        ("CPU time of calls", causes.communication_s),
        ("network", causes.network_s),
        ("unexplained", causes.unexplained_s),
    ]);
    let mean = if waits.runs > 1 { ", mean of the runs" } else { "" };
    format!(
        "The ranks wait for {} in total{mean}: {classes}. It comes from {causes}.",
        s(waits.waiting_s)
    )
}

/// By rank, region and cause.
pub(crate) fn waits(waits: &Waits, options: Options) -> String {
    let mut text = wrap(&said(waits), options.style().width, "") + "\n";
    if waits.waiting_ps == 0 {
        return text;
    }
    let ranks = waits.ranks.iter().map(|row| {
        let last = row.rank + row.ranks.max(1) - 1;
        let name =
            if row.ranks > 1 { format!("{}-{last}", row.rank) } else { row.rank.to_string() };
        (name, &row.by)
    });
    text += &format!("\n{}\n", by("waiting rank", ranks.collect(), options));
    if waits.regions.iter().any(|row| row.region.is_some()) {
        let regions = waits
            .regions
            .iter()
            .map(|row| (row.region.as_deref().map_or("(no region)".to_owned(), safe), &row.by));
        text += &format!("\n{}\n", by("waits in", regions.collect(), options));
    }
    text + &format!("\n{}\n", states(waits, options))
}

/// Of a table of wait states.
pub(crate) fn state_columns() -> Vec<Column> {
    vec![
        Column::text("class", 12),
        Column::text("for", 12).expendable(1),
        Column::number("late rank"),
        Column::text("because of", 12),
        Column::text("region", 8).expendable(2),
        Column::number("time"),
        Column::number("share"),
    ]
}

/// Of waiting by class, after those that say whose waiting it is and how much.
pub(crate) fn class_columns() -> [Column; 4] {
    [
        Column::number("late sender").expendable(2),
        Column::number("late receiver").expendable(3),
        Column::number("collective").expendable(2),
        Column::number("because of noise").expendable(1),
    ]
}

fn by(title: &'static str, rows: Vec<(String, &WaitsBy)>, options: Options) -> String {
    let mut columns = vec![Column::text(title, 12), Column::number("waiting")];
    columns.extend(class_columns());
    let mut grid = Grid::new(columns);
    let shown = options.shown(rows.len());
    for (name, by) in rows.iter().take(shown) {
        let times = [by.s, by.late_sender_s, by.late_receiver_s, by.collective_s, by.noise_s];
        let cells = std::iter::once(name.clone()).chain(times.map(s));
        grid.row(Tone::Plain, cells.collect());
    }
    let mut text = grid.render(options.style());
    if shown < rows.len() {
        text += &format!("\n{}", plural((rows.len() - shown) as u64, "more row"));
    }
    text
}

fn states(waits: &Waits, options: Options) -> String {
    let mut grid = Grid::new(state_columns());
    let shown = options.shown(waits.states.len());
    let mut left = waits.waiting_s;
    for state in waits.states.iter().take(shown) {
        left -= state.s;
        let tone = if state.cause.kind == "noise" { Tone::Strong } else { Tone::Plain };
        grid.row(tone, row(state, waits.waiting_s));
    }
    let mut text = grid.render(options.style());
    if shown < waits.states.len() || waits.other_ps > 0 {
        text += &format!("\nand other causes, {} in total", s(left.max(0.0)));
    }
    text
}

/// A line of the table of causes.
pub(crate) fn row(state: &WaitState, whole_s: f64) -> Vec<String> {
    vec![
        state.class.to_owned(),
        state.call.unwrap_or_default().to_owned(),
        state.cause.rank.map_or("-".to_owned(), |rank| rank.to_string()),
        late_by(&state.cause),
        state.cause.region.as_deref().map(safe).unwrap_or_default(),
        s(state.s),
        percent(share(state.s, whole_s)),
    ]
}
