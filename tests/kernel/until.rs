//! A recording that ends when something happens, and only then.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::support::{Load, Needs, Scratch, Test, Trace, cpus, detour, loadgen, text};

pub const TESTS: &[Test] = &[
    ("a_recording_ends_when_it_happens", Needs::RootAndTwoCpus, it_ends_when_it_happens),
    ("a_recording_goes_on_if_nothing_happens", Needs::RootAndTwoCpus, it_goes_on),
];

/// Records until the condition is met; the result, whether the command ran, the file, and the last line.
fn recorded(
    scratch: &Scratch,
    condition: &str,
    most: &str,
) -> Result<(Value, bool, std::path::PathBuf, String)> {
    let (cpu, housekeeping) = cpus();
    let (path, ran) = (scratch.file("trace.detour"), scratch.file("ran"));
    let output = detour()
        .args(["record", "-c", &cpu.to_string(), "-H", &housekeeping.to_string(), "--json"])
        .args(["--until", condition, "--keep", "1s", "-d", most])
        .args(["--run", "echo \"$DETOUR_TRACE\" > \"$RAN\""])
        .arg("-o")
        .arg(&path)
        .env("RAN", &ran)
        .output()?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    let ran = fs::read_to_string(&ran).is_ok_and(|name| name.trim() == path.display().to_string());
    let said = text(&output.stderr);
    let last = said.trim_end().lines().last().unwrap_or_default().to_owned();
    Ok((serde_json::from_slice(&output.stdout)?, ran, path, last))
}

/// A daemon that takes 3 ms three times a second is what is waited for.
fn it_ends_when_it_happens() -> Result<()> {
    let (cpu, _) = cpus();
    let _load = Load(
        loadgen()?
            .args(["daemon", "--cpu", &cpu.to_string(), "--period-us", "300000"])
            .args(["--burn-us", "3000", "--name", "untild", "--seconds", "300"])
            .stdout(std::process::Stdio::null())
            .spawn()?,
    );
    let scratch = Scratch::new("until")?;
    let (result, ran, path, last) = recorded(&scratch, "process=untild>2ms", "250s")?;
    let begin = "process=untild>2ms occurred: ";
    ensure!(last.starts_with(begin) && last.contains(&format!(" on CPU {cpu} at 20")), "{last}");
    ensure!(last.contains(": untild ("), "{last}");
    let until = &result["until"];
    ensure!(until["met"] == true && ran, "{result}");
    let length = until["length_ns"].as_u64().context("no length")?;
    ensure!(length > 2_000_000, "{until}");
    let trace = Trace::read(&path)?;
    let watched = trace.lanes_watched();
    // A second before it happened, and the moment until that is noticed.
    ensure!(watched.iter().all(|(from, to)| to - from <= 3_000_000_000), "{watched:?}");
    // It is in what was kept, with the stack that woke it.
    let mut long = trace.records().filter(|(source, _)| source.name == "untild");
    let long = long.find(|(_, record)| record.cost_ns > 1_000_000);
    let (source, _) = long.context("the daemon is not in what was kept")?;
    let detail = source.detail.as_deref().unwrap_or_default();
    ensure!(detail.contains(" via ") && detail.contains("hrtimer_wakeup"), "{detail}");
    Ok(())
}

fn it_goes_on() -> Result<()> {
    let scratch = Scratch::new("until-never")?;
    let (result, ran, path, last) = recorded(&scratch, "process=no-such-process>1ns", "2s")?;
    ensure!(
        last == "process=no-such-process>1ns did not occur: the --run command was not run",
        "{last}"
    );
    ensure!(result["until"]["met"] == false && !ran, "{result}");
    let watched = Trace::read(&path)?.lanes_watched();
    ensure!(watched.iter().all(|(from, to)| (500_000_000..=1_000_000_000).contains(&(to - from))));
    Ok(())
}
