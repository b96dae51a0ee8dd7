//! A table fitted to a width: long names are truncated first, then the least important columns are
//! dropped. With `--all` nothing is truncated, however wide.

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table};

use crate::words::cut;

/// Between two columns.
const GAP: usize = 2;

#[derive(Clone, Copy)]
pub(crate) struct Style {
    pub(crate) colour: bool,
    pub(crate) width: usize,
    /// Nothing is truncated or dropped to fit.
    pub(crate) whole: bool,
}

impl Style {
    pub(crate) fn title(self, text: &str) -> String {
        if self.colour { format!("\u{1b}[1m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// How a row is highlighted in colour.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Strong,
    Dim,
}

pub(crate) struct Column {
    title: &'static str,
    right: bool,
    /// Shortest useful width of a text column; numbers are never truncated.
    shortest: Option<usize>,
    /// Columns with a higher number are dropped first when space is short; 0 is never dropped.
    expendable: u8,
}

impl Column {
    pub(crate) const fn text(title: &'static str, shortest: usize) -> Self {
        Column { title, right: false, shortest: Some(shortest), expendable: 0 }
    }

    pub(crate) const fn number(title: &'static str) -> Self {
        Column { title, right: true, shortest: None, expendable: 0 }
    }

    pub(crate) const fn expendable(mut self, rank: u8) -> Self {
        self.expendable = rank;
        self
    }
}

pub(crate) struct Grid {
    columns: Vec<Column>,
    rows: Vec<(Tone, Vec<String>)>,
}

impl Grid {
    pub(crate) fn new(columns: Vec<Column>) -> Self {
        Grid { columns, rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, tone: Tone, cells: Vec<String>) {
        self.rows.push((tone, cells));
    }

    /// Natural width of a column; 0 for an empty one, which is dropped.
    fn natural(&self, index: usize, title: &str) -> usize {
        let cells = self.rows.iter().filter_map(|(_, cells)| cells.get(index));
        match cells.map(|c| c.chars().count()).max() {
            None | Some(0) => 0,
            Some(widest) => widest.max(title.len()),
        }
    }

    /// Width of each column; 0 for dropped ones.
    fn fit(&self, width: usize) -> Vec<usize> {
        let natural = |(i, c): (usize, &Column)| self.natural(i, c.title);
        let full: Vec<usize> = self.columns.iter().enumerate().map(natural).collect();
        let mut out: Vec<bool> = full.iter().map(|&w| w == 0).collect();
        loop {
            let mut widths: Vec<usize> =
                full.iter().zip(&out).map(|(&w, &out)| if out { 0 } else { w }).collect();
            while total(&widths) > width {
                let shrinkable = |&i: &usize| {
                    self.columns[i].shortest.is_some_and(|shortest| widths[i] > shortest)
                };
                match (0..widths.len()).filter(shrinkable).max_by_key(|&i| widths[i]) {
                    Some(widest) => widths[widest] -= 1,
                    None => break,
                }
            }
            if total(&widths) <= width {
                return widths;
            }
            let expendable = |&i: &usize| !out[i] && self.columns[i].expendable > 0;
            match (0..out.len()).filter(expendable).max_by_key(|&i| self.columns[i].expendable) {
                Some(index) => out[index] = true,
                None => return widths,
            }
        }
    }

    pub(crate) fn render(&self, style: Style) -> String {
        let widths = self.fit(if style.whole { usize::MAX } else { style.width });
        let mut table = Table::new();
        table.load_preset(comfy_table::presets::NOTHING);
        table.set_content_arrangement(ContentArrangement::Disabled);
        if style.colour {
            table.enforce_styling();
            table.style_text_only();
        } else {
            table.force_no_tty();
        }
        let shown = || self.columns.iter().enumerate().filter(|&(i, _)| widths[i] > 0);
        table.set_header(shown().map(|(_, c)| cell(c.title, c.right, Tone::Dim)));
        for (tone, cells) in &self.rows {
            table.add_row(shown().map(|(i, c)| {
                let text = cells.get(i).map(|t| cut(t, widths[i])).unwrap_or_default();
                cell(&text, c.right, *tone)
            }));
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, GAP as u16));
        }
        let lines: Vec<String> = table.lines().map(|l| l.trim_end().to_owned()).collect();
        lines.join("\n")
    }
}

fn total(widths: &[usize]) -> usize {
    let shown = widths.iter().filter(|&&w| w > 0);
    (shown.clone().sum::<usize>() + GAP * shown.count()).saturating_sub(GAP)
}

fn cell(text: &str, right: bool, tone: Tone) -> Cell {
    let align = if right { CellAlignment::Right } else { CellAlignment::Left };
    let cell = Cell::new(text).set_alignment(align);
    match tone {
        Tone::Plain => cell,
        Tone::Strong => cell.fg(Color::Yellow).add_attribute(Attribute::Bold),
        Tone::Dim => cell.add_attribute(Attribute::Dim),
    }
}
