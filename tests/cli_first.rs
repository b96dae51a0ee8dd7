//! What stands at the beginning of results: load where actions would be, and what a headline rests on; and
//! tables that would have no rows.

mod command;
mod made;

use std::fs;

use command::{detour, stdout};
use made::{DAEMON, HELPER, Habit, MS, TICK, recording, scratch, strike};
use trace::{
    Block, Class, Lane, LaneId, LaneTotals, Manifest, Mode, Overwrite, Source, SourceId, Trailer,
    Writer,
};

/// A program's thread on a CPU that a real-time process takes for 84 of every 100 ms.
fn beside_a_burner(name: &str) -> String {
    let path = scratch(name);
    let manifest = Manifest {
        host: "node01".into(),
        mode: Mode::Program,
        lanes: vec![Lane::Thread { pid: 4000, tid: 4000, name: "solver".into() }],
        ..Manifest::default()
    };
    let mut writer = Writer::create(&path, Overwrite::Yes, &manifest).expect("created");
    let source = Source {
        class: Class::Thread,
        name: "burn".into(),
        unit: None,
        detail: None,
        pids: vec![77],
        own: false,
        program: false,
        policy: Some("SCHED_FIFO 40".into()),
        cause: None,
    };
    writer.add_source(SourceId(0), &source).expect("added");
    let mut block = Block::new(LaneId(0));
    for at in (0..4000 * MS).step_by(100 * MS as usize) {
        strike(&mut block, SourceId(0), 0, (at, 84 * MS));
    }
    writer.write_block(&block).expect("written");
    let lane = LaneTotals { lane: 0, from_ns: 0, to_ns: 4000 * MS, ..LaneTotals::default() };
    writer.finish(Trailer { lanes: vec![lane], ..Trailer::default() }).expect("finished");
    path.to_str().expect("text").to_owned()
}

/// Without line breaks.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_process_on_a_programs_cpu_is_named_where_the_actions_are() {
    let trace = beside_a_burner("first-burner.detour");
    let few = ["--ranks", "64", "--runs", "5", "-q"];
    for command in ["report", "whatif"] {
        let text = stdout(&[&[command, &trace][..], &few].concat());
        let flat = flat(&text);
        assert!(flat.starts_with("The program was not alone: burn (84 % of a CPU)"), "{text}");
        let said = "Load: burn took 84 % of a CPU. Exclude it with --exclude burn, or move the \
                    program or the load; SCHED_FIFO 40 preempts every ordinary thread.";
        assert!(flat.contains(said), "{text}");
        assert!(
            flat.contains("for p in 77; do chrt --all-tasks --other --pid 0 $p; done"),
            "{text}"
        );
        assert!(!flat.contains("Nothing is worth doing") && !flat.contains("pkill"), "{text}");
        let without = stdout(&[&[command, &trace, "--exclude", "burn"][..], &few].concat());
        assert!(!without.contains("Load:") && !without.contains("not alone"), "{without}");
    }
    let page = scratch("first-burner.html");
    let page = page.to_str().expect("text");
    stdout(&[&["report", &trace, "--html", page][..], &few].concat());
    let html = fs::read_to_string(page).expect("a page");
    assert!(html.contains("Load: burn took 84") && html.contains("chrt --all-tasks"), "{html}");
}

#[test]
fn the_headline_says_what_it_rests_on() {
    let rare = Habit { every_ns: 1000 * MS, takes_ns: 30 * MS, cpu: Some(1), ..DAEMON };
    let trace = recording("first-rare.detour", Mode::Attributed, 2, 9, &[rare, TICK]);
    let job = ["--ranks", "2048", "--compute", "10ms", "--iterations", "20", "--runs", "5", "-q"];
    let text = stdout(&[&["report", &trace][..], &job].concat());
    let headline = flat(text.split("Do this first").next().unwrap_or_default());
    let [before, after] = ["This rests on 9 events of fakemond.", "The job: "]
        .map(|part| headline.find(part).unwrap_or_else(|| panic!("no '{part}' in {headline}")));
    let supports = headline.find("The recording supports 1024 ranks; for 2048").expect(&headline);
    assert!(before < supports && supports < after, "{headline}");
    assert_eq!(text.matches("supports").count(), 1, "{text}");
}

#[test]
fn the_page_has_a_heading_above_the_actions_and_intervals_without_breaks() {
    let daemon = Habit { every_ns: 10 * MS, takes_ns: MS, cpu: Some(1), ..DAEMON };
    let trace = recording("first-page.detour", Mode::Attributed, 2, 10, &[daemon, TICK]);
    let page = scratch("first-page.html");
    let page = page.to_str().expect("text");
    stdout(&["report", &trace, "--ranks", "2", "--runs", "10", "--html", page, "-q"]);
    let html = fs::read_to_string(page).expect("a page");
    assert!(html.contains(">Do this first (gains on 2 ranks)</h2>"), "{html}");
    let (_, after) = html.split_once("class=\"gain\"").expect("a gain");
    let (_, interval) = after.split_once("<small>(").expect("an interval");
    let (interval, _) = interval.split_once(')').expect("its end");
    assert!(interval.contains("\u{a0}to\u{a0}") && !interval.contains(' '), "{interval:?}");
    assert!(html.contains("what the job gains without them on 2 ranks"), "{html}");
}

#[test]
fn tables_without_rows_are_a_sentence() {
    let trace = recording("first-units.detour", Mode::Attributed, 2, 2, &[TICK]);
    let text = stdout(&["report", &trace, "--by", "unit", "--no-projection"]);
    assert!(text.contains("No source of this recording belongs to a unit."), "{text}");
    let program = beside_a_burner("first-cpus.detour");
    let text = stdout(&["report", &program, "--by", "cpu", "--no-projection"]);
    assert!(text.contains("of threads, not of CPUs"), "{text}");
}

#[test]
fn differences_between_sources_are_not_said_beside_other_rows() {
    // The tick takes most time, the daemon costs the job most.
    let trace = recording("first-whatif.detour", Mode::Attributed, 2, 10, &[TICK, DAEMON, HELPER]);
    let text =
        |by: &str| stdout(&["whatif", &trace, "--by", by, "--ranks", "4096", "--runs", "5", "-q"]);
    let title = "Where this differs from the local ranking";
    for (by, said) in
        [("process", true), ("source", true), ("unit", false), ("class", false), ("cpu", false)]
    {
        assert_eq!(text(by).contains(title), said, "{by}");
    }
}

#[test]
fn a_node_that_passes_has_no_reason() {
    let good = recording("first-good.detour", Mode::Attributed, 2, 10, &[TICK]);
    let small = Habit { every_ns: 100 * MS, takes_ns: 20_000, ..DAEMON };
    let alike = recording("first-alike.detour", Mode::Attributed, 2, 10, &[TICK, small]);
    let check = ["report", "--baseline", &good, &alike, "--ranks", "2", "--runs", "10", "-q"];
    let text = stdout(&check);
    assert!(text.contains("pass") && !text.contains("fakemond"), "{text}");
}

#[test]
fn the_demo_takes_the_options_of_the_job() {
    // Wrong ones are found before anything is recorded.
    let job = scratch("first-job.toml");
    fs::write(&job, "op = \"nonsense\"\n").expect("written");
    let job = job.to_str().expect("text");
    let output = detour(&["demo", "--job", job]).output().expect("started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("nonsense"), "{said}");
    let help = stdout(&["demo", "--help"]);
    for option in ["--compute", "--iterations", "--ranks", "--net", "--ranks-per-node", "--exclude"]
    {
        assert!(help.contains(option), "{option}: {help}");
    }
    assert!(help.contains("[default: 1ms]"), "{help}");
}
