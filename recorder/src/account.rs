//! Metadata of a recording: the node and the settings before, losses and overhead after.

use recorder_abi::{CpuState, TIMED_RUNS, hook, tick};
use trace::{
    CpuEntries, CpuSettings, Entries, Lane, LaneTotals, Lost, Manifest, Mode, Overhead, STEAL,
};

use crate::{
    cpulist::CpuSet,
    kernel::bpf::Bpf,
    node::{
        files,
        hypervisor::{self, Stolen},
        machine,
        memory::Memory,
    },
    options::{Options, Threshold},
    pipeline::assemble::Assembled,
    probe::pinned::{Finished, Probe},
};

/// The window in which each lane was watched. Without any probe, `unprobed` lanes are CPUs whose records
/// were read from start to end.
pub fn lanes(
    probes: Vec<(u32, Option<Finished>, u64)>,
    unprobed: &[u32],
    (epoch_ns, ended_ns): (u64, u64),
    stolen: Option<&Stolen>,
    assembled: &Assembled,
) -> Vec<LaneTotals> {
    let ns = |ticks| assembled.clock.ns(ticks).unwrap_or(0).saturating_sub(epoch_ns);
    let steal = |cpu: u32| Some((STEAL.to_owned(), stolen?.on(cpu)?));
    let of_probe = |(lane, (cpu, finished, _)): (usize, (u32, Option<Finished>, u64))| {
        let mut finished = finished?;
        finished.counters.extend(steal(cpu));
        Some(LaneTotals {
            lane: lane as u32,
            from_ns: ns(finished.run.first),
            to_ns: ns(finished.run.last),
            iterations: finished.run.iterations,
            counters: finished.counters,
            ..LaneTotals::default()
        })
    };
    let mut lanes: Vec<LaneTotals> = probes.into_iter().enumerate().filter_map(of_probe).collect();
    if lanes.is_empty() {
        let to_ns = ended_ns.saturating_sub(epoch_ns);
        lanes.extend(unprobed.iter().enumerate().map(|(lane, &cpu)| LaneTotals {
            lane: lane as u32,
            to_ns,
            counters: steal(cpu).into_iter().collect(),
            ..LaneTotals::default()
        }));
    }
    for thread in &assembled.threads {
        lanes.push(LaneTotals {
            lane: thread.lane.0,
            from_ns: thread.from_ns,
            to_ns: thread.to_ns,
            run_ns: Some(thread.run_ns),
            wait_ns: Some(thread.wait_ns),
            ..LaneTotals::default()
        });
    }
    lanes.sort_by_key(|totals| totals.lane);
    lanes
}

/// The minimum length of a program's interruptions and waits to be detours, if one was given.
pub fn program_threshold_ns(options: &Options) -> Option<f64> {
    match (&options.program, options.threshold) {
        (Some(_), Threshold::Absolute(ns)) => Some(ns),
        _ => None,
    }
}

/// The node and the settings.
pub fn manifest(
    options: &Options,
    memory: &Memory,
    measured: &CpuSet,
    housekeeping: &CpuSet,
    bpf: Option<&Bpf>,
    probes: &[Probe],
    counter: &str,
) -> Manifest {
    let mode = match (&options.program, bpf, probes) {
        (Some(_), _, _) => Mode::Program,
        (None, None, _) => Mode::ProbeOnly,
        (None, Some(_), []) => Mode::KernelOnly,
        (None, Some(_), _) => Mode::Attributed,
    };
    let lanes = match &options.program {
        // Threads get their lanes as they appear.
        Some(_) => Vec::new(),
        None => measured.iter().map(|&cpu| Lane::Cpu { cpu }).collect(),
    };
    Manifest {
        detour_version: env!("CARGO_PKG_VERSION").to_owned(),
        host: machine::host(),
        boot_id: files::text("/proc/sys/kernel/random/boot_id"),
        kernel: machine::kernel(),
        arch: machine::architecture(),
        command_line: options.command_line.clone(),
        job_id: machine::job_id(),
        started_unix_s: 0.0,
        started_monotonic_ns: 0,
        mode,
        cpu_model: machine::cpu_model(),
        hypervisor: hypervisor::name(),
        topology: machine::topology(),
        isolation: machine::isolation(measured, housekeeping),
        clocksource: machine::clocksource(),
        tick_hz: machine::tick_hz(),
        probe_clock: (!probes.is_empty()).then(|| counter.to_owned()),
        lanes,
        cpus: match program_threshold_ns(options) {
            Some(threshold_ns) => {
                let cpus = measured.iter();
                cpus.map(|&cpu| CpuSettings { cpu, threshold_ns, ..CpuSettings::default() })
                    .collect()
            }
            None => probes.iter().map(|probe| probe.ready.settings.clone()).collect(),
        },
        hooks_attached: bpf.map(|bpf| bpf.attached.clone()).unwrap_or_default(),
        hooks_missing: bpf.map(|bpf| bpf.missing.clone()).unwrap_or_default(),
        memory: Some(trace::MemoryTaken {
            ring_bytes: if bpf.is_some() { memory.ring_bytes.into() } else { 0 },
            probe_bytes: if probes.is_empty() { 0 } else { memory.probe_bytes },
            total_bytes: memory.total_bytes(bpf.is_some(), !probes.is_empty()),
        }),
        limits: Vec::new(),
        nodes: Vec::new(),
    }
}

/// A snapshot of the kernel side's per-CPU counters.
#[derive(Clone)]
pub struct Counters {
    /// On CLOCK_MONOTONIC.
    pub at_ns: u64,
    pub cpus: Vec<CpuState>,
    /// Runs that the kernel has skipped.
    pub skipped: u64,
}

/// The kernel side's counters over an interval: the difference of two snapshots.
pub struct Counted {
    pub before: Counters,
    pub after: Counters,
}

impl Counted {
    /// Growth of a counter on all CPUs.
    fn growth_everywhere(&self, counter: impl Fn(&CpuState) -> u64) -> u64 {
        let pairs = self.before.cpus.iter().zip(&self.after.cpus);
        pairs.map(|(before, after)| counter(after).wrapping_sub(counter(before))).sum()
    }

    /// Growth of a counter on the measured CPUs.
    fn growth(&self, measured: &CpuSet, counter: impl Fn(&CpuState) -> u64) -> u64 {
        let pairs = self.before.cpus.iter().zip(&self.after.cpus).enumerate();
        pairs
            .filter(|(cpu, _)| measured.contains(&(*cpu as u32)))
            .map(|(_, (before, after))| counter(after).wrapping_sub(counter(before)))
            .sum()
    }

    /// What the kernel side sent and lost, and what was read of it, by CPU and in total: two independent
    /// counts. None stands for all CPUs that were offline when the recording began.
    pub fn entries(&self, sent: &[(Option<u32>, u64)], read: &[(Option<u32>, u64)]) -> Entries {
        let has_ring = |cpu: u32| sent.iter().any(|(sender, _)| *sender == Some(cpu));
        let lost = |of: Option<u32>| -> u64 {
            let pairs = self.before.cpus.iter().zip(&self.after.cpus).zip(0..);
            let of_it = pairs.filter(|(_, cpu)| of == Some(*cpu).filter(|&cpu| has_ring(cpu)));
            of_it.map(|((before, after), _)| after.lost.wrapping_sub(before.lost)).sum()
        };
        let cpus = sent.iter().map(|&(cpu, sent)| CpuEntries {
            cpu,
            emitted: sent + lost(cpu),
            read: read.iter().filter(|(reader, _)| *reader == cpu).map(|(_, read)| read).sum(),
            lost: lost(cpu),
        });
        // CPUs that were offline throughout are omitted.
        let cpus: Vec<CpuEntries> =
            cpus.filter(|cpu| cpu.cpu.is_some() || cpu.emitted > 0).collect();
        Entries {
            emitted: cpus.iter().map(|cpu| cpu.emitted).sum(),
            read: cpus.iter().map(|cpu| cpu.read).sum(),
            cpus,
        }
    }

    /// Attempts to stop the tick on each measured CPU.
    pub fn tick_stops(&self, measured: &CpuSet) -> Vec<(u32, [u64; tick::REASONS])> {
        let pairs = (0..).zip(self.before.cpus.iter().zip(&self.after.cpus));
        let growth = |(before, after): (&CpuState, &CpuState)| {
            std::array::from_fn(|reason| {
                u64::from(after.tick_stops[reason].wrapping_sub(before.tick_stops[reason]))
            })
        };
        let of_cpu = pairs.map(|(cpu, pair)| (cpu, growth(pair)));
        of_cpu.filter(|(cpu, _)| measured.contains(cpu)).collect()
    }

    /// Page faults that began and have not ended. A CPU may see more ends than beginnings.
    fn faults_open(&self) -> u64 {
        let pairs = self.before.cpus.iter().zip(&self.after.cpus);
        let growth = |(before, after): (&CpuState, &CpuState)| {
            i64::from(after.faults_open.wrapping_sub(before.faults_open) as i32)
        };
        pairs.map(growth).sum::<i64>().max(0) as u64
    }

    pub fn losses(&self, measured: &CpuSet) -> Lost {
        Lost {
            // Entries from other CPUs matter for the measured ones as well: wakers and senders of IPIs.
            records: self.growth_everywhere(|s| s.lost),
            records_ns: self.growth(measured, |s| s.lost_ns),
            // Faults that left a CPU and ended on none: rejected, or still in progress.
            unmatched: self.growth(measured, |s| s.unmatched) + self.faults_open(),
            overflow: self.growth(measured, |s| s.overflow),
            skipped: self.after.skipped.saturating_sub(self.before.skipped),
            ..Lost::default()
        }
    }

    /// What recording took from the measured CPUs: `own_ns` for the recorder's own threads, plus the BPF
    /// programs, which time some of their own runs.
    pub fn overhead(&self, measured: &CpuSet, own_ns: u64, reader_cpu_ns: u64) -> Overhead {
        let over_hooks = |count: fn(u64) -> u64| -> u64 {
            (0..hook::COUNT).map(|index| self.growth(measured, |s| count(s.hits[index]))).sum()
        };
        let events = over_hooks(|hits| hits);
        let bpf_ns = match self.after.cpus.is_empty() {
            true => None,
            false => {
                estimated_ns(self.growth(measured, |s| s.timed_ns), over_hooks(timed_runs), events)
            }
        };
        let taken = match (bpf_ns, self.after.cpus.is_empty()) {
            (None, false) => None,
            (bpf_ns, _) => Some(own_ns + bpf_ns.unwrap_or(0)),
        };
        let window_ns = self.after.at_ns.saturating_sub(self.before.at_ns);
        let window_ns = window_ns.saturating_mul(measured.len() as u64);
        Overhead {
            events,
            bpf_ns_total: bpf_ns,
            cpu_pct: taken.and_then(|taken| share_pct(taken, window_ns)),
            reader_cpu_ns,
        }
    }
}

/// How many of a program's first `runs` runs are timed.
fn timed_runs(runs: u64) -> u64 {
    (runs + TIMED_RUNS / 2) / TIMED_RUNS
}

/// Extrapolates the time of all runs from the timed ones, assuming equal cost. None if none was timed.
fn estimated_ns(timed_ns: u64, timed: u64, runs: u64) -> Option<u64> {
    match (timed, runs) {
        (_, 0) => Some(0),
        (0, _) => None,
        _ => Some((u128::from(timed_ns) * u128::from(runs) / u128::from(timed)) as u64),
    }
}

/// An estimate may exceed the window; the share may not.
fn share_pct(taken_ns: u64, window_ns: u64) -> Option<f64> {
    (window_ns > 0).then(|| (100.0 * taken_ns as f64 / window_ns as f64).min(100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_in_so_many_is_timed() {
        let timed_among =
            |runs: u64| (1..=runs).filter(|r| r % TIMED_RUNS == TIMED_RUNS / 2).count();
        for runs in 0..5 * TIMED_RUNS {
            assert_eq!(timed_runs(runs), timed_among(runs) as u64, "{runs}");
        }
    }

    #[test]
    fn the_cost_of_all_runs_follows_from_those_that_were_timed() {
        // One timed run of 1 us stands for the 40 actual runs, not for a full period of 64.
        assert_eq!(estimated_ns(1_000, 1, 40), Some(40_000));
        assert_eq!(estimated_ns(156_000, 156, 10_000), Some(10_000_000));
        assert_eq!(estimated_ns(0, 0, 31), None);
        assert_eq!(estimated_ns(0, 0, 0), Some(0));
    }

    #[test]
    fn a_share_is_of_the_time_in_which_it_was_taken() {
        assert_eq!(share_pct(40_000, 2 * 10_000_000), Some(0.2));
        assert_eq!(share_pct(u64::MAX, 1), Some(100.0));
        assert_eq!(share_pct(5, 0), None);
    }

    #[test]
    fn without_bpf_the_cost_is_that_of_the_threads() {
        let counters = |at_ns| Counters { at_ns, cpus: Vec::new(), skipped: 0 };
        let counted = Counted { before: counters(1_000), after: counters(2_000) };
        let overhead = counted.overhead(&CpuSet::from([0, 1]), 20, 7);
        assert_eq!((overhead.bpf_ns_total, overhead.cpu_pct), (None, Some(1.0)));
    }
}
