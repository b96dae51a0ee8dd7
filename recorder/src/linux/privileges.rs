//! Gives up what a recording no longer needs. Programs are attached, files and counters open, memory
//! is mapped: from then on it only reads, merges and writes, and needs no capability for that.
//!
//! The kernel keeps capabilities per thread, so each of the recorder's threads gives up its own, once
//! it has what it needs.

use rustix::thread::{CapabilitySet, CapabilitySets};

/// Drops all capabilities of the calling thread, and the way back to them by executing a program.
/// What is refused stays as it is: a recording is not worse for being more powerful than it has to.
pub fn give_up() {
    // Executing a program as root would bring them back.
    let _ = rustix::thread::set_no_new_privs(true);
    let nothing = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    let _ = rustix::thread::set_capabilities(None, nothing);
}
