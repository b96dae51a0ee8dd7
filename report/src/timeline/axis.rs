//! A time axis with round numbers.

/// Distance between ticks, ps: 1, 2 or 5 times a power of ten, for at most `most` ticks.
pub(super) fn distance(span: i64, most: i64) -> i64 {
    let mut power = 1;
    loop {
        for factor in [1, 2, 5] {
            let distance: i64 = factor * power;
            if span / distance <= most || distance > i64::MAX / 20 {
                return distance;
            }
        }
        power *= 10;
    }
}

/// A tick label, in the unit of the whole axis.
pub(super) fn label(ps: i64, unit: (i64, &str)) -> String {
    let value = ps as f64 / unit.0 as f64;
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub(super) fn unit(span: i64) -> (i64, &'static str) {
    match span {
        ps if ps < 10_000 => (1, "ps"),
        ps if ps < 10_000_000 => (1_000, "ns"),
        ps if ps < 10_000_000_000 => (1_000_000, "us"),
        ps if ps < 10_000_000_000_000 => (1_000_000_000, "ms"),
        _ => (1_000_000_000_000, "s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(distance(100, 10), 10);
        assert_eq!(distance(111_000, 10), 20_000);
        assert_eq!(distance(49_000_000, 10), 5_000_000);
        assert!(distance(i64::MAX, 1) > 0);
        assert_eq!(label(12_500_000, unit(49_000_000)), "12.5");
    }
}
