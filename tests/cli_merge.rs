//! `detour merge`: shares of a simulation give bit-identical results to one machine, traces of nodes
//! one trace. What does not belong together is rejected by name. Runs anywhere, without privileges.

mod command;
mod made;

use std::{fs, path::PathBuf};

use command::{detour, refused, stdout};
use made::{DAEMON, Habit, MS, TICK, US, scratch};
use serde_json::Value;
use trace::{Manifest, Mode, Overwrite, Reader, Trailer, Writer};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/two-cpus.detour");

/// A directory for one test, removed with it.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = scratch(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("created");
        Directory(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("text").to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The speed is not a result.
fn without_speed(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("\"messages_per_s\":") {
        kept += &rest[..at];
        rest = rest[at..].split_once(',').map_or("", |(_, rest)| rest);
    }
    kept + rest
}

/// Writes all shares, the last one first.
fn shares(directory: &Directory, of: u64, command: &[&str]) -> Vec<String> {
    let mut files = Vec::new();
    for number in (1..=of).rev() {
        let file = directory.file(&format!("{number}.json"));
        let shard = format!("{number}/{of}");
        let share = [&["simulate"], command, &["--shard", &shard, "-o", &file]].concat();
        assert_eq!(stdout(&share), "", "results go only to the file");
        files.push(file);
    }
    files
}

fn merged(files: &[String], more: &[&str]) -> String {
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    stdout(&[&["merge"], files.as_slice(), more].concat())
}

/// Splits a simulation in three ways and compares with the whole one, JSON and text.
fn divides(name: &str, command: &[&str]) {
    let directory = Directory::new(name);
    let whole = |more: &[&str]| stdout(&[&["simulate"], command, more].concat());
    let (json, text) = (whole(&["--json"]), whole(&[]));
    for of in [1, 3, 8] {
        let files = shares(&directory, of, command);
        let joined = merged(&files, &["--json"]);
        assert_eq!(without_speed(&joined), without_speed(&json), "{of} shares of {command:?}");
        // The text for a schedule includes the speed.
        if command[0] != "goal" {
            assert_eq!(merged(&files, &[]), text, "{of} shares of {command:?}");
        }
    }
}

#[test]
fn shares_of_a_collective_give_the_bits_of_one_machine() {
    divides(
        "merge-collective",
        &[
            "collective",
            "--op",
            "allreduce,bcast",
            "--ranks",
            "2..64,100",
            "--runs",
            "20",
            "--noise",
            DEMO,
            "--size",
            "1,4kB",
            "--net-scale",
            "1,2.7",
            "--with-coscheduled",
            "--repeat-trace",
        ],
    );
}

#[test]
fn fewer_runs_than_shares_are_no_trouble() {
    divides("merge-few", &["collective", "--ranks", "4", "--runs", "2"]);
}

#[test]
fn shares_of_exchanges_give_the_bits_of_one_machine() {
    let noise = "periodic:100Hz,70us";
    for (name, order) in [("merge-in-time", "in-time"), ("merge-independent", "independent")] {
        divides(
            name,
            &[
                "exchange",
                "--samples",
                "5500",
                "--noise",
                noise,
                "--order",
                order,
                "--per-walk",
                "333",
            ],
        );
    }
}

#[test]
fn shares_of_an_alltoall_give_the_bits_of_one_machine() {
    let ranks = ["alltoall", "--ranks", "2,5,8", "--samples", "1003", "--size", "8KiB"];
    divides("merge-traced", &[&ranks[..], &["--noise", "periodic:100Hz,70us"]].concat());
    let resampled = ["--noise", "periodic:100Hz,70us", "--mode", "resample"];
    divides("merge-resampled", &[&ranks[..], &resampled].concat());
}

#[test]
fn shares_of_cycles_give_the_bits_of_one_machine() {
    divides("merge-cycle", &["cycle", "--ranks", "2..64", "--runs", "7", "--period", "0.7ms"]);
}

#[test]
fn shares_of_a_schedule_give_the_bits_of_one_machine() {
    let directory = Directory::new("merge-schedule-file");
    let goal = directory.file("job.goal");
    stdout(&["goal", "gen", "--op", "allreduce", "--ranks", "16", "-o", &goal]);
    divides(
        "merge-goal",
        &["goal", &goal, "--noise", "periodic:1000Hz,200us", "--runs", "11", "--unit", "ps"],
    );
}

#[test]
fn shares_that_do_not_belong_together_are_refused_by_name() {
    let directory = Directory::new("merge-refused");
    let share = |name: &str, shard: &str, seed: &str| {
        let file = directory.file(name);
        let base = ["simulate", "collective", "--ranks", "4", "--runs", "9", "--shard"];
        stdout(&[&base[..], &[shard, "--seed", seed, "-o", &file]].concat());
        file
    };
    let one = share("one", "1/3", "1");
    let two = share("two", "2/3", "1");
    let three = share("three", "3/3", "1");
    refused(&["merge", &one, &three], &["3 shards expected: 2 is missing"]);
    let again = share("again", "2/3", "1");
    refused(&["merge", &one, &two, &again, &three], &["two", "again", "shard 2 of 3"]);
    let other = share("other", "2/3", "7");
    refused(&["merge", &one, &other, &three], &["one", "other", "differ in seed: 1 and 7"]);
    let quarter = share("quarter", "2/4", "1");
    refused(&["merge", &one, &quarter], &["of 3 shards", "of 4"]);
    let cycle = directory.file("cycle");
    stdout(&["simulate", "cycle", "--ranks", "2", "--shard", "2/3", "-o", &cycle]);
    refused(&["merge", &one, &cycle], &["simulate collective", "simulate cycle"]);
    refused(&["merge", &one, DEMO], &["merge one kind at a time"]);

    let text = fs::read_to_string(&two).expect("read");
    let cut = directory.file("cut");
    fs::write(&cut, &text[..text.len() / 2]).expect("written");
    refused(&["merge", &one, &cut, &three], &["cut", "simulate it again"]);
    let newer = directory.file("newer");
    let version = concat!("\"", env!("CARGO_PKG_VERSION"), "\"");
    fs::write(&newer, text.replacen(version, "\"99.0.0\"", 1)).expect("written");
    refused(&["merge", &one, &newer, &three], &["newer", "99.0.0"]);
}

#[test]
fn a_noise_file_that_changed_between_shares_is_noticed() {
    let directory = Directory::new("merge-changed");
    let noise = directory.file("noise.csv");
    let share = |name: &str, shard: &str, content: &str| {
        fs::write(&noise, content).expect("written");
        let file = directory.file(name);
        let base = ["simulate", "collective", "--ranks", "4", "--runs", "4", "--repeat-trace"];
        stdout(&[&base[..], &["--noise", &noise, "--shard", shard, "-o", &file]].concat());
        file
    };
    let one = share("one", "1/2", "start_ns,length_ns\n1000,500\n900000,700\n");
    let two = share("two", "2/2", "start_ns,length_ns\n1000,500\n900000,800\n");
    refused(&["merge", &one, &two], &["differ in noise_files", "noise.csv"]);
}

#[test]
fn what_cannot_be_divided_is_refused_before_anything_is_simulated() {
    for more in [["--csv", "x"], ["--times", "x"], ["--resume", "x"]] {
        let base = ["simulate", "collective", "--ranks", "2", "--shard", "1/2"];
        detour(&[&base[..], &more].concat()).assert().code(2);
    }
    detour(&["simulate", "collective", "--blame", "--shard", "1/2"]).assert().code(2);
    detour(&["simulate", "collective", "--shard", "0/2"]).assert().code(2);
    detour(&["simulate", "goal", "-", "--shard", "1/2"]).assert().code(1);
}

/// Recordings of four nodes; the daemon is busier on the last one.
fn nodes(directory: &str) -> (Directory, Vec<String>) {
    let home = Directory::new(directory);
    let busy = Habit { every_ns: 10 * MS, takes_ns: 200 * US, ..DAEMON };
    let mut files = Vec::new();
    for (number, daemon) in [DAEMON, DAEMON, DAEMON, busy].into_iter().enumerate() {
        let name = format!("{directory}/node{number}.detour");
        files.push(made::recording_of(
            &name,
            made::Node {
                host: format!("node{number}"),
                job: Some("4711".to_owned()),
                started_unix_s: 1000.0 + number as f64 / 1000.0,
            },
            Mode::Attributed,
            2,
            10,
            &[TICK, daemon],
        ));
    }
    (home, files)
}

#[test]
fn traces_of_nodes_become_one_with_nodes_and_outliers() {
    let (home, files) = nodes("merge-nodes");
    let out = home.file("job-%j.detour");
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let said = stdout(&[&["merge", "--json", "-o", &out], files.as_slice()].concat());
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let out = home.file("job-4711.detour");
    assert_eq!(said["output"], out.as_str());
    assert_eq!(said["nodes"], serde_json::json!(["node0", "node1", "node2", "node3"]));
    assert!((said["start_skew_s"].as_f64().expect("a number") - 0.003).abs() < 1e-6);

    let report: Value = serde_json::from_str(&stdout(&["report", "--json", &out])).expect("JSON");
    assert_eq!(report["job_id"], "4711");
    let nodes = report["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 4);
    assert_eq!(report["cpus"].as_array().map(Vec::len), Some(8));
    assert_eq!(report["cpus"][7]["host"], "node3");
    assert_eq!(report["cpus"][7]["t_min_ns"], 20.0);
    // The whole is the sum of the parts.
    let single = |file: &str| -> Value {
        serde_json::from_str(&stdout(&["report", "--json", file])).expect("JSON")
    };
    let sum: u64 =
        files.iter().map(|file| single(file)["detours"].as_u64().expect("a count")).sum();
    assert_eq!(report["detours"], sum);
    for (node, file) in nodes.iter().zip(&files) {
        let single = single(file);
        assert_eq!(node["detours"], single["detours"]);
        assert_eq!(node["noise_pct"], single["noise_pct"]);
    }
    let outliers = report["outliers"].as_array().expect("outliers");
    assert!(!outliers.is_empty());
    for outlier in outliers {
        assert_eq!(outlier["host"], "node3", "{outlier}");
        assert_ne!(outlier["name"], "tick", "{outlier}");
    }
    for measure in ["rate_hz", "noise_pct"] {
        let found = outliers.iter().any(|o| o["name"] == "fakemond" && o["measure"] == measure);
        assert!(found, "{measure}: {outliers:?}");
    }
    let text = stdout(&["report", &out]);
    for words in ["node0, node1, node2, node3", "Nodes\n", "node3: fakemond of fakemond.service"] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
    let page = home.file("job.html");
    stdout(&["report", "-q", &out, "--html", &page, "--no-projection"]);
    let html = std::fs::read_to_string(&page).expect("a page");
    // A row per node, CPUs with their nodes, and the outliers.
    for words in ["<h2>Nodes</h2>", "<td>node2</td>", ">node3 1<", "node3: fakemond of"] {
        assert!(html.contains(words), "no {words:?} on the page");
    }
}

#[test]
fn ranks_are_spread_over_the_nodes_of_a_merged_trace() {
    let (home, files) = nodes("merge-noise");
    let out = home.file("all.detour");
    let each: Vec<&str> = files.iter().map(String::as_str).collect();
    stdout(&[&["merge", "-q", "-o", &out], each.as_slice()].concat());
    let simulate = |noise: &str| -> Value {
        let base = ["simulate", "collective", "--ranks", "16,64", "--runs", "10", "--json"];
        let text = stdout(&[&base[..], &["--noise", noise]].concat());
        serde_json::from_str(&without_speed(&text)).expect("JSON")
    };
    assert_eq!(simulate(&out)["points"], simulate(&files.join(","))["points"]);
}

#[test]
fn events_of_a_node_keep_their_order_and_move_with_its_start() {
    let (home, files) = nodes("merge-times");
    let out = home.file("all.detour");
    let each: Vec<&str> = files.iter().map(String::as_str).collect();
    stdout(&[&["merge", "-q", "-o", &out], each.as_slice()].concat());
    let whole = Reader::open(&out).expect("opened");
    for (number, file) in files.iter().enumerate() {
        let part = Reader::open(file).expect("opened");
        let offset = whole.manifest().nodes[number].offset_ns;
        assert!(offset.abs_diff(number as u64 * MS) < 1_000, "{offset}");
        for lane in 0..2 {
            let starts = |reader: &Reader, lane: u32| -> Vec<u64> {
                let blocks = reader.blocks_of(trace::LaneId(lane));
                blocks.flat_map(|b| b.expect("a block").detours).map(|d| d.start_ns).collect()
            };
            let moved = starts(&whole, number as u32 * 2 + lane);
            let own: Vec<u64> = starts(&part, lane).iter().map(|start| start + offset).collect();
            assert!(!own.is_empty());
            assert_eq!(moved, own);
        }
    }
}

/// Removes the trailer of a recording, as when the recorder was killed.
fn cut_off(file: &str) {
    let trace = || Reader::open(file).expect("opened");
    while trace().trailer().is_some() {
        let length = fs::metadata(file).expect("there").len();
        let file = fs::File::options().write(true).open(file).expect("opened");
        file.set_len(length - 16).expect("cut");
    }
}

#[test]
fn a_node_that_was_cut_off_does_not_change_the_noise_of_all() {
    let (home, files) = nodes("merge-cut");
    let (whole, part) = (home.file("whole.detour"), home.file("part.detour"));
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    stdout(&[&["merge", "-q", "-o", &whole], files.as_slice()].concat());
    cut_off(files[3]);
    let merged = stdout(&[&["merge", "--json", "-o", &part], files.as_slice()].concat());
    let merged: Value = serde_json::from_str(&merged).expect("JSON");
    let cut = merged["incomplete"].as_array().expect("a list");
    assert!(cut.len() == 1 && cut[0]["host"] == "node3", "{merged}");
    let recorded_s = cut[0]["recorded_s"].as_f64().expect("a number");
    assert!((9.0..=10.1).contains(&recorded_s), "{merged}");
    let mut again = detour(&[&["merge", "--force", "-o", &part], files.as_slice()].concat());
    let said = again.assert().success().get_output().stderr.clone();
    let said = String::from_utf8(said).expect("text");
    assert!(said.contains("node3: the recording ends after "), "{said}");
    let small = ["--ranks", "4", "--runs", "2"];
    let said = stdout(&[&["diff", &whole, &part, "--json"], &small[..]].concat());
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let noise = |side: &str| said[side]["noise_pct"]["value"].as_f64().expect("a number");
    assert!((noise("after") / noise("before") - 1.0).abs() < 0.01, "{said}");
    assert_eq!(
        (&said["before"]["truncated"], &said["after"]["truncated"]),
        (&false.into(), &true.into())
    );
    let text = stdout(&[&["diff", &whole, &part], &small[..]].concat());
    assert!(text.contains("The recording after or part of it is truncated or damaged"), "{text}");
    for (trace, cut) in [(&whole, false), (&part, true)] {
        let report: Value =
            serde_json::from_str(&stdout(&["report", trace, "--json"])).expect("JSON");
        assert_eq!(report["truncated"].is_string(), cut, "{}", report["truncated"]);
    }
}

#[test]
fn a_merge_that_fails_leaves_no_file_behind() {
    let home = Directory::new("merge-fails");
    // Together they are larger than a trailer may be.
    let files: Vec<String> = ["one", "other"]
        .map(|host| {
            let manifest = Manifest { host: host.to_owned(), ..Manifest::default() };
            let file = home.file(host);
            let writer = Writer::create(&file, Overwrite::Yes, &manifest).expect("created");
            let remarks = vec![host.repeat(9 << 20 >> 2)];
            writer.finish(Trailer { remarks, ..Trailer::default() }).expect("finished");
            file
        })
        .into();
    let out = home.file("all.detour");
    refused(&["merge", "-o", &out, &files[0], &files[1]], &["cannot merge into", "exceed"]);
    assert!(!fs::exists(&out).expect("known"));
}

#[test]
fn traces_that_do_not_belong_together_are_refused_by_name() {
    let (home, files) = nodes("merge-strangers");
    let out = home.file("all.detour");
    refused(&["merge", "-o", &out, &files[0], &files[0]], &["node0", "omit one"]);
    let node = |job: &str| made::Node {
        host: "node9".to_owned(),
        job: Some(job.to_owned()),
        started_unix_s: 1000.0,
    };
    let stranger = made::recording_of(
        "merge-strangers/other-job.detour",
        node("12"),
        Mode::Attributed,
        1,
        1,
        &[TICK],
    );
    refused(&["merge", "-o", &out, &files[0], &stranger], &["different jobs (4711 and 12)"]);
    let alone = made::recording_of(
        "merge-strangers/alone.detour",
        node("4711"),
        Mode::ProbeOnly,
        1,
        1,
        &[TICK],
    );
    refused(&["merge", "-o", &out, &files[0], &alone], &["different modes", "probe only"]);
    refused(&["merge", "-o", &files[1], &files[0], &files[1]], &["refusing to overwrite"]);
    stdout(&["merge", "-q", "-o", &out, &files[0], &files[1]]);
    let twice = home.file("twice.detour");
    refused(&["merge", "-o", &twice, &out, &files[2]], &["already"]);
    refused(&["merge", &home.file("nowhere")], &["nowhere"]);
}

#[test]
fn recordings_that_cannot_be_nodes_of_one_job_need_force() {
    let home = Directory::new("merge-force");
    let node = |name: &str, host: &str, start: f64| {
        let node = made::Node { host: host.to_owned(), job: None, started_unix_s: start };
        made::recording_of(
            &format!("merge-force/{name}.detour"),
            node,
            Mode::Attributed,
            2,
            10,
            &[TICK],
        )
    };
    let now = 1.7e9;
    let (one, other) = (node("one", "node0", now), node("other", "node1", now + 9.0));
    let next_day = node("next-day", "node2", now + 86_400.0);
    let again = node("again", "node0", now + 5.0);
    let out = home.file("all.detour");
    stdout(&["merge", "-q", "-o", &out, &one, &other]);

    let apart = ["one.detour ended 24.0 hours before", "next-day.detour began", "--force"];
    refused(&["merge", "-o", &home.file("no"), &next_day, &one], &apart);
    let twice = ["one.detour and", "again.detour", "CPU 0 of node0", "--force"];
    refused(&["merge", "-o", &home.file("no"), &one, &again], &twice);
    let copy = home.file("copy.detour");
    fs::copy(&one, &copy).expect("copied");
    refused(&["merge", "-o", &home.file("no"), &one, &copy], &["same recording of node0"]);
    assert!(!fs::exists(home.file("no")).expect("known"));

    for pair in [[&one, &next_day], [&one, &again], [&one, &copy]] {
        let out = home.file("forced.detour");
        let said = stdout(&["merge", "--json", "--force", "-o", &out, pair[0], pair[1]]);
        let said: Value = serde_json::from_str(&said).expect("JSON");
        assert_eq!(said["nodes"].as_array().map(Vec::len), Some(2));
    }
}

#[test]
fn a_directory_that_does_not_exist_is_not_taken_for_a_file() {
    let directory = Directory::new("merge-missing");
    let (there, missing) = (directory.file(""), directory.file("missing"));
    refused(&["merge", &there, &missing], &["missing", "No such file or directory"]);
}
