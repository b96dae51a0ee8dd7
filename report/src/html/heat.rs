//! Heat map: the share of time that each CPU (or thread) lost, over time.

use std::fmt::Write;

use analysis::views::Views;
use trace::{Lane, Node, node_index};

use super::plot::{WIDE, coordinate, escape};
use super::scale::{Scale, Unit, short};
use crate::words::{self, cut, safe};

/// Shares of time, in percent, at which the colour changes.
const LEVELS: [f64; 9] = [0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];
const LEFT: f64 = 92.0;
const RIGHT: f64 = 14.0;

fn level(share: f64) -> usize {
    LEVELS.iter().rposition(|&from| share > from).map_or(0, |at| at + 1)
}

/// Readable name of a lane, with the host if there are several nodes.
fn name(lane: u32, lanes: &[Lane], nodes: &[Node]) -> String {
    let node = node_index(nodes, lane).and_then(|index| nodes.get(index));
    match (lanes.get(lane as usize), node) {
        (Some(Lane::Cpu { cpu }), Some(node)) => format!("{} {cpu}", cut(&safe(&node.host), 10)),
        (Some(Lane::Cpu { cpu }), None) => format!("CPU {cpu}"),
        (Some(Lane::Thread { tid, name, .. }), _) => {
            format!("{} {tid}", cut(&words::name(name), 9))
        }
        (None, _) => String::new(),
    }
}

pub(super) fn draw(views: &Views, lanes: &[Lane], nodes: &[Node]) -> Option<String> {
    let rows = &views.heat.rows;
    if rows.is_empty() {
        return None;
    }
    let columns = rows.iter().map(|row| row.lost_ns.len()).max().unwrap_or(1).max(1);
    let high = (420.0 / rows.len() as f64).clamp(6.0, 26.0);
    let wide = (WIDE - LEFT - RIGHT) / columns as f64;
    let (top, bottom) = (26.0, 26.0 + high * rows.len() as f64);
    let mut cells = vec![String::new(); LEVELS.len() + 1];
    let mut labels = String::new();
    let mut data = String::new();
    // As many labels as fit.
    let every = (13.0 / high).ceil().max(1.0) as usize;
    for (index, row) in rows.iter().enumerate() {
        let y = top + index as f64 * high;
        let lane = escape(&name(row.lane, lanes, nodes));
        if index.is_multiple_of(every) {
            let at = coordinate(y + high / 2.0 + 4.0);
            let _ = write!(labels, r#"<text class="ty" x="{}" y="{at}">{lane}</text>"#, LEFT - 8.0);
        }
        let mut values = String::new();
        for (column, &lost) in row.lost_ns.iter().enumerate() {
            let base = row.base_ns(column, views.heat.column_ns);
            let share = lost as f64 / base as f64 * 100.0;
            let (x, gap) = (LEFT + column as f64 * wide, if high > 9.0 { 1.0 } else { 0.0 });
            let (x, y) = (coordinate(x), coordinate(y));
            let (w, h) = (coordinate(wide), coordinate(high - gap));
            let path = &mut cells[level(share)];
            let _ = write!(path, "M{x} {y}h{w}v{h}h-{w}z");
            let _ = write!(values, "{}{}", if column > 0 { " " } else { "" }, short(share));
        }
        let _ = write!(data, r#"<desc class="row" data-label="{lane}" data-v="{values}"/>"#);
    }
    let mut svg = format!(
        concat!(
            r#"<svg class="heat" id="heat" viewBox="0 0 {} {}" role="img" "#,
            r#"aria-label="Share of time lost by CPU, over time" "#,
            r#"data-box="{} {} {} {}" data-columns="{}" data-column-s="{:e}">"#
        ),
        WIDE,
        bottom + 44.0,
        LEFT,
        top,
        WIDE - LEFT - RIGHT,
        bottom - top,
        columns,
        views.heat.column_ns as f64 / 1e9
    );
    svg.push_str(&key());
    for (level, path) in cells.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
        let _ = write!(svg, r#"<path class="h{level}" d="{path}"/>"#);
    }
    let seconds = views.to_ns.saturating_sub(views.from_ns) as f64 / 1e9;
    let axis = Scale::linear(0.0, seconds, Unit::Seconds);
    for tick in axis.ticks(10) {
        let x = coordinate(LEFT + axis.place(tick) * (WIDE - LEFT - RIGHT));
        let text = Unit::Seconds.write(tick);
        let _ = write!(svg, r#"<text class="tx" x="{x}" y="{}">{text}</text>"#, bottom + 20.0);
    }
    let _ = write!(
        svg,
        r#"<text class="title tx" x="{}" y="{}">time since the start of the recording</text>"#,
        LEFT + (WIDE - LEFT - RIGHT) / 2.0,
        bottom + 36.0
    );
    Some(svg + &labels + &data + "</svg>")
}

/// The colour key.
fn key() -> String {
    let mut out = String::new();
    let step = 70.0;
    let from = WIDE - RIGHT - step * (LEVELS.len() + 1) as f64;
    for level in 0..=LEVELS.len() {
        let x = from + step * level as f64;
        let text = match level {
            0 => "none".to_owned(),
            1 => format!("≤{} %", LEVELS[1]),
            n => format!(">{} %", LEVELS[n - 1]),
        };
        let _ = write!(
            out,
            r#"<rect class="h{level}" x="{x}" y="2" width="12" height="12"/><text class="key" x="{}" y="12">{text}</text>"#,
            x + 15.0
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_not_the_same_as_little() {
        assert_eq!(level(0.0), 0);
        assert_eq!(level(1e-9), 1);
        assert_eq!(level(0.02), 2);
        assert_eq!(level(100.0), LEVELS.len());
    }
}
