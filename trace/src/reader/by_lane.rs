//! Where in a trace a lane is. Built once: a program may have 100,000 threads, and to look for each
//! among all would take minutes.

use crate::format::v1::IndexEntry;
use crate::manifest::Trailer;
use crate::model::LaneId;

/// Places in the list of events frames and in the trailer's, by lane.
pub(super) struct ByLane {
    blocks: Vec<Vec<u32>>,
    totals: Vec<Option<u32>>,
}

impl ByLane {
    pub(super) fn new(lanes: usize, events: &[IndexEntry], trailer: Option<&Trailer>) -> ByLane {
        let mut by_lane = ByLane { blocks: vec![Vec::new(); lanes], totals: vec![None; lanes] };
        for (at, entry) in (0..).zip(events) {
            if let Some(blocks) = by_lane.blocks.get_mut(entry.lane().0 as usize) {
                blocks.push(at);
            }
        }
        for (at, totals) in (0..).zip(trailer.map_or(&[][..], |trailer| &trailer.lanes)) {
            if let Some(place) = by_lane.totals.get_mut(totals.lane as usize) {
                // The first counts, should a lane be there twice.
                place.get_or_insert(at);
            }
        }
        by_lane
    }

    pub(super) fn blocks(&self, lane: LaneId) -> &[u32] {
        self.blocks.get(lane.0 as usize).map_or(&[], Vec::as_slice)
    }

    pub(super) fn totals(&self, lane: LaneId) -> Option<usize> {
        self.totals.get(lane.0 as usize).copied().flatten().map(|at| at as usize)
    }
}
