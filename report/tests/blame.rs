//! Snapshots of blame texts and of the diagrams of simulated runs.

use report::{
    Bar, BlameFigures, BlamePart, BlameRow, BlameSource, Detour, Doing, Flight, Options, Picture,
    Stretch, blame, blame_sweep, diagram, trace_events,
};

fn part(name: &'static str, path: f64, rank: f64) -> BlamePart {
    BlamePart { name, path, path_between: (path * 0.9, path * 1.1), rank }
}

fn source(name: &str, class: &str, on_path: f64, absorbed: f64) -> BlameSource {
    BlameSource {
        name: name.to_owned(),
        class: class.to_owned(),
        unit: if class == "thread" { "monitor.service".to_owned() } else { String::new() },
        own: false,
        on_path,
        on_path_max: on_path * 4.0,
        absorbed,
        runs: if on_path > 0.0 { 31 } else { 0 },
        worst_rank: (on_path > 0.0).then_some(5),
    }
}

fn figures(runs: u64) -> BlameFigures {
    BlameFigures {
        runs,
        ranks: 8,
        finish: 123_060.0,
        last: (3, if runs == 1 { 1 } else { 40 }),
        parts: vec![
            part("compute", 60_000.0, 60_000.0),
            part("o", 22_960.0, 30_000.0),
            part("O", 0.0, 0.0),
            part("L", 19_080.0, 0.0),
            part("waiting", 0.0, 20_000.0),
            part("noise", 21_020.0, 11_000.0),
        ],
        sources: vec![
            source("fakemond", "thread", 21_000.0, 60_000.0),
            source("tick", "timer", 20.0, 6_000.0),
            source("evil\u{1b}[2J", "irq", 0.0, 900.0),
        ],
        on_path: 21_020.0,
        absorbed: 66_900.0,
    }
}

#[test]
fn one_run_and_many_are_told_like_this() {
    insta::assert_snapshot!("blame_of_one_run", blame(&figures(1), Options::default()));
    let many = blame(&figures(100), Options::default());
    assert!(!many.contains('\u{1b}'), "a name reaches the terminal");
    insta::assert_snapshot!("blame_of_many_runs", many);
    let quiet = BlameFigures { sources: Vec::new(), ..figures(1) };
    assert!(!blame(&quiet, Options::default()).contains("absorbed"));
}

#[test]
fn a_sweep_shows_the_parts_by_rank_count() {
    let row = |ranks| BlameRow { series: String::new(), ranks, figures: figures(100) };
    insta::assert_snapshot!(
        "blame_of_a_sweep",
        blame_sweep(&[row(8), row(16)], Options::default())
    );
    assert_eq!(blame_sweep(&[], Options::default()), "");
    assert!(blame_sweep(&[row(8)], Options::default()).starts_with("Where the time went"));
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
