//! What-if compared with reality: a node with a daemon, minus the daemon by computation, equals the
//! node recorded without it.

use std::{path::Path, thread::sleep, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::support::{
    self, Load, Needs, Recording, Scratch, Test, Trace, cpus, detour, load, loadgen, skip, text,
    undisturbed,
};

pub const TESTS: &[Test] = &[
    (
        "whatif_without_a_daemon_equals_a_recording_without_it",
        Needs::RootAndTwoCpus,
        whatif_without_a_daemon_equals_a_recording_without_it,
    ),
    ("a_real_job_gains_what_was_promised", Needs::RootAndTwoCpus, || {
        undisturbed(a_real_job_gains_what_was_promised)
    }),
    ("the_demo_ends_with_what_to_do", Needs::Root, the_demo_ends_with_what_to_do),
];

/// What stays on a terminal of 80x24 is what to do, or that there is nothing to do.
fn the_demo_ends_with_what_to_do() -> Result<()> {
    let scratch = Scratch::new("demo")?;
    let (trace, page) = (scratch.file("demo.detour"), scratch.file("report.html"));
    let mut demo = detour();
    demo.args(["demo", "-d", "2s", "-o"]).arg(&trace).arg("--html").arg(&page);
    let output = demo.env("COLUMNS", "80").output()?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let lines: Vec<&str> = said.lines().collect();
    let screen = lines[lines.len().saturating_sub(24)..].join("\n");
    let headline = ["A job of this kind on", "No estimate for a job of this kind"];
    ensure!(headline.iter().any(|begin| screen.contains(begin)), "{said}");
    let busy = screen.contains(headline[1]);
    let ends = ["Do this first", "No action recommended"];
    ensure!(busy || ends.iter().any(|begin| screen.contains(begin)), "{said}");
    ensure!(said.contains("About this recording") && std::fs::metadata(&page)?.len() > 10_000);
    Ok(())
}

/// A loop of collectives over few ranks, long enough that each run hits the daemon: 10 ms of compute,
/// and a burst of 200 us every 10 ms on each rank.
const JOB: [&str; 8] =
    ["--ranks", "64", "--iterations", "20", "--compute", "500us", "--runs", "200"];

/// Length of each recording.
const SECONDS: &str = "4";

/// Tolerance between two recordings of the same node beyond their intervals, as a share of the
/// daemon's effect: ticks take longer when the daemon has evicted the caches, which no computation
/// knows.
const TOLERANCE: f64 = 0.1;

/// Recordings without the daemon come before and after the one with it: they show how much the machine
/// itself varies from one recording to the next. All other sources (processes, the hypervisor) are
/// removed from all three in the same way, so that only ticks remain, and in one of them the daemon. A
/// host that steals milliseconds during ticks makes recordings differ: then everything is repeated.
fn whatif_without_a_daemon_equals_a_recording_without_it() -> Result<()> {
    compare().or_else(|_| compare()).or_else(|_| compare())
}

/// A daemon takes a tenth of a CPU, and two pinned threads compute and meet in a barrier: the gain printed
/// for it against the gain of really stopping it.
fn a_real_job_gains_what_was_promised() -> Result<()> {
    let (cpu, other) = cpus();
    let scratch = Scratch::new("gain")?;
    let path = scratch.file("trace.detour");
    let both = format!("{other},{cpu}");
    let daemon = || -> Result<Load> {
        let mut command = loadgen()?;
        command.args(["daemon", "--cpu", &cpu.to_string(), "--burn-us", "1000", "--seconds", "60"]);
        Ok(Load(command.stdout(std::process::Stdio::null()).spawn()?))
    };
    let job = || -> Result<f64> {
        let done = load(&["job", "--cpus", &both, "--iterations", "500"])?;
        done["ns"].as_f64().context("no time")
    };
    {
        let _daemon = daemon()?;
        let output =
            detour().args(["record", "-q", "-c", &both, "-d", "5s", "-o"]).arg(&path).output()?;
        ensure!(output.status.success(), "{}", text(&output.stderr));
    }
    let like_it = ["--ranks", "2", "--op", "barrier", "--iterations", "500", "--compute", "1ms"];
    let shared_memory = ["--net", "L=100ns,o=50ns,g=0,G=0,S=64KiB", "--runs", "100", "--json"];
    let output =
        detour().args(["whatif", "-q"]).arg(&path).args(like_it).args(shared_memory).output()?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    let whatif: Value = serde_json::from_slice(&output.stdout)?;
    let busy = whatif["baseline"]["slowdown_median"].as_f64().context("no slowdown")?;
    // The daemon alone makes it 10/9 as long.
    if busy > 1.18 {
        return skip(format!("other noise makes the job {busy:.2} times as long"));
    }
    let first = &whatif["actions"][0];
    ensure!(first["process"] == "fakemond", "{:#}", whatif["actions"]);
    let bound = |at: usize| first["gain_ci95_pct"][at].as_f64().context("no interval");
    let (low, high) = (bound(0)?, bound(1)?);
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        {
            let _daemon = daemon()?;
            with.push(job()?);
        }
        without.push(job()?);
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let gain = 100.0 * (1.0 - median(&mut without) / median(&mut with));
    println!("promised {low:.1} to {high:.1} %, gained {gain:.1} %: {with:.0?} {without:.0?}");
    ensure!(
        (low - VARIES_PCT..=high + VARIES_PCT).contains(&gain),
        "promised {low:.2} to {high:.2} %, gained {gain:.2} %: {with:.0?} {without:.0?}"
    );
    Ok(())
}

/// Alternating runs, and how much the medians of such runs vary here by themselves.
const PAIRS: usize = 7;
const VARIES_PCT: f64 = 1.5;

fn compare() -> Result<()> {
    let (cpu, housekeeping) = cpus();
    let (cpu, housekeeping) = (cpu.to_string(), housekeeping.to_string());
    let scratch = Scratch::new("whatif")?;
    let record = |name: &str, daemon: bool| -> Result<Trace> {
        let arguments = ["-c", &cpu, "-H", &housekeeping, "-d", "60s"];
        let recording = Recording::start(&scratch.file(name), &arguments)?;
        if daemon {
            load(&["daemon", "--cpu", &cpu, "--seconds", SECONDS, "--name", "fakemond"])?;
        } else {
            sleep(Duration::from_secs(SECONDS.parse()?));
        }
        recording.stop()
    };
    let before = record("before.detour", false)?;
    let with = record("with.detour", true)?;
    let after = record("after.detour", false)?;

    let without = interval(&with, &["tick"])?;
    let fresh = [interval(&before, &["tick"])?, interval(&after, &["tick"])?];
    let daemon = interval(&with, &["tick", "fakemond"])?;
    let slack = TOLERANCE * (daemon.0 - without.1);
    // The effect has to be large: some rank is hit by a burst of 200 us in nearly all 20 collectives.
    ensure!(slack > TOLERANCE * 2000.0, "with the daemon {daemon:?} us, without it {without:?} us");
    let low = fresh[0].0.min(fresh[1].0) - slack;
    let high = fresh[0].1.max(fresh[1].1) + slack;
    ensure!(
        without.0 <= high && low <= without.1,
        "computed without the daemon: {without:?} us; recorded without it: {fresh:?} us; with \
         it: {daemon:?} us"
    );
    Ok(())
}

/// The 95 % confidence interval of the median time with only these sources left.
fn interval(trace: &Trace, kept: &[&str]) -> Result<(f64, f64)> {
    let report = trace.report()?;
    let sources = report["sources"].as_array().context("sources")?;
    let mut remove = vec!["outside_kernel".to_owned()];
    for source in sources {
        let (class, name) = (source["class"].as_str(), source["name"].as_str());
        let (class, name) = class.zip(name).context("a source without a name")?;
        if !kept.contains(&name) {
            remove.push(format!("{class}:{name}"));
        }
    }
    between(&ask(&trace.path, &remove)?["together"])
}

fn ask(trace: &Path, remove: &[String]) -> Result<Value> {
    let mut command = support::detour();
    command.arg("whatif").arg(trace).args(JOB).args([
        "--quiet",
        "--json",
        "--repeat-trace",
        "--top",
        "0",
    ]);
    for source in remove {
        command.args(["--remove", source]);
    }
    let output = command.output()?;
    ensure!(output.status.success(), "whatif: {}", support::text(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn between(group: &Value) -> Result<(f64, f64)> {
    let ends = &group["median_ci95_us_without"];
    let end = |index: usize| ends[index].as_f64().with_context(|| format!("no interval: {group}"));
    Ok((end(0)?, end(1)?))
}
