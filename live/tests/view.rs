//! The view of the recording: what it shows at which size, and what its keys do.

use std::io::Cursor;

use live::{
    Action, By, Choices, Key, Look, Model, Picture, Snapshot, Sort, SourceShown, Span, draw, press,
};
use trace::{Class, Mode, Reader, RecordFlags, SourceId, Writer};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/two-cpus.detour");
const PLAIN: Look = Look { colour: false, unicode: true };

fn demo(mode: Mode) -> Model {
    let reader = Reader::open(DEMO).expect("the recording");
    let mut manifest = reader.manifest().clone();
    manifest.mode = mode;
    if mode == Mode::KernelOnly {
        manifest.cpus.clear();
    }
    manifest.limits.clear();
    let mut model = Model::new(manifest);
    for (id, source) in (0..).map(SourceId).zip(reader.sources()) {
        model.source(id, source.clone());
    }
    let mut last = 0;
    for block in reader.blocks() {
        let mut block = block.expect("whole");
        let ends = block.detours.iter().map(|d| d.start_ns + d.len_ns);
        let ends = ends.chain(block.records.iter().map(|r| r.start_ns + r.gross_ns));
        last = ends.max().unwrap_or(0).max(last);
        if mode == Mode::KernelOnly {
            block.detours.clear();
            for record in &mut block.records {
                record.flags = RecordFlags(record.flags.0 & !RecordFlags::IN_DETOUR.0);
                record.cost_ns = record.net_ns;
            }
        }
        model.block(block);
    }
    // All buckets with events are full.
    model.settled(last + 1_000_000_000);
    model.state(trace::Lost::default(), Some(0.123));
    model.own_threads(Some(0.456));
    model
}

fn picture(snapshot: &Snapshot, choices: &Choices, look: &Look, width: u16, height: u16) -> String {
    let mut picture = Picture::new(width, height);
    draw(snapshot, choices, look, &mut picture);
    let lines =
        picture.lines().map(|line| line.iter().map(|glyph| glyph.symbol).collect::<String>());
    lines.map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

fn shown(mode: Mode) -> (Snapshot, Choices) {
    let snapshot = demo(mode).snapshot();
    (snapshot, Choices { span: Span::TenSeconds, ..Choices::for_mode(mode) })
}

fn type_keys(choices: &mut Choices, snapshot: &Snapshot, keys: &str) {
    for key in keys.chars() {
        press(choices, snapshot, Key::Char(key));
    }
}

#[test]
fn at_80_by_24_it_looks_like_this() {
    let (snapshot, choices) = shown(Mode::Attributed);
    insta::assert_snapshot!(picture(&snapshot, &choices, &PLAIN, 80, 24));
}

#[test]
fn at_200_by_60_it_looks_like_this() {
    let (snapshot, mut choices) = shown(Mode::Attributed);
    press(&mut choices, &snapshot, Key::Down);
    press(&mut choices, &snapshot, Key::Down);
    insta::assert_snapshot!(picture(&snapshot, &choices, &PLAIN, 200, 60));
}

#[test]
fn without_a_probe_threads_stand_apart() {
    let (snapshot, choices) = shown(Mode::KernelOnly);
    let look = Look { unicode: false, ..PLAIN };
    insta::assert_snapshot!(picture(&snapshot, &choices, &look, 100, 20));
    let with = Choices { threads: true, ..choices.clone() };
    assert_ne!(
        picture(&snapshot, &choices, &look, 100, 20),
        picture(&snapshot, &with, &look, 100, 20)
    );
}

#[test]
fn the_help_looks_like_this() {
    let (snapshot, mut choices) = shown(Mode::Attributed);
    press(&mut choices, &snapshot, Key::Char('?'));
    let look = Look { colour: true, ..PLAIN };
    insta::assert_snapshot!(picture(&snapshot, &choices, &look, 80, 24));
}

#[test]
fn no_size_and_no_state_breaks_it() {
    let (snapshot, plain) = shown(Mode::Attributed);
    let empty = Snapshot::default();
    let states = [
        plain.clone(),
        Choices { help: true, ..plain.clone() },
        Choices { typing: true, filter: "\u{1b}[31m".to_owned(), ..plain.clone() },
        Choices { message: Some("x".repeat(500)), paused: true, ..plain },
    ];
    for choices in &states {
        for height in 0..30 {
            for width in (0..90).chain([255, 1000]) {
                picture(&snapshot, choices, &PLAIN, width, height);
                picture(&empty, choices, &PLAIN, width, height);
            }
        }
    }
}

#[test]
fn a_hostile_name_cannot_reach_the_terminal() {
    let mut model = demo(Mode::Attributed);
    let reader = Reader::open(DEMO).expect("the recording");
    let mut source = reader.sources()[0].clone();
    source.name = "\u{1b}]0;owned\u{7}".to_owned();
    source.detail = Some("\u{9b}2J".to_owned());
    let id = SourceId(reader.sources().len() as u32);
    model.source(id, source);
    let mut block = reader.blocks().next().expect("a block").expect("whole");
    block.records.iter_mut().for_each(|record| record.source = id);
    model.block(block);
    let snapshot = model.snapshot();
    let mut choices = Choices { span: Span::Start, ..Choices::default() };
    press(&mut choices, &snapshot, Key::Home);
    let picture = picture(&snapshot, &choices, &PLAIN, 200, 60);
    assert!(picture.contains("owned"), "{picture}");
    assert!(!picture.chars().any(|c| c.is_control() && c != '\n'), "{picture:?}");
}

#[test]
fn what_rows_took_is_what_lanes_lost() {
    for mode in [Mode::Attributed, Mode::KernelOnly] {
        let snapshot = demo(mode).snapshot();
        for span in [Span::TenSeconds, Span::Start] {
            let rows: u64 =
                snapshot.sources.iter().map(|source| source.sums[span as usize].ns).sum();
            let lanes: u64 = snapshot.lanes.iter().flat_map(|lane| lane.taken[span as usize]).sum();
            // Each part is rounded down per bucket, for rows and lanes alike.
            assert_eq!(rows, lanes, "{mode:?} {span:?}");
            assert!(rows > 0);
            // Whatever the rows of the table stand for, they add up to the same.
            for by in By::ALL {
                let choices = Choices { by, ..Choices::default() };
                let table = choices.rows(&snapshot);
                let sum: u64 = table.iter().map(|row| row.sums[span as usize].ns).sum();
                assert_eq!(sum, rows, "{mode:?} {span:?} {by:?}");
            }
        }
    }
}

#[test]
fn the_sums_since_the_start_are_those_of_the_report() {
    let reader = Reader::open(DEMO).expect("the recording");
    let mut detours = 0;
    for block in reader.blocks() {
        detours += block.expect("whole").detours.iter().map(|d| d.outside_ns).sum::<u64>();
    }
    let snapshot = demo(Mode::Attributed).snapshot();
    let outside = |source: &&SourceShown| source.source.class == Some(Class::OutsideKernel);
    let outside = snapshot.sources.iter().filter(outside);
    assert_eq!(outside.map(|source| source.sums[Span::Start as usize].ns).sum::<u64>(), detours);
}

#[test]
fn keys_sort_filter_and_select() {
    let (snapshot, mut choices) = shown(Mode::Attributed);
    assert_eq!(press(&mut choices, &snapshot, Key::Char('s')), Action::Draw);
    assert_eq!(choices.sort, Sort::Rate);
    let by_rate = |choices: &Choices| {
        let rows = choices.rows(&snapshot);
        rows.iter().map(|row| row.sums[Span::TenSeconds as usize].count).collect::<Vec<_>>()
    };
    assert!(by_rate(&choices).is_sorted_by(|a, b| a >= b));
    type_keys(&mut choices, &snapshot, "r");
    assert!(by_rate(&choices).is_sorted());

    type_keys(&mut choices, &snapshot, "/TIMER");
    assert!(choices.typing);
    press(&mut choices, &snapshot, Key::Enter);
    assert!(!choices.typing);
    let rows = choices.rows(&snapshot);
    assert!(!rows.is_empty() && rows.len() < snapshot.sources.len());
    assert!(rows.iter().all(|row| {
        row.key.class == Some(Class::Timer) || row.key.name.to_lowercase().contains("timer")
    }));
    press(&mut choices, &snapshot, Key::End);
    let rows = choices.rows(&snapshot);
    assert_eq!(choices.selected_at(&rows), Some(rows.len() - 1));
    // It stays selected when the order changes.
    let selected = choices.selected.clone();
    type_keys(&mut choices, &snapshot, "ssr");
    assert_eq!(choices.selected, selected);
    assert!(choices.selected_at(&choices.rows(&snapshot)).is_some());
    press(&mut choices, &snapshot, Key::Escape);
    assert!(choices.selected.is_none() && !choices.filter.is_empty());
    press(&mut choices, &snapshot, Key::Escape);
    assert!(choices.filter.is_empty());
}

#[test]
fn letters_are_no_commands_while_a_filter_is_typed() {
    let (snapshot, mut choices) = shown(Mode::Attributed);
    type_keys(&mut choices, &snapshot, "/quit");
    assert_eq!(choices.filter, "quit");
    assert_eq!(press(&mut choices, &snapshot, Key::Control('c')), Action::Quit);
    press(&mut choices, &snapshot, Key::Escape);
    assert_eq!(press(&mut choices, &snapshot, Key::Char('q')), Action::Quit);
    assert_eq!(press(&mut choices, &snapshot, Key::Char('w')), Action::Write);
    assert_eq!(press(&mut choices, &snapshot, Key::Char(' ')), Action::Pause);
}

#[test]
fn what_is_on_screen_is_written_as_a_trace_that_reads_the_same() {
    let model = demo(Mode::Attributed);
    let before = Reader::open(DEMO).expect("the recording");
    let mut bytes = Vec::new();
    let written =
        live::write(&model, &model.snapshot(), |manifest| Writer::new(&mut bytes, manifest));
    let written = written.expect("written");
    let after = Reader::new(Cursor::new(bytes)).expect("a trace");

    let all = |infos: Vec<trace::BlockInfo>| {
        infos
            .iter()
            .fold((0, 0), |(d, r), info| (d + u64::from(info.detours), r + u64::from(info.records)))
    };
    let same = all(before.block_infos().collect());
    assert_eq!(all(after.block_infos().collect()), same);
    assert_eq!((written.detours, written.records), same);
    assert_eq!(after.truncated(), None);
    for (one, other) in before.blocks().zip(after.blocks()) {
        assert_eq!(one.expect("whole"), other.expect("whole"));
    }
}

#[test]
fn a_paused_view_writes_the_moment_it_shows() {
    let mut model = demo(Mode::Attributed);
    let paused = model.snapshot_to_keep();
    // Two minutes later, the running view keeps none of it.
    model.settled(paused.now_ns + 120_000_000_000);
    let write = |snapshot: &Snapshot| {
        let mut bytes = Vec::new();
        live::write(&model, snapshot, |manifest| Writer::new(&mut bytes, manifest))
    };
    assert_eq!(write(&model.snapshot()).expect("written").detours, 0);
    assert!(write(&paused).expect("written").detours > 1_000);
}
