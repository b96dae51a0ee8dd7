//! What `detour top` takes of a CPU while somebody looks at it: part of `cargo xtask bench`. Prints
//! one JSON object.
//!
//! The program runs on a terminal, as it does for a user, and is left alone. Counted from outside,
//! from when it has begun to draw: the CPU time of all its threads but the probes, whose job it is to
//! take a CPU whole.

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("`detour top` runs on Linux only");
    std::process::exit(1);
}

#[cfg(target_os = "linux")]
#[path = "../../tests/pty/mod.rs"]
mod pty;

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    linux::main()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        collections::BTreeMap,
        fs,
        path::{Path, PathBuf},
        process::Command,
        time::{Duration, Instant},
    };

    use anyhow::{Context, Result, ensure};

    use crate::pty::{Terminal, running_s};

    /// Loading and the first pictures are over by then.
    const SETTLED_S: u64 = 3;

    /// The program, seconds, and what else it is told.
    pub fn main() -> Result<()> {
        let mut args = std::env::args_os().skip(1);
        let program = args.next().context("which program?")?;
        let seconds = args.next().and_then(|n| n.to_str()?.parse().ok()).context("how long?")?;
        let mut command = Command::new(program);
        command.arg("top").args(args);
        let mut terminal = Terminal::start(&mut command, 120, 40)?;
        let settled = |shown: &str| running_s(shown) >= Some(SETTLED_S);
        let shown = terminal.until("the view", settled)?;
        // Where no programs may be loaded it falls back to a probe, which is another thing to measure.
        ensure!(shown.contains("BPF"), "no BPF programs run:\n{shown}");
        let tasks = PathBuf::from(format!("/proc/{}/task", terminal.pid()));
        let (start, before) = (Instant::now(), taken_ns(&tasks)?);
        std::thread::sleep(Duration::from_secs(seconds));
        let (passed, after) = (start.elapsed(), taken_ns(&tasks)?);
        // It shows what it did meanwhile, and not what it had when nobody looked.
        terminal.until("a picture at the end", |shown| running_s(shown) >= Some(seconds))?;
        terminal.press("q")?;
        ensure!(terminal.end()?.success(), "it failed:\n{}", terminal.shown());
        let took: u64 = after
            .iter()
            .map(|(thread, ns)| ns.saturating_sub(before.get(thread).copied().unwrap_or(0)))
            .sum();
        let said = terminal.shown();
        let own = said.lines().find_map(|line| {
            line.split_once(" s for ")?.1.strip_suffix(" % of a CPU")?.parse::<f64>().ok()
        });
        let figures = serde_json::json!({
            "cpu_pct": 100.0 * took as f64 / passed.as_nanos() as f64,
            "own_cpu_pct": own.context("it did not say what it took")?,
        });
        println!("{figures}");
        Ok(())
    }

    /// CPU time of each thread that is no probe.
    fn taken_ns(tasks: &Path) -> Result<BTreeMap<PathBuf, u64>> {
        let mut taken = BTreeMap::new();
        for task in fs::read_dir(tasks).context("it has ended")?.flatten() {
            // One that ends just now has nothing to say any more.
            let Ok(name) = fs::read_to_string(task.path().join("comm")) else { continue };
            if name.trim_end() == recorder::PROBE_THREAD {
                continue;
            }
            let times = fs::read_to_string(task.path().join("schedstat"));
            let times = times.context("this kernel counts no CPU time by thread")?;
            let ns = times.split_whitespace().next().and_then(|ns| ns.parse().ok());
            taken.insert(task.path(), ns.context("schedstat without a time")?);
        }
        Ok(taken)
    }
}
