//! `detour mpi latency`: exchanges between all pairs of ranks, with every MPI that is installed.

mod attempts;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output},
};

use attempts::attempts;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use serde_json::Value;

type Test = fn(&Mpi) -> Result<Completion, Failed>;

const TESTS: &[(&str, Test)] = &[
    ("every_pair_exchanges_as_often_as_asked", every_pair),
    ("two_hundred_thousand_exchanges_take_less_than_ten_seconds", quick),
    ("noise_shows_in_all_exchanges_but_not_in_the_minima", injected_noise),
    ("the_file_is_shown_again_and_feeds_simulations", used),
    ("a_wrong_topology_is_said_once_before_anything_is_measured", wrong_topology),
];

struct Mpi {
    name: &'static str,
    home: PathBuf,
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

const DONE: Result<Completion, Failed> = Ok(Completion::Completed);

impl Mpi {
    fn new(name: &'static str) -> Option<Mpi> {
        let found = Command::new(format!("mpirun.{name}")).arg("--version").output();
        if !found.is_ok_and(|output| output.status.success()) {
            return None;
        }
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("latency-{name}"));
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(&home).ok()?;
        Some(Mpi { name, home })
    }

    fn run(&self, ranks: u32, args: &[&str]) -> Result<Output, Failed> {
        let mut command = Command::new("timeout");
        command.arg("300").arg(format!("mpirun.{}", self.name));
        if self.name == "openmpi" {
            command.args(["--allow-run-as-root", "--oversubscribe"]);
            // More ranks than CPUs take turns.
            command.args(["--mca", "mpi_yield_when_idle", if ranks > 2 { "1" } else { "0" }]);
        }
        if ranks == 2 {
            // Noise on a CPU is noise of a rank, also where both CPUs are threads of one core.
            command.args(match self.name {
                "openmpi" => &["--use-hwthread-cpus", "--bind-to", "hwthread"][..],
                _ => &["-bind-to", "hwthread"],
            });
        }
        command.args(["-n", &ranks.to_string(), detour(), "mpi", "latency"]).args(args);
        // Open MPI gives its ranks a terminal.
        command.env("NO_COLOR", "1").env("COLUMNS", "100");
        Ok(command.current_dir(&self.home).output()?)
    }

    fn measure(&self, ranks: u32, args: &[&str]) -> Result<Value, Failed> {
        let output = self.run(ranks, &[args, &["--json"]].concat())?;
        check(output.status.success(), said(&output))?;
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

fn number(value: &Value, path: &str) -> Result<f64, Failed> {
    let found = value.pointer(path).and_then(Value::as_f64);
    found.ok_or_else(|| format!("no {path}").into())
}

fn every_pair(mpi: &Mpi) -> Result<Completion, Failed> {
    // Of an odd number of ranks, one pauses in each round. MPICH spins: more ranks than CPUs take long.
    let ranks = 3;
    let args = ["--exchanges", "20", "--cycles", "2", "-o", "three.json"];
    let result = mpi.measure(ranks, &args)?;
    let pairs = result["pairs"].as_array().cloned().unwrap_or_default();
    let met: Vec<&Value> = pairs.iter().map(|pair| &pair["ranks"]).collect();
    check(
        met == [&serde_json::json!([0, 1]), &serde_json::json!([0, 2]), &serde_json::json!([1, 2])],
        format!("{met:?}"),
    )?;
    for pair in &pairs {
        check(pair["n"] == 40, pair.to_string())?;
        let order = ["/minimum_us", "/median_us", "/p99_us", "/maximum_us"];
        let times = order.iter().map(|key| number(pair, key)).collect::<Result<Vec<_>, _>>()?;
        check(times.is_sorted() && times[0] > 0.0, pair.to_string())?;
    }
    for (key, n) in [("all", 120), ("lower", 120), ("upper", 120), ("minima", 6)] {
        let bins = result[key]["bins"].as_array().cloned().unwrap_or_default();
        let counted: u64 = bins.iter().filter_map(|bin| bin[1].as_u64()).sum();
        check(result[key]["n"] == n && counted == n, format!("{key}: {counted}"))?;
    }
    check(result["timer"]["n"] == 300_000, "the clock was not calibrated on all ranks")?;
    check(number(&result, "/timer_during/n")? > 0.0, "the clock was not timed again")?;
    // The file has what was printed.
    let file: Value = serde_json::from_slice(&fs::read(mpi.home.join("three.json"))?)?;
    check(file == result, "the file differs from the output")?;
    DONE
}

fn quick(mpi: &Mpi) -> Result<Completion, Failed> {
    attempts(|| {
        let result = mpi.measure(2, &["--exchanges", "1000", "--cycles", "200"])?;
        check(result["all"]["n"] == 200_000, result["all"]["n"].to_string())?;
        check(result["minima"]["n"] == 200, "a minimum of every cycle")?;
        let seconds = number(&result, "/measured_s")?;
        check(seconds < 10.0, format!("{seconds} s"))
    })
}

/// The noise generator; None if it was not built.
fn loadgen() -> Option<Command> {
    let beside = Path::new(detour()).with_file_name("loadgen");
    beside.exists().then(|| Command::new(beside))
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn injected_noise(mpi: &Mpi) -> Result<Completion, Failed> {
    if loadgen().is_none() {
        return Ok(Completion::ignored_with("loadgen is not built: cargo build --release"));
    }
    attempts(|| {
        let measure = || mpi.measure(2, &["--exchanges", "1000", "--cycles", "500"]);
        let quiet = measure()?;
        let mut noise = loadgen().ok_or("no loadgen")?;
        // 200 us every 2 ms: one exchange in some thousand is hit, nearly all are not.
        noise.args(["daemon", "--cpu", "0", "--period-us", "2000", "--burn-us", "200"]);
        let noise = Running(noise.args(["--seconds", "120"]).spawn()?);
        let noisy = measure()?;
        drop(noise);
        let of = |result: &Value, path: &str| number(result, path);
        // The share that took as long as half a burst.
        let slow = |result: &Value, samples: &str| -> Result<f64, Failed> {
            let bins = result[samples]["bins"].as_array().cloned().unwrap_or_default();
            let slow = bins.iter().filter(|bin| bin[0].as_u64() > Some(100_000_000));
            let slow: u64 = slow.filter_map(|bin| bin[1].as_u64()).sum();
            Ok(slow as f64 / of(result, &format!("/{samples}/n"))?)
        };
        // A burst hits one exchange, unless it falls between cycles, when nothing is exchanged.
        let (before, after) = (slow(&quiet, "all")?, slow(&noisy, "all")?);
        let expected = of(&noisy, "/measured_s")? / 0.002 / of(&noisy, "/all/n")?;
        check(
            after - before > expected / 5.0,
            format!(
                "exchanges above 100 us: {before:e} without, {after:e} with noise, {expected:e} expected"
            ),
        )?;
        let disturbed = slow(&noisy, "minima")?;
        check(disturbed < 0.01, format!("{disturbed} of the minima are above 100 us"))?;
        // Another pair of processes has other pages, and a guest's CPUs may have moved to other cores meanwhile:
        // that changes the time of an exchange by tens of per cent. A burst is hundreds of times longer.
        let (before, after) = (of(&quiet, "/minima/median_us")?, of(&noisy, "/minima/median_us")?);
        check(
            (0.5..2.0).contains(&(after / before)),
            format!("median of the minima {before}, {after}"),
        )
    })
}

fn used(mpi: &Mpi) -> Result<Completion, Failed> {
    let output = mpi.run(2, &["--exchanges", "1000", "--cycles", "4", "-o", "used.json"])?;
    check(output.status.success(), said(&output))?;
    let plain = |args: &[&str]| -> Result<Output, Failed> {
        let mut command = Command::new(detour());
        let output = command.args(args).env("COLUMNS", "100").current_dir(&mpi.home).output()?;
        check(output.status.success(), format!("{args:?}: {}", said(&output)))?;
        Ok(output)
    };
    // Shown again, it is the same text.
    let again = plain(&["mpi", "latency", "--from", "used.json"])?;
    check(again.stdout == output.stdout, String::from_utf8_lossy(&again.stdout))?;
    plain(&["mpi", "latency", "--from", "used.json", "--html", "used.html"])?;
    let page = fs::read_to_string(mpi.home.join("used.html"))?;
    check(page.contains("id=\"minima\"") && page.contains("id=\"tail\""), "no figures")?;
    let file: Value = serde_json::from_slice(&fs::read(mpi.home.join("used.json"))?)?;
    check(file["kind"] == "detour-latencies" && file["block"] == 500, file["block"].to_string())?;
    // Without noise, exchanges take what they took here.
    let args = ["simulate", "exchange", "--exchange", "used.json", "--samples", "20000", "--json"];
    let simulated: Value = serde_json::from_slice(&plain(&args)?.stdout)?;
    check(simulated.is_object(), simulated.to_string())?;
    DONE
}

fn wrong_topology(mpi: &Mpi) -> Result<Completion, Failed> {
    fs::write(mpi.home.join("groups"), "a: 0\nb: 1-2\n")?;
    let args = ["--exchanges", "10", "--cycles", "1", "--topology", "groups"];
    let output = mpi.run(2, &args)?;
    let text = said(&output);
    check(!output.status.success() && text.contains("rank 2 of 2 does not exist"), text)?;
    fs::write(mpi.home.join("groups"), "a: 0\nb: 1\n")?;
    let result = mpi.measure(2, &args)?;
    check(result["groups"][1]["name"] == "b", result["groups"].to_string())?;
    DONE
}

fn one_rank() -> Result<Completion, Failed> {
    let Some(mpi) = ["openmpi", "mpich"].into_iter().find_map(Mpi::new) else {
        return Ok(Completion::ignored_with("no MPI is installed"));
    };
    let output = mpi.run(1, &[])?;
    let text = said(&output);
    check(!output.status.success() && text.contains("at least 2 ranks"), text)?;
    DONE
}

fn main() {
    let mut arguments = Arguments::from_args();
    // Each test is several processes that spin.
    arguments.test_threads = Some(1);
    let mut trials = vec![Trial::ignorable_test("a_single_rank_has_nobody_to_meet", one_rank)];
    for name in ["openmpi", "mpich"] {
        let mpi = std::sync::Arc::new(Mpi::new(name));
        for (test, run) in TESTS {
            let mpi = std::sync::Arc::clone(&mpi);
            trials.push(Trial::ignorable_test(
                format!("{test}_with_{name}"),
                move || match &*mpi {
                    Some(mpi) => run(mpi),
                    None => Ok(Completion::ignored_with(format!("mpirun.{name} is not installed"))),
                },
            ));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}
