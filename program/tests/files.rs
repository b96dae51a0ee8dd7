//! Directories that are not as they should be: missing ranks, mixed runs, killed ranks, damaged files.

mod support;

use mpi_abi::{Anchor, CHUNK, HEADER};
use program::write::Ticks;
use program::{OpenError, open, open_partial, profile};
use proptest::prelude::*;
use std::path::Path;
use support::{HostClock, Made, START, header};
use tempfile::TempDir;

/// Messages from rank to rank around a ring; several chunks a rank.
fn ring(dir: &Path, size: u32, steps: u64, finish: bool) {
    for rank in 0..size {
        let mut made = Made::new(dir, rank, size);
        for step in 0..steps {
            let base = step * 1_000;
            made.send(base, base + 100, (rank as i32 + 1) % size as i32, 64 + step % 50);
            let from = (rank + size - 1) % size;
            made.recv(base + 200, base + 300, from as i32, 64 + step % 50);
        }
        if finish { made.finish(steps * 1_000) } else { made.kill() }
    }
}

fn error(dir: &TempDir) -> String {
    open(dir.path()).unwrap_err().to_string()
}

#[test]
fn an_empty_directory_says_how_to_record() {
    let dir = TempDir::new().unwrap();
    assert!(error(&dir).contains("detour mpi record"));
    assert!(matches!(open(&dir.path().join("nowhere")), Err(OpenError::Read { .. })));
}

#[test]
fn missing_ranks_are_named() {
    let dir = TempDir::new().unwrap();
    ring(dir.path(), 6, 3, true);
    for rank in [1, 3, 4] {
        std::fs::remove_file(dir.path().join(format!("rank-{rank}.mpi"))).unwrap();
    }
    let text = error(&dir);
    assert!(text.contains("3 of 6 ranks are missing") && text.contains("1, 3-4"), "{text}");
    let partial = open_partial(dir.path()).unwrap();
    let profile = profile(&partial, 1).unwrap();
    assert_eq!((profile.ranks, profile.ranks_read), (6, 3));
    assert_eq!(profile.events, 3 * 6);
    // Ranks 5 and 0 are neighbours; everything else has lost one side.
    assert_eq!(profile.lost.unmatched_messages, 3 * 6 - 2 * 3);
}

#[test]
fn a_claimed_size_of_billions_costs_nothing() {
    let dir = TempDir::new().unwrap();
    let made = support::header(0, u32::MAX, HostClock::default());
    program::write::RankWriter::create(dir.path(), made, Ticks::NS).unwrap().finish(START).unwrap();
    assert!(error(&dir).contains("missing"));
    let profile = profile(&open_partial(dir.path()).unwrap(), 1).unwrap();
    assert_eq!(profile.events, 0);
}

#[test]
fn files_of_two_runs_are_refused() {
    let dir = TempDir::new().unwrap();
    ring(dir.path(), 2, 3, true);
    std::fs::remove_file(dir.path().join("rank-1.mpi")).unwrap();
    let other = mpi_abi::FileHeader { run: 43, ..header(1, 2, HostClock::default()) };
    Made::with(dir.path(), other, HostClock::default(), Ticks::NS).finish(1_000);
    assert!(error(&dir).contains("2 runs"), "{}", error(&dir));
}

#[test]
fn two_files_of_one_rank_are_refused() {
    let dir = TempDir::new().unwrap();
    ring(dir.path(), 2, 3, true);
    std::fs::copy(dir.path().join("rank-1.mpi"), dir.path().join("rank-01.mpi")).unwrap();
    assert!(error(&dir).contains("both of rank 1"));
}

#[test]
fn a_file_cut_off_in_its_header_and_one_of_something_else_are_named() {
    let dir = TempDir::new().unwrap();
    ring(dir.path(), 2, 3, true);
    let path = dir.path().join("rank-1.mpi");
    std::fs::File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
    assert!(error(&dir).contains("rank-1.mpi") && error(&dir).contains("shorter"));
    std::fs::write(&path, "something else entirely").unwrap();
    assert!(error(&dir).contains("not the trace of an MPI rank"));
}

#[test]
fn killed_ranks_are_read_to_their_last_event() {
    let dir = TempDir::new().unwrap();
    ring(dir.path(), 3, 20_000, false);
    let profile = profile(&open(dir.path()).unwrap(), 2).unwrap();
    assert_eq!(profile.events, 3 * 2 * 20_000);
    assert_eq!(profile.unfinished_ranks, [0, 1, 2]);
    assert_eq!(profile.lost, program::LostSums::default());
    assert!((profile.wall_s - 19_999_300e-9).abs() < 1e-12, "{}", profile.wall_s);
}

#[test]
fn an_open_chunk_that_ends_within_an_event_is_read_up_to_there() {
    let dir = TempDir::new().unwrap();
    ring(dir.path(), 2, 100, false);
    let path = dir.path().join("rank-1.mpi");
    let mut bytes = std::fs::read(&path).unwrap();
    let at = HEADER + mpi_abi::chunk_at::USED;
    let used = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    bytes[at..at + 4].copy_from_slice(&(used - 1).to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let profile = profile(&open(dir.path()).unwrap(), 2).unwrap();
    assert_eq!((profile.events, profile.lost.cut_chunks), (399, 1));
}

#[test]
fn a_damaged_chunk_is_skipped_and_its_events_are_counted_as_lost() {
    let dir = TempDir::new().unwrap();
    ring(dir.path(), 2, 50_000, true);
    let path = dir.path().join("rank-0.mpi");
    let mut bytes = std::fs::read(&path).unwrap();
    assert!(bytes.len() > HEADER + 3 * CHUNK);
    bytes[HEADER + CHUNK + 5_000] ^= 0x55;
    std::fs::write(&path, bytes).unwrap();
    let profile = profile(&open(dir.path()).unwrap(), 2).unwrap();
    assert_eq!(profile.lost.chunks, 1);
    assert_eq!(profile.events + profile.lost.events, 200_000);
    // After the gap messages cannot be counted, so nothing is joined wrongly.
    assert_eq!(profile.lost.different_sizes, 0);
    assert!(profile.lost.unmatched_messages > 0);
}

#[test]
fn a_chunk_that_is_gone_counts_as_lost() {
    let dir = TempDir::new().unwrap();
    ring(dir.path(), 2, 50_000, true);
    let path = dir.path().join("rank-0.mpi");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[HEADER + CHUNK..HEADER + 2 * CHUNK].fill(0);
    std::fs::write(&path, bytes).unwrap();
    let profile = profile(&open(dir.path()).unwrap(), 2).unwrap();
    assert_eq!(profile.lost.chunks, 1);
    assert_eq!(profile.events + profile.lost.events, 200_000);
}

#[test]
fn ticks_become_nanoseconds_by_the_anchors_of_each_chunk() {
    let dir = TempDir::new().unwrap();
    // A counter of 3 GHz that starts anywhere.
    let ticks = Ticks { at: Anchor { ticks: 77_000_000_000, ns: START }, ns: 1.0 / 3.0 };
    for rank in 0..2 {
        let start = Anchor { ticks: ticks.at.ticks, ns: START };
        let header = mpi_abi::FileHeader {
            clock: mpi_abi::Clock::Tsc,
            load: start,
            start,
            ..header(rank, 2, HostClock::default())
        };
        let mut writer = program::write::RankWriter::create(dir.path(), header, ticks).unwrap();
        for step in 0..30_000u64 {
            let begin = ticks.at.ticks + step * 3_000;
            let signature = support::message(
                if rank == 0 { mpi_abi::Call::Send } else { mpi_abi::Call::Recv },
                1 - rank as i32,
                0,
            );
            let entry =
                mpi_abi::Entry { signature, bytes: 1, begin, end: begin + 300, ..support::BLANK };
            writer.event(0, &entry).unwrap();
        }
        writer.finish(ticks.at.ticks + 30_000 * 3_000).unwrap();
    }
    let program = open(dir.path()).unwrap();
    let clocks = program::clocks(&program, 1).unwrap();
    let mut step = 0;
    program::stream(&program, 0, &clocks, |moment, _| {
        if matches!(moment.what, program::What::Call(_)) {
            assert!((moment.begin - START as i64 - step * 1_000).abs() <= 1, "{step}");
            assert!((moment.end - moment.begin - 100).abs() <= 1);
            step += 1;
        }
    })
    .unwrap();
    assert_eq!(step, 30_000);
}

#[test]
fn a_thousand_ranks_are_profiled() {
    let dir = TempDir::new().unwrap();
    ring(dir.path(), 1_200, 8, true);
    let profile = profile(&open(dir.path()).unwrap(), 2).unwrap();
    assert_eq!(profile.events, 1_200 * 16);
    assert_eq!((profile.matrix.size, profile.matrix.binned), (64, true));
    let messages: u64 = profile.matrix.messages.iter().flatten().sum();
    assert_eq!(messages, 1_200 * 8);
    assert_eq!(profile.lost, program::LostSums::default());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Whatever is in a file, opening and profiling ends without a panic.
    #[test]
    fn damaged_files_never_panic(
        damage in prop::collection::vec((0usize..2, any::<prop::sample::Index>(), any::<u8>()), 1..40),
        cut in prop::option::of(any::<prop::sample::Index>()),
        open_chunks in any::<bool>(),
        finish in any::<bool>(),
    ) {
        let dir = TempDir::new().unwrap();
        ring(dir.path(), 2, 2_000, finish);
        let paths = [dir.path().join("rank-0.mpi"), dir.path().join("rank-1.mpi")];
        let mut files = paths.clone().map(|path| std::fs::read(path).unwrap());
        for file in &mut files {
            if open_chunks {
                // Without checksums everything reaches the decoder.
                for chunk in file[HEADER..].chunks_mut(CHUNK) {
                    chunk[mpi_abi::chunk_at::FLAGS] &= !1;
                }
            }
        }
        for (file, at, value) in damage {
            let file = &mut files[file];
            // The header has a checksum; damage to chunks is what is interesting.
            let at = HEADER + at.index(file.len() - HEADER);
            file[at] = value;
        }
        if let Some(cut) = cut {
            let length = files[1].len();
            files[1].truncate(cut.index(length));
        }
        for (path, file) in paths.iter().zip(&files) {
            std::fs::write(path, file).unwrap();
        }
        if let Ok(program) = open_partial(dir.path()) {
            let profile = profile(&program, 2).unwrap();
            prop_assert!(profile.events <= 2 * 65_536 * 3);
            let pairs: u64 = profile.waits.pairs.iter().map(|pair| pair.wait_ns).sum();
            prop_assert_eq!(pairs + profile.waits.other_pairs_ns, profile.waits.total_ns);
        }
    }
}

#[test]
fn a_pipe_with_the_name_of_a_rank_is_refused_and_not_waited_for() {
    let dir = TempDir::new().unwrap();
    ring(dir.path(), 2, 3, true);
    let pipe = dir.path().join("rank-1.mpi");
    std::fs::remove_file(&pipe).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let text = error(&dir);
    assert!(text.contains("rank-1.mpi: not a regular file"), "{text}");
}
