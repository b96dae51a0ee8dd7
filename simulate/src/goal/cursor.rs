//! One line of GOAL text, token by token.

use super::error::SyntaxError;

/// An error with its column; the reader adds the line.
pub(super) type Result<T> = std::result::Result<T, SyntaxError>;

/// Bytes of words: a table, since every byte of a schedule is tested.
static IN_WORD: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric() || byte as u8 == b'_';
        byte += 1;
    }
    table
};

#[derive(Debug)]
pub(super) struct Cursor<'a> {
    line: &'a [u8],
    at: usize,
    number: u64,
}

impl<'a> Cursor<'a> {
    /// `in_comment`: whether a comment continues from the previous line; updated for the next one.
    pub fn new(line: &'a [u8], number: u64, in_comment: &mut bool) -> Cursor<'a> {
        let mut cursor = Cursor { line, at: 0, number };
        if *in_comment {
            cursor.close_comment(in_comment);
        }
        cursor.skip(in_comment);
        cursor
    }

    /// A byte order mark is part of neither the text nor the column count.
    pub fn skip_byte_order_mark(&mut self) -> bool {
        let first = self.number == 1 && self.at == 0;
        match self.line.strip_prefix(b"\xef\xbb\xbf").filter(|_| first) {
            Some(line) => {
                self.line = line;
                true
            }
            None => false,
        }
    }

    fn close_comment(&mut self, in_comment: &mut bool) {
        let rest = &self.line[self.at..];
        match rest.windows(2).position(|pair| pair == b"*/") {
            Some(end) => {
                *in_comment = false;
                self.at += end + 2;
            }
            None => self.at = self.line.len(),
        }
    }

    /// White space and comments.
    #[inline]
    pub fn skip(&mut self, in_comment: &mut bool) {
        while let Some(&byte) = self.line.get(self.at) {
            match byte {
                b' ' | b'\t' => self.at += 1,
                b'/' => match self.line.get(self.at + 1) {
                    Some(b'/') => self.at = self.line.len(),
                    Some(b'*') => {
                        self.at += 2;
                        *in_comment = true;
                        self.close_comment(in_comment);
                    }
                    _ => return,
                },
                _ => return,
            }
        }
    }

    pub fn at_end(&self) -> bool {
        self.at >= self.line.len()
    }

    pub fn peek(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    pub fn eat(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    /// Letters, digits and underscores; empty if there are none.
    #[inline]
    pub fn word(&mut self) -> &'a [u8] {
        let rest = &self.line[self.at..];
        let end = rest.iter().position(|&byte| !IN_WORD[usize::from(byte)]);
        let word = &rest[..end.unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    /// An unsigned decimal number.
    #[inline]
    pub fn number(&mut self, what: &str) -> Result<u64> {
        let rest = &self.line[self.at..];
        let (mut value, mut digits) = (0u64, 0);
        while let Some(digit @ b'0'..=b'9') = rest.get(digits) {
            let digit = u64::from(digit - b'0');
            // Nineteen digits always fit.
            value = if digits < 19 {
                value * 10 + digit
            } else {
                let next = value.checked_mul(10).and_then(|ten| ten.checked_add(digit));
                next.ok_or_else(|| self.error(format!("{what} is too large")))?
            };
            digits += 1;
        }
        if digits == 0 {
            return Err(match rest.first() {
                Some(b'-') => self.error(format!("{what} must not be negative")),
                _ => self.expected(what),
            });
        }
        self.at += digits;
        Ok(value)
    }

    /// The error if the text at `mark` was meant as part of the preceding number, as in `5.5`, `1e6`
    /// and `0x2`. Checked only on errors, not for every number.
    pub fn not_whole(&self, mark: usize) -> Option<SyntaxError> {
        let here = *self.line.get(mark)?;
        let digits =
            self.line[..mark].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 || !(here == b'.' || IN_WORD[usize::from(here)]) {
            return None;
        }
        let from = mark - digits;
        let from = from - usize::from(self.line[..from].ends_with(b"-"));
        let text = self.line[from..].split(u8::is_ascii_whitespace).next()?;
        let text: String = String::from_utf8_lossy(text).chars().take(20).collect();
        Some(self.error_from(from, format!("expected a whole number, found {text:?}")))
    }

    pub fn error(&self, problem: impl Into<String>) -> SyntaxError {
        SyntaxError { line: self.number, column: self.at + 1, problem: problem.into(), hint: None }
    }

    /// At the start of something already read.
    pub fn error_at(&self, back: usize, problem: impl Into<String>) -> SyntaxError {
        let error = self.error(problem);
        SyntaxError { column: error.column.saturating_sub(back).max(1), ..error }
    }

    /// The current position, for [`Cursor::error_from`].
    pub fn mark(&self) -> usize {
        self.at
    }

    pub fn error_from(&self, mark: usize, problem: impl Into<String>) -> SyntaxError {
        SyntaxError { column: mark + 1, ..self.error(problem) }
    }

    pub fn expected(&self, what: &str) -> SyntaxError {
        let rest = &self.line[self.at.min(self.line.len())..];
        let shown: String = String::from_utf8_lossy(rest).chars().take(20).collect();
        self.error(match shown.as_str() {
            "" => format!("expected {what}, found end of line"),
            shown => format!("expected {what}, found {shown:?}"),
        })
    }
}

impl SyntaxError {
    pub(super) fn hint(self, hint: impl Into<String>) -> SyntaxError {
        SyntaxError { hint: Some(hint.into()), ..self }
    }
}
