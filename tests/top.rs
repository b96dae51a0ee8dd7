//! `detour top` on a terminal, with only the probe: needs no privileges.

mod pty;

use std::{fs, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use pty::{Terminal, running_s};
use rustix::process::{Pid, Signal, kill_process};

/// The probe on one CPU, drawn ten times per second.
fn top() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_detour"));
    let cpu = recorder::machine::allowed().last().copied().unwrap_or(0).to_string();
    command.args(["top", "--no-bpf", "--interval", "100ms", "-c", &cpu]);
    command
}

fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn kill(terminal: &Terminal, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(terminal.pid() as i32).context("a process")?;
    Ok(kill_process(pid, signal)?)
}

#[test]
fn it_shows_its_own_cost_and_gives_the_terminal_back() -> Result<()> {
    let mut terminal = Terminal::start(&mut top(), 80, 24)?;
    let shown = terminal.until("its own cost", |shown| {
        shown.contains("% of a CPU") && shown.contains("unattributed")
    })?;
    for wanted in ["detour top", "probe only", "1 CPU for the probe", "taken", "quit"] {
        ensure!(shown.contains(wanted), "no {wanted}:\n{shown}");
    }
    ensure!(shown.lines().count() == 24, "{shown}");
    terminal.press("q")?;
    ensure!(terminal.end()?.success());
    // Its cost is printed where it can be read later.
    ensure!(terminal.shown().contains("% of a CPU"), "{}", terminal.shown());
    Ok(())
}

#[test]
fn a_large_terminal_shows_more() -> Result<()> {
    let mut terminal = Terminal::start(&mut top(), 200, 60)?;
    let shown = terminal.until_shown("unattributed")?;
    ensure!(shown.contains("unit") && shown.contains("count"), "{shown}");
    ensure!(shown.lines().count() == 60 && shown.lines().any(|line| line.chars().count() > 150));
    terminal.press("\x03")?;
    ensure!(terminal.end()?.success());
    Ok(())
}

#[test]
fn it_follows_every_change_of_size() -> Result<()> {
    let mut terminal = Terminal::start(&mut top(), 80, 24)?;
    terminal.until_shown("unattributed")?;
    for (columns, rows) in [(200, 60), (30, 8), (10, 3), (1, 1), (500, 2), (2, 100)] {
        terminal.resize(columns, rows)?;
        std::thread::sleep(Duration::from_millis(250));
    }
    terminal.resize(20, 4)?;
    terminal.until_shown("terminal too small")?;
    terminal.resize(120, 30)?;
    let shown = terminal.until("the whole picture", |shown| {
        shown.contains("unattributed") && shown.contains("unit") && shown.contains(" write ")
    })?;
    ensure!(!shown.contains("terminal too small"), "{shown}");
    terminal.press("q")?;
    ensure!(terminal.end()?.success());
    Ok(())
}

#[test]
fn keys_filter_and_explain() -> Result<()> {
    let mut terminal = Terminal::start(&mut top(), 80, 24)?;
    terminal.until_shown("unattributed")?;
    terminal.press("/nobody")?;
    terminal.until_shown("filter: nobody_")?;
    terminal.press("\r")?;
    terminal.until_shown("nothing matches the filter")?;
    terminal.press("\x1b")?;
    terminal.until_shown("unattributed")?;
    terminal.press("?")?;
    terminal.until_shown("press any key to close")?;
    terminal.press("x")?;
    terminal.until("the picture again", |shown| !shown.contains("press any key to close"))?;
    terminal.press("i")?;
    terminal.until_shown("last 10 s")?;
    terminal.press("q")?;
    ensure!(terminal.end()?.success());
    Ok(())
}

#[test]
fn a_paused_view_stands_still_and_is_written_as_a_trace() -> Result<()> {
    let file = scratch("top.detour");
    let _ = fs::remove_file(&file);
    let mut terminal = Terminal::start(top().arg("-o").arg(&file), 200, 24)?;
    terminal.until("two seconds", |shown| running_s(shown) >= Some(2))?;
    terminal.press("p")?;
    let paused = terminal.until_shown("PAUSED")?;
    let clock = |shown: &str| shown.lines().next().map(|line| line.trim_end().to_owned());
    std::thread::sleep(Duration::from_millis(1_500));
    terminal.press("w")?;
    let shown = terminal.until_shown("view with")?;
    ensure!(clock(&shown) == clock(&paused), "{shown}");
    // A second one does not replace the first.
    terminal.press("w")?;
    terminal.until_shown("cannot write the trace")?;
    terminal.press(" ")?;
    terminal.until("it goes on", |shown| clock(shown) != clock(&paused))?;
    terminal.press("q")?;
    ensure!(terminal.end()?.success());

    let mut report = Command::new(env!("CARGO_BIN_EXE_detour"));
    let report = report.arg("report").arg(&file).arg("--json").output()?;
    let report: serde_json::Value = serde_json::from_slice(&report.stdout)?;
    ensure!(report["truncated"].is_null() && report["mode"] == "probe_only", "{report}");
    ensure!(report["detours"].as_u64().is_some_and(|detours| detours > 0), "{report}");
    ensure!(report["duration_s"].as_f64().is_some_and(|s| (1.0..60.0).contains(&s)), "{report}");
    Ok(())
}

#[test]
fn a_signal_ends_it_in_order() -> Result<()> {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let mut terminal = Terminal::start(&mut top(), 80, 24)?;
        terminal.until_shown("unattributed")?;
        kill(&terminal, signal)?;
        ensure!(terminal.end()?.success(), "{signal:?}");
    }
    Ok(())
}

#[test]
fn a_terminal_that_is_gone_ends_it_without_a_fuss() -> Result<()> {
    let mut terminal = Terminal::start(&mut top(), 80, 24)?;
    terminal.until_shown("unattributed")?;
    terminal.hang_up();
    let status = terminal.exit()?;
    ensure!(status.success(), "{status}");
    Ok(())
}

#[test]
fn it_goes_to_the_background_and_comes_back() -> Result<()> {
    let mut terminal = Terminal::start(&mut top(), 80, 24)?;
    terminal.until_shown("unattributed")?;
    kill(&terminal, Signal::STOP)?;
    kill(&terminal, Signal::CONT)?;
    // Ctrl-Z: there is no shell to return to, so it resumes at once. Then Ctrl-L.
    for key in ["\x1a", "\x0c"] {
        terminal.press(key)?;
        terminal.press("?")?;
        terminal.until_shown("press any key to close")?;
        terminal.press("x")?;
        terminal.until_shown("unattributed")?;
    }
    terminal.press("q")?;
    ensure!(terminal.end()?.success());
    Ok(())
}

#[test]
fn it_ends_by_itself_when_the_time_is_up() -> Result<()> {
    let mut terminal = Terminal::start(top().args(["-d", "2s"]), 80, 24)?;
    ensure!(terminal.end()?.success());
    ensure!(terminal.shown().contains("watched"), "{}", terminal.shown());
    Ok(())
}

#[test]
fn what_is_wrong_is_said_before_the_terminal_is_taken() -> Result<()> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_detour"));
    let mut terminal = Terminal::start(command.args(["top", "--no-bpf", "-c", "4095"]), 80, 24)?;
    ensure!(terminal.end()?.code() == Some(1));
    ensure!(terminal.shown().contains("does not exist"), "{}", terminal.shown());
    Ok(())
}
