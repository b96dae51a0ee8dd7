//! The fast kernel: every rank sends and receives in each round, exact preemption.
//!
//! Detours are rare. Each rank has a time until which it is known to be clear of them; a round is
//! computed as if there were none, for many ranks at once, and only ranks whose result lies beyond
//! their clear time are recomputed exactly. The state is two or three words per rank: noise is looked
//! up again from seed and rank when needed.
//!
//! Between rounds, an array holds when each rank's send of the coming round has left its CPU. So a
//! round is one pass: receive, combine, issue the next send.
//!
//! Why the clear time is valid although a reception can begin before the send has ended: a detour
//! between a rank's last receive and the end of its next send invalidates the clear time, so the next
//! round is computed exactly. A message that arrived before the last receive ended is done no later
//! than a send begun then, whose end is already known.

use std::ops::ControlFlow;

use super::{
    FOREVER, RankStates, RunError,
    array::Array,
    carried::FirstSend,
    latest,
    start::Start,
    tiles::{self, Planned, Worker},
    vectors::{Step, is_untrusted, untrusted},
};
use crate::{
    collectives::Pattern,
    job::{Job, Priced},
    noise::{RunNoise, WorkError},
    simd,
};

/// Rounds collected before execution, so that several can be done at once.
const COLLECTED: usize = 64;

#[derive(Debug, Default)]
pub struct State {
    /// When the rank's send of the coming round has left its CPU; at the end, when it is done.
    pub(super) time: Array,
    pub(super) clear: Array,
    /// When the NIC accepts the next incoming message. Empty if that never matters.
    pub(super) recv_free: Array,
    /// When the rank's last receive ended, and when its send of the coming round began. Empty if that
    /// never matters.
    pub(super) received: Array,
    pub(super) posted: Array,
    /// One for each thread.
    pub(super) workers: Vec<Worker>,
    pub(super) start: Start,
    pub(super) ends: Ends,
}

/// The times after the last round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Ends {
    /// They are in the array.
    #[default]
    Kept,
    /// So is everything else that the next job needs.
    Carried,
    /// Not kept; then the latest is here.
    Dropped { latest: Option<i64> },
}

impl State {
    /// From the next run on.
    pub fn set_threads(&mut self, threads: usize) {
        self.workers.resize_with(threads.max(1), Worker::default);
    }

    pub fn ends(&self) -> &[i64] {
        &self.time
    }

    /// When the first sends begin, if that matters.
    fn post(&mut self, compute: i64, noise: &RunNoise<'_>) -> Result<(), WorkError> {
        if compute > 0 {
            for (rank, posted) in (0..).zip(self.posted.iter_mut()) {
                *posted = match noise.is_none() {
                    true => compute,
                    false => noise.local(rank).preempt(0, compute)?,
                };
            }
        }
        Ok(())
    }

    /// Compute and the first send of ranks that start at different times.
    fn begin_from(
        &mut self,
        starts: &[i64],
        compute: i64,
        send: i64,
        noise: &RunNoise<'_>,
    ) -> Result<(), WorkError> {
        self.start = Start::default();
        for (rank, &begin) in starts.iter().enumerate() {
            let (posted, sent, clear);
            if noise.is_none() {
                (posted, sent, clear) = (begin + compute, begin + compute + send, FOREVER);
            } else {
                let local = noise.local(rank as u64);
                posted = if compute > 0 { local.preempt(begin, compute)? } else { begin };
                // Nothing begins inside a detour, not even a send that takes no time.
                sent = local.preempt(posted, send)?;
                let until = local.clear_until(begin);
                clear = if until < sent { untrusted(until) } else { until };
            }
            (self.time[rank], self.clear[rank]) = (sent, clear);
            if let Some(place) = self.posted.get_mut(rank) {
                *place = posted;
            }
        }
        Ok(())
    }

    /// Exchanges what ranks carry.
    fn swap(&mut self, ranks: &mut RankStates) {
        std::mem::swap(&mut self.time, &mut ranks.ends);
        std::mem::swap(&mut self.received, &mut ranks.received);
        std::mem::swap(&mut self.recv_free, &mut ranks.recv_free);
    }

    /// The first send of ranks that begin it at these times.
    fn begin_on(
        &mut self,
        ranks: &RankStates,
        send: i64,
        noise: &RunNoise<'_>,
    ) -> Result<(), WorkError> {
        self.start = Start::default();
        let (time, clear) = (&mut *self.time, &mut *self.clear);
        let RankStates { clear_from, clear_until, .. } = ranks;
        simd::widest(FirstSend { noise, send, time, clear, clear_from, clear_until })
    }

    /// The first work of all ranks; immediately, or when they are needed.
    fn begin(&mut self, work: i64, noise: &RunNoise<'_>, at_once: bool) -> Result<(), WorkError> {
        let State { time, clear, start, .. } = self;
        *start = Start::new(time.len(), work, noise)?;
        if at_once { start.from(0, noise, time, clear) } else { Ok(()) }
    }
}

/// Whether this kernel supports the job: one network, no compute during a collective, all messages of a round alike, and swaps of whole
/// blocks of ranks.
pub fn can(job: &Job) -> bool {
    if job.local().is_some() || job.overlap().is_some() {
        return false;
    }
    job.rounds(&mut |_, round| match round {
        [only]
            if only.span.is_full(job.ranks())
                && !only.cost.rendezvous
                && !matches!(only.span.pattern, Pattern::Swap { mask, .. } if !mask.is_power_of_two()) =>
        {
            ControlFlow::Continue(())
        }
        _ => ControlFlow::Break(()),
    })
    .is_continue()
}

/// A gap that ends no later than the CPU's part never delays anything: neither the next send, nor the
/// next message, whose last byte arrives the later the larger it is.
fn gaps_matter(job: &Job) -> bool {
    let mut longest = 0;
    let _ = job.rounds(&mut |_, round| {
        longest = round.iter().fold(longest, |most, priced| most.max(priced.cost.transfer));
        ControlFlow::<()>::Continue(())
    });
    job.rounds(&mut |_, round| {
        let waits = round.iter().any(|priced| {
            let cost = &priced.cost;
            cost.gap > cost.send_cpu || cost.gap - cost.transfer + longest > cost.recv_cpu
        });
        if waits { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .is_break()
}

/// Whether the end of a receive can be later than that of the send that follows it: only then does a
/// message that arrived earlier have to wait for it. Otherwise it is done when the send is.
fn receives_matter(job: &Job) -> bool {
    let (mut shortest, mut longest) = (i64::MAX, 0);
    let _ = job.rounds(&mut |_, round| {
        for Priced { cost, .. } in round {
            (shortest, longest) = (shortest.min(cost.send_cpu), longest.max(cost.recv_cpu));
        }
        ControlFlow::<()>::Continue(())
    });
    longest > shortest
}

pub fn bytes_per_rank(job: &Job) -> u64 {
    // Shifts by a distance that does not evenly divide the ranks save up to half of the times.
    let uneven = |priced: &Priced| match priced.span.pattern {
        Pattern::Shift { distance } => !job.ranks().is_multiple_of(distance),
        _ => false,
    };
    let saves = job
        .rounds(&mut |_, round| match round.iter().any(uneven) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
        .is_break();
    let arrays = 2 + u64::from(gaps_matter(job)) + 2 * u64::from(receives_matter(job));
    8 * arrays + if saves { 4 } else { 0 }
}

/// When the last rank finishes. The caller decides whether each rank's end is kept: if not, another
/// pass through memory is saved.
pub fn run(
    job: &Job,
    noise: &RunNoise<'_>,
    starts: &[i64],
    state: &mut State,
    keep_ends: bool,
) -> Result<i64, RunError> {
    state.ends = if keep_ends { Ends::Kept } else { Ends::Dropped { latest: None } };
    run_in(job, noise, Begins::At(starts), state, COLLECTED, &mut |_, _| {})?;
    match state.ends {
        Ends::Dropped { latest: Some(latest) } => Ok(latest),
        _ => Ok(latest(&state.time)),
    }
}

/// Ranks start from these states, which become those at the end.
pub fn run_on(
    job: &Job,
    noise: &RunNoise<'_>,
    ranks: &mut RankStates,
    state: &mut State,
) -> Result<(), RunError> {
    if job.ranks() == 1 {
        return Ok(());
    }
    state.ends = Ends::Carried;
    run_in(job, noise, Begins::On(ranks), state, COLLECTED, &mut |_, _| {})
}

/// How ranks begin.
enum Begins<'a> {
    /// At these times, or all at 0.
    At(&'a [i64]),
    /// Where earlier jobs have left them.
    On(&'a mut RankStates),
}

/// The same, one round at a time; `after` gets the times after the first send and after each round.
pub fn run_telling(
    job: &Job,
    noise: &RunNoise<'_>,
    state: &mut State,
    after: &mut dyn FnMut(&[i64], Option<Planned>),
) -> Result<(), RunError> {
    state.ends = Ends::Kept;
    run_in(job, noise, Begins::At(&[]), state, 1, after)
}

/// Runs this many rounds at once; `after` gets the last round of each batch.
fn run_in(
    job: &Job,
    noise: &RunNoise<'_>,
    mut begins: Begins<'_>,
    state: &mut State,
    at_once: usize,
    after: &mut dyn FnMut(&[i64], Option<Planned>),
) -> Result<(), RunError> {
    let starts: &[i64] = match &begins {
        Begins::At(starts) => starts,
        Begins::On(_) => &[],
    };
    let continues = matches!(begins, Begins::On(_));
    // What follows may depend on them, whatever the job does.
    let gaps = continues || gaps_matter(job);
    let receives = continues || receives_matter(job);
    let arrays = 2 + u64::from(gaps) + 2 * u64::from(receives);
    state.clear.resize(job.ranks(), arrays)?;
    state.posted.resize(if receives { job.ranks() } else { 0 }, arrays)?;
    match &mut begins {
        Begins::On(ranks) => {
            state.swap(ranks);
            // The NIC may accept the first message later than the CPU could send it.
            for (time, &free) in state.time.iter_mut().zip(ranks.send_free.iter()) {
                *time = free.max(*time);
            }
            state.posted.copy_from_slice(&state.time);
        }
        Begins::At(_) => {
            state.time.resize(job.ranks(), arrays)?;
            state.recv_free.resize(if gaps { job.ranks() } else { 0 }, arrays)?;
            state.recv_free.fill(0);
            state.received.resize(if receives { job.ranks() } else { 0 }, arrays)?;
            state.received.fill(0);
            state.posted.fill(0);
        }
    }

    if state.workers.is_empty() {
        state.workers.push(Worker::default());
    }
    state.workers.iter_mut().for_each(Worker::clear);
    // A round is planned when the next one is known: it includes the next one's send.
    let mut pending: Option<Priced> = None;
    let mut number = 0;
    let mut planned: Vec<Planned> = Vec::with_capacity(at_once);
    let mut failed = Ok(());
    for _ in 0..job.iterations() {
        let _ = job.rounds(&mut |compute, round| {
            let next = round[0];
            let mut done = Ok(());
            match pending.replace(next) {
                None => {
                    let send = next.cost.send_cpu;
                    done = match (&begins, starts) {
                        (Begins::On(ranks), _) => state.begin_on(ranks, send, noise),
                        (_, []) => state
                            .post(compute, noise)
                            .and_then(|()| state.begin(compute + send, noise, at_once == 1)),
                        (_, _) => state.begin_from(starts, compute, send, noise),
                    };
                    after(&state.time, None);
                }
                Some(priced) => {
                    planned.push(plan(&priced, compute, Some(next.cost.send_cpu), number));
                    number += 1;
                }
            }
            if planned.len() == at_once {
                done = tiles::run(&planned, noise, state);
                after(&state.time, planned.last().copied());
                planned.clear();
            }
            match done {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Err(error);
                    ControlFlow::Break(())
                }
            }
        });
        failed.clone()?;
    }
    match pending {
        Some(last) => {
            if let Begins::On(ranks) = &mut begins {
                // The last send may keep the NIC busy beyond the end.
                let busy = last.cost.gap - last.cost.send_cpu;
                if busy > 0 {
                    tiles::run(&planned, noise, state)?;
                    planned.clear();
                    let State { time, clear, start, .. } = &mut *state;
                    start.from(0, noise, time, clear)?;
                    for (free, &left) in ranks.send_free.iter_mut().zip(time.iter()) {
                        *free = left + busy;
                    }
                }
            }
            planned.push(plan(&last, 0, None, number));
            tiles::run(&planned, noise, state)?;
            after(&state.time, planned.last().copied());
        }
        // A single rank only computes. Zero work is not delayed by a detour.
        None => {
            match (job.lonely_compute(), starts) {
                (0, []) => state.time.fill(0),
                (0, _) => state.time.copy_from_slice(starts),
                (compute, []) => state.begin(compute, noise, true)?,
                (compute, _) => state.begin_from(starts, compute, 0, noise)?,
            }
            after(&state.time, None);
        }
    }
    if let Begins::On(ranks) = begins {
        state.swap(ranks);
        ranks.clear_from.copy_from_slice(&ranks.ends);
        for (until, &clear) in ranks.clear_until.iter_mut().zip(state.clear.iter()) {
            *until = if is_untrusted(clear) { -1 } else { clear };
        }
    }
    Ok(())
}

fn plan(priced: &Priced, compute: i64, next_send: Option<i64>, number: u64) -> Planned {
    let cost = priced.cost;
    let step = Step {
        message: cost,
        between: priced.reduce + compute,
        // Without a send there is no wait for one.
        send_wait: if next_send.is_some() { cost.gap - cost.send_cpu } else { -FOREVER },
        send: next_send.unwrap_or(0),
        last: next_send.is_none(),
    };
    Planned { pattern: priced.span.pattern, step, number }
}
