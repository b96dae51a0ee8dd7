//! Page faults: repeatedly touches the pages of a fresh mapping and releases them; or touches pages of a
//! file that have been dropped from the page cache.

use std::{
    fs::File,
    io::{Seek, SeekFrom},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::{
    fs::{Advice as FileAdvice, fadvise},
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous},
};
use serde_json::json;

use crate::os;

const PAGES: usize = 1024;
/// Number of pages of a file to read.
const FILE_PAGES: u64 = 256;

pub(crate) fn run(cpu: u32, seconds: f64, burst: u64) -> Result<()> {
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
    // SAFETY: the whole mapping, which only we use.
    match unsafe { madvise(area, bytes, Advice::LinuxNoHugepage) } {
        // A kernel without huge pages returns EINVAL.
        Ok(()) | Err(rustix::io::Errno::INVAL) => {}
        Err(error) => bail!("cannot disable huge pages for the mapping: {error}"),
    }
    std::thread::sleep(Duration::from_millis(10));
    os::name("pfgen");
    let (before, _) = faults();
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
        // SAFETY: the whole mapping; its contents are not needed.
        unsafe { madvise(area, bytes, Advice::LinuxDontNeed)? };
    }
    let taken = start.elapsed().as_secs_f64();
    let faults = faults().0 - before;
    // A time slice is recorded under the name its thread has when it leaves the CPU.
    std::thread::sleep(Duration::from_millis(2));
    os::name("loadgen-end");
    println!("{}", json!({ "faults": faults, "touched": touched, "seconds": taken }));
    Ok(())
}

/// Reads the first pages of a file through a mapping, each one from storage.
pub(crate) fn run_on_file(cpu: u32, seconds: f64, path: &Path) -> Result<()> {
    os::pin(cpu)?;
    let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let page = rustix::param::page_size();
    // The size of a block device is known only by seeking to its end.
    let pages = (file.seek(SeekFrom::End(0))? / page as u64).min(FILE_PAGES) as usize;
    ensure!(pages > 0, "{} is shorter than a page", path.display());
    let bytes = pages * page;
    // SAFETY: a fresh mapping of `bytes` bytes that lives until the process ends.
    let area =
        unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, &file, 0)? };
    // No read-ahead: it would avoid the fault of the next page.
    // SAFETY: the whole mapping, which only we use.
    unsafe { madvise(area, bytes, Advice::Random)? };
    std::thread::sleep(Duration::from_millis(10));
    os::name("pfgen");
    let (minor_before, major_before) = faults();
    let start = Instant::now();
    let mut touched = 0u64;
    while start.elapsed().as_secs_f64() < seconds {
        // Mapped pages stay in the page cache, so unmap them first.
        // SAFETY: the whole mapping; its contents are the file's.
        unsafe { madvise(area, bytes, Advice::LinuxDontNeed)? };
        fadvise(&file, 0, None, FileAdvice::DontNeed)?;
        for index in 0..pages {
            // SAFETY: inside the mapping, which is no longer than the file.
            let byte = unsafe { area.cast::<u8>().add(index * page).read_volatile() };
            std::hint::black_box(byte);
            touched += 1;
        }
    }
    let taken = start.elapsed().as_secs_f64();
    let (minor, major) = faults();
    // A time slice is recorded under the name its thread has when it leaves the CPU.
    std::thread::sleep(Duration::from_millis(2));
    os::name("loadgen-end");
    println!(
        "{}",
        json!({
            "faults": minor - minor_before,
            "major_faults": major - major_before,
            "touched": touched,
            "seconds": taken,
        })
    );
    Ok(())
}

/// Minor and major faults of this thread, as counted by the kernel.
fn faults() -> (u64, u64) {
    // SAFETY: a valid pointer to a value of the right type.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    (usage.ru_minflt as u64, usage.ru_majflt as u64)
}
