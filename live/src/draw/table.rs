//! The table: time taken, rate and lengths of each process, source, unit, class or CPU.

use analysis::words::{self, count, cut, percent, rate, safe, tight};
use trace::Class;

use super::{look::Look, text::Pen};
use crate::{
    choices::{Choices, RowShown, Sort, Span},
    picture::{Area, Picture, Style},
    snapshot::Snapshot,
};

const CLASS: usize = 15;
/// Minimum width of names, and the screen width from which units are shown.
const NAME: usize = 12;
const UNIT_FROM: usize = 110;

/// Numeric columns, most important first; displayed in order of `place`.
struct Number {
    place: usize,
    title: &'static str,
    width: usize,
    sort: Option<Sort>,
    text: fn(&RowShown, &Snapshot, Span) -> String,
}

const NUMBERS: [Number; 6] = [
    Number { place: 1, title: "taken", width: 8, sort: Some(Sort::Taken), text: share },
    Number { place: 0, title: "/s", width: 7, sort: Some(Sort::Rate), text: per_second },
    Number { place: 3, title: "longest", width: 9, sort: Some(Sort::Longest), text: longest },
    Number { place: 5, title: "total", width: 8, sort: Some(Sort::Total), text: total },
    Number { place: 2, title: "time/s", width: 8, sort: None, text: time_per_second },
    Number { place: 4, title: "count", width: 8, sort: None, text: counted },
];

pub(super) fn draw(
    snapshot: &Snapshot,
    choices: &Choices,
    look: &Look,
    picture: &mut Picture,
    area: Area,
) {
    let width = usize::from(area.width);
    let numbers = fitting(width);
    let taken: usize = numbers.iter().map(|number| number.width + 1).sum();
    let texts = width.saturating_sub(CLASS + taken);
    let unit = if width >= UNIT_FROM { texts / 2 } else { 0 };
    let name = texts - unit;

    let rows = choices.rows(snapshot);
    let room = usize::from(area.height.saturating_sub(1));
    let selected = choices.selected_at(&rows);
    // Keep the selected row visible.
    let first = selected.map_or(0, |at| (at + 1).saturating_sub(room));

    let mut pen = Pen::new(picture, area, look);
    let line = pen.line(0);
    line.put(&column("class", CLASS), Style::DIM);
    let by_name = choices.sort == Sort::Name;
    line.put(&column(&title(choices.by.row(), by_name, choices), name), heading(by_name));
    line.put(&column(if unit > 0 { "unit" } else { "" }, unit), Style::DIM);
    for number in &numbers {
        let sorted = number.sort == Some(choices.sort);
        let title = title(number.title, sorted, choices);
        line.put(&format!(" {title:>0$}", number.width), heading(sorted));
    }
    for (number, (at, row)) in (1..).zip(rows.iter().enumerate().skip(first).take(room)) {
        let line = pen.line(number);
        let class = row.key.class.map_or("", Class::name);
        line.put(
            &column(class, CLASS),
            row.key.class.map_or(Style::PLAIN, |class| look.class(class)),
        );
        let own = if row.key.own { "*" } else { "" };
        line.put(&column(&format!("{}{own}", words::name(&row.key.name)), name), Style::PLAIN);
        let said = row.key.unit.as_deref().map(safe).unwrap_or_default();
        line.put(&column(&said, unit), Style::DIM);
        for number in &numbers {
            let text = (number.text)(row, snapshot, choices.span);
            line.put(&format!(" {text:>0$}", number.width), Style::PLAIN);
        }
        if selected == Some(at) {
            line.select(area.x);
        }
    }
    if rows.is_empty() {
        let said = match snapshot.sources.is_empty() {
            true => "no noise yet",
            false => "nothing matches the filter",
        };
        pen.line(1).put(said, Style::DIM);
    }
}

/// The columns that fit beside a name, in display order.
fn fitting(width: usize) -> Vec<&'static Number> {
    let mut left = width.saturating_sub(CLASS + NAME);
    let mut numbers = Vec::new();
    for number in &NUMBERS {
        if number.width < left {
            left -= number.width + 1;
            numbers.push(number);
        }
    }
    numbers.sort_by_key(|number| number.place);
    numbers
}

fn title(name: &str, sorted: bool, choices: &Choices) -> String {
    let mark = match (sorted, choices.reversed) {
        (false, _) => "",
        (true, false) => "<",
        (true, true) => ">",
    };
    format!("{name}{mark}")
}

fn heading(sorted: bool) -> Style {
    if sorted { Style::BOLD } else { Style::DIM }
}

/// Padded or truncated to a width, ending with a space.
fn column(text: &str, width: usize) -> String {
    if width == 0 {
        return String::new();
    }
    format!("{:width$}", cut(text, width - 1))
}

/// Elapsed time summed over all lanes.
fn watched_ns(snapshot: &Snapshot, span: Span) -> f64 {
    (snapshot.span_ns[span as usize] as f64 * snapshot.lanes.len() as f64).max(1.0)
}

fn seconds(snapshot: &Snapshot, span: Span) -> f64 {
    (snapshot.span_ns[span as usize] as f64 / 1e9).max(1e-9)
}

fn share(row: &RowShown, snapshot: &Snapshot, span: Span) -> String {
    percent(100.0 * row.sums[span as usize].ns as f64 / watched_ns(snapshot, span))
}

fn per_second(row: &RowShown, snapshot: &Snapshot, span: Span) -> String {
    rate(row.sums[span as usize].count as f64 / seconds(snapshot, span))
}

fn time_per_second(row: &RowShown, snapshot: &Snapshot, span: Span) -> String {
    tight((row.sums[span as usize].ns as f64 / seconds(snapshot, span)).round() as u64)
}

fn longest(row: &RowShown, _: &Snapshot, span: Span) -> String {
    tight(row.sums[span as usize].longest_ns)
}

fn counted(row: &RowShown, _: &Snapshot, span: Span) -> String {
    count(row.sums[span as usize].count)
}

fn total(row: &RowShown, _: &Snapshot, _: Span) -> String {
    tight(row.sums[Span::Start as usize].ns)
}
