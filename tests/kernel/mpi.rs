//! An MPI program and the noise of its node on one clock: every hit of a daemon is where the program
//! computed, on the rank whose CPU it was on.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, ensure};

use crate::support::{
    Load, Needs, Scratch, Test, Trace, bursts, detour, loadgen, skip, text, undisturbed,
};

pub const TESTS: &[Test] =
    &[("every_hit_of_a_daemon_is_where_its_rank_computed", Needs::RootAndTwoCpus, || {
        undisturbed(every_hit)
    })];

/// Each rank on its CPU computes for 10 ms of its own time and meets the others in an allreduce.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
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
    for (int i = 0; i < 150; i++) {
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

fn every_hit() -> Result<()> {
    let scratch = Scratch::new("mpi")?;
    let (source, program) = (scratch.file("job.c"), scratch.file("job"));
    fs::write(&source, PROGRAM)?;
    let compiler = "mpicc.openmpi";
    let compiled = Command::new(compiler).arg("-O1").arg(&source).arg("-o").arg(&program).output();
    if !compiled.is_ok_and(|output| output.status.success()) {
        return skip(format!("{compiler} is not installed"));
    }
    let (log, run) = (scratch.file("log"), scratch.file("run"));
    let mut daemon = Load(
        loadgen()?
            .args(["daemon", "--cpu", "1", "--period-us", "20000", "--burn-us", "1000"])
            .args(["--seconds", "9", "--log"])
            .arg(&log)
            .stdout(std::process::Stdio::null())
            .spawn()?,
    );
    let own = detour().get_program().to_owned();
    let output = Command::new("mpirun.openmpi")
        .args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"])
        .arg(own)
        .args(["mpi", "record", "--noise", "-o"])
        .arg(&run)
        .arg("--")
        .arg(&program)
        .output()?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
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
    let during =
        |burst: &&crate::support::Burst| burst.start as i64 > first && (burst.end as i64) < last;
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
