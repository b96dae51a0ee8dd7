//! What the user wants to see: order, filter, span, selection.

use std::cmp::Ordering;

use trace::{Mode, RowKey};

use crate::snapshot::{RowShown, Snapshot};

/// The sort key of the sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    #[default]
    Taken,
    Rate,
    Longest,
    Total,
    Name,
}

impl Sort {
    pub const ALL: [Sort; 5] = [Sort::Taken, Sort::Rate, Sort::Longest, Sort::Total, Sort::Name];

    pub fn next(self) -> Sort {
        let at = Sort::ALL.iter().position(|&sort| sort == self).unwrap_or(0);
        Sort::ALL[(at + 1) % Sort::ALL.len()]
    }
}

/// The time span of sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Span {
    #[default]
    Second,
    TenSeconds,
    Start,
}

impl Span {
    pub fn next(self) -> Span {
        match self {
            Span::Second => Span::TenSeconds,
            Span::TenSeconds => Span::Start,
            Span::Start => Span::Second,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Span::Second => "last 1 s",
            Span::TenSeconds => "last 10 s",
            Span::Start => "since start",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choices {
    pub sort: Sort,
    pub reversed: bool,
    pub span: Span,
    /// Shows only sources whose class, name or unit contains this text, ignoring case.
    pub filter: String,
    /// The filter is being typed.
    pub typing: bool,
    /// The selected source, by its key, so that it stays selected when the order changes.
    pub selected: Option<RowKey>,
    /// Whether threads count as noise. Without a probe they may be the actual workload.
    pub threads: bool,
    pub help: bool,
    pub paused: bool,
    /// Shown in the footer until the next key.
    pub message: Option<String>,
}

impl Choices {
    /// With a probe or a program, every other thread that runs in its place is noise.
    pub fn for_mode(mode: Mode) -> Choices {
        Choices { threads: mode != Mode::KernelOnly, ..Choices::default() }
    }

    /// The sources to show, in order.
    pub fn rows<'a>(&self, snapshot: &'a Snapshot) -> Vec<&'a RowShown> {
        let wanted = self.filter.to_lowercase();
        let mut rows: Vec<&RowShown> =
            snapshot.rows.iter().filter(|row| matches(row, &wanted)).collect();
        rows.sort_by(|a, b| {
            let order = self.compare(a, b);
            let order = if self.reversed { order.reverse() } else { order };
            order.then_with(|| a.key.cmp(&b.key))
        });
        rows
    }

    /// Largest first, names in alphabetical order.
    fn compare(&self, a: &RowShown, b: &RowShown) -> Ordering {
        let (now_a, now_b) = (&a.sums[self.span as usize], &b.sums[self.span as usize]);
        let since = Span::Start as usize;
        match self.sort {
            Sort::Taken => now_b.ns.cmp(&now_a.ns).then(b.sums[since].ns.cmp(&a.sums[since].ns)),
            Sort::Rate => now_b.count.cmp(&now_a.count),
            Sort::Longest => now_b.longest_ns.cmp(&now_a.longest_ns),
            Sort::Total => b.sums[since].ns.cmp(&a.sums[since].ns),
            Sort::Name => a.key.name.cmp(&b.key.name),
        }
    }

    /// Index of the selected source in `rows`.
    pub fn selected_at(&self, rows: &[&RowShown]) -> Option<usize> {
        let key = self.selected.as_ref()?;
        rows.iter().position(|row| row.key == *key)
    }

    pub(crate) fn select(&mut self, row: Option<&&RowShown>) {
        self.selected = row.map(|row| row.key.clone());
    }
}

fn matches(row: &RowShown, wanted: &str) -> bool {
    wanted.is_empty()
        || row.key.class.name().contains(wanted)
        || row.key.name.to_lowercase().contains(wanted)
        || row.key.unit.as_ref().is_some_and(|unit| unit.to_lowercase().contains(wanted))
}
