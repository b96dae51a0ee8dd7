//! Interrupts from CPU to CPU: reading a perf counter that lives on another CPU makes the kernel ask
//! that CPU, one interrupt per reading.

use std::{fs::File, io::Read, os::fd::FromRawFd, time::Duration};

use anyhow::{Result, bail};
use serde_json::json;

use crate::os;

/// The beginning of `struct perf_event_attr`, version 0 of it: 64 bytes.
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
    // SAFETY: the structure is as long as it says and outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &attributes, -1, to as i32, -1, 0) };
    if fd < 0 {
        bail!("perf_event_open on CPU {to}: {}", std::io::Error::last_os_error());
    }
    // SAFETY: just opened, and nobody else's.
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
