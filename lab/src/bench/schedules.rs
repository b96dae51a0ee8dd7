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

pub fn speed(bench: &Bench) -> Result<Vec<Figure>> {
    let power = power(bench);
    let file = write(bench, power, "peer")?;
    let in_order = write(bench, power, "in-order")?;
    let run =
        |file, more: &[&'static str]| [&["simulate", "goal", file, "--net", "cnl"], more].concat();
    let one = ["-j", "1"];
    let two = ["-j", "2", "--runs", "2"];
    let with_noise = ["-j", "1", "--noise", "periodic:1000Hz,100us"];
    let rate = "/messages_per_s";
    let [silent, noisy, two, silent_in_order, noisy_in_order, text] = best(
        bench,
        [
            (&run(&file, &one), rate),
            (&run(&file, &with_noise), rate),
            (&run(&file, &two), rate),
            (&run(&in_order, &one), rate),
            (&run(&in_order, &with_noise), rate),
            (&["goal", "stats", &file], "/read_mb_per_s"),
        ],
    )?;
    let at = |rate: f64| format!("{:.1} M at 2^{power} ranks", rate / 1e6);
    Ok(vec![
        Figure::judged(
            "messages per second of a schedule on one core: dissemination, 2^17 ranks",
            "10 M",
            at(silent),
            silent >= 10e6,
        ),
        Figure::judged("the same with periodic noise", "6 M", at(noisy), noisy >= 6e6),
        Figure::judged(
            "the same schedule in program order",
            "10 M",
            at(silent_in_order),
            silent_in_order >= 10e6,
        ),
        Figure::judged(
            "the same with periodic noise, in program order",
            "6 M",
            at(noisy_in_order),
            noisy_in_order >= 6e6,
        ),
        Figure::judged(
            "two runs on two cores, relative to one run on one core",
            "same time",
            format!("{:.2}x the time", 2.0 * silent / two),
            two / silent >= 1.7,
        ),
        Figure::judged(
            "GOAL text read per second",
            "150 MB",
            format!("{text:.0} MB"),
            text >= 150.0,
        ),
    ])
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
    let mut figures = Vec::new();
    for (power, what, target, limit) in cases {
        let file = write(bench, power, "peer")?;
        let mut command = bench.detour();
        command.args(["simulate", "goal", &file, "--net", "cnl", "-j", "1", "--json"]);
        let bytes = exec::peak_memory(&mut command)? as f64;
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
