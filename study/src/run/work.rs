//! How a simulation runs: seed, threads, memory, and who watches it.

use anyhow::{Context, Result, bail};
use simulate::{
    event::{self, Rules, Schedule},
    sweep::Plan,
};

/// Follows a simulation, and may stop it.
pub trait Watch: Sync {
    /// The total amount of work, in messages or similar steps.
    fn expect(&self, total: u64);
    /// What is simulated now.
    fn now(&self, what: &str);
    /// Finished work; false stops the simulation at the next run. Simulations of a single run end first.
    fn advance(&self, by: u64) -> bool;
    /// About the input, as soon as it is known: the simulation may take hours, or fail because of it. Also
    /// among the remarks of the result.
    fn remark(&self, remark: &str);
    /// Calls this while nothing else is shown, so that it can print results.
    fn aside(&self, print: &mut dyn FnMut()) {
        print();
    }
}

/// Nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn expect(&self, _total: u64) {}

    fn now(&self, _what: &str) {}

    fn advance(&self, _by: u64) -> bool {
        true
    }

    fn remark(&self, _remark: &str) {}
}

#[derive(Clone, Copy)]
pub struct Work<'a> {
    /// Results depend on it, but not on the number of threads.
    pub seed: u64,
    pub threads: usize,
    /// Bytes that simulations may use; less once their input is loaded.
    pub memory: fn() -> u64,
    pub watch: &'a dyn Watch,
}

impl<'a> Work<'a> {
    /// Bytes available now.
    pub fn memory(&self) -> u64 {
        (self.memory)()
    }

    /// A plan for `runs` runs; `progress` is usually [`Watch::advance`].
    pub fn plan<'p>(&self, runs: u64, progress: &'p (dyn Fn(u64) -> bool + Sync)) -> Plan<'p> {
        Plan { runs, seed: self.seed, threads: self.threads, memory: self.memory(), progress }
    }

    /// Runs a simulation that divides a single run among threads.
    pub fn in_pool<T: Send>(&self, simulate: impl FnOnce() -> T + Send) -> Result<T> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(self.threads);
        let pool = pool.build().context("cannot start the threads: use fewer with -j")?;
        Ok(pool.install(simulate))
    }

    /// Progress of a simulation that cannot be stopped; `weight` is the weight of one step.
    pub fn counting(&self, weight: u64) -> impl Fn(u64) + Sync + use<'a> {
        let watch = self.watch;
        move |steps| {
            watch.advance(steps.saturating_mul(weight));
        }
    }

    /// Rejects a schedule whose run would not fit in memory.
    pub fn fits(&self, schedule: &Schedule, rules: Rules) -> Result<()> {
        let (needed, memory) = (event::run_memory(schedule, rules), self.memory());
        if needed > memory {
            bail!(
                "a run of {} ranks and {} operations needs {} MB of memory, {} MB available: \
                 simulate fewer ranks, or number CPUs and NICs contiguously from 0",
                schedule.ranks(),
                schedule.operations(),
                needed >> 20,
                memory >> 20
            );
        }
        Ok(())
    }
}
