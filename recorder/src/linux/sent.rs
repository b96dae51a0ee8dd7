//! How much went into the ring, by the kernel's own count: what the reader took out must be the same.

use std::{
    io,
    os::fd::AsFd,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The page in which the kernel says up to where it has written.
pub struct Sent(NonNull<AtomicU64>);

// SAFETY: it is only read, atomically.
unsafe impl Send for Sent {}
// SAFETY: as above.
unsafe impl Sync for Sent {}

impl Sent {
    /// The second page of a ring, which everybody may read.
    pub fn map(ring: impl AsFd) -> io::Result<Sent> {
        let page = rustix::param::page_size();
        let (access, offset) = (ProtFlags::READ, page as u64);
        // SAFETY: a new mapping; nothing else lies there.
        let map =
            unsafe { mmap(std::ptr::null_mut(), page, access, MapFlags::SHARED, ring, offset) }?;
        Ok(Sent(NonNull::new(map.cast()).ok_or(io::ErrorKind::OutOfMemory)?))
    }

    /// Bytes that were ever reserved, headers included.
    pub fn bytes(&self) -> u64 {
        // SAFETY: the mapping is as long as this lives, and the kernel writes whole words.
        unsafe { self.0.as_ref() }.load(Ordering::Acquire)
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; nobody has a pointer any more.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), rustix::param::page_size()) };
    }
}
