//! Published results of systems whose noise traces are at hand: dissemination of 16 bytes with
//! LogGOPSim, 712 runs each.
//!
//! The peer's seed is the clock, in seconds. So of 712 runs one after the other only as many are
//! independent as the seconds they took, and the published quantiles scatter accordingly. A figure
//! agrees when it lies where the same quantile of that many independent runs lies with 99.9 %
//! probability, by the runs made here; there are eighteen of them, so each may be rather sure.

use anyhow::Result;

use super::{Validate, claims::Claim};

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

/// Seconds that a run of the peer takes: 0.86 at 16,384 ranks, in proportion to the messages, and
/// the start of a process.
fn seconds(ranks: u64) -> f64 {
    let messages = ranks as f64 * (ranks as f64).log2();
    0.005 + 0.86 * messages / (16_384.0 * 14.0)
}

pub fn check(validate: &Validate) -> Result<Vec<Claim>> {
    let traces = validate.traces()?;
    let mut claims = Vec::new();
    for row in &ROWS {
        let what = format!("{}, {} ranks, 16 bytes: quartiles, us", row.system, row.ranks);
        let paper = row.quartiles.map(|us| format!("{us}")).join(" / ");
        let Some((_, file)) = traces.iter().find(|(name, _)| name == row.system) else {
            claims.push(Claim::absent(what, paper));
            continue;
        };
        let runs = validate.runs(if row.ranks > 10_000 { 400 } else { 1000 });
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
        let text = std::fs::read_to_string(&times)?;
        let mut sample: Vec<f64> =
            text.lines().skip(1).filter_map(|line| line.rsplit(',').next()?.parse().ok()).collect();
        sample.sort_by(f64::total_cmp);
        let independent = (PUBLISHED_RUNS * seconds(row.ranks)).min(PUBLISHED_RUNS);
        let mut holds = (noiseless / row.noiseless - 1.0).abs() < 2e-4;
        let mut here = Vec::new();
        for (p, published) in [0.25, 0.5, 0.75].into_iter().zip(row.quartiles) {
            // The share of runs below a quantile scatters like a binomial one, on both sides.
            let scatter = |n: f64| 3.29 * (p * (1.0 - p) / n).sqrt();
            let reach = scatter(independent).hypot(scatter(sample.len() as f64));
            let (low, high) = (quantile(&sample, p - reach), quantile(&sample, p + reach));
            // Published to three digits behind the point, with a parameter rounded.
            let slack = published * 2e-4;
            holds &= low - slack <= published && published <= high + slack;
            here.push(format!("{:.2} ({low:.2} to {high:.2})", quantile(&sample, p)));
        }
        claims.push(Claim::new(what, paper, format!("{}, {runs} runs", here.join(" / ")), holds));
    }
    Ok(claims)
}

fn quantile(sorted: &[f64], p: f64) -> f64 {
    let at = (p.clamp(0.0, 1.0) * (sorted.len().max(1) - 1) as f64).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_runs_of_the_peer_share_their_seeds() {
        assert!(PUBLISHED_RUNS * seconds(64) < 10.0);
        assert!(PUBLISHED_RUNS * seconds(16_384) > 600.0);
    }
}
