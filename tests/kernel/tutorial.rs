//! The commands of `docs/tutorial.md`, literally and in order.

use std::{fs, process::Command};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::support::{Needs, Scratch, Test, detour, skip, text, undisturbed};

pub const TESTS: &[Test] =
    &[("the_tutorial_works_literally", Needs::RootAndTwoCpus, || undisturbed(it_works))];

const TUTORIAL: &str = include_str!("../../docs/tutorial.md");

/// Of the time; the agent takes a tenth.
const MOST_OUTSIDE: f64 = 0.01;

/// All blocks of shell commands.
fn commands() -> String {
    let blocks = TUTORIAL.split("```sh\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split_once("```")).map(|(block, _)| block);
    blocks.collect()
}

fn it_works() -> Result<()> {
    let scratch = Scratch::new("tutorial")?;
    let here = scratch.file(".");
    let program = detour();
    let programs = std::path::Path::new(program.get_program()).parent().context("no directory")?;
    let path = format!("{}:{}", programs.display(), std::env::var("PATH")?);
    let script = commands();
    ensure!(script.lines().count() > 20, "no commands in the tutorial");
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .current_dir(&here)
        .env("PATH", path)
        .output()?;
    let said = text(&output.stderr);
    let json = |args: &[&str]| -> Result<Value> {
        let output = detour().args(args).arg("--json").current_dir(&here).output()?;
        ensure!(output.status.success(), "{}", text(&output.stderr));
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    if !output.status.success() {
        // The script may have ended before it stopped the agent.
        let _ = Command::new("pkill").args(["-x", "fakemond"]).status();
        // What the host does decides the comparison if it takes more than the agent.
        for file in ["before.detour", "after.detour"] {
            let report = json(&["report", "--no-projection", file])?;
            let outside = report["outside_kernel"].as_array().context("no rows")?;
            let ns: u64 = outside.iter().filter_map(|row| row["cost_ns_total"].as_u64()).sum();
            let share = ns as f64 / 1e9 / report["duration_s"].as_f64().context("no length")?;
            if share > MOST_OUTSIDE {
                return skip(format!("{:.1} % of the time was taken from outside", 100.0 * share));
            }
        }
    }
    ensure!(output.status.success(), "{said}\n{}", text(&output.stdout));
    let still_there = Command::new("pgrep").args(["-x", "fakemond"]).output()?;
    ensure!(!still_there.status.success(), "the agent still runs");
    for page in ["before.html", "diff.html"] {
        ensure!(fs::metadata(scratch.file(page))?.len() > 10_000, "{page} is too small");
    }
    // The tutorial turns off what the tool names first, and the comparison proves it.
    let before = json(&["report", "before.detour"])?;
    let busy = before["busy"].as_array().context("no load")?;
    if busy.iter().any(|busy| busy["process"] != "fakemond") {
        return skip(format!("the node is not idle: {busy:?}"));
    }
    let first = &before["actions"][0];
    ensure!(first["process"] == "fakemond", "{:#}", before["actions"]);
    let command = first["command"].as_str().context("no command")?;
    ensure!(script.contains(command), "the tutorial does not run {command:?}");
    let diff = json(&["diff", "before.detour", "after.detour"])?;
    let rows = diff["rows"].as_array().context("no rows")?;
    let agent =
        rows.iter().find(|row| row["name"] == "fakemond").context("the agent is missing")?;
    ensure!(agent["verdict"] == "vanished", "{agent}");
    Ok(())
}
