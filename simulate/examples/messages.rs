//! Messages per second of the round engine on one core.
use simulate::{collectives::*, job::Job, loggops::Params, noise::*, rounds::*};
fn main() {
    let log: u32 = std::env::args().nth(1).map_or(20, |a| a.parse().unwrap());
    let runs: u64 = std::env::args().nth(2).map_or(10, |a| a.parse().unwrap());
    let net = std::env::args().nth(3).unwrap_or("cnl".into());
    let ranks: u64 = 1 << log;
    let shape = Shape { op: Op::Barrier, ranks, bytes: 1, arity: 2, segment: None };
    let job =
        Job::new(Collective::new(None, shape).unwrap(), Params::named(&net).unwrap()).unwrap();
    // 250 detours a second for 200 s, like a real trace
    let mut at = 0i64;
    let detours: Vec<_> = (0..50_000u64)
        .map(|i| {
            let d = draw(1, i);
            at += 3_000_000_000 + (d % 2_000_000_000) as i64;
            (at, 2_000_000 + (d >> 40) as i64)
        })
        .collect();
    let trace = Timeline::new(detours, at + 4_000_000_000).unwrap();
    for (name, noise) in [
        ("none", Noise::none()),
        ("trace", Noise::new(vec![trace], Model::Preempt, Offsets::Random).unwrap()),
        (
            "periodic 1000Hz 16us",
            Noise::new(
                vec![Timeline::periodic(1_000_000_000, 16_000_000).unwrap()],
                Model::Preempt,
                Offsets::Random,
            )
            .unwrap(),
        ),
        (
            "periodic 1000Hz 200us",
            Noise::new(
                vec![Timeline::periodic(1_000_000_000, 200_000_000).unwrap()],
                Model::Preempt,
                Offsets::Random,
            )
            .unwrap(),
        ),
    ] {
        if let Ok(only) = std::env::var("ONLY") {
            if !name.starts_with(&only) {
                continue;
            }
        }
        let mut scratch = Scratch::default();
        run(&job, &noise.run(0, 0), &mut scratch).unwrap();
        let start = cpu();
        let mut last = 0;
        for r in 0..runs {
            last = run(&job, &noise.run(1, r), &mut scratch).unwrap();
        }
        let rate = (job.messages() * runs) as f64 / (cpu() - start);
        println!("{name}: {:.2e} messages/s, last {last}", rate);
    }
}

fn cpu() -> f64 {
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse::<f64>()
        .unwrap()
        / 1e9
}
