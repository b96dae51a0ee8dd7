//! One row per source and process that causes it: the finest rows from which a table is made, whatever
//! its rows stand for ([`By`]).

use std::collections::HashMap;

use analysis::{By, GroupKey};
use trace::{Class, RowKey, Source, SourceId};

use crate::window::{Ring, Sum};

/// Processes choose their names freely; beyond this many, sources share one row per class.
const MAX_ROWS: usize = 4_096;
const OTHERS: &str = "(others)";

pub(crate) struct Row {
    pub(crate) key: Key,
    pub(crate) total: Sum,
    pub(crate) recent: Ring<Sum>,
}

/// The rows of a table a source belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) source: RowKey,
    pub(crate) process: GroupKey,
}

impl Key {
    fn of(source: &Source) -> Key {
        let key = source.row_key();
        // Only rows of CPUs have no key of their own.
        let process = By::Process.key(source).unwrap_or_else(|| key.clone().into());
        Key { source: key, process }
    }

    pub(crate) fn outside(name: &str) -> Key {
        let source = RowKey::outside(name);
        Key { process: source.clone().into(), source }
    }

    fn others(class: Class) -> Key {
        let source =
            RowKey { class, name: OTHERS.to_owned(), unit: None, own: false, program: false };
        Key { process: source.clone().into(), source }
    }
}

/// One entry of the recording's source table.
struct Fine {
    row: usize,
    class: Class,
    detail: Option<String>,
    ns: u64,
}

#[derive(Default)]
pub(crate) struct Rows {
    pub(crate) rows: Vec<Row>,
    fine: Vec<Option<Fine>>,
    /// The table itself, for writing a trace.
    pub(crate) sources: Vec<Option<Source>>,
    index: HashMap<Key, usize>,
}

impl Rows {
    pub(crate) fn learn(&mut self, id: SourceId, source: Source) {
        let at = id.0 as usize;
        if at >= self.fine.len() {
            self.fine.resize_with(at + 1, || None);
            self.sources.resize_with(at + 1, || None);
        }
        // An updated entry keeps its row; only its list of processes grows.
        if self.fine[at].is_none() {
            let row = self.row(Key::of(&source));
            let detail = source.detail.clone();
            self.fine[at] = Some(Fine { row, class: source.class, detail, ns: 0 });
        }
        self.sources[at] = Some(source);
    }

    /// The row with this key.
    pub(crate) fn row(&mut self, mut key: Key) -> usize {
        if let Some(&row) = self.index.get(&key) {
            return row;
        }
        if self.rows.len() >= MAX_ROWS {
            key = Key::others(key.source.class);
            if let Some(&row) = self.index.get(&key) {
                return row;
            }
        }
        let row = self.rows.len();
        let (total, recent) = (Sum::default(), Ring::default());
        self.rows.push(Row { key: key.clone(), total, recent });
        self.index.insert(key, row);
        row
    }

    pub(crate) fn class(&self, id: SourceId) -> Option<Class> {
        self.fine.get(id.0 as usize)?.as_ref().map(|fine| fine.class)
    }

    /// Adds a record of a source that took `ns` between `start` and `start + length`.
    pub(crate) fn add(&mut self, id: SourceId, counted: bool, start: u64, length: u64, ns: u64) {
        let Some(Some(fine)) = self.fine.get_mut(id.0 as usize) else { return };
        fine.ns = fine.ns.saturating_add(ns);
        let row = fine.row;
        self.add_to(row, counted, start, length, ns);
    }

    pub(crate) fn add_to(&mut self, row: usize, counted: bool, start: u64, length: u64, ns: u64) {
        let Some(row) = self.rows.get_mut(row) else { return };
        row.recent.record(&mut row.total, counted, start, length, ns);
    }

    /// Details of a row, largest time first.
    pub(crate) fn details(&self, row: usize, most: usize) -> Vec<(String, u64)> {
        let own = self.fine.iter().flatten().filter(|fine| fine.row == row && fine.ns > 0);
        let mut details: Vec<(String, u64)> =
            own.filter_map(|fine| Some((fine.detail.clone()?, fine.ns))).collect();
        details.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        details.truncate(most);
        details
    }
}
