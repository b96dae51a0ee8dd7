//! Real programs: the calls in the traces are as many as an independent preloaded counter finds, and an event
//! takes at most 12 bytes.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::*;

/// The counter, compiled with the header of an MPI.
fn counter(mpi: Mpi) -> PathBuf {
    let library = fresh("counter").join("counter.so");
    run(Command::new(format!("mpicc.{}", mpi.name))
        .args(["-shared", "-fPIC", "-w", "-o"])
        .arg(&library)
        .arg(source("counter.c")));
    library
}

/// Runs a program in a directory, counted and recorded, on four ranks.
fn compare(what: &str, mpi: Mpi, directory: &Path, program: &[&str]) {
    let (trace_dir, count_dir) = (fresh("trace"), fresh("count"));
    let mut command = mpi.mpirun(4);
    // The counter is first: it calls the PMPI names, which are the collector's.
    command.args(["env", "OMP_NUM_THREADS=1"]);
    command.arg(format!("LD_PRELOAD={}:{}", counter(mpi).display(), library().display()));
    command.arg(format!("COUNT_DIR={}", count_dir.display()));
    command.arg(format!("{}={}", mpi_recorder::DIRECTORY, trace_dir.display()));
    run(command.args(program).current_dir(directory));
    for rank in 0..4 {
        let trace = read_trace(&trace_dir.join(format!("rank-{rank}.mpi")));
        let text = std::fs::read_to_string(count_dir.join(format!("rank-{rank}.count"))).unwrap();
        let expected: BTreeMap<&str, u64> = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(name, count)| (name, count.parse().unwrap()))
            .collect();
        assert_eq!(counts(&trace.threads[&0]), expected, "{what} rank {rank}");
        assert!(trace.finalized && trace.lost == mpi_abi::Lost::default());
        let size = trace.bytes as f64 / trace.events as f64;
        eprintln!("{what} rank {rank}: {} events of {size:.2} bytes", trace.events);
        assert!(size <= 12.0, "{what}: {size} bytes an event");
    }
}

/// Why a test cannot run: Debian builds the programs for Open MPI, and they may be missing.
fn unavailable(mpi: Mpi, files: &[&str]) -> Option<Ended> {
    if mpi.name != "openmpi" {
        return Some(Ended::Skipped("the program is built for Open MPI".to_owned()));
    }
    let missing = files.iter().find(|file| !Path::new(file).exists())?;
    Some(Ended::Skipped(format!("{missing} is not installed")))
}

fn lammps_is_traced_whole(mpi: Mpi) -> Ended {
    if let Some(why) = unavailable(mpi, &["/usr/bin/lmp"]) {
        return why;
    }
    let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/inputs/melt.lmp");
    let program = ["lmp", "-log", "none", "-in", input.to_str().unwrap()];
    compare("LAMMPS", mpi, &fresh("work"), &program);
    Ended::Done
}

fn hpcc_is_traced_whole(mpi: Mpi) -> Ended {
    let example = "/usr/share/doc/hpcc/examples/_hpccinf.txt";
    if let Some(why) = unavailable(mpi, &["/usr/bin/hpcc", example]) {
        return why;
    }
    let work = fresh("work");
    let input = std::fs::read_to_string(example).unwrap();
    let smaller: Vec<String> = input
        .lines()
        .map(|line| if line.ends_with(" Ns") { "400 Ns".into() } else { line.to_owned() })
        .collect();
    std::fs::write(work.join("hpccinf.txt"), smaller.join("\n")).unwrap();
    compare("HPCC", mpi, &work, &["hpcc"]);
    Ended::Done
}

fn a_scalapack_tester_in_fortran_is_traced_whole(mpi: Mpi) -> Ended {
    let program = "/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests/xdlu";
    let input = "/usr/share/scalapack/LU.dat";
    if let Some(why) = unavailable(mpi, &[program, input]) {
        return why;
    }
    let work = fresh("work");
    std::fs::copy(input, work.join("LU.dat")).unwrap();
    compare("ScaLAPACK", mpi, &work, &[program]);
    Ended::Done
}

const TESTS: &[Test] = &[
    ("lammps_is_traced_whole", lammps_is_traced_whole),
    ("hpcc_is_traced_whole", hpcc_is_traced_whole),
    (
        "a_scalapack_tester_in_fortran_is_traced_whole",
        a_scalapack_tester_in_fortran_is_traced_whole,
    ),
];

fn main() {
    run_tests(TESTS);
}
