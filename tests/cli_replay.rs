//! `detour mpi replay` and `detour diff` of two runs, with every MPI that is installed: the experiment of Böhme et
//! al. ("Performance Simulation of Non-blocking Communication", Figure 4 and Tables 1 and 2), requests that complete in
//! another order, a program that uses most of MPI, and everything that is refused.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use serde_json::Value;

type Test = fn(&Mpi) -> Result<Completion, Failed>;

const TESTS: &[(&str, Test)] = &[
    ("the_experiment_of_the_paper", experiment),
    ("a_real_program_takes_as_long_traced_simulated_and_replayed", four_ways),
    ("requests_complete_in_the_order_of_the_replay_or_of_the_trace", order),
    ("what_is_replayed_is_what_was_traced", mixed),
    ("replaying_a_call_costs_less_than_a_microsecond", cost),
    ("what_cannot_be_replayed_is_refused_before_a_rank_starts", refused),
    ("a_change_under_which_ranks_wait_for_each_other_is_refused", circle),
];

const DONE: Result<Completion, Failed> = Ok(Completion::Completed);

struct Mpi {
    name: &'static str,
    home: PathBuf,
}

/// Runs a command before all others on its CPU.
const FIRST: [&str; 3] = ["chrt", "-r", "5"];

fn may_be_first() -> bool {
    let [command, args @ ..] = FIRST;
    let tried = Command::new(command).args(args).arg("true").output();
    tried.is_ok_and(|output| output.status.success())
}

fn detour() -> &'static str {
    env!("CARGO_BIN_EXE_detour")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn check(holds: bool, why: impl Into<String>) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(Failed::from(why.into())) }
}

fn number(value: &Value) -> Result<f64, Failed> {
    value.as_f64().ok_or_else(|| format!("not a number: {value}").into())
}

impl Mpi {
    fn new(name: &'static str) -> Option<Mpi> {
        let there = |command: String| {
            Command::new(command)
                .arg("--version")
                .output()
                .is_ok_and(|output| output.status.success())
        };
        if !there(format!("mpirun.{name}")) || !there(format!("mpicc.{name}")) {
            return None;
        }
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("replay-{name}"));
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(&home).ok()?;
        Some(Mpi { name, home })
    }

    fn compile(&self, program: &str) -> Result<PathBuf, Failed> {
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{program}.c"));
        let made = self.home.join(program);
        let mut compiler = Command::new(format!("mpicc.{}", self.name));
        let output = compiler.args(["-w", "-O1"]).arg(source).arg("-o").arg(&made).output()?;
        check(output.status.success(), said(&output))?;
        Ok(made)
    }

    fn mpirun(&self, ranks: u32) -> Command {
        let mut command = Command::new("timeout");
        command.arg("120").arg(format!("mpirun.{}", self.name));
        if self.name == "openmpi" {
            command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
            command.args(["--mca", "mpi_yield_when_idle", "1"]);
        }
        command.args(["-n", &ranks.to_string()]);
        // Ranks that yield while they wait can run before everything else, if that is allowed.
        if self.name == "openmpi" && may_be_first() {
            command.args(FIRST);
        }
        command
    }

    /// A directory that does not exist.
    fn fresh(&self, name: &str) -> String {
        let path = self.home.join(name);
        let _ = fs::remove_dir_all(&path);
        path.display().to_string()
    }

    fn record(
        &self,
        ranks: u32,
        dir: &str,
        program: &Path,
        args: &[&str],
    ) -> Result<Output, Failed> {
        let mut command = self.mpirun(ranks);
        command
            .args([detour(), "--quiet", "mpi", "record", "-o", dir, "--"])
            .arg(program)
            .args(args);
        let output = command.output()?;
        check(output.status.success(), said(&output))?;
        Ok(output)
    }

    /// The deviation of a re-enactment.
    fn replay(&self, ranks: u32, dir: &str, out: &str, more: &[&str]) -> Result<Value, Failed> {
        let mut command = self.mpirun(ranks);
        command.args([detour(), "--quiet", "mpi", "replay", dir, "-o", out, "--json"]).args(more);
        let output = command.output()?;
        check(output.status.success(), said(&output))?;
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

fn json(arguments: &[&str]) -> Result<Value, Failed> {
    let output = Command::new(detour()).args(arguments).output()?;
    check(output.status.success(), said(&output))?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// CPU time in ticks: of all processes, and of those that this one has waited for.
fn busy() -> Option<[u64; 2]> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let all: Vec<u64> = stat
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    // User, nice, system, interrupts and steal; not idle and waiting for disks.
    let all: u64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|at| all.get(*at)).sum();
    let own = fs::read_to_string("/proc/self/stat").ok()?;
    let own = own.rsplit(')').next()?.split_whitespace().skip(11).take(4);
    Some([all, own.filter_map(|word| word.parse::<u64>().ok()).sum()])
}

/// How the message of a figure begins that is not what it should be.
const OFF: &str = "off: ";
const ATTEMPTS: usize = 6;
/// Other processes may take this share of one CPU from a measurement.
const OTHERS: f64 = 0.03;

/// Measurements that must not be disturbed: one of several attempts must succeed. If none does, the test is skipped by
/// name where other processes took CPU time, or where ranks that spin have no CPU of their own.
fn undisturbed(mpi: &Mpi, test: impl Fn() -> Result<(), Failed>) -> Result<Completion, Failed> {
    let mut why = String::new();
    let mut disturbed = 0;
    for _ in 0..ATTEMPTS {
        let (before, begin) = (busy(), std::time::Instant::now());
        match test() {
            Ok(()) => return DONE,
            Err(failed) => why = failed.message().unwrap_or_default().to_owned(),
        }
        // Only figures are disturbed.
        if !why.starts_with(OFF) {
            return Err(why.into());
        }
        let (Some(before), Some(after)) = (before, busy()) else { continue };
        let others = (after[0] - before[0]).saturating_sub(after[1] - before[1]);
        let ticks = begin.elapsed().as_secs_f64() * 100.0;
        disturbed += usize::from(others as f64 > OTHERS * ticks);
    }
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    if mpi.name == "mpich" && cpus < 4 {
        return Ok(Completion::ignored_with(format!(
            "MPICH spins with 4 ranks on {cpus} CPUs: {why}"
        )));
    }
    match disturbed == ATTEMPTS {
        true => Ok(Completion::ignored_with(format!("other processes took CPU time: {why}"))),
        false => Err(why.into()),
    }
}

/// Figure 4 and Table 2: with and without balance, simulated and replayed, with choices and without.
fn experiment(mpi: &Mpi) -> Result<Completion, Failed> {
    let program = mpi.compile("waitany")?;
    undisturbed(mpi, || {
        let run = |name: &str| {
            let dir = mpi.fresh(name);
            mpi.record(4, &dir, &program, &["12", "3000", name])?;
            Ok::<String, Failed>(dir)
        };
        let (original, balanced) = (run("original")?, run("balanced")?);
        let real = json(&["diff", &original, &balanced, "--json"])?;
        let time = number(&real["after"]["time_s"])?;
        let mut table = Vec::new();
        let mut row = |what: &str, off_pct: f64, most: [f64; 2]| {
            table.push(format!("{what} {off_pct:+.2} %"));
            let as_expected = most[0] <= off_pct && off_pct <= most[1];
            check(as_expected, format!("{OFF}{}", table.join(", ")))
        };
        // The network matters little; that of one node is fast.
        let simulate = |more: &[&str]| {
            let line = ["--quiet", "simulate", "app", &original, "--runs", "1", "--json"];
            json(&[&line[..], more].concat())
        };
        let replay = |more: &[&str]| {
            let out = mpi.fresh("replayed");
            mpi.replay(4, &original, &out, &[&["--sleep"][..], more].concat())
        };
        row("identity simulated", number(&simulate(&[])?["identity_error_pct"])?, [-0.5, 0.5])?;
        row("replayed", number(&replay(&[])?["change_pct"])?, [-0.5, 0.5])?;
        let balance = ["--if", "balance foo"];
        let deterministic = ["--if", "balance foo", "--deterministic"];
        let off = |s: f64| 100.0 * (s / time - 1.0);
        for (name, more, most) in [
            ("balanced", &balance[..], [-1.0, 1.0]),
            ("deterministic", &deterministic[..], [4.0, 15.0]),
        ] {
            let simulated = number(&simulate(more)?["hypotheses"][0]["median_us"])? / 1e6;
            row(&format!("{name} simulated"), off(simulated), most)?;
            let replayed = number(&replay(more)?["after"]["time_s"])?;
            row(&format!("{name} replayed"), off(replayed), most)?;
        }
        println!(
            "{}: original {}, balanced {time:.4} s: {}",
            mpi.name,
            real["before"]["time_s"],
            table.join(", ")
        );
        Ok(())
    })
}

/// The time that LAMMPS prints for its steps, s.
fn loop_time(output: &Output) -> Result<f64, Failed> {
    let text = String::from_utf8_lossy(&output.stdout);
    let time = text.lines().find_map(|line| line.strip_prefix("Loop time of "));
    let time = time.and_then(|rest| rest.split(' ').next()).ok_or("LAMMPS prints no time")?;
    Ok(time.parse()?)
}

/// Table 1 of the same paper in form: the original program without a trace, traced, simulated, and replayed. `cargo
/// xtask validate --loop` has the same of several programs and runs.
fn four_ways(mpi: &Mpi) -> Result<Completion, Failed> {
    const RANKS: u32 = 2;
    if mpi.name != "openmpi" || !Path::new("/usr/bin/lmp").exists() {
        return Ok(Completion::ignored_with("LAMMPS is not installed for this MPI"));
    }
    let input = concat!(env!("CARGO_MANIFEST_DIR"), "/mpi-recorder/tests/inputs/melt.lmp");
    let args = ["-log", "none", "-in", input];
    undisturbed(mpi, || {
        let bare = mpi.mpirun(RANKS).arg("lmp").args(args).output()?;
        check(bare.status.success(), said(&bare))?;
        let (dir, out) = (mpi.fresh("lammps-trace"), mpi.fresh("lammps-replayed"));
        let traced = mpi.record(RANKS, &dir, Path::new("lmp"), &args)?;
        let [original_s, traced_s] = [loop_time(&bare)?, loop_time(&traced)?];
        let simulated = json(&[
            "--quiet", "simulate", "app", &dir, "--noise", "none", "--runs", "1", "--json",
        ])?;
        let replayed = mpi.replay(RANKS, &dir, &out, &[])?;
        // From MPI_Init to MPI_Finalize, and from the first step to the last.
        let whole_s = number(&simulated["traced_s"])?;
        let rows = [
            ("traced", traced_s, 100.0 * (traced_s / original_s - 1.0), 10.0),
            (
                "simulated",
                number(&simulated["identity_s"])?,
                number(&simulated["identity_error_pct"])?,
                4.0,
            ),
            (
                "replayed",
                number(&replayed["after"]["time_s"])?,
                number(&replayed["change_pct"])?,
                10.0,
            ),
        ];
        println!("LAMMPS: original {original_s:.3} s (steps), traced {whole_s:.3} s (all)");
        for (name, time_s, off_pct, _) in rows {
            println!("  {name:<10} {time_s:.3} s {off_pct:+.2} %");
        }
        for (name, _, off_pct, most) in rows {
            check(off_pct.abs() <= most, format!("{OFF}{name} {off_pct:+.2} %"))?;
        }
        Ok(())
    })
}

/// The senders of the messages that rank 0 receives with requests, in the order in which these complete.
fn senders(dir: &str) -> Result<Vec<i32>, Failed> {
    let program = program::open(Path::new(dir))?;
    let clocks = program::Clocks::measured(&program);
    let (mut posted, mut senders) = (HashMap::new(), Vec::new());
    program::stream(&program, 0, &clocks, |moment, arena| {
        let program::What::Call(call) = &moment.what else { return };
        if let Some(id) = call.begun {
            posted.insert(id, call.signature.peer);
        }
        for run in arena.requests(call.requests) {
            if format!("{:?}", run.outcome) == "Completed" {
                let ids = run.first..run.first + u64::from(run.count);
                senders.extend(ids.filter_map(|id| posted.get(&id)));
            }
        }
    })?;
    Ok(senders)
}

/// `MPI_Waitany`, `MPI_Waitsome`, `MPI_Testany`, `MPI_Testsome`, a cancelled request, persistent requests (twice) and
/// `MPI_Test`: changes under which the messages come in another order, and changes under which they do not.
fn order(mpi: &Mpi) -> Result<Completion, Failed> {
    const UNIT_MS: &str = "20";
    let as_traced = [1, 2].repeat(8);
    let reversed = [2, 1].repeat(8);
    let program = mpi.compile("order")?;
    undisturbed(mpi, || {
        let dir = mpi.fresh("order-trace");
        mpi.record(3, &dir, &program, &[UNIT_MS])?;
        let found = senders(&dir)?;
        check(found == as_traced, format!("{OFF}the program: {found:?}"))?;
        let little = ["--if", "scale first 1.3", "--if", "scale late 0.9"];
        let much = ["--if", "scale first 3", "--if", "scale late 0.5"];
        for (name, change, more, expected) in [
            ("unchanged", &[][..], &[][..], &as_traced),
            ("little changed", &little[..], &[][..], &as_traced),
            ("changed", &much[..], &[][..], &reversed),
            ("changed, in the order of the trace", &much[..], &["--deterministic"][..], &as_traced),
        ] {
            let out = mpi.fresh("order-replayed");
            mpi.replay(3, &dir, &out, &[&["--sleep"][..], change, more].concat())?;
            let found = senders(&out)?;
            check(found == *expected, format!("{OFF}{name}: {found:?}"))?;
        }
        Ok(())
    })
}

/// Every message and every collective of a program is there again, with its bytes.
fn mixed(mpi: &Mpi) -> Result<Completion, Failed> {
    let program = mpi.compile("mixed")?;
    let (dir, out) = (mpi.fresh("mixed-trace"), mpi.fresh("mixed-replayed"));
    mpi.record(4, &dir, &program, &["5"])?;
    let again = mpi.replay(4, &dir, &out, &["--sleep"])?;
    for key in ["messages", "message_bytes"] {
        check(again["before"][key] == again["after"][key], format!("{key}: {again}"))?;
    }
    let calls = again["calls"].as_array().ok_or("no calls")?;
    // Those that are replayed by others, and those that depend on timing.
    let others = [
        "MPI_Probe",
        "MPI_Start",
        "MPI_Startall",
        "MPI_Send_init",
        "MPI_Recv_init",
        "MPI_Isend",
        "MPI_Irecv",
        "MPI_Request_free",
        "MPI_Cancel",
        "MPI_Wait",
        "MPI_Waitany",
        "MPI_Waitsome",
        "MPI_Waitall",
        "MPI_Test",
        "MPI_Testany",
        "MPI_Testsome",
        "MPI_Testall",
        "MPI_Comm_split",
        "MPI_Comm_dup",
        "MPI_Cart_create",
        "MPI_Comm_free",
        "MPI_Allgather",
        "MPI_Allgatherv",
        "MPI_Alltoallv",
        "MPI_Neighbor_alltoall",
    ];
    let kept =
        calls.iter().filter(|call| !others.contains(&call["name"].as_str().unwrap_or_default()));
    let kept: Vec<&Value> = kept.collect();
    check(kept.len() >= 14, format!("only {} kinds of calls", kept.len()))?;
    for call in kept {
        check(call["count"]["before"] == call["count"]["after"], call.to_string())?;
    }
    let counted = |names: &[&str], side: &str| -> u64 {
        let of =
            calls.iter().filter(|call| names.contains(&call["name"].as_str().unwrap_or_default()));
        of.filter_map(|call| call["count"][side].as_u64()).sum()
    };
    for names in [
        &["MPI_Alltoallv", "MPI_Neighbor_alltoall"][..],
        &["MPI_Allgather", "MPI_Allgatherv"][..],
        &["MPI_Comm_split", "MPI_Comm_dup", "MPI_Cart_create"][..],
    ] {
        check(counted(names, "before") == counted(names, "after"), format!("{names:?}: {again}"))?;
    }
    // The re-enactment is a program like any other.
    let third = mpi.fresh("mixed-third");
    let third = mpi.replay(4, &out, &third, &["--sleep", "--deterministic"])?;
    check(third["before"]["messages"] == third["after"]["messages"], third.to_string())?;
    for region in ["messages", "choices", "collectives"] {
        let rows = third["regions"].as_array().ok_or("no regions")?;
        let found = rows.iter().find(|row| row["path"][0] == region);
        check(found.is_some_and(|row| row["count"]["after"] == 20), format!("{region}: {third}"))?;
    }
    DONE
}

/// A rank that sends to itself, as often as it can.
fn cost(mpi: &Mpi) -> Result<Completion, Failed> {
    let program = mpi.compile("many")?;
    undisturbed(mpi, || {
        let (dir, out) = (mpi.fresh("many-trace"), mpi.fresh("many-replayed"));
        mpi.record(1, &dir, &program, &["100000"])?;
        let again = mpi.replay(1, &dir, &out, &[])?;
        let time = |side: &str| number(&again[side]["time_s"]);
        let calls = number(&again["after"]["calls"])?;
        check(calls >= 300_000.0, format!("only {calls} calls"))?;
        let ns = 1e9 * (time("after")? - time("before")?) / calls;
        println!("{}: {ns:.0} ns a call", mpi.name);
        check(ns < 1_000.0, format!("{OFF}{ns:.0} ns a call"))
    })
}

fn refused(mpi: &Mpi) -> Result<Completion, Failed> {
    let program = mpi.compile("waitany")?;
    let dir = mpi.fresh("refused-trace");
    mpi.record(4, &dir, &program, &["1", "100", "original"])?;
    let attempt = |ranks: u32, more: &[&str]| {
        let out = mpi.fresh("refused");
        let mut command = mpi.mpirun(ranks);
        command.args([detour(), "mpi", "replay", &dir, "-o", &out]).args(more);
        let output = command.output()?;
        check(!output.status.success(), "it was not refused")?;
        check(!Path::new(&out).join("rank-0.mpi").exists(), "something was recorded")?;
        Ok::<String, Failed>(said(&output))
    };
    for (more, why) in [
        (["--if", "net-scale 10"], "replay uses the real network"),
        (["--if", "map allreduce=ring"], "the MPI library chooses"),
        (["--if", "without fakemond"], "replay runs under the real noise"),
        (["--if", "auto"], "specify one change"),
        (["--if", "balance nothing"], "no region 'nothing'"),
    ] {
        let said = attempt(4, &more)?;
        check(said.contains(why), said.clone())?;
        check(said.matches(why).count() == 1, format!("said more than once: {said}"))?;
    }
    let said = attempt(2, &[])?;
    check(said.contains("a trace of 4 ranks, this job has 2"), said)?;
    DONE
}

/// Both ranks send before they receive, which ends as long as the messages are buffered.
fn circle(mpi: &Mpi) -> Result<Completion, Failed> {
    let program = mpi.compile("swap")?;
    let (dir, out) = (mpi.fresh("circle-trace"), mpi.fresh("circle"));
    mpi.record(2, &dir, &program, &[])?;
    let mut command = mpi.mpirun(2);
    command.args([detour(), "mpi", "replay", &dir, "-o", &out, "--if", "resize tag 17 10000"]);
    let output = command.output()?;
    let said = said(&output);
    check(!output.status.success(), "it was not refused")?;
    let circle = "rank 0: MPI_Send number 1 (to rank 1, tag 17, 1000000 bytes) waits until it is received by \
                  rank 1: MPI_Recv number 1 (from rank 0, tag 17, 1000000 bytes)";
    check(said.contains(circle), said.clone())?;
    check(!Path::new(&out).join("rank-0.mpi").exists(), "something was recorded")?;
    mpi.replay(2, &dir, &out, &["--if", "resize tag 17 0.5"])?;
    DONE
}

fn main() {
    let mut arguments = Arguments::from_args();
    // Each test is several processes that spin.
    arguments.test_threads = Some(1);
    let mut trials = Vec::new();
    for name in ["openmpi", "mpich"] {
        for &(test, run) in TESTS {
            trials.push(Trial::ignorable_test(
                format!("{test}_with_{name}"),
                move || match Mpi::new(name) {
                    Some(mpi) => run(&mpi),
                    None => Ok(Completion::ignored_with(format!(
                        "mpirun.{name} or mpicc.{name} is not installed"
                    ))),
                },
            ));
        }
    }
    libtest_mimic::run(&arguments, trials).exit()
}
