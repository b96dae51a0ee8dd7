//! What is written is what is read, for any valid block and for a realistic recording.

#[allow(dead_code)]
mod common;

use std::fs;
use std::io::Cursor;
use std::path::Path;

use proptest::prelude::*;
use trace::{
    Block, Detour, Lane, LaneId, LaneTotals, Manifest, Overwrite, Reader, Record, RecordFlags,
    Source, SourceId, TraceError, Trailer, Wait, Writer,
};

/// Numbers of every size, including the extremes.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(u64::MAX),
        any::<u64>(),
        (0..64_u32, any::<u64>()).prop_map(|(shift, bits)| bits >> shift),
    ]
}

fn record(in_detour: bool) -> impl Strategy<Value = Record> {
    let small = (0..50_u32, any::<u16>(), any::<u8>(), any::<u8>());
    (number(), number(), number(), number(), small).prop_map(
        move |(start, gross, net, cost, small)| {
            let (source, cpu, depth, flags) = small;
            Record {
                start_ns: start,
                gross_ns: gross,
                net_ns: net,
                cost_ns: cost,
                source: SourceId(source),
                cpu,
                depth,
                flags: RecordFlags(flags & !1 | u8::from(in_detour)),
            }
        },
    )
}

/// A detour with its records, and records outside detours before it.
fn piece() -> impl Strategy<Value = (Vec<Record>, Vec<Record>, (u64, u64, u64, Wait))> {
    let between = prop::collection::vec(record(false), 0..3);
    let own = prop::collection::vec(record(true), 0..4);
    let wait = prop::sample::select(Wait::ALL.to_vec());
    (between, own, (number(), number(), number(), wait))
}

fn block() -> impl Strategy<Value = Block> {
    prop::collection::vec(piece(), 0..20).prop_map(|pieces| {
        let mut block = Block::new(LaneId(0));
        for (between, own, (start_ns, len_ns, outside_ns, wait)) in pieces {
            let records = own.len() as u32;
            block.records.extend(between.into_iter().chain(own));
            block.detours.push(Detour { start_ns, len_ns, outside_ns, records, wait });
        }
        block
    })
}

fn writer() -> Writer<Vec<u8>> {
    let mut writer = Writer::new(Vec::new(), &common::manifest(1)).unwrap();
    let source = &common::sources()[0];
    (0..50).for_each(|id| writer.add_source(SourceId(id), source).unwrap());
    writer
}

proptest! {
    #[test]
    fn any_valid_block_comes_back_exactly(blocks in prop::collection::vec(block(), 1..4)) {
        let mut writer = writer();
        for block in &blocks {
            writer.write_block(block).unwrap();
        }
        let bytes = writer.finish(common::trailer(1, 1)).unwrap();
        let reader = Reader::new(Cursor::new(bytes)).unwrap();
        let read: Vec<Block> = reader.blocks().map(Result::unwrap).collect();
        prop_assert_eq!(read, blocks);
        prop_assert_eq!(reader.damaged_blocks().len(), 0);
    }
}

#[test]
fn a_realistic_recording_takes_less_than_12_bytes_a_record() {
    let mut cpus: Vec<_> = (0..3).map(|lane| common::Cpu::new(lane, 11)).collect();
    let blocks: Vec<Block> = cpus.iter_mut().map(|cpu| cpu.block(30_000)).collect();
    let mut writer = Writer::new(Vec::new(), &common::manifest(3)).unwrap();
    for (id, source) in (0..).zip(common::sources()) {
        writer.add_source(SourceId(id), &source).unwrap();
    }
    blocks.iter().for_each(|block| writer.write_block(block).unwrap());
    let bytes = writer.finish(common::trailer(3, 1)).unwrap();
    let records: usize = blocks.iter().map(|block| block.records.len()).sum();
    assert!(bytes.len() < 12 * records, "{} bytes for {records} records", bytes.len());
    let reader = Reader::new(Cursor::new(bytes)).unwrap();
    assert!(reader.blocks().map(Result::unwrap).eq(blocks));
}

#[test]
fn later_rows_replace_earlier_ones_and_lanes_can_appear_while_recording() {
    let mut writer = Writer::new(Vec::new(), &common::manifest(1)).unwrap();
    let first = common::sources()[0].clone();
    let better = Source { detail: Some("known by now".to_owned()), ..first.clone() };
    writer.add_source(SourceId(0), &first).unwrap();
    writer.write_block(&common::Cpu::new(0, 1).block(0)).unwrap();
    writer.add_source(SourceId(0), &better).unwrap();
    let thread = Lane::Thread { pid: 7, tid: 8, name: "worker".to_owned() };
    writer.add_lane(LaneId(1), &thread).unwrap();
    writer.write_block(&Block::new(LaneId(1))).unwrap();
    let reader = Reader::new(Cursor::new(writer.finish(common::trailer(1, 1)).unwrap())).unwrap();
    assert_eq!(reader.sources(), [better]);
    assert_eq!(reader.lanes(), [Lane::Cpu { cpu: 0 }, thread]);
}

#[test]
fn what_a_reader_would_refuse_is_not_written() {
    let mut writer = writer();
    let before = common::Cpu::new(0, 1).block(10);
    writer.write_block(&before).unwrap();

    let mut miscounted = before.clone();
    miscounted.detours[0].records += 1;
    assert!(matches!(writer.write_block(&miscounted), Err(TraceError::InconsistentBlock { .. })));
    let mut strange = before.clone();
    strange.records[0].source = SourceId(50);
    assert!(matches!(writer.write_block(&strange), Err(TraceError::UnknownSource { id: 50 })));
    let elsewhere = Block::new(LaneId(1));
    assert!(matches!(writer.write_block(&elsewhere), Err(TraceError::UnknownLane { id: 1 })));
    let detour = Detour { start_ns: 0, len_ns: 1, outside_ns: 1, records: 0, ..Detour::default() };
    let huge = Block { detours: vec![detour; 1 << 19], ..Block::new(LaneId(0)) };
    assert!(matches!(writer.write_block(&huge), Err(TraceError::BlockTooLarge { .. })));

    let reader = Reader::new(Cursor::new(writer.finish(common::trailer(1, 1)).unwrap())).unwrap();
    assert!(reader.blocks().map(Result::unwrap).eq([before]));
}

#[test]
fn a_file_is_not_written_through_a_link_nor_over_one_that_must_stay() {
    let dir = std::env::temp_dir().join(format!("detour-trace-test-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let file = dir.join("a.detour");
    let create = |path: &Path, overwrite| Writer::create(path, overwrite, &common::manifest(1));
    create(&file, Overwrite::No).unwrap().finish(common::trailer(1, 1)).unwrap();
    assert!(matches!(create(&file, Overwrite::No), Err(TraceError::Exists { .. })));
    create(&file, Overwrite::Yes).unwrap().finish(common::trailer(1, 2)).unwrap();
    assert_eq!(Reader::open(&file).unwrap().trailer(), Some(&common::trailer(1, 2)));
    assert!(matches!(trace::create(&file), Err(TraceError::IsRecording { .. })));
    assert!(matches!(trace::append(&file), Err(TraceError::IsRecording { .. })));
    assert_eq!(Reader::open(&file).unwrap().trailer(), Some(&common::trailer(1, 2)));
    {
        let first = create(&file, Overwrite::Yes).unwrap();
        assert!(matches!(create(&file, Overwrite::Yes), Err(TraceError::Busy { .. })));
        first.finish(common::trailer(1, 3)).unwrap();
        assert_eq!(Reader::open(&file).unwrap().trailer(), Some(&common::trailer(1, 3)));
        let link = dir.join("link.detour");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let error = create(&link, Overwrite::Yes).err().unwrap();
        assert!(error.to_string().contains("symbolic link"), "{error}");
    }
    assert!(matches!(create(&dir, Overwrite::Yes), Err(TraceError::NotAFile { .. })));
    let error = Reader::open(&dir).err().unwrap();
    assert!(error.to_string().contains("a directory"), "{error}");
    let nowhere = dir.join("absent").join("a.detour");
    assert!(create(&nowhere, Overwrite::Yes).err().unwrap().to_string().contains("absent"));
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_lost_waits_column_costs_its_block_and_nothing_else() {
    let mut writer = writer();
    let block = |start_ns| Block {
        detours: vec![
            Detour {
                start_ns,
                len_ns: 9,
                outside_ns: 9,
                wait: Wait::New,
                ..Detour::default()
            };
            40
        ],
        ..Block::new(LaneId(0))
    };
    writer.write_block(&block(10)).unwrap();
    let end = writer.bytes_written() as usize;
    writer.write_block(&block(1_000)).unwrap();
    let mut bytes = writer.finish(common::trailer(1, 1)).unwrap();
    // The column is the last part of its frame.
    bytes[end - 1] ^= 1;
    let reader = Reader::new(Cursor::new(bytes)).unwrap();
    assert!(reader.blocks().map(Result::unwrap).eq([block(1_000)]));
    assert_eq!(reader.damaged_blocks().len(), 1);
}

#[test]
fn a_million_lanes_have_their_totals() {
    let lane = |id| Lane::Thread { pid: 1, tid: id, name: "t".to_owned() };
    let totals = |lane| LaneTotals {
        lane,
        from_ns: 1_000_000_000_000 + u64::from(lane),
        to_ns: 2_000_000_000_000,
        ..LaneTotals::default()
    };
    let mut writer = Writer::new(Vec::new(), &Manifest::default()).unwrap();
    let lanes = 1 << 20;
    for id in 0..lanes {
        writer.add_lane(LaneId(id), &lane(id)).unwrap();
    }
    let remarks = vec!["kept".to_owned()];
    let trailer =
        Trailer { lanes: (0..lanes).map(totals).collect(), remarks, ..Trailer::default() };
    let file = writer.finish(trailer.clone()).unwrap();
    let reader = Reader::new(Cursor::new(file)).unwrap();
    assert_eq!(reader.truncated(), None);
    assert_eq!(reader.lanes().len(), lanes as usize);
    assert!(reader.damaged_blocks().is_empty());
    assert!(reader.trailer() == Some(&trailer));
}
