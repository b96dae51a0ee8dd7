//! `cargo xtask bench`: the cost of recording on this machine and the speed of the simulator, compared
//! with the targets.
//!
//! Ratios and differences are taken within one run, because no two runs see the same machine. `page`
//! prints the figures and publishes them; the other modules measure.

mod cpus;
mod file;
mod node;
pub mod page;
mod programs;
mod samples;
mod schedules;
mod simulator;
mod view;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{exec, workspace::Workspace};

/// The verdict on a figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Met,
    Missed,
    /// No target, or it cannot be judged here.
    Noted,
    Skipped(String),
    /// Could not be measured, which counts as a missed target.
    Broken(String),
}

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Figure {
    pub what: &'static str,
    pub target: &'static str,
    pub measured: String,
    pub verdict: Verdict,
    /// Bytes, which do not depend on how busy the machine is.
    pub counted: bool,
}

impl Figure {
    fn new(what: &'static str, target: &'static str, measured: String, verdict: Verdict) -> Figure {
        Figure { what, target, measured, verdict, counted: false }
    }

    fn judged(what: &'static str, target: &'static str, measured: String, met: bool) -> Figure {
        Figure::new(what, target, measured, if met { Verdict::Met } else { Verdict::Missed })
    }

    fn counted(what: &'static str, target: &'static str, measured: String, met: bool) -> Figure {
        Figure { counted: true, ..Figure::judged(what, target, measured, met) }
    }

    fn noted(what: &'static str, measured: String) -> Figure {
        Figure::new(what, "", measured, Verdict::Noted)
    }

    /// Times of short runs on a machine with other work say little, so that only counts and measurements
    /// that broke fail a quick run.
    fn fails(&self, quick: bool) -> bool {
        match self.verdict {
            Verdict::Broken(_) => true,
            Verdict::Missed => self.counted || !quick,
            Verdict::Met | Verdict::Noted | Verdict::Skipped(_) => false,
        }
    }
}

/// The extent of the measurements.
pub struct Extent {
    pub probe_turns: u32,
    /// Pairs of blocks, a seventh of a second each.
    pub tick_pairs: u32,
    pub load_seconds: u32,
    /// Best of this many.
    pub repeats: u32,
    pub report_records: u64,
}

const FULL: Extent = Extent {
    probe_turns: 4_000,
    tick_pairs: 400,
    load_seconds: 10,
    repeats: 3,
    report_records: 5_000_000,
};

const QUICK: Extent = Extent {
    probe_turns: 1_000,
    tick_pairs: 100,
    load_seconds: 3,
    repeats: 1,
    report_records: 1_000_000,
};

/// The context of a measurement.
pub struct Bench<'a> {
    workspace: &'a Workspace,
    extent: &'a Extent,
    /// Removed at the end: traces of 100 MB are not worth keeping.
    scratch: PathBuf,
}

impl Bench<'_> {
    fn detour(&self) -> Command {
        let mut command = exec::command(self.workspace.binary("detour"), &self.scratch);
        command.arg("--quiet");
        command
    }

    fn loadgen(&self) -> Command {
        exec::command(self.workspace.binary("loadgen"), &self.scratch)
    }

    fn example(&self, name: &str) -> Command {
        exec::command(self.workspace.example(name), &self.scratch)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }
}

type Measure = fn(&Bench) -> Result<Vec<Figure>>;

/// Runs everything, or the measurements with `only` in their name; false if a target was missed, in a
/// quick run one that is counted.
pub fn run(workspace: &Workspace, quick: bool, only: Option<&str>) -> Result<bool> {
    workspace.build()?;
    let scratch = workspace.target.join("bench");
    fs::create_dir_all(&scratch).with_context(|| cannot_create(&scratch))?;
    let bench = Bench { workspace, extent: if quick { &QUICK } else { &FULL }, scratch };
    let mut figures = Vec::new();
    let measurements: [(&'static str, Measure); 24] = [
        ("the probe's loop", node::probe),
        ("noise added by recording", node::ticks),
        ("records from one CPU", node::rate),
        ("recording by number of CPUs", cpus::by_number),
        ("recording when nothing happens", cpus::idle),
        ("the live view", view::top),
        ("the trace file", file::throughput),
        ("opening 100 MB", file::open),
        ("report", file::report),
        ("simulated collectives", simulator::collectives),
        ("simulated networks", simulator::latencies),
        ("a whole figure", simulator::figure_five),
        ("the redundant butterfly", simulator::cycles),
        ("all-to-all", simulator::all_to_all),
        ("the largest program of the noise study", simulator::largest_program),
        ("what-if", simulator::what_if),
        ("memory of a simulation", simulator::memory),
        ("schedules", schedules::speed),
        ("memory of schedules", schedules::memory),
        ("schedules from traces", schedules::from_trace),
        ("distributions", samples::speed),
        ("calls of MPI programs", programs::calls),
        ("profiles of MPI programs", programs::report),
        ("extrapolated MPI programs", programs::extrapolated),
    ];
    let wanted = |what: &str| only.is_none_or(|only| what.contains(only));
    for (what, measure) in measurements.into_iter().filter(|(what, _)| wanted(what)) {
        eprintln!("measuring: {what}");
        let before = CpuTime::now();
        figures.extend(measure(&bench).unwrap_or_else(|error| {
            let verdict = Verdict::Broken(format!("{error:#}"));
            vec![Figure::new(what, "", String::new(), verdict)]
        }));
        let stolen = before.stolen_since();
        if stolen > NOTABLE_STEAL {
            let measured = format!("{:.1} % of the CPUs' time", 100.0 * stolen);
            figures.push(Figure::noted("steal time while the above was measured", measured));
        }
    }
    // If left behind, it does no harm.
    let _ = fs::remove_dir_all(&bench.scratch);
    println!("{}", page::table(&figures));
    // Quick runs suffice as a check, but not for publication.
    if !quick && only.is_none() {
        page::write(workspace, &figures)?;
    }
    Ok(!figures.iter().any(|figure| figure.fails(quick)))
}

/// Share of steal time above which figures say more about the host than about the program.
const NOTABLE_STEAL: f64 = 0.01;

/// The first line of /proc/stat, in the kernel's units: all time, and what the hypervisor took.
#[derive(Default)]
pub struct CpuTime {
    all: f64,
    stolen: f64,
}

impl CpuTime {
    /// Zero if it cannot be read.
    pub fn now() -> CpuTime {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let first = stat.lines().next().unwrap_or_default();
        let fields = first.split_ascii_whitespace().skip(1).map_while(|word| word.parse().ok());
        // The fields after the steal time are contained in earlier ones.
        let fields: Vec<f64> = fields.take(8).collect();
        CpuTime { all: fields.iter().sum(), stolen: fields.get(7).copied().unwrap_or(0.0) }
    }

    /// Share of what the hypervisor took since then.
    pub fn stolen_since(&self) -> f64 {
        let now = CpuTime::now();
        (now.stolen - self.stolen) / (now.all - self.all).max(1.0)
    }
}

fn cannot_create(directory: &Path) -> String {
    format!("cannot create {}", directory.display())
}

/// A number from another program's JSON.
fn number(json: &serde_json::Value, pointer: &str) -> Result<f64> {
    let value = json.pointer(pointer).and_then(serde_json::Value::as_f64);
    value.with_context(|| format!("no number at {pointer} in {json:.200}"))
}

/// 1234567 as 1,234,567.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.max(0.0));
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Why this machine or user cannot run a full recording.
pub fn unfit() -> Option<String> {
    if !exec::is_root() {
        return Some("needs root".to_owned());
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    (cpus < 2).then(|| "needs two CPUs".to_owned())
}

pub fn skipped(what: &'static str, target: &'static str, why: &str) -> Figure {
    Figure::new(what, target, String::new(), Verdict::Skipped(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_fails_by_what_is_counted_and_what_breaks() {
        let slow = Figure::judged("t", "< 1 s", "2 s".to_owned(), false);
        let lost = Figure::counted("n", "none", "3".to_owned(), false);
        let broken = Figure::new("b", "", String::new(), Verdict::Broken("no".to_owned()));
        assert!(slow.fails(false) && !slow.fails(true));
        assert!(lost.fails(true) && broken.fails(true));
        assert!(!Figure::counted("n", "none", "0".to_owned(), true).fails(true));
    }

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!(grouped(0.0), "0");
        assert_eq!(grouped(999.0), "999");
        assert_eq!(grouped(1_000.0), "1,000");
        assert_eq!(grouped(1_234_567.4), "1,234,567");
    }

    #[test]
    fn a_number_that_is_not_there_is_named() {
        let json = serde_json::json!({ "lost": { "records": null } });
        let error = number(&json, "/lost/records").unwrap_err().to_string();
        assert!(error.contains("/lost/records"), "{error}");
    }
}
