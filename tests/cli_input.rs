//! What commands report about their input files: every command that reads a recording reports damage,
//! none overwrites one, and what cannot be compared is not compared.

mod command;
mod made;

use std::fs;

use command::{detour, refused, stdout};
use made::{DAEMON, TICK, recording, scratch};
use trace::{Mode, Overwrite, Reader, SourceId, Writer};

/// A recording with one byte changed in a block of events.
fn damaged(name: &str) -> String {
    let path = recording(name, Mode::Attributed, 2, 20, &[TICK, DAEMON]);
    let blocks = Reader::open(&path).expect("a trace").block_infos().len();
    assert!(blocks > 0);
    let mut bytes = fs::read(&path).expect("the file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    fs::write(&path, bytes).expect("written");
    path
}

/// A recording whose writer failed after the first seconds.
fn half_written(name: &str) -> String {
    written_to(name, 5_000_000_000)
}

/// The same with the time up to which everything was written.
fn written_to(name: &str, written_ns: u64) -> String {
    let whole = recording(&format!("whole-{name}"), Mode::Attributed, 2, 20, &[TICK, DAEMON]);
    let whole = Reader::open(&whole).expect("a trace");
    let path = scratch(name);
    let created = Writer::create(&path, Overwrite::Yes, whole.manifest());
    let mut writer = created.expect("created");
    for (id, source) in (0..).zip(whole.sources()) {
        writer.add_source(SourceId(id), source).expect("added");
    }
    for block in whole.blocks() {
        let mut block = block.expect("a block");
        block.detours.retain(|detour| detour.start_ns + detour.len_ns <= written_ns);
        block.records.retain(|record| record.start_ns + record.gross_ns <= written_ns);
        if !block.detours.is_empty() {
            writer.write_block(&block).expect("written");
        }
    }
    let mut trailer = whole.trailer().expect("a trailer").clone();
    for totals in &mut trailer.lanes {
        totals.to_ns = written_ns;
    }
    trailer.lost.unwritten = 4_321;
    trailer.cut_off = Some("cannot write it: No space left on device".into());
    writer.finish(trailer).expect("finished");
    path.display().to_string()
}

fn json(arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&stdout(arguments)).expect("JSON")
}

fn said(arguments: &[&str]) -> String {
    let output = detour(arguments).output().expect("ran");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {text}");
    text
}

#[test]
fn every_command_tells_that_a_recording_is_damaged() {
    let whole = recording("input-whole.detour", Mode::Attributed, 2, 20, &[TICK, DAEMON]);
    let csv = scratch("input-damaged.csv").display().to_string();
    for (broken, why) in [
        (damaged("input-damaged.detour"), "1 damaged block skipped"),
        (
            half_written("input-half.detour"),
            "a write failed, and nothing after that is in the file",
        ),
    ] {
        for arguments in [
            &["simulate", "collective", "--ranks", "4", "--runs", "2", "-q", "--noise", &broken][..],
            &["export", &broken, "--to", "csv", "-o", &csv],
        ] {
            let told = said(arguments);
            assert!(told.contains(&format!("is incomplete: {why}")), "{told}");
        }
        // Shards say it, and so does their merged result.
        let shard = scratch("input-shard.json").display().to_string();
        let short = ["simulate", "collective", "--ranks", "4", "--runs", "2", "-q"];
        let told =
            said(&[&short[..], &["--noise", &broken, "--shard", "1/1", "-o", &shard]].concat());
        assert!(told.contains(&format!("is incomplete: {why}")), "{told}");
        assert!(said(&["merge", &shard]).contains(&format!("is incomplete: {why}")));
        let whatif = stdout(&["whatif", &broken, "--ranks", "4", "--runs", "2", "-q"]);
        let whatif = whatif.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(whatif.contains(&format!("is incomplete: {why}")), "{whatif}");
        let report = stdout(&["report", &broken]).replace('\n', " ");
        assert!(report.contains(&format!("This recording is incomplete: {why}")), "{report}");
        let report = json(&["report", &broken, "--json"]);
        let truncated = report["truncated"].as_str();
        assert!(truncated.is_some_and(|said| said.contains(why)), "{truncated:?}");
        let diff = stdout(&["diff", &whole, &broken, "--ranks", "4", "--runs", "2", "-q"]);
        let said = "The recording after or part of it is truncated or damaged";
        assert!(diff.contains(said), "{diff}");
    }
    let told = said(&["export", &whole, "--to", "csv", "-o", &csv]);
    assert!(!told.contains("incomplete"), "{told}");
}

#[test]
fn noise_does_not_vanish_because_nothing_of_it_was_written() {
    let whole = recording("input-some.detour", Mode::Attributed, 2, 20, &[TICK, DAEMON]);
    let nothing = written_to("input-nothing.detour", 0);
    let why = "input-nothing.detour has zero duration: a write failed";
    refused(&["diff", &whole, &nothing, "--ranks", "4", "--runs", "2", "-q"], &[why]);
    refused(&["whatif", &nothing, "--ranks", "4", "--runs", "2", "-q"], &[why]);
    let simulate = ["simulate", "collective", "--ranks", "4", "--runs", "2", "-q", "--noise"];
    refused(&[&simulate[..], &[&nothing]].concat(), &[why]);
    assert!(stdout(&["report", &nothing]).contains("this recording is empty"));
}

#[test]
fn a_recording_that_could_not_be_written_on_has_the_rates_of_what_was_written() {
    let whole = recording("input-rates.detour", Mode::Attributed, 2, 20, &[TICK, DAEMON]);
    let half = half_written("input-rates-half.detour");
    let noise =
        |path: &str| json(&["report", path, "--json"])["noise_pct"].as_f64().expect("a share");
    let (whole_pct, half_pct) = (noise(&whole), noise(&half));
    assert!((half_pct / whole_pct - 1.0).abs() < 0.1, "{whole_pct} % and {half_pct} %");
    let report = stdout(&["report", &half]).replace('\n', " ");
    assert!(report.contains("4321 events not written"), "{report}");
}

/// The job of the report may be longer than a short recording, or than a noisy one allows.
#[test]
fn recordings_too_short_for_the_job_are_compared_without_it() {
    let short = recording("input-short.detour", Mode::Attributed, 2, 2, &[TICK, DAEMON]);
    let long = ["--ranks", "4", "--runs", "2", "--compute", "1s", "--iterations", "5", "-q"];
    let diff = json(&[&["diff", &short, &short, "--json"], &long[..]].concat());
    assert!(diff["projected"].is_null(), "{diff}");
    let why = diff["not_projected"].as_str().expect("a reason");
    assert!(why.contains("longer than the noise trace"), "{why}");
    let text = stdout(&[&["diff", &short, &short], &long[..]].concat()).replace("\n    ", " ");
    assert!(text.contains("No projection: cannot simulate the noise of"), "{text}");
    assert!(text.starts_with("Noise took"), "{text}");
}

#[test]
fn nothing_but_a_recording_goes_over_a_recording() {
    let path = recording("input-kept.detour", Mode::Attributed, 1, 2, &[TICK]);
    let before = fs::read(&path).expect("the file");
    for arguments in [
        &["export", &path, "--to", "csv", "-o", &path][..],
        &["report", &path, "--no-projection", "--html", &path],
        &[
            "simulate",
            "collective",
            "--ranks",
            "4",
            "--runs",
            "2",
            "--noise",
            &path,
            "--csv",
            &path,
        ],
    ] {
        refused(arguments, &["refusing to overwrite the recording"]);
    }
    assert!(fs::read(&path).expect("the file") == before, "it was overwritten");
    let csv = scratch("input-kept.csv").display().to_string();
    said(&["export", &path, "--to", "csv", "-o", &csv]);
    let before = fs::read(&csv).expect("the file");
    refused(&["import", &csv, "-o", &csv], &["refusing to overwrite"]);
    assert!(fs::read(&csv).expect("the file") == before, "it was overwritten");
}

#[test]
fn a_recording_has_no_runs_to_pick_from() {
    let path = recording("input-runs.detour", Mode::Attributed, 1, 2, &[TICK]);
    refused(&["report", &format!("{path}#2")], &["no runs to select"]);
}

#[test]
fn recordings_with_and_without_names_are_not_compared() {
    let named = recording("input-named.detour", Mode::Attributed, 1, 2, &[TICK]);
    let nameless = recording("input-nameless.detour", Mode::ProbeOnly, 1, 2, &[TICK]);
    refused(&["diff", &named, &nameless], &["recorded in different modes"]);
}

/// Long detours outside the kernel are named by the evidence in each recording, with spaces in the
/// table. Scripts use one name for all of them.
#[test]
fn sources_answer_to_the_names_of_the_table() {
    let path = recording("input-names.detour", Mode::Attributed, 1, 2, &[TICK]);
    let probe = recording("input-probe.detour", Mode::ProbeOnly, 1, 2, &[TICK]);
    for (path, name) in [
        (&path, "hypervisor or SMI"),
        (&path, "hypervisor_or_smi"),
        (&path, "hypervisor"),
        (&path, "SMI"),
        (&path, "unexplained"),
        (&probe, "unattributed_long"),
    ] {
        said(&[
            "simulate",
            "collective",
            "--ranks",
            "4",
            "--runs",
            "2",
            "-q",
            "--noise",
            path,
            "--without",
            name,
        ]);
    }
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_the_work() {
    let noise = recording("input-early.detour", Mode::Attributed, 1, 2, &[TICK]);
    // Hours of work, if it started.
    let runs = ["--runs", "100000000", "-q"];
    let collective = ["simulate", "collective", "--ranks", "1048576", "--noise", &noise];
    for (option, expected) in [
        (&["--csv", "no/such/directory/file"][..], "cannot create no/such/directory/file"),
        (&["--times", "no/such/directory/file"], "cannot create no/such/directory/file"),
        (&["--shard", "1/2", "-o", "no/such/file"], "cannot create no/such/file"),
        (&["--csv", "."], "a directory"),
    ] {
        refused(&[&collective[..], &runs[..], option].concat(), &[expected]);
    }
}

#[test]
fn who_cannot_be_told_is_no_reason_to_fail() {
    let damaged = damaged("input-untold.detour");
    let nowhere = fs::File::options().write(true).open("/dev/full").expect("a full device");
    let mut export = std::process::Command::new(env!("CARGO_BIN_EXE_detour"));
    export.args(["export", &damaged, "--to", "csv"]).stderr(nowhere);
    let output = export.output().expect("ran");
    assert!(output.status.success() && !output.stdout.is_empty(), "{:?}", output.status);
}

#[test]
fn what_one_recording_could_not_see_is_said() {
    let file = |name: &str, threshold: u64, shortest: u64| {
        let detours: Vec<String> =
            (1..=1000).map(|i| format!("[{},{}]", i * 1_000_000, shortest + i % 7)).collect();
        let path = scratch(name);
        let text = format!(
            "{{\"runs\":[{{\"threshold_ns\":{threshold},\"span_ns\":1001000000,\"detours\":[{}]}}]}}",
            detours.join(",")
        );
        fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let (fine, coarse) = (file("fine.json", 120, 500), file("coarse.json", 2_000, 2_500));
    let simulation = ["--ranks", "4", "--runs", "2", "-q"];
    let note = "only detours of 2.00 us or longer, which both recorded";
    let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let apart = words(stdout(&[&["diff", &fine, &coarse][..], &simulation].concat()));
    assert!(apart.contains(note), "{apart}");
    let alike = words(stdout(&[&["diff", &fine, &fine][..], &simulation].concat()));
    assert!(!alike.contains("which both recorded"), "{alike}");
}

fn written(name: &str, content: &str) -> String {
    let path = scratch(name);
    fs::write(&path, content).expect("written");
    path.to_str().expect("text").to_owned()
}

#[test]
fn a_lenient_import_fails_when_most_lines_were_left_out() {
    let rows = |good: usize, bad: usize| {
        let good: String = (0..good).map(|i| format!("{}\t50\n", 1_000 * (i + 1))).collect();
        good + &"not a row\n".repeat(bad)
    };
    let output = scratch("lenient.detour");
    let import = |good, bad| {
        let file = written("lenient.txt", &rows(good, bad));
        let output = output.to_str().expect("text");
        let _ = fs::remove_file(output);
        detour(&["import", &file, "--lenient", "-o", output]).output().expect("ran")
    };
    let told = |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    for (good, bad) in [(1, 2), (1, 831_999), (100, 101)] {
        let failed = import(good, bad);
        assert_eq!(failed.status.code(), Some(1), "{good} {bad}");
        assert!(failed.stdout.is_empty() && !output.exists());
        let counts = format!("{bad} of {} lines", good + bad);
        assert!(told(&failed).contains(&counts), "{}", told(&failed));
    }
    let warned = import(100, 100);
    assert!(warned.status.success() && output.exists());
    assert!(told(&warned).contains("warning: skipped 100 of 200 lines"), "{}", told(&warned));
    let clean = import(3, 0);
    assert!(clean.status.success() && told(&clean).is_empty(), "{}", told(&clean));
}

#[test]
fn import_shows_the_threshold_and_remarks_on_an_unusual_t_min() {
    let file = |name: &str, t_min: &str| {
        written(
            name,
            &format!(
                "# Selfish Benchmark\n# Minimal cycle length [ns]: {t_min}\n\
             # Threshold: [% minimal cycle length]: 900\n100\t9000\n20000\t9000\n"
            ),
        )
    };
    let usual = stdout(&["import", &file("usual.txt", "28.0")]);
    assert!(usual.contains("t_min 28.0 ns, threshold 252.0 ns"), "{usual}");
    assert!(!usual.contains("unusual"), "{usual}");
    let slow = stdout(&["import", &file("slow.txt", "906.0")]);
    assert!(slow.contains("t_min 906.0 ns, threshold 8154.0 ns"), "{slow}");
    assert!(
        slow.contains("906 ns, unusually long") && slow.contains("8154 ns are not in"),
        "{slow}"
    );
    let value: serde_json::Value =
        serde_json::from_str(&stdout(&["import", "--json", &file("fast.txt", "0.03")]))
            .expect("JSON");
    assert!(value["runs"][0]["remarks"][0].as_str().unwrap().contains("check the unit"), "{value}");
}

/// The time since the clock was started was not watched, and a remark says what was assumed.
#[test]
fn noise_with_times_on_a_running_clock_is_as_loud_as_with_relative_ones() {
    let file = |name: &str, from: u64| {
        let rows = (1..=2_000).map(|i| format!("{},20000\n", from + 1_000_000 * i));
        written(name, &format!("start_ns,length_ns\n{}", rows.collect::<String>()))
    };
    let files = [
        file("relative.csv", 0),
        file("uptime.csv", 300_000_000_000_000),
        file("epoch.csv", 1_763_576_000_000_000_000),
    ];
    for (file, remarks) in files.iter().zip([0, 1, 1]) {
        let read = stdout(&["import", file]);
        assert!(read.contains("2000 detours in ") && read.contains(" 2.00"), "{read}");
        let remark = "begin at the first detour; to give its begin and end, add columns";
        assert_eq!(read.matches(remark).count(), remarks, "{read}");
        let arguments = ["simulate", "collective", "--ranks", "64", "--runs", "6", "--json"];
        let output = detour(&[&arguments[..], &["--noise", file]].concat()).assert().success();
        let output = output.get_output();
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert!(value["points"][0]["max_us"].as_f64() > Some(20.0), "{value}");
        let said = value["remarks"].to_string();
        assert_eq!(said.matches(remark).count(), remarks, "{said}");
    }
}

/// netgauge's one_one benchmark: message size, half a round trip in us.
#[test]
fn round_trips_of_netgauge_are_exchange_times() {
    let head = "# Nodename: nid001009\n# Machine : Linux\n";
    let rows: String = (0..500).map(|i| format!("16\t{}.250000\n", 2 + i % 3)).collect();
    let file = written("round-trips.txt", &format!("{head}{rows}{head}{rows}16"));
    let exchange = ["simulate", "exchange", "--samples", "3000", "--json"];
    let value = |more: &[&str]| -> serde_json::Value {
        let text = stdout(&[&exchange[..], more].concat());
        serde_json::from_str(&text).expect("JSON")
    };
    // The same distribution; each 2.25, 3.25 or 4.25 us.
    let same = value(&["--exchange", &file, "--measured", &file]);
    assert_eq!((same["min_us"].as_f64(), same["max_us"].as_f64()), (Some(2.25), Some(4.25)));
    assert!(same["ks_distance"].as_f64().unwrap() < 0.05, "{same}");
    let apart = value(&["--exchange", "150us", "--measured", &file]);
    assert_eq!(apart["ks_distance"], 1.0);
    // They are not detours, and the error says so even with --lenient.
    for lenient in [&[][..], &["--lenient"]] {
        let arguments = [&["import", &file], lenient].concat();
        refused(&arguments, &["round-trip times", "--exchange"]);
    }
    let several = written("sizes.txt", "1\t2.0\n1\t2.0\n1024\t3.0\n1024\t3.0\n");
    refused(&["simulate", "exchange", "--exchange", &several], &["1, 1024", "FILE#1"]);
    let second = value(&["--exchange", &format!("{several}#2")]);
    assert_eq!(second["mean_us"], 3.0);
    let list = written("round-trips.json", r#"{"half_round_trip_us": [1.5, 1.5]}"#);
    assert_eq!(value(&["--exchange", &list])["mean_us"], 1.5);
}
