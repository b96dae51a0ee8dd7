//! The samples of real traces, imported. They are not part of the project: `DETOUR_DATA` names the directory
//! that holds `mpi-samples`; without it these tests are skipped by name.

use libtest_mimic::{Arguments, Completion, Trial};
use program::{Accept, Import, Profile, import, open, open_partial, profile};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const WHOLE: Accept = Accept { partial: false, lenient: false };
const LENIENT: Accept = Accept { partial: false, lenient: true };
const PARTIAL: Accept = Accept { partial: true, lenient: false };

/// Unpacks a sample and imports it.
fn sample(name: &str) -> Option<(Import, Profile, TempDir)> {
    let data = std::env::var_os("DETOUR_DATA")?;
    let archive = Path::new(&data).join("mpi-samples").join(name);
    let dir = TempDir::new().unwrap();
    let unpacked =
        Command::new("tar").arg("xJf").arg(&archive).arg("-C").arg(dir.path()).status().unwrap();
    assert!(unpacked.success(), "cannot unpack {}", archive.display());
    let inside: Vec<PathBuf> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let out = dir.path().join("imported");
    let import = import(&inside[0], &out, WHOLE).unwrap();
    let profile = profile(&open(&out).unwrap(), 2).unwrap();
    Some((import, profile, dir))
}

fn check(import: &Import, profile: &Profile, calls: &[(&str, u64)]) {
    let kinds = import.events + import.unrecorded + import.headers + import.empty + import.unknown;
    assert_eq!(kinds, import.lines, "every line is accounted for");
    assert_eq!(import.unknown, 0, "{:?}", import.examples);
    assert_eq!(import.events, profile.events);
    assert_eq!(profile.lost, program::LostSums::default());
    assert_eq!(profile.clock_contradiction_ns, 0);
    for (name, each) in calls {
        let row = profile.calls.iter().find(|call| call.name == *name).unwrap();
        assert_eq!((row.count, row.ranks), (4 * each, 4), "{name}");
    }
    // Exact: waiting is never longer than the calls that waited.
    for call in &profile.calls {
        assert!(call.wait_s <= call.time_s, "{call:?}");
    }
}

fn sweep3d_comes_in_whole() -> Option<()> {
    let (import, profile, _dir) = sample("sweep3d-2x2.tar.xz")?;
    check(&import, &profile, &[("MPI_Send", 1_440), ("MPI_Recv", 1_440), ("MPI_Allreduce", 32)]);
    assert!((profile.wall_s - 42.52).abs() < 0.05, "{}", profile.wall_s);
    Some(())
}

fn milc_comes_in_whole() -> Option<()> {
    let (import, profile, _dir) = sample("milc-4-ranks.tar.xz")?;
    check(
        &import,
        &profile,
        &[("MPI_Isend", 7_902), ("MPI_Irecv", 7_902), ("MPI_Wait", 15_804), ("MPI_Allreduce", 245)],
    );
    assert_eq!(import.wildcards, import.resolved_wildcards);
    Some(())
}

fn lines_that_are_not_understood_are_counted_and_shown() -> Option<()> {
    let dir = TempDir::new().unwrap();
    for rank in 0..2 {
        let text = format!(
            "# host: n{rank}\n# clockdiff: 0.5\n\nMPI_Init:-:0:0:1000\n\
             MPI_Comm_rank:1001:91,{rank},2:5:1002\nMPI_Barrier:1003.250:91,{rank},2:1004.5\n\
             MPI_Send:nonsense\ngarbage\nMPI_Finalize:1010:-\n"
        );
        std::fs::write(dir.path().join(format!("trace-{rank}.txt")), text).unwrap();
    }
    let out = dir.path().join("out");
    let refused = import(dir.path(), &out, WHOLE).unwrap_err().to_string();
    assert!(refused.contains("4 of 18 lines of") && refused.contains("--lenient"), "{refused}");
    let sum = import(dir.path(), &out, LENIENT).unwrap();
    assert_eq!((sum.lines, sum.events, sum.unrecorded), (18, 6, 2));
    assert_eq!((sum.headers, sum.empty, sum.unknown), (4, 2, 4));
    assert!(sum.examples[0].contains("trace-0.txt:7: MPI_Send:nonsense"), "{:?}", sum.examples);
    let barrier = profile(&open(&out).unwrap(), 1).unwrap();
    assert_eq!(barrier.lost.events, 4);
    let barrier = barrier.calls.iter().find(|call| call.name == "MPI_Barrier").unwrap();
    assert_eq!(barrier.longest_s, 1_250e-9);
    let again = import(dir.path(), &out, LENIENT).unwrap_err().to_string();
    assert!(again.contains("refusing to overwrite"), "{again}");
    Some(())
}

fn a_reduce_scatter_has_the_whole_vector_and_the_part_of_its_rank() -> Option<()> {
    let dir = TempDir::new().unwrap();
    for rank in 0..2 {
        let text = format!(
            "MPI_Init:-:0:0:1000\nMPI_Barrier:1003:91,{rank},2:1004\n\
             MPI_Reduce_scatter:1010:5:6:3,5:7,4,4:8:91,{rank},2:1020\nMPI_Finalize:1030:-\n"
        );
        std::fs::write(dir.path().join(format!("trace-{rank}.txt")), text).unwrap();
    }
    let out = dir.path().join("out");
    let sum = import(dir.path(), &out, WHOLE).unwrap();
    assert_eq!(sum.unknown, 0, "{:?}", sum.examples);
    let program = open(&out).unwrap();
    let reduced = profile(&program, 1).unwrap();
    let reduced = reduced.calls.iter().find(|call| call.name == "MPI_Reduce_scatter").unwrap();
    assert_eq!((reduced.count, reduced.bytes), (2, 2 * 32));
    let clocks = program::clocks(&program, 1).unwrap();
    for (rank, part) in [12, 20].into_iter().enumerate() {
        let mut found = None;
        program::stream(&program, rank, &clocks, |moment, _| {
            if let program::What::Call(call) = &moment.what
                && call.signature.call == mpi_abi::Call::Reduce_scatter
            {
                found = Some((call.bytes, call.received));
            }
        })
        .unwrap();
        assert_eq!(found, Some((Some(32), Some(part))));
    }
    Some(())
}

/// Three ranks that compute 1, 2 and 3 ms before each of ten allreduces.
fn three_ranks() -> TempDir {
    let dir = TempDir::new().unwrap();
    for rank in 0..3 {
        let mut text = "MPI_Init:-:1:2:1000000\n".to_owned();
        for i in 0..10 {
            let (begin, end) = (1_001_000 + 3_005 * i + 1000 * rank, 1_003_005 + 3_005 * i);
            text += &format!("MPI_Allreduce:{begin}:100:200:8:4,1,1:5:0,{rank},3:{end}\n");
        }
        text += "MPI_Finalize:20000000:20000001\n";
        std::fs::write(dir.path().join(format!("trace-{rank}.txt")), text).unwrap();
    }
    dir
}

fn missing_last_ranks_are_missing() -> Option<()> {
    let dir = three_ranks();
    std::fs::remove_file(dir.path().join("trace-2.txt")).unwrap();
    let out = dir.path().join("out");
    let refused = import(dir.path(), &out, WHOLE).unwrap_err().to_string();
    let words = ["1 of 3 ranks are missing", "(2; trace-0.txt:2 has a communicator of 3 ranks)"];
    assert!(words.iter().all(|words| refused.contains(words)), "{refused}");
    let sum = import(dir.path(), &out, PARTIAL).unwrap();
    assert_eq!((sum.ranks, sum.missing.as_str()), (2, "2"));
    let refused = open(&out).unwrap_err().to_string();
    assert!(refused.contains("1 of 3 ranks are missing"), "{refused}");
    // Ten allreduces, and MPI_Finalize.
    let found = profile(&open_partial(&out).unwrap(), 1).unwrap();
    assert_eq!((found.ranks, found.ranks_read, found.lost.incomplete_collectives), (3, 2, 11));
    Some(())
}

fn the_world_is_known_from_any_call() -> Option<()> {
    let dir = three_ranks();
    let out = dir.path().join("out");
    let sum = import(dir.path(), &out, WHOLE).unwrap();
    assert_eq!((sum.ranks, sum.missing.as_str(), sum.communicators), (3, "", 0));
    let found = profile(&open(&out).unwrap(), 1).unwrap();
    assert_eq!(found.lost, program::LostSums::default());
    Some(())
}

fn calls_that_end_before_they_begin_are_not_understood() -> Option<()> {
    let dir = three_ranks();
    let path = dir.path().join("trace-0.txt");
    let text = std::fs::read_to_string(&path).unwrap();
    let wrong = text.replace(":1006010\n", ":999000\n");
    assert_ne!(wrong, text);
    std::fs::write(&path, wrong).unwrap();
    let out = dir.path().join("out");
    let refused = import(dir.path(), &out, WHOLE).unwrap_err().to_string();
    assert!(refused.contains("trace-0.txt:"), "{refused}");
    assert!(!out.join("rank-0.mpi").exists());
    let sum = import(dir.path(), &out, LENIENT).unwrap();
    assert_eq!((sum.unknown, sum.events), (1, 35));
    assert_eq!(profile(&open(&out).unwrap(), 1).unwrap().lost.events, 1);
    Some(())
}

/// None if the sample is not there.
type Test = (&'static str, fn() -> Option<()>);

const TESTS: &[Test] = &[
    ("sweep3d_comes_in_whole", sweep3d_comes_in_whole),
    ("milc_comes_in_whole", milc_comes_in_whole),
    (
        "lines_that_are_not_understood_are_counted_and_shown",
        lines_that_are_not_understood_are_counted_and_shown,
    ),
    ("missing_last_ranks_are_missing", missing_last_ranks_are_missing),
    ("the_world_is_known_from_any_call", the_world_is_known_from_any_call),
    (
        "calls_that_end_before_they_begin_are_not_understood",
        calls_that_end_before_they_begin_are_not_understood,
    ),
    (
        "a_reduce_scatter_has_the_whole_vector_and_the_part_of_its_rank",
        a_reduce_scatter_has_the_whole_vector_and_the_part_of_its_rank,
    ),
];

fn main() {
    let trial = |&(name, test): &Test| {
        Trial::ignorable_test(name, move || match test() {
            Some(()) => Ok(Completion::Completed),
            None => Ok(Completion::ignored_with("set DETOUR_DATA to the directory of mpi-samples")),
        })
    };
    libtest_mimic::run(&Arguments::from_args(), TESTS.iter().map(trial).collect()).exit();
}
