//! Parsers for quantities: times, sizes, rates, rank counts.

use std::time::Duration;

/// `10s`, `5m`, `1h`, `250ms`; a bare number is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a duration (expected e.g. 10s, 5m or 250ms)");
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
        return Err(format!("'{text}' is out of range (1ns to 366d)"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// `5%`, `0.5 %`, or `5`.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end().parse::<f64>();
    let number = number.ok().filter(|pct| (0.0..=1e6).contains(pct));
    number.ok_or_else(|| format!("'{text}' is not a percentage (expected e.g. 5%)"))
}

/// A time in picoseconds: `4.77us`, `0`, `1ns`; a bare number other than 0 is rejected.
pub fn picoseconds(text: &str) -> Result<i64, String> {
    scaled_time(text, 1e12)
}

/// The same for values that must not be rounded: `0.5ps` is rejected.
pub fn whole_picoseconds(text: &str) -> Result<i64, String> {
    let ps = exact_time(text, 1e12)?;
    // 4.77us is a whole number, although 4.77 and its factor have rounding errors in their last bits.
    if (ps - ps.round()).abs() > ps * 1e-15 {
        return Err(format!("'{text}' is not a whole number of picoseconds"));
    }
    Ok(ps.round() as i64)
}

/// A time in femtoseconds, for costs per byte: `2.67ns`, `92ps`.
pub fn femtoseconds(text: &str) -> Result<i64, String> {
    scaled_time(text, 1e15)
}

fn scaled_time(text: &str, per_second: f64) -> Result<i64, String> {
    Ok(exact_time(text, per_second)?.round() as i64)
}

/// Between 0 and 4e18, not rounded.
fn exact_time(text: &str, per_second: f64) -> Result<f64, String> {
    let wrong = || format!("'{text}' is not a time (expected e.g. 4.77us, 200ns or 92ps)");
    let (number, unit) = split(text);
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "fs" => 1e-15,
        "ps" => 1e-12,
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "" if number == 0.0 => 0.0,
        _ => return Err(wrong()),
    };
    let scaled = number * (seconds * per_second);
    if number < 0.0 {
        return Err(format!("'{text}' is negative"));
    }
    if !(scaled.is_finite() && scaled < 4e18) {
        return Err(format!("'{text}' is too long"));
    }
    Ok(scaled)
}

/// The period of a rate (`1000Hz`, `10kHz`, `1000`), or a period itself (`1ms`).
pub fn period(text: &str) -> Result<i64, String> {
    let (number, unit) = split(text);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "hz" | "" => 1.0,
        "khz" => 1e3,
        "mhz" => 1e6,
        _ => return picoseconds(text),
    };
    let rate: f64 = number.parse().map_err(|_| format!("'{text}' is not a rate (e.g. 1000Hz)"))?;
    let period = (1e12 / (rate * factor)).round();
    if !(rate > 0.0 && (1.0..4e18).contains(&period)) {
        return Err(format!(
            "'{text}' is out of range (expected a rate above 0 such as 100Hz, or a period such as 10ms)"
        ));
    }
    Ok(period as i64)
}

/// A size in bytes: `1`, `65kB`, `8KiB`, `1MiB`.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size (expected e.g. 16, 65kB, 8KiB or 1MiB)");
    let (number, unit) = split(text);
    let factor = match unit {
        "" | "B" | "b" => 1.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(wrong()),
    };
    whole(number, factor).ok_or_else(wrong)
}

/// A count of ranks: `1000`, `64Ki`, `1Mi`, `2^20`.
pub fn rank_count(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a rank count (expected e.g. 1000, 64Ki or 2^20)");
    if let Some(power) = text.trim().strip_prefix("2^") {
        let power: u32 = power.parse().map_err(|_| wrong())?;
        return 1u64.checked_shl(power).filter(|_| power < 64).ok_or_else(wrong);
    }
    let (number, unit) = split(text);
    let factor = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(wrong()),
    };
    whole(number, factor).ok_or_else(wrong)
}

/// Rank counts: `1000,5000`, `8Mi`, and `2..1048576` for the powers of two in that range.
pub fn ranks(text: &str) -> Result<Vec<u64>, String> {
    let mut list = Vec::new();
    for part in text.split(',') {
        let Some((from, to)) = part.split_once("..") else {
            list.push(rank_count(part)?);
            continue;
        };
        let (from, to) = (rank_count(from)?, rank_count(to.trim_start_matches('='))?);
        let powers = (0..63).map(|power| 1u64 << power).filter(|ranks| (from..=to).contains(ranks));
        let before = list.len();
        list.extend(powers);
        if list.len() == before {
            return Err(format!("no power of two in range '{part}'"));
        }
    }
    if let Some(0) = list.iter().min() {
        return Err(format!("'{text}' contains 0 ranks (minimum: 1)"));
    }
    Ok(list)
}

/// A list of sizes: `1,1kB,1MiB`.
pub fn sizes(text: &str) -> Result<Vec<u64>, String> {
    text.split(',').map(size).collect()
}

fn whole(number: &str, factor: f64) -> Option<u64> {
    let value = number.trim().parse::<f64>().ok()? * factor;
    let whole = (0.0..9e15).contains(&value) && value.fract() == 0.0;
    whole.then_some(value as u64)
}

/// Splits into number and unit.
pub fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    text.split_at(unit)
}

#[cfg(test)]
mod tests {
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
    fn times_keep_their_picoseconds() {
        assert_eq!(picoseconds("4.77us"), Ok(4_770_000));
        assert_eq!(picoseconds("0"), Ok(0));
        assert_eq!(femtoseconds("2.67ns"), Ok(2_670_000));
        assert_eq!(femtoseconds("2.67ps"), Ok(2_670));
        for bad in ["4.77", "-1us", "us", "1e30s", "nan ns"] {
            assert!(picoseconds(bad).is_err(), "{bad}");
        }
        // Rounded where precision does not matter.
        assert_eq!((picoseconds("1.4ps"), picoseconds("0.3334ns")), (Ok(1), Ok(333)));
        assert_eq!(period("1000Hz"), Ok(1_000_000_000));
        assert_eq!(period("10ms"), Ok(10_000_000_000));
        assert!(period("0Hz").is_err() && period("-5Hz").is_err());
    }

    #[test]
    fn what_must_not_be_rounded_is_whole_or_refused() {
        for (text, ps) in [
            ("1ps", 1),
            ("0.001ns", 1),
            ("0.003us", 3_000),
            ("4.77us", 4_770_000),
            ("0.333ns", 333),
            ("2000fs", 2),
            ("1.000000000001s", 1_000_000_000_001),
        ] {
            assert_eq!(whole_picoseconds(text), Ok(ps), "{text}");
        }
        for bad in ["0.5ps", "1.4ps", "0.0001ns", "1.000001ps", "500fs", "1000.0005ns"] {
            let error = whole_picoseconds(bad).unwrap_err();
            assert!(error.contains("not a whole number of picoseconds"), "{bad}: {error}");
        }
        assert!(whole_picoseconds("-1ps").is_err() && whole_picoseconds("nan ps").is_err());
    }

    #[test]
    fn sizes_and_ranks_take_their_units() {
        assert_eq!(size("65kB"), Ok(65_000));
        assert_eq!(size("1MiB"), Ok(1 << 20));
        assert!(size("1.5").is_err() && size("-1").is_err() && size("1XB").is_err());
        assert_eq!(ranks("2..16"), Ok(vec![2, 4, 8, 16]));
        assert_eq!(ranks("1000,5000"), Ok(vec![1000, 5000]));
        assert_eq!(ranks("1Mi"), Ok(vec![1 << 20]));
        assert_eq!(ranks("2^28"), Ok(vec![1 << 28]));
        assert_eq!(ranks("1000..3000"), Ok(vec![1024, 2048]));
        for bad in ["", "0", "5..7", "2^64", "x", "1..", "-4"] {
            assert!(ranks(bad).is_err(), "{bad}");
        }
    }
}
