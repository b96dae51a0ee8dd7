//! The positions and contents of a trace's blocks, lane by lane, in about fifteen bytes each: a day on
//! 128 CPUs has eleven million blocks. A lane's blocks are stored as differences; merging the lanes
//! restores the file order.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap, binary_heap::PeekMut};

use super::progress::Progress;
use crate::format::v1::{IndexEntry, Kind, Summary};
use crate::format::varint::{Column, Values};

/// The frames of a file in file order, as they are found.
#[derive(Default)]
pub(super) struct Found {
    events: HashMap<u32, LaneBlocks>,
    /// All frames except events and progress.
    pub(super) others: Vec<IndexEntry>,
    pub(super) progress: Progress,
    numbers: Column,
}

impl Found {
    pub(super) fn add(&mut self, entry: IndexEntry) {
        match entry.kind {
            Kind::Events => {
                let lane = self.events.entry(entry.summary.lane).or_default();
                lane.push(&entry, &mut self.numbers);
            }
            Kind::Settled => self.progress.add(&entry),
            _ => self.others.push(entry),
        }
    }

    /// The lanes that have blocks, in order.
    pub(super) fn lanes(self) -> Vec<(u32, LaneBlocks)> {
        let mut lanes: Vec<_> = self.events.into_iter().collect();
        lanes.sort_unstable_by_key(|(lane, _)| *lane);
        lanes
    }
}

/// The blocks of one lane.
#[derive(Default)]
pub(super) struct LaneBlocks {
    /// For each block: its distance from the previous one, in the file and in time, its length in both,
    /// and its number of events.
    bytes: Vec<u8>,
    blocks: usize,
    last: Ends,
}

/// End of a block, in the file and in time.
#[derive(Clone, Copy, Default)]
struct Ends {
    offset: u64,
    ns: u64,
}

impl Ends {
    fn of(entry: &IndexEntry) -> Ends {
        Ends { offset: entry.end(), ns: entry.summary.last_ns }
    }
}

impl LaneBlocks {
    /// Time of the last event; 0 if there is none.
    pub(super) fn last_ns(&self, lane: u32) -> u64 {
        self.entries(lane).map(|entry| entry.summary.last_ns).max().unwrap_or(0)
    }

    fn push(&mut self, entry: &IndexEntry, numbers: &mut Column) {
        const NUMBERS: usize = 6;
        let Summary { lane: _, first_ns, last_ns, detours, records } = entry.summary;
        numbers.begin(NUMBERS);
        numbers.put(entry.offset.wrapping_sub(self.last.offset));
        numbers.put(u64::from(entry.stored_len));
        numbers.put_signed(first_ns.wrapping_sub(self.last.ns).cast_signed());
        numbers.put_signed(last_ns.wrapping_sub(first_ns).cast_signed());
        numbers.put(u64::from(detours));
        numbers.put(u64::from(records));
        let added = numbers.as_slice();
        if self.bytes.capacity() - self.bytes.len() < added.len() {
            // Grows by an eighth rather than doubling: this is most of the memory of a long recording.
            self.bytes.reserve_exact((self.bytes.len() / 8).max(64));
        }
        self.bytes.extend_from_slice(added);
        self.blocks += 1;
        self.last = Ends::of(entry);
    }

    pub(super) fn entries(&self, lane: u32) -> LaneEntries<'_> {
        let numbers = Values::new(&self.bytes, false);
        LaneEntries { lane, numbers, before: Ends::default() }
    }
}

/// The blocks of one lane, which are in time order.
pub(super) struct LaneEntries<'a> {
    lane: u32,
    numbers: Option<Values<'a>>,
    before: Ends,
}

impl Iterator for LaneEntries<'_> {
    type Item = IndexEntry;

    fn next(&mut self) -> Option<IndexEntry> {
        let numbers = self.numbers.as_mut()?;
        let offset = self.before.offset.wrapping_add(numbers.next()?);
        let stored_len = numbers.next()? as u32;
        let first_ns = self.before.ns.wrapping_add_signed(numbers.next_signed()?);
        let last_ns = first_ns.wrapping_add_signed(numbers.next_signed()?);
        let (detours, records) = (numbers.next()? as u32, numbers.next()? as u32);
        let summary = Summary { lane: self.lane, first_ns, last_ns, detours, records };
        let entry = IndexEntry { offset, kind: Kind::Events, stored_len, summary };
        self.before = Ends::of(&entry);
        Some(entry)
    }
}

/// The blocks of all lanes, by lane.
pub(super) struct Index {
    lanes: Vec<LaneBlocks>,
    blocks: usize,
}

impl Index {
    /// Of lanes in order; some may have no blocks.
    pub(super) fn new(found: Vec<(u32, LaneBlocks)>) -> Index {
        let blocks = found.iter().map(|(_, lane)| lane.blocks).sum();
        let mut lanes: Vec<LaneBlocks> = Vec::new();
        for (lane, of_lane) in found {
            lanes.resize_with(lane as usize, LaneBlocks::default);
            lanes.push(of_lane);
        }
        Index { lanes, blocks }
    }

    pub(super) fn of_lane(&self, lane: u32) -> Option<LaneEntries<'_>> {
        Some(self.lanes.get(lane as usize)?.entries(lane))
    }

    pub(super) fn in_file_order(&self) -> InFileOrder<'_> {
        let lanes = (0..).zip(&self.lanes).map(|(lane, blocks)| blocks.entries(lane));
        let heads = lanes.filter_map(|mut rest| Some(Reverse(Head { entry: rest.next()?, rest })));
        InFileOrder { heads: heads.collect(), left: self.blocks }
    }
}

/// The blocks of all lanes in file order.
pub(super) struct InFileOrder<'a> {
    /// The next block of each lane.
    heads: BinaryHeap<Reverse<Head<'a>>>,
    left: usize,
}

struct Head<'a> {
    entry: IndexEntry,
    rest: LaneEntries<'a>,
}

impl Iterator for InFileOrder<'_> {
    type Item = IndexEntry;

    fn next(&mut self) -> Option<IndexEntry> {
        let mut first = self.heads.peek_mut()?;
        self.left -= 1;
        let Reverse(head) = &mut *first;
        match head.rest.next() {
            Some(next) => Some(std::mem::replace(&mut head.entry, next)),
            None => Some(PeekMut::pop(first).0.entry),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for InFileOrder<'_> {}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.entry.offset.cmp(&other.entry.offset)
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_back_in_file_order_and_by_lane_whatever_is_in_them() {
        let mut state = 7_u64;
        let mut draw = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Of all magnitudes: everything but the offset comes from the file unchecked.
            state.rotate_left(20) >> (state >> 58)
        };
        let mut offset = 16;
        let mut entries = Vec::new();
        for _ in 0..2_000 {
            let summary = Summary {
                lane: (draw() % 5) as u32 * 3,
                first_ns: draw(),
                last_ns: draw(),
                detours: draw() as u32,
                records: draw() as u32,
            };
            let stored_len = draw() as u32;
            let entry = IndexEntry { offset, kind: Kind::Events, stored_len, summary };
            offset = entry.end() + draw() % 1_000;
            entries.push(entry);
        }
        let mut found = Found::default();
        entries.iter().for_each(|entry| found.add(*entry));
        let index = Index::new(found.lanes());
        assert_eq!(index.in_file_order().len(), entries.len());
        assert_eq!(index.in_file_order().collect::<Vec<_>>(), entries);
        for lane in 0..14 {
            let of_lane = index.of_lane(lane).into_iter().flatten();
            let wanted = entries.iter().filter(|entry| entry.summary.lane == lane);
            assert!(of_lane.eq(wanted.copied()), "lane {lane}");
        }
    }
}
