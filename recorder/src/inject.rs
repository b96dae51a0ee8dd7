//! Plays detours: on each CPU a thread takes the CPU at given times for given lengths.
//!
//! In: CPUs with their detours. Out: what was played, and how late. A thread sleeps until a detour is due and
//! spins until it is over. With a real-time priority it preempts whatever runs there.

use std::{
    io,
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, sync_channel},
    },
    thread::{JoinHandle, Thread},
    time::Duration,
};

use thiserror::Error;

use crate::{
    cpulist::CpuSet,
    node::{machine, privileges},
    probe::clock::monotonic_ns,
};

/// Name of the threads in /proc, and so in recordings made meanwhile.
pub const INJECTOR: &str = "detour-inject";

/// Above ordinary threads, below everything else that is real-time.
const PRIORITY: u32 = 1;

/// Time to start all threads before the first detour.
const LEAD_NS: u64 = 100_000_000;

#[derive(Debug, Error)]
pub enum InjectError {
    #[error("cannot start a thread for CPU {cpu}: {source}")]
    Thread { cpu: u32, source: io::Error },
    #[error("cannot run on CPU {0}: it is offline or outside the cpuset of this process")]
    Pin(u32),
    #[error("the thread of CPU {0} exited before it was ready")]
    Gone(u32),
}

/// The detours to play on a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Track {
    pub cpu: u32,
    /// Start and length, ns, sorted and disjoint.
    pub detours: Vec<(u64, u64)>,
    /// After this time they are repeated, ns.
    pub span_ns: u64,
}

/// What a thread did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Played {
    pub cpu: u32,
    pub detours: u64,
    /// The lengths of these detours.
    pub wanted_ns: u64,
    /// CPU time the thread used.
    pub taken_ns: u64,
    /// Delay of each detour, ns; saturates at 4 s.
    pub late_ns: Vec<u32>,
    /// Whether it had a real-time priority.
    pub real_time: bool,
}

/// Threads at work.
#[derive(Debug)]
pub struct Injection {
    threads: Vec<(u32, JoinHandle<Played>)>,
    stop: Arc<AtomicBool>,
}

impl Injection {
    /// Starts playing, for this long.
    pub fn start(tracks: Vec<Track>, duration_ns: u64) -> Result<Injection, InjectError> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut injection = Injection { threads: Vec::new(), stop: Arc::clone(&stop) };
        let begin_ns = monotonic_ns() + LEAD_NS;
        let mut starting: Vec<(u32, Receiver<bool>)> = Vec::new();
        for track in tracks {
            let (cpu, stop) = (track.cpu, Arc::clone(&stop));
            let (ready, pinned) = sync_channel(1);
            let play = move || {
                let good = machine::pin(&CpuSet::from([cpu]));
                let real_time = machine::set_policy(libc::SCHED_FIFO, PRIORITY).is_ok();
                // An ordinary thread may otherwise be woken 50 us late.
                let _ = rustix::thread::set_current_timer_slack(NonZero::new(1));
                privileges::give_up();
                if ready.send(good).is_err() || !good {
                    return Played::default();
                }
                let end_ns = begin_ns.saturating_add(duration_ns);
                Played { real_time, ..track.play(begin_ns, end_ns, &stop) }
            };
            let spawned = std::thread::Builder::new().name(INJECTOR.to_owned()).spawn(play);
            match spawned {
                Ok(thread) => injection.threads.push((cpu, thread)),
                Err(source) => return Err(injection.give_up(InjectError::Thread { cpu, source })),
            }
            starting.push((cpu, pinned));
        }
        for (cpu, pinned) in starting {
            match pinned.recv() {
                Ok(true) => {}
                Ok(false) => return Err(injection.give_up(InjectError::Pin(cpu))),
                Err(_) => return Err(injection.give_up(InjectError::Gone(cpu))),
            }
        }
        Ok(injection)
    }

    fn give_up(self, error: InjectError) -> InjectError {
        self.stopper()();
        self.join();
        error
    }

    /// Ends it from another thread, within the current detours.
    pub fn stopper(&self) -> impl Fn() + Send + use<> {
        let stop = Arc::clone(&self.stop);
        let threads: Vec<Thread> =
            self.threads.iter().map(|(_, thread)| thread.thread().clone()).collect();
        move || {
            stop.store(true, Ordering::Relaxed);
            threads.iter().for_each(Thread::unpark);
        }
    }

    /// Waits for the end.
    pub fn join(self) -> Vec<Played> {
        let joined = self.threads.into_iter().map(|(cpu, thread)| {
            let played = thread.join().unwrap_or_default();
            Played { cpu, ..played }
        });
        joined.collect()
    }
}

impl Track {
    fn play(&self, begin_ns: u64, end_ns: u64, stop: &AtomicBool) -> Played {
        let mut played = Played::default();
        if self.detours.is_empty() || self.span_ns == 0 {
            return played;
        }
        let before = machine::thread_cpu_ns();
        for round in 0u64.. {
            let origin = begin_ns.saturating_add(round.saturating_mul(self.span_ns));
            for &(start, length) in &self.detours {
                let due = origin.saturating_add(start);
                if due >= end_ns || !sleep_until(due, stop) {
                    played.taken_ns = machine::thread_cpu_ns() - before;
                    return played;
                }
                let late = monotonic_ns().saturating_sub(due);
                // Whoever has the CPU loses it when the timer fires, not when this thread runs. But a detour that
                // something else has delayed is as long as any.
                let until = if late < length { due + length } else { due + late + length };
                while monotonic_ns() < until {
                    std::hint::spin_loop();
                }
                played.detours += 1;
                played.wanted_ns += length;
                played.late_ns.push(u32::try_from(late).unwrap_or(u32::MAX));
            }
        }
        played
    }
}

/// False if stopped before.
fn sleep_until(due_ns: u64, stop: &AtomicBool) -> bool {
    loop {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        match due_ns.saturating_sub(monotonic_ns()) {
            0 => return true,
            left => std::thread::park_timeout(Duration::from_nanos(left)),
        }
    }
}
