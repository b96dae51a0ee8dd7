//! Determines in advance which receive gets which message, as far as that does not depend on the
//! times. The rest is first come, first served within a channel (same source, target and tag), or, if
//! receives have wildcards, a search among the possible messages.

use super::{
    ANY, APART,
    floors::Floors,
    schedule::{Kind, NOBODY, Pairing, Schedule},
    wants::{End, Wants},
};
use crate::huge_pages;

/// Pairs sends with receives, given how many messages each rank gets; an empty list says nothing.
pub(crate) fn settle(schedule: &mut Schedule, mpi: bool, messages_to: &[u32]) {
    let sends = match messages_to {
        [] => Sends::by_target(schedule),
        _ => Sends::counted(schedule, messages_to),
    };
    at_each_target(schedule, sends, mpi, |pairs, target, incoming, wanted| {
        if mpi {
            pairs.at_target_of_mpi(target, incoming, wanted);
        } else {
            pairs.at_target(target, incoming, wanted);
        }
    });
}

/// Determines nothing: every message is searched for.
#[cfg(test)]
pub(crate) fn search_all(schedule: &mut Schedule) {
    let sends = Sends::by_target(schedule);
    at_each_target(schedule, sends, false, |pairs, _, incoming, wanted| {
        pairs.search(incoming, wanted)
    });
}

fn at_each_target(
    schedule: &mut Schedule,
    Sends { begins, mut sends }: Sends,
    mpi: bool,
    mut settle: impl FnMut(&mut Pairs<'_>, usize, &[End], &[End]),
) {
    let ranks = schedule.ranks() as usize;
    let (channels, wants) = (0, Wants::default());
    let mut pairs = Pairs { schedule, channels, wants, floors: Floors::default(), mpi };
    let (mut wanted, mut spare): (Vec<End>, Vec<End>) = (Vec::new(), Vec::new());
    for target in 0..ranks {
        let incoming = &mut sends[begins[target]..begins[target + 1]];
        wanted.clear();
        let own = pairs.schedule.of_rank(target as u32);
        let ops = &pairs.schedule.ops[own.start as usize..own.end as usize];
        wanted.extend(
            own.zip(ops).filter_map(|(index, op)| {
                (op.kind == Kind::Recv).then_some((op.tag, op.peer, index))
            }),
        );
        sort(incoming, &mut spare);
        sort(&mut wanted, &mut spare);
        settle(&mut pairs, target, incoming, &wanted);
    }
    let Pairs { channels, wants, .. } = pairs;
    schedule.channels = channels;
    schedule.wants = wants;
}

/// From this many, counting is faster than comparing.
const MANY: usize = 4_096;
/// Bits that are sorted by at once.
const DIGITS: u32 = 11;

/// Sorts by tag, source and operation. Operations come in ascending order for each source.
fn sort(ends: &mut [End], spare: &mut Vec<End>) {
    if ends.len() < MANY {
        ends.sort_unstable();
        return;
    }
    if ends.is_sorted() {
        return;
    }
    // Most ranks have few neighbours and few tags: only digits that differ are looked at.
    let (tag, source, _) = ends[0];
    let (tags, sources) =
        ends.iter().fold((0, 0), |bits, end| (bits.0 | (end.0 ^ tag), bits.1 | (end.1 ^ source)));
    if ends.len() > spare.len() {
        let more = ends.len() - spare.len();
        huge_pages::reserve(spare, more);
        spare.resize(ends.len(), (0, 0, 0));
    }
    let (mut from, mut to) = (&mut *ends, &mut spare[..]);
    let mut moved = false;
    for (by_tag, bits) in [(false, sources), (true, tags)] {
        for shift in [0, DIGITS, 2 * DIGITS] {
            let digit = |key: u32| (key >> shift) as usize & ((1 << DIGITS) - 1);
            if digit(bits) == 0 {
                continue;
            }
            let place = |end: &End| digit(if by_tag { end.0 } else { end.1 });
            let mut counts = [0u32; 1 << DIGITS];
            from.iter().for_each(|end| counts[place(end)] += 1);
            let mut next = 0;
            for count in &mut counts {
                next += std::mem::replace(count, next);
            }
            for end in &*from {
                let at = &mut counts[place(end)];
                to[*at as usize] = *end;
                *at += 1;
            }
            (from, to) = (&mut to[..from.len()], from);
            moved = !moved;
        }
    }
    if moved {
        to.copy_from_slice(from);
    }
}

/// All sends by target.
pub(crate) struct Sends {
    begins: Vec<usize>,
    /// Those to target t from `begins[t]` to `begins[t + 1]`.
    sends: Vec<End>,
}

impl Sends {
    pub fn by_target(schedule: &Schedule) -> Sends {
        let mut messages_to = vec![0; schedule.ranks() as usize];
        let count = schedule.operations();
        for op in schedule.ops[..count].iter().filter(|op| op.kind == Kind::Send) {
            messages_to[op.peer as usize] += 1;
        }
        Sends::counted(schedule, &messages_to)
    }

    /// Given how many there are to each rank.
    fn counted(schedule: &Schedule, messages_to: &[u32]) -> Sends {
        let ranks = schedule.ranks() as usize;
        let mut begins = vec![0; ranks + 1];
        for (target, count) in messages_to.iter().enumerate() {
            begins[target + 1] = begins[target] + *count as usize;
        }
        let mut sends = Vec::new();
        huge_pages::reserve_exact(&mut sends, begins[ranks]);
        sends.resize(begins[ranks], (0, 0, 0));
        let mut next = begins.clone();
        for rank in 0..ranks as u32 {
            let own = schedule.of_rank(rank);
            let ops = &schedule.ops[own.start as usize..own.end as usize];
            for (index, op) in own.zip(ops) {
                if op.kind == Kind::Send {
                    let place = &mut next[op.peer as usize];
                    sends[*place] = (op.tag, rank, index);
                    *place += 1;
                }
            }
        }
        Sends { begins, sends }
    }

    /// The sends to this rank, by source and operation.
    pub fn to(&self, rank: u32) -> &[End] {
        &self.sends[self.begins[rank as usize]..self.begins[rank as usize + 1]]
    }
}

struct Pairs<'a> {
    schedule: &'a mut Schedule,
    channels: u32,
    wants: Wants,
    floors: Floors,
    /// Messages do not overtake each other.
    mpi: bool,
}

impl Pairs<'_> {
    /// A receive with any tag takes only what is not [`APART`].
    fn at_target_of_mpi(&mut self, target: usize, incoming: &[End], wanted: &[End]) {
        let below = |ends: &[End], tag: u32| ends.partition_point(|end| end.0 < tag);
        let (common, any_tag) = (below(wanted, APART), below(wanted, ANY));
        let (messages, apart) = incoming.split_at(below(incoming, APART));
        self.at_target(target, apart, &wanted[common..any_tag]);
        match any_tag == wanted.len() {
            true => self.at_target(target, messages, &wanted[..common]),
            false => {
                let wanted = [&wanted[..common], &wanted[any_tag..]].concat();
                self.at_target(target, messages, &wanted);
            }
        }
    }

    /// Both lists are sorted, which puts wildcards last.
    fn at_target(&mut self, target: usize, incoming: &[End], wanted: &[End]) {
        let any_tag = |ends: &[End]| ends.last().is_some_and(|end| end.0 == ANY);
        if any_tag(incoming) || any_tag(wanted) {
            self.search(incoming, wanted);
        } else if wanted.iter().all(|end| end.1 != ANY) {
            self.pair(target, incoming, wanted);
        } else {
            // From any source, but each tag is separate.
            let mut incoming = incoming;
            for wanted in wanted.chunk_by(|a, b| a.0 == b.0) {
                let tag = wanted[0].0;
                let begin = incoming.partition_point(|end| end.0 < tag);
                let (same, rest) = incoming[begin..]
                    .split_at(incoming[begin..].partition_point(|end| end.0 == tag));
                incoming = rest;
                if wanted.last().is_some_and(|end| end.1 == ANY) {
                    self.search(same, wanted);
                } else {
                    self.pair(target, same, wanted);
                }
            }
        }
    }

    /// Without wildcards.
    fn pair(&mut self, target: usize, incoming: &[End], wanted: &[End]) {
        let (mut i, mut w) = (0, 0);
        while i < incoming.len() || w < wanted.len() {
            let key = |end: Option<&End>| end.map_or((u32::MAX, u32::MAX), |end| (end.0, end.1));
            let (tag, source) = key(incoming.get(i)).min(key(wanted.get(w)));
            let same = |end: &&End| (end.0, end.1) == (tag, source);
            let sends = &incoming[i..][..incoming[i..].iter().take_while(same).count()];
            let receives = &wanted[w..][..wanted[w..].iter().take_while(same).count()];
            i += sends.len();
            w += receives.len();
            if sends.is_empty() || receives.is_empty() {
                // Left unmatched, as built.
            } else if self.mpi
                || (sends.len(), receives.len()) == (1, 1)
                || self.in_order(source as usize, sends, target, receives)
            {
                self.fix(sends, receives);
            } else {
                for end in sends.iter().chain(receives) {
                    let op = &mut self.schedule.ops[end.2 as usize];
                    (op.pairing, op.partner) = (Pairing::Channel, self.channels);
                }
                self.channels += 1;
            }
        }
    }

    /// Any of these messages may match any of these receives.
    fn search(&mut self, sends: &[End], receives: &[End]) {
        let ops = &mut self.schedule.ops;
        self.wants.add(sends, receives, |op, partner| {
            let op = &mut ops[op as usize];
            (op.pairing, op.partner) = (Pairing::Search, partner);
        });
    }

    /// Whether the messages arrive in order and the receives are posted in order. With several CPUs or
    /// NICs one message may still overtake another.
    fn in_order(&mut self, source: usize, sends: &[End], target: usize, receives: &[End]) -> bool {
        let Pairs { schedule, floors, .. } = self;
        let slots = |end: &End| {
            let op = &schedule.ops[end.2 as usize];
            (op.cpu, op.nic)
        };
        let mut in_turn = |rank: usize, settled: bool, ends: &[End]| {
            settled || floors.in_turn(schedule, rank as u32, ends.iter().map(|end| end.2))
        };
        sends.windows(2).all(|pair| slots(&pair[0]) == slots(&pair[1]))
            && in_turn(source, schedule.ordered[source].local, sends)
            && in_turn(target, schedule.ordered[target].receives, receives)
    }

    /// The n-th message is for the n-th receive.
    fn fix(&mut self, sends: &[End], receives: &[End]) {
        let ops = &mut self.schedule.ops;
        for at in 0..sends.len().max(receives.len()) {
            let send = sends.get(at).map(|end| end.2);
            let receive = receives.get(at).map(|end| end.2);
            let size = |op: Option<u32>| op.map(|op| ops[op as usize].size);
            let pairing =
                if size(send) == size(receive) { Pairing::Fixed } else { Pairing::Uneven };
            for (one, other) in [(send, receive), (receive, send)] {
                if let Some(one) = one {
                    let op = &mut ops[one as usize];
                    op.partner = other.unwrap_or(NOBODY);
                    op.pairing = pairing;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{OpId, ScheduleBuilder, WILDCARD, wants::Fits};
    use super::*;

    #[test]
    fn many_ends_are_sorted_like_few() {
        let mut state = 1u32;
        let mut draw = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        // From many to few, with one spare: it may be longer than what is sorted.
        let mut spare = Vec::new();
        let cases = [(70_000, 9_000), (1, 100_000), (5_000, 1), (3, 5), (1, 5), (2, 1), (1, 1)];
        for (case, (tags, sources)) in (0u32..).zip(cases) {
            let any = sources > 5;
            let mut ends: Vec<End> = (0..(8 - case) * MANY as u32)
                .map(|op| {
                    let tag = draw(tags);
                    let tag = if tag == 2 { ANY } else { tag | (tag & 1) << 31 };
                    (tag, if any && draw(9) == 0 { ANY } else { draw(sources) }, op)
                })
                .collect();
            let mut expected = ends.clone();
            expected.sort_unstable();
            sort(&mut ends, &mut spare);
            assert_eq!(ends, expected);
        }
    }

    #[test]
    fn messages_in_a_fixed_order_are_paired_once_and_for_all() {
        let mut b = ScheduleBuilder::new(2);
        b.begin_rank();
        let (s, t) = (b.send(1, 1, 7, 0, 0), b.send(1, 1, 7, 0, 0));
        b.requires(t, s);
        b.begin_rank();
        let (r, q) = (b.recv(1, 0, 7, 0, 0), b.recv(1, 0, 7, 0, 0));
        b.requires(q, r);
        let schedule = b.finish().unwrap();
        let partners: Vec<_> = schedule.ops[..4].iter().map(|op| op.partner).collect();
        assert_eq!(partners, [2, 3, 0, 1]);
        assert!(schedule.is_settled());
    }

    /// Two neighbours, step after step: in any order within a step.
    #[test]
    fn messages_of_steps_that_wait_for_each_other_are_paired_once_and_for_all() {
        for (waits, channels) in [(true, 0), (false, 2)] {
            let mut b = ScheduleBuilder::new(2);
            for rank in 0..2 {
                b.begin_rank();
                let mut before: Vec<OpId> = Vec::new();
                for _ in 0..3 {
                    let calc = b.calc(5, 0);
                    before.iter().for_each(|&on| b.requires(calc, on));
                    before = vec![b.send(1, 1 - rank, 0, 0, 0), b.recv(1, 1 - rank, 0, 0, 0)];
                    before.iter().for_each(|&op| b.requires(op, calc));
                    before.truncate(if waits { 2 } else { 0 });
                }
            }
            let schedule = b.finish().unwrap();
            assert_eq!(schedule.channels, channels);
            assert_eq!(schedule.partner(1), waits.then_some(11));
        }
    }

    #[test]
    fn in_any_order_they_share_a_channel_and_wildcards_search() {
        let mut b = ScheduleBuilder::new(3);
        b.begin_rank();
        b.send(1, 1, 7, 0, 0);
        b.send(1, 1, 7, 0, 0);
        b.send(1, 2, 7, 0, 0);
        b.begin_rank();
        b.recv(1, 0, 7, 0, 0);
        b.recv(1, 0, 7, 0, 0);
        b.begin_rank();
        b.recv(1, WILDCARD, 7, 0, 0);
        let schedule = b.finish().unwrap();
        let found: Vec<_> = schedule.ops[..6].iter().map(|op| (op.pairing, op.partner)).collect();
        let (channel, search) = ((Pairing::Channel, 0), (Pairing::Search, 0));
        assert_eq!(found, [channel, channel, search, channel, channel, search]);
        assert_eq!(schedule.wants.of(0), Fits::Wants(&[0]));
    }

    #[test]
    fn who_receives_from_anyone_searches_among_messages_of_that_tag() {
        let mut b = ScheduleBuilder::new(2);
        b.begin_rank();
        for tag in [7, 8, 9, 7] {
            b.send(1, 1, tag, 0, 0);
        }
        b.begin_rank();
        for (from, tag) in [(WILDCARD, 7), (0, 7), (0, 9), (WILDCARD, 8), (0, 5)] {
            b.recv(1, from, tag, 0, 0);
        }
        let schedule = b.finish().unwrap();
        let found: Vec<_> = schedule.ops[..9].iter().map(|op| (op.pairing, op.partner)).collect();
        let search = |partner| (Pairing::Search, partner);
        let (nine, none) = (|other| (Pairing::Fixed, other), (Pairing::Fixed, NOBODY));
        let [seven, eight] = [search(0), search(1)];
        // Wanted: tag 7 of rank 0, tag 7 of any source, tag 8 of any source.
        let wanted = [search(1), search(0), nine(2), search(2), none];
        assert_eq!(found[..4], [seven, eight, nine(6), seven]);
        assert_eq!(found[4..], wanted);
        assert_eq!(schedule.wants.of(0), Fits::Wants(&[0, 1]));
        assert_eq!(schedule.wants.of(1), Fits::Wants(&[2]));
    }
}
