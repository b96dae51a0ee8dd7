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

use super::{RunError, zeroed};
use crate::{
    collectives::Pattern,
    job::{Job, Priced},
    loggops::MessageCost,
    noise::{RunNoise, WorkError},
    simd,
};

/// Ranks computed at once: four vectors of the widest kind.
const LANES: usize = 32;

/// Ranks whose old times are put aside at once; their arrays fit in the first cache.
const BLOCK: usize = 1024;

/// Beyond this nothing is clear: the exact path notices that time has run out.
const FOREVER: i64 = 1 << 62;

/// A clear time that is not to be trusted.
const NEVER: i64 = -1;

#[derive(Debug, Default)]
pub struct State {
    /// When the rank's send of the coming round has left its CPU; at last, when it is done.
    time: Vec<i64>,
    clear: Vec<i64>,
    /// When the NIC takes the next message from outside. Empty where that never matters.
    recv_free: Vec<i64>,
    /// Old times that a shift would overwrite too early.
    saved: Vec<i64>,
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

/// One round for one rank: receive a message, combine, issue the next send.
#[derive(Clone, Copy)]
struct Step {
    message: MessageCost,
    /// Work between the receive and the next send: combining, compute.
    between: i64,
    /// The NIC takes the next send so long after the last one left the CPU.
    send_wait: i64,
    /// CPU time of the next send; 0 after the last round.
    send: i64,
    last: bool,
}

pub fn run(job: &Job, noise: &RunNoise<'_>, state: &mut State) -> Result<(), RunError> {
    let gaps = gaps_matter(job);
    let arrays = if gaps { 3 } else { 2 };
    zeroed(&mut state.time, job.ranks(), arrays)?;
    zeroed(&mut state.clear, job.ranks(), arrays)?;
    zeroed(&mut state.recv_free, if gaps { job.ranks() } else { 0 }, arrays)?;

    // A round is computed when the next one is known: it includes the next one's send.
    let mut pending: Option<Priced> = None;
    let mut failed = Ok(());
    for _ in 0..job.iterations() {
        let _ = job.rounds(&mut |compute, round| {
            let next = round[0];
            let done = match pending.replace(next) {
                None => start(state, noise, compute, next.cost.cpu),
                Some(priced) => advance(state, noise, &priced, compute, Some(next.cost.cpu)),
            };
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
        Some(last) => advance(state, noise, &last, 0, None)?,
        // A single rank: compute is all there is.
        None => start(state, noise, job.lonely_compute(), 0)?,
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
    if noise.is_none() {
        for (time, clear) in state.time.iter_mut().zip(&mut state.clear) {
            *time += compute + send;
            *clear = FOREVER;
            if *time > FOREVER {
                return Err(WorkError::Overflow);
            }
        }
        return Ok(());
    }
    noise.clear_at_start(&mut state.clear);
    for (rank, (time, clear)) in (0..).zip(state.time.iter_mut().zip(&mut state.clear)) {
        *time += compute + send;
        if *time > *clear {
            *time = noise.local(rank).preempt(*time - compute - send, compute + send)?;
            *clear = NEVER;
        }
    }
    Ok(())
}

fn advance(
    state: &mut State,
    noise: &RunNoise<'_>,
    priced: &Priced,
    compute: i64,
    next_send: Option<i64>,
) -> Result<(), WorkError> {
    let cost = priced.cost;
    let step = Step {
        message: cost,
        between: priced.reduce + compute,
        // No send, no waiting for one.
        send_wait: if next_send.is_some() { cost.gap - cost.cpu } else { -FOREVER },
        send: next_send.unwrap_or(0),
        last: next_send.is_none(),
    };
    let State { time, clear, recv_free, saved } = state;
    let mut round = Round { time, clear, recv_free, noise, step };
    match priced.span.pattern {
        Pattern::Shift { distance } => round.shift(distance as usize, saved),
        Pattern::Swap { mask, .. } => round.swap(mask as usize, saved),
        Pattern::Edges { .. } => unreachable!("edges are not full; `can` refuses them"),
    }
}

struct Round<'a, 'n> {
    time: &'a mut [i64],
    clear: &'a mut [i64],
    recv_free: &'a mut [i64],
    noise: &'a RunNoise<'n>,
    step: Step,
}

impl Round<'_, '_> {
    /// Receiver j hears from j - distance. In place: times that are still needed are not yet
    /// overwritten, because receivers are done from the top down, or from the bottom up, whichever
    /// has to save less.
    fn shift(&mut self, distance: usize, saved: &mut Vec<i64>) -> Result<(), WorkError> {
        let ranks = self.time.len();
        if ranks.is_multiple_of(distance) && distance > BLOCK {
            // Columns of the array folded at `distance` are independent of each other: a piece of
            // the last row is all there is to save.
            for column in (0..distance).step_by(BLOCK) {
                let width = BLOCK.min(distance - column);
                let last = ranks - distance + column;
                save(saved, &self.time[last..last + width]);
                for row in (1..ranks / distance).rev() {
                    self.from_below(row * distance + column, width, distance)?;
                }
                self.receive(column, width, Source::Saved(saved))?;
            }
            return Ok(());
        }
        if distance <= ranks / 2 {
            save(saved, &self.time[ranks - distance..]);
            let mut end = ranks;
            while end > distance {
                let width = BLOCK.min(end - distance);
                end -= width;
                self.from_below(end, width, distance)?;
            }
            return self.receive(0, distance, Source::Saved(saved));
        }
        let up = ranks - distance;
        save(saved, &self.time[..up]);
        for first in (0..distance).step_by(BLOCK) {
            self.from_above(first, BLOCK.min(distance - first), up)?;
        }
        self.receive(distance, up, Source::Saved(saved))
    }

    /// A block of receivers hears from `distance` below.
    fn from_below(&mut self, first: usize, width: usize, distance: usize) -> Result<(), WorkError> {
        if distance >= width {
            return self.receive(first, width, Source::At(first - distance));
        }
        let mut from = [0; BLOCK];
        from[..width].copy_from_slice(&self.time[first - distance..first - distance + width]);
        self.receive(first, width, Source::Saved(&from[..width]))
    }

    fn from_above(&mut self, first: usize, width: usize, distance: usize) -> Result<(), WorkError> {
        if distance >= width {
            return self.receive(first, width, Source::At(first + distance));
        }
        let mut from = [0; BLOCK];
        from[..width].copy_from_slice(&self.time[first + distance..first + distance + width]);
        self.receive(first, width, Source::Saved(&from[..width]))
    }

    /// Pairs of ranks whose numbers differ in one bit.
    fn swap(&mut self, mask: usize, saved: &mut Vec<i64>) -> Result<(), WorkError> {
        let ranks = self.time.len();
        if mask < BLOCK {
            for first in (0..ranks).step_by(BLOCK) {
                let width = BLOCK.min(ranks - first);
                let mut from = [0; BLOCK];
                for (at, pair) in from[..width].chunks_exact_mut(2 * mask).enumerate() {
                    let times = &self.time[first + at * 2 * mask..][..2 * mask];
                    pair[..mask].copy_from_slice(&times[mask..]);
                    pair[mask..].copy_from_slice(&times[..mask]);
                }
                self.receive(first, width, Source::Saved(&from[..width]))?;
            }
            return Ok(());
        }
        for low in (0..ranks).step_by(2 * mask) {
            for first in (low..low + mask).step_by(BLOCK) {
                save(saved, &self.time[first..first + BLOCK]);
                self.receive(first, BLOCK, Source::At(first + mask))?;
                self.receive(first + mask, BLOCK, Source::Saved(saved))?;
            }
        }
        Ok(())
    }

    /// Receivers `first..first + width` hear from senders whose messages left at these times.
    fn receive(&mut self, first: usize, width: usize, from: Source<'_>) -> Result<(), WorkError> {
        let (own, from) = match from {
            Source::Saved(times) => (&mut self.time[first..first + width], times),
            Source::At(src) if src < first => {
                let (low, high) = self.time.split_at_mut(first);
                (&mut high[..width], &low[src..src + width])
            }
            Source::At(src) => {
                let (low, high) = self.time.split_at_mut(src);
                (&mut low[first..first + width], &high[..width])
            }
        };
        let clear = &mut self.clear[first..first + width];
        let (step, noise) = (&self.step, self.noise);
        if self.recv_free.is_empty() {
            let block = Block::<false> { first, own, from, clear, recv_free: &mut [], step, noise };
            return simd::widest(block);
        }
        let recv_free = &mut self.recv_free[first..first + width];
        simd::widest(Block::<true> { first, own, from, clear, recv_free, step, noise })
    }
}

/// Neighbouring ranks and their senders: all of the same length, but for `recv_free`, which is empty
/// where gaps do not matter.
struct Block<'a, 'n, const GAPS: bool> {
    first: usize,
    own: &'a mut [i64],
    from: &'a [i64],
    clear: &'a mut [i64],
    recv_free: &'a mut [i64],
    step: &'a Step,
    noise: &'a RunNoise<'n>,
}

impl<const GAPS: bool> simd::Kernel for Block<'_, '_, GAPS> {
    type Output = Result<(), WorkError>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Block { first, own, from, clear, recv_free, step, noise } = self;
        let (groups, rest) = own.as_chunks_mut::<LANES>();
        let (from_groups, from_rest) = from.as_chunks::<LANES>();
        let (clear_groups, clear_rest) = clear.as_chunks_mut::<LANES>();
        let (free_groups, free_rest) = recv_free.as_chunks_mut::<LANES>();
        let whole = groups.len();
        let inputs = from_groups.iter().zip(clear_groups);
        for (at, (own, (from, clear))) in groups.iter_mut().zip(inputs).enumerate() {
            let mut unused = [0; LANES];
            let recv_free = if GAPS { &mut free_groups[at] } else { &mut unused };
            let lanes = Lanes { rank: first + at * LANES, own, from, clear, recv_free };
            lanes.receive::<GAPS>(step, noise)?;
        }
        if rest.is_empty() {
            return Ok(());
        }
        // The last few, with ranks beside them that nothing can happen to.
        let used = rest.len();
        let padded = |values: &[i64], fill: i64| {
            let mut padded = [fill; LANES];
            padded[..values.len()].copy_from_slice(values);
            padded
        };
        let mut own = padded(rest, 0);
        let mut clear = padded(clear_rest, i64::MAX);
        let mut recv_free = padded(free_rest, 0);
        let lanes = Lanes {
            rank: first + whole * LANES,
            own: &mut own,
            from: &padded(from_rest, 0),
            clear: &mut clear,
            recv_free: &mut recv_free,
        };
        lanes.receive::<GAPS>(step, noise)?;
        rest.copy_from_slice(&own[..used]);
        clear_rest.copy_from_slice(&clear[..used]);
        if GAPS {
            free_rest.copy_from_slice(&recv_free[..used]);
        }
        Ok(())
    }
}

/// Where the senders' times are.
enum Source<'a> {
    At(usize),
    Saved(&'a [i64]),
}

/// Neighbouring ranks, computed together.
struct Lanes<'a> {
    rank: usize,
    own: &'a mut [i64; LANES],
    from: &'a [i64; LANES],
    clear: &'a mut [i64; LANES],
    recv_free: &'a mut [i64; LANES],
}

impl Lanes<'_> {
    /// As if there were no detours. Whole arrays are loaded, computed and stored: nothing stands in
    /// the way of wide vectors.
    #[inline(always)]
    fn receive<const GAPS: bool>(
        mut self,
        step: &Step,
        noise: &RunNoise<'_>,
    ) -> Result<(), WorkError> {
        let Step { message, between, send_wait, send, .. } = *step;
        let after_arrival = message.transfer + message.cpu;
        let (mut done, mut beyond) = ([0; LANES], 0);
        for lane in 0..LANES {
            let own = self.own[lane];
            let mut begin = self.from[lane] + message.latency;
            if GAPS {
                begin = begin.max(self.recv_free[lane]);
            }
            let next = own.max(begin + after_arrival) + between;
            done[lane] = if GAPS { next.max(own + send_wait) + send } else { next + send };
            // The sign says whether one of them is beyond its clear time; both are far from the
            // ends of the range.
            beyond |= self.clear[lane] - done[lane];
        }
        if beyond < 0 {
            // Rare, but not so rare that it may cost much: only the ranks that are hit.
            let mut hit = 0u32;
            for lane in 0..LANES {
                hit |= u32::from(done[lane] > self.clear[lane]) << lane;
            }
            let before = *self.own;
            *self.own = done;
            self.exactly::<GAPS>(step, noise, hit, &before)?;
        } else {
            *self.own = done;
        }
        if GAPS {
            for lane in 0..LANES {
                let begin = (self.from[lane] + message.latency).max(self.recv_free[lane]);
                self.recv_free[lane] = begin + message.gap;
            }
        }
        Ok(())
    }

    /// Ranks that have a detour near: their time, and until when they are clear.
    #[cold]
    #[inline(never)]
    fn exactly<const GAPS: bool>(
        &mut self,
        step: &Step,
        noise: &RunNoise<'_>,
        mut hit: u32,
        before: &[i64; LANES],
    ) -> Result<(), WorkError> {
        let Step { message, between, send_wait, send, last } = *step;
        if noise.is_none() {
            return Err(WorkError::Overflow);
        }
        while hit != 0 {
            let lane = hit.trailing_zeros() as usize;
            hit &= hit - 1;
            let own = before[lane];
            let mut begin = self.from[lane] + message.latency;
            if GAPS {
                begin = begin.max(self.recv_free[lane]);
            }
            let arrived = begin + message.transfer;
            let mut cursor = noise.local((self.rank + lane) as u64).at(arrived);
            let received = cursor.work(arrived, message.cpu)?.max(own);
            // Until when it is clear is asked for from here on, whatever the cursor passes.
            let clear = cursor.clear_until(received);
            let mut time = received;
            if between > 0 {
                time = cursor.work(time, between)?;
            }
            if !last {
                if GAPS {
                    time = time.max(own + send_wait);
                }
                time = cursor.work(time, send)?;
            }
            self.clear[lane] = if clear < time { NEVER } else { clear };
            self.own[lane] = time;
        }
        Ok(())
    }
}

fn save(saved: &mut Vec<i64>, times: &[i64]) {
    saved.clear();
    saved.extend_from_slice(times);
}
