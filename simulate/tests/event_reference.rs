//! Compares the event engine with a plain implementation of the same rules, on random schedules:
//! dependencies on earlier or later operations, wildcards, several CPUs, large messages by both rules,
//! no latency, coinciding times.

mod goal_support;

use goal_support::reference;
use proptest::{prelude::*, sample::Index};
use simulate::{
    event::{OpId, Options, Rendezvous, Schedule, ScheduleBuilder, WILDCARD, run},
    loggops::Params,
    noise::{Model, Noise, Offsets, Timeline},
};

const RANKS: u32 = 4;
/// Costs are small multiples of this.
const UNIT: i64 = 100;

#[derive(Clone, Copy, Debug)]
enum Step {
    Calc(i64),
    Send { to: u32, bytes: u64, tag: u32 },
    Recv { from: u32, tag: u32 },
}

#[derive(Clone, Debug)]
struct Message {
    from: u32,
    to: u32,
    bytes: u64,
    tag: u32,
    any: bool,
    calc: Option<i64>,
    slot: u8,
    /// For the calc, the send and the receive: the operation of its rank it depends on, and whether
    /// only on the start.
    on: Vec<(Index, bool)>,
}

fn message() -> impl Strategy<Value = Message> {
    let slot = prop_oneof![5 => Just(0u8), 1 => Just(1)];
    let on = prop::collection::vec((any::<Index>(), prop::bool::weighted(0.4)), 0..3);
    let calc = prop::option::weighted(0.4, (0i64..4).prop_map(|units| units * UNIT));
    ((0..RANKS, 0..RANKS), 0u64..4, 0u32..3, any::<bool>(), calc, slot, on).prop_map(
        |((from, to), bytes, tag, any, calc, slot, on)| Message {
            from,
            to,
            bytes,
            tag,
            any,
            calc,
            slot,
            on,
        },
    )
}

/// An operation of a rank, its CPU and NIC, and its dependencies.
type Line<'a> = (Step, u8, &'a [(Index, bool)]);

fn schedule(messages: &[Message]) -> Schedule {
    let mut programs: Vec<Vec<Line>> = vec![Vec::new(); RANKS as usize];
    for message in messages {
        let Message { from, to, bytes, tag, any, calc, slot, on } = message;
        let (now, later) = on.split_at(on.len() / 2);
        let program = &mut programs[*from as usize];
        if let Some(ps) = calc {
            program.push((Step::Calc(*ps), *slot, now));
        }
        program.push((Step::Send { to: *to, bytes: *bytes, tag: *tag }, *slot, now));
        let from = if *any { WILDCARD } else { *from };
        programs[*to as usize].push((Step::Recv { from, tag: *tag }, *slot, later));
    }
    let mut builder = ScheduleBuilder::new(RANKS);
    for program in programs {
        builder.begin_rank();
        for &(step, slot, _) in &program {
            match step {
                Step::Calc(ps) => builder.calc(ps, slot),
                Step::Send { to, bytes, tag } => builder.send(bytes, to, tag, slot, slot),
                Step::Recv { from, tag } => builder.recv(9, from, tag, slot, slot),
            };
        }
        for (op, (_, _, on)) in (0u32..).zip(&program) {
            for (on, start) in *on {
                let on = on.index(program.len()) as u32;
                // A cycle of dependencies would never complete.
                match (on == op, start) {
                    (true, _) => {}
                    (false, true) => builder.irequires(OpId(op), OpId(on)),
                    (false, false) => builder.requires(OpId(op), OpId(on)),
                }
            }
        }
    }
    builder.finish().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn what_ends_ends_as_by_the_plain_rules(
        messages in prop::collection::vec(message(), 1..12),
        (latency, (sends, receives), gap) in (0i64..4, (0i64..3, 0i64..3), 0i64..3),
        (byte_gap, byte_overhead) in (0i64..3, 0i64..2),
        eager_limit in prop_oneof![Just(u64::MAX), 0u64..4],
        rendezvous in prop_oneof![Just(Rendezvous::ClosedForm), Just(Rendezvous::Handshake)],
        (noisy, seed) in (any::<bool>(), any::<u64>()),
    ) {
        let params = Params {
            latency: latency * UNIT,
            send_overhead: sends * UNIT,
            recv_overhead: receives * UNIT,
            gap: gap * UNIT,
            gap_per_byte_fs: byte_gap * UNIT * 500,
            overhead_per_byte_fs: byte_overhead * UNIT * 500,
            eager_limit,
            sizes: None,
        };
        let schedule = schedule(&messages);
        let detours = [(3, 70), (500, 100), (900, 5), (1_800, 300), (5_000, 1)];
        let timeline = Timeline::new(detours, 6_000).unwrap();
        let noise = match noisy {
            true => Noise::new(vec![timeline], Model::Preempt, Offsets::Random).unwrap(),
            false => Noise::none(),
        };
        let noise = noise.repeating(true);
        let noise = noise.run(seed, 0);
        let options = Options { rendezvous, ..Options::default() };
        if let Ok(outcome) = run(&schedule, &params, &options, &noise) {
            let told = reference::simulate(&schedule, &params, rendezvous, &noise);
            prop_assert_eq!(outcome.ends, told.ends);
        }
    }
}
