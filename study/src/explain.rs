//! Why it took as long as it did: critical paths, waits and their causes.

pub mod blame;
pub(crate) mod parted;
pub mod picture;
pub mod sensitivity;
pub mod states;
pub mod traced;
