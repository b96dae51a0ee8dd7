//! The functions of the C library that the collector uses, and thin safe covers for them. They are resolved
//! when the program loads the library, so it works with glibc and musl and needs no other library.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use mpi_abi::Anchor;

#[repr(C)]
pub struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

#[repr(C)]
pub struct DlInfo {
    pub file: *const c_char,
    base: *mut c_void,
    name: *const c_char,
    address: *mut c_void,
}

#[repr(C)]
struct Iovec {
    base: *mut c_void,
    length: usize,
}

#[repr(C)]
struct Limit {
    soft: u64,
    hard: u64,
}

unsafe extern "C" {
    pub fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    pub fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    pub fn dladdr(address: *const c_void, info: *mut DlInfo) -> c_int;
    fn getenv(name: *const c_char) -> *const c_char;
    fn open(path: *const c_char, flags: c_int, mode: u32) -> c_int;
    fn close(file: c_int) -> c_int;
    fn read(file: c_int, buffer: *mut c_void, length: usize) -> isize;
    fn write(file: c_int, buffer: *const c_void, length: usize) -> isize;
    fn pwrite(file: c_int, buffer: *const c_void, length: usize, offset: i64) -> isize;
    fn unlink(path: *const c_char) -> c_int;
    fn ftruncate(file: c_int, length: i64) -> c_int;
    fn fallocate(file: c_int, mode: c_int, offset: i64, length: i64) -> c_int;
    fn mmap(
        address: *mut c_void,
        length: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn munmap(address: *mut c_void, length: usize) -> c_int;
    fn mremap(old: *mut c_void, old_size: usize, size: usize, flags: c_int, ...) -> *mut c_void;
    fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int;
    fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
    fn gethostname(name: *mut c_char, length: usize) -> c_int;
    fn getpid() -> c_int;
    fn getrlimit(resource: c_int, limit: *mut Limit) -> c_int;
    fn sched_yield() -> c_int;
    fn process_vm_readv(
        pid: c_int,
        local: *const Iovec,
        locals: usize,
        remote: *const Iovec,
        remotes: usize,
        flags: usize,
    ) -> isize;
    fn __errno_location() -> *mut c_int;
}

pub const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;
pub const RTLD_DEFAULT: *mut c_void = null_mut();
pub const RTLD_NOW_NOLOAD: c_int = 2 | 4;

pub const EEXIST: c_int = 17;
const EINTR: c_int = 4;
const ENOSYS: c_int = 38;
const EOPNOTSUPP: c_int = 95;

const PROT_READ_WRITE: c_int = 3;
const MAP_SHARED: c_int = 1;
const MAP_PRIVATE_ANONYMOUS: c_int = 0x22;
const MAP_POPULATE: c_int = 0x8000;
const MREMAP_MAYMOVE: c_int = 1;
const MADV_WIPEONFORK: c_int = 18;

/// The C library's error number of the last failed call.
pub fn errno() -> c_int {
    // SAFETY: the C library returns the address of the thread's own variable.
    unsafe { *__errno_location() }
}

/// Restores the error number, which the program may look at after an MPI call.
pub fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *__errno_location() = value }
}

pub fn process_id() -> u32 {
    // SAFETY: has no preconditions.
    unsafe { getpid() as u32 }
}

pub fn yield_cpu() {
    // SAFETY: has no preconditions.
    unsafe { sched_yield() };
}

/// An environment variable.
pub fn environment(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name ends with NUL; the value is a C string of the environment, which MPI programs do not
    // change while MPI_Init runs.
    unsafe {
        let value = getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    }
}

fn clock(number: c_int) -> u64 {
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the structure has the layout of 64-bit Linux.
    unsafe { clock_gettime(number, &mut time) };
    (time.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(time.nanoseconds as u64)
}

/// Nanoseconds on `CLOCK_MONOTONIC`.
pub fn monotonic_ns() -> u64 {
    clock(1)
}

/// Nanoseconds since 1970.
pub fn realtime_ns() -> u64 {
    clock(0)
}

/// The processor's counter; 0 where none is known.
#[inline(always)]
pub fn counter() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: Linux lets programs read the virtual counter.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        ticks
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    0
}

// A word of every thread, null in new ones. Thread-local variables need an unstable feature without the standard
// library, and in a shared library most models of them cost a function call.
core::arch::global_asm!(
    ".pushsection .tbss,\"awT\",%nobits",
    ".p2align 3",
    ".hidden detour_mpi_own_word",
    "detour_mpi_own_word:",
    ".zero 8",
    ".popsection",
);

/// One instruction with the address of this thread's word, for each processor.
macro_rules! own_word {
    ($x86_64:literal, $aarch64:literal, $direction:tt $word:ident) => {
        // SAFETY: reads or writes a variable of this thread, to which nothing refers.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            core::arch::asm!(
                "mov {place}, qword ptr [rip + detour_mpi_own_word@GOTTPOFF]",
                $x86_64,
                place = out(reg) _,
                word = $direction(reg) $word,
                options(nostack, preserves_flags),
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::asm!(
                "adrp {place}, :gottprel:detour_mpi_own_word",
                "ldr {place}, [{place}, :gottprel_lo12:detour_mpi_own_word]",
                "mrs {pointer}, tpidr_el0",
                $aarch64,
                place = out(reg) _,
                pointer = out(reg) _,
                word = $direction(reg) $word,
                options(nostack, preserves_flags),
            );
        }
    };
}

/// The word of this thread.
#[inline(always)]
pub fn own_word() -> usize {
    let word: usize;
    own_word!("mov {word}, qword ptr fs:[{place}]", "ldr {word}, [{pointer}, {place}]", out word);
    word
}

pub fn set_own_word(word: usize) {
    own_word!("mov qword ptr fs:[{place}], {word}", "str {word}, [{pointer}, {place}]", in word);
}

/// The stack pointer, below which the frames of all further calls are.
#[inline(always)]
pub fn stack_pointer() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: copies a register.
    unsafe {
        core::arch::asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: copies a register.
    unsafe {
        core::arch::asm!("mov {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    pointer
}

/// Has `BYTES` bytes of stack below what is used now.
#[inline(always)]
pub fn leave_gap<const BYTES: usize>() {
    let gap = core::mem::MaybeUninit::<[u8; BYTES]>::uninit();
    // SAFETY: no instruction. The bytes have to be there, since they might be used.
    unsafe {
        core::arch::asm!("/* {} */", in(reg) &raw const gap, options(nostack, preserves_flags))
    };
}

/// The same moment on both clocks: the pair read fastest of three.
pub fn anchor(ticks: impl Fn() -> u64) -> Anchor {
    let mut best = (u64::MAX, Anchor::default());
    for _ in 0..3 {
        let before = ticks();
        let ns = monotonic_ns();
        let width = ticks().wrapping_sub(before);
        if width < best.0 {
            best = (width, Anchor { ticks: before.wrapping_add(width / 2), ns });
        }
    }
    best.1
}

/// Memory of its own, zeroed; null if there is none.
pub fn map_memory(length: usize) -> *mut u8 {
    // SAFETY: a new mapping at an address that the kernel chooses.
    let memory = unsafe { mmap(null_mut(), length, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0) };
    if memory as isize == -1 { null_mut() } else { memory.cast() }
}

/// Makes a mapping read as zeros in a forked child. Returns whether the kernel can.
pub fn wipe_on_fork(memory: *mut u8, length: usize) -> bool {
    // SAFETY: changes what a child sees, not what is stored here.
    unsafe { madvise(memory.cast(), length, MADV_WIPEONFORK) == 0 }
}

/// Enlarges memory of [`map_memory`], possibly elsewhere; null if there is none, and the old stays.
///
/// # Safety
/// `memory` has `old` bytes and nothing points into it after success.
pub unsafe fn grow_memory(memory: *mut u8, old: usize, new: usize) -> *mut u8 {
    // SAFETY: the caller owns the mapping.
    let grown = unsafe { mremap(memory.cast(), old, new, MREMAP_MAYMOVE) };
    if grown as isize == -1 { null_mut() } else { grown.cast() }
}

/// Gives memory of [`map_memory`] or [`File::map`] back.
///
/// # Safety
/// Nothing points into it any more.
pub unsafe fn unmap(memory: *mut u8, length: usize) {
    // SAFETY: the caller owns the mapping.
    unsafe { munmap(memory.cast(), length) };
}

/// An open file.
#[derive(Clone, Copy)]
pub struct File(c_int);

impl File {
    const READ: c_int = 0x8_0000;
    /// O_RDWR, O_CREAT, O_EXCL, O_CLOEXEC.
    const CREATE: c_int = 2 | 0o100 | 0o200 | 0x8_0000;

    /// Opens a file for reading.
    pub fn open(path: &CStr) -> Option<File> {
        // SAFETY: the path ends with NUL.
        let file = unsafe { open(path.as_ptr(), Self::READ, 0) };
        (file >= 0).then_some(File(file))
    }

    /// Creates a file that must not exist; the error is the error number.
    pub fn create(path: &CStr) -> Result<File, c_int> {
        // SAFETY: the path ends with NUL.
        let file = unsafe { open(path.as_ptr(), Self::CREATE, 0o644) };
        if file >= 0 { Ok(File(file)) } else { Err(errno()) }
    }

    pub fn close(self) {
        // SAFETY: the descriptor belongs to this value, which is used up.
        unsafe { close(self.0) };
    }

    /// Reads as much as there is and fits.
    pub fn read_into(self, buffer: &mut [u8]) -> usize {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            // SAFETY: the slice is writable for its length.
            match unsafe { read(self.0, rest.as_mut_ptr().cast(), rest.len()) } {
                count @ 1.. => filled += count as usize,
                _ => break,
            }
        }
        filled
    }

    /// Provides disk space, so that writing to a mapping cannot fail; the error is the error number.
    pub fn allocate(self, offset: u64, length: usize) -> Result<(), c_int> {
        loop {
            // SAFETY: works on our own file.
            if unsafe { fallocate(self.0, 0, offset as i64, length as i64) } == 0 {
                return Ok(());
            }
            match errno() {
                EINTR => {}
                EOPNOTSUPP | ENOSYS => return self.write_zeros(offset, length),
                error => return Err(error),
            }
        }
    }

    fn write_zeros(self, offset: u64, length: usize) -> Result<(), c_int> {
        static ZEROS: [u8; 4096] = [0; 4096];
        let mut done = 0;
        while done < length {
            let step = ZEROS.len().min(length - done);
            // SAFETY: the source is a static array of at least `step` bytes.
            match unsafe {
                pwrite(self.0, ZEROS.as_ptr().cast(), step, (offset as i64) + done as i64)
            } {
                written @ 1.. => done += written as usize,
                _ if errno() == EINTR => {}
                _ => return Err(errno()),
            }
        }
        Ok(())
    }

    pub fn truncate(self, length: u64) {
        // SAFETY: works on our own file, of which nothing behind `length` is mapped.
        unsafe { ftruncate(self.0, length as i64) };
    }

    /// Maps a part of the file, its pages present; null if that fails.
    pub fn map(self, offset: u64, length: usize) -> *mut u8 {
        // SAFETY: a new mapping at an address that the kernel chooses.
        let memory = unsafe {
            mmap(
                null_mut(),
                length,
                PROT_READ_WRITE,
                MAP_SHARED | MAP_POPULATE,
                self.0,
                offset as i64,
            )
        };
        if memory as isize == -1 { null_mut() } else { memory.cast() }
    }
}

/// Reads the beginning of a file.
pub fn read_file(path: &CStr, buffer: &mut [u8]) -> usize {
    let Some(file) = File::open(path) else { return 0 };
    let length = file.read_into(buffer);
    file.close();
    length
}

pub fn remove(path: &CStr) {
    // SAFETY: the path ends with NUL.
    unsafe { unlink(path.as_ptr()) };
}

/// Writes a line to standard error.
pub fn complain(line: &[u8]) {
    // SAFETY: the slice is readable for its length.
    unsafe { write(2, line.as_ptr().cast(), line.len()) };
}

/// The largest file that this process may write. Beyond it the kernel sends SIGXFSZ.
pub fn file_size_limit() -> u64 {
    let mut limit = Limit { soft: u64::MAX, hard: u64::MAX };
    // SAFETY: the structure has the layout of 64-bit Linux.
    unsafe { getrlimit(1, &mut limit) };
    limit.soft
}

pub fn host_name(name: &mut [u8]) {
    // SAFETY: the slice is writable for its length.
    unsafe { gethostname(name.as_mut_ptr().cast(), name.len()) };
}

/// Copies memory at an address that may not be readable; `None` if it is not.
pub fn read_memory(address: usize, buffer: &mut [u8]) -> Option<()> {
    let local = Iovec { base: buffer.as_mut_ptr().cast(), length: buffer.len() };
    let remote = Iovec { base: address as *mut c_void, length: buffer.len() };
    // SAFETY: the kernel checks the source; the target is a slice of that length.
    let count = unsafe { process_vm_readv(getpid(), &local, 1, &remote, 1, 0) };
    (count == buffer.len() as isize).then_some(())
}
