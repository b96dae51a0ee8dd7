//! What `detour inject` plays is what a recording of it shows.

use anyhow::{Result, ensure};
use serde_json::Value;
use trace::Class;

use crate::support::{
    LONG, Needs, Recording, Scratch, Test, cpus, detour, load, text, undisturbed,
};

pub const TESTS: &[Test] = &[(
    "a_recorded_daemon_is_played_back_hit_by_hit",
    Needs::RootAndTwoCpus,
    a_recorded_daemon_is_played_back_hit_by_hit,
)];

/// Within this of its length, a detour was played: the thread has to be switched to and from, and is interrupted
/// itself.
const SWITCH_NS: u64 = 100_000;

fn a_recorded_daemon_is_played_back_hit_by_hit() -> Result<()> {
    undisturbed(|| {
        let (cpu, housekeeping) = cpus();
        let (cpu, housekeeping) = (cpu.to_string(), housekeeping.to_string());
        let scratch = Scratch::new("inject")?;
        let on_cpu = ["-c", &cpu, "-H", &housekeeping, "-d", LONG];
        let original = scratch.file("original.detour");
        let recording = Recording::start(&original, &on_cpu)?;
        let daemon = ["daemon", "--cpu", &cpu, "--seconds", "2", "--name", "fakemond"];
        load(&daemon)?;
        recording.stop()?;

        let recording = Recording::start(&scratch.file("played.detour"), &on_cpu)?;
        let output = detour()
            .args(["inject", "--source", "fakemond", "--shortest", "50us", "--json"])
            .arg(&original)
            .output()?;
        let trace = recording.stop()?;
        ensure!(output.status.success(), "{}", text(&output.stderr));
        let played: Value = serde_json::from_slice(&output.stdout)?;
        let of = |key: &str| played["cpus"][0][key].as_u64().unwrap_or(0);
        ensure!(played["real_time"] == true && of("cpu").to_string() == cpu, "{played}");
        // 200 wake-ups of 200 us.
        let detours = of("detours");
        ensure!((190..=400).contains(&detours), "{played}");
        ensure!(of("wanted_ns") > detours * 100_000, "{played}");

        // Time slices of the thread; one that was interrupted goes on after it.
        let slices: Vec<u64> = trace
            .records()
            .filter(|(source, _)| source.class == Class::Thread && source.name == "detour-inject")
            .map(|(_, record)| {
                let (start, end) = trace.span(record);
                end - start
            })
            .collect();
        let recorded: u64 = slices.iter().sum();
        let long = slices.iter().filter(|ns| **ns > 50_000).count() as u64;
        ensure!(long >= detours * 98 / 100, "{long} slices of {detours} detours");
        let wanted = of("wanted_ns");
        ensure!(
            recorded > wanted - wanted / 10 && recorded < wanted + detours * SWITCH_NS,
            "{recorded} ns of {wanted} ns in {detours} detours: {played}"
        );
        Ok(())
    })
}
