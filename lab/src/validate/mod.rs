//! `cargo xtask validate`: compares published results with those of `detour simulate`.
//!
//! Everything runs through the command, as a user would run it. Real noise traces are found through
//! `DETOUR_DATA` ([`data`]); without it, claims that need them are "data absent".

mod applications;
mod claims;
pub mod closed;
mod here;
pub mod measured;
mod noise_study;
mod page;
mod parts;
mod published;
mod redundant;
mod sp2;
mod tails;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{data, exec, workspace::Workspace};
use claims::{Claim, Verdict};

/// The context for checking claims.
pub struct Validate<'a> {
    workspace: &'a Workspace,
    scratch: PathBuf,
    quick: bool,
}

impl Validate<'_> {
    /// The number of runs; a tenth with `--quick`.
    fn runs(&self, full: u64) -> u64 {
        if self.quick { (full / 10).max(10) } else { full }
    }

    /// `detour tail FILE --check --json`: the lanes predicted from their first tenth.
    fn tails(&self, file: &str) -> Result<Value> {
        let mut command = exec::command(self.workspace.binary("detour"), &self.scratch);
        command.args(["--quiet", "tail", file, "--check", "--json"]);
        Ok(exec::json(&mut command)?["check"].take())
    }

    /// `detour simulate ARGS --json`, and how long it took.
    fn simulate(&self, args: &[&str]) -> Result<(Value, f64)> {
        let mut command = exec::command(self.workspace.binary("detour"), &self.scratch);
        command.args(["--quiet", "simulate"]).args(args).arg("--json");
        let begin = Instant::now();
        let value = exec::json(&mut command)?;
        Ok((value, begin.elapsed().as_secs_f64()))
    }

    /// The points of a sweep.
    fn points(&self, args: &[&str]) -> Result<Vec<Value>> {
        let (value, _) = self.simulate(args)?;
        Ok(value["points"].as_array().cloned().unwrap_or_default())
    }

    /// Real traces by system: (name, file).
    fn traces(&self) -> Result<Vec<(String, String)>> {
        let named = |path: &PathBuf| {
            let name = path.file_name()?.to_string_lossy();
            Some((name.split_once('-')?.0.to_owned(), path.display().to_string()))
        };
        Ok(data::noise_files()?.iter().filter_map(named).collect())
    }
}

/// The times of runs that `--times` wrote, sorted, us.
fn times(path: &Path) -> Result<Vec<f64>> {
    let text = fs::read_to_string(path).context("cannot read simulated times")?;
    let time = |line: &str| line.rsplit(',').next()?.parse().ok();
    let mut times: Vec<f64> = text.lines().skip(1).filter_map(time).collect();
    times.sort_unstable_by(f64::total_cmp);
    Ok(times)
}

/// A numeric field of a point.
fn number(point: &Value, key: &str) -> Result<f64> {
    point[key].as_f64().with_context(|| format!("no {key} in the simulator's output"))
}

type Check = fn(&Validate) -> Result<Vec<Claim>>;

/// Runs everything; false if a claim does not hold.
pub fn run(workspace: &Workspace, quick: bool) -> Result<bool> {
    workspace.build()?;
    let scratch = workspace.target.join("validate");
    fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
    let validate = Validate { workspace, scratch, quick };
    let checks: [(&'static str, Check); 16] = [
        ("closed forms", noise_study::closed_forms),
        ("fixed noise at 32,768 ranks", noise_study::fixed_noise),
        ("growth with the detour and with the ranks", noise_study::growth),
        ("allreduce and broadcast under long detours", noise_study::long_detours),
        ("large messages", noise_study::large_messages),
        ("network speed and co-scheduling", noise_study::network_and_coscheduling),
        ("real traces at a million ranks", noise_study::real_traces),
        ("models of applications: communication", applications::shares),
        ("models of applications under noise", applications::study),
        ("published systems", published::check),
        ("published network noise", published::network_noise),
        ("redundant butterfly", redundant::check),
        ("redundant butterfly at 8 Mi ranks", redundant::largest),
        ("all-to-all by resampling", sp2::check),
        ("tails of made recordings", tails::made),
        ("tails of recorded noise", tails::recorded),
    ];
    let mut claims = Vec::new();
    for (what, check) in checks {
        eprintln!("checking: {what}");
        claims.extend(check(&validate).unwrap_or_else(|error| {
            vec![Claim {
                what: what.to_owned(),
                paper: String::new(),
                here: String::new(),
                verdict: Verdict::Broken(format!("{error:#}")),
            }]
        }));
    }
    let _ = fs::remove_dir_all(&validate.scratch);
    println!("{}", page::table(&claims));
    if !quick {
        page::write(workspace, &claims)?;
    }
    let missed = claims.iter().filter(|claim| claim.verdict.is_bad()).count();
    if missed > 0 {
        eprintln!("{missed} claims do not hold");
    }
    Ok(missed == 0)
}
