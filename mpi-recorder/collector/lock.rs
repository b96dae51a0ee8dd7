//! Mutual exclusion for the tables. Only taken if several threads may be inside MPI at once.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

/// Whether the program was granted `MPI_THREAD_MULTIPLE`.
pub static SEVERAL_THREADS: AtomicBool = AtomicBool::new(false);

/// A value that one thread at a time may use.
pub struct Locked<T> {
    held: AtomicBool,
    always: bool,
    value: UnsafeCell<T>,
}

// SAFETY: `with` gives the value to one thread at a time: by the lock, or because MPI calls of the program's
// threads exclude each other (the program has not got MPI_THREAD_MULTIPLE).
unsafe impl<T> Sync for Locked<T> {}

impl<T> Locked<T> {
    pub const fn new(value: T) -> Self {
        Locked { held: AtomicBool::new(false), always: false, value: UnsafeCell::new(value) }
    }

    /// A value that is also used outside MPI calls (when a thread ends), so that the thread level does not
    /// matter.
    pub const fn always(value: T) -> Self {
        Locked { held: AtomicBool::new(false), always: true, value: UnsafeCell::new(value) }
    }

    /// Uses the value. Must not be nested for the same value.
    #[inline]
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let several = self.always || SEVERAL_THREADS.load(Ordering::Relaxed);
        if several {
            self.acquire();
        }
        // SAFETY: see `Sync` above; `work` cannot keep the reference.
        let result = work(unsafe { &mut *self.value.get() });
        if several {
            self.held.store(false, Ordering::Release);
        }
        result
    }

    fn acquire(&self) {
        let mut tries = 0u32;
        while self.held.swap(true, Ordering::Acquire) {
            while self.held.load(Ordering::Relaxed) {
                tries = tries.wrapping_add(1);
                if tries.is_multiple_of(64) {
                    // The holder may be waiting for this CPU.
                    crate::sys::yield_cpu();
                } else {
                    core::hint::spin_loop();
                }
            }
        }
    }
}
