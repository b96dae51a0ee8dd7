//! The trace file: its contents ([`model`], [`manifest`]), reading, writing and merging.

#![forbid(unsafe_code)]

pub mod cpulist;
mod create;
mod error;
mod format;
pub mod manifest;
mod merge;
mod merge_check;
pub mod model;
mod outside;
mod reader;
mod utc;
mod writer;
mod written;

pub use create::{
    NewFile, Overwrite, append, can_create, can_record, create, create_trace, discard, is_stdout,
    is_stream, is_trace, old_name, wait_for_reader,
};
pub use error::TraceError;
pub use manifest::*;
pub use merge::{Merge, MergeError};
pub use merge_check::NodesError;
pub use model::*;
pub use outside::{
    LONG_NAMES, LONG_NS, OutsideEvidence, is_long_outside, outside_kind, outside_names,
};
pub use reader::{BlockInfo, Blocks, Damage, Reader};
pub use utc::utc;
pub use writer::{BLOCK_EVENTS, Writer};
