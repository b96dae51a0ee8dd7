//! From `MPI_Init` to `MPI_Finalize`: the clock, the file and its header, the clocks of the other hosts.

use crate::lock::{Locked, SEVERAL_THREADS};
use crate::mpi::{Library, UNDEFINED};
use crate::thread::{self, Thread};
use crate::{clock, comms, output, sys, wrap};
use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use mpi_abi::{
    Anchor, Call, Clock, ClockOffset, Entry, FileHeader, Lost, Signature, at, crc32, file_flag,
};

pub use crate::clock::{anchor, ticks};

static LIBRARY: AtomicPtr<Library> = AtomicPtr::new(null_mut());
static PROCESS: AtomicU32 = AtomicU32::new(0);
static LOADED: AtomicU64 = AtomicU64::new(0);
/// Round trips of a clock measurement. It continues until the fastest one has not been beaten in [`PATIENCE`]
/// times as many, because a fast round trip is rare on busy hosts. The time is for all hosts together.
const ROUNDS: u64 = 100;
const PATIENCE: u64 = 4;
const MOST_ROUNDS: u64 = 10_000;
/// Even if they take longer than [`LONGEST_NS`].
const LEAST_ROUNDS: u64 = 20;
const LONGEST_NS: u64 = 3_000_000_000;
/// First words of the messages of a clock measurement.
const PING: u64 = 1;
const RESULT: u64 = 2;
/// Tag of our messages, on our own communicators.
const TAG: usize = 1;

/// The collector's own communicators: all ranks, those of this host, the first of each host.
#[derive(Clone, Copy)]
struct Own {
    world: usize,
    node: usize,
    /// `None` in ranks that are not the first of their host.
    leaders: Option<usize>,
}

static OWN: Locked<Option<Own>> = Locked::new(None);

/// The MPI library, once it is initialised.
#[inline]
pub fn library() -> Option<&'static Library> {
    // SAFETY: null or written once and never unmapped.
    unsafe { LIBRARY.load(Ordering::Acquire).as_ref() }
}

/// Whether this is a forked child of the process that called `MPI_Init`.
pub fn is_child() -> bool {
    sys::process_id() != PROCESS.load(Ordering::Relaxed)
}

/// When `MPI_Init` was called, in ticks.
pub fn loaded() -> u64 {
    LOADED.load(Ordering::Relaxed)
}

/// `MPI_Init` and `MPI_Init_thread`.
///
/// # Safety
/// As the real function.
pub unsafe fn init<const N: usize>(function: usize, args: [usize; N]) -> usize
where
    [usize; N]: wrap::Invoke,
{
    static RUNNING: AtomicBool = AtomicBool::new(false);
    let real = wrap::real(function);
    let directory = sys::environment(c"DETOUR_MPI_DIR").filter(|dir| !dir.is_empty());
    // Inside of MPI_Init_thread some libraries call MPI_Init.
    let (Some(directory), false) = (directory, RUNNING.swap(true, Ordering::Relaxed)) else {
        // SAFETY: the caller's arguments.
        return unsafe { wrap::Invoke::invoke(args, real) };
    };
    let clock = clock::choose();
    wrap::ONLY_MPI.store(
        sys::environment(c"DETOUR_MPI_ONLY").is_some_and(|only| only == c"mpi"),
        Ordering::Relaxed,
    );
    let load = anchor();
    LOADED.store(load.ticks, Ordering::Relaxed);
    // SAFETY: the caller's arguments.
    let result = unsafe { wrap::Invoke::invoke(args, real) };
    let end = ticks();
    if result as i32 == 0 {
        let number = (function & (wrap::PROFILING_NAME - 1)) / 2;
        let call = Call::ALL.get(number).copied().unwrap_or(Call::Init);
        let errno = sys::errno();
        begin(call, directory, clock, load, end);
        sys::set_errno(errno);
    }
    result
}

/// For the worker, which has initialised MPI and made communicators by names that are not wrapped: recording
/// begins here. The communicators are in the same order in all their members, 0 where this rank is not one.
///
/// # Safety
/// `handles` has `count` handles of communicators.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn detour_mpi_adopt(handles: *const usize, count: usize) {
    let directory = sys::environment(c"DETOUR_MPI_DIR").filter(|dir| !dir.is_empty());
    let Some(directory) = directory else { return };
    let clock = clock::choose();
    let load = anchor();
    LOADED.store(load.ticks, Ordering::Relaxed);
    begin(Call::Init, directory, clock, load, ticks());
    if handles.is_null() || count == 0 {
        return;
    }
    // SAFETY: by contract.
    let handles = unsafe { core::slice::from_raw_parts(handles, count) };
    if let Some(thread) = thread::current() {
        for handle in handles {
            comms::of(thread, *handle);
        }
    }
}

/// Text of a known length limit.
struct Text {
    bytes: [u8; 4352],
    length: usize,
}

impl Text {
    fn new() -> Text {
        Text { bytes: [0; 4352], length: 0 }
    }

    fn add(&mut self, text: &[u8]) -> &mut Text {
        // One byte stays for the NUL.
        for byte in text {
            if self.length + 1 < self.bytes.len() {
                self.bytes[self.length] = *byte;
                self.length += 1;
            }
        }
        self
    }

    fn add_number(&mut self, mut number: u64) -> &mut Text {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 || at == 0 {
                break;
            }
        }
        self.add(digits.get(at..).unwrap_or(&[]))
    }

    fn path(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

fn complain(path: &Text, error: i32) {
    let mut line = Text::new();
    line.add(b"detour: cannot create ").add(path.path().to_bytes()).add(b": ");
    match error {
        sys::EEXIST => line.add(b"file exists (one directory holds one run; choose another)"),
        2 => line.add(b"no such directory"),
        13 | 1 => line.add(b"permission denied"),
        28 | 122 => line.add(b"no space left on device"),
        27 => line.add(b"file size limit is too low (see ulimit -f)"),
        30 => line.add(b"read-only file system"),
        error => line.add(b"error ").add_number(error.unsigned_abs().into()),
    };
    line.add(b"; the program runs unrecorded\n");
    sys::complain(line.bytes.get(..line.length).unwrap_or(&[]));
}

/// Creates the file; a failure is reported. Returns whether it is there.
fn create(directory: &CStr, rank: u32) -> bool {
    let mut path = Text::new();
    path.add(directory.to_bytes()).add(b"/rank-").add_number(rank.into()).add(b".mpi");
    match sys::File::create(path.path()) {
        Err(error) => {
            complain(&path, error);
            false
        }
        Ok(file) => match output::begin(file) {
            Ok(()) => true,
            Err(error) => {
                file.close();
                sys::remove(path.path());
                complain(&path, error);
                false
            }
        },
    }
}

fn boot_id() -> [u8; 16] {
    let mut text = [0u8; 40];
    let length = sys::read_file(c"/proc/sys/kernel/random/boot_id", &mut text);
    let mut id = [0u8; 16];
    let digits = text
        .get(..length)
        .unwrap_or(&[])
        .iter()
        .filter_map(|digit| char::from(*digit).to_digit(16));
    for (index, digit) in digits.take(32).enumerate() {
        id[index / 2] = id[index / 2] << 4 | digit as u8;
    }
    id
}

#[cold]
#[inline(never)]
fn begin(call: Call, directory: &CStr, clock: Clock, load: Anchor, end: u64) {
    let Some(found) = Library::find() else {
        sys::complain(b"detour: MPI library not found; the program runs unrecorded\n");
        return;
    };
    let memory: *mut Library = sys::map_memory(size_of::<Library>()).cast();
    if memory.is_null() {
        return;
    }
    // SAFETY: fresh memory of that size, never unmapped.
    let library: &'static Library = unsafe {
        memory.write(found);
        LIBRARY.store(memory, Ordering::Release);
        &*memory
    };
    let (mut rank, mut size, mut world) = (0i32, 0i32, 0usize);
    // SAFETY: MPI is initialised; places for the results.
    unsafe {
        library.Comm_rank(library.comm_world, &raw mut rank as usize);
        library.Comm_size(library.comm_world, &raw mut size as usize);
        library.Comm_dup(library.comm_world, &raw mut world as usize);
    }
    let (rank, world) = (rank as u32, library.handle(world));
    PROCESS.store(sys::process_id(), Ordering::Relaxed);

    // Rank 0 goes first, so that a directory that is in use is reported once.
    let mut shared = [0u64; 2];
    let mut created = false;
    if rank == 0 {
        let mut random = [0u8; 8];
        sys::read_file(c"/dev/urandom", &mut random);
        created = create(directory, rank);
        shared = [u64::from_le_bytes(random), u64::from(created)];
    }
    // SAFETY: 16 bytes on our own communicator.
    unsafe { library.Bcast(shared.as_mut_ptr() as usize, 16, library.byte, 0, world) };
    let [run, first_created] = shared;
    if first_created == 0 {
        let mut world = world;
        // SAFETY: made above.
        unsafe { library.Comm_free(&raw mut world as usize) };
        return;
    }
    if rank != 0 {
        created = create(directory, rank);
    }
    let boot_id = boot_id();
    let thread_level = library.thread_level();
    SEVERAL_THREADS.store(thread_level == 3, Ordering::Relaxed);
    let mut host = [0u8; 65];
    sys::host_name(host.get_mut(..64).unwrap_or(&mut []));
    // Libraries may write up to MPI_MAX_LIBRARY_VERSION_STRING bytes, 8192 at most so far.
    let mut version = [0u8; 8448];
    let mut length = 0i32;
    // SAFETY: the buffer is as long as the longest version, and a place for the result.
    unsafe {
        library.Get_library_version(version.as_mut_ptr() as usize, &raw mut length as usize);
    }
    let mut command = [0u8; 1024];
    let command_length = sys::read_file(c"/proc/self/cmdline", &mut command);
    let until_nul = |text: &[u8]| text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let mut header = FileHeader {
        run,
        world_rank: rank,
        world_size: size as u32,
        local_rank: 0,
        local_size: 1,
        abi: library.abi,
        clock,
        thread_level,
        pid: sys::process_id(),
        realtime_ns: sys::realtime_ns(),
        load,
        start: anchor(),
        offset_start: ClockOffset::default(),
        cost_recorded_ps: 0,
        cost_passed_ps: 0,
        host: host.get(..until_nul(&host)).unwrap_or(&[]),
        boot_id,
        library: version.get(..until_nul(&version)).unwrap_or(&[]),
        command: command.get(..command_length).unwrap_or(&[]),
        flags: file_flag::KEEPS_OFF,
        lost: Lost::default(),
        events: 0,
        chunks: 0,
        threads: 0,
        offset_end: ClockOffset::default(),
        end: Anchor::default(),
    };
    // A rank that is killed from here on leaves a file that can be read.
    store(&header);
    let own = split(library, world, rank, &boot_id);
    // A rank without a file still answers the others, here and at the end.
    header.offset_start = measure_clock(library, &own);
    OWN.with(|place| *place = Some(own));
    if !created {
        return;
    }
    let node_number = |ask: unsafe fn(&Library, usize, usize) -> i32| {
        let mut value = 0i32;
        // SAFETY: our communicator and a place for the result.
        unsafe { ask(library, own.node, &raw mut value as usize) };
        value as u32
    };
    header.local_rank = node_number(Library::Comm_rank);
    header.local_size = node_number(Library::Comm_size);
    prepare_thread_exit();
    let Some(thread) = thread::begin() else {
        sys::complain(b"detour: cannot record: no memory, or a kernel without MADV_WIPEONFORK\n");
        return;
    };
    let (recorded, passed) = wrap::measure_cost(thread);
    header.cost_recorded_ps = recorded;
    header.cost_passed_ps = passed;
    header.realtime_ns = sys::realtime_ns();
    header.start = anchor();
    clock::compare(load, header.start);
    store(&header);
    thread.event(&plain(call, load.ticks, end));
    comms::begin(thread);
}

/// Writes the header in one piece.
fn store(header: &FileHeader) {
    let mut bytes = [0; mpi_abi::HEADER];
    header.write(&mut bytes);
    if let Some(page) = output::page() {
        *page = bytes;
    }
}

/// An event of a call without arguments of interest.
pub fn plain(call: Call, begin: u64, end: u64) -> Entry<'static> {
    Entry::plain(Signature::of(call), begin, end)
}

/// Groups the ranks by host: those with the same boot id share a clock.
fn split(library: &Library, world: usize, rank: u32, boot_id: &[u8; 16]) -> Own {
    let color = |part: Option<&[u8; 4]>| {
        (u32::from_le_bytes(part.copied().unwrap_or_default()) & 0x7fff_ffff) as usize
    };
    let key = rank as usize;
    let (mut half, mut node, mut leaders) = (0usize, 0usize, 0usize);
    let mut local = 0i32;
    // SAFETY: collective over our own communicator; places for the results. A colour has 31 bits, so two
    // hosts could share one: the second division uses other bits.
    unsafe {
        library.Comm_split(world, color(boot_id.first_chunk()), key, &raw mut half as usize);
        let halved = library.handle(half);
        library.Comm_split(halved, color(boot_id.last_chunk()), key, &raw mut node as usize);
        library.Comm_free(&raw mut half as usize);
        let node = library.handle(node);
        library.Comm_rank(node, &raw mut local as usize);
        let color = if local == 0 { 0 } else { UNDEFINED as usize };
        library.Comm_split(world, color, key, &raw mut leaders as usize);
    }
    Own {
        world,
        node: library.handle(node),
        leaders: (local == 0).then(|| library.handle(leaders)),
    }
}

/// Measures this host's clock against that of rank 0's host.
fn measure_clock(library: &Library, own: &Own) -> ClockOffset {
    let mut result = [0u64; 3];
    if let Some(leaders) = own.leaders {
        let (mut rank, mut size) = (0i32, 0i32);
        // SAFETY: our own communicator, places for the results.
        unsafe {
            library.Comm_rank(leaders, &raw mut rank as usize);
            library.Comm_size(leaders, &raw mut size as usize);
        }
        result = [sys::monotonic_ns(), 0, 0];
        let send = |words: &[u64], to: usize| {
            // SAFETY: the words are readable for their length.
            unsafe {
                let length = words.len() * 8;
                library.Send(words.as_ptr() as usize, length, library.byte, to, TAG, leaders);
            }
        };
        let receive = |words: &mut [u64], from: usize| {
            // SAFETY: the words are writable for their length.
            unsafe {
                let (address, length) = (words.as_mut_ptr() as usize, words.len() * 8);
                let ignore = library.status_ignore;
                library.Recv(address, length, library.byte, from, TAG, leaders, ignore);
            }
        };
        if rank == 0 {
            let longest = LONGEST_NS / u64::from(size.max(2).unsigned_abs() - 1);
            for other in 1..size as usize {
                let mut best = [0, 0, u64::MAX];
                let (mut rounds, mut fastest) = (0, 0);
                let begin = sys::monotonic_ns();
                loop {
                    let mut there = [0u64];
                    let before = sys::monotonic_ns();
                    send(&[PING, 0, 0, 0], other);
                    receive(&mut there, other);
                    let now = sys::monotonic_ns();
                    let round_trip = now.wrapping_sub(before);
                    rounds += 1;
                    if round_trip < best[2] {
                        let offset = there[0].wrapping_sub(before.wrapping_add(round_trip / 2));
                        best = [there[0], offset, round_trip];
                        fastest = rounds;
                    }
                    let enough = rounds >= ROUNDS.max((1 + PATIENCE) * fastest);
                    let late = rounds >= LEAST_ROUNDS && now.wrapping_sub(begin) >= longest;
                    if enough || late || rounds >= MOST_ROUNDS {
                        break;
                    }
                }
                send(&[RESULT, best[0], best[1], best[2]], other);
            }
        } else {
            // A message that cannot be received leaves the words as they are, and ends it.
            for _ in 0..=MOST_ROUNDS {
                let mut words = [0u64; 4];
                receive(&mut words, 0);
                match words {
                    [PING, ..] => send(&[sys::monotonic_ns()], 0),
                    [RESULT, here, offset, round_trip] => {
                        result = [here, offset, round_trip];
                        break;
                    }
                    _ => break,
                }
            }
        }
    }
    // SAFETY: 24 bytes on our own communicator.
    unsafe { library.Bcast(result.as_mut_ptr() as usize, 24, library.byte, 0, own.node) };
    ClockOffset { here_ns: result[0], offset_ns: result[1] as i64, round_trip_ns: result[2] }
}

/// `MPI_Finalize`.
///
/// # Safety
/// As the real function.
pub unsafe fn finalize<const N: usize>(function: usize, args: [usize; N]) -> usize
where
    [usize; N]: wrap::Invoke,
{
    let real = wrap::real(function);
    let own = if is_child() { None } else { OWN.with(Option::take) };
    let (Some(library), Some(mut own)) = (library(), own) else {
        // SAFETY: the caller's arguments.
        return unsafe { wrap::Invoke::invoke(args, real) };
    };
    let frame = 0u8;
    let mut thread = thread::current();
    if let Some(thread) = &mut thread {
        thread.enter(&raw const frame as usize);
    }
    let begin = ticks();
    let offset = measure_clock(library, &own);
    // SAFETY: made in `begin`, freed once.
    unsafe {
        if let Some(mut leaders) = own.leaders {
            library.Comm_free(&raw mut leaders as usize);
        }
        library.Comm_free(&raw mut own.node as usize);
        library.Comm_free(&raw mut own.world as usize);
    }
    comms::finish(library);
    // SAFETY: the caller's arguments.
    let result = unsafe { wrap::Invoke::invoke(args, real) };
    let errno = sys::errno();
    if let Some(thread) = thread {
        let entry = Entry { error: result as i32, ..plain(Call::Finalize, begin, ticks()) };
        thread.event(&entry);
        thread.leave();
    }
    if thread::is_recording() {
        finish(offset);
    }
    sys::set_errno(errno);
    result
}

fn finish(offset: ClockOffset) {
    let (events, threads, last) = thread::finish();
    output::set_flags(file_flag::FINALIZED);
    if let Some(page) = output::page() {
        let end = anchor();
        let mut put = |at: usize, value: u64| {
            if let Some(place) = page.get_mut(at..at + 8) {
                place.copy_from_slice(&value.to_le_bytes());
            }
        };
        put(at::EVENTS, events);
        put(at::OFFSET_END, offset.here_ns);
        put(at::OFFSET_END + 8, offset.offset_ns as u64);
        put(at::OFFSET_END + 16, offset.round_trip_ns);
        put(at::END, end.ticks);
        put(at::END + 8, end.ns);
        put(at::THREADS, u64::from(threads));
        let crc = crc32(page.get(at::FLAGS..at::LIVE_CRC).unwrap_or(&[]));
        if let Some(place) = page.get_mut(at::LIVE_CRC..at::LIVE_CRC + 4) {
            place.copy_from_slice(&crc.to_le_bytes());
        }
    }
    output::finish(last);
}

/// `MPI_Abort`: it does not return, so it is recorded first.
///
/// # Safety
/// As the real function.
pub unsafe fn abort<const N: usize>(function: usize, args: [usize; N]) -> usize
where
    [usize; N]: wrap::Invoke,
{
    if let Some(thread) = thread::current() {
        let now = ticks();
        thread.event(&plain(Call::Abort, now, now));
        output::set_flags(file_flag::ABORTED);
    }
    // SAFETY: the caller's arguments.
    unsafe { wrap::Invoke::invoke(args, wrap::real(function)) }
}

/// `pthread_setspecific` and the key plus one; 0 if the C library has none.
static SET_SPECIFIC: AtomicUsize = AtomicUsize::new(0);
static KEY: AtomicU32 = AtomicU32::new(0);

extern "C" fn thread_exits(thread: *mut c_void) {
    if !is_child() {
        thread::detach(thread.cast());
    }
}

/// Asks the C library to say when a thread ends. The functions are in another library in old versions,
/// therefore looked up.
fn prepare_thread_exit() {
    // SAFETY: names that end with NUL; the functions have these types in POSIX, with a key of 32 bits in
    // glibc and musl.
    unsafe {
        let create = sys::dlsym(sys::RTLD_DEFAULT, c"pthread_key_create".as_ptr());
        let set = sys::dlsym(sys::RTLD_DEFAULT, c"pthread_setspecific".as_ptr());
        if create.is_null() || set.is_null() {
            return;
        }
        type Create = extern "C" fn(*mut u32, extern "C" fn(*mut c_void)) -> i32;
        let create = core::mem::transmute::<*mut c_void, Create>(create);
        let mut key = 0;
        if create(&mut key, thread_exits) == 0 {
            KEY.store(key + 1, Ordering::Relaxed);
            SET_SPECIFIC.store(set as usize, Ordering::Release);
        }
    }
}

/// Has the state closed when the thread that calls this ends.
pub fn at_thread_exit(thread: *mut Thread) {
    let set = SET_SPECIFIC.load(Ordering::Acquire);
    if set != 0 {
        // SAFETY: the function found above, with the key that was made.
        unsafe {
            type Set = extern "C" fn(u32, *const c_void) -> i32;
            let set = core::mem::transmute::<usize, Set>(set);
            set(KEY.load(Ordering::Relaxed) - 1, thread.cast());
        }
    }
}
