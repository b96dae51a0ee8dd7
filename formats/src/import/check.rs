//! Requirements on every list of detours, whatever the file format.

use super::{ImportError, ImportedRun, Text};

const ROW: &str = "a start and a length, both non-negative numbers, in time order, without overlap";

/// Longer times are not measurements: 2^62 ns are 146 years, and still fit the trace's clock.
const MAX_NS: f64 = (1_u64 << 62) as f64;

/// Lengths and starts are rounded in files; rounding must not look like overlap.
fn slack(at: f64) -> f64 {
    1.0 + at * 1e-12
}

/// Without hundreds of digits.
fn short(value: f64) -> String {
    if value.abs() < 1e20 { value.to_string() } else { format!("{value:e}") }
}

pub(super) fn is_time(ns: f64) -> bool {
    (0.0..=MAX_NS).contains(&ns)
}

/// Adds a detour to a run, or returns why it is invalid.
pub(super) fn push(run: &mut ImportedRun, start: f64, length: f64) -> Result<(), String> {
    for (what, value) in [("start", start), ("length", length)] {
        if !value.is_finite() {
            return Err(format!("the {what} is not a number"));
        }
        if value < 0.0 {
            return Err(format!("the {what} is negative ({})", short(value)));
        }
        if value > MAX_NS {
            return Err(format!("the {what} is out of range ({} ns)", short(value)));
        }
    }
    if let Some(&(before, lasted)) = run.detours.last() {
        if start < before {
            return Err(format!("{start} ns follows {before} ns: not in time order"));
        }
        if start + slack(start) < before + lasted {
            return Err(format!(
                "the detour at {start} ns overlaps the previous one, which ends at {} ns",
                before + lasted
            ));
        }
    }
    run.detours.push((start, length));
    Ok(())
}

/// The same for a numbered line: an error with its number, or counted as skipped when lenient.
pub(super) fn push_line(
    text: &Text<'_>,
    line: u64,
    run: &mut ImportedRun,
    row: Result<(f64, f64), String>,
) -> Result<(), ImportError> {
    let pushed = row.and_then(|(start, length)| push(run, start, length));
    match pushed {
        Ok(()) => Ok(()),
        Err(_) if text.lenient => {
            run.skipped_lines += 1;
            Ok(())
        }
        Err(why) => Err(text.line_error(line, why, ROW)),
    }
}

/// A number as written in these files; `quote` keeps messages short when a line is garbage.
pub(super) fn number(word: &str) -> Result<f64, String> {
    word.trim().parse().map_err(|_| format!("`{}` is not a number", quote(word)))
}

pub(super) fn quote(text: &str) -> String {
    let mut short: String = text.chars().filter(|c| !c.is_control()).take(40).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_short_and_nan_is_no_time() {
        let refused = |start, length| push(&mut ImportedRun::default(), start, length).unwrap_err();
        assert_eq!(refused(1e300, 1.0), "the start is out of range (1e300 ns)");
        assert_eq!(refused(1.0, -1e300), "the length is negative (-1e300)");
        assert_eq!(refused(-2.5, 1.0), "the start is negative (-2.5)");
        assert_eq!(refused(f64::NAN, 1.0), "the start is not a number");
    }
}
