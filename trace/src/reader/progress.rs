//! How far a recording without a trailer came, from the progress it noted.

use std::collections::HashMap;

use crate::format::v1::{ALL_LANES, IndexEntry, MAX_ROWS};
use crate::manifest::LaneTotals;
use crate::model::Lane;

/// The content of the progress frames.
#[derive(Default)]
pub(super) struct Progress {
    /// Everything that ended before this time is in the file.
    settled_ns: Option<u64>,
    watched_from: HashMap<u32, u64>,
}

impl Progress {
    /// Adds a progress frame.
    pub(super) fn add(&mut self, entry: &IndexEntry) {
        if entry.summary.lane == ALL_LANES {
            self.settled_ns = self.settled_ns.max(Some(entry.summary.last_ns));
        } else if entry.summary.lane < MAX_ROWS {
            self.watched_from.insert(entry.summary.lane, entry.summary.first_ns);
        }
    }

    /// The window of each CPU. Not for threads, which may have ended long before, and not for recordings
    /// without progress frames.
    /// `last_ns_of` has the time of the last event of some lanes.
    pub(super) fn windows(
        &self,
        lanes: &[Lane],
        last_ns_of: impl Iterator<Item = (u32, u64)>,
    ) -> Vec<LaneTotals> {
        let Some(settled_ns) = self.settled_ns else { return Vec::new() };
        let mut last_ns = vec![0; lanes.len()];
        for (lane, ns) in last_ns_of {
            if let Some(last) = last_ns.get_mut(lane as usize) {
                *last = ns;
            }
        }
        let cpus = (0..).zip(lanes).zip(last_ns);
        let cpus = cpus.filter(|((_, lane), _)| matches!(lane, Lane::Cpu { .. }));
        cpus.map(|((lane, _), last_ns)| LaneTotals {
            lane,
            from_ns: self.watched_from.get(&lane).copied().unwrap_or(0),
            to_ns: settled_ns.max(last_ns),
            ..LaneTotals::default()
        })
        .collect()
    }
}
