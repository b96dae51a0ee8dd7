//! Parsers for quantities that only recording needs; all others are in [`study::units`].

use std::time::Duration;

pub use study::units::*;

/// Refresh interval: at most ten updates per second, and at least one per minute.
pub fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if !(Duration::from_millis(100)..=Duration::from_secs(60)).contains(&interval) {
        return Err(format!("'{text}' is out of range (100ms to 60s)"));
    }
    Ok(interval)
}

/// `9x` (times t_min) or a time (`1us`).
pub fn threshold(text: &str) -> Result<recorder::Threshold, String> {
    let wrong = || format!("'{text}' is not a threshold (expected e.g. 9x or 1us)");
    if let Some(factor) = text.strip_suffix('x') {
        let factor: f64 = factor.parse().map_err(|_| wrong())?;
        if !(factor.is_finite() && factor >= 1.0) {
            return Err(wrong());
        }
        return Ok(recorder::Threshold::Relative(factor));
    }
    let (_, unit) = split(text);
    if unit.is_empty() {
        return Err(wrong());
    }
    Ok(recorder::Threshold::Absolute(duration(text).map_err(|_| wrong())?.as_nanos() as f64))
}

pub fn cpus(text: &str) -> Result<recorder::CpuSet, String> {
    let cpus = recorder::parse_cpus(text).map_err(|error| error.to_string())?;
    if cpus.is_empty() { Err("the CPU list is empty".to_owned()) } else { Ok(cpus) }
}

#[cfg(test)]
mod tests {
    use recorder::Threshold;

    use super::*;

    #[test]
    fn thresholds_are_relative_or_absolute() {
        assert_eq!(threshold("9x"), Ok(Threshold::Relative(9.0)));
        assert_eq!(threshold("1us"), Ok(Threshold::Absolute(1000.0)));
        for bad in ["9", "x", "-3x", "nanx", "us", "0x"] {
            assert!(threshold(bad).is_err(), "{bad}");
        }
    }
}
