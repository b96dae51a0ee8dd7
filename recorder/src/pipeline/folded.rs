//! The older history of a CPU as sums by source, in place of millions of records: what a wait or a
//! detour with more records than fit in memory was made of.
//!
//! Records come in the order of their ends. [`History`] groups them into chunks of time that become
//! longer with age, like the buckets of an exponential histogram: the chunk in which a wait begins is
//! always short compared with the wait.

use std::collections::VecDeque;

use trace::{Class, SourceId};

use crate::pipeline::{compose::Named, hash::HashMap};

/// Records in a chunk of the youngest level.
const CHUNK: u32 = 256;
/// Chunks of one level. Further ones are merged in pairs to the next level, of twice the length.
const OF_LEVEL: usize = 16;

/// Time taken by a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    pub class: Class,
    pub source: SourceId,
    pub ns: u64,
}

/// Sums by source over an interval.
#[derive(Debug, Default)]
pub struct Sums {
    by_source: HashMap<SourceId, (Class, u64)>,
    /// From the first start to the last end.
    span: Option<(u64, u64)>,
}

impl Sums {
    pub fn add(&mut self, named: &Named) {
        let (_, ns) = self.by_source.entry(named.record.source).or_insert((named.class, 0));
        *ns = ns.saturating_add(named.record.net_ns);
        let (from, to) = self.span.unwrap_or((named.record.start_ns, 0));
        self.span = Some((from.min(named.record.start_ns), to.max(named.end())));
    }

    /// Its end, and the sums in the order of the sources, so that equal input gives an equal file.
    pub fn take(self) -> Option<(u64, Vec<Sum>)> {
        let (_, to) = self.span?;
        Some((to, sorted(self.by_source)))
    }
}

fn sorted(by_source: HashMap<SourceId, (Class, u64)>) -> Vec<Sum> {
    let sum = |(source, (class, ns))| Sum { class, source, ns };
    let mut sums: Vec<Sum> = by_source.into_iter().map(sum).collect();
    sums.sort_unstable_by_key(|sum| sum.source);
    sums
}

/// Records whose ends are neighbours.
#[derive(Debug)]
struct Chunk {
    /// The end of the previous chunk.
    from: u64,
    to: u64,
    level: u32,
    sums: Vec<Sum>,
    /// Events that are on no lane.
    events: u64,
}

impl Chunk {
    fn merge(&mut self, later: Chunk) {
        let mut by_source = HashMap::default();
        for sum in self.sums.drain(..).chain(later.sums) {
            let (_, ns): &mut (Class, u64) = by_source.entry(sum.source).or_insert((sum.class, 0));
            *ns = ns.saturating_add(sum.ns);
        }
        self.sums = sorted(by_source);
        self.to = later.to;
        self.level = self.level.max(later.level) + 1;
        self.events += later.events;
    }
}

/// What was taken in a part of the history.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Older {
    pub cpu: u16,
    /// Where the history ends.
    pub to: u64,
    /// Of the chunks that lie inside.
    pub whole: Vec<Sum>,
    /// Of the chunks that only partly do: in proportion to time, followed by the most it can have been.
    pub partly: Vec<(Sum, u64)>,
    /// Events that are on no lane.
    pub events: u64,
}

/// The older history of a CPU.
#[derive(Debug, Default)]
pub struct History {
    /// Oldest first; levels decrease.
    chunks: VecDeque<Chunk>,
    /// Of the chunk that is being filled.
    open: Sums,
    records: u32,
    events: u64,
}

impl History {
    /// Adds a record; `event` unless it is on a lane already. Keeps at most about this many sums.
    pub fn add(&mut self, named: &Named, event: bool, room: usize) {
        self.open.add(named);
        self.records += 1;
        self.events += u64::from(event);
        if self.records == CHUNK {
            self.close();
            self.make_room(room);
        }
    }

    fn close(&mut self) {
        let began = self.open.span.map_or(0, |(from, _)| from);
        let Some((to, sums)) = std::mem::take(&mut self.open).take() else { return };
        let from = self.chunks.back().map_or(began, |last| last.to.min(to));
        let events = std::mem::take(&mut self.events);
        self.chunks.push_back(Chunk { from, to, level: 0, sums, events });
        self.records = 0;
        let mut level = 0;
        loop {
            let older = self.chunks.partition_point(|chunk| chunk.level > level);
            let until = self.chunks.partition_point(|chunk| chunk.level >= level);
            if until - older <= OF_LEVEL {
                return;
            }
            self.merge(older);
            level += 1;
        }
    }

    /// Merges a chunk with the one after it.
    fn merge(&mut self, index: usize) {
        let Some(later) = self.chunks.remove(index + 1) else { return };
        self.chunks[index].merge(later);
    }

    fn make_room(&mut self, room: usize) {
        while self.chunks.len() > 1
            && self.chunks.iter().map(|chunk| chunk.sums.len()).sum::<usize>() > room
        {
            self.merge(0);
        }
        // The smallest are dropped: with this many sources, each is a small part.
        if let Some(chunk) = self.chunks.front_mut().filter(|chunk| chunk.sums.len() > room) {
            chunk.sums.sort_unstable_by_key(|sum| std::cmp::Reverse(sum.ns));
            chunk.sums.truncate(room);
            chunk.sums.sort_unstable_by_key(|sum| sum.source);
        }
    }

    /// What was taken between two times. The events are returned once.
    pub fn between(&mut self, from: u64, to: u64) -> Option<Older> {
        let ends = self.open.span.map(|(_, to)| to);
        let end = ends.or(self.chunks.back().map(|chunk| chunk.to))?;
        if end <= from {
            return None;
        }
        // Rarely used, so that a chunk may as well be short.
        if ends.is_some() {
            self.close();
        }
        let mut older = Older { to: end.min(to), ..Older::default() };
        let mut whole = HashMap::default();
        let first = self.chunks.partition_point(|chunk| chunk.to <= from);
        for chunk in self.chunks.iter_mut().skip(first).take_while(|chunk| chunk.from < to) {
            older.events += std::mem::take(&mut chunk.events);
            if chunk.from >= from && chunk.to <= to {
                for sum in &chunk.sums {
                    let (_, ns): &mut (Class, u64) =
                        whole.entry(sum.source).or_insert((sum.class, 0));
                    *ns = ns.saturating_add(sum.ns);
                }
                continue;
            }
            let part = u128::from(chunk.to.min(to) - chunk.from.max(from));
            let length = u128::from((chunk.to - chunk.from).max(1));
            for &sum in &chunk.sums {
                let ns = (u128::from(sum.ns) * part / length) as u64;
                older.partly.push((Sum { ns, ..sum }, sum.ns));
            }
        }
        older.whole = sorted(whole);
        Some(older)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::compose::tests::named;

    const ROOM: usize = 1 << 12;

    /// A record per microsecond, each as long, of two classes in turn.
    fn history(records: u64) -> History {
        let mut history = History::default();
        for i in 0..records {
            let class = if i % 4 == 0 { Class::Timer } else { Class::Thread };
            history.add(&named(class, i * 1_000, 1_000, 1_000, 0), true, ROOM);
        }
        history
    }

    #[test]
    fn nothing_is_lost_and_memory_grows_with_the_logarithm() {
        let mut history = history(1 << 20);
        assert!(history.chunks.len() <= OF_LEVEL * 12, "{} chunks", history.chunks.len());
        let older = history.between(0, u64::MAX).expect("a history");
        assert_eq!((older.to, older.events), (1_000 << 20, 1 << 20));
        assert!(older.partly.is_empty());
        let ns: Vec<(Class, u64)> = older.whole.iter().map(|sum| (sum.class, sum.ns)).collect();
        assert_eq!(ns, [(Class::Timer, 250 << 20), (Class::Thread, 750 << 20)]);
        assert_eq!(history.between(0, u64::MAX).map(|older| older.events), Some(0));
        assert_eq!(history.between(older.to, u64::MAX), None);
    }

    #[test]
    fn only_a_small_part_of_an_interval_is_uncertain() {
        let mut history = history(1 << 20);
        let end = 1_000 << 20;
        for age in [1 << 12, 1 << 16, 777_777, 1_000_000] {
            let older = history.between(end - age * 1_000, end).expect("a history");
            let whole: u64 = older.whole.iter().map(|sum| sum.ns).sum();
            let partly: u64 = older.partly.iter().map(|(sum, _)| sum.ns).sum();
            assert!((whole + partly).abs_diff(age * 1_000) <= 10, "{age}: {whole} + {partly}");
            assert!(partly <= age * 1_000 / 8, "{age}: {partly} of {}", age * 1_000);
        }
    }

    #[test]
    fn thousands_of_sources_take_no_more_room_than_they_may() {
        let mut history = History::default();
        for i in 0..100_000_u64 {
            let mut record = named(Class::Thread, i * 1_000, 1_000, 1_000, 0);
            record.record.source = SourceId((i % 9_000) as u32);
            history.add(&record, false, 512);
        }
        let kept: usize = history.chunks.iter().map(|chunk| chunk.sums.len()).sum();
        assert!(kept <= 512 + CHUNK as usize, "{kept}");
    }
}
