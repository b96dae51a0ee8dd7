//! Malicious files: names that are markup, terminal escape sequences or formulas, and false sizes.
//! They are shown as text, rejected, or read in bounded memory; nothing is written except what was
//! requested.

mod command;
mod made;

use std::{fs, path::PathBuf};

use command::{detour, stdout};
use trace::{
    Block, Class, Detour, Lane, LaneId, LaneTotals, Manifest, MissingHook, Overwrite, Record,
    RecordFlags, Source, SourceId, Trailer, Writer,
};

/// Markup, a formula, a window title, colours (also in eight bits), right-to-left text, quotes of
/// every language that is written here, and line breaks.
const NAME: &str = "=1+1<script>alert(1)</script><img src=x onerror=alert(2)>\
                    \u{1b}]0;owned\u{7}\u{1b}[31m\u{9b}31m\u{202e}\"}'],;\r\n# EOF\n{{7*7}}";
/// No command needs more for any of these files.
const MOST_KIB: i64 = 1 << 20;

fn scratch(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("hostile");
    fs::create_dir_all(&directory).expect("a directory");
    directory.join(name)
}

/// A recording in which everything that has a name has this one.
fn hostile(name: &str) -> String {
    let text = || NAME.to_owned();
    let manifest = Manifest {
        detour_version: text(),
        host: text(),
        kernel: text(),
        arch: text(),
        cpu_model: text(),
        job_id: Some(text()),
        command_line: vec![text(), text()],
        clocksource: text(),
        lanes: vec![Lane::Cpu { cpu: 0 }, Lane::Thread { pid: 1, tid: 1, name: text() }],
        hooks_attached: vec![text()],
        hooks_missing: vec![MissingHook { hook: text(), lost: text(), why: text() }],
        limits: vec![text()],
        ..Manifest::default()
    };
    let path = scratch(name);
    let mut writer = Writer::create(&path, Overwrite::Yes, &manifest).expect("created");
    let source = Source {
        class: Class::Thread,
        name: text(),
        unit: Some(text()),
        detail: Some(text()),
        pids: vec![1],
        own: false,
        program: false,
        policy: None,
        cause: None,
    };
    writer.add_source(SourceId(0), &source).expect("added");
    for lane in 0..2 {
        let mut block = Block::new(LaneId(lane));
        for i in 0..200u64 {
            let (start_ns, len_ns) = (1_000_000 + i * 5_000_000, 20_000);
            made::strike(&mut block, SourceId(0), 0, (start_ns, len_ns));
        }
        writer.write_block(&block).expect("written");
    }
    let to_ns = 1_010_000_000;
    let lane = |lane| LaneTotals { lane, from_ns: 0, to_ns, ..LaneTotals::default() };
    let lanes = vec![lane(0), lane(1)];
    let trailer = Trailer { lanes, remarks: vec![text()], ..Trailer::default() };
    writer.finish(trailer).expect("finished");
    path.display().to_string()
}

/// What a command prints to stdout and stderr.
fn said(arguments: &[&str]) -> String {
    let output = detour(arguments).output().expect("it runs");
    let text = [output.stdout, output.stderr].map(|out| String::from_utf8_lossy(&out).into_owned());
    assert!(output.status.success(), "{arguments:?}: {}", text[1]);
    text.concat()
}

/// Nothing in it moves the cursor, changes colours, or reverses the text.
fn harmless(what: &str, text: &str) {
    let bad = |c: &char| (c.is_control() && !"\n\t".contains(*c)) || *c == '\u{202e}';
    assert_eq!(text.chars().find(bad), None, "{what}");
    assert!(!text.is_empty(), "{what} prints nothing");
}

#[test]
fn names_reach_the_terminal_as_text() {
    let trace = hostile("terminal.detour");
    let commands: [&[&str]; 9] = [
        &["report", &trace],
        &["report", "--all", &trace],
        &["report", "--json", &trace],
        &["diff", &trace, &trace, "--runs", "2", "--ranks", "4"],
        &["diff", &trace, &trace, "--runs", "2", "--ranks", "4", "--json"],
        &["whatif", &trace, "--ranks", "4", "--runs", "4"],
        &["whatif", &trace, "--ranks", "4", "--runs", "4", "--json"],
        &["simulate", "collective", "-q", "--noise", &trace, "--ranks", "4", "--blame"],
        &["export", &trace, "--to", "openmetrics"],
    ];
    for command in commands {
        harmless(&command.join(" "), &said(command));
    }
}

#[test]
fn names_are_no_markup_in_pages_and_pictures() {
    let trace = hostile("markup.detour");
    let page = scratch("markup.html");
    let page_name = page.display().to_string();
    said(&["report", "-q", &trace, "--ranks", "2..16", "--runs", "4", "--html", &page_name]);
    let html = fs::read_to_string(&page).expect("a page");
    assert_eq!(html.matches("<script").count(), 1, "the page's own");
    assert!(!html.contains("<img") && html.contains("alert(1)"));
    said(&["diff", "-q", &trace, &trace, "--runs", "2", "--ranks", "4", "--html", &page_name]);
    let html = fs::read_to_string(&page).expect("a page");
    assert!(!html.contains("<script>alert") && !html.contains("<img") && html.contains("alert(1)"));
    assert!(html.contains("Content-Security-Policy\" content=\"default-src 'none';"));
    let schedule = scratch("job.goal").display().to_string();
    said(&["goal", "gen", "--op", "allreduce", "--ranks", "4", "-o", &schedule]);
    for ending in ["svg", "json"] {
        let picture = scratch(&format!("run.{ending}"));
        let name = picture.display().to_string();
        said(&["simulate", "goal", "-q", &schedule, "--noise", &trace, "--timeline", &name]);
        let text = fs::read_to_string(&picture).expect("a picture");
        harmless(ending, &text);
        if ending == "svg" {
            assert!(!text.contains("<script") && !text.contains("<img"));
        } else {
            serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
        }
    }
}

#[test]
fn names_end_no_cell_line_or_label_in_exports() {
    let trace = hostile("exports.detour");
    for format in ["netgauge", "loggopsim", "csv", "records-csv", "json", "hlog", "hgrm"] {
        let text = stdout(&["export", &trace, "--to", format]);
        let bad = |c: &char| c.is_control() && !"\n\t".contains(*c);
        assert_eq!(text.chars().find(bad), None, "{format}");
        if format.ends_with("csv") {
            let rows = text.lines().count();
            assert_eq!(rows, 401, "{format}: wrong number of rows");
            assert!(!text.lines().any(|l| l.starts_with('=') || l.contains(",=")), "a formula");
        }
        if format == "json" {
            serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
        }
    }
    let metrics = stdout(&["export", &trace, "--to", "openmetrics"]);
    assert_eq!(metrics.matches("# EOF").count() - metrics.matches("\\n# EOF").count(), 1);
    for format in ["perfetto", "parquet"] {
        let file = scratch(format).display().to_string();
        said(&["export", &trace, "--to", format, "-o", &file]);
        assert!(fs::metadata(&file).expect("a file").len() > 100);
    }
}

#[test]
fn what_files_say_is_quoted_harmlessly_in_errors() {
    let file = scratch("noise.json");
    for content in [
        format!("[[1,2],[{}", serde_json::json!(NAME)),
        format!("start_ns,length_ns\n1,{NAME}\n"),
        format!("# selfish\n{NAME}\n"),
    ] {
        fs::write(&file, content).expect("written");
        let output = detour(&["import"]).arg(&file).output().expect("it runs");
        assert_eq!(output.status.code(), Some(1));
        harmless("the error", &String::from_utf8_lossy(&output.stderr));
    }
    let table = scratch("advice.toml");
    fs::write(&table, format!("[[advice]]\nclass = {}\n", serde_json::json!(NAME)))
        .expect("written");
    let trace = hostile("advice.detour");
    let mut command = detour(&["whatif", &trace, "--ranks", "4", "--runs", "4", "--advice"]);
    let output = command.arg(&table).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    harmless("the error", &String::from_utf8_lossy(&output.stderr));
}

/// A frame with correct checksums, as written by an attacker who knows the format.
struct Frame<'a> {
    kind: u8,
    lane: u32,
    detours: u32,
    records: u32,
    announced: u32,
    payload: &'a [u8],
}

fn file_of(frames: &[Frame]) -> Vec<u8> {
    let sealed = |mut bytes: Vec<u8>| {
        let sum = crc32fast::hash(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    };
    let mut file = sealed([&b"\x89DETOUR\n"[..], &1u32.to_le_bytes()].concat());
    for frame in frames {
        let mut head = b"DTB".to_vec();
        head.push(frame.kind);
        head.extend(frame.announced.to_le_bytes());
        head.extend((frame.payload.len() as u32).to_le_bytes());
        head.extend(frame.lane.to_le_bytes());
        head.extend([0; 16]);
        head.extend(frame.detours.to_le_bytes());
        head.extend(frame.records.to_le_bytes());
        head.extend(crc32fast::hash(frame.payload).to_le_bytes());
        file.extend(sealed(head));
        file.extend(frame.payload);
    }
    file
}

const MANIFEST: u8 = 1;
const SOURCES: u8 = 2;
const EVENTS: u8 = 4;

fn packed(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 19).expect("compressed")
}

/// Peak memory of all commands so far.
fn most_kib() -> i64 {
    // SAFETY: all zeros is a valid value of this type, and the pointer refers to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    usage.ru_maxrss
}

#[test]
fn sizes_that_are_only_claimed_take_no_memory() {
    let manifest = packed(b"{}");
    let first =
        Frame { kind: MANIFEST, lane: 0, detours: 0, records: 0, announced: 2, payload: &manifest };
    // Sixteen gigabytes of zeros in a few hundred kilobytes.
    let nothing = packed(&vec![0; 16 << 20]);
    let bomb = |kind, announced| Frame {
        kind,
        lane: 0,
        detours: 0,
        records: 0,
        announced,
        payload: &nothing,
    };
    let mut bombs: Vec<Frame> = (0..1024).map(|_| bomb(EVENTS, 16 << 20)).collect();
    bombs.insert(0, Frame { payload: &manifest, ..first });
    let long = "x".repeat(15 << 20);
    let row = |id: u32| {
        let source = serde_json::json!([[id, { "class": "thread", "name": long, "pids": [] }]]);
        source.to_string()
    };
    let rows: Vec<(u32, Vec<u8>)> =
        (0..30).map(row).map(|row| (row.len() as u32, packed(row.as_bytes()))).collect();
    let name = |(announced, payload)| Frame { payload, ..bomb(SOURCES, announced) };
    let mut names: Vec<Frame> =
        rows.iter().map(|(raw, row)| name((*raw, row.as_slice()))).collect();
    names.insert(0, Frame { payload: &manifest, ..first });
    let few = packed(&[0; 64]);
    let claims = |detours, records, lane| {
        vec![
            Frame { payload: &manifest, ..first },
            Frame { kind: EVENTS, lane, detours, records, announced: 64, payload: &few },
        ]
    };
    let mut beyond = file_of(&claims(1, 1, 0));
    // A footer that announces four billion index frames.
    let footer = [&b"DETOUR\x89\n"[..], &16u64.to_le_bytes(), &u32::MAX.to_le_bytes()].concat();
    beyond.extend(&footer);
    beyond.extend(crc32fast::hash(&footer).to_le_bytes());
    let files = [
        ("a bomb", file_of(&bombs)),
        ("long names", file_of(&names)),
        ("claimed events", file_of(&claims(u32::MAX, u32::MAX, 0))),
        ("claimed events within limits", file_of(&claims(1 << 17, 1 << 17, 0))),
        ("a lane far out", file_of(&claims(0, 0, u32::MAX))),
        ("a lane somewhat out", file_of(&claims(0, 0, 60_000))),
        ("an endless index", beyond),
    ];
    for (what, bytes) in files {
        let path = scratch("claims.detour");
        fs::write(&path, &bytes).expect("written");
        reported_in_bounds(what, &path);
    }
}

/// All names differ, as many as the format allows.
#[test]
fn a_million_sources_take_bounded_memory() {
    const SOURCES: u32 = 1 << 20;
    let path = scratch("sources.detour");
    let lanes = vec![Lane::Cpu { cpu: 0 }];
    let manifest = Manifest { lanes, ..Manifest::default() };
    let mut writer = Writer::create(&path, Overwrite::Yes, &manifest).expect("created");
    let mut block = Block::new(LaneId(0));
    for id in 0..SOURCES {
        let source = Source {
            class: Class::Thread,
            name: format!("s{id}"),
            unit: None,
            detail: None,
            pids: Vec::new(),
            own: false,
            program: false,
            policy: None,
            cause: None,
        };
        writer.add_source(SourceId(id), &source).expect("added");
        let start_ns = u64::from(id) * 1_000;
        block.detours.push(Detour {
            start_ns,
            len_ns: 200,
            outside_ns: 0,
            records: 1,
            ..Detour::default()
        });
        block.records.push(Record {
            start_ns,
            gross_ns: 200,
            net_ns: 200,
            cost_ns: 200,
            source: SourceId(id),
            cpu: 0,
            depth: 0,
            flags: RecordFlags::IN_DETOUR,
        });
        if block.detours.len() == trace::BLOCK_EVENTS {
            writer.write_block(&block).expect("written");
            block = Block::new(LaneId(0));
        }
    }
    writer.finish(Trailer::default()).expect("finished");
    reported_in_bounds("a million sources", &path);
}

/// Reports of every kind terminate, print something sensible, and stay within the memory limit.
fn reported_in_bounds(what: &str, path: &std::path::Path) {
    let page = scratch("claims.html");
    for more in [vec![], vec!["--json"], vec!["--no-projection", "--html"]] {
        let mut command = detour(&["report", "-q"]);
        command.arg(path).args(&more);
        if more.contains(&"--html") {
            command.arg(&page);
        }
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{what}: {said}");
        assert!(!said.contains("panicked"), "{what}: {said}");
        assert!(most_kib() < MOST_KIB, "{what} {more:?}: {} KiB", most_kib());
    }
}

#[test]
fn an_import_that_unpacks_to_gigabytes_is_refused() {
    let path = scratch("bomb.xz");
    // Concatenated streams are one file, four gigabytes in total.
    let zeros = include_bytes!("data/16-MiB-of-zeros.xz");
    fs::write(&path, zeros.repeat(256)).expect("written");
    let output = detour(&["import"]).arg(&path).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("larger than"));
    assert!(most_kib() < MOST_KIB, "{} KiB", most_kib());
}
