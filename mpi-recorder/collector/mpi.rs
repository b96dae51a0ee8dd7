//! The MPI library of the process: where its functions are, and the constants and layouts of its ABI.

use crate::sys;
use core::ffi::{CStr, c_char, c_void};
use core::ptr::{null_mut, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use mpi_abi::{Abi, Op, rank, tag};

/// Functions in the table, each with its large-count variant.
pub const FUNCTIONS: usize = 2 * mpi_abi::Call::ALL.len();

/// The real functions by number, 0 until they are first called.
pub static REAL: [AtomicUsize; FUNCTIONS] = [const { AtomicUsize::new(0) }; FUNCTIONS];

/// Handle of the library that provides `PMPI_Send`; null until it has been found.
static PROVIDER: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// How the name of a library with the standard ABI begins.
const STANDARD: &[u8] = b"libmpi_abi";

/// Stands for a function that the library does not have: it fails as MPI functions do.
extern "C" fn missing() -> usize {
    sys::complain(b"detour: the program calls a function that its MPI library lacks\n");
    // MPI_ERR_OTHER or a neighbour in all ABIs; what matters is that it is not MPI_SUCCESS.
    15
}

/// Looks a function up by its number.
#[cold]
#[inline(never)]
pub fn resolve(function: usize) -> usize {
    let call = mpi_abi::Call::ALL.get(function / 2);
    let name =
        call.and_then(|call| if function % 2 == 1 { call.large_name() } else { Some(call.name()) });
    let address = name.map_or(null_mut(), |name| lookup(name.as_bytes()));
    let address = if address.is_null() { missing as *const () as usize } else { address as usize };
    if let Some(real) = REAL.get(function) {
        real.store(address, Ordering::Release);
    }
    address
}

/// The library's function with the name `MPI_...`, under its name `PMPI_...`.
fn lookup(name: &[u8]) -> *mut c_void {
    let mut buffer = [0u8; 64];
    buffer[0] = b'P';
    let Some(place) = buffer.get_mut(1..=name.len()).filter(|_| name.len() < 62) else {
        return null_mut();
    };
    place.copy_from_slice(name);
    symbol(&buffer)
}

/// A function or variable of the MPI library.
fn symbol(name: &[u8]) -> *mut c_void {
    let provider = provider();
    if provider.is_null() {
        return null_mut();
    }
    // SAFETY: the name ends with NUL in all callers; the handle is one of dlopen or RTLD_NEXT.
    unsafe { sys::dlsym(provider, name.as_ptr().cast()) }
}

/// A variable that the program may hold a copy of (copy relocation): the program's comes first.
fn variable(name: &CStr) -> usize {
    // SAFETY: the name ends with NUL.
    let address = unsafe { sys::dlsym(sys::RTLD_DEFAULT, name.as_ptr()) };
    if address.is_null() { symbol(name.to_bytes_with_nul()) as usize } else { address as usize }
}

/// For the worker: uses this handle of dlopen instead of looking for the library of the process.
#[allow(dead_code)]
pub fn provide(handle: *mut c_void) {
    PROVIDER.store(handle, Ordering::Release);
}

fn provider() -> *mut c_void {
    let known = PROVIDER.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    let found = find_provider();
    PROVIDER.store(found, Ordering::Release);
    found
}

fn find_provider() -> *mut c_void {
    // SAFETY: the name ends with NUL.
    let send = unsafe { sys::dlsym(sys::RTLD_NEXT, c"PMPI_Send".as_ptr()) };
    if send.is_null() {
        return find_in_maps();
    }
    let file = file_of(send);
    if file.is_null() {
        return sys::RTLD_NEXT;
    }
    // SAFETY: the linker's own name of a loaded file.
    let handle = unsafe { sys::dlopen(file, sys::RTLD_NOW_NOLOAD) };
    if handle.is_null() { sys::RTLD_NEXT } else { handle }
}

/// File that an address was loaded from; null if unknown.
fn file_of(address: *mut c_void) -> *const c_char {
    // SAFETY: zeros are a valid value, and dladdr fills it in.
    unsafe {
        let mut info: sys::DlInfo = core::mem::zeroed();
        if sys::dladdr(address, &mut info) == 0 { core::ptr::null() } else { info.file }
    }
}

/// Programs that open MPI privately (mpi4py, Julia) hide it from RTLD_NEXT. A library of the standard ABI may
/// have loaded another one that it translates to, so it comes first.
fn find_in_maps() -> *mut c_void {
    const SIZE: usize = 4 << 20;
    let memory = sys::map_memory(SIZE);
    if memory.is_null() {
        return null_mut();
    }
    // SAFETY: the mapping has SIZE bytes, is ours alone and is given back below.
    let text = unsafe { core::slice::from_raw_parts_mut(memory, SIZE) };
    let length = sys::read_file(c"/proc/self/maps", text.get_mut(..SIZE - 1).unwrap_or(&mut []));
    let mut found = null_mut();
    let mut start = 0;
    while let Some(rest) = text.get_mut(start..length).filter(|rest| !rest.is_empty()) {
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        start += end + 1;
        let Some(path) = rest.iter().position(|byte| *byte == b'/').filter(|path| *path < end)
        else {
            continue;
        };
        if let Some(newline) = rest.get_mut(end) {
            *newline = 0;
        }
        let Some(path) = rest.get(path..=end) else { continue };
        let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(&[]);
        if !file.starts_with(b"libmpi") {
            continue;
        }
        // SAFETY: the path ends with NUL, written above.
        let handle = unsafe { sys::dlopen(path.as_ptr().cast(), sys::RTLD_NOW_NOLOAD) };
        // SAFETY: a handle of dlopen and a name that ends with NUL.
        if !handle.is_null() && unsafe { !sys::dlsym(handle, c"PMPI_Send".as_ptr()).is_null() } {
            if file.starts_with(STANDARD) {
                found = handle;
                break;
            }
            if found.is_null() {
                found = handle;
            }
        }
    }
    // SAFETY: no reference into the mapping is used any more.
    unsafe { sys::unmap(memory, SIZE) };
    found
}

macro_rules! functions {
    ($($name:ident($($argument:ident),*);)*) => {
        /// Functions that the collector and the worker call themselves. The arguments are words.
        #[allow(non_snake_case)]
        #[derive(Clone, Copy)]
        struct Functions { $($name: usize,)* }

        impl Functions {
            fn find() -> Functions {
                Functions {
                    $($name: lookup(concat!("MPI_", stringify!($name)).as_bytes()) as usize,)*
                }
            }
        }

        #[allow(non_snake_case)]
        impl Library {
            $(
                /// The MPI function of this name; 1 if the library does not have it.
                ///
                /// # Safety
                /// The arguments are what MPI asks for.
                // As many as the C function has; the collector and the worker each use a part.
                #[allow(clippy::too_many_arguments, dead_code)]
                pub unsafe fn $name(&self, $($argument: usize),*) -> i32 {
                    if self.functions.$name == 0 {
                        return 1;
                    }
                    // SAFETY: the address is that of the C function; its arguments are integers and
                    // pointers, which take a word each.
                    unsafe {
                        let function: unsafe extern "C" fn($(functions!(@word $argument)),*) -> i32 =
                            core::mem::transmute::<usize, _>(self.functions.$name);
                        function($($argument),*)
                    }
                }
            )*
        }
    };
    (@word $argument:ident) => { usize };
}

functions! {
    Comm_rank(comm, rank);
    Comm_size(comm, size);
    Comm_test_inter(comm, flag);
    Comm_group(comm, group);
    Comm_remote_group(comm, group);
    Comm_dup(comm, new);
    Comm_split(comm, color, key, new);
    Comm_free(comm);
    Group_size(group, size);
    Group_translate_ranks(group, count, ranks, other, others);
    Group_free(group);
    Group_incl(group, count, ranks, new);
    Comm_create(comm, group, new);
    Topo_test(comm, status);
    Cartdim_get(comm, dims);
    Cart_get(comm, dims, extents, periods, coordinates);
    Cart_shift(comm, direction, displacement, source, destination);
    Graph_neighbors_count(comm, rank, count);
    Graph_neighbors(comm, rank, count, neighbors);
    Dist_graph_neighbors_count(comm, sources, destinations, weighted);
    Dist_graph_neighbors(comm, count, sources, weights, counts, destinations, other_weights);
    Type_size(handle, size);
    Type_size_x(handle, size);
    Bcast(buffer, count, datatype, root, comm);
    Send(buffer, count, datatype, to, label, comm);
    Recv(buffer, count, datatype, from, label, comm, status);
    Query_thread(level);
    Get_library_version(text, length);
    Get_count_c(status, datatype, count);
    Test_cancelled(status, flag);
    Error_class(code, class);
    Init(count, words);
    Finalize();
    Barrier(comm);
    Iprobe(from, label, comm, flag, status);
    Sendrecv(out, outs, out_type, to, out_label, buffer, count, datatype, from, label, comm, status);
}

/// Constants, layouts and functions of the process's MPI.
pub struct Library {
    pub abi: Abi,
    functions: Functions,
    /// Handles are `int`; else pointers.
    pub short_handles: bool,
    pub comm_world: usize,
    pub comm_self: usize,
    pub comm_null: usize,
    pub request_null: usize,
    /// Request that is shared by all operations that are complete from the start; 0 if unknown.
    pub request_shared: usize,
    pub byte: usize,
    pub status_size: usize,
    pub status_ignore: usize,
    pub in_place: usize,
    pub any_source: i32,
    pub any_tag: i32,
    proc_null: i32,
    root: i32,
    ops: [usize; Op::ALL.len()],
}

/// What a call that failed did with its messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// A message was received and did not fit into the buffer.
    Truncated,
    /// Of each request, its status says it.
    InStatus,
    /// Not known, or nothing.
    Other,
}

/// Largest status of all ABIs, in words.
pub const STATUS_WORDS: usize = 4;

/// `MPI_UNDEFINED`, the same in all ABIs.
pub const UNDEFINED: i32 = -32766;

impl Library {
    /// Finds out which library this is. Called once MPI is initialised.
    pub fn find() -> Option<Library> {
        let send = lookup(b"MPI_Send");
        if send.is_null() {
            return None;
        }
        let file = file_of(send);
        let file = if file.is_null() {
            c""
        } else {
            // SAFETY: the linker's own string.
            unsafe { CStr::from_ptr(file) }
        };
        let file = file.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or(&[]);
        let functions = Functions::find();
        Some(if file.starts_with(STANDARD) {
            Library::standard(functions)
        } else if !symbol(c"ompi_mpi_comm_world".to_bytes_with_nul()).is_null() {
            Library::open_mpi(functions)
        } else {
            Library::mpich(functions)
        })
    }

    fn mpich(functions: Functions) -> Library {
        let mut ops = [0; Op::ALL.len()];
        for (number, op) in ops.iter_mut().enumerate().skip(1) {
            *op = 0x5800_0000 + number;
        }
        Library {
            abi: Abi::Mpich,
            functions,
            short_handles: true,
            comm_world: 0x4400_0000,
            comm_self: 0x4400_0001,
            comm_null: 0x0400_0000,
            request_null: 0x2c00_0000,
            request_shared: 0,
            byte: 0x4c00_010d,
            status_size: 20,
            status_ignore: 1,
            in_place: usize::MAX,
            any_source: -2,
            any_tag: -1,
            proc_null: -1,
            root: -3,
            ops,
        }
    }

    fn open_mpi(functions: Functions) -> Library {
        let names = [
            c"ompi_mpi_op_max",
            c"ompi_mpi_op_min",
            c"ompi_mpi_op_sum",
            c"ompi_mpi_op_prod",
            c"ompi_mpi_op_land",
            c"ompi_mpi_op_band",
            c"ompi_mpi_op_lor",
            c"ompi_mpi_op_bor",
            c"ompi_mpi_op_lxor",
            c"ompi_mpi_op_bxor",
            c"ompi_mpi_op_minloc",
            c"ompi_mpi_op_maxloc",
            c"ompi_mpi_op_replace",
            c"ompi_mpi_op_no_op",
        ];
        let mut ops = [0; Op::ALL.len()];
        for (op, name) in ops.iter_mut().skip(1).zip(names) {
            *op = variable(name);
        }
        Library {
            abi: Abi::OpenMpi,
            functions,
            short_handles: false,
            comm_world: variable(c"ompi_mpi_comm_world"),
            comm_self: variable(c"ompi_mpi_comm_self"),
            comm_null: variable(c"ompi_mpi_comm_null"),
            request_null: variable(c"ompi_request_null"),
            request_shared: variable(c"ompi_request_empty"),
            byte: variable(c"ompi_mpi_byte"),
            status_size: 24,
            status_ignore: 0,
            in_place: 1,
            any_source: -1,
            any_tag: -1,
            proc_null: -2,
            root: -4,
            ops,
        }
    }

    fn standard(functions: Functions) -> Library {
        Library {
            abi: Abi::Standard,
            functions,
            short_handles: false,
            comm_world: 0x101,
            comm_self: 0x102,
            comm_null: 0x100,
            request_null: 0x180,
            request_shared: 0,
            byte: 0x247,
            status_size: 32,
            status_ignore: 0,
            in_place: 1,
            any_source: -1,
            any_tag: -2,
            proc_null: -3,
            root: -4,
            ops: [
                0, 0x23, 0x22, 0x21, 0x24, 0x30, 0x28, 0x31, 0x29, 0x32, 0x2a, 0x38, 0x39, 0x3c,
                0x3d,
            ],
        }
    }

    /// What a return value other than `MPI_SUCCESS` says about the messages of the call.
    #[cold]
    pub fn failure(&self, error: i32) -> Failure {
        let mut class = 0i32;
        // SAFETY: a return value of the library, and a place for the result.
        if unsafe { self.Error_class(error as usize, &raw mut class as usize) } != 0 {
            class = 0;
        }
        let (truncate, in_status) = match self.abi {
            Abi::Mpich => (14, 17),
            Abi::OpenMpi | Abi::Standard => (15, 18),
        };
        match class {
            class if class == truncate => Failure::Truncated,
            class if class == in_status => Failure::InStatus,
            _ => Failure::Other,
        }
    }

    /// The error in a status that a call with several requests has filled in; only valid if it has returned
    /// `MPI_ERR_IN_STATUS`.
    ///
    /// # Safety
    /// The address is that of a status.
    pub unsafe fn status_error(&self, address: usize) -> i32 {
        let offset = if matches!(self.abi, Abi::Mpich) { 16 } else { 8 };
        // SAFETY: by contract.
        unsafe { with_exposed_provenance_mut::<i32>(address + offset).read_unaligned() }
    }

    /// Whether that error says that the request has not completed (`MPI_ERR_PENDING`).
    pub fn is_pending(&self, error: i32) -> bool {
        let mut class = 0i32;
        // SAFETY: as in `failure`.
        unsafe { self.Error_class(error as usize, &raw mut class as usize) };
        class == if matches!(self.abi, Abi::Mpich) { 18 } else { 19 }
    }

    /// A handle that arrived as an argument.
    #[inline(always)]
    pub fn handle(&self, word: usize) -> usize {
        if self.short_handles { word as u32 as usize } else { word }
    }

    /// Bytes from one handle to the next in an array.
    #[inline(always)]
    pub fn handle_size(&self) -> usize {
        if self.short_handles { 4 } else { 8 }
    }

    /// The handle stored at an address.
    ///
    /// # Safety
    /// The address holds a handle.
    #[inline(always)]
    pub unsafe fn handle_at(&self, address: usize) -> usize {
        // SAFETY: by contract; alignment is that of the type, but not relied upon.
        unsafe {
            if self.short_handles {
                with_exposed_provenance_mut::<u32>(address).read_unaligned() as usize
            } else {
                with_exposed_provenance_mut::<usize>(address).read_unaligned()
            }
        }
    }

    /// A rank with the special values of the file.
    #[inline(always)]
    pub fn rank(&self, value: i32) -> i32 {
        if value >= 0 {
            value
        } else if value == self.any_source {
            rank::ANY
        } else if value == self.proc_null {
            rank::PROC_NULL
        } else if value == self.root {
            rank::ROOT
        } else {
            value
        }
    }

    /// A tag with the special value of the file.
    #[inline(always)]
    pub fn tag(&self, value: i32) -> i32 {
        if value == self.any_tag { tag::ANY } else { value }
    }

    /// Number of a reduction operation.
    #[inline]
    pub fn op(&self, word: usize) -> u8 {
        let handle = self.handle(word);
        self.ops.iter().skip(1).position(|op| *op == handle).map_or(0, |at| at as u8 + 1)
    }

    /// `MPI_BOR`, the reduction that takes bytes in all ABIs.
    #[allow(dead_code)]
    pub fn bit_or(&self) -> usize {
        self.ops.get(Op::Bor as usize).copied().unwrap_or(0)
    }

    /// Source, tag and bytes in a status.
    ///
    /// # Safety
    /// The address is that of a status that a completed receive or probe has filled in.
    #[inline]
    pub unsafe fn status(&self, address: usize) -> (i32, i32, u64) {
        let word = |offset: usize| {
            // SAFETY: within the status of this ABI.
            unsafe { with_exposed_provenance_mut::<i32>(address + offset).read_unaligned() }
        };
        let (source, tag, bytes) = match self.abi {
            Abi::Mpich => {
                let bytes = u64::from(word(0) as u32) | u64::from(word(4) as u32 >> 1) << 32;
                (word(8), word(12), bytes)
            }
            Abi::OpenMpi => {
                let bytes = u64::from(word(16) as u32) | u64::from(word(20) as u32) << 32;
                (word(0), word(4), bytes)
            }
            Abi::Standard => {
                let mut count = 0i64;
                // SAFETY: a filled-in status, the handle of MPI_BYTE and a place for the result.
                unsafe { self.Get_count_c(address, self.byte, &raw mut count as usize) };
                (word(0), word(4), count.max(0) as u64)
            }
        };
        (self.rank(source), self.tag(tag), bytes)
    }

    /// Size of a datatype in bytes.
    #[inline(never)]
    pub fn type_size(&self, datatype: usize) -> u64 {
        let mut long = -1i64;
        // SAFETY: a datatype that the program uses in a call, and a place for the result.
        if unsafe { self.Type_size_x(datatype, &raw mut long as usize) } == 0 {
            return long.max(0) as u64;
        }
        let mut short = -1i32;
        // SAFETY: as above.
        unsafe { self.Type_size(datatype, &raw mut short as usize) };
        short.max(0) as u64
    }

    /// Thread level 0 to 3.
    pub fn thread_level(&self) -> u8 {
        let mut level = 0i32;
        // SAFETY: a place for the result.
        unsafe { self.Query_thread(&raw mut level as usize) };
        match self.abi {
            Abi::Standard => match level {
                4096 => 3,
                2048 => 2,
                1024 => 1,
                _ => 0,
            },
            _ => level.clamp(0, 3) as u8,
        }
    }
}
