//! The critical path of a run: the intervals of ranks' CPU time that determine its end.
//!
//! The times after each round are kept and traced back from the rank that ends last: what it waited
//! for, and what that waited for. As long as no detour that touches the path gets shorter, the path
//! takes as long as before, and so does the run, whatever happens elsewhere. So a run need not be
//! simulated again after removing a source that is not on its path.

use super::{RunError, regular, tiles::Planned, vectors::Step};
use crate::{
    collectives::Pattern,
    job::Job,
    noise::{RunNoise, WorkError},
};

/// Time that a rank spends on the path, in simulated time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub rank: u64,
    pub from: i64,
    pub to: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// When the last rank finishes, ps.
    pub end: i64,
    /// From the last to the first. None if a rank waited for a NIC: what the NIC waited for is not
    /// kept.
    pub windows: Option<Vec<Window>>,
}

/// Memory for the times after each round, reused between runs.
#[derive(Debug, Default)]
pub struct Kept {
    times: Vec<Vec<i64>>,
    rounds: Vec<Planned>,
}

/// Bytes that [`run`] needs in addition to the run itself.
pub fn memory(job: &Job) -> u64 {
    let mut rounds = 0u64;
    let _ = job.rounds(&mut |_, _| {
        rounds += 1;
        std::ops::ControlFlow::Continue(())
    });
    let times = rounds.saturating_mul(job.iterations()).saturating_add(1);
    times.saturating_mul(job.ranks()).saturating_mul(8)
}

/// A run in the fast kernel, and its path.
pub(super) fn run(
    job: &Job,
    noise: &RunNoise<'_>,
    state: &mut regular::State,
    kept: &mut Kept,
) -> Result<Path, RunError> {
    kept.rounds.clear();
    let mut times = std::mem::take(&mut kept.times).into_iter();
    let mut keep = Vec::new();
    regular::run_telling(job, noise, state, &mut |time, round| {
        let mut copy = times.next().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(time);
        keep.push(copy);
        kept.rounds.extend(round);
    })?;
    keep.extend(times);
    kept.times = keep;
    Ok(follow(noise, kept)?)
}

fn follow(noise: &RunNoise<'_>, kept: &Kept) -> Result<Path, WorkError> {
    let rounds = &kept.rounds;
    let last = &kept.times[rounds.len()];
    let end = last.iter().copied().max().unwrap_or(0);
    let mut rank = last.iter().position(|&time| time == end).unwrap_or(0);
    let mut windows = Vec::new();
    for (index, round) in rounds.iter().enumerate().rev() {
        let before = &kept.times[index];
        let sender = match round.pattern {
            Pattern::Shift { distance } => {
                (rank + before.len() - distance as usize % before.len()) % before.len()
            }
            Pattern::Swap { mask, .. } => rank ^ mask as usize,
            Pattern::Edges { .. } => return Ok(Path { end, windows: None }),
        };
        let done = kept.times[index + 1][rank];
        let deviation =
            noise.latencies().map_or(0, |all| all.deviation(sender as u64, round.number));
        let (own, from) = (before[rank], before[sender] + deviation);
        match step(noise, rank as u64, &round.step, own, from, done, &mut windows)? {
            Waited::Itself => {}
            Waited::Sender => rank = sender,
            Waited::Card => return Ok(Path { end, windows: None }),
        }
    }
    // All start at 0, with compute and the first send.
    windows.push(Window { rank: rank as u64, from: 0, to: kept.times[0][rank] });
    Ok(Path { end, windows: Some(windows) })
}

enum Waited {
    /// Its own send of the round.
    Itself,
    Sender,
    /// Its NIC, busy with an earlier message.
    Card,
}

/// Repeats one round of one rank: what determines its end.
fn step(
    noise: &RunNoise<'_>,
    rank: u64,
    step: &Step,
    own: i64,
    from: i64,
    done: i64,
    windows: &mut Vec<Window>,
) -> Result<Waited, WorkError> {
    let work = |time: i64, work: i64| match noise.is_none() {
        true => Ok(time + work),
        false => noise.local(rank).preempt(time, work),
    };
    let mut window = |from, to| {
        if to > from {
            windows.push(Window { rank, from, to });
        }
    };
    let Step { message, between, send_wait, send, last } = *step;
    let arrived = from + message.latency + message.transfer;
    let received = work(arrived, message.recv_cpu)?;
    let ready = received.max(own);
    let mut next = if between > 0 { work(ready, between)? } else { ready };
    let mut waits = false;
    if !last {
        waits = own + send_wait > next;
        next = work(next.max(own + send_wait), send)?;
    }
    if next != done {
        // Longer than message and send explain: the NIC accepted the message late.
        return Ok(Waited::Card);
    }
    if waits {
        window(own + send_wait, done);
        return Ok(Waited::Itself);
    }
    window(ready, done);
    if own >= received {
        return Ok(Waited::Itself);
    }
    window(arrived, received);
    Ok(Waited::Sender)
}
