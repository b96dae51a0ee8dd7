//! Writes a trace while it is being recorded.
//!
//! Every frame is a single write, and nothing written is changed again: however the recording ends, the
//! frames before that moment are complete. A write that fails is undone if the output allows it (a
//! file), so that the trailer can still be tried; otherwise the writer refuses to continue, since
//! readers could not find what follows.
//!
//! Once a block could not be written, no later one is: a gap would read as time without noise. The
//! trailer then marks the recording as cut off, and ends its lanes where their events end
//! (`written.rs`).
//!
//! Memory does not grow with the recording: the index is written in parts.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::create::{self, Overwrite};
use crate::error::TraceError;
use crate::format::columns::{self, Encoder};
use crate::format::v1::{self, Footer, FrameHeader, IndexEntry, Kind, Summary};
use crate::format::waits;
use crate::manifest::{LaneTotals, Manifest, Node, Trailer};
use crate::model::{Block, Lane, LaneId, Source, SourceId};
use crate::written::Written;

/// Events per block for good compression; up to four times as many are accepted.
pub const BLOCK_EVENTS: usize = 1 << 16;

/// Rows per frame of the source, lane and totals tables: keeps a frame far below the size limit.
const TABLE_ROWS_PER_FRAME: usize = 4096;

/// A node has settings for each of its CPUs: several thousand CPUs fit.
const NODES_PER_FRAME: usize = 32;

type CutBack<W> = fn(&mut W, u64) -> io::Result<()>;

/// A trace being written.
pub struct Writer<W: Write> {
    out: W,
    /// For messages.
    file: String,
    cut_back: Option<CutBack<W>>,
    offset: u64,
    failed: bool,
    encoder: Encoder,
    compressor: zstd::bulk::Compressor<'static>,
    frame: Vec<u8>,
    /// For the frames since the last part of the index.
    index: Vec<IndexEntry>,
    parts: IndexParts,
    pending_sources: Vec<(SourceId, Source)>,
    pending_lanes: Vec<(LaneId, Lane)>,
    /// Ids below these have been announced.
    sources: u32,
    lanes: u32,
    written: Written,
    /// Why a block could not be written.
    cut_off: Option<String>,
}

/// The parts of the index that have been written.
struct IndexParts {
    /// Rows per part.
    rows: usize,
    /// Offset of the last one; 0 before the first.
    last: u64,
    count: u32,
}

impl Writer<File> {
    /// Creates the file and writes its beginning. A pipe is written sequentially.
    pub fn create(
        path: impl AsRef<Path>,
        overwrite: Overwrite,
        manifest: &Manifest,
    ) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let (out, can_take_back) = create::create_recording(path, overwrite)?;
        let name = path.display().to_string();
        let cut_back = can_take_back.then_some(create::cut_back as CutBack<File>);
        let started = Writer::start(out, name, cut_back, manifest);
        // A trace without a manifest is unreadable.
        started.inspect_err(|_| create::discard(path))
    }
}

impl<W: Write> Writer<W> {
    /// Writes a trace to any output.
    pub fn new(out: W, manifest: &Manifest) -> Result<Self, TraceError> {
        Writer::start(out, "the output".to_owned(), None, manifest)
    }

    fn start(
        out: W,
        file: String,
        cut_back: Option<CutBack<W>>,
        manifest: &Manifest,
    ) -> Result<Self, TraceError> {
        let compressor = zstd::bulk::Compressor::new(v1::ZSTD_LEVEL).map_err(|source| {
            TraceError::Io { what: "compress for", file: file.clone(), source }
        })?;
        let lanes = u32::try_from(manifest.lanes.len()).unwrap_or(u32::MAX);
        if lanes > v1::MAX_ROWS {
            return Err(TraceError::IdOutOfRange { what: "lane", id: lanes, limit: v1::MAX_ROWS });
        }
        let mut writer = Writer {
            out,
            file,
            cut_back,
            offset: 0,
            failed: false,
            encoder: Encoder::default(),
            compressor,
            frame: Vec::new(),
            index: Vec::new(),
            parts: IndexParts { rows: v1::INDEX_ENTRIES_PER_PART, last: 0, count: 0 },
            pending_sources: Vec::new(),
            pending_lanes: Vec::new(),
            sources: 0,
            lanes,
            written: Written::default(),
            cut_off: None,
        };
        writer.send(&v1::header())?;
        writer.write_manifest(manifest)?;
        Ok(writer)
    }

    /// If there are too many lanes and nodes for the manifest, they go into separate frames.
    fn write_manifest(&mut self, manifest: &Manifest) -> Result<(), TraceError> {
        let json = to_json(Kind::Manifest.name(), manifest)?;
        if json.len() <= v1::MAX_RAW {
            return self.write_frame(Kind::Manifest, &json);
        }
        let mut rest = manifest.clone();
        let lanes: Vec<(u32, Lane)> = (0..).zip(std::mem::take(&mut rest.lanes)).collect();
        let nodes: Vec<(u32, Node)> = (0..).zip(std::mem::take(&mut rest.nodes)).collect();
        self.write_json(Kind::Manifest, &rest)?;
        for rows in lanes.chunks(TABLE_ROWS_PER_FRAME) {
            self.write_json(Kind::Lanes, &rows)?;
        }
        for rows in nodes.chunks(NODES_PER_FRAME) {
            self.write_json(Kind::Nodes, &rows)?;
        }
        Ok(())
    }

    /// Announces a source, or replaces its row. Written before the next block.
    pub fn add_source(&mut self, id: SourceId, source: &Source) -> Result<(), TraceError> {
        self.sources = self.sources.max(next_id("source", id.0)?);
        self.pending_sources.push((id, source.clone()));
        Ok(())
    }

    /// Announces a lane that is not in the manifest. Written before the next block.
    pub fn add_lane(&mut self, id: LaneId, lane: &Lane) -> Result<(), TraceError> {
        self.lanes = self.lanes.max(next_id("lane", id.0)?);
        self.pending_lanes.push((id, lane.clone()));
        Ok(())
    }

    /// Writes one block. After an error nothing of the block is in the file; after an output error, no
    /// later block is either.
    pub fn write_block(&mut self, block: &Block) -> Result<(), TraceError> {
        let (detours, records) = (block.detours.len(), block.records.len());
        if detours.saturating_add(records) > v1::MAX_EVENTS {
            return Err(TraceError::BlockTooLarge { detours, records, limit: v1::MAX_EVENTS });
        }
        if block.lane.0 >= self.lanes {
            return Err(TraceError::UnknownLane { id: block.lane.0 });
        }
        columns::check(block)
            .map_err(|why| TraceError::InconsistentBlock { why: why.to_owned() })?;
        if self.cut_off.is_some() {
            return Err(TraceError::AlreadyFailed { file: self.file.clone() });
        }
        let sent = self.send_block(block);
        if let Err(error @ (TraceError::Io { .. } | TraceError::AlreadyFailed { .. })) = &sent {
            self.cut_off = Some(error.to_string());
        }
        sent
    }

    fn send_block(&mut self, block: &Block) -> Result<(), TraceError> {
        self.write_tables()?;
        let encoded = self.encoder.encode(block);
        if let Some(id) = encoded.max_source.filter(|&id| id >= self.sources) {
            return Err(TraceError::UnknownSource { id });
        }
        let (summary, raw) = (encoded.summary, encoded.raw);
        let packed = waits::encode(&block.detours, &mut self.compressor).and_then(|waits| {
            let waits = waits.unwrap_or_default();
            pack(&mut self.compressor, &mut self.frame, Kind::Events, raw, &waits, summary)
        });
        self.send_frame(packed)?;
        self.written.block(block.lane, summary.last_ns);
        Ok(())
    }

    /// Why the events end before the recording does: the first block that could not be written.
    pub fn cut_off(&self) -> Option<&str> {
        self.cut_off.as_deref()
    }

    /// Notes that a lane is watched from here on. Matters if the recording is cut off.
    pub fn watched_from(&mut self, lane: LaneId, from_ns: u64) -> Result<(), TraceError> {
        self.write_progress(Summary::watched(lane.0, from_ns))
    }

    /// Notes that everything that ended before `to_ns` has been written. Matters if the recording is cut
    /// off: it lasted at least until then, even if the end was quiet.
    pub fn settled(&mut self, to_ns: u64) -> Result<(), TraceError> {
        if self.cut_off.is_some() {
            // It would not be true.
            return Err(TraceError::AlreadyFailed { file: self.file.clone() });
        }
        self.written.settled(to_ns);
        self.write_progress(Summary::settled(to_ns))
    }

    fn write_progress(&mut self, summary: Summary) -> Result<(), TraceError> {
        let packed = pack(&mut self.compressor, &mut self.frame, Kind::Settled, &[], &[], summary);
        packed.map_err(|source| self.io_error(source))?;
        let frame = std::mem::take(&mut self.frame);
        let sent = self.send(&frame);
        self.frame = frame;
        sent
    }

    /// Flushes everything to the output: pending sources and lanes, and buffered data.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        self.write_tables()?;
        self.out.flush().map_err(|source| self.io_error(source))
    }

    /// Writes the trailer and the index. A trace that is dropped instead reads as cut off.
    pub fn finish(self, trailer: Trailer) -> Result<W, TraceError> {
        self.finish_and_count(trailer).map(|(out, _)| out)
    }

    /// The same, and returns the size of the whole trace: a pipe cannot be asked afterwards.
    pub fn finish_and_count(mut self, mut trailer: Trailer) -> Result<(W, u64), TraceError> {
        if let Some(why) = self.cut_off.take() {
            self.written.cut(&mut trailer, why);
        }
        self.write_tables()?;
        self.write_trailer(trailer)?;
        let footer = self.write_index()?;
        self.send(&footer.to_bytes())?;
        self.flush()?;
        Ok((self.out, self.offset))
    }

    /// Size of the file so far.
    pub fn bytes_written(&self) -> u64 {
        self.offset
    }

    fn write_tables(&mut self) -> Result<(), TraceError> {
        while !self.pending_lanes.is_empty() {
            let n = self.pending_lanes.len().min(TABLE_ROWS_PER_FRAME);
            let json = to_json("lanes", &self.pending_lanes.get(..n))?;
            self.write_frame(Kind::Lanes, &json)?;
            self.pending_lanes.drain(..n);
        }
        while !self.pending_sources.is_empty() {
            let n = self.pending_sources.len().min(TABLE_ROWS_PER_FRAME);
            let json = to_json("sources", &self.pending_sources.get(..n))?;
            self.write_frame(Kind::Sources, &json)?;
            self.pending_sources.drain(..n);
        }
        Ok(())
    }

    /// If there are too many lanes for the trailer, their totals go into separate frames. Otherwise they
    /// stay in the trailer, where older programs look for them.
    fn write_trailer(&mut self, mut trailer: Trailer) -> Result<(), TraceError> {
        let mut json = to_json(Kind::Trailer.name(), &trailer)?;
        if json.len() > v1::MAX_RAW {
            let totals: Vec<(u32, LaneTotals)> =
                (0..).zip(std::mem::take(&mut trailer.lanes)).collect();
            for rows in totals.chunks(TABLE_ROWS_PER_FRAME) {
                self.write_json(Kind::Totals, &rows)?;
            }
            json = to_json(Kind::Trailer.name(), &trailer)?;
        }
        self.write_frame(Kind::Trailer, &json)
    }

    fn write_json(&mut self, kind: Kind, value: &impl Serialize) -> Result<(), TraceError> {
        let json = to_json(kind.name(), value)?;
        self.write_frame(kind, &json)
    }

    fn write_frame(&mut self, kind: Kind, raw: &[u8]) -> Result<(), TraceError> {
        if raw.len() > v1::MAX_RAW {
            let (what, bytes) = (kind.name(), raw.len());
            return Err(TraceError::TableTooLarge { what, bytes, limit: v1::MAX_RAW });
        }
        let packed = self.pack(kind, raw, Summary::default());
        self.send_frame(packed)
    }

    fn send_frame(&mut self, packed: io::Result<FrameHeader>) -> Result<(), TraceError> {
        let entry = self.send_packed(packed)?;
        self.index.push(entry);
        if self.index.len() >= self.parts.rows {
            // The frame itself is in the file. A part that could not be written is retried after the
            // next one.
            let _ = self.write_index_part();
        }
        Ok(())
    }

    /// Writes what [`pack`] built; returns its index entry.
    fn send_packed(&mut self, packed: io::Result<FrameHeader>) -> Result<IndexEntry, TraceError> {
        let header = packed.map_err(|source| self.io_error(source))?;
        let entry = header.entry_at(self.offset);
        let frame = std::mem::take(&mut self.frame);
        let sent = self.send(&frame);
        self.frame = frame;
        sent.map(|()| entry)
    }

    /// Writes the rest of the index, or all of it.
    fn write_index(&mut self) -> Result<Footer, TraceError> {
        if self.parts.count > 0 {
            while !self.index.is_empty() {
                self.write_index_part()?;
            }
            return Ok(Footer { index_offset: self.parts.last, index_frames: self.parts.count });
        }
        let index_offset = self.offset;
        let index = std::mem::take(&mut self.index);
        let mut index_frames = 0;
        for entries in index.chunks(v1::INDEX_ENTRIES_PER_PART) {
            let raw = v1::index_payload(entries);
            let packed = self.pack(Kind::Index, &raw, Summary::default());
            self.send_packed(packed)?;
            index_frames += 1;
        }
        Ok(Footer { index_offset, index_frames })
    }

    /// Moves the oldest entries of the index to the file.
    fn write_index_part(&mut self) -> Result<(), TraceError> {
        let rows = self.index.len().min(self.parts.rows);
        let raw = v1::index_payload(self.index.get(..rows).unwrap_or_default());
        let packed = self.pack(Kind::IndexPart, &raw, Summary::of_part(self.parts.last));
        self.parts.last = self.send_packed(packed)?.offset;
        self.parts.count += 1;
        self.index.drain(..rows);
        Ok(())
    }

    fn pack(&mut self, kind: Kind, raw: &[u8], summary: Summary) -> io::Result<FrameHeader> {
        pack(&mut self.compressor, &mut self.frame, kind, raw, &[], summary)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        if self.failed {
            return Err(TraceError::AlreadyFailed { file: self.file.clone() });
        }
        match self.out.write_all(bytes) {
            Ok(()) => {
                self.offset += bytes.len() as u64;
                Ok(())
            }
            Err(source) => {
                let undone =
                    self.cut_back.is_some_and(|cut| cut(&mut self.out, self.offset).is_ok());
                self.failed = !undone;
                Err(self.io_error(source))
            }
        }
    }

    fn io_error(&self, source: io::Error) -> TraceError {
        TraceError::Io { what: "write", file: self.file.clone(), source }
    }
}

fn next_id(what: &'static str, id: u32) -> Result<u32, TraceError> {
    if id >= v1::MAX_ROWS {
        return Err(TraceError::IdOutOfRange { what, id, limit: v1::MAX_ROWS });
    }
    Ok(id + 1)
}

fn to_json(what: &'static str, value: &impl Serialize) -> Result<Vec<u8>, TraceError> {
    serde_json::to_vec(value).map_err(|source| TraceError::Json { what, source })
}

/// Builds a whole frame, header and compressed payload, in `frame`; `behind` is already compressed.
fn pack(
    compressor: &mut zstd::bulk::Compressor<'static>,
    frame: &mut Vec<u8>,
    kind: Kind,
    raw: &[u8],
    behind: &[u8],
    summary: Summary,
) -> io::Result<FrameHeader> {
    let room = v1::FRAME_HEADER_LEN + zstd::zstd_safe::compress_bound(raw.len()) + behind.len();
    if frame.len() < room {
        frame.resize(room, 0);
    }
    let (head, payload) = frame.split_at_mut(v1::FRAME_HEADER_LEN);
    let packed = compressor.compress_to_buffer(raw, payload)?;
    let stored = packed + behind.len();
    if let Some(place) = payload.get_mut(packed..stored) {
        place.copy_from_slice(behind);
    }
    let payload_crc = crc32fast::hash(payload.get(..stored).unwrap_or_default());
    let header = FrameHeader {
        kind,
        raw_len: raw.len() as u32,
        stored_len: stored as u32,
        summary,
        payload_crc,
    };
    head.copy_from_slice(&header.to_bytes());
    frame.truncate(v1::FRAME_HEADER_LEN + stored);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Detour;
    use crate::reader::Reader;

    struct Disk {
        content: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.room - self.content.len());
            if n == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.content.extend_from_slice(&bytes[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn cut_back(disk: &mut Disk, to: u64) -> io::Result<()> {
        disk.content.truncate(to as usize);
        Ok(())
    }

    #[test]
    fn after_a_failed_write_the_trace_ends_where_it_failed_whatever_room_there_is_later() {
        let disk = Disk { content: Vec::new(), room: 1 << 20 };
        let lanes = (0..3).map(|cpu| Lane::Cpu { cpu }).collect();
        let manifest = Manifest { lanes, ..Manifest::default() };
        let mut writer = Writer::start(disk, "disk".to_owned(), Some(cut_back), &manifest).unwrap();
        let block = |lane, start_ns| Block {
            detours: vec![Detour {
                start_ns,
                len_ns: 10,
                outside_ns: 10,
                records: 0,
                ..Detour::default()
            }],
            ..Block::new(LaneId(lane))
        };
        writer.write_block(&block(0, 100)).unwrap();
        writer.settled(150).unwrap();
        writer.write_block(&block(1, 200)).unwrap();
        writer.out.room = writer.out.content.len() + v1::FRAME_HEADER_LEN + 1;
        assert!(writer.write_block(&block(0, 300)).is_err());
        writer.out.room = 1 << 20;
        // A block after a gap, or a claim that everything was written, would read as time without noise.
        assert!(writer.write_block(&block(1, 400)).is_err());
        assert!(writer.settled(500).is_err());
        assert!(writer.cut_off().is_some_and(|why| why.contains("cannot write disk")));
        let totals =
            |lane, from_ns, to_ns| LaneTotals { lane, from_ns, to_ns, ..LaneTotals::default() };
        let trailer = Trailer {
            lanes: vec![totals(0, 20, 1_000), totals(1, 20, 1_000), totals(2, 180, 1_000)],
            ..Trailer::default()
        };
        let disk = writer.finish(trailer).unwrap();
        let reader = Reader::new(io::Cursor::new(disk.content)).unwrap();
        assert!(reader.truncated().is_some_and(|why| why.contains("a write failed")));
        assert!(reader.blocks().map(Result::unwrap).eq([block(0, 100), block(1, 200)]));
        // Where events end, or where everything was known to be written; never before the beginning.
        let windows: Vec<_> = (0..3)
            .filter_map(|lane| reader.totals(LaneId(lane)))
            .map(|totals| (totals.from_ns, totals.to_ns))
            .collect();
        assert_eq!(windows, [(20, 150), (20, 210), (180, 180)]);
    }

    fn in_parts(rows: usize, blocks: u64) -> Vec<u8> {
        let manifest = Manifest {
            host: "node".to_owned(),
            lanes: (0..3).map(|cpu| Lane::Cpu { cpu }).collect(),
            ..Manifest::default()
        };
        let mut writer = Writer::new(Vec::new(), &manifest).unwrap();
        writer.parts.rows = rows;
        for number in 0..blocks {
            writer.write_block(&numbered(number)).unwrap();
            assert!(writer.index.len() <= rows);
        }
        writer.finish(Trailer::default()).unwrap()
    }

    fn numbered(number: u64) -> Block {
        let (start_ns, len_ns) = (1_000 * number, 10);
        let detour = Detour { start_ns, len_ns, outside_ns: len_ns, ..Detour::default() };
        Block { detours: vec![detour], ..Block::new(LaneId((number * 2 % 3) as u32)) }
    }

    #[test]
    fn an_index_in_parts_finds_what_an_index_at_the_end_finds() {
        let whole = Reader::new(io::Cursor::new(in_parts(1_000, 20))).unwrap();
        // The manifest, the blocks and the trailer: parts that divide evenly, and one row left over.
        for rows in [1, 2, 3, 7, 11, 20, 21, 22] {
            let reader = Reader::new(io::Cursor::new(in_parts(rows, 20))).unwrap();
            assert_eq!((reader.truncated(), reader.damaged_blocks()), (None, Vec::new()), "{rows}");
            assert!(reader.block_infos().eq(whole.block_infos()), "{rows}");
            assert!(reader.blocks().map(Result::unwrap).eq((0..20).map(numbered)), "{rows}");
            assert_eq!(reader.trailer(), Some(&Trailer::default()));
        }
    }

    #[test]
    fn a_trace_with_an_index_in_parts_is_read_up_to_where_it_is_cut_off() {
        let bytes = in_parts(3, 20);
        let mut most = 0;
        for end in 0..bytes.len() {
            let Ok(reader) = Reader::new(io::Cursor::new(&bytes[..end])) else {
                assert_eq!(most, 0, "{end}");
                continue;
            };
            assert!(reader.truncated().is_some(), "{end}");
            let blocks: Vec<Block> = reader.blocks().map(Result::unwrap).collect();
            assert!(blocks.iter().cloned().eq((0..blocks.len() as u64).map(numbered)));
            assert!(blocks.len() >= most, "{end}");
            most = blocks.len();
        }
        assert_eq!(most, 20);
    }

    #[test]
    fn no_changed_byte_of_an_index_in_parts_costs_more_than_the_block_it_is_in() {
        let bytes = in_parts(3, 20);
        for at in v1::HEADER_LEN..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            let Ok(reader) = Reader::new(io::Cursor::new(damaged)) else { continue };
            let blocks: Vec<Block> = reader.blocks().map(Result::unwrap).collect();
            let known = !reader.damaged_blocks().is_empty() || reader.truncated().is_some();
            assert!(known || blocks.len() == 20, "byte {at} costs blocks unnoticed");
            if reader.truncated().is_none() {
                assert!(blocks.len() >= 19, "byte {at} costs {} blocks", 20 - blocks.len());
            }
        }
    }

    /// A program that does not know parts must not take the last of them for the whole index.
    #[test]
    fn the_footer_names_no_frame_that_older_programs_take_for_an_index() {
        let bytes = in_parts(3, 20);
        let footer = Footer::parse(bytes.last_chunk().unwrap()).unwrap();
        assert_eq!(bytes[footer.index_offset as usize + 3], 9);
        let short = in_parts(1_000, 20);
        let footer = Footer::parse(short.last_chunk().unwrap()).unwrap();
        assert_eq!(short[footer.index_offset as usize + 3], 6);
    }

    #[test]
    fn a_part_of_the_index_that_finds_no_room_is_written_later() {
        let disk = Disk { content: Vec::new(), room: 1 << 20 };
        let manifest = Manifest { lanes: vec![Lane::Cpu { cpu: 0 }], ..Manifest::default() };
        let mut writer = Writer::start(disk, "disk".to_owned(), Some(cut_back), &manifest).unwrap();
        writer.parts.rows = 4;
        let block = |number: u64| Block { lane: LaneId(0), ..numbered(number) };
        writer.write_block(&block(0)).unwrap();
        let one = writer.out.content.len();
        writer.write_block(&block(1)).unwrap();
        let size = writer.out.content.len() - one;
        // The next block fits, the part after it does not.
        writer.out.room = writer.out.content.len() + size + v1::FRAME_HEADER_LEN;
        writer.write_block(&block(2)).unwrap();
        assert_eq!((writer.parts.count, writer.index.len()), (0, 4));
        writer.out.room = 1 << 20;
        writer.write_block(&block(3)).unwrap();
        assert_eq!((writer.parts.count, writer.index.len()), (1, 1));
        let disk = writer.finish(Trailer::default()).unwrap();
        let reader = Reader::new(io::Cursor::new(disk.content)).unwrap();
        assert_eq!((reader.truncated(), reader.damaged_blocks()), (None, Vec::new()));
        assert!(reader.blocks().map(Result::unwrap).eq((0..4).map(block)));
    }
}
