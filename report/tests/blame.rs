//! Snapshots of blame texts and of the diagrams of simulated runs.

use report::{Options, blame, blame_sweep, diagram, trace_events};
use study::{
    explain::{
        blame::{Blame, Noise, OnRank, Parts, Source, Spread},
        picture::{Bar, Detour, Doing, Flight, Picture, Stretch},
    },
    jobs::collective::{About, KneeKeys, SeriesKnee, Sweep},
    run::point::{Point, Runs, Series},
};
use trace::Class;

/// Times in microseconds.
fn source(name: &str, class: Class, on_path_us: f64, absorbed_us: f64) -> Source {
    Source {
        name: name.to_owned(),
        class: Some(class),
        unit: (class == Class::Thread).then(|| "monitor.service".to_owned()),
        own: false,
        known: true,
        on_path_us,
        on_path_spread: Spread { max_us: on_path_us * 4.0, ..Spread::default() },
        absorbed_us,
        runs_on_path: if on_path_us > 0.0 { 31 } else { 0 },
        ranks: vec![OnRank { rank: 5, on_path_us, absorbed_us }],
    }
}

fn figures(runs: usize) -> Blame {
    let path =
        Parts { compute_us: 60.0, o_us: 22.96, l_us: 19.08, noise_us: 21.02, ..Parts::default() };
    let between = |us: f64| Spread { q25_us: us * 0.9, q75_us: us * 1.1, ..Spread::default() };
    Blame {
        waits: None,
        parts: Vec::new(),
        runs,
        ranks: 8,
        finish_us: 123.06,
        finish_spread: Spread::default(),
        last_rank: 3,
        last_rank_runs: if runs == 1 { 1 } else { 40 },
        path_spread: Parts {
            compute_us: between(path.compute_us),
            o_us: between(path.o_us),
            l_us: between(path.l_us),
            noise_us: between(path.noise_us),
            ..Parts::default()
        },
        path,
        ranks_mean: Parts {
            compute_us: 60.0,
            o_us: 30.0,
            waiting_us: 20.0,
            noise_us: 11.0,
            ..Parts::default()
        },
        sources: vec![
            source("fakemond", Class::Thread, 21.0, 60.0),
            source("tick", Class::Timer, 0.02, 6.0),
            source("evil\u{1b}[2J", Class::Irq, 0.0, 0.9),
        ],
        noise: Noise { on_path_us: 21.02, absorbed_us: 66.9 },
    }
}

#[test]
fn one_run_and_many_are_told_like_this() {
    insta::assert_snapshot!("blame_of_one_run", blame(&figures(1), Options::default()));
    let many = blame(&figures(100), Options::default());
    assert!(!many.contains('\u{1b}'), "a name reaches the terminal");
    insta::assert_snapshot!("blame_of_many_runs", many);
    let quiet = Blame { sources: Vec::new(), ..figures(1) };
    assert!(!blame(&quiet, Options::default()).contains("absorbed"));
}

fn sweep(ranks: &[u64]) -> Sweep {
    let series = Series { size: 1, net_scale: 1.0, ..Series::default() };
    let point = |&ranks: &u64| {
        let series = series.clone();
        let runs =
            Runs { series, ranks, messages: 1, noiseless_ps: 1, times_ps: vec![1], took_s: 1.0 };
        Point { blame: Some(figures(100)), ..Point::of(&runs).unwrap() }
    };
    Sweep {
        about: About::default(),
        points: ranks.iter().map(point).collect(),
        knee: KneeKeys::default(),
        knees: vec![SeriesKnee { series, knee: KneeKeys::default() }],
    }
}

#[test]
fn a_sweep_shows_the_parts_by_rank_count() {
    let text = |ranks: &[u64]| blame_sweep(&sweep(ranks), Options::default());
    insta::assert_snapshot!("blame_of_a_sweep", text(&[8, 16]).unwrap());
    assert_eq!(text(&[]), None);
    assert!(text(&[8]).unwrap().starts_with("Where the time went"));
}

/// A rank that is interrupted while it computes, and sends to one that waits.
fn picture() -> Picture {
    let bar = |rank, doing, from, to, name: &str, on_path| Bar {
        rank,
        unit: 0,
        doing,
        from,
        to,
        name: name.to_owned(),
        noise: Vec::new(),
        on_path,
    };
    let mut calc = bar(0, Doing::Compute, 0, 7_000_000, "calc <5>", true);
    calc.noise.push(Detour { source: "fake & mond".to_owned(), from: 2_000_000, to: 4_000_000 });
    let stretch = |rank, from, to, part| Stretch { rank, from, to, part };
    Picture {
        title: "a \"small\" run".to_owned(),
        ranks: 2,
        finish: 14_000_500,
        work: vec![
            calc,
            bar(0, Doing::Send, 7_000_000, 9_000_000, "send 1b to 1", true),
            bar(1, Doing::Receive, 12_000_500, 14_000_500, "recv 1b from 0", true),
        ],
        nics: vec![
            bar(0, Doing::Send, 7_000_000, 8_000_000, "send 1b to 1", false),
            bar(1, Doing::Receive, 12_000_500, 13_000_500, "recv 1b from 0", false),
        ],
        flights: vec![Flight {
            sender: 1,
            receiver: 2,
            nics: (0, 0),
            control: false,
            left: 9_000_000,
            arrived: 12_000_500,
            on_path: true,
        }],
        path: vec![
            stretch(1, 12_000_500, 14_000_500, "o"),
            stretch(0, 9_000_000, 12_000_500, "L"),
            stretch(0, 7_000_000, 9_000_000, "o"),
            stretch(0, 5_000_000, 7_000_000, "noise"),
            stretch(0, 0, 5_000_000, "compute"),
        ],
    }
}

#[test]
fn a_diagram_looks_like_this() {
    insta::assert_snapshot!("diagram", diagram(&picture()));
}

#[test]
fn a_diagram_of_nothing_is_a_diagram() {
    let svg = diagram(&Picture { ranks: 1, ..Picture::default() });
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && !svg.contains("NaN"));
}

#[test]
fn a_trace_for_viewers_looks_like_this() {
    let mut text = Vec::new();
    trace_events(&picture(), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    serde_json::from_str::<serde_json::Value>(&text).expect("strict JSON");
    insta::assert_snapshot!("trace_events", text);
}
