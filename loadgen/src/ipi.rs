//! Inter-processor interrupts: reading a perf counter of another CPU makes the kernel send one IPI per
//! read. An expedited membarrier interrupts all CPUs that run threads of the process, with one CPU mask.

use std::{
    fs::File,
    io::Read,
    os::fd::FromRawFd,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, bail};
use serde_json::json;

use crate::os;

/// The first 64 bytes of `struct perf_event_attr` (PERF_ATTR_SIZE_VER0).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    rest: [u64; 6],
}

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;

pub(crate) fn run(from: u32, to: u32, count: u64, pause_us: u64) -> Result<()> {
    if from == to {
        bail!("--from and --to must differ");
    }
    os::pin(from)?;
    let attributes = Attributes {
        kind: PERF_TYPE_SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config: PERF_COUNT_SW_CPU_CLOCK,
        rest: [0; 6],
    };
    // SAFETY: the structure has the size it declares and outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &attributes, -1, to as i32, -1, 0) };
    if fd < 0 {
        bail!("perf_event_open on CPU {to}: {}", std::io::Error::last_os_error());
    }
    // SAFETY: just opened, and owned by no one else.
    let mut counter = unsafe { File::from_raw_fd(fd as i32) };
    os::name("ipigen");
    let mut value = [0; 8];
    for _ in 0..count {
        counter.read_exact(&mut value)?;
        if pause_us > 0 {
            os::spin(Duration::from_micros(pause_us));
        }
    }
    println!("{}", json!({ "sent": count }));
    Ok(())
}

/// Keeps a thread running on each CPU, so that membarrier interrupts all of them.
pub(crate) fn run_on_several(from: u32, to: &[u32], count: u64, pause_us: u64) -> Result<()> {
    if to.contains(&from) {
        bail!("--from must differ from --to and --and");
    }
    let (stop, running) = (AtomicBool::new(false), Barrier::new(to.len() + 1));
    std::thread::scope(|scope| {
        let on = |cpu: u32| {
            let (stop, running) = (&stop, &running);
            scope.spawn(move || {
                let pinned = os::pin(cpu);
                running.wait();
                while pinned.is_ok() && !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                pinned
            })
        };
        let threads: Vec<_> = to.iter().map(|&cpu| on(cpu)).collect();
        running.wait();
        let sent = send_to_all(from, count, pause_us);
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            match thread.join() {
                Ok(pinned) => pinned?,
                Err(_) => bail!("a target thread panicked"),
            }
        }
        sent
    })
}

fn send_to_all(from: u32, count: u64, pause_us: u64) -> Result<()> {
    let barrier = |command: i32| {
        // SAFETY: takes two integers and accesses no memory of this process.
        let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0) };
        if result < 0 {
            bail!("membarrier: {}", std::io::Error::last_os_error());
        }
        Ok(())
    };
    os::pin(from)?;
    barrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)?;
    os::name("ipigen");
    for _ in 0..count {
        barrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)?;
        os::spin(Duration::from_micros(pause_us));
    }
    println!("{}", json!({ "sent": count }));
    Ok(())
}
