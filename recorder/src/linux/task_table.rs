//! The kernel side's table of tasks, as far as user space asks: who has been woken and has not run yet.

use std::{io, os::fd::AsFd, ptr::NonNull};

use detour_abi::{TASK_PLACES, TASK_SLOTS, TaskSlot, task_place};

pub struct TaskTable {
    slots: NonNull<TaskSlot>,
}

// SAFETY: the memory is read by copies only.
unsafe impl Send for TaskTable {}

impl TaskTable {
    /// Maps the table from a BPF array that allows it.
    pub fn map(array: impl AsFd) -> io::Result<TaskTable> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let (access, flags) = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: a new mapping; nothing else lies there.
        let map = unsafe { mmap(std::ptr::null_mut(), BYTES, access, flags, array, 0) }?;
        let slots = NonNull::new(map.cast());
        Ok(TaskTable { slots: slots.ok_or(io::ErrorKind::OutOfMemory)? })
    }

    /// What is known of a task.
    pub fn slot(&self, tid: u32) -> Option<TaskSlot> {
        (0..TASK_PLACES).map(|attempt| task_place(tid, attempt)).find_map(|place| {
            // SAFETY: inside the mapping, since places are below the number of slots; any bits are a
            // slot, and programs may be at work on it.
            let slot = unsafe { self.slots.as_ptr().add(place as usize).read_volatile() };
            (slot.tid == tid && tid != 0).then_some(slot)
        })
    }
}

const BYTES: usize = TASK_SLOTS as usize * size_of::<TaskSlot>();

impl Drop for TaskTable {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; nobody has a pointer any more.
        let _ = unsafe { rustix::mm::munmap(self.slots.as_ptr().cast(), BYTES) };
    }
}
