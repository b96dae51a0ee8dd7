//! What to do first: the right process, with the gain of a closed form, and nothing where nothing is worth
//! it.

#[path = "../../tests/made/mod.rs"]
mod made;

use std::path::{Path, PathBuf};

use analysis::{By, Part};
use made::{DAEMON, Habit, MS, TICK, US, recording, scratch};
use rand::RngExt;
use random::Stream;
use study::{
    decide::{
        advice::Advice,
        compare::{self, compare},
        decision::{self, Report, decide},
        fleet,
        projection::{self, project},
        whatif::{self, Further, ask},
    },
    jobs::{
        collective,
        workload::{self, JobKind},
    },
    network, noise,
    noise::{placement, placement::Placement},
    recording::{load::Load, open, summary::summarise},
    run::{
        point::Point,
        work::{Unwatched, Work},
    },
};
use trace::{
    Block, Class, Lane, LaneId, LaneTotals, Manifest, Mode, Overwrite, Record, RecordFlags, Source,
    SourceId, Trailer, Writer,
};

const WORK: Work<'static> = Work { seed: 1, threads: 2, memory: || 1 << 32, watch: &Unwatched };

/// A daemon that takes a tenth of one CPU.
const TENTH: Habit = Habit { every_ns: 10 * MS, takes_ns: MS, cpu: Some(1), ..DAEMON };

fn usual(ranks: Option<u64>) -> workload::Request {
    let mut request = workload::Request::usual().expect("the usual job");
    if let JobKind::Collectives { ranks: asked, .. } = &mut request.kind {
        *asked = ranks;
    }
    request
}

fn decided(trace: &str, ranks: Option<u64>, placement: placement::Request) -> Report {
    let reader = open::open(Path::new(trace)).expect("a recording");
    let summary = summarise(&reader).0;
    let request = decision::Request {
        workload: usual(ranks),
        part: Part::default(),
        placement,
        runs: 40,
        exclude: Vec::new(),
        tail: false,
    };
    let advice = Advice::built_in().expect("advice");
    decide(&reader, summary, &request, &advice, &WORK).expect("a decision")
}

/// Closed form: on a node with two ranks, only one meets the daemon. It computes for nine tenths of the
/// time, so the job takes 10/9 as long, and removing the daemon gains a tenth. If both ranks draw a CPU at
/// random, some pairs meet it twice and some never.
#[test]
fn two_ranks_of_a_node_lose_what_its_daemon_takes_from_one_of_them() {
    let trace = recording("decide-pair.detour", Mode::Attributed, 2, 30, &[TENTH]);
    let report = decided(&trace, Some(2), placement::Request::default());
    let decision = &report.decision;
    let time = decision.job_time.as_ref().expect("simulated");
    assert!((time.slowdown_median - 10.0 / 9.0).abs() < 0.01, "{}", time.slowdown_median);
    let [action] = &decision.actions[..] else { panic!("{:?}", decision.actions) };
    assert_eq!((action.process.as_str(), action.ranks), ("fakemond", 2));
    assert!((action.gain_pct - 10.0).abs() < 0.6, "{}", action.gain_pct);
    let [low, high] = action.gain_ci95_pct;
    assert!(low > 8.5 && low <= action.gain_pct && action.gain_pct <= high && high < 11.5);
    assert_eq!(action.command, "systemctl mask --now fakemond.service");
    assert!(action.undo.contains("systemctl unmask fakemond.service"), "{}", action.undo);
    let job = decision.job.as_ref().expect("a job");
    assert_eq!((job.ranks_per_node, job.iterations, job.compute_us), (Some(2), 100, 1000.0));
    let row = report.summary.processes.iter().find(|row| row.process == "fakemond");
    assert_eq!(row.and_then(|row| row.gain_pct), Some(action.gain_pct));

    // Alone on its node, or with a CPU of its own choice, a rank is on either CPU: in a quarter of the runs
    // none is on the daemon's. On one node, always one is.
    let fastest = |placement: placement::Request| {
        let JobKind::Collectives { job, .. } = usual(Some(2)).kind else { panic!("a collective") };
        let noise = vec![trace.clone().into()];
        let request = collective::Request {
            net_local: None,
            latency: None,
            after_barrier: false,
            jobs: vec![job],
            ranks: vec![2],
            runs: 40,
            sizes: vec![8],
            nets: vec![usual(None).net],
            rendezvous: network::RENDEZVOUS,
            net_scales: vec![1.0],
            with_coscheduled: false,
            blame: false,
            noise: noise::Request { noise, placement, ..noise::Request::default() },
            resume: None,
            times: None,
        };
        let point = collective::simulate(&request, &WORK).expect("simulated").points[0].clone();
        point.min_us / point.noiseless_us
    };
    let alone = placement::Request { ranks_per_node: Some(1), ..placement::Request::default() };
    let random = placement::Request { placement: Placement::Random, ..Default::default() };
    assert!(fastest(placement::Request::default()) > 1.08);
    assert!(fastest(alone) < 1.001 && fastest(random) < 1.001);
}

#[test]
fn nothing_is_advised_where_nothing_is_worth_it() {
    let trace = recording("decide-quiet.detour", Mode::Attributed, 2, 10, &[TICK]);
    let report = decided(&trace, Some(2), placement::Request::default());
    assert_eq!(report.decision.actions, []);
    assert!(report.decision.job_time.is_some() && report.decision.not_simulated.is_none());
    // Without sources nothing can be attributed, and that is said.
    let probe = recording("decide-probe.detour", Mode::ProbeOnly, 2, 10, &[TICK]);
    let report = decided(&probe, None, placement::Request::default());
    assert!(report.decision.not_simulated.is_some_and(|why| why.contains("no sources")));
}

#[test]
fn load_is_not_noise() {
    let compiler = Habit {
        class: Class::Thread,
        name: "rustc",
        unit: None,
        every_ns: 10 * MS,
        takes_ns: 4 * MS,
        cpu: None,
    };
    let daemon = Habit { every_ns: 10 * MS, takes_ns: 500 * US, cpu: None, ..DAEMON };
    let trace = recording("decide-busy.detour", Mode::Attributed, 2, 10, &[compiler, daemon]);
    let decision = decided(&trace, Some(64), placement::Request::default()).decision;
    let [busy] = &decision.load.busy[..] else { panic!("{:?}", decision.load) };
    assert_eq!(busy.process, "rustc");
    assert!((busy.cpu_pct - 80.0).abs() < 4.0, "{}", busy.cpu_pct);
    let idle = decision.load.idle_pct.expect("known");
    assert!((idle - 55.0).abs() < 3.0, "{idle}");
    assert!(decision.load.is_counted());
    // What a job would gain beside it is not known, so no row says it.
    assert!(decision.actions.is_empty() && decision.job_time.is_some());
    let rows = decided(&trace, Some(64), placement::Request::default()).summary.processes;
    assert!(rows.len() == 2 && rows.iter().all(|row| row.gain_pct.is_none()), "{rows:?}");
    let reader = open::open(Path::new(&trace)).expect("a recording");
    let excluded = |name: &str| Load::of_recording(&reader, &[name.to_owned()]);
    for name in ["rustc", "process:rustc", "thread:rustc", "thread"] {
        let load = excluded(name);
        assert!(load.busy.is_empty() && !load.is_counted(), "{name}: {load:?}");
        assert!(load.idle_pct.is_some_and(|idle| idle > 90.0), "{name}: {load:?}");
    }
    // Nothing is worth doing about a tool that comes and goes, however little it takes.
    let tool = Habit { takes_ns: MS, name: "apt-get", ..compiler };
    let trace = recording("decide-tool.detour", Mode::Attributed, 2, 10, &[tool]);
    let decision = decided(&trace, Some(64), placement::Request::default()).decision;
    assert!(decision.load.busy.is_empty() && decision.actions.is_empty(), "{decision:?}");
}

/// A build is many processes, none of which takes a quarter of a CPU.
#[test]
fn many_small_processes_are_a_load_together() {
    let names = ["cc1", "as", "ld", "sh", "make"];
    let part = |at: usize| Habit {
        class: Class::Thread,
        name: names[at],
        unit: None,
        every_ns: 10 * MS + at as u64,
        takes_ns: MS,
        cpu: None,
    };
    let load = |habits: &[Habit], name: &str| {
        let trace = recording(name, Mode::Attributed, 2, 10, habits);
        Load::of_recording(&open::open(Path::new(&trace)).expect("a recording"), &[])
    };
    let all: Vec<Habit> = (0..5).map(part).collect();
    let busy = load(&all, "decide-build.detour");
    assert!(busy.idle_pct.is_some_and(|idle| idle < 60.0) && busy.busy.len() == 5, "{busy:?}");
    let few = load(&all[..2], "decide-few.detour");
    assert!(few.idle_pct.is_some_and(|idle| idle > 75.0) && few.busy.is_empty(), "{few:?}");
}

/// With more ranks than there are intervals of the job in the recording, the slowest would always be one
/// that was recorded.
#[test]
fn a_job_has_no_more_ranks_than_the_recording_supports() {
    let trace = recording("decide-short.detour", Mode::Attributed, 2, 1, &[TENTH]);
    let decision = decided(&trace, None, placement::Request::default()).decision;
    assert_eq!(decision.job.expect("a job").ranks, 1024);
    let more = decided(&trace, Some(4096), placement::Request::default()).decision;
    assert!(more.job_remarks.iter().any(|remark| remark.contains("supports 1024 ranks")));
}

/// Two CPUs recorded without the probe while a job ran on both. A daemon preempts it on the second one for
/// a tenth of the time; a timer interrupts it wherever it runs.
fn beside_a_job(name: &str, seconds: u64) -> String {
    beside_a_job_with(name, seconds, MS, None)
}

/// The same with a daemon that takes so much of every 10 ms, and its unit.
fn beside_a_job_with(name: &str, seconds: u64, takes_ns: u64, unit: Option<&str>) -> String {
    let path = scratch(name);
    let manifest = Manifest {
        host: "node01".into(),
        mode: Mode::KernelOnly,
        lanes: (0..2).map(|cpu| Lane::Cpu { cpu }).collect(),
        ..Manifest::default()
    };
    let mut writer = Writer::create(&path, Overwrite::Yes, &manifest).expect("created");
    let sources = [(Class::Thread, "lammps"), (Class::Thread, "fakemond"), (Class::Timer, "tick")];
    for (id, (class, name)) in (0..).zip(sources) {
        let unit = unit.filter(|_| name == "fakemond").map(str::to_owned);
        let (name, detail) = (name.to_owned(), None);
        let (pids, policy, cause) = (Vec::new(), None, None);
        let source =
            Source { class, name, unit, detail, pids, own: false, program: false, policy, cause };
        writer.add_source(SourceId(id), &source).expect("added");
    }
    let to_ns = seconds * 1000 * MS;
    for cpu in 0..2u32 {
        let mut block = Block::new(LaneId(cpu));
        let mut add = |source, start_ns, gross_ns, nested_ns, depth| {
            let net_ns = gross_ns - nested_ns;
            let (source, cpu, flags) = (SourceId(source), cpu as u16, RecordFlags::default());
            block.records.push(Record {
                start_ns,
                gross_ns,
                net_ns,
                cost_ns: net_ns,
                source,
                cpu,
                depth,
                flags,
            });
        };
        for start in (0..to_ns).step_by(10 * MS as usize) {
            let daemon_ns = if cpu == 1 { takes_ns } else { 0 };
            if daemon_ns > 0 {
                add(1, start, daemon_ns, 0, 0);
            }
            // Nested, so it ends first.
            add(2, start + 5 * MS, US, 0, 1);
            add(0, start + daemon_ns, 10 * MS - daemon_ns, US, 0);
        }
        writer.write_block(&block).expect("written");
    }
    let lane = |lane| LaneTotals { lane, from_ns: 0, to_ns, ..LaneTotals::default() };
    let trailer = Trailer { lanes: (0..2).map(lane).collect(), ..Trailer::default() };
    writer.finish(trailer).expect("finished");
    path.to_str().expect("text").to_owned()
}

/// The closed form of the pair above holds for a recording without the probe: what ran is what was taken,
/// and the job that ran is not noise.
#[test]
fn a_production_job_recorded_without_the_probe_can_be_asked_about() {
    let trace = beside_a_job("decide-production.detour", 10);
    let report = decided(&trace, Some(2), placement::Request::default());
    let decision = &report.decision;
    assert_eq!(decision.not_simulated, None);
    let time = decision.job_time.as_ref().expect("simulated");
    assert!((time.slowdown_median - 10.0 / 9.0).abs() < 0.01, "{}", time.slowdown_median);
    // 1,000 times on one CPU, and the tick 1,000 times on each.
    assert_eq!((time.detours, time.detour_ns_total), (3_000, 1_000 * MS + 2_000 * US));
    let [action] = &decision.actions[..] else { panic!("{:?}", decision.actions) };
    assert_eq!(action.process, "fakemond");
    assert!((action.gain_pct - 10.0).abs() < 0.6, "{}", action.gain_pct);
    assert!(decision.load.busy_left_out && decision.load.busy[0].process == "lammps");
    assert!(
        decision
            .job_remarks
            .iter()
            .any(|remark| remark.contains("lammps is assumed to be the job"))
    );
}

/// Without the probe, what takes a quarter of a CPU is taken for the job, but not a service of the node.
#[test]
fn a_busy_service_is_not_taken_for_the_job() {
    let service = Some("fakemond.service");
    let trace = beside_a_job_with("decide-service.detour", 10, 3 * MS, service);
    let decision = decided(&trace, Some(2), placement::Request::default()).decision;
    let busy: Vec<&str> = decision.load.busy.iter().map(|busy| &*busy.process).collect();
    assert_eq!(busy, ["lammps"]);
    let [action] = &decision.actions[..] else { panic!("{:?}", decision.actions) };
    assert_eq!(action.command, "systemctl mask --now fakemond.service");
    // It leaves seven tenths.
    assert!((action.gain_pct - 30.0).abs() < 1.0, "{}", action.gain_pct);
    for unit in [None, Some("slurmd.service")] {
        let trace = beside_a_job_with("decide-ranks.detour", 10, 3 * MS, unit);
        let decision = decided(&trace, Some(2), placement::Request::default()).decision;
        assert!(decision.actions.is_empty() && decision.load.busy.len() == 2, "{decision:?}");
    }
}

/// Removing the class of a daemon that is alone in it, or silencing the CPU that it is on, is removing the
/// daemon.
#[test]
fn rows_of_classes_and_cpus_have_gains_of_their_own() {
    let trace = recording("decide-by.detour", Mode::Attributed, 2, 10, &[TENTH, TICK]);
    let reader = open::open(Path::new(&trace)).expect("a recording");
    let answers = |by: By, top: usize| {
        let request = whatif::Request {
            runs: 20,
            remove: Vec::new(),
            shift: None,
            quantise: false,
            top,
            repeat: true,
            part: Part::default(),
            placement: placement::Request::default(),
            exclude: Vec::new(),
            load: Load::default(),
            further: Further::By(by),
            tail: false,
        };
        let advice = Advice::built_in().expect("advice");
        ask(&reader, &usual(Some(2)), &request, &advice, &WORK).expect("answers")
    };
    let (classes, cpus) = (answers(By::Class, 20), answers(By::Cpu, 20));
    assert!(classes.cpus.is_empty() && cpus.classes.is_empty());
    let names = |groups: &[whatif::Group]| -> Vec<String> {
        groups.iter().map(|group| group.names.concat()).collect()
    };
    assert_eq!(names(&classes.classes), ["thread", "timer"]);
    assert_eq!(names(&cpus.cpus), ["CPU 1", "CPU 0"]);
    let daemon = &classes.processes[0];
    assert_eq!(daemon.process, "fakemond");
    assert_eq!(classes.classes[0].answer, daemon.answer);
    // Silencing the CPU removes its ticks as well.
    let silent = cpus.cpus[0].answer.removed.gain_pct;
    assert!((silent - daemon.answer.removed.gain_pct).abs() < 0.3, "{silent}");
    assert!(cpus.cpus[1].answer.removed.gain_pct < 0.3);
    assert_eq!((cpus.cpus[0].source_count, cpus.cpus[1].source_count), (2, 1));
    let one = answers(By::Cpu, 1);
    assert_eq!(names(&one.cpus), ["CPU 1"]);
    assert!(
        one.remarks.iter().any(|remark| remark.starts_with("simulated only the 1 CPU of ")),
        "{:?}",
        one.remarks
    );
}

/// What to do is about the CPUs that are compared: the daemon on CPU 1 is none of their business.
#[test]
fn actions_of_a_comparison_are_for_the_cpus_in_it() {
    let before = recording("decide-cpu-0.detour", Mode::Attributed, 1, 10, &[TICK]);
    let after = recording("decide-cpu-0-1.detour", Mode::Attributed, 2, 10, &[TENTH, TICK]);
    let request =
        compare::Request { runs: 5, action_runs: 5, repeat: true, ..compare::Request::default() };
    let (before, after) = (Path::new(&before), Path::new(&after));
    let advice = Advice::built_in().expect("advice");
    let compared = compare(before, after, &usual(Some(2)), &request, Some(&advice), &WORK);
    let compared = compared.expect("compared");
    assert_eq!(compared.comparison.compared.only_cpus.as_deref(), Some("0"));
    assert_eq!(compared.actions.as_deref(), Some(&[][..]));
}

/// Whatever the rows, they are all of the noise.
#[test]
fn rows_of_a_comparison_add_up_whatever_they_stand_for() {
    let before = recording("decide-before.detour", Mode::Attributed, 2, 10, &[TENTH, TICK]);
    let after = recording("decide-after.detour", Mode::Attributed, 2, 10, &[TICK]);
    let compared = |by: By| {
        let request = compare::Request {
            runs: 5,
            action_runs: 5,
            repeat: true,
            by,
            ..compare::Request::default()
        };
        let (before, after) = (Path::new(&before), Path::new(&after));
        let advice = Advice::built_in().expect("advice");
        compare(before, after, &usual(Some(2)), &request, Some(&advice), &WORK).expect("compared")
    };
    let names: [(By, &[&str]); 5] = [
        (By::Process, &["fakemond", "tick"]),
        (By::Unit, &["fakemond.service", "(no unit)"]),
        (By::Source, &["fakemond", "tick"]),
        (By::Class, &["thread", "timer"]),
        (By::Cpu, &["CPU 1", "CPU 0"]),
    ];
    for (by, expected) in names {
        let compared = compared(by);
        let comparison = &compared.comparison;
        let rows: Vec<&str> = comparison.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(rows, expected);
        let sum = |rows: &[analysis::Change]| -> (u64, u64) {
            let of = |side: fn(&analysis::Change) -> u64| rows.iter().map(side).sum();
            (of(|row| row.before.cost_ns_total), of(|row| row.after.cost_ns_total))
        };
        assert_eq!(sum(&comparison.rows), sum(&comparison.sources));
        // The daemon is gone, and nothing else is worth doing.
        assert_eq!(compared.actions.as_deref(), Some(&[][..]));
        assert!(compared.projected.is_some_and(|projected| projected.change_pct < -8.0));
    }
}

/// Detours of random length at random times: no two recordings of them are alike.
fn random_recording(seed: u64) -> PathBuf {
    const SECONDS: f64 = 10.0;
    let mut text = String::from("lane,start_ns,length_ns,watched_from_ns,watched_to_ns\n");
    for cpu in 0..2 {
        let (mut stream, mut at) = (Stream::new(random::key(seed, cpu, 0)), 0.0);
        let mut window = format!("0,{}", SECONDS * 1e9);
        let mut exponential = |mean: f64| -mean * (1.0 - stream.random::<f64>()).ln();
        loop {
            at += exponential(0.05);
            let length = 5e-6 + exponential(300e-6);
            if at + length > SECONDS {
                break;
            }
            let window = std::mem::replace(&mut window, ",".to_owned());
            text += &format!("cpu{cpu},{:.0},{:.0},{window}\n", at * 1e9, length * 1e9);
            at += length;
        }
    }
    let path = scratch(&format!("decide-random-{seed}.csv"));
    std::fs::write(&path, text).expect("written");
    path
}

/// Each of these pairs differs by chance alone, by up to 30 % on 1024 ranks: its interval has to say so.
#[test]
fn two_recordings_of_the_same_noise_are_not_called_different() {
    let request = compare::Request { runs: 40, repeat: true, ..compare::Request::default() };
    let (mut contain, mut largest) = (0, 0.0f64);
    for pair in 0..12 {
        let [before, after] = [2 * pair, 2 * pair + 1].map(random_recording);
        let compared = compare(&before, &after, &usual(Some(1024)), &request, None, &WORK);
        let projected = compared.expect("compared").projected.expect("simulated");
        let [low, high] = projected.change_ci95_pct;
        assert!(low <= projected.change_pct && projected.change_pct <= high);
        contain += u32::from(low <= 0.0 && 0.0 <= high);
        largest = largest.max(projected.change_pct.abs());
    }
    // Of 12 intervals of 95 %, fewer than 10 contain the truth in one of 50 cases.
    assert!(contain >= 10, "{contain} of 12");
    assert!(largest > 5.0, "{largest} %");
}

#[test]
fn nodes_with_a_daemon_that_the_good_one_lacks_fail() {
    let good = recording("fleet-good.detour", Mode::Attributed, 2, 10, &[TICK]);
    let alike = recording("fleet-alike.detour", Mode::Attributed, 2, 10, &[TICK]);
    let bad = recording("fleet-bad.detour", Mode::Attributed, 2, 10, &[TICK, TENTH]);
    let traces = [Path::new(&alike), Path::new(&bad), Path::new("nonexistent.detour")];
    let request = compare::Request { runs: 20, repeat: true, ..compare::Request::default() };
    let checked = |tolerance_pct| {
        let good = Path::new(&good);
        fleet::check(good, &traces, tolerance_pct, &usual(Some(2)), &request, &WORK)
            .expect("checked")
    };
    let strict = checked(5.0);
    let passes: Vec<bool> = strict.nodes.iter().map(|node| node.pass).collect();
    assert_eq!((passes, strict.failed), (vec![true, false, false], 2));
    assert_eq!(strict.nodes[1].why, ["fakemond"]);
    let change = strict.nodes[1].change_pct.expect("simulated");
    assert!((change - 100.0 / 9.0).abs() < 0.7, "{change}");
    assert!(strict.nodes[0].change_pct.is_some_and(|change| change.abs() < 0.5));
    assert!(strict.nodes[2].why[0].contains("nonexistent.detour"), "{:?}", strict.nodes[2].why);
    assert_eq!(checked(20.0).failed, 1);
    // What is kept of the good node does not change anything: alone, each has the same result.
    for (node, trace) in strict.nodes.iter().zip([&alike, &bad]) {
        let (good, trace) = (Path::new(&good), Path::new(trace));
        let alone = compare(good, trace, &usual(Some(2)), &request, None, &WORK);
        let alone = alone.expect("compared").projected.expect("simulated");
        assert_eq!(node.change_ci95_pct, Some(alone.change_ci95_pct));
    }
    let missing = Path::new("nonexistent.detour");
    fleet::check(missing, &traces, 5.0, &usual(Some(2)), &request, &WORK).expect_err("no baseline");
}

#[test]
fn the_curve_of_the_job_ends_at_the_decision_and_is_flat_without_the_first_action() {
    let trace = recording("decide-curve.detour", Mode::Attributed, 2, 30, &[TENTH]);
    let reader = open::open(Path::new(&trace)).expect("a recording");
    let request = decision::Request {
        workload: usual(Some(64)),
        part: Part::default(),
        placement: placement::Request::default(),
        runs: 7,
        exclude: Vec::new(),
        tail: false,
    };
    let (advice, summary) = (Advice::built_in().expect("advice"), summarise(&reader).0);
    let report = decide(&reader, summary, &request, &advice, &WORK).expect("a decision");
    // Also where the other projections have fitted tails: one page, one answer.
    for tail in [false, true] {
        let request = projection::Request {
            ranks: vec![2, 4],
            runs: 2,
            workload: request.workload.clone(),
            tail,
            decision_runs: 7,
            ..projection::Request::usual().expect("usual")
        };
        let projection = project(&reader, &report, &request, &WORK).expect("not stopped");
        let job = projection.expect("projected").job.expect("a job");
        let ranks = |points: &[Point]| points.iter().map(|point| point.ranks).collect::<Vec<_>>();
        assert_eq!(ranks(&job.points), [4, 16, 64]);
        let time = report.decision.job_time.as_ref().expect("simulated");
        assert_eq!(job.points.last().map(|point| point.median_us), Some(time.median_us));
        let without = job.without.expect("an action");
        assert_eq!(without.name, "without fakemond");
        assert!(without.points.iter().all(|point| point.slowdown_median == 1.0));
        assert_eq!(ranks(&job.with_tail), if tail { &[4, 16, 64][..] } else { &[] });
    }
}

/// Two threads of a program that share CPU 0 with a real-time process: it takes 84 of every 100 ms, for which
/// both wait.
fn beside_a_burner(name: &str) -> String {
    let path = scratch(name);
    let thread = |tid| Lane::Thread { pid: 4000, tid, name: "solver".into() };
    let manifest = Manifest {
        host: "node01".into(),
        mode: Mode::Program,
        lanes: [4000, 4001].map(thread).into(),
        ..Manifest::default()
    };
    let mut writer = Writer::create(&path, Overwrite::Yes, &manifest).expect("created");
    for (id, (name, pid, policy)) in
        (0..).zip([("burn", 77, "SCHED_FIFO 40"), ("solver", 4000, "SCHED_OTHER nice 0")])
    {
        let source = Source {
            class: Class::Thread,
            name: name.into(),
            unit: None,
            detail: None,
            pids: vec![pid],
            own: false,
            program: name == "solver",
            policy: Some(policy.into()),
            cause: None,
        };
        writer.add_source(SourceId(id), &source).expect("added");
    }
    for lane in 0..2 {
        let mut block = Block::new(LaneId(lane));
        for at in (0..4000 * MS).step_by(100 * MS as usize) {
            made::strike(&mut block, SourceId(0), 0, (at, 84 * MS));
            // They take turns.
            let turn = (at + (84 + 2 * u64::from(lane)) * MS, 2 * MS);
            made::strike(&mut block, SourceId(1), 0, turn);
        }
        writer.write_block(&block).expect("written");
    }
    let to_ns = 4000 * MS;
    let lane = |lane| LaneTotals { lane, from_ns: 0, to_ns, ..LaneTotals::default() };
    let trailer = Trailer { lanes: (0..2).map(lane).collect(), ..Trailer::default() };
    writer.finish(trailer).expect("finished");
    path.to_str().expect("text").to_owned()
}

/// What takes a program's CPU is load, not nothing: it is named, and a real-time policy explained.
#[test]
fn what_computes_on_a_programs_cpu_is_a_load() {
    let trace = beside_a_burner("decide-burner.detour");
    let decision = decided(&trace, Some(2), placement::Request::default()).decision;
    let [busy] = &decision.load.busy[..] else { panic!("{:?}", decision.load) };
    // Both threads wait for the same 84 ms.
    assert!(busy.process == "burn" && (busy.cpu_pct - 84.0).abs() < 0.1, "{busy:?}");
    assert_eq!(busy.policy.as_deref(), Some("SCHED_FIFO 40"));
    assert!(busy.is_real_time() && decision.load.is_counted() && decision.actions.is_empty());
    let commands: Vec<&String> = busy.advice.iter().flat_map(|remedy| &remedy.run).collect();
    assert!(commands.iter().any(|line| line.contains("chrt") && line.contains("77")), "{busy:?}");
    // Asked about it nevertheless, it has a gain and its remedy, but it is not an action.
    let reader = open::open(Path::new(&trace)).expect("a recording");
    let asked = |load: Load| {
        let request = whatif::Request {
            runs: 10,
            remove: Vec::new(),
            shift: None,
            quantise: false,
            top: 20,
            repeat: true,
            part: Part::default(),
            placement: placement::Request::default(),
            exclude: Vec::new(),
            load,
            further: Further::By(By::Process),
            tail: false,
        };
        let advice = Advice::built_in().expect("advice");
        ask(&reader, &usual(Some(2)), &request, &advice, &WORK).expect("answers")
    };
    let whatif = asked(Load::of_recording(&reader, &[]));
    let row = whatif.processes.iter().find(|row| row.process == "burn").expect("a row");
    assert!(row.answer.removed.gain_pct > 50.0, "{row:?}");
    assert!(row.advice.iter().any(|remedy| remedy.run[0].contains("chrt")), "{row:?}");
    assert!(whatif.actions.iter().all(|action| action.process != "burn"));
    assert!(whatif.load.is("burn") && !whatif.load.busy[0].advice.is_empty());
    // Without it, nothing is load.
    assert!(!Load::of_recording(&reader, &["burn".to_owned()]).is_counted());
}

/// No row is omitted silently: sources excluded from the actions are reported as load.
#[test]
fn what_is_no_action_for_being_load_is_among_the_load() {
    let hog = Habit { every_ns: 10 * MS, takes_ns: 4 * MS, cpu: Some(1), ..DAEMON };
    let trace = recording("decide-hog.detour", Mode::Attributed, 2, 10, &[hog]);
    let reader = open::open(Path::new(&trace)).expect("a recording");
    let request = whatif::Request {
        runs: 10,
        remove: Vec::new(),
        shift: None,
        quantise: false,
        top: 20,
        repeat: true,
        part: Part::default(),
        placement: placement::Request::default(),
        exclude: Vec::new(),
        load: Load::default(),
        further: Further::By(By::Process),
        tail: false,
    };
    let advice = Advice::built_in().expect("advice");
    let whatif = ask(&reader, &usual(Some(2)), &request, &advice, &WORK).expect("answers");
    assert!(whatif.actions.is_empty() && whatif.load.is("fakemond"), "{:?}", whatif.load);
}

/// The interval of a gain is that of the simulated runs, which all draw from the same few events.
#[test]
fn a_headline_that_rests_on_few_events_says_so() {
    let rare = Habit { every_ns: 1000 * MS, takes_ns: 30 * MS, cpu: Some(1), ..DAEMON };
    let trace = recording("decide-rare.detour", Mode::Attributed, 2, 9, &[rare, TICK]);
    let decision = decided(&trace, Some(256), placement::Request::default()).decision;
    let rests_on = decision.rests_on.expect("few events");
    assert_eq!((rests_on.process.as_str(), rests_on.detours), ("fakemond", 9));
    let trace = recording("decide-often.detour", Mode::Attributed, 2, 9, &[TENTH, TICK]);
    let decision = decided(&trace, Some(256), placement::Request::default()).decision;
    assert!(decision.rests_on.is_none() && !decision.actions.is_empty());
    let trace = recording("decide-brief.detour", Mode::Attributed, 2, 1, &[TICK]);
    let more = decided(&trace, Some(2048), placement::Request::default()).decision;
    assert!(more.unsupported.is_some_and(|remark| more.job_remarks.contains(&remark)));
}
