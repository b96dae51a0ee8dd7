//! A priority queue for a run's events. Time advances, and new events are slightly ahead of it: so
//! events are put into buckets by time, coarser ones for the far future, and only the current bucket
//! is sorted. Everything is appended and read sequentially, where a heap of a million events would
//! miss the cache at every level.
//!
//! A bucket of level n holds the keys whose times agree with the current one down to byte n + 1 and
//! have one value in byte n. When no finer bucket is left, the next one of the lowest level is sorted,
//! or, if it is large, distributed into the buckets below.

use std::{cmp::Reverse, collections::BinaryHeap};

/// The time in the upper half, the tie-breaker in the lower one.
pub(crate) type Key = u128;

const LEVELS: usize = 8;
const DIGITS: usize = 256;
/// Up to this many are sorted directly.
const FEW: usize = 512;

#[derive(Debug)]
pub(crate) struct Wheel {
    buckets: Vec<Vec<Key>>,
    /// Memory of empty buckets: each bucket would otherwise keep its maximum.
    spare: Vec<Vec<Key>>,
    /// Non-empty buckets.
    occupied: [[u64; DIGITS / 64]; LEVELS],
    /// A time in the range of the current bucket: buckets are relative to it.
    at: u64,
    /// Due events, in descending order.
    due: Vec<Key>,
    /// Pushed after its bucket's turn had begun (or, with LogGOPSim's rules, ended).
    late: BinaryHeap<Reverse<Key>>,
    /// Limit (exclusive) up to which events are due or late.
    limit: u64,
}

impl Wheel {
    pub fn new() -> Wheel {
        Wheel {
            buckets: vec![Vec::new(); LEVELS * DIGITS],
            spare: Vec::new(),
            occupied: [[0; DIGITS / 64]; LEVELS],
            at: 0,
            due: Vec::new(),
            late: BinaryHeap::new(),
            limit: 0,
        }
    }

    #[inline]
    pub fn push(&mut self, key: Key) {
        let time = (key >> 64) as u64;
        if time < self.limit {
            self.late.push(Reverse(key));
        } else {
            self.throw(time, key);
        }
    }

    #[inline]
    fn throw(&mut self, time: u64, key: Key) {
        let level = ((time ^ self.at) | 1).ilog2() as usize / 8;
        let digit = (time >> (8 * level)) as usize % DIGITS;
        let bucket = &mut self.buckets[level * DIGITS + digit];
        if bucket.capacity() == 0
            && let Some(spare) = self.spare.pop()
        {
            *bucket = spare;
        }
        bucket.push(key);
        self.occupied[level][digit / 64] |= 1 << (digit % 64);
    }

    #[inline]
    pub fn pop(&mut self) -> Option<Key> {
        if self.due.is_empty() && self.late.is_empty() {
            self.turn();
        }
        match (self.due.last(), self.late.peek()) {
            (Some(due), Some(Reverse(late))) if late < due => self.late.pop().map(|key| key.0),
            (Some(_), _) => self.due.pop(),
            (None, _) => self.late.pop().map(|key| key.0),
        }
    }

    /// When the next event is due.
    pub fn next_time(&mut self) -> Option<u64> {
        if self.due.is_empty() && self.late.is_empty() {
            self.turn();
        }
        let late = self.late.peek().map(|key| key.0);
        self.due.last().copied().into_iter().chain(late).min().map(|key| (key >> 64) as u64)
    }

    /// The next event, if it is due before this time.
    pub fn pop_before(&mut self, time: u64) -> Option<Key> {
        if self.next_time()? < time { self.pop() } else { None }
    }

    /// Advances to the next bucket.
    fn turn(&mut self) {
        while let Some((level, digit)) = self.lowest() {
            self.occupied[level][digit / 64] &= !(1 << (digit % 64));
            let mut keys = std::mem::take(&mut self.buckets[level * DIGITS + digit]);
            let Some(&key) = keys.first() else { continue };
            self.at = (key >> 64) as u64 >> (8 * level) << (8 * level);
            if level == 0 || keys.len() <= FEW {
                keys.sort_unstable_by(|a, b| b.cmp(a));
                self.spare.push(std::mem::replace(&mut self.due, keys));
                self.limit = self.at.saturating_add(1 << (8 * level));
                return;
            }
            for key in keys.drain(..) {
                self.throw((key >> 64) as u64, key);
            }
            self.spare.push(keys);
        }
    }

    fn lowest(&self) -> Option<(usize, usize)> {
        self.occupied.iter().enumerate().find_map(|(level, words)| {
            let word = words.iter().position(|&word| word != 0)?;
            Some((level, word * 64 + words[word].trailing_zeros() as usize))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Pushed before or after the last one popped, near or far.
        #[test]
        fn it_pops_what_a_heap_pops(
            steps in prop::collection::vec((0usize..5, prop_oneof![
                0i64..3, 0i64..700, -300i64..100_000, any::<i64>().prop_map(|far| far >> 8),
            ], 0u64..4), 1..2_000),
        ) {
            let (mut wheel, mut heap) = (Wheel::new(), BinaryHeap::new());
            let mut now = 0u64;
            for (pops, ahead, tie) in steps {
                let key = u128::from(now.saturating_add_signed(ahead)) << 64 | u128::from(tie);
                wheel.push(key);
                heap.push(Reverse(key));
                // Fill up first, then pop as many as are pushed.
                for _ in 0..pops.saturating_sub(2) {
                    let expected = heap.pop().map(|Reverse(key)| key);
                    prop_assert_eq!(wheel.pop(), expected);
                    now = expected.map_or(now, |key| (key >> 64) as u64);
                }
            }
            while let Some(Reverse(key)) = heap.pop() {
                prop_assert_eq!(wheel.pop(), Some(key));
            }
            prop_assert_eq!(wheel.pop(), None);
        }
    }

    #[test]
    fn many_at_once_come_in_the_order_of_their_ties() {
        let mut wheel = Wheel::new();
        for tie in (0..5_000u128).rev() {
            wheel.push(70_000 << 64 | tie);
        }
        assert!((0..5_000).all(|tie| wheel.pop() == Some(70_000 << 64 | tie)));
        wheel.push(u128::MAX);
        assert_eq!((wheel.pop(), wheel.pop()), (Some(u128::MAX), None));
    }
}
