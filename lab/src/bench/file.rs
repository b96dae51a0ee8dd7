//! The trace file: its size, writing, reading and opening it, and the report of a large one. Best of
//! several, because disturbances only make it slower.

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Bench, Figure, grouped, number};
use crate::exec;

/// A large recording.
const LARGE_BYTES: f64 = 100e6;
/// In memory, to measure the code and not the disk.
const RECORDS: &str = "4000000";

pub fn throughput(bench: &Bench) -> Result<Vec<Figure>> {
    let mut runs = Vec::new();
    for _ in 0..bench.extent.repeats {
        runs.push(exec::json(bench.example("throughput").arg(RECORDS))?);
    }
    let best = |pointer: &str| best(&runs, pointer, f64::max);
    let bytes = best("/bytes_per_record")?;
    let (written, read) = (best("/write_records_per_s")?, best("/read_records_per_s")?);
    Ok(vec![
        Figure::counted(
            "trace file, bytes per record",
            "< 12",
            format!("{bytes:.1}"),
            bytes < 12.0,
        ),
        Figure::judged(
            "trace file, records written per second on one core",
            "5,000,000",
            grouped(written),
            written >= 5e6,
        ),
        Figure::judged(
            "trace file, records read per second on one core",
            "5,000,000",
            grouped(read),
            read >= 5e6,
        ),
    ])
}

pub fn open(bench: &Bench) -> Result<Vec<Figure>> {
    let sample = exec::json(bench.example("throughput").arg("100000"))?;
    let records = (1.02 * LARGE_BYTES / number(&sample, "/bytes_per_record")?).ceil();
    let file = bench.file("large.detour");
    let mut runs = Vec::new();
    for _ in 0..bench.extent.repeats {
        let records = format!("{records:.0}");
        runs.push(exec::json(bench.example("throughput").arg(records).arg(&file))?);
    }
    let bytes = number(runs.first().context("nothing was measured")?, "/bytes")?;
    let seconds = best(&runs, "/open_s", f64::min)?;
    Ok(vec![Figure::judged(
        "opening a trace of 100 MB",
        "< 1 s",
        format!("{:.1} ms ({:.0} MB)", 1e3 * seconds, bytes / 1e6),
        seconds < 1.0 && bytes >= LARGE_BYTES,
    )])
}

pub fn report(bench: &Bench) -> Result<Vec<Figure>> {
    let file = bench.file("report.detour");
    let records = bench.extent.report_records;
    let made = exec::json(bench.example("throughput").arg(records.to_string()).arg(&file))?;
    let mut best = f64::MAX;
    for _ in 0..bench.extent.repeats {
        let passed = exec::timed(bench.detour().args(["report", "--no-projection"]).arg(&file))?;
        best = best.min(passed.as_secs_f64());
    }
    Ok(vec![Figure::noted(
        "detour report on a large trace",
        format!("{best:.1} s for {} records", grouped(number(&made, "/records")?)),
    )])
}

fn best(runs: &[Value], pointer: &str, better: fn(f64, f64) -> f64) -> Result<f64> {
    let values = runs.iter().map(|run| number(run, pointer)).collect::<Result<Vec<_>>>()?;
    values.into_iter().reduce(better).context("nothing was measured")
}
