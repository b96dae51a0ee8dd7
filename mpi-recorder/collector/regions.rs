//! Regions of the program: `MPI_Pcontrol` in the convention of IPM, and two functions of our own.

use crate::lock::Locked;
use crate::table::Table;
use crate::thread::{self, ON, Thread};
use crate::{output, start, sys, wrap};
use core::ffi::{CStr, c_char};
use core::sync::atomic::Ordering;
use mpi_abi::{Call, Entry, at, chunk_flag};

/// Longest name.
const LONGEST: usize = 63;
/// Different names in a process.
const NAMES: u32 = 4096;

struct Names {
    /// From two hashes of a name to its number.
    known: Table<(u64, u32)>,
    next: u32,
}

static REGIONS: Locked<Names> = Locked::always(Names { known: Table::new(), next: 1 });

fn hash(name: &[u8], seed: u64) -> u64 {
    name.iter().fold(seed, |hash, byte| {
        let mixed = (hash ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    })
}

/// Number of a name, which is written when it is first seen; `None` if there are too many.
fn number(thread: &mut Thread, name: &[u8]) -> Option<u32> {
    let (key, check) = (hash(name, 1) as usize, hash(name, 2));
    let (number, new) = REGIONS.with(|names| match names.known.get(key) {
        Some((known, number)) if *known == check => (Some(*number), false),
        _ if names.next > NAMES => (None, false),
        _ => {
            let number = names.next;
            names.next += 1;
            names.known.set(key, (check, number));
            (Some(number), true)
        }
    });
    let Some(number) = number else {
        output::count(at::LOST_TABLE, 1);
        return None;
    };
    if new {
        thread.record(chunk_flag::DEFINITIONS, |encoder, payload| {
            encoder.region_name(payload, number, name)
        });
    }
    Some(number)
}

fn mark(thread: &mut Thread, name: Option<&[u8]>, begins: bool) {
    let at = start::ticks();
    let region = match name {
        Some(name) => match number(thread, name) {
            Some(region) => region,
            None => return,
        },
        None => 0,
    };
    thread.record(0, |encoder, payload| encoder.region(payload, region, begins, at));
}

/// The part of a name that is kept. Beginning and end of a region are cut in the same way.
fn shortened(name: &[u8]) -> &[u8] {
    let mut length = name.len().min(LONGEST);
    // Not within a character of UTF-8.
    while length > LONGEST - 4 && name.get(length).is_some_and(|byte| byte & 0xc0 == 0x80) {
        length -= 1;
    }
    name.get(..length).unwrap_or(name)
}

/// Reads a name that may be garbage: printable and readable, or not a name. Longer ones are cut.
fn believable(address: usize, buffer: &mut [u8; LONGEST + 1]) -> Option<&[u8]> {
    let mut filled = 0;
    while filled < buffer.len() {
        // Up to the end of a page, since the next one may not be there.
        let from = address.checked_add(filled)?;
        let step = (4096 - from % 4096).min(buffer.len() - filled);
        let part = buffer.get_mut(filled..filled + step)?;
        sys::read_memory(from, part)?;
        let ended = part.contains(&0);
        filled += step;
        if ended {
            break;
        }
    }
    let read = buffer.get(..filled)?;
    let name = match CStr::from_bytes_until_nul(read) {
        Ok(name) => name.to_bytes(),
        Err(_) => shortened(read),
    };
    let printable = name.iter().all(|byte| *byte >= b' ' && *byte != 127);
    (!name.is_empty() && printable).then_some(name)
}

fn switch_on(thread: &mut Thread) {
    if !ON.swap(true, Ordering::Relaxed) {
        let at = start::ticks();
        thread.record(0, |encoder, payload| encoder.switch(payload, true, at));
    }
}

/// `MPI_Pcontrol`: 1 and a name begins a region, -1 and the name ends it; 0 switches recording off, and 2, or 1
/// without a name, switches it on. -1 with a null pointer ends the innermost region; with something that is
/// not a name it ends none, since the region that is meant is not known.
///
/// # Safety
/// As the real function.
pub unsafe fn pcontrol<const N: usize>(function: usize, args: [usize; N]) -> usize
where
    [usize; N]: wrap::Invoke,
{
    let real = wrap::real(function);
    let frame = 0u8;
    let thread = thread::enter(&raw const frame as usize);
    let Some(thread) = thread else {
        // SAFETY: the caller's arguments.
        return unsafe { wrap::Invoke::invoke(args, real) };
    };
    let level = args.first().map_or(0, |level| *level as i32);
    let name = args.get(1).copied().unwrap_or(0);
    let mut buffer = [0; LONGEST + 1];
    match level {
        1 => match believable(name, &mut buffer) {
            Some(name) => mark(thread, Some(name), true),
            // As the standard has it: the second argument may be anything.
            None => switch_on(thread),
        },
        2 => switch_on(thread),
        _ => {}
    }
    let begin = start::ticks();
    // SAFETY: the caller's arguments.
    let result = unsafe { wrap::Invoke::invoke(args, real) };
    let entry =
        Entry { error: result as i32, ..start::plain(Call::Pcontrol, begin, start::ticks()) };
    thread.event(&entry);
    match level {
        -1 => match believable(name, &mut buffer) {
            None if name != 0 => output::count(at::LOST_UNREADABLE, 1),
            name => mark(thread, name, false),
        },
        0 if ON.swap(false, Ordering::Relaxed) => {
            let at = start::ticks();
            thread.record(0, |encoder, payload| encoder.switch(payload, false, at));
        }
        _ => {}
    }
    thread.leave();
    result
}

/// Begins a region (see `detour.h`).
///
/// # Safety
/// `name` is a C string or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn detour_region_begin(name: *const c_char) {
    let Some(thread) = thread::current() else { return };
    if name.is_null() {
        return;
    }
    // SAFETY: by contract.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    mark(thread, Some(shortened(name)), true);
}

/// Ends the innermost region (see `detour.h`).
#[unsafe(no_mangle)]
pub extern "C" fn detour_region_end() {
    if let Some(thread) = thread::current() {
        mark(thread, None, false);
    }
}
