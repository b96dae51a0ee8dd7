//! What ranks waited for in a simulated run.
//!
//! A rank waits while its CPU does nothing before the last of its work. The wait is classed by what ends it:
//! a message that is received (its sender was late), the payload of a large message that is sent (its
//! receiver was late), or anything else (the NIC). So the classes add up to the time without work.

use crate::{
    event::{BEGINNING, Log, Moment, NOBODY, Part, Step, What},
    noise::{RunNoise, WorkError},
};

/// Waiting time by class, ps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    pub late_sender: i64,
    pub late_receiver: i64,
    /// Either of them for a message of a collective.
    pub collective: i64,
    pub nic: i64,
}

impl Waits {
    pub fn total(&self) -> i64 {
        self.late_sender + self.late_receiver + self.collective + self.nic
    }
}

/// What ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    LateSender,
    LateReceiver,
    Collective,
    Nic,
}

/// A wait of a rank, ps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    pub rank: u32,
    pub class: Class,
    pub begin: i64,
    pub end: i64,
    /// The operation that it ends with; after the last one of the rank, the large message that is waited for, or
    /// [`NOBODY`].
    pub op: u32,
    /// The step that it ends with.
    step: u32,
    /// The step after which it begins; [`NOBODY`] at the beginning.
    after: u32,
}

/// Why somebody was late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    Compute,
    /// Noise of this source.
    Noise(u32),
    /// CPU time of messages: o and O.
    Overhead,
    /// g, G and L of a message.
    Network,
    /// Nothing in the log explains it.
    Unexplained,
}

/// A part of a wait, or of the critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late {
    pub cause: Cause,
    /// The rank that was late, or that sent the message, and its operation; [`NOBODY`] if that is not known.
    pub rank: u32,
    pub op: u32,
    pub ps: i64,
}

impl Late {
    fn unexplained(ps: i64) -> Late {
        Late { cause: Cause::Unexplained, rank: NOBODY, op: NOBODY, ps }
    }
}

/// The waits of each rank from its start at 0 to its end.
pub fn of(log: &Log, is_collective: impl Fn(u32) -> bool) -> Vec<Waits> {
    let mut waits = vec![Waits::default(); log.ranks() as usize];
    for wait in each(log, is_collective) {
        let own = &mut waits[wait.rank as usize];
        let class = match wait.class {
            Class::LateSender => &mut own.late_sender,
            Class::LateReceiver => &mut own.late_receiver,
            Class::Collective => &mut own.collective,
            Class::Nic => &mut own.nic,
        };
        *class += wait.end - wait.begin;
    }
    waits
}

/// Every wait, by rank and time.
pub fn each(log: &Log, is_collective: impl Fn(u32) -> bool) -> Vec<Wait> {
    let mut waits = Vec::new();
    let mut steps = by_rank_and_time(log).into_iter().peekable();
    for rank in 0..log.ranks() {
        // Until when the rank has worked, in which step, and whether what it did last is a large message.
        let (mut busy, mut after, mut sending) = (0, NOBODY, None);
        while let Some(number) = steps.next_if(|step| log.steps()[*step as usize].rank == rank) {
            let step = &log.steps()[number as usize];
            if step.start > busy {
                let of_sending = sending.is_some_and(&is_collective);
                let class = match (step.what, sending) {
                    (What::Receive | What::Payload, _) if is_collective(step.op) => {
                        Class::Collective
                    }
                    (What::Receive, _) => Class::LateSender,
                    (What::Payload, _) => Class::LateReceiver,
                    (_, Some(_)) if is_collective(step.op) || of_sending => Class::Collective,
                    (_, Some(_)) => Class::LateReceiver,
                    _ => Class::Nic,
                };
                let (begin, end) = (busy, step.start);
                waits.push(Wait { rank, class, begin, end, op: step.op, step: number, after });
            }
            if step.end > busy {
                (busy, after) = (step.end, number);
            }
            sending = match step.what {
                What::Request | What::Payload => Some(step.op),
                // By the closed form, a large send ends with its receive.
                What::Send if step.done > step.end => Some(step.op),
                _ => None,
            };
        }
        // After the last of its work, a rank may still wait for a large message to be received.
        if log.end(rank) > busy {
            let class = match sending {
                Some(op) if is_collective(op) => Class::Collective,
                _ => Class::LateReceiver,
            };
            let (op, end) = (sending.unwrap_or(NOBODY), log.end(rank));
            waits.push(Wait { rank, class, begin: busy, end, op, step: NOBODY, after });
        }
    }
    waits
}

/// The steps of one rank after the other, in the order of time. Those of a rank are nearly in order in the log.
fn by_rank_and_time(log: &Log) -> Vec<u32> {
    let steps = log.steps();
    let mut next = vec![0usize; log.ranks() as usize + 1];
    for step in steps {
        next[step.rank as usize + 1] += 1;
    }
    for rank in 1..next.len() {
        next[rank] += next[rank - 1];
    }
    let firsts = next.clone();
    let mut order = vec![0u32; steps.len()];
    for (number, step) in (0..).zip(steps) {
        let place = &mut next[step.rank as usize];
        order[*place] = number;
        *place += 1;
    }
    for ends in firsts.windows(2) {
        let key = |number: &u32| {
            let step = &steps[*number as usize];
            (step.start, step.end)
        };
        order[ends[0]..ends[1]].sort_by_key(key);
    }
    order
}

/// Moments of the two paths of a wait that are compared at most. Ranks that communicate often part rarely longer.
const MOST: u32 = 4096;

/// Follows paths back into the past. Every moment follows from one other, so every moment has one path, on which
/// nothing waits.
pub struct Followed<'a> {
    log: &'a Log,
    noise: &'a RunNoise<'a>,
    /// The moments at which each step starts, and ends.
    starts: Vec<u32>,
    finishes: Vec<u32>,
    hits: Vec<(u32, i64)>,
}

impl<'a> Followed<'a> {
    /// Takes the log of a run and the noise of that run.
    pub fn new(log: &'a Log, noise: &'a RunNoise<'a>) -> Followed<'a> {
        let mut starts = vec![BEGINNING; log.steps().len()];
        let mut finishes = starts.clone();
        for (number, moment) in (0..).zip(&log.moments) {
            let Some(step) = log.steps().get(moment.step as usize) else { continue };
            if moment.time == step.end && log.time(moment.from) == step.start {
                starts[moment.step as usize] = moment.from;
                finishes[moment.step as usize] = number;
            }
        }
        Followed { log, noise, starts, finishes, hits: Vec::new() }
    }

    /// What is on the two paths of a wait since they parted: on the one into its end (true), which is that of what
    /// was late, and on the one into its beginning. The first is longer by the wait, unless it is not known where
    /// they parted; then some or all of it is missing.
    pub fn parted(
        &mut self,
        wait: &Wait,
        mut tell: impl FnMut(bool, Late),
    ) -> Result<(), WorkError> {
        let mut late = match self.starts.get(wait.step as usize) {
            Some(start) => *start,
            None => self.log.ends[wait.rank as usize],
        };
        let after = self.finishes.get(wait.after as usize);
        let mut waiting = after.copied().unwrap_or(BEGINNING);
        let times = (self.log.time(waiting), self.log.time(late));
        if times != (wait.begin, wait.end) {
            return Ok(());
        }
        for _ in 0..MOST {
            if late == waiting {
                break;
            }
            // A moment follows from one before it in the log, so the other path cannot come to this one any more.
            let of_late = late > waiting;
            let at = if of_late { &mut late } else { &mut waiting };
            let from = self.log.moments[*at as usize].from;
            let moment = std::mem::replace(at, from);
            self.before(moment, &mut |part| tell(of_late, part))?;
        }
        Ok(())
    }

    /// The critical path, from its end.
    pub fn path(&mut self, mut tell: impl FnMut(Late)) -> Result<(), WorkError> {
        let mut at = self.log.ends[self.log.last() as usize];
        while at != BEGINNING {
            self.before(at, &mut tell)?;
            at = self.log.moments[at as usize].from;
        }
        Ok(())
    }

    /// What the time between a moment and the one before it was spent on.
    fn before(&mut self, moment: u32, tell: &mut impl FnMut(Late)) -> Result<(), WorkError> {
        let Moment { time, from, step, cost } = self.log.moments[moment as usize];
        let mut left = time - self.log.time(from);
        if left <= 0 {
            return Ok(());
        }
        let Some(of) = self.log.steps().get(step as usize) else {
            tell(Late::unexplained(left));
            return Ok(());
        };
        if cost.noisy && of.noise > 0 {
            let most = of.noise.min(left);
            left -= self.noisy(of, most, tell)?;
        }
        let cause = match cost.first {
            Part::Compute => Cause::Compute,
            Part::Overhead | Part::OverheadPerByte => Cause::Overhead,
            _ => Cause::Network,
        };
        if left > 0 {
            tell(Late { cause, rank: of.rank, op: of.op, ps: left });
        }
        Ok(())
    }

    /// Shares out the noise of a step among its sources, at most this much; returns how much that was.
    fn noisy(
        &mut self,
        step: &Step,
        most: i64,
        tell: &mut impl FnMut(Late),
    ) -> Result<i64, WorkError> {
        self.hits.clear();
        let hits = &mut self.hits;
        let local = self.noise.local(u64::from(step.rank));
        local.hits(self.noise.model(), step.clock, step.asked, |hit| {
            hits.push((hit.source, hit.length));
        })?;
        let all: i128 = hits.iter().map(|(_, length)| i128::from(*length)).sum();
        let (mut sum, mut given) = (0i128, 0i64);
        for (source, length) in hits.iter() {
            sum += i128::from(*length);
            let until = (sum * i128::from(most) / all.max(1)) as i64;
            if until > given {
                let (rank, op) = (step.rank, step.op);
                tell(Late { cause: Cause::Noise(*source), rank, op, ps: until - given });
                given = until;
            }
        }
        Ok(given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{self, Options, ScheduleBuilder, Scratch},
        loggops::Params,
        noise::Noise,
    };

    /// Waits on a network with L = 1 us and o = 100 ns; messages above 100 bytes shake hands.
    fn waits(build: impl FnOnce(&mut ScheduleBuilder)) -> (Vec<Waits>, Vec<i64>) {
        let mut builder = ScheduleBuilder::new(2);
        build(&mut builder);
        let schedule = builder.finish().unwrap();
        let net = Params {
            latency: 1_000_000,
            send_overhead: 100_000,
            recv_overhead: 100_000,
            eager_limit: 100,
            ..Params::FREE
        };
        let options = Options { rendezvous: event::Rendezvous::Handshake, ..Options::default() };
        let (mut scratch, mut log) = (Scratch::default(), Log::default());
        let silent = Noise::none();
        let run =
            event::run_logged(&mut scratch, &schedule, &net, &options, &silent.run(0, 0), &mut log);
        (of(&log, |_| false), run.unwrap().ends)
    }

    #[test]
    fn a_receive_waits_for_a_late_sender() {
        let (waits, ends) = waits(|b| {
            b.begin_rank();
            let calc = b.calc(10_000_000, 0);
            let send = b.send(1, 1, 0, 0, 0);
            b.requires(send, calc);
            b.begin_rank();
            let calc = b.calc(3_000_000, 0);
            let recv = b.recv(1, 0, 0, 0, 0);
            b.requires(recv, calc);
        });
        // The message is there after 11.1 us.
        assert_eq!(ends, [10_100_000, 11_200_000]);
        assert_eq!(waits[0].total(), 0);
        assert_eq!(waits[1], Waits { late_sender: 8_100_000, ..Waits::default() });
    }

    #[test]
    fn a_large_message_waits_for_a_late_receiver() {
        let (waits, ends) = waits(|b| {
            b.begin_rank();
            let send = b.send(1_000, 1, 0, 0, 0);
            let calc = b.calc(1_000_000, 0);
            b.requires(calc, send);
            b.begin_rank();
            let calc = b.calc(10_000_000, 0);
            let recv = b.recv(1_000, 0, 0, 0, 0);
            b.requires(recv, calc);
        });
        let idle = |rank: usize, worked: i64| ends[rank] - worked;
        // Request and payload cost o each, then it computes.
        assert_eq!(waits[0].total(), idle(0, 1_200_000));
        assert_eq!(waits[0].late_receiver, waits[0].total());
        assert!(waits[0].total() > 9_000_000, "{waits:?} {ends:?}");
    }
}
