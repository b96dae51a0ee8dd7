//! In a separate PID namespace, as in containers and under job managers: everything is recorded, and
//! processes inside are known by their PIDs there. With a separate /proc, and with the host's.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    cgroups::Cgroup,
    pty::Terminal,
    support::{Load, Needs, Scratch, Test, Trace, cpus, detour, loadgen, report, sum, text},
};

pub const TESTS: &[Test] = &[
    (
        "in_a_pid_namespace_a_node_is_recorded_with_all_names",
        Needs::RootAndUnshare,
        a_node_is_recorded_with_all_names,
    ),
    ("in_a_pid_namespace_a_command_is_recorded", Needs::RootAndUnshare, a_command_is_recorded),
    (
        "in_a_pid_namespace_a_process_is_known_by_its_number_there",
        Needs::RootAndUnshare,
        a_process_is_known_by_its_number_there,
    ),
    ("in_a_pid_namespace_a_cgroup_is_recorded", Needs::RootAndUnshare, a_cgroup_is_recorded),
    ("in_a_pid_namespace_the_view_works", Needs::RootAndUnshare, the_view_works),
];

/// Both kinds of /proc.
pub const PROC: [&[&str]; 2] = [&["--mount-proc"], &[]];

/// A shell script in a separate PID namespace; `$detour`, `$loadgen` and `$trace` are set.
fn inside(proc: &[&str], trace: &Path, script: &str) -> Result<Command> {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child"]).args(proc).args(["sh", "-c", script]);
    command.env("detour", detour().get_program());
    command.env("loadgen", loadgen()?.get_program());
    command.env("trace", trace).env("cpu", cpus().0.to_string());
    Ok(command)
}

pub fn run(proc: &[&str], trace: &Path, script: &str) -> Result<(Option<i32>, String, String)> {
    let output = inside(proc, trace, script)?.stdin(Stdio::null()).output()?;
    Ok((output.status.code(), text(&output.stdout), text(&output.stderr)))
}

fn threads(report: &Value) -> Vec<(String, u64, u64)> {
    let thread = |thread: &Value| {
        let name = thread["name"].as_str()?.to_owned();
        Some((name, thread["pid"].as_u64()?, thread["tid"].as_u64()?))
    };
    report["threads"].as_array().into_iter().flatten().filter_map(thread).collect()
}

fn a_node_is_recorded_with_all_names() -> Result<()> {
    let (cpu, _) = cpus();
    let scratch = Scratch::new("ns-node")?;
    let trace = scratch.file("trace.detour");
    let mut daemon = loadgen()?;
    daemon.args(["daemon", "--cpu", &cpu.to_string(), "--seconds", "120"]);
    let daemon = Load(daemon.stdout(Stdio::null()).spawn()?);
    for proc in PROC {
        let script = "$loadgen burn --cpu $cpu --seconds 60 >/dev/null & burn=$!
            $detour record --no-probe -d 1s -o $trace || exit; kill $burn; echo $burn";
        let (code, said, errors) = run(proc, &trace, script)?;
        ensure!(code == Some(0), "{proc:?}: {code:?} {errors}");
        let recorded = report(&trace)?;
        ensure!(recorded["mode"] == "kernel_only", "{}", recorded["mode"]);
        for name in ["fakemond", "burn"] {
            ensure!(sum(&recorded, "thread", name, "count") > 0, "{proc:?}: no {name}");
        }
        let sources = Trace::read(&trace)?.sources;
        let pids = |name: &str| {
            let ours = sources.iter().filter(|source| source.name == name);
            ours.flat_map(|source| source.pids.clone()).collect::<Vec<u32>>()
        };
        // Processes inside by their PID there, others by the host's.
        let burn: u32 = said.trim().parse().context("its number")?;
        ensure!(pids("burn").contains(&burn), "{proc:?}: {burn} not in {:?}", pids("burn"));
        let host = daemon.0.id();
        ensure!(pids("fakemond").contains(&host), "{host} not in {:?}", pids("fakemond"));
        let limits = recorded["limits"].to_string() + &errors;
        ensure!(limits.contains("PID namespace") && limits.contains("host PIDs"), "{limits}");
        // With a probe: its lane is separate, and everything has a name.
        let (code, _, errors) = run(proc, &trace, "$detour record -d 1s -c $cpu -o $trace")?;
        ensure!(code == Some(0), "{proc:?}: {code:?} {errors}");
        let recorded = report(&trace)?;
        ensure!(recorded["mode"] == "attributed", "{}: {errors}", recorded["mode"]);
        ensure!(sum(&recorded, "thread", "fakemond", "count") > 20, "{}", recorded["sources"]);
        let probe = sum(&recorded, "thread", "detour-probe", "count");
        ensure!(probe == 0, "the probe was recorded as a source {probe} times");
    }
    Ok(())
}

fn a_command_is_recorded() -> Result<()> {
    let scratch = Scratch::new("ns-command")?;
    let trace = scratch.file("trace.detour");
    for proc in PROC {
        // A shell in between, so that a grandchild burns.
        let script = "$detour record -q -o $trace -- sh -c \
            '$loadgen burn --cpu $cpu --seconds 1 --exit-code 7 & echo $!; wait $!'";
        let (code, said, errors) = run(proc, &trace, script)?;
        ensure!(code == Some(7), "{proc:?}: {code:?} {errors}");
        let number: u64 = said.lines().next().context("no PID")?.parse()?;
        let threads = threads(&report(&trace)?);
        let burn = threads.iter().find(|(name, ..)| name == "burn").context("no thread burn")?;
        ensure!((burn.1, burn.2) == (number, number), "{proc:?}: {number}, shown as {burn:?}");
        ensure!(threads.iter().all(|(name, ..)| name == "burn" || name == "sh"), "{threads:?}");
    }
    Ok(())
}

fn a_process_is_known_by_its_number_there() -> Result<()> {
    let scratch = Scratch::new("ns-pid")?;
    let trace = scratch.file("trace.detour");
    for proc in PROC {
        let script = "$loadgen burn --cpu $cpu --seconds 60 >/dev/null & burn=$!
            $detour record -q --pid $burn -d 1s -o $trace || exit
            kill $burn; wait $burn; echo $burn
            $detour record -q --pid $burn -d 1s -o $trace.none && exit 99; exit 0";
        let (code, said, errors) = run(proc, &trace, script)?;
        ensure!(code == Some(0), "{proc:?}: {code:?} {errors}");
        let number: u64 = said.trim().parse().context("its number")?;
        ensure!(errors.contains(&format!("process {number} does not exist")), "{errors}");
        let recorded = report(&trace)?;
        let threads = threads(&recorded);
        ensure!(threads == [("burn".to_owned(), number, number)], "{proc:?} {number}: {threads:?}");
        ensure!(sum(&recorded, "timer", "tick", "count") > 20, "{}", recorded["sources"]);
        // The recording ends with the process.
        let script = "$loadgen burn --cpu $cpu --seconds 1 >/dev/null & burn=$!
            timeout 60 $detour record -q --pid $burn -o $trace";
        let (code, _, errors) = run(proc, &trace, script)?;
        ensure!(code == Some(0), "{proc:?}: {code:?} {errors}");
    }
    Ok(())
}

fn a_cgroup_is_recorded() -> Result<()> {
    let scratch = Scratch::new("ns-cgroup")?;
    let trace = scratch.file("trace.detour");
    let cgroup = Cgroup::create(&scratch, "ns")?;
    for proc in PROC {
        let script = "(echo 0 >$cgroup/cgroup.procs; exec $loadgen burn --cpu $cpu --seconds 60) \
                >/dev/null & burn=$!
            $detour record -q --cgroup $cgroup -d 1s -o $trace || exit; kill $burn; echo $burn";
        let mut command = inside(proc, &trace, script)?;
        let output = command.env("cgroup", &cgroup.path).stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "{proc:?}: {}", text(&output.stderr));
        let number: u64 = text(&output.stdout).trim().parse().context("its number")?;
        let threads = threads(&report(&trace)?);
        let expected = [("burn".to_owned(), number, number)];
        ensure!(threads == expected, "{proc:?} {number}: {threads:?}");
    }
    Ok(())
}

fn the_view_works() -> Result<()> {
    let scratch = Scratch::new("ns-top")?;
    let trace = scratch.file("none");
    for proc in PROC {
        let script = "$loadgen burn --cpu $cpu --seconds 60 >/dev/null & exec $detour top -i 200ms";
        let mut terminal = Terminal::start(&mut inside(proc, &trace, script)?, 120, 40)?;
        terminal
            .until("the burner", |shown| shown.contains("no probe") && shown.contains("burn"))?;
        terminal.press("q")?;
        ensure!(terminal.end()?.success());
        let script = "$loadgen burn --cpu $cpu --seconds 60 >/dev/null & \
            exec $detour top --pid $! -i 200ms";
        let mut terminal = Terminal::start(&mut inside(proc, &trace, script)?, 120, 40)?;
        // The shell is PID 1 there, the burner PID 2.
        terminal.until("its thread", |shown| shown.contains("burn-2"))?;
        terminal.press("q")?;
        ensure!(terminal.end()?.success());
    }
    Ok(())
}
