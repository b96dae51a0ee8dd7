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

/// Everything but the daemon and the tick is left out of all recordings: what else runs on this machine
/// and what its hypervisor takes is not the same from one recording to the next. What the tick takes
/// differs a little as well, with what it finds in the caches: a tenth of the daemon's effect is
/// allowed for that.
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

    let median = |trace: &Path, daemon_too: bool| -> Result<f64> {
        let mut remove = others(trace)?;
        if daemon_too {
            remove.push("fakemond".to_owned());
        }
        let asked = ask(trace, &remove)?;
        let median = &asked["together"]["median_us_without"];
        median.as_f64().with_context(|| format!("no median: {asked}"))
    };
    let fresh = [median(&before, false)?, median(&after, false)?];
    let (computed, with_daemon) = (median(&with, true)?, median(&with, false)?);
    let slack = 0.1 * (with_daemon - computed);
    let (low, high) = (fresh[0].min(fresh[1]) - slack, fresh[0].max(fresh[1]) + slack);
    ensure!(
        (low..=high).contains(&computed),
        "without the daemon by computation: {computed} us; recorded without it: {fresh:?} us; with \
         it: {with_daemon} us"
    );
    // And it was worth asking: bursts of 200 us meet each of the 20 collectives somewhere.
    ensure!(with_daemon > computed + 20.0 * 100.0, "with it {with_daemon}, without {computed} us");
    let asked = ask(&with, &["fakemond".to_owned()])?;
    let sources = asked["sources"].as_array().context("sources")?;
    let daemon = sources.iter().find(|source| source["name"] == "fakemond");
    ensure!(daemon.is_some_and(|daemon| daemon["class"] == "thread"), "{sources:?}");
    Ok(())
}

/// The names of all sources but the daemon and the tick.
fn others(trace: &Path) -> Result<Vec<String>> {
    let report = support::report(trace)?;
    let sources = report["sources"].as_array().context("sources")?;
    let names = sources
        .iter()
        .filter(|source| source["class"] != "timer" && source["name"] != "fakemond")
        .filter_map(|source| source["name"].as_str().map(str::to_owned));
    Ok(names.chain(["outside_kernel".to_owned()]).collect())
}

fn ask(trace: &Path, remove: &[String]) -> Result<Value> {
    let mut command = support::detour();
    command.arg("whatif").arg(trace).args(JOB).args(["--quiet", "--json", "--repeat-trace"]);
    for source in remove {
        command.args(["--remove", source]);
    }
    let output = command.output()?;
    ensure!(output.status.success(), "whatif: {}", support::text(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}
