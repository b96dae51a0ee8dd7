//! `detour tail`, `simulate --tail` and `record --for-ranks` as a user calls them.

mod command;

use std::{fs, path::PathBuf};

use command::{refused, stdout};
use serde_json::Value;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/two-cpus.detour");

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(arguments)).expect("JSON")
}

#[test]
fn every_source_has_a_kind_and_what_goes_with_it() {
    let tails = json(&["tail", DEMO, "--json"]);
    let watched = tails["watched_s"].as_f64().unwrap();
    assert_eq!(tails["ahead_s"].as_f64().unwrap(), 10.0 * watched);
    let unseen = tails["unseen_below_hz"].as_f64().unwrap();
    assert!((unseen * watched - 2.9957).abs() < 1e-3, "{unseen}");
    let sources = tails["sources"].as_array().unwrap();
    assert!(sources.len() > 5);
    for source in sources {
        let (kind, count) = (source["kind"].as_str().unwrap(), source["count"].as_u64().unwrap());
        assert_eq!(kind == "few", count < 30, "{source}");
        assert_eq!(kind == "heavy", source["fit"].is_object(), "{source}");
        assert_eq!(kind == "bounded", source["cap_us"].is_number(), "{source}");
        assert_eq!(kind == "few", source["expected"].is_null(), "{source}");
        assert!(source["below_hz"].as_f64().unwrap() * watched > count as f64);
    }
}

/// The longest of all is the longest of any source, whatever is ahead.
#[test]
fn what_is_expected_of_all_is_never_less_than_of_a_source() {
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/demo.detour");
    for recording in [DEMO, demo] {
        for ahead in [&[][..], &["--for", "1m"], &["--for", "1h", "--ranks", "4Ki"]] {
            let tails = json(&[&["tail", recording, "--json"], ahead].concat());
            let bounds = |tail: &Value| {
                let expected = &tail["expected"];
                [&expected["median_us"], &expected["ci95_us"][0], &expected["ci95_us"][1]]
                    .map(|us| us.as_f64().unwrap())
            };
            let all = bounds(&tails["all"]);
            assert!(all[1] <= all[0] && all[0] <= all[2], "{all:?}");
            let sources = tails["sources"].as_array().unwrap();
            let known: Vec<&Value> =
                sources.iter().filter(|of| !of["expected"].is_null()).collect();
            assert!(known.len() > 2, "{recording}");
            for source in known {
                let own = bounds(source);
                assert!(
                    (0..3).all(|at| own[at] <= all[at]),
                    "{recording} {ahead:?}: {source} {all:?}"
                );
            }
        }
    }
}

/// The check predicts with the tails of the sources, too: the lower and the upper bound are those of the tenths.
#[test]
fn a_recording_with_sources_is_checked() {
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/demo.detour");
    let tails = json(&["tail", demo, "--check", "--json"]);
    let lanes = tails["check"]["lanes"].as_array().unwrap();
    assert!(!lanes.is_empty());
    for lane in lanes {
        let expected = &lane["expected"];
        let us = |value: &Value| value.as_f64().unwrap();
        assert!(us(&expected["ci95_us"][0]) <= us(&expected["median_us"]), "{lane}");
        assert!(us(&expected["median_us"]) <= us(&expected["ci95_us"][1]), "{lane}");
    }
}

#[test]
fn more_time_has_longer_detours() {
    let upper = |arguments: &[&str]| {
        let tails = json(&[&["tail", DEMO, "--json"], arguments].concat());
        let bounds = tails["all"]["expected"]["ci95_us"].clone();
        (
            bounds[0].as_f64().unwrap(),
            bounds[1].as_f64().unwrap(),
            tails["ahead_s"].as_f64().unwrap(),
        )
    };
    let (_, minute, _) = upper(&["--for", "1m"]);
    let (lower, hours, ahead_s) = upper(&["--for", "1h", "--ranks", "64Ki"]);
    assert_eq!(ahead_s, 3600.0 * 65_536.0);
    assert!(lower > 0.0 && hours > minute, "{minute} {hours}");
}

/// An hour of exponential lengths: the longest of the rest is known to be near 10 us times ln n.
#[test]
fn the_first_tenth_predicts_the_rest() {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("exponential-hour.txt");
    let mut text = String::from("# Selfish Benchmark\n");
    let mut state = 1u64;
    for second in 0..36_000u64 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        text += &format!("{}.0\t{:.1}\n", second * 100_000_000, 1_000.0 - 10_000.0 * uniform.ln());
    }
    text += "# Measurement period: 3600\n";
    fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let tails = json(&["tail", &file, "--check", "--json"]);
    assert_eq!(tails["sources"], Value::Array(Vec::new()));
    let check = &tails["check"];
    assert_eq!(check["lanes"].as_array().unwrap().len(), 1);
    assert_eq!(check["covered_pct"], 100.0);
    assert!(check["width"].as_f64().unwrap() < 8.0, "{check}");
    let words = stdout(&["tail", &file, "--check"]);
    assert!(words.contains("covered") && words.contains("Resampling falls short"), "{words}");
}

#[test]
fn a_simulation_says_what_its_noise_rests_on() {
    let sweep = [
        "simulate",
        "collective",
        "-q",
        "--noise",
        DEMO,
        "--repeat-trace",
        "--ranks",
        "16",
        "--runs",
        "5",
    ];
    assert!(json(&[&sweep[..], &["--json"]].concat())["tails"].is_null());
    let with = json(&[&sweep[..], &["--tail", "--json"]].concat());
    let tail = &with["tails"][0];
    let share = |key: &str| tail[key].as_f64().unwrap();
    assert!((share("data_pct") + share("tail_pct") + share("bounded_pct") - 100.0).abs() < 1e-6);
    assert!(share("copies") > 1.0, "{tail}");
    assert!(with["remarks"].to_string().contains("fitted tails"), "{with}");
    refused(&["simulate", "collective", "--tail"], &["--tail requires a recording"]);
}

/// What-if and diff say it as well; without tails nothing changes.
#[test]
fn gains_and_comparisons_rest_on_tails_if_asked_to() {
    let job = ["--ranks", "64", "--runs", "3", "-q", "--json"];
    let whatif = |more: &[&str]| json(&[&["whatif", DEMO][..], &job, more].concat());
    assert!(whatif(&[])["tail"].is_null());
    let with = whatif(&["--tail"]);
    let share = |key: &str| with["tail"][key].as_f64().unwrap();
    assert!((share("data_pct") + share("tail_pct") + share("bounded_pct") - 100.0).abs() < 1e-6);
    assert!(share("copies") > 1.0 && share("longest_us") >= share("longest_recorded_us"));
    assert!(with["remarks"].to_string().contains("fitted tails"), "{}", with["remarks"]);
    let diff = json(&[&["diff", DEMO, DEMO][..], &job, &["--tail"]].concat());
    let remarks = diff["projected"]["remarks"].to_string();
    assert_eq!(remarks.matches("fitted tails").count(), 2, "{remarks}");
    // A recording with itself, extended alike.
    assert_eq!(diff["projected"]["change_pct"], 0.0);
    refused(&["whatif", DEMO, "--tail", "--shift", "0"], &["--tail cannot be used with --shift"]);
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    refused(&["tail", DEMO, "--ranks", "64"], &["--for <TIME>"]);
    refused(&["tail", "no-such-file"], &["cannot open no-such-file"]);
    refused(&["record", "--for-ranks", "64", "-d", "5s"], &["--for-ranks", "--duration"]);
    refused(&["record", "--interval", "1ms"], &["--for-ranks"]);
    refused(&["record", "--for-ranks", "64", "--interval", "0s"], &["out of range"]);
    refused(
        &["record", "--for-ranks", "2^50", "-o", "never.detour"],
        &["more than a year", "detour merge", "detour tail"],
    );
}
