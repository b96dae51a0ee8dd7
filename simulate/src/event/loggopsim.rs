//! LogGOPSim's rules as observed, quirks included, as used for published results. The numbers (Q1 and
//! so on) refer to the project's list of its quirks.
//!
//! An operation or message that finds its CPU or NIC busy goes back into the queue. Ties in time go to
//! the one created first.

use super::{
    EventError, ScheduleResult, Starts,
    builder::LONGEST,
    deadlock::{self, Progress},
    introsort,
    latencies::Latencies,
    log::{Log, Part},
    matching::Matcher,
    schedule::{Kind, NOBODY, Op, Schedule},
    watch_loggopsim::{Entry, LogGopSimRecorder, Nobody, Taken, WatchLogGopSim},
    wheel::{Key, Wheel},
    work::{Met, Work},
};
use crate::{
    loggops::{Local, Params, ParamsError},
    noise::RunNoise,
};

/// Sorts times before the start, which messages of 0 bytes lead to (Q4), before the others.
const SIGN: u64 = 1 << 63;

const DONE: u32 = u32::MAX;
const POSTED: u32 = u32::MAX - 1;
/// A message that arrived before its receive was posted.
const ARRIVED: u32 = u32::MAX - 2;
/// Begun: a send that has not been received, or a message in flight.
const BEGUN: u32 = u32::MAX - 3;

struct LogGopSim<'a, W> {
    schedule: &'a Schedule,
    watch: W,
    params: Params,
    local: Option<Local>,
    work: Work<'a>,
    /// Dependencies left, or one of the above.
    waits: Vec<u32>,
    owner: Vec<u32>,
    next_cpu: Vec<i64>,
    met: Vec<Met>,
    next_snd: Vec<i64>,
    next_rcv: Vec<i64>,
    matcher: Matcher<'a>,
    /// Time, then stamp, then the event: operation and whether it is the arrival of its message.
    queue: Wheel,
    stamp: u32,
    /// Released by the current event, with their hosts.
    freed: Vec<(u32, u32)>,
    latencies: Latencies<'a>,
    messages: u64,
}

/// Upper bound on the memory of a run.
pub(crate) fn bytes(schedule: &Schedule) -> usize {
    let cpu = size_of::<i64>() + size_of::<Met>();
    let nic = 2 * size_of::<i64>();
    // Most of them wait in the queue.
    let operation = 2 * size_of::<u32>() + size_of::<Key>();
    let rank = schedule.cpus * cpu + schedule.nics * nic;
    schedule.operations() * operation + schedule.ranks() as usize * rank
}

pub(crate) fn run(
    schedule: &Schedule,
    params: &Params,
    local: Option<Local>,
    noise: &RunNoise,
    starts: Starts<'_>,
) -> Result<ScheduleResult, EventError> {
    run_in(schedule, params, local, noise, starts, &mut Nobody)
}

/// The same run, logged.
pub(crate) fn record(
    schedule: &Schedule,
    params: &Params,
    noise: &RunNoise,
    log: &mut Log,
) -> Result<ScheduleResult, EventError> {
    let mut recorder = LogGopSimRecorder::new(log, schedule, params, Work::new(noise).has_clock());
    let outcome = run_in(schedule, params, None, noise, &[], &mut recorder)?;
    recorder.finish();
    Ok(outcome)
}

fn run_in(
    schedule: &Schedule,
    params: &Params,
    local: Option<Local>,
    noise: &RunNoise,
    starts: Starts<'_>,
    watch: &mut impl WatchLogGopSim,
) -> Result<ScheduleResult, EventError> {
    params.check()?;
    if schedule.has_choices() {
        return Err(EventError::Choices);
    }
    let ranks = schedule.ranks() as usize;
    let mut owner = Vec::with_capacity(schedule.operations());
    for rank in 0..schedule.ranks() {
        owner.resize(schedule.first[rank as usize + 1] as usize, rank);
    }
    let work = Work::new(noise);
    let cpus = ranks * schedule.cpus;
    let mut simulation = LogGopSim {
        schedule,
        watch,
        params: *params,
        local,
        work,
        waits: schedule.dependency_counts(),
        owner,
        next_cpu: vec![0; cpus],
        met: vec![Met::default(); if noise.is_none() { 0 } else { cpus }],
        next_snd: vec![0; ranks * schedule.nics],
        next_rcv: vec![0; ranks * schedule.nics],
        matcher: Matcher::new(schedule),
        queue: Wheel::new(),
        stamp: 0,
        freed: Vec::new(),
        latencies: Latencies::new(schedule, noise, &[]),
        messages: 0,
    };
    for (&start, cpus) in starts.iter().zip(simulation.next_cpu.chunks_mut(schedule.cpus)) {
        cpus.fill(start);
    }
    for rank in 0..schedule.ranks() {
        let free = schedule.of_rank(rank).filter(|&op| simulation.waits[op as usize] == 0);
        simulation.freed.extend(free.map(|op| (rank, op)));
        simulation.enqueue_freed();
    }
    simulation.go()?;
    simulation.outcome()
}

impl<W: WatchLogGopSim> LogGopSim<'_, &mut W> {
    fn go(&mut self) -> Result<(), EventError> {
        while let Some(key) = self.queue.pop() {
            let time = ((key >> 64) as u64 ^ SIGN) as i64;
            let (stamp, what) = ((key >> 32) as u32, key as u32);
            let op = what >> 1;
            let record = &self.schedule.ops[op as usize];
            if time > LONGEST {
                return Err(EventError::TooLong { rank: self.owner[op as usize] });
            }
            if what & 1 == 1 {
                self.message(time, stamp, op, record)?;
            } else {
                let host = self.owner[op as usize];
                match record.kind {
                    Kind::Calc => self.calc(time, stamp, op, record, host)?,
                    Kind::Send => self.send(time, stamp, op, record, host)?,
                    Kind::Recv => self.recv(time, op, record, host),
                    // Refused.
                    Kind::Choice | Kind::Note => {}
                }
            }
            self.enqueue_freed();
        }
        Ok(())
    }

    fn push(&mut self, time: i64, stamp: u32, op: u32, is_message: bool) {
        let what = op << 1 | u32::from(is_message);
        let key = u128::from(time as u64 ^ SIGN) << 64 | u128::from(stamp) << 32 | u128::from(what);
        self.queue.push(key);
    }

    fn stamp(&mut self) -> u32 {
        self.stamp += 1;
        self.stamp
    }

    fn cpu(&self, host: u32, index: u8) -> usize {
        host as usize * self.schedule.cpus + index as usize
    }

    fn nic(&self, host: u32, index: u8) -> usize {
        host as usize * self.schedule.nics + index as usize
    }

    /// The network between two ranks, and whether it is that of a node.
    fn network(&self, from: u32, to: u32) -> (Params, bool) {
        match self.local {
            Some(local) if local.is_between(from.into(), to.into()) => (local.params, true),
            _ => (self.params, false),
        }
    }

    fn entry(&self, op: u32, record: &Op, host: u32, is_message: bool) -> Entry {
        let (cpu, nic) = (self.cpu(host, record.cpu), self.nic(host, record.nic));
        Entry { op, rank: host, is_message, cpu, nic }
    }

    /// The delay that noise adds to an item of this nominal length (Q11).
    fn noise(&mut self, host: u32, cpu: usize, time: i64, length: i64) -> Result<i64, EventError> {
        let Some(met) = self.met.get_mut(cpu) else { return Ok(0) };
        // No noise before the start, where messages of 0 bytes may lead (Q4).
        let time = time.max(0);
        Ok(self.work.done(host, met, time, length)? - time - length)
    }

    /// (s-1) times a cost per byte; negative, by one byte, for 0 bytes (Q4).
    fn per_byte(bytes: u64, fs: i64) -> Result<i64, EventError> {
        let too_long = ParamsError::MessageTooLong { bytes };
        let more = i64::try_from(bytes).ok().map(|bytes| bytes - 1);
        let fs = more.and_then(|more| more.checked_mul(fs)).filter(|fs| fs / 1_000 <= LONGEST / 2);
        // The model's limit exceeds LogGOPSim's.
        fs.map(|fs| (fs + 500).div_euclid(1_000)).ok_or(too_long.into())
    }

    fn calc(
        &mut self,
        time: i64,
        stamp: u32,
        op: u32,
        record: &Op,
        host: u32,
    ) -> Result<(), EventError> {
        let entry = self.entry(op, record, host, false);
        let cpu = entry.cpu;
        if self.next_cpu[cpu] > time {
            self.watch.queued(entry, false);
            self.push(self.next_cpu[cpu], stamp, op, false);
            return Ok(());
        }
        let length = record.size as i64;
        let noise = self.noise(host, cpu, time, length)?;
        self.next_cpu[cpu] = time + length + noise;
        let more = (Part::Compute, 0);
        self.watch.calc(entry, Taken { start: time, asked: length, more, noise, transfer: 0 });
        self.waits[op as usize] = DONE;
        self.release(op, host, true);
        self.release(op, host, false);
        Ok(())
    }

    fn send(
        &mut self,
        time: i64,
        stamp: u32,
        op: u32,
        record: &Op,
        host: u32,
    ) -> Result<(), EventError> {
        let entry = self.entry(op, record, host, false);
        let Entry { cpu, nic, .. } = entry;
        let ready = self.next_cpu[cpu].max(self.next_snd[nic]);
        if ready > time {
            self.watch.queued(entry, true);
            self.push(ready, stamp, op, false);
            return Ok(());
        }
        let (params, is_local) = self.network(host, record.peer);
        let o = params.send_overhead;
        let bytes = record.size;
        let noise = self.noise(host, cpu, time, o)?;
        let (overhead, transfer) = (
            Self::per_byte(bytes, params.overhead_per_byte_fs)?,
            Self::per_byte(bytes, params.gap_per_byte_fs)?,
        );
        // Neither noise nor O delays the message itself (Q5).
        self.next_cpu[cpu] = time + o + overhead + noise;
        self.next_snd[nic] = time + params.gap + transfer;
        let more = (Part::OverheadPerByte, overhead);
        let mut latency = params.latency;
        if !is_local {
            latency += self.latencies.of(host, op);
        }
        if !record.pairing.is_fixed() {
            let arrival = self.latencies.in_order(host, record.peer, time + o + latency);
            latency = arrival - time - o;
        }
        self.watch.sent(entry, Taken { start: time, asked: o, more, noise, transfer }, latency);
        let message = self.stamp();
        self.push(time + o + latency, message, op, true);
        self.messages += 1;
        self.waits[op as usize] = BEGUN;
        self.release(op, host, true);
        if bytes <= params.eager_limit {
            self.waits[op as usize] = DONE;
            self.release(op, host, false);
        }
        Ok(())
    }

    /// Never waits for the CPU and costs nothing (Q2).
    fn recv(&mut self, time: i64, op: u32, record: &Op, host: u32) {
        self.release(op, host, true);
        let found = match record.pairing.is_fixed() {
            true => self.partner_in(ARRIVED, record),
            false => self.matcher.post(op),
        };
        let Some(send) = found else {
            self.waits[op as usize] = POSTED;
            return;
        };
        self.waits[op as usize] = DONE;
        self.waits[send as usize] = DONE;
        self.release(op, host, false);
        // The receive's size counts here (Q8), and its CPU and NIC.
        let limit = self.network(self.owner[send as usize], host).0.eager_limit;
        if record.size > limit {
            let entry = self.entry(op, record, host, false);
            self.end_send(time, entry, send, record.cpu, record.nic);
        } else if self.schedule.ops[send as usize].size > limit {
            self.waits[send as usize] = BEGUN;
        }
    }

    /// A message at its target: on the CPU and NIC that its sender named (Q2), whether or not a
    /// receive is posted (Q6).
    fn message(&mut self, time: i64, stamp: u32, op: u32, record: &Op) -> Result<(), EventError> {
        let host = record.peer;
        let entry = self.entry(op, record, host, true);
        let Entry { cpu, nic, .. } = entry;
        let ready = self.next_cpu[cpu].max(self.next_rcv[nic]);
        if ready > time {
            self.watch.queued(entry, true);
            self.push(ready, stamp, op, true);
            return Ok(());
        }
        let (params, _) = self.network(self.owner[op as usize], host);
        let (o, bytes) = (params.recv_overhead, record.size);
        let (overhead, gap) = (
            Self::per_byte(bytes, params.overhead_per_byte_fs)?,
            Self::per_byte(bytes, params.gap_per_byte_fs)?,
        );
        // Unsigned, as in LogGOPSim: a negative value becomes huge.
        let longer = if (overhead as u64) > (gap as u64) {
            (Part::OverheadPerByte, overhead)
        } else {
            (Part::GapPerByte, gap)
        };
        let noise = self.noise(host, cpu, time, o)?;
        self.next_cpu[cpu] = time + o + noise + longer.1;
        self.next_rcv[nic] = time + params.gap + gap;
        let taken = Taken { start: time, asked: o, more: longer, noise, transfer: gap };
        self.watch.arrived(entry, taken);
        let found = match record.pairing.is_fixed() {
            true => self.partner_in(POSTED, record),
            false => self.matcher.arrive(op),
        };
        let Some(receive) = found else {
            self.waits[op as usize] = ARRIVED;
            return Ok(());
        };
        self.waits[receive as usize] = DONE;
        self.waits[op as usize] = DONE;
        self.release(receive, host, false);
        if bytes > params.eager_limit {
            self.end_send(time, entry, op, record.cpu, record.nic);
        }
        Ok(())
    }

    /// The counterpart that was determined in advance, if it has reached this stage.
    fn partner_in(&self, stage: u32, record: &Op) -> Option<u32> {
        let partner = (record.partner != NOBODY).then_some(record.partner)?;
        (self.waits[partner as usize] == stage).then_some(partner)
    }

    /// The sender of a large message learns immediately that it has been received (Q7).
    fn end_send(&mut self, time: i64, by: Entry, send: u32, cpu: u8, nic: u8) {
        let sender = self.owner[send as usize];
        let (cpu, nic) = (self.cpu(sender, cpu), self.nic(sender, nic));
        self.watch.ended(by, send, cpu, nic);
        self.next_cpu[cpu] = self.next_cpu[cpu].max(time);
        self.next_snd[nic] = self.next_snd[nic].max(time);
        self.release(send, sender, false);
    }

    fn release(&mut self, op: u32, host: u32, start: bool) {
        let schedule = self.schedule;
        let successors =
            if start { schedule.start_successors(op) } else { schedule.successors(op) };
        for &successor in successors {
            let waits = &mut self.waits[successor as usize];
            // A small send matched by a large receive ends twice (Q8), and its successors have begun
            // by then.
            if *waits == 0 || *waits >= BEGUN {
                continue;
            }
            *waits -= 1;
            if *waits == 0 {
                self.freed.push((host, successor));
            }
        }
    }

    /// Host by host: sorted by kind, stamped, and queued for when the CPU is free, which may be before
    /// the current time if it is another CPU (Q1).
    fn enqueue_freed(&mut self) {
        if self.freed.is_empty() {
            return;
        }
        let mut freed = std::mem::take(&mut self.freed);
        // At most two hosts; the order within each is kept.
        freed.sort_by_key(|&(host, _)| host);
        let mut rest = freed.as_mut_slice();
        while let Some(&(host, _)) = rest.first() {
            let same = rest.iter().take_while(|freed| freed.0 == host).count();
            let (group, others) = std::mem::take(&mut rest).split_at_mut(same);
            introsort::sort(group, |&(_, op)| self.schedule.ops[op as usize].kind);
            for &(_, op) in group.iter() {
                let record = &self.schedule.ops[op as usize];
                let entry = self.entry(op, record, host, false);
                let mut time = self.next_cpu[entry.cpu];
                if record.kind == Kind::Send {
                    time = time.max(self.next_snd[entry.nic]);
                }
                self.watch.queued(entry, record.kind == Kind::Send);
                let stamp = self.stamp();
                self.push(time, stamp, op, false);
            }
            rest = others;
        }
        freed.clear();
        self.freed = freed;
    }

    /// LogGOPSim prints no times if receives or messages are left, and does not mention operations
    /// that never became free (Q8, Q9).
    fn outcome(self) -> Result<ScheduleResult, EventError> {
        let waits = |op: u32| self.waits[op as usize];
        let operations = self.schedule.operations() as u32;
        if (0..operations).any(|op| matches!(waits(op), POSTED | ARRIVED)) {
            let progress = |op: u32| match waits(op) {
                DONE => Progress::Done,
                POSTED | ARRIVED | BEGUN => Progress::Halfway,
                _ => Progress::Waiting,
            };
            let local = self.local.map_or(u64::MAX, |local| local.params.eager_limit);
            let limit = self.params.eager_limit.min(local);
            let large = |op: u32| self.schedule.ops[op as usize].size > limit;
            if let Some(error) = deadlock::explain(self.schedule, progress, large) {
                return Err(error);
            }
        }
        let unfinished = (0..operations).filter(|&op| waits(op) != DONE).count() as u64;
        let of_host = |cpus: &[i64]| cpus.iter().copied().max().unwrap_or(0);
        // NICs may be busy for longer (Q17).
        let ends = self.next_cpu.chunks(self.schedule.cpus).map(of_host).collect();
        Ok(ScheduleResult {
            ends,
            messages: self.messages,
            operations: u64::from(operations),
            unfinished,
        })
    }
}
