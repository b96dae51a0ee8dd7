//! The file layouts of traces, one module per version.
//!
//! Every version starts with the same 16 bytes ([`v1::header`]): magic, version, checksum.

pub(crate) mod columns;
pub(crate) mod sniff;
pub(crate) mod v1;
pub(crate) mod varint;
pub(crate) mod waits;
