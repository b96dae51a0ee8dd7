//! A table fitted to a width: long names are truncated first, then the least important columns are
//! dropped. With `--all` nothing is truncated, however wide.

use unicode_width::UnicodeWidthStr;

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

impl Tone {
    fn paint(self, text: String) -> String {
        match self {
            _ if text.is_empty() => text,
            Tone::Plain => text,
            Tone::Strong => format!("\u{1b}[1;33m{text}\u{1b}[0m"),
            Tone::Dim => format!("\u{1b}[2m{text}\u{1b}[0m"),
        }
    }
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
        match cells.map(|c| c.width()).max() {
            None | Some(0) => 0,
            Some(widest) => widest.max(title.width()),
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
        let line = |tone: Tone, text: &dyn Fn(usize) -> String| {
            let mut line = String::new();
            for (i, column) in self.columns.iter().enumerate().filter(|&(i, _)| widths[i] > 0) {
                let text = text(i);
                let padding = " ".repeat(widths[i].saturating_sub(text.width()));
                let (before, after) = if column.right { (&*padding, "") } else { ("", &*padding) };
                line.push_str(before);
                line.push_str(&if style.colour { tone.paint(text) } else { text });
                line.push_str(after);
                line.push_str(&" ".repeat(GAP));
            }
            line.trim_end().to_owned()
        };
        let mut lines = vec![line(Tone::Dim, &|i| self.columns[i].title.to_owned())];
        for (tone, cells) in &self.rows {
            let text = |i: usize| cells.get(i).map(|t| cut(t, widths[i])).unwrap_or_default();
            lines.push(line(*tone, &text));
        }
        lines.join("\n")
    }
}

fn total(widths: &[usize]) -> usize {
    let shown = widths.iter().filter(|&&w| w > 0);
    (shown.clone().sum::<usize>() + GAP * shown.count()).saturating_sub(GAP)
}
