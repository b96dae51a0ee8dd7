//! Random schedules and networks for property tests.

use proptest::prelude::*;

use super::{OpId, Schedule, ScheduleBuilder, WILDCARD};
use crate::loggops::Params;

/// One operation: kind, peer, bytes, tag, cpu, nic, and the earlier ones it depends on.
pub(crate) type Sketch = (u8, u32, u64, u32, (u8, u8), Vec<(usize, bool)>);

const RANKS: u32 = 4;

/// Sends come with their receives, so that most schedules complete.
pub(crate) fn sketches() -> impl Strategy<Value = Vec<Vec<Sketch>>> {
    let op = (
        0u8..4,
        0..RANKS,
        prop_oneof![Just(0u64), Just(1), 1u64..3_000],
        0u32..3,
        (0u8..2, 0u8..2),
        prop::collection::vec((1usize..4, any::<bool>()), 0..3),
    );
    prop::collection::vec(prop::collection::vec(op, 0..8), RANKS as usize..=RANKS as usize)
}

/// In a chain every operation requires the previous one: on ranks whose bit is set, except for the
/// last receives; with all bits set, for these as well.
pub(crate) fn schedule(sketches: &[Vec<Sketch>], wildcards: bool, chained: u8) -> Schedule {
    let mut wanted = vec![Vec::new(); RANKS as usize];
    for (rank, ops) in sketches.iter().enumerate() {
        for (kind, peer, _, tag, slot, _) in ops {
            if *kind >= 2 {
                // Large enough for any message that may match.
                wanted[*peer as usize].push((rank as u32, 3_000, *tag, *slot));
            }
        }
    }
    let mut builder = ScheduleBuilder::new(RANKS);
    for (rank, ops) in sketches.iter().enumerate() {
        builder.begin_rank();
        let mut wanted = wanted[rank].iter();
        for (count, (kind, peer, bytes, tag, (cpu, nic), on)) in ops.iter().enumerate() {
            let op = match kind {
                0 => builder.calc(*bytes as i64 * 10, *cpu),
                1 => match wanted.next() {
                    Some(&(from, bytes, tag, (cpu, nic))) => {
                        let from = if wildcards && tag == 0 { WILDCARD } else { from };
                        builder.recv(bytes, from, tag, cpu, nic)
                    }
                    None => builder.calc(0, 0),
                },
                _ => builder.send(*bytes, *peer, *tag, *cpu, *nic),
            };
            for &(back, start) in on.iter().filter(|&&(back, _)| back <= count) {
                let on = OpId(op.0 - back as u32);
                if start {
                    builder.irequires(op, on);
                } else {
                    builder.requires(op, on);
                }
            }
            if chained >> rank & 1 == 1 && count > 0 {
                builder.requires(op, OpId(op.0 - 1));
            }
        }
        // Remaining receives, so that few messages are unmatched.
        for &(from, bytes, tag, (cpu, nic)) in wanted {
            let op = builder.recv(bytes, from, tag, cpu, nic);
            if chained == u8::MAX && op.0 > 0 {
                builder.requires(op, OpId(op.0 - 1));
            }
        }
    }
    builder.finish().unwrap()
}

pub(crate) fn params() -> impl Strategy<Value = Params> {
    (1i64..500, (0i64..200, 0i64..200), 0i64..200, 0i64..3_000, 0i64..3_000).prop_map(
        |(latency, overheads, gap, gap_per_byte_fs, overhead_per_byte_fs)| Params {
            latency,
            send_overhead: overheads.0,
            recv_overhead: overheads.1,
            gap,
            gap_per_byte_fs,
            overhead_per_byte_fs,
            eager_limit: u64::MAX,
            sizes: None,
        },
    )
}

/// One message: from, to, bytes, calc before it, and which of its sender's earlier operations
/// (receives, calcs, sends) the calc and the send depend on, and whether only on the start.
pub(crate) type Reaction = (u32, u32, u64, Option<i64>, Vec<(prop::sample::Index, bool)>);

pub(crate) fn reactions() -> impl Strategy<Value = Vec<Reaction>> {
    let on = (any::<prop::sample::Index>(), prop::bool::weighted(0.2));
    let message = (
        0..RANKS,
        0..RANKS,
        0u64..3,
        prop::option::weighted(0.4, (0i64..4).prop_map(|units| units * UNIT)),
        prop::collection::vec(on, 0..3),
    );
    prop::collection::vec(message, 1..40)
}

/// Ranks with one CPU that react to arrivals, in whatever order. Nothing depends on a later operation,
/// so each of these completes.
pub(crate) fn reacting(reactions: &[Reaction]) -> Schedule {
    let mut programs = vec![Vec::new(); RANKS as usize];
    for (tag, (from, to, bytes, calc, on)) in (0u32..).zip(reactions) {
        let program = &mut programs[*from as usize];
        let mut on: Vec<(usize, bool)> = match program.len() {
            0 => Vec::new(),
            count => on.iter().map(|(on, start)| (on.index(count), *start)).collect(),
        };
        if let Some(ps) = calc {
            program.push((Step::Calc(*ps), on.clone()));
            if tag % 2 == 0 {
                on = vec![(program.len() - 1, false)];
            }
        }
        program.push((Step::Send(*bytes, *to, tag), on));
        programs[*to as usize].push((Step::Recv(*bytes, *from, tag), Vec::new()));
    }
    let mut builder = ScheduleBuilder::new(RANKS);
    for program in programs {
        builder.begin_rank();
        for (step, on) in program {
            let op = match step {
                Step::Calc(ps) => builder.calc(ps, 0),
                Step::Send(bytes, to, tag) => builder.send(bytes, to, tag, 0, 0),
                Step::Recv(bytes, from, tag) => builder.recv(bytes, from, tag, 0, 0),
            };
            for (on, start) in on {
                let on = OpId(on as u32);
                if start { builder.irequires(op, on) } else { builder.requires(op, on) }
            }
        }
    }
    builder.finish().unwrap()
}

/// Messages of a step: from, to, bytes, tag, CPU and NIC of both ends.
pub(crate) type Phase = (Vec<(u32, u32, u64, u32, u8)>, u8);

pub(crate) fn phases() -> impl Strategy<Value = Vec<Phase>> {
    let slot = prop_oneof![4 => Just(0u8), 1 => Just(1)];
    let message = (0..RANKS, 0..RANKS, 0u64..3, 0u32..2, slot);
    prop::collection::vec((prop::collection::vec(message, 1..10), any::<u8>()), 1..6)
}

/// Programs in steps: all messages of a step after its calc, the calc of the next step after them. On
/// ranks whose lower bit is set, except for the first one; if the upper bit is set, the first one
/// comes after the last one.
pub(crate) fn in_phases(phases: &[Phase]) -> Schedule {
    let mut builder = ScheduleBuilder::new(RANKS);
    for rank in 0..RANKS {
        builder.begin_rank();
        let mut before: Vec<OpId> = Vec::new();
        for (messages, bits) in phases {
            let [loose, late] = [rank, rank + RANKS].map(|bit| bits >> bit & 1 == 1);
            let calc = builder.calc(i64::from(rank) * UNIT, 0);
            for &on in before.iter().skip(usize::from(loose)) {
                builder.requires(calc, on);
            }
            before.clear();
            for &(from, to, bytes, tag, slot) in messages {
                let sent = (from == rank).then(|| builder.send(bytes, to, tag, slot, slot));
                let received = (to == rank).then(|| builder.recv(2, from, tag, slot, slot));
                for op in sent.into_iter().chain(received) {
                    builder.requires(op, calc);
                    before.push(op);
                }
            }
            if let [first, .., last] = before[..]
                && late
            {
                builder.requires(first, last);
            }
            before.push(calc);
        }
    }
    builder.finish().unwrap()
}

#[derive(Clone, Copy)]
enum Step {
    Calc(i64),
    Send(u64, u32, u32),
    Recv(u64, u32, u32),
}

/// Costs are small multiples of this, so that events coincide.
const UNIT: i64 = 100;

pub(crate) fn coarse_params() -> impl Strategy<Value = Params> {
    (1i64..4, (0i64..3, 0i64..3), 0i64..3, 0u64..3).prop_map(
        |(latency, overheads, gap, eager_limit)| Params {
            latency: latency * UNIT,
            send_overhead: overheads.0 * UNIT,
            recv_overhead: overheads.1 * UNIT,
            gap: gap * UNIT,
            gap_per_byte_fs: 0,
            overhead_per_byte_fs: 0,
            eager_limit,
            sizes: None,
        },
    )
}
