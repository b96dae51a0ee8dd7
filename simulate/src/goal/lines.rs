//! Reads a text line by line without holding more than one. Lines are used in place in the reader's
//! buffer; only a line split by the end of the buffer is copied.

use std::io::{BufRead, Read};

use super::error::{GoalError, SyntaxError};

/// No line of a schedule is this long; a file without newlines is something else.
const LONGEST_LINE: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct Lines<R> {
    input: R,
    number: u64,
    /// Bytes of the buffer occupied by the line returned last.
    used: usize,
    cut: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub fn new(input: R) -> Lines<R> {
        Lines { input, number: 0, used: 0, cut: Vec::new() }
    }

    /// Number of the line read last, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The next line, without its newline, and its number.
    pub fn next(&mut self) -> Result<Option<(u64, &[u8])>, GoalError> {
        self.input.consume(std::mem::take(&mut self.used));
        let end = memchr::memchr(b'\n', self.input.fill_buf()?);
        let line = if let Some(end) = end.filter(|&end| end <= LONGEST_LINE) {
            self.used = end + 1;
            // Already buffered: returned again without reading.
            &self.input.fill_buf()?[..end]
        } else {
            self.cut.clear();
            // One byte more than allowed, to detect longer lines.
            let most = LONGEST_LINE as u64 + 1;
            if self.input.by_ref().take(most).read_until(b'\n', &mut self.cut)? == 0 {
                return Ok(None);
            }
            self.cut.strip_suffix(b"\n").unwrap_or(&self.cut)
        };
        self.number += 1;
        if line.len() > LONGEST_LINE {
            return Err(GoalError::Syntax(SyntaxError {
                line: self.number,
                column: LONGEST_LINE,
                problem: "the line is longer than 64 KiB".to_string(),
                hint: Some("is this a GOAL schedule?".to_string()),
            }));
        }
        Ok(Some((self.number, line.strip_suffix(b"\r").unwrap_or(line))))
    }
}
