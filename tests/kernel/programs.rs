//! A program's perspective: what the node took from it, without a probe.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::support::{
    self, Load, Needs, Recording, Scratch, Test, Trace, bursts, cpus, detour, loadgen, separate,
    sum, text,
};

pub const TESTS: &[Test] = &[
    (
        "a_command_is_followed_and_its_preemption_has_a_name",
        Needs::Root,
        a_command_is_followed_and_its_preemption_has_a_name,
    ),
    (
        "a_running_process_can_be_watched_by_pid",
        Needs::Root,
        a_running_process_can_be_watched_by_pid,
    ),
    (
        "who_never_leaves_its_cpu_is_recorded_all_the_same",
        Needs::RootAndTwoCpus,
        who_never_leaves_its_cpu_is_recorded_all_the_same,
    ),
    (
        "a_programs_page_faults_are_counted_one_by_one",
        Needs::Root,
        a_programs_page_faults_are_counted_one_by_one,
    ),
];

/// The threads with this name in a report.
fn threads<'a>(report: &'a Value, name: &str) -> Vec<&'a Value> {
    let threads = report["threads"].as_array().into_iter().flatten();
    threads.filter(|thread| thread["name"] == name).collect()
}

fn a_command_is_followed_and_its_preemption_has_a_name() -> Result<()> {
    // On a very busy machine the daemon may exit before the command has begun.
    for seconds in ["4", "12"] {
        if follow_beside_daemon(seconds)? >= 20 {
            return Ok(());
        }
    }
    let met = follow_beside_daemon("40")?;
    ensure!(met >= 20, "only {met} bursts of fakemond hit it");
    Ok(())
}

/// Records a command on the CPU of a daemon that runs this long; returns how many of its bursts hit
/// it.
fn follow_beside_daemon(seconds: &str) -> Result<usize> {
    let (cpu, _) = cpus();
    let scratch = Scratch::new("command")?;
    let path = scratch.file("trace.detour");
    let log = scratch.file("bursts");
    let cpu = cpu.to_string();
    let mut daemon = loadgen()?
        .args(["daemon", "--cpu", &cpu, "--seconds", seconds, "--log"])
        .arg(&log)
        .stdout(std::process::Stdio::null())
        .spawn()?;
    let burn = loadgen()?.get_program().to_owned();
    // A shell in between, so that a grandchild burns.
    let script = format!("{} burn --cpu {cpu} --seconds 2 --exit-code 7 && true", burn.display());
    let output = detour()
        .args(["record", "--quiet", "-o"])
        .arg(&path)
        .args(["--", "sh", "-c", &format!("{script}; exit $?")])
        .output()?;
    daemon.wait()?;
    ensure!(output.status.code() == Some(7), "{:?}: {}", output.status, text(&output.stderr));
    let report = support::report(&path)?;
    ensure!(report["mode"] == "program", "{}", report["mode"]);
    let burners = threads(&report, "burn");
    ensure!(!burners.is_empty(), "no thread called burn: {}", report["threads"]);
    // Once started it never sleeps: every burst preempted it or made it wait.
    let (from, to) = Trace::read(&path)?.watched("burn").context("burn was not watched")?;
    let from = from + 200_000_000;
    let bursts: Vec<_> =
        bursts(&log)?.into_iter().filter(|burst| burst.start >= from && burst.end <= to).collect();
    if bursts.len() < 20 {
        return Ok(bursts.len());
    }
    let (preempted, expected) = (sum(&report, "thread", "fakemond", "count"), separate(&bursts));
    ensure!(preempted >= expected, "{expected} preemptions by fakemond, {preempted} recorded");
    let taken = sum(&report, "thread", "fakemond", "cost_ns_total");
    ensure!(taken >= bursts.len() as u64 * 150_000, "fakemond took {taken} ns");
    let ticks = sum(&report, "timer", "tick", "count");
    ensure!(ticks >= 50, "{ticks} ticks");
    ensure!(report["unbalanced_detours"] == 0);
    Ok(bursts.len())
}

fn a_running_process_can_be_watched_by_pid() -> Result<()> {
    let (cpu, _) = cpus();
    let scratch = Scratch::new("pid")?;
    let burn = Load::burn(cpu)?;
    std::thread::sleep(Duration::from_millis(100));
    let pid = burn.0.id().to_string();
    let recording = Recording::start(&scratch.file("trace.detour"), &["--pid", &pid])?;
    std::thread::sleep(Duration::from_secs(1));
    let report = recording.stop()?.report()?;
    let burners = threads(&report, "burn");
    ensure!(burners.len() == 1, "{}", report["threads"]);
    ensure!(report["threads"].as_array().map(Vec::len) == Some(1), "{}", report["threads"]);
    ensure!(sum(&report, "timer", "tick", "count") >= 20, "{}", report["sources"]);
    Ok(())
}

/// A rank with a CPU to itself: it started before the recording and outlives it.
fn who_never_leaves_its_cpu_is_recorded_all_the_same() -> Result<()> {
    // Shorter than the time after which real-time tasks are throttled.
    const SPAN: Duration = Duration::from_millis(400);
    let (cpu, housekeeping) = cpus();
    let scratch = Scratch::new("stays")?;
    let burn = Load::burn(cpu)?;
    std::thread::sleep(Duration::from_millis(100));
    let (pid, cpu, span) = (burn.0.id(), cpu.to_string(), format!("{}ms", SPAN.as_millis()));
    let cases = [
        vec!["--pid".to_owned(), pid.to_string()],
        vec![
            "--no-probe".to_owned(),
            "-c".to_owned(),
            cpu,
            "-H".to_owned(),
            housekeeping.to_string(),
        ],
    ];
    for (index, arguments) in cases.iter().enumerate() {
        let path = scratch.file(&format!("{index}.detour"));
        let mut command = detour();
        command.args(["record", "-q", "-d", &span, "-o"]).arg(&path).args(arguments);
        before_all_others(pid, true)?;
        let output = command.output();
        before_all_others(pid, false)?;
        let output = output?;
        ensure!(output.status.success(), "{}", text(&output.stderr));
        let trace = Trace::read(&path)?;
        let ran = trace.records().filter(|(source, _)| source.name == "burn");
        let ran: u64 = ran.map(|(_, record)| record.gross_ns).sum();
        ensure!(ran as f64 > 0.8 * SPAN.as_nanos() as f64, "{arguments:?}: {ran} ns of {span}");
    }
    Ok(())
}

/// Gives a process a real-time priority, or takes it away.
fn before_all_others(pid: u32, real_time: bool) -> Result<()> {
    let (policy, priority) =
        if real_time { (libc::SCHED_FIFO, 50) } else { (libc::SCHED_OTHER, 0) };
    // SAFETY: the pointer refers to a live value.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, pid, policy, &raw const priority) };
    ensure!(result == 0, "cannot change a priority: {}", std::io::Error::last_os_error());
    Ok(())
}

fn a_programs_page_faults_are_counted_one_by_one() -> Result<()> {
    // After an unseen switch it takes until the next one, or a tick, to notice who is running. If that
    // happened, the test is repeated once; if not, it fails.
    for _ in 0..2 {
        let (recorded, faults, unmatched) = page_faults()?;
        if recorded.abs_diff(faults) <= 2 {
            return Ok(());
        }
        ensure!(unmatched > 0, "{recorded} of {faults} recorded, and every switch was seen");
    }
    let (recorded, faults, unmatched) = page_faults()?;
    ensure!(
        recorded.abs_diff(faults) <= 2,
        "{recorded} of {faults} recorded; {unmatched} unseen switches"
    );
    Ok(())
}

/// Records a program that counts its page faults: recorded, counted, and unseen switches.
fn page_faults() -> Result<(u64, u64, u64)> {
    let (cpu, _) = cpus();
    let scratch = Scratch::new("program-faults")?;
    let path = scratch.file("trace.detour");
    let output = detour()
        .args(["record", "--quiet", "-o"])
        .arg(&path)
        .arg("--")
        .arg(loadgen()?.get_program())
        .args(["faults", "--cpu", &cpu.to_string(), "--seconds", "1", "--burst", "500"])
        .output()?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    // The command writes to our standard output.
    let counted: Value = serde_json::from_slice(&output.stdout).context("the load's count")?;
    let faults = counted["faults"].as_u64().context("faults")?;
    let report = support::report(&path)?;
    let unmatched = report["lost"]["unmatched"].as_u64().context("no count of unmatched")?;
    Ok((sum(&report, "page_fault", "pfgen", "count"), faults, unmatched))
}
