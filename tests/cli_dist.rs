//! `detour dist`: distributions of any samples, from every kind of file.

use std::{fs, path::PathBuf};

use assert_cmd::Command;
use serde_json::Value;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/two-cpus.detour");

fn scratch(name: &str, content: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).expect("written");
    path.to_str().expect("text").to_owned()
}

fn dist(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("detour").expect("the binary is built");
    command.arg("dist").args(arguments);
    command
}

fn json(arguments: &[&str]) -> Value {
    let output = dist(arguments).arg("--json").assert().success().get_output().stdout.clone();
    serde_json::from_slice(&output).expect("JSON and nothing else")
}

fn refused(arguments: &[&str]) -> String {
    let output = dist(arguments).assert().failure().get_output().stderr.clone();
    String::from_utf8(output).expect("text")
}

fn draw(key: u64, i: u64) -> u64 {
    let z = (key << 32 | i).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn unit(key: u64, i: u64) -> f64 {
    ((draw(key, i) >> 12) as f64 + 0.5) / (1u64 << 52) as f64
}

/// Latencies in us around 4.6, 5.7 and 7.5, a line each, with these shares.
fn latencies(key: u64, n: u64, shares: [f64; 3]) -> String {
    let line = |i| {
        let normal =
            (-2.0 * unit(key, i).ln()).sqrt() * (std::f64::consts::TAU * unit(key + 1, i)).cos();
        let which = unit(key + 2, i);
        let (at, sd) = match which {
            u if u < shares[0] => (4.6, 0.1),
            u if u < shares[0] + shares[1] => (5.7, 0.15),
            _ => (7.5, 0.2),
        };
        format!("{:.3}\n", at + sd * normal)
    };
    (0..n).map(line).collect()
}

/// In this recording, the switches to a protected daemon were not seen: its time and its beginning are separate records.
#[test]
fn an_interruption_of_a_hidden_task_is_one_sample() {
    let value = json(&[DEMO, "--source", "tokio-rt-worker"]);
    let samples = &value["files"][0];
    assert_eq!(samples["n"], 11, "{samples}");
    assert_eq!(number(&samples["min"]), 32.513, "{samples}");
    assert_eq!(number(&samples["quantiles"]["p50"]), 238.96, "{samples}");
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

#[test]
fn figures_of_a_few_numbers_are_those_of_their_formulas() {
    let result = json(&[&scratch("dist-few.txt", "# us\n1\n1\n1\n2\n")]);
    assert_eq!(result["unit"], "us");
    let file = &result["files"][0];
    assert_eq!(file["n"], 4);
    let close = |key: &str, expected: f64| {
        let found = number(&file[key]);
        assert!((found - expected).abs() < 1e-9, "{key}: {found}, not {expected}");
    };
    // Bernoulli with p = 1/4.
    let pq = 0.25f64 * 0.75;
    close("min", 1.0);
    close("max", 2.0);
    close("mean", 1.25);
    close("sd", pq.sqrt());
    close("cv", pq.sqrt() / 1.25);
    close("skewness", 0.5 / pq.sqrt());
    close("kurtosis", 3.0 + (1.0 - 6.0 * pq) / pq);
    assert!((number(&file["about_min"]["sd"]) - 0.5).abs() < 1e-9);
    assert!((number(&file["about_min"]["skewness"]) - 2.0).abs() < 1e-9);
    assert!((number(&file["quantiles"]["p50"]) - 1.0).abs() < 1e-9);
    assert!((number(&file["quantiles"]["p90"]) - 1.7).abs() < 1e-9);
    assert_eq!(result["shifts"], Value::Array(Vec::new()));
}

#[test]
fn the_modes_of_the_paper_and_the_one_that_is_gone() {
    let before = scratch("dist-before.txt", &latencies(1, 20_000, [0.6, 0.3, 0.1]));
    let after = scratch("dist-after.txt", &latencies(2, 20_000, [0.86, 0.0, 0.14]));
    let result = json(&[&before, &after]);
    let modes = result["files"][0]["modes"].as_array().expect("modes");
    for (mode, (at, share)) in modes.iter().zip([(4.6, 0.6), (5.7, 0.3), (7.5, 0.1)]) {
        assert!((number(&mode["at"]) - at).abs() < 0.08, "{mode}");
        assert!((number(&mode["share"]) - share).abs() < 0.02, "{mode}");
        assert!(number(&mode["ci95"][0]) <= at + 0.05 && at - 0.05 <= number(&mode["ci95"][1]));
    }
    assert_eq!(modes.len(), 3);
    assert_eq!(result["files"][1]["modes"].as_array().map(Vec::len), Some(2));
    let said = result["verdict"][0].as_str().expect("a sentence");
    assert!(said.contains("the mode at 5.7"), "{said}");
    assert!(said.contains("30 % of all, is gone"), "{said}");
    let shifts = result["shifts"][0]["quantiles"].as_array().expect("quantiles");
    let labels: Vec<f64> = shifts.iter().map(|shift| number(&shift["p"])).collect();
    assert_eq!(labels, [0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999]);
}

#[test]
fn the_same_numbers_are_the_same_from_any_file_and_with_any_number_of_threads() {
    let text = latencies(3, 150_000, [0.5, 0.3, 0.2]);
    let file = scratch("dist-same.txt", &text);
    let mut one = json(&[&file, "-j", "1"]);
    assert_eq!(one, json(&[&file, "-j", "4"]));
    let piped = dist(&["-", "--json", "-j", "2"]).write_stdin(text.clone()).assert().success();
    let mut piped: Value = serde_json::from_slice(&piped.get_output().stdout).expect("JSON");
    let list: Vec<&str> = text.lines().collect();
    let listed =
        scratch("dist-same.json", &format!("{{\"half_round_trip_us\": [{}]}}", list.join(",")));
    let mut listed = json(&[&listed]);
    let netgauge: String = list.iter().map(|us| format!("16 {us}\n")).collect();
    let mut netgauge = json(&[&scratch("dist-same.ng", &netgauge)]);
    let nanoseconds: String =
        list.iter().map(|us| format!("{:.0}\n", us.parse::<f64>().unwrap() * 1e3)).collect();
    let mut in_ns = json(&[&scratch("dist-same-ns.txt", &nanoseconds), "--unit", "ns"]);
    for result in [&mut one, &mut piped, &mut listed, &mut netgauge, &mut in_ns] {
        let file = result["files"][0].as_object_mut().expect("a file");
        file.remove("name");
        file.remove("of");
        result.as_object_mut().expect("an object").remove("verdict");
    }
    assert_eq!(one, piped);
    // Moments are summed in other blocks.
    let rounded = |value: &Value| value["files"][0]["quantiles"].clone();
    for other in [listed, netgauge, in_ns] {
        assert_eq!(rounded(&one), rounded(&other));
        assert_eq!(one["files"][0]["modes"], other["files"][0]["modes"]);
    }
}

#[test]
fn recordings_are_distributions_of_detours_and_of_their_sources() {
    let whole = json(&[DEMO]);
    let report = Command::cargo_bin("detour").unwrap().args(["report", DEMO, "--json"]).output();
    let report: Value = serde_json::from_slice(&report.expect("ran").stdout).expect("JSON");
    assert_eq!(whole["files"][0]["n"], report["detours"], "all detours");
    let sources = json(&[DEMO, "--by", "source"]);
    let first = &sources["files"][0];
    assert_eq!(first["of"], "source");
    // As in the report, source by source.
    let rows = report["sources"].as_array().expect("sources");
    let mut compared = 0;
    for file in sources["files"].as_array().expect("files") {
        let name = file["name"].as_str().expect("a name");
        let row = rows.iter().find(|row| {
            let own = row["name"].as_str().unwrap_or_default();
            row["count"] == file["n"] && name.contains(own)
        });
        if let Some(row) = row {
            compared += 1;
            let longest = number(&row["cost_ns_max"]) / 1e3;
            assert!((number(&file["max"]) - longest).abs() < 1e-6, "{name}");
        }
    }
    assert!(compared >= 3, "{compared}");
    let one = rows[0]["name"].as_str().expect("a name");
    let named = json(&[DEMO, "--source", one]);
    assert!(named["files"][0]["name"].as_str().is_some_and(|name| name.contains(one)));
    assert!(refused(&[DEMO, "--source", "nothing-like-it"]).contains("no source named"));
}

#[test]
fn times_of_simulations_are_one_distribution_per_point() {
    let times = scratch("dist-times.csv", "");
    fs::remove_file(&times).expect("removed");
    let simulated =
        ["simulate", "collective", "-q", "--noise", "periodic:1000Hz,25us", "--ranks", "4,64"];
    let mut command = Command::cargo_bin("detour").expect("the command");
    command.args(simulated).args(["--runs", "200", "--times", &times]).assert().success();
    let result = json(&[&times]);
    let files = result["files"].as_array().expect("files");
    assert_eq!(files.len(), 2);
    assert_eq!(files[1]["n"], 200);
    assert!(files[1]["name"].as_str().is_some_and(|name| name.contains("64 ranks")));
    assert_eq!(result["shifts"].as_array().map(Vec::len), Some(1));
}

#[test]
fn bins_are_listed_and_sum_to_all_samples() {
    let file = scratch("dist-bins.txt", &latencies(5, 5_000, [0.5, 0.3, 0.2]));
    for bins in ["hdr", "fixed:50ns", "log:50ns"] {
        let result = json(&[&file, "--bins", bins]);
        let listed = result["files"][0]["bins"].as_array().expect("bins");
        let sum: u64 = listed.iter().map(|bin| bin["count"].as_u64().expect("a count")).sum();
        assert_eq!(sum, 5_000, "{bins}");
        assert!(listed.iter().all(|bin| number(&bin["from"]) < number(&bin["to"])), "{bins}");
    }
    assert!(json(&[&file])["files"][0]["bins"].is_null());
    assert!(refused(&[&file, "--bins", "fixed:0ns"]).contains("cannot be 0"));
    assert!(refused(&[&file, "--bins", "wide"]).contains("unknown bins 'wide'"));
    assert!(refused(&[&file, "--bins", "fixed:1ps"]).contains("use wider ones"));
}

#[test]
fn bad_input_is_refused_with_what_to_do() {
    for (name, content, wanted) in [
        ("empty", "", "it is empty"),
        ("comments", "# nothing\n\n", ""),
        ("word", "1\n2\nthree\n", "line 3: 'three' is not a number"),
        ("negative", "1\n-2\n", "line 2: '-2' is negative"),
        ("long", "1\n1e30\n", "line 2: '1e30' is too long"),
        ("columns", "1\n2 3\n", "line 2: '2 3' is not a number"),
        ("times", "ranks,size,net_scale,coscheduled,run,time_us\n4,8\n", "line 2: expected"),
    ] {
        let file = scratch(&format!("dist-bad-{name}.txt"), content);
        let said = refused(&[&file]);
        assert!(said.contains(wanted) && said.contains(&file), "{name}: {said}");
    }
    assert!(refused(&["no-such-file"]).contains("no-such-file"));
    let numbers = scratch("dist-bad-source.txt", "1\n2\n");
    assert!(refused(&[&numbers, "--by", "source"]).contains("require recordings"));
    let binary: String = (0..5_000u64).map(|i| char::from((draw(9, i) % 128) as u8)).collect();
    assert!(refused(&[&scratch("dist-bad-binary.txt", &binary)]).contains("cannot read samples"));
}

#[test]
fn a_few_samples_or_equal_ones_still_have_a_distribution() {
    for (name, content) in
        [("one", "5\n"), ("equal", "5\n5\n5\n"), ("two", "5\n7\n"), ("zero", "0\n0\n")]
    {
        let file = scratch(&format!("dist-little-{name}.txt"), content);
        let result = json(&[&file, &file]);
        assert_eq!(result["files"][0]["fits"], Value::Null, "{name}");
        assert!(dist(&[&file, &file]).assert().success().get_output().stdout.len() > 100);
        let page = scratch(&format!("dist-little-{name}.html"), "");
        dist(&[&file, &file, "--html", &page]).assert().success();
        let html = fs::read_to_string(page).expect("a page");
        assert!(!html.contains("NaN") && !html.contains(">inf"), "{name}");
    }
}

#[test]
fn the_page_has_all_figures_and_no_markup_of_its_input() {
    let before = scratch("dist-<b>page.txt", &latencies(6, 5_000, [0.6, 0.3, 0.1]));
    let after = scratch("dist-page2.txt", &latencies(7, 5_000, [0.6, 0.3, 0.1]));
    let page = scratch("dist-page.html", "");
    dist(&[&before, &after, "--html", &page]).assert().success();
    let html = fs::read_to_string(page).expect("a page");
    for id in ["pdf", "cdf", "tail"] {
        assert_eq!(html.matches(&format!(r#"<svg class="plot" id="{id}""#)).count(), 1, "{id}");
    }
    assert!(html.contains("Content-Security-Policy") && !html.contains("<b>page"));
    assert_eq!(html.matches("<script").count(), 1);
    assert!(html.contains("Shifts against"));
}

#[test]
fn text_fits_any_terminal() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("dist-widths");
    fs::create_dir_all(&directory).expect("a directory");
    scratch("dist-widths/before.txt", &latencies(1, 5_000, [0.6, 0.3, 0.1]));
    scratch("dist-widths/after.txt", &latencies(2, 5_000, [0.86, 0.0, 0.14]));
    for width in [60, 80, 120] {
        let mut command = dist(&["before.txt", "after.txt"]);
        command.current_dir(&directory).env("COLUMNS", width.to_string());
        let output = command.assert().success().get_output().stdout.clone();
        let text = String::from_utf8(output).expect("UTF-8");
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{width} columns: {line}");
        }
        insta::assert_snapshot!(format!("dist_{width}"), text);
    }
}
