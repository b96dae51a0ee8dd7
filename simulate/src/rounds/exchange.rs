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
    array::Array,
    aside::Aside,
    lanes::Step,
    latest,
    start::Start,
    tiles::{self, Planned, Tile},
};
use crate::{
    job::{Job, Priced},
    noise::{RunNoise, WorkError},
};

/// Rounds that are collected before they are done, so that several can be done at once.
const COLLECTED: usize = 64;

#[derive(Debug, Default)]
pub struct State {
    /// When the rank's send of the coming round has left its CPU; at last, when it is done.
    pub(super) time: Array,
    pub(super) clear: Array,
    /// When the NIC takes the next message from outside. Empty where that never matters.
    pub(super) recv_free: Array,
    /// Old times that a shift would overwrite too early.
    pub(super) saved: Array,
    pub(super) tile: Tile,
    pub(super) aside: Aside,
    pub(super) start: Start,
    pub(super) ends: Ends,
}

/// What becomes of the times after the last round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Ends {
    /// They are in the array.
    #[default]
    Kept,
    /// They need not be; then the latest is here.
    Dropped { latest: Option<i64> },
}

impl State {
    pub fn ends(&self) -> &[i64] {
        &self.time
    }

    /// What everybody does first; at once, or when they are needed.
    fn begin(&mut self, work: i64, noise: &RunNoise<'_>, at_once: bool) -> Result<(), WorkError> {
        let State { time, clear, start, .. } = self;
        *start = Start::new(time.len(), work, noise)?;
        if at_once { start.from(0, noise, time, clear) } else { Ok(()) }
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

/// A gap that is over when the CPU's part is never makes anybody wait: not the next send, and not the
/// next message, whose last byte comes the later the larger it is.
fn gaps_matter(job: &Job) -> bool {
    let mut longest = 0;
    let _ = job.rounds(&mut |_, round| {
        longest = round.iter().fold(longest, |most, priced| most.max(priced.cost.transfer));
        ControlFlow::<()>::Continue(())
    });
    job.rounds(&mut |_, round| {
        let waits = round.iter().any(|priced| {
            let cost = &priced.cost;
            cost.gap - cost.transfer + longest > cost.cpu
        });
        if waits { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .is_break()
}

pub fn bytes_per_rank(job: &Job) -> u64 {
    // Shifts that do not divide the ranks evenly save up to half of the times.
    let saved = if job.ranks().is_power_of_two() { 0 } else { 4 };
    (if gaps_matter(job) { 24 } else { 16 }) + saved
}

/// When the last rank is done. Whether each rank's end is there afterwards is up to the caller: where
/// nobody asks, they need not go through memory once more.
pub fn run(
    job: &Job,
    noise: &RunNoise<'_>,
    state: &mut State,
    keep_ends: bool,
) -> Result<i64, RunError> {
    state.ends = if keep_ends { Ends::Kept } else { Ends::Dropped { latest: None } };
    run_in(job, noise, state, COLLECTED, &mut |_, _| {})?;
    match state.ends {
        Ends::Dropped { latest: Some(latest) } => Ok(latest),
        _ => Ok(latest(&state.time)),
    }
}

/// The same one round after the other; `after` is told the times after the first send and after each
/// round.
pub fn run_telling(
    job: &Job,
    noise: &RunNoise<'_>,
    state: &mut State,
    after: &mut dyn FnMut(&[i64], Option<Planned>),
) -> Result<(), RunError> {
    state.ends = Ends::Kept;
    run_in(job, noise, state, 1, after)
}

/// So many rounds at once; `after` is told the last round of each lot.
fn run_in(
    job: &Job,
    noise: &RunNoise<'_>,
    state: &mut State,
    at_once: usize,
    after: &mut dyn FnMut(&[i64], Option<Planned>),
) -> Result<(), RunError> {
    let gaps = gaps_matter(job);
    let arrays = if gaps { 3 } else { 2 };
    state.time.resize(job.ranks(), arrays)?;
    state.clear.resize(job.ranks(), arrays)?;
    state.recv_free.resize(if gaps { job.ranks() } else { 0 }, arrays)?;
    state.recv_free.fill(0);

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
                    done = state.begin(compute + next.cost.cpu, noise, at_once == 1);
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
        // A single rank: compute is all there is. Who does nothing waits for no detour.
        None => {
            match job.lonely_compute() {
                0 => state.time.fill(0),
                compute => state.begin(compute, noise, true)?,
            }
            after(&state.time, None);
        }
    }
    Ok(())
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
