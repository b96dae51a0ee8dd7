//! `detour whatif` and `detour diff` as used by scripts and people, on synthetic recordings with known
//! answers. Runs anywhere, without privileges.

mod command;
mod made;

use std::fs;

use command::{detour, stdout};
use made::{CARD, DAEMON, HELPER, Habit, MS, TICK, US, recording, scratch};
use serde_json::Value;
use trace::Mode;

const NODE: [Habit; 4] = [TICK, DAEMON, HELPER, CARD];

fn json(arguments: &[&str]) -> Value {
    let with_json = [arguments, &["--json"]].concat();
    serde_json::from_str(&stdout(&with_json)).expect("JSON and nothing else")
}

fn refused(arguments: &[&str]) -> String {
    let output = detour(arguments).assert().failure().code(1).get_output().stderr.clone();
    String::from_utf8(output).expect("text")
}

fn node(name: &str) -> String {
    recording(name, Mode::Attributed, 2, 10, &NODE)
}

fn source<'a>(value: &'a Value, name: &str) -> &'a Value {
    let sources = value["sources"].as_array().expect("sources");
    sources.iter().find(|source| source["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} of {value}"))
}

fn holds(value: &Value, wanted: &[&str]) {
    for key in wanted {
        assert!(value.get(key).is_some(), "{key} is missing in {value}");
    }
}

#[test]
fn whatif_json_has_the_keys_that_scripts_rely_on() {
    let value = json(&["whatif", &node("keys.detour"), "--ranks", "4096", "--runs", "60"]);
    holds(&value, &["ranks", "baseline", "sources", "units", "seed", "runs"]);
    assert_eq!(value["ranks"], 4096);
    holds(&value["baseline"], &["median_us", "slowdown_median"]);
    let sources = value["sources"].as_array().unwrap();
    assert_eq!(sources.len(), 4);
    for source in sources {
        let keys = ["class", "name", "unit", "median_us_without", "gain_pct", "gain_ci95_pct"];
        holds(source, &keys);
    }
    let gains: Vec<f64> = sources.iter().map(|source| number(source, "gain_pct")).collect();
    assert!(gains.is_sorted_by(|a, b| a >= b), "{gains:?}");
}

/// The collective that simulations have by default.
const BARE: [&str; 8] = ["--iterations", "1", "--compute", "0", "--size", "1", "--net", "cnl"];

#[test]
fn at_scale_the_daemon_costs_most_though_the_tick_takes_most() {
    let trace = node("scale.detour");
    let options = ["whatif", &trace, "--ranks", "4096", "--runs", "60"];
    let value = json(&[&options[..], &BARE].concat());
    let (tick, daemon) = (source(&value, "tick"), source(&value, "fakemond"));
    assert_eq!((&tick["local_rank"], &daemon["rank"]), (&1.into(), &1.into()));
    assert!(number(daemon, "gain_pct") > 20.0 && daemon["effect"] == "gain", "{daemon}");
    assert!(daemon["gain_ci95_pct"][0].as_f64() > tick["gain_ci95_pct"][1].as_f64());
    assert_eq!(source(&value, "eth0")["effect"], "nothing");
    assert!(daemon["advice"][0]["run"][0].as_str().unwrap().contains("fakemond.service"));
    assert!(source(&value, "eth0")["advice"].as_array().unwrap().is_empty());

    // Removing it equals leaving it out of the noise, bit for bit.
    let simulated = json(&[
        "simulate",
        "collective",
        "--ranks",
        "4096",
        "--runs",
        "60",
        "--noise",
        &trace,
        "--without",
        "thread:fakemond",
    ]);
    assert_eq!(simulated["points"][0]["median_us"], daemon["median_us_without"]);
    let baseline = number(&value["baseline"], "median_us");
    let gain = 100.0 * (baseline - number(daemon, "median_us_without")) / baseline;
    assert!((gain - number(daemon, "gain_pct")).abs() < 1e-9);
}

/// The node without the daemon, recorded again: other ticks, other phases.
#[test]
fn without_a_source_is_like_a_recording_made_without_it() {
    let with = recording("fresh-with.detour", Mode::Attributed, 2, 20, &[TICK, DAEMON]);
    let tick = Habit { every_ns: TICK.every_ns + 1, ..TICK };
    let without = recording("fresh-without.detour", Mode::Attributed, 2, 20, &[tick]);
    let options = ["--ranks", "256", "--runs", "400", "--iterations", "20", "--compute", "100us"];
    let value = json(&[&["whatif", &with][..], &options].concat());
    let fresh = json(&[&["whatif", &without][..], &options].concat());
    let interval = &source(&value, "fakemond")["median_ci95_us_without"];
    let median = number(&fresh["baseline"], "median_us");
    let (low, high) = (interval[0].as_f64().unwrap(), interval[1].as_f64().unwrap());
    // Both are medians of runs, so the second one has an interval as well.
    let other = &fresh["baseline"]["median_ci95_us"];
    let overlap = low <= other[1].as_f64().unwrap() && other[0].as_f64().unwrap() <= high;
    assert!(overlap, "{low} to {high}, fresh {median} ({other})");
    assert!(number(&value["baseline"], "median_us") > high, "the daemon made no difference");
}

#[test]
fn the_seed_decides_and_threads_do_not() {
    let trace = node("threads.detour");
    let run = |threads: &str, seed: &str| {
        stdout(&[
            "whatif",
            &trace,
            "--ranks",
            "500",
            "--runs",
            "30",
            "--quantise",
            "--shift",
            "0",
            "-j",
            threads,
            "--seed",
            seed,
        ])
    };
    let one = run("1", "4");
    assert_eq!(run("3", "4"), one);
    assert_ne!(run("2", "5"), one);
}

#[test]
fn removed_together_moved_and_coscheduled() {
    let trace = node("together.detour");
    let value = json(&[
        "whatif",
        &trace,
        "--ranks",
        "4096",
        "--runs",
        "60",
        "--remove",
        "fakemond",
        "--remove",
        "timer",
        "--shift",
        "64",
        "--quantise",
    ]);
    let together = &value["together"];
    assert_eq!(together["source_count"], 2);
    let daemon = source(&value, "fakemond");
    assert!(number(together, "gain_pct") >= number(daemon, "gain_pct"));
    // No rank runs on CPU 64; a tick cannot be moved there.
    assert_eq!(daemon["shifted"]["gain_pct"], daemon["gain_pct"]);
    assert!(source(&value, "tick")["shifted"].is_null());
    assert!(number(&daemon["quantised"], "gain_pct") > 0.8 * number(daemon, "gain_pct"));
    // A unit of two sources is removed as a whole.
    let unit = &value["units"][0];
    assert_eq!((&unit["unit"], &unit["source_count"]), (&"fakemond.service".into(), &2.into()));
    assert!(number(unit, "gain_pct") >= number(daemon, "gain_pct"));
    let message = refused(&["whatif", &trace, "--remove", "nobody"]);
    assert!(message.contains("'nobody'") && message.contains("detour report"), "{message}");
}

#[test]
fn what_whatif_says() {
    let trace = node("said.detour");
    let common = ["whatif", &trace, "--ranks", "4096", "--runs", "60"];
    insta::assert_snapshot!("whatif", stdout(&common));
    let more =
        [&common[..], &["--remove", "fakemond.service", "--shift", "1", "--quantise"]].concat();
    insta::assert_snapshot!("whatif_more", stdout(&more));
    let few = [&common[..], &["--top", "1", "--runs", "10"]];
    insta::assert_snapshot!("whatif_top", stdout(&[&few[0][..4], few[1]].concat()));
}

#[test]
fn a_schedule_can_be_asked_about() {
    let trace = node("goal.detour");
    let goal = scratch("whatif.goal");
    let goal = goal.to_str().unwrap();
    detour(&[
        "goal",
        "gen",
        "--op",
        "allreduce",
        "--ranks",
        "64",
        "--iterations",
        "30",
        "-o",
        goal,
    ])
    .assert()
    .success();
    let of_goal = json(&["whatif", &trace, "--goal", goal, "--runs", "40"]);
    let options = ["--ranks", "64", "--iterations", "30", "--runs", "40"];
    let options = [&options[..], &["--compute", "0", "--size", "1"]].concat();
    let of_job = json(&[&["whatif", &trace][..], &options].concat());
    assert_eq!(of_goal["ranks"], 64);
    for name in ["tick", "fakemond"] {
        let (a, b) = (source(&of_goal, name), source(&of_job, name));
        assert_eq!(a["median_us_without"], b["median_us_without"], "{name}");
    }
}

#[test]
fn recordings_without_sources_are_refused_with_a_reason() {
    let probe = recording("probe-only.detour", Mode::ProbeOnly, 1, 1, &[]);
    assert!(refused(&["whatif", &probe]).contains("--no-bpf"));
    let imported = recording("imported.detour", Mode::Imported, 1, 1, &[]);
    assert!(refused(&["whatif", &imported]).contains("no sources"));
    let csv = scratch("whatif.csv");
    fs::write(&csv, "start_ns,length_ns\n100,50\n5000,70\n").unwrap();
    let message = refused(&["whatif", csv.to_str().unwrap()]);
    assert!(message.contains("no sources"), "{message}");
}

#[test]
fn advice_of_ones_own_goes_first_and_a_bad_table_is_refused() {
    let trace = node("advice.detour");
    let table = scratch("advice.toml");
    fs::write(
        &table,
        "[[advice]]\nclass = 'thread'\nname = 'fake*'\n[[advice.remedy]]\nwhat = 'ask ops'\n\
         run = ['mail ops {name}']\nreason = 'r'\nrisk = 'k'\n",
    )
    .unwrap();
    let path = table.to_str().unwrap();
    let common = ["whatif", &trace, "--ranks", "1024", "--runs", "30", "--advice", path];
    let text = stdout(&common);
    assert!(text.contains("Ask ops.") && text.contains("mail ops fakemond"), "{text}");
    fs::write(&table, "[[advice]]\nclass = 'daemon'\n").unwrap();
    let message = refused(&common);
    assert!(message.contains("advice.toml") && message.contains("class"), "{message}");
}

#[test]
fn every_view_copes_with_nothing_one_detour_and_many_cpus() {
    let once = Habit { every_ns: 600 * MS, ..DAEMON };
    let traces = [
        recording("nothing.detour", Mode::Attributed, 1, 1, &[]),
        recording("once.detour", Mode::Attributed, 1, 1, &[once]),
        recording("many.detour", Mode::Attributed, 64, 1, &NODE),
    ];
    for trace in &traces {
        for ranks in ["1", "2", "300"] {
            let common = ["whatif", trace, "--ranks", ranks, "--runs", "10", "--quantise"];
            assert!(!stdout(&common).is_empty());
            json(&common);
        }
        json(&["diff", trace, &traces[0], "--ranks", "64", "--runs", "10"]);
    }
}

#[test]
fn diff_tells_what_appeared_vanished_and_stayed() {
    let before = recording("before.detour", Mode::Attributed, 2, 10, &NODE);
    let busier = Habit { every_ns: 25 * MS, ..CARD };
    let new = Habit { name: "newd", every_ns: 200 * MS, takes_ns: 50 * US, unit: None, ..DAEMON };
    let after = recording("after.detour", Mode::Attributed, 2, 10, &[TICK, busier, new]);
    let value = json(&["diff", &before, &after, "--ranks", "1024", "--runs", "50"]);
    let verdict = |name: &str| source(&value, name)["verdict"].as_str().unwrap().to_owned();
    assert_eq!(verdict("fakemond"), "vanished");
    assert_eq!(verdict("newd"), "appeared");
    assert_eq!(verdict("tick"), "unchanged");
    assert_eq!(verdict("eth0"), "more");
    let daemon = source(&value, "fakemond");
    assert_eq!(daemon["before"]["count"], 200);
    assert!((number(&daemon["before"]["rate_hz"], "value") - 20.0).abs() < 1e-6, "{daemon}");
    let rate = &daemon["before"]["rate_hz"];
    assert!(number(rate, "low") <= 20.0 && number(rate, "high") >= 20.0);
    let projected = &value["projected"];
    assert!(
        number(&projected["after"], "slowdown_median")
            < number(&projected["before"], "slowdown_median")
    );

    let page = scratch("diff.html");
    let options = ["--ranks", "1024", "--runs", "50", "--html", page.to_str().unwrap()];
    insta::assert_snapshot!(
        "diff",
        stdout(&[&["-q", "diff", &before, &after][..], &options].concat())
    );
    let page = fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("fakemond.service"));
    // Its own script is the only one, and names the namespace of SVG.
    let addresses = page.replace("http://www.w3.org/2000/svg", "").matches("://").count();
    assert_eq!((addresses, page.matches("<script").count()), (0, 1));
    assert_eq!(page.matches("<tr").count(), page.matches("</tr>").count());
}

#[test]
fn a_hostile_name_stays_a_name_on_every_view() {
    let hostile = Habit { name: "<script>alert(1)</script>\u{1b}[2J", ..DAEMON };
    let trace = recording("hostile.detour", Mode::Attributed, 1, 2, &[hostile]);
    let empty = recording("harmless.detour", Mode::Attributed, 1, 2, &[]);
    let page = scratch("hostile.html");
    let path = page.to_str().unwrap();
    let text = stdout(&["diff", &trace, &empty, "--ranks", "16", "--runs", "5", "--html", path])
        + &stdout(&["whatif", &trace, "--ranks", "4096", "--runs", "40"]);
    assert!(!text.contains('\u{1b}'));
    let page = fs::read_to_string(page).unwrap();
    assert!(page.matches("<script").count() == 1 && !page.contains("<script>alert"));
}

/// Every printed gain is the one in JSON, with its interval around it.
#[test]
fn a_gain_is_the_same_figure_in_table_advice_and_json() {
    // It hits only some of the runs.
    let rare =
        Habit { name: "rared", every_ns: 400 * MS, takes_ns: 300 * US, unit: None, ..DAEMON };
    let trace = recording("figures.detour", Mode::Attributed, 2, 10, &[TICK, DAEMON, rare]);
    for ranks in ["64", "256", "4096"] {
        let common = ["whatif", &trace, "--ranks", ranks, "--runs", "60"];
        let by_source = [&common[..], &["--by", "source"]].concat();
        let (value, text) = (json(&common), stdout(&by_source));
        let (table, advice) = text.split_once("What to do about it").unwrap_or((&text, ""));
        for source in value["sources"].as_array().unwrap() {
            let gain = number(source, "gain_pct");
            let ends = &source["gain_ci95_pct"];
            let (low, high) = (ends[0].as_f64().unwrap(), ends[1].as_f64().unwrap());
            assert!(low <= gain && gain <= high, "{source}");
            let baseline = number(&value["baseline"], "median_us");
            let medians = 100.0 * (baseline - number(source, "median_us_without")) / baseline;
            assert!((gain - medians).abs() < 1e-9, "{source}");
            let keys = source.as_object().unwrap().keys();
            assert!(keys.into_iter().all(|key| !key.contains("mean")), "{source}");
            if source["effect"] != "gain" {
                continue;
            }
            let figure = report::words::percent(gain);
            let interval = [low, high].map(report::words::percent).join(" to ");
            let name = source["name"].as_str().unwrap();
            let row = table.lines().find(|line| line.contains(&format!(" {name} "))).unwrap();
            assert!(row.contains(&figure) && row.contains(&interval), "{figure}: {row}");
            let advised = advice.lines().find(|line| line.contains(&format!("{name}: up to")));
            let advised = advised.unwrap_or_else(|| panic!("no advice for {name}:\n{advice}"));
            // Sentences have a space before the sign, tables do not.
            let in_words = format!("{figure} faster ({interval})").replace('%', " %");
            assert!(advised.contains(&in_words), "{advised}");
        }
    }
}

#[test]
fn diff_does_not_bundle_what_one_recording_cannot_bundle() {
    // The older of the two fixtures lacks the causes of timers.
    let pair = ["diff", "fixtures/two-cpus.detour", "fixtures/demo.detour", "--ranks", "4"];
    let value = json(&[&pair[..], &["--runs", "2"]].concat());
    let warnings = value["compared"]["warnings"].to_string();
    assert!(warnings.contains("The recording before lacks the causes"), "{warnings}");
    let rows = value["rows"].as_array().unwrap();
    for name in ["fakemond", "hrtimer: hrtimer_wakeup"] {
        let row =
            rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}"));
        let of_source = source(&value, name);
        for side in ["before", "after"] {
            assert_eq!(row[side]["count"], of_source[side]["count"], "{name} {side}");
        }
    }
}

#[test]
fn diff_refuses_what_cannot_be_compared() {
    let attributed = recording("cmp-node.detour", Mode::Attributed, 2, 2, &NODE);
    let program = recording("cmp-program.detour", Mode::Program, 2, 2, &NODE);
    let kernel = recording("cmp-kernel.detour", Mode::KernelOnly, 2, 2, &NODE);
    let probe = recording("cmp-probe.detour", Mode::ProbeOnly, 2, 2, &[]);
    for (other, word) in [(&program, "threads"), (&kernel, "idle"), (&probe, "attributes")] {
        for pair in [[&attributed, other], [other, &attributed]] {
            let said = refused(&["diff", pair[0], pair[1]]);
            assert!(said.contains("cannot compare") && said.contains(word), "{said}");
            assert!(said.contains("different modes"), "{said}");
        }
    }
}

#[test]
fn diff_compares_the_cpus_and_the_detours_that_both_recorded() {
    let small = ["--ranks", "16", "--runs", "5"];
    // The daemon is only on CPU 3.
    let there = Habit { cpu: Some(3), ..DAEMON };
    let four = recording("cmp-four.detour", Mode::Attributed, 4, 5, &[TICK, there]);
    let two = recording("cmp-two.detour", Mode::Attributed, 2, 5, &[TICK]);
    let arguments = [&["diff", &four, &two][..], &small].concat();
    let (value, text) = (json(&arguments), stdout(&arguments));
    assert_eq!(value["compared"]["only_cpus"], "0,1");
    assert!(text.starts_with("Compared: only CPU 0,1, which both recorded. Noise took"), "{text}");
    assert!(value["verdict"].as_str().unwrap().starts_with("Compared: only CPU 0,1"));
    let sources = value["sources"].as_array().unwrap();
    assert!(sources.iter().all(|source| source["name"] == "tick"), "{value}");
    assert_eq!((&value["before"]["lanes"], &value["after"]["lanes"]), (&2.into(), &2.into()));
    assert_eq!(source(&value, "tick")["verdict"], "unchanged");

    let alike = [&["diff", &two, &two][..], &small].concat();
    let value = json(&alike);
    assert!(
        value["compared"]["only_cpus"].is_null() && value["compared"]["only_from_ns"].is_null()
    );
    assert!(stdout(&alike).starts_with("Noise took"));

    // Recorded with a threshold of 2 us, the network card's interrupts of 1 us cause no detours.
    let low = recording("cmp-low.detour", Mode::Attributed, 1, 5, &[TICK, CARD]);
    let high = made::with_threshold("cmp-high.detour", 2_000.0, 1, 5, &[TICK]);
    let arguments = [&["diff", &low, &high][..], &small].concat();
    let (value, text) = (json(&arguments), stdout(&arguments));
    assert_eq!(value["compared"]["only_from_ns"], 2_000.0);
    assert!(text.starts_with("Compared: only detours of 2.00 us or longer"), "{text}");
    let sources = value["sources"].as_array().unwrap();
    assert!(sources.iter().all(|source| source["name"] == "tick"), "{value}");
}

/// Takes half a minute: `cargo test --release --test cli_whatif -- --ignored`.
#[test]
#[ignore = "writes a recording of ten million detours"]
fn every_view_copes_with_ten_million_detours() {
    let storm = Habit { every_ns: 2 * US, takes_ns: 200, unit: None, ..CARD };
    let trace = recording("storm.detour", Mode::Attributed, 1, 20, &[storm, TICK]);
    for arguments in [
        &["whatif", &trace, "--ranks", "1024", "--runs", "20", "--quantise"][..],
        &["diff", &trace, &trace, "--ranks", "1024", "--runs", "20"],
        &["report", &trace],
    ] {
        let begin = std::time::Instant::now();
        let value = json(arguments);
        eprintln!("{}: {:.1} s", arguments[0], begin.elapsed().as_secs_f64());
        assert!(!value["sources"].as_array().unwrap().is_empty());
    }
    fs::remove_file(trace).unwrap();
}

/// A daemon that takes a tenth of one of two CPUs makes a job of two ranks a ninth longer.
#[test]
fn a_gate_fails_if_the_job_got_worse_and_only_then() {
    let tenth = Habit { every_ns: 10 * MS, takes_ns: MS, cpu: Some(1), ..DAEMON };
    let other = Habit { every_ns: TICK.every_ns + 1, ..TICK };
    let quiet = recording("gate-quiet.detour", Mode::Attributed, 2, 20, &[TICK]);
    let again = recording("gate-again.detour", Mode::Attributed, 2, 20, &[other]);
    let noisy = recording("gate-noisy.detour", Mode::Attributed, 2, 20, &[TICK, tenth]);
    let code = |before: &str, after: &str, most: &str| {
        let arguments = ["diff", before, after, "--ranks", "2", "--runs", "40", "-q"];
        let mut command = detour(&[&arguments[..], &["--fail-if-worse", most]].concat());
        command.assert().get_output().status.code()
    };
    assert_eq!(code(&quiet, &noisy, "5%"), Some(1));
    assert_eq!(code(&quiet, &noisy, "15%"), Some(0));
    assert_eq!(code(&noisy, &quiet, "0"), Some(0));
    assert_eq!(code(&quiet, &again, "1%"), Some(0));
    let change = &json(&["diff", &quiet, &noisy, "--ranks", "2", "--runs", "40"])["projected"];
    assert!((number(change, "change_pct") - 100.0 / 9.0).abs() < 1.0, "{change}");
    assert_eq!(code(&quiet, &noisy, "much"), Some(2));
    // What cannot be judged is neither better nor worse.
    assert_eq!(code(&quiet, "nonexistent.detour", "5%"), Some(3));
    let probe = recording("gate-probe.detour", Mode::ProbeOnly, 2, 0, &[TICK]);
    assert_eq!(code(&quiet, &probe, "5%"), Some(3));
    detour(&["diff", &quiet, "nonexistent.detour"]).assert().code(1);
    detour(&["report", "--baseline", "nonexistent.detour", &quiet]).assert().code(3);
    detour(&["report", "--baseline", &quiet, "nonexistent.detour", "--ranks", "2"])
        .assert()
        .code(1);
}

/// A compiler is load: every result says so before anything else, and how to leave it out.
#[test]
fn a_node_that_is_not_idle_is_called_busy_first() {
    let compiler =
        Habit { name: "cc1plus", unit: None, every_ns: 10 * MS, takes_ns: 6 * MS, ..DAEMON };
    let busy = recording("busy.detour", Mode::Attributed, 2, 5, &[TICK, DAEMON, compiler]);
    let quiet = recording("busy-not.detour", Mode::Attributed, 2, 5, &[TICK, DAEMON]);
    let few = ["--ranks", "64", "--runs", "5", "-q"];
    let results: [&[&str]; 4] = [
        &["report", &busy],
        &["whatif", &busy],
        &["diff", &busy, &quiet],
        &["diff", &quiet, &busy],
    ];
    for arguments in results {
        let text = stdout(&[arguments, &few].concat());
        assert!(text.starts_with("The node was not idle"), "{arguments:?}: {text}");
        let first = text.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        for word in
            ["cc1plus (1", "% of a CPU)", "load, not noise: record again", "--exclude cc1plus"]
        {
            assert!(first.contains(word), "{arguments:?}: {first}");
        }
        assert!(!text.contains("times as long as on silent"), "{text}");
        assert!(!text.contains("kill -x cc1plus"), "{text}");
        let text = stdout(&[arguments, &few, &["--exclude", "cc1plus"]].concat());
        assert!(!text.contains("not idle"), "{arguments:?}: {text}");
    }
    for page in [&["report", &busy][..], &["diff", &quiet, &busy]] {
        let file = scratch("busy.html");
        let file = file.to_str().expect("text");
        stdout(&[page, &few, &["--html", file]].concat());
        let html = fs::read_to_string(file).expect("a page");
        let (before, _) = html.split_once("<h1>").expect("a heading");
        assert!(before.contains("The node was not idle") && before.contains("cc1plus"));
    }
    for command in ["report", "whatif", "diff"] {
        let traces: &[&str] = if command == "diff" { &[&busy, &quiet] } else { &[&busy] };
        let said = refused(&[&[command][..], traces, &few, &["--exclude", "cc1pluss"]].concat());
        assert!(said.contains("cc1pluss"), "{command}: {said}");
    }
}
