//! What to do first: the right process, with the gain of a closed form, and nothing where nothing is worth
//! it.

#[path = "../../tests/made/mod.rs"]
mod made;

use std::path::Path;

use made::{DAEMON, Habit, MS, TICK, US, recording};
use study::{
    advice::Advice,
    collective,
    decision::{self, Report, decide},
    network, noise, open, placement,
    placement::Placement,
    summary::summarise,
    work::{Unwatched, Work},
    workload::{self, JobKind},
};
use trace::{Class, Mode};

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
    let request =
        decision::Request { workload: usual(ranks), placement, runs: 40, exclude: Vec::new() };
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
            job,
            ranks: vec![2],
            runs: 40,
            sizes: vec![8],
            net: usual(None).net,
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
    let random = placement::Request { placement: Placement::Random, ranks_per_node: None };
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
    let [busy] = &decision.busy[..] else { panic!("{:?}", decision.busy) };
    assert_eq!(busy.process, "rustc");
    assert!((busy.cpu_pct - 80.0).abs() < 4.0, "{}", busy.cpu_pct);
    let idle = decision.idle_pct.expect("known");
    assert!((idle - 55.0).abs() < 3.0, "{idle}");
    assert!(decision.actions.iter().all(|action| action.process != "rustc"));
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
