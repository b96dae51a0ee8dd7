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

/// Runs a program in a directory, counted and recorded. Returns how often the ranks made each call.
fn compare(
    what: &str,
    mpi: Mpi,
    ranks: u32,
    directory: &Path,
    program: &[&str],
) -> BTreeMap<String, u64> {
    let (trace_dir, count_dir) = (fresh("trace"), fresh("count"));
    let mut command = mpi.mpirun(ranks);
    // The counter is first: it calls the PMPI names, which are the collector's.
    command.args(["env", "OMP_NUM_THREADS=1"]);
    command.arg(format!("LD_PRELOAD={}:{}", counter(mpi).display(), library().display()));
    command.arg(format!("COUNT_DIR={}", count_dir.display()));
    command.arg(format!("{}={}", mpi_recorder::DIRECTORY, trace_dir.display()));
    run(command.args(program).current_dir(directory));
    let mut all = BTreeMap::new();
    for rank in 0..ranks {
        let trace = read_trace(&trace_dir.join(format!("rank-{rank}.mpi")));
        let text = std::fs::read_to_string(count_dir.join(format!("rank-{rank}.count"))).unwrap();
        let expected: BTreeMap<&str, u64> = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(name, count)| (name, count.parse().unwrap()))
            .collect();
        let lines: Vec<Line> = trace.threads.values().flatten().cloned().collect();
        assert_eq!(counts(&lines), expected, "{what} rank {rank}");
        assert!(trace.finalized && trace.lost == mpi_abi::Lost::default());
        let size = trace.bytes as f64 / trace.events as f64;
        eprintln!("{what} rank {rank}: {} events of {size:.2} bytes", trace.events);
        // A file has a page for its header.
        assert!(trace.events < 1000 || size <= 12.0, "{what}: {size} bytes an event");
        for (name, count) in expected {
            *all.entry(name.to_owned()).or_default() += count;
        }
    }
    all
}

/// Why a test of a program that Debian builds for Open MPI only cannot run.
fn unavailable(mpi: Mpi, files: &[&str]) -> Option<Ended> {
    if mpi.name != "openmpi" {
        return Some(Ended::Skipped("the program is built for Open MPI".to_owned()));
    }
    missing(files)
}

fn missing(files: &[&str]) -> Option<Ended> {
    let missing = files.iter().find(|file| !Path::new(file).exists())?;
    Some(Ended::Skipped(format!("{missing} is not installed")))
}

fn lammps_is_traced_whole(mpi: Mpi) -> Ended {
    if let Some(why) = unavailable(mpi, &["/usr/bin/lmp"]) {
        return why;
    }
    let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/inputs/melt.lmp");
    let program = ["lmp", "-log", "none", "-in", input.to_str().unwrap()];
    compare("LAMMPS", mpi, 4, &fresh("work"), &program);
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
    compare("HPCC", mpi, 4, &work, &["hpcc"]);
    Ended::Done
}

fn a_scalapack_tester_in_fortran_is_traced_whole(mpi: Mpi) -> Ended {
    let architecture = std::env::consts::ARCH;
    let directory = format!("/usr/lib/{architecture}-linux-gnu/scalapack/{}-tests", mpi.name);
    let program = format!("{directory}/xdlu");
    let input = "/usr/share/scalapack/LU.dat";
    if let Some(why) = missing(&[&program, input]) {
        return why;
    }
    let work = fresh("work");
    let text = std::fs::read_to_string(input).unwrap();
    // Ranks spin while they wait: with more ranks than free CPUs, the whole input takes minutes.
    let smaller = |line: &str| match line.split_once('\t') {
        Some((_, what)) if what.trim_start().to_lowercase().starts_with("number of") => {
            format!("1\t{what}")
        }
        _ => line.to_owned(),
    };
    let lines: Vec<String> = text.lines().map(smaller).collect();
    let text = lines.join("\n").replace("1 2 1 4 2 3 8", "2").replace("1 2 4 1 3 2 1", "2") + "\n";
    std::fs::write(work.join("LU.dat"), text).unwrap();
    compare("ScaLAPACK", mpi, 4, &work, &[&program]);
    Ended::Done
}

/// Orders the vertices of a graph: datatypes and reductions of its own, `MPI_Waitany`.
fn a_graph_partitioner_is_traced_whole(mpi: Mpi) -> Ended {
    if let Some(why) = unavailable(mpi, &["/usr/bin/dgord"]) {
        return why;
    }
    let work = fresh("work");
    std::fs::write(work.join("grid.grf"), grid(60)).unwrap();
    let program = ["dgord", "grid.grf", "/dev/null"];
    let calls = compare("PT-Scotch", mpi, 4, &work, &program);
    assert!(calls.contains_key("MPI_Waitany"), "{calls:?}");
    assert_eq!(calls.get("MPI_Init_thread"), Some(&4), "{calls:?}");
    Ended::Done
}

/// A square grid in the format of Scotch: numbers of vertices and arcs, base and flags, then the degree and the
/// neighbours of each vertex.
fn grid(side: usize) -> String {
    let mut text = format!("0\n{} {}\n0 000\n", side * side, 4 * side * (side - 1));
    for at in 0..side * side {
        let (x, y) = (at % side, at / side);
        let near = [
            (x > 0).then(|| at - 1),
            (x + 1 < side).then(|| at + 1),
            (y > 0).then(|| at - side),
            (y + 1 < side).then(|| at + side),
        ];
        let near: Vec<String> = near.iter().flatten().map(usize::to_string).collect();
        text += &format!("{} {}\n", near.len(), near.join(" "));
    }
    text
}

/// A benchmark of a network, which is small and built for both.
fn a_ping_pong_benchmark_is_traced_whole(mpi: Mpi) -> Ended {
    let program = if mpi.name == "openmpi" { "/usr/bin/NPopenmpi" } else { "/usr/bin/NPmpich2" };
    if let Some(why) = missing(&[program]) {
        return why;
    }
    let options = [program, "-u", "64", "-n", "20", "-o", "/dev/null"];
    let calls = compare("NetPIPE", mpi, 2, &fresh("work"), &options);
    let count = |name: &str| calls.get(name).copied().unwrap_or(0);
    assert!(count("MPI_Send") > 200 && count("MPI_Recv") > 200, "{calls:?}");
    Ended::Done
}

const TESTS: &[Test] = &[
    ("lammps_is_traced_whole", lammps_is_traced_whole),
    ("hpcc_is_traced_whole", hpcc_is_traced_whole),
    (
        "a_scalapack_tester_in_fortran_is_traced_whole",
        a_scalapack_tester_in_fortran_is_traced_whole,
    ),
    ("a_graph_partitioner_is_traced_whole", a_graph_partitioner_is_traced_whole),
    ("a_ping_pong_benchmark_is_traced_whole", a_ping_pong_benchmark_is_traced_whole),
];

fn main() {
    run_tests(TESTS);
}
