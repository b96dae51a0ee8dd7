//! Several timelines concatenated, so that ranks with different ones are looked up together.

use super::{Timeline, lookup::Lookup};

/// Beyond this, sums of times could overflow.
const MAX_TOGETHER: i64 = 1 << 61;

#[derive(Clone, Debug)]
pub(super) struct SideBySide {
    pub lookup: Lookup,
    /// Start of each timeline.
    pub bases: Vec<i64>,
    pub spans: Vec<i64>,
}

impl SideBySide {
    /// None if one lookup cannot hold them: too long or too many together, or one of them without
    /// detours or periodic.
    pub fn new(timelines: &[Timeline]) -> Option<SideBySide> {
        if timelines.iter().any(Timeline::is_periodic) {
            return None;
        }
        let mut detours = Vec::new();
        let mut bases = Vec::new();
        let spans = timelines.iter().map(Timeline::span).collect();
        let mut base = 0i64;
        for timeline in timelines {
            bases.push(base);
            let [first, _] = timeline.detours().first()?;
            detours.extend(timeline.detours().iter().map(|[from, to]| [base + from, base + to]));
            // A sentinel: after the last detour comes the first one of the next turn, not the next
            // entry of the lookup.
            let end = base.checked_add(timeline.span()).filter(|&end| end < MAX_TOGETHER)?;
            detours.push([end + first, end + 1]);
            base = end + 1;
        }
        if detours.len() >= u32::MAX as usize {
            return None;
        }
        Some(SideBySide { lookup: Lookup::new(detours, base, MAX_TOGETHER), bases, spans })
    }
}
