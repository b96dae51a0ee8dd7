//! Redundant sets with gaps. A rank that waits for a level outside the set can be helped by the next
//! level g of the set, which its mate reaches rounds later: a round then depends on a later one. But
//! never on a later *time*, so the times are the only fixed point of the rules: guess when each rank's
//! help arrives (never), run the rounds up to g, see when it would have arrived, and repeat until
//! nothing changes. Every pass settles at least the earliest wrong guess; in practice two to four
//! passes suffice.

use rayon::prelude::*;

use super::butterfly;
use super::config::{CycleError, Plan};
use super::detours::{Detours, Rank};
use super::redundant::{Round, help, mark, mates, unmark};

/// No help.
const NEVER: i64 = i64::MAX;
/// Far more passes than rounds: only a network without any delay could need this many.
const MAX_PASSES: u32 = 1000;

struct RankState<A> {
    now: Rank<A>,
    /// At the beginning of the stretch.
    entry: Rank<A>,
    /// When the mate's message of level g arrives: the guess, and the result.
    guess: i64,
    found: i64,
}

/// Rounds `first..=last`. All but the last lead to levels outside the set; the last leads to level
/// `last + 1`, inside it.
pub(super) fn stretch<D: Detours>(
    plan: &Plan<D>,
    ranks: &mut [Rank<D::Ahead>],
    first: u32,
    last: u32,
) -> Result<(), CycleError> {
    let mut cells: Vec<RankState<D::Ahead>> = ranks
        .par_iter()
        .map(|&entry| RankState { now: entry, entry, guess: NEVER, found: NEVER })
        .collect();
    for _ in 0..MAX_PASSES {
        butterfly::rounds(&mut cells, first..last + 1, |round, low, high| {
            let sends = Round::of(plan.redundant, round, plan.rounds).sends;
            for (low, high) in low.chunks_exact_mut(2).zip(high.chunks_exact_mut(2)) {
                let ([a, b], [c, d]) = (low, high) else { continue };
                step(plan, sends, round == last, [a, b, c, d]);
            }
        });
        let settled = cells.par_iter().all(|cell| cell.guess == cell.found);
        if settled {
            ranks.par_iter_mut().zip(&cells).for_each(|(rank, cell)| *rank = cell.now);
            return Ok(());
        }
        cells.par_iter_mut().for_each(|cell| {
            cell.now = cell.entry;
            cell.guess = cell.found;
        });
    }
    Err(CycleError::NotSettled)
}

/// One round of two mates and their partners. `sends`: the round is in the set, so a mark means "sends
/// no redundant message"; otherwise it means "already helped, does not wait".
fn step<D: Detours>(
    plan: &Plan<D>,
    sends: bool,
    last: bool,
    [a, b, c, d]: [&mut RankState<D::Ahead>; 4],
) {
    let (noise, costs) = (plan.noise, plan.costs);
    let send = |cell: &mut RankState<D::Ahead>| {
        let (ready, helped) = unmark(cell.now.ready);
        let sent = noise.work(&mut cell.now.next, ready, costs.cpu);
        let again = sends && !helped;
        let free = if again { noise.work(&mut cell.now.next, sent, costs.cpu) } else { sent };
        (sent, free, helped && !sends)
    };
    let (from_a, from_b, from_c, from_d) = (send(a), send(b), send(c), send(d));
    for (x, y, of_x, of_y, to_x, to_y) in
        [(a, b, from_a, from_b, from_c, from_d), (c, d, from_c, from_d, from_a, from_b)]
    {
        let at_x = to_x.0 + costs.flight;
        let at_y = to_y.0 + costs.flight;
        if !last {
            receive(plan, x, of_x, at_x);
            receive(plan, y, of_y, at_y);
            continue;
        }
        // Level g: a rank that got here without help sends its redundant message, which is the guess
        // of the next pass. A mate that waits for no other level uses it immediately.
        let ((_, free_x, helped_x), (_, free_y, helped_y)) = (of_x, of_y);
        let own = |cell: &RankState<D::Ahead>, free: i64, at: i64| {
            let mut next = cell.now.next;
            let ready = noise.work(&mut next, free.max(at), costs.cpu);
            help(noise, costs, Rank { ready, next })
        };
        match (helped_x, helped_y) {
            (false, false) => {
                let (of_x, of_y) = (own(x, free_x, at_x), own(y, free_y, at_y));
                mates(noise, costs, true, (&mut x.now, free_x, at_x), (&mut y.now, free_y, at_y));
                x.found = if y.now.ready < 0 { NEVER } else { of_y };
                y.found = if x.now.ready < 0 { NEVER } else { of_x };
            }
            (true, false) => {
                x.found = own(y, free_y, at_y);
                y.found = NEVER;
                x.now.ready = mark(free_x, true);
                y.now.ready = noise.work(&mut y.now.next, free_y.max(at_y), costs.cpu);
            }
            (false, true) => {
                y.found = own(x, free_x, at_x);
                x.found = NEVER;
                y.now.ready = mark(free_y, true);
                x.now.ready = noise.work(&mut x.now.next, free_x.max(at_x), costs.cpu);
            }
            (true, true) => {
                // Wrong guesses: neither could have helped.
                (x.found, y.found) = (NEVER, NEVER);
                x.now.ready = mark(free_x, true);
                y.now.ready = mark(free_y, true);
            }
        }
    }
}

/// A level outside the set: the partner's message, or the guessed help, or no wait at all.
fn receive<D: Detours>(
    plan: &Plan<D>,
    cell: &mut RankState<D::Ahead>,
    (_, free, helped): (i64, i64, bool),
    at: i64,
) {
    if helped {
        cell.now.ready = mark(free, true);
        return;
    }
    let helped = cell.guess < at;
    let from = free.max(at.min(cell.guess));
    let ready = plan.noise.work(&mut cell.now.next, from, plan.costs.cpu);
    cell.now.ready = mark(ready, helped);
}
