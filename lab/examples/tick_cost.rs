//! The time that recording adds to a timer tick: part of `cargo xtask bench`. Prints one JSON object.
//!
//! One probe runs all the time. Meanwhile the programs are attached and detached in blocks of a few
//! ticks each, watched and unwatched in pairs in random order: on a virtual machine ticks take 6 us
//! for a while and then 15 us, and neighbouring blocks mostly see the same. Unwatched means that
//! nothing of ours is attached.
//!
//! Ticks are periodic, so the longest detour at each period is the tick, watched or not. The estimate
//! of a pair is the median of all differences between its watched and unwatched ticks (the
//! Hodges-Lehmann shift): if ticks are of two kinds, the differences between kinds cancel out, while
//! medians jump between the kinds.

use std::{
    collections::BTreeMap,
    error::Error,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use recorder::probe::clock::Monotonic as Clock;
#[cfg(target_arch = "x86_64")]
use recorder::probe::clock::Tsc as Clock;
#[cfg(target_arch = "aarch64")]
use recorder::probe::clock::VirtualCounter as Clock;
use recorder::{
    ClockLine, CpuSet,
    kernel::{
        bpf::{Bpf, LoadOptions, Wanted},
        ring::Reader,
    },
    machine,
    probe::{
        Jump, Jumps, assess,
        clock::{Counter, anchor},
        run,
    },
};
use serde_json::{Value, json};

/// Rates that Linux can be built with; the fastest that fits is the tick's.
const RATES: [u64; 4] = [1000, 300, 250, 100];
/// Search window around the expected time of a tick.
const WINDOW_NS: i64 = 40_000;
/// Shorter detours are not ticks.
const SHORTEST_NS: u64 = 1_000;
/// The recorder's polling interval.
const POLL: Duration = Duration::from_millis(10);
const BLOCK: Duration = Duration::from_millis(60);
/// Attaching interrupts every CPU to patch the kernel; a few ticks later that is over.
const SETTLE: Duration = Duration::from_millis(12);
/// Fewer pairs are not conclusive.
const ENOUGH: usize = 20;
/// Multiples of t_min, as in `detour record`.
const THRESHOLD: u64 = 9;

/// A period during which nothing was attached or detached.
struct Block {
    watched: bool,
    from: u64,
    to: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<u32> =
        std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    let [cpu, housekeeping, pairs] = arguments[..] else {
        return Err("usage: tick_cost MEASURED_CPU HOUSEKEEPING_CPU PAIRS".into());
    };
    let measurement = measure(cpu, housekeeping, pairs)?;
    println!("{}", measurement.figures()?);
    Ok(())
}

struct Measurement {
    blocks: Vec<Block>,
    /// By the probe's clock, in ns.
    detours: Vec<(u64, u64)>,
}

fn measure(cpu: u32, housekeeping: u32, pairs: u32) -> Result<Measurement, Box<dyn Error>> {
    let watched = CpuSet::from([cpu]);
    let stop = AtomicBool::new(false);
    let mut bpf = Bpf::load(&LoadOptions::new(&watched, (16 << 20, 1 << 16), &stop))?;
    let mut rings: Vec<Reader> =
        bpf.rings().into_iter().map(|(_, ring)| Reader::new(ring)).collect();
    let cpu_pages = bpf.cpu_pages();
    bpf.detach();
    let jumps = Arc::new(Jumps::new(1 << 20)?);
    let probe = {
        let jumps = Arc::clone(&jumps);
        std::thread::Builder::new().name("detour-probe".into()).spawn(move || {
            machine::pin(&CpuSet::from([cpu]));
            let cost = assess::<Clock>(1_000_000);
            run::<Clock>(&jumps, THRESHOLD * cost.t_min, cost.push)
        })?
    };
    machine::pin(&CpuSet::from([housekeeping]));
    let mut clock = ClockLine::default();
    clock.push(anchor::<Clock>(200));
    let mut seen: Vec<Jump> = Vec::new();
    let mut records = 0u64;
    let mut pause = |time: Duration, seen: &mut Vec<Jump>| {
        let end = Instant::now() + time;
        while Instant::now() < end {
            std::thread::sleep(POLL.min(end.saturating_duration_since(Instant::now())));
            jumps.drain(|jump| seen.push(jump));
            cpu_pages.take_slots(cpu, |_| records += 1);
            for ring in &mut rings {
                ring.take(ring.ring().reserved(), usize::MAX, |_| records += 1);
            }
        }
    };
    pause(Duration::from_millis(300), &mut seen);
    let mut blocks = Vec::new();
    let mut lots = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..pairs {
        lots ^= lots << 13;
        lots ^= lots >> 7;
        lots ^= lots << 17;
        let first = lots & (1 << 32) != 0;
        for watch in [first, !first] {
            if watch {
                bpf.attach(&watched)?;
                bpf.watch(|_| Wanted::Track);
                std::thread::sleep(Duration::from_millis(1));
                bpf.watch(|n| if n == cpu { Wanted::Records } else { Wanted::Track });
            }
            pause(SETTLE, &mut seen);
            let from = Clock::read();
            pause(BLOCK, &mut seen);
            blocks.push(Block { watched: watch, from, to: Clock::read() });
            bpf.watch(|_| Wanted::Nothing);
            bpf.detach();
        }
        clock.push(anchor::<Clock>(200));
    }
    jumps.end_at(0);
    probe.join().map_err(|_| "the probe panicked")?;
    clock.push(anchor::<Clock>(200));
    if records == 0 {
        return Err("no records".into());
    }
    let ns = |ticks| clock.ns(ticks).unwrap_or(0);
    for block in &mut blocks {
        (block.from, block.to) = (ns(block.from), ns(block.to));
    }
    let detours = seen.iter().map(|jump| (ns(jump.from), ns(jump.to) - ns(jump.from)));
    Ok(Measurement { detours: detours.collect(), blocks })
}

impl Measurement {
    fn figures(&self) -> Result<Value, Box<dyn Error>> {
        let (period, phase) = self.rhythm().ok_or("no regular tick on this CPU")?;
        let ticks = self.ticks(period, phase);
        let of = |block: &Block| -> Vec<f64> {
            ticks.range(block.from..block.to).map(|(_, &length)| length as f64).collect()
        };
        let (mut watched, mut bare, mut added) = (Vec::new(), Vec::new(), Vec::new());
        for pair in self.blocks.chunks_exact(2) {
            let mut pair = [&pair[0], &pair[1]];
            pair.sort_by_key(|block| block.watched);
            let [off, on] = pair.map(of);
            let differences = on.iter().flat_map(|a| off.iter().map(move |b| a - b));
            // Without a tick in both blocks there is nothing to compare.
            added.extend(median(differences.collect()));
            watched.extend(on);
            bare.extend(off);
        }
        if added.len() < ENOUGH {
            return Err(format!("only {} pairs of blocks have ticks", added.len()).into());
        }
        let (low, high) = interval(added.clone()).ok_or("nothing to compare")?;
        Ok(json!({
            "added_ns": median(added.clone()),
            "added_low_ns": low,
            "added_high_ns": high,
            "pairs": added.len(),
            "period_ns": period,
            "watched_ticks": watched.len(),
            "watched_median_ns": median(watched),
            "bare_ticks": bare.len(),
            "bare_median_ns": median(bare),
        }))
    }

    /// Period and phase of the tick.
    fn rhythm(&self) -> Option<(u64, u64)> {
        let long = || self.detours.iter().filter(|d| d.1 >= SHORTEST_NS);
        let (first, last) = (long().next()?.0, long().next_back()?.0);
        RATES.map(|rate| 1_000_000_000 / rate).into_iter().find_map(|period| {
            let mut places: BTreeMap<u64, u64> = BTreeMap::new();
            for (start, _) in long() {
                *places.entry(start % period / WINDOW_NS as u64).or_default() += 1;
            }
            let place = *places.iter().max_by_key(|(_, count)| **count)?.0;
            let middle = (place * WINDOW_NS as u64 + WINDOW_NS as u64 / 2) % period;
            let near = long().map(|d| around(d.0, middle, period));
            let near: Vec<f64> = near.filter(|o| o.abs() <= WINDOW_NS).map(|o| o as f64).collect();
            let beats = (last - first) / period;
            if (near.len() as u64) < beats * 9 / 10 {
                return None;
            }
            let usual = median(near)? as i64;
            Some((period, (middle as i64 + usual).rem_euclid(period as i64) as u64))
        })
    }

    /// Length of the tick at each period.
    fn ticks(&self, period: u64, phase: u64) -> BTreeMap<u64, u64> {
        let mut ticks = BTreeMap::new();
        for &(start, length) in &self.detours {
            let offset = around(start, phase, period);
            if offset.abs() <= WINDOW_NS && length >= SHORTEST_NS {
                let tick = ticks.entry((start as i64 - offset) as u64).or_insert(0);
                *tick = length.max(*tick);
            }
        }
        ticks
    }
}

/// Signed distance to the nearest time with this phase.
fn around(at: u64, phase: u64, period: u64) -> i64 {
    let half = period / 2;
    ((at % period + period + half - phase) % period) as i64 - half as i64
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some((values[last / 2] + values[last.div_ceil(2)]) / 2.0)
}

/// The confidence interval of the median, at 90 % or more: the number of values on the wrong side
/// of the median is binomial, like the number of heads in coin tosses. The full range if there are
/// too few values.
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
    // The last step may have exceeded the limit.
    let skip = if below > 0.05 { skip.saturating_sub(1) } else { skip };
    Some((*values.get(skip)?, *values.get(count.checked_sub(1 + skip)?)?))
}
