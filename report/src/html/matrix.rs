//! A matrix of ranks as a heat map with a logarithmic colour scale.

use std::fmt::Write;

use super::plot::{HALF, coordinate, escape};

const LEFT: f64 = 72.0;
const RIGHT: f64 = 26.0;
const TOP: f64 = 30.0;
/// Room for the colour key.
const KEY: f64 = 360.0;
/// Colours for values above 0. The first of the heat map's is too close to that of nothing for single cells.
const LEVELS: usize = 8;

fn class(level: usize) -> usize {
    if level == 0 { 0 } else { level + 1 }
}

pub(super) struct Matrix<'a> {
    pub(super) id: &'static str,
    /// Accessible label.
    pub(super) label: &'static str,
    /// Of the columns, and of the rows.
    pub(super) titles: (&'static str, &'static str),
    /// Between the rank of a row and that of a column in a tooltip.
    pub(super) verb: &'static str,
    /// The ranks of rows and columns.
    pub(super) names: &'a [String],
    pub(super) cells: &'a [Vec<u64>],
    pub(super) write: fn(u64) -> String,
}

/// Colour of a value between the least above 0 and the most.
fn level(value: u64, (least, most): (u64, u64)) -> usize {
    if value == 0 {
        return 0;
    }
    if least >= most {
        return LEVELS;
    }
    let place = (value as f64 / least as f64).ln() / (most as f64 / least as f64).ln();
    1 + ((place * LEVELS as f64) as usize).min(LEVELS - 1)
}

/// None if all cells are 0.
pub(super) fn draw(matrix: &Matrix<'_>) -> Option<String> {
    let size = matrix.names.len();
    let values = || matrix.cells.iter().flatten().copied().filter(|value| *value > 0);
    let ends = (values().min()?, values().max()?);
    let cell = ((HALF - LEFT - RIGHT) / size.max(1) as f64).min(56.0);
    let (wide, bottom) = (cell * size as f64, TOP + cell * size as f64);
    let gap = if cell > 9.0 { 1.0 } else { 0.0 };
    let mut paths = vec![String::new(); LEVELS + 1];
    let (mut labels, mut data) = (String::new(), String::new());
    // A block of ranks is labelled by its first.
    let first = |name: &str| name.split('-').next().unwrap_or_default().to_owned();
    let longest = matrix.names.iter().map(|name| first(name).len()).max().unwrap_or(1) as f64;
    // As many labels as fit: 7 units for a character.
    let every_row = (13.0 / cell).ceil().max(1.0) as usize;
    let every_column = ((7.0 * longest + 8.0) / cell).ceil().max(1.0) as usize;
    for (index, (name, row)) in matrix.names.iter().zip(matrix.cells).enumerate() {
        let (label, name, at) = (escape(&first(name)), escape(name), index as f64 * cell);
        if index.is_multiple_of(every_row) {
            let y = coordinate(TOP + at + cell / 2.0 + 4.0);
            let _ = write!(labels, r#"<text class="ty" x="{}" y="{y}">{label}</text>"#, LEFT - 6.0);
        }
        if index.is_multiple_of(every_column) {
            let (x, y) = (coordinate(LEFT + at + cell / 2.0), coordinate(bottom + 16.0));
            let _ = write!(labels, r#"<text class="tx" x="{x}" y="{y}">{label}</text>"#);
        }
        let mut values = String::new();
        for (column, &value) in row.iter().enumerate() {
            let (x, y) = (coordinate(LEFT + column as f64 * cell), coordinate(TOP + at));
            let side = coordinate(cell - gap);
            if let Some(path) = paths.get_mut(level(value, ends)) {
                let _ = write!(path, "M{x} {y}h{side}v{side}h-{side}z");
            }
            // Values are separated by spaces.
            let text = if value == 0 {
                "0".to_owned()
            } else {
                (matrix.write)(value).replace(' ', "\u{a0}")
            };
            let _ = write!(values, "{}{}", if column > 0 { " " } else { "" }, escape(&text));
        }
        let _ = write!(data, r#"<desc class="row" data-label="rank {name}" data-v="{values}"/>"#);
    }
    let mut svg = format!(
        concat!(
            r#"<svg class="heat" id="{id}" viewBox="0 0 {w} {h}" role="img" aria-label="{label}" "#,
            r#"style="max-width:{w}px" data-box="{left} {top} {wide} {wide}" data-columns="{size}" data-verb="{verb}" "#,
            r#"data-names="{names}">"#
        ),
        id = matrix.id,
        w = coordinate((LEFT + wide + RIGHT).max(KEY)),
        h = coordinate(bottom + 40.0),
        label = matrix.label,
        left = LEFT,
        top = TOP,
        wide = coordinate(wide),
        size = size,
        verb = matrix.verb,
        names = escape(&matrix.names.join(" ")),
    );
    svg.push_str(&key(ends, matrix.write));
    for (level, path) in paths.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
        let _ = write!(svg, r#"<path class="h{}" d="{path}"/>"#, class(level));
    }
    let (columns, rows) = matrix.titles;
    let _ = write!(
        svg,
        concat!(
            r#"<text class="title tx" x="{x}" y="{below}">{columns}</text>"#,
            r#"<text class="title ty" transform="translate(13 {y}) rotate(-90)">{rows}</text>"#
        ),
        x = coordinate(LEFT + wide / 2.0),
        below = coordinate(bottom + 34.0),
        y = coordinate(TOP + wide / 2.0),
        columns = columns,
        rows = rows,
    );
    Some(svg + &labels + &data + "</svg>")
}

/// The colour key: nothing, then from the least to the most.
fn key((least, most): (u64, u64), write: fn(u64) -> String) -> String {
    let mut out = r#"<rect class="h0" x="64" y="2" width="12" height="12"/>"#.to_owned();
    let mut text = |x: f64, text: &str| {
        let _ = write!(out, r#"<text class="key" x="{x}" y="12">{}</text>"#, escape(text));
    };
    text(80.0, "none");
    let swatches: Vec<usize> = if least == most { vec![LEVELS] } else { (1..=LEVELS).collect() };
    let from = 124.0;
    let name = write(least);
    text(from, &name);
    // 6.5 units for a character of the key.
    let begin = from + 6.5 * name.chars().count() as f64 + 6.0;
    if least != most {
        text(begin + 14.0 * swatches.len() as f64 + 6.0, &write(most));
    }
    for (place, level) in swatches.iter().enumerate() {
        let x = begin + 14.0 * place as f64;
        let class = class(*level);
        let _ = write!(out, r#"<rect class="h{class}" x="{x}" y="2" width="14" height="12"/>"#);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_logarithmic_from_the_least_to_the_most() {
        let ends = (1, 100_000_000);
        assert_eq!(level(0, ends), 0);
        assert_eq!(level(1, ends), 1);
        assert_eq!(level(100_000_000, ends), LEVELS);
        // A decade each.
        assert_eq!(level(5_000, ends), 4);
        assert_eq!(level(7, (7, 7)), LEVELS);
    }
}
