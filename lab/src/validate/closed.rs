//! `cargo xtask validate --loop`: real programs are predicted, then run. Writes its part of `docs/truth.md`.
//!
//! Two ranks of a program, each on its CPU, with and without a daemon on the CPU of rank 1, in turns. The traces of
//! the runs with the daemon predict the time without it; those without, and a recording of the daemon alone,
//! predict the time with it. All of these runs are recorded, so that all times are on one scale: `traced_s`, from
//! `MPI_Init` to `MPI_Finalize`. Then each program is run four ways ([`Ways`]).

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{
    Validate, number,
    parts::{self, Part},
};
use crate::{
    bench::{CpuTime, page::machine},
    exec, lammps,
    workspace::Workspace,
};

/// Times a program is run with the daemon and without.
const PAIRS: usize = 10;
const FEW_PAIRS: usize = 3;
/// Times it is run each of the four ways.
const WAYS: usize = 5;
const FEW_WAYS: usize = 1;
/// How far a prediction may be off, per cent.
const OFF: f64 = 2.0;
/// A run that lost more than this to anything but the daemon is disturbed, per cent; it is repeated.
const DISTURBED: f64 = 1.0;
const ATTEMPTS: u32 = 3;
/// The daemon: 5 ms every 50 ms.
const PERIOD_US: &str = "50000";
const BURN_US: &str = "5000";
const NAME: &str = "fakemond";
const MPIRUN: &str = "mpirun.openmpi";
const COMPILER: &str = "mpicc.openmpi";

const HEAD: &str = "\
## Real programs, predicted and run

Two ranks of each program, each on its CPU, with and without a daemon on the CPU of rank 1 (5 ms every 50 ms), in turns. \
The traces of the runs with the daemon predict the time without it (`simulate app --without`); those without it, and a \
recording of the daemon alone, the time with it (`simulate app --noise`). The network is that of `detour mpi net`. Times \
are medians over the runs, from `MPI_Init` to `MPI_Finalize`, with 95 % confidence intervals. A prediction is right if \
it is off by at most 2 %, and the ratio of the measured times within the range of the predicted ones. It is not decided \
if the median is known to 2 % at best and the prediction is inside its interval: then the program takes so different \
times from run to run on this machine that nobody can tell.

";

/// A program of two ranks.
struct Job {
    name: &'static str,
    /// As a shell runs it, in the scratch directory.
    line: String,
    /// Whether it is also run with the daemon; HPCC's phases depend on their own timing.
    looped: bool,
}

impl Job {
    /// Each rank on its CPU, for a shell.
    fn pinned(&self) -> String {
        format!("exec taskset -c $OMPI_COMM_WORLD_RANK {}", self.line)
    }
}

/// One recorded run.
struct Run {
    dir: PathBuf,
    traced_s: f64,
    identity_pct: f64,
    /// What it lost to anything but the daemon and itself, and to the hypervisor, per cent.
    lost_pct: f64,
}

impl Run {
    fn is_disturbed(&self) -> bool {
        self.lost_pct > DISTURBED
    }
}

/// The same run four ways, s.
struct Ways {
    /// From launch to end, as it is and traced.
    original: f64,
    traced: f64,
    /// From `MPI_Init` to `MPI_Finalize`.
    inside: f64,
    simulated: f64,
    /// Or why it cannot be re-enacted.
    replayed: Result<f64, String>,
}

/// What was measured and predicted of one program.
struct Compared {
    name: &'static str,
    runs: usize,
    disturbed: usize,
    /// Median over the runs without the daemon.
    identity_pct: f64,
    /// Without the daemon, and with it.
    directions: Vec<Direction>,
    /// Medians over the runs.
    ways: Ways,
}

struct Direction {
    what: &'static str,
    measured_s: f64,
    /// Confidence interval of the median.
    measured_range: [f64; 2],
    predicted_s: f64,
    /// Measured and predicted time, divided by the time of the runs that were predicted from.
    measured_ratio: f64,
    predicted_ratio: [f64; 2],
}

impl Direction {
    fn off_pct(&self) -> f64 {
        100.0 * (self.predicted_s / self.measured_s - 1.0)
    }

    fn is_inside(&self) -> bool {
        let [low, high] = self.predicted_ratio;
        (low..=high).contains(&self.measured_ratio)
    }

    fn is_right(&self) -> bool {
        self.off_pct().abs() <= OFF && self.is_inside()
    }

    /// Whether the measured times are too different to tell.
    fn is_undecided(&self) -> bool {
        let [low, high] = self.measured_range;
        let uncertain = 100.0 * (high - low) / 2.0 > OFF * self.measured_s;
        uncertain && (low..=high).contains(&self.predicted_s)
    }

    fn verdict(&self) -> &'static str {
        if self.is_undecided() {
            "**not decided**"
        } else if self.is_right() {
            "right"
        } else {
            "**off**"
        }
    }
}

/// Ends the daemon when it is dropped.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    let of = |at: usize| values.get(at).copied().unwrap_or(f64::NAN);
    f64::midpoint(of(values.len().saturating_sub(1) / 2), of(values.len() / 2))
}

/// The median is between these values, with a probability of 95 % or more: so few of them would have to be on one
/// side of it otherwise.
fn median_range(values: impl IntoIterator<Item = f64>) -> [f64; 2] {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    let count = values.len();
    // Chances that 0, 1, ... values are below the median.
    let mut chance = 0.5f64.powi(count as i32);
    let (mut sum, mut left_out) = (0.0, 0);
    for below in 0..count / 2 {
        sum += chance;
        if 2.0 * sum > 0.05 {
            break;
        }
        left_out = below;
        chance *= (count - below) as f64 / (below + 1) as f64;
    }
    let of = |at: usize| values.get(at).copied().unwrap_or(f64::NAN);
    [of(left_out), of(count.saturating_sub(1 + left_out))]
}

struct Loop<'a> {
    validate: &'a Validate<'a>,
    /// The measured network.
    net: PathBuf,
}

impl Loop<'_> {
    fn detour(&self) -> Command {
        let mut command =
            exec::command(self.validate.workspace.binary("detour"), &self.validate.scratch);
        command.arg("--quiet");
        command
    }

    /// Two ranks of whatever is appended.
    fn mpirun(&self) -> Command {
        let mut command = exec::command(MPIRUN, &self.validate.scratch);
        command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"]);
        command.stdout(Stdio::null());
        command
    }

    /// A recorded run of a program.
    fn recording(&self, job: &Job, options: &[&str], dir: &Path) -> Command {
        let mut command = self.mpirun();
        command.arg(self.validate.workspace.binary("detour"));
        command.args(["--quiet", "mpi", "record"]).args(options).arg("-o").arg(dir);
        command.args(["--", "sh", "-c", &job.pinned()]);
        command
    }

    fn daemon(&self) -> Result<Daemon> {
        let workspace = self.validate.workspace;
        let mut command = exec::command(workspace.binary("loadgen"), &self.validate.scratch);
        command.args(["daemon", "--cpu", "1", "--period-us", PERIOD_US, "--burn-us", BURN_US]);
        // Beside a rank as much as beside the recorder's probe.
        command.args(["--cpu-time", "--name", NAME, "--seconds", "600"]).stdout(Stdio::null());
        let daemon = Daemon(command.spawn().context("cannot start the daemon")?);
        // It takes its name and its schedule after a period.
        std::thread::sleep(Duration::from_millis(200));
        Ok(daemon)
    }

    /// Runs a program once.
    fn once(&self, job: &Job, with: bool, dir: &Path) -> Result<Run> {
        let _ = fs::remove_dir_all(dir);
        let daemon = if with { Some(self.daemon()?) } else { None };
        let before = CpuTime::now();
        exec::run(&mut self.recording(job, &["--noise"], dir))?;
        drop(daemon);
        let stolen = before.stolen_since();
        let about = self.simulated(dir, &["--noise", "none", "--runs", "1"])?;
        let blame = exec::json(self.detour().arg("blame").arg(dir).arg("--json"))?;
        let sources = blame["path"]["sources"].as_array().into_iter().flatten();
        // The recorder, the launcher and the program itself are there in every run.
        let program = job.line.split(' ').next().and_then(|path| path.rsplit('/').next());
        let expected = [Some(NAME), Some(MPIRUN), program];
        let others = sources.filter(|row| {
            row["class"] == "thread"
                && row["own"] != true
                && !expected.contains(&row["name"].as_str())
        });
        let others_s: f64 = others.filter_map(|row| row["s"].as_f64()).sum();
        let wall_s = number(&blame, "wall_s")?;
        let lost_pct = 100.0 * (others_s / wall_s.max(1e-9) + stolen);
        let traced_s = number(&about, "traced_s")?;
        let identity_pct = number(&about, "identity_error_pct")?;
        eprintln!(
            "  {}{}: {traced_s:.3} s, identity {identity_pct:+.2} %, lost {lost_pct:.2} %",
            job.name,
            if with { " with the daemon" } else { "" },
        );
        Ok(Run { dir: dir.to_owned(), traced_s, identity_pct, lost_pct })
    }

    /// Runs a program until nothing else disturbs it, a few times at most.
    fn run(&self, job: &Job, with: bool, dir: &Path) -> Result<Run> {
        let mut run = self.once(job, with, dir)?;
        for _ in 1..ATTEMPTS {
            if !run.is_disturbed() {
                break;
            }
            run = self.once(job, with, dir)?;
        }
        Ok(run)
    }

    fn simulated(&self, dir: &Path, args: &[&str]) -> Result<Value> {
        let mut command = self.detour();
        command.args(["simulate", "app"]).arg(dir).args(args).arg("--net").arg(&self.net);
        exec::json(command.arg("--json"))
    }

    /// The predicted times of a run: median, lowest and highest.
    fn predicted(&self, dir: &Path, args: &[&str]) -> Result<[f64; 3]> {
        let all =
            self.simulated(dir, &[&["--runs", "100", "--repeat-trace"][..], args].concat())?;
        let point = &all["points"][0];
        let us = |key: &str| number(point, key).map(|us| us / 1e6);
        Ok([us("median_us")?, us("min_us")?, us("max_us")?])
    }

    fn direction(
        &self,
        what: &'static str,
        from: &[Run],
        to: &[Run],
        args: &[&str],
    ) -> Result<Direction> {
        let measured_s = median(to.iter().map(|run| run.traced_s));
        let from_s = median(from.iter().map(|run| run.traced_s));
        let mut predicted = Vec::new();
        for run in from {
            predicted.push((run.traced_s, self.predicted(&run.dir, args)?));
        }
        let least = predicted.iter().map(|(from, [_, low, _])| low / from);
        let most = predicted.iter().map(|(from, [.., high])| high / from);
        Ok(Direction {
            what,
            measured_s,
            measured_range: median_range(to.iter().map(|run| run.traced_s)),
            predicted_s: median(predicted.iter().map(|(_, [middle, ..])| *middle)),
            measured_ratio: measured_s / from_s,
            predicted_ratio: [
                least.fold(f64::INFINITY, f64::min),
                most.fold(f64::NEG_INFINITY, f64::max),
            ],
        })
    }

    /// Runs a program as it is, traced, and re-enacted, in turns.
    fn ways(&self, job: &Job, rounds: usize) -> Result<Ways> {
        let dir = |what: &str| self.validate.scratch.join(what);
        let (trace, again) = (dir("traced"), dir("replayed"));
        let (mut original, mut traced, mut inside) = (Vec::new(), Vec::new(), Vec::new());
        let (mut simulated, mut replayed) = (Vec::new(), Ok(Vec::new()));
        for _ in 0..rounds {
            for dir in [&trace, &again] {
                let _ = fs::remove_dir_all(dir);
            }
            let mut bare = self.mpirun();
            original.push(exec::timed(bare.args(["sh", "-c", &job.pinned()]))?.as_secs_f64());
            traced.push(exec::timed(&mut self.recording(job, &[], &trace))?.as_secs_f64());
            let about = self.simulated(&trace, &["--noise", "none", "--runs", "1"])?;
            inside.push(number(&about, "traced_s")?);
            simulated.push(number(&about, "identity_s")?);
            if let Ok(times) = &mut replayed {
                match self.replay(&trace, &again)? {
                    Ok(s) => times.push(s),
                    Err(reason) => replayed = Err(reason),
                }
            }
        }
        eprintln!("  {}: {original:.3?} s, traced {traced:.3?} s", job.name);
        Ok(Ways {
            original: median(original),
            traced: median(traced),
            inside: median(inside),
            simulated: median(simulated),
            replayed: replayed.map(median),
        })
    }

    /// The time of a re-enactment; the inner error is why it was refused.
    fn replay(&self, trace: &Path, into: &Path) -> Result<Result<f64, String>> {
        let line = r#"exec taskset -c $OMPI_COMM_WORLD_RANK "$0" --quiet mpi replay "$1" -o "$2""#;
        let mut command = self.mpirun();
        command.args(["sh", "-c", line]).arg(self.validate.workspace.binary("detour"));
        let output = command.args([trace, into]).output().context("cannot start mpirun")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let reason = said.lines().find_map(|line| line.strip_prefix("detour: "));
            let reason = reason.with_context(|| format!("a re-enactment failed: {said}"))?;
            return Ok(Err(reason.to_owned()));
        }
        let about = self.simulated(into, &["--noise", "none", "--runs", "1"])?;
        Ok(Ok(number(&about, "traced_s")?))
    }

    fn compare(&self, job: &Job, pairs: usize, daemon: &Path) -> Result<Compared> {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        let dir = |what: &str, pair: usize| self.validate.scratch.join(format!("{what}-{pair}"));
        for pair in 0..pairs {
            if job.looped {
                with.push(self.run(job, true, &dir("with", pair))?);
            }
            without.push(self.run(job, false, &dir("without", pair))?);
        }
        let mut directions = Vec::new();
        if job.looped {
            let args = ["--without", NAME];
            directions.push(self.direction("without the daemon", &with, &without, &args)?);
            let recorded = daemon.display().to_string();
            // What the host takes is in the traced computation already.
            let args = ["--noise", &recorded, "--without", "hypervisor"];
            directions.push(self.direction("with the daemon", &without, &with, &args)?);
        }
        let all = || with.iter().chain(&without);
        let compared = Compared {
            name: job.name,
            runs: all().count(),
            disturbed: all().filter(|run| run.is_disturbed()).count(),
            identity_pct: median(without.iter().map(|run| run.identity_pct)),
            directions,
            ways: self.ways(job, if self.validate.quick { FEW_WAYS } else { WAYS })?,
        };
        for run in all() {
            let _ = fs::remove_dir_all(&run.dir);
        }
        Ok(compared)
    }
}

/// The programs that are there, and the names of those that are not.
fn jobs(validate: &Validate) -> Result<(Vec<Job>, Vec<&'static str>)> {
    let scratch = &validate.scratch;
    let write = |name: &str, text: &str| {
        let path = scratch.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    let (mut jobs, mut missing) = (Vec::new(), Vec::new());
    write("steps.c", include_str!("steps.c"))?;
    let mut compiler = exec::command(COMPILER, scratch);
    exec::run(compiler.args(["-O1", "steps.c", "-o", "steps"]))?;
    jobs.push(Job { name: "bulk-synchronous", line: "./steps 200 10000".to_owned(), looped: true });
    if Path::new(lammps::PATH).exists() {
        write("melt", &lammps::melt(3000, 200))?;
        jobs.push(Job { name: "LAMMPS", line: "lmp -log none -in melt".to_owned(), looped: true });
    } else {
        missing.push("LAMMPS");
    }
    let example = Path::new("/usr/share/doc/hpcc/examples/_hpccinf.txt");
    if let (true, Ok(text)) = (Path::new("/usr/bin/hpcc").exists(), fs::read_to_string(example)) {
        // Two ranks, and a problem of a few seconds: of less, most is spent in tests of bandwidth, which share
        // the memory between both directions as no network of the model does.
        let changed = |line: &str| match line {
            line if line.ends_with(" Ns") => "2000 Ns".to_owned(),
            line if line.ends_with(" Ps") => "1 Ps".to_owned(),
            line if line.ends_with(" Qs") => "2 Qs".to_owned(),
            line => line.to_owned(),
        };
        write("hpccinf.txt", &text.lines().map(changed).collect::<Vec<_>>().join("\n"))?;
        jobs.push(Job { name: "HPCC", line: "hpcc".to_owned(), looped: false });
    } else {
        missing.push("HPCC");
    }
    Ok((jobs, missing))
}

/// Runs everything and writes the page; false if a prediction is off although nothing disturbed the runs.
pub fn run(workspace: &Workspace, quick: bool) -> Result<bool> {
    ensure!(exec::is_root(), "recording what the kernel takes from programs requires root");
    for tool in [MPIRUN, COMPILER] {
        let found = Command::new(tool).arg("--version").stdout(Stdio::null()).status();
        ensure!(found.is_ok(), "{tool} is not installed: install Open MPI and its compiler");
    }
    workspace.build()?;
    let scratch = workspace.target.join("validate-loop");
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
    let validate = Validate { workspace, scratch, quick };
    let (jobs, missing) = jobs(&validate)?;
    let net = validate.scratch.join("net.toml");
    let all = Loop { validate: &validate, net: net.clone() };
    eprintln!("measuring: the network between two ranks");
    let line = r#"exec taskset -c $OMPI_COMM_WORLD_RANK "$0" --quiet mpi net -o "$1""#;
    let mut command = all.mpirun();
    command.args(["sh", "-c", line]).arg(workspace.binary("detour")).arg(&net);
    exec::run(&mut command)?;
    eprintln!("recording: the daemon");
    let recording = validate.scratch.join("daemon.detour");
    let daemon = all.daemon()?;
    let length = if quick { "5s" } else { "20s" };
    exec::run(all.detour().args(["record", "-c", "0-1", "-d", length, "-o"]).arg(&recording))?;
    drop(daemon);
    let pairs = if quick { FEW_PAIRS } else { PAIRS };
    let mut results = Vec::new();
    for job in &jobs {
        eprintln!("running: {}", job.name);
        results.push(all.compare(job, pairs, &recording)?);
    }
    let _ = fs::remove_dir_all(&validate.scratch);
    let text = section(&results, &missing);
    println!("{text}");
    if !quick {
        let mut page = String::from(HEAD);
        for (key, value) in machine(workspace) {
            let _ = writeln!(page, "- {key}: {value}");
        }
        parts::write(workspace, Part::Loop, &format!("{page}\n{text}"))?;
    }
    // A run that was disturbed says nothing; one that cannot be decided is not right either.
    let quiet = |result: &&Compared| result.disturbed == 0;
    let right = |result: &Compared| {
        result.identity_pct.abs() <= OFF && result.directions.iter().all(Direction::is_right)
    };
    Ok(results.iter().filter(quiet).all(right))
}

fn section(results: &[Compared], missing: &[&str]) -> String {
    let verdict = |right: bool| if right { "right" } else { "**off**" };
    let mut text = String::from(
        "| program | runs | disturbed | simulated without a change, off by | |\n|---|---|---|---|---|\n",
    );
    for result in results {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:+.2} % | {} |",
            result.name,
            result.runs,
            result.disturbed,
            result.identity_pct,
            verdict(result.identity_pct.abs() <= OFF)
        );
    }
    text.push_str(
        "\n| program | predicted | measured time | 95 % interval | predicted time | off by | measured ratio | predicted \
         ratio | |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for result in results {
        for direction in &result.directions {
            let [low, high] = direction.predicted_ratio;
            let [least, most] = direction.measured_range;
            let _ = writeln!(
                text,
                "| {} | {} | {:.4} s | {least:.4} to {most:.4} s | {:.4} s | {:+.2} % | {:.4} | {low:.4} to {high:.4} | {} |",
                result.name,
                direction.what,
                direction.measured_s,
                direction.predicted_s,
                direction.off_pct(),
                direction.measured_ratio,
                direction.verdict()
            );
        }
    }
    let _ = write!(
        text,
        "\nThe same program four ways, without the daemon, in turns: as it is, recorded by `detour mpi record`, simulated \
         from that trace, and re-enacted by `detour mpi replay`. The first two are from launch to end, the others from \
         `MPI_Init` to `MPI_Finalize`, with deviations from the original and from the trace. Medians of {WAYS} runs each, \
         disturbed or not.\n\n\
         | program | original | traced | | traced, inside MPI | simulated | | re-enacted | |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    let off = |time: f64, from: f64| 100.0 * (time / from - 1.0);
    for Compared { name, ways, .. } in results {
        let Ways { original, traced, inside, simulated, replayed } = ways;
        let replayed = match replayed {
            Ok(time) => format!("{time:.3} s | {:+.2} %", off(*time, *inside)),
            Err(_) => "refused | ".to_owned(),
        };
        let _ = writeln!(
            text,
            "| {name} | {original:.3} s | {traced:.3} s | {:+.2} % | {inside:.3} s | {simulated:.3} s | {:+.2} % | {replayed} |",
            off(*traced, *original),
            off(*simulated, *inside),
        );
    }
    for (name, reason) in
        results.iter().filter_map(|one| Some((one.name, one.ways.replayed.as_ref().err()?)))
    {
        let _ = writeln!(text, "\n{name} is not re-enacted: {reason}.");
    }
    for name in missing {
        let _ = writeln!(text, "\n{name} is not installed here.");
    }
    let disturbed: usize = results.iter().map(|result| result.disturbed).sum();
    if disturbed > 0 {
        let _ = writeln!(
            text,
            "\n{disturbed} runs lost more than {DISTURBED} % to other work on this machine or to its \
             hypervisor, in {ATTEMPTS} attempts each; they are included."
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_is_right_within_two_per_cent_and_its_interval() {
        let right = Direction {
            what: "without the daemon",
            measured_s: 1.0,
            measured_range: [0.99, 1.01],
            predicted_s: 1.019,
            measured_ratio: 0.9,
            predicted_ratio: [0.89, 0.92],
        };
        assert!(right.is_right());
        let off = Direction { predicted_s: 0.97, ..right };
        assert!(!off.is_right());
        let outside = Direction { predicted_s: 1.0, predicted_ratio: [0.91, 0.92], ..off };
        assert!(!outside.is_right());
        assert_eq!(outside.verdict(), "**off**");
        let varied = Direction { measured_range: [0.9, 1.1], ..outside };
        assert_eq!(varied.verdict(), "**not decided**");
        let wrong = Direction { predicted_s: 0.8, ..varied };
        assert_eq!(wrong.verdict(), "**off**");
    }

    #[test]
    fn the_range_of_a_median_is_that_of_the_sign_test() {
        let range = |count: u32| median_range((1..=count).map(f64::from));
        // Of 10 values, 0 or 1 are below the median in 11 of 1024 cases.
        assert_eq!(range(10), [2.0, 9.0]);
        assert_eq!(range(6), [1.0, 6.0]);
        assert_eq!(range(20), [6.0, 15.0]);
        // Five are too few: 2 of 32 cases are more than 5 %.
        assert_eq!(range(5), [1.0, 5.0]);
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_ones() {
        assert_eq!(median([4.0, 1.0, 2.0, 8.0]), 3.0);
        assert_eq!(median([4.0, 1.0, 2.0]), 2.0);
    }
}
