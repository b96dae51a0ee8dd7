//! Open requests: from the handle of the MPI library to our number and what was posted.
//!
//! Libraries share one handle among requests that are complete from the start (an eager send, a partner
//! `MPI_PROC_NULL`), so a handle does not identify a request. Requests are therefore also found by the
//! address of the program's variable; among those that remain, the oldest is taken.
//!
//! A pool of entries, each in two chains: by handle, and by handle and address.

use crate::lock::Locked;
use crate::sys;
use core::ptr::null_mut;

/// Bits of [`Open::flags`].
pub mod flag {
    /// Its completion has a source, a tag and a size.
    pub const RECEIVE: u32 = 1;
    /// Remains after completion.
    pub const PERSISTENT: u32 = 2;
    /// Has been started and not completed.
    pub const ACTIVE: u32 = 4;
    /// `MPI_Cancel` was called.
    pub const CANCEL: u32 = 8;
    /// Makes a communicator.
    pub const DUPLICATE: u32 = 16;
}

/// A request as the collector knows it.
#[derive(Clone, Copy)]
pub struct Open {
    pub handle: usize,
    /// Address of the program's variable.
    pub place: usize,
    /// Our number.
    pub id: u64,
    /// Posted receive.
    pub bytes: u64,
    pub peer: i32,
    pub tag: i32,
    pub flags: u32,
}

const NONE: u32 = u32::MAX;
const BUCKETS: usize = 1 << 16;
/// Entries of the first pool.
const FIRST: usize = 1 << 14;
/// Requests with the same handle that are looked at when their addresses do not help.
const MAX_SEARCH: u32 = 4096;

#[derive(Clone, Copy)]
struct Entry {
    open: Open,
    /// The call that has found this entry, so that a call finds every request once.
    claim: u32,
    next: [u32; 2],
    previous: [u32; 2],
}

#[derive(Clone, Copy)]
struct Ends {
    first: u32,
    last: u32,
}

/// All open requests of the process.
pub struct Requests {
    pool: *mut Entry,
    capacity: usize,
    used: usize,
    free: u32,
    /// `BUCKETS` chains by handle, then as many by handle and address.
    chains: *mut Ends,
    next_id: u64,
    next_claim: u32,
}

pub static REQUESTS: Locked<Requests> = Locked::new(Requests {
    pool: null_mut(),
    capacity: 0,
    used: 0,
    free: NONE,
    chains: null_mut(),
    next_id: 0,
    next_claim: 1,
});

/// Position of an entry in the pool.
#[derive(Clone, Copy)]
pub struct Position(u32);

fn bucket(chain: usize, handle: usize, place: usize) -> usize {
    let word = if chain == 0 { handle } else { handle ^ place.rotate_left(32) };
    let mixed = (word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    chain * BUCKETS + (mixed >> 48) as usize % BUCKETS
}

impl Requests {
    fn prepare(&mut self) -> bool {
        let chains = size_of::<Ends>() * 2 * BUCKETS;
        let pool = sys::map_memory(FIRST * size_of::<Entry>());
        let ends = sys::map_memory(chains);
        if pool.is_null() || ends.is_null() {
            return false;
        }
        self.pool = pool.cast();
        self.chains = ends.cast();
        self.capacity = FIRST;
        true
    }

    #[inline]
    fn entry(&mut self, at: u32) -> Option<&mut Entry> {
        if (at as usize) >= self.used {
            return None;
        }
        // SAFETY: `used` entries of the pool are written, and the borrow lasts as long as that of `self`.
        Some(unsafe { &mut *self.pool.add(at as usize) })
    }

    /// Ends of a chain. They are stored plus one, so that zeroed memory is empty chains.
    #[inline]
    fn ends(&mut self, bucket: usize) -> Option<&mut Ends> {
        if self.chains.is_null() || bucket >= 2 * BUCKETS {
            return None;
        }
        // SAFETY: there are 2 * BUCKETS of them.
        Some(unsafe { &mut *self.chains.add(bucket) })
    }

    /// A number for the next call that looks for requests.
    pub fn claim(&mut self) -> u32 {
        self.next_claim = self.next_claim.wrapping_add(1).max(1);
        self.next_claim
    }

    /// Adds a request and returns its number; `None` if there is no memory for it.
    #[inline]
    pub fn add(&mut self, mut open: Open, unique: bool) -> Option<u64> {
        let id = self.next_id;
        self.next_id += 1;
        open.id = id;
        if unique {
            // What is left under a handle that the library has given out again ended unseen.
            for _ in 0..8 {
                match self.find(open.handle, open.place, 0) {
                    Some((position, old)) => self.remove(position, old.id),
                    None => break,
                }
            }
        }
        let at = match self.free {
            NONE => self.extend()?,
            at => {
                self.free = self.entry(at)?.next[0];
                at
            }
        };
        *self.entry(at)? = Entry { open, claim: 0, next: [NONE; 2], previous: [NONE; 2] };
        for chain in 0..2 {
            let ends = self.ends(bucket(chain, open.handle, open.place))?;
            let last = ends.last.wrapping_sub(1);
            ends.last = at + 1;
            if last == NONE {
                ends.first = at + 1;
            } else {
                self.entry(last)?.next[chain] = at;
                self.entry(at)?.previous[chain] = last;
            }
        }
        Some(id)
    }

    #[cold]
    fn extend(&mut self) -> Option<u32> {
        if self.pool.is_null() && !self.prepare() {
            return None;
        }
        if self.used == self.capacity {
            let old = self.capacity * size_of::<Entry>();
            // SAFETY: the pool has `old` bytes; entries are only reached through `entry`.
            let pool = unsafe { sys::grow_memory(self.pool.cast(), old, old * 2) };
            if pool.is_null() || self.capacity >= 1 << 30 {
                return None;
            }
            self.pool = pool.cast();
            self.capacity *= 2;
        }
        let at = self.used as u32;
        self.used += 1;
        // SAFETY: within the capacity; zeros are a valid entry.
        unsafe { *self.pool.add(at as usize) = core::mem::zeroed() };
        Some(at)
    }

    /// Finds the open request of a handle that the program keeps at `place`, and marks it with the claim.
    #[inline]
    pub fn find(&mut self, handle: usize, place: usize, claim: u32) -> Option<(Position, Open)> {
        let fresh =
            |entry: &Entry| entry.open.handle == handle && (claim == 0 || entry.claim != claim);
        let mut at = self.ends(bucket(0, handle, 0))?.first.wrapping_sub(1);
        let mut oldest = NONE;
        let mut several = false;
        for _ in 0..MAX_SEARCH {
            let Some(entry) = self.entry(at) else { break };
            let next = entry.next[0];
            if fresh(entry) {
                if entry.open.place == place {
                    return self.found(at, claim);
                }
                if oldest != NONE {
                    several = true;
                    break;
                }
                oldest = at;
            }
            at = next;
        }
        if several {
            let mut at = self.ends(bucket(1, handle, place))?.first.wrapping_sub(1);
            for _ in 0..MAX_SEARCH {
                let Some(entry) = self.entry(at) else { break };
                if fresh(entry) && entry.open.place == place {
                    return self.found(at, claim);
                }
                at = entry.next[1];
            }
        }
        self.found(oldest, claim)
    }

    #[inline]
    fn found(&mut self, at: u32, claim: u32) -> Option<(Position, Open)> {
        let entry = self.entry(at)?;
        entry.claim = claim;
        Some((Position(at), entry.open))
    }

    /// The flags of a request.
    #[inline]
    pub fn flags(&mut self, position: Position, id: u64) -> Option<&mut u32> {
        self.entry(position.0)
            .filter(|entry| entry.open.handle != 0 && entry.open.id == id)
            .map(|entry| &mut entry.open.flags)
    }

    /// Forgets a request, unless another thread already has: the library may give out its handle again
    /// before the call that completed it has returned.
    #[inline]
    pub fn remove(&mut self, position: Position, id: u64) {
        if self.flags(position, id).is_some() {
            let _ = self.unlink(position.0);
        }
    }

    #[inline]
    fn unlink(&mut self, at: u32) -> Option<()> {
        let entry = *self.entry(at)?;
        for chain in 0..2 {
            let (next, previous) = (entry.next[chain], entry.previous[chain]);
            match self.entry(previous) {
                Some(entry) => entry.next[chain] = next,
                None => {
                    self.ends(bucket(chain, entry.open.handle, entry.open.place))?.first =
                        next.wrapping_add(1);
                }
            }
            match self.entry(next) {
                Some(entry) => entry.previous[chain] = previous,
                None => {
                    self.ends(bucket(chain, entry.open.handle, entry.open.place))?.last =
                        previous.wrapping_add(1);
                }
            }
        }
        let free = self.free;
        let entry = self.entry(at)?;
        entry.open.handle = 0;
        entry.next[0] = free;
        self.free = at;
        Some(())
    }
}
