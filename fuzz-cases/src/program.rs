//! Traces of MPI programs: the records of two ranks on two hosts, in chunks without a checksum, so that all of
//! them reach the decoder and the matching. Whatever they say, the profile can be computed and printed, it is
//! the same for any number of threads, and with the clocks that the first one has stored.
//!
//! In: the length of the first rank's records in two bytes, then the records of both.

use std::{fs, path::Path};

use mpi_abi::{
    Abi, Anchor, CHUNK, CHUNK_HEADER, ChunkHeader, Clock, ClockOffset, FileHeader, HEADER, Lost,
    file_flag,
};

pub fn run(data: &[u8]) {
    let Some((length, rest)) = data.split_first_chunk::<2>() else { return };
    let first = usize::from(u16::from_le_bytes(*length)).min(rest.len());
    let (first, second) = rest.split_at(first);
    let room = CHUNK - CHUNK_HEADER;
    if first.len() > room || second.len() > room {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    for (rank, records) in [first, second].into_iter().enumerate() {
        write(directory.path(), rank as u32, records);
    }
    let program = program::open(directory.path()).expect("two ranks");
    let profile = |threads| {
        let profile = program::profile(&program, threads).expect("files that can be read");
        assert!(!report::profile(&profile, report::Options::default()).is_empty());
        report::json_text(&profile).expect("JSON")
    };
    let first = profile(1);
    assert_eq!(profile(1), first, "with the stored clocks");
    // Clocks of damaged files are not stored.
    let _ = fs::remove_file(directory.path().join("clocks.json"));
    assert_eq!(profile(2), first, "with two threads");
}

/// A file as a rank leaves it that finalizes with an open chunk.
fn write(directory: &Path, rank: u32, records: &[u8]) {
    let start = Anchor { ticks: 1_000_000, ns: 1_000_000 };
    let end = Anchor { ticks: 2_000_000, ns: 2_000_000 };
    let offset = |here: Anchor| ClockOffset { here_ns: here.ns, offset_ns: 0, round_trip_ns: 100 };
    let header = FileHeader {
        run: 1,
        world_rank: rank,
        world_size: 2,
        local_rank: 0,
        local_size: 1,
        abi: Abi::OpenMpi,
        clock: Clock::Monotonic,
        thread_level: 0,
        pid: 1,
        realtime_ns: 0,
        load: start,
        start,
        offset_start: offset(start),
        cost_recorded_ps: 0,
        cost_passed_ps: 0,
        host: b"host",
        boot_id: [rank as u8 + 1; 16],
        library: b"",
        command: b"",
        flags: file_flag::FINALIZED,
        lost: Lost::default(),
        events: 0,
        chunks: 1,
        threads: 1,
        offset_end: offset(end),
        end,
    };
    let chunk = ChunkHeader {
        used: records.len() as u32,
        base: start.ticks,
        opened: start,
        latest: end,
        ..ChunkHeader::default()
    };
    let mut page = [0; HEADER];
    header.write(&mut page);
    let file = [page.as_slice(), chunk.to_bytes().as_slice(), records].concat();
    fs::write(directory.join(format!("rank-{rank}.mpi")), file).expect("a file");
}
