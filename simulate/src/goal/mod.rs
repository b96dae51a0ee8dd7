//! GOAL: the text and binary forms in which the field writes programs as schedules of sends,
//! receives and calcs. Bytes in, [`Schedule`](crate::event::Schedule) out, and back.
//!
//! The text form is that of the peer, with two liberties: lines may be indented, and comments may
//! stand wherever white space may. Both readers stream: nothing is kept but the schedule.

mod binary;
mod cursor;
mod error;
mod labels;
mod lines;
mod read_binary;
mod read_text;
mod write_binary;
mod write_text;

pub use error::{GoalError, SyntaxError, WriteError};
pub use read_binary::read_binary;
pub use read_text::read_text;
pub use write_binary::write_binary;
pub use write_text::write_text;

use std::io::BufRead;

use crate::event::Schedule;

/// What a time in a file counts, in picoseconds. The peer's files count nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalcUnit(i64);

impl Default for CalcUnit {
    fn default() -> CalcUnit {
        CalcUnit(1_000)
    }
}

impl CalcUnit {
    /// None unless positive and at most an hour.
    pub fn from_ps(ps: i64) -> Option<CalcUnit> {
        (1..=3_600_000_000_000_000).contains(&ps).then_some(CalcUnit(ps))
    }

    pub fn ps(self) -> i64 {
        self.0
    }

    fn to_ps(self, units: u64) -> Option<i64> {
        let ps = i64::try_from(units).ok()?.checked_mul(self.0)?;
        (ps <= crate::event::LONGEST).then_some(ps)
    }

    fn to_units(self, ps: i64) -> Option<i64> {
        (ps % self.0 == 0).then_some(ps / self.0)
    }
}

/// Text or binary, whichever it is: a binary schedule begins with its cookie, and no text has a zero
/// byte in its first eight.
pub fn read(mut input: impl BufRead, unit: CalcUnit) -> Result<Schedule, GoalError> {
    let begin = input.fill_buf()?;
    if begin.len() >= 2 && binary::COOKIES.iter().any(|cookie| begin.starts_with(&cookie[..2])) {
        read_binary(input, unit)
    } else {
        read_text(input, unit)
    }
}
