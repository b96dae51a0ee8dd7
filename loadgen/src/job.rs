//! A parallel job: one thread per CPU computes a fixed amount of work, then all meet in a barrier, again and
//! again. The barrier spins, as an MPI library does.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, ensure};
use serde_json::json;

use crate::os;

/// Steps that are timed together while the work is calibrated.
const STEPS: u64 = 10_000;

pub(crate) fn run(cpus: &[u32], compute: Duration, iterations: u64, name: &str) -> Result<()> {
    ensure!(!cpus.is_empty(), "no CPUs");
    os::pin(cpus[0])?;
    os::name(name);
    let steps = calibrate(compute);
    let arrived = AtomicU64::new(0);
    let ranks = cpus.len() as u64;
    let one = |cpu: u32| -> Result<()> {
        os::pin(cpu)?;
        os::name(name);
        for iteration in 1..=iterations {
            work(steps);
            arrived.fetch_add(1, Ordering::AcqRel);
            while arrived.load(Ordering::Acquire) < iteration * ranks {
                std::hint::spin_loop();
            }
        }
        Ok(())
    };
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = cpus.iter().map(|&cpu| scope.spawn(move || one(cpu))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| anyhow!("a rank of the job panicked"))?
        })
    })?;
    println!("{}", json!({ "ns": begin.elapsed().as_nanos() as u64, "steps": steps }));
    Ok(())
}

/// Work that takes the same number of instructions each time.
fn work(steps: u64) {
    let mut x = std::hint::black_box(1u64);
    for _ in 0..steps {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    }
    std::hint::black_box(x);
}

/// Steps of work for this time; the fastest of many attempts is one without interruptions.
fn calibrate(compute: Duration) -> u64 {
    let mut fastest = Duration::MAX;
    for _ in 0..2_000 {
        let begin = Instant::now();
        work(STEPS);
        fastest = fastest.min(begin.elapsed());
    }
    (compute.as_secs_f64() / fastest.as_secs_f64().max(1e-9) * STEPS as f64) as u64
}
