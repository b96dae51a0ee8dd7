//! Time taken from each CPU or thread by class, and its strip: the longest detour per column of time and
//! its class.

use analysis::GroupKey;
use trace::{Class, Lane};

use crate::{
    snapshot::Longest,
    window::{Ring, Sum, bucket, spread},
};

/// Number of strip columns kept: one minute.
pub(crate) const STRIP: usize = 240;
pub(crate) const CLASSES: usize = Class::ALL.len();

pub(crate) struct LaneState {
    pub(crate) lane: Lane,
    /// Time by class.
    pub(crate) taken: Ring<[u64; CLASSES]>,
    pub(crate) total: [u64; CLASSES],
    /// All classes together.
    pub(crate) recent: Ring<Sum>,
    pub(crate) all: Sum,
    pub(crate) strip: Ring<Column, STRIP>,
    pub(crate) detours: u64,
    /// Start of its first and end of its last event.
    pub(crate) from_ns: Option<u64>,
    pub(crate) to_ns: u64,
}

/// Threads are separate from the rest: without a probe they may be the actual workload.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Column {
    pub(crate) kernel: Option<Longest>,
    pub(crate) thread: Option<Longest>,
}

impl LaneState {
    pub(crate) fn new(lane: Lane) -> LaneState {
        LaneState {
            lane,
            taken: Ring::default(),
            total: [0; CLASSES],
            recent: Ring::default(),
            all: Sum::default(),
            strip: Ring::default(),
            detours: 0,
            from_ns: None,
            to_ns: 0,
        }
    }

    pub(crate) fn see(&mut self, start: u64, length: u64) {
        let from = self.from_ns.unwrap_or(start).min(start);
        self.from_ns = Some(from);
        self.to_ns = self.to_ns.max(start.saturating_add(length));
    }

    pub(crate) fn take(&mut self, class: Class, counted: bool, start: u64, length: u64, ns: u64) {
        self.recent.record(&mut self.all, counted, start, length, ns);
        let index = class as usize;
        self.total[index] = self.total[index].saturating_add(ns);
        spread(start, length, ns, |bucket, part| {
            if let Some(classes) = self.taken.at(bucket) {
                classes[index] = classes[index].saturating_add(part);
            }
        });
    }

    /// Marks an event on the strip at its start.
    pub(crate) fn mark(&mut self, class: Class, start: u64, ns: u64, apart: bool) {
        let Some(column) = self.strip.at(bucket(start)) else { return };
        let cell = if apart { &mut column.thread } else { &mut column.kernel };
        if cell.is_none_or(|known| known.longest_ns < ns) {
            *cell = Some(Longest { longest_ns: ns, class });
        }
    }

    /// Its row in a table of CPUs.
    pub(crate) fn key(&self) -> GroupKey {
        match self.lane {
            Lane::Cpu { cpu } => GroupKey::of_cpu(cpu),
            Lane::Thread { .. } => GroupKey { name: self.name(), ..GroupKey::of_cpu(0) },
        }
    }

    pub(crate) fn name(&self) -> String {
        match &self.lane {
            Lane::Cpu { cpu } => format!("cpu{cpu}"),
            Lane::Thread { tid, name, .. } => format!("{name}-{tid}"),
        }
    }
}
