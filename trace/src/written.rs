//! How far a trace has been written, and what its trailer may contain after a failed write: nothing
//! about a time whose events are not in the file.

use std::collections::HashMap;

use crate::manifest::Trailer;
use crate::model::LaneId;

/// How far each lane has been written.
#[derive(Default)]
pub(crate) struct Written {
    /// End of a lane's last block.
    blocks_ns: HashMap<LaneId, u64>,
    /// Everything that ended before this time is in the file.
    settled_ns: u64,
}

impl Written {
    pub(crate) fn block(&mut self, lane: LaneId, last_ns: u64) {
        let end = self.blocks_ns.entry(lane).or_default();
        *end = last_ns.max(*end);
    }

    pub(crate) fn settled(&mut self, to_ns: u64) {
        self.settled_ns = self.settled_ns.max(to_ns);
    }

    /// Ends the lanes where writing did. Totals counted up to a later time are dropped, since they cover
    /// another interval.
    pub(crate) fn cut(&self, trailer: &mut Trailer, why: String) {
        for totals in &mut trailer.lanes {
            let last_ns = self.blocks_ns.get(&LaneId(totals.lane)).copied().unwrap_or(0);
            let written_ns = last_ns.max(self.settled_ns).max(totals.from_ns);
            // A thread may have ended before.
            if written_ns < totals.to_ns {
                totals.to_ns = written_ns;
                totals.iterations = 0;
                totals.counters.clear();
                totals.run_ns = None;
                totals.wait_ns = None;
            }
        }
        trailer.steal_ns = None;
        trailer.cgroups.clear();
        trailer.cut_off = Some(why);
    }
}
