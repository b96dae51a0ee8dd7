//! The audit of isolated CPUs: what interrupts them is found, with the reason and the setting.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::support::{Load, Needs, Test, cpus, detour, figure, loadgen, text};

pub const TESTS: &[Test] = &[
    ("an_audit_names_what_is_not_isolated", Needs::RootAndTwoCpus, names_what_is_not_isolated),
    ("an_isolated_cpu_is_quiet", Needs::IsolatedVm, an_isolated_cpu_is_quiet),
    ("a_thread_on_an_isolated_cpu_is_found", Needs::IsolatedVm, a_thread_is_found),
    ("ipis_to_an_isolated_cpu_are_found", Needs::IsolatedVm, ipis_are_found),
    ("what_keeps_the_tick_running_is_found", Needs::IsolatedVm, the_ticks_reason_is_found),
    ("settings_that_do_not_isolate_are_found", Needs::IsolatedVm, settings_are_found),
];

/// The audit, and whether all CPUs were quiet by its exit status.
fn audit(arguments: &[&str]) -> Result<(Value, bool)> {
    let output = detour().args(["doctor", "--isolation", "--json"]).args(arguments).output()?;
    let audit: Value =
        serde_json::from_slice(&output.stdout).with_context(|| text(&output.stderr))?;
    ensure!(audit["quiet"] == output.status.success(), "{audit} {}", output.status);
    Ok((audit, output.status.success()))
}

fn interruptions(audit: &Value) -> Vec<&Value> {
    let cpus = audit["cpus"].as_array().into_iter().flatten();
    cpus.flat_map(|cpu| cpu["interruptions"].as_array().into_iter().flatten()).collect()
}

fn interruption<'a>(audit: &'a Value, source: &str) -> Result<&'a Value> {
    let found = interruptions(audit).into_iter().find(|found| found["source"] == source);
    found.with_context(|| format!("{source} is not in {audit:#}"))
}

/// A daemon that runs for the whole audit.
fn daemon(cpu: u32) -> Result<Load> {
    let child = loadgen()?
        .args(["daemon", "--cpu", &cpu.to_string(), "--period-us", "20000", "--burn-us", "500"])
        .args(["--name", "intruder", "--seconds", "300"])
        .stdout(Stdio::null())
        .spawn()?;
    Ok(Load(child))
}

fn names_what_is_not_isolated() -> Result<()> {
    let (cpu, _) = cpus();
    let _load = daemon(cpu)?;
    let (audit, quiet) = audit(&["-c", &cpu.to_string(), "-d", "2s"])?;
    ensure!(!quiet);
    let intruder = interruption(&audit, "intruder")?;
    let count = intruder["count"].as_u64().unwrap_or(0);
    ensure!(count > 10 && intruder["class"] == "thread", "{intruder}");
    ensure!(intruder["fix"].as_str().is_some_and(|fix| fix.contains("taskset")), "{intruder}");
    let tick = interruption(&audit, "tick")?;
    ensure!(tick["reason"].as_str().is_some_and(|why| why.contains("nohz_full")), "{tick}");
    Ok(())
}

/// The machine was booted with `nohz_full` and `isolcpus` for its second CPU. Of some 400 ticks, very few
/// remain: about once a second this kernel sends an IPI from a timer, reschedules, and ticks once. The audit
/// lists them.
fn an_isolated_cpu_is_quiet() -> Result<()> {
    const MOST: u64 = 12;
    let (audit, quiet) = audit(&["-d", "2s"])?;
    ensure!(audit["cpus"].as_array().map(Vec::len) == Some(1), "{audit:#}");
    ensure!(audit["cpus"][0]["cpu"] == 1, "{audit:#}");
    let all: u64 = interruptions(&audit).iter().filter_map(|found| found["count"].as_u64()).sum();
    figure("interruptions of an isolated CPU in 2 s", &all.to_string())?;
    ensure!(all <= MOST && quiet == (all == 0), "{audit:#}");
    Ok(())
}

fn a_thread_is_found() -> Result<()> {
    let _load = daemon(1)?;
    let (audit, quiet) = audit(&["-d", "2s"])?;
    ensure!(!quiet);
    let intruder = interruption(&audit, "intruder")?;
    ensure!(intruder["fix"].as_str().is_some_and(|fix| fix.contains("taskset")), "{intruder}");
    Ok(())
}

fn ipis_are_found() -> Result<()> {
    let _load = Load(
        loadgen()?
            .args(["ipi", "--from", "0", "--to", "1", "--count", "1000000", "--pause-us", "2000"])
            .stdout(Stdio::null())
            .spawn()?,
    );
    let (audit, quiet) = audit(&["-d", "2s"])?;
    ensure!(!quiet);
    let ipi = interruptions(&audit).into_iter().find(|found| found["class"] == "ipi");
    let ipi = ipi.with_context(|| format!("no IPI in {audit:#}"))?;
    ensure!(ipi["reason"].as_str().is_some_and(|why| why.contains("ipigen")), "{ipi}");
    Ok(())
}

/// Two threads that want the CPU keep its tick running.
fn the_ticks_reason_is_found() -> Result<()> {
    let _load = Load::burn(1)?;
    let (audit, quiet) = audit(&["-d", "2s"])?;
    ensure!(!quiet);
    let tick = interruption(&audit, "tick")?;
    let why = tick["reason"].as_str().unwrap_or_default();
    ensure!(why.contains("more than one thread"), "{tick}");
    Ok(())
}

fn settings_are_found() -> Result<()> {
    let setting = |audit: &Value, name: &str| -> Result<bool> {
        let settings = audit["settings"].as_array().into_iter().flatten();
        let mut settings = settings.filter(|setting| setting["name"] == name);
        let setting = settings.next().with_context(|| format!("no {name} in {audit:#}"))?;
        setting["ok"].as_bool().context("a verdict")
    };
    let (isolated, _) = audit(&["-c", "1", "-d", "200ms"])?;
    let (other, _) = audit(&["-c", "0", "-d", "200ms"])?;
    for name in ["nohz_full", "isolcpus", "rcu_nocbs"] {
        ensure!(setting(&isolated, name)? && !setting(&other, name)?, "{name}");
    }
    // Unbound work may run on the isolated CPU unless told otherwise.
    let mask = "/sys/devices/virtual/workqueue/cpumask";
    let before = std::fs::read_to_string(mask)?;
    std::fs::write(mask, "3")?;
    let (open, _) = audit(&["-c", "1", "-d", "200ms"])?;
    std::fs::write(mask, "1")?;
    let (closed, _) = audit(&["-c", "1", "-d", "200ms"])?;
    std::fs::write(mask, before.trim())?;
    ensure!(!setting(&open, "workqueue cpumask")? && setting(&closed, "workqueue cpumask")?);
    Ok(())
}
