//! The speed of the engine; run manually in release mode: `EXPONENT=17 ONLY=peer REPEATS=9 cargo test
//! --release -p simulate --test event_speed -- --ignored --nocapture`; all variables are optional.

use std::{fs, time::Instant};

use simulate::{
    event::{Options, Rules, Schedule, ScheduleBuilder, Scratch, run_with},
    goal::{CalcUnit, read_text, write_text},
    loggops::Params,
    noise::{Model, Noise, Offsets, Timeline},
};

/// CPU time of this thread in seconds: the machine may be shared.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = stat.split(' ').next().and_then(|text| text.parse::<f64>().ok());
    ns.expect("needs Linux") / 1e9
}

/// In order, each round requires both operations of the previous one; as written by LogGOPSim's
/// generator, a send requires the receive of the previous round, with no other dependencies.
fn dissemination(ranks: u32, in_order: bool) -> Schedule {
    let rounds = ranks.ilog2();
    let mut b = ScheduleBuilder::new(ranks);
    b.reserve((2 * rounds * ranks) as usize, (4 * rounds * ranks) as usize);
    for rank in 0..ranks {
        b.begin_rank();
        let mut last = None;
        for round in 0..rounds {
            let send = b.send(1, (rank + (1 << round)) % ranks, round, 0, 0);
            let receive = b.recv(1, (rank + ranks - (1 << round)) % ranks, round, 0, 0);
            if let Some((last_send, last_receive)) = last {
                b.requires(send, last_receive);
                if in_order {
                    b.requires(send, last_send);
                    b.requires(receive, last_receive);
                }
            }
            last = Some((send, receive));
        }
    }
    b.finish().unwrap()
}

fn noises() -> [(&'static str, Noise); 2] {
    let timeline = Timeline::periodic(1_000_000_000, 16_000_000).unwrap();
    let noise = Noise::new(vec![timeline], Model::Preempt, Offsets::Random).unwrap();
    [("no noise", Noise::none()), ("preempt", noise)]
}

#[test]
#[ignore = "a measurement, not a test"]
fn messages_per_second() {
    let exponent = std::env::var("EXPONENT").map_or(14, |text| text.parse().unwrap());
    let repeats = std::env::var("REPEATS").map_or(3, |text| text.parse().unwrap());
    let params = Params::named("cnl").unwrap();
    let only = |what: &str| std::env::var("ONLY").is_ok_and(|only| only != what);
    for in_order in [true, false] {
        if only(if in_order { "in-order" } else { "peer" }) {
            continue;
        }
        let start = Instant::now();
        let schedule = dissemination(1 << exponent, in_order);
        println!(
            "2^{exponent} ranks, in order {in_order}: built in {:.2} s, {} MB",
            start.elapsed().as_secs_f64(),
            schedule.memory() >> 20
        );
        for (name, noise) in noises() {
            for model in Rules::ALL {
                let options = Options { model, ..Options::default() };
                let mut best = f64::MAX;
                let mut messages = 0;
                let mut scratch = Scratch::default();
                for _ in 0..repeats {
                    let start = cpu_seconds();
                    messages =
                        run_with(&mut scratch, &schedule, &params, &options, &noise.run(1, 0))
                            .unwrap()
                            .messages;
                    best = best.min(cpu_seconds() - start);
                }
                println!(
                    "  {:<9} {name:<8} {:6.2} M messages/s, {:6.2} M events/s",
                    model.name(),
                    messages as f64 / best / 1e6,
                    3.0 * messages as f64 / best / 1e6
                );
            }
        }
    }
}

#[test]
#[ignore = "a measurement, not a test"]
fn text_per_second() {
    let schedule = dissemination(1 << 14, true);
    let mut text = Vec::new();
    write_text(&schedule, CalcUnit::default(), &mut text).unwrap();
    for _ in 0..3 {
        let start = cpu_seconds();
        let read = read_text(text.as_slice(), CalcUnit::default()).unwrap();
        let seconds = cpu_seconds() - start;
        println!(
            "read {:.0} MB at {:.0} MB/s",
            text.len() as f64 / 1e6,
            text.len() as f64 / 1e6 / seconds
        );
        assert!(read == schedule);
    }
}
