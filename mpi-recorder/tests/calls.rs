//! Programs that call every wrapped function and write down what they did: the trace says exactly the same,
//! with Open MPI, MPICH and a library with the ABI of MPI 5.0, and the programs compute what they compute without
//! the collector.

mod support;

use mpi_abi::{Abi, Call, Class};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
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
    assert_complete(mpi, abi, &names);
}

/// Every function of the table that the MPI library has was called.
fn assert_complete(mpi: Mpi, abi: Abi, names: &BTreeSet<String>) {
    let newer = |call: &Call| {
        call.name().ends_with("_init") && call.class() == Class::Collective
            || call.name().starts_with("MPI_Isendrecv")
            || *call == Call::Comm_idup_with_info
    };
    // Connections and spawned processes have tests of their own, and no library here has what is new in MPI 4.1.
    let elsewhere = [
        Call::Init,
        Call::Init_thread,
        Call::Abort,
        Call::Comm_spawn,
        Call::Comm_spawn_multiple,
        Call::Comm_accept,
        Call::Comm_connect,
        Call::Comm_join,
        Call::Buffer_flush,
        Call::Comm_detach_buffer,
        Call::Comm_flush_buffer,
    ];
    let untranslated = [
        Call::Type_create_struct,
        Call::Type_create_subarray,
        Call::Type_create_darray,
        Call::Grequest_start,
        Call::Grequest_complete,
    ];
    for call in Call::ALL.iter().filter(|call| !elsewhere.contains(call)) {
        if abi == Abi::Standard && untranslated.contains(call) {
            continue;
        }
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

/// Tests that fail again and again are counted, most of them without a record of their own; what a test is about and
/// how it ends is still exact.
fn tests_that_fail_are_counted(mpi: Mpi) -> Ended {
    let program = mpi.compile("polls.c", &[]).unwrap();
    let (trace_dir, log_dir) = (fresh("trace"), fresh("log"));
    let mut command = mpi.recorded(1, &trace_dir);
    run(command.arg(format!("LOG_DIR={}", log_dir.display())).arg(program));
    let trace = read_trace(&trace_dir.join("rank-0.mpi"));
    let log = read_log(&log_dir.join("rank-0.txt"));
    assert_same(mpi.name, &trace.threads[&0], &log);
    assert!(trace.finalized && trace.lost == mpi_abi::Lost::default());
    assert_eq!((trace.header_events, trace.events), (log.len() as u64, log.len() as u64));
    println!("{}: {} of {} events are repetitions", mpi.name, trace.repeated, trace.events);
    assert!(trace.repeated > trace.events / 2, "{} of {}", trace.repeated, trace.events);
    Ended::Done
}

/// The trace of rank 0 of `interrupted.c`, and the tests and sends that it has made.
fn interrupted(mpi: Mpi, kind: &str, ranks: u32) -> (Trace, [u64; 2]) {
    let program = mpi.compile("interrupted.c", &["-lpthread"]).unwrap();
    let directory = fresh("trace");
    let output = run(mpi.recorded(ranks, &directory).arg(program).arg(kind));
    let text = String::from_utf8_lossy(&output.stdout);
    let made: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let trace = read_trace(&directory.join("rank-0.mpi"));
    assert!(trace.finalized && trace.lost == mpi_abi::Lost::default(), "{kind} {}", mpi.name);
    (trace, made.try_into().unwrap())
}

/// Chunks end, regions begin, an error handler jumps, a child returns: each test is counted all the same.
fn tests_are_counted_whatever_comes_between(mpi: Mpi) -> Ended {
    for (kind, ranks) in [("chunks", 1), ("regions", 1), ("jump", 2), ("pauses", 2), ("forks", 1)] {
        let (trace, made) = interrupted(mpi, kind, ranks);
        let counts = counts(&trace.threads[&0]);
        let counted = ["MPI_Test", "MPI_Send"].map(|name| counts.get(name).copied().unwrap_or(0));
        assert_eq!(counted, made, "{kind} {}", mpi.name);
        if kind == "chunks" {
            assert!(trace.repeated > made[0] / 4, "{} of {made:?}", trace.repeated);
            assert!(trace.bytes > 2 * mpi_abi::CHUNK, "{} bytes", trace.bytes);
        }
        // The pauses are 50 ms. A test may take as long on a busy machine, but hardly each time.
        let long = trace.tests.iter().filter(|took| **took > Duration::from_millis(25)).count();
        assert!(long < 10, "{kind} {}: {long}", mpi.name);
    }
    // What another thread switches off is not exact, but what comes after that is.
    let (trace, made) = interrupted(mpi, "switched", 1);
    let counts = counts(&trace.threads[&0]);
    assert!(counts["MPI_Test"] >= made[0], "{} of {}", counts["MPI_Test"], made[0]);
    assert_eq!(counts["MPI_Send"], made[1]);
    Ended::Done
}

/// Functions of MPI that the collector leaves alone, with the reason. A name that ends with `*` stands for all that
/// begin so.
const LEFT_OUT: &[(&str, &[&str])] = &[
    (
        "answers at once, changes nothing",
        &[
            "Aint_add Aint_diff Finalized Initialized Is_thread_main Query_thread Wtime Wtick",
            "Get_address Get_count* Get_elements* Get_library_version Get_processor_name Get_version",
            "Comm_compare Comm_get_name Comm_get_info Comm_get_parent Comm_group Comm_rank",
            "Comm_remote_group Comm_remote_size Comm_size Comm_test_inter",
            "Cart_coords Cart_get Cart_rank Cart_shift Cartdim_get Topo_test Graph_get Graphdims_get",
            "Graph_neighbors* Dist_graph_neighbors*",
            "Type_get_* Type_match_size Type_size* Pack_size* Pack_external_size* Test_cancelled",
            "Win_get_group Win_get_info Win_get_name Op_commutative Error_class Error_string",
            "File_get_amode File_get_atomicity File_get_byte_offset File_get_group File_get_info",
            "File_get_position File_get_size File_get_type_extent* File_get_view",
        ],
    ),
    (
        "bookkeeping of one process that takes no time and that no communication depends on",
        &[
            "Comm_set_name Type_set_name Win_set_name Info_* Op_create* Op_free Register_datarep*",
            "*_keyval *_attr Add_error_class Add_error_code Add_error_string *_errhandler",
            "Errhandler_free Status_set_cancelled Status_set_elements*",
        ],
    ),
    ("groups are local; those of communicators are recorded as their members", &["Group_*"]),
    ("conversions between languages", &["*_c2f *_f2c Status_c2f08 Status_f082* Status_f2f08"]),
    ("tools, such as the collector, not programs", &["T_*"]),
    (
        "removed from MPI 3.0, and deprecated since MPI 2.0",
        &[
            "Address Attr_* Errhandler_create Errhandler_get Errhandler_set Keyval_create Keyval_free",
            "Type_extent Type_hindexed Type_hvector Type_lb Type_struct Type_ub",
        ],
    ),
    (
        "MPI 4: sessions and partitioned communication",
        &[
            "Session_* Comm_create_from_group Intercomm_create_from_groups Parrived Pready* Precv_init",
            "Psend_init",
        ],
    ),
];

fn is_left_out(name: &str) -> bool {
    let patterns = LEFT_OUT.iter().flat_map(|(_, lists)| *lists);
    patterns.flat_map(|list| list.split(' ')).any(|pattern| {
        match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
            (Some(end), _) => name.ends_with(end),
            (_, Some(begin)) => name.starts_with(begin),
            _ => name == pattern,
        }
    })
}

/// The functions that a library declares, without the prefix, with the number of their parameters.
fn declared(mpi: Mpi) -> BTreeMap<String, usize> {
    let file = fresh("header").join("include.c");
    std::fs::write(&file, "#include <mpi.h>\n").unwrap();
    let output =
        run(Command::new(format!("mpicc.{}", mpi.name)).args(["-w", "-E", "-P"]).arg(&file));
    let text = String::from_utf8_lossy(&output.stdout);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut found = BTreeMap::new();
    for statement in text.split(';').filter(|statement| !statement.contains("typedef")) {
        let Some((_, rest)) = statement.split_once(" MPI_") else { continue };
        let Some((name, rest)) = rest.split_once('(') else { continue };
        let name = name.trim();
        if !name.chars().all(|letter| letter.is_alphanumeric() || letter == '_') {
            continue;
        }
        // Up to the parenthesis that ends the list.
        let mut depth = 1;
        let mut parameters = 1;
        let mut list = String::new();
        for letter in rest.chars() {
            match letter {
                '(' => depth += 1,
                ')' => depth -= 1,
                ',' if depth == 1 => parameters += 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
            list.push(letter);
        }
        let none = matches!(list.trim(), "" | "void");
        found.insert(name.to_owned(), if none { 0 } else { parameters });
    }
    found
}

/// Every function that the library declares is wrapped, with as many arguments, or left out for a reason.
fn every_function_of_the_library_is_wrapped_or_left_out_for_a_reason(mpi: Mpi) -> Ended {
    let mut wrapped = BTreeMap::new();
    for call in Call::ALL {
        for name in [Some(call.name()), call.large_name()].into_iter().flatten() {
            wrapped.insert(name.trim_start_matches("MPI_").to_owned(), call.arguments().len());
        }
    }
    let declared = declared(mpi);
    assert!(declared.len() > 350, "only {} functions found in mpi.h", declared.len());
    let mut missing = vec![];
    for (name, parameters) in &declared {
        match wrapped.get(name) {
            Some(arguments) => assert_eq!(arguments, parameters, "arguments of MPI_{name}"),
            None if is_left_out(name) => {}
            None => missing.push(name),
        }
    }
    assert!(missing.is_empty(), "neither wrapped nor left out: {missing:?}");
    if mpi.name == "mpich" {
        // The newest library has all of the table but what came with MPI 4.1.
        let newer =
            ["Buffer_flush", "Comm_detach_buffer", "Comm_detach_buffer_c", "Comm_flush_buffer"];
        for name in wrapped.keys().filter(|name| !newer.contains(&name.as_str())) {
            assert!(declared.contains_key(name), "there is no MPI_{name}");
            assert!(!is_left_out(name), "MPI_{name} is wrapped and left out");
        }
    }
    Ended::Done
}

/// Two groups of one rank each, which know nothing of each other.
fn connected(mpi: Mpi, how: &str) -> Ended {
    let program = mpi.compile("meet.c", &[]).unwrap();
    let log = |directory: &Path| format!("LOG_DIR={}", directory.display());
    let bare_dir = fresh("log");
    let mut bare = mpi.mpirun(2);
    let bare = bare.args(["env", &log(&bare_dir)]).arg(&program).arg(how).output().unwrap();
    if !bare.status.success() {
        let why = String::from_utf8_lossy(&bare.stderr);
        let why = why.lines().rev().map(str::trim).find(|line| !line.is_empty());
        let why = why.unwrap_or("it ends without a message");
        return Ended::Skipped(format!("this library cannot do it: {why}"));
    }
    let (trace_dir, log_dir) = (fresh("trace"), fresh("log"));
    run(mpi.recorded(2, &trace_dir).arg(log(&log_dir)).arg(&program).arg(how));
    let mut sides = vec![];
    for rank in 0..2 {
        let trace = read_trace(&trace_dir.join(format!("rank-{rank}.mpi")));
        let log = read_log(&log_dir.join(format!("rank-{rank}.txt")));
        assert_same(&format!("{} rank {rank}", mpi.name), &trace.threads[&0], &log);
        assert!(trace.finalized && trace.lost == mpi_abi::Lost::default());
        let both = trace.comms.values().filter(|comm| comm.remote_size > 0);
        sides.push(both.map(|comm| comm.key).collect::<BTreeSet<u64>>());
    }
    let connections = if how == "join" { 1 } else { 2 };
    assert_eq!(sides[0].len(), connections, "each connection has a key");
    assert_eq!(sides[0], sides[1], "both sides know a connection by one key");
    Ended::Done
}

fn accepted_connections_are_recorded_on_both_sides(mpi: Mpi) -> Ended {
    connected(mpi, "accept")
}

fn groups_joined_by_a_socket_are_recorded_on_both_sides(mpi: Mpi) -> Ended {
    connected(mpi, "join")
}

const TESTS: &[Test] = &[
    ("tests_that_fail_are_counted", tests_that_fail_are_counted),
    ("tests_are_counted_whatever_comes_between", tests_are_counted_whatever_comes_between),
    (
        "every_function_of_the_library_is_wrapped_or_left_out_for_a_reason",
        every_function_of_the_library_is_wrapped_or_left_out_for_a_reason,
    ),
    (
        "accepted_connections_are_recorded_on_both_sides",
        accepted_connections_are_recorded_on_both_sides,
    ),
    (
        "groups_joined_by_a_socket_are_recorded_on_both_sides",
        groups_joined_by_a_socket_are_recorded_on_both_sides,
    ),
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
