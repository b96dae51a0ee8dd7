//! The file around the payloads: header page and chunk headers, with the offsets that the collector writes
//! to directly in mapped memory.

use crate::crc32;

/// First bytes of a file.
pub const FILE_MAGIC: [u8; 8] = *b"DETOURMP";
/// Version of the format. Files of version 1 have no [`Record::Repeat`](crate::Record::Repeat).
pub const VERSION: u32 = 2;
/// Bytes of the file header, a page.
pub const HEADER: usize = 4096;
/// Bytes of a chunk with its header.
pub const CHUNK: usize = 64 << 10;
/// Bytes of a chunk header.
pub const CHUNK_HEADER: usize = 64;
/// First bytes of a chunk, `DMCK`.
pub const CHUNK_MAGIC: u32 = u32::from_le_bytes(*b"DMCK");

/// Offsets in the file header. What is before [`at::CRC`] is written once; the rest changes during the run
/// and gets its checksum at `MPI_Finalize`.
#[allow(missing_docs)]
pub mod at {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 8;
    pub const HEADER_SIZE: usize = 12;
    pub const CHUNK_SIZE: usize = 16;
    pub const ABI: usize = 20;
    pub const CLOCK: usize = 21;
    pub const THREAD_LEVEL: usize = 22;
    pub const RUN: usize = 24;
    pub const WORLD_RANK: usize = 32;
    pub const WORLD_SIZE: usize = 36;
    pub const LOCAL_RANK: usize = 40;
    pub const LOCAL_SIZE: usize = 44;
    pub const PID: usize = 48;
    pub const REALTIME: usize = 56;
    pub const LOAD: usize = 64;
    pub const START: usize = 80;
    pub const OFFSET_START: usize = 96;
    pub const COST_RECORDED: usize = 120;
    pub const COST_PASSED: usize = 124;
    pub const HOST: usize = 128;
    pub const BOOT_ID: usize = 192;
    pub const LIBRARY: usize = 256;
    pub const COMMAND: usize = 512;
    pub const COMMAND_LENGTH: usize = 1536;
    pub const CRC: usize = 3068;

    pub const FLAGS: usize = 3072;
    pub const LOST_SPACE: usize = 3080;
    pub const LOST_TABLE: usize = 3088;
    pub const LOST_UNREADABLE: usize = 3096;
    pub const LISTS_OMITTED: usize = 3104;
    pub const EVENTS: usize = 3112;
    pub const CHUNKS: usize = 3120;
    pub const OFFSET_END: usize = 3128;
    pub const END: usize = 3152;
    pub const THREADS: usize = 3168;
    pub const LIVE_CRC: usize = 3172;
}

/// Bytes for the host's name.
const HOST: usize = 64;
/// Bytes for the version of the MPI library.
const LIBRARY: usize = 256;
/// Bytes for the command line.
const COMMAND: usize = 1024;

/// Bits of [`FileHeader::flags`].
pub mod file_flag {
    /// `MPI_Finalize` has returned.
    pub const FINALIZED: u32 = 1;
    /// `MPI_Abort` was called.
    pub const ABORTED: u32 = 2;
    /// Calls that other ranks meet are in the file even if they were made while recording was switched off,
    /// with [`shape::OFF`](crate::shape::OFF).
    pub const KEEPS_OFF: u32 = 4;
}

/// Offsets in a chunk header.
#[allow(missing_docs)]
pub mod chunk_at {
    pub const MAGIC: usize = 0;
    pub const FLAGS: usize = 4;
    pub const THREAD: usize = 6;
    pub const SEQUENCE: usize = 8;
    pub const USED: usize = 12;
    pub const EVENTS: usize = 16;
    pub const CRC: usize = 20;
    pub const BASE: usize = 24;
    pub const OPENED: usize = 32;
    pub const LATEST: usize = 48;
}

/// Bits of [`ChunkHeader::flags`].
pub mod chunk_flag {
    /// Complete, with a checksum.
    pub const CLOSED: u16 = 1;
    /// Holds definitions (communicators, windows, names of regions).
    pub const DEFINITIONS: u16 = 2;
}

/// The MPI library's binary interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Abi {
    /// MPICH and relatives (Intel MPI, Cray MPICH).
    Mpich = 1,
    /// Open MPI.
    OpenMpi = 2,
    /// The standard ABI of MPI 5.
    Standard = 3,
}

/// What the ticks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Clock {
    /// Nanoseconds on `CLOCK_MONOTONIC`.
    Monotonic = 1,
    /// Time stamp counter of x86-64.
    Tsc = 2,
    /// Virtual counter of arm64.
    Cntvct = 3,
}

/// The same moment in ticks and in nanoseconds on `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anchor {
    /// Ticks.
    pub ticks: u64,
    /// Nanoseconds on `CLOCK_MONOTONIC`.
    pub ns: u64,
}

/// A measurement of this host's clock against that of world rank 0's host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffset {
    /// When, on this host's `CLOCK_MONOTONIC`; 0 if not measured.
    pub here_ns: u64,
    /// This host's clock less that of rank 0's host.
    pub offset_ns: i64,
    /// Shortest round trip seen; the offset is uncertain by half of it at most.
    pub round_trip_ns: u64,
}

/// What could not be recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Events without room on the disk, or that could not be imported.
    pub no_space: u64,
    /// Requests, regions or other things for which a table had no room.
    pub table_full: u64,
    /// Arguments that could not be read.
    pub unreadable: u64,
    /// Lists of sizes too long for a chunk (the event has the total).
    pub lists: u64,
}

/// The first page of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader<'a> {
    /// The same in all ranks of a run.
    pub run: u64,
    /// Rank in `MPI_COMM_WORLD`.
    pub world_rank: u32,
    /// Size of `MPI_COMM_WORLD`.
    pub world_size: u32,
    /// Rank among the ranks of this host.
    pub local_rank: u32,
    /// Ranks on this host.
    pub local_size: u32,
    /// Interface of the library.
    pub abi: Abi,
    /// Clock of the events.
    pub clock: Clock,
    /// Thread level granted, 0 `SINGLE` to 3 `MULTIPLE`.
    pub thread_level: u8,
    /// Process id.
    pub pid: u32,
    /// Nanoseconds since 1970 at the moment of [`FileHeader::start`].
    pub realtime_ns: u64,
    /// When the call of `MPI_Init` began.
    pub load: Anchor,
    /// When recording began, after `MPI_Init`.
    pub start: Anchor,
    /// Clock of this host at the start.
    pub offset_start: ClockOffset,
    /// What recording a call costs, in thousandths of a nanosecond, as measured at the start.
    pub cost_recorded_ps: u32,
    /// What a call that is not recorded costs.
    pub cost_passed_ps: u32,
    /// Host name.
    pub host: &'a [u8],
    /// `/proc/sys/kernel/random/boot_id` as bytes: ranks with the same one share `CLOCK_MONOTONIC`.
    pub boot_id: [u8; 16],
    /// Version of the MPI library, its beginning.
    pub library: &'a [u8],
    /// Command line with NUL after each argument, its beginning.
    pub command: &'a [u8],
    /// Bits of [`file_flag`].
    pub flags: u32,
    /// What was lost.
    pub lost: Lost,
    /// Events, if the rank has finalized; else 0.
    pub events: u64,
    /// Chunks that were begun.
    pub chunks: u64,
    /// Threads that recorded, if the rank has finalized.
    pub threads: u32,
    /// Clock of this host at the end; zero if the rank has not finalized.
    pub offset_end: ClockOffset,
    /// When `MPI_Finalize` returned; zero if it did not.
    pub end: Anchor,
}

/// Why a file is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FileError {
    TooShort,
    NotARankFile,
    Version(u32),
    ChunkSize(u32),
    Checksum,
    BadField(&'static str),
}

impl core::fmt::Display for FileError {
    fn fmt(&self, f: &mut core::fmt::Formatter) -> core::fmt::Result {
        match self {
            FileError::TooShort => write!(f, "file is shorter than its header"),
            FileError::NotARankFile => write!(f, "not the trace of an MPI rank"),
            FileError::Version(version) => {
                write!(
                    f,
                    "version {version} of the format is not supported (expected 1 to {VERSION})"
                )
            }
            FileError::ChunkSize(size) => write!(f, "chunk size {size} is not supported"),
            FileError::Checksum => write!(f, "header does not match its checksum"),
            FileError::BadField(name) => write!(f, "header has an unknown {name}"),
        }
    }
}

impl core::error::Error for FileError {}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    let mut value = [0; 2];
    if let Some(found) = bytes.get(at..at + 2) {
        value.copy_from_slice(found);
    }
    u16::from_le_bytes(value)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut value = [0; 4];
    if let Some(found) = bytes.get(at..at + 4) {
        value.copy_from_slice(found);
    }
    u32::from_le_bytes(value)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

fn anchor_at(bytes: &[u8], at: usize) -> Anchor {
    Anchor { ticks: u64_at(bytes, at), ns: u64_at(bytes, at + 8) }
}

fn offset_at(bytes: &[u8], at: usize) -> ClockOffset {
    ClockOffset {
        here_ns: u64_at(bytes, at),
        offset_ns: u64_at(bytes, at + 8) as i64,
        round_trip_ns: u64_at(bytes, at + 16),
    }
}

/// Text up to the first NUL.
fn text(bytes: &[u8], at: usize, length: usize) -> &[u8] {
    let text = bytes.get(at..at + length).unwrap_or(&[]);
    text.split(|byte| *byte == 0).next().unwrap_or(&[])
}

fn put(page: &mut [u8; HEADER], at: usize, bytes: &[u8]) {
    if let Some(place) = page.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

fn put_anchor(page: &mut [u8; HEADER], at: usize, anchor: &Anchor) {
    put(page, at, &anchor.ticks.to_le_bytes());
    put(page, at + 8, &anchor.ns.to_le_bytes());
}

fn put_offset(page: &mut [u8; HEADER], at: usize, offset: &ClockOffset) {
    put(page, at, &offset.here_ns.to_le_bytes());
    put(page, at + 8, &offset.offset_ns.to_le_bytes());
    put(page, at + 16, &offset.round_trip_ns.to_le_bytes());
}

impl<'a> FileHeader<'a> {
    /// Reads the header of a file. A live part that does not match its checksum is an error only if the
    /// rank has finalized; before, it has none.
    pub fn parse(file: &'a [u8]) -> Result<FileHeader<'a>, FileError> {
        if file.get(..8).is_some_and(|magic| magic != FILE_MAGIC) {
            return Err(FileError::NotARankFile);
        }
        let page = file.get(..HEADER).ok_or(FileError::TooShort)?;
        match u32_at(page, at::VERSION) {
            1..=VERSION => {}
            version => return Err(FileError::Version(version)),
        }
        match u32_at(page, at::CHUNK_SIZE) as usize {
            CHUNK => {}
            size => return Err(FileError::ChunkSize(size as u32)),
        }
        if crc32(page.get(..at::CRC).unwrap_or(&[])) != u32_at(page, at::CRC) {
            return Err(FileError::Checksum);
        }
        let flags = u32_at(page, at::FLAGS);
        let live = page.get(at::FLAGS..at::LIVE_CRC).unwrap_or(&[]);
        if flags & file_flag::FINALIZED != 0 && crc32(live) != u32_at(page, at::LIVE_CRC) {
            return Err(FileError::Checksum);
        }
        let byte = |at: usize| page.get(at).copied().unwrap_or(0);
        let mut boot_id = [0; 16];
        boot_id.copy_from_slice(page.get(at::BOOT_ID..at::BOOT_ID + 16).unwrap_or(&[0; 16]));
        let command_length = (u32_at(page, at::COMMAND_LENGTH) as usize).min(COMMAND);
        Ok(FileHeader {
            run: u64_at(page, at::RUN),
            world_rank: u32_at(page, at::WORLD_RANK),
            world_size: u32_at(page, at::WORLD_SIZE),
            local_rank: u32_at(page, at::LOCAL_RANK),
            local_size: u32_at(page, at::LOCAL_SIZE),
            abi: match byte(at::ABI) {
                1 => Abi::Mpich,
                2 => Abi::OpenMpi,
                3 => Abi::Standard,
                _ => return Err(FileError::BadField("ABI")),
            },
            clock: match byte(at::CLOCK) {
                1 => Clock::Monotonic,
                2 => Clock::Tsc,
                3 => Clock::Cntvct,
                _ => return Err(FileError::BadField("clock")),
            },
            thread_level: byte(at::THREAD_LEVEL),
            pid: u32_at(page, at::PID),
            realtime_ns: u64_at(page, at::REALTIME),
            load: anchor_at(page, at::LOAD),
            start: anchor_at(page, at::START),
            offset_start: offset_at(page, at::OFFSET_START),
            cost_recorded_ps: u32_at(page, at::COST_RECORDED),
            cost_passed_ps: u32_at(page, at::COST_PASSED),
            host: text(page, at::HOST, HOST),
            boot_id,
            library: text(page, at::LIBRARY, LIBRARY),
            command: page.get(at::COMMAND..at::COMMAND + command_length).unwrap_or(&[]),
            flags,
            lost: Lost {
                no_space: u64_at(page, at::LOST_SPACE),
                table_full: u64_at(page, at::LOST_TABLE),
                unreadable: u64_at(page, at::LOST_UNREADABLE),
                lists: u64_at(page, at::LISTS_OMITTED),
            },
            events: u64_at(page, at::EVENTS),
            chunks: u64_at(page, at::CHUNKS),
            threads: u32_at(page, at::THREADS),
            offset_end: offset_at(page, at::OFFSET_END),
            end: anchor_at(page, at::END),
        })
    }

    /// Writes the whole page with its checksums. Text that is too long is cut off.
    pub fn write(&self, page: &mut [u8; HEADER]) {
        page.fill(0);
        put(page, at::MAGIC, &FILE_MAGIC);
        put(page, at::VERSION, &VERSION.to_le_bytes());
        put(page, at::HEADER_SIZE, &(HEADER as u32).to_le_bytes());
        put(page, at::CHUNK_SIZE, &(CHUNK as u32).to_le_bytes());
        put(page, at::ABI, &[self.abi as u8, self.clock as u8, self.thread_level]);
        put(page, at::RUN, &self.run.to_le_bytes());
        put(page, at::WORLD_RANK, &self.world_rank.to_le_bytes());
        put(page, at::WORLD_SIZE, &self.world_size.to_le_bytes());
        put(page, at::LOCAL_RANK, &self.local_rank.to_le_bytes());
        put(page, at::LOCAL_SIZE, &self.local_size.to_le_bytes());
        put(page, at::PID, &self.pid.to_le_bytes());
        put(page, at::REALTIME, &self.realtime_ns.to_le_bytes());
        put_anchor(page, at::LOAD, &self.load);
        put_anchor(page, at::START, &self.start);
        put_offset(page, at::OFFSET_START, &self.offset_start);
        put(page, at::COST_RECORDED, &self.cost_recorded_ps.to_le_bytes());
        put(page, at::COST_PASSED, &self.cost_passed_ps.to_le_bytes());
        put(page, at::HOST, self.host.get(..HOST).unwrap_or(self.host));
        put(page, at::BOOT_ID, &self.boot_id);
        put(page, at::LIBRARY, self.library.get(..LIBRARY).unwrap_or(self.library));
        let command = self.command.get(..COMMAND).unwrap_or(self.command);
        put(page, at::COMMAND, command);
        put(page, at::COMMAND_LENGTH, &(command.len() as u32).to_le_bytes());
        put(page, at::FLAGS, &self.flags.to_le_bytes());
        put(page, at::LOST_SPACE, &self.lost.no_space.to_le_bytes());
        put(page, at::LOST_TABLE, &self.lost.table_full.to_le_bytes());
        put(page, at::LOST_UNREADABLE, &self.lost.unreadable.to_le_bytes());
        put(page, at::LISTS_OMITTED, &self.lost.lists.to_le_bytes());
        put(page, at::EVENTS, &self.events.to_le_bytes());
        put(page, at::CHUNKS, &self.chunks.to_le_bytes());
        put_offset(page, at::OFFSET_END, &self.offset_end);
        put_anchor(page, at::END, &self.end);
        put(page, at::THREADS, &self.threads.to_le_bytes());
        let crc = crc32(page.get(..at::CRC).unwrap_or(&[]));
        put(page, at::CRC, &crc.to_le_bytes());
        let crc = crc32(page.get(at::FLAGS..at::LIVE_CRC).unwrap_or(&[]));
        put(page, at::LIVE_CRC, &crc.to_le_bytes());
    }

    /// Whether `MPI_Finalize` has returned.
    pub fn is_finalized(&self) -> bool {
        self.flags & file_flag::FINALIZED != 0
    }
}

/// The header of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Bits of [`chunk_flag`].
    pub flags: u16,
    /// Number of the thread in this rank, from 0 in the order of their first recorded calls. A thread
    /// that begins after another has ended can get its number: what matters is that the records of a
    /// number never overlap.
    pub thread: u16,
    /// Position among the chunks of the thread.
    pub sequence: u32,
    /// Bytes of the payload in use.
    pub used: u32,
    /// Events in the payload (other records are not counted).
    pub events: u32,
    /// Checksum of the used payload; valid if the chunk is closed.
    pub crc: u32,
    /// Ticks that the first record's time is relative to.
    pub base: u64,
    /// Clock pair when the chunk was opened.
    pub opened: Anchor,
    /// The latest clock pair: when it was closed, or of a moment since then if it is open.
    pub latest: Anchor,
}

impl ChunkHeader {
    /// Reads a chunk header; `None` if there is no chunk.
    pub fn parse(bytes: &[u8]) -> Option<ChunkHeader> {
        let bytes = bytes.get(..CHUNK_HEADER)?;
        (u32_at(bytes, chunk_at::MAGIC) == CHUNK_MAGIC).then(|| ChunkHeader {
            flags: u16_at(bytes, chunk_at::FLAGS),
            thread: u16_at(bytes, chunk_at::THREAD),
            sequence: u32_at(bytes, chunk_at::SEQUENCE),
            used: u32_at(bytes, chunk_at::USED),
            events: u32_at(bytes, chunk_at::EVENTS),
            crc: u32_at(bytes, chunk_at::CRC),
            base: u64_at(bytes, chunk_at::BASE),
            opened: anchor_at(bytes, chunk_at::OPENED),
            latest: anchor_at(bytes, chunk_at::LATEST),
        })
    }

    /// The bytes of the header.
    pub fn to_bytes(&self) -> [u8; CHUNK_HEADER] {
        let mut bytes = [0; CHUNK_HEADER];
        let words = [
            u64::from(CHUNK_MAGIC) | u64::from(self.flags) << 32 | u64::from(self.thread) << 48,
            u64::from(self.sequence) | u64::from(self.used) << 32,
            u64::from(self.events) | u64::from(self.crc) << 32,
            self.base,
            self.opened.ticks,
            self.opened.ns,
            self.latest.ticks,
            self.latest.ns,
        ];
        for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        bytes
    }

    /// Whether the chunk is complete.
    pub fn is_closed(&self) -> bool {
        self.flags & chunk_flag::CLOSED != 0
    }
}

/// A chunk in a file.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// Position in the file.
    pub index: u64,
    /// Its header.
    pub header: ChunkHeader,
    /// The used payload, as far as the file goes.
    pub payload: &'a [u8],
}

impl Chunk<'_> {
    /// Whether the payload is whole and, if the chunk is closed, matches its checksum.
    pub fn is_sound(&self) -> bool {
        self.payload.len() == self.header.used as usize
            && (!self.header.is_closed() || crc32(self.payload) == self.header.crc)
    }
}

/// The chunks of a file, in the order of the file. Places where no chunk was begun are skipped.
pub fn chunks(file: &[u8]) -> Chunks<'_> {
    Chunks { file, index: 0, damaged: 0 }
}

/// Iterator of [`chunks`].
#[derive(Clone, Copy, Debug)]
pub struct Chunks<'a> {
    file: &'a [u8],
    index: u64,
    damaged: u64,
}

impl Chunks<'_> {
    /// Places passed so far that hold neither a chunk nor zeros.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;

    fn next(&mut self) -> Option<Chunk<'a>> {
        loop {
            let index = self.index;
            let start = usize::try_from(index).ok()?.checked_mul(CHUNK)?.checked_add(HEADER)?;
            let rest = self.file.get(start..).filter(|rest| !rest.is_empty())?;
            self.index += 1;
            let bytes = rest.get(..CHUNK).unwrap_or(rest);
            let Some(header) = ChunkHeader::parse(bytes) else {
                self.damaged += u64::from(bytes.iter().take(CHUNK_HEADER).any(|byte| *byte != 0));
                continue;
            };
            let payload = bytes.get(CHUNK_HEADER..).unwrap_or(&[]);
            let payload = payload.get(..header.used as usize).unwrap_or(payload);
            return Some(Chunk { index, header, payload });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec;
    use std::vec::Vec;

    fn header() -> FileHeader<'static> {
        FileHeader {
            run: 0x1234_5678_9abc_def0,
            world_rank: 3,
            world_size: 4,
            local_rank: 1,
            local_size: 2,
            abi: Abi::OpenMpi,
            clock: Clock::Tsc,
            thread_level: 3,
            pid: 4711,
            realtime_ns: 1_700_000_000_000_000_000,
            load: Anchor { ticks: 1, ns: 2 },
            start: Anchor { ticks: 3, ns: 4 },
            offset_start: ClockOffset { here_ns: 5, offset_ns: -6, round_trip_ns: 7 },
            cost_recorded_ps: 80_000,
            cost_passed_ps: 9_000,
            host: b"node7",
            boot_id: [9; 16],
            library: b"Open MPI v4.1.4",
            command: b"./app\0-n\0",
            flags: file_flag::FINALIZED,
            lost: Lost { no_space: 1, table_full: 2, unreadable: 3, lists: 4 },
            events: 10,
            chunks: 11,
            threads: 12,
            offset_end: ClockOffset { here_ns: 13, offset_ns: -14, round_trip_ns: 15 },
            end: Anchor { ticks: 16, ns: 17 },
        }
    }

    #[test]
    fn a_file_header_comes_back_as_it_was() {
        let mut page = [0; HEADER];
        header().write(&mut page);
        assert_eq!(FileHeader::parse(&page), Ok(header()));
    }

    #[test]
    fn damage_in_the_header_is_seen() {
        let mut page = [0; HEADER];
        header().write(&mut page);
        for at in [9, 17, 100, 600, 3080, 3175] {
            let mut damaged = page;
            damaged[at] ^= 1;
            assert!(FileHeader::parse(&damaged).is_err(), "byte {at}");
        }
        assert_eq!(FileHeader::parse(&page[..4095]), Err(FileError::TooShort));
        assert_eq!(FileHeader::parse(b"something else"), Err(FileError::NotARankFile));
    }

    #[test]
    fn counters_of_a_running_rank_need_no_checksum() {
        let mut page = [0; HEADER];
        FileHeader { flags: 0, ..header() }.write(&mut page);
        page[at::LOST_SPACE] = 77;
        assert_eq!(FileHeader::parse(&page).unwrap().lost.no_space, 77);
    }

    #[test]
    fn a_chunk_header_comes_back_and_stands_at_its_offsets() {
        let header = ChunkHeader {
            flags: 3,
            thread: 4,
            sequence: 5,
            used: 6,
            events: 7,
            crc: 8,
            base: 9,
            opened: Anchor { ticks: 10, ns: 11 },
            latest: Anchor { ticks: 12, ns: 13 },
        };
        let bytes = header.to_bytes();
        assert_eq!(ChunkHeader::parse(&bytes), Some(header));
        assert_eq!(u32_at(&bytes, chunk_at::USED), 6);
        assert_eq!(u64_at(&bytes, chunk_at::LATEST + 8), 13);
        assert_eq!(ChunkHeader::parse(&bytes[..63]), None);
        assert_eq!(ChunkHeader::parse(&[0; 64]), None);
    }

    #[test]
    fn chunks_are_found_behind_gaps_and_in_cut_off_files() {
        let mut file = vec![0u8; HEADER + 3 * CHUNK];
        let one = ChunkHeader { used: 10, ..ChunkHeader::default() };
        for index in [0, 2] {
            let at = HEADER + index * CHUNK;
            file[at..at + CHUNK_HEADER].copy_from_slice(&one.to_bytes());
        }
        let found: Vec<u64> = chunks(&file).map(|chunk| chunk.index).collect();
        assert_eq!(found, [0, 2]);
        file.truncate(HEADER + 2 * CHUNK + CHUNK_HEADER + 4);
        let last = chunks(&file).last().unwrap();
        assert_eq!((last.payload.len(), last.is_sound()), (4, false));
        file.truncate(HEADER + 2 * CHUNK + 20);
        assert_eq!(chunks(&file).count(), 1);
    }
}
