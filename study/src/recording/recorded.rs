//! The detours of a recording with their sources: one for each row of the report and each process behind
//! it, and two for time outside the kernel, as in the report.

use std::{collections::HashMap, hash::Hash};

use analysis::{Contents, Part, ThreadFacts, Threads, lend_noise, words::NO_NAME};
use anyhow::{Context, Result, bail};
use simulate::noise::Composed;
use trace::{
    Class, LONG_NAMES, Lane, LaneId, Mode, ProcessKey, RecordFlags, RowKey, is_long_outside,
    outside_kind, outside_names,
};

use crate::recording::{derived::Derived, open::AnyReader};

/// The error for a name that matches no source.
pub fn no_source(name: &str) -> String {
    format!(
        "no source named '{name}' (`detour report` lists the names, units and classes of a recording)"
    )
}

/// The part of a report row that one process is behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The row.
    pub key: RowKey,
    pub process: ProcessKey,
    /// Its first detail, e.g. the number of an interrupt.
    pub detail: Option<String>,
    /// The first few process IDs seen.
    pub pids: Vec<u32>,
    /// The recorded program's own threads.
    pub program: bool,
    /// A thread of process 1, which cannot be stopped.
    pub init: bool,
}

/// Process IDs kept of a source.
const MOST_PIDS: usize = 4;

impl Source {
    /// The name by which a command finds it: a thread has a name of its own, but pkill matches processes.
    pub fn switched_off_by(&self) -> &str {
        match self.key.class {
            Class::Thread | Class::PageFault => &self.process.process,
            _ => &self.key.name,
        }
    }

    /// Whether `name` selects this source: by its name, unit, class, `class:name` or `process:name`.
    pub fn is_called(&self, name: &str) -> bool {
        let (class, own_name) = (self.key.class.name(), self.key.name.as_str());
        // The report's tables write these names with spaces, and the name of the longer detours depends on
        // the recording.
        let plain = name.replace(' ', "_").to_ascii_lowercase();
        let outside = self.key.class == Class::OutsideKernel
            && (plain == own_name
                || is_long_outside(&self.key) && LONG_NAMES.contains(&plain.as_str()));
        // The report also has a placeholder for empty names.
        let nameless = own_name.trim().is_empty() && name == NO_NAME;
        name == own_name
            || outside
            || nameless
            || self.key.unit.as_deref() == Some(name)
            || name.strip_prefix("process:") == Some(&self.process.process)
            || name == class
            || name.strip_prefix(class).and_then(|rest| rest.strip_prefix(':')) == Some(own_name)
    }
}

/// Sources that are asked about together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// The sources of each group.
    pub members: Vec<Vec<u32>>,
    /// The group of each source.
    pub of: Vec<u32>,
}

impl Groups {
    fn by<K: Eq + Hash>(sources: &[Source], key: impl Fn(&Source) -> K) -> Groups {
        let mut groups = Groups::default();
        let mut places = HashMap::new();
        for (number, source) in (0u32..).zip(sources) {
            let next = groups.members.len();
            let place = *places.entry(key(source)).or_insert(next);
            if place == next {
                groups.members.push(Vec::new());
            }
            groups.members[place].push(number);
            groups.of.push(place as u32);
        }
        groups
    }
}

/// The sources of a recording; lanes are read one at a time.
pub struct Recorded {
    /// The last two are time outside the kernel, below 1 us and from 1 us.
    pub sources: Vec<Source>,
    /// For each row of the trace's source table.
    source_of: Vec<u32>,
    /// For each lane, whether its noise is assigned to ranks.
    lends: Vec<bool>,
    /// Whether the recording has the time its threads were runnable.
    wanted_known: bool,
    /// For a recording without the probe.
    derived: Option<Derived>,
}

impl Recorded {
    pub fn new(reader: &AnyReader) -> Recorded {
        let facts = facts(reader);
        let mut sources: Vec<Source> = Vec::new();
        let mut index = HashMap::new();
        let mut source_of = Vec::new();
        for (id, row) in reader.sources().iter().enumerate() {
            let next = sources.len() as u32;
            let (key, process) = (row.row_key(), row.process_key());
            let number = *index.entry((key.clone(), process.clone())).or_insert(next);
            if number == next {
                let detail = row.detail.clone();
                let pids = Vec::new();
                sources.push(Source { key, process, detail, pids, program: false, init: false });
            }
            let source = &mut sources[number as usize];
            let new = row.pids.iter().filter(|_| row.class == Class::Thread);
            for &pid in new.take(MOST_PIDS) {
                if source.pids.len() < MOST_PIDS && !source.pids.contains(&pid) {
                    source.pids.push(pid);
                }
            }
            source.init |= row.class == Class::Thread && row.pids.contains(&1);
            source.program |= facts.program.get(id).copied().unwrap_or(false);
            source_of.push(number);
        }
        for name in outside_names(reader.manifest(), reader.trailer()) {
            let key = RowKey::outside(name);
            let process = ProcessKey {
                class: key.class,
                process: key.name.clone(),
                unit: None,
                own: false,
                program: false,
            };
            let (detail, pids) = (None, Vec::new());
            sources.push(Source { key, process, detail, pids, program: false, init: false });
        }
        let derived = Derived::of(reader);
        for source in &mut sources {
            source.program |= derived.as_ref().is_some_and(|d| d.is_job(&source.process));
        }
        let wanted_known = facts.times.iter().any(Option::is_some);
        Recorded { sources, source_of, lends: lends(reader, &facts), wanted_known, derived }
    }

    /// The sources of processes to ignore, by name, unit or class.
    pub fn excluded(&self, names: &[String]) -> Result<Vec<bool>> {
        let (excluded, unknown) = self.excluded_if_known(names);
        match unknown.first() {
            Some(name) => bail!("{}", no_source(name)),
            None => Ok(excluded),
        }
    }

    /// The same, and the names that match nothing.
    pub fn excluded_if_known(&self, names: &[String]) -> (Vec<bool>, Vec<String>) {
        let mut unknown = Vec::new();
        let mut excluded = vec![false; if names.is_empty() { 0 } else { self.sources.len() }];
        for name in names {
            let mut found = false;
            for (excluded, source) in excluded.iter_mut().zip(&self.sources) {
                let process = &source.process;
                let of_process = process.process == *name || process.unit.as_ref() == Some(name);
                if source.is_called(name) || of_process {
                    (*excluded, found) = (true, true);
                }
            }
            if !found {
                unknown.push(name.clone());
            }
        }
        (excluded, unknown)
    }

    /// The sources of each row of the report.
    pub fn rows(&self) -> Groups {
        Groups::by(&self.sources, |source| source.key.clone())
    }

    /// The sources of each process.
    pub fn processes(&self) -> Groups {
        Groups::by(&self.sources, |source| source.process.clone())
    }

    /// The lanes whose noise is assigned to ranks, by their index in the lane table, for a part of the
    /// recording. Lanes without any watched time, as in a truncated recording, are skipped.
    pub fn lanes_of(&self, reader: &AnyReader, part: &Part) -> Result<Vec<(usize, Composed)>> {
        let mut lanes = Vec::new();
        for index in 0..reader.lanes().len() {
            if self.lends(index) && part.has(index as u32) {
                let composed = self.lane_from(reader, index, part.shortest_ns)?;
                if composed.span_ns() > 0 {
                    lanes.push((index, composed));
                }
            }
        }
        Ok(lanes)
    }

    /// Whether the noise of a lane is assigned to ranks, see [`lend_noise`].
    pub fn lends(&self, index: usize) -> bool {
        self.lends.get(index).copied().unwrap_or(false)
    }

    /// About noise that is ignored, and what the rest was derived from.
    pub fn remarks(&self) -> Vec<String> {
        self.left_out().into_iter().chain(self.derived.as_ref().map(Derived::remark)).collect()
    }

    fn left_out(&self) -> Option<String> {
        let (all, left) = (self.lends.len(), self.lends.iter().filter(|lends| !**lends).count());
        let how = match self.wanted_known {
            true => "were runnable for less than half as long as the busiest",
            false => "existed for less than half as long as the longest-lived",
        };
        (left > 0).then(|| format!("{left} of {all} threads {how}: their noise is ignored"))
    }

    /// The detours of a lane, by its index in the lane table. For a thread, time counts only while it was
    /// runnable: a rank that computes does not sleep when the recorded thread did.
    pub fn lane(&self, reader: &AnyReader, index: usize) -> Result<Composed> {
        self.lane_from(reader, index, 0)
    }

    /// The same on the clock of the node: what happened to several threads at once is at the same time.
    pub fn lane_as_it_was(&self, reader: &AnyReader, index: usize) -> Result<Composed> {
        let (from, to) = window(reader, index);
        self.fill(reader, index, 0, Composed::new(from, to.saturating_sub(from)), None)
    }

    /// The same for detours of a minimum length.
    fn lane_from(&self, reader: &AnyReader, index: usize, shortest_ns: u64) -> Result<Composed> {
        let id = LaneId(index as u32);
        let (from, to) = window(reader, index);
        let thread = matches!(reader.lanes().get(index), Some(Lane::Thread { .. }));
        let awake = match thread && self.wanted_known {
            true => Some(Awake::of(reader, id, from)?),
            false => None,
        };
        let span = awake.as_ref().map_or(to.saturating_sub(from), Awake::total_ns);
        self.fill(reader, index, shortest_ns, Composed::new(from, span), awake.as_ref())
    }

    /// The lanes assigned to ranks, on one clock that stops only while all their threads sleep; None if
    /// they share a clock anyway. Lanes of threads have clocks of their own otherwise, on which what
    /// happened to several at once happens at different times.
    pub fn on_one_clock(&self, reader: &AnyReader) -> Result<Option<Vec<Composed>>> {
        if !self.wanted_known {
            return Ok(None);
        }
        let lending: Vec<usize> = (0..reader.lanes().len()).filter(|&i| self.lends(i)).collect();
        let from = lending.iter().map(|&index| window(reader, index).0).min().unwrap_or(0);
        let mut spans = Vec::new();
        for &index in &lending {
            let awake = Awake::of(reader, LaneId(index as u32), window(reader, index).0)?;
            spans.extend(awake.spans.iter().map(|&(start, end, _)| (start, end)));
        }
        let awake = Awake::new(spans);
        let lane = |&index: &usize| {
            self.fill(reader, index, 0, Composed::new(from, awake.total_ns()), Some(&awake))
        };
        lending.iter().map(lane).collect::<Result<_>>().map(Some)
    }

    /// Adds the detours of a lane; with `awake`, on the clock that runs only then.
    fn fill(
        &self,
        reader: &AnyReader,
        index: usize,
        shortest_ns: u64,
        mut lane: Composed,
        awake: Option<&Awake>,
    ) -> Result<Composed> {
        let id = LaneId(index as u32);
        if let Some(derived) = &self.derived {
            derived.fill(reader, id, &self.source_of, shortest_ns, &mut lane)?;
            return Ok(lane);
        }
        let from = lane.from_ns();
        let short = self.sources.len() as u32 - 2;
        for block in reader.blocks_of(id) {
            let block = block?;
            let long_enough = block.composed().filter(|(detour, _)| detour.len_ns >= shortest_ns);
            for (detour, records) in long_enough {
                let outside = short + outside_kind(detour.outside_ns) as u32;
                let named = records
                    .iter()
                    .filter(|record| !record.flags.contains(RecordFlags::BASELINE))
                    .filter_map(|record| {
                        let source = self.source_of.get(record.source.0 as usize)?;
                        Some((*source, record.cost_ns))
                    });
                let parts = named.chain([(outside, detour.outside_ns)]);
                let start = match awake {
                    Some(awake) => from.saturating_add(awake.before(detour.start_ns)),
                    None => detour.start_ns,
                };
                lane.push(start, detour.len_ns, parts)
                    .with_context(|| lane_words(&reader.lanes()[index]))?;
            }
        }
        Ok(lane)
    }
}

/// When a thread was running or runnable.
#[derive(Default)]
struct Awake {
    /// Start, end, and total time before the start. Spans do not touch.
    spans: Vec<(u64, u64, u64)>,
}

impl Awake {
    fn of(reader: &AnyReader, lane: LaneId, from_ns: u64) -> Result<Awake> {
        let mut spans = Vec::new();
        let mut add = |start: u64, len_ns: u64| {
            let end = start.saturating_add(len_ns);
            spans.push((start.max(from_ns), end));
        };
        for block in reader.blocks_of(lane) {
            let block = block?;
            let slices = block.records.iter().filter(|r| r.flags.contains(RecordFlags::BASELINE));
            slices.for_each(|slice| add(slice.start_ns, slice.gross_ns));
            block.detours.iter().for_each(|detour| add(detour.start_ns, detour.len_ns));
        }
        Ok(Awake::new(spans))
    }

    /// From spans in any order, which may overlap.
    fn new(mut spans: Vec<(u64, u64)>) -> Awake {
        spans.sort_unstable();
        let mut awake = Awake::default();
        for (start, end) in spans.into_iter().filter(|(start, end)| end > start) {
            let before = awake.total_ns();
            match awake.spans.last_mut().filter(|(_, last, _)| start <= *last) {
                Some((_, last, _)) => *last = end.max(*last),
                None => awake.spans.push((start, end, before)),
            }
        }
        awake
    }

    fn total_ns(&self) -> u64 {
        self.spans.last().map_or(0, |(start, end, before)| before.saturating_add(end - start))
    }

    /// How long the thread had been runnable at this time.
    fn before(&self, ns: u64) -> u64 {
        let next = self.spans.partition_point(|(start, ..)| *start <= ns);
        let span = next.checked_sub(1).and_then(|at| self.spans.get(at));
        span.map_or(0, |(start, end, before)| before.saturating_add(ns.min(*end) - start))
    }
}

/// Start and end of the time a lane was watched, if known.
fn window(reader: &AnyReader, index: usize) -> (u64, u64) {
    let totals = reader.totals(LaneId(index as u32));
    totals.map_or((0, 0), |totals| (totals.from_ns, totals.to_ns))
}

fn lends(reader: &AnyReader, facts: &ThreadFacts) -> Vec<bool> {
    let base = |index: usize| {
        let (from, to) = window(reader, index);
        facts.wanted_ns(index).unwrap_or(to.saturating_sub(from))
    };
    let bases: Vec<u64> = (0..reader.lanes().len()).map(base).collect();
    lend_noise(reader.lanes(), &bases)
}

/// The threads of a recorded program. Reading stops at a damaged block, which readers of the detours will
/// report.
fn facts(reader: &AnyReader) -> ThreadFacts {
    if reader.manifest().mode != Mode::Program {
        return ThreadFacts::default();
    }
    let mut threads = Threads::new();
    for block in reader.blocks() {
        let Ok(block) = block else { break };
        threads.add(&block);
    }
    threads.finish(&Contents::of(reader, None))
}

/// The display name of a lane.
pub fn lane_words(lane: &Lane) -> String {
    match lane {
        Lane::Cpu { cpu } => format!("CPU {cpu}"),
        Lane::Thread { tid, name, .. } => format!("thread {name} ({tid})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_asleep_is_taken_out() {
        let awake = Awake::new(vec![(500, 600), (100, 150), (150, 200), (120, 130), (7, 7)]);
        assert_eq!(awake.total_ns(), 200);
        let before: Vec<u64> =
            [0, 100, 130, 200, 400, 500, 599, 900].map(|at| awake.before(at)).into();
        assert_eq!(before, [0, 0, 30, 100, 100, 100, 199, 200]);
        assert_eq!((Awake::default().total_ns(), Awake::default().before(5)), (0, 0));
    }
}
