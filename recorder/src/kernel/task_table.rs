//! The kernel side's task table, as far as user space needs it: tasks that were woken and have not run
//! yet.

use std::{io, os::fd::AsFd, ptr::NonNull};

use recorder_abi::{TASK_PLACES, TASK_SLOTS, TaskSlot, task_place};

pub struct TaskTable {
    slots: NonNull<TaskSlot>,
}

// SAFETY: the memory is only read, by copying.
unsafe impl Send for TaskTable {}

impl TaskTable {
    /// Maps the table from an mmapable BPF array.
    pub fn map(array: impl AsFd) -> io::Result<TaskTable> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let (access, flags) = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: a new mapping, which overlaps nothing.
        let map = unsafe { mmap(std::ptr::null_mut(), BYTES, access, flags, array, 0) }?;
        let slots = NonNull::new(map.cast());
        Ok(TaskTable { slots: slots.ok_or(io::ErrorKind::OutOfMemory)? })
    }

    /// What is known about a task.
    pub fn slot(&self, tid: u32) -> Option<TaskSlot> {
        (0..TASK_PLACES).map(|attempt| task_place(tid, attempt)).find_map(|place| {
            // SAFETY: inside the mapping, since indices are below the number of slots; any bit pattern
            // is a valid slot, and programs may be updating it.
            let slot = unsafe { self.slots.as_ptr().add(place as usize).read_volatile() };
            (slot.tid == tid && tid != 0).then_some(slot)
        })
    }
}

const BYTES: usize = TASK_SLOTS as usize * size_of::<TaskSlot>();

impl Drop for TaskTable {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; no pointers are left.
        let _ = unsafe { rustix::mm::munmap(self.slots.as_ptr().cast(), BYTES) };
    }
}
