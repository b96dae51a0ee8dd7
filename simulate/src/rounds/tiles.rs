//! Several rounds at once over as many ranks as fit in the L2 cache, so that a run makes two or three
//! passes through memory instead of one per round.
//!
//! - Short shifts: a piece of the array is put through all the rounds. In each it loses its lowest
//!   ranks, as many as the shift distance: they receive from below, where nothing has been done yet.
//!   The piece below, which comes next, finds them as they were and includes them.
//! - Long shifts and swaps: the array, folded into rows as long as the shortest of them, splits into
//!   independent columns.

use super::{
    array::Array,
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

#[derive(Debug, Default)]
pub struct Tile {
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
        if short > 1 {
            pieces(&rounds[..short], noise, state)?;
            rounds = &rounds[short..];
            continue;
        }
        let State { time, clear, start, .. } = state;
        start.from(0, noise, time, clear)?;
        let done = if long > 1 {
            columns(&rounds[..long], row, noise, state)?;
            long
        } else {
            let Planned { pattern, step, .. } = rounds[0];
            let varied = rounds[0].varied(noise);
            let State { time, clear, recv_free, received, posted, saved, aside, .. } = state;
            let order = ReceiveOrder { received, posted };
            let ranks = Ranks::in_order(0, time.len());
            let mut round =
                Round { ranks, time, clear, recv_free, order, varied, noise, step, aside };
            one(&mut round, pattern, saved)?;
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
    let State { time, clear, recv_free, received, posted, tile, aside, start, .. } = state;
    let all = time.len();
    let top = (all - reach(rounds)) / TILE * TILE;
    tile.old.clear();
    let mut end = all;
    while end > 0 {
        let first = if end == all { top } else { end - TILE };
        start.from(first, noise, time, clear)?;
        let (mut lag, mut used) = (0, 0);
        for planned in rounds {
            let Pattern::Shift { distance } = planned.pattern else { continue };
            let distance = distance as usize;
            lag = behind(lag, distance);
            if end == all {
                tile.old.extend_from_slice(&time[all - distance..]);
            }
            let old = &tile.old[used..used + distance];
            used += distance;
            // The lowest piece has nothing below it, the highest nothing above.
            let begin = if first == 0 { 0 } else { first + lag - distance };
            let end = if end == all { all } else { end + lag };
            let gaps = if recv_free.is_empty() { 0..0 } else { begin..end };
            let after = if received.is_empty() { 0..0 } else { begin..end };
            let mut piece = Round {
                ranks: Ranks::in_order(begin, all),
                time: &mut time[begin..end],
                clear: &mut clear[begin..end],
                recv_free: &mut recv_free[gaps],
                order: ReceiveOrder {
                    received: &mut received[after.clone()],
                    posted: &mut posted[after],
                },
                varied: planned.varied(noise),
                noise,
                step: planned.step,
                aside,
            };
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

fn columns(
    rounds: &[Planned],
    row: usize,
    noise: &RunNoise<'_>,
    state: &mut State,
) -> Result<(), WorkError> {
    let State { time, clear, recv_free, received, posted, tile, aside, ends, .. } = state;
    let last = rounds.iter().any(|round| round.step.last);
    let all = time.len();
    let rows = all / row;
    let width = (TILE / rows).clamp(LANES, row);
    let Tile { time: t, clear: c, recv_free: r, received: d, posted: p, saved, .. } = tile;
    for first in (0..row).step_by(width) {
        let width = width.min(row - first);
        let arrays = [&*time, clear, recv_free, received, posted];
        for (piece, array) in [&mut *t, c, r, d, p].into_iter().zip(arrays) {
            piece.copy(array.chunks_exact(row).map(|line| &line[first..first + width]));
        }
        let ranks = Ranks::in_columns(first, width, row, all);
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
        if let (true, Ends::Dropped { latest: so_far }) = (last, &mut *ends) {
            *so_far = Some(so_far.unwrap_or(0).max(latest(t)));
            continue;
        }
        // After the last round only the times are needed, unless another job follows.
        let wanted = if last && !matches!(ends, Ends::Carried) { 1 } else { 5 };
        let whole = [&mut *time, clear, recv_free, received, posted];
        let arrays = [&*t, c, r, d, p].into_iter().zip(whole);
        for (piece, array) in arrays.take(wanted) {
            for (line, piece) in array.chunks_exact_mut(row).zip(piece.chunks_exact(width)) {
                line[first..first + width].copy_from_slice(piece);
            }
        }
    }
    Ok(())
}
