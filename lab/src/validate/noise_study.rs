//! The 2010 noise study (LogGOPS, injected and recorded noise).

use anyhow::{Context, Result};
use serde_json::Value;

use super::{
    Validate,
    claims::{Claim, straightness},
    number,
};

fn collective<'a>(ranks: &'a str, runs: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["collective", "--ranks", ranks, "--runs", runs];
    args.extend(more);
    args
}

fn one(validate: &Validate, ranks: &str, runs: u64, more: &[&str]) -> Result<Value> {
    let points = validate.points(&collective(ranks, &runs.to_string(), more))?;
    points.into_iter().next().context("no points in the simulator's output")
}

/// "10.97 (10.91 to 11.02), 1000 runs".
fn slowdown(point: &Value) -> Result<String> {
    let noiseless = number(point, "noiseless_us")?;
    Ok(format!(
        "{:.2} ({:.2} to {:.2}), {} runs",
        number(point, "slowdown_median")?,
        number(point, "median_low_us")? / noiseless,
        number(point, "median_high_us")? / noiseless,
        point["runs"]
    ))
}

pub fn closed_forms(validate: &Validate) -> Result<Vec<Claim>> {
    // N = o + L + (k-1) G + o on the cnl network.
    let n = |bytes: f64| 2.87 + 4.77 + (bytes - 1.0) * 0.00267 + 2.87;
    let mut claims = Vec::new();
    for (what, op, ranks, size, expected) in [
        ("one eager message of 1 byte takes N", "bcast", "2", "1", n(1.0)),
        ("one eager message of 65,000 bytes takes N", "bcast", "2", "65000", n(65_000.0)),
        ("one rendezvous message of 1 MiB takes N", "bcast", "2", "1MiB", n(1_048_576.0)),
        (
            "a dissemination barrier over 1000 ranks takes 10 N",
            "barrier",
            "1000",
            "1",
            10.0 * n(1.0),
        ),
        (
            "a dissemination barrier over 1 Mi ranks takes 20 N",
            "barrier",
            "1Mi",
            "1",
            20.0 * n(1.0),
        ),
    ] {
        let args = ["--op", op, "--size", size, "--net", "cnl", "--rendezvous", "closed-form"];
        let point = one(validate, ranks, 1, &args)?;
        let found = number(&point, "noiseless_us")?;
        // To the picosecond; the figure is in microseconds.
        let exact = (found - expected).abs() < 0.5e-6;
        let here = format!("{found:.6} us");
        claims.push(Claim::new(what, format!("{expected:.6} us"), here, exact));
    }
    Ok(claims)
}

pub fn fixed_noise(validate: &Validate) -> Result<Vec<Claim>> {
    let runs = validate.runs(1000);
    let mut claims = Vec::new();
    for (length, paper, range) in [
        ("200us", "10.5 to 11.0 (tried)", 10.3..11.2),
        ("100us", "4.9 (tried)", 4.6..5.2),
        ("50us", "2.6 (tried)", 2.45..2.8),
        ("16us", "1.4 (tried); no significant effect", 1.25..1.5),
    ] {
        let noise = format!("periodic:1000Hz,{length}");
        let args = ["--op", "barrier", "--net", "cnl", "--noise", &noise];
        let point = one(validate, "32768", runs, &args)?;
        let median = number(&point, "slowdown_median")?;
        claims.push(Claim::new(
            format!("dissemination, 32,768 ranks, {length} at 1000 Hz: median slowdown"),
            paper,
            slowdown(&point)?,
            range.contains(&median),
        ));
        if length == "200us" {
            let max = number(&point, "slowdown_max")?;
            claims.push(Claim::new(
                "dissemination, 32,768 ranks, 200us at 1000 Hz: largest slowdown",
                "13; 12.6 to 14.0 (tried)",
                format!("{max:.2}, {runs} runs"),
                (12.0..=14.0).contains(&max),
            ));
        }
    }
    Ok(claims)
}

pub fn growth(validate: &Validate) -> Result<Vec<Claim>> {
    let runs = validate.runs(1000);
    let mut by_length = Vec::new();
    for length in [50, 100, 150, 200] {
        let noise = format!("periodic:1000Hz,{length}us");
        let args = ["--op", "barrier", "--net", "cnl", "--noise", &noise];
        let point = one(validate, "32768", runs, &args)?;
        by_length.push((f64::from(length), number(&point, "max_us")?));
    }
    let linear = straightness(&by_length);
    let args = ["--op", "barrier", "--net", "cnl", "--noise", "periodic:1000Hz,200us"];
    let runs_text = validate.runs(200).to_string();
    let points = validate.points(&collective("64..1Mi", &runs_text, &args))?;
    let by_ranks: Result<Vec<_>> =
        points.iter().map(|p| Ok((number(p, "ranks")?.log2(), number(p, "median_us")?))).collect();
    let logarithmic = straightness(&by_ranks?);
    Ok(vec![
        Claim::new(
            "the largest time grows linearly with the detour, 50 to 200 us",
            "linear",
            format!("R^2 = {linear:.4}, {runs} runs each"),
            linear > 0.97,
        ),
        Claim::new(
            "the median time grows with the logarithm of the ranks, 64 to 1 Mi",
            "logarithmic",
            format!("R^2 = {logarithmic:.4}, {runs_text} runs each"),
            logarithmic > 0.99,
        ),
    ])
}

pub fn long_detours(validate: &Validate) -> Result<Vec<Claim>> {
    let runs = validate.runs(100);
    let noise = "periodic:10Hz,2500us";
    let common = ["--net", "xt4", "--noise", noise, "--iterations", "1000"];
    let mut claims = Vec::new();
    let mut allreduce = 0.0;
    for (ranks, tried, range) in [
        ("256", "28.3 (tried)", 26.5..30.0),
        ("1024", "30; 31.1 (tried)", 29.0..33.0),
        ("2048", "32.3 (tried); 32 measured elsewhere", 30.5..34.0),
    ] {
        let point = one(validate, ranks, runs, &[&common[..], &["--op", "allreduce"]].concat())?;
        allreduce = number(&point, "slowdown_median")?;
        claims.push(Claim::new(
            format!("1000 allreduces in a row, {ranks} ranks, 2.5 ms at 10 Hz: slowdown"),
            tried,
            slowdown(&point)?,
            range.contains(&allreduce),
        ));
    }
    let point = one(validate, "2048", runs, &[&common[..], &["--op", "bcast"]].concat())?;
    let bcast = number(&point, "slowdown_median")?;
    claims.push(Claim::new(
        "1000 broadcasts in a row, 2048 ranks, the same noise: slowdown",
        "significantly less than allreduce",
        slowdown(&point)?,
        bcast < allreduce / 2.0,
    ));
    Ok(claims)
}

pub fn large_messages(validate: &Validate) -> Result<Vec<Claim>> {
    let runs = validate.runs(200);
    let noise = ["--op", "barrier", "--net", "cnl", "--noise", "periodic:1000Hz,100us"];
    let small = one(validate, "32768", runs, &noise)?;
    // The study's rule for messages above S.
    let size = ["--size", "1MiB", "--rendezvous", "closed-form"];
    let large = one(validate, "32768", runs, &[&noise[..], &size].concat())?;
    let (s, l) = (number(&small, "slowdown_median")?, number(&large, "slowdown_median")?);
    Ok(vec![Claim::new(
        "dissemination of 1 MiB, 32,768 ranks, 100 us at 1000 Hz: slowdown",
        "no significant slowdown",
        format!("{} (1 byte: {s:.2})", slowdown(&large)?),
        l < 1.1 && s > 2.0,
    )])
}

pub fn network_and_coscheduling(validate: &Validate) -> Result<Vec<Claim>> {
    let runs = validate.runs(200).to_string();
    let trace = validate.traces()?.into_iter().find(|(name, _)| name == "alps");
    let noise = trace.map_or("periodic:10Hz,2500us".to_owned(), |(_, file)| file);
    let source = if noise.starts_with("periodic") { "2.5 ms at 10 Hz" } else { "the alps trace" };
    let common = ["--op", "barrier", "--net", "altix", "--noise", &noise];
    let sweep = [&common[..], &["--net-scale", "0.1,1,10"]].concat();
    let points = validate.points(&collective("16,1Mi", &runs, &sweep))?;
    let median = |ranks: u64, scale: f64| -> Result<f64> {
        let found = points.iter().find(|p| p["ranks"] == ranks && p["net_scale"] == scale);
        number(found.context("a point is missing")?, "median_us")
    };
    let (few, many) = (16, 1 << 20);
    let spread = |ranks| -> Result<f64> { Ok(median(ranks, 0.1)? / median(ranks, 10.0)?) };
    let mut claims = vec![Claim::new(
        format!("networks ten times slower and faster, {source}: ratio of the medians"),
        "converges at scale",
        format!("{:.2} at 16 ranks, {:.2} at 1 Mi, {runs} runs", spread(few)?, spread(many)?),
        spread(many)? < 0.4 * spread(few)?,
    )];

    let apart = one(validate, "1Mi", validate.runs(200), &common)?;
    let together =
        one(validate, "1Mi", validate.runs(200), &[&common[..], &["--coscheduled"]].concat())?;
    let (min, median) = (number(&together, "min_us")?, number(&together, "median_us")?);
    claims.push(Claim::new(
        format!("co-scheduled, 1 Mi ranks, {source}: median and minimum"),
        "the median falls to the minimum; outliers remain",
        format!(
            "{median:.1} us and {min:.1} us (independent: {:.1} us), {runs} runs",
            number(&apart, "median_us")?
        ),
        median <= min * 1.01 && number(&apart, "median_us")? > 1.5 * median,
    ));
    Ok(claims)
}

pub fn real_traces(validate: &Validate) -> Result<Vec<Claim>> {
    let form = "the tree suffers less than dissemination (148 and 60, 25 and 9)";
    let knee = "each system has its own knee (512 to 8,192 ranks)";
    let traces = validate.traces()?;
    if traces.is_empty() {
        return Ok(vec![
            Claim::absent("recorded noise, 1 Mi ranks: dissemination and binomial", form),
            Claim::absent("recorded noise: the knee", knee),
        ]);
    }
    let runs = validate.runs(100).to_string();
    let mut claims = Vec::new();
    let mut knees = Vec::new();
    for (name, file) in traces {
        let sweep = ["--net", "xt4", "--noise", &file];
        let barrier = [&sweep[..], &["--op", "barrier"]].concat();
        let (value, took) = validate.simulate(&collective("2..1Mi", &runs, &barrier))?;
        let at_scale = value["points"].as_array().and_then(|points| points.last().cloned());
        let at_scale = at_scale.context("no points in the simulator's output")?;
        let tree = [&sweep[..], &["--op", "bcast"]].concat();
        let tree = one(validate, "1Mi", validate.runs(100), &tree)?;
        let (all, rooted) = (number(&at_scale, "slowdown_max")?, number(&tree, "slowdown_max")?);
        claims.push(Claim::new(
            format!("{name}, 1 Mi ranks, xt4: largest slowdown, dissemination and binomial"),
            form,
            format!("{all:.2} and {rooted:.2}, {runs} runs, sweep in {took:.0} s"),
            rooted <= all,
        ));
        knees.push(format!("{name} {}", value["knee_ranks"]));
    }
    let found = knees.iter().filter(|knee| !knee.ends_with("null")).count();
    claims.push(Claim::new("recorded noise, xt4: the knee", knee, knees.join(", "), found > 0));
    Ok(claims)
}
