#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_cases::import::run(data));
