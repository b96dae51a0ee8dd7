//! Reads single frames from a file: reads, checks, decompresses.

use std::io::{self, BufReader, Read, Seek, SeekFrom};

use crate::format::v1::{self, FRAME_HEADER_LEN, FrameHeader, IndexEntry};
use crate::format::waits;
use crate::model::Detour;

/// A file with a remembered position, so that sequential reads do not discard the buffer.
pub(super) struct Input<R> {
    inner: BufReader<R>,
    at: u64,
    len: u64,
}

/// Why a frame could not be read.
pub(super) enum Fault {
    /// The file itself cannot be read.
    Io(io::Error),
    /// It can, but there is no valid frame.
    Damaged(String),
}

impl Fault {
    fn damaged(why: &str) -> Fault {
        Fault::Damaged(why.to_owned())
    }
}

/// Buffers and tables that are reused from frame to frame.
pub(super) struct Scratch {
    stored: Vec<u8>,
    raw: Vec<u8>,
    unpacker: zstd::bulk::Decompressor<'static>,
}

impl Scratch {
    pub(super) fn new() -> io::Result<Self> {
        let unpacker = zstd::bulk::Decompressor::new()?;
        Ok(Scratch { stored: Vec::new(), raw: Vec::new(), unpacker })
    }
}

impl<R: Read + Seek> Input<R> {
    pub(super) fn new(mut input: R) -> io::Result<Self> {
        let len = input.seek(SeekFrom::End(0))?;
        input.seek(SeekFrom::Start(0))?;
        Ok(Input { inner: BufReader::with_capacity(1 << 15, input), at: 0, len })
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `buf` from `offset`; false if the file is too short.
    pub(super) fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.len) {
            return Ok(false);
        }
        match i64::try_from(i128::from(offset) - i128::from(self.at)) {
            Ok(step) => self.inner.seek_relative(step)?,
            Err(_) => drop(self.inner.seek(SeekFrom::Start(offset))?),
        }
        self.at = offset;
        match self.inner.read_exact(buf) {
            Ok(()) => {
                self.at += buf.len() as u64;
                Ok(true)
            }
            // The position is unknown now: seek again before the next read.
            Err(error) => {
                self.at = self.inner.seek(SeekFrom::Start(0))?;
                if error.kind() == io::ErrorKind::UnexpectedEof { Ok(false) } else { Err(error) }
            }
        }
    }

    /// The frame header at `offset`, if it is valid and its payload is within the file.
    pub(super) fn frame_header(&mut self, offset: u64) -> Result<FrameHeader, Fault> {
        let mut bytes = [0; FRAME_HEADER_LEN];
        if !self.read_at(offset, &mut bytes).map_err(Fault::Io)? {
            return Err(Fault::damaged("the file ends inside a frame header"));
        }
        let header =
            FrameHeader::parse(&bytes).ok_or_else(|| Fault::damaged("no valid frame header"))?;
        if header.entry_at(offset).end() > self.len {
            return Err(Fault::damaged("the file ends inside a block"));
        }
        Ok(header)
    }

    /// Reads a frame's stored bytes into `scratch`. Its size was checked when the entry was made.
    pub(super) fn fetch(&mut self, entry: &IndexEntry, scratch: &mut Scratch) -> Result<(), Fault> {
        let len = FRAME_HEADER_LEN + (entry.stored_len as usize).min(v1::MAX_STORED);
        scratch.stored.resize(len, 0);
        match self.read_at(entry.offset, &mut scratch.stored) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Fault::damaged("the file ends inside the block")),
            Err(error) => Err(Fault::Io(error)),
        }
    }

    /// Reads and decompresses a whole frame.
    pub(super) fn load<'s>(
        &mut self,
        entry: &IndexEntry,
        scratch: &'s mut Scratch,
    ) -> Result<(FrameHeader, &'s [u8]), Fault> {
        self.fetch(entry, scratch)?;
        unpack(entry, scratch)
    }
}

/// Checks and decompresses what [`Input::fetch`] read.
pub(super) fn unpack<'s>(
    entry: &IndexEntry,
    scratch: &'s mut Scratch,
) -> Result<(FrameHeader, &'s [u8]), Fault> {
    let Scratch { stored, raw, unpacker } = scratch;
    let (head, payload) = stored
        .split_first_chunk::<FRAME_HEADER_LEN>()
        .ok_or_else(|| Fault::damaged("too short"))?;
    let header = FrameHeader::parse(head).ok_or_else(|| Fault::damaged("invalid frame header"))?;
    if header.kind != entry.kind || header.stored_len as usize != payload.len() {
        return Err(Fault::damaged("the index describes another frame"));
    }
    if crc32fast::hash(payload) != header.payload_crc {
        return Err(Fault::damaged("checksum mismatch"));
    }
    v1::unpack(unpacker, payload, header.raw_len, raw)
        .map_err(|error| Fault::Damaged(format!("cannot decompress: {error}")))?;
    Ok((header, raw))
}

/// Adds the waits of the last decompressed block to its detours.
pub(super) fn add_waits(detours: &mut [Detour], scratch: &mut Scratch) -> Result<(), Fault> {
    let Scratch { stored, unpacker, .. } = scratch;
    let payload = stored.get(FRAME_HEADER_LEN..).unwrap_or_default();
    waits::decode(payload, detours, unpacker).map_err(Fault::damaged)
}
