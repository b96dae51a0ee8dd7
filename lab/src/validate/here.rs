//! Collectives really run on this machine, beside what is predicted from its own measurements: the network by
//! `detour mpi net` and `detour mpi latency`, the noise by `detour record`, with and without a daemon.
//!
//! Two ranks on two cores, pinned. For each MPI and operation, L is fitted to the median without the daemon; the
//! rest are predictions. Each measured figure is an interval: the least and the largest of several launches, since
//! no two launches place their memory alike. What other processes and the host take meanwhile is counted; if it is
//! more than a little, nothing is judged.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};

use super::{
    Validate,
    measured::{quantile, sorted},
};
use crate::exec;

/// Prints the times of a collective.
const PROGRAM: &str = include_str!("collectives.c");
const LAUNCHES: u64 = 8;
const ITERATIONS: u64 = 20_000;
/// A daemon that a few percent of the iterations meet.
const DAEMON: [&str; 4] = ["--period-us", "500", "--burn-us", "30"];
/// With more than this share of the CPUs' time taken by others, nothing is judged.
const OTHERS_PCT: f64 = 2.0;
const STEPS: u32 = 14;

struct Mpi {
    name: &'static str,
    compiler: &'static str,
    launcher: &'static [&'static str],
}

const MPIS: [Mpi; 2] = [
    Mpi {
        name: "Open MPI",
        compiler: "mpicc.openmpi",
        launcher: &["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "core", "-n", "2"],
    },
    Mpi {
        name: "MPICH",
        compiler: "mpicc.mpich",
        launcher: &["mpirun.mpich", "-bind-to", "core", "-n", "2"],
    },
];

/// A daemon on the first CPU, ended when dropped.
struct Daemon(Child);

impl Daemon {
    fn start(validate: &Validate) -> Result<Daemon> {
        let mut command = exec::command(validate.workspace.binary("loadgen"), &validate.scratch);
        command.args(["daemon", "--cpu", "0", "--seconds", "600"]).args(DAEMON);
        let child = command.stdout(Stdio::null()).spawn().context("cannot start loadgen")?;
        Ok(Daemon(child))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Median and 99th percentile.
type Figures = [f64; 2];

struct Row {
    what: String,
    /// The least and the largest of the launches.
    measured: [Figures; 2],
    predicted: Figures,
    /// Its median is the one L is fitted to.
    fitted: bool,
}

impl Row {
    fn inside(&self, figure: usize) -> bool {
        let [least, most] = self.measured;
        (least[figure]..=most[figure]).contains(&self.predicted[figure])
    }

    fn is_right(&self) -> bool {
        (self.fitted || self.inside(0)) && self.inside(1)
    }
}

/// What others took meanwhile, in percent of the CPUs' time.
struct Others {
    begin: Instant,
    before: (f64, f64),
}

impl Others {
    fn start() -> Result<Others> {
        Ok(Others { begin: Instant::now(), before: times()? })
    }

    fn pct(&self) -> Result<f64> {
        let (busy, own) = times()?;
        let cpus = std::thread::available_parallelism()?.get() as f64;
        let others = (busy - self.before.0) - (own - self.before.1);
        Ok((100.0 * others / (cpus * self.begin.elapsed().as_secs_f64())).max(0.0))
    }
}

/// CPU time of the machine, with what the host took, and of this process and what it waited for, s.
fn times() -> Result<(f64, f64)> {
    /// Of /proc, on every Linux.
    const TICKS_PER_S: f64 = 100.0;
    let read = |path: &str| fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
    let machine = read("/proc/stat")?;
    let all = machine.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let all: Vec<f64> = all.filter_map(|word| word.parse().ok()).collect();
    ensure!(all.len() >= 8, "/proc/stat has no times of the CPUs");
    // user nice system idle iowait irq softirq steal
    let busy: f64 =
        all[..8].iter().enumerate().filter(|(i, _)| !(3..5).contains(i)).map(|t| t.1).sum();
    let own = read("/proc/self/stat")?;
    let own = own.rsplit(')').next().unwrap_or_default().split_whitespace();
    // utime stime cutime cstime
    let own: f64 = own.skip(11).take(4).filter_map(|word| word.parse::<f64>().ok()).sum();
    Ok((busy / TICKS_PER_S, own / TICKS_PER_S))
}

/// The section of the page. Says what is missing if it cannot be measured here.
pub fn section(validate: &Validate) -> Result<String> {
    let mut text = "## This machine\n\nTwo ranks on two cores, pinned; times of the slowest rank after a barrier. Measured are the least \
         and the largest of several launches; a prediction is right if it lies between them. L is fitted to the \
         median without the daemon, per MPI and operation.\n\n"
        .to_owned();
    let cpus = std::thread::available_parallelism()?.get();
    if cpus < 2 || !exec::is_root() {
        text.push_str("Not measured: this requires two CPUs and root.\n\n");
        return Ok(text);
    }
    for mpi in MPIS {
        let installed = [mpi.compiler, mpi.launcher[0]].into_iter().find(|name| !has(name));
        if let Some(missing) = installed {
            let _ =
                writeln!(text, "{}: not measured, because {missing} is not installed.\n", mpi.name);
            continue;
        }
        eprintln!("comparing: {} on this machine", mpi.name);
        text.push_str(&of_mpi(validate, &mpi)?);
    }
    Ok(text)
}

fn of_mpi(validate: &Validate, mpi: &Mpi) -> Result<String> {
    let others = Others::start()?;
    let here = Here::new(validate, mpi)?;
    let mut rows = Vec::new();
    let quiet = here.noise("quiet")?;
    let measured: Vec<_> = OPS.iter().map(|op| here.measured(op)).collect::<Result<_>>()?;
    let mut latencies = Vec::new();
    for (op, times) in OPS.into_iter().zip(measured) {
        let latency = here.fitted(op, &quiet, &times)?;
        rows.push(here.row(op.to_owned(), op, &quiet, latency, &times, true)?);
        latencies.push(latency);
    }
    let daemon = Daemon::start(validate)?;
    let noise = here.noise("daemon")?;
    let measured: Vec<_> = OPS.iter().map(|op| here.measured(op)).collect::<Result<_>>()?;
    drop(daemon);
    for ((op, times), latency) in OPS.into_iter().zip(measured).zip(latencies) {
        let what = format!("{op} beside a daemon");
        rows.push(here.row(what, op, &noise, latency, &times, false)?);
    }
    Ok(table(mpi.name, &rows, others.pct()?))
}

const OPS: [&str; 2] = ["barrier", "allreduce"];

/// The launches of an operation: median and p99 of each, us.
type Launches = Vec<Figures>;

struct Here<'a> {
    validate: &'a Validate<'a>,
    mpi: &'a Mpi,
    program: PathBuf,
    latencies: PathBuf,
    /// `os=...,or=...` of this network.
    overheads: String,
}

impl<'a> Here<'a> {
    fn new(validate: &'a Validate<'a>, mpi: &'a Mpi) -> Result<Here<'a>> {
        let file = |name: &str| validate.scratch.join(name);
        let (source, program) = (file("collectives.c"), file("collectives"));
        fs::write(&source, PROGRAM).context("cannot write the program")?;
        let mut compiler = exec::command(mpi.compiler, &validate.scratch);
        exec::run(compiler.arg("-O2").arg(&source).arg("-o").arg(&program))?;
        let (latencies, net) = (file("latencies.json"), file("net.toml"));
        let mut here =
            Here { validate, mpi, program, latencies: latencies.clone(), overheads: String::new() };
        let detour = validate.workspace.binary("detour");
        let size = ["mpi", "latency", "--size", "8B", "--cycles", "100", "--json", "-o"];
        exec::json(here.launched(&detour).args(size).arg(&latencies))?;
        let args = ["mpi", "net", "-d", "5s", "--json", "-o"];
        let found = exec::json(here.launched(&detour).args(args).arg(&net))?;
        let [os, or] = ["os_us", "or_us"].map(|key| found[key].as_f64());
        let (Some(os), Some(or)) = (os, or) else { bail!("`detour mpi net` found no overheads") };
        here.overheads = format!("os={os}us,or={or}us");
        Ok(here)
    }

    fn launched(&self, program: &Path) -> Command {
        let mut command = exec::command(self.mpi.launcher[0], &self.validate.scratch);
        command.args(&self.mpi.launcher[1..]).arg(program);
        command
    }

    /// A recording of this machine, as it is while nothing is launched.
    fn noise(&self, name: &str) -> Result<PathBuf> {
        let path = self.validate.scratch.join(format!("{name}.detour"));
        let _ = fs::remove_file(&path);
        let mut record =
            exec::command(self.validate.workspace.binary("detour"), &self.validate.scratch);
        record.args(["--quiet", "record", "-d", "5s", "-o"]).arg(&path);
        exec::run(record.stdout(Stdio::null()))?;
        Ok(path)
    }

    fn measured(&self, op: &str) -> Result<Launches> {
        let iterations = self.validate.runs(ITERATIONS).to_string();
        let launch = |_| {
            let text = exec::output(self.launched(&self.program).args([op, &iterations]))?;
            let times: Vec<f64> = text.lines().filter_map(|line| line.parse().ok()).collect();
            ensure!(!times.is_empty(), "{op}: no times");
            Ok(figures(&sorted(&times)))
        };
        (0..LAUNCHES).map(launch).collect()
    }

    /// Median and p99, us.
    fn predicted(&self, op: &str, noise: &Path, latency: f64, runs: u64) -> Result<Figures> {
        let out = self.validate.scratch.join("times.csv");
        let net = format!("L={latency}us,{}", self.overheads);
        let mut command =
            exec::command(self.validate.workspace.binary("detour"), &self.validate.scratch);
        command.args(["--quiet", "simulate", "collective", "--op", op, "--after-barrier"]);
        command.args(["--algorithm", "dissemination", "--size", "8", "--ranks", "2", "--json"]);
        command.args(["--runs", &runs.to_string(), "--net", &net, "--repeat-trace"]);
        command.args(["--ranks-per-node", "2", "--latency-rule", "exchange"]);
        command.arg("--latency").arg(&self.latencies).arg("--noise").arg(noise);
        exec::output(command.arg("--times").arg(&out))?;
        Ok(figures(&super::times(&out)?))
    }

    /// The L with which the median is that of the launches.
    fn fitted(&self, op: &str, noise: &Path, launches: &Launches) -> Result<f64> {
        let medians: Vec<f64> = launches.iter().map(|launch| launch[0]).collect();
        let wanted = quantile(&sorted(&medians), 0.5);
        let (mut low, mut high) = (0.0, wanted);
        for _ in 0..STEPS {
            let middle = f64::midpoint(low, high);
            let median = self.predicted(op, noise, middle, self.validate.runs(2_000))?[0];
            if median < wanted { low = middle } else { high = middle }
        }
        Ok(f64::midpoint(low, high))
    }

    fn row(
        &self,
        what: String,
        op: &str,
        noise: &Path,
        latency: f64,
        launches: &Launches,
        fitted: bool,
    ) -> Result<Row> {
        let predicted = self.predicted(op, noise, latency, self.validate.runs(ITERATIONS))?;
        let fold = |pick: fn(f64, f64) -> f64| -> Figures {
            [0, 1].map(|figure| {
                launches.iter().map(|launch| launch[figure]).fold(launches[0][figure], pick)
            })
        };
        Ok(Row { what, measured: [fold(f64::min), fold(f64::max)], predicted, fitted })
    }
}

fn figures(sorted: &[f64]) -> Figures {
    [quantile(sorted, 0.5), quantile(sorted, 0.99)]
}

fn table(mpi: &str, rows: &[Row], others_pct: f64) -> String {
    let disturbed = others_pct > OTHERS_PCT;
    let mut text = format!(
        "| {mpi} | median, measured | predicted | p99, measured | predicted | |\n|---|---|---|---|---|---|\n"
    );
    for row in rows {
        let [least, most] = row.measured;
        let verdict = match (disturbed, row.is_right()) {
            (true, _) => "disturbed",
            (false, true) => "right",
            (false, false) => "**off**",
        };
        let median = if row.fitted { " (fitted)" } else { "" };
        let _ = writeln!(
            text,
            "| {} | {:.2} to {:.2} us | {:.2} us{median} | {:.2} to {:.2} us | {:.2} us | {verdict} |",
            row.what, least[0], most[0], row.predicted[0], least[1], most[1], row.predicted[1],
        );
    }
    let _ = write!(
        text,
        "\nOther processes and the host took {others_pct:.1} % of the CPUs' time meanwhile"
    );
    text.push_str(match disturbed {
        true => {
            ": more than is allowed, so nothing is judged. Measure again on a quiet machine.\n\n"
        }
        false => ".\n\n",
    });
    let off: Vec<&str> = rows.iter().filter(|row| !row.is_right()).map(|row| &*row.what).collect();
    if !disturbed && !off.is_empty() {
        let _ = writeln!(
            text,
            "Not explained: {}. The library does more in the operation than one message takes, and that varies \
             from launch to launch.\n",
            off.join(", ")
        );
    }
    text
}

fn has(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|path| path.join(program).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(predicted: Figures, fitted: bool) -> Row {
        let measured = [[1.0, 2.0], [1.5, 3.0]];
        Row { what: "barrier".to_owned(), measured, predicted, fitted }
    }

    #[test]
    fn a_prediction_between_the_launches_is_right_unless_others_ran() {
        assert!(row([1.2, 2.5], false).is_right());
        assert!(!row([0.9, 2.5], false).is_right() && !row([1.2, 3.5], false).is_right());
        // A fitted median proves nothing, right or wrong.
        assert!(row([0.9, 2.5], true).is_right());
        let shown = |others| table("made", &[row([1.2, 3.5], false)], others);
        assert!(shown(0.5).contains("**off**") && shown(0.5).contains("Not explained: barrier"));
        let text = shown(9.0);
        assert!(text.contains("| disturbed |") && text.contains("nothing is judged"), "{text}");
    }

    #[test]
    fn what_this_process_takes_is_not_of_others() {
        let begin = times().expect("times");
        let until = Instant::now() + std::time::Duration::from_millis(300);
        let mut sum = 0u64;
        while Instant::now() < until {
            sum = sum.wrapping_add(std::hint::black_box(1));
        }
        let end = times().expect("times");
        assert!(sum > 0);
        // In steps of 10 ms; others may have run as well.
        assert!(end.1 > begin.1 && end.0 - begin.0 > (end.1 - begin.1) - 0.05);
    }
}
