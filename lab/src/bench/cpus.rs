//! The cost of recording by the number of CPUs that record at the same time, and when nothing happens.

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::{Bench, Figure, grouped, number, skipped, unfit};
use crate::exec;

/// The recorder's threads that are the measurement itself.
const PROBE_THREAD: &str = "detour-probe";

/// Page faults on 1, 2, 4, ... CPUs: a BPF run must not cost more because other CPUs record as well.
pub fn by_number(bench: &Bench) -> Result<Vec<Figure>> {
    const ALL: &str = "cost of a BPF run: page faults on all CPUs, relative to one CPU";
    const BARE: &str = "cost of a page fault that is not recorded: the same comparison";
    const TABLE: &str = "page faults on n CPUs: BPF run; fault, recorded (not recorded)";
    const TARGET: &str = "within 10 %";
    let there = bench.workspace.binaries.contains("loadgen");
    let unfit = unfit().or_else(|| (!there).then(|| "loadgen not built".to_owned()));
    if let Some(why) = unfit {
        return Ok(vec![skipped(ALL, TARGET, &why)]);
    }
    let cpus = std::thread::available_parallelism()?.get() as u32;
    let mut best: Vec<(u32, Cost)> = Vec::new();
    // Interleaved, so that other activity on the machine affects all of them.
    for _ in 0..bench.extent.repeats {
        for (index, count) in counts(cpus).enumerate() {
            let cost = cost(bench, count, cpus)?;
            match best.get_mut(index) {
                Some((_, known)) => *known = known.least(cost),
                None => best.push((count, cost)),
            }
        }
    }
    let (Some((_, one)), Some((_, all))) = (best.first(), best.last()) else { return Ok(vec![]) };
    let more = 100.0 * (all.run_ns / one.run_ns - 1.0);
    let table = best.iter().map(|(count, cost)| {
        let Cost { run_ns, recorded_ns, bare_ns } = cost;
        format!("{count}: {run_ns:.0} ns; {recorded_ns:.0} ({bare_ns:.0}) ns")
    });
    let table = table.collect::<Vec<_>>().join(", ");
    let measured = format!("{more:+.0} % ({:.0} ns instead of {:.0} ns)", all.run_ns, one.run_ns);
    let bare = 100.0 * (all.bare_ns / one.bare_ns - 1.0);
    Ok(vec![
        Figure::judged(ALL, TARGET, measured, more <= 10.0),
        // What the CPUs take from each other: caches, memory, and the core if they are siblings.
        Figure::noted(BARE, format!("{bare:+.0} %")),
        Figure::noted(TABLE, table),
    ])
}

/// 1, 2, 4, ... and all.
fn counts(cpus: u32) -> impl Iterator<Item = u32> {
    let powers = (0..32).map(|power| 1 << power).take_while(move |&count| count < cpus);
    powers.chain([cpus])
}

#[derive(Clone, Copy)]
struct Cost {
    /// Of one BPF program run.
    run_ns: f64,
    /// Of one page fault, with and without a recording.
    recorded_ns: f64,
    bare_ns: f64,
}

impl Cost {
    fn least(self, other: Cost) -> Cost {
        Cost {
            run_ns: self.run_ns.min(other.run_ns),
            recorded_ns: self.recorded_ns.min(other.recorded_ns),
            bare_ns: self.bare_ns.min(other.bare_ns),
        }
    }
}

/// With faults on the first `count` CPUs.
fn cost(bench: &Bench, count: u32, cpus: u32) -> Result<Cost> {
    let bare_ns = faults(bench, count)?;
    let file = bench.file("cpus.detour");
    let all = format!("0-{}", cpus - 1);
    let seconds = format!("{}s", bench.extent.load_seconds + 3);
    let mut record = bench.detour();
    record.args(["record", "--no-probe", "-c", &all, "-d", &seconds, "-o"]).arg(&file);
    let recorder = Running::start(record)?;
    // Attaching takes a fraction of a second, and the whole load should be recorded.
    std::thread::sleep(Duration::from_secs(1));
    let recorded_ns = faults(bench, count);
    recorder.wait()?;
    let report =
        exec::json(bench.detour().args(["report", "--json", "--no-projection"]).arg(&file))?;
    let (taken, runs) =
        (number(&report, "/overhead/bpf_ns_total")?, number(&report, "/overhead/events")?);
    ensure!(runs > 0.0, "no BPF programs ran");
    Ok(Cost { run_ns: taken / runs, recorded_ns: recorded_ns?, bare_ns })
}

/// Time of a page fault, including the loop iteration, with the load on `count` CPUs.
fn faults(bench: &Bench, count: u32) -> Result<f64> {
    let seconds = bench.extent.load_seconds.to_string();
    let load = |cpu: u32| {
        let cpu = cpu.to_string();
        let found =
            exec::json(bench.loadgen().args(["faults", "--cpu", &cpu, "--seconds", &seconds]))?;
        Ok(1e9 * number(&found, "/seconds")? / number(&found, "/faults")?)
    };
    let each: Vec<Result<f64>> = std::thread::scope(|scope| {
        let loads: Vec<_> = (0..count).map(|cpu| scope.spawn(move || load(cpu))).collect();
        let join = |load: std::thread::ScopedJoinHandle<_>| {
            load.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a load thread panicked")))
        };
        loads.into_iter().map(join).collect()
    });
    let each = each.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(each.iter().sum::<f64>() / each.len().max(1) as f64)
}

/// CPU time of the recorder's own threads while all CPUs are recorded and nothing happens.
pub fn idle(bench: &Bench) -> Result<Vec<Figure>> {
    const WITHOUT: &str = "CPU share of recording idle CPUs, without a probe";
    const WITH: &str = "the same with a probe on each, excluding the probes' own time";
    const TARGET: &str = "< 0.05 %";
    if let Some(why) = unfit() {
        return Ok([WITHOUT, WITH].map(|what| skipped(what, TARGET, &why)).into());
    }
    let mut figures = Vec::new();
    for (what, options) in [(WITHOUT, &["--no-probe"][..]), (WITH, &[])] {
        let mut best: Option<Idle> = None;
        for _ in 0..bench.extent.repeats {
            let found = idle_share(bench, options)?;
            best = Some(best.filter(|best| best.share <= found.share).unwrap_or(found));
        }
        let Idle { share, wakeups, detours } = best.context("nothing was measured")?;
        let measured = format!(
            "{share:.3} % ({wakeups:.0} wake-ups and {} detours per second)",
            grouped(detours)
        );
        figures.push(Figure::judged(what, TARGET, measured, share < 0.05));
    }
    Ok(figures)
}

struct Idle {
    /// Percent of all CPUs.
    share: f64,
    /// Time slices of the recorder's threads per second.
    wakeups: f64,
    /// Detours of all CPUs per second. A noisy host makes many, and each has to be read.
    detours: f64,
}

fn idle_share(bench: &Bench, options: &[&str]) -> Result<Idle> {
    let cpus = std::thread::available_parallelism()?.get() as f64;
    let seconds = f64::from(bench.extent.load_seconds);
    let mut record = bench.detour();
    let duration = format!("{}s", bench.extent.load_seconds + 4);
    let file = bench.file("idle.detour");
    record.args(["record", "-d", &duration, "-o"]).arg(&file).args(options);
    let recorder = Running::start(record)?;
    // Loading and the first announcements are done by then.
    std::thread::sleep(Duration::from_secs(2));
    let before = recorder.own_time()?;
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let after = recorder.own_time()?;
    recorder.wait()?;
    let (ns, runs) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
    let report =
        exec::json(bench.detour().args(["report", "--json", "--no-projection"]).arg(&file))?;
    let detours = number(&report, "/detours")?;
    Ok(Idle {
        share: 100.0 * ns as f64 / (seconds * 1e9 * cpus),
        wakeups: runs as f64 / seconds,
        detours: detours / (seconds + 4.0),
    })
}

/// A running recorder.
pub struct Running {
    child: Child,
    what: String,
}

impl Running {
    pub fn start(mut record: Command) -> Result<Running> {
        let what = exec::describe(&record);
        let child = record.stdout(Stdio::null()).spawn();
        Ok(Running { child: child.with_context(|| format!("cannot start `{what}`"))?, what })
    }

    /// CPU time in ns and number of time slices of all threads except the probes.
    fn own_time(&self) -> Result<(u64, u64)> {
        let mut sum = (0, 0);
        for (name, ns, slices) in self.threads()? {
            if name != PROBE_THREAD {
                sum = (sum.0 + ns, sum.1 + slices);
            }
        }
        Ok(sum)
    }

    /// Name, CPU time in ns and number of time slices of each thread.
    pub fn threads(&self) -> Result<Vec<(String, u64, u64)>> {
        let directory = format!("/proc/{}/task", self.child.id());
        let mut threads = Vec::new();
        for task in fs::read_dir(&directory).with_context(|| format!("cannot read {directory}"))? {
            let path = task?.path();
            // A thread that has just exited.
            let Ok(times) = fs::read_to_string(path.join("schedstat")) else { continue };
            let Ok(name) = fs::read_to_string(path.join("comm")) else { continue };
            let number = |index| -> Option<u64> {
                times.split_whitespace().nth(index).and_then(|word| word.parse().ok())
            };
            let (Some(ns), Some(slices)) = (number(0), number(2)) else { continue };
            threads.push((name.trim_end().to_owned(), ns, slices));
        }
        Ok(threads)
    }

    pub fn wait(mut self) -> Result<()> {
        let what = &self.what;
        let status = self.child.wait().with_context(|| format!("cannot wait for `{what}`"))?;
        ensure!(status.success(), "`{what}` failed ({status})");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_cpus_double_up_to_all() {
        assert_eq!(counts(1).collect::<Vec<_>>(), [1]);
        assert_eq!(counts(2).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(counts(12).collect::<Vec<_>>(), [1, 2, 4, 8, 12]);
    }
}
