//! From the BPF programs to the reader: every CPU's entries arrive or are counted as lost, within a
//! mebibyte per CPU; the nesting stack recovers from exits that were never seen; and what is known of
//! a task is kept, or dropped, when it should be.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use recorder::{
    CpuSet,
    kernel::{
        bpf::{Bpf, LoadOptions, Wanted},
        ring::Reader,
        task_table::TaskTable,
    },
};
use serde_json::Value;

use crate::support::{LONG, Needs, Recording, Scratch, Test, Trace, cpus, load, undisturbed};

pub const TESTS: &[Test] = &[
    (
        "what_a_cpu_sends_is_read_or_counted_as_lost_on_that_cpu",
        Needs::RootAndTwoCpus,
        what_a_cpu_sends_is_read_or_counted_as_lost_on_that_cpu,
    ),
    ("fault_storms_on_two_cpus_lose_nothing_in_a_mebibyte_each", Needs::RootAndTwoCpus, || {
        undisturbed(fault_storms_on_two_cpus_lose_nothing_in_a_mebibyte_each)
    }),
    (
        "an_exit_drops_all_stale_frames_above_its_own",
        Needs::Root,
        an_exit_drops_all_stale_frames_above_its_own,
    ),
    (
        "frames_that_a_switch_drops_are_counted",
        Needs::RootAndTwoCpus,
        frames_that_a_switch_drops_are_counted,
    ),
    (
        "a_task_that_runs_on_a_cpu_that_only_tracks_no_longer_waits",
        Needs::RootAndTwoCpus,
        a_task_that_runs_on_a_cpu_that_only_tracks_no_longer_waits,
    ),
    (
        "what_is_known_of_a_task_stays_when_it_gets_a_name",
        Needs::RootAndTwoCpus,
        what_is_known_of_a_task_stays_when_it_gets_a_name,
    ),
];

/// Records CPUs 0 and 1 while both fault as fast as they can.
fn storm(scratch: &Scratch, arguments: &[&str], seconds: &str) -> Result<Trace> {
    let path = scratch.file("trace.detour");
    let arguments = [&["-c", "0,1", "--no-probe", "-d", LONG], arguments].concat();
    let recording = Recording::start(&path, &arguments)?;
    std::thread::scope(|scope| -> Result<()> {
        let other = scope.spawn(|| load(&["faults", "--cpu", "1", "--seconds", seconds]));
        load(&["faults", "--cpu", "0", "--seconds", seconds])?;
        other.join().ok().context("the load generator's thread panicked")??;
        Ok(())
    })?;
    recording.stop()
}

/// Share of the CPUs' time that the host took.
fn stolen(report: &Value) -> f64 {
    let cpus = report["cpus"].as_array().into_iter().flatten();
    let sum = |key: &'static str| cpus.clone().filter_map(|cpu| cpu[key].as_f64()).sum::<f64>();
    sum("steal_ns") / (1e9 * sum("window_s")).max(1.0)
}

/// Entries sent, read and lost per CPU.
fn entries(report: &Value) -> Result<Vec<[u64; 3]>> {
    let cpus = report["entries"]["cpus"].as_array().context("no entries by CPU")?;
    let numbers = ["emitted", "read", "lost"];
    let of = |cpu: &Value| numbers.map(|key| cpu[key].as_u64().unwrap_or(u64::MAX));
    Ok(cpus.iter().map(of).collect())
}

fn what_a_cpu_sends_is_read_or_counted_as_lost_on_that_cpu() -> Result<()> {
    let scratch = Scratch::new("lossy")?;
    // 64 entries: no reader is fast enough.
    let report = storm(&scratch, &["--buffer", "4KiB"], "1")?.report()?;
    let cpus = entries(&report)?;
    ensure!(cpus.len() >= 2, "{cpus:?}");
    for &[emitted, read, lost] in &cpus {
        ensure!(emitted == read + lost, "{emitted} sent, {read} read, {lost} lost");
    }
    let lost: u64 = cpus.iter().map(|[.., lost]| lost).sum();
    ensure!(lost > 0, "no loss with 64 entries: {cpus:?}");
    ensure!(report["lost"]["records"] == lost, "{} and {lost}", report["lost"]);
    Ok(())
}

fn fault_storms_on_two_cpus_lose_nothing_in_a_mebibyte_each() -> Result<()> {
    let scratch = Scratch::new("mebibyte")?;
    let mut attempts = 1;
    let trace = loop {
        let trace = storm(&scratch, &[], "2")?;
        let report = trace.report()?;
        let entries = entries(&report)?;
        if entries.iter().all(|&[emitted, read, lost]| emitted == read && lost == 0) {
            break trace;
        }
        // A ring holds a few hundredths of a second. No buffer survives a host that takes the reader's CPU
        // away for longer.
        let stolen = stolen(&report);
        ensure!(stolen > 0.01 && attempts < 4, "{entries:?} sent, read, lost; {stolen} stolen");
        attempts += 1;
    };
    let memory = trace.memory.context("no memory usage in the file")?;
    ensure!(memory.ring_bytes + memory.probe_bytes <= 1 << 20, "{memory:?}");
    Ok(())
}

/// The programs, attached for one CPU.
fn programs(cpu: u32) -> Result<Bpf> {
    let watched = CpuSet::from([cpu]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    Ok(Bpf::load(&LoadOptions::new(&watched, (1 << 16, 1 << 12), &stop))?)
}

/// The programs are run directly, with synthetic contexts, on a CPU where nothing else runs them.
fn an_exit_drops_all_stale_frames_above_its_own() -> Result<()> {
    // A program that was running when it was detached may go on later, if the host takes its CPU away.
    for _ in 0..5 {
        if stale_frames_alone()? {
            return Ok(());
        }
    }
    anyhow::bail!("programs ran although they were detached")
}

/// False if other programs ran meanwhile.
fn stale_frames_alone() -> Result<bool> {
    const CPU: u32 = 0;
    /// `kind::SOFTIRQ` of the programs.
    const SOFTIRQ: u8 = 3;
    let mut bpf = programs(CPU)?;
    bpf.detach();
    bpf.watch(|cpu| if cpu == CPU { Wanted::Records } else { Wanted::Nothing });
    let state = || bpf.states()[CPU as usize];
    let before = state();
    let rings = bpf.rings();
    let ring = rings.iter().find(|(cpu, _)| *cpu == Some(CPU)).context("no ring")?;
    let mut reader = Reader::new(ring.1.clone());
    let sent = reader.ring().reserved();
    reader.take(sent, usize::MAX, |_| {});
    for number in [1, 2, 3, 4] {
        bpf.run_raw("softirq_entry", &[number], CPU)?;
    }
    let entered = state();
    bpf.run_raw("softirq_exit", &[2], CPU)?;
    let left = state();
    let mut records = Vec::new();
    reader.take(reader.ring().reserved(), usize::MAX, |words| records.push(words));
    // An exit without an entry leaves the others alone.
    bpf.run_raw("softirq_exit", &[9], CPU)?;
    let after = state();
    let ran: u64 = after.hits.iter().sum::<u64>() - before.hits.iter().sum::<u64>();
    if ran != 6 {
        return Ok(false);
    }
    ensure!(left.depth == entered.depth - 3, "{} of {} frames left", left.depth, entered.depth);
    let unmatched = left.unmatched - before.unmatched;
    ensure!(unmatched == 2, "{unmatched} of 2 stale frames counted");
    ensure!(left.running == 0, "{} programs running", left.running);
    ensure!(records.len() == 1, "{records:?}");
    let (id, kind) = (records[0][4] as u32, (records[0][5] >> 48) as u8 & 15);
    ensure!((id, kind) == (2, SOFTIRQ), "{records:?}");
    ensure!(
        after.depth == left.depth,
        "an unmatched exit changed {} frames to {}",
        left.depth,
        after.depth
    );
    Ok(true)
}

/// On a thread of its own, which changes CPUs.
fn frames_that_a_switch_drops_are_counted() -> Result<()> {
    let moved = std::thread::spawn(dropped_frames).join();
    moved.unwrap_or_else(|_| anyhow::bail!("the thread panicked"))
}

fn dropped_frames() -> Result<()> {
    const CPU: u32 = 1;
    /// Of these a switch closes three.
    const OPEN: u32 = 5;
    let bpf = programs(CPU)?;
    bpf.watch(|cpu| if cpu == CPU { Wanted::Records } else { Wanted::Nothing });
    let state = || bpf.states()[CPU as usize];
    // Here, not by an interrupt on another CPU, whose exit would drop the frame at once.
    recorder::machine::pin(&CpuSet::from([CPU]));
    // A switch may come before all are open.
    for _ in 0..1_000 {
        let before = state();
        for number in 1..=u64::from(OPEN) {
            bpf.run_raw("softirq_entry", &[number], CPU)?;
        }
        if state().depth < OPEN {
            continue;
        }
        std::thread::sleep(Duration::from_millis(1));
        let after = state();
        let unmatched = after.unmatched - before.unmatched;
        ensure!(after.depth < OPEN, "{} frames open after a switch", after.depth);
        ensure!(unmatched >= u64::from(OPEN - 3), "{unmatched} dropped frames counted");
        return Ok(());
    }
    anyhow::bail!("a switch always came first")
}

/// A thread that sleeps and wakes on a CPU that sends no records, so that its name is still unknown.
struct Woken {
    tid: u32,
    table: TaskTable,
}

/// Runs a test as such a thread.
fn as_woken(test: impl FnOnce(&Woken) -> Result<()> + Send) -> Result<()> {
    let (cpu, other) = cpus();
    let bpf = programs(cpu)?;
    // In a separate thread: loading has announced this one.
    let run = || {
        let mut set = rustix::thread::CpuSet::new();
        set.set(other as usize);
        rustix::thread::sched_setaffinity(None, &set)?;
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let table = bpf.tasks()?;
        // A page fault would announce it: only this first access to the table is one.
        ensure!(table.slot(tid).is_none(), "the thread is already known");
        bpf.watch(|which| if which == cpu { Wanted::Records } else { Wanted::Track });
        // The timer interrupt wakes it.
        std::thread::sleep(Duration::from_millis(20));
        test(&Woken { tid, table })
    };
    std::thread::scope(|scope| scope.spawn(run).join()).ok().context("the thread panicked")?
}

fn a_task_that_runs_on_a_cpu_that_only_tracks_no_longer_waits() -> Result<()> {
    as_woken(|woken| {
        let slot = woken.table.slot(woken.tid).context("its wake-up was not seen")?;
        ensure!(slot.waker != 0, "it has no waker");
        ensure!(slot.woken_at == 0, "it runs but waits since {}", slot.woken_at);
        Ok(())
    })
}

fn what_is_known_of_a_task_stays_when_it_gets_a_name() -> Result<()> {
    let sleeper = std::thread::spawn(std::thread::park);
    as_woken(|woken| {
        let before = woken.table.slot(woken.tid).context("its wake-up was not seen")?;
        ensure!(before.comm == [0; 2], "it already has a name");
        // A waker is announced. Waiting for the other thread would mean being woken.
        sleeper.thread().unpark();
        let after = woken.table.slot(woken.tid).context("its slot is gone")?;
        sleeper.join().ok().context("the other thread panicked")?;
        ensure!(after.comm != [0; 2], "a waker without a name");
        ensure!(
            after.waker != 0 && (after.waker, after.work) == (before.waker, before.work),
            "the waker changed from {:#x} (timer interrupt) to {:#x}",
            before.waker,
            after.waker
        );
        Ok(())
    })
}
