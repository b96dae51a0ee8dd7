//! Several rounds at once over as many ranks as fit in the L2 cache, so that a run makes two or three
//! passes through memory instead of one per round.
//!
//! - Short shifts: a piece of the array is put through all the rounds. In each it loses its lowest
//!   ranks, as many as the shift distance: they receive from below, where nothing has been done yet.
//!   The piece below, which comes next, finds them as they were and includes them.
//! - Short swaps: pieces that are longer than any of them are independent of each other.
//! - Long shifts and swaps: the array, folded into rows as long as the shortest of them, splits into
//!   independent columns.
//!
//! What is independent is divided among threads.

use std::ops::Range;

use super::{
    array::Array,
    aside::Aside,
    latest,
    pass::Round,
    regular::{Ends, State},
    vectors::{LANES, Ranks, ReceiveOrder, Step, Varied},
};
use crate::{
    collectives::Pattern,
    noise::{RunNoise, WorkError},
};

/// Ranks processed at once: their arrays fit in the L2 cache next to the detours that are looked up.
const TILE: usize = 1 << 14;

/// Maximum total distance of short shifts.
const REACH: usize = TILE * 9 / 16;

/// Arrays up to this long stay in the L2 cache anyway.
const SMALL: usize = 4 * TILE;

/// A round to execute.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    pub pattern: Pattern,
    pub step: Step,
    /// How many messages each rank has sent before this one.
    pub number: u64,
}

impl Planned {
    fn varied<'a>(&self, noise: &RunNoise<'a>) -> Option<Varied<'a>> {
        let latencies = noise.latencies()?.message(self.number);
        Some(Varied { latencies, pattern: self.pattern })
    }
}

/// Memory of a thread.
#[derive(Debug, Default)]
pub struct Worker {
    tile: Tile,
    aside: Aside,
}

impl Worker {
    /// An error may have left ranks deferred.
    pub fn clear(&mut self) {
        self.aside.clear();
    }
}

#[derive(Debug, Default)]
struct Tile {
    time: Array,
    clear: Array,
    recv_free: Array,
    received: Array,
    posted: Array,
    saved: Array,
    /// Times of the last ranks before each round, which the first ranks need at the end.
    old: Vec<i64>,
}

/// Executes all the rounds, in order.
pub fn run(
    mut rounds: &[Planned],
    noise: &RunNoise<'_>,
    state: &mut State,
) -> Result<(), WorkError> {
    while !rounds.is_empty() {
        let short = short_shifts(rounds, state.time.len());
        let (row, long) = long_ones(rounds, state.time.len());
        let near = short_swaps(rounds, state.time.len());
        if short > 1 {
            pieces(&rounds[..short], noise, state)?;
            rounds = &rounds[short..];
            continue;
        }
        let State { time, clear, start, .. } = state;
        start.from(0, noise, time, clear)?;
        let done = if near > 1 {
            blocks(&rounds[..near], noise, state)?;
            near
        } else if long > 1 {
            columns(&rounds[..long], row, noise, state)?;
            long
        } else {
            let Planned { pattern, step, .. } = rounds[0];
            let varied = rounds[0].varied(noise);
            let State { time, clear, recv_free, received, posted, workers, .. } = state;
            let Worker { tile, aside } = &mut workers[0];
            let order = ReceiveOrder { received, posted };
            let ranks = Ranks::in_order(0, time.len());
            let mut round =
                Round { ranks, time, clear, recv_free, order, varied, noise, step, aside };
            one(&mut round, pattern, &mut tile.saved)?;
            1
        };
        rounds = &rounds[done..];
    }
    Ok(())
}

fn one(round: &mut Round<'_, '_>, pattern: Pattern, saved: &mut Array) -> Result<(), WorkError> {
    match pattern {
        Pattern::Shift { distance } => round.shift(distance as usize, saved),
        Pattern::Swap { mask, .. } => round.swap(mask as usize, saved),
        Pattern::Edges { .. } => unreachable!("edges are not full; `can` refuses them"),
    }
}

/// Number of rounds from here that are short shifts and can be done together.
fn short_shifts(rounds: &[Planned], ranks: usize) -> usize {
    if ranks <= SMALL {
        return 0;
    }
    let mut lag = 0;
    let short = rounds.iter().take_while(|round| match round.pattern {
        Pattern::Shift { distance } if distance <= REACH as u64 => {
            lag = behind(lag, distance as usize);
            lag <= REACH
        }
        _ => false,
    });
    short.count()
}

/// Number of rounds from here that are swaps within pieces.
fn short_swaps(rounds: &[Planned], ranks: usize) -> usize {
    if ranks <= SMALL || !ranks.is_multiple_of(TILE) {
        return 0;
    }
    let short = |round: &&Planned| match round.pattern {
        Pattern::Swap { mask, .. } => mask < TILE as u64,
        _ => false,
    };
    rounds.iter().take_while(short).count()
}

/// The row length at which the array splits into columns, and for how many rounds.
fn long_ones(rounds: &[Planned], ranks: usize) -> (usize, usize) {
    let length = |round: &Planned| match round.pattern {
        Pattern::Shift { distance } => distance as usize,
        Pattern::Swap { mask, .. } => mask as usize,
        Pattern::Edges { .. } => 0,
    };
    let row = rounds.first().map_or(0, length);
    if ranks <= SMALL || row < LANES || ranks / row * LANES > SMALL {
        return (row, 0);
    }
    let long = rounds.iter().take_while(|round| {
        let length = length(round);
        length.is_multiple_of(row) && ranks.is_multiple_of(length)
    });
    (row, long.count())
}

fn pieces(rounds: &[Planned], noise: &RunNoise<'_>, state: &mut State) -> Result<(), WorkError> {
    let State { time, clear, recv_free, received, posted, workers, start, .. } = state;
    let Worker { tile, aside } = &mut workers[0];
    let all = time.len();
    let mut part = Part { first: 0, arrays: [time, clear, recv_free, received, posted] };
    let top = (all - reach(rounds)) / TILE * TILE;
    tile.old.clear();
    let mut end = all;
    while end > 0 {
        let first = if end == all { top } else { end - TILE };
        let [time, clear, ..] = &mut part.arrays;
        start.from(first, noise, time, clear)?;
        let (mut lag, mut used) = (0, 0);
        for planned in rounds {
            let Pattern::Shift { distance } = planned.pattern else { continue };
            let distance = distance as usize;
            lag = behind(lag, distance);
            if end == all {
                tile.old.extend_from_slice(&part.arrays[0][all - distance..]);
            }
            let old = &tile.old[used..used + distance];
            used += distance;
            // The lowest piece has nothing below it, the highest nothing above.
            let begin = if first == 0 { 0 } else { first + lag - distance };
            let end = if end == all { all } else { end + lag };
            let mut piece = part.round(begin..end, all, planned, noise, aside);
            if first == 0 {
                piece.shift_from(old, distance)?;
            } else {
                piece.shift_up(distance)?;
            }
        }
        end = first;
    }
    Ok(())
}

/// How far a round lags behind the start of the piece, given the lag of the previous one. In cache
/// lines.
fn behind(lag: usize, distance: usize) -> usize {
    (lag + distance).next_multiple_of(LANES)
}

/// The lag of the last of these rounds.
fn reach(rounds: &[Planned]) -> usize {
    rounds.iter().fold(0, |lag, round| match round.pattern {
        Pattern::Shift { distance } => behind(lag, distance as usize),
        _ => lag,
    })
}

/// Does the parts of a round, each in a thread of its own. The first error is that of the first part.
fn in_threads<T: Send, O: Send>(
    parts: Vec<T>,
    workers: &mut [Worker],
    each: &(dyn Fn(T, &mut Worker) -> Result<O, WorkError> + Sync),
) -> Result<Vec<O>, WorkError> {
    if parts.len() <= 1 {
        return parts.into_iter().map(|part| each(part, &mut workers[0])).collect();
    }
    std::thread::scope(|scope| {
        let started: Vec<_> = parts
            .into_iter()
            .zip(workers)
            .map(|(part, worker)| scope.spawn(move || each(part, worker)))
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        started.into_iter().map(join).collect()
    })
}

/// Consecutive ranks in all arrays of a [`State`]. Arrays that are not needed for this network are empty.
struct Part<'a> {
    first: usize,
    arrays: [&'a mut [i64]; 5],
}

fn blocks(rounds: &[Planned], noise: &RunNoise<'_>, state: &mut State) -> Result<(), WorkError> {
    let State { time, clear, recv_free, received, posted, workers, .. } = state;
    let all = time.len();
    let each = (all / TILE).div_ceil(workers.len()) * TILE;
    let mut parts = Vec::with_capacity(workers.len());
    let mut rest: [&mut [i64]; 5] = [time, clear, recv_free, received, posted];
    for first in (0..all).step_by(each) {
        let split = rest.map(|array| array.split_at_mut(each.min(array.len())));
        let [a, b, c, d, e] = split;
        parts.push(Part { first, arrays: [a.0, b.0, c.0, d.0, e.0] });
        rest = [a.1, b.1, c.1, d.1, e.1];
    }
    in_threads(parts, workers, &|part, worker| part.run(rounds, all, noise, worker))?;
    Ok(())
}

impl Part<'_> {
    fn run(
        mut self,
        rounds: &[Planned],
        all: usize,
        noise: &RunNoise<'_>,
        worker: &mut Worker,
    ) -> Result<(), WorkError> {
        let Worker { tile, aside } = worker;
        for begin in (0..self.arrays[0].len()).step_by(TILE) {
            for planned in rounds {
                let mut piece = self.round(begin..begin + TILE, all, planned, noise, aside);
                one(&mut piece, planned.pattern, &mut tile.saved)?;
            }
        }
        Ok(())
    }

    /// One round on a range of this part.
    fn round<'r, 'n>(
        &'r mut self,
        range: Range<usize>,
        all: usize,
        planned: &Planned,
        noise: &'r RunNoise<'n>,
        aside: &'r mut Aside,
    ) -> Round<'r, 'n> {
        let ranks = Ranks::in_order(self.first + range.start, all);
        let [time, clear, recv_free, received, posted] =
            self.arrays.each_mut().map(|array| match array.is_empty() {
                true => &mut array[..],
                false => &mut array[range.clone()],
            });
        Round {
            ranks,
            time,
            clear,
            recv_free,
            order: ReceiveOrder { received, posted },
            varied: planned.varied(noise),
            noise,
            step: planned.step,
            aside,
        }
    }
}

fn columns(
    rounds: &[Planned],
    row: usize,
    noise: &RunNoise<'_>,
    state: &mut State,
) -> Result<(), WorkError> {
    let State { time, clear, recv_free, received, posted, workers, ends, .. } = state;
    let last = rounds.iter().any(|round| round.step.last);
    let all = time.len();
    // All tiles are as wide as in one thread: swaps need powers of two.
    let width = (TILE / (all / row)).clamp(LANES, row);
    let each = row.div_ceil(width).div_ceil(workers.len()) * width;
    let mut parts: Vec<Columns<'_>> =
        (0..row).step_by(each).map(|first| Columns { first, lines: Default::default() }).collect();
    for (number, array) in [&mut **time, clear, recv_free, received, posted].into_iter().enumerate()
    {
        for line in array.chunks_exact_mut(row) {
            for (part, line) in parts.iter_mut().zip(line.chunks_mut(each)) {
                part.lines[number].push(line);
            }
        }
    }
    // After the last round only the times are needed, unless another job follows.
    let wanted = match ends {
        Ends::Dropped { .. } if last => 0,
        Ends::Kept if last => 1,
        _ => 5,
    };
    let all_latest = in_threads(parts, workers, &|part, worker| {
        part.run(rounds, (row, width), all, wanted, noise, worker)
    })?;
    if let (true, Ends::Dropped { latest }) = (last, &mut *ends) {
        *latest = all_latest.into_iter().max().max(*latest);
    }
    Ok(())
}

/// Columns of all arrays of a [`State`], line by line. Arrays that are not needed for this network are empty.
struct Columns<'a> {
    first: usize,
    lines: [Vec<&'a mut [i64]>; 5],
}

impl Columns<'_> {
    /// Puts so many of the arrays back; returns the latest time if that is none of them.
    fn run(
        mut self,
        rounds: &[Planned],
        (row, width): (usize, usize),
        all: usize,
        wanted: usize,
        noise: &RunNoise<'_>,
        worker: &mut Worker,
    ) -> Result<i64, WorkError> {
        let rows = all / row;
        let own = self.lines[0].first().map_or(0, |line| line.len());
        let Worker { tile, aside } = worker;
        let Tile { time: t, clear: c, recv_free: r, received: d, posted: p, saved, .. } = tile;
        let mut so_far = 0;
        for first in (0..own).step_by(width) {
            let width = width.min(own - first);
            for (piece, lines) in [&mut *t, c, r, d, p].into_iter().zip(&self.lines) {
                piece.copy(lines.iter().map(|line| &line[first..first + width]));
            }
            let ranks = Ranks::in_columns(self.first + first, width, row, all);
            for planned in rounds {
                // The same pattern in an array with shorter rows.
                let pattern = match planned.pattern {
                    Pattern::Shift { distance } => {
                        Pattern::Shift { distance: distance / row as u64 * width as u64 }
                    }
                    Pattern::Swap { mask, .. } => Pattern::Swap {
                        ranks: (rows * width) as u64,
                        mask: mask / row as u64 * width as u64,
                    },
                    edges => edges,
                };
                let mut round = Round {
                    ranks,
                    time: t,
                    clear: c,
                    recv_free: r,
                    order: ReceiveOrder { received: d, posted: p },
                    varied: planned.varied(noise),
                    noise,
                    step: planned.step,
                    aside,
                };
                one(&mut round, pattern, saved)?;
            }
            if wanted == 0 {
                so_far = latest(t).max(so_far);
            }
            for (piece, lines) in [&*t, c, r, d, p].into_iter().zip(&mut self.lines).take(wanted) {
                for (line, piece) in lines.iter_mut().zip(piece.chunks_exact(width)) {
                    line[first..first + width].copy_from_slice(piece);
                }
            }
        }
        Ok(so_far)
    }
}
