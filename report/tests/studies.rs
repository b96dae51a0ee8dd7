//! Text output of studies: exchange times, and advice for sources of noise.

use std::{fs, path::PathBuf};

use report::{Options, advice, exchange};
use simulate::{
    noise::Model,
    resample::exchange::{Order, PER_WALK},
    whatif::Effect,
};
use study::{
    decide::{
        advice::{Advice, AdvisedSource, Place},
        whatif::{Answer, Baseline, Change, OfSource, WhatIf},
    },
    jobs::{
        exchange::{Request, simulate},
        workload::Job,
    },
    network::samples::Spec,
    noise,
    recording::load::Load,
    run::work::{Unwatched, Work},
};
use trace::Class;

/// Of exchanges of 150 us, about four in ten meet a detour of 50 us on one of the two nodes.
#[test]
fn exchanges_look_like_this() {
    let measured = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("report-measured.txt");
    fs::write(&measured, "150\n150\n200\n").unwrap();
    let request = Request {
        exchange: Spec::Constant(150_000_000),
        noise: noise::Request {
            noise: vec!["periodic:1000Hz,50us".into()],
            ..noise::Request::default()
        },
        order: Order::InTime,
        samples: 20_000,
        per_walk: PER_WALK,
        measured: Some(measured),
    };
    let work = Work { seed: 1, threads: 1, memory: || 1 << 32, watch: &Unwatched };
    let exchanges = simulate(&request, &work).unwrap();
    let text = exchange(&exchanges, Options::default());
    assert!(text.contains("An uninterrupted exchange takes 150 us on average"), "{text}");
    let added = 100.0 * (exchanges.mean_us / 150.0 - 1.0);
    assert!(added > 5.0 && added < 30.0, "{added}");
    assert!(text.contains(&format!("interruptions add {added:.1}%")), "{added}: {text}");
    let distance = exchanges.ks_distance.unwrap();
    assert!(text.contains(&format!("measured distribution: {distance:.4}.")), "{text}");
}

/// Few draws from a wide distribution: their mean is far from that of the distribution.
#[test]
fn without_noise_interruptions_add_nothing() {
    let measured = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("report-wide.txt");
    fs::write(&measured, "100\n100\n100\n5000\n").unwrap();
    let of = |noise: &str| {
        let request = Request {
            exchange: Spec::File(measured.clone()),
            noise: noise::Request { noise: vec![noise.into()], ..noise::Request::default() },
            order: Order::InTime,
            samples: 50,
            per_walk: PER_WALK,
            measured: None,
        };
        let work = Work { seed: 1, threads: 1, memory: || 1 << 32, watch: &Unwatched };
        simulate(&request, &work).unwrap()
    };
    let (quiet, noisy) = (of("none"), of("periodic:1000Hz,1us"));
    assert_eq!(quiet.mean_us, quiet.about.uninterrupted_mean_us);
    assert!(!exchange(&quiet, Options::default()).contains("interruptions"));
    // A detour of 1 us per ms on each of two nodes, at most.
    let added = 100.0 * (noisy.mean_us / noisy.about.uninterrupted_mean_us - 1.0);
    assert!((0.05..=0.201).contains(&added), "{added}");
}

fn whatif(names: &[&str]) -> WhatIf {
    let table = Advice::built_in().unwrap();
    let change = Change {
        gain_pct: 2.0,
        gain_ci95_pct: [1.0, 3.0],
        changed_runs: 40,
        shorter_runs: 40,
        effect: Effect::Gain,
    };
    let source = |name: &&str| {
        let class = Class::Thread;
        let subject = AdvisedSource {
            class,
            name,
            pids: &[],
            unit: None,
            detail: None,
            policy: None,
            program: false,
        };
        OfSource {
            class,
            name: (*name).to_owned(),
            unit: None,
            own: false,
            program: false,
            place: Some(1),
            rank: Some(1),
            local_rank: 1,
            local_share_pct: 10.0,
            local_ns_total: 1,
            local_ns_max: 1,
            detours: 1,
            answer: Answer {
                median_us_without: 98.0,
                median_ci95_us_without: [97.0, 99.0],
                removed: change,
                shifted: None,
                quantised: None,
            },
            advice: table.remedies(&subject, &Place::default()),
        }
    };
    WhatIf {
        host: String::new(),
        ranks: 64,
        runs: 40,
        seed: 1,
        job: "barrier".to_owned(),
        parts: Job::default(),
        net: String::new(),
        noise_model: Model::Preempt,
        shift_cpu: None,
        quantise: false,
        negligible_pct: 0.1,
        baseline: Baseline::default(),
        load: Load::default(),
        actions: Vec::new(),
        processes: Vec::new(),
        sources: names.iter().map(source).collect(),
        others: None,
        units: Vec::new(),
        classes: Vec::new(),
        cpus: Vec::new(),
        together: None,
        tail: None,
        remarks: Vec::new(),
        unsupported: None,
    }
}

#[test]
fn reasons_are_given_once() {
    let text = advice(&whatif(&["one", "two"]), Options::default()).unwrap();
    // One for each of two remedies.
    assert_eq!(text.matches("Why:").count(), 2, "{text}");
    assert!(text.contains("pgrep -x one") && text.contains("pgrep -x two"), "{text}");
    assert!(text.contains("Start it where no rank runs, as above."), "{text}");
    assert!(text.contains("one: up to 2.00 % faster (1.00 % to 3.00 %)"), "{text}");
    assert_eq!(advice(&whatif(&[]), Options::default()), None);
}
