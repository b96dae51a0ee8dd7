//! How long the lanes of a recording that was cut off were watched.

#[allow(dead_code)]
mod common;

use std::io::Cursor;

use trace::{Block, Detour, Lane, LaneId, Manifest, Reader, Trailer, Writer};

const SECOND: u64 = 1_000_000_000;

fn block(lane: u32, start_ns: u64) -> Block {
    let detour = Detour { start_ns, len_ns: 500, outside_ns: 500, ..Detour::default() };
    Block { detours: vec![detour], ..Block::new(LaneId(lane)) }
}

/// One busy lane, one with a single detour, one without any; cut off after the tenth second.
fn written(trailer: Option<Trailer>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &common::manifest(3)).unwrap();
    for lane in 0..3 {
        writer.watched_from(LaneId(lane), 1_000 + u64::from(lane)).unwrap();
    }
    writer.write_block(&block(1, SECOND / 2)).unwrap();
    for second in 1..=10 {
        writer.write_block(&block(0, second * SECOND - 100)).unwrap();
        writer.settled(second * SECOND).unwrap();
    }
    match trailer {
        Some(trailer) => drop(writer.finish(trailer).unwrap()),
        None => drop(writer),
    }
    bytes
}

#[test]
fn a_lane_lasted_until_the_last_moment_that_is_known_of_however_quiet_it_was() {
    let reader = Reader::new(Cursor::new(written(None))).unwrap();
    assert!(reader.truncated().is_some() && reader.trailer().is_none());
    let window = |lane| reader.totals(LaneId(lane)).map(|totals| (totals.from_ns, totals.to_ns));
    // The last detour of the first lane ends after what is known of all.
    assert_eq!(window(0), Some((1_000, 10 * SECOND + 400)));
    assert_eq!(window(1), Some((1_001, 10 * SECOND)));
    assert_eq!(window(2), Some((1_002, 10 * SECOND)));
}

#[test]
fn where_there_is_a_trailer_it_counts() {
    let trailer = common::trailer(3, 11 * SECOND);
    let reader = Reader::new(Cursor::new(written(Some(trailer.clone())))).unwrap();
    assert_eq!(reader.truncated(), None);
    assert_eq!(reader.totals(LaneId(1)), trailer.lanes.iter().find(|totals| totals.lane == 1));
}

#[test]
fn threads_and_recordings_that_noted_nothing_have_no_window() {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &common::manifest(1)).unwrap();
    writer.write_block(&block(0, 7)).unwrap();
    drop(writer);
    assert_eq!(Reader::new(Cursor::new(bytes)).unwrap().totals(LaneId(0)), None);

    let lanes = vec![Lane::Thread { pid: 1, tid: 1, name: "t".to_owned() }];
    let manifest = Manifest { lanes, ..common::manifest(0) };
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &manifest).unwrap();
    writer.write_block(&block(0, 7)).unwrap();
    writer.settled(SECOND).unwrap();
    drop(writer);
    let reader = Reader::new(Cursor::new(bytes)).unwrap();
    assert!(reader.truncated().is_some());
    assert_eq!(reader.totals(LaneId(0)), None);
}
