//! Two runs of a program compared, as text: time, regions, waits, calls and ranks.

use study::{
    decide::programs::{Both, Programs, Run},
    jobs::replay::Deviation,
};

use crate::{
    Options,
    grid::{Column, Grid, Tone},
    profile::{bytes, time_s},
    words::{count, plural, safe, wrap},
};

/// Rows that differ by less than this share of the run are left out.
const SMALL: f64 = 0.0005;

/// The comparison as text.
#[must_use]
pub fn programs(programs: &Programs, options: Options) -> String {
    let style = options.style();
    let mut sections = vec![style.title(&wrap(&headline(programs), style.width, ""))];
    sections.extend(tables(programs, options));
    sections.join("\n\n") + "\n"
}

/// A re-enactment and its trace.
#[must_use]
pub fn deviation(deviation: &Deviation, options: Options) -> String {
    let style = options.style();
    let Programs { before, after, change_pct, .. } = &deviation.programs;
    let changes = match deviation.hypotheses.is_empty() {
        true => "as traced".to_owned(),
        false => format!("if {}", deviation.hypotheses.join(", then ")),
    };
    let order = if deviation.deterministic { ", requests in the traced order" } else { "" };
    let sentence = format!(
        "{} on {}, replayed {}{order}: {} in the trace, {} replayed ({}).",
        safe(&before.command),
        plural(before.ranks.into(), "rank"),
        safe(&changes),
        time_s(before.time_s),
        time_s(after.time_s),
        signed(Some(*change_pct)),
    );
    let mut sections = vec![style.title(&wrap(&sentence, style.width, ""))];
    sections.extend(tables(&deviation.programs, options));
    sections.join("\n\n") + "\n"
}

fn headline(programs: &Programs) -> String {
    let Programs { before, after, change_pct, .. } = programs;
    let change = match *change_pct {
        change if change < 0.0 => format!("{:.2} % less", -change),
        change => format!("{change:.2} % more"),
    };
    format!("{} before, {} after: {change}.", time_s(before.time_s), time_s(after.time_s))
}

fn signed(change: Option<f64>) -> String {
    change.map_or("-".to_owned(), |change| format!("{change:+.2} %"))
}

/// A time before and after.
fn times(both: &Both<f64>) -> [String; 2] {
    [time_s(both.before), time_s(both.after)]
}

fn tables(programs: &Programs, options: Options) -> Vec<String> {
    let (before, after) = (&programs.before, &programs.after);
    // All ranks together.
    let whole = before.time_s.max(after.time_s) * f64::from(before.ranks.max(1));
    let shown = |both: &Both<f64>| options.all || both.change().abs() >= SMALL * whole;
    let mut sections = vec![overview(before, after, options)];
    if !programs.regions.is_empty() {
        let rows = programs.regions.iter().map(|row| {
            let name = safe(&row.path.join(" / "));
            let mut cells = vec![name, counts(&row.count)];
            cells.extend(times(&row.time_s));
            cells.push(signed(row.change_pct));
            cells.extend(times(&row.mpi_s));
            cells
        });
        let more = ["MPI before", "after"];
        sections.push(table("region, all ranks", "entered", &more, rows.collect(), options));
    }
    let waits = programs.waits.iter().filter(|row| row.time_s.before + row.time_s.after > 0.0);
    let waits = waits.map(|row| {
        let mut cells = vec![row.class.clone(), String::new()];
        cells.extend(times(&row.time_s));
        cells.push(signed(row.change_pct));
        cells
    });
    let waits: Vec<_> = waits.collect();
    if !waits.is_empty() {
        sections.push(table("waiting, all ranks", "", &[], waits, options));
    }
    let calls = programs.calls.iter().filter(|row| {
        row.count.before != row.count.after
            || row.bytes.before != row.bytes.after
            || shown(&row.time_s)
    });
    let calls = calls.map(|row| {
        let mut cells = vec![row.name.clone(), counts(&row.count)];
        cells.extend(times(&row.time_s));
        cells.push(signed(row.change_pct));
        cells.extend(times(&row.wait_s));
        cells
    });
    let calls: Vec<_> = calls.collect();
    if !calls.is_empty() {
        sections.push(table(
            "call, all ranks",
            "calls",
            &["waiting before", "after"],
            calls,
            options,
        ));
    }
    let ranks = programs.by_rank.iter().filter(|row| {
        options.all
            || programs.by_rank.len() <= options.top
            || shown(&row.time_s)
            || shown(&row.wait_s)
    });
    let ranks = ranks.map(|row| {
        let mut cells = vec![format!("rank {}", row.rank), String::new()];
        cells.extend(times(&row.time_s));
        cells.push(signed(row.time_s.change_pct()));
        cells.extend(times(&row.wait_s));
        cells
    });
    let ranks: Vec<_> = ranks.collect();
    if !ranks.is_empty() {
        sections.push(table("rank", "", &["waiting before", "after"], ranks, options));
    }
    let style = options.style();
    sections.extend(programs.remarks.iter().map(|remark| wrap(remark, style.width, "    ")));
    sections
}

fn counts(both: &Both<u64>) -> String {
    match both.before == both.after {
        true => count(both.before),
        false => format!("{} -> {}", count(both.before), count(both.after)),
    }
}

fn overview(before: &Run, after: &Run, options: Options) -> String {
    let grid = Grid::new(vec![
        Column::text("", 10).reserve(10),
        Column::number("ranks").reserve(6),
        Column::number("time").reserve(9),
        Column::number("computing").reserve(9),
        Column::number("calls").reserve(10),
        Column::number("messages").reserve(10),
        Column::number("bytes").reserve(8),
        Column::number("waiting").reserve(9),
        Column::text("trace", 24).reserve(24),
    ]);
    let layout = grid.layout(options.style());
    let mut text = layout.header();
    for (name, run) in [("before", before), ("after", after)] {
        let cells = [
            name.to_owned(),
            run.ranks.to_string(),
            time_s(run.time_s),
            time_s(run.compute_s),
            count(run.calls),
            count(run.messages),
            bytes(run.message_bytes),
            time_s(run.wait_s),
            safe(&run.directory),
        ];
        text += &format!("\n{}", layout.line(Tone::Plain, &cells));
    }
    text
}

fn table(
    title: &'static str,
    counted: &'static str,
    more: &[&'static str],
    rows: Vec<Vec<String>>,
    options: Options,
) -> String {
    let widest = |at: usize| {
        rows.iter()
            .filter_map(|row| row.get(at))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let mut columns = vec![Column::text(title, widest(0)).reserve(widest(0).min(40))];
    let has_counts = !counted.is_empty();
    if has_counts {
        columns.push(Column::number(counted).reserve(widest(1)));
    }
    columns.extend([
        Column::number("before").reserve(9),
        Column::number("after").reserve(9),
        Column::number("change").reserve(9),
    ]);
    columns.extend(more.iter().map(|&name| Column::number(name).reserve(9).expendable(1)));
    let grid = Grid::new(columns);
    let layout = grid.layout(options.style());
    let mut text = layout.header();
    for row in rows {
        let cells: Vec<String> = row
            .into_iter()
            .enumerate()
            .filter(|(at, _)| has_counts || *at != 1)
            .map(|(_, cell)| cell)
            .collect();
        text += &format!("\n{}", layout.line(Tone::Plain, &cells));
    }
    text
}
