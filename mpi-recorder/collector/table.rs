//! A hash table in mapped memory: handles of MPI to what the collector knows about them. Open addressing,
//! grown by doubling; used when objects are made and freed, not in every call.

use crate::sys;
use core::ptr::null_mut;

#[derive(Clone, Copy)]
struct Slot<V> {
    /// 0 is an empty slot; no handle of an object is 0.
    key: usize,
    value: V,
}

/// A map from words to small values.
pub struct Table<V: Copy> {
    slots: *mut Slot<V>,
    capacity: usize,
    length: usize,
}

impl<V: Copy> Table<V> {
    pub const fn new() -> Self {
        Table { slots: null_mut(), capacity: 0, length: 0 }
    }

    fn slots(&mut self) -> &mut [Slot<V>] {
        if self.capacity == 0 {
            return &mut [];
        }
        // SAFETY: `slots` has `capacity` slots of zeroed or written memory, borrowed through `self`; the
        // value types are plain numbers, for which zeros are valid.
        unsafe { core::slice::from_raw_parts_mut(self.slots, self.capacity) }
    }

    fn start(key: usize, capacity: usize) -> usize {
        (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(20) as usize & (capacity - 1)
    }

    /// Position of a key, or of the empty slot where it would be.
    fn position(&mut self, key: usize) -> Option<usize> {
        let capacity = self.capacity;
        if capacity == 0 {
            return None;
        }
        let mut at = Self::start(key, capacity);
        let slots = self.slots();
        for _ in 0..capacity {
            let slot = slots.get(at)?;
            if slot.key == key || slot.key == 0 {
                return Some(at);
            }
            at = (at + 1) & (capacity - 1);
        }
        None
    }

    pub fn get(&mut self, key: usize) -> Option<&mut V> {
        let at = self.position(key)?;
        self.slots()
            .get_mut(at)
            .filter(|slot| slot.key == key && key != 0)
            .map(|slot| &mut slot.value)
    }

    /// Stores a value; `false` if there is no memory.
    pub fn set(&mut self, key: usize, value: V) -> bool {
        if key == 0 || (self.length * 4 >= self.capacity * 3 && !self.grow()) {
            return false;
        }
        let Some(at) = self.position(key) else { return false };
        let Some(slot) = self.slots().get_mut(at) else { return false };
        let new = slot.key == 0;
        *slot = Slot { key, value };
        self.length += usize::from(new);
        true
    }

    /// Removes and returns a value. Later slots of the chain move up, so that no marks remain.
    pub fn take(&mut self, key: usize) -> Option<V> {
        let mut hole = self.position(key)?;
        let capacity = self.capacity;
        let slots = self.slots();
        let found = slots.get(hole).filter(|slot| slot.key == key && key != 0)?.value;
        let mut at = hole;
        for _ in 0..capacity {
            at = (at + 1) & (capacity - 1);
            let slot = *slots.get(at)?;
            if slot.key == 0 {
                break;
            }
            let distance = at.wrapping_sub(Self::start(slot.key, capacity)) & (capacity - 1);
            if distance >= (at.wrapping_sub(hole) & (capacity - 1)) {
                *slots.get_mut(hole)? = slot;
                hole = at;
            }
        }
        slots.get_mut(hole)?.key = 0;
        self.length -= 1;
        Some(found)
    }

    fn grow(&mut self) -> bool {
        let capacity = (self.capacity * 2).max(256);
        let slots: *mut Slot<V> = sys::map_memory(capacity * size_of::<Slot<V>>()).cast();
        if slots.is_null() {
            return false;
        }
        let mut larger = Table { slots, capacity, length: 0 };
        for slot in self.slots() {
            if slot.key != 0 {
                larger.set(slot.key, slot.value);
            }
        }
        let old = core::mem::replace(self, larger);
        if old.capacity != 0 {
            // SAFETY: the table owned the memory and points elsewhere now.
            unsafe { sys::unmap(old.slots.cast(), old.capacity * size_of::<Slot<V>>()) };
        }
        true
    }
}
