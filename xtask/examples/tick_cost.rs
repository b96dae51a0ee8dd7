//! What recording adds to a timer tick: part of `cargo xtask bench`. Takes traces in pairs, first
//! one with kernel records, then one of the probe alone, and prints one JSON object.
//!
//! The probe alone does not know what a detour was. But ticks come in a fixed rhythm on the clock
//! both traces share, so the pair's first trace tells where in each period to look in both: the
//! longest detour there is the tick's.

use std::{collections::BTreeMap, error::Error};

use trace::{Class, Reader, Record, Source};

/// Rates that Linux can be built with.
const RATES: [u64; 4] = [100, 250, 300, 1000];
/// How far around the usual place a tick is looked for.
const WINDOW_NS: i64 = 40_000;
/// Fewer ticks say nothing.
const ENOUGH: usize = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let mut rounds = Vec::new();
    for pair in files.chunks_exact(2) {
        rounds.push(round(&read(&pair[0])?, &read(&pair[1])?)?);
    }
    let added = |key: &str| -> Vec<f64> {
        let of = |round: &serde_json::Value| {
            Some(round["watched"][key].as_f64()? - round["bare"][key].as_f64()?)
        };
        rounds.iter().filter_map(of).collect()
    };
    let (low, high) = interval(added("p50_ns")).ok_or("there was nothing to compare")?;
    let figures = serde_json::json!({
        "added_p10_ns": median(added("p10_ns")),
        "added_p25_ns": median(added("p25_ns")),
        "added_p50_ns": median(added("p50_ns")),
        "added_p50_low_ns": low,
        "added_p50_high_ns": high,
        "rounds": rounds,
    });
    println!("{figures}");
    Ok(())
}

/// Where the true median lies with 90 % confidence or more: that few or fewer of the values are on
/// the wrong side of it is as likely as that many coins showing heads. All of them when they are
/// too few to say.
fn interval(mut values: Vec<f64>) -> Option<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    let mut chance = 0.5f64.powi(count as i32);
    let mut below = chance;
    let mut skip = 0;
    while below <= 0.05 && skip + 1 < count / 2 {
        skip += 1;
        chance *= (count - skip + 1) as f64 / skip as f64;
        below += chance;
    }
    // The last step may have gone beyond what is allowed.
    let skip = if below > 0.05 { skip.saturating_sub(1) } else { skip };
    Some((*values.get(skip)?, *values.get(count.checked_sub(1 + skip)?)?))
}

/// A recording's detours on the machine's clock, as (start, length).
struct Detours {
    all: Vec<(u64, u64)>,
    /// Those that are a tick with its softirqs and nothing else.
    ticks: Vec<(u64, u64)>,
}

fn read(file: &str) -> Result<Detours, Box<dyn Error>> {
    let reader = Reader::open(file)?;
    let origin = reader.manifest().started_monotonic_ns;
    let source = |record: &Record| reader.sources().get(record.source.0 as usize);
    let is_tick = |source: &Source| source.class == Class::Timer && source.name == "tick";
    let belongs = |source: &Source| matches!(source.class, Class::Timer | Class::Softirq);
    let mut detours = Detours { all: Vec::new(), ticks: Vec::new() };
    for block in reader.blocks() {
        let block = block?;
        for (detour, records) in block.composed() {
            let event = (origin + detour.start_ns, detour.len_ns);
            detours.all.push(event);
            if records.iter().any(|r| source(r).is_some_and(is_tick))
                && records.iter().all(|r| source(r).is_some_and(belongs))
            {
                detours.ticks.push(event);
            }
        }
    }
    Ok(detours)
}

fn round(watched: &Detours, bare: &Detours) -> Result<serde_json::Value, Box<dyn Error>> {
    let period = period(&watched.ticks).ok_or("there is no regular tick on this CPU")?;
    let phase = phase(&watched.ticks, period);
    let named: Vec<u64> = watched.ticks.iter().map(|tick| tick.1).collect();
    Ok(serde_json::json!({
        "period_ns": period,
        "watched": figures(longest_near(&watched.all, period, phase))?,
        "bare": figures(longest_near(&bare.all, period, phase))?,
        "named_p50_ns": median(named.into_iter().map(|ns| ns as f64).collect()),
    }))
}

/// The longest period that nearly all distances of ticks are multiples of; ticks that something
/// else joined are missing from the row.
fn period(ticks: &[(u64, u64)]) -> Option<u64> {
    if ticks.len() < ENOUGH {
        return None;
    }
    let distances: Vec<u64> = ticks.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    let fits = |period: &u64| {
        let near = |distance: &&u64| around(**distance, 0, *period).abs() < WINDOW_NS;
        distances.iter().filter(near).count() * 10 > distances.len() * 9
    };
    RATES.map(|rate| 1_000_000_000 / rate).into_iter().find(fits)
}

/// Where in the period most ticks start. The median, taken on the side of the circle where they
/// are: measured from the first of them.
fn phase(ticks: &[(u64, u64)], period: u64) -> u64 {
    let anchor = ticks.first().map_or(0, |tick| tick.0 % period);
    let offsets = ticks.iter().map(|tick| around(tick.0, anchor, period) as f64).collect();
    let usual = median(offsets).unwrap_or(0.0) as i64;
    (anchor as i64 + usual).rem_euclid(period as i64) as u64
}

/// Signed distance to the nearest moment with this phase.
fn around(at: u64, phase: u64, period: u64) -> i64 {
    let half = period / 2;
    ((at % period + period + half - phase) % period) as i64 - half as i64
}

fn longest_near(detours: &[(u64, u64)], period: u64, phase: u64) -> Vec<u64> {
    let mut longest = BTreeMap::new();
    for &(start, length) in detours {
        let offset = around(start, phase, period);
        if offset.abs() <= WINDOW_NS {
            let tick = (start as i64 - offset) as u64 / period;
            let best = longest.entry(tick).or_insert(0);
            *best = length.max(*best);
        }
    }
    longest.into_values().collect()
}

fn figures(mut lengths: Vec<u64>) -> Result<serde_json::Value, Box<dyn Error>> {
    if lengths.len() < ENOUGH {
        return Err(format!("only {} ticks were found", lengths.len()).into());
    }
    lengths.sort_unstable();
    let at = |share: f64| lengths[(share * (lengths.len() - 1) as f64).round() as usize];
    Ok(serde_json::json!({
        "ticks": lengths.len(),
        "p10_ns": at(0.1),
        "p25_ns": at(0.25),
        "p50_ns": at(0.5),
    }))
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some((values[last / 2] + values[last.div_ceil(2)]) / 2.0)
}
