//! CLOCK_REALTIME is set forward and back. The recording uses another clock.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

use crate::{
    reliability,
    support::{Recording, Scratch, bursts, cpus, loadgen, monotonic_ns, separate},
};

const HOUR: i64 = 3_600;
/// In seconds, each relative to the right time, and only for a moment: others depend on this clock.
const STEPS: [i64; 4] = [HOUR, -HOUR, 5 * HOUR, -5 * HOUR];

pub fn may_be_set() -> bool {
    const CAP_SYS_TIME: u32 = 25;
    // Sets the clock to the current time: only this shows whether it is permitted.
    recorder::machine::has_capability(CAP_SYS_TIME)
        && clock_settime(ClockId::Realtime, clock_gettime(ClockId::Realtime)).is_ok()
}

/// Restores the clock on drop.
struct RightTime {
    unix: Timespec,
    monotonic_ns: u64,
}

impl RightTime {
    fn know() -> RightTime {
        RightTime { unix: clock_gettime(ClockId::Realtime), monotonic_ns: monotonic_ns() }
    }

    fn set(&self, ahead_s: i64) -> Result<()> {
        let passed = (monotonic_ns() - self.monotonic_ns) as i64 + self.unix.tv_nsec;
        let time = Timespec {
            tv_sec: self.unix.tv_sec + passed / 1_000_000_000 + ahead_s,
            tv_nsec: passed % 1_000_000_000,
        };
        Ok(clock_settime(ClockId::Realtime, time)?)
    }
}

impl Drop for RightTime {
    fn drop(&mut self) {
        let _ = self.set(0);
    }
}

pub fn steps_do_not_move_what_is_recorded() -> Result<()> {
    let (cpu, _) = cpus();
    let scratch = Scratch::new("clock")?;
    let recording = Recording::start(&scratch.file("trace.detour"), &["-d", "60s"])?;
    let start = monotonic_ns();
    let log = scratch.file("bursts");
    let mut daemon = loadgen()?
        .args(["daemon", "--cpu", &cpu.to_string(), "--seconds", "2", "--log"])
        .arg(&log)
        .stdout(std::process::Stdio::null())
        .spawn()?;
    {
        let right = RightTime::know();
        for ahead in STEPS {
            std::thread::sleep(Duration::from_millis(300));
            right.set(ahead)?;
            std::thread::sleep(Duration::from_millis(30));
            right.set(0)?;
        }
    }
    ensure!(daemon.wait()?.success(), "the daemon failed");
    let trace = recording.stop()?;
    let took_s = (monotonic_ns() - start) as f64 / 1e9;
    let report = trace.report()?;
    let duration = report["duration_s"].as_f64().context("no duration")?;
    ensure!(duration < took_s + 5.0, "{duration} s recorded in {took_s} s");
    let bursts = bursts(&log)?;
    ensure!(bursts.len() > 50, "only {} bursts", bursts.len());
    let spans: Vec<(u64, u64)> = trace
        .records()
        .filter(|(source, _)| source.name == "fakemond")
        .map(|(_, record)| trace.span(record))
        .collect();
    let inside = |at: u64| spans.iter().any(|&(from, to)| from <= at && at <= to);
    let missed = bursts.iter().filter(|burst| !inside(burst.start)).count();
    ensure!(missed * 50 <= bursts.len(), "{missed} of {} bursts are misplaced", bursts.len());
    ensure!(separate(&bursts) > 20, "the daemon never slept");
    reliability::note(
        "CLOCK_REALTIME set forward and back by up to five hours",
        STEPS.len() as u64,
        "times in the trace unaffected: they are on CLOCK_MONOTONIC",
    );
    Ok(())
}
