//! Costs and effects of operations: calcs, the sender's and the receiver's part of a message, and the
//! payload of a rendezvous.

use super::super::{
    ANY, EventError,
    log::What,
    schedule::{Op, Pairing},
    state::{DONE, GRANTED, SENT},
    watch::{Piece, Watch},
};
use super::{AHEAD, Delivered, Engine};
use crate::loggops::{MessageCost, bytes_of};

impl<W: Watch> Engine<'_, W> {
    #[inline]
    pub(super) fn calc(&mut self, op: u32, rank: u32, record: &Op) -> Result<(), EventError> {
        let ready = self.states.time(op);
        let cpu = self.schedule.slots[rank as usize] as usize + record.cpu as usize;
        let slot = &mut self.slots[cpu];
        let start = ready.max(slot.cpu_free);
        let work = record.size as i64;
        let end = self.work.done(rank, &mut slot.met, start, work)?;
        slot.cpu_free = end;
        self.states.set_stage(op, DONE);
        self.calcs += 1;
        let (begun, ended) = self.watch.calc(Piece { op, rank, cpu, nic: cpu, start, end, work });
        self.release(self.schedule.start_successors(op), rank, start, begun);
        self.release(self.schedule.successors(op), rank, end, ended);
        Ok(())
    }

    #[inline]
    pub(super) fn send(&mut self, op: u32, rank: u32, record: &Op) -> Result<(), EventError> {
        let (mut cost, local) = self.cost(op, record.size, rank, record.peer)?;
        let ready = self.states.time(op);
        let what = if self.handshake && cost.rendezvous { What::Request } else { What::Send };
        if what == What::Send && !local {
            cost.latency += self.latencies.of(rank, op);
        }
        let piece = self.inject(ready, op, rank, record, &cost, what)?;
        let Piece { start, end, .. } = piece;
        if !record.pairing.is_fixed() {
            let arrival = self.latencies.in_order(rank, record.peer, end + cost.latency);
            cost.latency = arrival - end;
        }
        let (begun, ended) = self.watch.sent(what, piece, &cost);
        self.messages += 1;
        self.release(self.schedule.start_successors(op), rank, start, begun);
        if !cost.rendezvous {
            self.release(self.schedule.successors(op), rank, end, ended);
        }
        let arrival = end + cost.latency;
        self.states.set_time(op, arrival);
        self.states.set_stage(op, SENT);
        if !record.pairing.is_fixed() {
            let first = self.schedule.first[record.peer as usize];
            self.queue.arrival(arrival, record.peer, first, op);
            return Ok(());
        }
        if !self.there.contains(record.partner) {
            self.there.insert(op);
        } else {
            // The receiver knows when it was posted; that record is far away in memory.
            self.delivered(record.partner, record.peer, arrival);
        }
        Ok(())
    }

    /// A posted receive got its message.
    #[inline]
    fn delivered(&mut self, op: u32, rank: u32, arrival: i64) {
        if !self.ordered(rank).receives {
            self.queue.operation(arrival, op, rank);
            return;
        }
        if self.elsewhere.len() < AHEAD {
            self.fetch(op, rank);
        }
        self.elsewhere.push_back(Delivered { op, rank, arrival });
    }

    /// The sender's part of a message, or of the request that precedes one.
    #[inline(always)]
    fn inject(
        &mut self,
        ready: i64,
        op: u32,
        rank: u32,
        record: &Op,
        cost: &MessageCost,
        what: What,
    ) -> Result<Piece, EventError> {
        let base = self.schedule.slots[rank as usize] as usize;
        let (cpu, nic) = (base + record.cpu as usize, base + record.nic as usize);
        let send_free = self.slots[nic].send_free;
        let slot = &mut self.slots[cpu];
        let start = ready.max(slot.cpu_free).max(send_free);
        let work = if what == What::Request { cost.send_overhead() } else { cost.send_cpu };
        let end = self.work.done(rank, &mut slot.met, start, work)?;
        slot.cpu_free = end;
        if what != What::Request {
            // The NIC's gap starts when it gets the message, delayed by the detours.
            self.slots[nic].send_free = end - work + cost.gap;
        }
        Ok(Piece { op, rank, cpu, nic, start, end, work })
    }

    /// The acknowledgement has arrived: the payload may be sent.
    pub(super) fn payload(&mut self, op: u32, rank: u32, record: &Op) -> Result<(), EventError> {
        let (mut cost, local) = self.cost(op, record.size, rank, record.peer)?;
        if !local {
            cost.latency += self.latencies.of(rank, op);
        }
        let receive = self.counterpart(op, record);
        let piece = self.inject(self.states.time(op), op, rank, record, &cost, What::Payload)?;
        self.watch.sent(What::Payload, piece, &cost);
        let end = piece.end;
        let left = end + cost.transfer;
        self.end(rank, record.cpu, left);
        let moment = self.watch.left(op, rank, &cost);
        self.release(self.schedule.successors(op), rank, left, moment);
        self.states.set_time(op, end + cost.latency);
        self.queue.operation(end + cost.latency, receive, record.peer);
        Ok(())
    }

    /// A receive with its message: reserves the NIC and the overhead.
    #[inline]
    pub(super) fn receive(
        &mut self,
        op: u32,
        rank: u32,
        record: &Op,
        arrival: i64,
    ) -> Result<(), EventError> {
        let posted = self.states.time(op);
        let send = self.counterpart(op, record);
        let size = match record.pairing {
            // The message itself is far away in memory.
            Pairing::Fixed => record.size,
            _ => self.schedule.ops[send as usize].size,
        };
        let sender = if record.peer == ANY { self.schedule.rank_of(send) } else { record.peer };
        let (cost, _) = self.cost(op, size, sender, rank)?;
        if record.size < bytes_of(size) {
            let (receive, send) = (self.schedule.place(op), self.schedule.place(send));
            return Err(EventError::TooSmall { receive: Box::new(receive), send: Box::new(send) });
        }
        if self.handshake && cost.rendezvous && self.states.stage(op) != GRANTED {
            let granted = posted.max(arrival) + cost.latency;
            self.watch.granted(op, send, cost.latency);
            self.states.set_stage(op, GRANTED);
            self.states.set_time(send, granted);
            self.states.set_stage(send, GRANTED);
            if !record.pairing.is_fixed() {
                self.states.set_other(send, op);
            }
            self.queue.operation(granted, send, self.schedule.rank_of(send));
            return Ok(());
        }
        let base = self.schedule.slots[rank as usize] as usize;
        let (cpu, nic) = (base + record.cpu as usize, base + record.nic as usize);
        let recv_free = &mut self.slots[nic].recv_free;
        let first_byte = arrival.max(*recv_free);
        *recv_free = first_byte + cost.gap;
        let slot = &mut self.slots[cpu];
        let start = (first_byte + cost.transfer).max(slot.received);
        let taken = self.work.done(rank, &mut slot.met, start, cost.recv_cpu)?;
        let end = taken.max(posted);
        slot.received = end;
        slot.end = slot.end.max(end);
        let piece = Piece { op, rank, cpu, nic, start, end: taken, work: cost.recv_cpu };
        let moment = self.watch.received(piece, send, &cost);
        self.received += 1;
        self.states.set_stage(op, DONE);
        if !record.pairing.is_fixed() {
            self.states.set_stage(send, DONE);
        }
        if cost.rendezvous && !self.handshake {
            self.end(sender, self.schedule.ops[send as usize].cpu, end);
            self.watch.ended(send, sender, moment);
            self.release(self.schedule.successors(send), sender, end, moment);
        }
        self.release(self.schedule.successors(op), rank, end, moment);
        Ok(())
    }

    #[inline(always)]
    fn cost(
        &mut self,
        op: u32,
        bytes: u64,
        from: u32,
        to: u32,
    ) -> Result<(MessageCost, bool), EventError> {
        let place = || Box::new(self.schedule.place(op));
        let cost = self.costs.of(bytes, from, to);
        cost.map_err(|source| EventError::Message { place: place(), source })
    }

    /// The other end of an operation's message, once it is known.
    #[inline]
    pub(super) fn counterpart(&self, op: u32, record: &Op) -> u32 {
        if record.pairing.is_fixed() { record.partner } else { self.states.other(op) }
    }

    #[inline]
    fn end(&mut self, rank: u32, cpu: u8, time: i64) {
        let slot = &mut self.slots[self.schedule.slots[rank as usize] as usize + cpu as usize];
        slot.end = slot.end.max(time);
    }
}
