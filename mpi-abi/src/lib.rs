//! The file `rank-N.mpi` of one MPI rank: what the preloaded collector writes and what readers decode.
//!
//! In: calls as the collector saw them ([`Entry`], through [`Encoder`]); out: bytes of a chunk's payload.
//! Back: the bytes of a file ([`chunks`], [`FileHeader`]) give [`Record`]s through [`Decoder`].
//! No allocation, no `unsafe`; whatever the bytes are, decoding ends and does not panic.
//!
//! # Layout
//! A page with the [`FileHeader`], then chunks of [`CHUNK`] bytes. A chunk is a [`ChunkHeader`] and a
//! payload; it belongs to one thread and decodes without the others, so chunks can be read in parallel.
//! The chunks of a thread are ordered by their sequence number; threads are merged by time. All numbers
//! are little-endian.
//!
//! # Time
//! Events hold ticks of the clock named in the file header. A pair of (ticks, ns on `CLOCK_MONOTONIC`)
//! is in the file header and twice in every chunk header, so ticks become nanoseconds by interpolation.
//!
//! # Records
//! A record begins with a varint. 0 ends the payload; below 16 it is one of the codes in [`code`]. From
//! 16 it is an event whose signature (call, communicator, peer, tag, ...) is in the chunk's dictionary:
//! `16 + 2 * entry + changed`, where `changed` says that the sizes differ from those of the last event
//! with this entry. [`code::NEW`] is followed by a signature, which becomes the next entry.
//! The parts that follow are fixed by the signature's [`shape`]:
//! gap since the end of the previous record, duration, request begun, outcome, requests, lists of sizes.
//!
//! Ranks, tags and constants are those of MPI with the special values of [`rank`] and [`tag`], the same
//! for every MPI library. Ranks are those of the call's communicator; [`Record::Communicator`] and
//! [`Record::List`] translate them to ranks in `MPI_COMM_WORLD`.

#![no_std]
#![forbid(unsafe_code)]

mod bytes;
mod calls;
mod crc;
mod decode;
mod encode;
mod event;
mod file;
pub mod script;

pub use calls::{Call, Class, Role};
pub use crc::crc32;
pub use decode::{DecodeError, Decoder, Records, Requests, Runs, Sizes};
pub use encode::{Encoder, Full, MAX_REQUESTS, MAX_TESTS, REPEAT};
pub use event::{
    Actual, CommunicatorDef, Entry, Event, ListKind, Op, Outcome, Record, RequestItem, RequestRun,
    Run, Signature, code, present, rank, shape, tag,
};
pub use file::{
    Abi, Anchor, CHUNK, CHUNK_HEADER, CHUNK_MAGIC, Chunk, ChunkHeader, Chunks, Clock, ClockOffset,
    FILE_MAGIC, FileError, FileHeader, HEADER, Lost, VERSION, at, chunk_at, chunk_flag, chunks,
    file_flag,
};

/// Entries of a chunk's dictionary of signatures.
pub const DICTIONARY: usize = 512;
