//! The cost of watching: `detour top` on a terminal, without a probe, which is the default, and with
//! one.

use anyhow::{Context, Result};

use super::{
    Bench, Figure,
    node::{HOUSEKEEPING, MEASURED},
    number, skipped, unfit,
};
use crate::exec;

const WITHOUT: &str = "`detour top`, CPU share";
const WITH: &str = "the same with a probe, excluding the probe's CPU";
const TARGET: &str = "< 1 %";

pub fn top(bench: &Bench) -> Result<Vec<Figure>> {
    if let Some(why) = unfit() {
        return Ok([WITHOUT, WITH].map(|what| skipped(what, TARGET, &why)).into());
    }
    let probe = ["--probe", "-c", MEASURED, "-H", HOUSEKEEPING];
    Ok(vec![share(bench, WITHOUT, &[])?, share(bench, WITH, &probe)?])
}

/// The best of a few: everything else that runs produces records, which are more work for the view.
fn share(bench: &Bench, what: &'static str, options: &[&str]) -> Result<Figure> {
    let seconds = bench.extent.load_seconds.to_string();
    let mut runs = Vec::new();
    for _ in 0..bench.extent.repeats {
        let mut command = bench.example("top_cost");
        command.arg(bench.workspace.binary("detour")).arg(&seconds).args(options);
        let found = exec::json(&mut command)?;
        runs.push((number(&found, "/cpu_pct")?, number(&found, "/own_cpu_pct")?));
    }
    let best = runs.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
    let (share, own) = best.context("nothing was measured")?;
    Ok(Figure::judged(
        what,
        TARGET,
        format!("{share:.2} % ({own:.2} % by its own count)"),
        share < 1.0,
    ))
}
