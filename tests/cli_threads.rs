//! Recorded programs whose threads are distinguished: some sleep, some compete with each other, some
//! are kept waiting by others. Synthetic recordings with known answers, through every command.

mod command;

use std::{fs, path::PathBuf};

use command::{detour, stdout};
use serde_json::Value;
use trace::{
    Block, Class, Detour, Lane, LaneId, LaneTotals, Manifest, Mode, Overwrite, Record, RecordFlags,
    Source, SourceId, Trailer, Wait, Writer,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const SPIN: u32 = 0;
const HOG: u32 = 1;
const TICK: u32 = 2;
const NAMELESS: u32 = 3;

fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn source(class: Class, name: &str, policy: Option<&str>) -> Source {
    Source {
        class,
        name: name.into(),
        unit: None,
        detail: None,
        pids: Vec::new(),
        own: false,
        program: false,
        policy: policy.map(Into::into),
        cause: None,
    }
}

fn record(source: u32, cpu: u16, (start_ns, len): (u64, u64), flags: RecordFlags) -> Record {
    Record {
        start_ns,
        gross_ns: len,
        net_ns: len,
        cost_ns: len,
        source: SourceId(source),
        cpu,
        depth: 0,
        flags,
    }
}

/// A program whose threads all existed for the whole recording.
struct Program {
    blocks: Vec<Block>,
    watched_ns: u64,
}

impl Program {
    fn new(threads: u32, watched_ns: u64) -> Program {
        Program { blocks: (0..threads).map(|lane| Block::new(LaneId(lane))).collect(), watched_ns }
    }

    fn runs(&mut self, lane: usize, cpu: u16, span: (u64, u64)) {
        self.blocks[lane].records.push(record(SPIN, cpu, span, RecordFlags::BASELINE));
    }

    fn waits(&mut self, lane: usize, by: u32, cpu: u16, span: (u64, u64), wait: Wait) {
        self.hit(lane, by, cpu, span, wait, RecordFlags::IN_DETOUR);
    }

    fn hit(
        &mut self,
        lane: usize,
        by: u32,
        cpu: u16,
        span: (u64, u64),
        wait: Wait,
        flags: RecordFlags,
    ) {
        let (start_ns, len_ns) = span;
        let block = &mut self.blocks[lane];
        block.detours.push(Detour { start_ns, len_ns, outside_ns: 0, records: 1, wait });
        block.records.push(record(by, cpu, span, flags));
    }

    fn write(self, name: &str) -> String {
        let path = scratch(name);
        let lane = |tid| Lane::Thread { pid: 700, tid: 700 + tid, name: "spin".into() };
        let manifest = Manifest {
            host: "node01".into(),
            mode: Mode::Program,
            lanes: (0..self.blocks.len() as u32).map(lane).collect(),
            ..Manifest::default()
        };
        let mut writer = Writer::create(&path, Overwrite::Yes, &manifest).expect("created");
        let sources = [
            source(Class::Thread, "spin", Some("SCHED_OTHER")),
            source(Class::Thread, "hog", Some("SCHED_FIFO 60")),
            source(Class::Timer, "tick", None),
            source(Class::Thread, "", None),
        ];
        for (id, source) in (0..).map(SourceId).zip(&sources) {
            writer.add_source(id, source).expect("added");
        }
        for block in &self.blocks {
            writer.write_block(block).expect("written");
        }
        let to_ns = self.watched_ns;
        let totals = |lane| LaneTotals { lane, to_ns, ..LaneTotals::default() };
        let lanes = (0..self.blocks.len() as u32).map(totals).collect();
        writer.finish(Trailer { lanes, ..Trailer::default() }).expect("finished");
        path.to_str().expect("text").to_owned()
    }
}

/// One thread that loses 49 % of its time to a real-time hog, and some that sleep almost all the time.
fn busy_and_sleeping(name: &str, sleepers: usize) -> String {
    let mut program = Program::new(1 + sleepers as u32, 10 * SECOND);
    for turn in 0..1_000u64 {
        let at = turn * 10 * MS;
        program.waits(0, HOG, 0, (at, 4_900_000), Wait::Preempted);
        program.runs(0, 0, (at + 4_900_000, 5_100_000));
    }
    for lane in 1..=sleepers {
        program.waits(lane, HOG, 0, (SECOND, 50_000), Wait::Woken);
        program.runs(lane, 0, (SECOND + 50_000, MS));
    }
    program.write(name)
}

/// Three threads take turns on two CPUs; nothing else runs.
fn three_for_two(name: &str) -> String {
    let mut program = Program::new(3, 4 * SECOND);
    for turn in 0..1_000u64 {
        let (span, waits) = ((turn * 4 * MS, 4 * MS), (turn % 3) as usize);
        let mut cpu = 0;
        for lane in 0..3 {
            if lane == waits {
                program.waits(lane, SPIN, (turn % 2) as u16, span, Wait::Preempted);
            } else {
                program.runs(lane, cpu, span);
                cpu += 1;
            }
        }
    }
    program.write(name)
}

fn json(arguments: &[&str]) -> Value {
    let with_json = [arguments, &["--json"]].concat();
    serde_json::from_str(&stdout(&with_json)).expect("JSON and nothing else")
}

fn page(trace: &str, name: &str) -> String {
    let page = scratch(name);
    let path = page.to_str().expect("text");
    stdout(&["report", "-q", trace, "--html", path, "--ranks", "2..64", "--runs", "4"]);
    fs::read_to_string(page).expect("a page")
}

#[test]
fn sleeping_threads_dilute_no_percentage() {
    let trace = busy_and_sleeping("sleepers-report.detour", 7);
    let value = json(&["report", &trace]);
    let busy = &value["threads"][0];
    assert!(busy["lost_pct"].as_f64().is_some_and(|pct| (pct - 49.0).abs() < 0.1), "{busy}");
    assert!(value["noise_pct"].as_f64().is_some_and(|pct| (pct - 49.0).abs() < 0.1), "{value}");
    let text = stdout(&["report", &trace]);
    assert!(text.contains("noise took 49 % of the time they wanted to run"), "{text}");
    let metrics = stdout(&["export", &trace, "--to", "openmetrics"]);
    let ratio = metrics.lines().find_map(|line| line.strip_prefix("detour_noise_ratio "));
    let ratio: f64 = ratio.expect("a line").parse().expect("a number");
    assert_eq!(Some(ratio * 100.0), value["noise_pct"].as_f64());
    let diff = json(&["diff", &trace, &trace, "--ranks", "64", "--runs", "10"]);
    let before = diff["before"]["noise_pct"]["value"].as_f64();
    assert!(before.is_some_and(|pct| (pct - 49.0).abs() < 0.1), "{}", diff["before"]);
    let verdict = diff["verdict"].as_str().expect("a sentence");
    assert!(verdict.contains("of the time its threads wanted to run before"), "{verdict}");
    assert_eq!(diff["shares_of"], "wanted_time");
}

#[test]
fn no_rank_stands_on_a_sleeper_and_the_output_says_so() {
    let alone = busy_and_sleeping("sleepers-none.detour", 0);
    let among = busy_and_sleeping("sleepers-seven.detour", 7);
    let said = "7 of 8 threads were runnable for less than half as long as the busiest";
    let job = |trace: &str| {
        let arguments = ["simulate", "collective", "--noise", trace, "--ranks", "256", "--json"];
        let output =
            detour(&arguments).args(["--runs", "40", "--repeat-trace"]).output().expect("runs");
        let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (value["points"][0].clone(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let ((undiluted, nothing), (diluted, remark)) = (job(&alone), job(&among));
    assert!(undiluted["slowdown_median"].as_f64().is_some_and(|times| times > 3.0), "{undiluted}");
    assert_eq!(undiluted["median_us"], diluted["median_us"]);
    assert!(remark.contains(said) && !nothing.contains("threads"), "{remark} {nothing}");

    let options = ["--ranks", "256", "--runs", "40", "--repeat-trace"];
    let whatif = |trace: &str| json(&[&["whatif", trace][..], &options].concat());
    let (one, other) = (whatif(&alone), whatif(&among));
    assert_eq!(one["baseline"]["median_us"], other["baseline"]["median_us"]);
    assert!(other["remarks"][0].as_str().is_some_and(|text| text.contains(said)), "{other}");
    assert!(page(&among, "sleepers.html").contains(said));
}

/// The same thread, asleep for three quarters of a recording that is four times as long.
#[test]
fn the_sleep_of_a_thread_does_not_dilute_its_own_noise() {
    let mut dozing = Program::new(1, 40 * SECOND);
    for turn in 0..1_000u64 {
        let at = turn * 40 * MS;
        dozing.waits(0, HOG, 0, (at, 4_900_000), Wait::Woken);
        dozing.runs(0, 0, (at + 4_900_000, 5_100_000));
    }
    let (awake, dozing) = (busy_and_sleeping("awake.detour", 0), dozing.write("dozing.detour"));
    let median = |trace: &str| {
        let job = ["simulate", "collective", "--noise", trace, "--ranks", "256", "--runs", "40"];
        json(&[&job[..], &["--repeat-trace"]].concat())["points"][0]["median_us"].clone()
    };
    assert_eq!(median(&awake), median(&dozing));
    let value = json(&["report", &dozing]);
    assert!(value["noise_pct"].as_f64().is_some_and(|pct| (pct - 49.0).abs() < 0.1), "{value}");
}

/// A hog takes 1 of 10 ms from two threads at once, one of which sleeps for another 3 ms. Ranks that stop
/// together stop for a tenth of the time.
#[test]
fn what_hits_two_threads_at_once_stops_co_scheduled_ranks_once() {
    let mut program = Program::new(2, 10 * SECOND);
    for turn in 0..1_000u64 {
        let at = turn * 10 * MS;
        for (lane, runs) in [(0, 9 * MS), (1, 6 * MS)] {
            program.waits(lane, HOG, lane as u16, (at, MS), Wait::Preempted);
            program.runs(lane, lane as u16, (at + MS, runs));
        }
    }
    let trace = program.write("at-once.detour");
    let options = ["--ranks", "64", "--runs", "40", "--repeat-trace", "--quantise"];
    let value = json(&[&["whatif", &trace, "--compute", "500ms"][..], &options].concat());
    let hog = value["sources"].as_array().and_then(|rows| rows.iter().find(|r| r["name"] == "hog"));
    let median = hog.and_then(|hog| hog["quantised"]["median_us"].as_f64()).expect("an answer");
    let times = median / value["baseline"]["noiseless_us"].as_f64().expect("a time");
    assert!((times - 1.0 / 0.9).abs() < 0.01, "{times} times as long, {value}");
}

#[test]
fn a_program_that_competes_with_itself_is_told_so_and_not_to_move_away() {
    let trace = three_for_two("itself.detour");
    let finding = "The program competes with itself: 3 runnable threads for 2 CPUs.";
    let text = stdout(&["report", &trace]);
    assert!(text.contains(finding), "{text}");
    assert!(text.contains("spin, the program itself"), "{text}");
    let value = json(&["report", &trace]);
    let found = &value["self_competition"];
    assert!(found["runnable_threads"].as_f64().is_some_and(|n| (n - 3.0).abs() < 0.05), "{found}");
    assert_eq!(value["sources"][0]["program"], true);
    let html = page(&trace, "itself.html");
    assert!(html.contains(finding) && html.contains("the program itself"));
    let whatif =
        ["whatif", &trace, "--ranks", "64", "--runs", "40", "--repeat-trace", "--shift", "9"];
    let advice = stdout(&whatif);
    assert!(advice.contains("spin, the program itself: up to"), "{advice}");
    assert!(advice.contains("OMP_NUM_THREADS"), "{advice}");
    for text in [&advice, &html] {
        assert!(!text.contains("where no rank runs") && !text.contains("taskset -pc"), "{text}");
    }
    let row = &json(&whatif)["sources"][0];
    assert!(row["program"] == true && row["shifted"].is_null(), "{row}");
}

#[test]
fn events_and_hits_stand_in_every_output() {
    let mut program = Program::new(4, SECOND);
    for tick in 0..250 {
        for lane in 0..4 {
            let flags = match lane as u64 == tick % 4 {
                true => RecordFlags::IN_DETOUR,
                false => RecordFlags::IN_DETOUR.with(RecordFlags::REPEATED),
            };
            program.hit(lane, TICK, 1, (tick * 4 * MS, 5_000), Wait::None, flags);
        }
    }
    let trace = program.write("hits.detour");
    let row = &json(&["report", &trace])["sources"][0];
    assert_eq!((&row["count"], &row["hits"]), (&250.into(), &1_000.into()));
    assert!(row["rate_hz"].as_f64().is_some_and(|hz| (hz - 250.0).abs() < 2.0), "{row}");
    let text = stdout(&["report", &trace, "--by", "source"]);
    let line = text.lines().find(|line| line.starts_with("timer")).expect("a row");
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(cells[2..4], ["250", "1000"], "{text}");
    assert!(page(&trace, "hits.html").contains("250 (1000 hits)"));
    let metrics = stdout(&["export", &trace, "--to", "openmetrics"]);
    let labels = r#"{class="timer",name="tick",unit=""}"#;
    for wanted in
        ["detour_source_interruptions", "detour_source_hits"].into_iter().zip([250, 1_000])
    {
        let line = format!("{}{labels} {}\n", wanted.0, wanted.1);
        assert!(metrics.contains(&line), "no {line}: {metrics}");
    }
    let rows = stdout(&["export", &trace, "--to", "records-csv"]);
    let repeated = rows.lines().filter(|line| line.contains(",true,")).count();
    assert_eq!(repeated, 750);
    let diff = json(&["diff", &trace, &trace, "--ranks", "64", "--runs", "10"]);
    assert_eq!(diff["sources"][0]["before"]["count"], 250);
}

#[test]
fn kinds_of_waits_policies_and_wakeup_latencies_stand_in_every_output() {
    let trace = busy_and_sleeping("kinds.detour", 7);
    let value = json(&["report", &trace]);
    let kinds: Vec<&Value> =
        value["waits"].as_array().expect("kinds").iter().map(|wait| &wait["kind"]).collect();
    assert_eq!(kinds, ["preempted", "woken"]);
    let sleeper = value["threads"].as_array().expect("threads").last().expect("a thread");
    let latency = &sleeper["wakeup_latency"];
    assert_eq!((&latency["count"], &latency["ns_max"]), (&1.into(), &50_000.into()), "{latency}");
    assert_eq!(value["sources"][0]["policy"], "SCHED_FIFO 60");
    let text = stdout(&["report", &trace, "--by", "source"]);
    assert_eq!(value["wakeup_latency_from_ns"], 1_000);
    let joined = text.replace('\n', " ");
    assert!(joined.contains("woken: wake-ups with a latency of 1.00 us or longer"), "{text}");
    assert!(page(&trace, "kinds-from.html").contains("wake-ups with a latency of 1.00"));
    let metrics = stdout(&["export", &trace, "--to", "openmetrics"]);
    assert!(metrics.contains("threads with a latency of 1.00 us or longer"), "{metrics}");
    for wanted in ["preempted  another thread took the CPU", "FIFO 60", "50.0us"] {
        assert!(text.contains(wanted), "no {wanted}: {text}");
    }
    let html = page(&trace, "kinds.html");
    for wanted in ["SCHED_FIFO 60", "another thread took the CPU", "Per thread"] {
        assert!(html.contains(wanted), "no {wanted}");
    }
    for (format, wanted) in [
        ("csv", &["outside_ns,records,wait", ",preempted,", ",woken,"][..]),
        ("records-csv", &["detail,policy,repeated,wait", ",SCHED_FIFO 60,false,woken\n"]),
        (
            "openmetrics",
            &[
                "detour_program_wait_seconds{kind=\"preempted\"} 4.9\n",
                "detour_program_wakeup_latency_seconds{q=\"1\"} 0.00005\n",
            ],
        ),
        ("parquet", &["repeated", "policy"]),
        ("perfetto", &["preempted", "SCHED_FIFO 60"]),
    ] {
        let output = detour(&["export", &trace, "--to", format]).assert().success();
        let text = String::from_utf8_lossy(&output.get_output().stdout).into_owned();
        for wanted in wanted {
            assert!(text.contains(wanted), "{format}, no {wanted}: {text:.600}");
        }
    }
}

#[test]
fn a_thread_without_a_name_is_called_so() {
    let mut program = Program::new(1, SECOND);
    program.waits(0, NAMELESS, 0, (0, MS), Wait::Preempted);
    program.runs(0, 0, (MS, 999 * MS));
    let trace = program.write("nameless.detour");
    let text = stdout(&["report", &trace, "--by", "source"]);
    let row = text.lines().find(|line| line.starts_with("thread  (no name)"));
    assert!(row.is_some(), "{text}");
    assert!(page(&trace, "nameless.html").contains("<b>(no name)</b>"));
    let options = ["--ranks", "16", "--repeat-trace", "--runs", "4"];
    let job = ["simulate", "collective", "--noise", &trace, "--without", "(no name)"];
    stdout(&[&job[..], &options].concat());
}
