//! An observer of a run of LogGOPSim's rules, like `watch` for the exact ones. In LogGOPSim only CPUs,
//! NICs and messages carry time: a dependency just makes its operation check when its CPU is free.

use super::{
    log::{BEGINNING, Cost, Log, NOBODY, Part, Step, What},
    schedule::Schedule,
};
use crate::loggops::Params;

/// An entry of LogGOPSim's queue, and where it takes place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub op: u32,
    pub rank: u32,
    /// A message in flight, not an operation.
    pub is_message: bool,
    pub cpu: usize,
    pub nic: usize,
}

/// What happened: start, costs and the time exposed to noise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub start: i64,
    /// CPU time that detours can hit.
    pub asked: i64,
    /// The cost after it: O, or G if that is larger.
    pub more: (Part, i64),
    pub noise: i64,
    /// G of the NIC.
    pub transfer: i64,
}

pub(crate) trait WatchLogGopSim {
    /// It waits for its CPU and, unless it is a calc or a receive, for its NIC.
    fn queued(&mut self, entry: Entry, for_nic: bool);
    fn calc(&mut self, entry: Entry, taken: Taken);
    /// The latency of its message is given.
    fn sent(&mut self, entry: Entry, taken: Taken, latency: i64);
    /// A message took CPU and NIC of its target.
    fn arrived(&mut self, entry: Entry, taken: Taken);
    /// The current entry ends this send, whose CPU and NIC are busy until then.
    fn ended(&mut self, entry: Entry, send: u32, cpu: usize, nic: usize);
}

/// No observer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nobody;

impl WatchLogGopSim for Nobody {
    #[inline(always)]
    fn queued(&mut self, _: Entry, _: bool) {}
    #[inline(always)]
    fn calc(&mut self, _: Entry, _: Taken) {}
    #[inline(always)]
    fn sent(&mut self, _: Entry, _: Taken, _: i64) {}
    #[inline(always)]
    fn arrived(&mut self, _: Entry, _: Taken) {}
    #[inline(always)]
    fn ended(&mut self, _: Entry, _: u32, _: usize, _: usize) {}
}

pub(crate) struct LogGopSimRecorder<'a> {
    log: &'a mut Log,
    schedule: &'a Schedule,
    params: Params,
    cpu_time: bool,
    cpus: Vec<u32>,
    clocks: Vec<i64>,
    sends: Vec<u32>,
    receives: Vec<u32>,
    /// What an operation in the queue waits for, and what its message waits for.
    operations: Vec<u32>,
    messages: Vec<u32>,
    senders: Vec<u32>,
}

impl<'a> LogGopSimRecorder<'a> {
    pub fn new(
        log: &'a mut Log,
        schedule: &'a Schedule,
        params: &Params,
        cpu_time: bool,
    ) -> LogGopSimRecorder<'a> {
        log.clear(schedule.ranks());
        let ranks = schedule.ranks() as usize;
        let (cpus, nics) = (ranks * schedule.cpus, ranks * schedule.nics);
        LogGopSimRecorder {
            log,
            schedule,
            params: *params,
            cpu_time,
            cpus: vec![BEGINNING; cpus],
            clocks: vec![0; cpus],
            sends: vec![BEGINNING; nics],
            receives: vec![BEGINNING; nics],
            operations: vec![BEGINNING; schedule.operations()],
            messages: vec![BEGINNING; schedule.operations()],
            senders: vec![NOBODY; schedule.operations()],
        }
    }

    /// A host is done when its CPUs are, as of the end of the run: a message of 0 bytes may move a
    /// CPU's time back.
    pub fn finish(self) {
        for (rank, cpus) in (0..).zip(self.cpus.chunks(self.schedule.cpus)) {
            let last = cpus.iter().copied().reduce(|a, b| self.log.later(a, b));
            self.log.ends[rank] = last.unwrap_or(BEGINNING);
        }
    }

    /// What the time of an entry follows from.
    fn because(&self, entry: &Entry) -> u32 {
        let of = if entry.is_message { &self.messages } else { &self.operations };
        of[entry.op as usize]
    }

    /// Adds the step and its end, until which the CPU is busy.
    fn step(&mut self, what: What, entry: &Entry, taken: &Taken, first: Part) -> u32 {
        let record = &self.schedule.ops[entry.op as usize];
        let end = taken.start + taken.asked + taken.more.1 + taken.noise;
        let clock = if self.cpu_time { self.clocks[entry.cpu] } else { taken.start.max(0) };
        self.clocks[entry.cpu] += taken.asked + taken.noise;
        let number = self.log.steps.len() as u32;
        self.log.steps.push(Step {
            op: entry.op,
            rank: entry.rank,
            what,
            cpu: record.cpu,
            nic: record.nic,
            sender: NOBODY,
            start: taken.start,
            end,
            noise: taken.noise,
            beyond: taken.more.0,
            asked: taken.asked,
            clock,
            nic_from: 0,
            nic_until: 0,
            granted: 0,
            done: end,
        });
        let start = self.because(entry);
        debug_assert_eq!(self.log.time(start), taken.start);
        let cost = Cost::of(first, taken.asked, taken.more.0).noisy();
        self.cpus[entry.cpu] = self.log.push(end, start, number, cost);
        number
    }

    fn on_nic(&mut self, entry: &Entry, taken: &Taken, step: u32) -> u32 {
        let until = taken.start + self.params.gap + taken.transfer;
        let record = &mut self.log.steps[step as usize];
        (record.nic_from, record.nic_until) = (taken.start, until);
        let cost = Cost::of(Part::Gap, self.params.gap, Part::GapPerByte);
        self.log.push(until, self.because(entry), step, cost)
    }
}

impl WatchLogGopSim for LogGopSimRecorder<'_> {
    fn queued(&mut self, entry: Entry, for_nic: bool) {
        let mut because = self.cpus[entry.cpu];
        if for_nic {
            let nics = if entry.is_message { &self.receives } else { &self.sends };
            because = self.log.later(because, nics[entry.nic]);
        }
        let of = if entry.is_message { &mut self.messages } else { &mut self.operations };
        of[entry.op as usize] = because;
    }

    fn calc(&mut self, entry: Entry, taken: Taken) {
        self.step(What::Calc, &entry, &taken, Part::Compute);
    }

    fn sent(&mut self, entry: Entry, taken: Taken, latency: i64) {
        let step = self.step(What::Send, &entry, &taken, Part::Overhead);
        self.sends[entry.nic] = self.on_nic(&entry, &taken, step);
        self.senders[entry.op as usize] = step;
        // Neither noise nor O delays the message.
        let (o, start) = (self.params.send_overhead, self.because(&entry));
        let arrival = taken.start + o + latency;
        let cost = Cost::of(Part::Overhead, o, Part::Latency);
        self.messages[entry.op as usize] = self.log.push(arrival, start, step, cost);
    }

    fn arrived(&mut self, entry: Entry, taken: Taken) {
        let step = self.step(What::Receive, &entry, &taken, Part::Overhead);
        self.log.steps[step as usize].sender = self.senders[entry.op as usize];
        self.receives[entry.nic] = self.on_nic(&entry, &taken, step);
    }

    fn ended(&mut self, entry: Entry, send: u32, cpu: usize, nic: usize) {
        let at = self.because(&entry);
        self.cpus[cpu] = self.log.later(self.cpus[cpu], at);
        self.sends[nic] = self.log.later(self.sends[nic], at);
        let time = self.log.time(at);
        if let Some(step) = self.log.steps.get_mut(self.senders[send as usize] as usize) {
            step.done = step.done.max(time);
        }
    }
}
