//! Measures the trace file: prints one JSON object with records written and read per second, on one
//! core, and the bytes per record in the file (including its share of detours and tables).
//!
//! `cargo run --release -p trace --example throughput [RECORDS [FILE]]`; without FILE it works in
//! memory, with FILE the file is kept and the time to open it is measured as well.

#[path = "../tests/common/mod.rs"]
mod common;

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::io::{Cursor, Read, Seek, Write};
use std::time::Instant;

use trace::{BLOCK_EVENTS, Block, Overwrite, Reader, SourceId, Writer};

const LANES: u32 = 4;
/// Blocks generated in advance, per lane: generating them takes longer than writing them.
const VARIANTS: usize = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let records = args.next().map_or(Ok(8_000_000), |n| n.parse::<usize>())?;
    let path = args.next();
    let mut cpus: Vec<_> = (0..LANES).map(|lane| common::Cpu::new(lane, 1)).collect();
    // A block has about two detours for three records.
    let per_block = BLOCK_EVENTS * 3 / 5;
    let blocks: Vec<Block> = (0..VARIANTS)
        .flat_map(|_| cpus.iter_mut().map(|cpu| cpu.block(per_block)).collect::<Vec<_>>())
        .collect();
    let (written, bytes, write_s, open_s, read_s) = match path {
        None => {
            let room = Cursor::new(Vec::with_capacity(records * 12));
            let writer = Writer::new(room, &common::manifest(LANES))?;
            let (written, write_s, out) = write(writer, &blocks, records)?;
            let bytes = out.get_ref().len();
            let (open_s, read_s) = read(out, written)?;
            (written, bytes as u64, write_s, open_s, read_s)
        }
        Some(path) => {
            let writer = Writer::create(&path, Overwrite::Yes, &common::manifest(LANES))?;
            let (written, write_s, out) = write(writer, &blocks, records)?;
            let bytes = out.metadata()?.len();
            let (open_s, read_s) = read(File::open(&path)?, written)?;
            (written, bytes, write_s, open_s, read_s)
        }
    };
    let figures = serde_json::json!({
        "records": written,
        "bytes": bytes,
        "write_records_per_s": (written as f64 / write_s).round(),
        "read_records_per_s": (written as f64 / read_s).round(),
        "bytes_per_record": bytes as f64 / written as f64,
        "open_s": open_s,
    });
    println!("{figures}");
    Ok(())
}

fn write<W: Write>(
    mut writer: Writer<W>,
    blocks: &[Block],
    records: usize,
) -> Result<(usize, f64, W), Box<dyn Error>> {
    let start = Instant::now();
    for (id, source) in (0..).zip(common::sources()) {
        writer.add_source(SourceId(id), &source)?;
    }
    let mut written = 0;
    for block in blocks.iter().cycle() {
        writer.write_block(block)?;
        written += block.records.len();
        if written >= records {
            break;
        }
    }
    let out = writer.finish(common::trailer(LANES, 0))?;
    Ok((written, start.elapsed().as_secs_f64(), out))
}

fn read(input: impl Read + Seek, written: usize) -> Result<(f64, f64), Box<dyn Error>> {
    let start = Instant::now();
    let reader = Reader::new(input)?;
    let open_s = start.elapsed().as_secs_f64();
    let mut found = 0;
    for block in reader.blocks() {
        found += black_box(block?).records.len();
    }
    let read_s = start.elapsed().as_secs_f64();
    if found != written || reader.truncated().is_some() || !reader.damaged_blocks().is_empty() {
        return Err(format!("{written} records written, {found} read back").into());
    }
    Ok((open_s, read_s))
}
