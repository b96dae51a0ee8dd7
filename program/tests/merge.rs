//! Directories of a run whose nodes share no file system become one, or are refused with a reason.

mod support;

use program::{MergeError, leftovers, merge, open, open_partial, profile};
use std::path::{Path, PathBuf};
use support::{HostClock, Made, header};
use tempfile::TempDir;

const SIZE: u32 = 4;

/// Rank `r` of a ring, written into a directory that is created if necessary.
fn rank(dir: &Path, rank: u32, size: u32, run: u64) {
    std::fs::create_dir_all(dir).unwrap();
    let clock = HostClock { host: (rank / 2) as u8, ..HostClock::default() };
    let header = mpi_abi::FileHeader { run, ..header(rank, size, clock) };
    let mut made = Made::with(dir, header, clock, program::write::Ticks::NS);
    made.send(1_000, 1_100, (rank as i32 + 1) % size as i32, 64);
    made.recv(1_200, 5_000, (rank as i32 + size as i32 - 1) % size as i32, 64);
    made.finish(10_000);
}

/// Two directories with two ranks each, and a recording of each node.
fn nodes(home: &Path) -> [PathBuf; 2] {
    let dirs = [home.join("a"), home.join("b")];
    for (number, dir) in dirs.iter().enumerate() {
        rank(dir, number as u32 * 2, SIZE, 42);
        rank(dir, number as u32 * 2 + 1, SIZE, 42);
        std::fs::write(dir.join(format!("node-{number}.detour")), [number as u8; 7]).unwrap();
    }
    dirs
}

fn entries(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// What is refused leaves no trace of the attempt.
fn refused(home: &Path, dirs: &[PathBuf], output: &str, force: bool) -> MergeError {
    let before = entries(home);
    let error = merge(dirs, &home.join(output), force, &|| false).unwrap_err();
    assert_eq!(entries(home), before, "{error}");
    error
}

#[test]
fn directories_of_a_run_become_one_with_every_file_unchanged() {
    let home = TempDir::new().unwrap();
    let dirs = nodes(home.path());
    let output = home.path().join("all");
    let merged = merge(&dirs, &output, false, &|| false).unwrap();
    assert_eq!((merged.ranks, merged.ranks_present, merged.recordings), (SIZE, SIZE, 2));
    assert_eq!((merged.missing.as_str(), merged.hosts), ("", vec!["node0".into(), "node1".into()]));
    assert_eq!(entries(home.path()), ["a", "all", "b"]);
    assert_eq!(entries(&output).len(), 6);
    for dir in &dirs {
        for name in entries(dir) {
            let read = |dir: &Path| std::fs::read(dir.join(&name)).unwrap();
            assert_eq!(read(dir), read(&output), "{name}");
        }
    }
    let profile = profile(&open(&output).unwrap(), 1).unwrap();
    assert_eq!((profile.messages, profile.lost.unmatched_messages), (4, 0));
}

#[test]
fn ranks_that_are_still_missing_are_named_and_can_be_merged_later() {
    let home = TempDir::new().unwrap();
    let dirs = nodes(home.path());
    std::fs::remove_file(dirs[0].join("rank-1.mpi")).unwrap();
    let output = home.path().join("most");
    let merged = merge(&dirs, &output, false, &|| false).unwrap();
    assert_eq!((merged.ranks_present, merged.missing.as_str()), (3, "1"));
    let text = open(&output).unwrap_err().to_string();
    assert!(text.contains("detour merge"), "{text}");
    assert_eq!(open_partial(&output).unwrap().ranks.len(), 3);
    let late = home.path().join("late");
    rank(&late, 1, SIZE, 42);
    let all = home.path().join("all");
    assert_eq!(merge(&[output, late], &all, false, &|| false).unwrap().missing, "");
    open(&all).unwrap();
}

#[test]
fn other_runs_other_sizes_and_ranks_that_are_there_twice_are_refused() {
    let home = TempDir::new().unwrap();
    let dirs = nodes(home.path());
    let other = |name: &str, number: u32, size: u32, run: u64| {
        let dir = home.path().join(name);
        rank(&dir, number, size, run);
        [dirs[0].clone(), dir]
    };
    let error = refused(home.path(), &other("run", 2, SIZE, 43), "all", false);
    assert!(matches!(error, MergeError::OtherRun { .. }), "{error}");
    let error = refused(home.path(), &other("size", 2, SIZE + 1, 42), "all", false);
    assert!(matches!(error, MergeError::WorldSize { .. }), "{error}");
    let error = refused(home.path(), &other("twice", 1, SIZE, 42), "all", false);
    assert!(matches!(error, MergeError::Duplicate { rank: 1, .. }), "{error}");
    let error = refused(home.path(), &[dirs[0].clone(), dirs[0].clone()], "all", false);
    assert!(matches!(error, MergeError::Duplicate { rank: 0, .. }), "{error}");
    std::fs::write(dirs[1].join("node-0.detour"), "").unwrap();
    let error = refused(home.path(), &dirs, "all", false);
    assert!(matches!(error, MergeError::SameNode { .. }), "{error}");
    let empty = home.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let error = refused(home.path(), &[dirs[0].clone(), empty], "all", false);
    assert!(error.to_string().contains("no rank-N.mpi"), "{error}");
}

#[test]
fn only_a_run_is_replaced_and_only_if_that_is_wanted() {
    let home = TempDir::new().unwrap();
    let dirs = nodes(home.path());
    let output = home.path().join("all");
    // An empty directory may be filled.
    std::fs::create_dir(&output).unwrap();
    merge(&dirs, &output, false, &|| false).unwrap();
    let error = refused(home.path(), &dirs, "all", false);
    assert!(matches!(error, MergeError::Exists(_)), "{error}");
    assert_eq!(merge(&dirs[..1], &output, true, &|| false).unwrap().ranks_present, 2);
    assert_eq!(entries(&output), ["node-0.detour", "rank-0.mpi", "rank-1.mpi"]);
    assert_eq!(entries(home.path()), ["a", "all", "b"]);
    std::fs::write(output.join("notes"), "precious").unwrap();
    let error = refused(home.path(), &dirs, "all", true);
    assert!(error.to_string().contains("notes"), "{error}");
    let error = refused(home.path(), &dirs, "a", true);
    assert!(matches!(error, MergeError::OverInput(_)), "{error}");
    std::fs::write(home.path().join("file"), "").unwrap();
    let error = refused(home.path(), &dirs, "file", true);
    assert!(matches!(error, MergeError::Exists(_)), "{error}");
}

#[test]
fn what_appears_while_files_are_copied_is_kept() {
    let home = TempDir::new().unwrap();
    let dirs = nodes(home.path());
    let output = home.path().join("all");
    let note = output.join("rank-9.mpi");
    // Asked during the copying, another process writes into the output.
    let writes = || {
        std::fs::create_dir_all(&output).unwrap();
        std::fs::write(&note, "precious").unwrap();
        false
    };
    let kept = || {
        assert_eq!(std::fs::read_to_string(&note).unwrap(), "precious");
        assert_eq!(entries(home.path()), ["a", "all", "b"]);
        std::fs::remove_file(&note).unwrap();
    };
    // Where nothing was, and where an empty directory was.
    for force in [false, true, false, true] {
        let error = merge(&dirs, &output, force, &writes).unwrap_err();
        assert!(matches!(error, MergeError::Exists(_)), "{error}");
        kept();
        if force {
            std::fs::remove_dir(&output).unwrap();
        }
    }
    // Where a run was that was to be replaced.
    merge(&dirs, &output, false, &|| false).unwrap();
    let before = entries(&output);
    let error = merge(&dirs[..1], &output, true, &writes).unwrap_err();
    assert!(matches!(error, MergeError::Appeared { .. }), "{error}");
    assert!(error.to_string().contains("rank-9.mpi"), "{error}");
    kept();
    assert_eq!(entries(&output), before);
    // A file that vanishes meanwhile does not make the merge fail.
    let removes = || {
        let _ = std::fs::remove_file(output.join("rank-3.mpi"));
        false
    };
    merge(&dirs[..1], &output, true, &removes).unwrap();
    assert_eq!(entries(&output), ["node-0.detour", "rank-0.mpi", "rank-1.mpi"]);
    assert_eq!(entries(home.path()), ["a", "all", "b"]);
    // A directory is not a file of a run, whatever its name.
    std::fs::create_dir(&note).unwrap();
    let error = refused(home.path(), &dirs, "all", true);
    assert!(matches!(error, MergeError::NotARun { .. }), "{error}");
}

#[test]
fn a_merge_that_is_stopped_leaves_nothing_and_one_that_was_killed_is_found() {
    let home = TempDir::new().unwrap();
    let dirs = nodes(home.path());
    let output = home.path().join("all");
    let copied = std::cell::Cell::new(0);
    let third = || copied.replace(copied.get() + 1) == 2;
    let error = merge(&dirs, &output, false, &third).unwrap_err();
    assert!(matches!(error, MergeError::Stopped), "{error}");
    assert_eq!(entries(home.path()), ["a", "b"]);
    assert_eq!(leftovers(&output), Vec::<PathBuf>::new());
    for name in [".all.new-1", ".all.old-1", ".all.new-x", ".other.new-1", "all.new-1"] {
        std::fs::create_dir(home.path().join(name)).unwrap();
    }
    let left = [".all.new-1", ".all.old-1"].map(|name| home.path().join(name));
    assert_eq!(leftovers(&output), left);
}
