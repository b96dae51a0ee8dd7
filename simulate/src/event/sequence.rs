//! A schedule whose times follow from its dependencies alone, in an order in which each operation comes after
//! those it waits for: run for one set of ranks after the other, without a queue.
//!
//! The times are those of the engine, to the bit: where each send and calc of a rank depends on the one
//! before it, and each receive on the one before it, no order of events can change them.

use super::{
    EventError, Options, Rules,
    schedule::{Kind, Schedule},
    work::{Met, Work},
};
use crate::{
    loggops::{MessageCost, Params},
    noise::{Model, RunNoise},
    rounds::RankSlices,
};

/// See the module.
#[derive(Debug)]
pub struct Sequence {
    steps: Vec<Step>,
    /// What steps wait for: twice the number of a step, plus 1 if only for its start.
    before: Vec<u32>,
    /// Costs of messages; many have the same.
    costs: Vec<MessageCost>,
    ranks: u32,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    kind: Kind,
    rank: u32,
    /// Start in `before`; the next step's is the end.
    before: u32,
    /// Cost of a message.
    cost: u32,
    /// Picoseconds of a calc; of a receive, the step that sends its message.
    of: i64,
}

/// Start and end of each step; of a send also its arrival.
#[derive(Debug, Default)]
pub struct Moments {
    ends: Vec<[i64; 2]>,
    arrivals: Vec<i64>,
    /// When each rank of the set begins, and when its CPU is free.
    begins: Vec<[i64; 2]>,
}

impl Sequence {
    /// None if the order of events could change the times, or a message waits for its receiver.
    pub fn of(schedule: &Schedule, params: &Params, options: &Options) -> Option<Sequence> {
        let count = schedule.operations();
        let ordered = schedule.ordered.iter().all(|rank| rank.local && rank.receives);
        let single = schedule.slots.windows(2).all(|slots| slots[1] - slots[0] == 1);
        if options.model != Rules::Loggops
            || options.local.is_some()
            || !ordered
            || !single
            || !schedule.is_settled()
            || schedule.largest > params.eager_limit
        {
            return None;
        }
        let mut left = vec![0u32; count];
        // Steps that an operation waits for, as far as they are known.
        let mut before: Vec<Vec<u32>> = vec![Vec::new(); count];
        let mut sender: Vec<u32> = vec![u32::MAX; count];
        for op in 0..count as u32 {
            for &next in schedule.successors(op).iter().chain(schedule.start_successors(op)) {
                left[next as usize] += 1;
            }
            let record = &schedule.ops[op as usize];
            if record.kind == Kind::Recv {
                let send = schedule.ops.get(record.partner as usize)?;
                if !record.pairing.is_fixed() || send.kind != Kind::Send || record.size < send.size
                {
                    return None;
                }
                left[op as usize] += 1;
            } else if record.kind == Kind::Send && !record.pairing.is_fixed() {
                return None;
            }
        }
        let mut sequence = Sequence {
            steps: Vec::new(),
            before: Vec::new(),
            costs: Vec::new(),
            ranks: schedule.ranks(),
        };
        let mut free: Vec<(u32, u32)> = Vec::new();
        for rank in (0..schedule.ranks()).rev() {
            free.extend(
                schedule
                    .of_rank(rank)
                    .rev()
                    .filter(|&op| left[op as usize] == 0)
                    .map(|op| (op, rank)),
            );
        }
        while let Some((op, rank)) = free.pop() {
            let record = schedule.ops[op as usize];
            let number =
                u32::try_from(sequence.steps.len()).ok().filter(|number| *number < 1 << 30)?;
            let start = sequence.before.len() as u32;
            sequence.before.append(&mut before[op as usize]);
            let (cost, of) = match record.kind {
                Kind::Calc => (0, record.size as i64),
                Kind::Send => (sequence.cost(params, record.size)?, 0),
                Kind::Recv => {
                    let size = schedule.ops[record.partner as usize].size;
                    (sequence.cost(params, size)?, i64::from(sender[op as usize]))
                }
                // What they take depends on the times.
                Kind::Choice | Kind::Note => return None,
            };
            sequence.steps.push(Step { kind: record.kind, rank, before: start, cost, of });
            let mut release = |next: u32, rank: u32, by: Option<u32>| {
                before[next as usize].extend(by);
                left[next as usize] -= 1;
                if left[next as usize] == 0 {
                    free.push((next, rank));
                }
            };
            for &next in schedule.successors(op) {
                release(next, rank, Some(2 * number));
            }
            for &next in schedule.start_successors(op) {
                release(next, rank, Some(2 * number + 1));
            }
            if record.kind == Kind::Send {
                sender[record.partner as usize] = number;
                release(record.partner, record.peer, None);
            }
        }
        let end = sequence.before.len() as u32;
        // Where the last step's end.
        sequence.steps.push(Step { kind: Kind::Calc, rank: 0, before: end, cost: 0, of: 0 });
        (sequence.steps.len() == count + 1).then_some(sequence)
    }

    fn cost(&mut self, params: &Params, bytes: u64) -> Option<u32> {
        let cost = params.message(bytes).ok()?;
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

    /// Runs the schedule on each set of ranks; the first rank has this number in the noise.
    pub fn run_on(
        &self,
        noise: &RunNoise<'_>,
        first: u64,
        ranks: &mut RankSlices<'_>,
        moments: &mut Moments,
    ) -> Result<(), EventError> {
        moments.ends.resize(self.steps.len(), [0; 2]);
        moments.arrivals.resize(self.steps.len(), 0);
        let own = self.ranks as usize;
        for base in (0..ranks.ranks() / own.max(1) * own).step_by(own.max(1)) {
            let work = Work::new(&noise.from_rank(first + base as u64));
            self.run_one(&work, base, ranks, moments)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn run_one(
        &self,
        work: &Work<'_>,
        base: usize,
        ranks: &mut RankSlices<'_>,
        moments: &mut Moments,
    ) -> Result<(), EventError> {
        let own = self.ranks as usize;
        let Moments { ends: at, arrivals, begins } = moments;
        begins.clear();
        begins.extend(ranks.ends[base..base + own].iter().map(|&end| [end; 2]));
        for (number, pair) in self.steps.windows(2).enumerate() {
            let (step, next) = (&pair[0], &pair[1]);
            let place = base + step.rank as usize;
            let [mut ready, cpu_free] = begins[step.rank as usize];
            for &before in &self.before[step.before as usize..next.before as usize] {
                // Ends come first.
                ready = ready.max(at[(before >> 1) as usize][(before & 1) as usize]);
            }
            let mut met = Met::known(ranks.clear_from[place], ranks.clear_until[place]);
            let (start, end);
            match step.kind {
                Kind::Calc => {
                    start = ready.max(cpu_free);
                    end = work.done(step.rank, &mut met, start, step.of)?;
                    begins[step.rank as usize][1] = end;
                }
                Kind::Send => {
                    let cost = &self.costs[step.cost as usize];
                    start = ready.max(cpu_free).max(ranks.send_free[place]);
                    end = work.done(step.rank, &mut met, start, cost.send_cpu)?;
                    ranks.send_free[place] = end - cost.send_cpu + cost.gap;
                    arrivals[number] = end + cost.latency;
                    begins[step.rank as usize][1] = end;
                }
                Kind::Recv => {
                    let cost = &self.costs[step.cost as usize];
                    let first_byte = arrivals[step.of as usize].max(ranks.recv_free[place]);
                    ranks.recv_free[place] = first_byte + cost.gap;
                    let begin = (first_byte + cost.transfer).max(ranks.received[place]);
                    let taken = work.done(step.rank, &mut met, begin, cost.recv_cpu)?;
                    (start, end) = (ready, taken.max(ready));
                    ranks.received[place] = end;
                }
                // Not in a sequence.
                Kind::Choice | Kind::Note => (start, end) = (ready, ready),
            }
            ranks.ends[place] = ranks.ends[place].max(end);
            (ranks.clear_from[place], ranks.clear_until[place]) = met.clear();
            at[number] = [end, start];
        }
        Ok(())
    }
}
