//! Version 1 of the trace file: the fixed-size parts.
//!
//! ```text
//! header   16 bytes: magic, version, checksum of both
//! frame    48-byte frame header, then the payload (zstd), repeated:
//!            manifest (JSON), then sources, lanes, events in any order, then trailer (JSON);
//!            lane totals that do not fit into the trailer come before it, and lanes and nodes
//!            that do not fit into the manifest come after it
//! index    one or more frames: where every frame is and what it holds
//! footer   24 bytes: where the index starts
//! ```
//!
//! The index of a long recording is split into parts, each after the frames it describes, so that the
//! recorder need not keep it. Every part refers to the previous one, and the footer to the last one. A
//! program that does not know parts finds another frame where the index should be, reports it, and
//! follows the frames.
//!
//! All numbers are little endian. A frame header carries two checksums, one of the payload and one of
//! itself (including the payload's checksum). So the chain of frames can be followed without reading the
//! payloads, and a damaged payload costs only that frame. Readers skip unknown kinds: new kinds do not
//! need a new version.

use std::io;

use crate::model::LaneId;

pub(crate) const MAGIC: [u8; 8] = *b"\x89DETOUR\n";
pub(crate) const VERSION: u32 = 1;
pub(crate) const HEADER_LEN: usize = 16;
pub(crate) const FRAME_HEADER_LEN: usize = 48;
pub(crate) const FOOTER_LEN: usize = 24;
pub(crate) const INDEX_ENTRY_LEN: usize = 44;
/// Index entries per part: the most of the index that the recorder keeps in memory, 1.5 MiB. A recording
/// with fewer has its whole index at the end.
pub(crate) const INDEX_ENTRIES_PER_PART: usize = 1 << 15;
/// Maximum size of a decompressed payload. Checked before anything is allocated.
pub(crate) const MAX_RAW: usize = 16 << 20;
/// zstd can make a payload slightly larger.
pub(crate) const MAX_STORED: usize = MAX_RAW + MAX_RAW / 64;
/// Maximum number of detours and records in a block; even at their longest encoding they stay below
/// [`MAX_RAW`].
pub(crate) const MAX_EVENTS: usize = 1 << 18;
// Four 64-bit columns, a 32-bit, a 16-bit and two 8-bit ones, and the column table.
const _: () = assert!(MAX_EVENTS * (4 * 10 + 5 + 3 + 2 + 2) + 1024 <= MAX_RAW);
const _: () = assert!(INDEX_ENTRIES_PER_PART * INDEX_ENTRY_LEN <= MAX_RAW);
/// Maximum number of rows in the source table and in the lane table.
pub(crate) const MAX_ROWS: u32 = 1 << 20;
/// Speed first: the recorder shares the node with the measured workload.
pub(crate) const ZSTD_LEVEL: i32 = 1;

const FRAME_MAGIC: [u8; 3] = *b"DTB";
const FOOTER_MAGIC: [u8; 8] = *b"DETOUR\x89\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Manifest,
    Sources,
    Lanes,
    Events,
    Trailer,
    Index,
    /// Rows of [`Trailer::lanes`](crate::Trailer) by index, when they do not fit into the trailer.
    Totals,
    /// Rows of [`Manifest::nodes`](crate::Manifest) by index, when they do not fit into the manifest.
    /// Its lanes are then in lane frames.
    Nodes,
    /// A part of the index among the frames it describes, see [`FrameHeader::part_before`].
    IndexPart,
    /// How far the recording has progressed, see [`Summary::settled`]. Not in the index: the trailer, if
    /// there is one, has the final value.
    Settled,
    /// From a later minor revision: skipped.
    Other(u8),
}

impl Kind {
    fn to_byte(self) -> u8 {
        match self {
            Kind::Manifest => 1,
            Kind::Sources => 2,
            Kind::Lanes => 3,
            Kind::Events => 4,
            Kind::Trailer => 5,
            Kind::Index => 6,
            Kind::Totals => 7,
            Kind::Nodes => 8,
            Kind::IndexPart => 9,
            Kind::Settled => 10,
            Kind::Other(byte) => byte,
        }
    }

    fn from_byte(byte: u8) -> Kind {
        match byte {
            1 => Kind::Manifest,
            2 => Kind::Sources,
            3 => Kind::Lanes,
            4 => Kind::Events,
            5 => Kind::Trailer,
            6 => Kind::Index,
            7 => Kind::Totals,
            8 => Kind::Nodes,
            9 => Kind::IndexPart,
            10 => Kind::Settled,
            other => Kind::Other(other),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Manifest => "manifest",
            Kind::Sources => "sources",
            Kind::Lanes => "lanes",
            Kind::Events => "events",
            Kind::Trailer => "trailer",
            Kind::Index => "index",
            Kind::Totals => "lanes' totals",
            Kind::Nodes => "nodes",
            Kind::IndexPart => "index",
            Kind::Settled => "progress",
            Kind::Other(_) => "unknown kind",
        }
    }
}

/// What an events frame contains, available without decompressing it. All zero for other kinds, except
/// for [`Summary::of_part`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) lane: u32,
    /// Earliest start and latest end.
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    pub(crate) detours: u32,
    pub(crate) records: u32,
}

/// In the summary of a [`Kind::Settled`] frame: applies to all lanes.
pub(crate) const ALL_LANES: u32 = u32::MAX;

impl Summary {
    /// For a part of the index: the offset of the previous part.
    pub(crate) fn of_part(before: u64) -> Summary {
        Summary { first_ns: before, ..Summary::default() }
    }

    /// Everything that ended before `to_ns` is in the file.
    pub(crate) fn settled(to_ns: u64) -> Summary {
        Summary { lane: ALL_LANES, last_ns: to_ns, ..Summary::default() }
    }

    /// A lane is watched from this time on.
    pub(crate) fn watched(lane: u32, from_ns: u64) -> Summary {
        Summary { lane, first_ns: from_ns, last_ns: from_ns, ..Summary::default() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) kind: Kind,
    pub(crate) raw_len: u32,
    pub(crate) stored_len: u32,
    pub(crate) summary: Summary,
    pub(crate) payload_crc: u32,
}

/// One row of the index: a frame and its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) offset: u64,
    pub(crate) kind: Kind,
    pub(crate) stored_len: u32,
    pub(crate) summary: Summary,
}

impl IndexEntry {
    pub(crate) fn lane(&self) -> LaneId {
        LaneId(self.summary.lane)
    }

    pub(crate) fn end(&self) -> u64 {
        self.offset
            .saturating_add(FRAME_HEADER_LEN as u64)
            .saturating_add(u64::from(self.stored_len))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) index_offset: u64,
    pub(crate) index_frames: u32,
}

pub(crate) fn header() -> [u8; HEADER_LEN] {
    let mut out = Fields::<HEADER_LEN>::new();
    out.put(&MAGIC);
    out.put(&VERSION.to_le_bytes());
    out.seal()
}

/// The version in a file header; None if the magic differs.
pub(crate) fn version_of(header: &[u8; HEADER_LEN]) -> Option<u32> {
    let mut rest = header.as_slice();
    (take::<8>(&mut rest)? == MAGIC).then_some(())?;
    take_u32(&mut rest)
}

pub(crate) fn header_is_sound(header: &[u8; HEADER_LEN]) -> bool {
    unseal(header).is_some()
}

impl FrameHeader {
    pub(crate) fn to_bytes(self) -> [u8; FRAME_HEADER_LEN] {
        let mut out = Fields::new();
        out.put(&FRAME_MAGIC);
        out.put(&[self.kind.to_byte()]);
        out.put(&self.raw_len.to_le_bytes());
        out.put(&self.stored_len.to_le_bytes());
        put_summary(&mut out, &self.summary);
        out.put(&self.payload_crc.to_le_bytes());
        out.seal()
    }

    /// None for anything that is not an intact frame header within the limits.
    pub(crate) fn parse(bytes: &[u8; FRAME_HEADER_LEN]) -> Option<FrameHeader> {
        let mut rest = unseal(bytes)?;
        (take::<3>(&mut rest)? == FRAME_MAGIC).then_some(())?;
        let [kind] = take::<1>(&mut rest)?;
        let raw_len = take_u32(&mut rest)?;
        let stored_len = take_u32(&mut rest)?;
        let summary = take_summary(&mut rest)?;
        let payload_crc = take_u32(&mut rest)?;
        let within = raw_len as usize <= MAX_RAW
            && stored_len as usize <= MAX_STORED
            && u64::from(summary.detours) + u64::from(summary.records) <= MAX_EVENTS as u64;
        within.then_some(FrameHeader {
            kind: Kind::from_byte(kind),
            raw_len,
            stored_len,
            summary,
            payload_crc,
        })
    }

    /// Offset of the previous part of the index; 0 for the first.
    pub(crate) fn part_before(&self) -> u64 {
        self.summary.first_ns
    }

    pub(crate) fn entry_at(&self, offset: u64) -> IndexEntry {
        IndexEntry { offset, kind: self.kind, stored_len: self.stored_len, summary: self.summary }
    }
}

pub(crate) fn index_payload(entries: &[IndexEntry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(entries.len() * INDEX_ENTRY_LEN);
    for entry in entries {
        let mut row = Fields::<INDEX_ENTRY_LEN>::new();
        row.put(&entry.offset.to_le_bytes());
        row.put(&[entry.kind.to_byte(), 0, 0, 0]);
        row.put(&entry.stored_len.to_le_bytes());
        put_summary(&mut row, &entry.summary);
        out.extend_from_slice(&row.bytes);
    }
    out
}

/// The rows, None for each malformed one; None if the payload is not a whole number of rows.
pub(crate) fn parse_index(payload: &[u8]) -> Option<impl Iterator<Item = Option<IndexEntry>>> {
    let rows = payload.chunks_exact(INDEX_ENTRY_LEN);
    rows.remainder().is_empty().then_some(())?;
    Some(rows.map(|mut row| {
        let offset = u64::from_le_bytes(take(&mut row)?);
        let [kind, ..] = take::<4>(&mut row)?;
        let stored_len = take_u32(&mut row)?;
        let summary = take_summary(&mut row)?;
        Some(IndexEntry { offset, kind: Kind::from_byte(kind), stored_len, summary })
    }))
}

impl Footer {
    pub(crate) fn to_bytes(self) -> [u8; FOOTER_LEN] {
        let mut out = Fields::new();
        out.put(&FOOTER_MAGIC);
        out.put(&self.index_offset.to_le_bytes());
        out.put(&self.index_frames.to_le_bytes());
        out.seal()
    }

    pub(crate) fn parse(bytes: &[u8; FOOTER_LEN]) -> Option<Footer> {
        let mut rest = unseal(bytes)?;
        (take::<8>(&mut rest)? == FOOTER_MAGIC).then_some(())?;
        let index_offset = u64::from_le_bytes(take(&mut rest)?);
        Some(Footer { index_offset, index_frames: take_u32(&mut rest)? })
    }
}

/// Decompresses a payload into exactly `raw_len` bytes, never more.
pub(crate) fn unpack(
    unpacker: &mut zstd::bulk::Decompressor<'_>,
    stored: &[u8],
    raw_len: u32,
    raw: &mut Vec<u8>,
) -> io::Result<()> {
    raw.resize(raw_len as usize, 0);
    let got = unpacker.decompress_to_buffer(stored, raw.as_mut_slice())?;
    if got != raw_len as usize {
        let why = format!("decompressed to {got} bytes instead of {raw_len}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(())
}

/// A fixed-size structure being filled in; its last four bytes are the checksum of the others.
struct Fields<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Fields<N> {
    fn new() -> Self {
        Fields { bytes: [0; N], at: 0 }
    }

    fn put(&mut self, field: &[u8]) {
        if let Some(slot) = self.bytes.get_mut(self.at..self.at + field.len()) {
            slot.copy_from_slice(field);
        }
        self.at += field.len();
    }

    fn seal(mut self) -> [u8; N] {
        debug_assert_eq!(self.at + 4, N, "a field is missing");
        let crc = crc32fast::hash(self.bytes.get(..N - 4).unwrap_or_default());
        self.put(&crc.to_le_bytes());
        self.bytes
    }
}

/// The part before the checksum, if the checksum matches.
fn unseal(bytes: &[u8]) -> Option<&[u8]> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    (crc32fast::hash(body) == u32::from_le_bytes(*crc)).then_some(body)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    take(rest).map(u32::from_le_bytes)
}

fn put_summary<const N: usize>(out: &mut Fields<N>, summary: &Summary) {
    out.put(&summary.lane.to_le_bytes());
    out.put(&summary.first_ns.to_le_bytes());
    out.put(&summary.last_ns.to_le_bytes());
    out.put(&summary.detours.to_le_bytes());
    out.put(&summary.records.to_le_bytes());
}

fn take_summary(rest: &mut &[u8]) -> Option<Summary> {
    Some(Summary {
        lane: take_u32(rest)?,
        first_ns: u64::from_le_bytes(take(rest)?),
        last_ns: u64::from_le_bytes(take(rest)?),
        detours: take_u32(rest)?,
        records: take_u32(rest)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_that_unpacks_to_more_than_announced_is_refused() {
        let bomb = zstd::bulk::compress(&vec![0; 1 << 20], 1).unwrap();
        let mut raw = Vec::new();
        let mut unpacker = zstd::bulk::Decompressor::new().unwrap();
        let mut as_announced = |len| unpack(&mut unpacker, &bomb, len, &mut raw).is_ok();
        assert!(!as_announced(1000));
        assert!(!as_announced(1 << 21));
        assert!(as_announced(1 << 20));
    }

    #[test]
    fn fixed_parts_come_back_and_any_flipped_bit_is_noticed() {
        let header = FrameHeader {
            kind: Kind::Events,
            raw_len: 1000,
            stored_len: 900,
            summary: Summary { lane: 3, first_ns: 5, last_ns: u64::MAX, detours: 7, records: 9 },
            payload_crc: 0xdead_beef,
        };
        let bytes = header.to_bytes();
        assert_eq!(FrameHeader::parse(&bytes), Some(header));
        for bit in 0..FRAME_HEADER_LEN * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FrameHeader::parse(&flipped), None);
        }
        let footer = Footer { index_offset: 77, index_frames: 2 };
        assert_eq!(Footer::parse(&footer.to_bytes()), Some(footer));
        let entry = header.entry_at(64);
        let payload = index_payload(&[entry, entry]);
        assert!(parse_index(&payload).unwrap().eq([Some(entry), Some(entry)]));
        assert!(parse_index(&payload[1..]).is_none());
    }
}
