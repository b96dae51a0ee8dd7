//! Two recorders at once.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use trace::Class;

use super::nothing_unaccounted;
use crate::{
    reliability,
    support::{Load, Recording, Scratch, Trace, cpus},
};

/// Attempts on a machine so busy that a recorder loses records, which both count.
const ATTEMPTS: u32 = 3;

pub fn two_recorders_count_the_same() -> Result<()> {
    for _ in 0..ATTEMPTS {
        let lost = attempt()?;
        if lost == 0 {
            reliability::note(
                "two recorders at once on one CPU",
                1,
                "both count the same interrupts, neither loses any; ending one does not end the other",
            );
            return Ok(());
        }
        println!("{lost} records lost: trying again");
    }
    anyhow::bail!("records were lost in each of {ATTEMPTS} attempts")
}

/// Returns how many records were lost; then there is nothing to compare.
fn attempt() -> Result<u64> {
    let (cpu, housekeeping) = cpus();
    let scratch = Scratch::new("pair")?;
    let _ticks = Load::burn(cpu)?;
    let (cpu, housekeeping) = (cpu.to_string(), housekeeping.to_string());
    let arguments = ["-c", &cpu, "-H", &housekeeping, "-d", "60s", "--no-probe"];
    let first = Recording::start(&scratch.file("first.detour"), &arguments)?;
    let second = Recording::start(&scratch.file("second.detour"), &arguments)?;
    std::thread::sleep(Duration::from_secs(3));
    let first = first.stop()?;
    // The end of one must not end the other.
    std::thread::sleep(Duration::from_millis(500));
    let second = second.stop()?;
    let window = |trace: &Trace| trace.lanes_watched().first().copied().context("no lane");
    let (a, b) = (window(&first)?, window(&second)?);
    let (from, to) = (a.0.max(b.0), a.1.min(b.1));
    ensure!(to > from + 2_000_000_000, "the recordings hardly overlap: {a:?} {b:?}");
    ensure!(b.1 > a.1 + 300_000_000, "the second ended with the first: {a:?} {b:?}");
    let mut counts = Vec::new();
    for trace in [&first, &second] {
        let report = trace.report()?;
        let lost = nothing_unaccounted(&report)?;
        if lost > 0 {
            return Ok(lost);
        }
        let closure = report["closure_error"].as_f64().context("no closure error")?;
        ensure!(closure < 1e-4, "closure error {closure:e}");
        let ticks = trace.records().filter(|(source, _)| source.class == Class::Timer);
        let starts = ticks.map(|(_, record)| trace.span(record).0);
        counts.push(starts.filter(|start| (from..to).contains(start)).count() as u64);
    }
    let [first, second] = counts[..] else { anyhow::bail!("not two counts") };
    // An interrupt at either edge may count for one of them but not for the other.
    ensure!(first > 100 && first.abs_diff(second) <= 2, "{first} and {second} timer interrupts");
    Ok(0)
}
