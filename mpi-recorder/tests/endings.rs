//! What remains of a run that does not end as it should, and of a collector that cannot write.

mod support;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use support::*;

fn count_of(directory: &Path, rank: u32) -> u64 {
    let bytes = std::fs::read(directory.join(format!("count-{rank}"))).unwrap();
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

/// Calls that every rank of `endings.c` makes besides those of its mode.
const FRAME: u64 = 2;

fn a_rank_killed_at_any_moment_leaves_every_call_that_returned(mpi: Mpi) -> Ended {
    let program = mpi.compile("endings.c", &["-pthread"]).unwrap();
    // The moments are spread over the first 100 ms, from one fixed seed.
    let mut random = 12345u64;
    for round in 0..25 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let after = (random >> 33) % 100_000;
        let (trace_dir, log_dir) = (fresh("trace"), fresh("log"));
        let output = mpi
            .recorded(2, &trace_dir)
            .arg(format!("LOG_DIR={}", log_dir.display()))
            .arg(&program)
            .args(["killed", &after.to_string()])
            .output()
            .unwrap();
        assert!(!output.status.success());
        for rank in 0..2 {
            let (events, finalized) = count_events(&trace_dir.join(format!("rank-{rank}.mpi")));
            let finished = count_of(&log_dir, rank) + 1;
            assert!(
                (finished..=finished + 1).contains(&events),
                "{} round {round} rank {rank}: {events} events of {finished} calls",
                mpi.name
            );
            assert!(!finalized);
        }
        std::fs::remove_dir_all(&trace_dir).unwrap();
        std::fs::remove_dir_all(&log_dir).unwrap();
    }
    Ended::Done
}

fn an_aborted_run_is_recorded_up_to_the_abort(mpi: Mpi) -> Ended {
    let program = mpi.compile("endings.c", &["-pthread"]).unwrap();
    let (trace_dir, log_dir) = (fresh("trace"), fresh("log"));
    let output = mpi
        .recorded(2, &trace_dir)
        .arg(format!("LOG_DIR={}", log_dir.display()))
        .arg(&program)
        .args(["abort", "1000"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    for rank in 0..2 {
        let trace = read_trace(&trace_dir.join(format!("rank-{rank}.mpi")));
        let counts = counts(&trace.threads[&0]);
        assert_eq!(counts["MPI_Send"], 1000);
        assert_eq!(counts["MPI_Barrier"], 1);
        assert_eq!(counts.contains_key("MPI_Abort"), rank == 1);
        assert_eq!((trace.aborted, trace.finalized), (rank == 1, false));
    }
    Ended::Done
}

fn exit_without_finalize_loses_nothing(mpi: Mpi) -> Ended {
    let program = mpi.compile("endings.c", &["-pthread"]).unwrap();
    let (trace_dir, log_dir) = (fresh("trace"), fresh("log"));
    let _ = mpi
        .recorded(2, &trace_dir)
        .arg(format!("LOG_DIR={}", log_dir.display()))
        .arg(&program)
        .args(["exit", "20000"])
        .output()
        .unwrap();
    for rank in 0..2 {
        let trace = read_trace(&trace_dir.join(format!("rank-{rank}.mpi")));
        assert_eq!(trace.events, 20_000 + 2);
        assert_eq!((trace.finalized, trace.open_chunks), (false, 1));
    }
    Ended::Done
}

fn a_forked_child_does_not_touch_the_file(mpi: Mpi) -> Ended {
    let program = mpi.compile("endings.c", &["-pthread"]).unwrap();
    let trace_dir = fresh("trace");
    run(mpi.recorded(2, &trace_dir).arg(&program).args(["fork", "500"]));
    for rank in 0..2 {
        let trace = read_trace(&trace_dir.join(format!("rank-{rank}.mpi")));
        assert_eq!(trace.events, 2 * 500 + FRAME, "{} rank {rank}", mpi.name);
        assert_eq!(trace.header_events, trace.events);
    }
    Ended::Done
}

fn four_threads_at_once_have_four_exact_sequences(mpi: Mpi) -> Ended {
    let program = mpi.compile("endings.c", &["-pthread"]).unwrap();
    let trace_dir = fresh("trace");
    let output = mpi.recorded(2, &trace_dir).arg(&program).arg("threads").output().unwrap();
    if output.status.code() == Some(77) {
        return Ended::Skipped("MPI_THREAD_MULTIPLE is not granted".to_owned());
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for rank in 0..2 {
        let trace = read_trace(&trace_dir.join(format!("rank-{rank}.mpi")));
        assert_eq!(trace.threads.len(), 5, "{} rank {rank}", mpi.name);
        let peer = 1 - rank;
        for (thread, lines) in &trace.threads {
            if *thread == 0 {
                assert_eq!(lines.len(), 1 + 4 + 4 + 1);
                continue;
            }
            let tag = lines[0].1["t"].clone();
            assert_eq!(lines.len(), 4000);
            for four in lines.chunks(4) {
                let [recv, send, wait, last] = four else { panic!() };
                assert_eq!([&recv.0, &send.0], ["MPI_Irecv", "MPI_Isend"]);
                assert_eq!([&wait.0, &last.0], ["MPI_Waitall", "MPI_Send"]);
                assert!([recv, send, last].iter().all(|line| line.1["t"] == tag));
                assert_eq!(
                    wait.1["R"],
                    format!("{}:done:{peer}/{tag}/16,{}:done", recv.1["q"], send.1["q"])
                );
            }
        }
        let mut ids: Vec<u64> = trace
            .threads
            .values()
            .flatten()
            .filter_map(|line| line.1.get("q").map(|id| id.parse().unwrap()))
            .collect();
        ids.sort_unstable();
        assert!(ids.iter().copied().eq(0..8000), "every request has its own number");
    }
    Ended::Done
}

fn ten_million_nonblocking_calls_take_no_more_memory_than_one_million(mpi: Mpi) -> Ended {
    let program = mpi.compile("endings.c", &["-pthread"]).unwrap();
    let trace_dir = fresh("trace");
    let output = run(mpi.recorded(1, &trace_dir).arg(&program).args(["many", "10000000"]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers: Vec<i64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    eprintln!("{}: private resident KiB early and late: {:?}", mpi.name, &numbers[..2]);
    assert!(numbers[1] - numbers[0] < 1024, "{text}");
    let path = trace_dir.join("rank-0.mpi");
    let bytes = std::fs::read(&path).unwrap();
    let header = mpi_abi::FileHeader::parse(&bytes).unwrap();
    assert_eq!(header.events, 10_000_000 + 10_000_000 / 8 + FRAME);
    assert_eq!(header.lost, mpi_abi::Lost::default());
    let stored: u64 = mpi_abi::chunks(&bytes).map(|chunk| u64::from(chunk.header.events)).sum();
    assert_eq!(stored, header.events);
    assert!(mpi_abi::chunks(&bytes).all(|chunk| chunk.is_sound()));
    eprintln!("{}: {:.2} bytes an event", mpi.name, bytes.len() as f64 / stored as f64);
    std::fs::remove_dir_all(&trace_dir).unwrap();
    Ended::Done
}

/// A small file system, gone at the end.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn new() -> Option<SmallDisk> {
        let path = fresh("disk");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(&path)
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then_some(SmallDisk(path))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn on_a_full_disk_the_program_goes_on_and_the_loss_is_counted(mpi: Mpi) -> Ended {
    let Some(disk) = SmallDisk::new() else {
        return Ended::Skipped("cannot mount a tmpfs".to_owned());
    };
    let program = mpi.compile("endings.c", &["-pthread"]).unwrap();
    run(mpi.recorded(2, &disk.0).arg(&program).args(["nothing", "500000"]));
    for rank in 0..2 {
        let trace = read_trace(&disk.0.join(format!("rank-{rank}.mpi")));
        assert!(trace.lost.no_space > 0, "{} rank {rank}", mpi.name);
        assert_eq!(trace.events + trace.lost.no_space, 500_000 + FRAME);
        assert!(trace.finalized);
    }
    Ended::Done
}

fn below_the_file_size_limit_no_signal_ends_the_program(mpi: Mpi) -> Ended {
    let program = mpi.compile("endings.c", &["-pthread"]).unwrap();
    let trace_dir = fresh("trace");
    let mut command = mpi.recorded(1, &trace_dir);
    // In units of 512 bytes: 10 MiB, which the libraries themselves need.
    command.args(["sh", "-c", "ulimit -f 20480; exec \"$@\"", "sh"]).arg(&program);
    run(command.args(["nothing", "4000000"]));
    let path = trace_dir.join("rank-0.mpi");
    let bytes = std::fs::read(&path).unwrap();
    let lost = mpi_abi::FileHeader::parse(&bytes).unwrap().lost.no_space;
    assert_eq!(count_events(&path).0 + lost, 4_000_000 + FRAME);
    assert!(lost > 0 && bytes.len() <= 10 << 20);
    Ended::Done
}

fn without_a_directory_nothing_is_written(mpi: Mpi) -> Ended {
    let program = mpi.compile("endings.c", &["-pthread"]).unwrap();
    let work = fresh("work");
    let mut command = mpi.mpirun(2);
    command.arg("env").arg(format!("LD_PRELOAD={}", library().display())).arg(&program);
    let output = run(command.args(["nothing", "10"]).current_dir(&work));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0);
    Ended::Done
}

fn a_directory_that_cannot_be_written_is_reported_once_and_the_program_runs(mpi: Mpi) -> Ended {
    let program = mpi.compile("endings.c", &["-pthread"]).unwrap();
    let missing = fresh("trace").join("missing");
    let output = run(mpi.recorded(2, &missing).arg(&program).args(["nothing", "10"]));
    let errors = String::from_utf8_lossy(&output.stderr);
    let expected = format!(
        "detour: cannot create {}/rank-0.mpi: no such directory; the program runs unrecorded\n",
        missing.display()
    );
    assert_eq!(errors, expected);
    Ended::Done
}

fn a_second_run_into_a_directory_is_refused_and_the_first_stays(mpi: Mpi) -> Ended {
    let program = mpi.compile("endings.c", &["-pthread"]).unwrap();
    let trace_dir = fresh("trace");
    let read = || -> Vec<Vec<u8>> {
        let output = run(mpi.recorded(2, &trace_dir).arg(&program).args(["nothing", "10"]));
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let mut found: Vec<Vec<u8>> = (0..2)
            .map(|rank| std::fs::read(trace_dir.join(format!("rank-{rank}.mpi"))).unwrap())
            .collect();
        found.push(errors.into_bytes());
        found
    };
    let (first, second) = (read(), read());
    assert_eq!(first[..2], second[..2]);
    assert_eq!(first[2], b"");
    let errors = String::from_utf8_lossy(&second[2]);
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("rank-0.mpi: file exists"), "{errors}");
    Ended::Done
}

fn a_rank_whose_file_exists_runs_unrecorded_beside_the_others(mpi: Mpi) -> Ended {
    let program = mpi.compile("endings.c", &["-pthread"]).unwrap();
    let trace_dir = fresh("trace");
    std::fs::write(trace_dir.join("rank-1.mpi"), b"precious").unwrap();
    let output = run(mpi.recorded(2, &trace_dir).arg(&program).args(["nothing", "10"]));
    assert!(String::from_utf8_lossy(&output.stderr).contains("rank-1.mpi: file exists"));
    assert_eq!(std::fs::read(trace_dir.join("rank-1.mpi")).unwrap(), b"precious");
    assert_eq!(read_trace(&trace_dir.join("rank-0.mpi")).events, 10 + FRAME);
    Ended::Done
}

fn regions_and_the_switch_are_recorded_in_order(mpi: Mpi) -> Ended {
    let program = mpi.compile("endings.c", &["-pthread"]).unwrap();
    let trace_dir = fresh("trace");
    run(mpi.recorded(1, &trace_dir).arg(&program).arg("regions"));
    let trace = read_trace(&trace_dir.join("rank-0.mpi"));
    let long = "assemble_the_global_stiffness_matrix_for_all_elements_of_level_";
    let expected = [
        "begin outer",
        "begin inner",
        "end inner",
        "recording false",
        "recording true",
        &format!("begin {long}"),
        &format!("end {long}"),
        "end ",
    ];
    assert_eq!(trace.regions, expected);
    // The end of a region whose name cannot be one ends no other region.
    assert_eq!(trace.lost, mpi_abi::Lost { unreadable: 1, ..mpi_abi::Lost::default() });
    let counts = counts(&trace.threads[&0]);
    assert_eq!((counts["MPI_Send"], counts["MPI_Pcontrol"]), (1, 10));
    // Calls that others may meet are there, and only these.
    let off = trace.threads[&0].iter().filter_map(|(name, _)| name.strip_prefix("off MPI_"));
    let expected = ["Irecv", "Send", "Wait", "Comm_dup", "Allreduce", "Comm_free"];
    assert_eq!(off.collect::<Vec<_>>(), expected);
    // Without the collector the functions of detour.h do nothing.
    let bare = run(mpi.mpirun(1).arg(&program).arg("regions"));
    assert_eq!(bare.status.signal(), None);
    Ended::Done
}

fn receives_that_fail_and_those_that_arrive_with_them_are_recorded(mpi: Mpi) -> Ended {
    let program = mpi.compile("failures.c", &[]).unwrap();
    let trace_dir = fresh("trace");
    run(mpi.recorded(2, &trace_dir).arg(&program));
    let trace = read_trace(&trace_dir.join("rank-1.mpi"));
    let lines = &trace.threads[&0];
    let failed: Vec<&str> = lines
        .iter()
        .filter(|(_, fields)| fields.contains_key("e"))
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(failed, ["MPI_Recv", "MPI_Waitall", "MPI_Wait", "MPI_Waitany", "MPI_Waitsome"]);
    // Of a truncated message, the size is that of the buffer.
    assert_eq!(lines.iter().find_map(|(_, fields)| fields.get("g")).unwrap(), "0/1/10");
    let mut done: Vec<&str> = lines
        .iter()
        .filter_map(|(_, fields)| fields.get("R"))
        .flat_map(|requests| requests.split(','))
        .filter(|request| request.contains(":done"))
        .collect();
    done.sort_unstable();
    let expected = [
        "0:done:0/2/10",
        "1:done:0/3/60",
        "2:done:0/4/10",
        "3:done:0/5/10",
        "4:done:0/6/30",
        "5:done:0/7/10",
        "6:done:0/8/40",
    ];
    assert_eq!(done, expected);
    Ended::Done
}

fn the_call_that_spawns_processes_is_recorded(mpi: Mpi) -> Ended {
    let program = mpi.compile("endings.c", &["-pthread"]).unwrap();
    let trace_dir = fresh("trace");
    let bare = mpi.mpirun(1).arg(&program).args(["spawn", "0"]).output().unwrap();
    if !bare.status.success() {
        return Ended::Skipped("MPI_Comm_spawn fails without the collector, too".to_owned());
    }
    run(mpi.recorded(1, &trace_dir).arg(&program).args(["spawn", "0"]));
    let trace = read_trace(&trace_dir.join("rank-0.mpi"));
    let (_, spawn) = trace.threads[&0].iter().find(|(name, _)| name == "MPI_Comm_spawn").unwrap();
    assert_eq!((spawn["c"].as_str(), spawn["p"].as_str()), ("0", "0"));
    let counts = counts(&trace.threads[&0]);
    assert_eq!((counts["MPI_Barrier"], counts["MPI_Comm_disconnect"]), (1, 1));
    Ended::Done
}

const TESTS: &[Test] = &[
    (
        "receives_that_fail_and_those_that_arrive_with_them_are_recorded",
        receives_that_fail_and_those_that_arrive_with_them_are_recorded,
    ),
    ("the_call_that_spawns_processes_is_recorded", the_call_that_spawns_processes_is_recorded),
    (
        "a_rank_killed_at_any_moment_leaves_every_call_that_returned",
        a_rank_killed_at_any_moment_leaves_every_call_that_returned,
    ),
    ("an_aborted_run_is_recorded_up_to_the_abort", an_aborted_run_is_recorded_up_to_the_abort),
    ("exit_without_finalize_loses_nothing", exit_without_finalize_loses_nothing),
    ("a_forked_child_does_not_touch_the_file", a_forked_child_does_not_touch_the_file),
    (
        "four_threads_at_once_have_four_exact_sequences",
        four_threads_at_once_have_four_exact_sequences,
    ),
    (
        "ten_million_nonblocking_calls_take_no_more_memory_than_one_million",
        ten_million_nonblocking_calls_take_no_more_memory_than_one_million,
    ),
    (
        "on_a_full_disk_the_program_goes_on_and_the_loss_is_counted",
        on_a_full_disk_the_program_goes_on_and_the_loss_is_counted,
    ),
    (
        "below_the_file_size_limit_no_signal_ends_the_program",
        below_the_file_size_limit_no_signal_ends_the_program,
    ),
    ("without_a_directory_nothing_is_written", without_a_directory_nothing_is_written),
    (
        "a_directory_that_cannot_be_written_is_reported_once_and_the_program_runs",
        a_directory_that_cannot_be_written_is_reported_once_and_the_program_runs,
    ),
    (
        "a_second_run_into_a_directory_is_refused_and_the_first_stays",
        a_second_run_into_a_directory_is_refused_and_the_first_stays,
    ),
    (
        "a_rank_whose_file_exists_runs_unrecorded_beside_the_others",
        a_rank_whose_file_exists_runs_unrecorded_beside_the_others,
    ),
    ("regions_and_the_switch_are_recorded_in_order", regions_and_the_switch_are_recorded_in_order),
];

fn main() {
    run_tests(TESTS);
}
