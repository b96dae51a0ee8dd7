//! Figures with a row for each rank and time across, which can be zoomed.

use std::fmt::Write;

use super::{
    plot::{WIDE, coordinate, escape},
    scale::Scale,
};

const RIGHT: f64 = 22.0;
const BOTTOM: f64 = 44.0;

pub(super) struct Rows<'a> {
    pub(super) id: &'a str,
    /// What the figure shows, for those who cannot see it.
    pub(super) label: &'a str,
    /// Below the axis.
    pub(super) title: &'static str,
    pub(super) x: Scale,
    /// Width of one tick label.
    pub(super) tick: f64,
    pub(super) left: f64,
    pub(super) top: f64,
    /// Height of a row.
    pub(super) high: f64,
    pub(super) rows: usize,
}

impl Rows<'_> {
    pub(super) fn width(&self) -> f64 {
        WIDE - self.left - RIGHT
    }

    /// Of the whole figure.
    pub(super) fn height(&self) -> f64 {
        self.bottom() + BOTTOM
    }

    fn bottom(&self) -> f64 {
        self.y(self.rows)
    }

    pub(super) fn at(&self, x: f64) -> f64 {
        self.left + self.x.place(x) * self.width()
    }

    /// The upper edge of a row.
    pub(super) fn y(&self, row: usize) -> f64 {
        self.top + row as f64 * self.high
    }

    /// The figure: labels of the rows (empty for none), their marks, and a legend above them.
    pub(super) fn draw(&self, labels: &[String], marks: &str, legend: &str) -> String {
        let (bottom, width) = (self.bottom(), self.width());
        let (mut grid, mut ticks, mut names) = (String::new(), String::new(), String::new());
        for tick in self.x.ticks((width / self.tick) as usize) {
            let at = coordinate(self.at(tick));
            let _ = write!(grid, r#"<path d="M{at} {}V{}"/>"#, self.top, coordinate(bottom));
            let text = escape(&self.x.unit.write(tick));
            let y = coordinate(bottom + 20.0);
            let _ = write!(ticks, r#"<text class="tx" x="{at}" y="{y}">{text}</text>"#);
        }
        for (row, text) in labels.iter().enumerate().filter(|(_, text)| !text.is_empty()) {
            let (x, y) = (self.left - 8.0, coordinate(self.y(row) + self.high / 2.0 + 4.0));
            let text = escape(text);
            let _ = write!(names, r#"<text class="ty" x="{x}" y="{y}">{text}</text>"#);
        }
        let key = match legend.is_empty() {
            true => String::new(),
            false => {
                format!(r#"<g class="key" transform="translate({} 16)">{legend}</g>"#, self.left)
            }
        };
        format!(
            concat!(
                r#"<svg class="plot" id="{id}" viewBox="0 0 {wide} {high}" role="img" aria-label="{label}" "#,
                r#"data-x="{x}" data-y="lin 0 1 plain" data-box="{left} {top} {width} {height}" data-zoom="x">"#,
                r#"<clipPath id="{id}-clip"><rect x="{left}" y="{top}" width="{width}" height="{height}"/></clipPath>"#,
                r#"<g class="grid">{grid}</g><g class="ticks">{ticks}</g>{names}"#,
                r#"<text class="title tx" x="{middle}" y="{below}">{title}</text>"#,
                r#"<g clip-path="url(#{id}-clip)"><g class="marks">{marks}</g></g>"#,
                r#"<path class="frame" d="M{left} {top}V{bottom}H{right}"/>{key}</svg>"#
            ),
            id = self.id,
            wide = WIDE,
            high = coordinate(self.height()),
            label = escape(self.label),
            x = self.x.data(),
            left = self.left,
            top = self.top,
            width = width,
            height = coordinate(bottom - self.top),
            grid = grid,
            ticks = ticks,
            names = names,
            middle = coordinate(self.left + width / 2.0),
            below = coordinate(self.height() - 8.0),
            title = self.title,
            marks = marks,
            bottom = coordinate(bottom),
            right = self.left + width,
            key = key,
        )
    }
}
