//! The threads of a recorded program, individually: interrupts that hit all of them, sleepers next to
//! a busy one, and threads that wait for each other.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::support::{self, Load, Needs, Scratch, Test, cpus, detour, loadgen, text, undisturbed};

pub const TESTS: &[Test] = &[
    (
        "ticks_are_counted_once_however_many_threads_they_hit",
        Needs::Root,
        ticks_are_counted_once_however_many_threads_they_hit,
    ),
    ("a_busy_thread_beside_sleepers_loses_what_the_kernel_says", Needs::Root, || {
        undisturbed(a_busy_thread_beside_sleepers_loses_what_the_kernel_says)
    }),
    (
        "a_program_of_more_threads_than_cpus_is_in_its_own_way",
        Needs::RootAndTwoCpus,
        a_program_of_more_threads_than_cpus_is_in_its_own_way,
    ),
    (
        "a_cpu_that_idles_while_a_thread_could_run_is_named_so",
        Needs::RootAndTwoCpus,
        a_cpu_that_idles_while_a_thread_could_run_is_named_so,
    ),
];

/// Records `loadgen threads` with these arguments; returns its output and the report.
fn record(scratch: &Scratch, arguments: &[&str]) -> Result<(Value, Value)> {
    let output = detour()
        .args(["record", "--quiet", "-o"])
        .arg(scratch.file("trace.detour"))
        .arg("--")
        .arg(loadgen()?.get_program())
        .arg("threads")
        .args(arguments)
        .output()?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    let counted = serde_json::from_slice(&output.stdout).context("the load's count")?;
    Ok((counted, support::report(&scratch.file("trace.detour"))?))
}

/// Events and hits of all timers on a CPU.
fn timers(report: &Value, cpu: u32) -> (u64, u64) {
    let sources = report["sources"].as_array().into_iter().flatten();
    let timers = sources.filter(|source| source["class"] == "timer");
    let parts = timers.flat_map(|source| source["per_cpu"].as_array().into_iter().flatten());
    let here = parts.filter(|part| part["cpu"] == cpu);
    here.fold((0, 0), |(count, hits), part| {
        let number = |key: &str| part[key].as_u64().unwrap_or(0);
        (count + number("count"), hits + number("hits"))
    })
}

fn ticks_are_counted_once_however_many_threads_they_hit() -> Result<()> {
    let (cpu, _) = cpus();
    let scratch = Scratch::new("hits")?;
    for threads in [1u64, 4, 16] {
        let (counted, report) = record(
            &scratch,
            &["--cpus", &cpu.to_string(), "--threads", &threads.to_string(), "--seconds", "1"],
        )?;
        let (events, hits) = timers(&report, cpu);
        ensure!(hits >= events, "{hits} hits of {events} events");
        if threads == 16 {
            ensure!(hits > 8 * events, "{hits} hits of {events} events on {threads} threads");
        }
        // Not every architecture's timer has a separate line in /proc/interrupts.
        let Some(kernel) = counted["timer_interrupts"].as_u64().filter(|&count| count > 0) else {
            continue;
        };
        let ratio = events as f64 / kernel as f64;
        ensure!(
            (0.95..1.5).contains(&ratio),
            "{threads} threads: {events} events, the kernel counted {kernel}"
        );
        let tick = report["sources"].as_array().into_iter().flatten().find(|s| s["name"] == "tick");
        let (rate, duration) = (
            tick.and_then(|tick| tick["rate_hz"].as_f64()).context("no tick")?,
            report["duration_s"].as_f64().context("no duration")?,
        );
        let most = 1.5 * kernel as f64;
        ensure!(rate < most, "{threads} threads: {rate} ticks per second in {duration} s");
    }
    Ok(())
}

fn a_busy_thread_beside_sleepers_loses_what_the_kernel_says() -> Result<()> {
    let (cpu, _) = cpus();
    let scratch = Scratch::new("sleepers")?;
    let _competitor = Load::burn(cpu)?;
    let cpu = cpu.to_string();
    let (counted, report) =
        record(&scratch, &["--cpus", &cpu, "--sleepers", "7", "--seconds", "3"])?;
    let number = |key: &str| counted["threads"][0][key].as_u64().context("schedstat");
    let (run, waited) = (number("run_ns")? as f64, number("wait_ns")? as f64);
    let expected = 100.0 * waited / (run + waited);
    ensure!(expected > 20.0, "no competitor: {counted}");
    let threads = report["threads"].as_array().context("threads")?;
    let busy = threads.iter().find(|thread| thread["name"] == "spin").context("no spin")?;
    let lost = busy["lost_pct"].as_f64().context("lost_pct")?;
    ensure!((lost - expected).abs() < 3.0, "lost {lost} %, in the kernel {expected} %: {busy}");
    let program = report["noise_pct"].as_f64().context("noise_pct")?;
    ensure!((program - lost).abs() < 3.0, "the program lost {program} %, its busy thread {lost} %");
    let lend: Vec<&Value> =
        threads.iter().filter(|t| t["lends_noise"] == true).map(|t| &t["name"]).collect();
    ensure!(lend == ["spin"], "noise is taken from {lend:?}");

    let noise = scratch.file("trace.detour");
    let simulated = detour()
        .args(["simulate", "collective", "--ranks", "1024", "--runs", "20", "--repeat-trace"])
        .args(["--json", "--noise"])
        .arg(&noise)
        .output()?;
    ensure!(simulated.status.success(), "{}", text(&simulated.stderr));
    let value: Value = serde_json::from_slice(&simulated.stdout)?;
    let slowdown = value["points"][0]["slowdown_median"].as_f64().context("slowdown")?;
    ensure!(slowdown > 1.5, "1024 ranks on a CPU shared by two: slowdown {slowdown}");
    let said = text(&simulated.stderr);
    let left_out = threads.len() - 1;
    ensure!(said.contains(&format!("{left_out} of {} threads", threads.len())), "{said}");
    Ok(())
}

fn a_program_of_more_threads_than_cpus_is_in_its_own_way() -> Result<()> {
    let (one, other) = cpus();
    let scratch = Scratch::new("itself")?;
    let arguments = ["--cpus", &format!("{one},{other}"), "--threads", "3", "--seconds", "2"];
    let (_, report) = record(&scratch, &arguments)?;
    let found = &report["self_competition"];
    let runnable = found["runnable_threads"].as_f64().context("no competition found")?;
    ensure!((2.5..3.6).contains(&runnable), "{found}");
    let sources = report["sources"].as_array().context("sources")?;
    let spin = sources.iter().find(|s| s["class"] == "thread" && s["name"] == "spin");
    ensure!(spin.is_some_and(|spin| spin["program"] == true), "{spin:?}");
    let trace = scratch.file("trace.detour");
    let output = detour().args(["report", "--no-projection"]).arg(&trace).output()?;
    let said = text(&output.stdout);
    ensure!(said.contains("The program competes with itself: "), "{said}");

    let output = detour()
        .args(["whatif", "--ranks", "64", "--runs", "40", "--repeat-trace", "--json"])
        .arg(&trace)
        .output()?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    let whatif: Value = serde_json::from_slice(&output.stdout)?;
    let rows = whatif["sources"].as_array().context("sources")?;
    let spin = rows.iter().find(|s| s["class"] == "thread" && s["name"] == "spin");
    let spin = spin.context("no spin")?;
    ensure!(spin["program"] == true, "{spin}");
    ensure!(!spin["advice"].to_string().contains("taskset -pc"), "{spin}");
    Ok(())
}

/// A thread that a timer wakes on an idle CPU waits until that CPU leaves its idle state. Nothing else
/// took that time.
fn a_cpu_that_idles_while_a_thread_could_run_is_named_so() -> Result<()> {
    let (cpu, _) = cpus();
    let scratch = Scratch::new("idle")?;
    let path = scratch.file("trace.detour");
    let (output, idle) = support::idle_share(cpu, || {
        let mut command = detour();
        command.args(["record", "--quiet", "-T", "1ns", "-o"]).arg(&path).arg("--");
        command.arg(loadgen()?.get_program());
        Ok(command.args(["daemon", "--cpu", &cpu.to_string(), "--seconds", "2"]).output()?)
    })?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    let report = support::report(&path)?;
    let sources = report["sources"].as_array().context("sources")?;
    if idle < 0.8 {
        return support::skip("the CPU was busy with something else");
    }
    let idle: Vec<&Value> = sources.iter().filter(|source| source["class"] == "idle").collect();
    ensure!(idle.len() == 1 && idle[0]["name"] == "idle while runnable", "{idle:?}");
    // Once for each of its bursts, a hundred per second.
    let count = idle[0]["count"].as_u64().context("count")?;
    ensure!(count > 100, "{idle:?}");
    Ok(())
}
