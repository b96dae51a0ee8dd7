//! The cost of recording for the node: the probe's loop, the ticks, and a CPU that produces as many
//! records as it can.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Bench, Figure, Verdict, cpus::Running, grouped, number, skipped, unfit};
use crate::exec;

/// The measured CPU, and the one for everything else.
pub const MEASURED: &str = "1";
pub const HOUSEKEEPING: &str = "0";
/// Records per second that must be sustained.
const RATE: f64 = 500_000.0;
/// Ticks per second for the share of a CPU.
const TICK_HZ: f64 = 250.0;

/// One iteration of the probe's loop compared with a loop that only reads the clock.
pub fn probe(bench: &Bench) -> Result<Vec<Figure>> {
    let turns = bench.extent.probe_turns.to_string();
    let found = exec::json(bench.example("probe_cost").arg(turns))?;
    let (probe, bare) = (number(&found, "/probe_ns")?, number(&found, "/bare_ns")?);
    let more = 100.0 * (probe / bare - 1.0);
    Ok(vec![Figure::judged(
        "probe loop, relative to a bare loop of two timestamps",
        "within 10 %",
        format!("{more:+.1} % ({probe:.1} ns instead of {bare:.1} ns)"),
        more <= 10.0,
    )])
}

/// A tick with recording compared with a tick without, alternately.
pub fn ticks(bench: &Bench) -> Result<Vec<Figure>> {
    const TICK: &str = "added cost of a traced tick (median)";
    const SHARE: &str = "the same as CPU share at 250 Hz";
    if let Some(why) = unfit() {
        return Ok(vec![skipped(TICK, "< 1.5 us", &why), skipped(SHARE, "< 0.05 %", &why)]);
    }
    let pairs = bench.extent.tick_pairs.to_string();
    let found = exec::json(bench.example("tick_cost").args([MEASURED, HOUSEKEEPING, &pairs]))?;
    let us = |key: &str| number(&found, key).map(|ns| ns / 1000.0);
    let (added, low, high) = (us("/added_ns")?, us("/added_low_ns")?, us("/added_high_ns")?);
    let percent = |us: f64| 100.0 * us * 1e-6 * TICK_HZ;
    Ok(vec![
        Figure::judged(
            TICK,
            "< 1.5 us",
            format!("{added:+.2} us ({low:+.2} to {high:+.2})"),
            added < 1.5,
        ),
        Figure::judged(
            SHARE,
            "< 0.05 %",
            format!("{:+.3} % ({:+.3} to {:+.3})", percent(added), percent(low), percent(high)),
            percent(added) < 0.05,
        ),
        Figure::noted("an untraced tick (median)", format!("{:.1} us", us("/bare_median_ns")?)),
    ])
}

/// Records as fast as one CPU can produce them, with default settings.
pub fn rate(bench: &Bench) -> Result<Vec<Figure>> {
    const REACHED: &str = "records per second from one CPU";
    const LOST: &str = "records lost at that rate";
    const READER: &str = "CPU time of the reader, at 500,000 records per second";
    const THREAD: &str = "CPU time of the ring-reading thread, at 2,000,000 records per second";
    const TARGETS: [&str; 4] = ["500,000", "none", "< 50 % of a core", "< 100 % of a core"];
    let unfit = unfit().or_else(|| {
        let there = bench.workspace.binaries.contains("loadgen");
        (!there).then(|| "loadgen not built".to_owned())
    });
    if let Some(why) = unfit {
        let rows = [REACHED, LOST, READER, THREAD].into_iter().zip(TARGETS);
        return Ok(rows.map(|(what, target)| skipped(what, target, &why)).collect());
    }
    let (load, report, reader_ns) = record_load(bench)?;
    let seconds = number(&load, "/seconds").unwrap_or(f64::from(bench.extent.load_seconds));
    let sources = report["sources"].as_array().context("the report has no sources")?;
    let count = |keep: &dyn Fn(&Value) -> bool| -> f64 {
        let rows = sources.iter().filter(|row| keep(row));
        let parts = rows.flat_map(|row| [&row["count"], &row["continued"]]);
        parts.filter_map(Value::as_f64).sum()
    };
    let records = count(&|_| true);
    let faults = count(&|row| row["class"] == "page_fault");
    let reached = records / seconds;
    let lost = number(&report, "/lost/records")? + number(&report, "/lost/unwritten")?;
    // Beyond the target rate the reader does more than required, so its share is scaled.
    let share = number(&report, "/overhead/reader_cpu_ns")? / (seconds * 1e9);
    let scaled = 100.0 * share * (RATE / reached).max(1.0);
    let reader = match reached < RATE {
        true => format!("{scaled:.0} % ({:.0} % at the rate reached)", 100.0 * share),
        false => format!("{scaled:.0} %"),
    };
    let made = number(&load, "/faults")?;
    let thread = 100.0 * reader_ns as f64 / records * 2e6 / 1e9;
    Ok(vec![
        Figure {
            what: REACHED,
            target: TARGETS[0],
            measured: match reached < RATE {
                true => format!("{} (limited by the load)", grouped(reached)),
                false => grouped(reached),
            },
            counted: false,
            // A load generator that is too slow says nothing about the recorder.
            verdict: if reached < RATE { Verdict::Noted } else { Verdict::Met },
        },
        Figure::judged(
            LOST,
            TARGETS[1],
            format!("{} of {}", grouped(lost), grouped(records + lost)),
            lost == 0.0,
        ),
        Figure::judged(READER, TARGETS[2], reader, scaled < 50.0),
        Figure::judged(
            THREAD,
            TARGETS[3],
            format!("{thread:.0} % ({:.0} ns per record)", reader_ns as f64 / records),
            thread < 100.0,
        ),
        Figure::noted(
            "page faults recorded, of those counted by loadgen",
            format!("{} of {}", grouped(faults), grouped(made)),
        ),
    ])
}

/// What the load generator reports, the report of a recording around it, and the CPU time of the
/// thread that read the rings.
fn record_load(bench: &Bench) -> Result<(Value, Value, u64)> {
    let file = bench.file("load.detour");
    let seconds = bench.extent.load_seconds;
    let mut record = bench.detour();
    record.args(["record", "-c", MEASURED, "-H", HOUSEKEEPING, "--no-probe", "-d"]);
    record.arg(format!("{}s", seconds + 2)).arg("-o").arg(&file);
    let recorder = Running::start(record)?;
    // Attaching takes a fraction of a second, and the whole load should be recorded.
    std::thread::sleep(Duration::from_secs(1));
    let load = exec::json(bench.loadgen().args([
        "faults",
        "--cpu",
        MEASURED,
        "--seconds",
        &seconds.to_string(),
    ]));
    let threads = recorder.threads()?;
    let reader = threads.iter().find(|(name, ..)| name == "detour-read");
    let (_, reader_ns, _) = reader.context("the recorder has no thread detour-read")?;
    recorder.wait()?;
    let report =
        exec::json(bench.detour().args(["report", "--json", "--no-projection"]).arg(&file))?;
    Ok((load?, report, *reader_ns))
}
