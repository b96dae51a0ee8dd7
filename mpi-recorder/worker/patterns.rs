//! The measured loops. Each runs on two ranks at once, which their parents have told the same; all times are
//! differences of ticks on one rank.
//!
//! What is sent back is what was received, in the same buffer: data that never changes would stay in the caches of
//! both processors.

use crate::clock::ticks;
use crate::mpi::Library;
use crate::sys;

/// Repetitions at the beginning that are not kept: they touch the buffers and wake the connection.
const WARM_UP: usize = 2;
const TAG: usize = 1;
/// Of messages that are never sent.
const NO_TAG: usize = 2;
/// One call of the clock is timed for so many exchanges.
pub const TIMER_EVERY: usize = 64;

/// One measurement.
pub struct Job<'a> {
    pub library: &'a Library,
    pub peer: usize,
    /// Whether this rank sends first.
    pub first: bool,
    pub bytes: usize,
    pub messages: usize,
    pub delay: u64,
    pub repeats: usize,
}

/// Memory that grows, for messages and for results. Mapped pages: there is no allocator.
pub struct Memory {
    sent: Area,
    received: Area,
    results: Area,
}

struct Area {
    start: *mut u8,
    length: usize,
}

impl Area {
    const fn new() -> Area {
        Area { start: core::ptr::null_mut(), length: 0 }
    }

    /// At least so many bytes; None if there is no memory.
    fn bytes(&mut self, wanted: usize) -> Option<&mut [u8]> {
        if self.length < wanted {
            let length = wanted.checked_next_multiple_of(1 << 16)?;
            let memory = sys::map_memory(length);
            if memory.is_null() {
                sys::complain(b"detour: out of memory in the MPI worker\n");
                return None;
            }
            if self.length > 0 {
                // SAFETY: the borrow of `self` shows that no slice of it is in use.
                unsafe { sys::unmap(self.start, self.length) };
            }
            // Pages that were never written are one page of zeros, which is always in the cache.
            // SAFETY: fresh memory of that length.
            unsafe { memory.write_bytes(0x5a, length) };
            *self = Area { start: memory, length };
        }
        if wanted == 0 {
            return Some(&mut []);
        }
        // SAFETY: `length` bytes of mapped memory, borrowed with `self`.
        Some(unsafe { core::slice::from_raw_parts_mut(self.start, wanted) })
    }

    fn words(&mut self, wanted: usize) -> Option<&mut [u64]> {
        let bytes = self.bytes(wanted.checked_mul(8)?)?;
        // SAFETY: a mapping is aligned to a page and has 8 bytes for every word.
        Some(unsafe { core::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), wanted) })
    }
}

impl Memory {
    pub const fn new() -> Memory {
        Memory { sent: Area::new(), received: Area::new(), results: Area::new() }
    }

    /// A buffer for a message.
    pub fn message(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.sent.bytes(bytes)
    }

    /// Words that the parent sends.
    pub fn words(&mut self, count: usize) -> Option<&mut [u64]> {
        self.received.words(count)
    }
}

/// Spins until a time; without calls of MPI, so that messages are not looked for.
fn wait_until(end: u64) {
    while (ticks().wrapping_sub(end) as i64) < 0 {
        core::hint::spin_loop();
    }
}

/// Stores the result of a repetition, unless it is one of the warm-up.
fn keep(results: &mut [u64], repeat: usize, value: u64) {
    if let Some(place) = repeat.checked_sub(WARM_UP).and_then(|index| results.get_mut(index)) {
        *place = value;
    }
}

impl Job<'_> {
    #[inline(always)]
    pub fn send(&self, buffer: *mut u8, bytes: usize) {
        let library = self.library;
        // SAFETY: the buffer has `bytes` bytes. An error ends the process, which is MPI's default.
        unsafe {
            library.Send(buffer as usize, bytes, library.byte, self.peer, TAG, library.comm_world);
        }
    }

    #[inline(always)]
    pub fn receive(&self, buffer: *mut u8, bytes: usize) {
        let library = self.library;
        // SAFETY: as above.
        unsafe {
            library.Recv(
                buffer as usize,
                bytes,
                library.byte,
                self.peer,
                TAG,
                library.comm_world,
                library.status_ignore,
            );
        }
    }

    fn total(&self) -> Option<usize> {
        self.repeats.checked_add(WARM_UP)
    }

    /// What one reading of the clock costs.
    pub fn timer<'a>(&self, memory: &'a mut Memory) -> Option<&'a [u64]> {
        let results = memory.results.words(self.repeats)?;
        for repeat in 0..self.total()? {
            let begin = ticks();
            let end = ticks();
            keep(results, repeat, end.wrapping_sub(begin));
        }
        Some(results)
    }

    /// `messages` one after another, and one back: PRTT(n, 0, s). The rank that begins has the times.
    pub fn round_trips<'a>(&self, memory: &'a mut Memory) -> Option<&'a [u64]> {
        let buffer = memory.sent.bytes(self.bytes)?.as_mut_ptr();
        let results = memory.results.words(if self.first { self.repeats } else { 0 })?;
        for repeat in 0..self.total()? {
            if self.first {
                let begin = ticks();
                for _ in 0..self.messages {
                    self.send(buffer, self.bytes);
                }
                self.receive(buffer, self.bytes);
                keep(results, repeat, ticks().wrapping_sub(begin));
            } else {
                for _ in 0..self.messages {
                    self.receive(buffer, self.bytes);
                }
                self.send(buffer, self.bytes);
            }
        }
        Some(results)
    }

    /// `messages` with a delay after each, and one back: the times inside of the sends.
    pub fn delayed<'a>(&self, memory: &'a mut Memory) -> Option<&'a [u64]> {
        let buffer = memory.sent.bytes(self.bytes)?.as_mut_ptr();
        let kept = self.repeats.checked_mul(self.messages)?;
        let results = memory.results.words(if self.first { kept } else { 0 })?;
        for repeat in 0..self.total()? {
            for message in 0..self.messages {
                if !self.first {
                    self.receive(buffer, self.bytes);
                    continue;
                }
                let begin = ticks();
                self.send(buffer, self.bytes);
                let end = ticks();
                if let Some(index) = repeat.checked_sub(WARM_UP) {
                    let place = index * self.messages + message;
                    if let Some(place) = results.get_mut(place) {
                        *place = end.wrapping_sub(begin);
                    }
                }
                wait_until(end.wrapping_add(self.delay));
            }
            if self.first {
                self.receive(buffer, self.bytes);
            } else {
                self.send(buffer, self.bytes);
            }
        }
        Some(results)
    }

    /// Looks for a message that nobody sends, until a time: MPI makes progress.
    fn poll_until(&self, end: u64) {
        let library = self.library;
        while (ticks().wrapping_sub(end) as i64) < 0 {
            let mut flag = 0i32;
            // SAFETY: a place for the result.
            unsafe {
                let (world, flag) = (library.comm_world, &raw mut flag as usize);
                library.Iprobe(self.peer, NO_TAG, world, flag, library.status_ignore);
            }
        }
    }

    /// A message that has arrived before it is received: the time inside of the send on the rank that begins,
    /// and inside of the receive on the other. While the receiver waits, MPI makes progress or not.
    pub fn late<'a>(&self, memory: &'a mut Memory, progress: bool) -> Option<&'a [u64]> {
        let buffer = memory.sent.bytes(self.bytes.max(1))?.as_mut_ptr();
        let results = memory.results.words(self.repeats)?;
        for repeat in 0..self.total()? {
            if self.first {
                // The other is ready, and will do nothing for a while.
                self.receive(buffer, 1);
                let begin = ticks();
                self.send(buffer, self.bytes);
                keep(results, repeat, ticks().wrapping_sub(begin));
            } else {
                self.send(buffer, 1);
                let end = ticks().wrapping_add(self.delay);
                if progress {
                    self.poll_until(end);
                } else {
                    wait_until(end);
                }
                let begin = ticks();
                self.receive(buffer, self.bytes);
                keep(results, repeat, ticks().wrapping_sub(begin));
            }
        }
        Some(results)
    }

    /// Both send and receive at the same time (paper 002): the own times, those of the other rank, and times of
    /// the clock itself, read during the exchanges.
    pub fn exchange<'a>(&self, memory: &'a mut Memory) -> Option<&'a [u64]> {
        let sent = memory.sent.bytes(self.bytes)?.as_mut_ptr();
        let received = memory.received.bytes(self.bytes)?.as_mut_ptr();
        let timers = self.repeats.div_ceil(TIMER_EVERY);
        let results = memory.results.words(self.repeats.checked_mul(2)?.checked_add(timers)?)?;
        let (own, rest) = results.split_at_mut_checked(self.repeats)?;
        let (peers, timer) = rest.split_at_mut_checked(self.repeats)?;
        for repeat in 0..self.total()? {
            let begin = ticks();
            self.swap(sent, received, self.bytes);
            let end = ticks();
            keep(own, repeat, end.wrapping_sub(begin));
            if repeat % TIMER_EVERY == WARM_UP {
                let cost = ticks().wrapping_sub(end);
                if let Some(place) = timer.get_mut(repeat / TIMER_EVERY) {
                    *place = cost;
                }
            }
        }
        self.swap(own.as_mut_ptr().cast(), peers.as_mut_ptr().cast(), size_of_val(own));
        Some(results)
    }

    fn swap(&self, sent: *mut u8, received: *mut u8, bytes: usize) {
        let (library, peer) = (self.library, self.peer);
        // SAFETY: both buffers have `bytes` bytes.
        unsafe {
            library.Sendrecv(
                sent as usize,
                bytes,
                library.byte,
                peer,
                TAG,
                received as usize,
                bytes,
                library.byte,
                peer,
                TAG,
                library.comm_world,
                library.status_ignore,
            );
        }
    }
}
