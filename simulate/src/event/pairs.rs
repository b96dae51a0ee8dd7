//! Settles beforehand which receive gets which message, as far as that does not depend on the times.
//! What is left is first come first served within a channel (same source, target and tag), or, at a
//! target that has wildcards, a search.

use super::{
    floors::Floors,
    schedule::{ANY, Kind, NOBODY, Pairing, Schedule},
};

/// One end of a message on its way to a target: (source, tag, operation).
type End = (u32, u32, u32);

pub(crate) fn settle(schedule: &mut Schedule) {
    let ranks = schedule.ranks() as usize;
    let searching = searching(schedule);
    let (begins, sends) = sends_by_target(schedule, ranks);
    let mut channels = 0;
    let mut searches = 0;
    let mut floors = Floors::default();
    let (mut incoming, mut wanted): (Vec<End>, Vec<End>) = (Vec::new(), Vec::new());
    for target in 0..ranks {
        let sends = &sends[begins[target]..begins[target + 1]];
        let receives = schedule.of_rank(target as u32);
        if searching[target] {
            for op in sends.iter().map(|&(_, op)| op).chain(receives) {
                let op = &mut schedule.ops[op as usize];
                // Its own sends are another target's business.
                if op.kind == Kind::Recv || op.peer as usize == target && op.kind == Kind::Send {
                    op.pairing = Pairing::Search;
                    op.partner = searches;
                }
            }
            searches += 1;
            continue;
        }
        incoming.clear();
        incoming
            .extend(sends.iter().map(|&(source, op)| (source, schedule.ops[op as usize].tag, op)));
        wanted.clear();
        wanted.extend(receives.filter_map(|index| {
            let op = &schedule.ops[index as usize];
            (op.kind == Kind::Recv).then_some((op.peer, op.tag, index))
        }));
        incoming.sort_unstable();
        wanted.sort_unstable();
        pair(schedule, target, &incoming, &wanted, &mut channels, &mut floors);
    }
    schedule.channels = channels;
    schedule.searches = searches;
}

/// Targets at which a message may have several receives to choose from by wildcard.
fn searching(schedule: &Schedule) -> Vec<bool> {
    let mut searching = vec![false; schedule.ranks() as usize];
    for rank in 0..schedule.ranks() {
        for op in schedule.of_rank(rank) {
            let op = &schedule.ops[op as usize];
            match op.kind {
                Kind::Recv if op.peer == ANY || op.tag == ANY => searching[rank as usize] = true,
                Kind::Send if op.tag == ANY => searching[op.peer as usize] = true,
                _ => {}
            }
        }
    }
    searching
}

/// (source, operation) of all sends, those to target t from `begins[t]` to `begins[t + 1]`.
fn sends_by_target(schedule: &Schedule, ranks: usize) -> (Vec<usize>, Vec<(u32, u32)>) {
    let mut begins = vec![0; ranks + 1];
    let count = schedule.operations();
    for op in schedule.ops[..count].iter().filter(|op| op.kind == Kind::Send) {
        begins[op.peer as usize + 1] += 1;
    }
    for target in 0..ranks {
        begins[target + 1] += begins[target];
    }
    let mut sends = vec![(0, 0); begins[ranks]];
    let mut next = begins.clone();
    for rank in 0..ranks as u32 {
        for index in schedule.of_rank(rank) {
            let op = &schedule.ops[index as usize];
            if op.kind == Kind::Send {
                let place = &mut next[op.peer as usize];
                sends[*place] = (rank, index);
                *place += 1;
            }
        }
    }
    (begins, sends)
}

/// Both lists sorted by source, tag and program order.
fn pair(
    schedule: &mut Schedule,
    target: usize,
    incoming: &[End],
    wanted: &[End],
    channels: &mut u32,
    floors: &mut Floors,
) {
    let (mut i, mut w) = (0, 0);
    while i < incoming.len() || w < wanted.len() {
        let key = |end: Option<&End>| end.map_or((u32::MAX, u32::MAX), |end| (end.0, end.1));
        let (source, tag) = key(incoming.get(i)).min(key(wanted.get(w)));
        let same = |end: &&End| (end.0, end.1) == (source, tag);
        let sends = &incoming[i..][..incoming[i..].iter().take_while(same).count()];
        let receives = &wanted[w..][..wanted[w..].iter().take_while(same).count()];
        i += sends.len();
        w += receives.len();
        let first = |ends: &[End]| ends.first().map(|end| schedule.ops[end.2 as usize]);
        let same_slots = || {
            first(sends).is_some_and(|a| {
                sends.iter().all(|end| {
                    let b = &schedule.ops[end.2 as usize];
                    (a.cpu, a.nic) == (b.cpu, b.nic)
                })
            })
        };
        let mut in_turn = |rank: u32, settled: bool, ends: &[End]| {
            settled || floors.in_turn(schedule, rank, ends.iter().map(|end| end.2))
        };
        if sends.is_empty() || receives.is_empty() {
            // Fixed to nobody, as they were built.
        } else if (sends.len(), receives.len()) == (1, 1)
            // In a fixed order at both ends the n-th message is for the n-th receive. On several CPUs
            // or NICs one message may overtake another all the same.
            || same_slots()
                && in_turn(source, schedule.ordered[source as usize].local, sends)
                && in_turn(target as u32, schedule.ordered[target].receives, receives)
        {
            for at in 0..sends.len().max(receives.len()) {
                let send = sends.get(at).map(|end| end.2);
                let receive = receives.get(at).map(|end| end.2);
                let size = |op: Option<u32>| op.map(|op| schedule.ops[op as usize].size);
                let uneven = size(send) != size(receive);
                for (one, other) in [(send, receive), (receive, send)] {
                    if let Some(one) = one {
                        let op = &mut schedule.ops[one as usize];
                        op.partner = other.unwrap_or(NOBODY);
                        op.pairing = if uneven { Pairing::Uneven } else { Pairing::Fixed };
                    }
                }
            }
        } else {
            for end in sends.iter().chain(receives) {
                let op = &mut schedule.ops[end.2 as usize];
                op.pairing = Pairing::Channel;
                op.partner = *channels;
            }
            *channels += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{OpId, ScheduleBuilder, WILDCARD};
    use super::*;

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
        assert_eq!((schedule.channels, schedule.searches), (0, 0));
    }

    /// Two neighbours, step after step: within a step in any order.
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
    }
}
