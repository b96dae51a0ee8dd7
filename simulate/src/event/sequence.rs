//! A schedule whose times follow from its dependencies alone, in an order in which each operation comes after
//! those it waits for: run without a queue, for several sets of ranks at a time ([`super::lockstep`]).
//!
//! The times are those of the engine, to the bit: where each send and calc of a rank depends on the one
//! before it, and each receive on the one before it, no order of events can change them. A large message occupies the CPU
//! of its sender twice; so what follows it must depend on its end, not only on its start.

use super::{
    Options, Rendezvous, Rules,
    order::Prover,
    schedule::{Kind, Schedule},
};
use crate::{
    loggops::{MessageCost, Params, bytes_of},
    noise::{Model, RunNoise},
};

/// See the module.
#[derive(Debug)]
pub struct Sequence {
    pub(super) steps: Vec<Step>,
    /// What steps wait for: twice the number of a step, plus 1 if only for its start.
    pub(super) before: Vec<u32>,
    /// Costs of messages; many have the same.
    pub(super) costs: Vec<MessageCost>,
    pub(super) ranks: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Do {
    Calc,
    Send,
    Receive,
    /// Announces a large message.
    Request,
    /// Posts a receive that others wait for to be posted.
    Post,
    /// Sends a large message, once its receive is posted.
    Payload,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub what: Do,
    pub rank: u32,
    /// Start in `before`; the next step's is the end.
    pub before: u32,
    /// Cost of a message.
    pub cost: u32,
    /// Picoseconds of a calc; of a receive, the step that sends its message; of a payload, its request.
    pub of: i64,
    /// Of a payload, the step that posts its receive. Of a receive, the rank whose message ends with it, or [`NOBODY`].
    pub also: u32,
}

pub(super) const NOBODY: u32 = u32::MAX;

/// Builds a sequence: which operations are free, and what the others wait for.
struct Building<'a> {
    schedule: &'a Schedule,
    sequence: Sequence,
    /// Dependencies of each operation that are not in the sequence yet.
    left: Vec<u32>,
    /// Those that are.
    before: Vec<Vec<u32>>,
    /// Of a message that is sent or announced, or of a receive that is posted by a step of its own: the step.
    step: Vec<u32>,
    /// Receives that are posted.
    posted: Vec<bool>,
    /// Operations whose dependencies are in the sequence, with their ranks.
    free: Vec<(u32, u32)>,
}

impl Building<'_> {
    fn push(&mut self, op: u32, what: Do, rank: u32, cost: u32, of: i64, also: u32) -> Option<u32> {
        let steps = &mut self.sequence.steps;
        let number = u32::try_from(steps.len()).ok().filter(|number| *number < 1 << 30)?;
        let start = self.sequence.before.len() as u32;
        self.sequence.before.append(&mut self.before[op as usize]);
        steps.push(Step { what, rank, before: start, cost, of, also });
        Some(number)
    }

    fn release(&mut self, next: u32, rank: u32, by: u32) {
        self.before[next as usize].push(by);
        self.left[next as usize] -= 1;
        if self.left[next as usize] == 0 {
            self.free.push((next, rank));
        }
    }

    fn started(&mut self, op: u32, rank: u32, number: u32) {
        for &next in self.schedule.start_successors(op) {
            self.release(next, rank, 2 * number + 1);
        }
    }

    fn ended(&mut self, op: u32, rank: u32, number: u32) {
        for &next in self.schedule.successors(op) {
            self.release(next, rank, 2 * number);
        }
    }

    /// An operation whose dependencies are in the sequence. A message goes on when it is sent and its receive is posted.
    fn take(&mut self, op: u32, rank: u32, handshake: bool, params: &Params) -> Option<()> {
        let record = self.schedule.ops[op as usize];
        let partner = record.partner as usize;
        match record.kind {
            Kind::Calc => {
                let number = self.push(op, Do::Calc, rank, 0, record.size as i64, NOBODY)?;
                self.started(op, rank, number);
                self.ended(op, rank, number);
            }
            Kind::Send => {
                let cost = self.sequence.cost(params, record.size)?;
                let large = self.sequence.costs[cost as usize].rendezvous;
                let what = if large && handshake { Do::Request } else { Do::Send };
                let number = self.push(op, what, rank, cost, 0, NOBODY)?;
                self.step[op as usize] = number;
                self.started(op, rank, number);
                if !large {
                    self.ended(op, rank, number);
                }
                if self.posted[partner] {
                    return self.transfer(op, rank, record.partner, record.peer, handshake, cost);
                }
            }
            Kind::Recv => {
                let cost = self.sequence.cost(params, self.schedule.ops[partner].size)?;
                let large = self.sequence.costs[cost as usize].rendezvous;
                self.posted[op as usize] = true;
                // Others wait for it to be posted, not only for its end.
                if large && handshake || !self.schedule.start_successors(op).is_empty() {
                    let number = self.push(op, Do::Post, rank, cost, 0, NOBODY)?;
                    self.step[op as usize] = number;
                    self.before[op as usize].push(2 * number + 1);
                    self.started(op, rank, number);
                }
                if self.step[partner] != NOBODY {
                    return self.transfer(record.partner, record.peer, op, rank, handshake, cost);
                }
            }
            // What they take depends on the times.
            Kind::Choice | Kind::Note => return None,
        }
        Some(())
    }

    /// A message that is sent or announced, and whose receive is posted.
    fn transfer(
        &mut self,
        send: u32,
        from: u32,
        receive: u32,
        to: u32,
        handshake: bool,
        cost: u32,
    ) -> Option<()> {
        let large = self.sequence.costs[cost as usize].rendezvous;
        let mut sent = self.step[send as usize];
        if large && handshake {
            let post = self.step[receive as usize];
            sent = self.push(send, Do::Payload, from, cost, i64::from(sent), post)?;
            self.ended(send, from, sent);
        }
        let ends = if large && !handshake { from } else { NOBODY };
        let number = self.push(receive, Do::Receive, to, cost, i64::from(sent), ends)?;
        self.ended(receive, to, number);
        if large && !handshake {
            self.ended(send, from, number);
        }
        Some(())
    }
}

impl Sequence {
    /// None if the order of events could change the times.
    pub fn of(schedule: &Schedule, params: &Params, options: &Options) -> Option<Sequence> {
        let count = schedule.operations();
        let single = schedule.slots.windows(2).all(|slots| slots[1] - slots[0] == 1);
        if options.model != Rules::Loggops
            || options.local.is_some()
            || !single
            || !schedule.is_settled()
            || !in_order(schedule, params)
        {
            return None;
        }
        let handshake = options.rendezvous == Rendezvous::Handshake;
        let mut left = vec![0u32; count];
        for op in 0..count as u32 {
            for &next in schedule.successors(op).iter().chain(schedule.start_successors(op)) {
                left[next as usize] += 1;
            }
            let record = &schedule.ops[op as usize];
            if record.kind == Kind::Recv {
                let send = schedule.ops.get(record.partner as usize)?;
                if !record.pairing.is_fixed()
                    || send.kind != Kind::Send
                    || record.size < bytes_of(send.size)
                    || record.peer >= schedule.ranks()
                {
                    return None;
                }
            } else if record.kind == Kind::Send && !record.pairing.is_fixed() {
                return None;
            }
        }
        let mut free: Vec<(u32, u32)> = Vec::new();
        for rank in (0..schedule.ranks()).rev() {
            let of_rank = schedule.of_rank(rank).rev();
            free.extend(of_rank.filter(|&op| left[op as usize] == 0).map(|op| (op, rank)));
        }
        let (steps, before, costs) = (Vec::new(), Vec::new(), Vec::new());
        let sequence = Sequence { steps, before, costs, ranks: schedule.ranks() };
        let (before, step, posted) =
            (vec![Vec::new(); count], vec![NOBODY; count], vec![false; count]);
        let mut building = Building { schedule, sequence, left, before, step, posted, free };
        while let Some((op, rank)) = building.free.pop() {
            building.take(op, rank, handshake, params)?;
        }
        // A large message that is never received, or an operation that is never free, is left to the engine.
        let Building { mut sequence, left, .. } = building;
        let of_message = |step: &&Step| step.what == Do::Receive;
        let received = sequence.steps.iter().filter(of_message).count();
        let ops = &schedule.ops[..count];
        let receives = ops.iter().filter(|op| op.kind == Kind::Recv).count();
        let sends = ops.iter().filter(|op| op.kind == Kind::Send).count();
        if left.iter().any(|left| *left > 0) || received != receives || received != sends {
            return None;
        }
        let before = sequence.before.len() as u32;
        // Where the last step's end.
        let end = Step { what: Do::Calc, rank: 0, before, cost: 0, of: 0, also: NOBODY };
        sequence.steps.push(end);
        Some(sequence)
    }

    fn cost(&mut self, params: &Params, bytes: u64) -> Option<u32> {
        let cost = params.marked_message(bytes).ok()?;
        let known = self.costs.iter().position(|known| *known == cost);
        let number = known.unwrap_or_else(|| {
            self.costs.push(cost);
            self.costs.len() - 1
        });
        u32::try_from(number).ok()
    }

    /// Ranks of a set.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Whether runs under this noise are possible.
    pub fn can(noise: &RunNoise<'_>) -> bool {
        (noise.is_none() || noise.model() == Model::Preempt) && noise.latencies().is_none()
    }
}

/// Whether the dependencies of each rank determine the order of its operations, with messages that wait for their
/// receivers.
fn in_order(schedule: &Schedule, params: &Params) -> bool {
    if schedule.never_waits(params.eager_limit) {
        return schedule.ordered.iter().all(|rank| rank.local && rank.receives);
    }
    let mut prover = Prover::default();
    (0..schedule.ranks()).all(|rank| {
        let ops = schedule.of_rank(rank);
        let edges = schedule.ops[ops.end as usize].successors as usize;
        let large = |op: &super::schedule::Op| {
            params.marked_message(op.size).is_ok_and(|cost| cost.rendezvous)
        };
        let (own, edges) = (&schedule.ops[..ops.end as usize], &schedule.edges[..edges]);
        let proven = prover.prove(own, edges, ops.start, large);
        proven.local && proven.receives
    })
}
