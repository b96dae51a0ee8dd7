//! Fine-grained sources gathered into rows, one row per (class, name, unit), and what is summed per
//! row.

use std::collections::HashMap;

use trace::{Class, Source, SourceId};

use crate::costs::Distribution;

#[derive(Clone, Copy, Default)]
pub(crate) struct Part {
    pub(crate) count: u64,
    pub(crate) cost_ns: u64,
}

impl Part {
    pub(crate) fn add(&mut self, counted: bool, cost_ns: u64) {
        self.count += u64::from(counted);
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
    /// The entries of the source table it stands for.
    pub(crate) members: Vec<u32>,
    pub(crate) count: u64,
    pub(crate) continued: u64,
    pub(crate) net_ns: u64,
    pub(crate) cost_ns: u64,
    pub(crate) costs: Distribution,
    /// By CPU slot, see [`CpuSlots`].
    pub(crate) cpus: Vec<Part>,
}

#[derive(Default)]
pub(crate) struct Rows {
    pub(crate) fine: Vec<Fine>,
    pub(crate) rows: Vec<Row>,
    index: HashMap<(Class, String, Option<String>), u32>,
}

impl Rows {
    /// Takes in entries of a source table that has grown since the last call.
    pub(crate) fn extend(&mut self, sources: &[Source]) {
        for (id, source) in sources.iter().enumerate().skip(self.fine.len()) {
            let key = (source.class, source.name.clone(), source.unit.clone());
            let next = self.rows.len() as u32;
            let row = *self.index.entry(key).or_insert(next);
            if row == next {
                self.rows.push(Row::default());
            }
            if let Some(r) = self.rows.get_mut(row as usize) {
                r.members.push(id as u32);
            }
            self.fine.push(Fine { row, class: source.class, part: Part::default() });
        }
    }

    pub(crate) fn fine(&self, id: SourceId) -> Option<&Fine> {
        self.fine.get(id.0 as usize)
    }
}

/// CPU numbers as small indices, so that a row holds one entry per CPU that occurs.
#[derive(Default)]
pub(crate) struct CpuSlots {
    slot_of: HashMap<u16, usize>,
    pub(crate) cpus: Vec<u16>,
    last: Option<(u16, usize)>,
}

impl CpuSlots {
    pub(crate) fn slot(&mut self, cpu: u16) -> usize {
        // Records come in long runs of one CPU.
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
