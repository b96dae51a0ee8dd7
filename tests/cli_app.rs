//! `detour simulate app` and `detour goal from`: a program that was really traced, and one that is traced here.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use serde_json::Value;

/// A stencil of four ranks with regions, recorded with Open MPI.
const TRACE: &str = "fixtures/mpi/stencil";

fn detour(arguments: &[&str]) -> Result<Output, Failed> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_detour"));
    Ok(command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output()?)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn check(holds: bool, why: impl Into<String>) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(Failed::from(why.into())) }
}

fn json(arguments: &[&str]) -> Result<Value, Failed> {
    let output = detour(arguments)?;
    check(output.status.success(), said(&output))?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn simulated(more: &[&str]) -> Result<Value, Failed> {
    let line = ["--quiet", "simulate", "app", TRACE, "--net", "alps", "--runs", "5", "--json"];
    json(&[&line[..], more].concat())
}

fn number(value: &Value) -> Result<f64, Failed> {
    value.as_f64().ok_or_else(|| format!("not a number: {value}").into())
}

/// The schedule that is written out takes as long as the program, at its own size and larger.
fn the_schedule_is_the_program() -> Result<(), Failed> {
    let home = scratch("goal")?;
    for ranks in ["4", "12"] {
        let file = home.join(format!("{ranks}.goal"));
        let name = file.display().to_string();
        let line = ["goal", "from", TRACE, "--net", "alps", "--ranks", ranks, "--calc-unit", "1ps"];
        let output = detour(&[&line[..], &["-o", &name]].concat())?;
        check(output.status.success(), said(&output))?;
        let checked = json(&["goal", "check", &name, "--calc-unit", "1ps", "--json"])?;
        check(checked["valid"] == true, checked.to_string())?;
        let line =
            ["simulate", "goal", &name, "--calc-unit", "1ps", "--net", "alps", "--unit", "ps"];
        let finishes = json(&[&line[..], &["--json"]].concat())?;
        let sweep = simulated(&["--ranks", ranks])?;
        let point = &sweep["points"][0];
        let (goal, app) = (number(&finishes["max"])? / 1e6, number(&point["noiseless_us"])?);
        check((goal - app).abs() < 1e-3, format!("{goal} us written out, {app} us"))?;
        check(point["messages"] == finishes["messages"], point.to_string())?;
        check(point["median_us"] == point["noiseless_us"], point.to_string())?;
    }
    Ok(())
}

/// Collectives of all ranks grow with them, and so does what noise costs.
fn noise_costs_more_at_scale() -> Result<(), Failed> {
    let noise = ["--noise", "periodic:100Hz,200us", "--ranks", "4,64,512"];
    let sweep = simulated(&noise)?;
    let points = sweep["points"].as_array().ok_or("no points")?;
    let slowdown = points.iter().map(|point| number(&point["slowdown_median"]));
    let slowdown = slowdown.collect::<Result<Vec<_>, _>>()?;
    check(slowdown.len() == 3 && slowdown[0] < slowdown[2], format!("{slowdown:?}"))?;
    let one = simulated(&[&noise[..], &["-j", "1"]].concat())?;
    let figures = |sweep: &Value| {
        let points = sweep["points"].as_array().into_iter().flatten();
        points.map(|point| point["median_us"].to_string()).collect::<Vec<_>>()
    };
    check(figures(&one) == figures(&sweep), "the result depends on the number of threads")
}

fn shards_are_the_whole() -> Result<(), Failed> {
    let home = scratch("shards")?;
    let noise = ["--noise", "periodic:100Hz,200us", "--ranks", "4,8"];
    let whole = simulated(&noise)?;
    let mut files = Vec::new();
    for shard in ["1/2", "2/2"] {
        let file = home.join(shard.replace('/', "-")).display().to_string();
        let line = ["--quiet", "simulate", "app", TRACE, "--net", "alps", "--runs", "5"];
        let output = detour(&[&line[..], &noise, &["--shard", shard, "-o", &file]].concat())?;
        check(output.status.success(), said(&output))?;
        files.push(file);
    }
    let merged = json(&["merge", &files[0], &files[1], "--json"])?;
    for place in 0..2 {
        for key in ["median_us", "max_us", "ranks"] {
            let (one, other) = (&whole["points"][place][key], &merged["points"][place][key]);
            check(one == other, format!("{key}: {one} and {other}"))?;
        }
    }
    check(whole["identity_s"] == merged["identity_s"], merged.to_string())
}

/// The three curves of one sweep are those of three sweeps.
fn parts_are_series() -> Result<(), Failed> {
    let noise = ["--noise", "periodic:100Hz,200us", "--ranks", "4,16"];
    let all = simulated(&[&noise[..], &["--only", "all,p2p,collectives"]].concat())?;
    let points = all["points"].as_array().ok_or("no points")?;
    check(
        points.len() == 6 && all["knees"].as_array().is_some_and(|knees| knees.len() == 3),
        all.to_string(),
    )?;
    for (place, part) in ["all", "p2p", "collectives"].into_iter().enumerate() {
        let one = simulated(&[&noise[..], &["--only", part]].concat())?;
        for ranks in 0..2 {
            let (of_all, alone) = (&points[2 * place + ranks], &one["points"][ranks]);
            check(of_all["only"] == part, of_all.to_string())?;
            check(alone["only"].is_null(), alone.to_string())?;
            for key in ["ranks", "median_us", "noiseless_us", "messages"] {
                check(of_all[key] == alone[key], format!("{part}: {of_all} and {alone}"))?;
            }
        }
    }
    let home = scratch("parts")?;
    let csv = home.join("points.csv").display().to_string();
    let svg = home.join("points.svg").display().to_string();
    let line = ["--quiet", "simulate", "app", TRACE, "--runs", "5", "--only", "all,p2p"];
    let output = detour(&[&line[..], &noise, &["--csv", &csv, "--svg", &svg]].concat())?;
    check(output.status.success(), said(&output))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    check(text.contains("p2p"), text)?;
    let csv = fs::read_to_string(csv)?;
    let lines: Vec<&str> = csv.lines().collect();
    check(lines[0].ends_with(",only") && lines[4].ends_with(",\"p2p\""), csv.clone())?;
    check(fs::read_to_string(svg)?.contains("p2p"), "the figure lacks the series")
}

/// A sweep that is resumed gives the points of the first one, and more.
fn sweeps_are_resumed() -> Result<(), Failed> {
    let home = scratch("resume")?;
    let file = home.join("points").display().to_string();
    let noise = ["--noise", "periodic:100Hz,200us", "--resume", &file];
    let first = simulated(&[&noise[..], &["--ranks", "4,8"]].concat())?;
    let second = simulated(&[&noise[..], &["--ranks", "4,8,16"]].concat())?;
    for place in 0..2 {
        // A resumed point keeps the simulation speed of the run that computed it, so the whole point is equal.
        check(first["points"][place] == second["points"][place], second.to_string())?;
    }
    let fresh = simulated(&["--noise", "periodic:100Hz,200us", "--ranks", "16"])?;
    check(fresh["points"][0]["median_us"] == second["points"][2]["median_us"], second.to_string())?;
    let line = ["--quiet", "simulate", "app", TRACE, "--net", "cnl", "--runs", "5", "--resume"];
    let refused = detour(&[&line[..], &[&file]].concat())?;
    check(!refused.status.success() && said(&refused).contains("another sweep"), said(&refused))
}

/// Noise on the path by source, and how much the time depends on it.
fn sources_of_noise_have_a_slope() -> Result<(), Failed> {
    let sweep = simulated(&["--noise", "periodic:1kHz,20us", "--sensitivity", "--ranks", "16"])?;
    let of_ranks = &sweep["sensitivities"][0];
    let source = &of_ranks["noise"][0];
    let [slope, on_path, per_rank] =
        ["slope", "on_path_us", "per_rank_us"].map(|key| number(&source[key]));
    let (slope, on_path, per_rank) = (slope?, on_path?, per_rank?);
    check((slope - on_path / per_rank).abs() < 1e-9, source.to_string())?;
    check((0.0..=16.0).contains(&slope) && slope > 0.5, source.to_string())?;
    // Without noise there is none to depend on.
    let quiet = simulated(&["--sensitivity"])?;
    check(quiet["sensitivities"][0]["noise"].is_null(), quiet.to_string())
}

/// What is wrong with several traces is said.
fn traces_of_other_programs_are_refused() -> Result<(), Failed> {
    let twice = format!("{TRACE},{TRACE}");
    for command in [&["simulate", "app", &twice][..], &["goal", "from", &twice]] {
        let output = detour(command)?;
        check(!output.status.success(), "accepted")?;
        check(said(&output).contains("two traces of 4 ranks"), said(&output))?;
    }
    let output = detour(&["simulate", "app", &format!("{TRACE},nowhere")])?;
    check(!output.status.success() && said(&output).contains("nowhere"), said(&output))
}

fn effect(sweep: &Value, text: &str) -> Result<(f64, u64), Failed> {
    let list = sweep["hypotheses"].as_array().into_iter().flatten();
    let found = list.into_iter().find(|effect| effect["text"] == text).ok_or("no such effect")?;
    Ok((number(&found["gain_pct"])?, found["changed_runs"].as_u64().unwrap_or(0)))
}

fn what_changes_nothing_gains_nothing() -> Result<(), Failed> {
    let noise = ["--noise", "periodic:100Hz,200us"];
    let nothing = ["--if", "scale after MPI_Allreduce 1", "--if", "net-scale 1"];
    let sweep = simulated(&[&noise[..], &nothing].concat())?;
    for text in ["scale after MPI_Allreduce 1", "net-scale 1", "all together"] {
        let (gain, changed) = effect(&sweep, text)?;
        check(gain == 0.0 && changed == 0, format!("{text} gains {gain} %"))?;
    }
    let sweep = simulated(&["--if", "auto"])?;
    let (gain, _) = effect(&sweep, "drop MPI_Allreduce")?;
    check(gain >= 0.0, format!("{gain} %"))?;
    let list: Vec<f64> = sweep["hypotheses"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|effect| number(&effect["gain_pct"]))
        .collect::<Result<_, _>>()?;
    check(list.is_sorted_by(|a, b| a >= b) && list.len() > 3, format!("{list:?}"))
}

fn whatif_asks_the_program() -> Result<(), Failed> {
    let recording = "fixtures/two-cpus.detour";
    let line = ["--quiet", "whatif", recording, "--app", TRACE, "--ranks", "64", "--runs", "20"];
    let whatif = json(&[&line[..], &["--json"]].concat())?;
    check(whatif["ranks"] == 64, whatif["ranks"].to_string())?;
    let job = whatif["job"].as_str().unwrap_or_default();
    check(job.starts_with("the program "), job)
}

fn bad_input_is_refused() -> Result<(), Failed> {
    let cases: [(&[&str], &str); 5] = [
        (&["simulate", "app", "fixtures"], "no rank-N.mpi"),
        (&["simulate", "app", TRACE, "--ranks", "6"], "not a multiple of the 4 ranks"),
        (&["simulate", "app", TRACE, "--map", "bcast=ring"], "does not support"),
        (&["simulate", "app", TRACE, "--if", "balance nowhere"], "no region 'nowhere'"),
        (&["simulate", "app", TRACE, "--if", "drop tag 12345"], "no message with tag 12345"),
    ];
    for (line, why) in cases {
        let output = detour(line)?;
        check(!output.status.success() && said(&output).contains(why), said(&output))?;
    }
    Ok(())
}

/// The README shows what the command prints today.
fn the_readme_is_right() -> Result<(), Failed> {
    let noise = ["--noise", "fixtures/demo.detour", "--ranks", "4,64,1Ki", "--runs", "10"];
    let output = detour(&[&["--quiet", "simulate", "app", TRACE][..], &noise].concat())?;
    check(output.status.success(), said(&output))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let readme = include_str!("../README.md");
    check(
        readme.contains(&format!("```text\n{text}```")),
        format!("README.md shows another sweep:\n{text}"),
    )
}

fn scratch(name: &str) -> Result<PathBuf, Failed> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("app-{name}"));
    let _ = fs::remove_dir_all(&home);
    fs::create_dir_all(&home)?;
    Ok(home)
}

/// Steps of 2 ms of own time on one rank and 3 ms on the other, an exchange and a reduction.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>
static char out[65536], in[65536];
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
    for (int i = 0; i < 100; i++) {
        double end = own() + ((i + rank) % 2 ? 0.002 : 0.003), one = 1, sum;
        MPI_Request r[2];
        MPI_Irecv(in, sizeof in, MPI_CHAR, 1 - rank, 3, MPI_COMM_WORLD, &r[0]);
        MPI_Pcontrol(1, "work");
        while (own() < end) {}
        MPI_Pcontrol(-1, "work");
        MPI_Isend(out, i % 3 ? 100 : 20000, MPI_CHAR, 1 - rank, 3, MPI_COMM_WORLD, &r[1]);
        MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
        if (i % 2)
            MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    /* How long this thread waited for a CPU. */
    long long ran = 0, waited = 0;
    FILE *stat = fopen("/proc/thread-self/schedstat", "r");
    if (stat && fscanf(stat, "%lld %lld", &ran, &waited) == 2)
        printf("waited %lld\n", waited);
    MPI_Finalize();
    return 0;
}
"#;

/// The simulation of a program takes what its trace took. Balancing its region gains what can be computed:
/// each step of 3 ms becomes one of 2.5 ms.
fn identity(mpi: &str) -> Result<Completion, Failed> {
    let home = scratch(&format!("identity-{mpi}"))?;
    let source = home.join("steps.c");
    fs::write(&source, PROGRAM)?;
    let compiled = Command::new(format!("mpicc.{mpi}"))
        .args(["-O1", "-o"])
        .arg(home.join("steps"))
        .arg(&source)
        .output()?;
    check(compiled.status.success(), said(&compiled))?;
    let mut command = Command::new("timeout");
    command.arg("300").arg(format!("mpirun.{mpi}"));
    if mpi == "openmpi" {
        command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
    }
    command.args(["-n", "2", env!("CARGO_BIN_EXE_detour"), "mpi", "record", "-o", "run", "--"]);
    let output = command.arg(home.join("steps")).current_dir(&home).output()?;
    check(output.status.success(), said(&output))?;
    let run = home.join("run").display().to_string();
    // A network like that between processes of one node.
    let line = ["--quiet", "simulate", "app", &run, "--net", "L=500ns,o=300ns,G=0.1ns,S=4096"];
    let sweep = json(&[&line[..], &["--runs", "1", "--if", "balance work", "--json"]].concat())?;
    // A rank without its CPU does not do what the trace says it does.
    let waited = String::from_utf8_lossy(&output.stdout);
    let waited =
        waited.lines().filter_map(|line| line.strip_prefix("waited ")?.parse::<f64>().ok());
    let waited = waited.fold(0.0, f64::max) / 1e9;
    if waited > 0.005 * number(&sweep["traced_s"])? {
        let why = format!("other work took a rank's CPU for {waited:.3} s");
        return Ok(Completion::ignored_with(why));
    }
    let error = number(&sweep["identity_error_pct"])?;
    check(error.abs() < 2.0, format!("{error} % from the trace: {sweep}"))?;
    let (gain, _) = effect(&sweep, "balance work")?;
    check((12.0..19.0).contains(&gain), format!("{gain} % instead of a sixth"))?;
    Ok(Completion::Completed)
}

/// A stencil on a periodic and on an open grid, a tree and a butterfly.
const SCALED: &str = r#"
#include <mpi.h>
#include <stdlib.h>
static char out[4][4096], in[4][4096];
static void stencil(MPI_Comm grid, int bytes)
{
    for (int step = 0; step < 3; step++) {
        MPI_Request r[8];
        for (int d = 0; d < 2; d++) {
            int low, high;
            MPI_Cart_shift(grid, d, 1, &low, &high);
            MPI_Irecv(in[2 * d], bytes, MPI_CHAR, low, 2 * d, grid, &r[4 * d]);
            MPI_Irecv(in[2 * d + 1], bytes, MPI_CHAR, high, 2 * d + 1, grid, &r[4 * d + 1]);
            MPI_Isend(out[2 * d], bytes, MPI_CHAR, high, 2 * d, grid, &r[4 * d + 2]);
            MPI_Isend(out[2 * d + 1], bytes, MPI_CHAR, low, 2 * d + 1, grid, &r[4 * d + 3]);
        }
        MPI_Waitall(8, r, MPI_STATUSES_IGNORE);
        double one = 1, sum;
        MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, grid);
    }
}
int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int kind = atoi(argv[1]);
    if (kind < 2) {
        int dims[2] = {0, 0}, periods[2] = {kind, kind};
        MPI_Comm grid;
        MPI_Dims_create(ranks, 2, dims);
        MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
        stencil(grid, 3200 / ranks);
    } else if (kind == 2) {
        for (int step = 0; step < 3; step++) {
            for (int mask = 1; mask < ranks; mask *= 2) {
                if (rank & mask) {
                    MPI_Send(out, 64, MPI_CHAR, rank - mask, 5, MPI_COMM_WORLD);
                    break;
                }
                if (rank + mask < ranks)
                    MPI_Recv(in, 64, MPI_CHAR, rank + mask, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
            MPI_Bcast(out, 100, MPI_CHAR, 0, MPI_COMM_WORLD);
        }
    } else {
        for (int step = 0; step < 3; step++)
            for (int mask = 1; mask < ranks; mask *= 2)
                MPI_Sendrecv(out, 8 * mask, MPI_CHAR, rank ^ mask, 6, in, 8 * mask, MPI_CHAR, rank ^ mask, 6,
                             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
"#;

/// The messages of a schedule: rank, direction, peer and bytes of each.
fn messages(schedule: &str) -> Vec<(String, String)> {
    let mut rank = String::new();
    let mut found = Vec::new();
    for line in schedule.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["rank", number, ..] => rank = number.to_owned(),
            [_, way @ ("send" | "recv"), bytes, _, peer, ..] => {
                found.push((rank.clone(), format!("{way} {bytes} {peer}")));
            }
            _ => {}
        }
    }
    found.sort();
    found
}

/// Traced on 2 and 4 ranks, the messages at 8 and 16 are those that the program really sends.
fn sizes_held_back(mpi: &str) -> Result<Completion, Failed> {
    let home = scratch(&format!("sizes-{mpi}"))?;
    let source = home.join("scaled.c");
    fs::write(&source, SCALED)?;
    let compiled = Command::new(format!("mpicc.{mpi}"))
        .args(["-O1", "-o"])
        .arg(home.join("scaled"))
        .arg(&source)
        .output()?;
    check(compiled.status.success(), said(&compiled))?;
    for kind in ["0", "1", "2", "3"] {
        let run = |ranks: u32| home.join(format!("run-{kind}-{ranks}")).display().to_string();
        for ranks in [2, 4, 8, 16] {
            let mut command = Command::new("timeout");
            command.arg("300").arg(format!("mpirun.{mpi}"));
            if mpi == "openmpi" {
                command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
            }
            command.args(["-n", &ranks.to_string(), env!("CARGO_BIN_EXE_detour"), "mpi", "record"]);
            command.args(["-o", &run(ranks), "--"]).arg(home.join("scaled")).arg(kind);
            let output = command.current_dir(&home).output()?;
            check(output.status.success(), said(&output))?;
        }
        let both = format!("{},{}", run(2), run(4));
        for ranks in [8, 16] {
            let count = ranks.to_string();
            let found = detour(&["goal", "from", &both, "--ranks", &count])?;
            check(found.status.success(), said(&found))?;
            let traced = detour(&["goal", "from", &run(ranks)])?;
            let [found, traced] =
                [found, traced].map(|output| messages(&String::from_utf8_lossy(&output.stdout)));
            check(!traced.is_empty(), "no messages")?;
            check(found == traced, format!("program {kind}, {ranks} ranks: {found:?} {traced:?}"))?;
        }
        let line =
            ["--quiet", "simulate", "app", &both, "--ranks", "4,64", "--runs", "2", "--json"];
        let sweep = json(&line)?;
        let found = &sweep["extrapolation"]["found"];
        check(found.as_array().is_some_and(|list| !list.is_empty()), format!("{sweep}"))?;
        check(sweep["points"][1]["ranks"] == 64, format!("{sweep}"))?;
    }
    fs::remove_dir_all(&home)?;
    Ok(Completion::Completed)
}

/// Simulated without noise, a real program takes what its trace took. Each sample with a network, since it
/// is not known what that of its machine was.
const SAMPLES: [(&str, &str, f64); 2] =
    [("sweep3d-2x2.tar.xz", "cnl", 1.0), ("milc-4-ranks.tar.xz", "alps", 5.0)];

fn sample(name: &str, net: &str, limit_pct: f64) -> Result<Completion, Failed> {
    let Some(data) = std::env::var_os("DETOUR_DATA") else {
        return Ok(Completion::ignored_with("set DETOUR_DATA to the directory of mpi-samples"));
    };
    let home = scratch(name)?;
    let archive = Path::new(&data).join("mpi-samples").join(name);
    let unpacked = Command::new("tar").arg("xJf").arg(&archive).arg("-C").arg(&home).output()?;
    check(unpacked.status.success(), said(&unpacked))?;
    let inside = fs::read_dir(&home)?.next().ok_or("the archive is empty")??.path();
    let (inside, out) = (inside.display().to_string(), home.join("imported"));
    let out = out.display().to_string();
    let imported = detour(&["mpi", "import", &inside, "-o", &out])?;
    check(imported.status.success(), said(&imported))?;
    for more in [&[][..], &["--deterministic"]] {
        let line = ["--quiet", "simulate", "app", &out, "--net", net, "--runs", "1", "--json"];
        let sweep = json(&[&line[..], more].concat())?;
        let error = number(&sweep["identity_error_pct"])?;
        check(error.abs() < limit_pct, format!("{error} % from the trace"))?;
    }
    fs::remove_dir_all(&home)?;
    Ok(Completion::Completed)
}

type Test = fn() -> Result<(), Failed>;

fn main() {
    let arguments = Arguments::from_args();
    let tests: [(&str, Test); 11] = [
        ("parts_are_series", parts_are_series),
        ("sweeps_are_resumed", sweeps_are_resumed),
        ("sources_of_noise_have_a_slope", sources_of_noise_have_a_slope),
        ("traces_of_other_programs_are_refused", traces_of_other_programs_are_refused),
        ("the_schedule_is_the_program", the_schedule_is_the_program),
        ("noise_costs_more_at_scale", noise_costs_more_at_scale),
        ("shards_are_the_whole", shards_are_the_whole),
        ("what_changes_nothing_gains_nothing", what_changes_nothing_gains_nothing),
        ("whatif_asks_the_program", whatif_asks_the_program),
        ("bad_input_is_refused", bad_input_is_refused),
        ("the_readme_is_right", the_readme_is_right),
    ];
    let mut trials: Vec<Trial> =
        tests.into_iter().map(|(name, test)| Trial::test(name, test)).collect();
    for (name, net, limit) in SAMPLES {
        let trial = format!("{name}::a_program_takes_what_its_trace_took");
        trials.push(Trial::ignorable_test(trial, move || sample(name, net, limit)));
    }
    for mpi in ["openmpi", "mpich"] {
        let name = format!("{mpi}::a_program_takes_what_its_trace_took");
        trials.push(Trial::ignorable_test(name, move || {
            let compiler = Command::new(format!("mpicc.{mpi}")).arg("--version").output();
            if compiler.is_err() {
                return Ok(Completion::ignored_with(format!("mpicc.{mpi} is not installed")));
            }
            // Others may take the CPUs for a while.
            let mut ended = identity(mpi)?;
            for _ in 1..4 {
                if matches!(ended, Completion::Completed) {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_secs(2));
                ended = identity(mpi)?;
            }
            Ok(ended)
        }));
    }
    for mpi in ["openmpi", "mpich"] {
        let name = format!("{mpi}::the_messages_at_sizes_held_back_are_those_of_the_program");
        trials.push(Trial::ignorable_test(name, move || {
            let compiler = Command::new(format!("mpicc.{mpi}")).arg("--version").output();
            match compiler {
                Ok(_) => sizes_held_back(mpi),
                Err(_) => Ok(Completion::ignored_with(format!("mpicc.{mpi} is not installed"))),
            }
        }));
    }
    libtest_mimic::run(&arguments, trials).exit();
}
