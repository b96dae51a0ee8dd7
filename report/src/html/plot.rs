//! A figure as inline SVG: frame, grid, ticks, and marks. Everything visible is in the file; the page's
//! script only moves it.

use std::fmt::Write;

use super::scale::Scale;

/// Width of a figure that spans the page, and of those that share a row, in SVG units: about pixels, so
/// that their text is as large as the page's.
pub(super) const WIDE: f64 = 960.0;
pub(super) const HALF: f64 = 530.0;
pub(super) const THIRD: f64 = 356.0;

#[derive(Clone, Copy)]
pub(super) struct Margins {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Default for Margins {
    fn default() -> Self {
        Margins { left: 76.0, right: 22.0, top: 12.0, bottom: 44.0 }
    }
}

/// A figure while it is being drawn.
pub(super) struct Plot {
    id: &'static str,
    /// Accessible label.
    label: String,
    width: f64,
    height: f64,
    margins: Margins,
    x: Scale,
    y: Scale,
    x_title: String,
    y_title: String,
    /// Moves and scales with the axes.
    marks: String,
    /// Stays in place.
    over: String,
}

/// Text for an attribute or between tags.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A coordinate to a tenth of a unit, finer than a pixel. Always a finite number.
pub(super) fn coordinate(value: f64) -> String {
    if !value.is_finite() {
        return "0".to_owned();
    }
    let value = (value.clamp(-1e6, 1e6) * 10.0).round() / 10.0;
    if value == 0.0 { "0".to_owned() } else { format!("{value}") }
}

impl Plot {
    pub(super) fn new(id: &'static str, label: &str, size: (f64, f64), x: Scale, y: Scale) -> Plot {
        Plot {
            id,
            label: label.to_owned(),
            width: size.0,
            height: size.1,
            margins: Margins::default(),
            x,
            y,
            x_title: String::new(),
            y_title: String::new(),
            marks: String::new(),
            over: String::new(),
        }
    }

    pub(super) fn margins(mut self, margins: Margins) -> Plot {
        self.margins = margins;
        self
    }

    pub(super) fn titles(mut self, x: &str, y: &str) -> Plot {
        self.x_title = x.to_owned();
        self.y_title = y.to_owned();
        self
    }

    pub(super) fn inner_width(&self) -> f64 {
        self.width - self.margins.left - self.margins.right
    }

    pub(super) fn inner_height(&self) -> f64 {
        self.height - self.margins.top - self.margins.bottom
    }

    pub(super) fn at_x(&self, value: f64) -> f64 {
        self.margins.left + self.x.place(value) * self.inner_width()
    }

    pub(super) fn at_y(&self, value: f64) -> f64 {
        self.margins.top + (1.0 - self.y.place(value)) * self.inner_height()
    }

    pub(super) fn top(&self) -> f64 {
        self.margins.top
    }

    pub(super) fn bottom(&self) -> f64 {
        self.height - self.margins.bottom
    }

    /// Dots, one per value.
    pub(super) fn dots(
        &mut self,
        class: &str,
        label: &str,
        points: impl Iterator<Item = (f64, f64)>,
    ) {
        let mut path = String::new();
        for (x, y) in points {
            let (x, y) = (coordinate(self.at_x(x)), coordinate(self.at_y(y)));
            let _ = write!(path, "M{x} {y}h0");
        }
        self.path(&format!("pts dots {class}"), label, &path);
    }

    /// A line through values.
    pub(super) fn line(&mut self, class: &str, label: &str, points: &[(f64, f64)]) {
        let mut path = String::new();
        for (x, y) in points {
            let lead = if path.is_empty() { 'M' } else { 'L' };
            let (x, y) = (coordinate(self.at_x(*x)), coordinate(self.at_y(*y)));
            let _ = write!(path, "{lead}{x} {y}");
        }
        // A line through one value is a dot.
        if points.len() == 1 {
            path.push_str("h0");
        }
        self.path(&format!("pts line {class}"), label, &path);
    }

    fn path(&mut self, class: &str, label: &str, path: &str) {
        if !path.is_empty() {
            let label = escape(label);
            let _ =
                write!(self.marks, r#"<path class="{class}" data-label="{label}" d="{path}"/>"#);
        }
    }

    /// Markup that moves with the axes; the caller escapes it.
    pub(super) fn mark(&mut self, markup: &str) {
        self.marks.push_str(markup);
    }

    /// Markup that stays in place.
    pub(super) fn over(&mut self, markup: &str) {
        self.over.push_str(markup);
    }

    /// A label that moves with the marks.
    pub(super) fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        let (x, y) = (coordinate(x), coordinate(y));
        let text = escape(text);
        let _ = write!(self.marks, r#"<text class="note {class}" x="{x}" y="{y}">{text}</text>"#);
    }

    pub(super) fn finish(self) -> String {
        let (left, top) = (self.margins.left, self.margins.top);
        let (width, height) = (self.inner_width(), self.inner_height());
        let (right, bottom) = (left + width, top + height);
        let mut grid = String::new();
        let mut ticks = String::new();
        for tick in self.x.ticks((width / 62.0) as usize) {
            let x = coordinate(self.at_x(tick));
            let text = escape(&self.x.unit.write(tick));
            let _ = write!(grid, r#"<path d="M{x} {top}V{bottom}"/>"#);
            let _ =
                write!(ticks, r#"<text class="tx" x="{x}" y="{}">{text}</text>"#, bottom + 20.0);
        }
        for tick in self.y.ticks((height / 40.0) as usize) {
            let y = coordinate(self.at_y(tick));
            let text = escape(&self.y.unit.write(tick));
            let _ = write!(grid, r#"<path d="M{left} {y}H{right}"/>"#);
            let (x, dy) = (left - 8.0, coordinate(self.at_y(tick) + 4.0));
            let _ = write!(ticks, r#"<text class="ty" x="{x}" y="{dy}">{text}</text>"#);
        }
        let id = self.id;
        let middle = coordinate(left + width / 2.0);
        let across = coordinate(top + height / 2.0);
        format!(
            concat!(
                r#"<svg class="plot" id="{id}" viewBox="0 0 {w} {h}" role="img" aria-label="{label}" "#,
                r#"data-x="{dx}" data-y="{dy}" data-box="{left} {top} {width} {height}">"#,
                r#"<clipPath id="{id}-clip"><rect x="{left}" y="{top}" width="{width}" height="{height}"/>"#,
                r#"</clipPath><g class="grid">{grid}</g><g class="ticks">{ticks}</g>"#,
                r#"<text class="title tx" x="{middle}" y="{below}">{xt}</text>"#,
                r#"<text class="title ty" transform="translate(13 {across}) rotate(-90)">{yt}</text>"#,
                r#"<g clip-path="url(#{id}-clip)"><g class="marks">{marks}</g></g>"#,
                r#"<path class="frame" d="M{left} {top}V{bottom}H{right}"/>{over}</svg>"#
            ),
            id = id,
            left = left,
            top = top,
            width = width,
            height = height,
            right = right,
            bottom = bottom,
            middle = middle,
            across = across,
            grid = grid,
            ticks = ticks,
            w = self.width,
            h = self.height,
            label = escape(&self.label),
            dx = self.x.data(),
            dy = self.y.data(),
            below = self.height - 8.0,
            xt = escape(&self.x_title),
            yt = escape(&self.y_title),
            marks = self.marks,
            over = self.over,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::scale::Unit;

    #[test]
    fn nothing_in_a_figure_is_markup_that_was_not_meant_to_be() {
        let axis = Scale::linear(0.0, 1.0, Unit::Plain);
        let hostile = "</svg><script>alert(1)</script>\" onload='x'";
        let mut plot = Plot::new("x", hostile, (100.0, 100.0), axis, axis).titles(hostile, hostile);
        plot.line("s0", hostile, &[(0.0, f64::NAN), (f64::INFINITY, 1.0)]);
        plot.text("s0", 0.0, 0.0, hostile);
        let svg = plot.finish();
        assert!(!svg.contains("<script") && !svg.contains("\" onload"), "{svg}");
        assert_eq!(svg.matches("</svg>").count(), 1);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
