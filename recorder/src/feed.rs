//! Live access to a recording that is watched instead of written: the same events, as soon as they are
//! settled.
//!
//! The recorder never wakes or waits for the consumer: finished blocks stay in a shared buffer until
//! they are taken; when it is full, they are dropped and counted. A recording to a file has no feed and
//! no cost for it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use trace::{Block, Lane, LaneId, Lost, Manifest, Overhead, Source, SourceId};

/// How often blocks are handed over, whatever their size.
pub(crate) const HAND_OVER_EVERY: Duration = Duration::from_millis(200);
/// Maximum number of buffered events: about 50 MB.
const MAX_WAITING: usize = 1 << 20;

/// Both ends of a feed are the same type.
#[derive(Clone, Debug, Default)]
pub struct Feed(Arc<Mutex<Delivery>>);

/// What arrived since the last call.
#[derive(Clone, Debug, Default)]
pub struct Delivery {
    /// Set once, when the recording starts.
    pub manifest: Option<Box<Manifest>>,
    /// New and replaced rows.
    pub sources: Vec<(SourceId, Source)>,
    pub lanes: Vec<(LaneId, Lane)>,
    pub blocks: Vec<Block>,
    /// How far all events are settled, on the recording's clock; the latest value, not a difference.
    pub settled_ns: u64,
    pub state: State,
    events: usize,
}

/// State of the recording, cumulative since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    pub lost: Lost,
    /// Cost of the BPF programs; that of the threads is not known here.
    pub overhead: Overhead,
}

impl Feed {
    /// Takes everything that is buffered.
    pub fn take(&self) -> Delivery {
        let mut waiting = self.lock();
        let (settled_ns, state) = (waiting.settled_ns, waiting.state.clone());
        std::mem::replace(&mut waiting, Delivery { settled_ns, state, ..Delivery::default() })
    }

    pub(crate) fn start(&self, manifest: &Manifest) {
        self.lock().manifest = Some(Box::new(manifest.clone()));
    }

    pub(crate) fn source(&self, id: SourceId, source: &Source) {
        self.lock().sources.push((id, source.clone()));
    }

    pub(crate) fn lane(&self, id: LaneId, lane: &Lane) {
        self.lock().lanes.push((id, lane.clone()));
    }

    /// Returns the number of events dropped because the buffer is full.
    pub(crate) fn block(&self, block: Block) -> u64 {
        let events = block.detours.len() + block.records.len();
        let mut waiting = self.lock();
        if waiting.events + events > MAX_WAITING {
            return events as u64;
        }
        waiting.events += events;
        waiting.blocks.push(block);
        0
    }

    pub(crate) fn settled(&self, ns: u64) {
        let mut waiting = self.lock();
        waiting.settled_ns = waiting.settled_ns.max(ns);
    }

    pub(crate) fn unwritten(&self, events: u64) {
        self.lock().state.lost.unwritten = events;
    }

    pub(crate) fn say(&self, mut state: State) {
        let mut waiting = self.lock();
        // The writer counts these itself.
        state.lost.unwritten = waiting.state.lost.unwritten;
        waiting.state = state;
    }

    /// The data stays valid if a holder panics.
    fn lock(&self) -> MutexGuard<'_, Delivery> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use trace::Detour;

    use super::*;

    fn block(detours: usize) -> Block {
        let detour =
            Detour { start_ns: 0, len_ns: 1, outside_ns: 1, records: 0, ..Detour::default() };
        Block { detours: vec![detour; detours], ..Block::new(LaneId(0)) }
    }

    #[test]
    fn what_is_taken_is_gone_and_what_is_known_stays() {
        let feed = Feed::default();
        feed.start(&Manifest::default());
        assert_eq!(feed.block(block(3)), 0);
        feed.settled(17);
        let first = feed.take();
        assert!(first.manifest.is_some());
        assert_eq!((first.blocks.len(), first.settled_ns), (1, 17));
        let second = feed.take();
        assert!(second.manifest.is_none());
        assert_eq!((second.blocks.len(), second.settled_ns), (0, 17));
    }

    #[test]
    fn nobody_waits_for_one_who_does_not_take() {
        let feed = Feed::default();
        assert_eq!(feed.block(block(MAX_WAITING)), 0);
        assert_eq!(feed.block(block(5)), 5);
        feed.take();
        assert_eq!(feed.block(block(5)), 0);
    }
}
