//! A recorder that stops reading. The BPF programs continue, and count what does not fit.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use super::nothing_unaccounted;
use crate::{
    reliability,
    support::{Recording, Scratch, cpus, load},
};

fn start(scratch: &Scratch, more: &[&str]) -> Result<Recording> {
    let (cpu, housekeeping) = cpus();
    let (cpu, housekeeping) = (cpu.to_string(), housekeeping.to_string());
    let arguments = [&["-c", &cpu, "-H", &housekeeping, "-d", "120s"], more].concat();
    Recording::start(&scratch.file("trace.detour"), &arguments)
}

/// The ring holds 300000 records. How long it takes to fill depends on the machine and its load.
pub fn every_loss_is_counted() -> Result<()> {
    let (cpu, _) = cpus();
    for seconds in ["3", "10", "30"] {
        let scratch = Scratch::new("overrun")?;
        let recording = start(&scratch, &["--no-probe"])?;
        recording.signal(Signal::STOP)?;
        let counted = load(&["faults", "--cpu", &cpu.to_string(), "--seconds", seconds])?;
        recording.signal(Signal::CONT)?;
        std::thread::sleep(Duration::from_millis(300));
        let trace = recording.stop()?;
        let report = trace.report()?;
        let lost = nothing_unaccounted(&report)?;
        if lost == 0 {
            continue;
        }
        // The same in time: what is missing from the balance is what was lost.
        let lost_ns = report["lost"]["records_ns"].as_u64().context("no time of losses")?;
        let closure = report["closure_error"].as_f64().context("no closure error")?;
        let wall_ns = report["closure_wall_ns"].as_f64().context("no wall time")?;
        let lacking = closure * wall_ns;
        ensure!(
            (lacking - lost_ns as f64).abs() < 1e-4 * wall_ns,
            "{lacking:.0} ns missing from the balance, {lost_ns} ns lost"
        );
        // And compared with the load's own count: nothing else faults like this.
        let faults = counted["faults"].as_u64().context("no count of faults")?;
        let kept = trace.records().filter(|(source, _)| source.name == "pfgen").count() as u64;
        ensure!(kept + lost >= faults, "{kept} kept and {lost} lost of {faults}");
        reliability::note(
            "the reader stopped until the ring overflowed",
            1,
            &format!("{lost} records lost, all of them counted: emitted = read + lost"),
        );
        return Ok(());
    }
    anyhow::bail!("the ring never overflowed")
}

pub fn a_stopped_recorder_goes_on() -> Result<()> {
    const STOPPED: Duration = Duration::from_millis(1_200);
    let scratch = Scratch::new("stopped")?;
    // Nothing is read meanwhile: room for what a busy machine produces in that time.
    let recording = start(&scratch, &["--buffer", "16MiB"])?;
    std::thread::sleep(Duration::from_millis(500));
    recording.signal(Signal::STOP)?;
    std::thread::sleep(STOPPED);
    recording.signal(Signal::CONT)?;
    std::thread::sleep(Duration::from_millis(500));
    let trace = recording.stop()?;
    let report = trace.report()?;
    let lost = nothing_unaccounted(&report)?;
    ensure!(lost == 0, "{lost} lost");
    let closure = report["closure_error"].as_f64().context("no closure error")?;
    ensure!(closure < 1e-3, "closure error {closure:e}");
    // The probe did not run all that time, and records it.
    let longest = trace.blocks.iter().flat_map(|block| &block.detours).map(|d| d.len_ns).max();
    let stopped_ns = STOPPED.as_nanos() as u64;
    ensure!(longest >= Some(stopped_ns * 9 / 10), "longest detour {longest:?}");
    reliability::note(
        "the recorder stopped (SIGSTOP) for 1.2 s, as a suspended virtual machine or a debugger does",
        1,
        "nothing lost; the CPU time balances, and the probe's absence is one detour",
    );
    Ok(())
}
