//! The applications of the 2010 noise study, in form: models of Sweep3D, AMG2006 and POP
//! (`detour simulate skeleton`). Their noise was never published, so percentages are compared in order and
//! magnitude only.

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Validate, claims::Claim, number};

/// The network of the study's noisiest system, on which it simulates POP with other speeds.
const NETWORK: &str = "chic";
/// Noise of a tenth of a per cent.
const REGULAR: &str = "periodic:10Hz,100us";
/// Two runs of the wavefront differ by a few hundredths of a per cent.
const RUNS: &str = "5";
const FEW: [(&str, &str); 3] = [("sweep3d", "1000"), ("amg2006", "1000"), ("pop", "1024")];

fn points(validate: &Validate, app: usize, noise: &str, more: &[&str]) -> Result<Vec<Value>> {
    let (name, ranks) = FEW[app];
    let args = ["skeleton", name, "--ranks", ranks, "--runs", RUNS, "--net", NETWORK];
    let noise = ["--noise", noise, "--repeat-trace"];
    validate.points(&[&args[..], &noise, more].concat())
}

fn slowdown(point: &Value) -> Result<f64> {
    Ok(100.0 * (number(point, "slowdown_median")? - 1.0))
}

fn one(validate: &Validate, app: usize, noise: &str, more: &[&str]) -> Result<f64> {
    let points = points(validate, app, noise, more)?;
    slowdown(points.first().context("no points in the simulator's output")?)
}

/// Shares without noise, on the network of the traced machine.
pub fn shares(validate: &Validate) -> Result<Vec<Claim>> {
    let mut claims = Vec::new();
    for (name, paper) in [("sweep3d", 17.2), ("amg2006", 17.7), ("pop", 77.2)] {
        let points = validate.points(&["skeleton", name, "--runs", "1", "--net", "xt4"])?;
        let point = points.first().context("no points in the simulator's output")?;
        let share = number(point, "communication_pct")?;
        claims.push(Claim::new(
            format!("model of {name} at the size of the traced run: share of communication"),
            format!("{paper} %"),
            format!("{share:.1} %, {:.1} % collectives", number(point, "collectives_pct")?),
            (share - paper).abs() < 0.5,
        ));
    }
    Ok(claims)
}

pub fn study(validate: &Validate) -> Result<Vec<Claim>> {
    let mut claims = form(validate, REGULAR, "100 us at 10 Hz")?;
    match validate.traces()?.into_iter().find(|(name, _)| name == "alps") {
        Some((_, file)) => claims.extend(form(validate, &file, "the alps trace")?),
        None => claims.push(Claim::absent(
            "models of the three applications under recorded noise",
            "as under regular noise",
        )),
    }
    Ok(claims)
}

fn form(validate: &Validate, noise: &str, words: &str) -> Result<Vec<Claim>> {
    let mut slowdowns = [0.0; 3];
    let mut together = [0.0; 3];
    for app in 0..FEW.len() {
        let points = points(validate, app, noise, &["--with-coscheduled"])?;
        let both = points.first().zip(points.get(1)).context("a point is missing")?;
        (slowdowns[app], together[app]) = (slowdown(both.0)?, slowdown(both.1)?);
    }
    let [sweep, amg, pop] = slowdowns;
    let mut claims = vec![
        Claim::new(
            format!("Sweep3D, AMG2006, POP (models), 1,000 ranks, {words}: slowdown"),
            "the wavefront nearly immune (0.7 %), multigrid a few per cent (5 %), the ocean model worst \
             (above 100 % at 32,000 ranks)",
            format!("{sweep:.1} %, {amg:.1} %, {pop:.0} %, {RUNS} runs"),
            sweep < 5.0 && sweep < amg && amg < pop && pop > 10.0,
        ),
        Claim::new(
            format!("the same, co-scheduled, {words}: slowdown"),
            "nearly all propagation eliminated (less than 0.5 %)",
            format!("{:.2} %, {:.2} %, {:.2} %", together[0], together[1], together[2]),
            together
                .iter()
                .zip(slowdowns)
                .all(|(&with, without)| with < 0.7 && with < 0.2 * without),
        ),
    ];
    for (app, name) in [(1, "AMG2006"), (2, "POP")] {
        let p2p = one(validate, app, noise, &["--only", "p2p"])?;
        let collectives = one(validate, app, noise, &["--only", "collectives"])?;
        claims.push(Claim::new(
            format!("{name} (model), {words}: slowdown with messages between pairs only, with collectives only"),
            "messages between pairs matter, but much less than collectives",
            format!("{p2p:.1} %, {collectives:.1} % (all: {:.1} %)", slowdowns[app]),
            p2p > 0.0 && p2p < collectives,
        ));
    }
    let points = points(validate, 2, noise, &["--net-scale", "1,10"])?;
    let (slow, fast) = points.first().zip(points.get(1)).context("a point is missing")?;
    let gain = |key: &str| -> Result<f64> { Ok(number(slow, key)? / number(fast, key)?) };
    let (without, with) = (gain("noiseless_us")?, gain("median_us")?);
    claims.push(Claim::new(
        format!("POP (model), a network ten times faster, {words}: speedup without and with noise"),
        "a faster network helps less under noise, and is affected more",
        format!(
            "{without:.2} and {with:.2}; slowdown {:.0} % and {:.0} %",
            slowdown(slow)?,
            slowdown(fast)?
        ),
        with < without && slowdown(fast)? > slowdown(slow)?,
    ));
    Ok(claims)
}
