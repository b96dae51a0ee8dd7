//! Why the detours of a block are waits: a column unknown to the first readers of version 1.
//!
//! It follows the block's zstd frame as a skippable frame, which zstd ignores when it decompresses the
//! payload. So those readers read the block without it, and a block without waits is stored as before.
//!
//! Layout: the magic number and length required by zstd, then one byte per detour, compressed.

use std::io;

use super::v1::{self, MAX_EVENTS};
use crate::model::{Detour, Wait};

/// One of the sixteen magic numbers of skippable frames.
const MAGIC: u32 = 0x184D_2A5D;

/// The skippable frame for a block's detours; None if none of them is a wait.
pub(crate) fn encode(
    detours: &[Detour],
    compressor: &mut zstd::bulk::Compressor<'_>,
) -> io::Result<Option<Vec<u8>>> {
    if detours.iter().all(|detour| detour.wait == Wait::None) {
        return Ok(None);
    }
    let bytes: Vec<u8> = detours.iter().map(|detour| detour.wait as u8).collect();
    let packed = compressor.compress(&bytes)?;
    let mut frame = Vec::with_capacity(8 + packed.len());
    frame.extend_from_slice(&MAGIC.to_le_bytes());
    frame.extend_from_slice(&(packed.len() as u32).to_le_bytes());
    frame.extend_from_slice(&packed);
    Ok(Some(frame))
}

/// Fills in the waits of a block's detours from its stored payload, if present.
pub(crate) fn decode(
    stored: &[u8],
    detours: &mut [Detour],
    unpacker: &mut zstd::bulk::Decompressor<'_>,
) -> Result<(), &'static str> {
    let Some(packed) = find(stored) else { return Ok(()) };
    let rows = detours.len().min(MAX_EVENTS) as u32;
    let mut bytes = Vec::new();
    v1::unpack(unpacker, packed, rows, &mut bytes).map_err(|_| "cannot decompress the waits")?;
    for (detour, byte) in detours.iter_mut().zip(bytes) {
        detour.wait = Wait::from_byte(byte);
    }
    Ok(())
}

/// The content of the skippable frame after the block's own frame. Other skippable frames are ignored.
fn find(stored: &[u8]) -> Option<&[u8]> {
    let mut rest = behind_first(stored)?;
    loop {
        let (magic, after) = rest.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*magic) == MAGIC {
            let (length, content) = after.split_first_chunk::<4>()?;
            return content.get(..u32::from_le_bytes(*length) as usize);
        }
        rest = behind_first(rest)?;
    }
}

fn behind_first(frames: &[u8]) -> Option<&[u8]> {
    let first = zstd::zstd_safe::find_frame_compressed_size(frames).ok()?;
    frames.get(first..).filter(|rest| first > 0 && !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detours(waits: &[Wait]) -> Vec<Detour> {
        waits.iter().map(|&wait| Detour { len_ns: 5, wait, ..Detour::default() }).collect()
    }

    fn stored(waits: &[Wait]) -> Vec<u8> {
        let mut compressor = zstd::bulk::Compressor::new(1).unwrap();
        let mut stored = compressor.compress(b"columns").unwrap();
        stored.extend(encode(&detours(waits), &mut compressor).unwrap().unwrap_or_default());
        stored
    }

    #[test]
    fn a_reader_that_knows_no_waits_unpacks_the_same_columns() {
        let stored = stored(&Wait::ALL);
        let mut unpacker = zstd::bulk::Decompressor::new().unwrap();
        assert_eq!(unpacker.decompress(&stored, 7).unwrap(), b"columns");
        let mut raw = Vec::new();
        v1::unpack(&mut unpacker, &stored, 7, &mut raw).unwrap();
        assert_eq!(raw, b"columns");
    }

    #[test]
    fn waits_come_back_and_a_block_without_any_is_stored_as_before() {
        let mut unpacker = zstd::bulk::Decompressor::new().unwrap();
        let mut read = detours(&[Wait::None; 6]);
        decode(&stored(&Wait::ALL), &mut read, &mut unpacker).unwrap();
        assert_eq!(read, detours(&Wait::ALL));
        let plain = zstd::bulk::Compressor::new(1).unwrap().compress(b"columns").unwrap();
        assert_eq!(stored(&[Wait::None; 6]), plain);
        assert_eq!(Wait::from_byte(200), Wait::None);
    }

    #[test]
    fn no_changed_byte_makes_the_decoder_panic() {
        let mut unpacker = zstd::bulk::Decompressor::new().unwrap();
        let stored = stored(&Wait::ALL);
        for at in 0..stored.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = stored.clone();
                changed[at] = value;
                let _ = decode(&changed, &mut detours(&[Wait::None; 6]), &mut unpacker);
            }
            let _ = decode(&stored[..at], &mut detours(&[Wait::None; 6]), &mut unpacker);
        }
        assert!(decode(&stored, &mut detours(&[Wait::None; 5]), &mut unpacker).is_err());
    }
}
