//! The ring buffer of one CPU: a BPF ring buffer, created here, mapped into this process and emptied
//! without a system call. The kernel publishes the producer position and marks entries that are not
//! committed yet; so an empty ring buffer differs from one whose next entry is still being written.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use aya::maps::MapData;
use recorder_abi::{ENTRY_BYTES, ENTRY_WORDS};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::kernel::error::{BpfError, map_error};

/// `BPF_MAP_TYPE_RINGBUF`.
const RING_BUFFER: u32 = 27;
/// Flags in an entry's first word, next to its length.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEADER_BYTES: u64 = 8;
/// Entries taken before their space is released: the consumer position is shared with the CPU that
/// writes the ring buffer.
const GIVE_BACK_EVERY: u64 = 64;

/// Memory of a ring buffer besides its entries: the kernel's own page and one for each position.
pub fn overhead_bytes() -> u64 {
    3 * rustix::param::page_size() as u64
}

/// The memory of a ring buffer. Any holder can see how much was sent; a single [`Reader`] takes entries
/// out.
pub struct Ring {
    map: MapData,
    /// The consumer position, in its own page.
    consumer: NonNull<AtomicU64>,
    /// A page with the producer position, and the entries, mapped twice in succession, so that none is
    /// split at the end.
    producer: NonNull<u8>,
    bytes: usize,
}

// SAFETY: positions and headers are accessed atomically; entries are read by the single reader, between
// the two positions, where the kernel does not write.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// `bytes` is a power of two and at least a page.
    pub fn create(bytes: u32) -> Result<Ring, BpfError> {
        let definition = aya_obj::Map::new_from_params(RING_BUFFER, 0, 0, bytes, 0);
        let map = MapData::create(definition, "detour_ring", None).map_err(map_error)?;
        let cannot_map =
            |error: io::Error| BpfError::Map(format!("cannot map a ring into memory: {error}"));
        let page = rustix::param::page_size();
        let bytes = bytes as usize;
        let consumer = map_pages(map.fd(), page, ProtFlags::READ | ProtFlags::WRITE, 0);
        let consumer = consumer.map_err(cannot_map)?;
        let producer = map_pages(map.fd(), page + 2 * bytes, ProtFlags::READ, page as u64);
        let producer = producer.inspect_err(|_| {
            // SAFETY: mapped above with this length, and not used yet.
            let _ = unsafe { munmap(consumer.as_ptr().cast(), page) };
        });
        let producer = producer.map_err(cannot_map)?;
        Ok(Ring { map, consumer: consumer.cast(), producer, bytes })
    }

    pub fn map(&self) -> &MapData {
        &self.map
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.map.fd().as_fd()
    }

    /// The producer position, whether or not the entries are committed.
    pub fn reserved(&self) -> u64 {
        // SAFETY: the mapping lives as long as this, and the kernel writes whole words.
        unsafe { self.producer.cast::<AtomicU64>().as_ref() }.load(Ordering::Acquire)
    }

    /// Number of entries ever reserved, by the kernel's count.
    pub fn sent(&self) -> u64 {
        self.reserved() / ENTRY_BYTES as u64
    }

    fn consumer(&self) -> &AtomicU64 {
        // SAFETY: the mapping lives as long as this; both sides access it atomically.
        unsafe { self.consumer.as_ref() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let page = rustix::param::page_size();
        // SAFETY: mapped by `create` with these lengths; no pointers are left.
        unsafe {
            let _ = munmap(self.consumer.as_ptr().cast(), page);
            let _ = munmap(self.producer.as_ptr().cast(), page + 2 * self.bytes);
        }
    }
}

fn map_pages(
    map: impl AsFd,
    bytes: usize,
    access: ProtFlags,
    offset: u64,
) -> io::Result<NonNull<u8>> {
    // SAFETY: a new mapping, which overlaps nothing.
    let map = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, map, offset) }?;
    Ok(NonNull::new(map.cast()).ok_or(io::ErrorKind::OutOfMemory)?)
}

/// Takes entries out of a ring buffer; there is one per ring buffer.
pub struct Reader {
    ring: Arc<Ring>,
    /// The position of the next entry.
    next: u64,
}

impl Reader {
    pub fn new(ring: Arc<Ring>) -> Reader {
        let next = ring.consumer().load(Ordering::Acquire);
        Reader { ring, next }
    }

    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Fill level of the ring buffer, 0 to 1.
    pub fn fill(&self) -> f64 {
        self.ring.reserved().wrapping_sub(self.next) as f64 / self.ring.bytes as f64
    }

    /// Takes at most `room` entries that were reserved before position `to`. True if it got there, false
    /// if there are more, or one is not committed yet.
    pub fn take(&mut self, to: u64, room: usize, mut each: impl FnMut([u64; ENTRY_WORDS])) -> bool {
        let page = rustix::param::page_size();
        let mut given_back = self.next;
        let mut left = room;
        while self.next < to && left > 0 {
            let offset = page + (self.next as usize & (self.ring.bytes - 1));
            // SAFETY: inside the mapping: the offset is less than the length of the ring buffer, and the
            // entries are mapped twice.
            let header = unsafe { self.ring.producer.add(offset) };
            // SAFETY: as above; headers are aligned to eight bytes, and the kernel sets and clears
            // the bits atomically.
            let word = unsafe { header.cast::<AtomicU32>().as_ref() }.load(Ordering::Acquire);
            if word & BUSY != 0 {
                break;
            }
            let bytes = u64::from(word & !DISCARDED);
            if word & DISCARDED == 0 && bytes == (8 * ENTRY_WORDS) as u64 {
                // SAFETY: an entry of this length follows the header; it is committed, and not
                // overwritten before its space is released below.
                let entry = unsafe { header.add(HEADER_BYTES as usize).cast().read() };
                each(entry);
                left -= 1;
            }
            self.next += (bytes + HEADER_BYTES).next_multiple_of(8);
            if self.next - given_back >= GIVE_BACK_EVERY * ENTRY_BYTES as u64 {
                self.ring.consumer().store(self.next, Ordering::Release);
                given_back = self.next;
            }
        }
        if given_back != self.next {
            self.ring.consumer().store(self.next, Ordering::Release);
        }
        self.next >= to
    }
}
