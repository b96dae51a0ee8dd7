//! Published results of systems whose noise traces are available: dissemination of 16 bytes with
//! LogGOPSim, 712 runs each.
//!
//! Each published run had its own seed. A figure agrees if it lies within the range in which the same
//! quantile of as many runs lies with 99.9 % probability, according to the runs made here; since
//! eighteen figures are compared, the confidence for each has to be high.
//!
//! The traces went through awk, which converted ns to ps for the simulator. An awk that prints large
//! numbers with six digits rounds start times, eventually to a millisecond; of the detours that then
//! begin together only the last one takes effect. Where detours come in clusters, as on daint, a third
//! of the slowdown disappears. Therefore the traces are rounded in the same way here.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs,
    path::Path,
};

use anyhow::Result;

use super::{Validate, claims::Claim};
use crate::{data, exec};

struct Row {
    system: &'static str,
    ranks: u64,
    noiseless: f64,
    quartiles: [f64; 3],
}

const ROWS: [Row; 6] = [
    Row { system: "alps", ranks: 64, noiseless: 14.167, quartiles: [14.167, 14.167, 14.167] },
    Row { system: "alps", ranks: 1024, noiseless: 23.612, quartiles: [26.434, 26.956, 28.795] },
    Row { system: "alps", ranks: 16384, noiseless: 33.057, quartiles: [215.6, 276.4, 610.5] },
    Row { system: "daint", ranks: 64, noiseless: 30.510, quartiles: [30.510, 41.886, 45.548] },
    Row { system: "daint", ranks: 1024, noiseless: 54.517, quartiles: [74.342, 75.668, 76.900] },
    Row { system: "daint", ranks: 16384, noiseless: 78.523, quartiles: [107.3, 110.0, 114.8] },
];

const PUBLISHED_RUNS: f64 = 712.0;

/// Above this, numbers have six digits.
const LARGE_PS: f64 = 2_147_483_647.0;

fn six_digits(start_ps: f64) -> f64 {
    if start_ps <= LARGE_PS {
        return start_ps;
    }
    let digit = 10f64.powi(start_ps.log10().floor() as i32 - 5);
    (start_ps / digit).round() * digit
}

/// The detours of a system as the published runs saw them, in ns.
fn as_published(validate: &Validate, system: &str, file: &str) -> Result<String> {
    let detour = || exec::command(validate.workspace.binary("detour"), &validate.scratch);
    let imported = exec::json(detour().args(["--quiet", "import", "--json", file]))?;
    let runs = imported["runs"].as_array().map_or(1, Vec::len);
    let mut text = String::new();
    for run in 1..=runs {
        let run = format!("{file}#{run}");
        text += &exec::output(detour().args(["--quiet", "export", &run, "--to", "loggopsim"]))?;
    }
    let rounded = validate.scratch.join(format!("{system}-rounded.txt"));
    fs::write(&rounded, lines(&met(&rounded_detours(&text))))?;
    Ok(rounded.display().to_string())
}

/// Start and length in ps, as LogGOPSim read them.
fn rounded_detours(text: &str) -> Vec<(f64, f64)> {
    let mut detours: Vec<(f64, f64)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace().map(|word| word.parse().unwrap_or(0.0) * 1e3);
        let (Some(start), Some(length)) = (words.next(), words.next()) else { continue };
        detours.push((six_digits(start), length));
    }
    detours
}

/// The detour that LogGOPSim finds for a position: it bisects the list, which it assumes to be sorted,
/// and then walks to a detour that has begun while the next one has not. None before the first.
fn found(detours: &[(f64, f64)], position: f64) -> Option<usize> {
    let last = detours.len().checked_sub(1)?;
    if position <= detours[0].0 {
        return None;
    }
    let (mut low, mut high, mut at) = (0, detours.len(), 0);
    while low < high {
        at = (low + high) / 2;
        if position == detours[at].0 {
            break;
        }
        if position > detours[at].0 {
            low = at + 1;
        } else {
            high = at;
        }
    }
    loop {
        if detours[at].0 > position {
            at = at.checked_sub(1)?;
        } else if at < last && detours[at + 1].0 <= position {
            at += 1;
        } else {
            return Some(at);
        }
    }
}

/// The detours that LogGOPSim can find, in order, as start and end. It read files of several runs as
/// one list, which is not sorted: of two runs it only ever finds the last; of three the first for
/// early positions and the last for late ones, but never the middle one. Of detours that begin
/// together it finds the last.
fn met(detours: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut met: Vec<(f64, f64)> = Vec::new();
    for (index, &(start, length)) in detours.iter().enumerate() {
        // The first is always found.
        if index > 0 && found(detours, start + 1.0) != Some(index) {
            continue;
        }
        // Found detours are in increasing order.
        while met.last().is_some_and(|&(before, _)| before >= start) {
            met.pop();
        }
        if let Some((_, end)) = met.last_mut() {
            *end = end.min(start);
        }
        met.push((start, start + length));
    }
    met
}

fn lines(detours: &[(f64, f64)]) -> String {
    let line =
        |(start, end): &(f64, f64)| format!("{:.0}\t{:.0}\n", start / 1e3, (end - start) / 1e3);
    detours.iter().map(line).collect()
}

pub fn check(validate: &Validate) -> Result<Vec<Claim>> {
    let traces = validate.traces()?;
    let mut claims = Vec::new();
    // Importing takes a while, and the rows of a system share a trace.
    let mut rounded: BTreeMap<&str, String> = BTreeMap::new();
    for row in &ROWS {
        let what = format!("{}, {} ranks, 16 bytes: quartiles, us", row.system, row.ranks);
        let paper = row.quartiles.map(|us| format!("{us}")).join(" / ");
        let Some((_, file)) = traces.iter().find(|(name, _)| name == row.system) else {
            claims.push(Claim::absent(what, paper));
            continue;
        };
        let file = match rounded.entry(row.system) {
            Entry::Occupied(known) => &*known.into_mut(),
            Entry::Vacant(new) => &*new.insert(as_published(validate, row.system, file)?),
        };
        // Enough runs to distinguish LogGOPSim's graph from one without its zero-length calcs where
        // detours come in bursts (`simulate/tests/peer_graph.rs`).
        let runs = validate.runs(match row.ranks {
            64 => 6000,
            1024 => 2000,
            _ => 400,
        });
        let times = validate.scratch.join("times.csv").display().to_string();
        let (ranks, runs_text) = (row.ranks.to_string(), runs.to_string());
        let args = [
            "collective",
            "--op",
            "barrier",
            "--size",
            "16",
            "--net",
            row.system,
            "--noise",
            file,
            "--noise-model",
            "loggopsim",
            "--graph",
            "peer",
            "--ranks",
            &ranks,
            "--runs",
            &runs_text,
            "--times",
            &times,
        ];
        let (value, _) = validate.simulate(&args)?;
        let noiseless = value["points"][0]["noiseless_us"].as_f64().unwrap_or(0.0);
        let (here, agree) = quartiles(&times, row.quartiles)?;
        let holds = agree && (noiseless / row.noiseless - 1.0).abs() < 2e-4;
        claims.push(Claim::new(what, paper, format!("{here}, {runs} runs"), holds));
    }
    Ok(claims)
}

/// The quartiles of the simulated times in this file, with the ranges in which those of the published runs
/// would lie, and whether they do.
fn quartiles(times: &str, published: [f64; 3]) -> Result<(String, bool)> {
    let sample = super::times(Path::new(times))?;
    let (mut holds, mut here) = (true, Vec::new());
    for (p, published) in [0.25, 0.5, 0.75].into_iter().zip(published) {
        // The share of runs below a quantile is binomially distributed, on both sides.
        let scatter = |n: f64| 3.29 * (p * (1.0 - p) / n).sqrt();
        let reach = scatter(PUBLISHED_RUNS).hypot(scatter(sample.len() as f64));
        let (low, high) = (quantile(&sample, p - reach), quantile(&sample, p + reach));
        // Published to three decimal places, with a rounded parameter.
        let slack = published * 2e-4;
        holds &= low - slack <= published && published <= high + slack;
        here.push(format!("{:.2} ({low:.2} to {high:.2})", quantile(&sample, p)));
    }
    Ok((here.join(" / "), holds))
}

/// A published run with network noise and without OS noise: L is scaled by a measured latency over the
/// median of all, message by message.
pub fn network_noise(validate: &Validate) -> Result<Vec<Claim>> {
    let published = [11.072, 11.580, 13.195];
    let what = "azure-hc, 64 ranks, 16 bytes, network noise: quartiles, us";
    let paper = published.map(|us| format!("{us}")).join(" / ");
    let files = data::measured_files()?;
    let Some(file) = files.iter().find(|path| data::is_named(path, "azure-hc")) else {
        return Ok(vec![Claim::absent(what, paper)]);
    };
    let times = validate.scratch.join("times.csv").display().to_string();
    let (file, runs) = (file.display().to_string(), validate.runs(6000));
    let runs_text = runs.to_string();
    let mut args = vec!["collective", "--op", "barrier", "--size", "16", "--ranks", "64"];
    args.extend(["--net", "L=1.3us,o=0.15us,g=1.5us,G=86ps,S=4096", "--runs", &runs_text]);
    args.extend(["--latency", &file, "--latency-rule", "scale", "--times", &times]);
    args.extend(["--noise-model", "loggopsim", "--graph", "peer"]);
    validate.simulate(&args)?;
    let (here, holds) = quartiles(&times, published)?;
    Ok(vec![Claim::new(what, paper, format!("{here}, {runs} runs"), holds)])
}

fn quantile(sorted: &[f64], p: f64) -> f64 {
    let at = (p.clamp(0.0, 1.0) * (sorted.len().max(1) - 1) as f64).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_have_six_digits() {
        assert_eq!(six_digits(2_147_483_647.0), 2_147_483_647.0);
        assert_eq!(six_digits(2_147_483_648.0), 2_147_480_000.0);
        assert_eq!(six_digits(100_933_665_754_160.0), 100_934_000_000_000.0);
    }

    #[test]
    fn of_detours_that_begin_together_the_last_one_is_met() {
        let text = "# start\tlength\n0\t5\n20000000\t7000\n20000010\t9\n20000101\t3\n";
        assert_eq!(
            met(&rounded_detours(text)),
            [(0.0, 5e3), (2e10, 20_000_009_000.0), (20_000_100_000.0, 20_000_103_000.0)]
        );
    }

    /// One detour per 10 us; its length identifies the run.
    fn runs(count: u64) -> Vec<(f64, f64)> {
        let of_run = |run| (0..100).map(move |i| (f64::from(i) * 1e7 + 1e3, run as f64));
        (1..=count).flat_map(of_run).collect()
    }

    #[test]
    fn of_two_runs_the_last_is_met_and_of_three_the_first_and_then_the_last() {
        let from = |count| -> Vec<u64> {
            let met = met(&runs(count));
            assert!(met.is_sorted_by(|a, b| a.0 < b.0));
            met.iter().map(|&(start, end)| (end - start) as u64).collect()
        };
        let alone = from(1);
        assert!(alone.len() == 100 && alone.iter().all(|&run| run == 1));
        let two = from(2);
        assert!(two.len() == 100 && two[1..].iter().all(|&run| run == 2), "{two:?}");
        let three = from(3);
        assert!(three.len() == 100 && three.is_sorted() && !three.contains(&2), "{three:?}");
        assert!(three.contains(&1) && three.contains(&3), "{three:?}");
    }
}
