//! How a simulation runs: seed, threads, memory, progress, interruption.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use simulate::sweep::SweepError;
use study::run::work::{Unwatched, Watch, Work};
use tokio::signal::unix::SignalKind;

use crate::{output, signals};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Random seed; results do not depend on the number of threads
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of threads [default: all CPUs this process may use]
    #[arg(short = 'j', long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Option<u32>,
}

impl Options {
    /// For commands without these options.
    pub fn usual() -> Options {
        Options { seed: 1, threads: None }
    }

    /// Runs a study under a progress bar, which is removed at its end.
    pub fn run<T>(&self, quiet: bool, study: impl FnOnce(&Work<'_>) -> Result<T>) -> Result<T> {
        let progress = Progress::new(quiet)?;
        let result = study(&self.watched_by(&progress));
        progress.bar.finish_and_clear();
        // Simulations of a single run end before they notice.
        match progress.stop.load(Ordering::Relaxed) {
            true if result.is_ok() => Err(SweepError::Stopped.into()),
            _ => result,
        }
    }

    /// The same for short work, without a progress bar; Ctrl-C ends the process as usual.
    pub fn unwatched(&self) -> Work<'static> {
        self.watched_by(&Unwatched)
    }

    fn watched_by<'a>(&self, watch: &'a dyn Watch) -> Work<'a> {
        Work { seed: self.seed, threads: threads(self.threads), memory, watch }
    }

    /// How many threads to use.
    pub fn threads(&self) -> usize {
        threads(self.threads)
    }
}

/// As many as asked for, or as there are CPUs for this process.
pub fn threads(asked: Option<u32>) -> usize {
    match asked {
        Some(threads) => threads as usize,
        None => std::thread::available_parallelism().map_or(1, |threads| threads.get()),
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

/// Delay between an interrupt and exit: a single run may take hours, and nothing is lost but unfinished
/// runs.
const GRACE: Duration = Duration::from_millis(800);
/// Exit code after an interrupt.
pub const INTERRUPTED: u8 = 130;

/// A progress bar, and whether to stop.
struct Progress {
    bar: ProgressBar,
    done: AtomicU64,
    stop: Arc<AtomicBool>,
}

impl Progress {
    fn new(quiet: bool) -> Result<Progress> {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(0) };
        let style = ProgressStyle::with_template("{msg:24} {wide_bar} {percent:>3} % {eta:>4}")?;
        bar.set_style(style);
        let stop = Arc::new(AtomicBool::new(false));
        let (shown, stopped) = (bar.clone(), Arc::clone(&stop));
        signals::handle(&[SignalKind::interrupt(), SignalKind::terminate()], move |signal| {
            if signal == SignalKind::interrupt() && output::is_paging() {
                return;
            }
            // The second Ctrl-C waits for nothing.
            if stopped.swap(true, Ordering::Relaxed) {
                std::process::exit(INTERRUPTED.into());
            }
            let shown = shown.clone();
            let grace = move || {
                std::thread::sleep(GRACE);
                shown.finish_and_clear();
                std::process::exit(INTERRUPTED.into());
            };
            if std::thread::Builder::new().spawn(grace).is_err() {
                std::process::exit(INTERRUPTED.into());
            }
        })?;
        Ok(Progress { bar, done: AtomicU64::new(0), stop })
    }
}

impl Watch for Progress {
    fn expect(&self, total: u64) {
        self.bar.set_length(total);
        // Loading does not count.
        self.bar.reset_eta();
    }

    fn now(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    fn advance(&self, by: u64) -> bool {
        let done = self.done.fetch_add(by, Ordering::Relaxed).saturating_add(by);
        self.bar.set_position(done);
        !self.stop.load(Ordering::Relaxed)
    }

    fn remark(&self, remark: &str) {
        self.bar.suspend(|| tell!("detour: {}", report::message_safe(remark)));
    }

    fn aside(&self, print: &mut dyn FnMut()) {
        self.bar.suspend(print);
    }
}
