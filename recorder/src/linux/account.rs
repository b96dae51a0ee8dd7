//! What a recording says about itself: the node and the settings before, losses and cost after.

use detour_abi::{CpuState, TIMED_RUNS, hook};
use trace::{Lane, Lost, Manifest, Mode, Overhead};

use crate::{bpf::Bpf, cpulist::CpuSet, machine, options::Options, probes::Probe};

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
