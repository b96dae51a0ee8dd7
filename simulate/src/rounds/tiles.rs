//! Several rounds at once over as many ranks as the second cache holds, so that a run goes through
//! memory twice or three times instead of once per round.
//!
//! - Short shifts: a piece of the array is put through all the rounds. The ranks before it, as many as
//!   the shifts reach back, are put through them as well, in a copy, of which ever fewer are right.
//!   Pieces are taken from the top down, so that what the next one needs has not been replaced yet.
//! - Long shifts and swaps: the array, folded into rows as long as the shortest of them, falls apart
//!   into columns that have nothing to do with each other.

use super::{
    array::Array,
    exchange::State,
    lanes::{LANES, Ranks, Step},
    pass::Round,
};
use crate::{
    collectives::Pattern,
    noise::{RunNoise, WorkError},
};

/// Ranks worked on at once: their arrays fit in the second cache with room to spare.
const TILE: usize = 1 << 15;

/// Short shifts reach back so far, all together.
const HALO: usize = TILE / 8;

/// Arrays up to this long stay in the second cache anyway.
const SMALL: usize = 2 * TILE;

/// A round that is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    pub pattern: Pattern,
    pub step: Step,
}

#[derive(Debug, Default)]
pub struct Tile {
    time: Array,
    clear: Array,
    recv_free: Array,
    /// Old values from the end of the arrays, which the first ranks need last.
    ends: [Vec<i64>; 3],
    saved: Array,
}

/// Does all the rounds, in order.
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
            let Planned { pattern, step } = rounds[0];
            let State { time, clear, recv_free, saved, aside, .. } = state;
            let ranks = Ranks::in_order(0, time.len());
            one(&mut Round { ranks, time, clear, recv_free, noise, step, aside }, pattern, saved)?;
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

/// How many rounds from here on are short shifts that can be done together.
fn short_shifts(rounds: &[Planned], ranks: usize) -> usize {
    if ranks <= SMALL {
        return 0;
    }
    let mut reach = 0;
    let short = rounds.iter().take_while(|round| match round.pattern {
        Pattern::Shift { distance } => {
            reach += distance as usize;
            reach <= HALO
        }
        _ => false,
    });
    short.count()
}

/// The row length at which the array falls apart into columns, and for how many rounds it does.
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
    let State { time, clear, recv_free, tile, aside, start, .. } = state;
    let all = time.len();
    let distances = rounds.iter().map(|round| match round.pattern {
        Pattern::Shift { distance } => distance as usize,
        _ => 0,
    });
    let halo: usize = distances.sum();
    let Tile { time: t, clear: c, recv_free: r, ends, .. } = tile;
    start.from(all - halo, noise, time, clear)?;
    for (end, array) in ends.iter_mut().zip([&*time, &*clear, &*recv_free]) {
        end.clear();
        end.extend_from_slice(&array[array.len().saturating_sub(halo)..]);
    }
    let mut end = all;
    while end > 0 {
        let first = end.saturating_sub(TILE);
        // What comes before the first rank is the end of the array, as it was.
        let front = halo.min(first);
        start.from(first - front, noise, time, clear)?;
        for ((copy, array), old) in
            [&mut *t, c, r].into_iter().zip([&*time, clear, recv_free]).zip(&*ends)
        {
            // Where gaps do not matter, there is nothing to copy.
            let below = if array.is_empty() { 0..0 } else { first - front..first };
            let round_the_end = old.len().saturating_sub(halo - front)..old.len();
            copy.copy([&old[round_the_end], &array[below]].into_iter());
        }
        let mut wrong = 0;
        for Planned { pattern, step } in rounds {
            let Pattern::Shift { distance } = *pattern else { continue };
            let distance = distance as usize;
            wrong += distance;
            let gaps = if recv_free.is_empty() { 0..0 } else { first..end };
            let mut piece = Round {
                ranks: Ranks::in_order(first, all),
                time: &mut time[first..end],
                clear: &mut clear[first..end],
                recv_free: &mut recv_free[gaps],
                noise,
                step: *step,
                aside,
            };
            piece.shift_from(&t[halo - distance..], distance)?;
            let ranks = Ranks::in_order(all + first - halo, all);
            let mut before =
                Round { ranks, time: t, clear: c, recv_free: r, noise, step: *step, aside };
            before.shift_up(wrong.min(halo), distance)?;
        }
        end = first;
    }
    Ok(())
}

fn columns(
    rounds: &[Planned],
    row: usize,
    noise: &RunNoise<'_>,
    state: &mut State,
) -> Result<(), WorkError> {
    let State { time, clear, recv_free, tile, aside, .. } = state;
    let all = time.len();
    let rows = all / row;
    let width = (TILE / rows).clamp(LANES, row);
    let Tile { time: t, clear: c, recv_free: r, saved, .. } = tile;
    for first in (0..row).step_by(width) {
        let width = width.min(row - first);
        for (piece, array) in [&mut *t, c, r].into_iter().zip([&*time, clear, recv_free]) {
            piece.copy(array.chunks_exact(row).map(|line| &line[first..first + width]));
        }
        let ranks = Ranks::in_columns(first, width, row, all);
        for Planned { pattern, step } in rounds {
            // The same pattern in an array whose rows are shorter.
            let pattern = match *pattern {
                Pattern::Shift { distance } => {
                    Pattern::Shift { distance: distance / row as u64 * width as u64 }
                }
                Pattern::Swap { mask, .. } => Pattern::Swap {
                    ranks: (rows * width) as u64,
                    mask: mask / row as u64 * width as u64,
                },
                edges => edges,
            };
            let mut round =
                Round { ranks, time: t, clear: c, recv_free: r, noise, step: *step, aside };
            one(&mut round, pattern, saved)?;
        }
        // Nobody asks for more than times after the last round.
        let wanted = if rounds.iter().any(|round| round.step.last) { 1 } else { 3 };
        let arrays = [&*t, c, r].into_iter().zip([&mut *time, clear, recv_free]);
        for (piece, array) in arrays.take(wanted) {
            for (line, piece) in array.chunks_exact_mut(row).zip(piece.chunks_exact(width)) {
                line[first..first + width].copy_from_slice(piece);
            }
        }
    }
    Ok(())
}
