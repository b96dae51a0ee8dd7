//! `blame`, `--blame` and `--timeline` as used by scripts and people: the parts add up, and viewers can read
//! the files. Runs anywhere, without privileges.

mod command;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use command::{detour, refused, stdout};
use serde_json::Value;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/two-cpus.detour");
const NET: &str = "L=1us,o=500ns,g=200ns,G=1ns,O=0.5ns,S=1kB";
const PARTS: [&str; 8] =
    ["compute_us", "o_us", "O_us", "g_us", "G_us", "L_us", "waiting_us", "noise_us"];

/// Two ranks: compute, exchange, and the second is interrupted first.
const PING: &str = "num_ranks 2\nrank 0 {\nl1: calc 5000\nl2: send 101b to 1 tag 0\nl2 requires l1\n}\n\
                    rank 1 {\nl1: calc 2000\nl2: recv 101b from 0 tag 0\nl2 requires l1\n}\n";

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(&[arguments, &["--json"]].concat())).expect("JSON only")
}

fn path(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    path.to_str().expect("text").to_owned()
}

fn scratch(name: &str, content: &str) -> String {
    let path = path(name);
    fs::write(&path, content).expect("written");
    path
}

fn generated(name: &str, arguments: &[&str]) -> String {
    scratch(name, &stdout(&[&["goal", "gen"], arguments].concat()))
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} in {value}"))
}

/// Microseconds made of whole picoseconds, and means of them.
fn close(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-5, "{a} and {b}");
}

fn check(blame: &Value) {
    let sum: f64 = PARTS.iter().map(|part| number(&blame["path"], part)).sum();
    close(sum, number(blame, "finish_us"));
    close(number(&blame["path"], "waiting_us"), 0.0);
    close(number(&blame["path"], "noise_us"), number(&blame["noise"], "on_path_us"));
    for key in ["on_path_us", "absorbed_us"] {
        let sources = blame["sources"].as_array().expect("a list");
        let sum: f64 = sources.iter().map(|source| number(source, key)).sum();
        close(sum, number(&blame["noise"], key));
        for source in sources {
            let ranks = source["ranks"].as_array().expect("a list");
            close(ranks.iter().map(|rank| number(rank, key)).sum(), number(source, key));
        }
    }
}

#[test]
fn a_run_is_explained_to_people_like_this() {
    let file = scratch("blame-ping.goal", PING);
    // Rank 0 is hit after 3 us of its compute, rank 1 after 1 us.
    let offsets = scratch("blame-ping-offsets.json", "[997000, 999000]");
    let noise = ["--noise", "periodic:1000Hz,2us", "--offsets", &offsets];
    let arguments = [&["simulate", "goal", &file, "--net", NET, "--blame"], &noise[..]].concat();
    let text = stdout(&arguments);
    let from = text.find("Where the time went").expect("an explanation");
    insta::assert_snapshot!("blame_of_a_ping", &text[from..]);

    let value = json(&arguments);
    let blame = &value["blame"];
    check(blame);
    // 5 us, o 0.5 us and O 50 ns at both ends, L 1 us, G 100 ns, and 2 us of noise.
    assert_eq!(value["max"], 9_200);
    assert_eq!(blame["last_rank"], 1);
    for (part, us) in PARTS.iter().zip([5.0, 1.0, 0.1, 0.0, 0.1, 1.0, 0.0, 2.0]) {
        assert_eq!(number(&blame["path"], part), us, "{part}");
    }
    let source = &blame["sources"][0];
    assert_eq!(source["name"], "periodic:1000Hz,2us");
    assert_eq!(source["ranks"][0]["on_path_us"], 2.0);
    assert_eq!(source["ranks"][1]["absorbed_us"], 2.0);
}

#[test]
fn many_runs_under_a_recording_add_up_by_source_whatever_the_threads() {
    let file = generated("blame-runs.goal", &["--op", "allreduce", "--ranks", "24"]);
    let arguments = |threads: &'static str| {
        let arguments = ["--noise", DEMO, "--runs", "60", "--blame", "-j", threads];
        json(&[&["simulate", "goal", &file], &arguments[..]].concat())
    };
    let (one, two) = (arguments("1"), arguments("2"));
    assert_eq!(one["blame"], two["blame"]);
    let blame = &one["blame"];
    check(blame);
    assert!(number(&blame["noise"], "on_path_us") > 0.0);
    assert!(number(&blame["noise"], "absorbed_us") > 0.0);
    let per_run = one["max_per_run"].as_array().expect("a list");
    let mean: f64 = per_run.iter().map(|ns| ns.as_f64().unwrap() / 1e3).sum::<f64>() / 60.0;
    close(mean, number(blame, "finish_us"));
    let names: BTreeSet<_> =
        blame["sources"].as_array().unwrap().iter().map(|s| s["name"].to_string()).collect();
    assert!(names.contains("\"tick\""), "{names:?}");

    // Without a source nothing is attributed to it, and the others stay.
    let without = json(&[
        "simulate",
        "goal",
        &file,
        "--noise",
        DEMO,
        "--runs",
        "60",
        "--blame",
        "--without",
        "tick",
    ]);
    check(&without["blame"]);
    assert!(!without["blame"]["sources"].to_string().contains("\"tick\""));
}

#[test]
fn a_collective_is_explained_point_by_point_with_the_times_it_took() {
    let value = json(&[
        "simulate",
        "collective",
        "--ranks",
        "4,32",
        "--runs",
        "50",
        "--noise",
        DEMO,
        "--blame",
        "--compute",
        "10us",
    ]);
    for point in value["points"].as_array().expect("points") {
        check(&point["blame"]);
        close(number(&point["blame"], "finish_us"), number(point, "mean_us"));
        close(number(&point["blame"]["finish_spread"], "median_us"), number(point, "median_us"));
    }
    let peer = json(&[
        "simulate",
        "collective",
        "--ranks",
        "32",
        "--runs",
        "20",
        "--noise",
        "periodic:1000Hz,30us",
        "--noise",
        "periodic:10Hz,2ms",
        "--graph",
        "peer",
        "--noise-model",
        "loggopsim",
        "--blame",
    ]);
    let point = &peer["points"][0];
    check(&point["blame"]);
    close(number(&point["blame"], "finish_us"), number(point, "mean_us"));
}

/// Every slice of a row is inside its parent or after its predecessor, in whole ns.
fn check_rows(events: &[Value]) {
    let ns = |value: &Value| (value.as_f64().expect("a time") * 1e3).round() as i64;
    let mut open: BTreeMap<(u64, u64), Vec<i64>> = BTreeMap::new();
    let mut last = i64::MIN;
    for event in events.iter().filter(|event| event["ph"] != "M") {
        let ts = ns(&event["ts"]);
        assert!(ts >= last, "not in time order: {event}");
        last = ts;
        if event["ph"] != "X" {
            continue;
        }
        let end = ts + ns(&event["dur"]);
        let row = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        let open = open.entry(row).or_default();
        while open.last().is_some_and(|&until| until <= ts) {
            open.pop();
        }
        assert!(open.last().is_none_or(|&until| end <= until), "slices overlap: {event}");
        open.push(end);
    }
}

fn check_flows(events: &[Value], messages: usize) {
    let mut flows: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["cat"] == "message") {
        flows.entry(event["id"].as_u64().expect("an id")).or_default().push(event);
    }
    assert_eq!(flows.len(), messages);
    for pair in flows.values() {
        let phases: Vec<_> = pair.iter().map(|event| event["ph"].as_str().unwrap()).collect();
        assert_eq!(phases, ["s", "f"]);
        for event in pair {
            let starts = |slice: &&Value| {
                slice["ph"] == "X"
                    && ["pid", "tid", "ts"].iter().all(|key| slice[*key] == event[*key])
            };
            assert!(events.iter().any(|slice| starts(&slice)), "an arrow without a start: {event}");
        }
    }
}

fn events(file: &str, arguments: &[&str], name: &str) -> Vec<Value> {
    let out = path(name);
    stdout(&[&["simulate", "goal", file, "--timeline", &out], arguments].concat());
    let text = fs::read_to_string(&out).expect("a file");
    let value: Value = serde_json::from_str(&text).expect("strict JSON");
    value["traceEvents"].as_array().expect("events").clone()
}

#[test]
fn a_timeline_is_a_trace_that_viewers_can_read() {
    let jobs = ["--op", "barrier,bcast", "--ranks", "12", "--iterations", "3", "--compute", "7us"];
    let file = generated("blame-timeline.goal", &jobs);
    let messages = json(&["simulate", "goal", &file])["messages"].as_u64().unwrap() as usize;
    let noise = ["--noise", DEMO, "--noise", "periodic:100kHz,1us", "--seed", "5"];
    for (index, more) in [
        vec![],
        vec!["--noise-model", "cpu-time"],
        vec!["--model", "loggopsim"],
        vec!["--net", "L=0,o=700ns,g=2us,G=1ns,S=0", "--rendezvous", "handshake"],
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("blame-timeline-{index}.json");
        let events = events(&file, &[&noise[..], &more].concat(), &name);
        check_rows(&events);
        check_flows(&events, messages);
        assert!(events.iter().any(|event| event["cat"] == "noise"), "{more:?}");
        let named = |what: &str| events.iter().any(|event| event["args"]["name"] == what);
        assert!(named("rank 11") && named("CPU 0") && named("NIC 0 out"));
        assert!(named("critical path"));
        // The path has no gaps: its slices follow each other from 0 to the end.
        let mut at = 0;
        for slice in events.iter().filter(|event| event["pid"] == 13 && event["ph"] == "X") {
            assert_eq!(slice["args"]["from_ps"].as_i64(), Some(at), "{more:?}");
            at = slice["args"]["to_ps"].as_i64().expect("a time");
        }
        // Its noise is where a detour was.
        let times = |event: &Value| ["from_ps", "to_ps"].map(|key| event["args"][key].as_i64());
        let noises = events.iter().filter(|event| event["cat"] == "noise" && event["ph"] == "X");
        let (path, cpus): (Vec<&Value>, Vec<&Value>) = noises.partition(|e| e["pid"] == 13);
        assert!(!path.is_empty(), "{more:?}");
        for [from, to] in path.into_iter().map(times) {
            let within = |[begin, end]: [Option<i64>; 2]| begin <= from && to <= end;
            assert!(cpus.iter().map(|event| times(event)).any(within), "{more:?}: {from:?} {to:?}");
        }
        let max = json(&[&["simulate", "goal", &file, "--unit", "ps"], &noise[..], &more].concat());
        assert_eq!(max["max"].as_i64(), Some(at), "{more:?}");
    }
}

#[test]
fn a_diagram_has_a_bar_and_an_arrow_for_everything() {
    let file = generated("blame-diagram.goal", &["--op", "bcast", "--ranks", "15"]);
    let out = path("blame-diagram.svg");
    stdout(&["simulate", "goal", &file, "--timeline", &out]);
    let svg = fs::read_to_string(&out).expect("a file");
    // 14 messages: a bar at either end, on CPU and NIC; an arrow each and two in the legend.
    let count = |what: &str| svg.matches(what).count();
    assert_eq!(count("<rect class=\"s "), 14 + 1);
    assert_eq!(count("<rect class=\"r "), 14 + 1);
    assert_eq!(count("<rect class=\"g "), 28 + 1);
    assert_eq!(count("marker-end"), 14 + 2);
    assert_eq!(count("rank 14</text>"), 1);
}

#[test]
fn a_handshake_shows_its_request_and_its_answer() {
    let large = PING.replace("101b", "5000b");
    let file = scratch("blame-handshake.goal", &large);
    let out = path("blame-handshake.svg");
    let arguments = ["simulate", "goal", &file, "--net", NET, "--rendezvous", "handshake"];
    stdout(&[&arguments[..], &["--timeline", &out]].concat());
    let svg = fs::read_to_string(&out).expect("a file");
    let dashed: Vec<_> = svg.lines().filter(|line| line.contains("dasharray")).collect();
    assert_eq!(dashed.len(), 2, "{svg}");
    // The receive is posted long before: the payload waits for both.
    assert!(dashed.iter().all(|line| line.contains("class=\"fp\"")), "{dashed:?}");
}

#[test]
fn pictures_that_nobody_could_read_are_refused_with_what_to_do_instead() {
    let file = generated("blame-large.goal", &["--op", "barrier", "--ranks", "65"]);
    let refused = |out: &str| {
        let arguments = ["simulate", "goal", &file, "--timeline", &path(out)];
        let output = detour(&arguments).assert().code(1).get_output().stderr.clone();
        String::from_utf8(output).expect("text")
    };
    let error = refused("blame-large.svg");
    assert!(error.contains("limited to 64 ranks") && error.contains("blame-large.json"), "{error}");
    let error = refused("blame-large.png");
    assert!(error.contains(".svg") && error.contains(".json"), "{error}");
}

const STENCIL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/mpi/stencil");

#[test]
fn the_path_of_a_real_run_adds_up_to_its_time_and_the_causes_to_its_waiting() {
    let (blame, profile) = (json(&["blame", STENCIL]), json(&["mpi", "report", STENCIL]));
    let ns = |value: &Value| value.as_u64().expect("a number");
    let parts = ["compute_ns", "communication_ns", "noise_ns"].map(|key| ns(&blame["path"][key]));
    assert_eq!(parts.iter().sum::<u64>(), ns(&blame["wall_ns"]));
    // The end of the last call and that in the header are converted from ticks separately.
    assert!((number(&blame, "wall_s") - number(&profile, "wall_s")).abs() < 1e-6);
    assert_eq!(blame["waiting_ns"], profile["waits"]["total_ns"]);
    let rows = blame["waits"].as_array().expect("a list");
    let sum: u64 = rows.iter().map(|row| ns(&row["ns"])).sum();
    assert_eq!(sum + ns(&blame["other_waits_ns"]), ns(&blame["waiting_ns"]));
    // The fixture computes most on rank 2, in the region `step`.
    assert_eq!(rows[0]["class"], "late sender");
    assert_eq!(rows[0]["cause"]["rank"], 2);
    assert_eq!(rows[0]["cause"]["region"], "step");
    assert_eq!(rows[0]["cause"]["source"], Value::Null);
    assert_eq!(blame["unexplained_pct"], 0.0);
    assert_eq!(blame["noise"]["missing_ranks"], serde_json::json!([0, 1, 2, 3]));
    let text = stdout(&["blame", STENCIL]);
    assert!(text.contains("noise was not recorded") && text.contains("Waiting by cause"), "{text}");
}

#[test]
fn the_page_of_a_blame_needs_nothing_else() {
    let page = path("blame.html");
    detour(&["blame", STENCIL, "--html", &page, "-q"]).assert().success().stdout("");
    let html = fs::read_to_string(&page).expect("a page");
    let html = html.replace("http://www.w3.org/2000/svg", "");
    for foreign in ["http://", "https://", "src=", "@import", "url(h"] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    assert!(html.contains(r#"class="crit""#) && html.contains("MPI_Finalize"));
}

#[test]
fn blame_refuses_what_is_not_of_the_run() {
    refused(&["blame", STENCIL, DEMO], &["record both together with `detour mpi record --noise`"]);
    refused(&["blame", "/nonexistent"], &["/nonexistent"]);
    refused(
        &["blame", STENCIL, "--json", "--html", "/dev/stdout"],
        &["specify a file with --html"],
    );
}
