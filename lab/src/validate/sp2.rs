//! All-to-all on the SP2: resampled exchange times, idle processors.

use anyhow::{Context, Result};

use super::{Validate, claims::Claim, number};

/// A node of the SP2 as the paper describes it: a dispatcher every 10 ms, another timer every
/// 6025 us, a swapper every second.
const NODE: [&str; 6] = [
    "--noise",
    "periodic:10ms,180us",
    "--noise",
    "periodic:6025us,120us",
    "--noise",
    "periodic:1s,2ms",
];

pub fn check(validate: &Validate) -> Result<Vec<Claim>> {
    let samples = validate.runs(100_000).to_string();
    let mut args = vec!["alltoall", "--ranks", "2,4,8,16,32", "--exchange", "165us"];
    args.extend(["--samples", &samples, "--repeat-trace"]);
    args.extend(NODE);
    let points = validate.points(&args)?;
    let column =
        |key: &str| -> Result<Vec<f64>> { points.iter().map(|point| number(point, key)).collect() };
    let at =
        |values: &[f64], index: usize| values.get(index).copied().context("a point is missing");
    let zero = column("idle_zero_pct")?;
    let mean = column("idle_mean_us")?;
    let max = column("idle_max_us")?;
    let throughput = column("relative_throughput")?;
    let rises = |values: &[f64]| values[1..].windows(2).all(|pair| pair[0] < pair[1]);
    Ok(vec![
        Claim::new(
            "all-to-all, idle time 0 at processor 0: 4 and 32 processors",
            "falls sharply",
            format!("{:.1} % and {:.2} %, {samples} samples", at(&zero, 1)?, at(&zero, 4)?),
            at(&zero, 4)? < 0.5 * at(&zero, 1)?,
        ),
        Claim::new(
            "all-to-all, mean idle time from 4 to 32 processors",
            "rises",
            format!("{:.0} us to {:.0} us", at(&mean, 1)?, at(&mean, 4)?),
            rises(&mean),
        ),
        Claim::new(
            "all-to-all, largest idle time, 4 and 32 processors",
            "rises",
            format!("{:.0} us and {:.0} us", at(&max, 1)?, at(&max, 4)?),
            at(&max, 4)? > at(&max, 1)?,
        ),
        Claim::new(
            "all-to-all, throughput from 2 to 32 processors",
            "falls monotonically, 40.991 to 38.970 MB/s",
            throughput.iter().map(|t| format!("{t:.4}")).collect::<Vec<_>>().join(", "),
            throughput.windows(2).all(|pair| pair[0] > pair[1]),
        ),
    ])
}
