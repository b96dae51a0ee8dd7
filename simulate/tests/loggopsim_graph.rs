//! `--graph peer` is the schedule written by LogGOPSim's generator, zero-length calcs included: the
//! same times, run by run, by LogGOPSim's rules and by the exact ones.

use std::fmt::Write;

use simulate::{
    collectives::{Collective, Op, Shape},
    event::{Options, Rules},
    goal::{self, CalcUnit},
    graph::{self, Graph},
    job::Job,
    loggops::Params,
    noise::{Model, Noise, Offsets, Timeline},
    replay,
    sweep::{self, Plan},
};

/// A dissemination as written by the generator: in each round but the first a calc between the receive
/// of the previous round and the send; nothing follows the last receive.
fn generated(ranks: u64, bytes: u64, with_calc: bool) -> String {
    let mut text = format!("num_ranks {ranks}\n");
    for rank in 0..ranks {
        let _ = writeln!(text, "rank {rank} {{");
        let (mut label, mut received) = (0, None);
        let mut distance = 1;
        while distance < ranks {
            label += 1;
            let send = label;
            let _ = writeln!(
                text,
                "l{send}: send {bytes}b to {} tag {distance}",
                (rank + distance) % ranks
            );
            if let Some(received) = received {
                if with_calc {
                    label += 1;
                    let _ = writeln!(text, "l{label}: calc 0");
                    let _ = writeln!(text, "l{label} requires l{received}");
                    let _ = writeln!(text, "l{send} requires l{label}");
                }
                let _ = writeln!(text, "l{send} requires l{received}");
            }
            label += 1;
            let from = (rank + ranks - distance) % ranks;
            let _ = writeln!(text, "l{label}: recv {bytes}b from {from} tag {distance}");
            received = Some(label);
            distance *= 2;
        }
        text += "}\n";
    }
    text
}

/// Bursts of four detours of about a microsecond, 20 to 40 us apart. By LogGOPSim's rules a detour
/// counts in full for the operation it hits; only one that follows closely can hit the next one, the
/// calc.
fn noise(model: Model) -> Noise {
    let (mut at, mut detours) = (0i64, Vec::new());
    for i in 0..20_000i64 {
        at += 20_000_000 + (i * 7_919) % 997 * 20_000;
        for k in 0..4 {
            let length = 600_000 + (i * 104_729 + k * 31) % 51 * 20_000;
            detours.push((at, length));
            at += length + 200_000 + (i * 13 + k * 7) % 11 * 50_000;
        }
    }
    let timeline = Timeline::new(detours, at).unwrap();
    Noise::new(vec![timeline], model, Offsets::Random).unwrap().repeating(true)
}

fn job(ranks: u64) -> Job {
    let shape = Shape { op: Op::Barrier, ranks, bytes: 16, arity: 2, segment: None };
    Job::new(Collective::new(None, shape).unwrap(), Params::named("alps").unwrap()).unwrap()
}

fn plan(runs: u64) -> Plan<'static> {
    Plan { runs, seed: 11, threads: 2, memory: u64::MAX, progress: &|_| true }
}

fn of_generator(ranks: u64, with_calc: bool, noise: &Noise, rules: Rules, runs: u64) -> Vec<i64> {
    let text = generated(ranks, 16, with_calc);
    let schedule = goal::read(text.as_bytes(), CalcUnit::default()).unwrap();
    let options = Options { model: rules, ..Options::default() };
    let params = Params::named("alps").unwrap();
    replay::run(&schedule, &params, &options, noise, &plan(runs)).unwrap().times
}

/// Largest distance between two empirical distributions.
fn ks(mut a: Vec<i64>, mut b: Vec<i64>) -> f64 {
    a.sort_unstable();
    b.sort_unstable();
    let share =
        |sorted: &[i64], at| sorted.partition_point(|&t| t <= at) as f64 / sorted.len() as f64;
    a.iter().chain(&b).map(|&at| (share(&a, at) - share(&b, at)).abs()).fold(0.0, f64::max)
}

#[test]
fn the_peers_graph_is_what_its_generator_writes_run_by_run() {
    for (model, rules) in [
        (Model::LogGopSim, Rules::Loggopsim),
        (Model::Preempt, Rules::Loggops),
        (Model::CpuTime, Rules::Loggops),
    ] {
        let noise = noise(model);
        for (ranks, runs) in [(2, 50), (5, 200), (64, 1_000), (100, 300)] {
            let ours = sweep::times(&job(ranks), Graph::LogGopSim, &noise, &plan(runs)).unwrap();
            assert_eq!(
                ours,
                of_generator(ranks, true, &noise, rules, runs),
                "{model:?}, {ranks} ranks"
            );
        }
    }
}

/// Without the calcs the distribution differs, which this many runs show.
#[test]
fn a_graph_without_the_calcs_is_told_apart() {
    let (noise, runs) = (noise(Model::LogGopSim), 6_000);
    let ours = sweep::times(&job(64), Graph::LogGopSim, &noise, &plan(runs)).unwrap();
    let without = of_generator(64, false, &noise, Rules::Loggopsim, runs);
    // 5 % of pairs of equal distributions are further apart than this.
    let critical = 1.36 * (2.0 / runs as f64).sqrt();
    let distance = ks(ours, without);
    assert!(distance > critical, "{distance} against {critical}");
}

/// The published noiseless times, to the last digit given.
#[test]
fn the_published_systems_take_the_published_times_without_noise() {
    for (system, ranks, us) in [
        ("alps", 64, "14.16711"),
        ("alps", 16_384, "33.05659"),
        ("daint", 64, "30.5099"),
        ("daint", 16_384, "78.5231"),
    ] {
        let shape = Shape { op: Op::Barrier, ranks, bytes: 16, arity: 2, segment: None };
        let params = Params::named(system).unwrap();
        let job = Job::new(Collective::new(None, shape).unwrap(), params).unwrap();
        let ps = sweep::noiseless(&job, Graph::LogGopSim, Model::LogGopSim).unwrap();
        let digits = us.split_once('.').map_or(0, |(_, behind)| behind.len());
        assert_eq!(format!("{:.digits$}", ps as f64 / 1e6), us, "{system}, {ranks} ranks");
    }
}

/// The time to combine is the length of the calc; there is one calc then, not two.
#[test]
fn a_reduction_is_the_calc() {
    let shape = Shape { op: Op::Allreduce, ranks: 8, bytes: 16, arity: 2, segment: None };
    let job =
        Job::new(Collective::new(None, shape).unwrap(), Params::named("alps").unwrap()).unwrap();
    let calcs = |job: &Job| {
        let schedule = graph::schedule(job, Graph::LogGopSim).unwrap();
        schedule.operations() as u64 - 2 * schedule.messages()
    };
    // Two of the three rounds forward received data.
    assert_eq!(calcs(&job), 8 * 2);
    assert_eq!(calcs(&job.with_reduction(1_000_000).unwrap()), 8 * 3);
}
