//! Errors of a run, with the place in the schedule.

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
    #[error("rank {rank}: the run exceeds 13 days of simulated time; simulate a shorter run")]
    TooLong { rank: u32 },
    #[error("{receive} is too small for the message from {send}")]
    TooSmall { receive: Box<Place>, send: Box<Place> },
    #[error("{place}: {source}")]
    Message { place: Box<Place>, source: ParamsError },
    #[error("{}", no_message(.0))]
    NoMessage(Box<Unmet>),
    #[error("{}", no_receive(.0))]
    NoReceive(Box<Unmet>),
    #[error("too many operations to trace waits: {operations}; simulate fewer ranks")]
    TooManyToLog { operations: usize },
    #[error("waits cannot be traced if ranks of one node have a network of their own; omit either")]
    LocalNotLogged,
    #[error(
        "LogGOPSim's rules have no choices between requests; keep the traced order (--deterministic)"
    )]
    Choices,
    #[error("a schedule cannot continue a run: {0}; write the iterations out as one schedule")]
    NotContinued(&'static str),
    #[error("deadlock: {}", chain(.0))]
    Deadlock(Vec<Wait>),
}

impl EventError {
    /// The operations that it names.
    pub fn places(&self) -> Vec<&Place> {
        match self {
            EventError::NoMessage(unmet) | EventError::NoReceive(unmet) => {
                let Unmet { place, taken, left_over, .. } = &**unmet;
                std::iter::once(place).chain(taken).chain(left_over).collect()
            }
            EventError::TooSmall { receive, send } => vec![receive, send],
            EventError::Message { place, .. } => vec![place],
            EventError::Deadlock(waits) => waits.iter().map(|wait| &wait.place).collect(),
            _ => Vec::new(),
        }
    }
}

/// An unmatched receive or send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    pub place: Place,
    /// Number of further unmatched ones.
    pub more: u64,
    /// A possible counterpart that matched another operation.
    pub taken: Option<Place>,
    /// An unmatched operation that may be the intended counterpart.
    pub left_over: Option<Place>,
}

/// One step in a cycle of waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    pub place: Place,
    pub reason: Reason,
}

/// Why an operation waits for the next one in the cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It requires the next one.
    Requires,
    /// It requires the start of the next one.
    RequiresStart,
    /// It receives the message of the next one.
    Message,
    /// It completes only with that receive.
    Receive,
    /// It waits for one of several requests, among them the next one.
    Request,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Requires => "requires",
            Reason::RequiresStart => "irequires",
            Reason::Message => "waits for the message from",
            Reason::Request => "waits for the",
            Reason::Receive => "is not buffered and waits for",
        })
    }
}

fn no_message(unmet: &Unmet) -> String {
    let Unmet { place, more, taken, left_over } = unmet;
    let text = match taken {
        None => format!("{place} has no matching send"),
        Some(send) => format!("{place} has no matching send: another receive matched {send}"),
    };
    text + &others(more, "receive") + &left(left_over)
}

fn no_receive(unmet: &Unmet) -> String {
    let Unmet { place, more, taken, left_over } = unmet;
    let text = match taken {
        None => format!("{place} has no matching receive"),
        Some(receive) => {
            format!("{place} has no matching receive: another send matched {receive}")
        }
    };
    text + &others(more, "send") + &left(left_over)
}

fn left(over: &Option<Place>) -> String {
    over.as_ref().map_or(String::new(), |place| format!("; also unmatched: {place}"))
}

fn others(more: &u64, what: &str) -> String {
    match more {
        0 => String::new(),
        1 => format!(" (and 1 other {what})"),
        more => format!(" (and {more} other {what}s)"),
    }
}

/// Long cycles are truncated: the first few places suffice to find the error.
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
