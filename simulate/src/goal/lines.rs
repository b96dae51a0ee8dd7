//! A text line by line, without ever holding more than one.

use std::io::{BufRead, Read};

use super::error::{GoalError, SyntaxError};

/// No line of a schedule is this long; a file without line ends is something else.
const LONGEST_LINE: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct Lines<R> {
    input: R,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub fn new(input: R) -> Lines<R> {
        Lines { input, number: 0 }
    }

    /// Of the line read last, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The next line, without its end; false after the last one.
    pub fn next(&mut self, line: &mut Vec<u8>) -> Result<bool, GoalError> {
        line.clear();
        // One byte more than is allowed, to tell.
        let most = LONGEST_LINE as u64 + 1;
        let read = self.input.by_ref().take(most).read_until(b'\n', line)? > 0;
        if line.len() > LONGEST_LINE {
            return Err(GoalError::Syntax(SyntaxError {
                line: self.number + 1,
                column: LONGEST_LINE,
                problem: "this line is longer than 64 KiB".to_string(),
                hint: Some("is this a GOAL schedule?".to_string()),
            }));
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        self.number += u64::from(read);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(read)
    }
}
