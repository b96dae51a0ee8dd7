//! A program's threads as they experience the node: what interrupted each while it ran, and what it
//! waited for while it was runnable. No probe; everything follows from switches alone.
//!
//! The input is the records of all CPUs in the order in which they ended, including migrations and
//! throttling. The output is detours on the threads' lanes:
//! - interrupts, softirqs and page faults inside a time slice, adjacent ones joined;
//! - the wait before a slice: from being preempted, woken or created until running, composed of what ran
//!   on the CPU on which the thread waited. A wait that continues on another CPU, or is throttled for a
//!   while, is several consecutive detours;
//! - page faults that slept, without the wait for a CPU at their end.
//!
//! A record that is on several lanes, because several threads were waiting, is flagged as repeated on
//! all but the first.

use std::collections::VecDeque;

use trace::{Class, LaneId, Record, RecordFlags, SHORTEST_WAIT_NS, SourceId, Wait};

use crate::pipeline::{
    compose::{Composer, Named, Sink},
    folded::{History, Older},
    hash::HashMap,
};

/// Interruptions closer than this are one detour to the program.
const TOUCHING_NS: u64 = 2_000;
/// Records kept of the CPUs' history to explain waits. What is older is kept as sums.
const PAST: usize = 1 << 18;
/// At least this many are kept of each CPU.
const PAST_OF_CPU: usize = 1 << 11;
/// Sums kept in total, about 4 MiB, and at least of each CPU.
const SUMS: usize = 1 << 17;
const SUMS_OF_CPU: usize = 1 << 10;
/// Records kept inside one time slice; more are counted as unwritten.
const MAX_INSIDE: usize = 1 << 20;
/// Throttled intervals kept per CPU.
const MAX_THROTTLES: usize = 1 << 10;

/// A finished time slice.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    pub named: Named,
    pub tid: u32,
    /// Left the CPU while runnable.
    pub runnable: bool,
    /// From wakeup or creation to running; 0 if it was neither.
    pub waited_ns: u64,
    /// Runs for the first time.
    pub new: bool,
    /// It was on the CPU when watching began: nothing is known about the time before.
    pub found: bool,
    /// Its switch was missed: the records seen belong to another thread.
    pub unseen: bool,
}

/// A runnable thread migrates to another CPU.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    pub tid: u32,
    pub at: u64,
    /// Since when it has waited, if it was woken; a preempted one has its own record of that.
    pub woken_at: Option<u64>,
    pub new: bool,
    pub from: u16,
    pub to: u16,
}

/// The thread on a CPU since its record's start.
#[derive(Clone, Copy, Debug)]
pub struct Occupant {
    pub tid: u32,
    pub named: Named,
}

/// A cgroup with an exhausted quota, and the source for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    pub group: u32,
    pub source: SourceId,
}

/// Throttling of a thread of the program begins or ends.
#[derive(Clone, Copy, Debug)]
pub struct Throttling {
    pub cpu: u16,
    /// Address of the run queue; 0 if its end will not be seen.
    pub queue: u64,
    pub at: u64,
}

struct Past {
    /// 0 for an interrupt.
    tid: u32,
    named: Named,
    /// Already on a lane.
    used: bool,
}

impl Past {
    /// Returns it for one more lane.
    fn take(&mut self) -> Named {
        let mut named = self.named;
        if std::mem::replace(&mut self.used, true) {
            named.record.flags = named.record.flags.with(RecordFlags::REPEATED);
        }
        named
    }
}

/// An interval in which a run queue had no quota.
struct Throttle {
    queue: u64,
    quota: Quota,
    from: u64,
    /// None while it lasts.
    to: Option<u64>,
    /// All tasks of the cgroup were stopped, not only those that report it.
    all: bool,
    used: bool,
}

#[derive(Default)]
struct Cpu {
    /// Records that ended since the last slice did.
    inside: Vec<Past>,
    /// In the order of their ends.
    past: VecDeque<Past>,
    /// What came before.
    history: History,
    /// The start of the current slice, if it is already on a lane.
    open_used: Option<u64>,
    throttles: VecDeque<Throttle>,
}

/// A wait that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub from: u64,
    pub cpu: u16,
    pub kind: Wait,
    /// Throttled since then, in this run queue.
    throttled: Option<(u64, u64)>,
}

impl Waiting {
    pub fn new(from: u64, cpu: u16, kind: Wait) -> Waiting {
        Waiting { from, cpu, kind, throttled: None }
    }
}

/// A thread that was runnable when the recording began.
#[derive(Clone, Copy, Debug)]
struct AtStart {
    /// When this was determined.
    at: u64,
    /// Where it waited, if it did not run.
    cpu: u16,
    /// It was throttled, in this run queue.
    throttled: Option<u64>,
}

impl AtStart {
    fn waiting(self) -> Waiting {
        let throttled = self.throttled.map(|queue| (queue, 0));
        Waiting { throttled, ..Waiting::new(0, self.cpu, Wait::Preempted) }
    }
}

/// What is known about a watched thread.
#[derive(Default)]
struct Thread {
    lane: Option<LaneId>,
    waiting: Option<Waiting>,
    /// Runnable in /proc when the recording began: when, and on which CPU.
    at_start: Option<AtStart>,
    /// The end of the last event sent on its lane.
    settled: u64,
    from_ns: Option<u64>,
    to_ns: u64,
    run_ns: u64,
    wait_ns: u64,
}

/// The totals of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTotals {
    pub lane: LaneId,
    pub from_ns: u64,
    pub to_ns: u64,
    pub run_ns: u64,
    pub wait_ns: u64,
}

impl Thread {
    fn totals(&self) -> Option<ThreadTotals> {
        let &Thread { to_ns, run_ns, wait_ns, .. } = self;
        let from_ns = self.from_ns.unwrap_or(to_ns);
        Some(ThreadTotals { lane: self.lane?, from_ns, to_ns, run_ns, wait_ns })
    }

    fn covers(&mut self, from: u64, to: u64) {
        self.from_ns = Some(self.from_ns.map_or(from, |first| first.min(from)));
        self.to_ns = self.to_ns.max(to);
    }
}

pub struct Program {
    explainer: Explainer,
    threads: HashMap<u32, Thread>,
    /// Threads that have ended.
    over: Vec<ThreadTotals>,
    /// The recording ends here; later events are omitted.
    pub end_ns: u64,
    pub dropped: u64,
}

impl Default for Program {
    fn default() -> Program {
        Program {
            explainer: Explainer::default(),
            threads: HashMap::default(),
            over: Vec::new(),
            end_ns: u64::MAX,
            dropped: 0,
        }
    }
}

impl Program {
    /// Interruptions and waits shorter than this are not detours.
    pub fn with_threshold(shortest_ns: u64) -> Program {
        let mut program = Program::default();
        program.explainer.composer.shortest_ns = shortest_ns;
        program
    }

    /// A thread of the program that was runnable when the recording began.
    pub fn runnable_at_start(&mut self, tid: u32, at: u64, cpu: u16) {
        self.threads.entry(tid).or_default().at_start = Some(AtStart { at, cpu, throttled: None });
    }

    /// A new thread has this number: a previous one has ended. A thread of the program is known from
    /// here on, whether or not it ever runs.
    pub fn forked(&mut self, tid: u32, watched: bool) {
        self.ended(tid);
        if watched {
            self.threads.insert(tid, Thread::default());
        }
    }

    /// The thread has ended.
    pub fn ended(&mut self, tid: u32) {
        let totals = self.threads.remove(&tid).and_then(|thread| thread.totals());
        self.over.extend(totals);
    }

    pub fn lane(&self, tid: u32) -> Option<LaneId> {
        self.threads.get(&tid)?.lane
    }

    pub fn set_lane(&mut self, tid: u32, lane: LaneId) {
        self.threads.entry(tid).or_default().lane = Some(lane);
    }

    /// The lanes of all threads that were ever watched.
    pub fn totals(&self) -> Vec<ThreadTotals> {
        let living = self.threads.values().filter_map(Thread::totals);
        living.chain(self.over.iter().copied()).collect()
    }

    /// Events in the file that are only parts of sums.
    pub fn uncounted(&self) -> u64 {
        self.explainer.uncounted
    }

    /// Whether anything is throttled on a CPU, or was within the kept history.
    pub fn throttles(&self, cpu: u16) -> bool {
        self.explainer.cpus.get(&cpu).is_some_and(|cpu| !cpu.throttles.is_empty())
    }

    /// Adds anything but a slice.
    pub fn record(&mut self, named: Named) {
        let cpu = self.explainer.cpus.entry(named.record.cpu).or_default();
        if cpu.inside.len() < MAX_INSIDE {
            cpu.inside.push(Past { tid: 0, named, used: false });
        } else {
            self.dropped += 1;
        }
    }

    /// Adds a slice; of a watched thread with its cgroups, if some may be throttled, and the sink for
    /// its events.
    pub fn slice<S: Sink>(&mut self, slice: Slice, groups: &[u32], watched: Option<&mut S>) {
        let number = slice.named.record.cpu;
        if slice.unseen {
            // What happened since it was switched in belongs to the thread found running.
            self.explainer.remember(number, Vec::new(), slice.tid, slice.named);
            if let Some(thread) = self.threads.get_mut(&slice.tid) {
                thread.waiting = None;
            }
            return;
        }
        let cpu = self.explainer.cpus.entry(number).or_default();
        let mut inside = std::mem::take(&mut cpu.inside);
        if let Some(out) = watched {
            let end_ns = self.end_ns;
            let start = slice.named.record.start_ns.min(end_ns);
            let end = slice.named.end().min(end_ns);
            let thread = self.threads.entry(slice.tid).or_default();
            let wait = thread.begun(&slice, number);
            inside.sort_by_key(|past| past.named.record.start_ns);
            let slept = inside
                .iter()
                .position(|past| past.named.record.start_ns < start && slept_in_fault(&past.named));
            let mut fault = slept.map(|index| inside.remove(index).named);
            // Preempted inside a fault, it waited for the CPU; the fault is counted but costs nothing.
            if wait.is_some_and(|wait| wait.kind != Wait::Woken)
                && let Some(fault) = fault.take()
            {
                out.lone(fault.record);
            }
            let mut sent = false;
            if let Some(fault) = fault {
                let woken = wait.map_or(start, |wait| wait.from.min(start));
                sent = self.explainer.fault(thread, fault, woken, out);
            }
            if let Some(wait) = wait {
                self.explainer.wait(thread, slice.tid, wait, start, groups, None, out);
            }
            if let Some(fault) = fault {
                let mut rest = fault;
                if sent {
                    rest.record.flags = rest.record.flags.with(RecordFlags::CONTINUED);
                }
                self.explainer.fault(thread, rest, fault.end().min(end_ns), out);
            }
            inside.retain(|past| past.named.record.start_ns < end_ns);
            self.explainer.interruptions(&mut inside, thread, out);
            if start < end_ns {
                let mut own = slice.named.record;
                own.flags = own.flags.with(RecordFlags::BASELINE);
                out.lone(own);
                thread.covers(start, end);
                thread.run_ns += end - start;
            }
            thread.waiting = slice.runnable.then(|| Waiting::new(end, number, Wait::Preempted));
        }
        self.explainer.remember(number, inside, slice.tid, slice.named);
    }

    /// A watched thread that waits continues to wait on another CPU.
    pub fn moved<S: Sink>(
        &mut self,
        moved: Move,
        occupant: Option<Occupant>,
        groups: &[u32],
        out: &mut S,
    ) {
        let at = moved.at.min(self.end_ns);
        let thread = self.threads.entry(moved.tid).or_default();
        let at_start = thread.at_start.take();
        let kind = if moved.new { Wait::New } else { Wait::Woken };
        let begun = thread.waiting.take();
        let wait = begun
            .or_else(|| Some(Waiting::new(moved.woken_at?, moved.from, kind)))
            .or_else(|| at_start.map(AtStart::waiting));
        if let Some(wait) = wait {
            self.explainer.wait(thread, moved.tid, wait, at, groups, occupant, out);
        }
        let mut on = Waiting::new(at, moved.to, Wait::Migrated);
        if let Some(wait) = wait {
            on.throttled = self.explainer.still_throttled(wait, moved.to).map(|queue| (queue, at));
        }
        thread.waiting = Some(on);
    }

    /// A task has left the CPU because its cgroup's quota is exhausted: either `all` tasks of the cgroup
    /// are stopped with it, or only those that report it.
    pub fn throttled(&mut self, tid: u32, throttling: Throttling, quota: Quota, all: bool) {
        let Throttling { cpu, queue, at } = throttling;
        let of_cpu = self.explainer.cpus.entry(cpu).or_default();
        let open = |t: &Throttle| t.queue == queue && t.to.is_none() && queue != 0;
        if !of_cpu.throttles.iter().any(open) {
            if of_cpu.throttles.len() == MAX_THROTTLES {
                of_cpu.throttles.pop_front();
            }
            let begun = Throttle { queue, quota, from: at, to: None, all, used: false };
            of_cpu.throttles.push_back(begun);
        }
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        match (&mut thread.waiting, &mut thread.at_start) {
            (Some(waiting), _) => waiting.throttled = Some((queue, at)),
            (None, Some(at_start)) => at_start.throttled = Some(queue),
            (None, None) => {}
        }
    }

    /// The run queue has quota again.
    pub fn unthrottled(&mut self, throttling: Throttling) {
        let Throttling { cpu, queue, at } = throttling;
        let Some(cpu) = self.explainer.cpus.get_mut(&cpu) else { return };
        for throttle in &mut cpu.throttles {
            if throttle.queue == queue && throttle.to.is_none() {
                throttle.to = Some(at);
            }
        }
    }

    /// The waits still open at the end of the recording. `woken` tells since when a thread that has not
    /// run since has been awake, and whether it is new; `placed` whether a thread is runnable, and on
    /// which CPU.
    pub fn open_waits(
        &self,
        woken: impl Fn(u32) -> Option<(u64, bool)>,
        placed: impl Fn(u32) -> Option<(bool, u16)>,
    ) -> Vec<(u32, Waiting)> {
        let open = |(&tid, thread): (&u32, &Thread)| {
            let wait = thread.waiting.or_else(|| {
                if let Some((at, new)) = woken(tid)
                    && at >= thread.to_ns
                {
                    let kind = if new { Wait::New } else { Wait::Woken };
                    // If it has ended since, the CPU it waited on is unknown.
                    let cpu = placed(tid).map_or(u16::MAX, |(_, cpu)| cpu);
                    return Some(Waiting::new(at, cpu, kind));
                }
                // Never seen since the recording began.
                let at_start = thread.at_start?;
                let (_, cpu) = placed(tid).filter(|(runnable, _)| *runnable)?;
                Some(AtStart { cpu, ..at_start }.waiting())
            })?;
            (wait.from < self.end_ns).then_some((tid, wait))
        };
        let mut open: Vec<_> = self.threads.iter().filter_map(open).collect();
        open.sort_by_key(|&(tid, wait)| (wait.from, tid));
        open
    }

    /// Ends a wait at the end of the recording.
    pub fn close<S: Sink>(
        &mut self,
        tid: u32,
        wait: Waiting,
        groups: &[u32],
        occupant: Option<Occupant>,
        out: &mut S,
    ) {
        let thread = self.threads.entry(tid).or_default();
        thread.waiting = None;
        self.explainer.wait(thread, tid, wait, self.end_ns, groups, occupant, out);
    }
}

impl Thread {
    /// The wait that ends with this slice.
    fn begun(&mut self, slice: &Slice, cpu: u16) -> Option<Waiting> {
        let start = slice.named.record.start_ns;
        let at_start = self.at_start.take();
        if slice.found {
            self.waiting = None;
            return None;
        }
        let kind = if slice.new { Wait::New } else { Wait::Woken };
        let woken = (slice.waited_ns > 0)
            .then(|| Waiting::new(start.saturating_sub(slice.waited_ns), cpu, kind));
        // It was runnable when /proc was read, and not running on any CPU.
        let since_start = at_start.filter(|known| start > known.at).map(AtStart::waiting);
        self.waiting.take().or(woken).or(since_start)
    }
}

/// The history of the CPUs, and how it explains the detours of threads.
#[derive(Default)]
struct Explainer {
    cpus: HashMap<u16, Cpu>,
    composer: Composer,
    /// Events that are only in sums.
    uncounted: u64,
}

impl Explainer {
    /// Keeps a finished slice and what interrupted it.
    fn remember(&mut self, number: u16, inside: Vec<Past>, tid: u32, slice: Named) {
        let cpus = self.cpus.len().max(1);
        let room = (PAST / cpus).clamp(PAST_OF_CPU, PAST / 2);
        let sums = (SUMS / cpus).clamp(SUMS_OF_CPU, SUMS / 4);
        let cpu = self.cpus.entry(number).or_default();
        // A fault that slept has no CPU time of its own.
        for past in inside.into_iter().filter(|past| !slept_in_fault(&past.named)) {
            cpu.push(past);
        }
        let used = cpu.open_used.take_if(|start| *start <= slice.record.start_ns).is_some();
        cpu.push(Past { tid, named: slice, used });
        while cpu.past.len() > room
            && let Some(oldest) = cpu.past.pop_front()
        {
            cpu.history.add(&oldest.named, !oldest.used, sums);
        }
    }

    /// Sends a wait that ends at `to`, and adds it to the thread's wait time.
    #[expect(clippy::too_many_arguments, reason = "what a wait is made of")]
    fn wait<S: Sink>(
        &mut self,
        thread: &mut Thread,
        tid: u32,
        wait: Waiting,
        to: u64,
        groups: &[u32],
        occupant: Option<Occupant>,
        out: &mut S,
    ) {
        // Woken while it was still leaving the CPU, it waits from then on.
        let from = wait.from.max(thread.to_ns).min(to);
        thread.wait_ns += to - from;
        thread.covers(from, to);
        let from = from.max(thread.settled).min(to);
        if to - from < SHORTEST_WAIT_NS {
            return;
        }
        let mut at = from;
        for (index, begin, end) in self.throttled_between(wait, groups, from, to) {
            self.piece(tid, wait.cpu, (at, begin), wait.kind, occupant, out);
            self.throttled_piece(wait.cpu, index, (begin, end), out);
            at = end;
        }
        self.piece(tid, wait.cpu, (at, to), wait.kind, occupant, out);
        thread.settled = to;
    }

    /// The run queue on another CPU of the cgroup in which a thread waits throttled, if that one has no
    /// quota either.
    fn still_throttled(&self, wait: Waiting, to: u16) -> Option<u64> {
        let (queue, _) = wait.throttled?;
        let here = self.cpus.get(&wait.cpu)?.throttles.iter().rev();
        let here = here.into_iter().find(|throttle| throttle.queue == queue)?;
        let there = self.cpus.get(&to)?.throttles.iter();
        let mut there = there.filter(|t| t.to.is_none() && t.quota.group == here.quota.group);
        there.next().map(|throttle| throttle.queue)
    }

    /// The parts of a wait during which the thread was throttled: which of the CPU's intervals, and
    /// their bounds.
    fn throttled_between(
        &self,
        wait: Waiting,
        groups: &[u32],
        from: u64,
        to: u64,
    ) -> Vec<(usize, u64, u64)> {
        let Some(cpu) = self.cpus.get(&wait.cpu) else { return Vec::new() };
        let mut parts: Vec<(usize, u64, u64)> = Vec::new();
        for (index, throttle) in cpu.throttles.iter().enumerate() {
            let until = throttle.to.unwrap_or(u64::MAX);
            let since = match wait.throttled {
                Some((queue, since)) if queue == throttle.queue && since < until => since,
                _ if throttle.all && groups.contains(&throttle.quota.group) => throttle.from,
                _ => continue,
            };
            let begin = since.max(throttle.from).clamp(from, to);
            let begin = parts.last().map_or(begin, |last| begin.max(last.2));
            let end = until.min(to);
            if begin < end {
                parts.push((index, begin, end));
            }
        }
        parts
    }

    fn throttled_piece<S: Sink>(
        &mut self,
        number: u16,
        index: usize,
        (from, to): (u64, u64),
        out: &mut S,
    ) {
        let Some(cpu) = self.cpus.get_mut(&number) else { return };
        let throttle = &mut cpu.throttles[index];
        let mut flags = RecordFlags::default();
        if std::mem::replace(&mut throttle.used, true) {
            flags = RecordFlags::REPEATED;
        }
        let gross_ns = throttle.to.unwrap_or(to).max(to) - throttle.from;
        let record = Record {
            start_ns: throttle.from,
            gross_ns,
            net_ns: gross_ns,
            cost_ns: gross_ns,
            source: throttle.quota.source,
            cpu: number,
            depth: 0,
            flags,
        };
        self.composer.add(Named { class: Class::Throttled, record });
        self.composer.compose_wait(from, to, Wait::Throttled, out);
    }

    /// Sends a part of a wait that other threads on the CPU explain.
    fn piece<S: Sink>(
        &mut self,
        tid: u32,
        number: u16,
        (from, to): (u64, u64),
        kind: Wait,
        occupant: Option<Occupant>,
        out: &mut S,
    ) {
        if from >= to {
            return;
        }
        if let Some(cpu) = self.cpus.get_mut(&number) {
            let overlaps = |past: &Past| {
                past.named.end() > from && past.named.record.start_ns < to
                    // It did not wait for its own slices, whatever the clocks say.
                    && past.tid != tid
                    && !slept_in_fault(&past.named)
            };
            if let Some(older) = cpu.history.between(from, to) {
                self.uncounted += older.events;
                self.composer.add_older(Older { cpu: number, ..older }, false);
            }
            let first = cpu.past.partition_point(|past| past.named.end() <= from);
            for past in cpu.past.range_mut(first..).filter(|past| overlaps(past)) {
                self.composer.add(past.take());
            }
            let mut nested = 0;
            for past in cpu.inside.iter_mut().filter(|past| overlaps(past)) {
                nested += past.named.record.net_ns;
                self.composer.add(past.take());
            }
            if let Some(mut occupant) = occupant.filter(|occupant| occupant.tid != tid)
                && occupant.named.record.start_ns < to
            {
                let record = &mut occupant.named.record;
                record.gross_ns = to - record.start_ns;
                record.net_ns = record.gross_ns.saturating_sub(nested);
                if cpu.open_used.replace(record.start_ns) == Some(record.start_ns) {
                    record.flags = record.flags.with(RecordFlags::REPEATED);
                }
                self.composer.add(occupant.named);
            }
        }
        self.composer.compose_wait(from, to, kind, out);
    }

    /// Sends the unsent part of a fault up to `to`. False if there is none.
    fn fault<S: Sink>(&mut self, thread: &mut Thread, fault: Named, to: u64, out: &mut S) -> bool {
        let from = fault.record.start_ns.max(thread.settled);
        if from < to {
            self.composer.add(fault);
            self.composer.compose(from, to, out);
            thread.settled = to;
        }
        from < to
    }

    /// Sends the interruptions of a slice, adjacent ones as one detour.
    fn interruptions(&mut self, inside: &mut [Past], thread: &mut Thread, out: &mut impl Sink) {
        let settled = thread.settled;
        let mut rest =
            inside.iter_mut().filter(|past| past.named.record.start_ns >= settled).peekable();
        while let Some(first) = rest.next() {
            let from = first.named.record.start_ns;
            let mut to = first.named.end();
            self.composer.add(first.take());
            while let Some(next) =
                rest.next_if(|next| next.named.record.start_ns <= to.saturating_add(TOUCHING_NS))
            {
                to = to.max(next.named.end());
                self.composer.add(next.take());
            }
            self.composer.compose(from, to, out);
            thread.settled = to;
        }
    }
}

impl Cpu {
    /// In the order of their ends, which is nearly always that of arrival.
    fn push(&mut self, past: Past) {
        let end = past.named.end();
        if self.past.back().is_none_or(|last| last.named.end() <= end) {
            self.past.push_back(past);
        } else {
            let at = self.past.partition_point(|other| other.named.end() <= end);
            self.past.insert(at, past);
        }
    }
}

fn slept_in_fault(named: &Named) -> bool {
    named.class == Class::PageFault && named.record.flags.contains(RecordFlags::CUT_SHORT)
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
