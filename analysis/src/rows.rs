//! Fine-grained sources grouped into rows, one per [`RowKey`], and the sums per row.

use std::collections::HashMap;

use trace::{Class, RowKey, Source, SourceId};

use crate::costs::Distribution;
use crate::program::events::Tally;
use crate::starts::Starts;

/// A file can claim any number of sources, lanes and CPUs; memory must not grow with it. Further rows
/// are merged by class.
pub(crate) const MAX_ROWS: usize = 1 << 14;
pub(crate) const TOO_MANY: &str = "(too many different names)";
/// Rows whose lengths are kept to three digits; those of further rows to one.
const FINE_ROWS: usize = 1 << 11;
/// Entries of the source table considered for the details of a row.
const MAX_MEMBERS: usize = 1 << 12;
/// Parts by lane and by CPU, over all rows.
const MAX_PARTS: usize = 1 << 21;

#[derive(Clone, Copy, Default)]
pub(crate) struct Part {
    /// Events.
    pub(crate) count: u64,
    /// Events, including repetitions on further threads.
    pub(crate) hits: u64,
    pub(crate) cost_ns: u64,
}

impl Part {
    pub(crate) fn add(&mut self, tally: Tally, cost_ns: u64) {
        self.count += u64::from(tally.event);
        self.hits += u64::from(tally.hit);
        self.cost_ns = self.cost_ns.saturating_add(cost_ns);
    }
}

/// One entry of the trace's source table.
#[derive(Clone, Copy)]
pub(crate) struct Fine {
    pub(crate) row: u32,
    pub(crate) class: Class,
    pub(crate) part: Part,
}

#[derive(Default)]
pub(crate) struct Row {
    /// The first entries of the source table that it represents.
    pub(crate) members: Vec<u32>,
    /// It represents all sources beyond the limit.
    crowd: bool,
    /// Its threads have run on lanes of a recorded program.
    pub(crate) program: bool,
    pub(crate) count: u64,
    pub(crate) hits: u64,
    pub(crate) continued: u64,
    pub(crate) net_ns: u64,
    pub(crate) cost_ns: u64,
    pub(crate) costs: Distribution,
    /// By CPU slot, see [`CpuSlots`].
    pub(crate) cpus: Vec<Part>,
    /// Start times of events by CPU slot, if lanes are threads: a periodic event hits whichever thread
    /// is running.
    pub(crate) starts: Vec<Starts>,
}

impl Row {
    /// Its key, from its first entry.
    pub(crate) fn key(&self, first: &Source) -> RowKey {
        if self.crowd { crowd(first.class) } else { first.row_key() }
    }
}

fn crowd(class: Class) -> RowKey {
    RowKey { class, name: TOO_MANY.to_owned(), unit: None, own: false, program: false }
}

#[derive(Default)]
pub(crate) struct Rows {
    pub(crate) fine: Vec<Fine>,
    pub(crate) rows: Vec<Row>,
    index: HashMap<RowKey, u32>,
}

impl Rows {
    /// Adds new entries of a source table that has grown since the last call.
    pub(crate) fn extend(&mut self, sources: &[Source]) {
        for (id, source) in sources.iter().enumerate().skip(self.fine.len()) {
            let mut key = source.row_key();
            let too_many = self.rows.len() >= MAX_ROWS && !self.index.contains_key(&key);
            if too_many {
                key = crowd(source.class);
            }
            let next = self.rows.len() as u32;
            let row = *self.index.entry(key).or_insert(next);
            if row == next {
                let costs = Distribution::new(self.rows.len() < FINE_ROWS);
                self.rows.push(Row { costs, crowd: too_many, ..Row::default() });
            }
            if let Some(r) = self.rows.get_mut(row as usize)
                && r.members.len() < MAX_MEMBERS
            {
                r.members.push(id as u32);
            }
            self.fine.push(Fine { row, class: source.class, part: Part::default() });
        }
    }

    pub(crate) fn are_too_many(&self) -> bool {
        self.rows.iter().any(|row| row.crowd)
    }

    pub(crate) fn fine(&self, id: SourceId) -> Option<&Fine> {
        self.fine.get(id.0 as usize)
    }
}

/// Maps CPU numbers to small indices, so that a row has one entry per CPU that occurs.
#[derive(Default)]
pub(crate) struct CpuSlots {
    slot_of: HashMap<u16, usize>,
    pub(crate) cpus: Vec<u16>,
    last: Option<(u16, usize)>,
}

impl CpuSlots {
    pub(crate) fn slot(&mut self, cpu: u16) -> usize {
        // Consecutive records are mostly of the same CPU.
        if let Some((last, slot)) = self.last
            && last == cpu
        {
            return slot;
        }
        let next = self.cpus.len();
        let slot = *self.slot_of.entry(cpu).or_insert(next);
        if slot == next {
            self.cpus.push(cpu);
        }
        self.last = Some((cpu, slot));
        slot
    }
}

/// The element at `index`, with the vector grown to hold it.
pub(crate) fn at<T: Default>(parts: &mut Vec<T>, index: usize) -> &mut T {
    if index >= parts.len() {
        parts.resize_with(index + 1, T::default);
    }
    &mut parts[index]
}

/// Limits the number of parts of rows.
#[derive(Default)]
pub(crate) struct Room {
    used: usize,
    /// Set once a part did not fit.
    pub(crate) full: bool,
}

impl Room {
    /// [`at`], or None if the limit is reached.
    pub(crate) fn at<'a, T: Default>(
        &mut self,
        parts: &'a mut Vec<T>,
        index: usize,
    ) -> Option<&'a mut T> {
        let more = (index + 1).saturating_sub(parts.len());
        if self.used + more > MAX_PARTS {
            self.full = true;
            return None;
        }
        self.used += more;
        Some(at(parts, index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_limit_are_one_row_of_their_class() {
        let source = |id: usize| Source {
            class: if id.is_multiple_of(2) { Class::Thread } else { Class::Irq },
            name: format!("s{id}"),
            unit: None,
            detail: None,
            pids: Vec::new(),
            own: false,
            program: false,
            policy: None,
            cause: None,
        };
        let sources: Vec<Source> = (0..MAX_ROWS + 1_000).map(source).collect();
        let mut rows = Rows::default();
        rows.extend(&sources);
        assert_eq!(rows.rows.len(), MAX_ROWS + 2);
        assert!(rows.are_too_many());
        let last = rows.rows.last().map(|row| row.key(&sources[0]).name);
        assert_eq!(last.as_deref(), Some(TOO_MANY));
        assert_eq!(rows.rows[0].key(&sources[0]).name, "s0");
    }

    #[test]
    fn parts_find_room_up_to_the_limit() {
        let (mut room, mut parts) = (Room::default(), Vec::<u8>::new());
        assert!(room.at(&mut parts, MAX_PARTS - 1).is_some() && !room.full);
        assert!(room.at(&mut parts, MAX_PARTS).is_none() && room.full);
        assert!(room.at(&mut parts, 7).is_some());
    }
}
