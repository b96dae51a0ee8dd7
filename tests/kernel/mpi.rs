//! An MPI program and the noise of its node on one clock: every hit of a daemon is where the program
//! computed, on the rank whose CPU it was on, and the delay that the hits cause is blamed on the daemon.

use std::{
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::support::{
    Burst, Load, Needs, Scratch, Test, Trace, bursts, detour, loadgen, skip, text, undisturbed,
};

pub const TESTS: &[Test] = &[
    ("every_hit_of_a_daemon_is_where_its_rank_computed", Needs::RootAndTwoCpus, || {
        undisturbed(every_hit)
    }),
    ("a_daemon_is_blamed_for_the_delay_of_bulk_synchronous_steps", Needs::RootAndTwoCpus, || {
        undisturbed(delayed_steps)
    }),
    ("a_daemon_is_blamed_for_the_delay_of_lammps", Needs::RootAndTwoCpus, || {
        undisturbed(delayed_lammps)
    }),
];

/// Each rank on its CPU computes for 10 ms of its own time and meets the others in an allreduce; as often as the
/// first argument says.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
static double own(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}
int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(rank, &set);
    sched_setaffinity(0, sizeof set, &set);
    for (int i = 0; i < atoi(argv[1]); i++) {
        double end = own() + 0.010, one = 1, sum;
        while (own() < end) {}
        MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
"#;

/// How far the clocks of the daemon, the node's recording and the program may be apart.
const APART_NS: i64 = 1_000;

/// The program, compiled; None without a compiler.
fn compiled(scratch: &Scratch) -> Result<Option<PathBuf>> {
    let (source, program) = (scratch.file("job.c"), scratch.file("job"));
    fs::write(&source, PROGRAM)?;
    let mut compiler = Command::new(COMPILER);
    let output = compiler.arg("-O1").arg(&source).arg("-o").arg(&program).output();
    Ok(output.is_ok_and(|output| output.status.success()).then_some(program))
}

const COMPILER: &str = "mpicc.openmpi";

/// A daemon on the CPU of rank 1. It writes its log at its end.
fn daemon(period_us: &str, burn_us: &str, log: &Path) -> Result<Load> {
    let mut daemon = loadgen()?;
    daemon.args(["daemon", "--cpu", "1", "--period-us", period_us, "--burn-us", burn_us]);
    daemon.args(["--seconds", "9", "--log"]).arg(log).stdout(std::process::Stdio::null());
    Ok(Load(daemon.spawn()?))
}

/// Records a command on two ranks, with the noise of the node.
fn record(run: &Path, command: &[OsString]) -> Result<()> {
    let own = detour().get_program().to_owned();
    let output = Command::new("mpirun.openmpi")
        .args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"])
        .arg(own)
        .args(["mpi", "record", "--noise", "-o"])
        .arg(run)
        .arg("--")
        .args(command)
        .output()?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    Ok(())
}

fn every_hit() -> Result<()> {
    let scratch = Scratch::new("mpi")?;
    let Some(program) = compiled(&scratch)? else {
        return skip(format!("{COMPILER} is not installed"));
    };
    let (log, run) = (scratch.file("log"), scratch.file("run"));
    let mut daemon = daemon("20000", "1000", &log)?;
    record(&run, &[program.into(), "150".into()])?;
    daemon.0.wait()?;
    compare(&run, &log)
}

fn compare(run: &Path, log: &Path) -> Result<()> {
    let program = program::open(run)?;
    let clocks = program::clocks(&program, 1)?;
    let slot = program.slot(1).context("no rank 1")?;
    let mut calls = Vec::new();
    program::stream(&program, slot, &clocks, |moment, _| {
        if moment.end > moment.begin {
            calls.push((moment.begin, moment.end));
        }
    })?;
    ensure!(calls.len() > 150, "only {} calls", calls.len());
    let computed: Vec<(i64, i64)> = calls.windows(2).map(|two| (two[0].1, two[1].0)).collect();
    let node = fs::read_dir(run)?.flatten().map(|entry| entry.path());
    let node = node.into_iter().find(|path| path.extension() == Some("detour".as_ref()));
    let trace = Trace::read(&node.context("no recording of the node")?)?;
    let pid = program.ranks[slot].pid;
    let hits: Vec<(i64, i64)> = trace
        .records_of(pid)
        .filter(|(source, _)| source.name == "fakemond")
        .map(|(_, record)| trace.span(record))
        .map(|(from, to)| (from as i64, to as i64))
        .collect();
    let (first, last) = (computed[1].0, computed[computed.len() - 2].1);
    let bursts = bursts(log)?;
    let during = |burst: &&Burst| burst.start as i64 > first && (burst.end as i64) < last;
    let (mut count, mut inside, mut called) = (0, 0, 0);
    for burst in bursts.iter().filter(during) {
        let (start, end) = (burst.start as i64, burst.end as i64);
        let covers = |hit: &&(i64, i64)| hit.0 <= start + APART_NS && hit.1 >= end - APART_NS;
        // A burst that was preempted is in pieces.
        let touches = |hit: &&(i64, i64)| hit.0 < end && hit.1 > start;
        let hit = hits.iter().find(covers).or_else(|| hits.iter().find(touches));
        let hit = hit.with_context(|| format!("the burst at {start} is not in the recording"))?;
        count += 1;
        let within = |span: &&(i64, i64)| span.0 - APART_NS <= hit.0 && hit.1 <= span.1 + APART_NS;
        let in_call = calls.iter().any(|call| within(&call));
        inside += u32::from(computed.iter().any(|gap| within(&gap)));
        called += u32::from(in_call);
    }
    println!("{count} bursts: {inside} in intervals of computation, {called} in calls");
    // A rank that is preempted neither begins nor ends a call meanwhile.
    ensure!(inside + called == count, "{inside} and {called} of {count} bursts");
    // With other work on the machine, this rank may be the one that waits in the calls.
    let waited: i64 = calls[1..calls.len() - 1].iter().map(|call| call.1 - call.0).sum();
    if waited * 20 > last - first {
        return skip("other work on this machine made the rank wait");
    }
    if count < 40 {
        return skip(format!("the program started so late that it met only {count} bursts"));
    }
    ensure!(inside * 100 >= count * 95, "{inside} of {count} bursts where the rank computed");
    Ok(())
}

fn delayed_steps() -> Result<()> {
    let scratch = Scratch::new("blame")?;
    let Some(program) = compiled(&scratch)? else {
        return skip(format!("{COMPILER} is not installed"));
    };
    let steps = pinned(&program, " 200");
    let quiet = scratch.file("quiet");
    record(&quiet, &steps)?;
    let without = blame(&quiet)?;
    ensure!(!without.to_string().contains("fakemond"), "a daemon that did not run: {without:#}");
    let run = Delayed::record(&scratch, "bulk-synchronous", &steps)?;
    run.is_blamed_on_the_daemon(run.on_the_path_of_steps()?)
}

fn delayed_lammps() -> Result<()> {
    if !Path::new(LAMMPS).exists() {
        return skip(format!("{LAMMPS} is not installed"));
    }
    let scratch = Scratch::new("lammps")?;
    let input = scratch.file("melt");
    fs::write(&input, MELT)?;
    let melt = pinned(Path::new(LAMMPS), &format!(" -log none -in {}", input.display()));
    let run = Delayed::record(&scratch, "LAMMPS", &melt)?;
    if run.others_s > 0.05 * run.wall_s {
        return skip("other work on this machine delayed LAMMPS");
    }
    run.is_blamed_on_the_daemon(run.not_absorbed()?)
}

/// A program of which each rank is on its CPU from the beginning.
fn pinned(program: &Path, arguments: &str) -> [OsString; 3] {
    let line = format!("exec taskset -c $OMPI_COMM_WORLD_RANK {}{arguments}", program.display());
    ["sh".into(), "-c".into(), line.into()]
}

const LAMMPS: &str = "/usr/bin/lmp";

/// Melting of a Lennard-Jones crystal.
const MELT: &str = "
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 10 0 10 0 10
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo 200
run 2000
";

fn blame(run: &Path) -> Result<Value> {
    let output =
        detour().args([OsStr::new("blame"), run.as_os_str(), "--json".as_ref()]).output()?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// A run with a daemon on the CPU of rank 1, and what is blamed on it.
struct Delayed {
    name: &'static str,
    program: program::Program,
    all: program::Dependencies,
    bursts: Vec<Burst>,
    wall_s: f64,
    /// Noise on the critical path: of the daemon, and of everything else.
    daemon_s: f64,
    others_s: f64,
    /// Waiting that the daemon caused.
    waiting_s: f64,
}

impl Delayed {
    fn record(scratch: &Scratch, name: &'static str, command: &[OsString]) -> Result<Delayed> {
        let (log, run) = (scratch.file(&format!("{name}.log")), scratch.file(name));
        let mut daemon = daemon("50000", "5000", &log)?;
        record(&run, command)?;
        daemon.0.wait()?;
        let blame = blame(&run)?;
        let seconds = |value: &Value| value.as_f64().context("no number");
        let (wall_s, path) = (seconds(&blame["wall_s"])?, &blame["path"]);
        let parts = ["compute_s", "communication_s", "noise_s"].map(|part| seconds(&path[part]));
        let sum = parts.into_iter().sum::<Result<f64>>()?;
        ensure!((sum - wall_s).abs() < 0.01 * wall_s, "{sum} s of {wall_s} s");
        let program = program::open(&run)?;
        let waited = program::profile(&program, 1)?.waits.total_ns;
        ensure!(blame["waiting_ns"] == waited, "{} ns of {waited} ns", blame["waiting_ns"]);
        let of_daemon = |rows: &Value| {
            let rows = rows.as_array().into_iter().flatten();
            let rows = rows.filter(|row| row["name"] == "fakemond");
            rows.filter_map(|row| row["s"].as_f64()).sum::<f64>()
        };
        let daemon_s = of_daemon(&path["sources"]);
        println!(
            "{name}: {:.4} s of {wall_s:.4} s in communication",
            seconds(&path["communication_s"])?
        );
        Ok(Delayed {
            name,
            all: program::dependencies(&program, 1)?,
            program,
            bursts: bursts(&log)?,
            wall_s,
            daemon_s,
            others_s: seconds(&path["noise_s"])? - daemon_s,
            waiting_s: of_daemon(&blame["sources"]),
        })
    }

    /// CPU time that the daemon used in an interval, by its own log. Its bursts are interrupted themselves.
    fn used_ns(&self, from: i64, to: i64) -> f64 {
        let used = |burst: &Burst| {
            let (start, end) = (burst.start as i64, burst.end as i64);
            let inside = (to.min(end) - from.max(start)).max(0);
            inside as f64 * burst.charged as f64 / (end - start).max(1) as f64
        };
        self.bursts.iter().map(used).sum()
    }

    /// Where both ranks are between `MPI_Init` and `MPI_Finalize`. Of these two nobody knows which of their parts
    /// wait for whom: what the daemon takes there delays the program or does not.
    fn between(&self) -> Result<(i64, i64)> {
        let begin = self.program.ranks.iter().map(|rank| rank.start.ns as i64).max();
        let mut end = i64::MAX;
        for slot in 0..self.program.ranks.len() {
            self.calls(slot, &["MPI_Finalize"], |begin, _| end = end.min(begin))?;
        }
        ensure!(end < i64::MAX, "MPI_Finalize was not called");
        Ok((begin.context("no rank")?, end))
    }

    fn calls(&self, slot: usize, names: &[&str], mut take: impl FnMut(i64, i64)) -> Result<()> {
        program::stream(&self.program, slot, &self.all.clocks, |moment, _| {
            if let program::What::Call(call) = &moment.what
                && names.contains(&call.signature.call.name())
            {
                take(moment.begin, moment.end);
            }
        })?;
        Ok(())
    }

    /// What the daemon took from the critical path of a program that consists of allreduces and what is between
    /// them: from the last arrival at one to the last arrival at the next, the path is on the rank that arrives last
    /// there. Until both have left the first, rank 1 also holds up rank 0.
    fn on_the_path_of_steps(&self) -> Result<f64> {
        let mut calls: [Vec<(i64, i64)>; 2] = Default::default();
        for (slot, calls) in calls.iter_mut().enumerate() {
            let names = ["MPI_Allreduce", "MPI_Finalize"];
            self.calls(slot, &names, |begin, end| calls.push((begin, end)))?;
        }
        ensure!(calls[0].len() == calls[1].len() && calls[0].len() > 100, "calls are missing");
        let mut from = self.between()?.0;
        let mut held = from;
        let mut sum = 0.0;
        for (zero, one) in calls[0].iter().zip(&calls[1]) {
            let arrival = zero.0.max(one.0);
            sum += match one.0 > zero.0 {
                true => self.used_ns(from, arrival),
                false => self.used_ns(from, held),
            };
            (from, held) = (arrival, zero.1.min(one.1));
        }
        Ok(sum / 1e9)
    }

    /// What the daemon took while rank 1 was not waiting for rank 0: on a machine without other work, it delayed the
    /// program by that.
    fn not_absorbed(&self) -> Result<f64> {
        let (begin, end) = self.between()?;
        let own = self.all.waits.iter().filter(|wait| wait.slot == 1);
        let absorbed = own.map(|wait| self.used_ns(wait.begin.max(begin), wait.end.min(end)));
        Ok((self.used_ns(begin, end) - absorbed.sum::<f64>()) / 1e9)
    }

    /// At least 95 % of what the daemon took from the path between `MPI_Init` and `MPI_Finalize` is blamed on it, and
    /// at most 2 % more than it took, with everything that it took inside of those two.
    fn is_blamed_on_the_daemon(&self, expected_s: f64) -> Result<()> {
        let Delayed { name, wall_s, daemon_s, others_s, waiting_s, .. } = self;
        let (begin, end) = self.between()?;
        let edges =
            self.used_ns(self.all.spans[1].0, begin) + self.used_ns(end, self.all.spans[1].1);
        let edges_s = edges / 1e9;
        println!(
            "{name}, {wall_s:.3} s: the daemon took {expected_s:.4} s from the critical path and {edges_s:.4} s in \
             MPI_Init and MPI_Finalize, {daemon_s:.4} s are blamed on it, {others_s:.4} s on other noise; it is \
             blamed for {waiting_s:.4} s of waiting"
        );
        if expected_s < 0.05 {
            return skip(format!("the daemon took only {expected_s:.3} s from {name}"));
        }
        let range = 0.95 * expected_s..=1.02 * (expected_s + edges_s);
        ensure!(range.contains(daemon_s), "{name}: {daemon_s} s, expected {range:?}");
        Ok(())
    }
}
