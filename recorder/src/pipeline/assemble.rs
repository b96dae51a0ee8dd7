//! From batches to the file: entries are named, converted to the recording's clock, merged with the
//! detours, and written block by block. Runs on the writer thread; memory is bounded by the open blocks
//! and the records that wait for their detour.

mod threads;

use std::{collections::VecDeque, sync::Arc, time::Instant};

use recorder_abi::{Numbers, Task, flag, kind};
use trace::{Block, Detour, LaneId, Record, RecordFlags};

use crate::{
    naming::names::Names,
    pipeline::{
        balance::Balance,
        clock_line::ClockLine,
        compose::{Matcher, Named, Sink},
        drain::{Batch, Decoded, decode},
        output::Output,
        program::ThreadTotals,
    },
    probe::{Jump, Jumps},
};

pub use threads::{Recorded, Runnable};

/// Events of a lane before its block is written.
const BLOCK_EVENTS: usize = 1 << 15;
/// Events of all lanes together before all blocks are written, about 10 MiB: a machine may have hundreds
/// of CPUs, and a program thousands of threads.
const OPEN_EVENTS: usize = 1 << 18;
/// With a high threshold most records are outside detours; they wait this long for one in which the probe
/// stays on its CPU.
const LONGEST_DETOUR_NS: u64 = 2_000_000_000;
/// Records of all lanes together that wait for their detours, about 32 MiB.
const PENDING: usize = 1 << 19;
/// At least this many of each.
const PENDING_OF_LANE: usize = 1 << 11;

/// What is recorded.
pub enum Subject {
    /// Probes on CPUs, with or without kernel records. By lane.
    Probes(Vec<Probed>),
    /// Kernel records of CPUs, no probe. CPU numbers by lane.
    Cpus(Vec<u32>),
    /// The threads of a program.
    Program(Box<Recorded>),
}

pub struct Probed {
    pub cpu: u32,
    pub tid: u32,
    /// Shortest iteration of the probe's loop, ticks.
    pub t_min: u64,
    pub jumps: Arc<Jumps>,
}

/// Consecutive iterations of the probe's loop that were too long.
#[derive(Clone, Copy)]
struct Turns {
    jump: Jump,
    count: u64,
}

impl Turns {
    /// The time lost: the length minus one shortest iteration for each, since the loop did its own work
    /// as well (t_i - t_min). The start is unchanged, as in netgauge's files.
    fn lost(self, t_min: u64) -> Jump {
        let own = t_min.saturating_mul(self.count);
        Jump { to: self.jump.to.saturating_sub(own).max(self.jump.from), ..self.jump }
    }
}

/// A lane's open block.
struct Open {
    block: Block,
}

impl Sink for Open {
    fn lone(&mut self, record: Record) {
        self.block.records.push(record);
    }

    fn detour(&mut self, detour: Detour, records: &[Record]) {
        self.block.detours.push(detour);
        self.block.records.extend_from_slice(records);
    }
}

impl Open {
    fn events(&self) -> usize {
        self.block.detours.len() + self.block.records.len()
    }
}

struct ProbedLane {
    matcher: Matcher,
    /// Jumps that are not settled yet.
    waiting: VecDeque<Turns>,
    /// Whether the file contains the start of its window.
    started_is_said: bool,
}

impl ProbedLane {
    /// Of one of these CPUs.
    fn new(cpu: u32, lanes: usize) -> ProbedLane {
        let room = (PENDING / lanes).max(PENDING_OF_LANE);
        let matcher = Matcher::new(cpu as u16, room);
        ProbedLane { matcher, waiting: VecDeque::new(), started_is_said: false }
    }
}

pub struct Assembler {
    output: Output,
    names: Names,
    epoch_ns: u64,
    subject: Subject,
    lanes: Vec<Open>,
    probed: Vec<ProbedLane>,
    /// By CPU.
    lane_of_cpu: Vec<Option<usize>>,
    clock: ClockLine,
    /// By CPU.
    balances: Vec<Balance>,
    /// CLOCK_MONOTONIC up to which all entries have arrived.
    complete_ns: u64,
    last_flush: Instant,
    own_ns: u64,
    unwritten: u64,
    write_error: Option<String>,
}

/// The assembler's results at the end.
pub struct Assembled {
    pub output: Output,
    pub clock: ClockLine,
    /// The worst error of a balance, and its wall time, ns.
    pub closure: Option<(f64, u64)>,
    /// Time of the recorder's own threads on measured CPUs, without the probes.
    pub own_ns: u64,
    pub unwritten: u64,
    pub write_error: Option<String>,
    /// Totals of each watched thread.
    pub threads: Vec<ThreadTotals>,
    /// Threads of the program without a lane, because there are too many.
    pub unlisted: u64,
    /// Threads of the program that waited throughout and have no lane, because only /proc knows them.
    pub unheard_waiting: u64,
    /// Events that are only parts of sums in the waits they explain.
    pub uncounted: u64,
}

impl Assembler {
    /// `epoch_ns` is time 0 of the trace on CLOCK_MONOTONIC; `clock` already has two anchors, so that
    /// the first records can be converted.
    pub fn new(
        output: Output,
        names: Names,
        subject: Subject,
        epoch_ns: u64,
        clock: ClockLine,
    ) -> Assembler {
        let cpus: Vec<u32> = match &subject {
            Subject::Probes(probes) => probes.iter().map(|p| p.cpu).collect(),
            Subject::Cpus(cpus) => cpus.clone(),
            Subject::Program(_) => Vec::new(),
        };
        let mut lane_of_cpu = Vec::new();
        for (lane, &cpu) in cpus.iter().enumerate() {
            grow(&mut lane_of_cpu, cpu as usize);
            lane_of_cpu[cpu as usize] = Some(lane);
        }
        Assembler {
            output,
            names,
            epoch_ns,
            subject,
            lanes: (0..cpus.len()).map(open_lane).collect(),
            probed: cpus.iter().map(|&cpu| ProbedLane::new(cpu, cpus.len())).collect(),
            lane_of_cpu,
            clock,
            balances: Vec::new(),
            complete_ns: epoch_ns,
            last_flush: Instant::now(),
            own_ns: 0,
            unwritten: 0,
            write_error: None,
        }
    }

    pub fn accept(&mut self, batch: &Batch) {
        let due = self.last_flush.elapsed() >= self.output.flush_every();
        self.accept_and_write(batch, due);
    }

    /// With `due`, blocks are written even if they are not full.
    fn accept_and_write(&mut self, batch: &Batch, due: bool) {
        for &anchor in &batch.anchors {
            self.clock.push(anchor);
        }
        self.complete_ns = self.complete_ns.max(batch.complete_ns);
        for entry in &batch.entries {
            match decode(entry) {
                Decoded::Record(record) => self.record(&record),
                Decoded::Task(task) => self.task(&task),
                Decoded::CgroupName(piece) => self.names.learn_cgroup(&piece),
                Decoded::Numbers(numbers) => self.numbers(&numbers),
            }
        }
        for &(probe, jump) in &batch.jumps {
            if let Some(lane) = self.probed.get_mut(probe as usize) {
                match lane.waiting.back_mut() {
                    Some(last) if last.jump.to == jump.from => {
                        last.jump.to = jump.to;
                        last.count += 1;
                    }
                    _ => lane.waiting.push_back(Turns { jump, count: 1 }),
                }
            }
        }
        self.find_probes(batch);
        self.settle_jumps(batch.last);
        self.write_full_blocks(batch.last || due);
    }

    /// Learns which probes were on their CPUs.
    fn find_probes(&mut self, batch: &Batch) {
        let Subject::Probes(probes) = &self.subject else { return };
        let (from, to) = batch.looked_ns;
        let on_clock = |ns: u64| ns.saturating_sub(self.epoch_ns);
        for (index, &tid) in batch.on_cpu.iter().enumerate() {
            if let (Some(probe), Some(lane)) = (probes.get(index), self.probed.get_mut(index))
                && self.names.tid_here(tid) == Some(probe.tid)
            {
                lane.matcher.was_on(on_clock(from), on_clock(to));
            }
        }
    }

    fn task(&mut self, task: &Task) {
        self.names.learn(task);
        if let Subject::Program(recorded) = &mut self.subject {
            recorded.task(task, &mut self.names);
        }
    }

    fn numbers(&mut self, numbers: &Numbers) {
        self.names.learn_numbers(numbers);
        if let Subject::Program(recorded) = &mut self.subject {
            recorded.numbers(numbers, self.epoch_ns, &mut self.names);
        }
    }

    fn record(&mut self, record: &recorder_abi::Record) {
        if matches!(record.kind(), kind::MIGRATE | kind::THROTTLE) {
            self.program_event(record);
            return;
        }
        grow(&mut self.balances, usize::from(record.cpu));
        self.balances[usize::from(record.cpu)].add(record);
        let end = end(record);
        let lane = self.lane_of_cpu.get(usize::from(record.cpu)).copied().flatten();
        match &self.subject {
            Subject::Probes(probes) => {
                let Some(lane) = lane else { return };
                // Before the loop runs, events on its CPU disturb nothing.
                let started = probes[lane].jumps.first().and_then(|first| self.clock.ns(first));
                if started.is_none_or(|started| end <= started) {
                    return;
                }
                let ended = probes[lane].jumps.last().and_then(|last| self.clock.ns(last));
                if ended.is_some_and(|ended| record.start >= ended) {
                    return;
                }
                let is_probe = record.kind() == kind::THREAD
                    && self.names.tid_here(record.id) == Some(probes[lane].tid);
                let named = self.named(record, is_probe);
                self.probed[lane].matcher.record(named, &mut self.lanes[lane]);
            }
            Subject::Cpus(_) => {
                let Some(lane) = lane else { return };
                if record.start >= self.epoch_ns {
                    let named = self.named(record, false);
                    self.lanes[lane].lone(named.record);
                }
            }
            Subject::Program(_) => self.program_record(record),
        }
    }

    /// Assigns a record its source and converts it to the recording's clock.
    fn named(&mut self, record: &recorder_abi::Record, baseline: bool) -> Named {
        if let Subject::Program(recorded) = &mut self.subject {
            recorded.mark(record, &mut self.names);
        }
        let (class, source) = self.names.source(record);
        let source = self.renamed(class, source);
        if !baseline && self.names.is_own(source) {
            self.own_ns += record.net;
        }
        let mut flags = RecordFlags::default();
        for (bit, meaning) in [
            (flag::CONTINUED, RecordFlags::CONTINUED),
            (flag::POINT, RecordFlags::POINT),
            (flag::CUT_SHORT, RecordFlags::CUT_SHORT),
        ] {
            if record.flags & bit != 0 {
                flags = flags.with(meaning);
            }
        }
        if baseline {
            flags = flags.with(RecordFlags::BASELINE);
        }
        // A record that began before the recording is clipped to its start.
        let before = self.epoch_ns.saturating_sub(record.start).min(record.gross);
        let gross_ns = record.gross - before;
        let net_ns = record.net.min(gross_ns);
        let record = Record {
            start_ns: record.start.saturating_sub(self.epoch_ns),
            gross_ns,
            net_ns,
            cost_ns: net_ns,
            source,
            cpu: record.cpu,
            depth: record.depth(),
            flags,
        };
        Named { class, record }
    }

    /// Merges the detours whose times are known; with `all`, extrapolates the clock for the rest.
    fn settle_jumps(&mut self, all: bool) {
        let settled = self.clock.settled_to().unwrap_or(0);
        for (lane, probed) in self.probed.iter_mut().enumerate() {
            let (jumps, t_min) = match &self.subject {
                Subject::Probes(probes) => (Some(&probes[lane].jumps), probes[lane].t_min),
                _ => (None, 0),
            };
            while let Some(turns) = probed.waiting.front().copied() {
                if turns.jump.to > settled && !all {
                    break;
                }
                let jump = turns.lost(t_min);
                let (Some(from), Some(to)) = (self.clock.ns(jump.from), self.clock.ns(jump.to))
                else {
                    break;
                };
                probed.waiting.pop_front();
                let from = from.saturating_sub(self.epoch_ns);
                let to = to.saturating_sub(self.epoch_ns).max(from + 1);
                probed.matcher.detour(from, to, &mut self.lanes[lane]);
            }
            if all {
                // Preempted between its last reading and its end, it did not see what followed.
                let last = jumps.and_then(|jumps| self.clock.ns(jumps.last()?));
                let ended = last.map_or(u64::MAX, |last| last.saturating_sub(self.epoch_ns));
                probed.matcher.finish(ended, &mut self.lanes[lane]);
            } else if let Some(settled) = self.clock.ns(settled) {
                let settled = settled.saturating_sub(self.epoch_ns);
                probed.matcher.forget_before(settled, LONGEST_DETOUR_NS, &mut self.lanes[lane]);
            }
        }
    }

    fn write_full_blocks(&mut self, all: bool) {
        let of_cpus = self.lanes.iter().map(Open::events).sum::<usize>();
        let all = all || of_cpus + self.open_thread_events() >= OPEN_EVENTS;
        for lane in 0..self.lanes.len() {
            let events = self.lanes[lane].events();
            if events >= BLOCK_EVENTS || (all && events > 0) {
                self.write_block(lane);
            }
        }
        self.write_thread_blocks(all);
        if all {
            self.last_flush = Instant::now();
            self.say_from_when();
            let settled_ns = self.settled_ns();
            if let Err(error) = self.output.flush(settled_ns, self.unwritten) {
                self.write_error.get_or_insert(error.to_string());
            }
        }
    }

    /// Writes the start of the lanes' windows once it is known.
    fn say_from_when(&mut self) {
        let Subject::Probes(probes) = &self.subject else { return };
        for (lane, (probe, probed)) in (0..).zip(probes.iter().zip(&mut self.probed)) {
            if probed.started_is_said {
                continue;
            }
            let Some(first) = probe.jumps.first().and_then(|ticks| self.clock.ns(ticks)) else {
                continue;
            };
            probed.started_is_said = true;
            self.output.watched_from(LaneId(lane), first.saturating_sub(self.epoch_ns));
        }
    }

    /// How far detours and records are settled.
    fn settled_ns(&self) -> u64 {
        let settled = match self.subject {
            Subject::Probes(_) => self.clock.settled_to().and_then(|ticks| self.clock.ns(ticks)),
            Subject::Cpus(_) | Subject::Program(_) => Some(self.complete_ns),
        };
        settled.unwrap_or(0).saturating_sub(self.epoch_ns)
    }

    fn write_block(&mut self, lane: usize) {
        let mut block = std::mem::replace(&mut self.lanes[lane].block, Block::new(LaneId(0)));
        self.write(&block);
        // Emptied, not dropped: the next block needs the same capacity. What a burst used beyond the
        // lane's share is released.
        let share = OPEN_EVENTS / self.lanes.len();
        block.detours.clear();
        block.records.clear();
        block.detours.shrink_to(share);
        block.records.shrink_to(share);
        self.lanes[lane].block = block;
    }

    fn write(&mut self, block: &Block) {
        for (id, source) in self.names.take_changed() {
            if let Err(error) = self.output.add_source(id, &source) {
                self.write_error.get_or_insert(error.to_string());
            }
        }
        let parts = pieces(block);
        let whole = std::slice::from_ref(block);
        for part in parts.as_deref().unwrap_or(whole) {
            // The recording continues, so that what is missing from the file is counted.
            if let Err(error) = self.output.write_block(part, &mut self.unwritten) {
                self.write_error.get_or_insert(error.to_string());
            }
        }
    }

    pub fn finish(mut self) -> Assembled {
        self.settle_jumps(true);
        self.close_open_waits();
        self.write_full_blocks(true);
        let (threads, unlisted, unheard_waiting, uncounted) = match &self.subject {
            Subject::Program(recorded) => {
                self.unwritten += recorded.dropped();
                let (unlisted, unheard) = (recorded.unlisted, recorded.unheard_waiting);
                (recorded.totals(), unlisted, unheard, recorded.uncounted())
            }
            _ => (Vec::new(), 0, 0, 0),
        };
        let closures = self.balances.iter().filter_map(Balance::error);
        let closure = closures.max_by(|a, b| a.0.total_cmp(&b.0));
        Assembled {
            output: self.output,
            clock: self.clock,
            closure,
            own_ns: self.own_ns,
            unwritten: self.unwritten,
            write_error: self.write_error,
            threads,
            unlisted,
            unheard_waiting,
            uncounted,
        }
    }
}

fn end(record: &recorder_abi::Record) -> u64 {
    record.start + record.gross
}

/// Grows the table to include an index.
fn grow<T: Default>(table: &mut Vec<T>, index: usize) {
    if index >= table.len() {
        table.resize_with(index + 1, T::default);
    }
}

fn open_lane(lane: usize) -> Open {
    Open { block: Block::new(LaneId(lane as u32)) }
}

/// Splits a block that is too large for the file. Detours stay with their records.
fn pieces(block: &Block) -> Option<Vec<Block>> {
    if block.detours.len() + block.records.len() <= 2 * BLOCK_EVENTS {
        return None;
    }
    let mut parts = vec![Block::new(block.lane)];
    let mut detours = block.detours.iter();
    // Records that the current detour still lacks.
    let mut owed = 0;
    for record in &block.records {
        let in_detour = record.flags.contains(RecordFlags::IN_DETOUR);
        let full = parts.last().is_some_and(|p| p.detours.len() + p.records.len() >= BLOCK_EVENTS);
        if owed == 0 && full {
            parts.push(Block::new(block.lane));
        }
        let Some(part) = parts.last_mut() else { break };
        if in_detour {
            while owed == 0 {
                let Some(detour) = detours.next() else { break };
                part.detours.push(*detour);
                owed = detour.records;
            }
            owed = owed.saturating_sub(1);
        }
        part.records.push(*record);
    }
    // Trailing detours without records.
    for detour in detours {
        if parts.last().is_some_and(|p| p.detours.len() + p.records.len() >= BLOCK_EVENTS) {
            parts.push(Block::new(block.lane));
        }
        if let Some(part) = parts.last_mut() {
            part.detours.push(*detour);
        }
    }
    Some(parts)
}

#[cfg(test)]
mod tests;
