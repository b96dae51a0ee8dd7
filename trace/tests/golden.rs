//! A file of format version 1, kept for good: every later version of the program reads it the same.

use std::path::{Path, PathBuf};

use trace::{
    Block, Class, Detour, Lane, LaneId, Lost, Manifest, Mode, Overwrite, Reader, Record,
    RecordFlags, Source, SourceId, Trailer, Writer,
};

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/v1-small.detour")
}

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
        Lost { records: 1, detours: 2, unmatched: 3, overflow: 4, unwritten: 5, records_ns: 0 };
    Trailer {
        lost,
        closure_error: Some(0.0625),
        remarks: vec!["kept".to_owned()],
        ..Trailer::default()
    }
}

fn sources() -> Vec<Source> {
    let classes = Class::ALL.into_iter().cycle();
    let source = |(i, class): (u32, Class)| Source {
        class,
        name: format!("source {i}"),
        unit: (i % 2 == 0).then(|| format!("unit{i}.service")),
        detail: (i % 3 == 0).then(|| format!("detail {i}")),
        pids: (0..i % 4).collect(),
        own: i == 7,
    };
    (0..46_u32).zip(classes).map(source).collect()
}

fn thread() -> Lane {
    Lane::Thread { pid: 10, tid: 11, name: "solver".to_owned() }
}

/// Every column with ordinary and with extreme values. Written out, so that no generator that
/// changes can change it.
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
    let detour =
        |start_ns, len_ns, outside_ns, records| Detour { start_ns, len_ns, outside_ns, records };
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
    let mut writer = Writer::create(path(), Overwrite::No, &manifest()).unwrap();
    for (id, source) in (0..).zip(sources()) {
        writer.add_source(SourceId(id), &source).unwrap();
    }
    writer.add_lane(LaneId(1), &thread()).unwrap();
    blocks().iter().for_each(|block| writer.write_block(block).unwrap());
    writer.finish(trailer()).unwrap();
}

#[test]
fn the_version_1_file_reads_as_it_was_written() {
    let reader = Reader::open(path()).unwrap();
    assert_eq!(reader.manifest(), &manifest());
    assert_eq!(reader.trailer(), Some(&trailer()));
    assert_eq!(reader.lanes(), [Lane::Cpu { cpu: 1 }, thread()]);
    assert_eq!(reader.sources(), sources());
    assert!(reader.blocks().map(Result::unwrap).eq(blocks()));
    assert_eq!(reader.truncated(), None);
    assert_eq!(reader.damaged_blocks(), []);
}
