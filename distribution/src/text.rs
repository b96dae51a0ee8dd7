//! Numbers in text, one per line, to whole picoseconds. Written for 10^8 lines: digits are summed as
//! they come, and only a number with an exponent goes through the parser of the standard library.

use std::fmt;

/// The longest time: 13 days, so that sums of a few never overflow.
pub const LONGEST: i64 = 1 << 60;

/// A line that is not a number, and its number in the text, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    pub line: u64,
    pub text: String,
    pub why: &'static str,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' {}", self.text, self.why)
    }
}

const NOT_A_NUMBER: &str = "is not a number";
const NEGATIVE: &str = "is negative";
const TOO_LONG: &str = "is too long (maximum: 13 days)";

const POWERS: [u64; 20] = {
    let mut powers = [1; 20];
    let mut at = 1;
    while at < 20 {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

/// Appends the numbers of whole lines, and returns how many lines there were. A number is in units of
/// 10^`power` ps; empty lines and those that start with `#` are skipped.
pub fn numbers(text: &[u8], power: u32, values: &mut Vec<i64>) -> Result<u64, BadLine> {
    let (mut at, mut lines) = (0, 0);
    while at < text.len() {
        lines += 1;
        let (next, value) = plain(text, at, power);
        if let Some(value) = value {
            values.push(value);
            at = next;
            continue;
        }
        // Anything but digits with a point and a line break behind them.
        let rest = &text[at..];
        let end = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
        let line = rest[..end].trim_ascii();
        if !line.is_empty() && line[0] != b'#' {
            let bad = |why| BadLine { line: lines, text: shown(line), why };
            values.push(any(line, power).map_err(bad)?);
        }
        at += end + 1;
    }
    Ok(lines)
}

/// Digits, at most one point among them, and the end of the line; where the next line begins.
#[inline(always)]
fn plain(text: &[u8], from: usize, power: u32) -> (usize, Option<i64>) {
    let (mut at, mut mantissa, mut point) = (from, 0u64, usize::MAX);
    loop {
        let byte = if at < text.len() { text[at] } else { b'\n' };
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 {
            mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(digit));
        } else if byte == b'.' && point == usize::MAX {
            point = at;
        } else {
            let decimals = if point == usize::MAX { 0 } else { at - point - 1 };
            let digits = at - from - usize::from(point != usize::MAX);
            // Up to 18 digits cannot overflow.
            if byte != b'\n' || digits == 0 || digits > 18 {
                return (at, None);
            }
            return (at + 1, scaled(mantissa, decimals as u32, power));
        }
        at += 1;
    }
}

#[inline(always)]
fn scaled(mantissa: u64, decimals: u32, power: u32) -> Option<i64> {
    let ps = match decimals <= power {
        true => mantissa.checked_mul(POWERS[(power - decimals) as usize])?,
        false => {
            let divisor = POWERS[(decimals - power).min(19) as usize];
            mantissa / divisor + u64::from(mantissa % divisor >= divisor.div_ceil(2))
        }
    };
    i64::try_from(ps).ok().filter(|ps| *ps <= LONGEST)
}

/// Any number that Rust reads.
fn any(line: &[u8], power: u32) -> Result<i64, &'static str> {
    let text = std::str::from_utf8(line).map_err(|_| NOT_A_NUMBER)?;
    let number: f64 = text.parse().map_err(|_| NOT_A_NUMBER)?;
    of_number(number, power)
}

/// A number in units of 10^`power` ps as whole picoseconds.
pub fn of_number(number: f64, power: u32) -> Result<i64, &'static str> {
    if number.is_nan() {
        return Err(NOT_A_NUMBER);
    }
    if number < 0.0 {
        return Err(NEGATIVE);
    }
    let ps = (number * POWERS[power.min(19) as usize] as f64).round();
    if ps > LONGEST as f64 { Err(TOO_LONG) } else { Ok(ps as i64) }
}

/// The beginning of a line, for a message.
fn shown(line: &[u8]) -> String {
    const LONGEST: usize = 40;
    let text = String::from_utf8_lossy(line);
    match text.chars().count() > LONGEST {
        true => text.chars().take(LONGEST).chain("...".chars()).collect(),
        false => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<i64>, BadLine> {
        let mut values = Vec::new();
        numbers(text.as_bytes(), 6, &mut values)?;
        Ok(values)
    }

    #[test]
    fn numbers_in_any_form_are_those_of_the_standard_parser() {
        let text = "# us\n5\n5.701\n\n 7.5 \r\n.25\n3.\n1e2\n1E-3\n+4\n0.0000004\n0.0000005\n-0\n\
                    123456789012345678e-12\n1.0000000000000000000001\n12";
        let mut expected = Vec::new();
        for line in text.lines().map(str::trim) {
            if let Ok(number) = line.parse::<f64>() {
                expected.push((number * 1e6).round() as i64);
            }
        }
        assert_eq!(read(text).unwrap(), expected);
        assert_eq!(expected.len(), 14);
    }

    #[test]
    fn decimals_are_exact_where_binary_fractions_are_not() {
        for i in 0..100_000u64 {
            let us = random::draw(5, i) % 1_000_000_000;
            let text = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
            assert_eq!(read(&text).unwrap(), [us as i64], "{text}");
        }
    }

    #[test]
    fn a_bad_line_is_named() {
        for (text, line, why) in [
            ("1\n2,3\n", 2, NOT_A_NUMBER),
            ("1\n\n-2\n", 3, NEGATIVE),
            ("nan\n", 1, NOT_A_NUMBER),
            ("inf\n", 1, TOO_LONG),
            ("99999999999999999999\n", 1, TOO_LONG),
            ("1\n1.2.3\n", 2, NOT_A_NUMBER),
            ("\u{fffd}\n", 1, NOT_A_NUMBER),
        ] {
            let bad = read(text).unwrap_err();
            assert_eq!((bad.line, bad.why), (line, why), "{text}");
        }
    }
}
