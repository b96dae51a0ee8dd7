//! The round engine: a collective evaluated round by round over arrays of ranks. No event queue, no
//! schedule in memory. A rank executes its operations in program order, so the inputs of a round are
//! known when the previous round is done: times are maxima and sums of times ("max-plus").
//!
//! The rules, for a message of k bytes (LogGOPS; `work` is CPU time under noise):
//! - A send begins when the rank is free and its NIC accepts the next message. It occupies the CPU for
//!   o + (k-1) O; detours in that time delay the message. The NIC accepts the next message g + (k-1) G
//!   after the start, plus any such delay.
//! - The first byte arrives L later, if the receiver's NIC is ready, which is g + (k-1) G after the
//!   previous message; the last byte (k-1) G after the first.
//! - Then the receiver's CPU works o + (k-1) O on it. This may overlap compute and sends, but not
//!   another reception. So a receive that is posted late ends as it is posted.
//! - Above S bytes, either the send ends with the receive (closed form), or (handshake) the send
//!   begins with a request that costs o; the receiver, once its receive is posted, acknowledges it at
//!   no cost, L later the payload may be sent, and the send ends when its last byte has left.
//! - Compute precedes its collective. If that is nonblocking, compute follows the sends of its first round
//!   and precedes what comes after that round (progress in calls), or takes a CPU of its own (progress
//!   always); either way the rank waits for both before it goes on.
//!
//! Two kernels follow these rules. [`regular`] is the fast one: exact preemption, every rank sends
//! and receives in each round, messages are eager. [`general`] does everything else.

mod array;
mod aside;
mod carried;
mod general;
mod pass;
pub mod path;
mod periodic;
mod regular;
mod start;
#[cfg(test)]
mod tests;
mod tiles;
mod vectors;
mod walk;

pub use array::Array;
pub use carried::{RankSlices, RankStates};

use thiserror::Error;

use crate::{
    job::Job,
    noise::{Model, RunNoise, WorkError},
    simd,
};

/// The end of time. No rank is clear of detours beyond it, so the exact path detects it.
const FOREVER: i64 = 1 << 62;

/// Times of one run. Reused between runs, so that memory is allocated once.
#[derive(Debug, Default)]
pub struct Scratch {
    regular: regular::State,
    general: general::State,
    /// Which of the two ran last.
    last_general: bool,
    kept: path::Kept,
    keeps_ends: bool,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RunError {
    #[error(transparent)]
    Work(#[from] WorkError),
    #[error("cannot allocate {bytes} bytes for {ranks} ranks; simulate fewer ranks")]
    Memory { ranks: u64, bytes: u64 },
    #[error("handshakes in the cpu-time model require the event engine")]
    Unordered,
}

impl Scratch {
    /// Keeps what [`Scratch::ends`] returns after a run.
    pub fn keeping_ends() -> Scratch {
        Scratch { keeps_ends: true, ..Scratch::default() }
    }

    /// From the next run on.
    pub fn keep_ends(&mut self) {
        self.keeps_ends = true;
    }

    /// The ranks of a run are divided among this many threads where that is possible, from the next run on.
    pub fn use_threads(&mut self, threads: usize) {
        self.regular.set_threads(threads);
    }

    /// When each rank finished.
    pub fn ends(&self) -> &[i64] {
        assert!(self.keeps_ends, "not created with keeping_ends");
        if self.last_general { self.general.ends() } else { self.regular.ends() }
    }
}

/// Runs a job once and returns when its last rank finishes.
pub fn run(job: &Job, noise: &RunNoise<'_>, scratch: &mut Scratch) -> Result<i64, RunError> {
    run_from(job, noise, &[], scratch)
}

/// The same; ranks start at these times instead of all at 0.
pub fn run_from(
    job: &Job,
    noise: &RunNoise<'_>,
    starts: &[i64],
    scratch: &mut Scratch,
) -> Result<i64, RunError> {
    scratch.last_general = !takes_fast_kernel(job, noise);
    if scratch.last_general {
        general::run(job, noise, starts, &mut scratch.general)?;
        Ok(latest(scratch.general.ends()))
    } else {
        regular::run(job, noise, starts, &mut scratch.regular, scratch.keeps_ends)
    }
}

/// Runs a job from where something else has left the ranks, and leaves them where the job does. After an
/// error, the states are undefined.
pub fn run_on(
    job: &Job,
    noise: &RunNoise<'_>,
    ranks: &mut RankStates,
    scratch: &mut Scratch,
) -> Result<(), RunError> {
    scratch.last_general = !(takes_fast_kernel(job, noise) && job.compute() == 0);
    match scratch.last_general {
        true => general::run_on(job, noise, ranks, &mut scratch.general),
        false => regular::run_on(job, noise, ranks, &mut scratch.regular),
    }
}

/// Runs a job in the general kernel; for tests that compare the two.
pub fn run_general(
    job: &Job,
    noise: &RunNoise<'_>,
    scratch: &mut Scratch,
) -> Result<i64, RunError> {
    scratch.last_general = true;
    general::run(job, noise, &[], &mut scratch.general)?;
    Ok(latest(scratch.general.ends()))
}

/// Runs a job once and returns its critical path. None if only the general kernel can run it, which
/// does not trace the path.
pub fn run_with_path(
    job: &Job,
    noise: &RunNoise<'_>,
    scratch: &mut Scratch,
) -> Result<Option<path::Path>, RunError> {
    if !says_its_path(job, noise) {
        return Ok(None);
    }
    scratch.last_general = false;
    path::run(job, noise, &mut scratch.regular, &mut scratch.kept).map(Some)
}

/// Whether [`run_with_path`] returns a path.
pub fn says_its_path(job: &Job, noise: &RunNoise<'_>) -> bool {
    !noise.is_none() && takes_fast_kernel(job, noise)
}

/// Whether [`run`] supports the job under this noise; the event engine supports the rest.
pub fn can(job: &Job, noise: &RunNoise<'_>) -> bool {
    !job.is_redundant() && general::can(job, noise)
}

/// State of a run of this job, bytes.
pub fn memory(job: &Job, noise: &RunNoise<'_>) -> u64 {
    let per_rank = if takes_fast_kernel(job, noise) {
        regular::bytes_per_rank(job)
    } else {
        general::bytes_per_rank(job, noise)
    };
    job.ranks().saturating_mul(per_rank)
}

fn takes_fast_kernel(job: &Job, noise: &RunNoise<'_>) -> bool {
    (noise.is_none() || noise.model() == Model::Preempt) && regular::can(job)
}

/// An array of this many zeros, or an error instead of an abort.
fn zeroed(array: &mut Vec<i64>, ranks: u64, arrays: u64) -> Result<(), RunError> {
    let memory = RunError::Memory { ranks, bytes: ranks.saturating_mul(arrays * 8) };
    let len = usize::try_from(ranks).map_err(|_| memory.clone())?;
    array.clear();
    array.try_reserve_exact(len).map_err(|_| memory)?;
    array.resize(len, 0);
    Ok(())
}

/// The latest of these times.
fn latest(times: &[i64]) -> i64 {
    simd::widest(Latest(times))
}

struct Latest<'a>(&'a [i64]);

impl simd::Kernel for Latest<'_> {
    type Output = i64;

    #[inline(always)]
    fn run<V: simd::Vector>(self) -> i64 {
        self.0.iter().fold(0, |latest, &time| latest.max(time))
    }
}
