//! A program in segments: what ranks do between collectives of all of them, and those collectives.
//!
//! Extrapolated, a program is many copies of the traced one that meet only in such collectives. So a segment
//! is one schedule of the traced ranks, shared by all copies, and a collective goes through the round engine:
//! arrival times in, end times out. Millions of ranks then need the memory of the trace and a few words each.
//! The times are those of the whole program as one schedule, to the bit.

use std::{collections::HashMap, ops::Range};

use simulate::{
    collectives::Op,
    event::{self, Carried, Moments, Options, Schedule, Sequence},
    job::Job,
    loggops::Params,
    noise::{Model, Noise, RunNoise, draw},
    rounds::{self, RankSlices, RankStates},
    sweep::{Plan as Runs, SweepError},
};

use crate::{
    error::ScheduleError,
    expand::{Only, Plan},
    step::{Application, NONE, Operation, Step},
};

enum Segment {
    /// What the ranks of each copy do, in an order that does not depend on the times.
    InOrder(Box<Sequence>),
    /// The same if the order depends on the times.
    Local(Box<Schedule>),
    /// A collective of all ranks of all copies.
    Whole(Box<Job>),
}

/// A program that can be run segment by segment.
pub struct Segments {
    segments: Vec<Segment>,
    /// Ranks of a copy, and copies.
    own: u32,
    copies: u32,
    messages: u64,
}

/// A collective of all ranks, as all of them call it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Whole {
    op: Op,
    bytes: u64,
    channel: u32,
}

impl Application {
    /// The program in segments. None if it cannot be divided exactly: messages or requests cross a collective
    /// of all ranks, such a collective is not blocking, has a size for each peer or a root other than rank 0,
    /// receives take any message, or the network or the noise carry something over that only a schedule of
    /// all ranks knows.
    pub fn segments(
        &self,
        plan: &Plan<'_>,
        params: &Params,
        options: &Options,
        noise: &Noise,
    ) -> Result<Option<Segments>, ScheduleError> {
        let varies = noise.run(0, 0).latencies().is_some();
        if options.model != event::Rules::Loggops
            || options.local.is_some()
            || varies
            || noise.model() != Model::Preempt
        {
            return Ok(None);
        }
        // Without collectives nothing has all copies.
        let (wholes, cuts) = match plan.only {
            Some(Only::PointToPoint) => (Vec::new(), vec![Vec::new(); self.tapes.len()]),
            _ => {
                let Some(wholes) = self.wholes() else { return Ok(None) };
                let Some(cuts) = self.cuts(wholes.len()) else { return Ok(None) };
                (wholes, cuts)
            }
        };
        let ranks = u64::from(self.ranks()) * u64::from(plan.copies);
        let mut segments = Vec::new();
        let mut messages = 0;
        for place in 0..=wholes.len() {
            let steps: Vec<Range<usize>> = cuts
                .iter()
                .zip(&self.tapes)
                .map(|(cuts, tape)| {
                    let begin = place.checked_sub(1).map_or(0, |before| cuts[before] + 1);
                    begin..cuts.get(place).copied().unwrap_or(tape.steps.len())
                })
                .collect();
            let schedule = self.part(plan, &steps)?;
            if !schedule.is_settled() {
                return Ok(None);
            }
            messages += schedule.messages() * u64::from(plan.copies);
            // The first one makes the ranks known, even if they do nothing.
            if schedule.operations() > 0 || segments.is_empty() {
                let quiet = noise.run(0, 0);
                let sequence = Sequence::of(&schedule, params, options);
                segments.push(match sequence.filter(|_| Sequence::can(&quiet)) {
                    Some(sequence) => Segment::InOrder(Box::new(sequence)),
                    None => Segment::Local(Box::new(schedule)),
                });
            }
            let Some(whole) = wholes.get(place) else { break };
            let collective = plan.rules.collective(whole.op, ranks, whole.bytes, plan.net)?;
            messages += collective.messages();
            let Ok(job) = Job::new(collective, *params) else { return Ok(None) };
            let job = job.with_rendezvous(options.rendezvous);
            if !rounds::can(&job, &noise.run(0, 0)) {
                return Ok(None);
            }
            segments.push(Segment::Whole(Box::new(job)));
        }
        Ok(Some(Segments { segments, own: self.ranks(), copies: plan.copies, messages }))
    }

    /// The collectives of all ranks, in order; None if ranks do not agree on them.
    fn wholes(&self) -> Option<Vec<Whole>> {
        let mut all: Option<Vec<Whole>> = None;
        for tape in &self.tapes {
            let mut own = Vec::new();
            for step in &tape.steps {
                let Step::Collective { call, request } = *step else { continue };
                let call = tape.calls.get(call as usize)?;
                if !self.is_whole(call.group) {
                    continue;
                }
                let members = &self.groups.get(call.group as usize)?.members;
                let in_order = members.iter().zip(0..).all(|(member, rank)| *member == rank);
                let Operation::Regular { op, bytes, root: 0 } = call.operation else { return None };
                if request != NONE || !in_order {
                    return None;
                }
                own.push(Whole { op, bytes, channel: call.channel });
            }
            match &all {
                Some(all) if *all != own => return None,
                _ => all = Some(own),
            }
        }
        all
    }

    /// Where these collectives are in the steps of each rank. None if something crosses one of them.
    fn cuts(&self, wholes: usize) -> Option<Vec<Vec<usize>>> {
        let mut cuts = vec![Vec::with_capacity(wholes); self.tapes.len()];
        // Messages of a channel between two ranks that have been sent and not received, by segment.
        let mut open: Vec<HashMap<(u32, u32, u32), i64>> = vec![HashMap::new(); wholes + 1];
        for ((rank, tape), cuts) in (0..).zip(&self.tapes).zip(&mut cuts) {
            let mut waiting = vec![false; tape.requests as usize];
            let mut under_way = 0usize;
            for (at, step) in tape.steps.iter().enumerate() {
                let segment = open.get_mut(cuts.len())?;
                match *step {
                    Step::Send { to, channel, .. } => {
                        *segment.entry((rank, to, channel)).or_insert(0) += 1
                    }
                    Step::Receive { from, channel, .. } => {
                        if from == NONE || channel == NONE {
                            return None;
                        }
                        *segment.entry((from, rank, channel)).or_insert(0) -= 1;
                    }
                    Step::Collective { call, .. } => {
                        let call = tape.calls.get(call as usize)?;
                        if self.is_whole(call.group) {
                            if under_way > 0 {
                                return None;
                            }
                            cuts.push(at);
                        }
                    }
                    _ => {}
                }
                match *step {
                    Step::Send { request, .. }
                    | Step::Receive { request, .. }
                    | Step::Collective { request, .. } => {
                        if let Some(waiting) = waiting.get_mut(request as usize) {
                            under_way += usize::from(!*waiting);
                            *waiting = true;
                        }
                    }
                    Step::Choose { first, count, .. } => {
                        let candidates = tape.candidates(first, count).iter();
                        for &slot in candidates.filter(|one| one.done).flat_map(|one| &one.parts) {
                            if let Some(waiting) = waiting.get_mut(slot as usize) {
                                under_way -= usize::from(*waiting);
                                *waiting = false;
                            }
                        }
                    }
                    Step::Wait { request } => {
                        if let Some(waiting) = waiting.get_mut(request as usize) {
                            under_way -= usize::from(*waiting);
                            *waiting = false;
                        }
                    }
                    _ => {}
                }
            }
        }
        let even = open.iter().all(|segment| segment.values().all(|left| *left == 0));
        even.then_some(cuts)
    }
}

/// From so many ranks on, the copies of one run are divided among threads.
const MANY_RANKS: u64 = 1 << 15;

/// Memory of a run, reused by the next one.
#[derive(Default)]
struct Scratch {
    workers: Vec<Worker>,
    rounds: rounds::Scratch,
    ranks: RankStates,
}

/// Memory of a thread.
#[derive(Default)]
struct Worker {
    events: event::Scratch,
    carried: Carried,
    moments: Moments,
}

impl Segments {
    pub fn ranks(&self) -> u64 {
        u64::from(self.own) * u64::from(self.copies)
    }

    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// When the last rank finishes in each of these runs, ps: the same as those of [`simulate::replay`].
    pub fn times(
        &self,
        params: &Params,
        options: &Options,
        noise: &Noise,
        plan: &Runs<'_>,
        runs: Range<u64>,
    ) -> Result<Vec<i64>, SweepError> {
        noise.check(self.ranks())?;
        let large = self.ranks() >= MANY_RANKS;
        let (across, within) = if large { (1, plan.threads) } else { (plan.threads, 1) };
        let count = runs.end.saturating_sub(runs.start) as usize;
        let each = count.div_ceil(across.max(1)).max(1);
        let numbers: Vec<u64> = runs.collect();
        let work = |numbers: &[u64]| -> Result<Vec<i64>, SweepError> {
            let mut scratch =
                Scratch { rounds: rounds::Scratch::keeping_ends(), ..Scratch::default() };
            let one = |run: &u64| {
                let met = noise.run(draw(plan.seed, self.ranks()), *run);
                let time = self.run(params, options, &met, within, &mut scratch)?;
                match (plan.progress)(self.messages) {
                    true => Ok(time),
                    false => Err(SweepError::Stopped),
                }
            };
            numbers.iter().map(one).collect()
        };
        if numbers.len() <= each {
            return work(&numbers);
        }
        let work = &work;
        let parts: Vec<Result<Vec<i64>, SweepError>> = std::thread::scope(|scope| {
            let started: Vec<_> =
                numbers.chunks(each).map(|part| scope.spawn(move || work(part))).collect();
            started
                .into_iter()
                .map(|thread| thread.join().unwrap_or(Err(SweepError::Stopped)))
                .collect()
        });
        Ok(parts.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn run(
        &self,
        params: &Params,
        options: &Options,
        noise: &RunNoise<'_>,
        threads: usize,
        scratch: &mut Scratch,
    ) -> Result<i64, SweepError> {
        let Scratch { workers, rounds, ranks } = scratch;
        ranks.start(self.ranks())?;
        workers.resize_with(threads.max(1), Worker::default);
        rounds.use_threads(threads);
        for segment in &self.segments {
            let on_copies = |first: u64, part: RankSlices<'_>, worker: &mut Worker| match segment {
                Segment::InOrder(sequence) => {
                    let mut part = part;
                    Ok(sequence.run_on(noise, first, &mut part, &mut worker.moments)?)
                }
                Segment::Local(schedule) => {
                    self.by_events(schedule, params, options, noise, first, part, worker)
                }
                Segment::Whole(_) => Ok(()),
            };
            match segment {
                Segment::Whole(job) => rounds::run_on(job, noise, ranks, rounds)?,
                _ => self.on_all(ranks.slices(), workers, &on_copies)?,
            }
        }
        Ok(ranks.ends.iter().copied().max().unwrap_or(0))
    }

    /// Divides the copies among threads.
    fn on_all(
        &self,
        ranks: RankSlices<'_>,
        workers: &mut [Worker],
        on_copies: &(dyn Fn(u64, RankSlices<'_>, &mut Worker) -> Result<(), SweepError> + Sync),
    ) -> Result<(), SweepError> {
        if let [worker] = workers {
            return on_copies(0, ranks, worker);
        }
        let each = (self.copies as usize).div_ceil(workers.len()).max(1) * self.own as usize;
        let ended: Vec<Result<(), SweepError>> = std::thread::scope(|scope| {
            let (mut rest, mut first, mut started) = (ranks, 0, Vec::new());
            for worker in workers {
                let count = each.min(rest.ranks());
                let (part, after) = rest.split_at(count);
                rest = after;
                started.push(scope.spawn(move || on_copies(first, part, worker)));
                first += count as u64;
            }
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or(Err(SweepError::Stopped))
            };
            started.into_iter().map(join).collect()
        });
        ended.into_iter().collect()
    }

    /// Runs each of these copies in the event engine.
    #[allow(clippy::too_many_arguments)]
    fn by_events(
        &self,
        schedule: &Schedule,
        params: &Params,
        options: &Options,
        noise: &RunNoise<'_>,
        first: u64,
        part: RankSlices<'_>,
        worker: &mut Worker,
    ) -> Result<(), SweepError> {
        let Worker { events, carried, .. } = worker;
        let (mut rest, mut first) = (part, first);
        while rest.ranks() > 0 {
            let (mut copy, after) = rest.split_at(self.own as usize);
            rest = after;
            carried.set(&copy);
            event::run_on(events, schedule, params, options, &noise.from_rank(first), carried)?;
            carried.get(&mut copy);
            first += u64::from(self.own);
        }
        Ok(())
    }
}
