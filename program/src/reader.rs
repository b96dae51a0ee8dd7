//! The moments of one rank in the order of time, a part of the file at a time.
//!
//! Chunks stand in the file in the order in which they were opened. A rank with one thread is decoded
//! straight from the file; of one with several, each thread's chunk is held in memory until all others
//! have come as far.

use crate::chunks::{Arena, ChunkReader, Damage, Loaded, Moment, Position, What};
use crate::clock::{Clocks, HostClock};
use crate::open::{Program, Rank};
use std::collections::VecDeque;
use std::io;

/// Memory for reading, used for one rank after another.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    loaded: Loaded,
    arena: Arena,
}

/// A decoded chunk of one of several threads.
#[derive(Debug)]
struct Batch {
    moments: VecDeque<Moment>,
    arena: Arena,
}

/// Where reading a rank stands.
#[derive(Debug)]
pub(crate) struct RankReader {
    chunks: ChunkReader,
    position: Position,
    place: u64,
    /// Records of the chunk at `place` that were delivered.
    record: usize,
    /// Parts in which a chunk is delivered.
    slices: usize,
    several: bool,
    /// Batches by thread.
    waiting: Vec<VecDeque<Batch>>,
    /// When the next part begins and ends, about, on the clock of the host.
    pub next: (i64, i64),
    pub done: bool,
}

impl RankReader {
    pub fn new(rank: &Rank, slices: usize) -> RankReader {
        let chunks = ChunkReader::new(rank);
        let next = chunks.peek(0);
        RankReader {
            done: next.is_none() && chunks.places() == 0,
            next: next.map_or((0, 0), |header| (Loaded::opened(&header), Loaded::closed(&header))),
            chunks,
            position: Position::default(),
            place: 0,
            record: 0,
            slices: slices.max(1),
            several: rank.threads > 1,
            waiting: Vec::new(),
        }
    }

    pub fn damage(&self) -> Damage {
        self.position.damage()
    }

    /// Delivers the next part.
    pub fn step(
        &mut self,
        scratch: &mut Scratch,
        clock: &HostClock,
        mut deliver: impl FnMut(&Moment, &Arena),
    ) -> io::Result<()> {
        if self.done {
            return Ok(());
        }
        let Scratch { loaded, arena } = scratch;
        let Some(place) = self.chunks.load(self.place, loaded)? else {
            self.merge(i64::MAX, &mut deliver);
            self.done = true;
            return Ok(());
        };
        self.place = place;
        let resumed = self.record > 0;
        let accepted = resumed || self.position.accept(loaded);
        if !accepted || (self.position.gap && !resumed) {
            let thread = loaded.header.thread;
            let at = clock.common(Loaded::opened(&loaded.header));
            let what = What::Lost { events: 0 };
            deliver(&Moment { thread, begin: at, end: at, what }, arena);
        }
        let mut whole = true;
        if accepted && self.several {
            let mut batch = Batch { moments: VecDeque::new(), arena: Arena::default() };
            let thread = usize::from(loaded.header.thread);
            self.position.decode(
                &self.chunks,
                loaded,
                0..usize::MAX,
                &mut batch.arena,
                true,
                |ns| clock.common(ns),
                |moment, _| batch.moments.push_back(*moment),
            );
            if self.waiting.len() <= thread {
                self.waiting.resize_with(thread + 1, VecDeque::new);
            }
            if let Some(queue) = self.waiting.get_mut(thread) {
                queue.push_back(batch);
            }
        } else if accepted {
            let part = match self.slices {
                1 => usize::MAX,
                slices => (loaded.header.events as usize / slices).max(64),
            };
            let end = self.record.saturating_add(part);
            let seen = self.position.decode(
                &self.chunks,
                loaded,
                self.record..end,
                arena,
                false,
                |ns| clock.common(ns),
                &mut deliver,
            );
            whole = seen < end;
            if !whole {
                self.record = seen;
                let share = seen as f64 / f64::from(loaded.header.events.max(1));
                let (open, close) =
                    (Loaded::opened(&loaded.header), Loaded::closed(&loaded.header));
                let at = open.saturating_add(((close - open) as f64 * share.min(1.0)) as i64);
                self.next = (at, at.saturating_add((close - open) / self.slices as i64));
            }
        }
        if whole {
            self.record = 0;
            self.place = place + 1;
            let next = match loaded.next {
                Some(header) => Some(header),
                None => self.chunks.peek(self.place),
            };
            match next {
                Some(header) => {
                    self.next = (Loaded::opened(&header), Loaded::closed(&header));
                    let safe = clock.common(self.next.0);
                    self.merge(safe, &mut deliver);
                }
                None if self.place >= self.chunks.places() => {
                    self.merge(i64::MAX, &mut deliver);
                    self.done = true;
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Delivers what the threads did before a moment, in the order of time.
    fn merge(&mut self, before: i64, deliver: &mut impl FnMut(&Moment, &Arena)) {
        loop {
            let mut earliest: Option<(i64, usize)> = None;
            for (thread, queue) in self.waiting.iter_mut().enumerate() {
                while queue.front().is_some_and(|batch| batch.moments.is_empty()) {
                    queue.pop_front();
                }
                if let Some(moment) = queue.front().and_then(|batch| batch.moments.front())
                    && earliest.is_none_or(|(at, _)| moment.begin < at)
                {
                    earliest = Some((moment.begin, thread));
                }
            }
            let Some((at, thread)) = earliest.filter(|(at, _)| *at < before || before == i64::MAX)
            else {
                return;
            };
            // The thread stays the earliest until its next moment passes the second earliest; looking
            // again for each moment is simple, and ranks with several threads are few.
            let _ = at;
            let Some(batch) = self.waiting.get_mut(thread).and_then(VecDeque::front_mut) else {
                return;
            };
            if let Some(moment) = batch.moments.pop_front() {
                deliver(&moment, &batch.arena);
            }
        }
    }
}

/// Delivers the moments of one rank, threads merged by time, on the common clock of `clocks`.
///
/// `slot` is the position in [`Program::ranks`]. Damaged parts are delivered as [`What::Lost`] and counted
/// in the result.
pub fn stream(
    program: &Program,
    slot: usize,
    clocks: &Clocks,
    mut deliver: impl FnMut(&Moment, &Arena),
) -> io::Result<Damage> {
    let Some(rank) = program.ranks.get(slot) else { return Ok(Damage::default()) };
    let mut reader = RankReader::new(rank, 1);
    let mut scratch = Scratch::default();
    while !reader.done {
        reader.step(&mut scratch, clocks.host(rank.host), &mut deliver)?;
    }
    Ok(reader.damage())
}
