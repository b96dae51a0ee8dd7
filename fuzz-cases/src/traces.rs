//! A trace from somebody else: whatever it is, it is read as far as it goes or refused, and everything
//! that is done with a trace can be done with what was read.

use std::io::Cursor;

use analysis::{Contents, Summariser, views::Viewer};
use formats::export::{ExportError, ExportFormat, export};
use trace::Reader;

/// A trace as bytes. Checksums stop most of it early; [`frames`] goes past them.
pub fn file(bytes: &[u8]) {
    let Ok(reader) = Reader::new(Cursor::new(bytes)) else { return };
    let mut summariser = Summariser::new(reader.manifest().mode);
    for block in reader.blocks().flatten() {
        summariser.add(&block, reader.sources());
    }
    let contents = Contents::of(&reader, reader.truncated());
    let (summary, _) = summariser.finish_with_costs(&contents);
    let ends = reader
        .block_infos()
        .fold((u64::MAX, 0), |(from, to), info| (from.min(info.first_ns), to.max(info.last_ns)));
    let ends = if ends.0 > ends.1 { (0, 0) } else { ends };
    let mut viewer = Viewer::new(&summary, &contents, ends);
    for block in reader.blocks().flatten() {
        viewer.add(&block);
    }
    let _ = viewer.finish();
    let text = report::text(&summary, report::Options::default());
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "a control character");
    report::json_text(&summary).expect("a summary is JSON");
    let _ = report::openmetrics(&summary, report::Bounds { sources: 20 });
    for format in ExportFormat::ALL {
        let written = export(&reader, format, None, &mut std::io::sink());
        assert!(!matches!(written, Err(ExportError::Io(_))), "a sink takes everything");
    }
}

const MAGIC: &[u8; 8] = b"\x89DETOUR\n";
const FRAME_MAGIC: &[u8; 3] = b"DTB";
const VERSION: u32 = 1;

struct Frame<'a> {
    kind: u8,
    lane: u32,
    detours: u32,
    records: u32,
    /// Added to the length that the header announces.
    beyond: u32,
    raw: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Kind, lane (16 bits), detours (16), records (16), how much the announced length is wrong by,
    /// length (16), and the payload before it is packed.
    fn take(input: &mut &'a [u8]) -> Option<Frame<'a>> {
        let (head, rest) = input.split_first_chunk::<10>()?;
        let short = |at: usize| u32::from(u16::from_le_bytes([head[at], head[at + 1]]));
        let (raw, rest) = rest.split_at((short(8) as usize).min(rest.len()));
        *input = rest;
        let (lane, detours, records) = (short(1), short(3), short(5));
        Some(Frame { kind: head[0], lane, detours, records, beyond: head[7].into(), raw })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let stored = zstd::bulk::compress(self.raw, 1).expect("it packs");
        let start = out.len();
        out.extend(FRAME_MAGIC);
        out.push(self.kind);
        out.extend((self.raw.len() as u32 + self.beyond).to_le_bytes());
        out.extend((stored.len() as u32).to_le_bytes());
        out.extend(self.lane.to_le_bytes());
        out.extend(0u64.to_le_bytes());
        out.extend(u64::MAX.to_le_bytes());
        out.extend(self.detours.to_le_bytes());
        out.extend(self.records.to_le_bytes());
        out.extend(crc32fast::hash(&stored).to_le_bytes());
        let sum = crc32fast::hash(&out[start..]);
        out.extend(sum.to_le_bytes());
        out.extend(stored);
    }
}

/// A trace of arbitrary frames whose checksums are right: what somebody writes who knows the format and
/// means no good. The input is a list of frames, see [`Frame::take`].
pub fn frames(data: &[u8]) {
    let mut file = MAGIC.to_vec();
    file.extend(VERSION.to_le_bytes());
    let sum = crc32fast::hash(&file);
    file.extend(sum.to_le_bytes());
    let mut rest = data;
    while let Some(frame) = Frame::take(&mut rest) {
        frame.write(&mut file);
    }
    self::file(&file);
}
