//! Programs in Fortran (`mpif.h`, `use mpi`, `use mpi_f08`) and Python: the trace has what they wrote down, and
//! their results are those of a run without the collector.

mod support;

use std::path::Path;
use std::process::{Command, Output};
use support::*;

/// Compares traces and logs of four ranks, and the output with that of a run without the collector.
fn compare(what: &str, mpi: Mpi, program: &[&str]) {
    let (trace_dir, log_dir) = (fresh("trace"), fresh("log"));
    let log = format!("LOG_DIR={}", log_dir.display());
    let bare = run(mpi.mpirun(4).args(["env", &log]).args(program));
    let recorded = run(mpi.recorded(4, &trace_dir).arg(&log).args(program));
    assert_eq!(lines(&bare), lines(&recorded), "{what}: output");
    for rank in 0..4 {
        let trace = read_trace(&trace_dir.join(format!("rank-{rank}.mpi")));
        let log = read_log(&log_dir.join(format!("rank-{rank}.txt")));
        assert_same(&format!("{what} rank {rank}"), &trace.threads[&0], &log);
        assert!(trace.finalized);
    }
}

/// Lines of a program's output; ranks print in any order.
fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn fortran(mpi: Mpi, binding: &str) -> Ended {
    // Without interfaces, gfortran expects the same types in every call of a subroutine.
    let options = [binding, "-fallow-argument-mismatch"];
    let Some(program) = mpi.compile("fortran.F90", &options) else {
        return Ended::Skipped(format!("mpif90.{} is not installed", mpi.name));
    };
    compare(&format!("{} {binding}", mpi.name), mpi, &[program.to_str().unwrap()]);
    Ended::Done
}

fn fortran_with_mpif_h_is_recorded_whole(mpi: Mpi) -> Ended {
    fortran(mpi, "-DUSE_MPIF")
}

fn fortran_with_use_mpi_is_recorded_whole(mpi: Mpi) -> Ended {
    fortran(mpi, "-DUSE_MPI")
}

fn fortran_with_use_mpi_f08_is_recorded_whole(mpi: Mpi) -> Ended {
    fortran(mpi, "-DUSE_F08")
}

fn duplicates_of_communicators_in_fortran_are_known(mpi: Mpi) -> Ended {
    let Some(program) = mpi.compile("idup.F90", &[]) else {
        return Ended::Skipped(format!("mpif90.{} is not installed", mpi.name));
    };
    let trace_dir = fresh("trace");
    run(mpi.recorded(2, &trace_dir).arg(&program));
    for rank in 0..2 {
        let trace = read_trace(&trace_dir.join(format!("rank-{rank}.mpi")));
        let calls = counts(&trace.threads[&0]);
        assert_eq!((calls["MPI_Comm_idup"], calls["MPI_Barrier"]), (20, 20), "{}", mpi.name);
        assert!(trace.finalized && trace.lost == mpi_abi::Lost::default());
    }
    Ended::Done
}

/// Two steps with a region inside of each, recorded in order; and nothing happens without the collector.
fn assert_regions(mpi: Mpi, program: &[&str]) {
    let trace_dir = fresh("trace");
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let modules = format!("PYTHONPATH={}", modules.display());
    run(mpi.recorded(2, &trace_dir).arg(&modules).args(program));
    for rank in 0..2 {
        let trace = read_trace(&trace_dir.join(format!("rank-{rank}.mpi")));
        let step = ["begin step", "begin solve", "end ", "end "];
        assert_eq!(trace.regions, [step, step].concat(), "{}", mpi.name);
        assert_eq!(counts(&trace.threads[&0])["MPI_Barrier"], 4);
    }
    run(mpi.mpirun(2).args(["env", &modules]).args(program));
}

fn regions_of_fortran_programs_can_be_inside_of_each_other(mpi: Mpi) -> Ended {
    let Some(program) = mpi.compile("regions.F90", &[]) else {
        return Ended::Skipped(format!("mpif90.{} is not installed", mpi.name));
    };
    assert_regions(mpi, &[program.to_str().unwrap()]);
    Ended::Done
}

fn regions_of_python_programs_can_be_inside_of_each_other(mpi: Mpi) -> Ended {
    if let Some(why) = no_mpi4py(mpi) {
        return why;
    }
    assert_regions(mpi, &[PYTHON, source("regions.py").to_str().unwrap()]);
    Ended::Done
}

const PYTHON: &str = "/usr/bin/python3";

/// Why a test with mpi4py cannot run.
fn no_mpi4py(mpi: Mpi) -> Option<Ended> {
    let name = Command::new(PYTHON)
        .args(["-c", "from mpi4py import MPI; print(MPI.Get_library_version())"])
        .output();
    let wanted = if mpi.name == "openmpi" { "Open MPI" } else { "MPICH" };
    let there = name.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).starts_with(wanted));
    (!there).then(|| Ended::Skipped(format!("there is no mpi4py for {}", mpi.name)))
}

fn python_with_mpi4py_is_recorded_whole(mpi: Mpi) -> Ended {
    if let Some(why) = no_mpi4py(mpi) {
        return why;
    }
    let program = source("python.py");
    compare(mpi.name, mpi, &[PYTHON, program.to_str().unwrap()]);
    Ended::Done
}

const TESTS: &[Test] = &[
    ("fortran_with_mpif_h_is_recorded_whole", fortran_with_mpif_h_is_recorded_whole),
    ("fortran_with_use_mpi_is_recorded_whole", fortran_with_use_mpi_is_recorded_whole),
    ("fortran_with_use_mpi_f08_is_recorded_whole", fortran_with_use_mpi_f08_is_recorded_whole),
    (
        "duplicates_of_communicators_in_fortran_are_known",
        duplicates_of_communicators_in_fortran_are_known,
    ),
    ("python_with_mpi4py_is_recorded_whole", python_with_mpi4py_is_recorded_whole),
    (
        "regions_of_fortran_programs_can_be_inside_of_each_other",
        regions_of_fortran_programs_can_be_inside_of_each_other,
    ),
    (
        "regions_of_python_programs_can_be_inside_of_each_other",
        regions_of_python_programs_can_be_inside_of_each_other,
    ),
];

fn main() {
    run_tests(TESTS);
}
