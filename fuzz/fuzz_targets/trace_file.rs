//! A trace as bytes: whatever it is, it is read as far as it goes or refused, and what was read can be
//! summed up, drawn and exported. Checksums stop most of it early; `trace_frames` goes past them.

#![no_main]

mod whole;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| whole::use_everything(data));
