//! `--blame`: breakdown of the critical path of simulated runs, as text and JSON.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use simulate::{
    blame::{Blames, PairBlame, SourceBlame},
    event::{self, Log, Part, Rules, Schedule},
    noise::UNKNOWN,
    stats::Sample,
};

use super::sources::Sources;

/// Rejects a schedule that would not fit in memory.
pub fn check(schedule: &Schedule, rules: Rules, memory: u64) -> Result<()> {
    let needed = event::run_memory(schedule, rules) + Log::memory(schedule.operations());
    if needed > memory {
        bail!(
            "--blame for a run of {} operations needs {} MB of memory, {} MB available: simulate \
             fewer ranks, or omit --blame",
            schedule.operations(),
            needed >> 20,
            memory >> 20
        );
    }
    Ok(())
}

fn us(ps: f64) -> f64 {
    // Means of whole picoseconds: further digits are rounding errors.
    (ps * 1e3).round() / 1e9
}

fn ns(ps: f64) -> f64 {
    ps / 1e3
}

pub fn json(blames: &Blames, sources: &Sources) -> Result<Value> {
    let finish = Sample::new(blames.finishes.clone())?;
    let mut path = Map::new();
    let mut spread = Map::new();
    let mut ranks = Map::new();
    for part in Part::ALL {
        let key = format!("{}_us", part.name());
        let sample = blames.part(part)?;
        path.insert(key.clone(), json!(us(sample.mean())));
        spread.insert(key.clone(), quantiles(&sample));
        ranks.insert(key, json!(us(blames.of_ranks(part))));
    }
    let (on_path, absorbed) = blames.noise();
    let of_sources: Result<Vec<Value>> =
        blames.sources.iter().map(|source| source_json(source, blames, sources)).collect();
    Ok(json!({
        "runs": blames.runs(),
        "finish_us": us(finish.mean()),
        "finish_spread": quantiles(&finish),
        "path": path,
        "path_spread": spread,
        "ranks_mean": ranks,
        "last_rank": last(blames).0,
        "last_rank_runs": last(blames).1,
        "noise": { "on_path_us": us(on_path), "absorbed_us": us(absorbed) },
        "sources": of_sources?,
    }))
}

fn quantiles(sample: &Sample) -> Value {
    json!({
        "min_us": us(sample.min() as f64),
        "q25_us": us(sample.quantile(0.25)),
        "median_us": us(sample.quantile(0.5)),
        "q75_us": us(sample.quantile(0.75)),
        "max_us": us(sample.max() as f64),
    })
}

fn source_json(source: &SourceBlame, blames: &Blames, sources: &Sources) -> Result<Value> {
    let name = sources.name(source.source);
    let runs = blames.runs() as f64;
    let by_rank: Vec<Value> = pairs(blames, source.source)
        .map(|pair| {
            json!({
                "rank": pair.rank,
                "on_path_us": us(pair.on_path as f64 / runs),
                "absorbed_us": us(pair.absorbed as f64 / runs),
            })
        })
        .collect();
    Ok(json!({
        "class": name.class.map(|class| class.name()),
        "name": name.name,
        "unit": name.unit,
        "own": name.own,
        "known": source.source != UNKNOWN,
        "on_path_us": us(source.on_path()),
        "on_path_spread": quantiles(&source.sample()?),
        "runs_on_path": source.runs_on_path(),
        "absorbed_us": us(source.absorbed()),
        "ranks": by_rank,
    }))
}

fn pairs(blames: &Blames, source: u32) -> impl Iterator<Item = &PairBlame> {
    // Sorted by source.
    let begin = blames.pairs.partition_point(|pair| pair.source < source);
    blames.pairs[begin..].iter().take_while(move |pair| pair.source == source)
}

/// The rank that finishes last most often (lowest rank on ties), and in how many runs.
fn last(blames: &Blames) -> (u64, u64) {
    let mut most = (0, 0);
    for (rank, &runs) in (0..).zip(&blames.last) {
        if runs > most.1 {
            most = (rank, runs);
        }
    }
    most
}

pub fn figures(blames: &Blames, sources: &Sources) -> Result<report::BlameFigures> {
    let part = |part: Part| -> Result<report::BlamePart> {
        let sample = blames.part(part)?;
        Ok(report::BlamePart {
            name: part.name(),
            path: ns(sample.mean()),
            path_between: (ns(sample.quantile(0.25)), ns(sample.quantile(0.75))),
            rank: ns(blames.of_ranks(part)),
        })
    };
    let source = |source: &SourceBlame| -> Result<report::BlameSource> {
        let name = sources.name(source.source);
        let worst = pairs(blames, source.source).filter(|pair| pair.on_path > 0);
        // The lowest rank on ties.
        let worst = worst.min_by_key(|pair| (-pair.on_path, pair.rank));
        Ok(report::BlameSource {
            name: name.name,
            class: name.class.map_or(String::new(), |class| class.name().to_owned()),
            unit: name.unit.unwrap_or_default(),
            own: name.own,
            on_path: ns(source.on_path()),
            on_path_max: ns(source.sample()?.max() as f64),
            absorbed: ns(source.absorbed()),
            runs: source.runs_on_path() as u64,
            worst_rank: worst.map(|pair| u64::from(pair.rank)),
        })
    };
    let (on_path, absorbed) = blames.noise();
    let finish = Sample::new(blames.finishes.clone()).context("no runs")?;
    Ok(report::BlameFigures {
        runs: blames.runs() as u64,
        ranks: blames.last.len() as u64,
        finish: ns(finish.mean()),
        last: last(blames),
        parts: Part::ALL.into_iter().map(part).collect::<Result<_>>()?,
        sources: blames.sources.iter().map(source).collect::<Result<_>>()?,
        on_path: ns(on_path),
        absorbed: ns(absorbed),
    })
}
