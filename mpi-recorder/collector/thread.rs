//! The state of a thread: its guard against nested calls, its caches and the chunk that it writes.
//!
//! A thread's own word has the address of its state. The memory of states reads as zeros in a forked child, which
//! therefore finds none that is in use and leaves the file alone.

use crate::comms::Comm;
use crate::lock::Locked;
use crate::mpi::Library;
use crate::polling::{COUNTED, Polling, Slot};
use crate::requests::{Open, Position};
use crate::{output, start, sys};
use core::mem::offset_of;
use core::ptr::{null_mut, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use mpi_abi::{
    CHUNK, CHUNK_HEADER, Call, ChunkHeader, Class, Encoder, Entry, Full, MAX_REQUESTS, REPEAT,
    RequestItem, Role, at, chunk_at, chunk_flag, crc32, present, rank, shape,
};

/// Whether recording is going on in this process, or in the one that it was forked from.
static RECORDING: AtomicBool = AtomicBool::new(false);

/// Incremented when a datatype is freed: cached sizes are void.
pub static TYPES_CHANGED: AtomicU32 = AtomicU32::new(0);
/// Incremented when a communicator is made or freed.
pub static COMMS_CHANGED: AtomicU32 = AtomicU32::new(0);
/// Cleared by `MPI_Pcontrol(0)`.
pub static ON: AtomicBool = AtomicBool::new(true);

/// Frames are at this address or higher; lower numbers are those of functions.
const FRAMES: usize = 1 << 20;
/// Bytes of stack between the frame of a recorded call and those of calls inside of it, at least.
pub const GAP: usize = 2048;
/// Events between two clock pairs in an open chunk. A power of two.
const ANCHOR_EVERY: u32 = 1024;
/// Lost events between two attempts to get space. A power of two.
const RETRY_EVERY: u64 = 4096;
/// Entries of the caches. Powers of two.
const TYPES: usize = 64;
const COMMS: usize = 4;

/// A request that a call looks at.
#[derive(Clone, Copy)]
pub struct Looked {
    pub found: Option<(Position, Open)>,
}

/// Memory that grows and is used again.
pub struct Scratch<T> {
    memory: *mut T,
    capacity: usize,
}

impl<T> Scratch<T> {
    pub const NEW: Self = Scratch { memory: null_mut(), capacity: 0 };
}

impl<T> Default for Scratch<T> {
    fn default() -> Self {
        Self::NEW
    }
}

impl<T: Copy> Scratch<T> {
    /// Where it is, until it grows.
    #[inline(always)]
    pub fn address(&self) -> usize {
        self.memory.expose_provenance()
    }

    /// Room for `count` values, whose contents are left over from the last use or zeros; empty if there is
    /// no memory.
    pub fn room(&mut self, count: usize) -> &mut [T] {
        if count > self.capacity {
            let capacity = count.next_power_of_two().max(1024);
            let memory: *mut T = sys::map_memory(capacity.saturating_mul(size_of::<T>())).cast();
            if memory.is_null() {
                return &mut [];
            }
            if !self.memory.is_null() {
                // SAFETY: the old memory is ours and not used any more.
                unsafe { sys::unmap(self.memory.cast(), self.capacity * size_of::<T>()) };
            }
            *self = Scratch { memory, capacity };
        }
        if count == 0 {
            return &mut [];
        }
        // SAFETY: the memory has room for `capacity` values; zeros and left-over values are valid for the
        // types used.
        unsafe { core::slice::from_raw_parts_mut(self.memory, count) }
    }
}

/// What a thread needs to record. It begins with all that a counted test needs, in two cache lines: programs that
/// poll use the rest of the cache, and the address translations, for themselves.
#[repr(C)]
pub struct Thread {
    /// Address of the frame of the recorded call that is going on. Outside of calls 0, or the mark of the test that
    /// only needs to be counted if it comes next. 0 in a call that returns in a forked child.
    mark: usize,
    pub polling: Polling,
    /// Whether a thread has this state and may record.
    in_use: bool,
    pub library: &'static Library,
    chunk: *mut u8,
    index: u64,
    events: u32,
    /// Events of the whole run.
    total: u64,
    number: u16,
    sequence: u32,
    claimed: bool,
    lost: u64,
    omitted: u64,
    types_seen: u32,
    comms_seen: u32,
    types: [(usize, u64); TYPES],
    comms: [(usize, Comm); COMMS],
    pub looked: Scratch<Looked>,
    pub items: Scratch<RequestItem>,
    pub statuses: Scratch<u64>,
    pub sent: Scratch<u64>,
    pub got: Scratch<u64>,
    next_free: *mut Thread,
    /// The state made before this one.
    made_before: *mut Thread,
    encoder: Encoder,
}

const _: () = assert!(offset_of!(Thread, polling) + COUNTED <= 128);

struct Lanes {
    free: *mut Thread,
    /// The state made last, and how many there are.
    last: *mut Thread,
    made: u16,
}

static LANES: Locked<Lanes> = Locked::always(Lanes { free: null_mut(), last: null_mut(), made: 0 });

/// Switches recording on. Returns the state of this thread; `None` if there cannot be any.
pub fn begin() -> Option<&'static mut Thread> {
    RECORDING.store(true, Ordering::Release);
    let thread = current();
    RECORDING.store(thread.is_some(), Ordering::Release);
    thread
}

/// Whether recording is going on.
#[inline(always)]
pub fn is_recording() -> bool {
    RECORDING.load(Ordering::Relaxed)
}

/// The state of this thread, if it has one.
#[inline(always)]
fn own() -> Option<&'static mut Thread> {
    let thread = with_exposed_provenance_mut::<Thread>(sys::own_word());
    // SAFETY: null or a state that is never unmapped; if it is in use, by this thread alone.
    unsafe { if thread.is_null() || !(*thread).in_use { None } else { Some(&mut *thread) } }
}

/// The state of this thread; `None` if it must not record.
#[inline(always)]
pub fn current() -> Option<&'static mut Thread> {
    own().or_else(attach)
}

/// The state and the mark of this thread, which is not 0.
#[inline(always)]
pub fn marked() -> Option<(&'static mut Thread, usize)> {
    let thread = with_exposed_provenance_mut::<Thread>(sys::own_word());
    if thread.is_null() {
        return None;
    }
    // SAFETY: as in `own`; a state that is not in use, or reads as zeros, has no mark.
    unsafe { if (*thread).mark == 0 { None } else { Some((&mut *thread, (*thread).mark)) } }
}

/// The state of this thread and the test that comes next, if no call is going on.
pub fn polling() -> Option<(&'static mut Thread, &'static Slot)> {
    let thread = own().filter(|thread| thread.mark < FRAMES)?;
    // SAFETY: null or a test, which stays where it is and as it is while it is made.
    let slot = unsafe { thread.polling.next().as_ref()? };
    Some((thread, slot))
}

/// The state of this thread for a call whose frame is at this address; `None` if it is not to be recorded.
#[inline(always)]
pub fn enter(frame: usize) -> Option<&'static mut Thread> {
    let thread = current()?;
    if thread.enter(frame) { Some(thread) } else { None }
}

/// Gives this thread a state.
#[cold]
#[inline(never)]
fn attach() -> Option<&'static mut Thread> {
    if !is_recording() || start::is_child() {
        return None;
    }
    let library = start::library()?;
    let thread = LANES.with(|lanes| {
        // SAFETY: states on the list are not used by anyone.
        if let Some(thread) = unsafe { lanes.free.as_mut() } {
            lanes.free = thread.next_free;
            return &raw mut *thread;
        }
        let length = size_of::<Thread>();
        let thread: *mut Thread = sys::map_memory(length).cast();
        if thread.is_null() || lanes.made == u16::MAX || !sys::wipe_on_fork(thread.cast(), length) {
            return null_mut();
        }
        // SAFETY: fresh memory of that size; every field is written.
        unsafe {
            Thread::place(thread, library, lanes.made);
            (*thread).made_before = lanes.last;
        }
        lanes.last = thread;
        lanes.made += 1;
        thread
    });
    // SAFETY: null, or a state that is this thread's from now on.
    let Some(state) = (unsafe { thread.as_mut() }) else {
        output::count(at::LOST_TABLE, 1);
        return None;
    };
    state.in_use = true;
    sys::set_own_word(thread.expose_provenance());
    start::at_thread_exit(thread);
    Some(state)
}

/// Called by a thread that ends: its chunk is complete, and its state serves the next thread.
pub fn detach(thread: *mut Thread) {
    sys::set_own_word(0);
    LANES.with(|lanes| {
        // SAFETY: the owner is ending and runs this function.
        if let Some(state) = unsafe { thread.as_mut() }
            && state.in_use
        {
            state.close_chunk();
            state.in_use = false;
            state.mark = 0;
            state.next_free = lanes.free;
            lanes.free = thread;
        }
    });
}

/// Ends recording: closes the chunks of all threads. Returns events, threads and the bytes in use of the
/// last chunk.
pub fn finish() -> (u64, u32, u64) {
    RECORDING.store(false, Ordering::Release);
    LANES.with(|lanes| {
        let (mut events, mut last_chunk) = (0, CHUNK as u64);
        let mut at = lanes.last;
        // SAFETY: MPI_Finalize is the last call; no other thread records any more.
        while let Some(thread) = unsafe { at.as_mut() } {
            let (index, used) = (thread.index, thread.encoder.used());
            let open = !thread.chunk.is_null();
            thread.close_chunk();
            thread.in_use = false;
            events += thread.total;
            if open && output::is_last(index) {
                last_chunk = (CHUNK_HEADER + used) as u64;
            }
            at = thread.made_before;
        }
        (events, u32::from(lanes.made), last_chunk)
    })
}

/// Whether a message of a call that leaves no request goes to `MPI_PROC_NULL` and comes from there.
fn is_with_nobody(entry: &Entry) -> bool {
    let signature = &entry.signature;
    let nobody = |bit, rank| signature.present & bit == 0 || rank == rank::PROC_NULL;
    signature.shape & shape::BEGUN == 0
        && nobody(present::PEER, signature.peer)
        && nobody(present::SOURCE, signature.source)
}

impl Thread {
    /// Fills in a new state.
    ///
    /// # Safety
    /// `place` is zeroed memory for a state.
    unsafe fn place(place: *mut Thread, library: &'static Library, number: u16) {
        // SAFETY: every field that zeros are not valid or not right for is written; the encoder, which is
        // too large for a stack, is built in place.
        unsafe {
            (&raw mut (*place).library).write(library);
            (&raw mut (*place).number).write(number);
            (&raw mut (*place).looked).write(Scratch::default());
            (&raw mut (*place).items).write(Scratch::default());
            (&raw mut (*place).statuses).write(Scratch::default());
            (&raw mut (*place).sent).write(Scratch::default());
            (&raw mut (*place).got).write(Scratch::default());
            (&raw mut (*place).polling).write(Polling::NEW);
            (&raw mut (*place).encoder).cast::<u8>().write_bytes(0, size_of::<Encoder>());
            (*place).encoder.restart(0);
        }
    }

    /// Marks that a call is going on whose frame is at this address. `false` if another one already is, so
    /// that this one is made by the MPI library itself. A mark left behind by longjmp is below the frame, or next to
    /// it if the same function of the program makes this call.
    #[inline(always)]
    pub fn enter(&mut self, frame: usize) -> bool {
        if self.mark >= FRAMES && frame.saturating_add(GAP / 2) < self.mark {
            return false;
        }
        self.mark = frame;
        true
    }

    /// The call is over. What comes next is recorded, or looked up if it may be the next test.
    #[inline(always)]
    pub fn leave(&mut self) {
        self.mark = 0;
    }

    /// Whether the call that is going on returns in a child that was forked inside of it: the state is gone.
    #[inline(always)]
    pub fn is_gone(&self) -> bool {
        // SAFETY: a field. Another process has not changed it, but the kernel has.
        unsafe { (&raw const self.mark).read_volatile() == 0 }
    }

    /// A test is over, and the mark says whether the next one only needs to be counted.
    #[inline(always)]
    pub fn leave_test(&mut self, mark: usize) {
        self.mark = mark;
    }

    /// Size of a datatype.
    #[inline]
    pub fn type_size(&mut self, word: usize) -> u64 {
        let changed = TYPES_CHANGED.load(Ordering::Relaxed);
        if changed != self.types_seen {
            self.types_seen = changed;
            self.types = [(0, 0); TYPES];
        }
        let handle = self.library.handle(word);
        let slot = (handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        let library = self.library;
        let cached = &mut self.types[slot as usize & (TYPES - 1)];
        if cached.0 != handle {
            *cached = (handle, library.type_size(handle));
        }
        cached.1
    }

    /// Number of a communicator; `None` for `MPI_COMM_NULL`.
    #[inline(always)]
    pub fn comm_number(&mut self, word: usize) -> Option<u32> {
        let handle = self.library.handle(word);
        let cached = &self.comms[Self::comm_slot(handle)];
        if cached.0 == handle
            && handle != 0
            && self.comms_seen == COMMS_CHANGED.load(Ordering::Relaxed)
        {
            return Some(cached.1.number);
        }
        self.comm(word).map(|comm| comm.number)
    }

    #[inline(always)]
    fn comm_slot(handle: usize) -> usize {
        ((handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62) as usize & (COMMS - 1)
    }

    /// What is known about a communicator; `None` for `MPI_COMM_NULL`.
    #[inline(never)]
    pub fn comm(&mut self, word: usize) -> Option<Comm> {
        let handle = self.library.handle(word);
        let changed = COMMS_CHANGED.load(Ordering::Relaxed);
        if changed != self.comms_seen {
            self.comms_seen = changed;
            self.comms = [(0, Comm::default()); COMMS];
        }
        let slot = Self::comm_slot(handle);
        let cached = &self.comms[slot];
        if cached.0 == handle && handle != 0 {
            return Some(cached.1);
        }
        let comm = crate::comms::of(self, handle)?;
        self.comms_seen = COMMS_CHANGED.load(Ordering::Relaxed);
        self.comms = [(0, Comm::default()); COMMS];
        self.comms[slot] = (handle, comm);
        Some(comm)
    }

    /// Events so far, and how many chunks were begun.
    pub fn progress(&self) -> (u64, u32) {
        (self.total + self.polling.repeated(), self.sequence)
    }

    /// Whether one more event has been written since then, and if so, whether into the same chunk. None if recording is
    /// off, or if there is no space.
    pub fn has_written(&self, (events, chunk): (u64, u32)) -> Option<bool> {
        let (now, last) = self.progress();
        (now == events + 1 && !self.chunk.is_null()).then_some(last == chunk)
    }

    /// Writes an event, with as many further records as its requests need.
    #[inline]
    pub fn event(&mut self, entry: &Entry) {
        if !ON.load(Ordering::Relaxed) {
            self.event_while_off(entry);
            return;
        }
        self.put(entry);
    }

    /// Writes a call that was made while recording is switched off, if calls of other ranks, or later ones of
    /// this rank, can only be understood with it: the n-th message of a channel meets the n-th.
    #[cold]
    #[inline(never)]
    fn event_while_off(&mut self, entry: &Entry) {
        let call = entry.signature.call;
        let settles = |item: &RequestItem| {
            !matches!(item.outcome, mpi_abi::Outcome::Pending | mpi_abi::Outcome::Ready)
        };
        let matters = match call.class() {
            Class::PointToPoint => call.has(Role::Buffer) && !is_with_nobody(entry),
            Class::Request => entry.requests.iter().any(settles),
            Class::Collective => true,
            Class::Communicator => call.has(Role::NewComm) || call.has(Role::CommInOut),
            Class::OneSided => {
                call.has(Role::NewWindow)
                    || call.has(Role::WindowInOut)
                    || matches!(call, Call::Win_fence)
            }
            Class::Io => call.has(Role::Comm),
            Class::Environment => !matches!(call, Call::Pcontrol),
            Class::Datatype | Class::Local => false,
        };
        if matters {
            let mut marked = *entry;
            marked.signature.shape |= shape::OFF;
            self.put(&marked);
        }
    }

    #[inline(always)]
    fn put(&mut self, entry: &Entry) {
        if self.polling.is_on() {
            self.end_polling(entry.begin);
        }
        if entry.requests.len() <= MAX_REQUESTS {
            self.write(0, 1, |encoder, payload| encoder.event(payload, entry));
        } else {
            self.long_event(entry);
        }
        if self.encoder.omitted() != self.omitted {
            output::count(at::LISTS_OMITTED, self.encoder.omitted() - self.omitted);
            self.omitted = self.encoder.omitted();
        }
    }

    #[cold]
    fn long_event(&mut self, entry: &Entry) {
        let mut parts = entry.requests.chunks(MAX_REQUESTS);
        let first = Entry { requests: parts.next().unwrap_or(&[]), ..*entry };
        self.write(0, 1, |encoder, payload| encoder.event(payload, &first));
        for part in parts {
            self.write(0, 0, |encoder, payload| encoder.more(payload, part));
        }
    }

    /// Writes a record other than an event.
    pub fn record(
        &mut self,
        flags: u16,
        write: impl FnMut(&mut Encoder, &mut [u8]) -> Result<(), Full>,
    ) -> bool {
        self.write(flags, 0, write)
    }

    /// A test has failed again, and was timed. Returns whether it is counted with those before it; otherwise
    /// it is to be written.
    pub fn repeat(&mut self, begin: u64, end: u64) -> bool {
        if !self.polling.continues(end) || !(self.polling.has_record() || self.begin_repeat()) {
            return false;
        }
        self.polling.time(begin, end);
        true
    }

    /// Begins a record for the repetitions of the last events; false if there is no room behind them.
    #[cold]
    fn begin_repeat(&mut self) -> bool {
        if self.chunk.is_null() || self.encoder.used() + REPEAT > CHUNK - CHUNK_HEADER {
            return false;
        }
        let (mut place, tests) = (0, self.polling.tests());
        let written = self.append(0, 0, |encoder, payload| {
            place = encoder.repeat(payload, tests)?;
            Ok(())
        });
        if written {
            // SAFETY: the place is within the chunk's payload, which stays mapped until polling has ended.
            self.polling.begin_record(unsafe { self.chunk.add(CHUNK_HEADER + place) });
        }
        written
    }

    /// Something else happens, at this time or later.
    #[cold]
    fn end_polling(&mut self, limit: u64) {
        if self.mark < FRAMES {
            self.mark = 0;
        }
        if let Some((times, ticks)) = self.polling.end(limit) {
            self.total += u64::from(times);
            self.encoder.repeated(ticks);
        }
    }

    /// Writes a record into the chunk, or into a new one if it is full.
    #[inline]
    fn write(
        &mut self,
        flags: u16,
        events: u32,
        write: impl FnMut(&mut Encoder, &mut [u8]) -> Result<(), Full>,
    ) -> bool {
        if self.polling.is_on() {
            self.end_polling(u64::MAX);
        }
        self.append(flags, events, write)
    }

    /// Writes a record. What is stored is in the page cache at once; `used` follows the bytes, so that a
    /// reader never sees half a record.
    #[inline]
    fn append(
        &mut self,
        flags: u16,
        events: u32,
        mut write: impl FnMut(&mut Encoder, &mut [u8]) -> Result<(), Full>,
    ) -> bool {
        if self.chunk.is_null() && !self.open_chunk() {
            self.lose(events);
            return false;
        }
        // SAFETY: `chunk` is a mapping of CHUNK bytes that this thread alone writes.
        let payload = unsafe {
            core::slice::from_raw_parts_mut(self.chunk.add(CHUNK_HEADER), CHUNK - CHUNK_HEADER)
        };
        if write(&mut self.encoder, payload).is_err() {
            self.close_chunk();
            if !self.open_chunk() {
                self.lose(events);
                return false;
            }
            // SAFETY: as above, for the new mapping.
            let payload = unsafe {
                core::slice::from_raw_parts_mut(self.chunk.add(CHUNK_HEADER), CHUNK - CHUNK_HEADER)
            };
            if write(&mut self.encoder, payload).is_err() {
                self.lose(events);
                return false;
            }
        }
        self.events += events;
        self.total += u64::from(events);
        // SAFETY: the header's fields are aligned and within the mapping.
        unsafe {
            if flags != 0 {
                (*self.chunk.add(chunk_at::FLAGS).cast::<AtomicU16>())
                    .fetch_or(flags, Ordering::Relaxed);
            }
            (*self.chunk.add(chunk_at::EVENTS).cast::<AtomicU32>())
                .store(self.events, Ordering::Relaxed);
            (*self.chunk.add(chunk_at::USED).cast::<AtomicU32>())
                .store(self.encoder.used() as u32, Ordering::Release);
        }
        if self.events & (ANCHOR_EVERY - 1) == ANCHOR_EVERY - 1 {
            self.stamp();
        }
        true
    }

    /// Stores a clock pair in the open chunk.
    #[cold]
    fn stamp(&mut self) {
        let anchor = start::anchor();
        // SAFETY: within the mapping, aligned to 8.
        unsafe {
            let place = self.chunk.add(chunk_at::LATEST).cast::<u64>();
            place.write(anchor.ticks);
            place.add(1).write(anchor.ns);
        }
    }

    #[cold]
    fn lose(&mut self, events: u32) {
        self.lost += u64::from(events);
        output::count(at::LOST_SPACE, u64::from(events));
    }

    #[cold]
    #[inline(never)]
    fn open_chunk(&mut self) -> bool {
        if self.lost & (RETRY_EVERY - 1) != 0 {
            return false;
        }
        if !self.claimed {
            self.index = output::claim();
            self.claimed = true;
        }
        let chunk = output::map_chunk(self.index);
        if chunk.is_null() {
            return false;
        }
        self.claimed = false;
        self.start_chunk(chunk);
        if self.lost > 0 {
            let lost = core::mem::take(&mut self.lost);
            self.write(0, 0, |encoder, payload| encoder.lost(payload, lost));
        }
        true
    }

    fn start_chunk(&mut self, chunk: *mut u8) {
        let anchor = start::anchor();
        // Not later than the next record: the end of the last one, or the beginning of the run.
        let base = match self.encoder.last() {
            0 => start::loaded(),
            last => last,
        };
        let header = ChunkHeader {
            thread: self.number,
            sequence: self.sequence,
            base,
            opened: anchor,
            latest: anchor,
            ..ChunkHeader::default()
        };
        self.sequence += 1;
        self.events = 0;
        self.encoder.restart(base);
        self.chunk = chunk;
        let bytes = header.to_bytes();
        // SAFETY: the mapping is larger than a header and does not overlap the array.
        unsafe { chunk.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    #[cold]
    #[inline(never)]
    pub fn close_chunk(&mut self) {
        self.end_polling(u64::MAX);
        if self.chunk.is_null() {
            return;
        }
        let errno = sys::errno();
        self.stamp();
        let used = self.encoder.used();
        // SAFETY: the payload was written up to `used` by this thread; the header is aligned and within the
        // mapping, which is given up here.
        unsafe {
            let payload = core::slice::from_raw_parts(self.chunk.add(CHUNK_HEADER), used);
            self.chunk.add(chunk_at::CRC).cast::<u32>().write(crc32(payload));
            (*self.chunk.add(chunk_at::FLAGS).cast::<AtomicU16>())
                .fetch_or(chunk_flag::CLOSED, Ordering::Release);
            sys::unmap(self.chunk, CHUNK);
        }
        self.chunk = null_mut();
        sys::set_errno(errno);
    }

    /// Lets `work` write into memory instead of the file, to measure what recording costs. It may use
    /// `MPI_COMM_SELF`.
    pub fn rehearse(&mut self, work: impl FnOnce(&mut Thread)) {
        let memory = sys::map_memory(CHUNK);
        if memory.is_null() {
            return;
        }
        self.start_chunk(memory);
        let handle = self.library.comm_self;
        self.comms = [(handle, Comm::default()); COMMS];
        self.comms_seen = COMMS_CHANGED.load(Ordering::Relaxed);
        work(self);
        self.comms = [(0, Comm::default()); COMMS];
        // The chunk was not outgrown if it is still the same.
        if self.chunk == memory {
            self.chunk = null_mut();
            // SAFETY: the state does not point to it any more.
            unsafe { sys::unmap(memory, CHUNK) };
        }
        self.encoder.restart(0);
        self.sequence = 0;
        self.total = 0;
        self.events = 0;
    }
}
