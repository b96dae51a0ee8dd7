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
    /// Reserved before the cells are known, for tables whose rows are printed one by one.
    reserved: usize,
    /// Columns with a higher number are dropped first when space is short; 0 is never dropped.
    expendable: u8,
}

impl Column {
    pub(crate) const fn text(title: &'static str, shortest: usize) -> Self {
        Column { title, right: false, shortest: Some(shortest), reserved: 0, expendable: 0 }
    }

    pub(crate) const fn number(title: &'static str) -> Self {
        Column { title, right: true, shortest: None, reserved: 0, expendable: 0 }
    }

    /// A column whose cells are not known yet, and their usual width.
    pub(crate) const fn reserve(mut self, width: usize) -> Self {
        self.reserved = width;
        self
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
    fn natural(&self, index: usize, column: &Column) -> usize {
        let cells = self.rows.iter().filter_map(|(_, cells)| cells.get(index));
        match cells.map(|c| c.width()).max().unwrap_or(0).max(column.reserved) {
            0 => 0,
            widest => widest.max(column.title.width()),
        }
    }

    /// Width of each column; 0 for dropped ones.
    fn fit(&self, width: usize) -> Vec<usize> {
        let natural = |(i, c): (usize, &Column)| self.natural(i, c);
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

    /// The layout of the columns for the rows known so far.
    pub(crate) fn layout(&self, style: Style) -> Layout<'_> {
        let widths = self.fit(if style.whole { usize::MAX } else { style.width });
        Layout { columns: &self.columns, widths, colour: style.colour }
    }

    pub(crate) fn render(&self, style: Style) -> String {
        let layout = self.layout(style);
        let rows = self.rows.iter().map(|(tone, cells)| layout.line(*tone, cells));
        std::iter::once(layout.header()).chain(rows).collect::<Vec<_>>().join("\n")
    }
}

/// The columns of a table with their widths.
pub(crate) struct Layout<'a> {
    columns: &'a [Column],
    widths: Vec<usize>,
    colour: bool,
}

impl Layout<'_> {
    pub(crate) fn header(&self) -> String {
        self.text(Tone::Dim, |i| self.columns[i].title.to_owned())
    }

    pub(crate) fn line(&self, tone: Tone, cells: &[String]) -> String {
        // What was reserved may be too little; numbers are never truncated.
        let room = |i: usize| if self.columns[i].right { usize::MAX } else { self.widths[i] };
        self.text(tone, |i| cells.get(i).map(|text| cut(text, room(i))).unwrap_or_default())
    }

    fn text(&self, tone: Tone, text: impl Fn(usize) -> String) -> String {
        let mut line = String::new();
        let shown = self.columns.iter().zip(&self.widths).enumerate();
        for (i, (column, &width)) in shown.filter(|(_, (_, width))| **width > 0) {
            let text = text(i);
            let padding = " ".repeat(width.saturating_sub(text.width()));
            let (before, after) = if column.right { (&*padding, "") } else { ("", &*padding) };
            line.push_str(before);
            line.push_str(&if self.colour { tone.paint(text) } else { text });
            line.push_str(after);
            line.push_str(&" ".repeat(GAP));
        }
        line.trim_end().to_owned()
    }
}

fn total(widths: &[usize]) -> usize {
    let shown = widths.iter().filter(|&&w| w > 0);
    (shown.clone().sum::<usize>() + GAP * shown.count()).saturating_sub(GAP)
}
