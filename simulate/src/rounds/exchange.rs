//! The fast kernel: every rank sends and receives in each round, exact preemption.
//!
//! Detours are rare. Each rank has a time until which it is known to be clear of them; a round is
//! computed as if there were none, for many ranks at once, and only ranks whose result lies beyond
//! their clear time are computed again, exactly. Two or three words per rank are all there is: noise
//! is looked up again from seed and rank when it is needed.
//!
//! An array holds, between rounds, when each rank's send of the coming round has left its CPU. So a
//! round is one pass: receive, combine, issue the next send.
//!
//! Why the clear time may be trusted although a reception can begin before the send has ended: a
//! detour between a rank's last receive and the end of its next send makes the clear time invalid,
//! so the next round is computed exactly. A message that came before the last receive ended is done
//! at the latest when a send begun then is, and the send is.

use std::ops::ControlFlow;

use super::{
    FOREVER, RunError,
    aside::Aside,
    lanes::{Step, untrusted},
    sized,
    tiles::{self, Planned, Tile},
    zeroed,
};
use crate::{
    job::{Job, Priced},
    noise::{RunNoise, WorkError},
    simd::{self, List, Vector},
};

/// Rounds that are collected before they are done, so that several can be done at once.
const COLLECTED: usize = 64;

#[derive(Debug, Default)]
pub struct State {
    /// When the rank's send of the coming round has left its CPU; at last, when it is done.
    pub(super) time: Vec<i64>,
    pub(super) clear: Vec<i64>,
    /// When the NIC takes the next message from outside. Empty where that never matters.
    pub(super) recv_free: Vec<i64>,
    /// Old times that a shift would overwrite too early.
    pub(super) saved: Vec<i64>,
    pub(super) tile: Tile,
    pub(super) aside: Aside,
}

impl State {
    pub fn ends(&self) -> &[i64] {
        &self.time
    }
}

/// Whether this kernel can do the job.
pub fn can(job: &Job) -> bool {
    job.rounds(&mut |_, round| match round {
        [only] if only.span.is_full(job.ranks()) && !only.cost.rendezvous => {
            ControlFlow::Continue(())
        }
        _ => ControlFlow::Break(()),
    })
    .is_continue()
}

/// A gap that is no longer than the CPU's part never makes anybody wait.
fn gaps_matter(job: &Job) -> bool {
    job.rounds(&mut |_, round| {
        let waits = round.iter().any(|priced| priced.cost.gap > priced.cost.cpu);
        if waits { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .is_break()
}

pub fn bytes_per_rank(job: &Job) -> u64 {
    // Shifts that do not divide the ranks evenly save up to half of the times.
    let saved = if job.ranks().is_power_of_two() { 0 } else { 4 };
    (if gaps_matter(job) { 24 } else { 16 }) + saved
}

pub fn run(job: &Job, noise: &RunNoise<'_>, state: &mut State) -> Result<(), RunError> {
    run_in(job, noise, state, COLLECTED, &mut |_, _| {})
}

/// The same, with so many rounds at once; `after` is told the times after the first send and after
/// each lot, with the last round of the lot.
pub fn run_in(
    job: &Job,
    noise: &RunNoise<'_>,
    state: &mut State,
    at_once: usize,
    after: &mut dyn FnMut(&[i64], Option<Planned>),
) -> Result<(), RunError> {
    let gaps = gaps_matter(job);
    let arrays = if gaps { 3 } else { 2 };
    sized(&mut state.time, job.ranks(), arrays)?;
    sized(&mut state.clear, job.ranks(), arrays)?;
    zeroed(&mut state.recv_free, if gaps { job.ranks() } else { 0 }, arrays)?;

    state.aside.clear();
    // A round is planned when the next one is known: it includes the next one's send.
    let mut pending: Option<Priced> = None;
    let mut planned: Vec<Planned> = Vec::with_capacity(at_once);
    let mut failed = Ok(());
    for _ in 0..job.iterations() {
        let _ = job.rounds(&mut |compute, round| {
            let next = round[0];
            let mut done = Ok(());
            match pending.replace(next) {
                None => {
                    done = start(state, noise, compute, next.cost.cpu);
                    after(&state.time, None);
                }
                Some(priced) => planned.push(plan(&priced, compute, Some(next.cost.cpu))),
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
            planned.push(plan(&last, 0, None));
            tiles::run(&planned, noise, state)?;
            after(&state.time, planned.last().copied());
        }
        // A single rank: compute is all there is.
        None => {
            start(state, noise, job.lonely_compute(), 0)?;
            after(&state.time, None);
        }
    }
    Ok(())
}

/// Finds each rank's place in its noise, and issues the first send.
fn start(
    state: &mut State,
    noise: &RunNoise<'_>,
    compute: i64,
    send: i64,
) -> Result<(), WorkError> {
    let work = compute + send;
    if noise.is_none() {
        if work > FOREVER {
            return Err(WorkError::Overflow);
        }
        state.time.fill(work);
        state.clear.fill(FOREVER);
        return Ok(());
    }
    let State { time, clear, .. } = state;
    simd::widest(Start { noise, work, time, clear })
}

/// The first send of all ranks, after what comes before it.
struct Start<'a, 'n> {
    noise: &'a RunNoise<'n>,
    work: i64,
    time: &'a mut [i64],
    clear: &'a mut [i64],
}

impl simd::Kernel for Start<'_, '_> {
    type Output = Result<(), WorkError>;

    #[inline(always)]
    fn run<V: Vector>(self) -> Self::Output {
        let Start { noise, work, time, clear } = self;
        let many = noise.many();
        let (mut positions, mut indices) = (List::default(), List::default());
        let batches = time.chunks_mut(simd::MOST).zip(clear.chunks_mut(simd::MOST));
        for (batch, (times, clears)) in batches.enumerate() {
            let first = batch * simd::MOST;
            match &many {
                Some(many) => {
                    positions.set_len(times.len());
                    for at in positions.steps() {
                        let ranks: V = simd::count_from(first + at);
                        let turn = many.turn(ranks);
                        positions.set(at, many.positions(ranks, &turn, V::splat(0)));
                    }
                    many.first_after::<V>(&positions, &mut indices);
                    for at in positions.steps() {
                        let start: V = many.lookup().starts(indices.at(at));
                        let limit = many.turn(simd::count_from::<V>(first + at)).limit;
                        indices.set(at, start.minus(positions.at(at)).min(limit));
                    }
                    clears.copy_from_slice(&indices.all_mut()[..clears.len()]);
                }
                None => {
                    for (clear, rank) in clears.iter_mut().zip(first as u64..) {
                        *clear = noise.local(rank).clear_until(0);
                    }
                }
            }
            times.fill(work);
            // Few ranks are hit: whether any is, is asked for many at once.
            if clears.iter().fold(0, |beyond, clear| beyond | (clear - work)) >= 0 {
                continue;
            }
            for (rank, (time, clear)) in (first as u64..).zip(times.iter_mut().zip(clears)) {
                if work > *clear {
                    *time = noise.local(rank).preempt(0, work)?;
                    *clear = untrusted(*clear);
                }
            }
        }
        Ok(())
    }
}

fn plan(priced: &Priced, compute: i64, next_send: Option<i64>) -> Planned {
    let cost = priced.cost;
    let step = Step {
        message: cost,
        between: priced.reduce + compute,
        // No send, no waiting for one.
        send_wait: if next_send.is_some() { cost.gap - cost.cpu } else { -FOREVER },
        send: next_send.unwrap_or(0),
        last: next_send.is_none(),
    };
    Planned { pattern: priced.span.pattern, step }
}
