//! A second implementation of the exact rules, as plain as possible: one ordered set of events, lists
//! that are searched, no shortcuts. Also reports what each rank did when.

use std::collections::{BTreeSet, HashMap};

use simulate::{
    event::{Action, Rendezvous, Schedule},
    loggops::{MessageCost, Params},
    noise::{Model, RunNoise},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    Work,
    /// As long as LogGOPSim occupies the CPU: from the first byte, o + (s-1) max(G, O).
    Receive,
}

pub struct Span {
    pub rank: u32,
    pub cpu: u8,
    pub did: Did,
    pub start: i64,
    pub end: i64,
}

pub struct Told {
    pub ends: Vec<i64>,
    pub spans: Vec<Span>,
    /// A receive was posted after its message had arrived and after another had been received:
    /// LogGOPSim takes messages when they arrive, the exact rules when they are matched.
    pub out_of_order: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Arrival(u32),
    Operation(u32),
}

/// How far a large message is that asks its receiver first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Granted,
    Sent,
}

struct World<'a> {
    schedule: &'a Schedule,
    params: &'a Params,
    rendezvous: Rendezvous,
    noise: &'a RunNoise<'a>,
    events: BTreeSet<(i64, u32, What)>,
    left: Vec<u32>,
    ready: Vec<i64>,
    arrival: HashMap<u32, i64>,
    asked: HashMap<u32, Asked>,
    matched: HashMap<u32, u32>,
    posted: Vec<Vec<u32>>,
    arrived: Vec<Vec<u32>>,
    cpu: HashMap<(u32, u8), i64>,
    received: HashMap<(u32, u8), i64>,
    send_free: HashMap<(u32, u8), i64>,
    recv_free: HashMap<(u32, u8), i64>,
    latest_arrival: HashMap<u32, i64>,
    told: Told,
}

pub fn simulate(
    schedule: &Schedule,
    params: &Params,
    rendezvous: Rendezvous,
    noise: &RunNoise,
) -> Told {
    let ranks = schedule.ranks() as usize;
    let told = Told { ends: vec![0; ranks], spans: Vec::new(), out_of_order: false };
    let mut world = World {
        schedule,
        params,
        rendezvous,
        noise,
        events: BTreeSet::new(),
        left: schedule.dependency_counts(),
        ready: vec![0; schedule.operations()],
        arrival: HashMap::new(),
        asked: HashMap::new(),
        matched: HashMap::new(),
        posted: vec![Vec::new(); ranks],
        arrived: vec![Vec::new(); ranks],
        cpu: HashMap::new(),
        received: HashMap::new(),
        send_free: HashMap::new(),
        recv_free: HashMap::new(),
        latest_arrival: HashMap::new(),
        told,
    };
    for op in 0..schedule.operations() as u32 {
        if world.left[op as usize] == 0 {
            world.events.insert((0, schedule.rank_of(op), What::Operation(op)));
        }
    }
    while let Some((time, rank, what)) = world.events.pop_first() {
        match what {
            What::Arrival(send) => world.arrive(time, rank, send),
            What::Operation(op) => world.operation(rank, op),
        }
    }
    world.told
}

impl World<'_> {
    fn work(&self, rank: u32, start: i64, work: i64) -> i64 {
        if self.noise.is_none() {
            return start + work;
        }
        let local = self.noise.local(u64::from(rank));
        match self.noise.model() {
            Model::LogGopSim => local.loggopsim(start, work).unwrap(),
            _ => local.preempt(start, work).unwrap(),
        }
    }

    fn release(&mut self, rank: u32, successors: &[u32], time: i64) {
        for &op in successors {
            let at = op as usize;
            self.ready[at] = self.ready[at].max(time);
            self.left[at] -= 1;
            if self.left[at] == 0 {
                self.events.insert((self.ready[at], rank, What::Operation(op)));
            }
        }
    }

    fn end(&mut self, rank: u32, time: i64) {
        let end = &mut self.told.ends[rank as usize];
        *end = (*end).max(time);
    }

    fn fits(&self, receive: u32, send: u32) -> bool {
        let Action::Send { tag: sent, .. } = self.schedule.operation(send).action else {
            return false;
        };
        let Action::Recv { from, tag, .. } = self.schedule.operation(receive).action else {
            return false;
        };
        from.is_none_or(|from| from == self.schedule.rank_of(send))
            && (tag.is_none() || sent.is_none() || tag == sent)
    }

    fn arrive(&mut self, time: i64, rank: u32, send: u32) {
        let list = &self.posted[rank as usize];
        match list.iter().position(|&receive| self.fits(receive, send)) {
            Some(at) => {
                let receive = self.posted[rank as usize].remove(at);
                self.matched.insert(receive, send);
                self.events.insert((time, rank, What::Operation(receive)));
            }
            None => self.arrived[rank as usize].push(send),
        }
    }

    fn operation(&mut self, rank: u32, op: u32) {
        let schedule = self.schedule;
        let operation = schedule.operation(op);
        let (cpu, nic) = ((rank, operation.cpu), (rank, operation.nic));
        let ready = self.ready[op as usize];
        let free = |map: &HashMap<(u32, u8), i64>, key| map.get(&key).copied().unwrap_or(0);
        let did = Did::Work;
        match operation.action {
            Action::Calc { ps } => {
                let start = ready.max(free(&self.cpu, cpu));
                let end = self.work(rank, start, ps);
                self.cpu.insert(cpu, end);
                self.told.spans.push(Span { rank, cpu: cpu.1, did, start, end });
                self.end(rank, end);
                self.release(rank, schedule.start_successors(op), start);
                self.release(rank, schedule.successors(op), end);
            }
            Action::Send { bytes, to, .. } => {
                let cost = self.params.message(bytes).unwrap();
                let granted = self.asked.get(&op) == Some(&Asked::Granted);
                let asks = self.asks(&cost) && !granted;
                let ready = if granted { self.arrival[&op] } else { ready };
                let start = ready.max(free(&self.cpu, cpu)).max(free(&self.send_free, nic));
                let work = if asks { self.params.send_overhead } else { cost.send_cpu };
                let end = self.work(rank, start, work);
                self.cpu.insert(cpu, end);
                if !asks {
                    // From when the NIC gets the message, delayed by the detours.
                    self.send_free.insert(nic, end - work + cost.gap);
                }
                self.told.spans.push(Span { rank, cpu: cpu.1, did, start, end });
                self.end(rank, end);
                self.arrival.insert(op, end + cost.latency);
                if granted {
                    // The last byte has left.
                    let left = end + cost.transfer;
                    self.end(rank, left);
                    self.release(rank, schedule.successors(op), left);
                    self.asked.insert(op, Asked::Sent);
                    let receive = self.matched.iter().find(|(_, send)| **send == op);
                    let receive = *receive.unwrap().0;
                    self.events.insert((end + cost.latency, to, What::Operation(receive)));
                    return;
                }
                self.release(rank, schedule.start_successors(op), start);
                if !cost.rendezvous {
                    self.release(rank, schedule.successors(op), end);
                }
                self.events.insert((end + cost.latency, to, What::Arrival(op)));
            }
            Action::Choice { .. } | Action::Request => unreachable!("GOAL has no choices"),
            Action::Recv { .. } => {
                if let Some(&send) = self.matched.get(&op) {
                    return self.receive(rank, op, send, ready);
                }
                self.release(rank, schedule.start_successors(op), ready);
                let list = &self.arrived[rank as usize];
                match list.iter().position(|&send| self.fits(op, send)) {
                    Some(at) => {
                        let send = self.arrived[rank as usize].remove(at);
                        self.matched.insert(op, send);
                        self.receive(rank, op, send, ready);
                    }
                    None => self.posted[rank as usize].push(op),
                }
            }
        }
    }

    /// Whether a message asks its receiver before it is sent.
    fn asks(&self, cost: &MessageCost) -> bool {
        cost.rendezvous && self.rendezvous == Rendezvous::Handshake
    }

    fn receive(&mut self, rank: u32, op: u32, send: u32, posted: i64) {
        let operation = self.schedule.operation(op);
        let Action::Send { bytes, .. } = self.schedule.operation(send).action else { return };
        let cost = self.params.message(bytes).unwrap();
        if self.asks(&cost) && !self.asked.contains_key(&send) {
            let granted = posted.max(self.arrival[&send]) + cost.latency;
            self.asked.insert(send, Asked::Granted);
            self.arrival.insert(send, granted);
            self.events.insert((granted, self.schedule.rank_of(send), What::Operation(send)));
            return;
        }
        let asks = self.asks(&cost);
        let MessageCost { recv_cpu: overhead, transfer, gap, rendezvous, .. } = cost;
        let (cpu, nic) = ((rank, operation.cpu), (rank, operation.nic));
        let arrival = self.arrival[&send];
        let latest = self.latest_arrival.entry(rank).or_insert(arrival);
        self.told.out_of_order |= arrival < *latest;
        *latest = arrival.max(*latest);
        let first_byte = arrival.max(self.recv_free.get(&nic).copied().unwrap_or(0));
        self.recv_free.insert(nic, first_byte + gap);
        let start = (first_byte + transfer).max(self.received.get(&cpu).copied().unwrap_or(0));
        let end = self.work(rank, start, overhead).max(posted);
        self.received.insert(cpu, end);
        let held = self.params.recv_overhead + transfer.max(overhead - self.params.recv_overhead);
        self.told.spans.push(Span {
            rank,
            cpu: operation.cpu,
            did: Did::Receive,
            start: first_byte,
            end: first_byte + held,
        });
        self.end(rank, end);
        if rendezvous && !asks {
            let sender = self.schedule.rank_of(send);
            self.end(sender, end);
            self.release(sender, self.schedule.successors(send), end);
        }
        self.release(rank, self.schedule.successors(op), end);
    }
}
