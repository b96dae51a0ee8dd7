//! The share of a CPU that `detour top` takes while it is being watched: part of `cargo xtask bench`.
//! Prints one JSON object.
//!
//! The program runs on a terminal, as it does for a user, without input. Measured from outside, once
//! it has begun to draw: the CPU time of all its threads except the probes, whose job is to occupy a
//! CPU.

#[path = "../../tests/pty/mod.rs"]
mod pty;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use crate::pty::{Terminal, running_s};

/// Loading and the first frames are done by then.
const SETTLED_S: u64 = 3;

/// Arguments: the program, seconds, and its other arguments.
fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1);
    let program = args.next().context("program?")?;
    let seconds = args.next().and_then(|n| n.to_str()?.parse().ok()).context("seconds?")?;
    let mut command = Command::new(program);
    command.arg("top").args(args);
    let mut terminal = Terminal::start(&mut command, 120, 40)?;
    let settled = |shown: &str| running_s(shown) >= Some(SETTLED_S);
    let shown = terminal.until("the view", settled)?;
    // Without BPF it falls back to a probe, which is a different measurement.
    ensure!(shown.contains("BPF"), "no BPF programs are running:\n{shown}");
    let tasks = PathBuf::from(format!("/proc/{}/task", terminal.pid()));
    let (start, before) = (Instant::now(), taken_ns(&tasks)?);
    std::thread::sleep(Duration::from_secs(seconds));
    let (passed, after) = (start.elapsed(), taken_ns(&tasks)?);
    // It reports its cost during the measurement, not before.
    terminal.until("the last frame", |shown| running_s(shown) >= Some(seconds))?;
    terminal.press("q")?;
    ensure!(terminal.end()?.success(), "detour top failed:\n{}", terminal.shown());
    let took: u64 = after
        .iter()
        .map(|(thread, ns)| ns.saturating_sub(before.get(thread).copied().unwrap_or(0)))
        .sum();
    let said = terminal.shown();
    let own = said.lines().find_map(|line| {
        line.split_once(" s, overhead ")?.1.strip_suffix(" % of a CPU")?.parse::<f64>().ok()
    });
    let figures = serde_json::json!({
        "cpu_pct": 100.0 * took as f64 / passed.as_nanos() as f64,
        "own_cpu_pct": own.context("no CPU share on the screen")?,
    });
    println!("{figures}");
    Ok(())
}

/// CPU time of each thread that is not a probe.
fn taken_ns(tasks: &Path) -> Result<BTreeMap<PathBuf, u64>> {
    let mut taken = BTreeMap::new();
    for task in fs::read_dir(tasks).context("detour top has exited")?.flatten() {
        // A thread that is just exiting.
        let Ok(name) = fs::read_to_string(task.path().join("comm")) else { continue };
        if name.trim_end() == recorder::PROBE_THREAD {
            continue;
        }
        let times = fs::read_to_string(task.path().join("schedstat"));
        let times = times.context("this kernel has no CPU time per thread")?;
        let ns = times.split_whitespace().next().and_then(|ns| ns.parse().ok());
        taken.insert(task.path(), ns.context("schedstat without a time")?);
    }
    Ok(taken)
}
