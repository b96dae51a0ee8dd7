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
    FOREVER, RunError,
    array::Array,
    aside::Aside,
    latest,
    start::Start,
    tiles::{self, Planned, Tile},
    vectors::Step,
};
use crate::{
    collectives::Pattern,
    job::{Job, Priced},
    noise::{RunNoise, WorkError},
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
    /// Old times that a shift would overwrite too early.
    pub(super) saved: Array,
    pub(super) tile: Tile,
    pub(super) aside: Aside,
    pub(super) start: Start,
    pub(super) ends: Ends,
}

/// The times after the last round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Ends {
    /// They are in the array.
    #[default]
    Kept,
    /// Not kept; then the latest is here.
    Dropped { latest: Option<i64> },
}

impl State {
    pub fn ends(&self) -> &[i64] {
        &self.time
    }

    /// The first work of all ranks; immediately, or when they are needed.
    fn begin(&mut self, work: i64, noise: &RunNoise<'_>, at_once: bool) -> Result<(), WorkError> {
        let State { time, clear, start, .. } = self;
        *start = Start::new(time.len(), work, noise)?;
        if at_once { start.from(0, noise, time, clear) } else { Ok(()) }
    }
}

/// Whether this kernel supports the job.
pub fn can(job: &Job) -> bool {
    job.rounds(&mut |_, round| match round {
        [only] if only.span.is_full(job.ranks()) && !only.cost.rendezvous => {
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
            cost.gap - cost.transfer + longest > cost.cpu
        });
        if waits { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .is_break()
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
    (if gaps_matter(job) { 24 } else { 16 }) + if saves { 4 } else { 0 }
}

/// When the last rank finishes. The caller decides whether each rank's end is kept: if not, another
/// pass through memory is saved.
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

/// The same, one round at a time; `after` gets the times after the first send and after each round.
pub fn run_telling(
    job: &Job,
    noise: &RunNoise<'_>,
    state: &mut State,
    after: &mut dyn FnMut(&[i64], Option<Planned>),
) -> Result<(), RunError> {
    state.ends = Ends::Kept;
    run_in(job, noise, state, 1, after)
}

/// Runs this many rounds at once; `after` gets the last round of each batch.
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
        // A single rank only computes. Zero work is not delayed by a detour.
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
        // Without a send there is no wait for one.
        send_wait: if next_send.is_some() { cost.gap - cost.cpu } else { -FOREVER },
        send: next_send.unwrap_or(0),
        last: next_send.is_none(),
    };
    Planned { pattern: priced.span.pattern, step }
}
