//! The redundant butterfly (Chen and Suda).

use anyhow::{Context, Result};

use super::{Validate, claims::Claim, number};

/// (period, duration, work), and earlier results for 4k to 256k ranks.
const CASES: [(&str, &str, &str, &str, f64, f64); 3] = [
    ("10ms", "100us", "0", "0.35 to 0.36 (tried)", 0.32, 0.38),
    ("10ms", "100us", "6666.67us", "0.41 to 0.45 (tried)", 0.38, 0.48),
    ("100ms", "100us", "66666.7us", "0.33 to 0.46 (tried)", 0.31, 0.48),
];

fn recovery(validate: &Validate, case: usize, ranks: &str, runs: u64) -> Result<(f64, String)> {
    let (period, duration, work, ..) = CASES[case];
    let runs = runs.to_string();
    let args = [
        "cycle",
        "--ranks",
        ranks,
        "--period",
        period,
        "--duration",
        duration,
        "--work",
        work,
        "--cycles",
        "10",
        "--runs",
        &runs,
    ];
    let (value, took) = validate.simulate(&args)?;
    let point = value["points"].get(0).context("no points in the simulator's output")?.clone();
    let recovery = number(&point, "recovery")?;
    let between = &point["recovery_ci95"];
    let (low, high) = (between[0].as_f64(), between[1].as_f64());
    let interval = match (low, high) {
        (Some(low), Some(high)) => format!(" ({low:.3} to {high:.3})"),
        _ => String::new(),
    };
    Ok((recovery, format!("{recovery:.3}{interval}, {runs} runs, {took:.0} s")))
}

pub fn check(validate: &Validate) -> Result<Vec<Claim>> {
    let mut claims = Vec::new();
    for (index, (period, duration, work, tried, low, high)) in CASES.into_iter().enumerate() {
        for (ranks, runs) in [("4Ki", 400), ("64Ki", 100), ("256Ki", 40)] {
            let (found, here) = recovery(validate, index, ranks, validate.runs(runs))?;
            claims.push(Claim::new(
                format!("recovery, {ranks} ranks, {duration} every {period}, work {work}"),
                tried,
                here,
                (low..=high).contains(&found),
            ));
        }
    }
    Ok(claims)
}

pub fn largest(validate: &Validate) -> Result<Vec<Claim>> {
    let mut claims = Vec::new();
    for (index, (period, duration, work, ..)) in CASES.into_iter().enumerate() {
        let runs = if validate.quick { 1 } else { 4 };
        let (found, here) = recovery(validate, index, "8Mi", runs)?;
        claims.push(Claim::new(
            format!("recovery, 8 Mi ranks, {duration} every {period}, work {work}"),
            "nearly 0.4",
            here,
            (0.35..=0.5).contains(&found),
        ));
    }
    Ok(claims)
}
