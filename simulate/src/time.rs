//! Times in messages.

use std::fmt;

/// A time in picoseconds, written in the largest unit that leaves a whole part: `1.5us`.
pub(crate) struct Time(pub i64);

/// The same for times that are too long to calculate with.
pub(crate) struct LongTime(pub i128);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        LongTime(self.0.into()).fmt(f)
    }
}

impl fmt::Display for LongTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u128); 5] = [
            ("s", 1_000_000_000_000),
            ("ms", 1_000_000_000),
            ("us", 1_000_000),
            ("ns", 1_000),
            ("ps", 1),
        ];
        let ps = self.0.unsigned_abs();
        let (name, unit) = *UNITS.iter().find(|unit| ps >= unit.1).unwrap_or(&("ps", 1));
        let sign = if self.0 < 0 { "-" } else { "" };
        // All digits: a position must be found again, and a limit may be exceeded by little.
        let digits = unit.ilog10() as usize;
        let rest = format!("{:0digits$}", ps % unit);
        let rest = rest.trim_end_matches('0');
        let point = if rest.is_empty() { "" } else { "." };
        write!(f, "{sign}{}{point}{rest}{name}", ps / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_the_largest_that_fits() {
        let text = |ps| Time(ps).to_string();
        assert_eq!(
            [0, 999, 1_500, 5_000_000, -2_050_000_000, 3_600_000_000_000_000].map(text),
            ["0ps", "999ps", "1.5ns", "5us", "-2.05ms", "3600s"]
        );
    }

    #[test]
    fn no_digit_is_lost() {
        assert_eq!(Time(12_345_678_901_000).to_string(), "12.345678901s");
        assert_eq!(Time(3_600_000_000_000_001).to_string(), "3600.000000000001s");
        assert_eq!(Time(999_999_600).to_string(), "999.9996us");
        assert_eq!(Time(i64::MIN).to_string(), "-9223372.036854775808s");
        assert_eq!(LongTime(i128::from(u64::MAX) * 1_000).to_string(), "18446744073.709551615s");
    }
}
