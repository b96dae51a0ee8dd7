//! The threads of a recorded program: which they are, their lanes, and what happens to them, passed to
//! [`Program`] in order.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use recorder_abi::{Numbers, Record, Task, flag, kind, mark, throttle};
use trace::{Block, Class, Lane, LaneId};

use super::{Assembler, BLOCK_EVENTS, Open, Subject};
use crate::{
    kernel::{cpu_pages::CpuPages, task_table::TaskTable},
    naming::{members::Members, names::Names, pids, quotas::Quotas},
    node::machine,
    pipeline::program::{Move, Occupant, Program, Slice, ThreadTotals, Throttling},
};

/// Maximum number of threads with a lane. The file has room for four times as many, and each costs some
/// memory until the end.
const MAX_LANES: u32 = 1 << 18;

/// A thread that forces a switch on every CPU visits all of them within this time.
const FOUND_WITHIN_NS: u64 = 500_000_000;

/// A thread that was runnable when the recording began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runnable {
    /// As in /proc.
    pub tid: u32,
    /// When this was determined, CLOCK_MONOTONIC.
    pub at: u64,
    /// The CPU it last ran on, or waits for.
    pub cpu: u16,
}

/// A recorded program.
pub struct Recorded {
    members: Members,
    at_start: Vec<Runnable>,
    /// Those of `at_start`, by their /proc numbers, that the kernel side has not reported yet, if /proc
    /// does not have the kernel's numbers.
    unheard: HashMap<u32, Runnable>,
    program: Program,
    lanes: HashMap<u32, ThreadLane>,
    next_lane: u32,
    /// Threads without a lane, because there are too many.
    pub unlisted: u64,
    /// Threads that waited throughout and cannot have a lane, because only /proc knows them, by another
    /// number than the kernel's.
    pub unheard_waiting: u64,
    quotas: Quotas,
    /// The kernel side's state after it has stopped.
    cpu_pages: Option<Arc<CpuPages>>,
    tasks: Option<TaskTable>,
    /// When the recording ends, CLOCK_MONOTONIC; `u64::MAX` until it is known, which is before any later
    /// event is sent.
    ended: Arc<AtomicU64>,
}

struct ThreadLane {
    open: Open,
    name: String,
    /// The thread has ended: nothing follows.
    over: bool,
}

impl Recorded {
    pub fn new(
        members: Members,
        shortest_ns: u64,
        at_start: Vec<Runnable>,
        cpu_pages: Option<Arc<CpuPages>>,
        tasks: Option<TaskTable>,
        ended: Arc<AtomicU64>,
    ) -> Recorded {
        Recorded {
            members,
            at_start,
            unheard: HashMap::new(),
            program: Program::with_threshold(shortest_ns),
            lanes: HashMap::new(),
            next_lane: 0,
            unlisted: 0,
            unheard_waiting: 0,
            quotas: Quotas::of_this_machine(),
            cpu_pages,
            tasks,
            ended,
        }
    }

    pub fn task(&mut self, task: &Task, names: &mut Names) {
        self.members.learn(task);
        if task.kind_depth & 15 == kind::FORK {
            self.end_thread(task.tid);
            let watched = self.members.contains(task.tid, names);
            self.program.forked(task.tid, watched);
        }
    }

    /// The threads that were runnable when the recording began, at `epoch_ns`.
    fn begin(&mut self, epoch_ns: u64, names: &mut Names) {
        let numbers_are_the_kernels = pids::proc_has_kernels_numbers();
        for runnable in std::mem::take(&mut self.at_start) {
            if numbers_are_the_kernels {
                names.look_up(runnable.tid);
                let at = runnable.at.saturating_sub(epoch_ns);
                self.program.runnable_at_start(runnable.tid, at, runnable.cpu);
            } else {
                let here = pids::here(runnable.tid).unwrap_or(runnable.tid);
                self.unheard.insert(here, runnable);
            }
        }
    }

    pub fn numbers(&mut self, numbers: &Numbers, epoch_ns: u64, names: &mut Names) {
        self.begin(epoch_ns, names);
        self.members.learn_numbers(numbers);
        if let Some(runnable) = self.unheard.remove(&numbers.tid_here) {
            let at = runnable.at.saturating_sub(epoch_ns);
            self.program.runnable_at_start(numbers.tid, at, runnable.cpu);
        }
    }

    /// Marks in the names whether a record is of one of the program's threads.
    pub fn mark(&mut self, record: &Record, names: &mut Names) {
        let task = match record.kind() {
            kind::THREAD => record.id,
            kind::FAULT_USER | kind::FAULT_KERNEL => record.other,
            _ => return,
        };
        names.look_up(task);
        let of_program = self.members.contains(task, names);
        names.set_program(task, of_program);
    }

    pub fn dropped(&self) -> u64 {
        self.program.dropped
    }

    pub fn uncounted(&self) -> u64 {
        self.program.uncounted()
    }

    pub fn totals(&self) -> Vec<ThreadTotals> {
        self.program.totals()
    }

    fn end_thread(&mut self, tid: u32) {
        let lane = self.program.lane(tid).and_then(|lane| self.lanes.get_mut(&lane.0));
        if let Some(lane) = lane {
            lane.over = true;
        }
        self.program.ended(tid);
    }

    /// The cgroups that a thread is in, if they matter.
    fn groups(&mut self, tid: u32, cpu: u16, names: &mut Names) -> Arc<[u32]> {
        match self.program.throttles(cpu) {
            true => self.quotas.groups(tid, names),
            false => Arc::from([]),
        }
    }
}

impl Assembler {
    pub(super) fn program_record(&mut self, record: &Record) {
        let Subject::Program(recorded) = &mut self.subject else { return };
        recorded.begin(self.epoch_ns, &mut self.names);
        recorded.program.end_ns =
            recorded.ended.load(Ordering::Acquire).saturating_sub(self.epoch_ns);
        let before = record.start + record.gross <= self.epoch_ns;
        if record.kind() != kind::THREAD {
            if !before {
                let named = self.named(record, false);
                let Subject::Program(recorded) = &mut self.subject else { return };
                recorded.program.record(named);
            }
            return;
        }
        // A thread found on a CPU has been there since before the recording, since no switch to it was
        // seen. Later, once every CPU has been visited, it means that switches were missed, and nothing
        // is known.
        let found = record.gross == 0 && record.flags & flag::CONTINUED != 0;
        let since_start = record.start.saturating_sub(self.epoch_ns);
        let record = &match found && (1..FOUND_WITHIN_NS).contains(&since_start) {
            true => {
                let (start, gross) = (self.epoch_ns, since_start);
                Record { start, gross, net: gross, ..*record }
            }
            false => *record,
        };
        let named = self.named(record, false);
        let Subject::Program(recorded) = &mut self.subject else { return };
        let slice = Slice {
            named,
            tid: record.id,
            runnable: record.flags & flag::RUNNABLE != 0,
            waited_ns: record.waited(),
            new: record.flags & flag::NEW != 0,
            found,
            unseen: record.flags & (flag::POINT | flag::UNSEEN) != 0,
        };
        let watched = !slice.unseen && recorded.members.contains(record.id, &mut self.names);
        // A slice before the recording only matters if the thread was still runnable afterwards.
        let lane = (watched && !before).then(|| self.thread_lane(record.id)).flatten();
        let Subject::Program(recorded) = &mut self.subject else { return };
        match lane.and_then(|lane| recorded.lanes.get_mut(&lane.0)) {
            Some(_) => {
                let groups = recorded.groups(record.id, record.cpu, &mut self.names);
                let out = lane.and_then(|lane| recorded.lanes.get_mut(&lane.0));
                recorded.program.slice(slice, &groups, out.map(|lane| &mut lane.open));
            }
            None if watched && before => {
                recorded.program.slice(slice, &[], Some(&mut Nowhere));
            }
            None => recorded.program.slice(slice, &[], None::<&mut Open>),
        }
        if record.flags & flag::DEAD != 0 {
            recorded.end_thread(record.id);
        }
    }

    /// A migration or throttling.
    pub(super) fn program_event(&mut self, record: &Record) {
        let at = (record.start + record.gross).saturating_sub(self.epoch_ns);
        let Subject::Program(recorded) = &mut self.subject else { return };
        let (throttling, tid) =
            (Throttling { cpu: record.cpu, queue: record.detail, at }, record.id);
        match record.kind() {
            kind::THROTTLE if record.aux & throttle::BEGINS == 0 => {
                recorded.program.unthrottled(throttling);
            }
            kind::THROTTLE => {
                let all = record.aux & throttle::ONE_TASK == 0;
                recorded.begin(self.epoch_ns, &mut self.names);
                let throttling = match record.aux >> throttle::FOUND_ON {
                    0 => throttling,
                    // Throttled when the recording began, on another CPU than the one that reports it.
                    on => Throttling { cpu: (on - 1) as u16, at: 0, ..throttling },
                };
                let quota = recorded.quotas.used_up(record.other, tid, &mut self.names);
                recorded.program.throttled(tid, throttling, quota, all);
            }
            _ => self.moved(record, at),
        }
    }

    fn moved(&mut self, record: &Record, at: u64) {
        let tid = record.id;
        let Subject::Program(recorded) = &mut self.subject else { return };
        if !recorded.members.contains(tid, &mut self.names) {
            return;
        }
        let (from, to) = record.moved();
        let woken_at = (record.gross > 0).then(|| record.start.saturating_sub(self.epoch_ns));
        let moved = Move { tid, at, woken_at, new: record.flags & flag::NEW != 0, from, to };
        let occupant = self.occupant(from, record.other, record.detail);
        let Some(lane) = self.thread_lane(tid) else { return };
        let Subject::Program(recorded) = &mut self.subject else { return };
        let groups = recorded.groups(tid, from, &mut self.names);
        if let Some(lane) = recorded.lanes.get_mut(&lane.0) {
            recorded.program.moved(moved, occupant, &groups, &mut lane.open);
        }
    }

    /// The slice so far of a thread that has been on a CPU since `start`.
    fn occupant(&mut self, cpu: u16, tid: u32, start: u64) -> Option<Occupant> {
        if start == 0 {
            return None;
        }
        let record = Record { start, id: tid, cpu, kind_depth: kind::THREAD, ..Record::default() };
        Some(Occupant { tid, named: self.named(&record, false) })
    }

    /// The lane of a watched thread. Programs rename their threads and call exec; the lane has the last
    /// name. None if there are too many.
    fn thread_lane(&mut self, tid: u32) -> Option<LaneId> {
        let Subject::Program(recorded) = &mut self.subject else { return None };
        let known = recorded.program.lane(tid);
        if known.is_none() && recorded.next_lane == MAX_LANES {
            recorded.unlisted += 1;
            return None;
        }
        let lane = known.unwrap_or(LaneId(recorded.next_lane));
        let name = self.names.task_name(tid);
        if recorded.lanes.get(&lane.0).is_some_and(|lane| lane.name == name) {
            return Some(lane);
        }
        let (pid, shown) = self.names.shown(tid);
        let thread = Lane::Thread { pid, tid: shown, name: name.clone() };
        if let Err(error) = self.output.add_lane(lane, &thread) {
            self.write_error.get_or_insert(error.to_string());
        }
        match recorded.lanes.get_mut(&lane.0) {
            Some(known) => known.name = name,
            None => {
                recorded.next_lane += 1;
                recorded.program.set_lane(tid, lane);
                let open = Open { block: Block::new(lane) };
                recorded.lanes.insert(lane.0, ThreadLane { open, name, over: false });
            }
        }
        Some(lane)
    }

    pub(super) fn open_thread_events(&self) -> usize {
        match &self.subject {
            Subject::Program(recorded) => {
                recorded.lanes.values().map(|lane| lane.open.events()).sum()
            }
            _ => 0,
        }
    }

    /// Writes the full blocks, or `all`, and drops the lanes that have ended.
    pub(super) fn write_thread_blocks(&mut self, all: bool) {
        let Subject::Program(recorded) = &mut self.subject else { return };
        let mut full = Vec::new();
        recorded.lanes.retain(|&number, lane| {
            let events = lane.open.events();
            if events >= BLOCK_EVENTS || (all && events > 0) {
                // Threads come and go by the thousand; most never need a second block.
                let next = Block::new(LaneId(number));
                full.push(std::mem::replace(&mut lane.open.block, next));
            }
            !(lane.over && all)
        });
        full.sort_by_key(|block| block.lane);
        for block in full {
            self.write(&block);
        }
    }

    /// Closes what is in progress at the end of the recording: threads on a CPU, and threads that wait.
    pub(super) fn close_open_waits(&mut self) {
        let Subject::Program(recorded) = &mut self.subject else { return };
        let ended = recorded.ended.load(Ordering::Acquire);
        if ended == u64::MAX {
            return;
        }
        let end_ns = ended.saturating_sub(self.epoch_ns);
        recorded.program.end_ns = end_ns;
        let running = recorded.cpu_pages.as_ref().map(|cpu_pages| cpu_pages.running(ended));
        for record in running.unwrap_or_default() {
            self.program_record(&record);
        }
        let Subject::Program(recorded) = &mut self.subject else { return };
        let waits =
            |thread: &&Runnable| machine::placed(thread.tid).is_some_and(|(waits, _)| waits);
        recorded.unheard_waiting = recorded.unheard.values().filter(waits).count() as u64;
        let slot = |tid| recorded.tasks.as_ref().and_then(|tasks| tasks.slot(tid));
        let woken = |tid| {
            let slot = slot(tid)?;
            let at = slot.woken_at.checked_sub(self.epoch_ns)?;
            (slot.woken_at != 0).then_some((at, slot.marks & mark::NEW != 0))
        };
        let placed = |tid| machine::placed(self.names.in_proc(tid)?);
        for (tid, wait) in recorded.program.open_waits(woken, placed) {
            let Some(lane) = self.thread_lane(tid) else { continue };
            let Subject::Program(recorded) = &mut self.subject else { return };
            let groups = recorded.groups(tid, wait.cpu, &mut self.names);
            if let Some(lane) = recorded.lanes.get_mut(&lane.0) {
                recorded.program.close(tid, wait, &groups, None, &mut lane.open);
            }
        }
    }

    /// In a program's recording, an idle CPU appears only while a thread waits: a separate source.
    pub(super) fn renamed(&mut self, class: Class, source: trace::SourceId) -> trace::SourceId {
        match self.subject {
            Subject::Program(_) if class == Class::Idle => self.names.idle_while_runnable(),
            _ => source,
        }
    }
}

/// Sink for events before the recording.
struct Nowhere;

impl crate::pipeline::compose::Sink for Nowhere {
    fn lone(&mut self, _: trace::Record) {}

    fn detour(&mut self, _: trace::Detour, _: &[trace::Record]) {}
}
