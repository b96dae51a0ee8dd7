//! Times in messages.

use std::fmt;

/// A time in picoseconds, written in the largest unit that leaves a whole part: `1.5us`.
pub(crate) struct Time(pub i64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, i64); 5] = [
            ("s", 1_000_000_000_000),
            ("ms", 1_000_000_000),
            ("us", 1_000_000),
            ("ns", 1_000),
            ("ps", 1),
        ];
        let fits = |unit: &&(&str, i64)| self.0.unsigned_abs() >= unit.1.unsigned_abs();
        let (name, ps) = *UNITS.iter().find(fits).unwrap_or(&("ps", 1));
        // Rounded to thousandths of the unit.
        let value = (self.0 as f64 / ps as f64 * 1e3).round() / 1e3;
        write!(f, "{value}{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_the_largest_that_fits() {
        let text = |ps| Time(ps).to_string();
        assert_eq!(
            [0, 999, 1_500, 5_000_000, -2_000_000_000, 3_600_000_000_000_000].map(text),
            ["0ps", "999ps", "1.5ns", "5us", "-2ms", "3600s"]
        );
    }
}
