//! An event queue that uses the lookahead of the network. An action of one rank affects another no
//! sooner than o + L later. So time is divided into windows no longer than that, and within a window
//! one rank after the other is run to the end: its events come in order of time, those of different
//! ranks in cache-friendly order. Each rank's operations are contiguous, and neighbouring ranks tend
//! to send to neighbouring ranks.
//!
//! Input: events with a time, a rank and a number. Output: the same, window by window, rank by rank,
//! in order of (time, number) for each rank.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    by_rank::{ByRank, Entry},
    wheel::{Key, Wheel},
};

/// Windows ahead that have a list each; later events are kept in order of time.
const AHEAD: u64 = 64;
/// In longer windows, an event's offset would not fit in 32 bits.
const LONGEST_WINDOW: u32 = 31;

/// An event of a window: its rank, the offset in the window and its number, from the highest bit to
/// the lowest. Windows are processed in this order.
#[inline]
fn entry(rank: u32, offset: u32, what: u32) -> Entry {
    Entry::from(rank) << 64 | Entry::from(offset) << 32 | Entry::from(what)
}

/// Rank, offset and number.
#[inline]
fn parts(entry: Entry) -> (u32, u32, u32) {
    ((entry >> 64) as u32, (entry >> 32) as u32, entry as u32)
}

#[derive(Debug)]
pub(crate) struct Windows {
    /// A window is 2^shift ps long.
    shift: u32,
    /// The first window that has not begun.
    next: u64,
    /// Window w has its list at w % AHEAD; bits of the non-empty ones.
    ahead: Vec<Vec<Entry>>,
    occupied: u64,
    far: Wheel,
    /// Unused lists.
    spare: Vec<Vec<Entry>>,
    /// The current window, sorted, and how many of its events are done.
    now: Vec<Entry>,
    past: usize,
    /// The current rank, and the events added for it meanwhile.
    rank: u32,
    late: BinaryHeap<Reverse<Entry>>,
    by_rank: ByRank,
}

impl Windows {
    /// Events of a rank cause events of others no sooner than `lookahead` ps later; at least 1.
    pub fn new(lookahead: i64, ranks: u32) -> Windows {
        Windows {
            shift: lookahead.max(1).ilog2().min(LONGEST_WINDOW),
            next: 0,
            ahead: (0..AHEAD).map(|_| Vec::new()).collect(),
            occupied: 0,
            far: Wheel::new(),
            spare: Vec::new(),
            now: Vec::new(),
            past: 0,
            rank: 0,
            late: BinaryHeap::new(),
            by_rank: ByRank::new(ranks),
        }
    }

    /// Times are never negative. An event in the current window must belong to the current rank.
    #[inline]
    pub fn push(&mut self, time: i64, rank: u32, what: u32) {
        let window = time as u64 >> self.shift;
        if window >= self.next + AHEAD {
            let key: Key = (time as u128) << 64 | u128::from(rank) << 32 | u128::from(what);
            self.far.push(key);
            return;
        }
        let entry = entry(rank, (time as u64 & ((1 << self.shift) - 1)) as u32, what);
        if window < self.next {
            debug_assert_eq!(rank, self.rank, "an event came too early");
            self.late.push(Reverse(entry));
            return;
        }
        let place = (window % AHEAD) as usize;
        if self.occupied >> place & 1 == 0 {
            self.occupied |= 1 << place;
            self.ahead[place] = self.spare.pop().unwrap_or_default();
        }
        self.ahead[place].push(entry);
    }

    /// Time, rank and number.
    #[inline]
    pub fn pop(&mut self) -> Option<(i64, u32, u32)> {
        let entry = match self.now.get(self.past) {
            Some(&entry) if self.late.is_empty() => {
                self.past += 1;
                entry
            }
            _ => self.next_entry()?,
        };
        let (rank, offset, what) = parts(entry);
        self.rank = rank;
        let begin = (self.next - 1) << self.shift;
        Some(((begin + u64::from(offset)) as i64, rank, what))
    }

    #[inline(never)]
    fn next_entry(&mut self) -> Option<Entry> {
        loop {
            let next = self.now.get(self.past);
            match self.late.peek() {
                // A rank's turn ends when it has no more events.
                Some(Reverse(late)) if next.is_none_or(|next| late < next) => {
                    return self.late.pop().map(|late| late.0);
                }
                _ => {}
            }
            if let Some(&entry) = next {
                self.past += 1;
                return Some(entry);
            }
            if !self.turn() {
                return None;
            }
        }
    }

    /// The event this many ahead in this window, ignoring events yet to be added: its rank and number.
    #[inline]
    pub fn upcoming(&self, events: usize) -> Option<(u32, u32)> {
        let (rank, _, what) = parts(*self.now.get(self.past + events)?);
        Some((rank, what))
    }

    /// Advances to the next window with events; false if there is none.
    fn turn(&mut self) -> bool {
        self.past = 0;
        self.now.clear();
        // The list for window `next` first.
        let turned = self.occupied.rotate_right((self.next % AHEAD) as u32);
        let near = (turned != 0).then(|| self.next + u64::from(turned.trailing_zeros()));
        let far = self.far.next_time().map(|time| time >> self.shift);
        let Some(window) = near.into_iter().chain(far).min() else { return false };
        if near == Some(window) {
            let place = (window % AHEAD) as usize;
            self.occupied &= !(1 << place);
            let list = std::mem::take(&mut self.ahead[place]);
            self.spare.push(std::mem::replace(&mut self.now, list));
        }
        self.next = window + 1;
        let begin = window << self.shift;
        while let Some(key) = self.far.pop_before(begin + (1 << self.shift)) {
            let offset = ((key >> 64) as u64 - begin) as u32;
            self.now.push(entry((key >> 32) as u32, offset, key as u32));
        }
        self.by_rank.sort(&mut self.now);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Each event causes others: of its own rank at any later time, of other ranks no sooner than
        /// the lookahead.
        #[test]
        fn each_rank_gets_its_events_in_order(
            lookahead in prop_oneof![1i64..20, 900i64..5_000, Just(1i64 << 40)],
            causes in prop::collection::vec((0u32..5, prop_oneof![
                0i64..3, 0i64..5_000, 0i64..1_000_000, any::<i64>().prop_map(|far| (far >> 8).abs()),
            ]), 1..800),
        ) {
            let mut windows = Windows::new(lookahead, 5);
            let mut expected: Vec<Vec<(i64, u32)>> = vec![Vec::new(); 5];
            let mut popped = expected.clone();
            let mut causes = (0u32..).zip(causes);
            for (what, (rank, time)) in causes.by_ref().take(20) {
                windows.push(time, rank, what);
                expected[rank as usize].push((time, what));
            }
            while let Some((time, rank, what)) = windows.pop() {
                popped[rank as usize].push((time, what));
                for (what, (other, after)) in causes.by_ref().take(1 + what as usize % 2) {
                    let least = if other == rank { 0 } else { lookahead };
                    let time = time.saturating_add(least).saturating_add(after) & i64::MAX >> 2;
                    if time < popped[rank as usize].last().map_or(0, |last| last.0 + least) {
                        continue;
                    }
                    windows.push(time, other, what);
                    expected[other as usize].push((time, what));
                }
            }
            for list in &mut popped {
                prop_assert!(list.is_sorted_by_key(|&(time, _)| time));
                list.sort_unstable();
            }
            expected.iter_mut().for_each(|list| list.sort_unstable());
            prop_assert_eq!(popped, expected);
        }
    }

    #[test]
    fn at_the_same_time_numbers_decide() {
        let mut windows = Windows::new(1_000, 2);
        for what in [7, 3, 5] {
            windows.push(10, 1, what);
        }
        windows.push(5, 1, 9);
        assert_eq!(windows.pop(), Some((5, 1, 9)));
        windows.push(10, 1, 4);
        let rest: Vec<_> = std::iter::from_fn(|| windows.pop()).map(|event| event.2).collect();
        assert_eq!(rest, [3, 4, 5, 7]);
    }
}
