//! `detour simulate` as used by scripts and people: what it prints, what it rejects, and that results
//! depend only on the seed. Runs anywhere, without privileges.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use assert_cmd::Command;
use serde_json::Value;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/two-cpus.detour");

fn simulate(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("detour").expect("the binary is built");
    command.arg("simulate").args(arguments);
    command
}

fn stdout(arguments: &[&str]) -> String {
    let output = simulate(arguments).assert().success().get_output().stdout.clone();
    String::from_utf8(output).expect("text")
}

fn json(arguments: &[&str]) -> Value {
    let with_json = [arguments, &["--json"]].concat();
    serde_json::from_str(&stdout(&with_json)).expect("JSON and nothing else")
}

/// A file in the target's temporary directory; each test uses its own names.
fn scratch(name: &str, content: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).expect("written");
    path.to_str().expect("text").to_owned()
}

fn absent(name: &str) -> String {
    let path = scratch(name, "");
    fs::remove_file(&path).expect("removed");
    path
}

fn holds(value: &Value, wanted: &[&str]) {
    let keys: BTreeSet<&str> =
        value.as_object().expect("an object").keys().map(String::as_str).collect();
    let missing: Vec<_> = wanted.iter().filter(|key| !keys.contains(**key)).collect();
    assert!(missing.is_empty(), "keys missing: {missing:?}");
}

fn points(value: &Value) -> &[Value] {
    value["points"].as_array().expect("points")
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} of {value}"))
}

/// The speed is not a result.
fn without_speed(text: &str) -> String {
    text.lines().filter(|line| !line.contains("messages_per_s")).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_collective_has_the_keys_that_scripts_rely_on() {
    let value = json(&["collective", "--ranks", "2..8", "--runs", "3", "--noise", DEMO]);
    holds(&value, &["seed", "noise", "noise_model", "net", "points", "knee_ranks"]);
    assert_eq!(points(&value).len(), 3);
    holds(
        &value["points"][0],
        &[
            "ranks",
            "runs",
            "messages",
            "noiseless_us",
            "min_us",
            "q25_us",
            "median_us",
            "q75_us",
            "p99_us",
            "max_us",
            "slowdown_median",
            "slowdown_max",
            "messages_per_s",
        ],
    );
}

#[test]
fn an_exchange_has_the_keys_that_scripts_rely_on() {
    let value = json(&["exchange", "--samples", "1000"]);
    holds(
        &value,
        &[
            "samples",
            "mean_us",
            "sd_us",
            "min_us",
            "q25_us",
            "median_us",
            "q75_us",
            "p99_us",
            "max_us",
            "skewness",
            "autocorrelation",
            "ks_distance",
            "seed",
            "noise",
            "noise_model",
            "order",
        ],
    );
    assert_eq!(value["samples"], 1000);
    // Nothing interrupts it, and nothing was measured.
    assert_eq!((number(&value, "mean_us"), number(&value, "sd_us")), (150.0, 0.0));
    assert!(value["ks_distance"].is_null());
}

#[test]
fn an_alltoall_has_the_keys_that_scripts_rely_on() {
    let value = json(&["alltoall", "--ranks", "2,5", "--samples", "100", "--size", "8KiB"]);
    holds(&value, &["seed", "noise", "mode", "points"]);
    assert_eq!(value["mode"], "trace");
    for point in points(&value) {
        holds(
            point,
            &[
                "ranks",
                "samples",
                "idle_zero_pct",
                "idle_mean_us",
                "idle_p99_us",
                "idle_max_us",
                "idle_all_zero_pct",
                "idle_all_mean_us",
                "idle_all_p99_us",
                "idle_all_max_us",
                "total_mean_us",
                "total_p99_us",
                "relative_throughput",
                "throughput_mb_s",
            ],
        );
    }
    // 8 KiB in 150 us.
    let throughput = number(&value["points"][0], "throughput_mb_s");
    assert!((throughput - 8192.0 / 150.0).abs() < 1e-9, "{throughput}");
}

/// Equal exchanges take as many as the longest chain has, and the totals are those that were "measured".
#[test]
fn other_operations_are_resampled_and_compared() {
    let csv = absent("operation.csv");
    let measured = scratch("operation-measured.txt", "400\n400\n500\n500\n");
    let value = json(&[
        "alltoall",
        "--op",
        "barrier",
        "--ranks",
        "16",
        "--samples",
        "100",
        "--exchange",
        "100us",
        "--measured",
        &measured,
        "--csv",
        &csv,
    ]);
    assert_eq!((&value["op"], &value["algorithm"]), (&"barrier".into(), &"dissemination".into()));
    let point = &value["points"][0];
    assert!((number(point, "total_mean_us") - 400.0).abs() < 0.5, "{point}");
    assert_eq!(number(point, "measured_mean_us"), 450.0);
    assert!((number(point, "ks_distance") - 0.5).abs() < 1e-9, "{point}");
    let text = fs::read_to_string(&csv).expect("a file");
    assert_eq!(text.lines().next(), Some("ranks,what,low_us,high_us,count"));
    let total: u64 = text
        .lines()
        .filter(|line| line.starts_with("16,total,"))
        .filter_map(|line| line.rsplit(',').next()?.parse::<u64>().ok())
        .sum();
    assert_eq!(total, 100, "{text}");
}

#[test]
fn a_cycle_has_the_keys_that_scripts_rely_on() {
    let value = json(&["cycle", "--ranks", "1024", "--runs", "4"]);
    holds(&value, &["seed", "points"]);
    let point = &value["points"][0];
    holds(
        point,
        &[
            "ranks",
            "runs",
            "noiseless_us",
            "conventional_us",
            "redundant_us",
            "recovery",
            "recovery_ci95",
        ],
    );
    let recovery = number(point, "recovery");
    let interval: Vec<f64> = serde_json::from_value(point["recovery_ci95"].clone()).expect("two");
    assert!(interval.len() == 2 && interval[0] <= recovery && recovery <= interval[1], "{point}");
    let one = json(&["cycle", "--ranks", "2", "--runs", "1"]);
    assert!(one["points"][0]["recovery_ci95"].is_null());
}

#[test]
fn every_subcommand_prints_a_table_with_nothing_but_ranks() {
    for (arguments, heading) in [
        (&["collective", "--ranks", "2,4", "--runs", "2"][..], "slowdown"),
        (&["exchange", "--samples", "100"], "median"),
        (&["alltoall", "--ranks", "2,4", "--samples", "100"], "rel. throughput"),
        (&["cycle", "--ranks", "2,4", "--runs", "2"], "recovery"),
    ] {
        let text = stdout(arguments);
        assert!(text.lines().next().expect("a line").contains(heading), "{text}");
        assert!(text.lines().count() >= 2, "{text}");
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_for_any_number_of_threads() {
    let noise = ["--noise", DEMO];
    for arguments in [
        &["collective", "--ranks", "2..64", "--runs", "9", noise[0], noise[1]][..],
        &["exchange", "--samples", "5000", noise[0], noise[1]],
        &["exchange", "--samples", "5000", "--order", "independent", noise[0], noise[1]],
        &["alltoall", "--ranks", "2,7,16", "--samples", "1000", noise[0], noise[1]],
        &["alltoall", "--ranks", "7", "--samples", "999", "--mode", "resample", noise[0], noise[1]],
        &["alltoall", "--op", "bcast", "--ranks", "7", "--samples", "999", noise[0], noise[1]],
        &["cycle", "--ranks", "2,4Ki,16Ki", "--runs", "3"],
        &["cycle", "--ranks", "4Ki", "--runs", "3", "--redundant-rounds", "1,4-6"],
    ] {
        let on = |threads: &str, seed: &str| {
            let more = ["--json", "-j", threads, "--seed", seed];
            without_speed(&stdout(&[arguments, &more].concat()))
        };
        let one = on("1", "5");
        assert_eq!(one, on("2", "5"), "{arguments:?}");
        assert_eq!(one, on("7", "5"), "{arguments:?}");
        assert_ne!(one, on("7", "6"), "{arguments:?}");
    }
}

#[test]
fn what_cannot_be_done_is_refused_with_a_reason() {
    let empty = scratch("refused-empty.txt", "");
    let negative = scratch("refused-negative.txt", "150\n-3\n");
    let far = scratch("refused-far.csv", "start_ns,length_ns\n1e18,5\n2e18,5\n");
    let short = scratch("refused-short.csv", "start_ns,length_ns\n100,50\n2000,50\n");
    let (empty, negative, far, short) = (&*empty, &*negative, &*far, &*short);
    for (arguments, code, reason) in [
        // No ranks, or far too many.
        (&["collective", "--ranks", "0"][..], 2, "0 ranks"),
        (&["collective", "--ranks", "8Gi"], 1, "2^32"),
        (&["collective", "--ranks", "2^70"], 2, "not a rank count"),
        (&["alltoall", "--ranks", "0"], 2, "0 ranks"),
        (&["alltoall", "--ranks", "1"], 2, "at least 2"),
        (&["alltoall", "--ranks", "2..1Mi"], 1, "at most 65536"),
        (&["alltoall", "--ranks", "2^63"], 1, "at most 65536"),
        (&["cycle", "--ranks", "0"], 2, "0 ranks"),
        (&["cycle", "--ranks", "2,1000"], 2, "1000 is not a power of two"),
        (&["cycle", "--ranks", "2^40"], 1, "too many"),
        // Invalid times.
        (&["collective", "--compute=-1us"], 2, "negative"),
        (&["collective", "--net", "L=-1us"], 2, "negative"),
        (&["exchange", "--exchange=-1us"], 2, "negative"),
        (&["exchange", "--exchange", "150"], 2, "not a time"),
        (&["exchange", "--exchange", "1000000s"], 1, "simulate a shorter run"),
        (&["exchange", "--exchange", negative], 1, "line 2"),
        (&["exchange", "--exchange", empty], 1, "empty"),
        (&["exchange", "--exchange", DEMO], 1, "--noise"),
        (&["exchange", "--measured", "no-such-file"], 1, "no-such-file"),
        (&["alltoall", "--exchange", "100000s", "--ranks", "1024"], 1, "shorter exchanges"),
        (&["cycle", "--duration=-1us"], 2, "negative"),
        (&["cycle", "--period", "100us"], 1, "leaves no time"),
        (&["cycle", "--work", "1000000s"], 1, "simulate a shorter run"),
        // Noise.
        (&["collective", "--noise", empty], 1, "empty"),
        (&["exchange", "--noise", far], 1, "a span of 2000000000s is too long"),
        (&["collective", "--noise", short, "--ranks", "2"], 1, "--repeat-trace"),
        (&["exchange", "--noise", short], 1, "--repeat-trace"),
        (&["exchange", "--noise", DEMO, "--per-walk", "100000"], 1, "--repeat-trace"),
        (&["alltoall", "--noise", short], 1, "--repeat-trace"),
        (&["exchange", "--noise", short, "--noise-model", "loggopsim"], 1, "loggopsim"),
        (
            &["collective", "--noise", "periodic:1000Hz,2us", "--noise-model", "loggopsim"],
            1,
            "requires a trace, not periodic noise",
        ),
        (
            &["exchange", "--noise", "periodic:1000Hz,2us", "--noise-model", "loggopsim"],
            1,
            "use --noise-model preempt",
        ),
        (&["collective", "--noise", DEMO, "--without", "nobody"], 1, "'nobody'"),
        (&["exchange", "--noise", DEMO, "--without", "nobody"], 1, "'nobody'"),
        (&["exchange", "--without", "timer"], 1, "--without timer requires a recording"),
        (&["collective", "--noise", short, "--without", "timer"], 1, "requires a recording"),
        (
            &["collective", "--noise", "periodic:1000Hz,2us", "--without", "timer"],
            1,
            "requires a recording",
        ),
        (&["alltoall", "--noise", "periodic:1000Hz,2ms"], 1, "leaves no time"),
        (&["alltoall", "--noise", DEMO, "--resample", negative], 1, "omit --noise"),
        (&["alltoall", "--exchange", "1us", "--resample", negative], 2, "cannot be used with"),
        // Sizes and counts.
        (&["collective", "--size", "9000000GB"], 2, "not a size"),
        (&["collective", "--size", "8000000GB"], 1, "use a smaller message"),
        (&["cycle", "--size", "8000000GB"], 1, "use a smaller message"),
        (&["exchange", "--samples", "0"], 2, "0 is not in"),
        (&["exchange", "--samples", "999999999999"], 2, "not in"),
        (&["cycle", "--ranks", "4", "--redundant-rounds", "1-22"], 1, "last round"),
        (&["cycle", "--redundant-rounds", "5-2"], 2, "not a set of rounds"),
        // Names.
        (&["collective", "--op", "dance"], 2, "allreduce"),
        (&["collective", "--algorithm", "magic"], 1, "dissemination"),
        (&["collective", "--net", "nowhere"], 2, "cnl"),
        (&["cycle", "--net", "nowhere"], 2, "cnl"),
        (&["alltoall", "--mode", "nonsense"], 2, "resample"),
        (&["alltoall", "--op", "dance"], 2, "allreduce"),
        (&["alltoall", "--op", "bcast", "--algorithm", "ring"], 1, "ring does not support bcast"),
        (&["alltoall", "--op", "bcast", "--algorithm", "tournament"], 1, "unknown algorithm"),
        (&["alltoall", "--op", "bcast", "--size", "1kB"], 1, "--size requires --op alltoall"),
        (&["alltoall", "--measured", negative], 1, "--measured requires one rank count"),
        (&["exchange", "--order", "nonsense"], 2, "in-time"),
        (&["exchange", "--hlog", "/no/such/place", "--samples", "9"], 1, "cannot create"),
    ] {
        let assert = simulate(arguments).arg("--json").assert().code(code);
        let output = assert.get_output();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(reason), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{arguments:?} printed to stdout");
    }
}

#[test]
fn a_sweep_goes_on_where_it_stopped() {
    let file = absent("resumed.jsonl");
    let all = |ranks: &str, more: &[&str]| {
        let own = ["collective", "--ranks", ranks, "--runs", "21", "--noise", DEMO, "--json"];
        stdout(&[&own[..], more].concat())
    };
    let parse = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    let half = parse(&all("2..64", &["--resume", &file]));
    let resumed = all("2..512", &["--resume", &file]);
    // The speed of a point is never the same twice: these were not simulated again.
    assert_eq!(points(&half), &points(&parse(&resumed))[..6]);
    assert_eq!(without_speed(&resumed), without_speed(&all("2..512", &[])));
    // A point whose line is truncated is simulated again.
    let text = fs::read_to_string(&file).expect("the file");
    fs::write(&file, &text[..text.len() - 40]).expect("written");
    let again = all("2..512", &["--resume", &file]);
    assert_eq!(without_speed(&again), without_speed(&resumed));
    // Another sweep's file is left alone.
    let other = ["collective", "--ranks", "2", "--runs", "22", "--noise", DEMO, "--resume", &file];
    let assert = simulate(&other).assert().code(1);
    let stderr = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    assert!(stderr.contains("another sweep"), "{stderr}");
}

#[test]
fn a_distribution_that_was_written_can_be_drawn_from_and_compared_with() {
    let (hlog, hgrm, csv) = (absent("drawn.hlog"), absent("drawn.hgrm"), absent("drawn.csv"));
    let noise = ["--noise", "periodic:1000Hz,50us", "--samples", "20000"];
    let files = ["--hlog", &hlog, "--hgrm", &hgrm, "--csv", &csv];
    let own = json(&[&["exchange"][..], &noise, &files].concat());
    let rows = fs::read_to_string(&csv).expect("the file");
    assert!(rows.starts_with("from_ps,to_ps,count,cumulative\n") && rows.lines().count() > 5);
    assert!(fs::read_to_string(&hgrm).expect("the file").contains("Percentile"));
    let drawn = ["exchange", "--samples", "20000", "--exchange", &hlog, "--measured", &hlog];
    let drawn = json(&drawn);
    let ratio = number(&drawn, "mean_us") / number(&own, "mean_us");
    assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
    assert!(number(&drawn, "ks_distance") < 0.03, "{drawn}");
    // Times below a microsecond are kept in picoseconds, in either file.
    let (hlog, hgrm) = (absent("short.hlog"), absent("short.hgrm"));
    let short = ["exchange", "--samples", "10", "--exchange", "250ns"];
    stdout(&[&short[..], &["--hlog", &hlog, "--hgrm", &hgrm]].concat());
    for file in [hlog, hgrm] {
        let mean = number(&json(&["exchange", "--samples", "10", "--exchange", &file]), "mean_us");
        assert!((mean - 0.25).abs() < 0.001, "{file}: {mean}");
    }
}

/// Before that, the signal would terminate it by default.
fn until_it_handles_sigint(child: &mut std::process::Child) {
    const SIGINT: u64 = 1 << (2 - 1);
    let status = format!("/proc/{}/status", child.id());
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        if caught.is_some_and(|mask| mask & SIGINT != 0) {
            return;
        }
        assert_eq!(child.try_wait().expect("a child"), None, "it exited by itself");
        assert!(Instant::now() < deadline, "it does not handle SIGINT: {status}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_interrupted_simulation_exits_with_130() {
    for arguments in [
        &["cycle", "--ranks", "64Ki", "--runs", "100000"][..],
        &["exchange", "--samples", "200000000"],
        &["alltoall", "--ranks", "64", "--samples", "1000000000"],
        &["collective", "--ranks", "64Ki", "--runs", "1000000"],
    ] {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_detour"))
            .arg("simulate")
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        until_it_handles_sigint(&mut child);
        let process = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(process, rustix::process::Signal::INT).expect("a signal");
        let deadline = Instant::now() + Duration::from_secs(30);
        let status = loop {
            match child.try_wait().expect("a child") {
                Some(status) => break status,
                None if Instant::now() > deadline => {
                    child.kill().expect("ended");
                    panic!("{arguments:?} does not exit");
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        assert_eq!(status.code(), Some(130), "{arguments:?}");
    }
}

#[test]
fn a_sweep_says_where_noise_takes_over() {
    let said = |ranks: &str| {
        let noise = ["--noise", "periodic:100Hz,200us"];
        stdout(&[&["collective", "--ranks", ranks, "--runs", "20"][..], &noise].concat())
    };
    let text = said("65536");
    assert!(text.contains("noise takes over at or below 65536 ranks"), "{text}");
    assert!(text.contains("at 65536 (the smallest simulated) and above"), "{text}");
    let text = said("2,1024,65536");
    assert!(text.contains("noise takes over between 2 and 1024 ranks: at 1024"), "{text}");
}

#[test]
fn without_noise_it_is_the_network_whose_variation_takes_over() {
    let latencies: String = (0..100).map(|i| format!("{}\n", 2 + i % 50)).collect();
    let latencies = scratch("takes-over.txt", &latencies);
    let arguments = ["collective", "--ranks", "2,64", "--runs", "20", "--latency", &latencies];
    let text = stdout(&arguments);
    assert!(text.contains("variation of the network takes over at or below 2 ranks"), "{text}");
    assert!(!text.contains("noise takes over"), "{text}");
    let page = absent("takes-over.html");
    stdout(&[&arguments[..], &["--html", &page]].concat());
    let page = fs::read_to_string(&page).expect("a page");
    assert!(page.contains("Variation of the network takes over"));
    assert!(!page.contains("oise takes over"));
}

#[test]
fn a_slowdown_of_a_noiseless_time_of_zero_is_not_one() {
    let (resume, table) = (absent("zero.resume"), absent("zero.csv"));
    let noise = ["--net", "L=0,o=0,g=0,G=0,O=0", "--noise", "periodic:1000Hz,200us"];
    let of = ["collective", "--op", "barrier", "--ranks", "1,2", "--runs", "40"];
    let files = ["--resume", &resume, "--csv", &table];
    let arguments = [&of[..], &noise, &files].concat();
    let value = json(&arguments);
    let [alone, both] = points(&value) else { panic!("two points: {value}") };
    assert_eq!((&alone["max_us"], &alone["slowdown_max"]), (&0.0.into(), &1.0.into()), "{alone}");
    assert!(both["max_us"].as_f64() > Some(0.0) && both["noiseless_us"] == 0.0, "{both}");
    assert_eq!(both["slowdown_max"], Value::Null, "{both}");
    let csv = fs::read_to_string(&table).expect("a table");
    assert!(csv.lines().nth(2).expect("a row").contains(",inf,"), "{csv}");
    // A point that was saved is not simulated again, and is the same.
    let saved = fs::read_to_string(&resume).expect("points");
    let again = json(&arguments);
    assert_eq!(points(&again), points(&value));
    let resumed = fs::read_to_string(&resume).expect("points");
    assert_eq!(resumed.trim_end(), saved.trim_end());
}

/// Every simulation as a page and as a file of figures: one figure of each kind, no markup of its own, and
/// nothing that is not a number.
#[test]
fn every_simulation_has_figures() {
    let goal = absent("figures.goal");
    let mut generate = Command::cargo_bin("detour").expect("the binary is built");
    generate.args(["-q", "goal", "gen", "--ranks", "8", "--compute", "1ms", "-o", &goal]);
    generate.assert().success();
    let noise = "periodic:1kHz|100Hz,20us|90us";
    let cases: [(&[&str], &[&str]); 7] = [
        (&["collective", "--noise", noise, "--ranks", "2..64", "--runs", "20"], &["f0"]),
        (&["collective", "--ranks", "1", "--runs", "1"], &[]),
        (
            &["skeleton", "ocean:2x2", "--noise", noise, "--iterations", "3", "--solver", "2"],
            &["f0"],
        ),
        (&["cycle", "--ranks", "2..64", "--cycles", "1-3"], &["cycles-ranks", "cycles-overhead"]),
        (&["exchange", "--noise", DEMO, "--samples", "2000"], &["density", "tail"]),
        (
            &["alltoall", "--noise", DEMO, "--ranks", "2..8", "--samples", "200"],
            &["density", "tail", "idle-ranks"],
        ),
        (
            &["goal", &goal, "--noise", "periodic:1kHz,50us", "--runs", "20"],
            &["density", "tail", "ends"],
        ),
    ];
    for (arguments, figures) in cases {
        let (page, svg) = (absent("figures-<b>.html"), absent("figures.svg"));
        let with = [arguments, &["--html", &page, "--svg", &svg, "--json"]].concat();
        // JSON as without figures.
        let _: Value = serde_json::from_str(&stdout(&with)).expect("JSON and nothing else");
        let (page, svg) = (fs::read_to_string(page).unwrap(), fs::read_to_string(svg).unwrap());
        for text in [&page, &svg] {
            for id in figures {
                assert_eq!(
                    text.matches(&format!(r#" id="{id}""#)).count(),
                    1,
                    "{arguments:?}: {id}"
                );
            }
            assert_eq!(text.matches(r#"class="plot""#).count(), figures.len(), "{arguments:?}");
            assert!(!text.contains("NaN") && !text.contains("inf "), "{arguments:?}");
        }
        assert!(page.contains("Content-Security-Policy") && !page.contains("<b>.html"));
        assert_eq!(page.matches("<script").count(), 1);
        assert!(page.contains("Commands that reproduce this page"));
        assert!(page.contains(&format!("detour simulate {}", arguments[0])));
        assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("var(--") && !svg.contains("<script"), "{arguments:?}");
    }
}

/// The same sizes, simulated directly and written as a schedule.
#[test]
fn blocks_of_different_sizes_are_simulated_as_their_schedule_is() {
    let goal = absent("vector.goal");
    let listed = scratch("sizes.txt", "# bytes\n1 100\n4KiB 7\n");
    for (op, sizes) in [
        ("gatherv", "uniform:1..10kB"),
        ("scatterv", listed.as_str()),
        ("allgatherv", "uniform:1..10kB,9"),
        ("alltoallv", "uniform:0..100"),
        ("reduce-scatter", listed.as_str()),
    ] {
        let of_job = ["--op", op, "--sizes", sizes, "--ranks", "12", "--iterations", "2"];
        let sweep = json(&[&["collective", "--runs", "2", "--blame"], &of_job[..]].concat());
        let point = &points(&sweep)[0];
        assert_eq!(point["sizes"].as_str(), Some(sizes));
        let mut generate = Command::cargo_bin("detour").expect("the binary is built");
        generate.args(["-q", "goal", "gen", "-o", &goal]).args(of_job).assert().success();
        let schedule = json(&["goal", &goal, "--net", "cnl"]);
        let goal_us = number(&schedule, "max") / 1e3;
        assert!((goal_us / number(point, "noiseless_us") - 1.0).abs() < 1e-9, "{op}");
        assert_eq!(number(&schedule, "messages"), number(point, "messages"), "{op}");
    }
    let refused = |arguments: &[&str]| {
        let failed = simulate(&[&["collective"], arguments].concat()).assert().failure();
        String::from_utf8(failed.get_output().stderr.clone()).unwrap()
    };
    let said = refused(&["--op", "bcast", "--sizes", "uniform:1..4"]);
    assert!(said.contains("--sizes does not apply") && said.contains("gatherv"), "{said}");
    let said = refused(&["--op", "gatherv", "--sizes", &listed, "--ranks", "2"]);
    assert!(said.contains("at most 2"), "{said}");
}

#[test]
fn a_redundant_butterfly_takes_what_its_cycles_take() {
    let noise = ["--noise", DEMO, "--repeat-trace", "--runs", "6", "--net", "L=1us,o=1us,G=1ns"];
    let sweep = json(
        &[
            &["collective", "--algorithm", "recursive-doubling|redundant-butterfly"][..],
            &["--iterations", "40", "--ranks", "256", "--compute", "10us"][..],
            &noise[..],
        ]
        .concat(),
    );
    let cycles = ["cycle", "--cycles", "40", "--ranks", "256", "--work", "10us"];
    let cycles = json(&[&cycles[..], &noise[..]].concat());
    let (point, cycles) = (&points(&sweep)[1], &points(&cycles)[0]);
    assert_eq!(point["algorithm"].as_str(), Some("redundant-butterfly"));
    let (mean, expected) = (number(point, "mean_us"), number(cycles, "redundant_us"));
    assert!((mean / expected - 1.0).abs() < 1e-9, "{mean} {expected}");
    for (option, value, why) in [
        ("--ranks", "100", "power of two"),
        ("--op", "barrier", "--op allreduce"),
        ("--size", "1MiB", "larger than S"),
        ("--blame", "", "--blame"),
        ("--graph", "peer", "--graph peer"),
    ] {
        let option = [option, value].into_iter().filter(|word| !word.is_empty());
        let job = ["collective", "--algorithm", "redundant-butterfly", "--net", "alps"];
        let ranks: &[&str] =
            if option.clone().any(|word| word == "--ranks") { &[] } else { &["--ranks", "4"] };
        let arguments: Vec<&str> =
            job.into_iter().chain(ranks.iter().copied()).chain(option).collect();
        let failed = simulate(&arguments).assert().failure();
        let said = String::from_utf8(failed.get_output().stderr.clone()).unwrap();
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
}

#[test]
fn whatif_asks_its_questions_of_these_jobs_too() {
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/demo.detour");
    for (job, words) in [
        (["--op", "gatherv", "--sizes", "uniform:1..4kB"], "gatherv (linear) of blocks of uniform"),
        (["--op", "allreduce", "--algorithm", "redundant-butterfly"], "(redundant-butterfly)"),
    ] {
        let usual = ["whatif", demo, "--ranks", "16", "--runs", "3", "--iterations", "3", "--json"];
        let mut whatif = Command::cargo_bin("detour").expect("the binary is built");
        let output = whatif.args(usual).args(job).assert().success();
        let value: Value = serde_json::from_slice(&output.get_output().stdout).expect("JSON");
        let said = value["job"].as_str().expect("text");
        assert!(said.contains(words), "{said}");
        assert!(number(&value["baseline"], "median_us") > 0.0);
        assert!(!value["sources"].as_array().expect("sources").is_empty());
    }
}

#[test]
fn a_box_plot_has_every_outlier() {
    let arguments = [
        "collective",
        "--noise",
        "periodic:100Hz,100us",
        "--ranks",
        "8",
        "--runs",
        "300",
        "--seed",
        "3",
    ];
    let svg = stdout(&[&arguments[..], &["--svg", "-"]].concat());
    let sweep = json(&arguments);
    let point = &points(&sweep)[0];
    let outliers = point["outliers_us"].as_array().expect("a list").len();
    assert_eq!(outliers, point["outliers"].as_u64().expect("a number").min(100) as usize);
    assert!(outliers > 0);
    let (_, after) = svg.split_once(r#"class="outliers s0" d=""#).expect("outliers");
    let (path, _) = after.split_once('"').expect("a path");
    assert_eq!(path.matches('M').count(), outliers);
    // Only one thing can go to stdout.
    simulate(&[&arguments[..], &["--svg", "-", "--json"]].concat()).assert().failure();
}

#[test]
fn lists_are_series_in_every_output() {
    let csv = absent("series.csv");
    let times = absent("series-times.csv");
    let arguments = [
        "collective",
        "--op",
        "allreduce|barrier",
        "--net",
        "cnl|xt4",
        "--noise",
        "poisson:1kHz|100Hz,50us",
        "--ranks",
        "16",
        "--runs",
        "4",
        "--csv",
        &csv,
        "--times",
        &times,
    ];
    let sweep = json(&arguments);
    assert_eq!(points(&sweep).len(), 8);
    let last = &points(&sweep)[7];
    assert_eq!((last["op"].as_str(), last["net"].as_str()), (Some("barrier"), Some("xt4")));
    assert_eq!(last["noise"].as_str(), Some("poisson:100Hz,50us"));
    assert!(last.get("algorithm").is_none());
    assert_eq!(sweep["op"].as_str(), Some("allreduce|barrier"));
    let csv = fs::read_to_string(csv).unwrap();
    assert!(csv.lines().next().unwrap().ends_with(",outliers,op,net,noise"), "{csv}");
    let last = csv.lines().last().unwrap();
    assert!(last.ends_with(r#","barrier","xt4","poisson:100Hz,50us""#), "{csv}");
    let times = fs::read_to_string(times).unwrap();
    assert_eq!(times.lines().count(), 1 + 8 * 4);
    assert!(times.lines().next().unwrap().ends_with("run,time_us,op,net,noise"), "{times}");
    let ocean = ["skeleton", "ocean:2x2", "--iterations", "3", "--solver", "2", "--runs", "4"];
    let lists = ["--net", "cnl|xt4", "--noise", "poisson:1kHz|100Hz,50us"];
    let sweep = json(&[&ocean[..], &lists[..]].concat());
    assert_eq!(points(&sweep).len(), 4);
    let alone = json(&[&ocean[..], &["--net", "xt4", "--noise", "poisson:100Hz,50us"]].concat());
    let (last, alone) = (&points(&sweep)[3], &points(&alone)[0]);
    assert_eq!(
        (last["net"].as_str(), last["noise"].as_str()),
        (Some("xt4"), Some("poisson:100Hz,50us"))
    );
    assert_eq!(number(last, "max_us"), number(alone, "max_us"));
    // Other commands simulate one job under one noise.
    simulate(&["exchange", "--noise", "poisson:1kHz|100Hz,50us"]).assert().failure();
    let mut generate = Command::cargo_bin("detour").expect("the binary is built");
    let refused =
        generate.args(["goal", "gen", "--ranks", "8", "--op", "allreduce|barrier"]).assert();
    let said = String::from_utf8(refused.failure().get_output().stderr.clone()).unwrap();
    assert!(said.contains("specify one operation"), "{said}");
}

#[test]
fn every_simulation_runs_without_noise() {
    let schedule = scratch(
        "no-noise.goal",
        "num_ranks 2\nrank 0 {\nl1: send 8b to 1 tag 0\n}\nrank 1 {\nl1: recv 8b from 0 tag 0\n}\n",
    );
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/mpi/stencil");
    for command in [
        &["collective", "--ranks", "64", "--runs", "3"][..],
        &["exchange"],
        &["alltoall", "--ranks", "16"],
        &["cycle", "--ranks", "64", "--runs", "3"],
        &["cycle", "--ranks", "64", "--runs", "3", "--cycles", "1-3"],
        &["app", trace, "--runs", "3"],
        &["skeleton", "halo:2x2x2", "--runs", "3"],
        &["goal", &schedule, "--net", "cnl"],
    ] {
        let found = json(&[command, &["--noise", "none"]].concat());
        assert!(found.is_object(), "{command:?}");
    }
}
