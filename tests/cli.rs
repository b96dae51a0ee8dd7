//! The command as used by scripts and people, on a recording of two CPUs. Runs anywhere, without
//! privileges.

mod command;
mod made;

use std::{collections::BTreeSet, fs};

use command::{detour, stdout};
use made::scratch;
use serde_json::Value;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/two-cpus.detour");

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(arguments)).expect("JSON and nothing else")
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn holds(value: &Value, wanted: &[&str]) {
    let missing: Vec<_> = wanted.iter().filter(|key| !keys(value).contains(**key)).collect();
    assert!(missing.is_empty(), "keys missing: {missing:?}");
}

#[test]
fn the_report_of_a_recording_looks_like_this() {
    insta::assert_snapshot!(stdout(&["report", DEMO]));
}

/// What readers see first is what the program prints.
#[test]
fn the_readme_shows_the_report_of_the_bundled_recording() {
    const BUNDLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/demo.detour");
    let readme = include_str!("../README.md");
    let report = stdout(&["report", BUNDLED]);
    assert!(readme.contains(&format!("```text\n{report}```")), "README.md shows another report");
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
fn every_source_of_the_recording_bears_a_known_class() {
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
    // Such a file can be reported on like a trace, and so can one of its runs.
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
    // A list of times contains neither.
    assert!(report["cpus"][0]["t_min_ns"].is_null() && report["cpus"][0]["threshold_ns"].is_null());
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
fn perfetto_and_parquet_files_begin_as_such_files_do() {
    for (format, begins) in [("perfetto", &[0x0a][..]), ("parquet", b"PAR1")] {
        let output = detour(&["export", DEMO, "--to", format]).assert().success();
        assert!(output.get_output().stdout.starts_with(begins), "{format}");
    }
}

/// One trace of two nodes with a CPU each.
fn two_nodes(name: &str) -> String {
    let nodes = [0, 1].map(|number| {
        let node = made::Node {
            host: format!("node{number}"),
            job: None,
            started_unix_s: 1000.0 + f64::from(number),
        };
        let name = format!("{name}-{number}.detour");
        made::recording_of(&name, node, trace::Mode::Attributed, 1, 2, &[made::TICK])
    });
    let merged = scratch(&format!("{name}.detour")).to_str().expect("text").to_owned();
    stdout(&["merge", "-q", "-o", &merged, &nodes[0], &nodes[1]]);
    merged
}

#[test]
fn metrics_are_bounded_and_well_formed() {
    let all = stdout(&["export", DEMO, "--to", "openmetrics", "--top", "1000"]);
    let few = stdout(&["export", DEMO, "--to", "openmetrics", "--top", "3"]);
    let nodes = stdout(&["export", &two_nodes("cli-metrics"), "--to", "openmetrics"]);
    for number in 0..2 {
        let series = format!("detour_cpu_noise_ratio{{host=\"node{number}\",cpu=\"0\"}} ");
        assert!(nodes.contains(&series), "{nodes}");
    }
    for text in [&all, &few, &nodes] {
        assert!(text.ends_with("\n# EOF\n"));
        let mut typed = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a type");
                assert_eq!(kind, "gauge");
                assert!(typed.insert(name.to_owned()), "{name} twice");
            } else if let Some(rest) = line.strip_prefix("# UNIT ") {
                let (name, unit) = rest.split_once(' ').expect("a unit");
                assert!(name.ends_with(&format!("_{unit}")), "{line}");
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').expect("a value");
                assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
                assert!(typed.contains(series.split('{').next().expect("a name")), "{line}");
                assert!(seen.insert(series.to_owned()), "{series} twice");
            }
        }
    }
    let named = |text: &str| {
        let lines = text.lines().filter(|line| line.starts_with("detour_source_taken_seconds{"));
        lines.filter(|line| !line.contains("name=\"other\"")).count()
    };
    let outside =
        json(&["report", DEMO, "--json"])["outside_kernel"].as_array().map_or(0, Vec::len);
    assert_eq!(named(&few), 3 + outside);
    assert!(named(&all) > 10);
    // The limit loses nothing: the sums are the same.
    let sum = |text: &str| {
        let lines = text.lines().filter(|line| line.starts_with("detour_source_taken_seconds{"));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum::<f64>()
    };
    assert!((sum(&all) - sum(&few)).abs() < 1e-9, "{} {}", sum(&all), sum(&few));
    detour(&["export", DEMO, "--to", "openmetrics", "-c", "0"]).assert().code(1);
}

#[test]
fn a_cpu_that_several_nodes_have_is_not_chosen_among() {
    let said =
        detour(&["export", &two_nodes("cli-cpu"), "--to", "csv", "-c", "0"]).assert().code(1);
    let said = String::from_utf8_lossy(&said.get_output().stderr).into_owned();
    assert!(said.contains("CPU 0 on each of 2 nodes: omit -c"), "{said}");
}

#[test]
fn the_page_of_the_command_line_is_what_the_options_say() {
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cli.md");
    let committed = fs::read_to_string(committed).expect("docs/cli.md");
    // Not assert_eq: the difference would be two whole pages.
    assert!(
        committed == stdout(&["man", "--markdown"]),
        "docs/cli.md does not match the options: run `cargo xtask docs`"
    );
}

#[test]
fn every_command_has_a_manual_page_and_every_shell_its_completions() {
    let directory = scratch("man");
    let name = directory.to_str().expect("text");
    detour(&["man", "-o", name]).assert().success();
    let help = stdout(&["--help"]);
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    // Descriptions continue in lines that are indented further.
    let commands = commands.filter(|line| !line.starts_with("   "));
    let mut count = 0;
    for command in commands.filter_map(|line| line.split_whitespace().next()) {
        if command == "help" {
            continue;
        }
        let page = directory.join(format!("detour-{command}.1"));
        let page = fs::read_to_string(&page).unwrap_or_else(|_| panic!("{}", page.display()));
        assert!(page.contains(".TH detour-"), "{command}");
        count += 1;
    }
    assert!(count >= 8, "{help}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout(&["completions", shell]);
        assert!(script.contains("openmetrics") && script.contains("doctor"), "{shell}");
    }
}

#[test]
fn watching_without_a_terminal_points_to_what_works_there() {
    let output = detour(&["top", "--no-bpf", "-d", "1s"]).assert().code(1);
    let said = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    assert!(said.contains("detour record") && said.contains("detour report"), "{said}");
    detour(&["top", "--probe", "--no-probe"]).assert().code(2);
    detour(&["top", "--pid", "1", "--no-bpf"]).assert().code(2);
    detour(&["top", "--interval", "1ms"]).assert().code(2);
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
fn a_recording_shorter_than_one_quantum_is_refused() {
    // Of four seconds, part of which noise took.
    for (format, quantum, what) in [
        ("ftq", "10s", "too short for a quantum of 10s: it was recorded for 4"),
        ("fwq", "3999ms", "too short for a quantum of work of 3.999s: it was recorded for 4"),
    ] {
        command::refused(&["export", DEMO, "--to", format, "--quantum", quantum], &[what]);
        let file = scratch(&format!("none.{format}"));
        let name = file.to_str().expect("text");
        detour(&["export", DEMO, "--to", format, "--quantum", quantum, "-o", name])
            .assert()
            .code(1);
        assert!(!file.exists());
    }
}

#[test]
fn a_truncated_trace_is_reported_up_to_the_cut() {
    let bytes = fs::read(DEMO).expect("the recording");
    let file = scratch("cut.detour");
    fs::write(&file, &bytes[..bytes.len() * 2 / 3]).expect("written");
    let report = json(&["report", file.to_str().expect("text"), "--json"]);
    assert!(report["truncated"].is_string(), "{}", report["truncated"]);
}

#[test]
fn wrong_usage_is_exit_code_2_and_failure_is_1() {
    detour(&["report", "--no-such-option"]).assert().code(2);
    // The working directory has no recordings.
    detour(&["report"]).assert().code(1);
    detour(&["record", "-T", "nonsense"]).assert().code(2);
    detour(&["record", "--no-bpf", "--no-probe"]).assert().code(2);
    detour(&["report", "no-such-file"]).assert().code(1);
    detour(&["import", DEMO]).assert().code(1);
}

#[test]
fn a_mistyped_command_costs_no_recording() {
    let file = scratch("good.detour");
    fs::copy(DEMO, &file).expect("copied");
    let name = file.to_str().expect("text");
    // As in a shell: not found, and found but not executable.
    for (command, code) in
        [("no-such-program", 127), ("/no/such/program", 127), (env!("CARGO_TARGET_TMPDIR"), 126)]
    {
        let asked = detour(&["record", "-o", name, "--", command]).assert().code(code);
        let said = String::from_utf8_lossy(&asked.get_output().stderr).into_owned();
        assert!(said.contains(&format!("cannot run {command}: ")), "{said}");
        let left = fs::read(&file).expect("it is still there");
        assert!(left == fs::read(DEMO).expect("the recording"), "{command}");
    }
}
