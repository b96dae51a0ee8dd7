//! What is to happen when, in the order of time; at the same time by rank, then in program order.

use super::wheel::{Key, Wheel};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// An operation of a rank goes on.
    Operation { op: u32, rank: u32 },
    /// A message reaches its target.
    Arrival { send: u32 },
}

/// Keys are the time, then the operation with a bit that puts arrivals at a rank before its
/// operations, then the rest of the event: one number, one comparison.
#[derive(Debug)]
pub(crate) struct Queue {
    wheel: Wheel,
}

impl Queue {
    pub fn new() -> Queue {
        Queue { wheel: Wheel::new() }
    }

    #[inline]
    pub fn operation(&mut self, time: i64, op: u32, rank: u32) {
        self.push(time, op << 1 | 1, rank);
    }

    /// `first` is the first operation of the message's target.
    #[inline]
    pub fn arrival(&mut self, time: i64, first: u32, send: u32) {
        self.push(time, first << 1, send);
    }

    #[inline]
    fn push(&mut self, time: i64, place: u32, what: u32) {
        // Times are never negative.
        let key: Key = (time as u128) << 64 | u128::from(place) << 32 | u128::from(what);
        self.wheel.push(key);
    }

    #[inline]
    pub fn pop(&mut self) -> Option<(i64, Event)> {
        let key = self.wheel.pop()?;
        let (time, place, what) = ((key >> 64) as i64, (key >> 32) as u32, key as u32);
        let event = if place & 1 == 1 {
            Event::Operation { op: place >> 1, rank: what }
        } else {
            Event::Arrival { send: what }
        };
        Some((time, event))
    }
}
