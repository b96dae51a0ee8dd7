//! The events of the last minute, and writing them as a trace of what is on screen.

use std::{collections::VecDeque, io::Write, sync::Arc};

use trace::{
    Block, Detour, LaneTotals, Manifest, Overhead, RecordFlags, SourceId, TraceError, Trailer,
    Writer,
};

use crate::{lanes::STRIP, model::Model, snapshot::Snapshot, window::BUCKET_NS};

/// As long as the strip.
const KEEP_NS: u64 = STRIP as u64 * BUCKET_NS;
/// About 50 MB; on a busier node, less time is kept.
const MAX_EVENTS: usize = 1 << 20;

/// Blocks in order of arrival. Cheap to clone: a paused view keeps its own copy.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Kept {
    blocks: VecDeque<Arc<Block>>,
    events: usize,
    /// All events from this time are present.
    from_ns: u64,
}

impl Kept {
    pub(crate) fn add(&mut self, block: Arc<Block>) {
        self.events += events(&block);
        self.blocks.push_back(block);
        while self.events > MAX_EVENTS && self.blocks.len() > 1 {
            self.drop_oldest();
        }
    }

    pub(crate) fn forget(&mut self, now_ns: u64) {
        let horizon = now_ns.saturating_sub(KEEP_NS);
        while self.blocks.front().is_some_and(|oldest| last_ns(oldest) < horizon) {
            self.drop_oldest();
        }
        self.from_ns = self.from_ns.max(horizon);
    }

    pub(crate) fn events(&self) -> usize {
        self.events
    }

    pub(crate) fn begins_ns(&self) -> u64 {
        self.from_ns
    }

    fn drop_oldest(&mut self) {
        if let Some(block) = self.blocks.pop_front() {
            self.events -= events(&block);
            self.from_ns = self.from_ns.max(last_ns(&block) + 1);
        }
    }
}

/// Summary of a written trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    pub span_ns: u64,
    pub detours: u64,
    pub records: u64,
}

/// Writes the kept events, up to the time shown on screen, as a trace. The view's filters do not apply,
/// since the parts of a detour belong together.
pub fn write<W: Write>(
    model: &Model,
    shown: &Snapshot,
    make: impl FnOnce(&Manifest) -> Result<Writer<W>, TraceError>,
) -> Result<Written, TraceError> {
    let kept = shown.kept.as_ref().unwrap_or(&model.kept);
    let to_ns = shown.now_ns;
    let from_ns = kept.from_ns.min(to_ns);
    let span_ns = to_ns - from_ns;
    let mut manifest = model.manifest.clone();
    manifest.lanes = model.lanes.iter().map(|lane| lane.lane.clone()).collect();
    manifest.limits.push(format!("the last {:.1} s of a live view", span_ns as f64 / 1e9));
    let mut writer = make(&manifest)?;
    for (id, source) in (0..).map(SourceId).zip(&model.rows.sources) {
        if let Some(source) = source {
            writer.add_source(id, source)?;
        }
    }
    let mut written = Written { span_ns, detours: 0, records: 0 };
    for block in &kept.blocks {
        if block.lane.0 as usize >= model.lanes.len() {
            continue;
        }
        let block = cut(block, from_ns, to_ns);
        if !block.detours.is_empty() || !block.records.is_empty() {
            writer.write_block(&block)?;
            written.detours += block.detours.len() as u64;
            written.records += block.records.len() as u64;
        }
    }
    writer.finish(trailer(model, from_ns, to_ns))?;
    Ok(written)
}

fn trailer(model: &Model, from_ns: u64, to_ns: u64) -> Trailer {
    let lanes = model.lanes.iter().enumerate().map(|(index, lane)| {
        let totals = LaneTotals { lane: index as u32, from_ns, to_ns, ..LaneTotals::default() };
        match lane.lane {
            trace::Lane::Cpu { .. } => totals,
            // Threads are watched during their lifetime.
            trace::Lane::Thread { .. } => {
                let from_ns = lane.from_ns.unwrap_or(from_ns).clamp(from_ns, to_ns);
                LaneTotals { from_ns, to_ns: lane.to_ns.clamp(from_ns, to_ns), ..totals }
            }
        }
    });
    Trailer {
        lanes: lanes.collect(),
        lost: model.losses(),
        overhead: Overhead { cpu_pct: model.bpf_share(), ..Overhead::default() },
        ..Trailer::default()
    }
}

fn events(block: &Block) -> usize {
    block.detours.len() + block.records.len()
}

/// Start of its last event: events end in any order, but start nearly in time order.
fn last_ns(block: &Block) -> u64 {
    let detours = block.detours.iter().map(|detour| detour.start_ns);
    let records = block.records.iter().map(|record| record.start_ns);
    detours.chain(records).max().unwrap_or(0)
}

/// The events that started between `from` and `to`. Detours keep their records.
fn cut(block: &Block, from: u64, to: u64) -> Block {
    let inside = |start: u64| (from..=to).contains(&start);
    let mut kept = Block::new(block.lane);
    let mut detours = block.detours.iter();
    let keep = |detour: &Detour, kept: &mut Block| {
        let keep = inside(detour.start_ns);
        if keep {
            kept.detours.push(*detour);
        }
        keep
    };
    // Remaining records of the current detour, and whether it is kept.
    let (mut owed, mut keeping) = (0, false);
    for record in &block.records {
        if !record.flags.contains(RecordFlags::IN_DETOUR) {
            if inside(record.start_ns) {
                kept.records.push(*record);
            }
            continue;
        }
        while owed == 0 {
            let Some(detour) = detours.next() else { break };
            keeping = keep(detour, &mut kept);
            owed = detour.records;
        }
        owed = owed.saturating_sub(1);
        if keeping {
            kept.records.push(*record);
        }
    }
    for detour in detours {
        keep(detour, &mut kept);
    }
    kept
}

#[cfg(test)]
mod tests {
    use trace::{LaneId, Record};

    use super::*;

    fn record(start_ns: u64, in_detour: bool) -> Record {
        let flags = if in_detour { RecordFlags::IN_DETOUR } else { RecordFlags::default() };
        Record {
            start_ns,
            gross_ns: 5,
            net_ns: 5,
            cost_ns: 5,
            source: SourceId(0),
            cpu: 0,
            depth: 1,
            flags,
        }
    }

    fn detour(start_ns: u64, records: u32) -> Detour {
        let len_ns = 5 * u64::from(records) + 1;
        Detour { start_ns, len_ns, outside_ns: 1, records, ..Detour::default() }
    }

    #[test]
    fn a_cut_keeps_detours_and_records_together() {
        let block = Block {
            lane: LaneId(0),
            detours: vec![detour(10, 1), detour(20, 0), detour(30, 2), detour(40, 0)],
            records: vec![
                record(10, true),
                record(15, false),
                record(29, true),
                record(33, true),
                record(50, false),
            ],
        };
        let kept = cut(&block, 20, 45);
        assert_eq!(kept.detours, [detour(20, 0), detour(30, 2), detour(40, 0)]);
        // A record that started slightly before its detour, by the other clock, stays with it.
        assert_eq!(kept.records, [record(29, true), record(33, true)]);
        assert_eq!(cut(&block, 0, 100), block);
    }

    #[test]
    fn what_is_kept_is_bounded_by_time_and_by_number() {
        let mut kept = Kept::default();
        for second in 0..100 {
            let start = second * 1_000_000_000;
            kept.add(Arc::new(Block { detours: vec![detour(start, 0)], ..Block::new(LaneId(0)) }));
            kept.forget(start);
        }
        assert_eq!(kept.events(), 61);
        assert_eq!(kept.begins_ns(), 39_000_000_000);
        for _ in 0..20 {
            let detours = vec![detour(99_000_000_000, 0); 1 << 16];
            kept.add(Arc::new(Block { detours, ..Block::new(LaneId(0)) }));
        }
        assert!(kept.events() <= MAX_EVENTS);
        assert!(kept.begins_ns() > 98_000_000_000);
    }
}
