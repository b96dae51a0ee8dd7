//! A program with several threads: some compute all the time, some sleep nearly all the time. Prints the
//! CPU time charged to each, and the number of timer interrupts of a CPU meanwhile.

use std::{fs, thread, time::Duration};

use anyhow::{Context, Result};
use serde_json::json;

use crate::os;

/// The kernel's accounting of a thread: time on a CPU, and run-queue delay (ns).
fn schedstat() -> Result<(u64, u64)> {
    let text =
        fs::read_to_string("/proc/thread-self/schedstat").context("cannot read schedstat")?;
    let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
    let times = numbers.next().zip(numbers.next());
    times.with_context(|| format!("'{}' is not a schedstat", text.trim()))
}

/// Local timer interrupts of a CPU; None if the machine counts them differently.
fn timer_interrupts(cpu: u32) -> Option<u64> {
    let text = fs::read_to_string("/proc/interrupts").ok()?;
    let mut lines = text.lines();
    let name = format!("CPU{cpu}");
    let column = lines.next()?.split_whitespace().position(|word| word == name)?;
    let line = lines.find(|line| line.trim_start().starts_with("LOC:"))?;
    line.split_whitespace().nth(1 + column)?.parse().ok()
}

/// Computing threads may run on any of the CPUs; sleeping threads run on the first.
pub(crate) fn run(
    cpus: &[u32],
    threads: usize,
    sleepers: usize,
    time: Duration,
    name: &str,
) -> Result<()> {
    let first = *cpus.first().context("no CPU to run on")?;
    os::name("threads");
    let dozing = (0..sleepers).map(|_| {
        thread::spawn(move || -> Result<()> {
            os::name("doze");
            os::pin(first)?;
            let until = os::monotonic_ns() + time.as_nanos() as u64;
            while os::monotonic_ns() < until {
                thread::sleep(Duration::from_millis(50));
            }
            Ok(())
        })
    });
    let dozing: Vec<_> = dozing.collect();
    let before = timer_interrupts(first);
    let spinning = (0..threads).map(|_| {
        let (cpus, name) = (cpus.to_vec(), name.to_owned());
        thread::spawn(move || -> Result<(u64, u64)> {
            os::name(&name);
            os::pin_to(&cpus)?;
            os::burn(time);
            schedstat()
        })
    });
    let spinning: Vec<_> = spinning.collect();
    let mut charged = Vec::new();
    for thread in spinning {
        let (run_ns, wait_ns) =
            thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        charged.push(json!({ "run_ns": run_ns, "wait_ns": wait_ns }));
    }
    let after = timer_interrupts(first);
    for thread in dozing {
        thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
    }
    let ticks = after.zip(before).map(|(after, before)| after - before);
    println!("{}", json!({ "threads": charged, "timer_interrupts": ticks }));
    Ok(())
}
