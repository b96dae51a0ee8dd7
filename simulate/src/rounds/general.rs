//! The general kernel: any pattern, eager and both kinds of rendezvous, all noise models (but see
//! [`can`]). Message by message, following the rules of the parent module.

use std::ops::ControlFlow;

use super::{Array, FOREVER, RankStates, RunError, zeroed};
use crate::{
    event::Rendezvous,
    job::{Job, Priced, Progress},
    loggops::MessageCost,
    noise::{Model, RunNoise, WorkError},
};

const ARRAYS: u64 = 8;

/// Whether this kernel supports the job. In the cpu-time model the order in which a rank sends its
/// payload and receives another's determines what noise each meets, and only the event engine knows
/// that order; the same holds for compute during a collective.
pub fn can(job: &Job, noise: &RunNoise<'_>) -> bool {
    !(has_own_clock(noise) && (job.has_handshakes() || job.overlap().is_some()))
}

/// The state of each rank.
#[derive(Debug, Default)]
pub struct State {
    /// When it is done with everything so far.
    time: Array,
    /// When its last receive ended.
    received: Array,
    /// When its NIC accepts the next message from the CPU, and the next incoming one.
    send_free: Array,
    recv_free: Array,
    /// No detour between these, in the model of exact preemption.
    clear_from: Array,
    clear_until: Array,
    /// When its send of this round left the CPU.
    sent: Vec<i64>,
    /// Its position in its own noise, if that is not the time (the cpu-time model).
    own_clock: Vec<i64>,
    /// Messages it has sent, if their latencies vary; and the deviation of the last one's.
    messages: Vec<i64>,
    deviation: Vec<i64>,
    /// When its compute during a collective ends. Empty if there is none.
    busy: Vec<i64>,
}

impl State {
    pub fn ends(&self) -> &[i64] {
        &self.time
    }
}

pub fn bytes_per_rank(job: &Job, noise: &RunNoise<'_>) -> u64 {
    let varied = if noise.latencies().is_some() { 16 } else { 0 };
    let overlapped = if job.overlap().is_some() { 8 } else { 0 };
    let cached = if is_cached(noise) { 16 } else { 0 };
    varied + overlapped + cached + if has_own_clock(noise) { 48 } else { 40 }
}

fn has_own_clock(noise: &RunNoise<'_>) -> bool {
    !noise.is_none() && noise.model() == Model::CpuTime
}

/// Ranks start at these times, or all at 0.
pub fn run(
    job: &Job,
    noise: &RunNoise<'_>,
    starts: &[i64],
    state: &mut State,
) -> Result<(), RunError> {
    prepare(job, noise, state)?;
    if !starts.is_empty() {
        state.time.copy_from_slice(starts);
    }
    go(job, noise, state)
}

/// Ranks start from these states, which become those at the end.
pub fn run_on(
    job: &Job,
    noise: &RunNoise<'_>,
    ranks: &mut RankStates,
    state: &mut State,
) -> Result<(), RunError> {
    prepare_rest(job, noise, state)?;
    state.swap(ranks);
    go(job, noise, state)?;
    state.swap(ranks);
    Ok(())
}

fn prepare(job: &Job, noise: &RunNoise<'_>, state: &mut State) -> Result<(), RunError> {
    let cached = if is_cached(noise) { job.ranks() } else { 0 };
    let State { time, received, send_free, recv_free, clear_from, clear_until, .. } = state;
    for array in [time, received, send_free, recv_free] {
        array.resize(job.ranks(), ARRAYS)?;
        array.fill(0);
    }
    clear_from.resize(cached, ARRAYS)?;
    clear_from.fill(0);
    clear_until.resize(cached, ARRAYS)?;
    clear_until.fill(-1);
    prepare_rest(job, noise, state)
}

/// All but what ranks carry.
fn prepare_rest(job: &Job, noise: &RunNoise<'_>, state: &mut State) -> Result<(), RunError> {
    if !can(job, noise) {
        return Err(RunError::Unordered);
    }
    let ranks = job.ranks();
    zeroed(&mut state.sent, ranks, ARRAYS)?;
    zeroed(&mut state.own_clock, if has_own_clock(noise) { ranks } else { 0 }, ARRAYS)?;
    let varied = if noise.latencies().is_some() { ranks } else { 0 };
    zeroed(&mut state.messages, varied, ARRAYS)?;
    zeroed(&mut state.deviation, varied, ARRAYS)?;
    zeroed(&mut state.busy, if job.overlap().is_some() { ranks } else { 0 }, ARRAYS)
}

/// Whether the next detour of a rank is remembered.
fn is_cached(noise: &RunNoise<'_>) -> bool {
    !noise.is_none() && noise.model() == Model::Preempt
}

fn go(job: &Job, noise: &RunNoise<'_>, state: &mut State) -> Result<(), RunError> {
    let overlap = job.overlap();
    if job.ranks() == 1 {
        state.compute(noise, job.lonely_compute())?;
    }
    let mut failed = Ok(());
    for _ in 0..job.iterations() {
        let _ = job.rounds(&mut |compute, priced| {
            let (before, during) = match overlap {
                None => (compute, 0),
                Some(Progress::InCalls) => (0, compute),
                Some(Progress::Always) => {
                    failed = state.compute_meanwhile(noise, compute);
                    (0, 0)
                }
            };
            failed = failed
                .clone()
                .and_then(|()| state.compute(noise, before))
                .and_then(|()| round(state, job, noise, priced, during));
            if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        failed.clone()?;
    }
    state.wait();
    Ok(())
}

/// `during` is compute between this round's sends and what follows.
fn round(
    state: &mut State,
    job: &Job,
    noise: &RunNoise<'_>,
    spans: &[Priced],
    during: i64,
) -> Result<(), WorkError> {
    let ranks = job.ranks();
    let handshake = job.rendezvous() == Rendezvous::Handshake;
    if during > 0 {
        state.busy.copy_from_slice(&state.time);
    }
    for priced in spans {
        for (src, dst) in priced.span.edges(ranks) {
            let (cost, local) = priced.between(src, dst);
            let src = src as usize;
            let begin = state.time[src].max(state.send_free[src]);
            // Its receive of this round, if any, is posted as the send begins.
            state.time[src] = begin;
            if handshake && cost.rendezvous {
                state.sent[src] = state.work(noise, src, begin, cost.send_overhead())?;
            } else {
                state.send(noise, src, begin, cost, local)?;
            }
            if during > 0 {
                state.busy[src] = state.sent[src];
            }
        }
    }
    if during > 0 {
        for rank in 0..state.busy.len() {
            state.busy[rank] = state.work(noise, rank, state.busy[rank], during)?;
        }
    }
    for priced in spans.iter().filter(|priced| handshake && priced.may_wait()) {
        for (src, dst) in priced.span.edges(ranks) {
            let (cost, local) = priced.between(src, dst);
            if !cost.rendezvous {
                continue;
            }
            let (src, dst, latency) = (src as usize, dst as usize, cost.latency);
            let granted = (state.sent[src] + latency).max(state.time[dst]) + latency;
            let begin = granted.max(state.send_free[src]);
            state.send(noise, src, begin, cost, local)?;
        }
    }
    for priced in spans {
        for (src, dst) in priced.span.edges(ranks) {
            let (cost, _) = priced.between(src, dst);
            let (src, dst) = (src as usize, dst as usize);
            let latency = cost.latency + state.deviation.get(src).copied().unwrap_or(0);
            let first_byte = (state.sent[src] + latency).max(state.recv_free[dst]);
            state.recv_free[dst] = first_byte + cost.gap;
            let begin = (first_byte + cost.transfer).max(state.received[dst]);
            let worked = state.work(noise, dst, begin, cost.recv_cpu)?;
            state.received[dst] = worked.max(state.time[dst]);
        }
    }
    // Times may only advance now: up to here they were the post times of receives.
    for priced in spans {
        for (src, dst) in priced.span.edges(ranks) {
            let (cost, _) = priced.between(src, dst);
            let (src, dst) = (src as usize, dst as usize);
            let ended = match cost.rendezvous {
                true if handshake => state.sent[src] + cost.transfer,
                true => state.received[dst],
                false => 0,
            };
            state.time[src] = state.time[src].max(state.sent[src]).max(ended);
            state.time[dst] = state.time[dst].max(state.received[dst]);
        }
    }
    if during > 0 {
        state.wait();
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
    /// Exchanges what ranks carry.
    fn swap(&mut self, ranks: &mut RankStates) {
        std::mem::swap(&mut self.time, &mut ranks.ends);
        std::mem::swap(&mut self.received, &mut ranks.received);
        std::mem::swap(&mut self.send_free, &mut ranks.send_free);
        std::mem::swap(&mut self.recv_free, &mut ranks.recv_free);
        std::mem::swap(&mut self.clear_from, &mut ranks.clear_from);
        std::mem::swap(&mut self.clear_until, &mut ranks.clear_until);
    }

    /// Every rank computes.
    fn compute(&mut self, noise: &RunNoise<'_>, compute: i64) -> Result<(), WorkError> {
        if compute > 0 {
            for rank in 0..self.time.len() {
                self.time[rank] = self.work(noise, rank, self.time[rank], compute)?;
            }
        }
        Ok(())
    }

    /// Every rank computes while the collective that begins now progresses.
    fn compute_meanwhile(&mut self, noise: &RunNoise<'_>, compute: i64) -> Result<(), WorkError> {
        if compute > 0 {
            self.wait();
            for rank in 0..self.busy.len() {
                self.busy[rank] = self.work(noise, rank, self.time[rank], compute)?;
            }
        }
        Ok(())
    }

    /// Every rank waits for its compute.
    fn wait(&mut self) {
        for (time, busy) in self.time.iter_mut().zip(&self.busy) {
            *time = (*time).max(*busy);
        }
    }

    /// The CPU hands a message to the NIC.
    fn send(
        &mut self,
        noise: &RunNoise<'_>,
        rank: usize,
        begin: i64,
        cost: &MessageCost,
        local: bool,
    ) -> Result<(), WorkError> {
        let left = self.work(noise, rank, begin, cost.send_cpu)?;
        self.sent[rank] = left;
        self.send_free[rank] = left - cost.send_cpu + cost.gap;
        if let Some(latencies) = noise.latencies() {
            let message = &mut self.messages[rank];
            // Only the network between nodes varies.
            let deviation = || latencies.deviation(rank as u64, *message as u64);
            self.deviation[rank] = if local { 0 } else { deviation() };
            *message += 1;
        }
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
        let model = noise.model();
        if model == Model::Preempt {
            let done = begin + work;
            if self.clear_from[rank] <= begin && done <= self.clear_until[rank] {
                return in_time(done);
            }
        }
        let local = noise.local(rank as u64);
        match model {
            Model::Preempt => local.preempt_and_clear(begin, work).map(|(done, clear)| {
                (self.clear_from[rank], self.clear_until[rank]) = (clear.from, clear.until);
                done
            }),
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
