//! Properties of lanes that exports need, and their detours as one stream.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{Read, Seek};

use trace::CpuSettings;
use trace::TraceError;
use trace::{Blocks, Reader};
use trace::{Detour, Lane, LaneId};

/// The detours of one lane in time order.
pub(super) struct Detours<'a, R> {
    blocks: Blocks<'a, R>,
    current: std::vec::IntoIter<Detour>,
}

impl<'a, R: Read + Seek> Detours<'a, R> {
    pub(super) fn of(reader: &'a Reader<R>, lane: LaneId) -> Self {
        Detours { blocks: reader.blocks_of(lane), current: Vec::new().into_iter() }
    }
}

impl<R: Read + Seek> Iterator for Detours<'_, R> {
    type Item = Result<Detour, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(detour) = self.current.next() {
                return Some(Ok(detour));
            }
            match self.blocks.next()? {
                Ok(block) => self.current = block.detours.into_iter(),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The time that any of the lanes lost: overlapping or adjacent intervals become one.
pub(super) struct Union<'a, R> {
    lanes: Vec<Detours<'a, R>>,
    /// The next detour of each lane that has one: start, lane, length.
    heads: BinaryHeap<Reverse<(u64, usize, u64)>>,
}

impl<'a, R: Read + Seek> Union<'a, R> {
    pub(super) fn of(reader: &'a Reader<R>, lanes: &[LaneId]) -> Result<Self, TraceError> {
        let lanes: Vec<_> = lanes.iter().map(|&lane| Detours::of(reader, lane)).collect();
        let mut union = Union { heads: BinaryHeap::with_capacity(lanes.len()), lanes };
        for lane in 0..union.lanes.len() {
            union.advance(lane)?;
        }
        Ok(union)
    }

    fn advance(&mut self, lane: usize) -> Result<(), TraceError> {
        let next = self.lanes.get_mut(lane).and_then(Iterator::next).transpose()?;
        if let Some(detour) = next {
            self.heads.push(Reverse((detour.start_ns, lane, detour.len_ns)));
        }
        Ok(())
    }

    /// Start and end of the earliest detour, if it starts no later than `latest`.
    fn earliest(&mut self, latest: u64) -> Result<Option<(u64, u64)>, TraceError> {
        let starts_in_time = |head: &Reverse<(u64, usize, u64)>| head.0.0 <= latest;
        if !self.heads.peek().is_some_and(starts_in_time) {
            return Ok(None);
        }
        let Some(Reverse((start, lane, length))) = self.heads.pop() else { return Ok(None) };
        self.advance(lane)?;
        Ok(Some((start, start.saturating_add(length))))
    }

    /// Start and length of the next interval.
    pub(super) fn next(&mut self) -> Result<Option<(u64, u64)>, TraceError> {
        let Some((start, mut end)) = self.earliest(u64::MAX)? else { return Ok(None) };
        while let Some((_, more)) = self.earliest(end)? {
            end = end.max(more);
        }
        Ok(Some((start, end - start)))
    }
}

/// A lane's name: `cpu3`, `solver-1234`. In a merged trace, prefixed with the node: `node7/cpu3`.
pub(super) fn name<R>(reader: &Reader<R>, lane: LaneId) -> String {
    let name = match reader.lanes().get(lane.0 as usize) {
        Some(Lane::Cpu { cpu }) => format!("cpu{cpu}"),
        Some(Lane::Thread { tid, name, .. }) => format!("{name}-{tid}"),
        None => format!("lane{}", lane.0),
    };
    match reader.manifest().node_of(lane.0) {
        Some(node) => format!("{}/{name}", node.host),
        None => name,
    }
}

/// Host and kernel of a lane's node.
pub(super) fn system<R>(reader: &Reader<R>, lane: LaneId) -> (&str, &str) {
    let manifest = reader.manifest();
    match manifest.node_of(lane.0) {
        Some(node) => (&node.host, &node.kernel),
        None => (&manifest.host, &manifest.kernel),
    }
}

/// The probe's settings on a lane's CPU, if there was a probe.
pub(super) fn settings<R>(reader: &Reader<R>, lane: LaneId) -> Option<&CpuSettings> {
    let Some(Lane::Cpu { cpu }) = reader.lanes().get(lane.0 as usize) else { return None };
    let mut all = reader.manifest().cpus_of(lane.0).iter();
    all.find(|settings| settings.cpu == *cpu && settings.t_min_ns > 0.0)
}

/// How long a lane was watched: from the trailer, or up to its last event if there is none.
pub(super) fn span<R>(reader: &Reader<R>, lane: LaneId) -> (u64, u64) {
    match reader.totals(lane) {
        Some(totals) => (totals.from_ns, totals.to_ns.max(totals.from_ns)),
        None => (0, reader.block_infos_of(lane).map(|info| info.last_ns).max().unwrap_or(0)),
    }
}

/// How long a thread ran or was runnable, if the recording contains it.
pub(super) fn wanted<R>(reader: &Reader<R>, lane: LaneId) -> Option<u64> {
    let totals = reader.totals(lane)?;
    Some(totals.run_ns?.saturating_add(totals.wait_ns?))
}
