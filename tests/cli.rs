//! The command as scripts and people use it, on a recording that comes with the project. Runs
//! anywhere, as anyone.

use std::{collections::BTreeSet, fs, path::PathBuf};

use assert_cmd::Command;
use serde_json::Value;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/demo.detour");

fn detour(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("detour").expect("the binary is built");
    command.args(arguments);
    command
}

fn stdout(arguments: &[&str]) -> String {
    let output = detour(arguments).assert().success().get_output().stdout.clone();
    String::from_utf8(output).expect("text")
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(arguments)).expect("JSON and nothing else")
}

/// A file in the build's temporary directory.
fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn holds(value: &Value, wanted: &[&str]) {
    let missing: Vec<_> = wanted.iter().filter(|key| !keys(value).contains(**key)).collect();
    assert!(missing.is_empty(), "keys missing: {missing:?}");
}

#[test]
fn the_report_of_the_bundled_recording_looks_like_this() {
    insta::assert_snapshot!(stdout(&["report", DEMO]));
}

#[test]
fn report_json_has_the_keys_that_scripts_rely_on() {
    let report = json(&["report", DEMO, "--json"]);
    holds(
        &report,
        &[
            "host",
            "kernel",
            "duration_s",
            "cpus",
            "sources",
            "attributed",
            "outside_kernel",
            "lost",
            "closure_error",
            "overhead",
        ],
    );
    holds(&report["cpus"][0], &["cpu", "t_min_ns", "threshold_ns", "detours", "noise_pct"]);
    holds(
        &report["sources"][0],
        &[
            "class",
            "name",
            "unit",
            "detail",
            "count",
            "net_ns_total",
            "cost_ns_total",
            "cost_ns_p50",
            "cost_ns_p99",
            "cost_ns_max",
            "period_ns",
        ],
    );
    holds(&report["attributed"], &["time_pct", "count_pct"]);
    holds(&report["outside_kernel"][0], &["class", "count", "cost_ns_total"]);
    holds(&report["lost"], &["records", "detours", "unmatched"]);
    holds(&report["overhead"], &["events", "bpf_ns_total", "cpu_pct"]);
}

#[test]
fn every_source_of_the_bundled_recording_bears_a_known_class() {
    let report = json(&["report", DEMO, "--json"]);
    let classes: BTreeSet<&str> = trace::Class::ALL.iter().map(|class| class.name()).collect();
    for source in report["sources"].as_array().expect("sources") {
        assert!(classes.contains(source["class"].as_str().expect("class")), "{source}");
        assert!(!source["name"].as_str().expect("name").is_empty(), "{source}");
    }
}

#[test]
fn two_traces_make_a_list_of_reports() {
    let reports = json(&["report", DEMO, DEMO, "--json"]);
    assert_eq!(reports.as_array().map(Vec::len), Some(2));
}

#[test]
fn what_is_exported_for_netgauge_is_imported_again() {
    let file = scratch("netgauge.txt");
    let name = file.to_str().expect("text");
    detour(&["export", DEMO, "--to", "netgauge", "-o", name]).assert().success();
    let imported = json(&["import", name, "--json"]);
    let report = json(&["report", DEMO, "--json"]);
    let runs = imported["runs"].as_array().expect("runs");
    let cpus = report["cpus"].as_array().expect("cpus");
    assert_eq!(runs.len(), cpus.len());
    for (run, cpu) in runs.iter().zip(cpus) {
        holds(run, &["detours", "t_min_ns", "span_s", "noise_pct", "header"]);
        assert_eq!(run["detours"], cpu["detours"]);
    }
    // And such a file can be reported on like a trace, one run of it too.
    let second = json(&["report", &format!("{name}#2"), "--json"]);
    assert_eq!(second["cpus"].as_array().map(Vec::len), Some(1));
}

#[test]
fn an_imported_file_becomes_a_trace() {
    let (csv, output) = (scratch("noise.csv"), scratch("imported.detour"));
    fs::write(&csv, "start_ns,length_ns\n1000,200\n5000,300\n").expect("written");
    let arguments = ["import", csv.to_str().expect("text"), "-o", output.to_str().expect("text")];
    detour(&arguments).assert().success();
    let report = json(&["report", output.to_str().expect("text"), "--json"]);
    assert_eq!(report["mode"], "imported");
    assert_eq!(report["cpus"][0]["detours"], 2);
}

#[test]
fn every_export_format_writes_something() {
    for format in
        ["netgauge", "loggopsim", "csv", "records-csv", "json", "hlog", "hgrm", "fwq", "ftq"]
    {
        let text = stdout(&["export", DEMO, "--to", format]);
        assert!(text.lines().count() > 3, "{format}: {text}");
    }
}

#[test]
fn fixed_work_never_takes_less_than_the_work_and_fixed_time_never_holds_more() {
    for (format, least) in [("fwq", true), ("ftq", false)] {
        let text = stdout(&["export", DEMO, "--to", format, "--quantum", "100us"]);
        let values = text.lines().skip(1).filter_map(|line| line.rsplit(',').next()?.parse().ok());
        let values: Vec<u64> = values.collect();
        assert!(values.len() > 1_000, "{format}: {} quanta", values.len());
        assert!(
            values.iter().all(|&v| if least { v >= 100_000 } else { v <= 100_000 }),
            "{format}"
        );
        assert!(values.iter().any(|&v| v != 100_000), "{format}: no noise at all");
    }
}

#[test]
fn a_truncated_trace_is_reported_up_to_the_cut() {
    let bytes = fs::read(DEMO).expect("the bundled recording");
    let file = scratch("cut.detour");
    fs::write(&file, &bytes[..bytes.len() * 2 / 3]).expect("written");
    let report = json(&["report", file.to_str().expect("text"), "--json"]);
    assert!(report["truncated"].is_string(), "{}", report["truncated"]);
}

#[test]
fn wrong_usage_is_exit_code_2_and_failure_is_1() {
    detour(&["report"]).assert().code(2);
    detour(&["record", "-T", "nonsense"]).assert().code(2);
    detour(&["record", "--no-bpf", "--no-probe"]).assert().code(2);
    detour(&["report", "no-such-file"]).assert().code(1);
    detour(&["import", DEMO]).assert().code(1);
}
