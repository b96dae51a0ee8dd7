//! Runs for a moment on each CPU, so that whatever runs there leaves it and comes back. Who was there
//! before the recording began is not known until it leaves, and what it took not until then: a rank
//! alone on its CPU may stay for seconds.
//!
//! A thread of its own, with a priority that nothing waits in front of, taken while that may be taken:
//! programs may have real-time priority, too.

use std::{
    io,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::JoinHandle,
};

use crate::{cpulist::CpuSet, machine, privileges};

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
                // Without it, it takes until the CPU's owner has had its turn.
                let _ = machine::set_policy(libc::SCHED_FIFO, PRIORITY);
                privileges::give_up();
                let home = machine::allowed();
                for cpus in asked {
                    // To be there is enough: another one has left for it.
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

    /// Has a switch on each of these CPUs; those where it could not be.
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
