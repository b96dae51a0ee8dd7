//! A recorder that does not come to read. The kernel side goes on, and counts what finds no room.

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

/// The ring holds 300000 records. How long it takes to fill it depends on the machine, and who else
/// is on it.
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
        // The same in time: what the account lacks is what was lost.
        let lost_ns = report["lost"]["records_ns"].as_u64().context("no time of losses")?;
        let closure = report["closure_error"].as_f64().context("no closure error")?;
        let window_ns = report["duration_s"].as_f64().context("no duration")? * 1e9;
        let lacking = closure * window_ns;
        ensure!(
            (lacking - lost_ns as f64).abs() < 0.005 * window_ns,
            "the account lacks {lacking:.0} ns, {lost_ns} ns were lost"
        );
        // And in what the load itself counted: nothing else faults like this.
        let faults = counted["faults"].as_u64().context("no count of faults")?;
        let kept = trace.records().filter(|(source, _)| source.name == "pfgen").count() as u64;
        ensure!(kept + lost >= faults, "{kept} kept and {lost} lost of {faults}");
        reliability::note(
            "the reader stopped until the ring overran",
            1,
            &format!("{lost} records lost, counted to the last: emitted = read + lost"),
        );
        return Ok(());
    }
    anyhow::bail!("the ring never overran")
}

pub fn a_stopped_recorder_goes_on() -> Result<()> {
    const STOPPED: Duration = Duration::from_millis(1_200);
    let scratch = Scratch::new("stopped")?;
    // Nothing is read meanwhile: room for what a busy machine does in that time.
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
    // The probe was away all that time, and knows it.
    let longest = trace.blocks.iter().flat_map(|block| &block.detours).map(|d| d.len_ns).max();
    let stopped_ns = STOPPED.as_nanos() as u64;
    ensure!(longest >= Some(stopped_ns * 9 / 10), "longest detour {longest:?}");
    reliability::note(
        "the recorder stopped (SIGSTOP) for 1.2 s, as a suspended virtual machine or a debugger does",
        1,
        "nothing lost; the account of the CPU closes, and the probe's absence is one detour",
    );
    Ok(())
}
