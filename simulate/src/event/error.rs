//! What can go wrong in a run, said so that the author of the schedule finds the place.

use std::fmt;

use thiserror::Error;

use super::schedule::Place;
use crate::{loggops::ParamsError, noise::WorkError};

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EventError {
    #[error(transparent)]
    Params(#[from] ParamsError),
    #[error("rank {rank}: {source}")]
    Noise { rank: u32, source: WorkError },
    #[error("rank {rank}: the run takes longer than 13 days of simulated time: simulate less")]
    TooLong { rank: u32 },
    #[error("{receive} is too small for the message of {send}")]
    TooSmall { receive: Box<Place>, send: Box<Place> },
    #[error("{place}: {source}")]
    Message { place: Box<Place>, source: ParamsError },
    #[error("{}", no_message(.0))]
    NoMessage(Box<Unmet>),
    #[error("{}", no_receive(.0))]
    NoReceive(Box<Unmet>),
    #[error(
        "{operations} operations are too many to say what each waited for: simulate fewer ranks"
    )]
    TooManyToLog { operations: usize },
    #[error("deadlock: {}", chain(.0))]
    Deadlock(Vec<Wait>),
}

/// A receive without message, or a message without receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    pub place: Place,
    /// How many others there are.
    pub more: u64,
    /// What could have been its other end, but is that of another.
    pub taken: Option<Place>,
    /// What has no other end either.
    pub left_over: Option<Place>,
}

/// One step in a circle of waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    pub place: Place,
    pub reason: Reason,
}

/// Why an operation waits for the next one in the circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It requires that.
    Requires,
    /// It requires that to have begun.
    RequiresStart,
    /// It receives what that sends.
    Message,
    /// It ends only with that receive.
    Receive,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Requires => "requires",
            Reason::RequiresStart => "irequires",
            Reason::Message => "waits for the message of",
            Reason::Receive => "is not buffered and ends only with",
        })
    }
}

fn no_message(unmet: &Unmet) -> String {
    let Unmet { place, more, taken, left_over } = unmet;
    let text = match taken {
        None => format!("{place} waits for a message that nobody sends"),
        Some(send) => format!("{place} gets no message: another receive took that of {send}"),
    };
    text + &others(more, "receive") + &left(left_over)
}

fn no_receive(unmet: &Unmet) -> String {
    let Unmet { place, more, taken, left_over } = unmet;
    let text = match taken {
        None => format!("nobody receives the message of {place}"),
        Some(receive) => {
            format!("nobody receives the message of {place}: another one went to {receive}")
        }
    };
    text + &others(more, "message") + &left(left_over)
}

fn left(over: &Option<Place>) -> String {
    over.as_ref().map_or(String::new(), |place| format!("; left over, too: {place}"))
}

fn others(more: &u64, what: &str) -> String {
    match more {
        0 => String::new(),
        1 => format!(" (and 1 other {what})"),
        more => format!(" (and {more} other {what}s)"),
    }
}

/// Long circles are cut: the first few places are what one needs to find the mistake.
const SHOWN: usize = 8;

fn chain(waits: &[Wait]) -> String {
    let mut text = String::new();
    for wait in waits.iter().take(SHOWN) {
        text += &format!("{} {} ", wait.place, wait.reason);
    }
    if waits.len() > SHOWN {
        text += &format!("... ({} more) ", waits.len() - SHOWN);
    }
    match waits.first() {
        Some(first) => text + &format!("rank {} {} again", first.place.rank, first.place.label),
        None => text,
    }
}
