//! What a recording says about itself: the node and the settings before, losses and cost after.

use detour_abi::{CpuState, TIMED_RUNS, hook};
use trace::{Lane, LaneTotals, Lost, Manifest, Mode, Overhead, STEAL};

use crate::{
    assemble::Assembled,
    bpf::Bpf,
    cpulist::CpuSet,
    hypervisor::{self, Stolen},
    machine,
    options::Options,
    probes::{Finished, Probe},
};

/// From when to when each lane was watched. Without a single probe, `unprobed` lanes are CPUs whose
/// records were read from start to end.
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
    for &(lane, from_ns, to_ns) in &assembled.threads {
        lanes.push(LaneTotals { lane: lane.0, from_ns, to_ns, ..LaneTotals::default() });
    }
    lanes.sort_by_key(|totals| totals.lane);
    lanes
}

/// The node and the settings.
pub fn manifest(
    options: &Options,
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
        probe_clock: (!probes.is_empty()).then(|| counter.to_owned()),
        lanes,
        cpus: probes.iter().map(|probe| probe.ready.settings.clone()).collect(),
        hooks_attached: bpf.map(|bpf| bpf.attached.clone()).unwrap_or_default(),
        hooks_missing: bpf.map(|bpf| bpf.missing.clone()).unwrap_or_default(),
        limits: Vec::new(),
        nodes: Vec::new(),
    }
}

/// The kernel side's counters over a recording.
pub struct Counted {
    pub before: Vec<CpuState>,
    pub after: Vec<CpuState>,
}

impl Counted {
    /// Growth of a counter on all CPUs.
    fn growth_everywhere(&self, counter: impl Fn(&CpuState) -> u64) -> u64 {
        let pairs = self.before.iter().zip(&self.after);
        pairs.map(|(before, after)| counter(after).wrapping_sub(counter(before))).sum()
    }

    /// Growth of a counter on the measured CPUs.
    fn growth(&self, measured: &CpuSet, counter: impl Fn(&CpuState) -> u64) -> u64 {
        let pairs = self.before.iter().zip(&self.after).enumerate();
        pairs
            .filter(|(cpu, _)| measured.contains(&(*cpu as u32)))
            .map(|(_, (before, after))| counter(after).wrapping_sub(counter(before)))
            .sum()
    }

    pub fn losses(&self, measured: &CpuSet) -> Lost {
        Lost {
            // What is sent from elsewhere is about the measured ones, too: who wakes and interrupts.
            records: self.growth_everywhere(|s| s.lost),
            records_ns: self.growth(measured, |s| s.lost_ns),
            unmatched: self.growth(measured, |s| s.unmatched),
            overflow: self.growth(measured, |s| s.overflow),
            ..Lost::default()
        }
    }

    /// The programs time some of their own runs; the rest is taken to cost the same.
    pub fn overhead(
        &self,
        measured: &CpuSet,
        own_ns: u64,
        window_ns: u64,
        reader_cpu_ns: u64,
    ) -> Overhead {
        let events = (0..hook::COUNT).map(|index| self.growth(measured, |s| s.hits[index])).sum();
        let bpf_ns = self.growth(measured, |s| s.timed_ns) * TIMED_RUNS;
        let taken = own_ns + bpf_ns;
        Overhead {
            events,
            bpf_ns_total: (!self.after.is_empty()).then_some(bpf_ns),
            cpu_pct: (window_ns > 0).then(|| 100.0 * taken as f64 / window_ns as f64),
            reader_cpu_ns,
        }
    }
}
