//! Page faults: touches pages of a fresh mapping one by one, gives them back, and starts again.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::json;

use crate::os;

const PAGES: usize = 1024;

pub(crate) fn run(cpu: u32, seconds: f64, burst: u64) -> Result<()> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
    os::pin(cpu)?;
    let page = rustix::param::page_size();
    let bytes = PAGES * page;
    // SAFETY: a fresh mapping of `bytes` bytes that lives until the process ends.
    let area = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )?
    };
    // SAFETY: the whole mapping, and nobody else's.
    match unsafe { madvise(area, bytes, Advice::LinuxNoHugepage) } {
        // A kernel without huge pages does not know the word.
        Ok(()) | Err(rustix::io::Errno::INVAL) => {}
        Err(error) => bail!("huge pages cannot be turned off for the mapping: {error}"),
    }
    std::thread::sleep(Duration::from_millis(10));
    os::name("pfgen");
    let before = minor_faults();
    let start = Instant::now();
    let mut touched = 0u64;
    while start.elapsed().as_secs_f64() < seconds {
        for index in 0..PAGES {
            // SAFETY: inside the mapping.
            unsafe { area.cast::<u8>().add(index * page).write_volatile(1) };
            touched += 1;
            if burst > 0 && touched.is_multiple_of(burst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        // SAFETY: the whole mapping; its contents are of no value.
        unsafe { madvise(area, bytes, Advice::LinuxDontNeed)? };
    }
    let taken = start.elapsed().as_secs_f64();
    let faults = minor_faults() - before;
    // A slice bears the name its thread has when it leaves the CPU.
    std::thread::sleep(Duration::from_millis(2));
    os::name("loadgen-end");
    println!("{}", json!({ "faults": faults, "touched": touched, "seconds": taken }));
    Ok(())
}

/// As the kernel counts them.
fn minor_faults() -> u64 {
    // SAFETY: a valid pointer to a value of the right type.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    usage.ru_minflt as u64
}
