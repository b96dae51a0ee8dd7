//! Files of shards: a shard's results are integers, per run or summed exactly, together with all
//! settings that determined them. [`merge`] turns them into the result of a single machine.

use std::{
    fs::File,
    io::{BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    files,
    jobs::{alltoall, app, collective, cycle, exchange, schedule},
    run::shard::{Settings, Shard},
};

/// Writes a shard to a file, or to stdout.
pub fn write(
    path: Option<&Path>,
    shard: Shard,
    settings: Settings,
    results: Partial,
) -> Result<()> {
    let share = Share { detour_version: VERSION.to_owned(), shard, settings, results };
    match path {
        Some(path) => files::save(path, |out| write_to(out, &share)),
        None => write_to(&mut BufWriter::new(std::io::stdout().lock()), &share),
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
    results: Partial,
}

/// Results of some or all runs, which can be joined.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Partial {
    Collective(collective::Partial),
    Exchange(exchange::Partial),
    Alltoall(alltoall::Partial),
    Cycle(cycle::Partial),
    Goal(schedule::Partial),
    App(app::Partial),
}

/// The result of all runs.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Whole {
    Collective(collective::Sweep),
    Exchange(exchange::Exchanges),
    Alltoall(alltoall::Alltoalls),
    Cycle(cycle::Cycles),
    Goal(Box<schedule::Finishes>),
    App(app::Sweep),
}

impl Whole {
    /// About the noise.
    pub fn remarks(&self) -> &[String] {
        match self {
            Whole::Collective(sweep) => &sweep.about.remarks,
            Whole::Exchange(exchanges) => &exchanges.about.remarks,
            Whole::Alltoall(alltoalls) => &alltoalls.about.remarks,
            Whole::Cycle(cycles) => &cycles.about.remarks,
            Whole::Goal(finishes) => &finishes.about.remarks,
            Whole::App(sweep) => &sweep.about.remarks,
        }
    }
}

impl Partial {
    fn command(&self) -> &'static str {
        match self {
            Partial::Collective(_) => "collective",
            Partial::Exchange(_) => "exchange",
            Partial::Alltoall(_) => "alltoall",
            Partial::Cycle(_) => "cycle",
            Partial::Goal(_) => "goal",
            Partial::App(_) => "app",
        }
    }

    /// Appends the results of the next shard.
    fn join(&mut self, next: Partial) -> Result<()> {
        match (self, next) {
            (Partial::Collective(all), Partial::Collective(next)) => all.join(next),
            (Partial::Exchange(all), Partial::Exchange(next)) => all.join(next),
            (Partial::Alltoall(all), Partial::Alltoall(next)) => all.join(next),
            (Partial::Cycle(all), Partial::Cycle(next)) => all.join(next),
            (Partial::Goal(all), Partial::Goal(next)) => all.join(next),
            (Partial::App(all), Partial::App(next)) => all.join(next),
            (all, next) => {
                bail!("results of `simulate {}`, not `simulate {}`", next.command(), all.command())
            }
        }
    }

    fn finish(self) -> Result<Whole> {
        Ok(match self {
            Partial::Collective(all) => Whole::Collective(all.finish()?),
            Partial::Exchange(all) => Whole::Exchange(all.finish()?),
            Partial::Alltoall(all) => Whole::Alltoall(all.finish()?),
            Partial::Cycle(all) => Whole::Cycle(all.finish()?),
            Partial::Goal(all) => Whole::Goal(Box::new(all.finish()?)),
            Partial::App(all) => Whole::App(all.finish()?),
        })
    }
}

/// Whether this file holds a shard's results, by its first bytes.
pub fn holds_results(path: &Path) -> Result<bool> {
    let cannot = || format!("cannot open {}", path.display());
    let mut begin = Vec::new();
    File::open(path).and_then(|file| file.take(64).read_to_end(&mut begin)).with_context(cannot)?;
    Ok(begin.starts_with(b"{\"detour_version\""))
}

/// Merges the shards in these files.
pub fn merge(files: &[PathBuf]) -> Result<Whole> {
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
    all.results.finish()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(named(&[3]), "3 is");
        assert_eq!(named(&[3, 4]), "3, 4 are");
        assert_eq!(named(&(1..=20).collect::<Vec<_>>()), "1, 2, 3, 4, 5, 6, 7, 8 and 12 more are");
    }
}
