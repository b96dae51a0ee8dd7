//! The library that is preloaded into an MPI program: wrappers around the functions of MPI that write every
//! call into the rank's file.
//!
//! In: the calls of the program, under their names `MPI_...` and `PMPI_...`; out: `rank-N.mpi` in the directory
//! of the environment variable `DETOUR_MPI_DIR`, in the format of `mpi-abi`. Without the variable every call
//! is passed on. `DETOUR_MPI_ONLY=mpi` records calls by the names `MPI_...` alone.
//!
//! There is one library for every MPI: it is compiled without `mpi.h`, passes arguments as words, and finds
//! out at run time which MPI is there. It needs no other library, does not allocate except in pages of its
//! own, and does not panic: what can fail is counted in the file's header.

#![no_std]

mod clock;
mod comms;
mod layout;
mod lock;
mod mpi;
mod output;
mod polling;
mod regions;
mod requests;
mod start;
mod sys;
mod table;
mod thread;
mod wrap;

use mpi_abi::Call;

/// Exports the functions of the table under both names.
macro_rules! wrappers {
    ($($class:ident { $($name:ident $($large:ident)? [ $($role:ident)* ];)* })*) => {
        $($(
            wrappers!(@function $class $name 0 "" [$($role)*]);
            wrappers!(@large $class $name [$($role)*] $($large)?);
        )*)*
    };
    (@large $class:ident $name:ident [$($role:ident)*]) => {};
    (@large $class:ident $name:ident [$($role:ident)*] c) => {
        wrappers!(@function $class $name 1 "_c" [$($role)*]);
    };
    (@function $class:ident $name:ident $large:literal $suffix:literal [$($role:ident)*]) => {
        wrappers!(@export $class $name $large,
            concat!("MPI_", stringify!($name), $suffix), [$($role)*] []);
        wrappers!(@export $class $name $large + wrap::PROFILING_NAME,
            concat!("PMPI_", stringify!($name), $suffix), [$($role)*] []);
    };
    // One parameter for every role: each step's `word` is a different name.
    (@export $class:ident $name:ident $number:expr, $symbol:expr,
        [$role:ident $($rest:ident)*] [$($word:ident)*]) => {
        wrappers!(@export $class $name $number, $symbol, [$($rest)*] [$($word)* word]);
    };
    (@export $class:ident $name:ident $number:expr, $symbol:expr, [] [$($word:ident)*]) => {
        const _: () = {
            #[unsafe(export_name = $symbol)]
            unsafe extern "C" fn wrapper($($word: usize),*) -> usize {
                const FUNCTION: usize = Call::$name as usize * 2 + $number;
                // SAFETY: the program calls the MPI function of this name with its arguments, and the
                // table has as many as the C binding.
                unsafe { wrappers!(@call $class $name FUNCTION, [$($word),*]) }
            }
        };
    };
    (@call Environment Init $function:expr, $words:expr) => { start::init($function, $words) };
    (@call Environment Init_thread $function:expr, $words:expr) => { start::init($function, $words) };
    (@call Environment Finalize $function:expr, $words:expr) => { start::finalize($function, $words) };
    (@call Environment Abort $function:expr, $words:expr) => { start::abort($function, $words) };
    (@call Environment Pcontrol $function:expr, $words:expr) => { regions::pcontrol($function, $words) };
    (@call Datatype Type_free $function:expr, $words:expr) => { wrap::type_free($function, $words) };
    (@call Request Test $function:expr, $words:expr) => { wrap::test($function, $words) };
    (@call Request Testall $function:expr, $words:expr) => { wrap::test($function, $words) };
    (@call Request Testany $function:expr, $words:expr) => { wrap::test($function, $words) };
    (@call Request Testsome $function:expr, $words:expr) => { wrap::test($function, $words) };
    (@call Request Request_get_status $function:expr, $words:expr) => { wrap::test($function, $words) };
    (@call PointToPoint Iprobe $function:expr, $words:expr) => { wrap::test($function, $words) };
    (@call PointToPoint Improbe $function:expr, $words:expr) => { wrap::test($function, $words) };
    (@call $class:ident $name:ident $function:expr, $words:expr) => { wrap::call($function, $words) };
}
mpi_abi::for_each_call!(wrappers);

// The precompiled core library names the function that unwinds Rust frames. Nothing unwinds here; the symbol is
// hidden, so that it cannot take the place of a program's own.
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
    sys::complain(b"detour: internal error in the MPI collector\n");
    // SAFETY: ends the process.
    unsafe { abort() }
}
