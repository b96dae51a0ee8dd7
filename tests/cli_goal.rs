//! `detour goal` and `detour simulate goal` as used by scripts and people: end times per rank, both
//! file formats, and error messages. Runs anywhere, without privileges.

use std::{fs, io::Read, path::PathBuf};

use assert_cmd::Command;
use serde_json::{Value, json};

const NET: &str = "L=1us,o=100ns,g=300ns,G=2ns,O=0,S=1000";

fn detour(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("detour").expect("the binary is built");
    command.args(arguments);
    command
}

fn stdout(arguments: &[&str]) -> Vec<u8> {
    detour(arguments).assert().success().get_output().stdout.clone()
}

fn json(arguments: &[&str]) -> Value {
    let with_json = [arguments, &["--json"]].concat();
    serde_json::from_slice(&stdout(&with_json)).expect("JSON and nothing else")
}

/// The error message of a command, which must exit with code 1.
fn failure(arguments: &[&str]) -> String {
    let assert = detour(arguments).assert().code(1);
    assert!(assert.get_output().stdout.is_empty(), "{arguments:?}");
    String::from_utf8_lossy(&assert.get_output().stderr).into_owned()
}

/// A file in the target's temporary directory; each test uses its own names.
fn scratch(name: &str, content: impl AsRef<[u8]>) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).expect("written");
    path.to_str().expect("text").to_owned()
}

fn absent(name: &str) -> String {
    let path = scratch(name, "");
    fs::remove_file(&path).expect("removed");
    path
}

/// Rank 0 computes and sends, rank 1 receives.
fn message(bytes: u64) -> String {
    format!(
        "num_ranks 2\n\nrank 0 {{\nl1: calc 500\nl2: send {bytes}b to 1 tag 7\nl2 requires l1\n}}\n\
         \nrank 1 {{\nl1: recv {bytes}b from 0 tag 7\n}}\n"
    )
}

#[test]
fn a_message_takes_what_the_closed_form_says_in_either_unit() {
    let file = scratch("message.goal", message(11));
    let value = json(&["simulate", "goal", &file, "--net", NET]);
    // 500 + o, and 500 + o + L + 10 G + o.
    assert_eq!(value["ranks"], json!([600, 1_720]));
    assert_eq!((&value["unit"], &value["max"]), (&json!("ns"), &json!(1_720)));
    assert_eq!((&value["messages"], &value["operations"]), (&json!(1), &json!(3)));
    assert!(value["messages_per_s"].as_f64().is_some_and(|rate| rate > 0.0));
    let value = json(&[
        "simulate",
        "goal",
        &file,
        "--net",
        "L=1us,o=100500ps",
        "--calc-unit",
        "10ps",
        "--unit",
        "ps",
    ]);
    assert_eq!((&value["unit"], &value["ranks"]), (&json!("ps"), &json!([105_500, 1_206_000])));
    let value =
        json(&["simulate", "goal", &file, "--net", "L=1us,o=100500ps", "--calc-unit", "10ps"]);
    assert_eq!(value["ranks"], json!([105.5, 1_206]));
}

#[test]
fn people_read_times_in_the_unit_they_asked_for_too() {
    let file = scratch("told.goal", message(11));
    let own =
        ["simulate", "goal", &file, "--net", NET, "--noise", "periodic:1Hz,1ns", "--runs", "2"];
    let text = |unit: &str| {
        let text = stdout(&[&own[..], &["--unit", unit]].concat());
        String::from_utf8(text).expect("text")
    };
    let ps = text("ps");
    for said in
        ["rank   end ps\n", "   0   600000\n", "the last ends at 1720000 ps", "from 1720000 ps to"]
    {
        assert!(ps.contains(said), "{said}: {ps}");
    }
    assert!(ps.contains("Without noise: 1720000 ps") && !ps.contains(" ns"), "{ps}");
    let ns = text("ns");
    assert!(ns.contains("end ns") && ns.contains("the last ends at 1720 ns"), "{ns}");
}

#[test]
fn a_large_message_ends_at_both_sides_together_or_after_a_handshake() {
    let file = scratch("large.goal", message(1_001));
    let ranks = |more: &[&str]| {
        let own = ["simulate", "goal", &file, "--net", NET];
        json(&[&own[..], more].concat())["ranks"].clone()
    };
    assert_eq!(ranks(&["--rendezvous", "closed-form"]), json!([3_700, 3_700]));
    // 500 + o + L for the request, L for the grant, o + 1000 G to send, L + o to receive.
    assert_eq!(ranks(&["--rendezvous", "handshake"]), json!([4_700, 5_800]));
    assert_eq!(ranks(&[]), json!([4_700, 5_800]));
    assert_eq!(ranks(&["--model", "loggopsim"]), json!([1_600, 3_700]));
    let error =
        failure(&["simulate", "goal", &file, "--model", "loggopsim", "--rendezvous", "handshake"]);
    assert!(error.contains("omit one of them"), "{error}");
}

/// LogGOPSim's own results, all with noise and some without, through files and options only.
#[test]
fn the_peers_answers_come_out_of_the_command() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/goal/loggopsim-cases.json.gz");
    let mut text = String::new();
    let file = fs::File::open(path).expect("the cases");
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("text");
    let cases: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    let mut told = 0;
    for (index, case) in cases.iter().enumerate() {
        let noisy = case["noise"].is_object();
        if !noisy && index % 50 != 0 {
            continue;
        }
        told += 1;
        let unit = case["time_unit_ps"].as_i64().unwrap();
        let goal = scratch("case.goal", case["goal_text"].as_str().unwrap());
        let param = |name: &str| case["params"][name].as_i64().unwrap();
        let net: Vec<_> =
            ["L", "o", "g", "G", "O"].map(|name| format!("{name}={}ps", param(name) * unit)).into();
        let net = format!("{},S={}", net.join(","), param("S"));
        let calc_unit = format!("{unit}ps");
        let mut arguments = vec![
            "simulate",
            "goal",
            &goal,
            "--model",
            "loggopsim",
            "--unit",
            "ps",
            "--calc-unit",
            &calc_unit,
            "--net",
            &net,
        ];
        let (mut trace, mut offsets) = (String::new(), String::new());
        if noisy {
            let rows = case["noise"]["trace_ns"].as_array().unwrap();
            let rows: Vec<_> = rows.iter().map(|row| format!("{}\t{}", row[0], row[1])).collect();
            trace = scratch("case.noise", rows.join("\n"));
            offsets = scratch("case.offsets", case["noise"]["rank_offsets_ns"].to_string());
        }
        if noisy {
            arguments.extend(["--noise", &trace, "--offsets", &offsets]);
        }
        let value = json(&arguments);
        let ends = case["end_times_ns"].as_array().unwrap().iter();
        let expected: Vec<_> = ends.map(|end| end.as_i64().unwrap() * unit).collect();
        assert_eq!(value["ranks"], json!(expected), "{}", case["name"]);
        assert_eq!(value["noise_model"], "loggopsim");
    }
    assert_eq!(told, 54);
}

#[test]
fn a_collective_written_out_takes_as_long_as_the_collective() {
    let noise = ["--noise", "periodic:1000Hz,100us", "--net", "xt4", "--seed", "5", "--runs", "7"];
    for (op, more) in [
        ("allreduce", &["--iterations", "3", "--compute", "10us"][..]),
        ("reduce", &["--size", "1kB", "--reduction", "3ns"]),
        ("alltoall", &["--algorithm", "linear"]),
        ("bcast,barrier", &["--map", "bcast=chain"]),
        ("allreduce", &["--graph", "peer"]),
    ] {
        let job = [&["--op", op, "--ranks", "24"][..], more].concat();
        let point =
            json(&[&["simulate", "collective"][..], &job, &noise].concat())["points"][0].clone();
        let us = |value: &Value, key: &str| value[key].as_f64().unwrap();
        for form in ["text", "binary"] {
            let file = absent("gen.goal");
            let generate = ["goal", "gen", "--to", form, "-o", &file];
            stdout(&[&generate[..], &job].concat());
            let value = json(&[&["simulate", "goal", &file][..], &noise].concat());
            for (whole, single) in [
                ("noiseless_us", "noiseless"),
                ("max_us", "max_of_runs"),
                ("min_us", "min_of_runs"),
            ] {
                let (whole, single) = (us(&point, whole), us(&value, single) / 1e3);
                assert!((whole - single).abs() < 1e-6, "{op} {form}: {whole} {single}");
            }
            assert_eq!(value["messages"], point["messages"]);
        }
    }
}

#[test]
fn where_nothing_is_to_blame_it_is_not_less_than_nothing() {
    let file = scratch("silent.goal", message(11));
    let text = stdout(&["simulate", "goal", &file, "--blame", "--json"]);
    let text = String::from_utf8(text).expect("text");
    assert!(text.contains("\"on_path_us\":0.0") && !text.contains("-0.0"), "{text}");
}

#[test]
fn the_seed_decides_and_threads_do_not() {
    let file = absent("threads.goal");
    stdout(&["goal", "gen", "--op", "allreduce", "--ranks", "100", "-o", &file]);
    let runs = |more: &[&str]| {
        let own = ["simulate", "goal", &file, "--noise", "periodic:1000Hz,100us", "--runs", "9"];
        let mut value = json(&[&own[..], more].concat());
        value.as_object_mut().unwrap().remove("messages_per_s");
        value
    };
    let one = runs(&["-j", "1"]);
    assert_eq!(one, runs(&["-j", "3"]));
    assert_eq!(one["max_per_run"].as_array().map(Vec::len), Some(9));
    assert_eq!(one["max_per_run"][0], one["max"]);
    assert_ne!(one["ranks"], runs(&["--seed", "2"])["ranks"]);
}

#[test]
fn offsets_say_which_rank_meets_the_detour() {
    let goal = "num_ranks 2\nrank 0 {\nl1: calc 1000\n}\nrank 1 {\nl1: calc 1000\n}\n";
    let goal = scratch("offsets.goal", goal);
    let noise = scratch("offsets.noise", "500\t70\n100000\t1\n");
    let with = |offsets: &str| {
        let offsets = scratch("offsets.json", offsets);
        detour(&["simulate", "goal", &goal, "--noise", &noise, "--offsets", &offsets, "--json"])
    };
    let ranks = |offsets: &str| {
        let output = with(offsets).assert().success().get_output().stdout.clone();
        serde_json::from_slice::<Value>(&output).expect("JSON")["ranks"].clone()
    };
    assert_eq!(ranks("[0, 600]"), json!([1_070, 1_000]));
    assert_eq!(ranks("[600, 520.5]"), json!([1_000, 1_049.5]));
    for (offsets, said) in [
        ("[0]", "1 offsets for 2 ranks"),
        ("[0, 1, 2]", "3 offsets for 2 ranks"),
        ("{\"a\": 1}", "not a JSON array of numbers"),
        ("[0, \"x\"]", "not a JSON array of numbers"),
        ("[0, 1e300]", "offset of rank 1"),
    ] {
        let assert = with(offsets).assert().code(1);
        let stderr = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
        assert!(stderr.contains(said) && stderr.contains("offsets.json"), "{offsets}: {stderr}");
    }
}

#[test]
fn the_peers_rules_take_periodic_noise_in_a_model_that_has_it() {
    let goal = "num_ranks 1\nrank 0 {\nl1: calc 1000000\n}\n";
    let goal = scratch("periodic.goal", goal);
    let periodic = ["--model", "loggopsim", "--noise", "periodic:10kHz,10us"];
    let own = [&["simulate", "goal", &goal][..], &periodic].concat();
    let error = failure(&own);
    assert!(error.contains("requires a trace, not periodic noise"), "{error}");
    assert!(error.contains("use --noise-model preempt") && !error.contains("record"), "{error}");
    let value = json(&[&own[..], &["--noise-model", "preempt"]].concat());
    assert!(value["max"].as_f64().is_some_and(|ns| ns > 1.1e6), "{value}");
}

#[test]
fn a_mistake_in_a_text_is_found_by_file_line_and_column() {
    let two =
        |line: &str| format!("num_ranks 2\nrank 0 {{\nl1: calc 1\n{line}\n}}\nrank 1 {{\n}}\n");
    for (text, said) in [
        (two("l2: send 8 to 1"), "line 4, column 12: expected `b`, found \"to 1\""),
        (
            two("l2: send 8b to 2"),
            "line 4, column 16: rank 0, operation 1 (l2): rank 2 does not exist (2 ranks, from 0)",
        ),
        (two("l2: recv 8b from 7"), "rank 7 does not exist"),
        (two("l2: sned 8b to 1"), "line 4, column 5: expected `send`, `recv` or `calc`"),
        (two("l2 requires l1"), "line 4, column 1: undefined label l2"),
        (two("l1: calc 3"), "line 4, column 1: duplicate label l1"),
        (two("l2: calc 3 nic 1"), "line 4, column 12: expected `cpu` or end of line"),
        (two("l2: send 8b to 1 cpu 256"), "a cpu must be at most 255"),
        (two("l2: calc -4"), "line 4, column 10: a time must not be negative"),
        (
            two("l2: calc 5.5"),
            "line 4, column 10: expected a whole number, found \"5.5\" (a calc is",
        ),
        (two("l2: calc 99999999999999999999"), "line 4, column 10: a time is too large"),
        (two("rank 1 {"), "line 4"),
        ("num_ranks 0\n".to_owned(), "line 1"),
        ("num_ranks 0x2\n".to_owned(), "column 11: expected a whole number, found \"0x2\""),
        ("num_ranks 2\nrank 0 {\n}\n".to_owned(), "rank 1 is missing"),
        ("num_ranks 2\nrank 1 {\n}\n".to_owned(), "expected rank 0"),
        // Ranks that are only declared take no memory.
        ("num_ranks 2147483646\nrank 0 {\nl1: send 1b to 1\n}\n".to_owned(), "rank 1 is missing"),
        ("num_ranks 1\nrank 0 {\n".to_owned(), "missing `}`"),
        (String::new(), "the file is empty"),
        ("hello\n".to_owned(), "`num_ranks 4`"),
        ("num_ranks 99999999999\n".to_owned(), "the number of ranks must be at most"),
    ] {
        let file = scratch("mistake.goal", &text);
        for command in [&["simulate", "goal"][..], &["goal", "check"], &["goal", "stats"]] {
            let error = failure(&[command, &[&file]].concat());
            assert!(error.contains("mistake.goal: line "), "{text}: {error}");
            assert!(error.contains(said), "{text}: {error}");
        }
    }
    let error = failure(&["simulate", "goal", &absent("nowhere.goal")]);
    assert!(error.contains("cannot open") && error.contains("nowhere.goal"), "{error}");
}

#[test]
fn a_damaged_binary_is_refused_with_the_byte() {
    let text = scratch("whole.goal", message(8));
    let bytes = stdout(&["goal", "convert", &text]);
    for length in [2, 9, 20, 60, bytes.len() - 1] {
        let file = scratch("cut.bin", &bytes[..length]);
        let error = failure(&["simulate", "goal", &file]);
        assert!(error.contains("cut.bin: byte ") && error.contains("end of file"), "{error}");
    }
    let mut used_up = bytes.clone();
    used_up[..8].copy_from_slice(&2342u64.to_le_bytes());
    let error = failure(&["simulate", "goal", &scratch("used.bin", used_up)]);
    assert!(error.contains("--save-mem"), "{error}");
    // 4 billion absent ranks take no memory.
    let mut huge = bytes;
    huge[8..12].copy_from_slice(&(u32::MAX - 9).to_le_bytes());
    failure(&["simulate", "goal", &scratch("huge.bin", huge)]);
}

#[test]
fn a_schedule_that_cannot_end_is_an_error_with_ranks_and_labels() {
    let swap = |other: u32| {
        format!("s: send 9999b to {other}\nr: recv 9999b from {other}\nr requires s\n")
    };
    let deadlock = format!("num_ranks 2\nrank 0 {{\n{}}}\nrank 1 {{\n{}}}\n", swap(1), swap(0));
    let cases = [
        (
            "deadlock",
            deadlock.as_str(),
            "deadlock: rank 0, operation 0 (s: send 9999b to 1 tag 0) is not buffered and waits for \
             rank 1, operation 1 (r: recv 9999b from 0 tag 0) requires rank 1, operation 0 (s: send \
             9999b to 0 tag 0) is not buffered and waits for rank 0, operation 1 (r: recv 9999b from 1 \
             tag 0) requires rank 0 s again",
        ),
        (
            "cycle",
            "num_ranks 1\nrank 0 {\na: calc 1\nb: calc 1\na requires b\nb requires a\n}\n",
            "deadlock: rank 0, operation 0 (a: calc 1ns) requires rank 0, operation 1",
        ),
        (
            "unmatched",
            "num_ranks 2\nrank 0 {\nout: send 8b to 1 tag 3\n}\nrank 1 {\nl1: recv 8b from 0 tag 4\n}\n",
            "rank 0, operation 0 (out: send 8b to 1 tag 3) has no matching receive",
        ),
        (
            "alone",
            "num_ranks 2\nrank 0 {\n}\nrank 1 {\nin: recv 8b from 0 tag 4\n}\n",
            "rank 1, operation 0 (in: recv 8b from 0 tag 4) has no matching send",
        ),
        (
            "small",
            "num_ranks 2\nrank 0 {\nl1: send 8b to 1\n}\nrank 1 {\nl1: recv 7b from 0\n}\n",
            "is too small for the message from rank 0, operation 0 (l1: send 8b to 1 tag 0)",
        ),
    ];
    for (name, text, said) in cases {
        let file = scratch(&format!("{name}.goal"), text);
        for command in [&["simulate", "goal"][..], &["goal", "check"]] {
            let error = failure(&[command, &[&file, "--net", NET]].concat());
            assert!(error.contains(said), "{name}: {error}");
            assert!(error.contains(&format!("{name}.goal")), "{name}: {error}");
        }
    }
}

#[test]
fn a_schedule_that_needs_buffers_is_told_apart() {
    let swap =
        |other: u32| format!("s: send 8b to {other}\nr: recv 8b from {other}\nr requires s\n");
    let text = format!("num_ranks 2\nrank 0 {{\n{}}}\nrank 1 {{\n{}}}\n", swap(1), swap(0));
    let file = scratch("buffers.goal", text);
    let value = json(&["goal", "check", &file]);
    assert_eq!((&value["valid"], &value["messages"]), (&json!(true), &json!(2)));
    assert!(value["needs_buffers"].as_str().is_some_and(|why| why.starts_with("deadlock: rank 0")));
    assert!(failure(&["goal", "check", &file, "--unbuffered"]).contains("deadlock: rank 0"));
    let file = scratch("unbuffered.goal", message(8));
    assert!(json(&["goal", "check", &file, "--unbuffered"])["needs_buffers"].is_null());
}

#[test]
fn scripts_are_told_what_is_wrong_in_json_too() {
    let swap =
        |other: u32| format!("s: send 8b to {other}\nr: recv 8b from {other}\nr requires s\n");
    let swap = format!("num_ranks 2\nrank 0 {{\n{}}}\nrank 1 {{\n{}}}\n", swap(1), swap(0));
    let alone = "num_ranks 2\nrank 0 {\n}\nrank 1 {\nin: recv 8b from 0\n}\n".to_owned();
    let whole = scratch("told-whole.goal", message(8));
    let cut = stdout(&["goal", "convert", &whole])[..60].to_vec();
    let valid = json(&["goal", "check", &whole]);
    assert!(valid["error"].is_null(), "{valid}");
    for (name, schedule, more, operations, said) in [
        ("words", b"num_ranks 1\nrank 0 {\nl1: sned\n}\n".to_vec(), None, None, "line 3, column 5"),
        ("cut", cut, None, None, "unexpected end of file"),
        ("alone", alone.into_bytes(), None, Some(1), "(in: recv 8b from 0 tag 0)"),
        ("swap", swap.into_bytes(), Some("--unbuffered"), Some(4), "without buffering"),
    ] {
        let file = scratch(&format!("told-{name}.goal"), schedule);
        let mut command = detour(&["goal", "check", &file, "--json"]);
        let assert = command.args(more).assert().code(1);
        let output = assert.get_output();
        let value: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert_eq!(value["valid"], json!(false), "{name}");
        assert_eq!(value["operations"], json!(operations), "{name}");
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&value), keys(&valid), "{name}");
        let error = value["error"].as_str().expect("a string");
        assert!(error.contains(said) && error.contains(&file), "{name}: {error}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("detour: {error}\n"));
    }
    // It is unknown whether an unreadable file is valid.
    failure(&["goal", "check", &absent("told-nowhere.goal"), "--json"]);
}

#[test]
fn text_and_binary_hold_the_same() {
    let (binary, text) = (absent("same.bin"), absent("same.goal"));
    for job in
        [&["--op", "allreduce", "--compute", "5us"][..], &["--op", "gather", "--graph", "peer"]]
    {
        let written = stdout(&[&["goal", "gen", "--ranks", "9", "--size", "3"][..], job].concat());
        fs::write(&text, &written).expect("written");
        stdout(&["goal", "convert", &text, "-o", &binary]);
        assert_eq!(&fs::read(&binary).expect("a file")[..8], &4223u64.to_le_bytes());
        assert_eq!(stdout(&["goal", "convert", &binary]), written);
        let piped = detour(&["goal", "convert", "-"]).write_stdin(written).assert().success();
        assert_eq!(piped.get_output().stdout, fs::read(&binary).expect("a file"));
    }
}

#[test]
fn calcs_can_be_put_in_another_unit_and_the_file_itself_is_never_overwritten() {
    let file = scratch("unit.goal", message(8));
    let finer = stdout(&["goal", "convert", &file, "--to", "text", "--to-unit", "10ps"]);
    assert!(String::from_utf8_lossy(&finer).contains("calc 50000\n"));
    let error = failure(&["goal", "convert", &file, "--to", "text", "--to-unit", "3us"]);
    assert!(error.contains("not a multiple of the unit"), "{error}");
    for (option, unit) in [("--to-unit", "0.5ps"), ("--calc-unit", "1.4ps")] {
        let assert = detour(&["goal", "convert", &file, option, unit]).assert().code(2);
        let error = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
        assert!(error.contains("not a whole number of picoseconds"), "{unit}: {error}");
    }
    let error = failure(&["goal", "convert", &file, "-o", &file]);
    assert!(error.contains("refusing to overwrite"), "{error}");
    assert_eq!(fs::read_to_string(&file).expect("there"), message(8));
}

#[test]
fn stats_count_what_is_there() {
    let file = absent("stats.goal");
    stdout(&["goal", "gen", "--op", "barrier", "--ranks", "64", "-o", &file]);
    let value = json(&["goal", "stats", &file]);
    for (key, expected) in [
        ("ranks", 64),
        ("operations", 2 * 6 * 64),
        ("sends", 6 * 64),
        ("recvs", 6 * 64),
        ("calcs", 0),
        ("ordered_ranks", 64),
        ("paired_messages", 6 * 64),
        ("wildcards", 0),
    ] {
        assert_eq!(value[key], json!(expected), "{key}");
    }
    let text = String::from_utf8(stdout(&["goal", "stats", &file])).expect("text");
    assert!(text.contains("receives") && text.contains("1 B"), "{text}");
}

#[test]
fn a_schedule_that_ends_only_under_noise_has_no_time_without() {
    // Rank 1 is delayed, so the first receive gets the larger message; otherwise it gets the smaller
    // one, and the other does not fit.
    let text = "num_ranks 3\nrank 0 {\na: recv 10b from -1\nb: recv 5b from -1\n}\n\
                rank 1 {\ns: send 5b to 0\n}\n\
                rank 2 {\nc: calc 100\ns: send 10b to 0\ns requires c\n}\n";
    let file = scratch("overtaken.goal", text);
    let offsets = scratch("overtaken.json", "[500000, 0, 500000]");
    let noise = ["--noise", "periodic:1000Hz,200us", "--offsets", &offsets];
    let value = json(&[&["simulate", "goal", &file][..], &noise].concat());
    assert_eq!(value["noiseless"], Value::Null, "{value}");
    assert!(value["max"].as_f64().is_some_and(|ns| ns > 200_000.0), "{value}");
    let text = stdout(&[&["simulate", "goal", &file][..], &noise].concat());
    let text = String::from_utf8_lossy(&text);
    assert!(!text.contains("Without noise"), "{text}");
}

#[test]
fn the_speed_of_the_simulator_is_not_a_result() {
    let file = scratch("speed.goal", message(11));
    let text = String::from_utf8(stdout(&["simulate", "goal", &file, "--net", NET])).expect("text");
    assert!(text.contains("the last ends at 1.720us (1720 ns).\n"), "{text}");
    assert!(!text.contains("/s"), "{text}");
    // With -v it is printed, but not among the results.
    let output = detour(&["-v", "simulate", "goal", &file, "--net", NET]).assert().success();
    assert_eq!(String::from_utf8_lossy(&output.get_output().stdout), text);
    let said = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    assert!(said.contains("messages per second"), "{said}");
    let quiet = detour(&["simulate", "goal", &file, "--net", NET]).assert().success();
    assert!(quiet.get_output().stderr.is_empty());
}
