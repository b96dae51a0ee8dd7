//! Logs a run of the exact rules. For every CPU, NIC and operation it keeps the moment at which it is
//! free or ready, next to the times of the engine, and compares moments as the engine compares times:
//! whatever is later is what is waited for.

use crate::loggops::MessageCost;

use super::{
    log::{BEGINNING, Cost, Log, NOBODY, Part, Step, What},
    schedule::Schedule,
    watch::{Piece, Watch},
};

/// A CPU and a NIC of the same index, as in the engine.
#[derive(Clone, Copy, Debug)]
struct Slot {
    cpu: u32,
    received: u32,
    send: u32,
    receive: u32,
    /// CPU time so far.
    clock: i64,
}

pub(crate) struct Recorder<'a> {
    log: &'a mut Log,
    /// Noise runs on the CPU-time clock.
    cpu_time: bool,
    schedule: &'a Schedule,
    slots: Vec<Slot>,
    /// When an operation is ready; for a message: when it reaches its receiver.
    ready: Vec<u32>,
    /// The step that sent a message last.
    senders: Vec<u32>,
}

impl<'a> Recorder<'a> {
    pub fn new(log: &'a mut Log, schedule: &'a Schedule, cpu_time: bool) -> Recorder<'a> {
        log.clear(schedule.ranks());
        let slot = Slot {
            cpu: BEGINNING,
            received: BEGINNING,
            send: BEGINNING,
            receive: BEGINNING,
            clock: 0,
        };
        let slots = schedule.slots.last().copied().unwrap_or(0) as usize;
        Recorder {
            log,
            cpu_time,
            schedule,
            slots: vec![slot; slots],
            ready: vec![BEGINNING; schedule.operations()],
            senders: vec![NOBODY; schedule.operations()],
        }
    }

    /// Adds a step and returns its number.
    fn step(&mut self, what: What, piece: &Piece) -> u32 {
        let record = &self.schedule.ops[piece.op as usize];
        let slot = &mut self.slots[piece.cpu];
        let clock = if self.cpu_time { slot.clock } else { piece.start };
        slot.clock += piece.end - piece.start;
        self.log.steps.push(Step {
            op: piece.op,
            rank: piece.rank,
            what,
            cpu: record.cpu,
            nic: record.nic,
            sender: NOBODY,
            start: piece.start,
            end: piece.end,
            noise: piece.end - piece.start - piece.work,
            beyond: Part::OverheadPerByte,
            asked: piece.work,
            clock,
            nic_from: 0,
            nic_until: 0,
            granted: 0,
            done: piece.end,
        });
        (self.log.steps.len() - 1) as u32
    }

    fn of(&mut self, step: u32) -> &mut Step {
        &mut self.log.steps[step as usize]
    }
}

impl Watch for Recorder<'_> {
    type Moment = u32;

    fn released(&mut self, op: u32, by: u32) {
        let ready = &mut self.ready[op as usize];
        *ready = self.log.later(by, *ready);
    }

    fn posted(&mut self, op: u32) -> u32 {
        self.ready[op as usize]
    }

    fn calc(&mut self, piece: Piece) -> (u32, u32) {
        let start = self.log.later(self.ready[piece.op as usize], self.slots[piece.cpu].cpu);
        debug_assert_eq!(self.log.time(start), piece.start);
        let step = self.step(What::Calc, &piece);
        let cost = Cost::all(Part::Compute, piece.work).noisy();
        let end = self.log.push(piece.end, start, step, cost);
        self.slots[piece.cpu].cpu = end;
        self.log.until(piece.rank, end);
        (start, end)
    }

    fn sent(&mut self, what: What, piece: Piece, cost: &MessageCost) -> (u32, u32) {
        let start = self.log.later(self.ready[piece.op as usize], self.slots[piece.cpu].cpu);
        let start = self.log.later(start, self.slots[piece.nic].send);
        debug_assert_eq!(self.log.time(start), piece.start);
        let ready = self.log.time(self.ready[piece.op as usize]);
        let step = self.step(what, &piece);
        if what == What::Payload {
            self.of(step).granted = ready;
        }
        let o = piece.work - if what == What::Request { 0 } else { cost.cpu_per_byte };
        let on_cpu = Cost::of(Part::Overhead, o, Part::OverheadPerByte);
        let end = self.log.push(piece.end, start, step, on_cpu.noisy());
        self.slots[piece.cpu].cpu = end;
        self.log.until(piece.rank, end);
        if what != What::Request {
            let handed_over = piece.end - piece.work;
            let until = handed_over + cost.gap;
            let on_nic = Cost::of(Part::Gap, cost.gap - cost.transfer, Part::GapPerByte).noisy();
            self.slots[piece.nic].send = self.log.push(until, start, step, on_nic);
            let step = self.of(step);
            (step.nic_from, step.nic_until) = (handed_over, until);
        }
        let flight = Cost::all(Part::Latency, cost.latency);
        self.ready[piece.op as usize] = self.log.push(piece.end + cost.latency, end, step, flight);
        self.senders[piece.op as usize] = step;
        (start, end)
    }

    fn left(&mut self, op: u32, rank: u32, cost: &MessageCost) -> u32 {
        let step = self.senders[op as usize];
        // Its arrival follows from its end.
        let end = self.log.moments[self.ready[op as usize] as usize].from;
        let time = self.log.time(end) + cost.transfer;
        let left = self.log.push(time, end, step, Cost::all(Part::GapPerByte, cost.transfer));
        self.of(step).done = time;
        self.log.until(rank, left);
        left
    }

    fn granted(&mut self, receive: u32, send: u32, latency: i64) {
        let asked = self.log.later(self.ready[send as usize], self.ready[receive as usize]);
        let time = self.log.time(asked) + latency;
        let step = self.senders[send as usize];
        let answer = Cost::all(Part::Latency, latency);
        self.ready[send as usize] = self.log.push(time, asked, step, answer);
    }

    fn received(&mut self, piece: Piece, send: u32, cost: &MessageCost) -> u32 {
        let arrival = self.ready[send as usize];
        let first_byte = self.log.later(arrival, self.slots[piece.nic].receive);
        let step = self.step(What::Receive, &piece);
        let from = self.log.time(first_byte);
        let on_nic = Cost::of(Part::Gap, cost.gap - cost.transfer, Part::GapPerByte);
        self.slots[piece.nic].receive = self.log.push(from + cost.gap, first_byte, step, on_nic);
        let transfer = Cost::all(Part::GapPerByte, cost.transfer);
        let last_byte = self.log.push(from + cost.transfer, first_byte, step, transfer);
        let start = self.log.later(last_byte, self.slots[piece.cpu].received);
        debug_assert_eq!(self.log.time(start), piece.start);
        let o = cost.recv_cpu - cost.cpu_per_byte;
        let on_cpu = Cost::of(Part::Overhead, o, Part::OverheadPerByte);
        let taken = self.log.push(piece.end, start, step, on_cpu.noisy());
        let end = self.log.later(taken, self.ready[piece.op as usize]);
        self.slots[piece.cpu].received = end;
        self.log.until(piece.rank, end);
        let (done, sender) = (self.log.time(end), self.senders[send as usize]);
        let step = self.of(step);
        (step.nic_from, step.nic_until) = (from, from + cost.gap);
        (step.done, step.sender) = (done, sender);
        end
    }

    fn ended(&mut self, send: u32, rank: u32, at: u32) {
        let time = self.log.time(at);
        let step = self.senders[send as usize];
        self.of(step).done = time;
        self.log.until(rank, at);
    }
}
