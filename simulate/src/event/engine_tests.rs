//! The short cuts of the engine against its longest way: everything through the queue, every message
//! matched by search.

use proptest::prelude::*;

use super::super::{OpId, ScheduleBuilder, WILDCARD};
use super::*;
use crate::noise::{Model, Noise, Offsets, Timeline};

/// One operation: kind, peer, bytes, tag, cpu, nic, and what of the ones before it it depends on.
type Sketch = (u8, u32, u64, u32, (u8, u8), Vec<(usize, bool)>);

const RANKS: u32 = 4;

/// Sends come with their receives, so that most schedules can end.
fn sketches() -> impl Strategy<Value = Vec<Vec<Sketch>>> {
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

/// In a chain every operation requires the one before it.
fn schedule(sketches: &[Vec<Sketch>], wildcards: bool, chained: u8) -> Schedule {
    let mut wanted = vec![Vec::new(); RANKS as usize];
    for (rank, ops) in sketches.iter().enumerate() {
        for (kind, peer, _, tag, slot, _) in ops {
            if *kind >= 2 {
                // Large enough for any message, whichever comes.
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
        // What is still to be received, so that few are left waiting.
        for &(from, bytes, tag, (cpu, nic)) in wanted {
            builder.recv(bytes, from, tag, cpu, nic);
        }
    }
    builder.finish().unwrap()
}

fn searching(mut schedule: Schedule) -> Schedule {
    for rank in 0..schedule.ranks() {
        for op in schedule.of_rank(rank) {
            let op = &mut schedule.ops[op as usize];
            op.pairing = Pairing::Search;
            op.partner = if op.kind == Kind::Send { op.peer } else { rank };
        }
    }
    schedule.searches = schedule.ranks();
    schedule.channels = 0;
    schedule
}

fn params() -> impl Strategy<Value = Params> {
    (1i64..500, 0i64..200, 0i64..200, 0i64..3_000, 0i64..3_000).prop_map(
        |(latency, overhead, gap, gap_per_byte_fs, overhead_per_byte_fs)| Params {
            latency,
            overhead,
            gap,
            gap_per_byte_fs,
            overhead_per_byte_fs,
            eager_limit: u64::MAX,
        },
    )
}

fn noise(model: Model) -> Noise {
    let timeline = Timeline::new([(3, 70), (500, 100), (900, 5), (1_800, 300), (5_000, 1)], 6_000);
    let timelines = vec![timeline.unwrap()];
    Noise::new(timelines, model, Offsets::Random).unwrap().repeating(true)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_needs_no_queue_and_no_search_ends_as_with_both(
        sketches in sketches(), wildcards: bool, chained: u8, params in params(), seed: u64,
    ) {
        let schedule = schedule(&sketches, wildcards, chained);
        let searching = searching(schedule.clone());
        let mut buffers = Buffers::default();
        let silent = Noise::none();
        let noises = [Model::Preempt, Model::CpuTime].map(noise);
        for noise in [&silent, &noises[0], &noises[1]] {
            let noise = noise.run(seed, 0);
            let fast = run(&mut buffers, &schedule, &params, Rendezvous::ClosedForm, &noise);
            let slow = run_in(&mut buffers, &searching, &params, Rendezvous::ClosedForm, &noise, true, Nobody);
            prop_assert_eq!(&fast.is_ok(), &slow.is_ok());
            if let (Ok(fast), Ok(slow)) = (&fast, &slow) {
                prop_assert_eq!(&fast.ends, &slow.ends);
            }
        }
    }

    #[test]
    fn no_schedule_makes_it_panic_or_hang(
        sketches in sketches(), wildcards: bool, chained: u8, params in params(),
        limit in 0u64..4_000, handshake: bool, seed: u64,
    ) {
        let schedule = schedule(&sketches, wildcards, chained);
        let params = Params { eager_limit: limit, ..params };
        let rendezvous =
            if handshake { Rendezvous::Handshake } else { Rendezvous::ClosedForm };
        let mut buffers = Buffers::default();
        for model in Model::ALL {
            let noise = noise(model);
            let noise = noise.run(seed, 1);
            let first = run(&mut Buffers::default(), &schedule, &params, rendezvous, &noise);
            let again = run(&mut buffers, &schedule, &params, rendezvous, &noise);
            prop_assert_eq!(&again, &first);
            let _ = super::super::peer::run(&schedule, &params, &noise);
            if let Err(error) = first {
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}
