//! How a simulation is run: seed, threads, memory, progress, interruption.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use anyhow::Result;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use simulate::sweep::Plan;

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Same seed, same result, whatever the number of threads
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Threads [default: all that this process may use]
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

    /// So many runs with all that this machine has.
    pub fn plan<'a>(&self, runs: u64, progress: &'a (dyn Fn(u64) -> bool + Sync)) -> Plan<'a> {
        Plan { runs, seed: self.seed, threads: self.threads(), memory: memory(), progress }
    }
}

/// Memory that can be had without pushing anything out, less a tenth. Plenty where nobody says.
pub fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib * 1024 / 10 * 9)
}

/// A bar on a terminal, and the question whether to stop.
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
        // The second Ctrl-C ends it the usual way.
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))?;
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        Ok(Progress { bar, done: AtomicU64::new(0), stop })
    }

    pub fn now(&self, message: String) {
        self.bar.set_message(message);
    }

    /// There will be so much to do, where that was not known from the start.
    pub fn expect(&self, total: u64) {
        self.bar.set_length(total);
    }

    /// So much more is done; false when it is time to stop.
    pub fn advance(&self, by: u64) -> bool {
        let done = self.done.fetch_add(by, Ordering::Relaxed).saturating_add(by);
        self.bar.set_position(done);
        !self.stop.load(Ordering::Relaxed)
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
