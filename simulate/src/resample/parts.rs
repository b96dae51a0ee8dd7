//! A distribution as plain values, for a file: the round trip is lossless.

use serde::{Deserialize, Serialize};

use super::{Distribution, DistributionError, Unit};

#[derive(Serialize, Deserialize)]
pub(super) struct Parts {
    unit: Unit,
    /// As text: it needs more digits than JSON readers support.
    sum: String,
    min: i64,
    max: i64,
    zeros: u64,
    /// The lowest value of a bin in units, and its count.
    bins: Vec<(u64, u64)>,
}

impl From<Distribution> for Parts {
    fn from(all: Distribution) -> Parts {
        let unit = all.unit();
        Parts {
            unit,
            sum: all.sum().to_string(),
            min: all.min(),
            max: all.max(),
            zeros: all.zeros(),
            bins: all.bins().map(|bin| ((bin.low / unit.ps()) as u64, bin.count)).collect(),
        }
    }
}

impl TryFrom<Parts> for Distribution {
    type Error = DistributionError;

    fn try_from(parts: Parts) -> Result<Distribution, DistributionError> {
        let mut all = Distribution::new(parts.unit);
        for (value, count) in parts.bins {
            let ps = i64::try_from(value).ok().and_then(|value| value.checked_mul(parts.unit.ps()));
            all.record_n(ps.unwrap_or(-1), count)?;
        }
        if all.is_empty() {
            return Ok(all);
        }
        let sum = parts.sum.parse().map_err(|_| DistributionError::NoParts("sum"))?;
        all.with_exact(sum, parts.min, parts.max, parts.zeros)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nothing_is_lost_in_a_file(
            times in prop::collection::vec((0i64..1 << 50, 0u32..50), 0..100),
        ) {
            let times: Vec<i64> = times.into_iter().map(|(time, shift)| time >> shift).collect();
            let all = Distribution::of(&times).unwrap();
            let text = serde_json::to_string(&all).unwrap();
            let back: Distribution = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(back.quantile(0.99), all.quantile(0.99));
            prop_assert_eq!(back, all);
        }
    }

    #[test]
    fn parts_that_do_not_fit_each_other_are_refused() {
        let text = serde_json::to_string(&Distribution::of(&[5, 0, 900]).unwrap()).unwrap();
        for (part, other) in [
            ("\"sum\":\"905\"", "\"sum\":\"-1\""),
            ("\"sum\":\"905\"", "\"sum\":\"much\""),
            ("\"max\":900", "\"max\":99"),
            ("\"min\":0", "\"min\":-7"),
            ("\"zeros\":1", "\"zeros\":2"),
            ("[900,1]", "[18446744073709551615,1]"),
        ] {
            assert!(text.contains(part), "{text}");
            let changed = text.replace(part, other);
            assert!(serde_json::from_str::<Distribution>(&changed).is_err(), "{changed}");
        }
    }
}
