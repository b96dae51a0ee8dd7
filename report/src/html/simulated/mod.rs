//! The results of simulations as figures: one self-contained page, or one SVG file for a paper. One file per
//! kind of figure; this one assembles them.

mod boxes;
mod curves;
mod program;
mod times;

use std::fmt::Write;

use askama::Template;

use super::{
    SCRIPT, SCRIPT_SHA256, STYLE,
    commands::Command,
    legend::Key,
    plot::{Margins, Plot, WIDE, coordinate, escape},
    tables::{LINES, ROWS, limited, micro},
};

pub use boxes::{skeleton_pictures, sweep_pictures};
pub use curves::cycle_pictures;
pub use program::app_pictures;
pub use times::{alltoall_pictures, exchange_pictures, goal_pictures};

/// The figures of a result, with the table they are drawn from.
#[derive(Clone, Debug)]
pub struct Pictures {
    title: &'static str,
    /// The most important finding first.
    findings: Vec<String>,
    /// If all figures have the same series.
    keys: Vec<Key>,
    figures: Vec<Figure>,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    sections: Vec<Section>,
    notes: Vec<String>,
}

/// Further figures with a table of their own.
#[derive(Clone, Debug)]
struct Section {
    /// Identifier in the page.
    id: &'static str,
    title: &'static str,
    lines: Vec<String>,
    figures: Vec<Figure>,
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    more_rows: usize,
}

#[derive(Clone, Debug)]
struct Figure {
    svg: String,
    size: (f64, f64),
    caption: String,
}

/// Colours of series.
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#c0569a", "#b97f00", "#2f9fdc", "#6a4c93"];
/// Identifiers of figures of one kind, which limit their number.
const IDS: [&str; 12] = ["f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "f9", "f10", "f11"];
const HEIGHT: f64 = 400.0;
/// Height of a line of a legend, and how far its text is from its dot.
const LINE: f64 = 18.0;
const DOT: f64 = 10.0;

#[derive(Template)]
#[template(path = "simulated.html")]
struct Page<'a> {
    style: &'static str,
    script: &'static str,
    script_sha256: &'static str,
    title: &'static str,
    headline: String,
    findings: Vec<String>,
    keys: &'a [Key],
    figures: &'a [Figure],
    header: &'a [String],
    rows: &'a [Vec<String>],
    more_rows: usize,
    sections: &'a [Section],
    notes: Vec<String>,
    commands: Vec<Command>,
}

impl Pictures {
    /// The page. `line` is the command that wrote it.
    ///
    /// # Errors
    /// Never in practice: writing to a string cannot fail.
    pub fn html(&self, line: &str) -> Result<String, std::fmt::Error> {
        let mut findings = self.findings.iter().map(|text| micro(&limited(text)));
        let shown = self.rows.len().min(MOST_ROWS);
        let page = Page {
            style: STYLE,
            script: SCRIPT,
            script_sha256: SCRIPT_SHA256,
            title: self.title,
            headline: findings.next().unwrap_or_default(),
            findings: findings.take(LINES).collect(),
            keys: &self.keys,
            figures: &self.figures,
            header: &self.header,
            rows: &self.rows[..shown],
            more_rows: self.rows.len() - shown,
            sections: &self.sections,
            notes: self.notes.iter().take(LINES).map(|text| micro(&limited(text))).collect(),
            commands: vec![Command::new("This page", line.to_owned()).limited()],
        };
        page.render().map_err(|_| std::fmt::Error)
    }

    /// All figures, one below the other, without anything that only a browser understands.
    #[must_use]
    pub fn svg(&self) -> String {
        let figures =
            || self.figures.iter().chain(self.sections.iter().flat_map(|one| &one.figures));
        let width = figures().map(|figure| figure.size.0).fold(WIDE, f64::max);
        let legend = legend(&self.keys, width - 40.0);
        let above = LINE * (1.0 + legend.1) + 14.0;
        let height = above + figures().map(|figure| figure.size.1 + LINE).sum::<f64>();
        let mut svg = format!(
            concat!(
                r#"<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}">"#,
                r##"<style>{style}</style><rect width="100%" height="100%" fill="#fff"/>"##,
                r#"<text class="head" x="20" y="24">{title}</text><g transform="translate(20 {down})">{legend}</g>"#
            ),
            w = width,
            h = height,
            style = style(),
            title = escape(&limited(self.findings.first().map_or(self.title, String::as_str))),
            down = 24.0 + LINE,
            legend = legend.0,
        );
        let mut y = above;
        for Figure { svg: figure, size: (width, height), .. } in figures() {
            let place =
                format!(r#"<svg x="0" y="{}" width="{width}" height="{height}" "#, coordinate(y));
            svg.push_str(&figure.replacen("<svg ", &place, 1));
            y += height + LINE;
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// Rows of the table.
const MOST_ROWS: usize = 10 * ROWS;

/// The style sheet of a file of its own. Colours are written out: not every program knows variables.
fn style() -> String {
    let mut style = concat!(
        "svg{font-family:system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:12px}",
        ".head{font-size:15px;font-weight:600;fill:#15181d}text{fill:#59616d}",
        ".grid path{stroke:#eceef1;fill:none}.frame{stroke:#59616d;fill:none}",
        ".tx,.title.ty{text-anchor:middle}.ty,.right{text-anchor:end}",
        ".line,.whisker,.median,.outliers,.dots{fill:none;stroke-linecap:round;stroke-linejoin:round}",
        ".line{stroke-width:1.7px}.whisker{stroke-width:1.2px}.median{stroke-width:2.6px}",
        ".outliers,.dots{stroke-width:3px;stroke-opacity:.7}.dots.big{stroke-width:6px;stroke-opacity:1}",
        ".line.all,.dots.all{stroke:#15181d}.body{fill-opacity:.22;stroke-width:1.3px}.line.noiseless{stroke:#59616d;stroke-width:1.8px}",
        ".t1{fill:#0072b2}.t2{fill:#2f9fdc}.t3{fill:#009e73}.t4{fill:#8b929c}.late{fill:#c0569a;fill-opacity:.75}"
    )
    .to_owned();
    for (number, colour) in COLOURS.iter().enumerate() {
        let _ = write!(
            style,
            ".s{number}.line,.s{number}.dots,.s{number}.whisker,.s{number}.median,.s{number}.outliers,\
             .s{number}.body{{stroke:{colour}}}.s{number}.body,circle.s{number}{{fill:{colour}}}"
        );
    }
    style
}

/// Dots and names of series, in as many lines as they need; and the number of lines.
fn legend(keys: &[Key], width: f64) -> (String, f64) {
    let (mut text, mut x, mut line) = (String::new(), 0.0, 0.0);
    for key in keys {
        // About as wide as most fonts need.
        let wide = 2.5 * DOT + 6.6 * key.name.chars().count() as f64;
        if x > 0.0 && x + wide > width {
            (x, line) = (0.0, line + 1.0);
        }
        let (y, after) = (line * LINE, x + DOT);
        let _ = write!(
            text,
            r#"<circle class="{}" cx="{}" cy="{}" r="4.5"/><text x="{}" y="{}">{}</text>"#,
            key.class,
            coordinate(x + 4.5),
            coordinate(y - 4.0),
            coordinate(after + 4.0),
            coordinate(y),
            escape(&key.name)
        );
        x += wide;
    }
    (text, if keys.is_empty() { 0.0 } else { line + 1.0 })
}

/// Puts a legend above a figure: margins with room for it, and its markup.
fn with_legend(keys: &[Key]) -> (Margins, String) {
    let usual = Margins::default();
    let (text, lines) = legend(keys, WIDE - usual.left - usual.right);
    let markup =
        format!(r#"<g class="key" transform="translate({} {LINE})">{text}</g>"#, usual.left);
    (Margins { top: usual.top + lines * LINE, ..usual }, markup)
}

/// Noise in a sentence: files without their directories, and lists as a number.
fn noise(words: &str) -> String {
    let all: Vec<&str> = words.split('|').collect();
    match &all[..] {
        ["none"] => "no noise".to_owned(),
        [only] => {
            let names = only.split(" + ").map(|part| part.rsplit('/').next().unwrap_or(part));
            names.collect::<Vec<_>>().join(" + ")
        }
        several => format!("{} kinds of noise", several.len()),
    }
}

fn key(number: usize, name: String) -> Key {
    Key { class: format!("s{number}"), name }
}

/// A line with its dots and the intervals of its values.
fn curve(plot: &mut Plot, key: &Key, points: &[(f64, f64, Option<[f64; 2]>)]) {
    let line: Vec<(f64, f64)> = points.iter().map(|&(x, y, _)| (x, y)).collect();
    plot.line(&key.class, &key.name, &line);
    plot.dots(&format!("{} big", key.class), &key.name, line.iter().copied());
    for (x, _, interval) in points {
        let Some(interval) = interval else { continue };
        let x = coordinate(plot.at_x(*x));
        let [low, high] = interval.map(|y| coordinate(plot.at_y(y)));
        plot.mark(&format!(r#"<path class="line {}" d="M{x} {low}V{high}"/>"#, key.class));
    }
}
