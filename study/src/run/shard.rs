//! One shard of a simulation's runs, so that many machines can share one simulation.

use std::{ops::Range, path::Path};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Everything that determines the results of a simulation, by option name.
pub type Settings = Map<String, Value>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Starts at 1.
    pub number: u64,
    pub of: u64,
}

/// `3/64`.
pub fn parse(text: &str) -> Result<Shard, String> {
    let shard = text.split_once('/').and_then(|(number, of)| {
        Some(Shard { number: number.parse().ok()?, of: of.parse().ok()? })
    });
    shard.filter(Shard::is_one).ok_or_else(|| {
        format!("'{text}' is not a shard (expected K/N with K from 1 to N, e.g. 3/64)")
    })
}

impl Shard {
    /// All runs.
    pub const WHOLE: Shard = Shard { number: 1, of: 1 };
    const MOST: u64 = 1 << 20;

    pub(crate) fn is_one(&self) -> bool {
        (1..=self.of).contains(&self.number) && self.of <= Shard::MOST
    }

    /// Its run numbers: shards are consecutive, and their sizes differ by at most one run.
    pub fn range(self, runs: u64) -> Range<u64> {
        let begin =
            |number: u64| (u128::from(runs) * u128::from(number) / u128::from(self.of)) as u64;
        begin(self.number - 1)..begin(self.number)
    }
}

/// An input file that determines the results: its name and checksum.
pub fn file(path: &Path) -> Result<Value> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(format!(
        "{}, {} bytes, checksum {:08x}",
        path.display(),
        bytes.len(),
        crc32fast::hash(&bytes)
    )
    .into())
}

/// Shards of one simulation must agree on everything but their runs.
pub fn agree<T: PartialEq>(one: &T, other: &T) -> Result<()> {
    if one != other {
        bail!("settings match, but results are inconsistent: was a file edited?");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_all_runs_and_none_twice() {
        for runs in [0, 1, 5, 64, 1000, 1 << 40] {
            for of in [1, 3, 64] {
                let mut next = 0;
                for number in 1..=of {
                    let range = Shard { number, of }.range(runs);
                    assert_eq!(range.start, next);
                    assert!((range.end - range.start).abs_diff(runs / of) <= 1);
                    next = range.end;
                }
                assert_eq!(next, runs);
            }
        }
    }

    #[test]
    fn a_share_is_written_like_3_of_64() {
        assert_eq!(parse("3/64"), Ok(Shard { number: 3, of: 64 }));
        for bad in ["0/4", "5/4", "3", "/", "a/b", "1/0", "-1/4", "1/99999999999"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
