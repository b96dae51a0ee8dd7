//! The live view with BPF: what disturbs the node is on the screen under its name, at its rate.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::{
    pty::{Terminal, running_s},
    support::{Load, Needs, Test, cpus, detour, loadgen},
};

pub const TESTS: &[Test] = &[
    ("the_view_names_a_daemon_and_its_rate", Needs::RootAndTwoCpus, a_daemon_is_on_screen),
    ("a_node_is_watched_without_a_probe", Needs::Root, without_a_probe),
    ("a_programs_threads_are_watched", Needs::Root, a_program),
];

fn a_daemon_is_on_screen() -> Result<()> {
    let (measured, _) = cpus();
    let cpu = measured.to_string();
    let _load = Load(
        loadgen()?
            .args(["daemon", "--cpu", &cpu, "--period-us", "20000", "--burn-us", "200"])
            .args(["--seconds", "120"])
            .stdout(std::process::Stdio::null())
            .spawn()?,
    );
    // The row of a process also counts the timer interrupts that wake it.
    let watch = ["top", "--by", "source", "--probe", "-c", &cpu, "-i", "200ms"];
    let mut terminal = Terminal::start(detour().args(watch), 200, 60)?;
    terminal.press("i")?;
    let row = |shown: &str| {
        let line =
            shown.lines().find(|line| line.starts_with("thread") && line.contains("fakemond"));
        line.map(str::to_owned)
    };
    let settled = |shown: &str| running_s(shown) >= Some(7) && row(shown).is_some();
    let shown = terminal.until("the daemon", settled)?;
    terminal.press("q")?;
    ensure!(terminal.end()?.success());
    let line = row(&shown).context("the daemon's row")?;
    let numbers: Vec<&str> = line.split_whitespace().collect();
    // Class and name, possibly a unit, then rate, share, ...
    let rate = numbers.iter().skip(2).find_map(|word| word.parse::<f64>().ok());
    // On a busy CPU a late daemon merges two runs into one.
    ensure!(rate.is_some_and(|rate| (20.0..60.0).contains(&rate)), "50 times a second: {line}");
    ensure!(shown.contains("BPF"), "{shown}");
    Ok(())
}

fn without_a_probe() -> Result<()> {
    let mut terminal = Terminal::start(detour().args(["top", "-i", "200ms"]), 120, 40)?;
    let shown = terminal.until("ticks and the cost", |shown| {
        shown.contains("no probe") && shown.contains("timer") && shown.contains("% of a CPU, BPF")
    })?;
    ensure!(!shown.contains("for the probe"), "{shown}");
    // From the first frame on it is a share of the time in which it was spent.
    let share = bpf_pct(&shown).with_context(|| format!("no share of BPF:\n{shown}"))?;
    ensure!(share < 50.0, "{share} % of the CPUs:\n{shown}");
    std::thread::sleep(Duration::from_secs(2));
    terminal.press("q")?;
    ensure!(terminal.end()?.success());
    Ok(())
}

/// The displayed share, which may be `<0.01%`.
fn bpf_pct(shown: &str) -> Option<f64> {
    let (_, rest) = shown.split_once(", BPF ")?;
    rest.split_once('%')?.0.trim_start_matches('<').parse().ok()
}

fn a_program() -> Result<()> {
    let load = Load(std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn()?);
    let pid = load.0.id().to_string();
    let mut terminal =
        Terminal::start(detour().args(["top", "--pid", &pid, "-i", "200ms"]), 120, 40)?;
    terminal.until("its thread", |shown| shown.contains(&format!("sh-{pid}")))?;
    terminal.press("q")?;
    ensure!(terminal.end()?.success());
    Ok(())
}
