//! Rates over blocks of time, when the watched time of some lanes is unknown.

use analysis::{By, Contents, Part, RateCounter, Rates};
use trace::{Block, BlockInfo, Detour, Lane, LaneId, LaneTotals, Lost, Manifest, Node, Trailer};

const SECOND: u64 = 1_000_000_000;

/// Lanes of ten seconds that lose a millisecond of every ten; the trailer knows the first `known`.
fn rates(known: u32, nodes: Vec<Node>) -> Rates {
    let lanes: Vec<Lane> = (0..2).map(|cpu| Lane::Cpu { cpu }).collect();
    let manifest = Manifest { lanes: lanes.clone(), nodes, ..Manifest::default() };
    let totals = |lane| LaneTotals { lane, to_ns: 10 * SECOND, ..LaneTotals::default() };
    let trailer = Trailer { lanes: (0..known).map(totals).collect(), ..Trailer::default() };
    let contents = Contents {
        manifest: &manifest,
        sources: &[],
        lanes: &lanes,
        trailer: Some(&trailer),
        cut_off: &[],
        truncated: None,
    };
    let detour = |i| Detour {
        start_ns: i * SECOND / 100,
        len_ns: SECOND / 1000,
        outside_ns: SECOND / 1000,
        records: 0,
        ..Detour::default()
    };
    let block =
        |lane| Block { detours: (0..1000).map(detour).collect(), ..Block::new(LaneId(lane)) };
    let info = |lane| BlockInfo {
        lane: LaneId(lane),
        first_ns: 0,
        last_ns: 9_991_000_000,
        detours: 1000,
        records: 0,
        bytes: 0,
    };
    let mut counter = RateCounter::new(&contents, (0..2).map(info), &Part::default(), By::Process);
    (0..2).for_each(|lane| counter.add(&block(lane), &[]));
    counter.finish(&contents)
}

#[test]
fn a_lane_that_does_not_say_how_long_it_was_watched_was_so_while_it_had_events() {
    let whole = rates(2, vec![]);
    assert_eq!((whole.watched_s, whole.duration_s, whole.truncated), (20.0, 10.0, false));
    // The probe of the second lane failed.
    let broken = rates(1, vec![]);
    assert_eq!((broken.watched_s, broken.duration_s, broken.truncated), (19.991, 10.0, true));
    let none = rates(0, vec![]);
    assert!((none.watched_s - 19.982).abs() < 1e-9 && none.truncated, "{}", none.watched_s);
}

#[test]
fn a_node_that_was_cut_off_is_said() {
    let node = |first_lane, lost| Node { first_lane, lanes: 1, lost, ..Node::default() };
    let lost = Some(Lost::default());
    assert!(!rates(2, vec![node(0, lost), node(1, lost)]).truncated);
    assert!(rates(2, vec![node(0, lost), node(1, None)]).truncated);
}
