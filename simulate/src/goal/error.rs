//! Errors in a GOAL file, with position and hint.

use std::{fmt, io};

use thiserror::Error;

use crate::{event::BuildError, time::Time};

#[derive(Debug, Error)]
pub enum GoalError {
    #[error("read failed: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error("byte {offset}: {what}")]
    Binary { offset: u64, what: BinaryProblem },
}

/// A position in a text and what is wrong there.
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
    #[error("not a binary GOAL schedule: the cookie is {found:#x}, expected 0x107f")]
    Cookie { found: u64 },
    #[error("schedule consumed by a LogGOPSim run with --save-mem; convert the text again")]
    UsedUp,
    #[error("unexpected end of file in {within}")]
    Truncated { within: &'static str },
    #[error("rank {rank} at byte {begin} overlaps the previous rank")]
    Overlap { rank: u32, begin: u64 },
    #[error("rank {rank} needs {needed} bytes for its operations but has {room}")]
    TooShort { rank: u32, needed: u64, room: u64 },
    #[error("rank {rank}, operation {index}: unknown kind {kind} (1 send, 2 recv, 3 calc)")]
    Kind { rank: u32, index: u32, kind: u8 },
    #[error("rank {rank}, operation {index}: {what} {value} is out of bounds")]
    Bounds { rank: u32, index: u32, what: &'static str, value: u64 },
    #[error("rank {rank}, operation {index}: {stated} dependencies declared but {found} listed")]
    Dependencies { rank: u32, index: u32, stated: u32, found: u32 },
}

#[derive(Debug, Error)]
pub enum WriteError {
    #[error("write failed: {0}")]
    Io(#[from] io::Error),
    #[error(
        "rank {rank}, operation {index}: {} is not a multiple of the unit ({}); use a smaller unit",
        Time(*ps),
        Time(*unit_ps)
    )]
    Unit { rank: u32, index: u32, ps: i64, unit_ps: i64 },
    #[error(
        "rank {rank}, operation {index}: GOAL has no choices between requests; keep the traced order"
    )]
    Choice { rank: u32, index: u32 },
}
