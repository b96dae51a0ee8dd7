//! A daemon: wakes up periodically and burns CPU time. It logs the time of each burst, and the CPU time
//! charged for the burst and for the wake-up before it.

use std::{
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde_json::json;

use crate::os;

/// How long a burst lasts.
#[derive(Clone, Copy)]
pub(crate) enum Burn {
    /// Until this much time has passed: of a busy CPU it gets a part of that.
    Elapsed(Duration),
    /// Until it has used this much CPU time.
    CpuTime(Duration),
}

pub(crate) fn run(
    cpu: u32,
    seconds: f64,
    period: Duration,
    burn: Burn,
    name: &str,
    log: Option<&Path>,
) -> Result<()> {
    os::pin(cpu)?;
    let wakes = (seconds / period.as_secs_f64()) as u64;
    let mut bursts = Vec::with_capacity(wakes as usize);
    // Takes its name only now, so that start-up is not measured.
    std::thread::sleep(period);
    os::name(name);
    let cpu_before = os::thread_cpu_ns();
    let mut charged = cpu_before;
    let mut next = Instant::now();
    for _ in 0..wakes {
        next += period;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let (start, woken) = (os::monotonic_ns(), os::thread_cpu_ns());
        match burn {
            Burn::Elapsed(time) => os::spin(time),
            Burn::CpuTime(time) => {
                let until = woken + time.as_nanos() as u64;
                while os::thread_cpu_ns() < until {}
            }
        }
        let spun = os::thread_cpu_ns();
        bursts.push([start, os::monotonic_ns(), spun - woken, woken - charged]);
        charged = spun;
    }
    let cpu_ns = os::thread_cpu_ns() - cpu_before;
    // A time slice is recorded under the name its thread has when it leaves the CPU.
    std::thread::sleep(Duration::from_millis(2));
    os::name("loadgen-end");
    if let Some(path) = log {
        let mut file = std::fs::File::create(path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        let line = |[start, end, burst, way]: &[u64; 4]| format!("{start} {end} {burst} {way}\n");
        let lines: String = bursts.iter().map(line).collect();
        file.write_all(lines.as_bytes())?;
    }
    println!("{}", json!({ "wakes": wakes, "cpu_ns": cpu_ns }));
    Ok(())
}
