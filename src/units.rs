//! Quantities as people type them: durations and thresholds.

use std::time::Duration;

/// `10s`, `5m`, `1h`, `250ms`; a bare number is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a duration: write it like 10s, 5m or 250ms");
    let (number, unit) = split(text);
    let factor = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(wrong()),
    };
    let seconds = number.parse::<f64>().map_err(|_| wrong())? * factor;
    if !(seconds > 0.0 && seconds <= 366.0 * 86_400.0) {
        return Err(format!("'{text}' is out of range: from 1ns to 366d"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// `9x` (times t_min) or a time (`1us`).
pub fn threshold(text: &str) -> Result<recorder::Threshold, String> {
    let wrong = || format!("'{text}' is not a threshold: write it like 9x or 1us");
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
    if cpus.is_empty() { Err("the list of CPUs is empty".to_owned()) } else { Ok(cpus) }
}

/// The number and the unit behind it.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    text.split_at(unit)
}

#[cfg(test)]
mod tests {
    use recorder::Threshold;

    use super::*;

    #[test]
    fn durations_take_units() {
        assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(duration("1.5h"), Ok(Duration::from_secs(5_400)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("3"), Ok(Duration::from_secs(3)));
        for bad in ["", "x", "-1s", "0s", "10 parsecs", "1e30h", "nan", "infs"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn thresholds_are_relative_or_absolute() {
        assert_eq!(threshold("9x"), Ok(Threshold::Relative(9.0)));
        assert_eq!(threshold("1us"), Ok(Threshold::Absolute(1000.0)));
        for bad in ["9", "x", "-3x", "nanx", "us", "0x"] {
            assert!(threshold(bad).is_err(), "{bad}");
        }
    }
}
