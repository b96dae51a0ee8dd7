//! The rank's file: header page, growth, chunks claimed by threads.

use crate::lock::Locked;
use crate::sys::{self, File};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use mpi_abi::{CHUNK, HEADER, at};

/// How far the file is enlarged at a time.
const STEP: usize = 1 << 20;

struct Growth {
    file: Option<File>,
    /// Bytes of the file that have disk space.
    allocated: u64,
    limit: u64,
}

static GROWTH: Locked<Growth> = Locked::always(Growth { file: None, allocated: 0, limit: 0 });
static NEXT_CHUNK: AtomicU64 = AtomicU64::new(0);
static PAGE: AtomicPtr<u8> = AtomicPtr::new(null_mut());

/// Takes a new file into use: space for the header and a first chunk, and the header mapped. The error is
/// the error number.
pub fn begin(file: File) -> Result<(), i32> {
    let first = HEADER + CHUNK;
    let limit = sys::file_size_limit();
    if limit < first as u64 {
        return Err(27);
    }
    file.allocate(0, first)?;
    let page = file.map(0, HEADER);
    if page.is_null() {
        return Err(sys::errno());
    }
    GROWTH.with(|growth| {
        *growth = Growth { file: Some(file), allocated: first as u64, limit };
    });
    PAGE.store(page, Ordering::Release);
    Ok(())
}

/// The header page.
pub fn page() -> Option<&'static mut [u8; HEADER]> {
    let page = PAGE.load(Ordering::Acquire);
    // SAFETY: mapped for the rest of the process's life. Used by one thread, in MPI_Init and MPI_Finalize;
    // counters in it that others change are atomic.
    unsafe { page.cast::<[u8; HEADER]>().as_mut() }
}

fn word(offset: usize) -> Option<&'static AtomicU64> {
    let page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        return None;
    }
    // SAFETY: all offsets of counters are multiples of 8 within the page, which stays mapped.
    Some(unsafe { &*page.add(offset).cast::<AtomicU64>() })
}

/// Adds to a counter of the header.
pub fn count(offset: usize, amount: u64) {
    if let Some(word) = word(offset) {
        word.fetch_add(amount, Ordering::Relaxed);
    }
}

/// Sets bits of the header's flags.
pub fn set_flags(bits: u32) {
    if let Some(word) = word(at::FLAGS) {
        word.fetch_or(u64::from(bits), Ordering::Release);
    }
}

/// Reserves the next chunk's place in the file.
pub fn claim() -> u64 {
    let index = NEXT_CHUNK.fetch_add(1, Ordering::Relaxed);
    if let Some(word) = word(at::CHUNKS) {
        word.fetch_max(index + 1, Ordering::Relaxed);
    }
    index
}

/// Maps a reserved chunk; null if the disk is full.
pub fn map_chunk(index: u64) -> *mut u8 {
    let errno = sys::errno();
    let start = HEADER as u64 + index * CHUNK as u64;
    let end = start + CHUNK as u64;
    let memory = GROWTH.with(|growth| {
        let Some(file) = growth.file else { return null_mut() };
        while growth.allocated < end {
            let from = growth.allocated;
            let fits = |length: usize| from + length as u64 <= growth.limit;
            let enlarged = if fits(STEP) && file.allocate(from, STEP).is_ok() {
                STEP
            } else if fits(CHUNK) && file.allocate(from, CHUNK).is_ok() {
                CHUNK
            } else {
                return null_mut();
            };
            growth.allocated += enlarged as u64;
        }
        file.map(start, CHUNK)
    });
    sys::set_errno(errno);
    memory
}

/// Cuts off what was allocated and not used. `last` are the bytes in use of the last chunk.
pub fn finish(last: u64) {
    let chunks = NEXT_CHUNK.load(Ordering::Relaxed);
    GROWTH.with(|growth| {
        if let Some(file) = growth.file.take() {
            let used = HEADER as u64 + chunks.saturating_sub(1) * CHUNK as u64 + last;
            file.truncate(used.min(growth.allocated));
            file.close();
        }
    });
}

/// Whether a chunk is the last one of the file.
pub fn is_last(index: u64) -> bool {
    index + 1 == NEXT_CHUNK.load(Ordering::Relaxed)
}
