//! GOAL input and output: nothing is lost between text and binary, errors have their position, and no
//! input does harm.

mod goal_support;

use std::io::BufReader;

use goal_support::cases;
use proptest::prelude::*;
use simulate::{
    event::{Action, Kind, Options, Schedule, run},
    goal::{
        CalcUnit, GoalError, WriteError, read, read_binary, read_text, write_binary, write_text,
    },
    loggops::Params,
    noise::Noise,
};

fn text_of(schedule: &Schedule, unit: CalcUnit) -> String {
    let mut text = Vec::new();
    write_text(schedule, unit, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn binary_of(schedule: &Schedule, unit: CalcUnit) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_binary(schedule, unit, &mut bytes).unwrap();
    bytes
}

fn parse(text: &str) -> Result<Schedule, GoalError> {
    read_text(text.as_bytes(), CalcUnit::default())
}

#[test]
fn text_to_binary_to_text_loses_nothing() {
    let mut verbatim = 0;
    for case in &cases() {
        let text = text_of(&case.schedule, case.unit());
        verbatim += usize::from(text == case.text);
        assert!(read_text(text.as_bytes(), case.unit()).unwrap() == case.schedule, "{}", case.name);
        let binary = binary_of(&case.schedule, case.unit());
        let back = read(binary.as_slice(), case.unit()).unwrap();
        assert!(back == case.schedule, "{}", case.name);
        assert_eq!(text_of(&back, case.unit()), text, "{}", case.name);
        assert_eq!(binary_of(&back, case.unit()), binary, "{}", case.name);
    }
    // The others declare their dependencies elsewhere than below the operations.
    assert!(verbatim > 600, "{verbatim} texts came back verbatim");
}

const SMALL: &str = "\
num_ranks 2

rank 0 {
l1: calc 7 cpu 1
l2: send 10b to 1 tag 3 cpu 1 nic 2
l2 requires l1
l2 irequires l1
}

rank 1 {
l1: recv 10b from -1 tag -1
}
";

#[test]
fn the_binary_layout_is_the_peers() {
    let mut expected: Vec<u8> = Vec::new();
    let mut put = |bytes: &[u8]| expected.extend_from_slice(bytes);
    put(&4223u64.to_le_bytes());
    put(&2u32.to_le_bytes());
    put(&[1, 2]);
    for offset in [38u64, 136, 136, 187] {
        put(&offset.to_le_bytes());
    }
    let node = |words: [u32; 4], size: u64, kind: u8, slot: [u8; 2], lists: [u32; 4]| {
        let mut bytes = words[0].to_le_bytes().to_vec();
        bytes.push(kind);
        bytes.extend(words[1].to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend(words[2].to_le_bytes());
        bytes.extend(slot);
        lists.iter().for_each(|list| bytes.extend(list.to_le_bytes()));
        assert_eq!(words[3], 0);
        bytes
    };
    // Two operations, one root: number 0.
    for word in [2u32, 1, 0] {
        put(&word.to_le_bytes());
    }
    put(&node([0, 0, 0, 0], 7, 3, [1, 0], [1, 0, 1, 1]));
    put(&node([2, 1, 3, 0], 10, 1, [1, 2], [0, 2, 0, 2]));
    for word in [1u32, 1] {
        put(&word.to_le_bytes());
    }
    for word in [1u32, 1, 0] {
        put(&word.to_le_bytes());
    }
    put(&node([0, u32::MAX, u32::MAX, 0], 10, 2, [0, 0], [0, 0, 0, 0]));
    let schedule = parse(SMALL).unwrap();
    assert_eq!(binary_of(&schedule, CalcUnit::default()), expected);
    assert!(read_binary(expected.as_slice(), CalcUnit::default()).unwrap() == schedule);
}

#[test]
fn indentation_comments_and_odd_line_ends_change_nothing() {
    let friendly = "// made by hand\r\nnum_ranks 2 // two\r\n\r\n/* over\r\n lines */ rank 0 {\r\n  \
        \tl1 : calc 7 cpu 1\r\n  l2: send 10 b to 1 tag 3 cpu 1 nic 2 /* the message */\r\n\
        l2 requires l1\n\tl2 irequires /* start only */ l1\n}\nrank 1 { // receives\n\
        l1: recv 10b from -1 tag -1\n  }";
    assert!(parse(friendly).unwrap() == parse(SMALL).unwrap());
    // Also byte by byte.
    let slow = BufReader::with_capacity(1, friendly.as_bytes());
    assert!(read_text(slow, CalcUnit::default()).unwrap() == parse(SMALL).unwrap());
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_text() {
    let marked = |text: &str| format!("\u{feff}{text}");
    assert!(parse(&marked(SMALL)).unwrap() == parse(SMALL).unwrap());
    for begin in ["\n", "// a comment\r\n", "  /* over\nlines */ "] {
        let text = marked(&format!("{begin}{SMALL}"));
        assert!(parse(&text).unwrap() == parse(SMALL).unwrap(), "{begin:?}");
        let slow = BufReader::with_capacity(1, text.as_bytes());
        assert!(read_text(slow, CalcUnit::default()).unwrap() == parse(SMALL).unwrap());
    }
    let told = |text: &str| parse(text).unwrap_err().to_string();
    assert_eq!(told(&marked("num_ranks 2 x")), told("num_ranks 2 x"));
    assert_eq!(told(&marked("")), "line 1, column 1: the file is empty (expected `num_ranks 4`)");
    // Only once, and only there.
    for text in
        [marked(&marked(SMALL)), format!("\n{}", marked(SMALL)), format!(" {}", marked(SMALL))]
    {
        assert!(told(&text).contains("expected the number of ranks (as in"));
    }
    assert!(parse(&SMALL.replace("}", "\u{feff}}")).is_err());
}

#[test]
fn labels_are_kept_and_made_up_where_there_are_none() {
    let text = "num_ranks 1\n\nrank 0 {\nstart: calc 1\ncalc 2\nl2: calc 3\nl2 requires start\n}\n";
    let schedule = parse(text).unwrap();
    assert_eq!([0, 1, 2].map(|op| schedule.label(op).into_owned()), ["start", "l2", "l2"]);
    let written = text_of(&schedule, CalcUnit::default());
    assert!(written.contains("l2_: calc 2\nl2: calc 3\nl2 requires start\n"), "{written}");
    assert!(parse(&written).unwrap() == schedule);
}

#[test]
fn successors_keep_the_order_of_their_declaration() {
    let text = "num_ranks 1\n\nrank 0 {\nl1: calc 1\nl2: calc 2\nl3: calc 3\n\
        l3 requires l1\nl2 requires l1\n}\n";
    let schedule = parse(text).unwrap();
    assert_eq!(schedule.successors(0), [2, 1]);
    assert_eq!(text_of(&schedule, CalcUnit::default()), text);
}

#[test]
fn times_are_in_the_unit_that_is_asked_for() {
    let text = "num_ranks 1\n\nrank 0 {\nl1: calc 5\n}\n";
    let unit = |ps| CalcUnit::from_ps(ps).unwrap();
    let schedule = read_text(text.as_bytes(), unit(10)).unwrap();
    assert_eq!(schedule.operation(0).action, Action::Calc { ps: 50 });
    assert_eq!(text_of(&schedule, unit(25)).lines().nth(3), Some("l1: calc 2"));
    let refused = write_text(&schedule, unit(1_000), Vec::new());
    assert!(matches!(refused, Err(WriteError::Unit { rank: 0, index: 0, ps: 50, .. })));
    assert_eq!((CalcUnit::from_ps(0), CalcUnit::from_ps(i64::MAX)), (None, None));
}

#[test]
fn mistakes_are_told_with_line_column_and_hint() {
    let told = |text: &str| parse(text).unwrap_err().to_string();
    let rank = |body: &str| told(&format!("num_ranks 2\nrank 0 {{\n{body}\n}}\nrank 1 {{\n}}\n"));
    for (body, expected) in [
        (
            "sned 1b to 0",
            "line 3, column 1: expected `send`, `recv` or `calc` (`l1: send 8b to 3 tag 1`, `l2: calc 100`, `l2 requires l1`)",
        ),
        (
            "l1: send 8 to 1",
            "line 3, column 12: expected `b`, found \"to 1\" (a size is a number followed by `b`, as in `8b`)",
        ),
        (
            "l1: send 8b to 7",
            "line 3, column 16: rank 0, operation 0 (l1): rank 7 does not exist (2 ranks, from 0)",
        ),
        (
            "calc 1\n  recv 8b from /* too far */ 2 tag 9",
            "line 4, column 30: rank 0, operation 1: rank 2 does not exist (2 ranks, from 0)",
        ),
        (
            "l1: send 8b to 99999999999",
            "line 3, column 16: rank 0, operation 0 (l1): rank 99999999999 does not exist (2 ranks, from 0)",
        ),
        ("l1: recv 8b from -2", "line 3, column 18: a rank must not be negative (-1 matches any)"),
        ("l1: calc 1 nic 2", "line 3, column 12: expected `cpu` or end of line"),
        (
            "l1: send 8b to 1 cpu 1 tag 2",
            "line 3, column 24: attributes must be unique and in the order tag, cpu, nic",
        ),
        ("l1: calc 1 cpu 256", "line 3, column 16: a cpu must be at most 255"),
        ("l1: calc", "line 3, column 9: expected a time, found end of line"),
        (
            "l1: calc 1\nl1: calc 2",
            "line 4, column 1: duplicate label l1 (labels must be unique within a rank)",
        ),
        (
            "l1: calc 1\nl1 requires l2",
            "line 4, column 13: undefined label l2 (define both operations before the dependency)",
        ),
        ("l1: calc 99999999999999999999", "line 3, column 10: a time is too large"),
        (
            "l1: calc 5.5",
            "line 3, column 10: expected a whole number, found \"5.5\" (a calc is a whole number of units; for finer times use --calc-unit 1ps)",
        ),
        (
            "l1: send 5.5b to 1",
            "line 3, column 10: expected a whole number, found \"5.5b\" (a size is a number followed by `b`, as in `8b`)",
        ),
        (
            "l1: recv 1e6b from 1",
            "line 3, column 10: expected a whole number, found \"1e6b\" (a size is a number followed by `b`, as in `8b`)",
        ),
        (
            "l1: send 8kB to 1",
            "line 3, column 11: expected `b`, found \"kB to 1\" (a size is a number followed by `b`, as in `8b`)",
        ),
        ("l1: send 8b to 1.5", "line 3, column 16: expected a whole number, found \"1.5\""),
        ("l1: recv 8b from -1.5", "line 3, column 18: expected a whole number, found \"-1.5\""),
        ("l1: send 8b to 1 tag 0x7", "line 3, column 22: expected a whole number, found \"0x7\""),
        ("l1: calc 1 cpu 1.5", "line 3, column 16: expected a whole number, found \"1.5\""),
        ("l1: calc -5", "line 3, column 10: a time must not be negative"),
        ("l1: send -8b to 1", "line 3, column 10: a number of bytes must not be negative"),
        ("l1: send 8b to -1", "line 3, column 16: a rank must not be negative"),
        ("l1: calc 1\nl1 requires l1.5", "line 4, column 15: expected end of line, found \".5\""),
        ("l1 recv 8b from 0", "line 3, column 3: expected `:` after the label l1 (`l1: recv ...`)"),
        (
            "l1: calc 1\nl1 recv 8b from 0",
            "line 4, column 3: expected `:` after the label l1 (`l1: recv ...`)",
        ),
        ("go send 8b to 1", "line 3, column 3: expected `:` after the label go (`go: send ...`)"),
        ("l1  calc 5", "line 3, column 3: expected `:` after the label l1 (`l1: calc ...`)"),
        ("l1: calc 1\nl1 reqires l1", "line 4, column 4: expected `requires` or `irequires`"),
    ] {
        assert_eq!(rank(body), expected);
    }
    assert_eq!(
        told("num_ranks 2\nrank 1 {\n}\n"),
        "line 2, column 6: rank 1 is out of order (expected rank 0)"
    );
    for (calc, found) in [("1e6", "1e6"), ("0x10 cpu 1", "0x10"), ("5ns", "5ns"), ("7.", "7.")] {
        let said = rank(&format!("calc {calc}"));
        assert!(
            said.contains(&format!("column 6: expected a whole number, found {found:?} (a calc"))
        );
    }
    for (ranks, said) in [
        ("0x2", "column 11: expected a whole number, found \"0x2\" (as in `num_ranks 4`)"),
        ("1e6", "column 11: expected a whole number, found \"1e6\" (as in `num_ranks 4`)"),
        ("2.0", "column 11: expected a whole number, found \"2.0\" (as in `num_ranks 4`)"),
        ("-2", "column 11: the number of ranks must not be negative"),
        ("two", "column 11: expected the number of ranks, found \"two\""),
        ("0", "column 1: a schedule needs at least one rank"),
        ("2\nrank 0x0 {", "line 2, column 6: expected a whole number, found \"0x0\""),
        ("2\nrank 1.5 {", "line 2, column 6: expected a whole number, found \"1.5\""),
    ] {
        let told = told(&format!("num_ranks {ranks}\n"));
        assert!(told.ends_with(said), "{told}");
    }
    assert_eq!(
        told("num_ranks 1\nrank 0 {\n"),
        "line 2, column 1: unexpected end of file in a rank (missing `}`)"
    );
    assert_eq!(
        told("num_ranks 2\nrank 0 {\n}\n"),
        "line 3, column 1: rank 1 is missing (2 ranks declared)"
    );
    assert_eq!(told(""), "line 1, column 1: the file is empty (expected `num_ranks 4`)");
    assert!(told(&"x".repeat(100_000)).contains("longer than 64 KiB"));
    assert!(
        told("num_ranks 1\nrank 0 {\n}\nl1: calc 1")
            .contains("nothing may follow the last of 1 ranks")
    );
}

#[test]
fn damaged_binaries_are_told_apart() {
    let whole = binary_of(&parse(SMALL).unwrap(), CalcUnit::default());
    let told = |bytes: &[u8]| read_binary(bytes, CalcUnit::default()).unwrap_err().to_string();
    assert!(told(b"num_ranks 1").contains("not a binary GOAL schedule"));
    assert!(told(&2342u64.to_le_bytes()).contains("--save-mem"));
    for length in 0..whole.len() {
        assert!(told(&whole[..length]).contains("unexpected end of file"), "{length}");
    }
    let mut wrong_kind = whole.clone();
    wrong_kind[46 + 12 + 4] = 9;
    assert!(told(&wrong_kind).contains("unknown kind 9"));
    let mut wrong_count = whole;
    wrong_count[46 + 12] = 5;
    assert!(told(&wrong_count).contains("5 dependencies declared but 0 listed"));
}

/// A schedule that was accepted must also be safe to run.
fn read_and_run(bytes: &[u8]) {
    if let Ok(schedule) = read(bytes, CalcUnit::default()) {
        let _ = run(
            &schedule,
            &Params::named("cnl").unwrap(),
            &Options::default(),
            &Noise::none().run(0, 0),
        );
        let text = text_of(&schedule, CalcUnit::default());
        assert!(parse(&text).unwrap() == schedule);
        assert!((0..schedule.operations() as u32).all(|op| schedule.kind(op) >= Kind::Send));
    }
}

proptest! {
    #[test]
    fn random_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_and_run(&bytes);
        let cookie = [&4223u64.to_le_bytes()[..], &bytes].concat();
        read_and_run(&cookie);
    }

    #[test]
    fn random_words_do_no_harm(
        words in prop::collection::vec(prop::sample::select(vec![
            "num_ranks", "rank", "0", "1", "2", "-1", "{\n", "}\n", "send", "recv", "calc", "8b", "to",
            "from", "tag", "cpu", "nic", "l1:", "l2:", "l1", "l2", "requires", "irequires", "\n", "//", "/*", "*/",
            "18446744073709551615",
        ]), 0..60),
    ) {
        read_and_run(words.join(" ").as_bytes());
        read_and_run(format!("num_ranks 2\nrank 0 {{\n{}", words.join(" ")).as_bytes());
    }

    #[test]
    fn mutated_schedules_do_no_harm(
        binary: bool, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..3), 1..6),
    ) {
        let mut bytes = if binary {
            binary_of(&parse(SMALL).unwrap(), CalcUnit::default())
        } else {
            SMALL.as_bytes().to_vec()
        };
        for (at, value, how) in changes {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = value,
                1 => bytes.insert(at, value),
                _ => drop(bytes.remove(at)),
            }
        }
        read_and_run(&bytes);
    }
}
