//! The index of each lane in the trailer. Built once: a program may have 100,000 threads, and a linear
//! search for each would take minutes.

use crate::manifest::Trailer;
use crate::model::LaneId;

/// Indices in the trailer's list, by lane.
pub(super) struct Totals(Vec<Option<u32>>);

impl Totals {
    pub(super) fn new(lanes: usize, trailer: Option<&Trailer>) -> Totals {
        let mut places = vec![None; lanes];
        for (at, totals) in (0..).zip(trailer.map_or(&[][..], |trailer| &trailer.lanes)) {
            if let Some(place) = places.get_mut(totals.lane as usize) {
                // If a lane occurs twice, the first one counts.
                place.get_or_insert(at);
            }
        }
        Totals(places)
    }

    pub(super) fn place(&self, lane: LaneId) -> Option<usize> {
        self.0.get(lane.0 as usize).copied().flatten().map(|at| at as usize)
    }
}
