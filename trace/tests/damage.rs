//! Files that were cut off, damaged or crafted: never a panic, never much memory, and everything that is
//! intact is read.

#[allow(dead_code)]
mod common;

use std::io::{self, Cursor, Write};

use trace::{Block, Reader, SourceId, TraceError, Writer};

const LANES: u32 = 2;

fn blocks() -> Vec<Block> {
    let mut cpus: Vec<_> = (0..LANES).map(|lane| common::Cpu::new(lane, 7)).collect();
    (0..4).flat_map(|_| cpus.iter_mut().map(|cpu| cpu.block(5)).collect::<Vec<_>>()).collect()
}

/// A small trace, and the file size after each block.
fn small() -> (Vec<u8>, Vec<Block>, Vec<usize>) {
    let blocks = blocks();
    let mut writer = Writer::new(Vec::new(), &common::manifest(LANES)).unwrap();
    for (id, source) in (0..).zip(common::sources()) {
        writer.add_source(SourceId(id), &source).unwrap();
    }
    let mut ends = Vec::new();
    for block in &blocks {
        writer.write_block(block).unwrap();
        ends.push(writer.bytes_written() as usize);
    }
    (writer.finish(common::trailer(LANES, 9)).unwrap(), blocks, ends)
}

type Opened<'a> = Reader<Cursor<&'a [u8]>>;

fn read_all(bytes: &[u8]) -> Result<(Opened<'_>, Vec<Block>), TraceError> {
    let reader = Reader::new(Cursor::new(bytes))?;
    let blocks = reader.blocks().collect::<Result<_, _>>()?;
    Ok((reader, blocks))
}

#[test]
fn a_whole_file_is_neither_cut_off_nor_damaged() {
    let (bytes, blocks, _) = small();
    let (reader, read) = read_all(&bytes).unwrap();
    assert_eq!(read, blocks);
    assert_eq!(reader.truncated(), None);
    assert_eq!(reader.damaged_blocks(), []);
    assert_eq!(reader.sources(), common::sources());
    assert_eq!(reader.trailer(), Some(&common::trailer(LANES, 9)));
    assert_eq!(reader.manifest(), &common::manifest(LANES));
    // A second pass and a lane's own blocks give the same result.
    assert_eq!(reader.blocks().collect::<Result<Vec<_>, _>>().unwrap(), blocks);
    let of_one: Vec<Block> = reader.blocks_of(trace::LaneId(1)).map(Result::unwrap).collect();
    assert!(of_one.iter().eq(blocks.iter().filter(|b| b.lane.0 == 1)));
    assert!(
        reader.block_infos().map(|i| i.records as usize).eq(blocks.iter().map(|b| b.records.len()))
    );
}

#[test]
fn a_file_cut_at_any_byte_gives_every_block_before_the_cut() {
    let (bytes, blocks, ends) = small();
    let first_block = ends[0];
    for cut in 0..bytes.len() {
        match read_all(&bytes[..cut]) {
            Ok((reader, read)) => {
                let whole = ends.iter().filter(|&&end| end <= cut).count();
                assert_eq!(read, blocks[..whole], "cut at {cut}");
                assert!(reader.truncated().is_some(), "cut at {cut}");
                assert_eq!(reader.damaged_blocks(), [], "cut at {cut}");
                if whole > 0 {
                    assert_eq!(reader.sources(), common::sources());
                }
            }
            Err(error) => assert!(cut < first_block, "cut at {cut}: {error}"),
        }
    }
}

#[test]
fn a_flipped_byte_anywhere_costs_one_block_at_most() {
    let (bytes, blocks, ends) = small();
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut broken = bytes.clone();
            broken[at] ^= flip;
            let Ok((reader, read)) = read_all(&broken) else {
                assert!(at < ends[0], "byte {at}");
                continue;
            };
            let noticed = !reader.damaged_blocks().is_empty() || reader.truncated().is_some();
            assert!(noticed, "byte {at} flipped by {flip:#x} went unnoticed");
            if at >= ends[0] {
                assert!(read.len() + 1 >= blocks.len(), "byte {at}");
            }
            assert!(read.iter().all(|b| {
                b.records.iter().all(|r| (r.source.0 as usize) < reader.sources().len())
            }));
        }
    }
}

#[test]
fn without_an_index_a_damaged_block_is_skipped_too() {
    let (bytes, blocks, ends) = small();
    let mut broken = bytes[..*ends.last().unwrap()].to_vec();
    broken[ends[2] - 1] ^= 1;
    let (reader, read) = read_all(&broken).unwrap();
    assert_eq!(read.len(), blocks.len() - 1);
    let damage = reader.damaged_blocks();
    assert_eq!(damage.len(), 1);
    assert_eq!((damage[0].what, damage[0].records), ("events", blocks[2].records.len() as u32));
    assert!(damage[0].why.contains("checksum"));
    assert!(reader.truncated().is_some());
}

#[test]
fn with_the_source_table_lost_records_point_to_an_unknown_source() {
    let (bytes, blocks, ends) = small();
    let (intact, _) = read_all(&bytes).unwrap();
    let events_begin = ends[0] - intact.block_infos().next().unwrap().bytes as usize;
    let mut broken = bytes.clone();
    broken[events_begin - 1] ^= 1;
    let (reader, read) = read_all(&broken).unwrap();
    assert_eq!(read.len(), blocks.len());
    assert_eq!(reader.sources().len(), 1);
    assert_eq!(reader.sources()[0].name, "unknown source");
    assert!(read.iter().flat_map(|b| &b.records).all(|r| r.source.0 == 0));
    assert_eq!(reader.damaged_blocks()[0].what, "sources");
}

#[test]
fn random_bytes_behind_a_good_header_are_no_trace() {
    let (bytes, ..) = small();
    let mut rng = common::Rng::new(3);
    for round in 0..2000 {
        let mut junk = bytes[..16].to_vec();
        junk.extend((0..round % 300).map(|_| rng.bits() as u8));
        assert!(matches!(read_all(&junk), Err(TraceError::Damaged { .. })));
    }
}

#[test]
fn foreign_and_newer_files_are_refused_by_name() {
    let said = |bytes: &[u8]| read_all(bytes).map(drop).unwrap_err().to_string();
    assert!(said(b"").contains("empty file"));
    assert!(said(b"\x1f\x8b\x08\x00junkjunkjunkjunk").contains("gzip"));
    assert!(said(b"# Benchmark Method: selfish\n# ...").contains("detour import"));
    let (mut bytes, ..) = small();
    bytes[8] = 2;
    assert!(said(&bytes).contains("corrupt"), "a version whose checksum is wrong is damage");
    let crc = crc32fast::hash(&bytes[..12]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    let newer = said(&bytes);
    assert!(newer.contains("version 2") && newer.contains("up to version 1"), "{newer}");
}

/// A disk with room for this many bytes.
struct Disk {
    content: Vec<u8>,
    room: usize,
}

impl Write for &mut Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(self.room - self.content.len());
        if n == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.content.extend_from_slice(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_reported_and_leaves_every_whole_block_readable() {
    let (bytes, blocks, ends) = small();
    for room in 0..bytes.len() {
        let mut disk = Disk { content: Vec::new(), room };
        let error = fill(&mut disk, &blocks).expect_err("the disk is too small");
        assert!(
            matches!(&error, TraceError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull)
        );
        assert!(error.to_string().contains("free some space"), "{error}");
        let whole = ends.iter().filter(|&&end| end <= room).count();
        match read_all(&disk.content) {
            Ok((_, read)) => assert_eq!(read, blocks[..whole]),
            Err(_) => assert_eq!(whole, 0),
        }
    }
}

fn fill(disk: &mut Disk, blocks: &[Block]) -> Result<(), TraceError> {
    let mut writer = Writer::new(disk, &common::manifest(LANES))?;
    for (id, source) in (0..).zip(common::sources()) {
        writer.add_source(SourceId(id), &source)?;
    }
    for block in blocks {
        if let Err(error) = writer.write_block(block) {
            // Later attempts must not damage what is there.
            assert!(writer.write_block(block).is_err());
            assert!(writer.finish(common::trailer(LANES, 9)).is_err());
            return Err(error);
        }
    }
    writer.finish(common::trailer(LANES, 9)).map(drop)
}

#[test]
fn a_host_name_that_would_be_repeated_for_every_lane_has_a_limit() {
    let manifest = trace::Manifest { host: "x".repeat(5_000), ..common::manifest(LANES) };
    let writer = Writer::new(Vec::new(), &manifest).unwrap();
    let bytes = writer.finish(common::trailer(LANES, 9)).unwrap();
    let refused = read_all(&bytes).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("host name"), "{refused}");
}
