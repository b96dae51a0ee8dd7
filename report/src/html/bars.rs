//! Waiting as bars: a row for each rank, in which the colours are the classes of waiting. Two bars in a row are before and
//! after a change.

use std::fmt::Write;

use super::{
    plot::{WIDE, coordinate, escape},
    scale::{Scale, Unit, time},
};

const LEFT: f64 = 108.0;
const RIGHT: f64 = 22.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 44.0;

/// Colours of the classes, in the order of [`study::states::CLASSES`].
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
    let (width, height) = (WIDE - LEFT - RIGHT, high * rows.len() as f64);
    let (right, bottom) = (LEFT + width, TOP + height);
    let x = Scale::linear(0.0, longest * 1.02, Unit::Nanoseconds);
    let at = |ns: f64| LEFT + x.place(ns) * width;
    let (mut grid, mut ticks, mut labels, mut marks) =
        (String::new(), String::new(), String::new(), String::new());
    for tick in x.ticks((width / 80.0) as usize) {
        let at = coordinate(at(tick));
        let _ = write!(grid, r#"<path d="M{at} {TOP}V{}"/>"#, coordinate(bottom));
        let text = escape(&Unit::Nanoseconds.write(tick));
        let y = coordinate(bottom + 20.0);
        let _ = write!(ticks, r#"<text class="tx" x="{at}" y="{y}">{text}</text>"#);
    }
    // As many labels as are readable.
    let every = (12.0 / high).ceil().max(1.0) as usize;
    for (index, row) in rows.iter().enumerate() {
        let y = TOP + index as f64 * high;
        if index % every == 0 {
            let (x, y) = (LEFT - 8.0, coordinate(y + high / 2.0 + 4.0));
            let text = escape(&row.label);
            let _ = write!(labels, r#"<text class="ty" x="{x}" y="{y}">{text}</text>"#);
        }
        let thick = (high - 4.0) / row.bars.len().max(1) as f64;
        for (place, bar) in row.bars.iter().enumerate() {
            draw_bar(&mut marks, row, bar, (y + 2.0 + place as f64 * thick, thick - 1.0), &at);
        }
    }
    let figure = format!(
        concat!(
            r#"<svg class="plot" id="{id}" viewBox="0 0 {w} {h}" role="img" aria-label="{label}" "#,
            r#"data-x="{dx}" data-y="lin 0 1 plain" data-box="{left} {top} {width} {height}" data-zoom="x">"#,
            r#"<clipPath id="{id}-clip"><rect x="{left}" y="{top}" width="{width}" height="{height}"/></clipPath>"#,
            r#"<g class="grid">{grid}</g><g class="ticks">{ticks}</g>{labels}"#,
            r#"<text class="title tx" x="{middle}" y="{below}">waiting</text>"#,
            r#"<g clip-path="url(#{id}-clip)"><g class="marks">{marks}</g></g>"#,
            r#"<path class="frame" d="M{left} {top}V{bottom}H{right}"/>"#,
            r#"<g class="key" transform="translate({left} 16)">{legend}</g></svg>"#
        ),
        id = id,
        label = escape(label),
        w = WIDE,
        h = coordinate(bottom + BOTTOM),
        dx = x.data(),
        left = LEFT,
        top = TOP,
        width = width,
        height = coordinate(height),
        grid = grid,
        ticks = ticks,
        labels = labels,
        middle = coordinate(LEFT + width / 2.0),
        below = coordinate(bottom + BOTTOM - 8.0),
        marks = marks,
        bottom = coordinate(bottom),
        right = right,
        legend = legend(rows),
    );
    Some((figure, bottom + BOTTOM))
}

fn draw_bar(
    marks: &mut String,
    row: &Row,
    bar: &Bar,
    (y, thick): (f64, f64),
    at: &impl Fn(f64) -> f64,
) {
    let of = if bar.name.is_empty() { String::new() } else { format!(" {}", bar.name) };
    let rect = |class: &str, tip: &str, (from, to): (f64, f64), (y, thick): (f64, f64)| {
        format!(
            r#"<rect class="{class}" data-tip="{}" x="{}" y="{}" width="{}" height="{}"/>"#,
            escape(tip),
            coordinate(at(from)),
            coordinate(y),
            coordinate(at(to) - at(from)),
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
