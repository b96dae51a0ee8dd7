//! `cargo xtask validate --measured`: predictions beside collectives that were measured on real systems,
//! found through `DETOUR_DATA`. Writes `docs/truth.md`.
//!
//! A system is a file `measured/NAME.json.xz` with the slowest rank's time of each iteration
//! (`slowest_rank_us`, by rank count) and half round trips (`half_round_trip_us`), and its noise,
//! `measured/NAME.ng_osnoise.txt.xz`. Nothing else about the system is used: o is a tenth of the median
//! half round trip, and L is fitted to the median at the smallest rank count. There it is also decided
//! whether the spikes among the half round trips belong to the network of the collectives: the other rank
//! counts are predictions.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{
    Validate, here,
    parts::{self, Part},
};
use crate::{bench::page::machine, data, exec, workspace::Workspace};

/// Limits of a prediction that counts as right.
const DISTANCE: f64 = 0.25;
const FACTOR: f64 = 1.5;
/// Half round trips beyond this many medians are spikes.
const SPIKE: f64 = 3.0;
/// Steps of the fit: L within a millionth of the range.
const STEPS: u32 = 20;

struct System {
    name: String,
    noise: PathBuf,
    /// Half round trips in order, us.
    trips: Vec<f64>,
    /// (ranks, times of the slowest rank), in increasing order of ranks, us.
    collectives: Vec<(u64, Vec<f64>)>,
}

impl System {
    fn read(path: &Path) -> Result<System> {
        let shown = path.display();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = file.split('.').next().unwrap_or_default().to_owned();
        let text = exec::output(Command::new("xz").args(["-dc", "--"]).arg(path))?;
        let all: Value =
            serde_json::from_str(&text).with_context(|| format!("{shown} is not JSON"))?;
        let list = |value: &Value| -> Vec<f64> {
            value.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
        };
        let by_ranks = all["slowest_rank_us"].as_object().into_iter().flatten();
        let mut collectives: Vec<(u64, Vec<f64>)> = by_ranks
            .filter_map(|(ranks, times)| Some((ranks.parse().ok()?, list(times))))
            .collect();
        collectives.sort_by_key(|(ranks, _)| *ranks);
        let trips = list(&all["half_round_trip_us"]);
        ensure!(!trips.is_empty() && !collectives.is_empty(), "{shown} lacks measured times");
        let noise = path.with_file_name(format!("{name}.ng_osnoise.txt.xz"));
        Ok(System { name, noise, trips, collectives })
    }

    fn overhead(&self) -> f64 {
        quantile(&sorted(&self.trips), 0.5) / 10.0
    }
}

/// What varies in a prediction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Network {
    Constant,
    /// Without spikes.
    Steady,
    Whole,
}

impl Network {
    fn words(self) -> &'static str {
        match self {
            Network::Constant => "OS noise alone",
            Network::Steady => "half round trips without spikes",
            Network::Whole => "all half round trips",
        }
    }
}

/// Simulates one system.
struct Model<'a> {
    validate: &'a Validate<'a>,
    system: &'a System,
    steady: PathBuf,
    whole: PathBuf,
}

impl<'a> Model<'a> {
    fn new(validate: &'a Validate<'a>, system: &'a System) -> Result<Model<'a>> {
        let write = |name: &str, most: f64| -> Result<PathBuf> {
            let path = validate.scratch.join(format!("{}-{name}.txt", system.name));
            let lines = system.trips.iter().filter(|trip| **trip <= most);
            let text: String = lines.map(|trip| format!("{trip}\n")).collect();
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            Ok(path)
        };
        let median = quantile(&sorted(&system.trips), 0.5);
        let steady = write("steady", SPIKE * median)?;
        Ok(Model { validate, system, steady, whole: write("whole", f64::INFINITY)? })
    }

    /// Times of the slowest rank, sorted, us.
    fn times(&self, network: Network, latency: f64, ranks: u64, runs: u64) -> Result<Vec<f64>> {
        let Model { validate, system, .. } = self;
        let out = validate.scratch.join("times.csv");
        let net = format!("L={latency}us,o={}us", system.overhead());
        let (ranks, runs) = (ranks.to_string(), runs.to_string());
        let mut command = exec::command(validate.workspace.binary("detour"), &validate.scratch);
        command.args(["--quiet", "simulate", "collective", "--op", "barrier", "--after-barrier"]);
        command.args(["--algorithm", "dissemination", "--size", "16", "--ranks", &ranks]);
        command.args(["--runs", &runs, "--net", &net, "--repeat-trace", "--json"]);
        command.arg("--noise").arg(&system.noise).arg("--times").arg(&out);
        match network {
            Network::Constant => {}
            Network::Steady => drop(command.arg("--latency").arg(&self.steady)),
            Network::Whole => drop(command.arg("--latency").arg(&self.whole)),
        }
        if network != Network::Constant {
            command.args(["--latency-rule", "half-round-trip"]);
        }
        exec::output(&mut command)?;
        let times = super::times(&out)?;
        ensure!(!times.is_empty(), "no simulated times");
        Ok(times)
    }

    /// The L with which the median at the smallest rank count is as measured.
    fn fitted(&self, network: Network) -> Result<f64> {
        let (ranks, measured) = &self.system.collectives[0];
        let wanted = quantile(&sorted(measured), 0.5);
        let (mut low, mut high) = (0.0, wanted);
        for _ in 0..STEPS {
            let middle = f64::midpoint(low, high);
            let times = self.times(network, middle, *ranks, self.validate.runs(2_000))?;
            if quantile(&times, 0.5) < wanted { low = middle } else { high = middle }
        }
        Ok(f64::midpoint(low, high))
    }
}

/// A prediction beside the measurement.
struct Row {
    ranks: u64,
    iterations: usize,
    measured: [f64; 2],
    predicted: [f64; 2],
    distance: f64,
    /// With the location that fits this rank count best.
    shape: f64,
    constant: f64,
    /// Correlation of an iteration with the next.
    correlation: f64,
}

impl Row {
    fn factor(&self) -> f64 {
        self.predicted[1] / self.measured[1]
    }

    fn is_right(&self) -> bool {
        self.distance <= DISTANCE && (1.0 / FACTOR..=FACTOR).contains(&self.factor())
    }
}

struct Compared {
    name: String,
    network: Network,
    latency: f64,
    overhead: f64,
    spikes: f64,
    /// The shortest half round trip.
    shortest: f64,
    rows: Vec<Row>,
}

fn predict(validate: &Validate, system: &System) -> Result<Compared> {
    let model = Model::new(validate, system)?;
    let (fewest, first) = &system.collectives[0];
    let wanted = quantile(&sorted(first), 0.99);
    let runs = validate.runs(10_000);
    let mut chosen: Option<(f64, Network, f64)> = None;
    for network in [Network::Whole, Network::Steady] {
        let latency = model.fitted(network)?;
        let p99 = quantile(&model.times(network, latency, *fewest, runs)?, 0.99);
        let off = (p99 / wanted).ln().abs();
        if chosen.is_none_or(|(best, ..)| off < best) {
            chosen = Some((off, network, latency));
        }
    }
    let (_, network, latency) = chosen.context("no network was tried")?;
    let constant = model.fitted(Network::Constant)?;
    let mut rows = Vec::new();
    for (ranks, measured) in &system.collectives {
        let correlation = correlation(measured);
        let measured = sorted(measured);
        let predicted = model.times(network, latency, *ranks, runs)?;
        let without = model.times(Network::Constant, constant, *ranks, runs)?;
        let both = |times: &[f64]| [quantile(times, 0.5), quantile(times, 0.99)];
        rows.push(Row {
            ranks: *ranks,
            iterations: measured.len(),
            measured: both(&measured),
            predicted: both(&predicted),
            distance: distance(&predicted, &measured, 0.0),
            shape: shape(&predicted, &measured),
            constant: distance(&without, &measured, 0.0),
            correlation,
        });
    }
    let median = quantile(&sorted(&system.trips), 0.5);
    let spikes = system.trips.iter().filter(|trip| **trip > SPIKE * median).count();
    Ok(Compared {
        name: system.name.clone(),
        network,
        latency,
        overhead: system.overhead(),
        spikes: spikes as f64 / system.trips.len() as f64,
        shortest: system.trips.iter().copied().fold(f64::INFINITY, f64::min),
        rows,
    })
}

/// Compares all systems and writes the page; false if there are none.
pub fn run(workspace: &Workspace, quick: bool) -> Result<bool> {
    let files = data::measured_files()?;
    if files.is_empty() {
        eprintln!(
            "DETOUR_DATA has no measured collectives (measured/*.json.xz): nothing to compare"
        );
        return Ok(false);
    }
    workspace.build()?;
    let scratch = workspace.target.join("validate");
    fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
    let validate = Validate { workspace, scratch, quick };
    let mut results = Vec::new();
    for file in files {
        let system = System::read(&file)?;
        eprintln!("comparing: {}", system.name);
        results.push(predict(&validate, &system)?);
    }
    let here = here::section(&validate)
        .unwrap_or_else(|error| format!("## This machine\n\nNot measured: {error:#}.\n\n"));
    let _ = fs::remove_dir_all(&validate.scratch);
    let text = results.iter().map(section).collect::<String>() + &here;
    println!("{text}");
    if !quick {
        write(workspace, &text)?;
    }
    Ok(true)
}

fn section(result: &Compared) -> String {
    let mut text = format!("## {}\n\n", result.name);
    let _ = writeln!(
        text,
        "Fitted at {} ranks: L = {:.2} us (with o = {:.2} us); {} describe its network best there. {:.2} % \
         of the half round trips are spikes, above {SPIKE} times the median.\n",
        result.rows[0].ranks,
        result.latency,
        result.overhead,
        result.network.words(),
        100.0 * result.spikes
    );
    text.push_str(
        "| ranks | iterations | median, measured | predicted | p99, measured | predicted | factor | KS | KS \
         of the shape | KS of OS noise alone | |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in &result.rows {
        let _ = writeln!(
            text,
            "| {} | {} | {:.2} us | {:.2} us | {:.2} us | {:.2} us | {:.2} | {:.2} | {:.2} | {:.2} | {} |",
            row.ranks,
            row.iterations,
            row.measured[0],
            row.predicted[0],
            row.measured[1],
            row.predicted[1],
            row.factor(),
            row.distance,
            row.shape,
            row.constant,
            if row.is_right() { "right" } else { "**off**" }
        );
    }
    text.push('\n');
    text.push_str(&unexplained(result));
    text.push('\n');
    text
}

/// What the rows do not explain, in words.
fn unexplained(result: &Compared) -> String {
    let mut text = String::new();
    let ranks = |rows: &[&Row]| {
        let list: Vec<String> = rows.iter().map(|row| row.ranks.to_string()).collect();
        list.join(", ")
    };
    let pick = |wanted: fn(&Row) -> bool| result.rows.iter().filter(|row| wanted(row)).collect();
    let moved: Vec<&Row> = pick(|row| row.distance > DISTANCE && row.shape <= DISTANCE);
    let other: Vec<&Row> = pick(|row| row.shape > DISTANCE);
    let high: Vec<&Row> = pick(|row| row.factor() > FACTOR);
    let low: Vec<&Row> = pick(|row| row.factor() < 1.0 / FACTOR);
    if !moved.is_empty() {
        let _ = writeln!(
            text,
            "Not explained: at {} ranks the distribution has the right shape in the wrong place. {}",
            ranks(&moved),
            by_round(result)
        );
    }
    if !other.is_empty() {
        let _ = writeln!(
            text,
            "Not explained: at {} ranks the shape differs, wherever it is placed: half round trips between \
             two nodes do not have the variation of this collective.",
            ranks(&other)
        );
    }
    if !high.is_empty() {
        let _ = writeln!(
            text,
            "Not explained: at {} ranks the slowest hundredth is predicted too slow. Spikes of the network \
             come in episodes, which the collectives did not meet.",
            ranks(&high)
        );
    }
    if !low.is_empty() {
        let _ = writeln!(
            text,
            "Not explained: at {} ranks the slowest hundredth is predicted too fast: something delays these \
             collectives that is neither in the noise file nor among the half round trips.",
            ranks(&low)
        );
    }
    if result.network == Network::Steady && result.spikes > 0.001 {
        text.push_str(
            "The half round trips were measured while the network was congested at times; at the smallest \
             rank count the collectives were not, so the spikes are left out. A job that meets such an \
             episode is slower than predicted here.\n",
        );
    }
    if text.is_empty() {
        text.push_str("Everything is within the limits.\n");
    }
    text
}

/// Why one time per round does not fit all rank counts.
fn by_round(result: &Compared) -> String {
    let rounds = |row: &Row| f64::from(row.ranks.next_power_of_two().trailing_zeros());
    let first = &result.rows[0];
    let mut text = format!(
        "Per round, the median is {:.2} us at {} ranks",
        first.measured[0] / rounds(first),
        first.ranks
    );
    let mut impossible = String::new();
    for pair in result.rows.windows(2) {
        let more = rounds(&pair[1]) - rounds(&pair[0]);
        let longer = pair[1].measured[0] - pair[0].measured[0];
        if more < 1.0 {
            continue;
        }
        let _ =
            write!(text, ", {:.2} us for each further one up to {}", longer / more, pair[1].ranks);
        if longer / more < result.shortest {
            let _ = write!(
                impossible,
                " From {} to {} ranks that is less than the shortest of all half round trips ({:.2} us): no \
                 model in which a round waits for a message can follow it. Consecutive iterations have a \
                 correlation of {:.2} at {} ranks and of {:.2} at {}.",
                pair[0].ranks,
                pair[1].ranks,
                result.shortest,
                pair[0].correlation,
                pair[0].ranks,
                pair[1].correlation,
                pair[1].ranks
            );
        }
    }
    format!(
        "{text}.{impossible} The measurements do not include what is missing: on which nodes the ranks of each \
         rank count were, and half round trips of the same nodes at that time."
    )
}

/// Of each value with the next. Values beyond 1.3 medians count as that, otherwise a single one decides.
fn correlation(list: &[f64]) -> f64 {
    let most = 1.3 * quantile(&sorted(list), 0.5);
    let list: Vec<f64> = list.iter().map(|value| value.min(most)).collect();
    let mean = list.iter().sum::<f64>() / list.len() as f64;
    let product = |pair: &[f64]| (pair[0] - mean) * (pair[1] - mean);
    let all: f64 = list.iter().map(|value| (value - mean).powi(2)).sum();
    if all > 0.0 { list.windows(2).map(product).sum::<f64>() / all } else { 0.0 }
}

fn write(workspace: &Workspace, sections: &str) -> Result<()> {
    let mut text =
        String::from("<!-- Generated by `cargo xtask validate --measured`; do not edit. -->\n\n");
    text.push_str("# Predictions beside measured collectives\n\n");
    let _ = writeln!(
        text,
        "The time of the slowest rank of a dissemination of 16 bytes, measured on real systems and predicted \
         from their noise and their half round trips: each rank times itself after a barrier, in the \
         measurement and in the simulation (`--after-barrier`), and the latency of each message is drawn \
         from the half round trips (`--latency`). Half a round trip is the mean of two messages; a message \
         varies more (`--latency-rule half-round-trip`). One parameter, L, is fitted to the median at the smallest \
         rank count, where it is also decided whether spikes of the network are included. All other rank \
         counts are predictions. A prediction is right if the Kolmogorov-Smirnov distance (KS) is at most \
         {DISTANCE} and the 99th percentile within a factor of {FACTOR}. The KS of the shape is the one with \
         the best location for that rank count; OS noise alone is what a constant latency predicts.\n"
    );
    for (key, value) in machine(workspace) {
        let _ = writeln!(text, "- {key}: {value}");
    }
    let _ = write!(text, "\n{sections}");
    parts::write(workspace, Part::Measured, &text)
}

pub(super) fn sorted(list: &[f64]) -> Vec<f64> {
    let mut list = list.to_vec();
    list.sort_unstable_by(f64::total_cmp);
    list
}

pub(super) fn quantile(sorted: &[f64], p: f64) -> f64 {
    let at = p * sorted.len().saturating_sub(1) as f64;
    let of = |index: f64| sorted.get(index as usize).copied().unwrap_or(0.0);
    of(at.floor()) + (of(at.ceil()) - of(at.floor())) * at.fract()
}

/// The Kolmogorov-Smirnov distance of two sorted samples, the first moved by this much.
fn distance(a: &[f64], b: &[f64], moved: f64) -> f64 {
    let (mut i, mut j, mut most) = (0, 0, 0.0f64);
    while i < a.len() && j < b.len() {
        let next = (a[i] + moved).min(b[j]);
        while i < a.len() && a[i] + moved <= next {
            i += 1;
        }
        while j < b.len() && b[j] <= next {
            j += 1;
        }
        most = most.max((i as f64 / a.len() as f64 - j as f64 / b.len() as f64).abs());
    }
    most
}

/// The least distance over all locations.
fn shape(a: &[f64], b: &[f64]) -> f64 {
    let centre = quantile(b, 0.5) - quantile(a, 0.5);
    let reach = (quantile(b, 0.9) - quantile(b, 0.1)).max(quantile(a, 0.9) - quantile(a, 0.1));
    let moves = (-100..=100).map(|step| centre + reach * f64::from(step) / 100.0);
    moves.map(|moved| distance(a, b, moved)).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_the_definition() {
        let a: Vec<f64> = (0..100).map(f64::from).collect();
        assert_eq!(distance(&a, &a, 0.0), 0.0);
        assert!((distance(&a, &a, 25.0) - 0.25).abs() < 1e-12);
        assert_eq!(distance(&a, &[1e9], 0.0), 1.0);
        // Ties count on both sides at once.
        assert_eq!(distance(&[1.0, 1.0, 2.0], &[1.0, 1.0, 2.0], 0.0), 0.0);
        let moved: Vec<f64> = a.iter().map(|x| x + 7.0).collect();
        assert!(shape(&a, &moved) < 0.011);
    }

    #[test]
    fn a_round_shorter_than_any_message_is_said_to_be() {
        let row = |ranks, median: f64, correlation| Row {
            ranks,
            iterations: 1000,
            measured: [median, 2.0 * median],
            predicted: [median + 1.0, 2.0 * median],
            distance: 0.8,
            shape: 0.2,
            constant: 0.9,
            correlation,
        };
        let result = |medians: [f64; 3]| Compared {
            name: "made".to_owned(),
            network: Network::Whole,
            latency: 1.0,
            overhead: 0.1,
            spikes: 0.0,
            shortest: 1.58,
            rows: vec![row(4, medians[0], 0.5), row(8, medians[1], 0.0), row(16, medians[2], 0.0)],
        };
        let text = unexplained(&result([4.3, 5.75, 8.0]));
        assert!(text.contains("1.45 us for each further one up to 8, 2.25 us"), "{text}");
        assert!(text.contains("From 4 to 8 ranks that is less than the shortest"), "{text}");
        assert!(!text.contains("From 8 to 16"), "{text}");
        let text = unexplained(&result([6.0, 9.5, 12.8]));
        assert!(text.contains("what is missing") && !text.contains("shortest"), "{text}");
        let up: Vec<f64> = (0..1000).map(|i| 1.0 + f64::from(i) / 1e4).collect();
        assert!(correlation(&up) > 0.99 && correlation(&[1.0; 5]) == 0.0);
        let both: Vec<f64> = (0..1000).map(|i| f64::from(1 + i % 2)).collect();
        assert!(correlation(&both) < -0.99);
    }
}
