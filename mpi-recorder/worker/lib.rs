//! The library that turns a process into an MPI rank under the control of its parent, which may be statically
//! linked and unable to load MPI itself.
//!
//! It is preloaded into a program that does nothing (`sh -c :`) and takes the place of its `main`. In: requests of
//! the parent, on standard input, which is a socket; out: answers on the same socket, mostly times in ticks.
//! Everything that is computed from them is computed by the parent (crate `link`); here are only the loops that
//! must run close to MPI. The layout of requests and answers is in `mpi-recorder/src/worker.rs`.
//!
//! Like the collector it is compiled without `mpi.h`, needs no other library and works with every MPI.

#![no_std]

// Shared with the collector, which uses more of them.
#[allow(dead_code)]
#[path = "../collector/clock.rs"]
mod clock;
#[allow(dead_code)]
#[path = "../collector/mpi.rs"]
mod mpi;
#[allow(dead_code)]
#[path = "../collector/sys.rs"]
mod sys;

mod patterns;
mod play;
mod socket;

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use mpi::Library;
use mpi_abi::{Abi, Clock};
use patterns::{Job, Memory};

/// Requests, by their first word.
mod request {
    pub const FINISH: u64 = 1;
    pub const BARRIER: u64 = 2;
    pub const SEND: u64 = 3;
    pub const RECEIVE: u64 = 4;
    pub const ANCHOR: u64 = 5;
    pub const TIMER: u64 = 6;
    pub const ROUND_TRIP: u64 = 7;
    pub const DELAYED: u64 = 8;
    pub const LATE: u64 = 9;
    pub const EXCHANGE: u64 = 10;
    pub const POLLING: u64 = 11;
    pub const PLAY: u64 = 12;
}

/// Names of MPI libraries to try, separated by colons; without it the program is left alone.
const LIBRARIES: &CStr = c"DETOUR_MPI_WORKER";

unsafe extern "C" {
    fn dlerror() -> *const c_char;
    fn prctl(option: c_int, ...) -> c_int;
    fn setenv(name: *const c_char, value: *const c_char, overwrite: c_int) -> c_int;
    fn unsetenv(name: *const c_char) -> c_int;
    fn strlen(text: *const c_char) -> usize;
}

const PR_SET_PDEATHSIG: c_int = 1;
const SIGKILL: usize = 9;
/// RTLD_NOW and RTLD_GLOBAL: the plugins of Open MPI expect its symbols to be global.
const NOW_GLOBAL: c_int = 0x102;

/// What every program starts with: its `main` is replaced if the parent wants a worker.
///
/// # Safety
/// Called by the program's start code with its own arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __libc_start_main(
    main: usize,
    count: usize,
    words: usize,
    init: usize,
    fini: usize,
    linker_fini: usize,
    stack: usize,
) -> c_int {
    type Start = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize) -> c_int;
    let main =
        if sys::environment(LIBRARIES).is_some() { worker as *const () as usize } else { main };
    // SAFETY: the name ends with NUL; the function of the C library has these arguments, or fewer, all words.
    unsafe {
        let real = sys::dlsym(sys::RTLD_NEXT, c"__libc_start_main".as_ptr());
        if real.is_null() {
            sys::complain(b"detour: the C library has no __libc_start_main\n");
            return 1;
        }
        let real = core::mem::transmute::<*mut c_void, Start>(real);
        real(main, count, words, init, fini, linker_fini, stack)
    }
}

extern "C" fn worker() -> c_int {
    // SAFETY: a number as the option wants it. Without its parent a worker has nothing to do.
    unsafe { prctl(PR_SET_PDEATHSIG, SIGKILL) };
    let handle = sys::environment(LIBRARIES).map_or(null_mut(), open_first);
    leave_children_alone();
    if handle.is_null() {
        return 1;
    }
    mpi::provide(handle);
    let Some(library) = Library::find() else {
        socket::refuse(b"the library has no PMPI_Send");
        return 1;
    };
    let clock = clock::choose();
    // SAFETY: MPI accepts null pointers in place of the arguments of main.
    if unsafe { library.Init(0, 0) } != 0 {
        socket::refuse(b"MPI_Init failed");
        return 1;
    }
    let Some(finalized) = hello(&library, clock).and_then(|()| serve(&library)) else {
        // The parent is gone: the others must not wait for this rank.
        return 1;
    };
    if !finalized {
        // SAFETY: MPI is initialised and nothing is under way.
        unsafe { library.Finalize() };
    }
    0
}

/// Opens the first library of a list that there is; null if there is none, which the parent has been told.
fn open_first(list: &CStr) -> *mut c_void {
    let mut name = [0u8; 4096];
    for candidate in list.to_bytes().split(|byte| *byte == b':') {
        let Some(place) = name.get_mut(..candidate.len()).filter(|place| place.len() < 4095) else {
            continue;
        };
        place.copy_from_slice(candidate);
        if let Some(end) = name.get_mut(candidate.len()) {
            *end = 0;
        }
        // SAFETY: the name ends with NUL.
        let handle = unsafe { sys::dlopen(name.as_ptr().cast(), NOW_GLOBAL) };
        if !handle.is_null() {
            return handle;
        }
    }
    // SAFETY: the C library's own string, which ends with NUL.
    let why: &[u8] = unsafe {
        let text = dlerror();
        if text.is_null() {
            b"unknown error"
        } else {
            core::slice::from_raw_parts(text.cast(), strlen(text))
        }
    };
    socket::refuse(why);
    null_mut()
}

/// MPI may start programs of its own: they get the environment as it was before the worker.
fn leave_children_alone() {
    // SAFETY: names and values end with NUL; there is only one thread yet.
    unsafe {
        unsetenv(LIBRARIES.as_ptr());
        let preloaded = sys::environment(c"LD_PRELOAD").unwrap_or(c"").to_bytes_with_nul();
        match preloaded.iter().position(|byte| *byte == b':') {
            // The worker is the first of the list.
            Some(colon) => {
                let others = preloaded.get(colon + 1..).unwrap_or(b"\0");
                setenv(c"LD_PRELOAD".as_ptr(), others.as_ptr().cast(), 1);
            }
            None => {
                unsetenv(c"LD_PRELOAD".as_ptr());
            }
        }
    }
}

/// The first answer: rank, size, ABI and clock as words, then the version of the library.
fn hello(library: &Library, clock: Clock) -> Option<()> {
    let (mut rank, mut size, mut length) = (0i32, 0i32, 0i32);
    // Libraries may write up to MPI_MAX_LIBRARY_VERSION_STRING bytes, 8192 at most so far.
    let mut version = [0u8; 8448];
    // SAFETY: MPI is initialised; places for the results.
    unsafe {
        library.Comm_rank(library.comm_world, &raw mut rank as usize);
        library.Comm_size(library.comm_world, &raw mut size as usize);
        library.Get_library_version(version.as_mut_ptr() as usize, &raw mut length as usize);
    }
    let version = version.split(|byte| *byte == 0).next().unwrap_or(&[]);
    let abi = match library.abi {
        Abi::Mpich => 1,
        Abi::OpenMpi => 2,
        Abi::Standard => 3,
    };
    let words = [rank as u64, size as u64, abi, u64::from(!matches!(clock, Clock::Monotonic))];
    socket::answer(&[socket::bytes(&words), version])
}

/// Answers requests until the last, and says whether MPI is finalised; None if the parent is gone.
fn serve(library: &Library) -> Option<bool> {
    let mut memory = Memory::new();
    let mut finalized = false;
    loop {
        let [kind, peer, first, bytes, messages, delay, repeats, _] = socket::request()?;
        let job = Job {
            library,
            peer: peer as usize,
            first: first == 1,
            bytes: bytes as usize,
            messages: messages as usize,
            delay,
            repeats: repeats as usize,
        };
        match kind {
            request::FINISH => return socket::answer(&[]).map(|()| finalized),
            request::BARRIER => {
                // SAFETY: collective over all ranks, whose parents all ask for it.
                unsafe { library.Barrier(library.comm_world) };
                socket::answer(&[])?;
            }
            request::SEND => {
                let payload = memory.message(job.bytes)?;
                socket::fill(payload)?;
                job.send(payload.as_mut_ptr(), payload.len());
                socket::answer(&[])?;
            }
            request::RECEIVE => {
                let payload = memory.message(job.bytes)?;
                job.receive(payload.as_mut_ptr(), payload.len());
                socket::answer(&[payload])?;
            }
            request::ANCHOR => {
                let anchor = clock::anchor();
                socket::answer(&[socket::bytes(&[anchor.ticks, anchor.ns])])?;
            }
            request::TIMER => answer_words(job.timer(&mut memory)?)?,
            request::ROUND_TRIP => answer_words(job.round_trips(&mut memory)?)?,
            request::DELAYED => answer_words(job.delayed(&mut memory)?)?,
            request::LATE => answer_words(job.late(&mut memory, false)?)?,
            request::POLLING => answer_words(job.late(&mut memory, true)?)?,
            request::PLAY => {
                let script = memory.words(job.bytes / 8)?;
                socket::fill(socket::bytes_mut(script))?;
                let Some(times) = play::play(library, script) else {
                    socket::refuse(b"the script cannot be played");
                    return None;
                };
                finalized = true;
                answer_words(&times)?;
            }
            request::EXCHANGE => answer_words(job.exchange(&mut memory)?)?,
            _ => {
                socket::refuse(b"unknown request");
                return None;
            }
        }
    }
}

fn answer_words(words: &[u64]) -> Option<()> {
    socket::answer(&[socket::bytes(words)])
}

// As in the collector: nothing unwinds, and the symbol is hidden.
core::arch::global_asm!(
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality:",
    ".byte 0",
);

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    unsafe extern "C" {
        fn abort() -> !;
    }
    sys::complain(b"detour: internal error in the MPI worker\n");
    // SAFETY: ends the process.
    unsafe { abort() }
}
