//! What is to happen when. At the same time by rank, arrivals first, then in program order; where the
//! network gives lookahead, one rank after the other ([`Windows`]), else all in the order of time.

use super::{
    wheel::{Key, Wheel},
    windows::Windows,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// An operation of a rank goes on.
    Operation { op: u32, rank: u32 },
    /// A message reaches its target.
    Arrival { send: u32 },
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a run has one of them")]
pub(crate) enum Queue {
    Windows(Windows),
    /// Keys are the time, then the operation with a bit that puts arrivals at a rank before its
    /// operations, then the rest of the event: one number, one comparison.
    Time(Wheel),
}

/// Of a number in a window: an operation, not an arrival. There are fewer operations than that.
const OPERATION: u32 = 1 << 31;

impl Queue {
    /// `lookahead`: how much later, at the least, what a rank does reaches another one; 0 if nothing is
    /// known.
    pub fn new(lookahead: i64, ranks: u32) -> Queue {
        if lookahead > 0 {
            Queue::Windows(Windows::new(lookahead, ranks))
        } else {
            Queue::Time(Wheel::new())
        }
    }

    #[inline]
    pub fn operation(&mut self, time: i64, op: u32, rank: u32) {
        match self {
            Queue::Windows(windows) => windows.push(time, rank, op | OPERATION),
            Queue::Time(wheel) => wheel.push(key(time, op << 1 | 1, rank)),
        }
    }

    /// `first` is the first operation of `target`, which the message is for.
    #[inline]
    pub fn arrival(&mut self, time: i64, target: u32, first: u32, send: u32) {
        match self {
            Queue::Windows(windows) => windows.push(time, target, send),
            Queue::Time(wheel) => wheel.push(key(time, first << 1, send)),
        }
    }

    /// What is about to happen, that many events ahead, if that is known: operation and rank.
    #[inline]
    pub fn upcoming(&self, events: usize) -> Option<(u32, u32)> {
        match self {
            Queue::Windows(windows) => {
                windows.upcoming(events).map(|(rank, what)| (what & !OPERATION, rank))
            }
            Queue::Time(_) => None,
        }
    }

    #[inline]
    pub fn pop(&mut self) -> Option<(i64, Event)> {
        let (time, op, rank) = match self {
            Queue::Windows(windows) => {
                let (time, rank, what) = windows.pop()?;
                if what < OPERATION {
                    return Some((time, Event::Arrival { send: what }));
                }
                (time, what & !OPERATION, rank)
            }
            Queue::Time(wheel) => {
                let key = wheel.pop()?;
                let (time, place, what) = ((key >> 64) as i64, (key >> 32) as u32, key as u32);
                if place & 1 == 0 {
                    return Some((time, Event::Arrival { send: what }));
                }
                (time, place >> 1, what)
            }
        };
        Some((time, Event::Operation { op, rank }))
    }
}

/// Times are never negative.
#[inline]
fn key(time: i64, place: u32, what: u32) -> Key {
    (time as u128) << 64 | u128::from(place) << 32 | u128::from(what)
}
