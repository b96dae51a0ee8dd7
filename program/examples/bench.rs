//! `cargo run --release --example bench -- DIR [EVENTS] [HOSTS] [RANKS] [SKEW]`: writes a trace with the
//! collector's encoder and measures how long its profile takes and how much memory. DIR must not exist and
//! is removed. SKEW: by how many ns the clocks of hosts are measured wrongly, which makes a second pass
//! necessary.

mod made;

use made::{Ranks, directory, number, write};
use rayon::prelude::*;
use std::io;
use std::time::Instant;

/// CPU time of the process so far, in seconds.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// Most memory used so far, in MB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = &directory()?;
    let count = number(3, 8);
    let events = number(1, 100_000_000) / count;
    let ranks = Ranks {
        count: count as i32,
        hosts: number(2, 1) as u32,
        events,
        skew: number(4, 0) as i64,
    };
    let clock = Instant::now();
    let written: u64 = (0..ranks.count)
        .into_par_iter()
        .map(|rank| write(dir, rank, &ranks))
        .collect::<io::Result<Vec<_>>>()?
        .iter()
        .sum();
    println!("written: {written} events in {:.1} s", clock.elapsed().as_secs_f64());
    let clock = Instant::now();
    let program = program::open(dir)?;
    println!("opened: {} ranks in {:.3} s", program.ranks.len(), clock.elapsed().as_secs_f64());
    let clock = Instant::now();
    let used = cpu();
    let profile = program::profile(&program, 2)?;
    let seconds = clock.elapsed().as_secs_f64();
    println!(
        "profile: {} events, {:.2} B an event, {} hosts: {seconds:.2} s, {:.2} s CPU ({:.0} ns an event), peak {} MB",
        profile.events,
        profile.collector.bytes_per_event,
        profile.hosts.len(),
        cpu() - used,
        (cpu() - used) * 1e9 / profile.events as f64,
        peak()
    );
    println!(
        r#"{{"events": {}, "wall_s": {seconds}, "cpu_s": {}, "peak_mb": {}}}"#,
        profile.events,
        cpu() - used,
        peak()
    );
    println!("{:?}", profile.lost);
    println!(
        "late sender {:.3} s, late receiver {:.3} s, collective {:.3} s",
        profile.waits.late_sender_s, profile.waits.late_receiver_s, profile.waits.collective_s
    );
    std::fs::remove_dir_all(dir)?;
    Ok(())
}
