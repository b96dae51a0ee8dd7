//! Log lines from inside the BPF programs, for debugging. Not in ordinary builds: a line costs more than
//! most of what is measured.

use std::borrow::Cow;

use aya::Ebpf;
use aya_log::EbpfLogger;

/// Prints to standard error.
pub struct Stderr;

impl log::Log for Stderr {
    fn enabled(&self, _metadata: &log::Metadata) -> bool {
        true
    }

    fn log(&self, record: &log::Record) {
        eprintln!("bpf {}: {}", record.level(), record.args());
    }

    fn flush(&self) {}
}

/// The object with logging compiled in, if one is given.
pub fn object(embedded: &'static [u8]) -> Cow<'static, [u8]> {
    let path = std::env::var_os("DETOUR_BPF_OBJECT");
    match path.map(std::fs::read) {
        Some(Ok(bytes)) => Cow::Owned(bytes),
        Some(Err(error)) => {
            eprintln!("DETOUR_BPF_OBJECT: {error}; using the embedded object");
            Cow::Borrowed(embedded)
        }
        None => Cow::Borrowed(embedded),
    }
}

/// None for an object without logging.
pub fn start(ebpf: &mut Ebpf) -> Option<EbpfLogger<Stderr>> {
    EbpfLogger::init_with_logger(ebpf, Stderr).ok()
}
