//! Runs briefly on each CPU, so that the current thread leaves it and comes back. A thread that was
//! there before the recording began is unknown until it leaves, and so is the time it took: a rank alone
//! on its CPU may stay for seconds.
//!
//! A separate thread with the highest priority, set while that is still permitted: programs may have
//! real-time priority as well.

use std::{
    io,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::JoinHandle,
};

use crate::{
    cpulist::CpuSet,
    node::{machine, privileges},
};

const PRIORITY: u32 = 99;

pub struct Switcher {
    ask: SyncSender<CpuSet>,
    unreached: Receiver<Vec<u32>>,
    thread: JoinHandle<()>,
}

impl Switcher {
    pub fn start() -> io::Result<Switcher> {
        let (ask, asked) = sync_channel::<CpuSet>(1);
        let (tell, unreached) = sync_channel(1);
        let thread =
            std::thread::Builder::new().name("detour-switch".to_owned()).spawn(move || {
                // Without it, the switch takes until the end of the current thread's time slice.
                let _ = machine::set_policy(libc::SCHED_FIFO, PRIORITY);
                privileges::give_up();
                let home = machine::allowed();
                for cpus in asked {
                    // Being there is enough: another thread was switched out for it.
                    let missed =
                        cpus.into_iter().filter(|&cpu| !machine::pin(&CpuSet::from([cpu])));
                    let missed: Vec<u32> = missed.collect();
                    machine::pin(&home);
                    if tell.send(missed).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Switcher { ask, unreached, thread })
    }

    /// Forces a switch on each of these CPUs; returns those where it could not run.
    pub fn switch(&self, cpus: &CpuSet) -> Vec<u32> {
        match self.ask.send(cpus.clone()) {
            Ok(()) => self.unreached.recv().unwrap_or_default(),
            Err(_) => cpus.iter().copied().collect(),
        }
    }

    pub fn stop(self) {
        drop(self.ask);
        let _ = self.thread.join();
    }
}
