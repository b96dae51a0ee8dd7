//! `detour mpi record` and what follows it with real MPIs: under a launcher and around one, and everything that can be wrong
//! before the program runs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

type Test = fn(&Mpi) -> Result<(), Failed>;

const TESTS: &[(&str, Test)] = &[
    ("every_rank_of_a_job_writes_its_trace", every_rank),
    ("a_launcher_can_be_inside", a_launcher_inside),
    ("the_report_has_the_calls_of_the_program", the_report),
    ("directories_of_nodes_are_merged_into_the_whole_run", merged),
    ("the_status_is_that_of_the_program", the_status),
    ("a_directory_with_traces_is_refused_before_the_program_runs", refused),
    ("what_is_wrong_for_all_ranks_is_said_once", not_found),
];

struct Mpi {
    name: &'static str,
    home: PathBuf,
    program: PathBuf,
}

/// Two ranks that exchange and meet; the status is the first argument on rank 0.
const PROGRAM: &str = r#"
#include <mpi.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int rank, size, got;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 100; i++)
        MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 7, &got, 1, MPI_INT,
                     (rank + size - 1) % size, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return argc > 1 && rank == 0 ? atoi(argv[1]) : 0;
}
"#;

fn detour() -> &'static str {
    env!("CARGO_BIN_EXE_detour")
}

impl Mpi {
    /// Compiles the program. None if there is no compiler; a program that it cannot compile is an error.
    fn new(name: &'static str) -> Result<Option<Mpi>, String> {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mpi-{name}"));
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(&home).map_err(|error| error.to_string())?;
        let (source, program) = (home.join("ring.c"), home.join("ring"));
        fs::write(&source, PROGRAM).map_err(|error| error.to_string())?;
        let compiler = format!("mpicc.{name}");
        let output = Command::new(&compiler).arg(&source).arg("-o").arg(&program).output();
        match output {
            Ok(output) if output.status.success() => Ok(Some(Mpi { name, home, program })),
            Ok(output) => Err(format!("{compiler}: {}", String::from_utf8_lossy(&output.stderr))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("{compiler}: {error}")),
        }
    }

    fn mpirun(&self) -> Vec<String> {
        let mut line = vec![format!("mpirun.{}", self.name)];
        if self.name == "openmpi" {
            line.extend(["--allow-run-as-root", "--oversubscribe"].map(str::to_owned));
        }
        line.extend(["-n", "2"].map(str::to_owned));
        line
    }

    fn run(&self, line: &[&str]) -> Result<Output, Failed> {
        let line: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
        let mut command = Command::new("timeout");
        Ok(command.arg("600").args(line).current_dir(&self.home).output()?)
    }

    /// Under the launcher.
    fn inside(&self, options: &[&str], program: &[&str]) -> Result<Output, Failed> {
        let mpirun = self.mpirun();
        let mut line: Vec<&str> = mpirun.iter().map(String::as_str).collect();
        line.extend([detour(), "mpi", "record"]);
        line.extend(options);
        line.push("--");
        line.extend(program);
        self.run(&line)
    }

    fn program(&self) -> &str {
        self.program.to_str().unwrap_or_default()
    }

    fn traces(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.home.join(directory)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn check(holds: bool, why: impl Into<String>) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(Failed::from(why.into())) }
}

fn every_rank(mpi: &Mpi) -> Result<(), Failed> {
    let output = mpi.inside(&["-o", "every"], &[mpi.program()])?;
    check(output.status.success(), said(&output))?;
    check(mpi.traces("every") == ["rank-0.mpi", "rank-1.mpi"], said(&output))?;
    // Said once, and nothing but the traces is left behind.
    check(said(&output).matches("wrote ").count() == 1, said(&output))
}

fn a_launcher_inside(mpi: &Mpi) -> Result<(), Failed> {
    let mpirun = mpi.mpirun();
    let mut line = vec![detour(), "mpi", "record", "-o", "around", "--"];
    line.extend(mpirun.iter().map(String::as_str));
    line.push(mpi.program());
    let output = mpi.run(&line)?;
    check(output.status.success(), said(&output))?;
    check(mpi.traces("around") == ["rank-0.mpi", "rank-1.mpi"], said(&output))
}

fn the_report(mpi: &Mpi) -> Result<(), Failed> {
    let output = mpi.inside(&["-o", "reported"], &[mpi.program()])?;
    check(output.status.success(), said(&output))?;
    let output = mpi.run(&[detour(), "mpi", "report", "reported", "--json"])?;
    check(output.status.success(), said(&output))?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    for key in ["ranks", "wall_s", "mpi_pct", "calls", "waits", "collector", "lost"] {
        check(!report[key].is_null(), format!("no {key}: {report}"))?;
    }
    for key in ["late_sender_s", "late_receiver_s", "collective_s"] {
        check(report["waits"][key].is_number(), format!("no {key}: {report}"))?;
    }
    let calls = report["calls"].as_array().cloned().unwrap_or_default();
    let exchange = calls.iter().find(|call| call["name"] == "MPI_Sendrecv");
    let exchange = exchange.ok_or("no exchanges")?;
    // 100 on each of two ranks, 4 bytes each way.
    check(exchange["count"] == 200 && exchange["bytes"] == 1600, exchange.to_string())?;
    check(report["ranks"] == 2 && report["matrix"].is_object(), report.to_string())?;
    // Without one of its ranks, only if that is wanted.
    fs::remove_file(mpi.home.join("reported/rank-1.mpi"))?;
    let refused = mpi.run(&[detour(), "mpi", "report", "reported"])?;
    check(!refused.status.success() && said(&refused).contains("rank"), said(&refused))?;
    let partial = mpi.run(&[detour(), "mpi", "report", "reported", "--partial"])?;
    check(partial.status.success(), said(&partial))
}

fn merged(mpi: &Mpi) -> Result<(), Failed> {
    let output = mpi.inside(&["-o", "whole"], &[mpi.program()])?;
    check(output.status.success(), said(&output))?;
    // As two nodes would have left it that share no file system.
    for (rank, node) in [(0, "node-a"), (1, "node-b")] {
        fs::create_dir_all(mpi.home.join(node))?;
        let name = format!("rank-{rank}.mpi");
        fs::copy(mpi.home.join("whole").join(&name), mpi.home.join(node).join(&name))?;
    }
    let report = |directory: &str| {
        let output = mpi.run(&[detour(), "mpi", "report", directory, "--json"])?;
        check(output.status.success(), said(&output)).map(|()| output.stdout)
    };
    let output = mpi.run(&[detour(), "merge", "node-a", "node-b", "-o", "merged"])?;
    check(output.status.success(), said(&output))?;
    check(said(&output).contains("2 of 2 ranks"), said(&output))?;
    check(mpi.traces("merged") == ["rank-0.mpi", "rank-1.mpi"], said(&output))?;
    check(report("whole")? == report("merged")?, "another report")?;
    // One directory alone lacks a rank, which is said.
    let output = mpi.run(&[detour(), "merge", "node-b", "-o", "half", "--json"])?;
    check(output.status.success() && said(&output).contains("missing: 0"), said(&output))?;
    let json: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    check(json["ranks"] == 2 && json["ranks_present"] == 1, json.to_string())?;
    check(json["missing"] == "0", json.to_string())?;
    // Of a merge that was killed, what it left is named, and stays.
    fs::create_dir(mpi.home.join(".merged.old-1"))?;
    let output = mpi.run(&[detour(), "merge", "node-a", "node-b", "-o", "merged", "--force"])?;
    check(output.status.success() && said(&output).contains(".merged.old-1"), said(&output))?;
    check(mpi.home.join(".merged.old-1").is_dir(), "it was deleted")?;
    for (line, why) in [
        (vec!["node-a", "node-b", "-o", "merged"], "refusing to overwrite merged"),
        (vec!["node-a", "whole", "-o", "twice-0"], "rank 0 is in node-a and in whole"),
        (vec!["node-a", "whole/rank-1.mpi", "-o", "mixed"], "merge either the directories"),
        (vec!["node-a", "node-b"], "-o DIR"),
    ] {
        let output = mpi.run(&[&[detour(), "merge"], line.as_slice()].concat())?;
        check(output.status.code() == Some(1) && said(&output).contains(why), said(&output))?;
    }
    Ok(())
}

fn the_status(mpi: &Mpi) -> Result<(), Failed> {
    let mut line = vec![detour(), "-q", "mpi", "record", "-o", "status", "--"];
    // A single process is a job, too.
    line.extend([mpi.program(), "7"]);
    let output = mpi.run(&line)?;
    check(output.status.code() == Some(7), format!("{:?}: {}", output.status, said(&output)))?;
    check(mpi.traces("status") == ["rank-0.mpi"], said(&output))
}

fn refused(mpi: &Mpi) -> Result<(), Failed> {
    for options in [["-o", "twice"], ["-o", "twice"]] {
        let output = mpi.inside(&options, &[mpi.program()])?;
        if output.status.success() {
            fs::write(mpi.home.join("twice/rank-1.mpi"), "precious")?;
            continue;
        }
        // Said once, though every rank finds its trace.
        let refusals = said(&output).matches("refusing to overwrite the trace").count();
        check(refusals == 1, said(&output))?;
        let kept = fs::read_to_string(mpi.home.join("twice/rank-1.mpi"))?;
        return check(kept == "precious", "the first trace was overwritten");
    }
    Err("the second run was not refused".into())
}

fn not_found(mpi: &Mpi) -> Result<(), Failed> {
    let output = mpi.inside(&["-o", "not-found"], &["no-such-program"])?;
    check(output.status.code() == Some(127), format!("{:?}", output.status))?;
    // Said once, though no rank finds it.
    check(said(&output).matches("command not found").count() == 1, said(&output))
}

/// Without any MPI.
fn wrong() -> Result<Completion, Failed> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mpi-wrong");
    let _ = fs::remove_dir_all(&home);
    fs::create_dir_all(&home)?;
    let run = |directory: &str, command: &[&str]| -> Result<(Option<i32>, String), Failed> {
        let mut line = Command::new(detour());
        line.args(["mpi", "record", "-o", directory, "--"]).args(command).current_dir(&home);
        let output = line.env_remove("PMI_RANK").output()?;
        Ok((output.status.code(), said(&output)))
    };
    let (code, text) = run("a", &["true"])?;
    check(code == Some(0) && text.contains("no MPI calls were recorded"), &text)?;
    check(text.contains("LD_PRELOAD") && text.contains("dlsym"), text)?;
    let (code, text) = run("a", &["no-such-program"])?;
    check(code == Some(127) && text.contains("command not found"), text)?;
    fs::write(home.join("data"), "not a program")?;
    let (code, text) = run("a", &["./data"])?;
    check(code == Some(126) && text.contains("cannot run"), text)?;
    fs::write(home.join("file"), "")?;
    let (code, text) = run("file/below", &["true"])?;
    check(code == Some(1) && text.contains("cannot write to the directory file/below"), text)?;
    // Nothing but the directory was made.
    let left: Vec<_> = fs::read_dir(home.join("a"))?.flatten().map(|entry| entry.path()).collect();
    check(left.is_empty(), format!("{left:?}"))?;
    Ok(Completion::Completed)
}

/// The job itself, in place of a launcher, says that the signal came, and exits.
const TRAP: &str = "trap 'exit 7' USR1; touch ready; for i in $(seq 1000); do sleep 0.05; done";

/// With privileges, a recorder is between this command and the job; without them, there is none.
fn signals_of_batch_systems() -> Result<Completion, Failed> {
    for options in [&[][..], &["--noise"]] {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mpi-signals");
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(&home)?;
        let mut line = Command::new(detour());
        line.args(["mpi", "record"]).args(options);
        line.args(["-o", "run", "--", "sh", "-c", TRAP]).current_dir(&home);
        let mut child = line.spawn()?;
        while !home.join("ready").exists() {
            let ended = child.try_wait()?;
            check(ended.is_none(), format!("{options:?}: ended with {ended:?}"))?;
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Command::new("kill").args(["-USR1", &child.id().to_string()]).status()?;
        let status = child.wait()?;
        check(status.code() == Some(7), format!("{options:?}: {status}"))?;
    }
    Ok(Completion::Completed)
}

/// A program that nothing can be preloaded into.
fn linked_statically() -> Result<Completion, Failed> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mpi-static");
    let _ = fs::remove_dir_all(&home);
    fs::create_dir_all(&home)?;
    fs::write(home.join("static.c"), "int main(void) { return 0; }\n")?;
    let mut compiler = Command::new("cc");
    compiler.args(["-static", "static.c", "-o", "static"]).current_dir(&home);
    if !compiler.output().is_ok_and(|output| output.status.success()) {
        return Ok(Completion::ignored_with("cc cannot link statically"));
    }
    let mut line = Command::new(detour());
    line.args(["mpi", "record", "-o", "a", "--", "./static"]).current_dir(&home);
    let output = line.output()?;
    let refused = output.status.code() == Some(1) && said(&output).contains("statically linked");
    check(refused, said(&output))?;
    Ok(Completion::Completed)
}

fn main() {
    let mut arguments = Arguments::from_args();
    // Each test is several processes that spin.
    arguments.test_threads = Some(1);
    let mut trials = vec![
        Trial::ignorable_test("what_is_wrong_is_said_before_the_program_runs", wrong),
        Trial::ignorable_test("a_statically_linked_program_is_refused", linked_statically),
        Trial::ignorable_test("signals_of_batch_systems_reach_the_job", signals_of_batch_systems),
    ];
    for name in ["openmpi", "mpich"] {
        let mpi = std::sync::Arc::new(Mpi::new(name));
        for (test, run) in TESTS {
            let mpi = std::sync::Arc::clone(&mpi);
            trials.push(Trial::ignorable_test(
                format!("{test}_with_{name}"),
                move || match &*mpi {
                    Ok(Some(mpi)) => run(mpi).map(|()| Completion::Completed),
                    Ok(None) => {
                        Ok(Completion::ignored_with(format!("mpicc.{name} is not installed")))
                    }
                    Err(why) => Err(why.into()),
                },
            ));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}
