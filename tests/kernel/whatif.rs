//! What-if against the real thing: a node with a daemon, less the daemon by computation, is the node
//! that is recorded without it.

use std::{path::Path, thread::sleep, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::support::{self, Needs, Recording, Scratch, Test, cpus, load};

pub const TESTS: &[Test] = &[(
    "whatif_without_a_daemon_equals_a_recording_without_it",
    Needs::RootAndTwoCpus,
    whatif_without_a_daemon_equals_a_recording_without_it,
)];

/// A loop of collectives over few ranks, long enough that each run meets the daemon: 10 ms of
/// compute, and a burst of 200 us every 10 ms on each rank.
const JOB: [&str; 8] =
    ["--ranks", "64", "--iterations", "20", "--compute", "500us", "--runs", "200"];

/// Recordings without the daemon come before and after the one with it: between them lies what the
/// machine itself does differently from one recording to the next. The hypervisor's share is left out
/// of all of them; it comes and goes as it likes.
fn whatif_without_a_daemon_equals_a_recording_without_it() -> Result<()> {
    let (cpu, housekeeping) = cpus();
    let (cpu, housekeeping) = (cpu.to_string(), housekeeping.to_string());
    let scratch = Scratch::new("whatif")?;
    let record = |name: &str, daemon: bool| -> Result<std::path::PathBuf> {
        let path = scratch.file(name);
        let arguments = ["-c", &cpu, "-H", &housekeeping, "-d", "60s"];
        let recording = Recording::start(&path, &arguments)?;
        if daemon {
            load(&["daemon", "--cpu", &cpu, "--seconds", "8", "--name", "fakemond"])?;
        } else {
            sleep(Duration::from_secs(8));
        }
        recording.stop()?;
        Ok(path)
    };
    let before = record("before.detour", false)?;
    let with = record("with.detour", true)?;
    let after = record("after.detour", false)?;

    let fresh = [ask(&before, &["outside_kernel"])?, ask(&after, &["outside_kernel"])?];
    let computed = ask(&with, &["outside_kernel", "fakemond"])?;
    let with_daemon = ask(&with, &["outside_kernel"])?;
    let (low, high) = between(&computed["together"])?;
    let (mut fresh_low, mut fresh_high) = between(&fresh[0]["together"])?;
    let (other_low, other_high) = between(&fresh[1]["together"])?;
    (fresh_low, fresh_high) = (fresh_low.min(other_low), fresh_high.max(other_high));
    ensure!(
        low <= fresh_high && fresh_low <= high,
        "without the daemon by computation: {low} to {high} us; recorded without it: {fresh_low} to \
         {fresh_high} us"
    );
    // And it was worth asking: with the daemon it takes longer than any of these.
    let (daemon_low, _) = between(&with_daemon["together"])?;
    ensure!(
        daemon_low > high && daemon_low > fresh_high,
        "with the daemon from {daemon_low} us on, without it up to {high} and {fresh_high} us"
    );
    let sources = computed["sources"].as_array().context("sources")?;
    let daemon = sources.iter().find(|source| source["name"] == "fakemond");
    ensure!(daemon.is_some_and(|daemon| daemon["class"] == "thread"), "{sources:?}");
    Ok(())
}

fn ask(trace: &Path, remove: &[&str]) -> Result<Value> {
    let mut command = support::detour();
    command.arg("whatif").arg(trace).args(JOB).args(["--quiet", "--json", "--repeat-trace"]);
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
