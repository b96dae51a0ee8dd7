//! Traces of many lanes: each is found without searching all others.

#[path = "../../tests/cpu_time/mod.rs"]
mod cpu_time;

use std::io::Cursor;

use formats::export::{ExportFormat, export};
use trace::{
    Block, BlockInfo, Detour, Lane, LaneId, LaneTotals, Manifest, Reader, Trailer, Writer,
};

/// Threads with a detour each, in interleaved blocks.
fn threads(count: u32, turns: u64) -> Reader<Cursor<Vec<u8>>> {
    let thread = |tid| Lane::Thread { pid: 1, tid, name: "worker".to_owned() };
    let manifest = Manifest { lanes: (0..count).map(thread).collect(), ..Manifest::default() };
    let mut writer = Writer::new(Cursor::new(Vec::new()), &manifest).unwrap();
    for turn in 0..turns {
        for lane in 0..count {
            let start_ns = turn * 1000 + u64::from(lane);
            let detour =
                Detour { start_ns, len_ns: 5, outside_ns: 5, records: 0, ..Detour::default() };
            let block = Block { detours: vec![detour], ..Block::new(LaneId(lane)) };
            writer.write_block(&block).unwrap();
        }
    }
    // The last one first: indices in the trailer are not lanes.
    let totals = |lane| LaneTotals { lane, to_ns: 10_000, ..LaneTotals::default() };
    let lanes = (1..count).rev().map(totals).collect();
    Reader::new(writer.finish(Trailer { lanes, ..Trailer::default() }).unwrap()).unwrap()
}

#[test]
fn what_is_asked_of_a_lane_is_what_a_look_at_all_finds() {
    let reader = threads(5, 3);
    for lane in (0..6).map(LaneId) {
        let infos: Vec<BlockInfo> = reader.block_infos().filter(|i| i.lane == lane).collect();
        assert_eq!(reader.block_infos_of(lane).collect::<Vec<_>>(), infos);
        let blocks = reader.blocks().map(Result::unwrap).filter(|block| block.lane == lane);
        let own = reader.blocks_of(lane).map(Result::unwrap);
        assert_eq!(own.collect::<Vec<_>>(), blocks.collect::<Vec<_>>());
        let totals = reader.trailer().unwrap().lanes.iter().find(|t| t.lane == lane.0);
        assert_eq!(reader.totals(lane), totals);
        assert_eq!(totals.is_some(), (1..5).contains(&lane.0));
    }
}

#[test]
fn time_grows_with_the_number_of_lanes_not_with_its_square() {
    let (few, many) = (threads(2_000, 0), threads(32_000, 0));
    let to_json = |reader: &Reader<_>| {
        export(reader, ExportFormat::Json, None, std::io::sink()).unwrap();
    };
    let growth = cpu_time::growth(16, || to_json(&few), || to_json(&many));
    assert!(growth < 6.0, "{growth}");
}
