//! A trace of arbitrary frames whose checksums are right: what somebody writes who knows the format and
//! means no good. The input is a list of frames, see [`Frame::take`].

#![no_main]

mod whole;

use libfuzzer_sys::fuzz_target;

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

fuzz_target!(|data: &[u8]| {
    let mut file = MAGIC.to_vec();
    file.extend(VERSION.to_le_bytes());
    let sum = crc32fast::hash(&file);
    file.extend(sum.to_le_bytes());
    let mut rest = data;
    while let Some(frame) = Frame::take(&mut rest) {
        frame.write(&mut file);
    }
    whole::use_everything(&file);
});
