//! Random schedules through the event engine, by either set of rules: a run ends with times or with an
//! error, and the same run ends the same way. Many of them cannot end, which is an error, too.

use arbitrary::{Arbitrary, Unstructured};
use simulate::{
    event::{self, OpId, Options, Rendezvous, Rules, Schedule, ScheduleBuilder, WILDCARD},
    loggops::Params,
    noise::{Model, Noise, Offsets, Timeline},
};

#[derive(Arbitrary, Debug)]
enum Kind {
    Calc(u16),
    /// A send, and somewhere at its target the receive for it.
    Message {
        to: u8,
        bytes: u16,
        tag: u8,
        any_source: bool,
        any_tag: bool,
    },
    /// A send or a receive that may stay alone.
    Send {
        to: u8,
        bytes: u16,
    },
    Recv {
        from: u8,
        bytes: u16,
    },
}

#[derive(Arbitrary, Debug)]
struct Operation {
    rank: u8,
    kind: Kind,
    cpu: bool,
    nic: bool,
    /// How far back, and whether only on the start.
    on: Option<(u8, bool)>,
    /// On one that comes later: the way to a cycle.
    ahead: bool,
}

#[derive(Arbitrary, Debug)]
struct Case {
    ranks: u8,
    operations: Vec<Operation>,
    latency: u16,
    overhead: u8,
    recv_overhead: u8,
    gap: u8,
    per_byte: (u8, u8),
    eager_limit: u16,
    noise: Option<(u16, u8, u8)>,
}

/// What one rank does, in program order.
#[derive(Clone, Copy)]
enum Step {
    Calc(i64),
    Send { to: u32, bytes: u64, tag: u32 },
    Recv { from: u32, bytes: u64, tag: u32 },
}

fn schedule(case: &Case) -> Option<Schedule> {
    let ranks = u32::from(case.ranks % 6) + 1;
    let mut programs = vec![Vec::new(); ranks as usize];
    for operation in case.operations.iter().take(200) {
        let rank = u32::from(operation.rank) % ranks;
        let mut add = |rank: u32, step: Step| programs[rank as usize].push((step, operation));
        match operation.kind {
            Kind::Calc(ns) => add(rank, Step::Calc(i64::from(ns) * 100)),
            Kind::Message { to, bytes, tag, any_source, any_tag } => {
                let (to, bytes, tag) =
                    (u32::from(to) % ranks, u64::from(bytes), u32::from(tag % 3));
                add(rank, Step::Send { to, bytes, tag });
                let from = if any_source { WILDCARD } else { rank };
                let tag = if any_tag { WILDCARD } else { tag };
                add(to, Step::Recv { from, bytes: u64::from(u16::MAX), tag });
            }
            Kind::Send { to, bytes } => {
                add(rank, Step::Send { to: u32::from(to) % ranks, bytes: bytes.into(), tag: 0 });
            }
            Kind::Recv { from, bytes } => {
                add(
                    rank,
                    Step::Recv { from: u32::from(from) % ranks, bytes: bytes.into(), tag: 0 },
                );
            }
        }
    }
    let mut builder = ScheduleBuilder::new(ranks);
    for program in programs {
        builder.begin_rank();
        let mut wanted = Vec::new();
        for (index, &(step, operation)) in (0u32..).zip(&program) {
            let (cpu, nic) = (operation.cpu.into(), operation.nic.into());
            let op = match step {
                Step::Calc(ps) => builder.calc(ps, cpu),
                Step::Send { to, bytes, tag } => builder.send(bytes, to, tag, cpu, nic),
                Step::Recv { from, bytes, tag } => builder.recv(bytes, from, tag, cpu, nic),
            };
            if let Some((back, start)) = operation.on {
                let back = u32::from(back % 5) + 1;
                let on = if operation.ahead { index + back } else { index.wrapping_sub(back) };
                if on < program.len() as u32 {
                    wanted.push((op, OpId(on), start));
                }
            }
        }
        for (op, on, start) in wanted {
            if start {
                builder.irequires(op, on);
            } else {
                builder.requires(op, on);
            }
        }
    }
    builder.finish().ok()
}

pub fn run(data: &[u8]) {
    let Ok(case) = Case::arbitrary_take_rest(Unstructured::new(data)) else { return };
    let Some(schedule) = schedule(&case) else { return };
    let params = Params {
        latency: case.latency.into(),
        send_overhead: case.overhead.into(),
        recv_overhead: case.recv_overhead.into(),
        gap: case.gap.into(),
        gap_per_byte_fs: i64::from(case.per_byte.0) * 100,
        overhead_per_byte_fs: i64::from(case.per_byte.1) * 100,
        eager_limit: case.eager_limit.into(),
        sizes: None,
    };
    let noises = Model::ALL.map(|model| match case.noise {
        None => Noise::none().with_model(model),
        Some((period, length, seed)) => {
            let (period, length) = (i64::from(period) + 2, i64::from(length));
            let detours = (0..40)
                .map(|i| (i * period + i64::from(seed) % period / 2, length.min(period / 2)));
            let timeline = Timeline::new(detours, 41 * period).expect("detours in order");
            Noise::new(vec![timeline], model, Offsets::Random).expect("one").repeating(true)
        }
    });
    for model in Rules::ALL {
        for rendezvous in [Rendezvous::ClosedForm, Rendezvous::Handshake] {
            for noise in &noises {
                let options = Options { model, rendezvous, local: None };
                let once = event::run(&schedule, &params, &options, &noise.run(1, 2));
                let twice = event::run(&schedule, &params, &options, &noise.run(1, 2));
                assert_eq!(once, twice);
                match once {
                    Ok(outcome) => assert!(outcome.ends.len() == schedule.ranks() as usize),
                    // It can be said.
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }
        }
    }
}
