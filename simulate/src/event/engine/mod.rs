//! The exact rules. Every operation is handled once, when it is ready; its cost and end are then known
//! immediately, even if they are later. Operations whose order could depend on the times wait in a
//! queue; where the dependencies alone determine the order, they are handled as soon as they are free,
//! and nothing is queued. The same goes for what a receive releases on an otherwise idle rank:
//! receives end one after the other, so nothing can come before it any more.
//!
//! A calc or send begins when its dependencies, its CPU and (send) its NIC are ready. A receive costs
//! no time to post; its overhead overlaps with other work of that CPU, but not with other receives.
//! Dependencies carry time across CPUs.

mod choose;
mod operations;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use super::{
    Carried, EventError, Options, Rendezvous, ScheduleResult, Starts,
    bits::Bits,
    cost::Costs,
    deadlock::{self, Progress},
    latencies::Latencies,
    log::Log,
    matching::Matcher,
    queue::{Event, Queue},
    recorder::Recorder,
    schedule::{Kind, NOBODY, Op, Ordered, Schedule},
    state::{Buffers, DONE, GRANTED, MATCHED, POSTED, QUEUED, Requests, SENT, Slot, States},
    watch::{Nobody, Watch},
    work::Work,
};
use crate::{loggops::Params, noise::RunNoise, simd::prefetch};

/// Events between the prefetch and the use of memory.
const AHEAD: usize = 16;

/// An operation whose dependencies are all satisfied.
#[derive(Clone, Copy)]
struct Free {
    op: u32,
    rank: u32,
}

/// A receive that has its message.
#[derive(Clone, Copy)]
struct Delivered {
    op: u32,
    rank: u32,
    arrival: i64,
}

struct Engine<'a, W> {
    schedule: &'a Schedule,
    watch: W,
    costs: Costs,
    work: Work<'a>,
    handshake: bool,
    /// Queue everything: order only by time.
    queue_all: bool,
    /// On an idle rank, only future receives release anything, each later than the previous one.
    in_turn: bool,
    states: States,
    slots: Vec<Slot>,
    there: Bits,
    waiting: Vec<u32>,
    requests: Requests,
    matcher: Matcher<'a>,
    queue: Queue,
    /// Operations that can proceed immediately. LIFO: what was just touched is still in the cache, and
    /// a rank advances as far as it can while it is there.
    free: Vec<Free>,
    /// Receives of other ranks whose message has arrived meanwhile. FIFO: their memory is prefetched
    /// by the time it is their turn.
    elsewhere: VecDeque<Delivered>,
    latencies: Latencies<'a>,
    /// Completed operations by kind: a single counter would serialize all operations.
    calcs: u64,
    messages: u64,
    received: u64,
}

pub(crate) fn run(
    buffers: &mut Buffers,
    schedule: &Schedule,
    params: &Params,
    options: &Options,
    noise: &RunNoise,
    starts: Starts<'_>,
) -> Result<ScheduleResult, EventError> {
    let case = Case { schedule, params, options, noise, starts, sent: &[] };
    run_in(buffers, &case, case.only_time_orders(), Nobody)
}

/// Continues from what earlier schedules have left ([`super::run_on`]).
pub(crate) fn run_on(
    buffers: &mut Buffers,
    schedule: &Schedule,
    params: &Params,
    options: &Options,
    noise: &RunNoise,
    carried: &mut Carried,
) -> Result<ScheduleResult, EventError> {
    let Carried { slots, ends, sent, .. } = carried;
    buffers.slots = std::mem::take(slots);
    buffers.keeps_slots = !ends.is_empty();
    let case = Case { schedule, params, options, noise, starts: ends, sent };
    let result = run_in(buffers, &case, case.only_time_orders(), Nobody);
    *slots = std::mem::take(&mut buffers.slots);
    result
}

/// The same run, logged.
pub(crate) fn record(
    buffers: &mut Buffers,
    schedule: &Schedule,
    params: &Params,
    options: &Options,
    noise: &RunNoise,
    log: &mut Log,
) -> Result<ScheduleResult, EventError> {
    let case = Case { schedule, params, options, noise, starts: &[], sent: &[] };
    let recorder = Recorder::new(log, schedule, Work::new(noise).has_clock());
    run_in(buffers, &case, case.only_time_orders(), recorder)
}

/// What to run.
struct Case<'a, 'n> {
    schedule: &'a Schedule,
    params: &'a Params,
    options: &'a Options,
    noise: &'a RunNoise<'n>,
    starts: Starts<'a>,
    /// Messages that each rank has sent before; empty for none.
    sent: &'a [u64],
}

impl Case<'_, '_> {
    /// Without latency, simultaneous events may depend on each other: then the queue determines the order.
    /// The same goes for large messages: a payload follows its acknowledgement whatever else the rank does
    /// meanwhile, and in the closed form a sender continues the moment its receiver does.
    fn only_time_orders(&self) -> bool {
        self.least_latency() == 0 || !self.all_eager()
    }

    /// On both networks.
    fn all_eager(&self) -> bool {
        let local = self.options.local.map_or(u64::MAX, |local| local.params.eager_limit);
        self.schedule.never_waits(self.params.eager_limit.min(local))
    }

    /// Minimum time until an action of one rank affects another. A message takes o and L, an
    /// acknowledgement L; but in the closed form of a rendezvous the sender ends when the receiver does.
    fn lookahead(&self) -> i64 {
        match self.options.rendezvous {
            _ if self.all_eager() => self.least_overheads().0 + self.least_latency(),
            Rendezvous::ClosedForm => 0,
            Rendezvous::Handshake => self.least_latency(),
        }
    }

    /// No message takes less.
    fn least_latency(&self) -> i64 {
        let varied = self.noise.latencies().map_or(0, |all| all.least().min(0));
        let least = self.params.latency + varied;
        self.options.local.map_or(least, |local| least.min(local.params.latency))
    }

    /// o of senders and of receivers, on the network where it is less.
    fn least_overheads(&self) -> (i64, i64) {
        let local = self.options.local.map_or(*self.params, |local| local.params);
        let send = self.params.send_overhead.min(local.send_overhead);
        (send, self.params.recv_overhead.min(local.recv_overhead))
    }
}

fn run_in(
    buffers: &mut Buffers,
    case: &Case<'_, '_>,
    queue_all: bool,
    watch: impl Watch,
) -> Result<ScheduleResult, EventError> {
    let Case { schedule, params, options, noise, starts, sent } = *case;
    let Buffers { states, slots, there, waiting, requests, .. } =
        std::mem::take(buffers).prepare(schedule);
    let work = Work::new(noise);
    let mut engine = Engine {
        schedule,
        watch,
        costs: Costs::new(params, options.local)?,
        work,
        handshake: options.rendezvous == Rendezvous::Handshake,
        queue_all,
        in_turn: false,
        states,
        slots,
        there,
        waiting,
        requests,
        matcher: Matcher::new(schedule),
        queue: Queue::new(case.lookahead(), schedule.ranks()),
        free: Vec::new(),
        elsewhere: VecDeque::new(),
        latencies: Latencies::new(schedule, noise, sent),
        calcs: 0,
        messages: 0,
        received: 0,
    };
    engine.start(starts)?;
    // Only from here on: at the start, a rank's operations are released one by one. A large message's
    // receiver releases operations at its sender, a CPU-time clock depends on what runs first, and
    // receives without overhead may end together.
    engine.in_turn = !queue_all && !work.has_clock() && case.least_overheads().1 > 0;
    engine.go()?;
    let outcome = engine.outcome();
    let Engine { states, slots, there, waiting, requests, .. } = engine;
    *buffers = Buffers { states, slots, there, waiting, requests, keeps_slots: false };
    outcome
}

impl<W: Watch> Engine<'_, W> {
    /// Handles, rank by rank, operations without dependencies, and whatever they release without the
    /// queue.
    fn start(&mut self, starts: Starts<'_>) -> Result<(), EventError> {
        for rank in 0..self.schedule.ranks() {
            self.states.begin_rank(self.schedule, rank);
            self.fetch_messages(rank + 1);
            let start = starts.get(rank as usize).copied().unwrap_or(0);
            if start > 0 {
                let slots = &self.schedule.slots[rank as usize..][..2];
                for slot in &mut self.slots[slots[0] as usize..slots[1] as usize] {
                    slot.cpu_free = start;
                }
            }
            for op in self.schedule.of_rank(rank) {
                if self.states.stage(op) == 0 {
                    self.states.set_time(op, start);
                    self.free.push(Free { op, rank });
                    self.advance()?;
                }
            }
        }
        Ok(())
    }

    /// Prefetches the messages of a rank that is about to begin. They are scattered in memory, and it
    /// would miss on one after the other.
    #[inline]
    fn fetch_messages(&self, rank: u32) {
        let ops = self.schedule.of_rank(rank);
        if !ops.is_empty() && self.ordered(rank).receives {
            for op in &self.schedule.ops[ops.start as usize..ops.end as usize] {
                if op.kind == Kind::Recv {
                    self.states.prefetch(op.partner);
                }
            }
        }
    }

    #[inline]
    fn advance(&mut self) -> Result<(), EventError> {
        loop {
            while let Some(free) = self.free.pop() {
                self.freed(free)?;
            }
            let Some(Delivered { op, rank, arrival }) = self.elsewhere.pop_front() else {
                return Ok(());
            };
            if let Some(next) = self.elsewhere.get(AHEAD) {
                self.fetch(next.op, next.rank);
            }
            self.receive(op, rank, &self.schedule.ops[op as usize], arrival)?;
        }
    }

    /// Prefetches an upcoming operation and the next two of its rank, which it is likely to release:
    /// each rank's operations are elsewhere in memory. Two records share a cache line, so the second
    /// next one's line has the next one too, if the operation's own has not.
    #[inline]
    fn fetch(&self, op: u32, rank: u32) {
        prefetch(&self.schedule.ops, op as usize);
        prefetch(&self.schedule.ops, op as usize + 2);
        self.states.prefetch(op);
        prefetch(&self.slots, self.schedule.slots[rank as usize] as usize);
    }

    fn go(&mut self) -> Result<(), EventError> {
        while let Some((time, event)) = self.queue.pop() {
            if let Some((op, rank)) = self.queue.upcoming(AHEAD) {
                self.fetch(op, rank);
            }
            if let Some((op, _)) = self.queue.upcoming(AHEAD / 2) {
                // Its record has been prefetched by now.
                prefetch(&self.schedule.edges, self.schedule.ops[op as usize].successors as usize);
            }
            match event {
                Event::Operation { op, rank } => self.due(time, op, rank)?,
                Event::Choice { op } => self.due(time, op, self.schedule.rank_of(op))?,
                Event::Arrival { send } => {
                    if let Some(receive) = self.matcher.arrive(send) {
                        self.states.set_other(receive, send);
                        self.states.set_stage(receive, MATCHED);
                        let rank = self.schedule.ops[send as usize].peer;
                        self.queue.operation(time, receive, rank);
                    }
                }
            }
            self.advance()?;
        }
        Ok(())
    }

    /// The order that the dependencies of this rank determine. With a CPU-time clock, receives and
    /// local work must also be ordered with each other.
    #[inline]
    fn ordered(&self, rank: u32) -> Ordered {
        let ordered = self.schedule.ordered[rank as usize];
        if self.queue_all {
            Ordered::default()
        } else if self.work.has_clock() {
            Ordered { local: ordered.all, receives: ordered.all, all: ordered.all }
        } else {
            ordered
        }
    }

    /// An operation whose dependencies are all satisfied proceeds immediately if its order is
    /// determined, otherwise at its time.
    #[inline]
    fn freed(&mut self, Free { op, rank }: Free) -> Result<(), EventError> {
        let record = &self.schedule.ops[op as usize];
        let time = self.states.time(op);
        match record.kind {
            Kind::Send if self.is_next(rank, time) => self.send(op, rank, record),
            Kind::Calc if self.is_next(rank, time) => self.calc(op, rank, record),
            Kind::Send | Kind::Calc => self.wait(op, rank, time),
            Kind::Choice => {
                self.states.set_stage(op, QUEUED);
                self.waiting[rank as usize] += 1;
                self.queue.choice(time, op, rank);
                Ok(())
            }
            Kind::Note => {
                self.note(op, rank, record, time);
                Ok(())
            }
            Kind::Recv => {
                // Which one is first in the channel depends on the times. And operations that precede
                // it in program order but begin after it would be first at this time.
                let above = |&successor: &u32| successor < op;
                if !record.pairing.is_fixed()
                    || self.schedule.start_successors(op).iter().any(above)
                {
                    return self.wait(op, rank, time);
                }
                let until = if self.ordered(rank).receives { i64::MAX } else { i64::MIN };
                self.post(op, rank, record, time, until)
            }
        }
    }

    /// Proceeds at its time.
    #[inline]
    fn wait(&mut self, op: u32, rank: u32, time: i64) -> Result<(), EventError> {
        self.states.set_stage(op, QUEUED);
        self.waiting[rank as usize] += 1;
        self.queue.operation(time, op, rank);
        Ok(())
    }

    /// Posts a receive whose pairing is fixed. A message that has arrived by `until` is received
    /// immediately, a later one at its time.
    #[inline]
    fn post(
        &mut self,
        op: u32,
        rank: u32,
        record: &Op,
        time: i64,
        until: i64,
    ) -> Result<(), EventError> {
        self.begun(op, rank, time);
        self.states.set_stage(op, POSTED);
        // Most programs post their first receives before anything has been sent.
        if self.messages == 0 || !self.there.contains(record.partner) {
            self.there.insert(op);
            return Ok(());
        }
        let arrival = self.states.time(record.partner);
        if arrival <= until {
            return self.receive(op, rank, record, arrival);
        }
        self.queue.operation(time.max(arrival), op, rank);
        Ok(())
    }

    /// A receive has begun: posting takes no time.
    #[inline]
    fn begun(&mut self, op: u32, rank: u32, time: i64) {
        let posted = self.watch.posted(op);
        self.release(self.schedule.start_successors(op), rank, time, posted);
    }

    /// Whether no future send or calc of this rank can be ready before, or together with, one that is
    /// ready at this time.
    #[inline(always)]
    fn is_next(&self, rank: u32, time: i64) -> bool {
        let alone = || {
            let slots = &self.schedule.slots[rank as usize..][..2];
            slots[1] - slots[0] == 1
                && self.waiting[rank as usize] == 0
                && self.free.is_empty()
                && time <= self.slots[slots[0] as usize].received
        };
        self.ordered(rank).local || self.in_turn && alone()
    }

    /// An operation at its time.
    #[inline]
    fn due(&mut self, time: i64, op: u32, rank: u32) -> Result<(), EventError> {
        let record = &self.schedule.ops[op as usize];
        match (record.kind, self.states.stage(op)) {
            // Its message arrived before it was posted, which was not checked then.
            (Kind::Recv, POSTED) if time < self.states.time(op) => {
                self.queue.operation(self.states.time(op), op, rank);
                Ok(())
            }
            // Then the message arrived later; its record, which is far away in memory, is not needed.
            (Kind::Recv, POSTED) if time > self.states.time(op) => {
                self.receive(op, rank, record, time)
            }
            (Kind::Recv, POSTED) => {
                self.receive(op, rank, record, self.states.time(record.partner))
            }
            (Kind::Recv, QUEUED) => {
                self.waiting[rank as usize] -= 1;
                if record.pairing.is_fixed() {
                    return self.post(op, rank, record, time, time);
                }
                self.begun(op, rank, time);
                match self.matcher.post(op) {
                    Some(send) => {
                        self.states.set_other(op, send);
                        self.states.set_stage(op, MATCHED);
                        self.receive(op, rank, record, self.states.time(send))
                    }
                    None => {
                        self.states.set_stage(op, POSTED);
                        Ok(())
                    }
                }
            }
            (Kind::Recv, _) => {
                let send = self.counterpart(op, record);
                self.receive(op, rank, record, self.states.time(send))
            }
            (Kind::Send, GRANTED) => self.payload(op, rank, record),
            (Kind::Send, _) => {
                self.waiting[rank as usize] -= 1;
                self.send(op, rank, record)
            }
            (Kind::Calc, _) => {
                self.waiting[rank as usize] -= 1;
                self.calc(op, rank, record)
            }
            (Kind::Choice, _) => self.choose(time, op, rank, record),
            // Never queued.
            (Kind::Note, _) => Ok(()),
        }
    }

    /// One dependency of each of these is satisfied at `time`.
    #[inline]
    fn release(&mut self, successors: &[u32], rank: u32, time: i64, by: W::Moment) {
        for &successor in successors {
            self.watch.released(successor, by);
            if self.states.fulfil(successor, time) {
                self.free.push(Free { op: successor, rank });
            }
        }
    }

    fn outcome(&mut self) -> Result<ScheduleResult, EventError> {
        let schedule = self.schedule;
        let states = &self.states;
        let received = |send: u32| {
            let op = &schedule.ops[send as usize];
            op.pairing.is_fixed() && op.partner != NOBODY && states.stage(op.partner) == DONE
        };
        let progress = |op: u32| match states.stage(op) {
            DONE => Progress::Done,
            SENT | GRANTED if received(op) => Progress::Done,
            POSTED | SENT | MATCHED | GRANTED => Progress::Halfway,
            _ => Progress::Waiting,
        };
        let operations = schedule.operations() as u64;
        let done = self.calcs + self.messages + self.received;
        if done < operations || self.received < self.messages {
            let costs = &mut self.costs;
            let large: Vec<bool> = schedule.ops[..schedule.operations()]
                .iter()
                .map(|op| costs.may_wait(op.size))
                .collect();
            let blocks = |op: u32| large[op as usize];
            if let Some(error) = deadlock::explain(schedule, progress, blocks) {
                return Err(error);
            }
        }
        let mut ends = Vec::with_capacity(schedule.ranks() as usize);
        for slots in schedule.slots.windows(2) {
            let slots = &self.slots[slots[0] as usize..slots[1] as usize];
            ends.push(slots.iter().map(|slot| slot.end.max(slot.cpu_free)).max().unwrap_or(0));
        }
        Ok(ScheduleResult { ends, messages: self.messages, operations, unfinished: 0 })
    }
}
