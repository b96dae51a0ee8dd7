//! The probe threads: pinned, calibrated, released together, and read at the end.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
};

use thiserror::Error;
use trace::CpuSettings;

use crate::{
    cpulist::CpuSet,
    node::{machine, privileges},
    options::Threshold,
    probe::{
        clock::Counter,
        counters::Counters,
        spin::{Jumps, ProbeError, Run, TimerCost, assess, run},
    },
};

/// Name of the probe threads in /proc.
pub const PROBE_THREAD: &str = "detour-probe";

/// Readings to measure t_min: about 15 ms.
const READINGS: u32 = 1_000_000;

#[derive(Debug, Error)]
pub enum ProbesError {
    #[error("cannot start a thread for CPU {cpu}: {source}")]
    Thread { cpu: u32, source: std::io::Error },
    #[error("CPU {0} went offline or left the cpuset before its probe could start")]
    Pin(u32),
    #[error("cannot set SCHED_FIFO: {0} (needs CAP_SYS_NICE; run as root or omit --fifo)")]
    Fifo(std::io::Error),
    #[error(
        "the recorder runs under a real-time policy, which its probes cannot drop: {0}; start it \
         without chrt (use --fifo for the probes)"
    )]
    RealTime(std::io::Error),
    #[error(transparent)]
    Probe(#[from] ProbeError),
    #[error("the probe thread of CPU {0} exited before it was ready")]
    Gone(u32),
}

pub struct Settings {
    pub threshold: Threshold,
    pub fifo: Option<u32>,
    /// Capacity of each buffer in jumps.
    pub capacity: usize,
    pub ticks_per_ns: f64,
}

/// A calibrated probe that waits to be released.
pub struct Ready {
    pub cpu: u32,
    pub tid: u32,
    /// Shortest iteration of the loop, ticks.
    pub t_min: u64,
    pub jumps: Arc<Jumps>,
    pub settings: CpuSettings,
}

/// Results of a probe at the end.
pub struct Finished {
    pub run: Run,
    pub counters: BTreeMap<String, u64>,
}

pub struct Probe {
    pub ready: Ready,
    release: SyncSender<()>,
    thread: JoinHandle<Finished>,
}

impl Probe {
    pub fn release(&self) {
        // A thread that has exited is noticed when it is joined.
        let _ = self.release.send(());
    }

    /// Waits for the loop to end; None if the thread panicked.
    pub fn join(self) -> (Ready, Option<Finished>) {
        (self.ready, self.thread.join().ok())
    }
}

/// Starts one probe per CPU and waits until all are calibrated.
pub fn prepare<C: Counter>(cpus: &CpuSet, settings: &Settings) -> Result<Vec<Probe>, ProbesError> {
    let mut starting = Vec::new();
    for &cpu in cpus {
        let (ready_out, ready_in) = sync_channel(1);
        let (release, released) = sync_channel(1);
        let thread = Thread {
            cpu,
            threshold: settings.threshold,
            fifo: settings.fifo,
            capacity: settings.capacity,
            ticks_per_ns: settings.ticks_per_ns,
        };
        let handle = std::thread::Builder::new()
            .name(PROBE_THREAD.to_owned())
            .spawn(move || thread.main::<C>(&ready_out, &released))
            .map_err(|source| ProbesError::Thread { cpu, source })?;
        starting.push((cpu, ready_in, release, handle));
    }
    let mut probes = Vec::new();
    for (cpu, ready, release, thread) in starting {
        // An error drops the other probes' channels, which ends their threads.
        let ready = ready.recv().map_err(|_| ProbesError::Gone(cpu))??;
        probes.push(Probe { ready, release, thread });
    }
    Ok(probes)
}

struct Thread {
    cpu: u32,
    threshold: Threshold,
    fifo: Option<u32>,
    capacity: usize,
    ticks_per_ns: f64,
}

impl Thread {
    fn main<C: Counter>(
        self,
        ready: &SyncSender<Result<Ready, ProbesError>>,
        released: &Receiver<()>,
    ) -> Finished {
        let nothing = Finished { run: Run::default(), counters: BTreeMap::new() };
        let (prepared, (threshold, push)) = match self.prepare::<C>() {
            Ok(prepared) => prepared,
            Err(error) => {
                let _ = ready.send(Err(error));
                return nothing;
            }
        };
        let jumps = Arc::clone(&prepared.jumps);
        let mut counters = Counters::open(self.cpu);
        privileges::give_up();
        if ready.send(Ok(prepared)).is_err() || released.recv().is_err() {
            return nothing;
        }
        counters.start();
        let run = run::<C>(&jumps, threshold, push);
        counters.stop();
        Finished { run, counters: counters.read() }
    }

    /// Also returns the threshold and the cost of storing a jump, ticks.
    fn prepare<C: Counter>(&self) -> Result<(Ready, (u64, u64)), ProbesError> {
        if !machine::pin(&CpuSet::from([self.cpu])) {
            return Err(ProbesError::Pin(self.cpu));
        }
        match self.fifo {
            Some(priority) => {
                machine::set_policy(libc::SCHED_FIFO, priority).map_err(ProbesError::Fifo)?;
            }
            // Starting the recorder with a real-time policy is not a request for real-time loops on all
            // CPUs.
            None if machine::is_real_time() => {
                machine::set_policy(libc::SCHED_OTHER, 0).map_err(ProbesError::RealTime)?;
            }
            None => {}
        }
        // After pinning, so that the buffer is on the CPU's own NUMA node.
        let jumps = Arc::new(Jumps::new(self.capacity)?);
        let cost = assess::<C>(READINGS);
        let threshold = self.threshold.ticks(self.cpu, cost.t_min, self.ticks_per_ns)?;
        let settings = CpuSettings {
            cpu: self.cpu,
            t_min_ns: cost.t_min as f64 / self.ticks_per_ns,
            threshold_ns: threshold as f64 / self.ticks_per_ns,
            timer_histogram: histogram(&cost, self.ticks_per_ns),
        };
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        Ok((
            Ready { cpu: self.cpu, tid, t_min: cost.t_min, jumps, settings },
            (threshold, cost.push),
        ))
    }
}

fn histogram(cost: &TimerCost, ticks_per_ns: f64) -> Vec<(f64, u64)> {
    let seen = cost.histogram.iter().enumerate().filter(|(_, count)| **count > 0);
    seen.map(|(ticks, &count)| (ticks as f64 / ticks_per_ns, count)).collect()
}
