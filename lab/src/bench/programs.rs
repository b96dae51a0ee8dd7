//! MPI programs: what the collector adds to a call, how fast a trace is reported, and how fast LAMMPS is
//! extrapolated.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Instant,
};

use anyhow::{Context, Result};

use super::{Bench, Figure, number, skipped};
use crate::{exec, lammps};

/// The cost of a call with an MPI library: what is measured, and the compiler.
const CALLS: [(&str, &str); 2] = [
    ("added to a recorded MPI call, Open MPI: the most of six kinds of call", "mpicc.openmpi"),
    ("added to a recorded MPI call, MPICH: the most of six kinds of call", "mpicc.mpich"),
];

/// Wrapped and bare calls alternate in one run, CPU time; the program prints a line for each kind of call.
pub fn calls(bench: &Bench) -> Result<Vec<Figure>> {
    CALLS.into_iter().map(|(most, compiler)| calls_with(bench, most, compiler)).collect()
}

fn calls_with(bench: &Bench, what: &'static str, compiler: &str) -> Result<Figure> {
    const TARGET: &str = "< 150 ns";
    let source = bench.workspace.root.join("mpi-recorder/tests/programs/cost.c");
    let program = bench.file("cost");
    let mut compile = exec::command(compiler, &bench.scratch);
    compile.args(["-O2", "-o"]).arg(&program).arg(&source).arg("-ldl").stderr(Stdio::null());
    if exec::run(&mut compile).is_err() {
        return Ok(skipped(what, TARGET, &format!("{compiler} not installed")));
    }
    // The best of each, because disturbances only add.
    let mut best: Vec<(String, f64)> = Vec::new();
    for _ in 0..bench.extent.repeats {
        let directory = bench.file("cost-run");
        let _ = std::fs::remove_dir_all(&directory);
        let mut command = bench.detour();
        command.args(["mpi", "record", "-o"]).arg(&directory).arg("--").arg(&program);
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let lines = exec::output(&mut command)?;
        for (place, (name, ns)) in lines.lines().filter_map(added).enumerate() {
            match best.get_mut(place) {
                Some((_, known)) => *known = known.min(ns),
                None => best.push((name.to_owned(), ns)),
            }
        }
        let _ = std::fs::remove_dir_all(&directory);
    }
    let most = best.iter().map(|(_, ns)| *ns).reduce(f64::max);
    let most = most.context("the program printed no costs")?;
    let rows: Vec<String> = best.iter().map(|(name, ns)| format!("{name} {ns:.0} ns")).collect();
    let measured = format!("{most:.0} ns ({})", rows.join(", "));
    Ok(Figure::judged(what, TARGET, measured, most < 150.0))
}

/// `MPI_Send to nobody  bare 20.1 wrapped 99.0 added 78.9 ns a call`.
fn added(line: &str) -> Option<(&str, f64)> {
    let (name, rest) = line.split_once(" bare ")?;
    let (_, rest) = rest.split_once(" added ")?;
    Some((name.trim(), rest.split(' ').next()?.parse().ok()?))
}

/// A made trace on one host, on four, and on four whose clocks have to be corrected first.
pub fn report(bench: &Bench) -> Result<Vec<Figure>> {
    let full = bench.extent.repeats > 1;
    let events: u64 = if full { 100_000_000 } else { 5_000_000 };
    let program = bench.workspace.example("bench");
    if !program.exists() {
        return Ok(vec![skipped("profile of 10^8 MPI events", "< 20 s", "example not built")]);
    }
    let cases = [
        ("profile of 10^8 MPI events on 8 ranks of one host, on 2 cores", "1", "0"),
        ("the same on four hosts", "4", "0"),
        ("the same on four hosts whose clocks have to be corrected", "4", "3000"),
    ];
    let mut figures = Vec::new();
    for (what, hosts, skew) in cases {
        let directory = bench.file("events");
        let _ = std::fs::remove_dir_all(&directory);
        let mut command = exec::command(&program, &bench.scratch);
        command.arg(&directory).args([events.to_string().as_str(), hosts, "8", skew]);
        let text = exec::output(&mut command)?;
        let json = text.lines().find(|line| line.starts_with('{')).context("no figures")?;
        let found: serde_json::Value = serde_json::from_str(json)?;
        let scale = 1e8 / number(&found, "/events")?;
        let (wall, cpu) = (number(&found, "/wall_s")?, number(&found, "/cpu_s")?);
        let peak = number(&found, "/peak_mb")?;
        figures.push(Figure::judged(
            what,
            "< 20 s, < 1 GB",
            format!("{:.1} s, {:.1} s CPU, {peak:.0} MB", wall * scale, cpu * scale),
            wall * scale < 20.0 && peak < 1_000.0,
        ));
    }
    Ok(figures)
}

const LAUNCHER: &str = "mpirun.openmpi";
const SETTING: [&str; 6] = ["--net", "alps", "--noise", "periodic:100Hz,20us", "--seed", "1"];

/// LAMMPS on two ranks: one step on 2^20 ranks, and a list of questions on 4,096.
pub fn extrapolated(bench: &Bench) -> Result<Vec<Figure>> {
    const STEP: &str = "one time step of LAMMPS (2 ranks) on 2^20 ranks with noise, on 2 cores";
    const QUESTIONS: &str = "30 questions of `--if auto` about LAMMPS (2 ranks) on 4,096 ranks, 20 paired runs, on 2 cores";
    if !Path::new(lammps::PATH).exists() {
        let why = "LAMMPS not installed";
        return Ok(vec![skipped(STEP, "< 10 s", why), skipped(QUESTIONS, "< 60 s", why)]);
    }
    let full = bench.extent.repeats > 1;
    // The start of a run has many collectives, so that a step is the difference of two runs.
    let (few, more) = (traced(bench, 1)?, traced(bench, 11)?);
    let power = if full { 20 } else { 16 };
    let ranks = (1u64 << power).to_string();
    let simulate = |dir: &Path, more: &[&str]| -> Result<(f64, serde_json::Value)> {
        let mut command = bench.detour();
        command
            .args(["simulate", "app"])
            .arg(dir)
            .args(SETTING)
            .args(more)
            .args(["--json", "-j", "2"]);
        let begin = Instant::now();
        let found = exec::json(&mut command)?;
        Ok((begin.elapsed().as_secs_f64(), found))
    };
    let once = ["--ranks", &ranks, "--runs", "1"];
    let mut pairs = Vec::new();
    for _ in 0..bench.extent.repeats {
        pairs.push((simulate(&few, &once)?.0, simulate(&more, &once)?.0));
    }
    let start = pairs.iter().map(|(start, _)| *start).fold(f64::INFINITY, f64::min);
    let step = pairs.iter().map(|(_, more)| *more).fold(f64::INFINITY, f64::min) - start;
    let step = step / 10.0;
    let scale = f64::from(1u32 << (20 - power));
    let mut figures = vec![Figure::judged(
        STEP,
        "< 10 s",
        format!(
            "{:.2} s ({:.1} s with the start of the program, at 2^{power} ranks)",
            step * scale,
            start
        ),
        step * scale < 10.0,
    )];
    let dir = traced(bench, 100)?;
    let (took, found) = simulate(&dir, &["--ranks", "4096", "--runs", "20", "--if", "auto"])?;
    let asked = found["hypotheses"].as_array().map_or(0, Vec::len);
    let each = took / asked.max(1) as f64;
    figures.push(Figure::judged(
        QUESTIONS,
        "< 60 s",
        format!("{:.1} s ({took:.1} s for {asked})", 30.0 * each),
        asked > 0 && 30.0 * each < 60.0,
    ));
    Ok(figures)
}

/// The trace of a run of so many steps.
fn traced(bench: &Bench, steps: u32) -> Result<PathBuf> {
    let dir = bench.file(&format!("lammps-{steps}"));
    let input = bench.file("melt");
    let _ = fs::remove_dir_all(&dir);
    fs::write(&input, lammps::melt(steps, 10)).context("cannot write the input of LAMMPS")?;
    let mut command = exec::command(LAUNCHER, &bench.scratch);
    command.args(["--allow-run-as-root", "--bind-to", "core", "-n", "2"]);
    command
        .arg(bench.workspace.binary("detour"))
        .args(["--quiet", "mpi", "record", "-o"])
        .arg(&dir);
    command.args(["--", lammps::PATH, "-log", "none", "-screen", "none", "-in"]).arg(&input);
    exec::run(command.stdout(Stdio::null()))?;
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::added;

    #[test]
    fn the_cost_is_read_from_what_the_program_prints() {
        let line = "MPI_Send to nobody           bare 20.1 wrapped 99.0 added 78.9 ns a call";
        assert_eq!(added(line), Some(("MPI_Send to nobody", 78.9)));
        assert_eq!(added("detour: 5 events"), None);
    }
}
