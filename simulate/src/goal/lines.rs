//! A text line by line, without ever holding more than one. Lines are looked at where they lie in the
//! reader's buffer; only one that the buffer's end cuts in two is copied.

use std::io::{BufRead, Read};

use super::error::{GoalError, SyntaxError};

/// No line of a schedule is this long; a file without line ends is something else.
const LONGEST_LINE: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct Lines<R> {
    input: R,
    number: u64,
    /// Of the buffer, what the line that was given last takes.
    used: usize,
    cut: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub fn new(input: R) -> Lines<R> {
        Lines { input, number: 0, used: 0, cut: Vec::new() }
    }

    /// Of the line read last, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The next line, without its end, and its number.
    pub fn next(&mut self) -> Result<Option<(u64, &[u8])>, GoalError> {
        self.input.consume(std::mem::take(&mut self.used));
        let end = memchr::memchr(b'\n', self.input.fill_buf()?);
        let line = if let Some(end) = end.filter(|&end| end <= LONGEST_LINE) {
            self.used = end + 1;
            // What is buffered already is given again, without reading.
            &self.input.fill_buf()?[..end]
        } else {
            self.cut.clear();
            // One byte more than is allowed, to tell.
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
                problem: "this line is longer than 64 KiB".to_string(),
                hint: Some("is this a GOAL schedule?".to_string()),
            }));
        }
        Ok(Some((self.number, line.strip_suffix(b"\r").unwrap_or(line))))
    }
}
