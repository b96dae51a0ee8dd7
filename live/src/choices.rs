//! What the user wants to see: what rows stand for, order, filter, span, selection.

use std::{
    cmp::{Ordering, Reverse},
    collections::HashMap,
};

use analysis::{By, GroupKey};
use trace::{Class, Mode};

use crate::{
    snapshot::{LaneShown, SPANS, Snapshot, SourceShown},
    window::Sum,
};

/// Number of parts shown of a selected row.
const PARTS: usize = 4;

/// A row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct RowShown {
    pub key: GroupKey,
    pub sums: [Sum; SPANS],
    /// What it consists of, with the time since the start, largest first.
    pub parts: Vec<(String, u64)>,
}

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
    /// What a row stands for.
    pub by: By,
    /// Shows only rows whose class, name or unit contains this text, ignoring case.
    pub filter: String,
    /// The filter is being typed.
    pub typing: bool,
    /// The selected row, by its key, so that it stays selected when the order changes.
    pub selected: Option<GroupKey>,
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

    /// The rows to show, in order.
    pub fn rows(&self, snapshot: &Snapshot) -> Vec<RowShown> {
        let wanted = self.filter.to_lowercase();
        let mut rows = grouped(snapshot, self.by);
        rows.retain(|row| matches(row, &wanted));
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

    /// Index of the selected row in `rows`.
    pub fn selected_at(&self, rows: &[RowShown]) -> Option<usize> {
        let key = self.selected.as_ref()?;
        rows.iter().position(|row| row.key == *key)
    }

    pub(crate) fn select(&mut self, row: Option<&RowShown>) {
        self.selected = row.map(|row| row.key.clone());
    }
}

/// The rows of a table, in no particular order.
fn grouped(snapshot: &Snapshot, by: By) -> Vec<RowShown> {
    let key: fn(&SourceShown) -> GroupKey = match by {
        By::Process => |shown| shown.process.clone(),
        By::Source => |shown| shown.source.clone(),
        By::Unit => |shown| GroupKey::of_unit(shown.process.unit.clone()),
        By::Class => |shown| shown.source.class.map_or_else(GroupKey::default, GroupKey::of_class),
        By::Cpu => return snapshot.lanes.iter().map(cpu).collect(),
    };
    let mut groups: HashMap<GroupKey, Vec<&SourceShown>> = HashMap::new();
    for shown in &snapshot.sources {
        groups.entry(key(shown)).or_default().push(shown);
    }
    groups.into_iter().map(|(key, parts)| row(key, &parts)).collect()
}

fn row(key: GroupKey, sources: &[&SourceShown]) -> RowShown {
    let mut sums = [Sum::default(); SPANS];
    for (span, sum) in sums.iter_mut().enumerate() {
        sources.iter().for_each(|source| sum.add(source.sums[span]));
    }
    // One source consists of its details, several of themselves.
    let several = sources.iter().any(|shown| shown.source != sources[0].source);
    let mut times: HashMap<String, u64> = HashMap::new();
    for shown in sources {
        let whole = (shown.source.said(), shown.sums[Span::Start as usize].ns);
        let parts = if several { vec![whole] } else { shown.details.clone() };
        parts.into_iter().for_each(|(what, ns)| *times.entry(what).or_default() += ns);
    }
    RowShown { key, sums, parts: largest(times.into_iter().collect()) }
}

fn cpu(lane: &LaneShown) -> RowShown {
    let taken = lane.taken[Span::Start as usize];
    let parts = Class::ALL.iter().zip(taken).filter(|(_, ns)| *ns > 0);
    let parts = parts.map(|(class, ns)| (class.name().to_owned(), ns));
    RowShown { key: lane.key.clone(), sums: lane.sums, parts: largest(parts.collect()) }
}

fn largest(mut parts: Vec<(String, u64)>) -> Vec<(String, u64)> {
    parts.sort_by(|a, b| (Reverse(a.1), &a.0).cmp(&(Reverse(b.1), &b.0)));
    parts.truncate(PARTS);
    parts
}

fn matches(row: &RowShown, wanted: &str) -> bool {
    wanted.is_empty()
        || row.key.class.is_some_and(|class| class.name().contains(wanted))
        || row.key.name.to_lowercase().contains(wanted)
        || row.key.unit.as_ref().is_some_and(|unit| unit.to_lowercase().contains(wanted))
}
