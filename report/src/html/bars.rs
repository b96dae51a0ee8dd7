//! Waiting as bars: a row for each rank, in which the colours are the classes of waiting. Two bars in a row are before and
//! after a change.

use std::fmt::Write;

use super::{
    plot::{coordinate, escape},
    rows::Rows,
    scale::{Scale, Unit, time},
};

/// Colours of the classes, in the order of [`study::explain::states::CLASSES`].
const CLASSES: [(&str, &str); 4] = [
    ("t1", "late sender"),
    ("t2", "late receiver"),
    ("t3", "collective"),
    ("t4", "network interface"),
];

/// The bars of a rank, or of several.
pub(super) struct Row {
    pub(super) label: String,
    pub(super) bars: Vec<Bar>,
}

/// Waiting, ns.
pub(super) struct Bar {
    /// `before` or `after`; empty if there is only one.
    pub(super) name: &'static str,
    pub(super) classes: [f64; CLASSES.len()],
    /// Part of it that noise caused.
    pub(super) noise: f64,
}

impl Bar {
    fn total(&self) -> f64 {
        self.classes.iter().sum()
    }
}

/// The figure and its height; None if no rank waits.
pub(super) fn draw(id: &str, label: &str, rows: &[Row]) -> Option<(String, f64)> {
    let bars = || rows.iter().flat_map(|row| &row.bars);
    let longest = bars().map(Bar::total).fold(0.0, f64::max);
    if longest <= 0.0 {
        return None;
    }
    let each = rows.iter().map(|row| row.bars.len()).max().unwrap_or(1).max(1) as f64;
    let high = (360.0 / rows.len() as f64).clamp(7.0 * each + 4.0, 14.0 * each + 6.0);
    let figure = Rows {
        id,
        label,
        title: "waiting",
        x: Scale::linear(0.0, longest * 1.02, Unit::Nanoseconds),
        tick: 80.0,
        left: 108.0,
        top: 30.0,
        high,
        rows: rows.len(),
    };
    // As many labels as are readable.
    let every = (12.0 / high).ceil().max(1.0) as usize;
    let mut marks = String::new();
    for (index, row) in rows.iter().enumerate() {
        let y = figure.y(index);
        let thick = (high - 4.0) / row.bars.len().max(1) as f64;
        for (place, bar) in row.bars.iter().enumerate() {
            let y = y + 2.0 + place as f64 * thick;
            draw_bar(&mut marks, row, bar, (y, thick - 1.0), &figure);
        }
    }
    let label = |(index, row): (usize, &Row)| match index % every {
        0 => row.label.clone(),
        _ => String::new(),
    };
    let labels: Vec<String> = rows.iter().enumerate().map(label).collect();
    Some((figure.draw(&labels, &marks, &legend(rows)), figure.height()))
}

fn draw_bar(marks: &mut String, row: &Row, bar: &Bar, (y, thick): (f64, f64), figure: &Rows<'_>) {
    let of = if bar.name.is_empty() { String::new() } else { format!(" {}", bar.name) };
    let rect = |class: &str, tip: &str, (from, to): (f64, f64), (y, thick): (f64, f64)| {
        format!(
            r#"<rect class="{class}" data-tip="{}" x="{}" y="{}" width="{}" height="{}"/>"#,
            escape(tip),
            coordinate(figure.at(from)),
            coordinate(y),
            coordinate(figure.at(to) - figure.at(from)),
            coordinate(thick.max(0.5)),
        )
    };
    let mut from = 0.0;
    for ((class, name), ns) in CLASSES.iter().zip(bar.classes).filter(|(_, ns)| *ns > 0.0) {
        let tip = format!("{}{of}: {name} {}", row.label, time(ns));
        marks.push_str(&rect(class, &tip, (from, from + ns), (y, thick)));
        from += ns;
    }
    if bar.noise > 0.0 {
        let tip = format!("{}{of}: {} of it because of noise", row.label, time(bar.noise));
        let strip = thick / 3.0;
        marks.push_str(&rect("late", &tip, (0.0, bar.noise), (y + thick - strip, strip)));
    }
}

/// Only what is there.
fn legend(rows: &[Row]) -> String {
    let bars = || rows.iter().flat_map(|row| &row.bars);
    let noise = bars().any(|bar| bar.noise > 0.0);
    let there = |class: &usize| bars().any(|bar| bar.classes[*class] > 0.0);
    let keys = (0..CLASSES.len()).filter(there).map(|class| CLASSES[class]);
    let (mut text, mut x) = (String::new(), 0.0);
    for (class, name) in keys.chain(noise.then_some(("late", "because of noise"))) {
        let _ = write!(
            text,
            r#"<circle class="{class}" cx="{}" cy="-4" r="4.5"/><text x="{}" y="0">{name}</text>"#,
            coordinate(x + 4.5),
            coordinate(x + 14.0),
        );
        x += 25.0 + 6.6 * name.len() as f64;
    }
    if rows.iter().any(|row| row.bars.len() > 1) {
        let _ = write!(
            text,
            r#"<text x="{}" y="0">upper bar before, lower bar after</text>"#,
            coordinate(x + 10.0)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(label: &str, totals: &[f64]) -> Row {
        let bar = |ns: &f64| Bar { name: "before", classes: [*ns, 0.0, 0.0, 0.0], noise: ns / 2.0 };
        Row { label: label.to_owned(), bars: totals.iter().map(bar).collect() }
    }

    #[test]
    fn bars_are_as_long_as_the_waiting_and_names_are_escaped() {
        let (svg, _) =
            draw("w", "waiting", &[row("rank <0>", &[100.0, 50.0]), row("rank 1", &[25.0])])
                .unwrap();
        let svg = svg.replace('\u{a0}', " ");
        assert!(svg.contains("rank &lt;0&gt; before: late sender 100 ns"), "{svg}");
        assert!(!svg.contains("<0>"), "{svg}");
        let width = |tip: &str| -> f64 {
            let from = svg.find(tip).unwrap();
            let rest = &svg[from..];
            let rest = &rest[rest.find("width=\"").unwrap() + 7..];
            rest[..rest.find('"').unwrap()].parse().unwrap()
        };
        let (whole, quarter) = (width("late sender 100 ns"), width("late sender 25 ns"));
        assert!((whole / quarter - 4.0).abs() < 0.01, "{whole} {quarter}");
    }

    #[test]
    fn nothing_is_drawn_if_no_rank_waits() {
        assert!(draw("w", "waiting", &[row("rank 0", &[0.0])]).is_none());
        assert!(draw("w", "waiting", &[]).is_none());
    }
}
