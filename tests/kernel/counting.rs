//! Exact results, on the machines of `cargo xtask vm --accuracy`: their clock counts instructions, one
//! per nanosecond, so no host can disturb them. With one CPU nothing is ever outside the kernel. With
//! two, of which one runs at a time, each steals from the other the time it runs, and how much is
//! known to the nanosecond.
//!
//! A machine makes one recording, which its tests share: a second of it takes a minute on a busy host.

use std::{fs, sync::OnceLock, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use trace::{Class, Detour, Record, RecordFlags};

use crate::support::{
    self, Burst, Needs, Recording, Scratch, Test, Trace, bursts, detour, figure, load, separate,
    sum, text,
};

pub const TESTS: &[Test] = &[
    ("one_cpu::ticks_come_at_exactly_their_rate", ONE_CPU, ticks_come_at_exactly_their_rate),
    ("one_cpu::every_page_fault_is_recorded", ONE_CPU, every_page_fault_is_recorded),
    ("one_cpu::every_hit_of_a_daemon_is_recorded", ONE_CPU, every_hit_of_a_daemon_is_recorded),
    ("one_cpu::nothing_is_outside_the_kernel", ONE_CPU, nothing_is_outside_the_kernel),
    ("one_cpu::less_than_a_percent_is_unexplained", ONE_CPU, less_than_a_percent_is_unexplained),
    ("two_cpus::stolen_time_is_outside_the_kernel", TWO_CPUS, stolen_time_is_outside_the_kernel),
    ("two_cpus::so_is_what_is_stolen_around_a_tick", TWO_CPUS, so_is_what_is_stolen_around_a_tick),
];

const ONE_CPU: Needs = Needs::CountingMachine(1);
const TWO_CPUS: Needs = Needs::CountingMachine(2);

/// All Debian kernels are configured this way.
const TICKS_PER_S: f64 = 250.0;

/// The recording of the single CPU, and what the loads report.
struct OneCpu {
    trace: Trace,
    report: Value,
    daemon: Value,
    bursts: Vec<Burst>,
    faults: Value,
    /// Keeps the trace, which `report` reads.
    _scratch: Scratch,
}

/// The recording of a machine, made for the first test that needs it.
fn once<T>(
    made: &'static OnceLock<Result<T, String>>,
    make: fn() -> Result<T>,
) -> Result<&'static T> {
    match made.get_or_init(|| make().map_err(|error| format!("{error:#}"))) {
        Ok(recorded) => Ok(recorded),
        Err(why) => bail!("{why}"),
    }
}

/// The probe does not use the clock until the kernel has calibrated it, seconds after boot.
fn clock_is_ready() -> Result<()> {
    const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    for _ in 0..100 {
        if fs::read_to_string(CLOCK)?.trim() == "tsc" {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    bail!("{CLOCK} is not tsc")
}

fn one_cpu() -> Result<&'static OneCpu> {
    static MADE: OnceLock<Result<OneCpu, String>> = OnceLock::new();
    once(&MADE, || {
        clock_is_ready()?;
        let scratch = Scratch::new("one-cpu")?;
        let log = scratch.file("bursts").display().to_string();
        let recording = Recording::start(&scratch.file("trace.detour"), &["-d", "60s"])?;
        let daemon = load(&["daemon", "--cpu", "0", "--seconds", "0.5", "--log", &log])?;
        let faults = load(&["faults", "--cpu", "0", "--seconds", "0.05"])?;
        std::thread::sleep(Duration::from_secs(1));
        let trace = recording.stop()?;
        let report = trace.report()?;
        let bursts = bursts(log.as_ref())?;
        Ok(OneCpu { report, trace, daemon, bursts, faults, _scratch: scratch })
    })
}

/// Records with this name, except for those that continue another.
fn named<'a>(trace: &'a Trace, class: Class, name: &'a str) -> impl Iterator<Item = &'a Record> {
    let wanted = move |(source, record): &(&trace::Source, &Record)| {
        source.class == class
            && source.name == name
            && !record.flags.contains(RecordFlags::CONTINUED)
    };
    trace.records().filter(wanted).map(|(_, record)| record)
}

/// The probe's figures for the only measured CPU of a recording.
struct Loop {
    watched_ns: f64,
    iterations: f64,
    /// Lost in detours.
    taken_ns: f64,
}

impl Loop {
    fn of(report: &Value) -> Result<Loop> {
        let row = &report["cpus"][0];
        let number = |key: &str| row[key].as_f64().with_context(|| format!("no {key}: {row}"));
        Ok(Loop {
            watched_ns: number("window_s")? * 1e9,
            iterations: number("iterations")?,
            taken_ns: number("detour_ns_total")?,
        })
    }

    /// An iteration always takes the same whole number of instructions.
    fn iteration_ns(&self) -> f64 {
        ((self.watched_ns - self.taken_ns) / self.iterations).round()
    }
}

fn ticks_come_at_exactly_their_rate() -> Result<()> {
    let OneCpu { trace, report, .. } = one_cpu()?;
    let watched = Loop::of(report)?.watched_ns;
    let expected = watched / 1e9 * TICKS_PER_S;
    let mut starts: Vec<u64> =
        named(trace, Class::Timer, "tick").map(|record| record.start_ns).collect();
    starts.sort_unstable();
    let ticks = starts.len() as f64;
    // A tick may wait for an interrupt handler, or for a lock.
    let apart = starts.windows(2).map(|pair| pair[1] - pair[0]);
    let (shortest, longest) = (apart.clone().min().unwrap_or(0), apart.max().unwrap_or(0));
    figure("watched", &format!("{:.3} s", watched / 1e9))?;
    figure("ticks", &format!("{ticks} recorded, {expected:.1} expected at 250 Hz"))?;
    figure("interval between ticks", &format!("{shortest} to {longest} ns"))?;
    ensure!((ticks - expected).abs() <= 1.0, "{ticks} ticks in {watched} ns");
    ensure!(longest < 6_000_000, "a tick is missing: longest interval {longest} ns");
    Ok(())
}

fn every_page_fault_is_recorded() -> Result<()> {
    let OneCpu { report, faults, .. } = one_cpu()?;
    let made = faults["faults"].as_u64().context("no count of faults")?;
    let recorded = sum(report, "page_fault", "pfgen", "count");
    figure("page faults", &format!("{recorded} recorded, {made} counted by the kernel"))?;
    ensure!(made > 1_000, "only {made} faults");
    ensure!(recorded == made, "{recorded} of {made} faults recorded");
    Ok(())
}

fn every_hit_of_a_daemon_is_recorded() -> Result<()> {
    let OneCpu { trace, report, daemon, bursts, .. } = one_cpu()?;
    let slices: Vec<(u64, u64)> =
        named(trace, Class::Thread, "fakemond").map(|record| trace.span(record)).collect();
    let hit =
        |burst: &&Burst| slices.iter().any(|&(from, to)| from <= burst.start && burst.start <= to);
    let hits = bursts.iter().filter(hit).count();
    let (used, net) = (
        daemon["cpu_ns"].as_f64().context("no CPU time")?,
        sum(report, "thread", "fakemond", "net_ns_total") as f64,
    );
    figure("hits of a daemon", &format!("{hits} recorded of {}", bursts.len()))?;
    figure("time of the daemon", &format!("{net} ns recorded, {used} ns charged by the kernel"))?;
    ensure!(bursts.len() == 50 && separate(bursts) == 50, "{} bursts", bursts.len());
    ensure!(hits == bursts.len(), "{hits} of {} hits recorded", bursts.len());
    ensure!((net - used).abs() <= 0.05 * used, "{net} ns recorded, {used} ns charged");
    Ok(())
}

/// Every detour has a source. Apart from that the recorder can only estimate which gaps are entry and
/// exit: for rare kinds it takes a microsecond or two to be outside.
fn nothing_is_outside_the_kernel() -> Result<()> {
    let OneCpu { trace, .. } = one_cpu()?;
    let detours = || trace.blocks.iter().flat_map(|block| &block.detours);
    let taken: u64 = detours().map(|detour| detour.len_ns).sum();
    let outside: u64 = detours().map(|detour| detour.outside_ns).sum();
    let bare = detours().filter(|detour| detour.records == 0).count();
    let all = detours().count();
    figure("detours without a source", &format!("{bare} of {all}"))?;
    figure("outside the kernel", &format!("{outside} of {taken} ns"))?;
    ensure!(all > 0 && bare == 0, "{bare} of {all} detours have no source");
    ensure!(outside * 1_000 < taken, "{outside} of {taken} ns outside the kernel");
    Ok(())
}

/// What neither the probe's iterations nor named sources account for is unexplained.
fn less_than_a_percent_is_unexplained() -> Result<()> {
    let OneCpu { trace, report, .. } = one_cpu()?;
    let probe = Loop::of(report)?;
    let (iteration, taken) = (probe.iteration_ns(), probe.taken_ns);
    let composed = trace.blocks.iter().flat_map(|block| block.composed());
    let named: u64 = composed.flat_map(|(_, records)| records).map(|r| r.cost_ns).sum();
    let unexplained = probe.watched_ns - probe.iterations * iteration - named as f64;
    let entry_exit = report["entry_exit_ns_total"].as_u64().context("no entry and exit")?;
    figure("iteration of the probe", &format!("{iteration} ns"))?;
    figure("entry and exit", &format!("{entry_exit} of {taken} ns"))?;
    figure("unexplained", &format!("{unexplained:.0} of {taken} ns"))?;
    ensure!(unexplained.abs() < 0.01 * taken, "{unexplained} of {taken} ns unexplained");
    Ok(())
}

/// What the second CPU recorded while the first was busy.
struct TwoCpus {
    trace: Trace,
    /// Stolen from the second CPU.
    stolen_ns: f64,
    _scratch: Scratch,
}

fn two_cpus() -> Result<&'static TwoCpus> {
    static MADE: OnceLock<Result<TwoCpus, String>> = OnceLock::new();
    once(&MADE, || {
        clock_is_ready()?;
        let scratch = Scratch::new("two-cpus")?;
        let measured = ["-c", "1", "-H", "0"];
        // While the first CPU sleeps nothing is stolen, which shows the length of an iteration.
        let path = scratch.file("quiet.detour");
        let quiet = detour()
            .args(["record", "--quiet", "--no-bpf", "-d", "200ms", "-o"])
            .arg(&path)
            .args(measured)
            .output()?;
        ensure!(quiet.status.success(), "{}", text(&quiet.stderr));
        let iteration = Loop::of(&support::report(&path)?)?.iteration_ns();

        let path = scratch.file("trace.detour");
        let recording = Recording::start(&path, &[&measured[..], &["-d", "60s"]].concat())?;
        load(&["burn", "--cpu", "0", "--seconds", "1.5"])?;
        let trace = recording.stop()?;
        let busy = Loop::of(&trace.report()?)?;
        // The clock advances with every instruction of either CPU, an iteration always takes the same
        // number, and the kernel has almost nothing to do on the second CPU: the time not spent in
        // iterations was the first CPU's.
        let stolen_ns = busy.watched_ns - busy.iterations * iteration;
        figure("watched", &format!("{:.3} s", busy.watched_ns / 1e9))?;
        figure("iterations of the probe", &format!("{} of {iteration} ns", busy.iterations))?;
        figure("stolen", &format!("{:.3} s", stolen_ns / 1e9))?;
        let share = stolen_ns / busy.watched_ns;
        ensure!((0.3..0.7).contains(&share), "{share} of the CPU was stolen (expected half)");
        Ok(TwoCpus { trace, stolen_ns, _scratch: scratch })
    })
}

fn stolen_time_is_outside_the_kernel() -> Result<()> {
    let TwoCpus { trace, stolen_ns, .. } = two_cpus()?;
    let detours = trace.blocks.iter().flat_map(|block| &block.detours);
    let outside: u64 = detours.map(|detour| detour.outside_ns).sum();
    let share = outside as f64 / stolen_ns;
    figure("outside the kernel", &format!("{:.2} % of the stolen time", 100.0 * share))?;
    ensure!(share >= 0.95, "{outside} of {stolen_ns} stolen ns outside the kernel");
    ensure!(share <= 1.01, "{outside} ns outside the kernel, {stolen_ns} ns stolen");
    Ok(())
}

/// A tick takes microseconds on such a machine: a longer detour with only ticks and softirqs in it was
/// steal time. osnoise counts none of these, because there was an interrupt. The recorder may take
/// part of each for entry and exit, but never more than `ENTRY_NS` if it has seen enough of its kind.
fn so_is_what_is_stolen_around_a_tick() -> Result<()> {
    const LONG_NS: u64 = 100_000;
    const ENTRY_NS: u64 = 50_000;
    let TwoCpus { trace, .. } = two_cpus()?;
    let class = |record: &Record| trace.sources[record.source.0 as usize].class;
    let is_steal = |detour: &Detour, records: &[Record]| {
        detour.len_ns >= LONG_NS
            && records.iter().any(|record| class(record) == Class::Timer)
            && records.iter().all(|r| matches!(class(r), Class::Timer | Class::Softirq))
    };
    let (mut count, mut taken, mut outside) = (0u64, 0u64, 0u64);
    for block in &trace.blocks {
        for (detour, _) in block.composed().filter(|(detour, records)| is_steal(detour, records)) {
            count += 1;
            taken += detour.len_ns;
            outside += detour.outside_ns;
        }
    }
    ensure!(count >= 20, "only {count} steals with a tick");
    let (ms, share) = (taken as f64 / 1e6, 100.0 * outside as f64 / taken as f64);
    figure(
        "detours of at least 100 us with a tick",
        &format!("{count}, {ms:.1} ms, {share:.2} % of it outside the kernel"),
    )?;
    let named = (taken - outside) / count;
    ensure!(named < ENTRY_NS, "{named} of {} ns attributed to a tick", taken / count);
    Ok(())
}
