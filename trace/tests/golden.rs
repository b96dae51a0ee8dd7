//! Files of format version 1, kept permanently: every later version of the program reads them the same.
//! One is as the first writers wrote it, the other contains what was added to the version since: the
//! kinds of waits, repeated records, scheduling policies, and the run and wait times of threads.

use std::path::{Path, PathBuf};

use trace::{
    Block, Class, Detour, Lane, LaneId, LaneTotals, Lost, Manifest, Mode, Overwrite, Reader,
    Record, RecordFlags, Source, SourceId, Trailer, Wait, Writer,
};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

const FIRST: &str = "v1-small.detour";
const WAITS: &str = "v1-waits.detour";

fn manifest() -> Manifest {
    Manifest {
        detour_version: "0.1.0".to_owned(),
        host: "golden".to_owned(),
        kernel: "6.1.0".to_owned(),
        mode: Mode::Attributed,
        lanes: vec![Lane::Cpu { cpu: 1 }],
        ..Manifest::default()
    }
}

fn trailer() -> Trailer {
    let lost =
        Lost { records: 1, detours: 2, unmatched: 3, overflow: 4, unwritten: 5, ..Lost::default() };
    Trailer {
        lost,
        closure_error: Some(0.0625),
        closure_wall_ns: None,
        remarks: vec!["kept".to_owned()],
        ..Trailer::default()
    }
}

fn sources() -> Vec<Source> {
    let classes = Class::ALL[..10].iter().copied().cycle();
    let source = |(i, class): (u32, Class)| Source {
        class,
        name: format!("source {i}"),
        unit: (i % 2 == 0).then(|| format!("unit{i}.service")),
        detail: (i % 3 == 0).then(|| format!("detail {i}")),
        pids: (0..i % 4).collect(),
        program: false,
        own: i == 7,
        policy: None,
        cause: None,
    };
    (0..46_u32).zip(classes).map(source).collect()
}

fn thread() -> Lane {
    Lane::Thread { pid: 10, tid: 11, name: "solver".to_owned() }
}

/// Every column with ordinary and with extreme values. Written out, so that a change of a generator
/// cannot change it.
fn blocks() -> Vec<Block> {
    let record = |start_ns, gross_ns, net_ns, cost_ns, source, cpu, depth, flags| Record {
        start_ns,
        gross_ns,
        net_ns,
        cost_ns,
        source: SourceId(source),
        cpu,
        depth,
        flags: RecordFlags(flags),
    };
    let detour = |start_ns, len_ns, outside_ns, records| Detour {
        start_ns,
        len_ns,
        outside_ns,
        records,
        ..Detour::default()
    };
    vec![
        Block {
            lane: LaneId(0),
            detours: vec![
                detour(3_999_900, 4_310, 60, 2),
                detour(6_000_000, 700, 700, 0),
                detour(7_999_880, 1_700, 0, 1),
            ],
            records: vec![
                record(4_000_000, 1_500, 1_500, 1_650, 0, 1, 1, 1),
                record(4_001_700, 2_500, 2_500, 2_600, 1, 1, 1, 1),
                record(5_000_000, 300, 300, 300, 4, 1, 1, 0),
                record(8_000_000, 1_550, 1_550, 1_700, 0, 1, 1, 1),
            ],
        },
        Block {
            lane: LaneId(1),
            detours: vec![detour(u64::MAX, u64::MAX, 0, 2), detour(0, 0, u64::MAX, 0)],
            records: vec![
                record(u64::MAX, 0, u64::MAX, 1, 45, u16::MAX, u8::MAX, u8::MAX),
                record(0, u64::MAX, 0, u64::MAX, 6, 0, 0, 1),
                record(1 << 56, 1 << 55, 127, 128, 6, 300, 7, 30),
            ],
        },
    ]
}

#[test]
#[ignore = "writes the golden file; only for a new format version, under a new name"]
fn write_the_golden_file() {
    let mut writer = Writer::create(path(FIRST), Overwrite::No, &manifest()).unwrap();
    for (id, source) in (0..).zip(sources()) {
        writer.add_source(SourceId(id), &source).unwrap();
    }
    writer.add_lane(LaneId(1), &thread()).unwrap();
    blocks().iter().for_each(|block| writer.write_block(block).unwrap());
    writer.finish(trailer()).unwrap();
}

#[test]
fn the_version_1_file_reads_as_it_was_written() {
    let reader = Reader::open(path(FIRST)).unwrap();
    assert_eq!(reader.manifest(), &manifest());
    assert_eq!(reader.trailer(), Some(&trailer()));
    assert_eq!(reader.lanes(), [Lane::Cpu { cpu: 1 }, thread()]);
    assert_eq!(reader.sources(), sources());
    assert!(reader.blocks().map(Result::unwrap).eq(blocks()));
    assert_eq!(reader.truncated(), None);
    assert_eq!(reader.damaged_blocks(), []);
}

fn waits_manifest() -> Manifest {
    let lanes = vec![thread()];
    Manifest { mode: Mode::Program, lanes, ..manifest() }
}

fn waits_trailer() -> Trailer {
    let totals = LaneTotals {
        to_ns: 2_000,
        run_ns: Some(700),
        wait_ns: Some(1_200),
        ..LaneTotals::default()
    };
    Trailer { lanes: vec![totals], ..trailer() }
}

fn waits_sources() -> Vec<Source> {
    let source = |class, name: &str, policy: Option<&str>| Source {
        class,
        name: name.to_owned(),
        unit: None,
        detail: None,
        pids: Vec::new(),
        own: false,
        program: false,
        policy: policy.map(str::to_owned),
        cause: None,
    };
    vec![
        source(Class::Thread, "hog", Some("SCHED_FIFO 60")),
        source(Class::Throttled, "CPU quota", None),
    ]
}

fn waits_block() -> Block {
    let record = |start_ns, source, flags: RecordFlags| Record {
        start_ns,
        gross_ns: 100,
        net_ns: 100,
        cost_ns: 100,
        source: SourceId(source),
        cpu: 1,
        depth: 0,
        flags: flags.with(RecordFlags::IN_DETOUR),
    };
    let detour = |(i, wait): (u64, Wait)| Detour {
        start_ns: i * 200,
        len_ns: 100,
        records: 1,
        wait,
        ..Detour::default()
    };
    Block {
        lane: LaneId(0),
        detours: (0..).zip(Wait::ALL).map(detour).collect(),
        records: (0..6)
            .map(|i| match i {
                4 => record(i * 200, 1, RecordFlags::default()),
                _ => record(i * 200, 0, RecordFlags::REPEATED),
            })
            .collect(),
    }
}

#[test]
#[ignore = "writes the golden file; only for another addition, under a new name"]
fn write_the_golden_file_with_waits() {
    let mut writer = Writer::create(path(WAITS), Overwrite::No, &waits_manifest()).unwrap();
    for (id, source) in (0..).zip(waits_sources()) {
        writer.add_source(SourceId(id), &source).unwrap();
    }
    writer.write_block(&waits_block()).unwrap();
    writer.finish(waits_trailer()).unwrap();
}

#[test]
fn the_version_1_file_with_waits_reads_as_it_was_written() {
    let reader = Reader::open(path(WAITS)).unwrap();
    assert_eq!(reader.manifest(), &waits_manifest());
    assert_eq!(reader.trailer(), Some(&waits_trailer()));
    assert_eq!(reader.sources(), waits_sources());
    assert!(reader.blocks().map(Result::unwrap).eq([waits_block()]));
    assert_eq!(reader.truncated(), None);
    assert_eq!(reader.damaged_blocks(), []);
}
