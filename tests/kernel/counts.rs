//! The kernel's counts of interrupts and softirqs must match the recording.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::{Context, Result, ensure};
use trace::{Class, RecordFlags};

use crate::support::{
    Hidden, LONG, Needs, Recording, Scratch, Test, Trace, cpus, load, monotonic_ns, undisturbed,
};

pub const TESTS: &[Test] =
    &[("counts_equal_those_of_proc_interrupts_and_proc_softirqs", Needs::RootAndTwoCpus, || {
        undisturbed(counts_equal_those_of_proc_interrupts_and_proc_softirqs)
    })];

/// No load below interrupts its CPU more frequently.
const APART_NS: u64 = 50_000;

/// One reading of both files, and when it began and ended.
struct Reading {
    before: u64,
    after: u64,
    counts: BTreeMap<String, u64>,
}

fn counts_equal_those_of_proc_interrupts_and_proc_softirqs() -> Result<()> {
    let (cpu, housekeeping) = cpus();
    let scratch = Scratch::new("counts")?;
    let recording = Recording::start(
        &scratch.file("trace.detour"),
        &["-c", &cpu.to_string(), "-H", &housekeeping.to_string(), "-d", LONG],
    )?;
    std::thread::sleep(Duration::from_millis(200));
    let hidden = Hidden::start();
    let first = read(cpu)?;
    // A mix: IPIs, packets, page faults, ticks.
    let (on, from) = (cpu.to_string(), housekeeping.to_string());
    load(&["ipi", "--from", &from, "--to", &on, "--count", "3000", "--pause-us", "50"])?;
    load(&["net", "--cpu", &on, "--seconds", "1", "--pause-us", "100"])?;
    load(&["faults", "--cpu", &on, "--seconds", "0.5", "--burst", "100"])?;
    std::thread::sleep(Duration::from_secs(2));
    let second = read(cpu)?;
    let hidden = hidden.stop();
    std::thread::sleep(Duration::from_millis(200));
    let trace = recording.stop()?;

    let unmatched =
        trace.report()?["lost"]["unmatched"].as_u64().context("no count of unmatched")?;
    let unseen = hidden.may_have_taken(unmatched, APART_NS);
    let mut wrong = Vec::new();
    let mut compared = 0;
    for (name, &before) in &first.counts {
        let grown = second.counts.get(name).copied().unwrap_or(before) - before;
        let (least, most) = recorded(&trace, name, &first, &second);
        if most == 0 && grown == 0 {
            continue;
        }
        compared += grown;
        // Reading the files is not atomic: events during a reading may be on either side.
        if grown < least || grown > most + unseen {
            wrong.push(format!("{name}: {grown} in the kernel, {least} to {most} recorded"));
        }
    }
    ensure!(wrong.is_empty(), "{wrong:#?} (at most {unseen} hit hidden tasks)");
    ensure!(compared > 4_000, "only {compared} interrupts and softirqs to compare");
    Ok(())
}

/// Minimum and maximum number of interruptions of a kind between two readings.
fn recorded(trace: &Trace, name: &str, first: &Reading, second: &Reading) -> (u64, u64) {
    let (mut least, mut most) = (0, 0);
    for (source, record) in trace.records() {
        if record.flags.contains(RecordFlags::CONTINUED) {
            continue;
        }
        let kind = match source.class {
            Class::Timer => "LOC".to_owned(),
            Class::Ipi => match source.name.as_str() {
                "reschedule" => "RES".to_owned(),
                "call_function" | "call_function_single" => "CAL".to_owned(),
                "irq_work" => "IWI".to_owned(),
                _ => continue,
            },
            Class::Irq => source.detail.clone().unwrap_or_default(),
            Class::Softirq => source.name.clone(),
            Class::Nmi => "NMI".to_owned(),
            _ => continue,
        };
        if kind != name {
            continue;
        }
        // The kernel counts it somewhere between its entry and its exit.
        let (start, end) = trace.span(record);
        most += u64::from(end >= first.before && start <= second.after);
        least += u64::from(start > first.after && end < second.before);
    }
    (least, most)
}

fn read(cpu: u32) -> Result<Reading> {
    let before = monotonic_ns();
    let interrupts = fs::read_to_string("/proc/interrupts")?;
    let softirqs = fs::read_to_string("/proc/softirqs")?;
    let after = monotonic_ns();
    let mut counts = BTreeMap::new();
    for text in [&interrupts, &softirqs] {
        let header = text.lines().next().unwrap_or_default();
        let wanted = format!("CPU{cpu}");
        let column = header
            .split_whitespace()
            .position(|name| name == wanted)
            .context("no such CPU in the header")?;
        for line in text.lines().skip(1) {
            let mut fields = line.split_whitespace();
            let Some(name) = fields.next().and_then(|name| name.strip_suffix(':')) else {
                continue;
            };
            let Some(count) = fields.nth(column).and_then(|n| n.parse().ok()) else { continue };
            let is_line = name.bytes().all(|b| b.is_ascii_digit());
            let known = ["LOC", "RES", "CAL", "IWI", "NMI"].contains(&name);
            let softirq = std::ptr::eq(text, &softirqs);
            if is_line {
                counts.insert(format!("irq {name}"), count);
            } else if known || softirq {
                counts.insert(name.to_owned(), count);
            }
        }
    }
    Ok(Reading { before, after, counts })
}
