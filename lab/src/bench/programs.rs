//! MPI programs: what the collector adds to a call, and how fast a trace is reported.

use std::process::Stdio;

use anyhow::{Context, Result};

use super::{Bench, Figure, number, skipped};
use crate::exec;

const COMPILER: &str = "mpicc.openmpi";

/// Wrapped and bare calls alternate in one run, CPU time; the program prints a line for each kind of call.
pub fn calls(bench: &Bench) -> Result<Vec<Figure>> {
    const MOST: &str = "added to a recorded MPI call, Open MPI: the most of five kinds of call";
    const TARGET: &str = "< 150 ns";
    let source = bench.workspace.root.join("mpi-recorder/tests/programs/cost.c");
    let program = bench.file("cost");
    let mut compiler = exec::command(COMPILER, &bench.scratch);
    compiler.args(["-O2", "-o"]).arg(&program).arg(&source).arg("-ldl").stderr(Stdio::null());
    if exec::run(&mut compiler).is_err() {
        return Ok(vec![skipped(MOST, TARGET, &format!("{COMPILER} not installed"))]);
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
    Ok(vec![Figure::judged(MOST, TARGET, measured, most < 150.0)])
}

/// `MPI_Send to nobody  bare 20.1 wrapped 99.0 added 78.9 ns a call`.
fn added(line: &str) -> Option<(&str, f64)> {
    let (name, rest) = line.split_once(" bare ")?;
    let (_, rest) = rest.split_once(" added ")?;
    Some((name.trim(), rest.split(' ').next()?.parse().ok()?))
}

/// A made trace on one host, and on four whose clocks have to be corrected first.
pub fn report(bench: &Bench) -> Result<Vec<Figure>> {
    let full = bench.extent.repeats > 1;
    let events: u64 = if full { 100_000_000 } else { 5_000_000 };
    let program = bench.workspace.example("bench");
    if !program.exists() {
        return Ok(vec![skipped("profile of 10^8 MPI events", "< 20 s", "example not built")]);
    }
    let cases = [
        ("profile of 10^8 MPI events on 8 ranks of one host, on 2 cores", "1", "0"),
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
