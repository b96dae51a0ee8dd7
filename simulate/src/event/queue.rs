//! The event queue. Ties in time are ordered by rank, arrivals first, then in program order; with
//! lookahead from the network, rank by rank ([`Windows`]), otherwise globally by time, where choices come
//! last: what other ranks do at the same time may complete their requests.

use super::{
    wheel::{Key, Wheel},
    windows::Windows,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// An operation of a rank proceeds.
    Operation { op: u32, rank: u32 },
    /// A choice may be decided.
    Choice { op: u32 },
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

/// Marks an operation rather than an arrival in a window's number. There are fewer operations than
/// this.
const OPERATION: u32 = 1 << 31;

/// After all operations at the same time.
const LAST: u32 = u32::MAX;

impl Queue {
    /// `lookahead`: minimum time until an action of one rank affects another; 0 if unknown.
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

    /// A choice may be decided at this time.
    pub fn choice(&mut self, time: i64, op: u32, rank: u32) {
        match self {
            Queue::Windows(windows) => windows.push(time, rank, op | OPERATION),
            Queue::Time(wheel) => wheel.push(key(time, LAST, op)),
        }
    }

    /// `first` is the first operation of `target`, the receiver of the message.
    #[inline]
    pub fn arrival(&mut self, time: i64, target: u32, first: u32, send: u32) {
        match self {
            Queue::Windows(windows) => windows.push(time, target, send),
            Queue::Time(wheel) => wheel.push(key(time, first << 1, send)),
        }
    }

    /// The event this many ahead, if known: operation and rank.
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
                if place == LAST {
                    return Some((time, Event::Choice { op: what }));
                }
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
