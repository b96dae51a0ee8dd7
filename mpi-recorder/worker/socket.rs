//! The socket to the parent, which is standard input.

use crate::sys;
use core::ffi::{c_int, c_void};

unsafe extern "C" {
    fn read(file: c_int, buffer: *mut c_void, length: usize) -> isize;
    // Unlike `write`, it can do without SIGPIPE.
    fn send(socket: c_int, buffer: *const c_void, length: usize, flags: c_int) -> isize;
}

const PARENT: c_int = 0;
const MSG_NOSIGNAL: c_int = 0x4000;
const EINTR: c_int = 4;

/// First word of an answer.
const DONE: u64 = 0;
const REFUSED: u64 = 1;

/// Fills the buffer; None if the parent is gone.
pub fn fill(buffer: &mut [u8]) -> Option<()> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        // SAFETY: the slice is writable for its length.
        match unsafe { read(PARENT, rest.as_mut_ptr().cast(), rest.len()) } {
            count @ 1.. => filled += count as usize,
            -1 if sys::errno() == EINTR => {}
            _ => return None,
        }
    }
    Some(())
}

/// The words of a request; None if the parent is gone.
pub fn request() -> Option<[u64; 8]> {
    let mut bytes = [0u8; 64];
    fill(&mut bytes)?;
    let mut words = [0u64; 8];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(*bytes.first_chunk()?);
    }
    Some(words)
}

fn write_all(bytes: &[u8]) -> Option<()> {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        // SAFETY: the slice is readable for its length.
        match unsafe { send(PARENT, rest.as_ptr().cast(), rest.len(), MSG_NOSIGNAL) } {
            count @ 1.. => done += count as usize,
            -1 if sys::errno() == EINTR => {}
            _ => return None,
        }
    }
    Some(())
}

/// The bytes of words.
pub fn bytes(words: &[u64]) -> &[u8] {
    // SAFETY: words have no padding, and every byte is valid.
    unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

/// The bytes of words, to be filled in.
pub fn bytes_mut(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: as above, and every byte makes a valid word.
    unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
}

/// Sends an answer: its state, its length in bytes, and the parts one after another.
pub fn answer(parts: &[&[u8]]) -> Option<()> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    write_all(bytes(&[DONE, length as u64]))?;
    parts.iter().try_for_each(|part| write_all(part))
}

/// Says why there is no answer.
pub fn refuse(why: &[u8]) {
    let _ = write_all(bytes(&[REFUSED, why.len() as u64])).and_then(|()| write_all(why));
}
