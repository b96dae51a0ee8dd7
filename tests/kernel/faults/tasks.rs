//! As many short tasks as a fork bomb creates.

use std::{collections::BTreeSet, fs};

use anyhow::{Context, Result, ensure};

use super::nothing_unaccounted;
use crate::{
    reliability,
    support::{Hidden, LONG, Recording, Scratch, cpus, load},
};

const NAMES: u64 = 64;
const FEWEST: u64 = 1_000;
/// Creating and ending a task takes longer.
const APART_NS: u64 = 50_000;
/// How much the recorder may grow: buffers that fill up, but nothing per task.
const GROWTH_KIB: u64 = 64 << 10;

pub fn short_tasks_keep_their_names() -> Result<()> {
    let (cpu, housekeeping) = cpus();
    let scratch = Scratch::new("forks")?;
    let arguments = ["-c", &cpu.to_string(), "-H", &housekeeping.to_string(), "-d", LONG];
    let path = scratch.file("trace.detour");
    let recording = Recording::start(&path, &arguments)?;
    let before = memory_kib(recording.pid())?;
    let hidden = Hidden::start();
    let names = NAMES.to_string();
    // On a busy machine a few seconds are not enough for many tasks.
    let mut forks = 0;
    for seconds in ["4", "12", "36"] {
        let on = cpu.to_string();
        let counted = load(&["forks", "--cpu", &on, "--seconds", seconds, "--names", &names])?;
        forks += counted["forks"].as_u64().context("no count of forks")?;
        if forks > FEWEST {
            break;
        }
    }
    let hidden = hidden.stop();
    let after = memory_kib(recording.pid())?;
    let trace = recording.stop()?;
    let report = trace.report()?;
    let lost = nothing_unaccounted(&report)?;
    ensure!(forks > FEWEST, "only {forks} tasks");
    ensure!(after < before + GROWTH_KIB, "{before} KiB before, {after} KiB after {forks} tasks");
    let short = |name: &str| name.starts_with("short-");
    let ours = trace.records().filter(|(s, _)| s.class == trace::Class::Thread && short(&s.name));
    let (mut tasks, mut different) = (0u64, BTreeSet::new());
    for (source, _) in ours {
        tasks += 1;
        different.insert(&source.name);
    }
    let unmatched = report["lost"]["unmatched"].as_u64().context("no count of unmatched")?;
    let unseen = hidden.may_have_taken(unmatched, APART_NS);
    ensure!(
        tasks + lost + unseen >= forks,
        "{tasks} of {forks} named, {lost} lost, {unseen} unseen"
    );
    ensure!(different.len() as u64 == NAMES || lost > 0, "{} names", different.len());
    // Each has faults before it first leaves the CPU, and is gone by then.
    let nameless = trace.records().filter(|(source, _)| source.name == "(exited)").count() as u64;
    ensure!(nameless <= forks / 100 + lost, "{nameless} records of {forks} tasks without a name");
    reliability::note(
        &format!("{forks} short tasks within seconds"),
        1,
        &format!(
            "all of them accounted for, {lost} records lost; the recorder's memory grew by {} MiB at most",
            after.saturating_sub(before).div_ceil(1024)
        ),
    );
    Ok(())
}

/// Peak memory of a process.
fn memory_kib(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.context("no VmHWM")
}
