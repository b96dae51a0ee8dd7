//! Units of time in the headers of noise files.

use super::check::quote;

const KNOWN: &str = "ns, us, ms and s";

/// A header in lower case with `µ` as `u`. Unicode has two of them: the sign and the Greek letter.
pub(super) fn folded(header: &str) -> String {
    header.trim().to_lowercase().replace(['\u{b5}', '\u{3bc}'], "u")
}

/// Nanoseconds in a unit of a [`folded`] header.
pub(super) fn nanoseconds(unit: &str) -> Option<f64> {
    match unit.trim() {
        "ns" | "nsec" | "nanoseconds" => Some(1.0),
        "us" | "usec" | "microseconds" => Some(1e3),
        "ms" | "msec" | "milliseconds" => Some(1e6),
        "s" | "sec" | "seconds" => Some(1e9),
        _ => None,
    }
}

pub(super) fn unknown(unit: &str, header: &str) -> String {
    format!("unknown unit `{}` in `{}` (known: {KNOWN})", quote(unit), quote(header.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mu_is_a_u_and_nothing_else_is_guessed() {
        for unit in ["us", "µs", "\u{3bc}s", "ΜS", "usec"] {
            assert_eq!(nanoseconds(&folded(unit)), Some(1e3), "{unit}");
        }
        for unit in ["", "\u{fffd}s", "as", "min", "%", "cycles"] {
            assert_eq!(nanoseconds(&folded(unit)), None, "{unit}");
        }
    }
}
