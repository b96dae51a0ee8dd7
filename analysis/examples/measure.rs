//! Measures this crate: events summarised per second, time of the period test, and its false positives
//! on Poisson processes.
//!
//! `cargo run --release -p analysis --example measure [-- PROCESSES]`

use std::convert::Infallible;
use std::time::Instant;

use analysis::period::{Finder, Whole};
use analysis::{Contents, summarise};
use trace::{
    Block, Class, Detour, Lane, LaneId, Manifest, Record, RecordFlags, Source, SourceId, Trailer,
};

#[path = "../tests/common/mod.rs"]
#[allow(dead_code)]
mod common;

use common::{Rng, poisson, sorted};

const LANES: u32 = 8;
const SOURCES: u64 = 40;

fn source(id: u64) -> Source {
    Source {
        class: Class::ALL[(id % 8) as usize],
        name: format!("source {}", id / 2),
        unit: id.is_multiple_of(3).then(|| format!("unit{id}.service")),
        detail: Some(format!("detail {id}")),
        pids: Vec::new(),
        own: false,
        program: false,
        policy: None,
        cause: None,
    }
}

/// Detours of one or two records, a tick on every fourth.
fn block(rng: &mut Rng, lane: u32, from_ns: u64) -> Block {
    let mut block = Block::new(LaneId(lane));
    let mut at = from_ns;
    for i in 0..4096u64 {
        at += 1_000_000;
        let start_ns = if i % 4 == 0 { at } else { at + rng.next() % 900_000 };
        let records = 1 + (i % 2) as u32;
        let mut len_ns = 150;
        for _ in 0..records {
            let net_ns = 500 + rng.next() % 8_000;
            len_ns += net_ns + 700;
            block.records.push(Record {
                start_ns,
                gross_ns: net_ns,
                net_ns,
                cost_ns: net_ns + 700,
                source: SourceId(if i % 4 == 0 { 0 } else { (rng.next() % SOURCES) as u32 }),
                cpu: lane as u16,
                depth: 0,
                flags: RecordFlags::IN_DETOUR,
            });
        }
        block.detours.push(Detour {
            start_ns,
            len_ns,
            outside_ns: 150,
            records,
            ..Detour::default()
        });
    }
    block
}

fn main() {
    let mut rng = Rng::new(1);
    let sources: Vec<Source> = (0..SOURCES).map(source).collect();
    let lanes: Vec<Lane> = (0..LANES).map(|cpu| Lane::Cpu { cpu }).collect();
    let mut blocks = Vec::new();
    for round in 0..100 {
        for lane in 0..LANES {
            blocks.push(block(&mut rng, lane, round * 4_096_000_000));
        }
    }
    let records: usize = blocks.iter().map(|b| b.records.len()).sum();
    let detours: usize = blocks.iter().map(|b| b.detours.len()).sum();
    let manifest = Manifest { lanes: lanes.clone(), ..Manifest::default() };
    let trailer = Trailer::default();
    let contents = Contents {
        manifest: &manifest,
        sources: &sources,
        lanes: &lanes,
        trailer: Some(&trailer),
        cut_off: &[],
        truncated: None,
    };

    let start = Instant::now();
    let mut summariser = analysis::Summariser::new(manifest.mode);
    for block in &blocks {
        summariser.add(block, &sources);
    }
    let pass = start.elapsed().as_secs_f64();
    let summary = summariser.finish(&contents);
    let whole = start.elapsed().as_secs_f64();
    println!("{records} records in {detours} detours, {} sources", summary.sources.len());
    println!("pass: {:.1} M records/s", records as f64 / pass / 1e6);
    println!("rest (periods, ranking): {:.3} s", whole - pass);
    let empty = summarise(&contents, std::iter::empty::<Result<Block, Infallible>>());
    println!("an empty recording has {} detours", empty.map_or(0, |s| s.detours));

    let processes: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(20_000);
    let mut finder = Finder::new();
    let (mut found, mut smallest, mut events) = (0, 1.0f64, 0);
    let start = Instant::now();
    for seed in 0..processes {
        let mut rng = Rng::new(seed);
        let n = (8.0 * (rng.unit() * 6.0).exp()) as usize;
        let mean = 1e3 * (rng.unit() * 14.0).exp();
        let times = sorted(poisson(&mut rng, n, mean));
        events += n;
        if let Some(period) = find(&mut finder, &times) {
            found += 1;
            smallest = smallest.min(period.p_value);
        }
    }
    println!(
        "period test: {processes} Poisson processes of 8 to 3000 events, {found} found periodic \
         (smallest p {smallest:.1e}), {:.2} us per event",
        start.elapsed().as_secs_f64() * 1e6 / events as f64
    );
    let start = Instant::now();
    let million: u32 = (0..62)
        .map(|seed| {
            let times = sorted(poisson(&mut Rng::new(seed), 16_384, 1e5));
            u32::from(find(&mut finder, &times).is_some())
        })
        .sum();
    println!(
        "a million events in 62 lists: {:.3} s, {million} found periodic",
        start.elapsed().as_secs_f64()
    );
}

/// In a recording that ends with the last event.
fn find(finder: &mut Finder, starts: &[u64]) -> Option<analysis::period::Period> {
    let to_ns = starts.last().copied().unwrap_or(0);
    finder.find(starts, &Whole { from_ns: 0, to_ns, events: starts.len() as u64, later: None })
}
