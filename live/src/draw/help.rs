//! The help window: keys and legend.

use trace::Class;

use super::{look::Look, text::Pen};
use crate::picture::{Area, Picture, Style};

const KEYS: [(&str, &str); 12] = [
    ("q, Ctrl-C", "quit"),
    ("p, space", "pause the display; recording continues"),
    ("s, r", "sort by the next column; reverse the order"),
    ("b", "rows: processes, units, sources, classes or CPUs"),
    ("i", "time span: 1 s, 10 s or since start"),
    ("/", "filter rows by class, name or unit"),
    ("arrows, j, k", "select a row and show its parts below"),
    ("Esc", "clear the selection, then the filter"),
    ("t", "include or exclude threads as noise"),
    ("w", "write the displayed data (up to a minute) to a trace"),
    ("Ctrl-L, Ctrl-Z", "redraw; suspend"),
    ("?", "this help"),
];

pub(super) fn draw(look: &Look, picture: &mut Picture, area: Area) {
    let width = area.width.min(72);
    let height = area.height.min(KEYS.len() as u16 + 8);
    let area = Area {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    let blank = " ".repeat(usize::from(width));
    for y in area.y..area.bottom() {
        picture.write(area.x, y, area.right(), &blank, Style::PLAIN);
    }
    let mut pen = Pen::new(picture, area, look);
    pen.line(0).put(&format!("{:^1$}", "keys", usize::from(width)), Style::REVERSED);
    for (number, (key, what)) in (1..).zip(KEYS) {
        let line = pen.line(number);
        line.put(&format!("  {key:16}"), Style::BOLD);
        line.put(what, Style::PLAIN);
    }
    let after = KEYS.len() as u16 + 2;
    let line = pen.line(after);
    line.put("  strip: ", Style::DIM);
    for (ns, text) in [
        (500, "<1us "),
        (5_000, "<10us "),
        (50_000, "<100us "),
        (500_000, "<1ms "),
        (5_000_000, "<10ms "),
        (50_000_000, ">=10ms"),
    ] {
        line.put(&format!("{} {text}", look.height(ns)), Style::PLAIN);
    }
    if look.colour {
        let line = pen.line(after + 1);
        line.put("  ", Style::PLAIN);
        for class in
            Class::ALL.iter().filter(|class| !matches!(class, Class::Idle | Class::Throttled))
        {
            line.put(&format!("{} ", class.name()), look.class(*class));
        }
    }
    let line = pen.line(after + 3);
    line.put("  taken: share of the watched CPUs' time; * the recorder itself", Style::DIM);
    pen.line(after + 4).put("  press any key to close", Style::DIM);
}
