//! GOAL: the text and binary formats for programs as schedules of sends, receives and calcs. Bytes in,
//! [`Schedule`](crate::event::Schedule) out, and back.
//!
//! The text format is that of LogGOPSim, with two extensions: lines may be indented, and comments may
//! appear wherever white space may. Both readers stream: only the schedule is kept.

mod binary;
mod cursor;
mod error;
mod labels;
mod lines;
mod read_binary;
mod read_text;
mod stats;
mod write_binary;
mod write_text;

pub use error::{GoalError, SyntaxError, WriteError};
pub use read_binary::read_binary;
pub use read_text::read_text;
pub use stats::Stats;
pub use write_binary::write_binary;
pub use write_text::write_text;

use std::io::{BufRead, Write};

use crate::event::{Action, Schedule};

/// The unit of times in a file, in picoseconds. LogGOPSim's files use nanoseconds.
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

/// The format of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    Binary,
}

/// Detects the format from the first bytes: a binary schedule begins with its cookie, and no text has
/// its first two bytes.
pub fn form(begin: &[u8]) -> Form {
    let binary = begin.len() >= 2 && binary::COOKIES.iter().any(|c| begin.starts_with(&c[..2]));
    if binary { Form::Binary } else { Form::Text }
}

/// Text or binary, detected.
pub fn read(mut input: impl BufRead, unit: CalcUnit) -> Result<Schedule, GoalError> {
    match form(input.fill_buf()?) {
        Form::Binary => read_binary(input, unit),
        Form::Text => read_text(input, unit),
    }
}

/// In either format. Whether all calcs can be expressed in the unit is checked first, so that no
/// partial output is left behind.
pub fn write(
    form: Form,
    schedule: &Schedule,
    unit: CalcUnit,
    output: impl Write,
) -> Result<(), WriteError> {
    for op in 0..schedule.operations() as u32 {
        match schedule.operation(op).action {
            Action::Calc { ps } => {
                in_units(schedule, op, ps, unit)?;
            }
            Action::Choice { .. } | Action::Request => return Err(choice(schedule, op)),
            Action::Send { .. } | Action::Recv { .. } => {}
        }
    }
    match form {
        Form::Binary => write_binary(schedule, unit, output),
        Form::Text => write_text(schedule, unit, output),
    }
}

/// GOAL has only sends, receives and calcs.
fn choice(schedule: &Schedule, op: u32) -> WriteError {
    let place = schedule.place(op);
    WriteError::Choice { rank: place.rank, index: place.index }
}

/// The length of a calc in units.
fn in_units(schedule: &Schedule, op: u32, ps: i64, unit: CalcUnit) -> Result<u64, WriteError> {
    unit.to_units(ps).map(|units| units as u64).ok_or_else(|| {
        let place = schedule.place(op);
        WriteError::Unit { rank: place.rank, index: place.index, ps, unit_ps: unit.ps() }
    })
}
