//! How fast schedules are read and run, and how much memory it takes: dissemination as GOAL text.

use anyhow::{Context, Result};

use super::{Bench, Figure, number};
use crate::exec;

/// Writes the schedule with 2^power ranks.
fn write(bench: &Bench, power: u32, graph: &str) -> Result<String> {
    let file = bench.file(&format!("dissemination-{power}-{graph}.goal"));
    let ranks = format!("2^{power}");
    let mut command = bench.detour();
    command.args(["goal", "gen", "--op", "barrier", "--graph", graph, "--ranks", &ranks, "-o"]);
    exec::run(command.arg(&file))?;
    file.into_os_string().into_string().ok().context("the target directory is not UTF-8")
}

/// The best of a few readings of each number, interleaved, so that disturbances affect all of them.
fn best<const N: usize>(bench: &Bench, readings: [(&[&str], &str); N]) -> Result<[f64; N]> {
    let mut best = [0f64; N];
    for _ in 0..2 * bench.extent.repeats {
        for (best, (args, pointer)) in best.iter_mut().zip(readings) {
            let mut command = bench.detour();
            *best = best.max(number(&exec::json(command.args(args).arg("--json"))?, pointer)?);
        }
    }
    Ok(best)
}

fn power(bench: &Bench) -> u32 {
    if bench.extent.repeats > 1 { 17 } else { 14 }
}

/// Messages per second of CPU time of further runs, whose memory the first one has taken: the worst and the best
/// of a few measurements.
fn rate(bench: &Bench, file: &str, more: &[&str]) -> Result<(f64, f64)> {
    const MORE_RUNS: u32 = 8;
    let command = |runs: u32| {
        let mut command = bench.detour();
        command.args(["simulate", "goal", file, "--net", "cnl", "-j", "1", "--json"]).args(more);
        command.args(["--runs", &runs.to_string()]);
        command
    };
    let messages = number(&exec::json(&mut command(1))?, "/messages")? * f64::from(MORE_RUNS);
    let (mut worst, mut best) = (f64::INFINITY, 0f64);
    for _ in 0..bench.extent.repeats {
        let one = exec::cpu_seconds(&mut command(1))?;
        let many = exec::cpu_seconds(&mut command(1 + MORE_RUNS))?;
        let rate = messages / (many - one).max(0.01);
        (worst, best) = (worst.min(rate), best.max(rate));
    }
    Ok((worst, best))
}

pub fn speed(bench: &Bench) -> Result<Vec<Figure>> {
    let power = power(bench);
    let file = write(bench, power, "peer")?;
    let in_order = write(bench, power, "in-order")?;
    let noise = ["--noise", "periodic:1000Hz,100us"];
    let mut figures = Vec::new();
    let cases = [
        (
            "messages per second of CPU time of a schedule: dissemination, 2^17 ranks",
            &file,
            &[][..],
            10e6,
        ),
        ("the same with periodic noise", &file, &noise, 6e6),
        ("the same schedule in program order", &in_order, &[], 10e6),
        ("the same with periodic noise, in program order", &in_order, &noise, 6e6),
    ];
    for (what, file, more, least) in cases {
        let (worst, best) = rate(bench, file, more)?;
        let target = if least == 10e6 { "10 M each time" } else { "6 M each time" };
        let measured = format!("{:.1} to {:.1} M at 2^{power} ranks", worst / 1e6, best / 1e6);
        figures.push(Figure::judged(what, target, measured, worst >= least));
    }
    let run = |more: &[&'static str]| [&["simulate", "goal", &file, "--net", "cnl"], more].concat();
    let [one, two, text] = best(
        bench,
        [
            (&run(&["-j", "1"]), "/messages_per_s"),
            (&run(&["-j", "2", "--runs", "2"]), "/messages_per_s"),
            (&["goal", "stats", &file], "/read_mb_per_s"),
        ],
    )?;
    figures.push(Figure::judged(
        "two runs on two cores, relative to one run on one core",
        "same time",
        format!("{:.2}x the time", 2.0 * one / two),
        two / one >= 1.7,
    ));
    figures.push(Figure::judged(
        "GOAL text read per second",
        "150 MB",
        format!("{text:.0} MB"),
        text >= 150.0,
    ));
    Ok(figures)
}

/// From the trace of an MPI program to its schedule.
pub fn from_trace(bench: &Bench) -> Result<Vec<Figure>> {
    let events = if bench.extent.repeats > 1 { 40_000_000u64 } else { 4_000_000 };
    let dir = bench.file("schedule-trace");
    let _ = std::fs::remove_dir_all(&dir);
    let mut command = bench.example("schedule_speed");
    command.arg(&dir).args([events.to_string(), "8".to_owned(), bench.extent.repeats.to_string()]);
    let found = exec::json(&mut command)?;
    let rate = number(&found, "/events_per_s")?;
    Ok(vec![Figure::judged(
        "events per second of CPU time from a program's trace to its schedule, one core",
        "5 M",
        format!("{:.1} M at {} M events", rate / 1e6, events / 1_000_000),
        rate >= 5e6,
    )])
}

/// From the text to the times, for the whole command. Per operation: a schedule with the calcs that
/// LogGOPSim's generator writes has half as many operations again as one without, and the targets were
/// set without (0.3 GB for 4.46 million operations, 2.5 GB for 41.9 million).
pub fn memory(bench: &Bench) -> Result<Vec<Figure>> {
    let full = bench.extent.repeats > 1;
    let small = "memory per operation of a schedule of 2^17 ranks";
    let mut cases = vec![(power(bench), small, "< 67 bytes", 67.0)];
    if full {
        let large = "memory per operation of a schedule of 2^20 ranks";
        cases.push((20, large, "< 59 bytes", 59.0));
    }
    let peak = |file: &str| {
        let mut command = bench.detour();
        command.args(["simulate", "goal", file, "--net", "cnl", "-j", "1", "--json"]);
        exec::peak_memory(&mut command)
    };
    // What the program itself takes.
    let own = peak(&write(bench, 4, "peer")?)?;
    let mut figures = Vec::new();
    for (power, what, target, limit) in cases {
        let file = write(bench, power, "peer")?;
        let bytes = peak(&file)?.saturating_sub(own) as f64;
        let stats = exec::json(bench.detour().args(["goal", "stats", &file, "--json"]))?;
        let each = bytes / number(&stats, "/operations")?;
        figures.push(Figure::counted(
            what,
            target,
            format!("{each:.0} bytes ({:.2} GB at 2^{power} ranks)", bytes / 1e9),
            each < limit,
        ));
        // 1.6 GB are not worth keeping.
        let _ = std::fs::remove_file(&file);
    }
    Ok(figures)
}
