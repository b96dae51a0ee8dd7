//! The speed of the simulator. Everything runs through the command, as a user would run it.

use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Bench, Figure};
use crate::{data, exec};

/// `detour simulate ARGS --json`, and how long it took.
fn simulate(bench: &Bench, args: &[&str]) -> Result<(Value, f64)> {
    let mut command = bench.detour();
    command.arg("simulate").args(args).arg("--json");
    let begin = Instant::now();
    let value = exec::json(&mut command)?;
    Ok((value, begin.elapsed().as_secs_f64()))
}

fn rate(value: &Value) -> Result<f64> {
    let rate = value["points"][0]["messages_per_s"].as_f64();
    rate.context("no messages_per_s in the simulator's output")
}

/// A recorded trace: of another system if `DETOUR_DATA` has one, otherwise one of two CPUs.
fn trace(bench: &Bench) -> Result<(String, &'static str)> {
    let files = data::noise_files()?;
    if let Some(file) = files.iter().find(|path| data::is_named(path, "alps")) {
        return Ok((file.display().to_string(), "the alps trace"));
    }
    let own = bench.workspace.root.join("fixtures/two-cpus.detour");
    Ok((own.display().to_string(), "the project's own recording"))
}

/// Repetitions of anything that takes less than a second, per repetition of the rest.
const TRIES: u32 = 4;

pub fn collectives(bench: &Bench) -> Result<Vec<Figure>> {
    let (trace, named) = trace(bench)?;
    let runs = (10 * u64::from(bench.extent.repeats)).to_string();
    let sweep = |threads: &str| -> Result<f64> {
        let args = [
            "collective",
            "--op",
            "barrier",
            "--ranks",
            "2^20",
            "--runs",
            &runs,
            "--net",
            "cnl",
            "--noise",
            &trace,
            "-j",
            threads,
        ];
        rate(&simulate(bench, &args)?.0)
    };
    // The best of many short runs, interleaved: other work on the machine, and on its host, only slows
    // them down, for seconds at a time.
    let (mut one, mut two) = (0f64, 0f64);
    for _ in 0..TRIES * bench.extent.repeats {
        one = one.max(sweep("1")?);
        two = two.max(sweep("2")?);
    }
    Ok(vec![
        Figure::judged(
            "messages per second on one core: dissemination, 1 byte, 2^20 ranks, a recorded trace",
            "10^9",
            format!("{:.2} x 10^9 ({named})", one / 1e9),
            one >= 1e9,
        ),
        Figure::judged(
            "the same on two cores, relative to one",
            "close to 2x",
            format!("{:.2}x", two / one),
            two / one >= 1.7,
        ),
    ])
}

/// What drawing each message's latency costs: the same run with and without, in turns, on one core.
pub fn latencies(bench: &Bench) -> Result<Vec<Figure>> {
    let (trace, _) = trace(bench)?;
    let file = bench.file("latencies.txt");
    // As many as are usually measured: from 2 us to 3 us, and one in a hundred up to ten times as long.
    let latency = |at: u64| match at % 100 {
        0 => 3.0 + (at / 100 % 300) as f64 / 10.0,
        _ => 2.0 + (at * 7919 % 1000) as f64 / 1000.0,
    };
    let text: String = (0..100_000).map(|at| format!("{:.3}\n", latency(at))).collect();
    std::fs::write(&file, text).context("cannot write latencies")?;
    let file = file.display().to_string();
    let runs = (5 * u64::from(bench.extent.repeats)).to_string();
    let args = ["collective", "--op", "barrier", "--ranks", "2^20", "--net", "cnl", "-j", "1"];
    let noise = ["--noise", &trace, "--runs", &runs];
    let (mut constant, mut drawn) = (0f64, 0f64);
    for _ in 0..TRIES * bench.extent.repeats {
        let args = [&args[..], &noise].concat();
        constant = constant.max(rate(&simulate(bench, &args)?.0)?);
        let args = [&args[..], &["--latency", &file]].concat();
        drawn = drawn.max(rate(&simulate(bench, &args)?.0)?);
    }
    let factor = constant / drawn;
    Ok(vec![Figure::judged(
        "cost of --latency: dissemination, 2^20 ranks, one core",
        "<= 2x the time",
        format!(
            "{factor:.2}x ({:.2} instead of {:.2} x 10^9 messages per second)",
            drawn / 1e9,
            constant / 1e9
        ),
        factor <= 2.0,
    )])
}

pub fn figure_five(bench: &Bench) -> Result<Vec<Figure>> {
    let runs = if bench.extent.repeats > 1 { "1000" } else { "100" };
    let args = [
        "collective",
        "--op",
        "barrier",
        "--ranks",
        "2..2^20",
        "--runs",
        runs,
        "--net",
        "cnl",
        "--noise",
        "periodic:1000Hz,100us",
    ];
    let (_, took) = simulate(bench, &args)?;
    let limit = if runs == "1000" { 60.0 } else { 6.0 };
    Ok(vec![Figure::judged(
        "figure 5 of the noise study, 1000 runs at every power of two up to 2^20",
        "< 60 s",
        format!("{took:.1} s for {runs} runs"),
        took < limit,
    )])
}

pub fn cycles(bench: &Bench) -> Result<Vec<Figure>> {
    let (ranks, limit) = if bench.extent.repeats > 1 { ("8Mi", 120.0) } else { ("1Mi", 15.0) };
    let args = ["cycle", "--ranks", ranks, "--cycles", "10", "--runs", "1"];
    let (_, took) = simulate(bench, &args)?;
    Ok(vec![Figure::judged(
        "redundant butterfly, 8 Mi ranks, 10 cycles, three cases",
        "< 120 s",
        format!("{took:.1} s for {ranks}"),
        took < limit,
    )])
}

/// The study's largest simulation, as a model: one run with noise, and one without to compare it with, on
/// two cores.
pub fn largest_program(bench: &Bench) -> Result<Vec<Figure>> {
    let (ranks, limit) = if bench.extent.repeats > 1 { ("32Ki", 90.0) } else { ("4Ki", 10.0) };
    let args = ["simulate", "skeleton", "pop", "--ranks", ranks, "--runs", "1", "-j", "2"];
    let noise = ["--noise", "periodic:10Hz,100us", "--net", "chic", "--json"];
    let begin = Instant::now();
    let peak = exec::peak_memory(bench.detour().args(args).args(noise))?;
    let took = begin.elapsed().as_secs_f64();
    Ok(vec![Figure::judged(
        "largest run of the noise study: POP as a model, 32,768 ranks, 626 million messages",
        "< 90 s and < 8 GB",
        format!("{took:.0} s and {:.2} GB for {ranks} ranks", peak as f64 / 1e9),
        took < limit && peak < 8_000_000_000,
    )])
}

pub fn all_to_all(bench: &Bench) -> Result<Vec<Figure>> {
    // As in the paper: whole exchange times are drawn from a set.
    let exchange = ["--mode", "resample", "--exchange", "150us", "--noise", "periodic:10ms,100us"];
    let run = |ranks: &str, samples: &str| -> Result<f64> {
        let args = [&["alltoall", "--ranks", ranks, "--samples", samples][..], &exchange].concat();
        Ok(simulate(bench, &args)?.1)
    };
    let (small, large) = (run("32", "100000")?, run("1024", "1000")?);
    Ok(vec![
        Figure::judged(
            "all-to-all, 100,000 samples of 32 processors",
            "< 1 s",
            format!("{small:.2} s"),
            small < 1.0,
        ),
        Figure::judged(
            "all-to-all, 1000 samples of 1024 processors",
            "< 10 s",
            format!("{large:.1} s"),
            large < 10.0,
        ),
    ])
}

/// What-if over a synthetic recording of many daemons: the ten most important ones individually, the
/// others together.
pub fn what_if(bench: &Bench) -> Result<Vec<Figure>> {
    let file = bench.file("whatif.detour");
    exec::json(bench.example("throughput").arg("200000").arg(&file))?;
    let mut best = f64::MAX;
    for _ in 0..bench.extent.repeats {
        let mut command = bench.detour();
        command.arg("whatif").arg(&file);
        command.args(["--ranks", "65536", "--runs", "200", "--top", "10", "-j", "2", "--json"]);
        // One bare collective, so that what is measured does not change with the default job.
        command.args(["--iterations", "1", "--compute", "0", "--size", "1", "--net", "cnl"]);
        best = best.min(exec::timed(&mut command)?.as_secs_f64());
    }
    Ok(vec![Figure::judged(
        "what-if for 10 sources and the rest together, 65,536 ranks, 200 paired runs, two cores",
        "< 10 s",
        format!("{best:.1} s"),
        best < 10.0,
    )])
}

/// Peak memory of a run in bytes per rank, not counting the program itself.
pub fn memory(bench: &Bench) -> Result<Vec<Figure>> {
    let power = if bench.extent.repeats > 1 { 28 } else { 24 };
    let mut figures = Vec::new();
    for (net, what) in [("cnl", "g < o"), ("xt4", "g > o")] {
        let ranks = format!("2^{power}");
        let args = [
            "simulate",
            "collective",
            "--op",
            "barrier",
            "--ranks",
            &ranks,
            "--runs",
            "1",
            "--net",
            net,
            "--noise",
            "periodic:1000Hz,100us",
            "-j",
            "1",
            "--json",
        ];
        let begin = Instant::now();
        let peak = exec::peak_memory(bench.detour().args(args))?;
        let took = begin.elapsed().as_secs_f64();
        // What more ranks take, without the program itself and what it needs for any number of them.
        let fewer = format!("2^{}", power - 3);
        let few = args.map(|arg| if arg == ranks { &*fewer } else { arg });
        let own = exec::peak_memory(bench.detour().args(few))?;
        let more = f64::from((1u32 << power) - (1 << (power - 3)));
        let per_rank = peak.saturating_sub(own) as f64 / more;
        figures.push(Figure::counted(
            if what == "g < o" { "memory per rank, g < o" } else { "memory per rank, g > o" },
            "<= 24 bytes, 2^28 ranks run",
            format!("{per_rank:.1} bytes at {ranks} ranks, {took:.0} s"),
            per_rank <= 24.5,
        ));
    }
    Ok(figures)
}
