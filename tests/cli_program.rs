//! A recorded program (`detour record -- COMMAND`) through everything that reads a trace: its lanes
//! are threads, some of which come and go, and part of its noise is the program itself.

mod command;
mod made;

use std::{fs, path::PathBuf};

use command::{detour, stdout};
use serde_json::Value;
use trace::{
    Block, Class, Lane, LaneId, LaneTotals, Manifest, Mode, Overwrite, Source, SourceId, Trailer,
    Writer,
};

const MS: u64 = 1_000_000;
const SOLVER: u32 = 4_000;
/// Thread id, and from when until when it existed (ms).
const THREADS: [(u32, u64, u64); 3] = [(4_000, 0, 4_000), (4_001, 100, 4_000), (4_007, 50, 52)];
/// Class, name, unit, process; period (ms), and duration (ns).
type Habit = (Class, &'static str, Option<&'static str>, Option<u32>, u64, u64);
const HABITS: [Habit; 4] = [
    (Class::Thread, "solver", Some("job.scope"), Some(SOLVER), 9, 900_000),
    (Class::Thread, "fakemond", Some("fakemond.service"), Some(77), 50, 400_000),
    (Class::PageFault, "solver", Some("job.scope"), Some(SOLVER), 3, 1_500),
    (Class::Timer, "tick", None, None, 4, 4_000),
];

fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Four seconds of a program with two threads and a short one.
fn program(name: &str) -> String {
    let path = scratch(name);
    let lane =
        |&(tid, ..): &(u32, u64, u64)| Lane::Thread { pid: SOLVER, tid, name: "solver".into() };
    let manifest = Manifest {
        host: "node01".into(),
        kernel: "6.1.0".into(),
        mode: Mode::Program,
        lanes: THREADS.iter().map(lane).collect(),
        ..Manifest::default()
    };
    let mut writer = Writer::create(&path, Overwrite::Yes, &manifest).expect("created");
    for (id, (class, name, unit, pid, ..)) in (0..).zip(HABITS) {
        let (name, unit) = (name.to_owned(), unit.map(str::to_owned));
        let pids = pid.into_iter().collect();
        let source = Source {
            class,
            name,
            unit,
            detail: None,
            pids,
            own: false,
            program: false,
            policy: None,
            cause: None,
        };
        writer.add_source(SourceId(id), &source).expect("added");
    }
    let mut totals = Vec::new();
    for (lane, (_, from, to)) in (0..).zip(THREADS) {
        let mut block = Block::new(LaneId(lane));
        let mut free_at = from * MS;
        for ms in from..to {
            for (id, (.., every, len_ns)) in (0..).zip(HABITS) {
                let start_ns = (ms * MS + u64::from(id) * 50_000).max(free_at);
                if ms % every != every - 1 || start_ns + len_ns > to * MS {
                    continue;
                }
                free_at = start_ns + len_ns;
                made::strike(&mut block, SourceId(id), 0, (start_ns, len_ns));
            }
        }
        writer.write_block(&block).expect("written");
        let (from_ns, to_ns) = (from * MS, to * MS);
        totals.push(LaneTotals { lane, from_ns, to_ns, ..LaneTotals::default() });
    }
    writer.finish(Trailer { lanes: totals, ..Trailer::default() }).expect("finished");
    path.to_str().expect("text").to_owned()
}

fn json(arguments: &[&str]) -> Value {
    let with_json = [arguments, &["--json"]].concat();
    serde_json::from_str(&stdout(&with_json)).expect("JSON and nothing else")
}

#[test]
fn threads_that_come_and_go_lend_no_rank_their_noise() {
    let trace = program("program-whatif.detour");
    // A run takes longer than the short thread existed: --repeat-trace is not needed for that.
    // The collective that simulations have by default.
    let bare = ["--ranks", "256", "--runs", "40", "--iterations", "1", "--compute", "0"];
    let bare = [&bare[..], &["--size", "1", "--net", "cnl"]].concat();
    let value = json(&[&["whatif", &trace], &bare[..]].concat());
    assert!(value["baseline"]["median_us"].as_f64().is_some_and(|us| us > 2_000.0), "{value}");
    assert!(value["remarks"][0].as_str().is_some_and(|said| said.contains("1 of 3 threads")));
    // The totals cover the whole recording, as in the report.
    let report = json(&["report", &trace]);
    assert_eq!(value["baseline"]["detours"], report["detours"]);

    let job = ["simulate", "collective", "--noise", &trace, "--ranks", "256", "--runs", "40"];
    let output = detour(&job).arg("--json").assert().success().get_output().clone();
    let simulated: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(simulated["points"][0]["median_us"], value["baseline"]["median_us"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("1 of 3 threads"));

    let diff = json(&[&["diff", &trace, &trace], &bare[..]].concat());
    let projected = &diff["projected"]["before"]["median_us"];
    assert_eq!(*projected, value["baseline"]["median_us"], "{diff}");
}

#[test]
fn a_program_is_told_to_make_room_for_itself_and_others_to_go() {
    let trace = program("program-advice.detour");
    let text = stdout(&["whatif", &trace, "--ranks", "256", "--runs", "40"]);
    assert!(text.contains("OMP_NUM_THREADS"), "{text}");
    assert!(text.contains("systemctl mask --now fakemond.service"), "{text}");
    assert!(!text.contains("systemctl set-property --runtime job.scope"), "{text}");
}

#[test]
fn the_page_of_a_program_has_its_threads() {
    let (trace, page) = (program("program-page.detour"), scratch("program.html"));
    let page = page.to_str().expect("text");
    stdout(&["report", "-q", &trace, "--html", page, "--ranks", "2..256", "--runs", "8"]);
    let html = fs::read_to_string(page).expect("a page");
    for wanted in ["solver 4001", "3 threads", "OMP_NUM_THREADS", "1 of 3 threads"] {
        assert!(html.contains(wanted), "no {wanted}");
    }
}

#[test]
fn every_format_has_a_programs_threads() {
    let trace = program("program-export.detour");
    for (format, lane) in [
        ("csv", "solver-4001"),
        ("json", "solver-4001"),
        ("netgauge", "# Lane : solver-4001"),
        ("fwq", "solver-4001,"),
        ("ftq", "solver-4001,"),
        ("records-csv", "solver-4001"),
        ("perfetto", "solver"),
        ("openmetrics", "mode=\"program\""),
        ("parquet", "solver"),
        ("hgrm", "[Mean"),
        ("loggopsim", "solver-4001"),
    ] {
        let output = detour(&["export", &trace, "--to", format]).assert().success();
        let text = String::from_utf8_lossy(&output.get_output().stdout).into_owned();
        assert!(!text.is_empty() && text.contains(lane), "{format}: {text:.300}");
    }
}
