//! Shared helpers for system calls.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::{
    thread::{CpuSet, sched_setaffinity},
    time::{ClockId, clock_gettime},
};

pub(crate) fn pin(cpu: u32) -> Result<()> {
    pin_to(&[cpu])
}

pub(crate) fn pin_to(cpus: &[u32]) -> Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu as usize));
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on CPU {cpus:?}"))
}

/// Gives the calling thread real-time priority, which children do not inherit.
pub(crate) fn fifo(priority: i32) -> Result<()> {
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // `sched_param` is a single integer. A raw system call, since musl's wrapper always fails.
    let call = libc::SYS_sched_setscheduler;
    // SAFETY: the pointer is to a live value; 0 is the calling thread.
    match unsafe { libc::syscall(call, 0, policy, &raw const priority) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).context("cannot set real-time priority"),
    }
}

pub(crate) fn name(name: &str) {
    if let Ok(name) = std::ffi::CString::new(name) {
        let _ = rustix::thread::set_name(&name);
    }
}

pub(crate) fn monotonic_ns() -> u64 {
    ns(ClockId::Monotonic)
}

pub(crate) fn thread_cpu_ns() -> u64 {
    ns(ClockId::ThreadCPUTime)
}

fn ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub(crate) fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// The same without a PAUSE instruction, at which an emulator may switch to another CPU.
pub(crate) fn burn(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {}
}
