//! Programs that call every wrapped function and write down what they did: the trace says exactly the same,
//! with Open MPI, MPICH and a library with the ABI of MPI 5.0, and the programs compute what they compute without
//! the collector.

mod support;

use mpi_abi::{Abi, Call, Class};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use support::standard::Standard;
use support::*;

/// Runs `every_call.c` and compares all ranks.
fn every_call(mpi: Mpi, program: &Path, abi: Abi, arguments: &[&str], init: &str) {
    let (trace_dir, log_dir) = (fresh("trace"), fresh("log"));
    let mut command = mpi.recorded(4, &trace_dir);
    run(command.arg(format!("LOG_DIR={}", log_dir.display())).arg(program).args(arguments));
    let mut names = BTreeSet::new();
    let mut runs = BTreeSet::new();
    let mut keys = std::collections::HashMap::new();
    for rank in 0..4 {
        let what = format!("{} rank {rank}", mpi.name);
        let trace = read_trace(&trace_dir.join(format!("rank-{rank}.mpi")));
        let log = read_log(&log_dir.join(format!("rank-{rank}.txt")));
        assert_eq!(trace.threads.len(), 1, "{what}");
        assert_same(&what, &trace.threads[&0], &log);
        assert!(trace.finalized && !trace.aborted);
        assert_eq!(trace.header_events, log.len() as u64);
        assert_eq!(trace.lost, mpi_abi::Lost::default());
        assert_eq!(trace.world, (rank, 4));
        assert_eq!(trace.abi, Some(abi));
        assert_eq!(trace.regions, ["begin a region", "end a region"]);
        runs.insert(trace.run);
        // A communicator has one key, in all of its members and in no other communicator.
        for comm in trace.comms.values() {
            let mut members = comm.members.clone();
            members.extend(&comm.remote);
            members.sort_unstable();
            let users: &mut (Vec<i32>, Vec<u32>) =
                keys.entry(comm.key).or_insert((members.clone(), vec![]));
            assert_eq!(users.0, members, "{what}: one key for two communicators");
            users.1.push(rank);
        }
        names.extend(log.into_iter().map(|(name, _)| name));
    }
    assert_eq!(runs.len(), 1, "one run has one number");
    for (members, users) in keys.values() {
        let users: Vec<i32> = users.iter().map(|rank| *rank as i32).collect();
        assert_eq!(*members, users, "{}: members know a communicator by one key", mpi.name);
    }
    assert!(names.contains(init));
    assert_complete(mpi, &names);
}

/// Every function of the table that the MPI library has was called.
fn assert_complete(mpi: Mpi, names: &BTreeSet<String>) {
    let newer = |call: &Call| {
        call.name().ends_with("_init") && call.class() == Class::Collective
            || call.name().starts_with("MPI_Isendrecv")
            || *call == Call::Comm_idup_with_info
    };
    // Spawned processes have a test of their own; what follows them is the same, and no library here has what is
    // new in MPI 4.1.
    let elsewhere = [
        Call::Init,
        Call::Init_thread,
        Call::Abort,
        Call::Type_free,
        Call::Comm_spawn,
        Call::Comm_spawn_multiple,
        Call::Comm_accept,
        Call::Comm_connect,
        Call::Comm_join,
        Call::Buffer_flush,
        Call::Comm_detach_buffer,
        Call::Comm_flush_buffer,
    ];
    for call in Call::ALL.iter().filter(|call| !elsewhere.contains(call)) {
        if mpi.name == "openmpi" && newer(call) {
            continue;
        }
        assert!(names.contains(call.name()), "{}: {} is not tested", mpi.name, call.name());
        if let Some(large) = call.large_name().filter(|_| mpi.name == "mpich") {
            assert!(names.contains(large), "{}: {large} is not tested", mpi.name);
        }
    }
}

fn own_abi(mpi: Mpi) -> Abi {
    if mpi.name == "openmpi" { Abi::OpenMpi } else { Abi::Mpich }
}

fn the_trace_has_every_call_as_the_program_made_it(mpi: Mpi) -> Ended {
    let program = mpi.compile("every_call.c", &[]).unwrap();
    every_call(mpi, &program, own_abi(mpi), &[], "MPI_Init");
    Ended::Done
}

fn the_same_with_locks_for_several_threads(mpi: Mpi) -> Ended {
    let program = mpi.compile("every_call.c", &[]).unwrap();
    every_call(mpi, &program, own_abi(mpi), &["threads"], "MPI_Init_thread");
    Ended::Done
}

fn the_same_with_the_abi_of_mpi_5(mpi: Mpi) -> Ended {
    if mpi.name != "mpich" {
        return Ended::Skipped("the library with this ABI translates to MPICH".to_owned());
    }
    let program = Standard::new(mpi).compile("every_call.c", &[]);
    every_call(mpi, &program, Abi::Standard, &[], "MPI_Init");
    every_call(mpi, &program, Abi::Standard, &["threads"], "MPI_Init_thread");
    Ended::Done
}

/// As Python and Julia load it: nothing but the extension finds the library, and the one that it translates to
/// is loaded beside it.
fn the_same_with_the_abi_of_mpi_5_loaded_by_an_extension(mpi: Mpi) -> Ended {
    if mpi.name != "mpich" {
        return Ended::Skipped("the library with this ABI translates to MPICH".to_owned());
    }
    let standard = Standard::new(mpi);
    let extension = standard.compile("every_call.c", &["-shared", "-fPIC", "-Dmain=extension"]);
    let program = fresh("program").join("opens");
    let name = format!("-DEXTENSION=\"{}\"", extension.display());
    run(Command::new("cc").arg(name).arg(source("opens.c")).arg("-o").arg(&program));
    every_call(mpi, &program, Abi::Standard, &[], "MPI_Init");
    Ended::Done
}

const TESTS: &[Test] = &[
    (
        "the_trace_has_every_call_as_the_program_made_it",
        the_trace_has_every_call_as_the_program_made_it,
    ),
    ("the_same_with_locks_for_several_threads", the_same_with_locks_for_several_threads),
    ("the_same_with_the_abi_of_mpi_5", the_same_with_the_abi_of_mpi_5),
    (
        "the_same_with_the_abi_of_mpi_5_loaded_by_an_extension",
        the_same_with_the_abi_of_mpi_5_loaded_by_an_extension,
    ),
];

fn main() {
    run_tests(TESTS);
}
