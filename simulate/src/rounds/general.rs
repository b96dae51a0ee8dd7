//! The general kernel: any pattern, eager and both kinds of rendezvous, all noise models (but see
//! [`can`]). Message by message, following the rules of the parent module.

use std::ops::ControlFlow;

use super::{FOREVER, RunError, zeroed};
use crate::{
    event::Rendezvous,
    job::{Job, Priced},
    loggops::MessageCost,
    noise::{Model, RunNoise, WorkError},
};

const ARRAYS: u64 = 6;

/// Whether this kernel supports the job. In the cpu-time model the order in which a rank sends its
/// payload and receives another's determines what noise each meets, and only the event engine knows
/// that order.
pub fn can(job: &Job, noise: &RunNoise<'_>) -> bool {
    !(has_own_clock(noise) && job.has_handshakes())
}

/// The state of each rank.
#[derive(Debug, Default)]
pub struct State {
    /// When it is done with everything so far.
    time: Vec<i64>,
    /// When its last receive ended.
    received: Vec<i64>,
    /// When its NIC accepts the next message from the CPU, and the next incoming one.
    send_free: Vec<i64>,
    recv_free: Vec<i64>,
    /// When its send of this round left the CPU.
    sent: Vec<i64>,
    /// Its position in its own noise, if that is not the time (the cpu-time model).
    own_clock: Vec<i64>,
}

impl State {
    pub fn ends(&self) -> &[i64] {
        &self.time
    }
}

pub fn bytes_per_rank(noise: &RunNoise<'_>) -> u64 {
    if has_own_clock(noise) { 8 * ARRAYS } else { 8 * (ARRAYS - 1) }
}

fn has_own_clock(noise: &RunNoise<'_>) -> bool {
    !noise.is_none() && noise.model() == Model::CpuTime
}

pub fn run(job: &Job, noise: &RunNoise<'_>, state: &mut State) -> Result<(), RunError> {
    if !can(job, noise) {
        return Err(RunError::Unordered);
    }
    let ranks = job.ranks();
    for array in [
        &mut state.time,
        &mut state.received,
        &mut state.send_free,
        &mut state.recv_free,
        &mut state.sent,
    ] {
        zeroed(array, ranks, ARRAYS)?;
    }
    zeroed(&mut state.own_clock, if has_own_clock(noise) { ranks } else { 0 }, ARRAYS)?;

    if ranks == 1 {
        state.compute(noise, job.lonely_compute())?;
    }
    let mut failed = Ok(());
    for _ in 0..job.iterations() {
        let _ = job.rounds(&mut |compute, priced| {
            failed = state.compute(noise, compute).and_then(|()| round(state, job, noise, priced));
            if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        failed.clone()?;
    }
    Ok(())
}

fn round(
    state: &mut State,
    job: &Job,
    noise: &RunNoise<'_>,
    spans: &[Priced],
) -> Result<(), WorkError> {
    let ranks = job.ranks();
    let granted =
        |priced: &Priced| priced.cost.rendezvous && job.rendezvous() == Rendezvous::Handshake;
    for priced in spans {
        for (src, _) in priced.span.edges(ranks) {
            let src = src as usize;
            let begin = state.time[src].max(state.send_free[src]);
            // Its receive of this round, if any, is posted as the send begins.
            state.time[src] = begin;
            if granted(priced) {
                state.sent[src] = state.work(noise, src, begin, job.params().overhead)?;
            } else {
                state.send(noise, src, begin, &priced.cost)?;
            }
        }
    }
    for priced in spans.iter().filter(|priced| granted(priced)) {
        for (src, dst) in priced.span.edges(ranks) {
            let (src, dst, latency) = (src as usize, dst as usize, priced.cost.latency);
            let granted = (state.sent[src] + latency).max(state.time[dst]) + latency;
            let begin = granted.max(state.send_free[src]);
            state.send(noise, src, begin, &priced.cost)?;
        }
    }
    for Priced { span, cost, .. } in spans {
        for (src, dst) in span.edges(ranks) {
            let (src, dst) = (src as usize, dst as usize);
            let first_byte = (state.sent[src] + cost.latency).max(state.recv_free[dst]);
            state.recv_free[dst] = first_byte + cost.gap;
            let begin = (first_byte + cost.transfer).max(state.received[dst]);
            let worked = state.work(noise, dst, begin, cost.cpu)?;
            state.received[dst] = worked.max(state.time[dst]);
        }
    }
    // Times may only advance now: up to here they were the post times of receives.
    for priced in spans {
        let Priced { span, cost, .. } = priced;
        for (src, dst) in span.edges(ranks) {
            let (src, dst) = (src as usize, dst as usize);
            let ended = match cost.rendezvous {
                true if granted(priced) => state.sent[src] + cost.transfer,
                true => state.received[dst],
                false => 0,
            };
            state.time[src] = state.time[src].max(state.sent[src]).max(ended);
            state.time[dst] = state.time[dst].max(state.received[dst]);
        }
    }
    for Priced { span, reduce, .. } in spans.iter().filter(|priced| priced.reduce > 0) {
        for (_, dst) in span.edges(ranks) {
            let dst = dst as usize;
            state.time[dst] = state.work(noise, dst, state.time[dst], *reduce)?;
        }
    }
    Ok(())
}

impl State {
    /// Every rank computes.
    fn compute(&mut self, noise: &RunNoise<'_>, compute: i64) -> Result<(), WorkError> {
        if compute > 0 {
            for rank in 0..self.time.len() {
                self.time[rank] = self.work(noise, rank, self.time[rank], compute)?;
            }
        }
        Ok(())
    }

    /// The CPU hands a message to the NIC.
    fn send(
        &mut self,
        noise: &RunNoise<'_>,
        rank: usize,
        begin: i64,
        cost: &MessageCost,
    ) -> Result<(), WorkError> {
        let left = self.work(noise, rank, begin, cost.cpu)?;
        self.sent[rank] = left;
        self.send_free[rank] = left - cost.cpu + cost.gap;
        Ok(())
    }

    /// When work begun at `begin` is done.
    fn work(
        &mut self,
        noise: &RunNoise<'_>,
        rank: usize,
        begin: i64,
        work: i64,
    ) -> Result<i64, WorkError> {
        if noise.is_none() {
            return in_time(begin + work);
        }
        let local = noise.local(rank as u64);
        match noise.model() {
            Model::Preempt => local.preempt(begin, work),
            Model::LogGopSim => local.loggopsim(begin, work),
            Model::CpuTime => {
                let before = self.own_clock[rank];
                let after = local.preempt(before, work)?;
                self.own_clock[rank] = after;
                in_time(begin + (after - before))
            }
        }
    }
}

fn in_time(done: i64) -> Result<i64, WorkError> {
    if done <= FOREVER { Ok(done) } else { Err(WorkError::Overflow) }
}
