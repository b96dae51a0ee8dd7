//! The help window: keys and legend.

use ratatui_core::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
};
use trace::Class;

use super::{look::Look, text::Pen};

const KEYS: [(&str, &str); 11] = [
    ("q, Ctrl-C", "quit"),
    ("p, space", "pause the display; recording continues"),
    ("s, r", "sort by the next column; reverse the order"),
    ("i", "time span: 1 s, 10 s or since start"),
    ("/", "filter sources by class, name or unit"),
    ("arrows, j, k", "select a source and show its details below"),
    ("Esc", "clear the selection, then the filter"),
    ("t", "include or exclude threads as noise"),
    ("w", "write the displayed data (up to a minute) to a trace"),
    ("Ctrl-L, Ctrl-Z", "redraw; suspend"),
    ("?", "this help"),
];

pub(super) fn draw(look: &Look, buffer: &mut Buffer, area: Rect) {
    let width = area.width.min(72);
    let height = area.height.min(KEYS.len() as u16 + 8);
    let area = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    for y in area.top()..area.bottom() {
        buffer.set_stringn(
            area.x,
            y,
            " ".repeat(usize::from(width)),
            usize::from(width),
            Style::reset(),
        );
    }
    let mut pen = Pen::new(buffer, area, look);
    pen.line(0).put(&format!("{:^1$}", "keys", usize::from(width)), Modifier::REVERSED);
    for (number, (key, what)) in (1..).zip(KEYS) {
        let line = pen.line(number);
        line.put(&format!("  {key:16}"), Modifier::BOLD);
        line.put(what, Modifier::empty());
    }
    let after = KEYS.len() as u16 + 2;
    let line = pen.line(after);
    line.put("  strip: ", Modifier::DIM);
    for (ns, text) in [
        (500, "<1us "),
        (5_000, "<10us "),
        (50_000, "<100us "),
        (500_000, "<1ms "),
        (5_000_000, "<10ms "),
        (50_000_000, ">=10ms"),
    ] {
        line.put(&format!("{} {text}", look.height(ns)), Modifier::empty());
    }
    if look.colour {
        let line = pen.line(after + 1);
        line.put("  ", Modifier::empty());
        for class in
            Class::ALL.iter().filter(|class| !matches!(class, Class::Idle | Class::Throttled))
        {
            line.styled(&format!("{} ", class.name()), look.class(*class));
        }
    }
    let line = pen.line(after + 3);
    line.put("  taken: share of the watched CPUs' time; * the recorder itself", Modifier::DIM);
    pen.line(after + 4).put("  press any key to close", Modifier::DIM);
}
