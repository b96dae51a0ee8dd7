//! How a simulation runs: seed, threads, memory, progress, interruption.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};
use simulate::{
    event::{self, Rules, Schedule},
    sweep::Plan,
};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Random seed; results do not depend on the number of threads
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of threads [default: all CPUs this process may use]
    #[arg(short = 'j', long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Option<u32>,
}

impl Options {
    pub fn threads(&self) -> usize {
        match self.threads {
            Some(threads) => threads as usize,
            None => std::thread::available_parallelism().map_or(1, |threads| threads.get()),
        }
    }

    /// A plan for `runs` runs with all available memory.
    pub fn plan<'a>(&self, runs: u64, progress: &'a (dyn Fn(u64) -> bool + Sync)) -> Plan<'a> {
        Plan { runs, seed: self.seed, threads: self.threads(), memory: memory(), progress }
    }
}

/// Available memory of the machine and of the job's cgroup, without swapping, less 10 %.
#[cfg(target_os = "linux")]
pub fn memory() -> u64 {
    recorder::machine::available_memory() / 10 * 9
}

/// Unknown on this platform.
#[cfg(not(target_os = "linux"))]
pub fn memory() -> u64 {
    u64::MAX
}

/// Rejects a schedule whose run would not fit in memory.
pub fn fits(schedule: &Schedule, rules: Rules) -> Result<()> {
    let (needed, memory) = (event::run_memory(schedule, rules), memory());
    if needed > memory {
        bail!(
            "a run of {} ranks and {} operations needs {} MB of memory, {} MB available: simulate \
             fewer ranks, or number CPUs and NICs contiguously from 0",
            schedule.ranks(),
            schedule.operations(),
            needed >> 20,
            memory >> 20
        );
    }
    Ok(())
}

/// Delay between an interrupt and exit: a single run may take hours, and nothing is lost but unfinished
/// runs.
const GRACE: Duration = Duration::from_millis(800);
/// Exit code after an interrupt.
const INTERRUPTED: i32 = 130;

/// A progress bar, and whether to stop.
pub struct Progress {
    bar: ProgressBar,
    done: AtomicU64,
    stop: Arc<AtomicBool>,
}

impl Progress {
    pub fn new(total: u64, quiet: bool) -> Result<Progress> {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(total) };
        let style = ProgressStyle::with_template("{msg:24} {wide_bar} {percent:>3} % {eta:>4}")?;
        bar.set_style(style);
        let stop = Arc::new(AtomicBool::new(false));
        // The second Ctrl-C kills the process.
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))?;
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let shown = bar.clone();
        std::thread::spawn(move || {
            if signals.forever().next().is_some() {
                std::thread::sleep(GRACE);
                shown.finish_and_clear();
                std::process::exit(INTERRUPTED);
            }
        });
        Ok(Progress { bar, done: AtomicU64::new(0), stop })
    }

    pub fn now(&self, message: String) {
        self.bar.set_message(message);
    }

    /// Sets the total amount of work, if not known from the start.
    pub fn expect(&self, total: u64) {
        self.bar.set_length(total);
    }

    /// Adds finished work; returns false if interrupted.
    pub fn advance(&self, by: u64) -> bool {
        let done = self.done.fetch_add(by, Ordering::Relaxed).saturating_add(by);
        self.bar.set_position(done);
        !self.stop.load(Ordering::Relaxed)
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
