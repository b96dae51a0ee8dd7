//! Many events in a short time: every one recorded, none lost, each in a detour, and the balance still
//! holds.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use trace::{Class, RecordFlags};

use crate::support::{
    Hidden, LONG, Needs, Recording, Scratch, Storage, Test, Trace, cpus, in_vm, load, scaled, skip,
    sum, undisturbed,
};

pub const TESTS: &[Test] = &[
    ("an_ipi_storm_is_recorded_to_the_last", Needs::RootAndTwoCpus, || {
        undisturbed(an_ipi_storm_is_recorded_to_the_last)
    }),
    ("an_ipi_storm_is_recorded_with_its_sender", Needs::RootAndTwoCpus, || {
        undisturbed(an_ipi_storm_is_recorded_with_its_sender)
    }),
    ("a_page_fault_storm_is_recorded_to_the_last", Needs::RootAndTwoCpus, || {
        undisturbed(a_page_fault_storm_is_recorded_to_the_last)
    }),
    ("storms_after_silence_lose_nothing", Needs::RootAndTwoCpus, || {
        undisturbed(storms_after_silence_lose_nothing)
    }),
    ("major_page_faults_are_as_many_as_the_kernel_counts", Needs::RootAndStorage, || {
        undisturbed(major_page_faults_are_as_many_as_the_kernel_counts)
    }),
    (
        "the_sender_of_ipis_to_a_mask_is_known_on_every_cpu_of_it",
        Needs::RootAndIpiMasks,
        the_sender_of_ipis_to_a_mask_is_known_on_every_cpu_of_it,
    ),
    ("packets_are_recorded_as_net_rx_and_the_account_closes", Needs::RootAndTwoCpus, || {
        undisturbed(packets_are_recorded_as_net_rx_and_the_account_closes)
    }),
    ("detour_time_is_attributed_or_outside_the_kernel_and_adds_up", Needs::Root, || {
        undisturbed(detour_time_is_attributed_or_outside_the_kernel_and_adds_up)
    }),
];

fn start(scratch: &Scratch) -> Result<Recording> {
    let (cpu, housekeeping) = cpus();
    Recording::start(
        &scratch.file("trace.detour"),
        &["-c", &cpu.to_string(), "-H", &housekeeping.to_string(), "-d", LONG],
    )
}

/// Nothing lost, and net times add up to wall time.
fn is_whole(report: &Value) -> Result<()> {
    for what in ["records", "detours", "overflow", "unwritten"] {
        ensure!(report["lost"][what] == 0, "lost: {}", report["lost"]);
    }
    let closure = report["closure_error"].as_f64().context("no closure error")?;
    ensure!(closure < 1e-4, "closure error {closure:e}");
    ensure!(
        report["unbalanced_detours"] == 0,
        "{} unbalanced detours",
        report["unbalanced_detours"]
    );
    Ok(())
}

/// Checks that the records of a kind belong to a detour, except those from times without a probe. In a
/// virtual machine the clocks of the probe and of the records are microseconds apart: there, a record at the
/// edge of a detour may seem to be outside.
fn all_in_detours(trace: &Trace, of: impl Fn(&trace::Source) -> bool) -> Result<()> {
    const AT_THE_EDGE_NS: u64 = 50_000;
    let spans = trace.blocks.iter().flat_map(|block| &block.detours);
    let mut spans: Vec<(u64, u64)> = spans.map(|d| (d.start_ns, d.start_ns + d.len_ns)).collect();
    spans.sort_unstable();
    let to_nearest = |record: &trace::Record| {
        let end_ns = record.start_ns + record.gross_ns;
        let after = spans.partition_point(|(start, _)| *start <= record.start_ns);
        let before = after.checked_sub(1).map(|at| record.start_ns.saturating_sub(spans[at].1));
        let next = spans.get(after).map(|(start, _)| start.saturating_sub(end_ns));
        before.into_iter().chain(next).min().unwrap_or(u64::MAX)
    };
    let (mut inside, mut outside) = (0u64, Vec::new());
    for (_, record) in trace.records().filter(|(source, _)| of(source)) {
        match record.flags.contains(RecordFlags::IN_DETOUR) {
            true => inside += 1,
            false => outside.push(to_nearest(record)),
        }
    }
    outside.sort_unstable();
    let (allowed, from_edge) = if in_vm() { (inside / 10, AT_THE_EDGE_NS) } else { (0, 0) };
    let farthest = outside.last().copied().unwrap_or(0);
    ensure!(
        inside > 0 && outside.len() as u64 <= allowed && farthest <= from_edge,
        "{inside} inside detours, {} outside, half of them within {:?} ns of one, all within {farthest} ns",
        outside.len(),
        outside.get(outside.len() / 2)
    );
    Ok(())
}

/// A storm of IPIs from one CPU to the other.
struct IpiStorm {
    trace: Trace,
    sent: u64,
    /// At most this many of them hit hidden tasks.
    unseen: u64,
    /// Since 6.4 the kernel tells who sent an IPI and what it ran.
    tells_sender: bool,
}

impl IpiStorm {
    fn record() -> Result<IpiStorm> {
        const PAUSE_US: &str = "20";
        const PAUSE_NS: u64 = 20_000;
        let sent = scaled(20_000);
        let (cpu, housekeeping) = cpus();
        let scratch = Scratch::new("ipi")?;
        let recording = start(&scratch)?;
        let (from, to, count) = (housekeeping.to_string(), cpu.to_string(), sent.to_string());
        let hidden = Hidden::start();
        load(&["ipi", "--from", &from, "--to", &to, "--count", &count, "--pause-us", PAUSE_US])?;
        let hidden = hidden.stop();
        let trace = recording.stop()?;
        let report = trace.report()?;
        is_whole(&report)?;
        let unmatched = report["lost"]["unmatched"].as_u64().context("no count of unmatched")?;
        let unseen = hidden.may_have_taken(unmatched, PAUSE_NS);
        let missing = report["hooks_missing"].to_string();
        let tells_sender = !missing.contains("ipi_send_cpu") && !missing.contains("csd_function");
        Ok(IpiStorm { trace, sent, unseen, tells_sender })
    }

    /// Details of each IPI of the load, if the kernel tells what it ran.
    fn details(&self) -> Vec<&str> {
        let ipis = self.trace.records().filter(|(source, _)| source.class == Class::Ipi);
        let details = ipis.filter_map(|(source, _)| source.detail.as_deref());
        details.filter(|detail| detail.contains("__perf_event_read")).collect()
    }
}

fn an_ipi_storm_is_recorded_to_the_last() -> Result<()> {
    let storm = IpiStorm::record()?;
    // If the kernel does not tell what an IPI ran, others count as well.
    let is_single = |source: &trace::Source| {
        source.class == Class::Ipi && source.name == "call_function_single"
    };
    let recorded = match storm.tells_sender {
        true => storm.details().len(),
        false => storm.trace.records().filter(|(source, _)| is_single(source)).count(),
    } as u64;
    let IpiStorm { sent, unseen, .. } = storm;
    ensure!(
        recorded + unseen >= sent,
        "{recorded} of {sent} recorded, at most {unseen} hit hidden tasks"
    );
    Ok(())
}

fn an_ipi_storm_is_recorded_with_its_sender() -> Result<()> {
    let storm = IpiStorm::record()?;
    if !storm.tells_sender {
        return skip("this kernel does not trace the sender or function of an IPI");
    }
    let ours = storm.details();
    let recorded = ours.len() as u64;
    let named = ours.iter().filter(|detail| detail.contains("from ipigen")).count() as u64;
    // Another IPI sent at the same moment takes the sender's name. A sender is valid for a
    // millisecond; in a virtual machine an IPI may take longer.
    let enough = if in_vm() { named > 0 } else { named * 1000 >= recorded * 999 };
    ensure!(enough && named <= storm.sent, "{named} of {recorded} have a sender");
    all_in_detours(&storm.trace, |source| {
        source.class == Class::Ipi
            && source.detail.as_deref().is_some_and(|detail| detail.contains("from ipigen"))
    })
}

fn a_page_fault_storm_is_recorded_to_the_last() -> Result<()> {
    let (cpu, _) = cpus();
    let scratch = Scratch::new("faults")?;
    let recording = start(&scratch)?;
    let counted = load(&["faults", "--cpu", &cpu.to_string(), "--seconds", "2"])?;
    let trace = recording.stop()?;
    let report = trace.report()?;
    is_whole(&report)?;
    let faults = counted["faults"].as_u64().unwrap_or(0);
    let recorded = sum(&report, "page_fault", "pfgen", "count");
    ensure!(faults > scaled(10_000), "only {faults} faults");
    let details = || {
        let records = trace.records().filter(|(source, _)| source.class == Class::PageFault);
        let mut counts = std::collections::BTreeMap::new();
        for (source, record) in records {
            *counts.entry((&source.name, &source.detail, record.flags.0)).or_insert(0u64) += 1;
        }
        counts
    };
    // A preemptible kernel skips a program that another task is inside of; such runs are counted.
    let skipped = report["lost"]["skipped"].as_u64().context("no count of skipped runs")?;
    ensure!(
        recorded.abs_diff(faults) <= 2 + skipped,
        "{recorded} of {faults} recorded, {skipped} runs skipped: {:?}",
        details()
    );
    all_in_detours(&trace, |source| source.class == Class::PageFault && source.name == "pfgen")
}

/// After a silence the reader sleeps for long, and a ring is full long before it wakes by itself: the
/// ring has to wake it.
fn storms_after_silence_lose_nothing() -> Result<()> {
    let (cpu, _) = cpus();
    let scratch = Scratch::new("storms")?;
    let recording = start(&scratch)?;
    let mut faults = 0;
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_millis(250));
        let counted = load(&["faults", "--cpu", &cpu.to_string(), "--seconds", "0.1"])?;
        faults += counted["faults"].as_u64().unwrap_or(0);
    }
    let trace = recording.stop()?;
    let report = trace.report()?;
    is_whole(&report)?;
    let recorded = sum(&report, "page_fault", "pfgen", "count");
    let skipped = report["lost"]["skipped"].as_u64().context("no count of skipped runs")?;
    ensure!(faults > scaled(10_000), "only {faults} faults");
    ensure!(recorded.abs_diff(faults) <= 40 + skipped, "{recorded} of {faults} recorded");
    Ok(())
}

/// A fault that reads from storage sleeps and is retried; the call that succeeds finds the page in
/// memory.
fn major_page_faults_are_as_many_as_the_kernel_counts() -> Result<()> {
    let (cpu, _) = cpus();
    let scratch = Scratch::new("major-faults")?;
    let storage = Storage::new(&scratch)?;
    let recording = start(&scratch)?;
    let (cpu, file) = (cpu.to_string(), storage.path().display().to_string());
    let counted = load(&["faults", "--cpu", &cpu, "--seconds", "3", "--file", &file])?;
    let trace = recording.stop()?;
    let report = trace.report()?;
    is_whole(&report)?;
    let number = |key: &str| counted[key].as_u64().with_context(|| format!("no {key}: {counted}"));
    let (minor, major) = (number("faults")?, number("major_faults")?);
    ensure!(major > scaled(2_000), "only {counted}");
    let of_load = |weight: &'static str| {
        let records = trace.records().filter(move |(source, record)| {
            source.class == Class::PageFault
                && source.name == "pfgen"
                && source.detail.as_deref().is_some_and(|detail| detail.ends_with(weight))
                && !record.flags.contains(RecordFlags::CONTINUED)
        });
        records.map(|(_, record)| record)
    };
    let (recorded_minor, recorded_major) =
        (of_load(", minor").count() as u64, of_load(", major").count() as u64);
    ensure!(
        recorded_major.abs_diff(major) <= 2 && recorded_minor.abs_diff(minor) <= 2,
        "{recorded_major} major and {recorded_minor} minor faults recorded, the kernel counted {counted}"
    );
    // While it waits for its page the CPU does something else, and the length is the wait.
    let slept = of_load(", major").filter(|record| record.flags.contains(RecordFlags::CUT_SHORT));
    let (slept, waited) = slept.fold((0u64, 0), |(n, ns), record| (n + 1, ns + record.gross_ns));
    ensure!(slept * 2 > major, "only {slept} of {major} major faults slept");
    ensure!(waited > slept * 1_000, "{slept} faults waited {waited} ns in total");
    Ok(())
}

fn the_sender_of_ipis_to_a_mask_is_known_on_every_cpu_of_it() -> Result<()> {
    let sent = scaled(20_000);
    let (cpu, housekeeping) = cpus();
    let other = recorder::machine::allowed().into_iter().find(|c| ![cpu, housekeeping].contains(c));
    let other = other.context("no third CPU")?;
    let scratch = Scratch::new("ipi-mask")?;
    // Without a probe, which would preempt the threads to be interrupted.
    let measured = format!("{other},{cpu}");
    let arguments = ["--no-probe", "-c", &measured, "-d", LONG];
    let recording = Recording::start(&scratch.file("trace.detour"), &arguments)?;
    let (from, to, count) = (housekeeping.to_string(), cpu.to_string(), sent.to_string());
    let and = other.to_string();
    load(&["ipi", "--from", &from, "--to", &to, "--and", &and, "--count", &count])?;
    let trace = recording.stop()?;
    for wanted in [cpu, other] {
        let of_load = trace.records().filter(|(source, record)| {
            let barrier = |detail: &str| detail.contains("ipi_mb");
            u32::from(record.cpu) == wanted
                && source.class == Class::Ipi
                && source.detail.as_deref().is_some_and(barrier)
        });
        let details: Vec<&str> = of_load.filter_map(|(s, _)| s.detail.as_deref()).collect();
        let named = details.iter().filter(|detail| detail.contains("from ipigen")).count() as u64;
        // A CPU whose thread was just preempted needs no barrier; and a sender is valid for a
        // millisecond, in which few IPIs arrive on an emulated machine.
        let enough = if in_vm() { named > 0 } else { named * 2 > sent };
        ensure!(
            enough && named <= sent,
            "CPU {wanted}: {named} of {sent} have a sender, {} recorded",
            details.len()
        );
    }
    Ok(())
}

fn packets_are_recorded_as_net_rx_and_the_account_closes() -> Result<()> {
    let (cpu, _) = cpus();
    let scratch = Scratch::new("net")?;
    let recording = start(&scratch)?;
    let counted = load(&["net", "--cpu", &cpu.to_string(), "--seconds", "3"])?;
    let trace = recording.stop()?;
    let report = trace.report()?;
    is_whole(&report)?;
    let packets = counted["packets"].as_u64().unwrap_or(0);
    let recorded = sum(&report, "softirq", "NET_RX", "count");
    ensure!(packets > scaled(1_000), "only {packets} packets");
    // A softirq that is still running when the next packet arrives handles it as well.
    ensure!(recorded * 100 >= packets * 95, "{recorded} NET_RX for {packets} packets");
    all_in_detours(&trace, |source| source.class == Class::Softirq && source.name == "NET_RX")
}

fn detour_time_is_attributed_or_outside_the_kernel_and_adds_up() -> Result<()> {
    let scratch = Scratch::new("adds-up")?;
    // Every CPU is measured, so the reader takes its time from a probe. An emulator interrupts the probe
    // by the hundred thousand a second, for which an emulated reader is too slow.
    let threshold: &[&str] = if in_vm() { &["-T", "10us"] } else { &[] };
    let arguments = [&["-d", LONG], threshold].concat();
    let recording = Recording::start(&scratch.file("trace.detour"), &arguments)?;
    std::thread::sleep(std::time::Duration::from_secs(4));
    let trace = recording.stop()?;
    is_whole(&trace.report()?)?;
    let (mut total, mut explained) = (0u64, 0u64);
    for block in &trace.blocks {
        for (detour, records) in block.composed().filter(|(d, _)| d.len_ns >= 1_000) {
            total += detour.len_ns;
            explained += records.iter().map(|r| r.cost_ns).sum::<u64>() + detour.outside_ns;
        }
    }
    ensure!(total > 0, "no detour above 1 us in 4 s");
    ensure!(explained * 100 >= total * 99, "{explained} of {total} ns explained");
    Ok(())
}
