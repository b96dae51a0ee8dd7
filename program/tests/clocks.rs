//! Clocks of several hosts: made offsets and drift, taken out again.

mod support;

use program::{open, profile};
use support::{HostClock, Made, START};
use tempfile::TempDir;

const LATENCY: u64 = 2_000;
const STEPS: u64 = 2_000;
const PERIOD: u64 = 1_000_000;

/// Two to four ranks, each on its host, exchange messages in both directions. A message takes
/// [`LATENCY`] to arrive, in four of five steps more. It is the same for all receives of a step, because a
/// receive cannot return before the one ahead of it: the shortest transfer of every pair is [`LATENCY`].
fn exchange(clocks: &[HostClock]) -> TempDir {
    let dir = TempDir::new().unwrap();
    let size = clocks.len() as u32;
    let mut ranks: Vec<Made> = clocks
        .iter()
        .enumerate()
        .map(|(rank, clock)| Made::on(dir.path(), rank as u32, size, *clock))
        .collect();
    for step in 0..STEPS {
        for (a, made) in ranks.iter_mut().enumerate() {
            let base = step * PERIOD;
            for b in 0..clocks.len() {
                if a != b {
                    made.send(base, base + 10, b as i32, 100);
                }
            }
            for b in 0..clocks.len() {
                if a != b {
                    let more = step * 7 % 5 * 1_000;
                    made.recv(base + 500, base + LATENCY + more, b as i32, 100);
                }
            }
        }
    }
    ranks.into_iter().for_each(|rank| rank.finish(STEPS * PERIOD));
    dir
}

#[test]
fn measured_offsets_and_drift_are_taken_out() {
    let dir = exchange(&[
        HostClock::default(),
        HostClock { host: 1, offset_ns: 5_000_000_000, drift: 20e-6, measured: None },
        HostClock { host: 2, offset_ns: -300_000_000, drift: -15e-6, measured: None },
    ]);
    let profile = profile(&open(dir.path()).unwrap(), 2).unwrap();
    assert_eq!(profile.lost.reversed_messages, 0);
    assert_eq!(profile.clock_contradiction_ns, 0);
    assert_eq!(profile.waits.total_ns / 1_000, 0, "all sends begin before the receives");
    assert!((profile.wall_s - (STEPS * PERIOD) as f64 / 1e9).abs() < 1e-6);
    for host in &profile.hosts {
        assert_eq!((host.correction_min_ns, host.correction_max_ns), (0, 0), "{host:?}");
    }
    // Drift is that of the clocks, whatever came before the first measurement.
    for (host, ppm) in profile.hosts.iter().zip([0.0, 20.0, -15.0]) {
        assert!((host.drift_ppm.unwrap() - ppm).abs() < 0.01, "{host:?}");
    }
    // Half of what a message needs one way in the measured round trip of 1000 ns.
    for host in &profile.hosts[1..] {
        assert_eq!(host.residual_ns, Some(250), "{host:?}");
    }
    for host in &profile.hosts {
        // The second send of a step begins 10 ns later; rounding adds a little.
        let fastest = LATENCY as i64 - host.fastest_ns.unwrap();
        assert!((8..=12).contains(&fastest), "{host:?}");
    }
}

#[test]
fn wrong_measurements_are_corrected_until_no_message_arrives_before_it_was_sent() {
    // Offsets measured wrongly by 40 us at the start and by -25 us at the end; at another host the drift
    // is not seen at all.
    let offset = 7_000_000;
    let dir = exchange(&[
        HostClock::default(),
        HostClock {
            host: 1,
            offset_ns: offset,
            drift: 0.0,
            measured: Some((offset + 40_000, offset - 25_000)),
        },
        HostClock { host: 2, offset_ns: 0, drift: 30e-6, measured: Some((0, 0)) },
    ]);
    let program = open(dir.path()).unwrap();
    let profile = profile(&program, 2).unwrap();
    assert_eq!(profile.lost.reversed_messages, 0);
    assert_eq!(profile.clock_contradiction_ns, 0);
    let corrections: Vec<_> =
        profile.hosts.iter().map(|host| (host.correction_min_ns, host.correction_max_ns)).collect();
    assert_eq!(corrections[0], (0, 0), "rank 0's host is the reference");
    assert!(corrections[1].1 > 38_000 && corrections[1].0 < -23_000, "{corrections:?}");
    for host in &profile.hosts[1..] {
        // Off the middle of the band by what the clocks drift within a part of the run.
        assert!(host.residual_ns.unwrap() < LATENCY as i64 * 11 / 10, "{host:?}");
    }
    // What the clock says is right to less than the smallest latency, and to the residual.
    let clocks = program::clocks(&program, 2).unwrap();
    for slot in 1..3 {
        let mut step = 0;
        program::stream(&program, slot, &clocks, |moment, _| {
            let program::What::Call(call) = &moment.what else { return };
            if call.signature.call == mpi_abi::Call::Send && call.signature.peer == 0 {
                let truth = (START + step * PERIOD) as i64;
                let error = (moment.begin - truth).abs();
                assert!(error <= profile.hosts[slot].residual_ns.unwrap());
                assert!(error < LATENCY as i64, "rank {slot}, step {step}: {error} ns");
                step += 1;
            }
        })
        .unwrap();
        assert_eq!(step, STEPS);
    }
}

#[test]
fn collectives_alone_correct_clocks_too() {
    let dir = TempDir::new().unwrap();
    let clock = HostClock { host: 1, offset_ns: 0, drift: 0.0, measured: Some((90_000, 90_000)) };
    let mut a = Made::new(dir.path(), 0, 2);
    let mut b = Made::on(dir.path(), 1, 2, clock);
    for step in 0..500u64 {
        for made in [&mut a, &mut b] {
            let base = step * PERIOD;
            made.collective(mpi_abi::Call::Barrier, base, base + LATENCY, 0);
        }
    }
    a.finish(500 * PERIOD);
    b.finish(500 * PERIOD);
    let profile = profile(&open(dir.path()).unwrap(), 2).unwrap();
    let host = &profile.hosts[1];
    assert!((host.correction_max_ns - 90_000).abs() <= LATENCY as i64, "{host:?}");
    assert!(profile.waits.collective_ns <= 500 * LATENCY);
}

#[test]
fn ranks_that_were_killed_keep_the_offset_of_the_start() {
    let dir = TempDir::new().unwrap();
    let clock = HostClock { host: 1, offset_ns: 123_456_789, drift: 0.0, measured: None };
    let mut a = Made::new(dir.path(), 0, 2);
    let mut b = Made::on(dir.path(), 1, 2, clock);
    a.send(5_000, 5_100, 1, 10);
    b.recv(1_000, 8_000, 0, 10);
    a.kill();
    b.kill();
    let profile = profile(&open(dir.path()).unwrap(), 1).unwrap();
    assert_eq!(profile.waits.late_sender_ns, 4_000);
    assert_eq!((profile.hosts[1].offset_end_ns, profile.hosts[1].drift_ppm), (None, None));
}

/// Frequent messages, of which the first correction sees a sample only, between hosts whose clocks drift
/// unevenly: a wave that no measurement at the ends can see.
#[test]
fn a_sample_corrects_clocks_and_all_messages_are_checked() {
    const MANY: u64 = 40_000;
    const STEP: u64 = 20_000;
    let dir = TempDir::new().unwrap();
    let wave = |step: u64| ((step as f64 / MANY as f64 * 9.0).sin() * 60_000.0) as i64;
    let mut a = Made::new(dir.path(), 0, 2);
    let clock = HostClock { host: 1, ..HostClock::default() };
    let mut b = Made::on(dir.path(), 1, 2, clock);
    for step in 0..MANY {
        // Within 1 ms of the start there would be no room for an earlier clock.
        let base = 1_000_000 + step * STEP;
        let on_b = |at: u64| at.saturating_add_signed(wave(step));
        let more = step * 7 % 5 * 1_000;
        a.send(base, base + 10, 1, 8);
        b.recv(on_b(base + 100), on_b(base + LATENCY + more), 0, 8);
        b.send(on_b(base + 8_000), on_b(base + 8_010), 0, 8);
        a.recv(base + 8_100, base + 8_000 + LATENCY + more, 1, 8);
    }
    a.finish(2_000_000 + MANY * STEP);
    b.finish(2_000_000 + MANY * STEP);
    let program = open(dir.path()).unwrap();
    let found = profile(&program, 2).unwrap();
    assert_eq!((found.lost.reversed_messages, found.clock_contradiction_ns), (0, 0));
    let host = &found.hosts[1];
    // The clock of b is ahead by the wave, so it is set back by it.
    assert!((host.correction_min_ns + 60_000).abs() < LATENCY as i64, "{host:?}");
    assert!((host.correction_max_ns - 60_000).abs() < LATENCY as i64, "{host:?}");
    assert!(host.residual_ns.unwrap() <= 2 * LATENCY as i64, "{host:?}");
    // Computed again, not read.
    std::fs::remove_file(dir.path().join("clocks.json")).unwrap();
    let clocks = program::clocks(&program, 1).unwrap();
    assert_eq!(clocks.corrections, found.hosts, "the same clocks without a profile");
    let mut step = 0;
    program::stream(&program, 1, &clocks, |moment, _| {
        let program::What::Call(call) = &moment.what else { return };
        if call.signature.call == mpi_abi::Call::Send {
            let truth = (START + 1_000_000 + step * STEP + 8_000) as i64;
            assert!((moment.begin - truth).abs() <= host.residual_ns.unwrap(), "step {step}");
            step += 1;
        }
    })
    .unwrap();
    assert_eq!(step, MANY);
}

/// Two hosts whose clocks need a correction.
fn skewed() -> TempDir {
    measured_as(40_000, -25_000)
}

/// The same messages with other measurements at init and finalize.
fn measured_as(start: i64, end: i64) -> TempDir {
    let measured = Some((start, end));
    exchange(&[HostClock::default(), HostClock { host: 1, measured, ..HostClock::default() }])
}

fn json(dir: &TempDir) -> String {
    serde_json::to_string(&profile(&open(dir.path()).unwrap(), 2).unwrap()).unwrap()
}

#[test]
fn stored_clocks_give_the_same_bytes() {
    let dir = skewed();
    let path = dir.path().join("clocks.json");
    let computed = json(&dir);
    assert!(path.exists());
    assert_eq!(json(&dir), computed);
    // Clocks alone store the same.
    let first = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    program::clocks(&open(dir.path()).unwrap(), 1).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), first);
    // It is really used: what it says is what is reported.
    let mut stored: serde_json::Value = serde_json::from_slice(&first).unwrap();
    stored["clocks"]["corrections"][1]["residual_ns"] = 123_456.into();
    std::fs::write(&path, stored.to_string()).unwrap();
    assert!(json(&dir).contains("123456"));
    // Nothing else was left behind.
    let names = std::fs::read_dir(dir.path()).unwrap();
    assert_eq!(names.count(), 3);
}

#[test]
fn stored_clocks_of_other_data_are_not_used() {
    let dir = skewed();
    let path = dir.path().join("clocks.json");
    let computed = json(&dir);
    let good: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let spoil = |keys: &[&str], value: serde_json::Value| {
        let mut stored = good.clone();
        stored["clocks"]["corrections"][1]["residual_ns"] = 123_456.into();
        let mut place = &mut stored;
        for key in keys {
            place = match key.parse::<usize>() {
                Ok(index) => &mut place[index],
                Err(_) => &mut place[*key],
            };
        }
        *place = value;
        std::fs::write(&path, stored.to_string()).unwrap();
        assert_eq!(json(&dir), computed, "{keys:?}");
    };
    spoil(&["version"], 0.into());
    spoil(&["release"], "0.0.0".into());
    spoil(&["run"], "2b".into());
    spoil(&["size"], 3.into());
    spoil(&["files", "0", "bytes"], 1.into());
    spoil(&["files", "1", "events"], 1.into());
    spoil(&["clocks", "hosts"], serde_json::json!([]));
    spoil(&["clocks", "hosts", "1", "knots", "0"], i64::MAX.into());
    spoil(&["clocks", "hosts", "1", "knots"], vec![0; 1 << 12].into());
    spoil(&["clocks", "hosts", "1", "per_ns"], 1e300.into());
    spoil(&["clocks", "hosts", "1", "start"], 1.into());
    for base in ["at", "offset", "slope", "uncertain"] {
        spoil(&["clocks", "hosts", "1", base], 1.into());
    }
    spoil(&["clocks", "corrections", "1", "offset_start_ns"], 1.into());
    spoil(&["clocks", "grid", "1"], (1 << 20).into());
    spoil(&["clocks", "cells"], 0.into());
    let end = good["clocks"]["span"][1].as_i64().unwrap();
    spoil(&["clocks", "span", "1"], (end + 1).into());
    std::fs::write(&path, "not JSON").unwrap();
    assert_eq!(json(&dir), computed);
    // Longer than that of any two hosts.
    let mut stored = good.clone();
    stored["clocks"]["corrections"][1]["residual_ns"] = 123_456.into();
    std::fs::write(&path, " ".repeat(1 << 20) + &stored.to_string()).unwrap();
    assert_eq!(json(&dir), computed);
    // Opening it would wait for a writer.
    std::fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert_eq!(json(&dir), computed);
}

#[test]
fn stored_clocks_are_used_with_the_measurements_that_they_correct() {
    let (first, second) = (skewed(), measured_as(41_000, -25_000));
    let computed = json(&second);
    json(&first);
    // Numbers of the run, its files and their events are the same.
    let path = |dir: &TempDir| dir.path().join("clocks.json");
    let files = |dir: &TempDir| {
        let text = std::fs::read(path(dir)).unwrap();
        let stored: serde_json::Value = serde_json::from_slice(&text).unwrap();
        (stored["run"].clone(), stored["files"].clone())
    };
    assert_eq!(files(&first), files(&second));
    std::fs::copy(path(&first), path(&second)).unwrap();
    assert_eq!(json(&second), computed);
}

#[test]
fn clocks_of_damaged_files_are_not_stored() {
    let dir = skewed();
    let rank = dir.path().join("rank-1.mpi");
    let path = dir.path().join("clocks.json");
    let good = std::fs::read(&rank).unwrap();
    // A chunk with a wrong byte, and one that is gone, which only the number of events shows.
    let mut wrong = good.clone();
    wrong[mpi_abi::HEADER + mpi_abi::CHUNK_HEADER + 500] ^= 0x55;
    let mut gone = good.clone();
    gone[mpi_abi::HEADER..].fill(0);
    for damaged in [wrong, gone] {
        std::fs::write(&rank, damaged).unwrap();
        let found = profile(&open(dir.path()).unwrap(), 1).unwrap();
        assert!(found.lost.events > 0);
        assert!(!path.exists());
    }
    std::fs::write(&rank, good).unwrap();
    assert_eq!(json(&dir), json(&skewed()));
    assert!(path.exists());
}

#[test]
fn an_import_with_another_clock_difference_is_another_run() {
    let dir = TempDir::new().unwrap();
    let (text, out) = (dir.path().join("text"), dir.path().join("out"));
    std::fs::create_dir(&text).unwrap();
    let offset = |us: u32| {
        for rank in 0..2 {
            let lines = format!(
                "# host: n{rank}\n# clockdiff: {}\nMPI_Init:-:0:0:1000\n\
                 MPI_Barrier:1003:91,{rank},2:1004\nMPI_Finalize:1010:-\n",
                us * rank
            );
            std::fs::write(text.join(format!("trace-{rank}.txt")), lines).unwrap();
            let _ = std::fs::remove_file(out.join(format!("rank-{rank}.mpi")));
        }
        program::import(&text, &out, program::Accept::default()).unwrap();
        let program = open(&out).unwrap();
        let profile = profile(&program, 1).unwrap();
        assert!(out.join("clocks.json").exists());
        (program.run, profile.hosts[1].offset_start_ns)
    };
    let (first, second, third) = (offset(10), offset(90), offset(10));
    assert_eq!((first.1, second.1), (-10_000, -90_000));
    assert!(first == third && first.0 != second.0);
}
