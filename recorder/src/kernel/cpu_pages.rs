//! The memory shared by the BPF programs and the recorder: one page of state per CPU. The recorder
//! writes what it wants there, reads the counters, and takes the records of interrupt vectors.

use std::{
    io,
    os::fd::AsFd,
    ptr::NonNull,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use recorder_abi::{CpuState, ENTRY_WORDS, Record, SLOTS, Slot, kind};

pub struct CpuPages {
    states: NonNull<CpuState>,
    cpus: u32,
}

// SAFETY: what both sides write is accessed atomically or volatile, and never by reference.
unsafe impl Send for CpuPages {}
// SAFETY: as above; the caller ensures that the slots of a CPU are taken by one thread.
unsafe impl Sync for CpuPages {}

impl CpuPages {
    /// Maps the states of this many CPUs from an mmapable BPF array.
    pub fn map(array: impl AsFd, cpus: u32) -> io::Result<CpuPages> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let bytes = cpus as usize * size_of::<CpuState>();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, which overlaps nothing.
        let map = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, array, 0) }?;
        let states = NonNull::new(map.cast());
        Ok(CpuPages { states: states.ok_or(io::ErrorKind::OutOfMemory)?, cpus })
    }

    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    fn state(&self, cpu: u32) -> *mut CpuState {
        assert!(cpu < self.cpus, "CPU {cpu} of {}", self.cpus);
        // SAFETY: inside the mapping.
        unsafe { self.states.as_ptr().add(cpu as usize) }
    }

    pub fn set_flags(&self, cpu: u32, flags: u32) {
        // SAFETY: inside the mapping, aligned, and accessed atomically by both sides.
        let cell = unsafe { AtomicU32::from_ptr(&raw mut (*self.state(cpu)).flags) };
        cell.store(flags, Ordering::Release);
    }

    /// Whether a program is in progress on a CPU. It may still have to send an entry that it has timed.
    pub fn is_running(&self, cpu: u32) -> bool {
        // SAFETY: inside the mapping and aligned; programs write the whole word.
        let cell = unsafe { AtomicU32::from_ptr(&raw mut (*self.state(cpu)).running) };
        cell.load(Ordering::Acquire) != 0
    }

    /// The current counters; programs may be updating them.
    pub fn counters(&self, cpu: u32) -> CpuState {
        // SAFETY: inside the mapping, and any bit pattern is valid.
        unsafe { self.state(cpu).read_volatile() }
    }

    /// The thread on a CPU; 0 before its first switch.
    pub fn on_cpu(&self, cpu: u32) -> u32 {
        // SAFETY: inside the mapping and aligned; programs write the whole word.
        let cell = unsafe { AtomicU32::from_ptr(&raw mut (*self.state(cpu)).frames[0].id) };
        cell.load(Ordering::Relaxed)
    }

    /// The threads that are on the CPUs now, as records that end now. Only after the programs have
    /// stopped.
    pub fn running(&self, now: u64) -> Vec<Record> {
        let of_cpu = |cpu| {
            let frame = self.counters(cpu).frames[0];
            let gross = now.saturating_sub(frame.start);
            (frame.start != 0).then(|| Record {
                start: frame.start,
                gross,
                net: gross,
                id: frame.id,
                other: frame.other,
                aux: frame.aux,
                cpu: cpu as u16,
                kind_depth: kind::THREAD,
                flags: frame.flags,
                ..Record::default()
            })
        };
        (0..self.cpus).filter_map(of_cpu).collect()
    }

    /// Takes the records out of a CPU's slots. One thread at a time.
    pub fn take_slots(&self, cpu: u32, mut take: impl FnMut([u64; ENTRY_WORDS])) {
        let state = self.state(cpu);
        // SAFETY: inside the mapping and aligned; there is no other writer.
        let taken = unsafe { AtomicU64::from_ptr(&raw mut (*state).slots_taken) };
        let before = taken.load(Ordering::Relaxed);
        let mut next = before;
        loop {
            // SAFETY: inside the mapping: the index is below the number of slots.
            let slot: *mut Slot = unsafe { &raw mut (*state).slots[next as usize % SLOTS] };
            // SAFETY: as above, aligned, and accessed atomically by both sides.
            let number = unsafe { AtomicU64::from_ptr(&raw mut (*slot).number) };
            if number.load(Ordering::Acquire) != next + 1 {
                break;
            }
            // SAFETY: the number says that it is written; it is not written again before it is released
            // below. A record is as large as an entry and has no padding.
            take(unsafe {
                (&raw const (*slot).record).cast::<[u64; ENTRY_WORDS]>().read_volatile()
            });
            next += 1;
        }
        if next != before {
            taken.store(next, Ordering::Release);
        }
    }
}

impl Drop for CpuPages {
    fn drop(&mut self) {
        let bytes = self.cpus as usize * size_of::<CpuState>();
        // SAFETY: mapped by `map` with this length; no pointers are left.
        let _ = unsafe { rustix::mm::munmap(self.states.as_ptr().cast(), bytes) };
    }
}
