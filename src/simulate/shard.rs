//! `--shard 3/64`: one shard of a simulation's runs, so that many machines can share one simulation. A
//! shard's results are integers, per run or summed exactly, together with all settings that determined
//! them: `detour merge` merges them into the output of a single machine.

use std::{
    fs::File,
    io::{BufWriter, Read, Write},
    ops::Range,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{alltoall, collective, cycle, exchange, goal};
use crate::results;

/// Everything that determines the results of a simulation, by option name.
pub type Settings = Map<String, Value>;

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Simulate only shard K of N of the runs (K = 1..N); `detour merge` merges the results
    #[arg(long, value_name = "K/N", value_parser = parse)]
    shard: Option<Shard>,
    /// File for the results of the shard [default: stdout]
    #[arg(short, long, value_name = "FILE", requires = "shard")]
    pub output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Starts at 1.
    number: u64,
    of: u64,
}

fn parse(text: &str) -> Result<Shard, String> {
    let shard = text.split_once('/').and_then(|(number, of)| {
        Some(Shard { number: number.parse().ok()?, of: of.parse().ok()? })
    });
    shard.filter(Shard::is_one).ok_or_else(|| {
        format!("'{text}' is not a shard (expected K/N with K from 1 to N, e.g. 3/64)")
    })
}

impl Shard {
    const WHOLE: Shard = Shard { number: 1, of: 1 };
    const MOST: u64 = 1 << 20;

    fn is_one(&self) -> bool {
        (1..=self.of).contains(&self.number) && self.of <= Shard::MOST
    }

    /// Its run numbers: shards are consecutive, and their sizes differ by at most one run.
    fn range(self, runs: u64) -> Range<u64> {
        let begin =
            |number: u64| (u128::from(runs) * u128::from(number) / u128::from(self.of)) as u64;
        begin(self.number - 1)..begin(self.number)
    }
}

impl Options {
    pub fn is_some(&self) -> bool {
        self.shard.is_some()
    }

    /// Which of the runs to simulate: all, unless a shard was requested.
    pub fn range(&self, runs: u64) -> Range<u64> {
        self.shard.unwrap_or(Shard::WHOLE).range(runs)
    }

    /// Writes the requested shard.
    pub fn write(&self, settings: Settings, results: Results) -> Result<()> {
        let shard = self.shard.unwrap_or(Shard::WHOLE);
        let share = Share { detour_version: VERSION.to_owned(), shard, settings, results };
        match &self.output {
            Some(path) => results::save(path, |out| write_to(out, &share)),
            None => write_to(&mut BufWriter::new(std::io::stdout().lock()), &share),
        }
    }
}

fn write_to(out: &mut impl Write, share: &Share) -> Result<()> {
    serde_json::to_writer(&mut *out, share)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A shard's result file.
#[derive(Serialize, Deserialize)]
struct Share {
    /// First in the file: identifies its type.
    detour_version: String,
    shard: Shard,
    settings: Settings,
    results: Results,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Results {
    Collective(collective::Results),
    Exchange(exchange::Results),
    Alltoall(alltoall::Results),
    Cycle(cycle::Results),
    Goal(goal::Results),
}

impl Results {
    fn command(&self) -> &'static str {
        match self {
            Results::Collective(_) => "collective",
            Results::Exchange(_) => "exchange",
            Results::Alltoall(_) => "alltoall",
            Results::Cycle(_) => "cycle",
            Results::Goal(_) => "goal",
        }
    }

    /// Appends the results of the next shard.
    fn join(&mut self, next: Results) -> Result<()> {
        match (self, next) {
            (Results::Collective(all), Results::Collective(next)) => all.join(next),
            (Results::Exchange(all), Results::Exchange(next)) => all.join(next),
            (Results::Alltoall(all), Results::Alltoall(next)) => all.join(next),
            (Results::Cycle(all), Results::Cycle(next)) => all.join(next),
            (Results::Goal(all), Results::Goal(next)) => all.join(next),
            (all, next) => {
                bail!("results of `simulate {}`, not `simulate {}`", next.command(), all.command())
            }
        }
    }

    fn write(&self, json: bool) -> Result<()> {
        match self {
            Results::Collective(all) => all.write(json),
            Results::Exchange(all) => all.write(json),
            Results::Alltoall(all) => all.write(json),
            Results::Cycle(all) => all.write(json),
            Results::Goal(all) => all.write(json),
        }
    }
}

/// Whether this file holds a shard's results, by its first bytes.
pub fn holds_results(path: &Path) -> Result<bool> {
    let cannot = || format!("cannot open {}", path.display());
    let mut begin = Vec::new();
    File::open(path).and_then(|file| file.take(64).read_to_end(&mut begin)).with_context(cannot)?;
    Ok(begin.starts_with(b"{\"detour_version\""))
}

/// Merges the shards in these files and prints the result.
pub fn merge(files: &[PathBuf], json: bool) -> Result<()> {
    let mut shares = Vec::new();
    for path in files {
        let share = read(path).with_context(|| format!("cannot merge {}", path.display()))?;
        shares.push((path, share));
    }
    shares.sort_by_key(|(_, share)| share.shard.number);
    let mut shares = shares.into_iter();
    let Some((first_path, mut all)) = shares.next() else { bail!("no shards to merge") };
    let of = all.shard.of;
    let mut missing: Vec<u64> = (1..all.shard.number).collect();
    let (mut next, mut last_path) = (all.shard.number + 1, first_path);
    for (path, share) in shares {
        let cannot = || format!("cannot merge {} and {}", first_path.display(), path.display());
        same_settings(&all, &share).with_context(cannot)?;
        let number = share.shard.number;
        if number < next {
            bail!(
                "{} and {} both hold shard {number} of {of}: omit one",
                last_path.display(),
                path.display()
            );
        }
        missing.extend(next..number);
        next = number + 1;
        last_path = path;
        all.results.join(share.results).with_context(cannot)?;
    }
    missing.extend(next..=of);
    if !missing.is_empty() {
        bail!("{of} shards expected: {} missing", named(&missing));
    }
    all.results.write(json)
}

fn read(path: &Path) -> Result<Share> {
    let text = std::fs::read(path)?;
    let share: Share = serde_json::from_slice(&text)
        .context("not a complete --shard result file: simulate it again")?;
    if share.detour_version != VERSION {
        bail!(
            "written by detour {}, this is {VERSION}: merge with that version, or simulate again",
            share.detour_version
        );
    }
    if !share.shard.is_one() {
        bail!("invalid shard {} of {}", share.shard.number, share.shard.of);
    }
    Ok(share)
}

/// Rejects shards of different simulations, naming the difference.
fn same_settings(one: &Share, other: &Share) -> Result<()> {
    if one.results.command() != other.results.command() {
        bail!(
            "one is from `simulate {}`, the other from `simulate {}`",
            one.results.command(),
            other.results.command()
        );
    }
    if one.shard.of != other.shard.of {
        bail!("one is of {} shards, the other of {}", one.shard.of, other.shard.of);
    }
    let names: std::collections::BTreeSet<_> =
        one.settings.keys().chain(other.settings.keys()).collect();
    for name in names {
        let (one, other) = (one.settings.get(name), other.settings.get(name));
        if one != other {
            let shown = |value: Option<&Value>| value.unwrap_or(&Value::Null).to_string();
            bail!("they differ in {name}: {} and {}", shown(one), shown(other));
        }
    }
    Ok(())
}

/// `3 is`, or `3, 4, 9 and 12 more are`.
fn named(missing: &[u64]) -> String {
    const SHOWN: usize = 8;
    let list: Vec<_> = missing.iter().take(SHOWN).map(u64::to_string).collect();
    let list = list.join(", ");
    match missing.len() {
        1 => format!("{list} is"),
        2..=SHOWN => format!("{list} are"),
        more => format!("{list} and {} more are", more - SHOWN),
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

/// Adds the settings to the results.
pub fn put_first(results: &mut Value, head: &Settings) {
    if let Value::Object(map) = results {
        map.extend(head.clone());
    }
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

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(named(&[3]), "3 is");
        assert_eq!(named(&[3, 4]), "3, 4 are");
        assert_eq!(named(&(1..=20).collect::<Vec<_>>()), "1, 2, 3, 4, 5, 6, 7, 8 and 12 more are");
    }
}
