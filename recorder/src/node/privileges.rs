//! Drops privileges that a recording no longer needs. Once programs are attached, files and counters
//! open and memory mapped, it only reads, merges and writes, which needs no capability.
//!
//! The kernel keeps capabilities per thread, so each of the recorder's threads drops its own, once it
//! has what it needs.

use rustix::thread::{CapabilitySet, CapabilitySets};

/// Drops all capabilities of the calling thread, and prevents regaining them by exec. Failures are
/// ignored: extra privileges do not harm a recording.
pub fn give_up() {
    // exec as root would restore them.
    let _ = rustix::thread::set_no_new_privs(true);
    let nothing = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    let _ = rustix::thread::set_capabilities(None, nothing);
}
