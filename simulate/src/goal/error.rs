//! What can be wrong with a GOAL file, with the place and a hint.

use std::{fmt, io};

use thiserror::Error;

use crate::event::BuildError;

#[derive(Debug, Error)]
pub enum GoalError {
    #[error("reading failed: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error("byte {offset}: {what}")]
    Binary { offset: u64, what: BinaryProblem },
}

/// A place in a text and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// From 1.
    pub line: u64,
    /// From 1, in bytes.
    pub column: usize,
    pub problem: String,
    pub hint: Option<String>,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.problem)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for SyntaxError {}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BinaryProblem {
    #[error("this is no binary GOAL schedule: it begins with {found:#x}, not with 4223")]
    Cookie { found: u64 },
    #[error(
        "the schedule was used up by a run of LogGOPSim with --save-mem: convert the text again"
    )]
    UsedUp,
    #[error("the file ends here, in the middle of {within}")]
    Truncated { within: &'static str },
    #[error("rank {rank} begins at byte {begin}, before the end of the one before it")]
    Overlap { rank: u32, begin: u64 },
    #[error("rank {rank} has {needed} bytes of operations but room for {room}")]
    TooShort { rank: u32, needed: u64, room: u64 },
    #[error("rank {rank}, operation {index}: there is no kind {kind} (1 send, 2 recv, 3 calc)")]
    Kind { rank: u32, index: u32, kind: u8 },
    #[error("rank {rank}, operation {index}: {what} {value} is out of bounds")]
    Bounds { rank: u32, index: u32, what: &'static str, value: u64 },
    #[error("rank {rank}, operation {index}: {stated} dependencies are stated, {found} are listed")]
    Dependencies { rank: u32, index: u32, stated: u32, found: u32 },
}

#[derive(Debug, Error)]
pub enum WriteError {
    #[error("writing failed: {0}")]
    Io(#[from] io::Error),
    #[error(
        "rank {rank}, operation {index}: {ps} ps are not a whole number of the unit ({unit_ps} ps): \
         write with a smaller one"
    )]
    Unit { rank: u32, index: u32, ps: i64, unit_ps: i64 },
}
