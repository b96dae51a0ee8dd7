//! A round of the redundant butterfly, for two mates and their partners (see the header of `cycle`). A
//! rank that reached its level with its mate's help stores the complement of its time, which is
//! negative: it sends no redundant message of that level, and takes the slow path.

use super::config::Costs;
use super::detours::{Ahead, Detours, Rank};

/// What a round does besides the original exchange.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// A redundant message follows the original one.
    pub sends: bool,
    /// The mate's redundant message of the next level can replace the partner's.
    pub helps: bool,
}

impl Round {
    /// Round `round` of a redundant set. In round 0 the partner is the mate, whose original message
    /// leaves before any redundant one; in the last round only the partner's message counts.
    pub fn of(set: u64, round: u32, rounds: u32) -> Round {
        let has = |round: u32| set >> round & 1 == 1;
        Round { sends: has(round), helps: round > 0 && round + 1 < rounds && has(round + 1) }
    }
}

/// The time a rank stores, and whether its mate helped it.
#[inline]
pub(super) fn unmark(ready: i64) -> (i64, bool) {
    if ready < 0 { (!ready, true) } else { (ready, false) }
}

#[inline]
pub(super) fn mark(ready: i64, helped: bool) -> i64 {
    if helped { !ready } else { ready }
}

/// Round 0: the partner is the mate.
#[inline]
pub(super) fn first<D: Detours>(
    noise: D,
    costs: Costs,
    round: Round,
    low: &mut [Rank<D::Ahead>],
    high: &mut [Rank<D::Ahead>],
) {
    for (a, b) in low.iter_mut().zip(high) {
        let (sent_a, free_a) = sends(noise, costs, round, a);
        let (sent_b, free_b) = sends(noise, costs, round, b);
        a.ready = noise.work(&mut a.next, free_a.max(sent_b + costs.flight), costs.cpu);
        b.ready = noise.work(&mut b.next, free_b.max(sent_a + costs.flight), costs.cpu);
    }
}

/// Round 1 and later: `low` and `high` hold mates side by side.
#[inline]
pub(super) fn later<D: Detours>(
    noise: D,
    costs: Costs,
    round: Round,
    low: &mut [Rank<D::Ahead>],
    high: &mut [Rank<D::Ahead>],
) {
    let own = if round.sends { 2 * costs.cpu } else { costs.cpu };
    let arrival = costs.cpu + costs.flight;
    // Minimum time from a receive until the mate has the redundant message.
    let help = if round.helps { 2 * costs.cpu + costs.flight } else { i64::MAX >> 1 };
    for (low, high) in low.chunks_exact_mut(2).zip(high.chunks_exact_mut(2)) {
        let ([a, b], [c, d]) = (low, high) else { continue };
        let arrives = |partner: &Rank<D::Ahead>| partner.ready + arrival;
        let (at_a, at_b, at_c, at_d) = (arrives(c), arrives(d), arrives(a), arrives(b));
        let done = |rank: &Rank<D::Ahead>, at: i64| (rank.ready + own).max(at) + costs.cpu;
        let (done_a, done_b) = (done(a, at_a), done(b, at_b));
        let (done_c, done_d) = (done(c, at_c), done(d, at_d));
        let unhit = (done_a <= a.next.clear())
            & (done_b <= b.next.clear())
            & (done_c <= c.next.clear())
            & (done_d <= d.next.clear());
        let unhelped = (done_a + help >= at_b)
            & (done_b + help >= at_a)
            & (done_c + help >= at_d)
            & (done_d + help >= at_c);
        // One sign test for all four.
        let unmarked = (a.ready | b.ready | c.ready | d.ready) >= 0;
        if unhit & unhelped & unmarked {
            (a.ready, b.ready, c.ready, d.ready) = (done_a, done_b, done_c, done_d);
        } else {
            hit(noise, costs, round, [a, b, c, d]);
        }
    }
}

/// The original message and, if due, the redundant one: when the first has left, and when the rank is
/// free again.
#[inline]
fn sends<D: Detours>(
    noise: D,
    costs: Costs,
    round: Round,
    rank: &mut Rank<D::Ahead>,
) -> (i64, i64) {
    let (ready, helped) = unmark(rank.ready);
    let sent = noise.work(&mut rank.next, ready, costs.cpu);
    if round.sends && !helped {
        (sent, noise.work(&mut rank.next, sent, costs.cpu))
    } else {
        (sent, sent)
    }
}

#[cold]
#[inline(never)]
fn hit<D: Detours>(noise: D, costs: Costs, round: Round, [a, b, c, d]: [&mut Rank<D::Ahead>; 4]) {
    let (sent_a, free_a) = sends(noise, costs, round, a);
    let (sent_b, free_b) = sends(noise, costs, round, b);
    let (sent_c, free_c) = sends(noise, costs, round, c);
    let (sent_d, free_d) = sends(noise, costs, round, d);
    let at = |sent: i64| sent + costs.flight;
    mates(noise, costs, round.helps, (a, free_a, at(sent_c)), (b, free_b, at(sent_d)));
    mates(noise, costs, round.helps, (c, free_c, at(sent_a)), (d, free_d, at(sent_b)));
}

/// Two mates, when each is free, and when its partner's message arrives.
#[inline]
pub(super) fn mates<D: Detours>(
    noise: D,
    costs: Costs,
    helps: bool,
    (a, free_a, at_a): (&mut Rank<D::Ahead>, i64, i64),
    (b, free_b, at_b): (&mut Rank<D::Ahead>, i64, i64),
) {
    let receive = |rank: &Rank<D::Ahead>, free: i64, at: i64| {
        let mut next = rank.next;
        let ready = noise.work(&mut next, free.max(at), costs.cpu);
        Rank { ready, next }
    };
    let mut own_a = receive(a, free_a, at_a);
    let mut own_b = receive(b, free_b, at_b);
    if helps {
        let (help_a, help_b) = (help(noise, costs, own_b), help(noise, costs, own_a));
        // Never both: the helper received before the other's message arrived.
        if help_a < at_a {
            own_a = receive(a, free_a, help_a);
            own_a.ready = mark(own_a.ready, true);
        } else if help_b < at_b {
            own_b = receive(b, free_b, help_b);
            own_b.ready = mark(own_b.ready, true);
        }
    }
    (*a, *b) = (own_a, own_b);
}

/// When the redundant message of a rank that just received reaches its mate.
#[inline]
pub(super) fn help<D: Detours>(noise: D, costs: Costs, mut rank: Rank<D::Ahead>) -> i64 {
    let sent = noise.work(&mut rank.next, rank.ready, costs.cpu);
    noise.work(&mut rank.next, sent, costs.cpu) + costs.flight
}
