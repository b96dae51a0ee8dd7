//! The longest detour of a recording, predicted from its first tenth: how many 95 % intervals cover it, and how
//! wide they are. Beside it, what resampling says, which never exceeds the longest seen.
//!
//! The prior of the fit was chosen on the recorded runs, by predictions from their first and last tenths and from
//! parts of them, so that this coverage flatters new runs. That from any tenth is closer to what they have: the
//! tenths in between were not used for the choice, although the runs are the same.

use std::{fmt::Write, fs};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Validate, claims::Claim, number};

const COVERED_PCT: f64 = 85.0;
const WIDTH: f64 = 8.0;

/// Lanes of one or several files.
#[derive(Default)]
struct Lanes(Vec<Value>);

impl Lanes {
    fn sum(&self, key: &str) -> f64 {
        self.0.iter().filter_map(|lane| lane[key].as_f64()).sum()
    }

    fn covered(&self) -> usize {
        self.0.iter().filter(|lane| lane["covered"] == true).count()
    }

    fn covered_pct(&self) -> f64 {
        100.0 * self.covered() as f64 / self.0.len().max(1) as f64
    }

    fn any_tenth_pct(&self) -> f64 {
        100.0 * self.sum("tenths_covered") / self.sum("tenths").max(1.0)
    }

    /// The median ratio of the bounds.
    fn width(&self) -> f64 {
        let bound = |lane: &Value, at: usize| lane["expected"]["ci95_us"][at].as_f64();
        let width = |lane: &Value| Some(bound(lane, 1)? / bound(lane, 0)?);
        let mut widths: Vec<f64> = self.0.iter().filter_map(width).collect();
        widths.sort_unstable_by(f64::total_cmp);
        widths.get(widths.len() / 2).copied().unwrap_or(f64::INFINITY)
    }

    /// How many times longer the longest detour was than resampling has it, at most.
    fn resampling_short(&self) -> Result<f64> {
        let ratio = |lane| Ok(number(lane, "longest_us")? / number(lane, "resampled_us")?);
        self.0.iter().map(ratio).try_fold(1.0f64, |most, ratio: Result<f64>| Ok(most.max(ratio?)))
    }

    fn words(&self) -> String {
        format!(
            "{} of {} covered, median width {:.1}; from any tenth {:.0} % covered",
            self.covered(),
            self.0.len(),
            self.width(),
            self.any_tenth_pct()
        )
    }

    fn claims(&self, what: &str) -> Result<Vec<Claim>> {
        let short = self.resampling_short()?;
        Ok(vec![
            Claim::new(
                format!("{what}: longest detour predicted from the first tenth, 95 % intervals"),
                "at least 85 % covered, median width at most 8",
                self.words(),
                self.covered_pct() >= COVERED_PCT && self.width() <= WIDTH,
            ),
            Claim::new(
                format!("{what}: resampling of the first tenth"),
                "falls short by up to 11 times",
                format!("falls short by up to {short:.1} times"),
                short > 1.0,
            ),
        ])
    }
}

fn of(validate: &Validate, file: &str) -> Result<Lanes> {
    let mut check = validate.tails(file)?;
    let lanes = check["lanes"].take();
    Ok(Lanes(lanes.as_array().cloned().with_context(|| format!("no lanes of {file}"))?))
}

pub fn recorded(validate: &Validate) -> Result<Vec<Claim>> {
    let what = "recorded noise";
    let traces = validate.traces()?;
    if traces.is_empty() {
        let aim = "at least 85 % covered, median width at most 8";
        return Ok(vec![Claim::absent(format!("{what}: tails"), aim)]);
    }
    let mut all = Lanes::default();
    let mut systems = Vec::new();
    for (name, file) in traces {
        let lanes = of(validate, &file)?;
        let (covered, runs, width) = (lanes.covered(), lanes.0.len(), lanes.width());
        systems.push(format!("{name} {covered}/{runs} (width {width:.1})"));
        all.0.extend(lanes.0);
    }
    // Files have one to four runs, too few for a verdict each.
    let mut claims = all.claims(what)?;
    claims[0].here += &format!("; {}", systems.join(", "));
    Ok(claims)
}

/// A day of recordings, an hour each, as one file with 24 runs.
pub fn made(validate: &Validate) -> Result<Vec<Claim>> {
    let file = validate.scratch.join("made.txt");
    let mut text = String::new();
    for hour in 0..24 {
        hour_of_noise(hour, &mut text)?;
    }
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    of(validate, &file.display().to_string())?.claims("made recordings with known tails")
}

/// Shapes of the generalised Pareto distributions of the daemon's lengths.
const SHAPES: [f64; 6] = [-0.3, 0.0, 0.1, 0.2, 0.3, 0.6];

/// A tick ten times a second, 2 us to 3 us long, and a daemon once a second with a tail.
fn hour_of_noise(hour: u64, text: &mut String) -> Result<()> {
    let shape = SHAPES[hour as usize % SHAPES.len()];
    let mut state = hour << 32;
    let mut uniform = || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    };
    writeln!(text, "# Selfish Benchmark\n# Minimal cycle length [ns]: 10")?;
    for tenth in 0..36_000u64 {
        let start = tenth as f64 * 1e8;
        writeln!(text, "{start:.1}\t{:.1}", 2_000.0 + 1_000.0 * uniform())?;
        if tenth % 10 == 5 {
            let ln = (1.0 - uniform()).ln();
            let excess = if shape == 0.0 { -ln } else { ((-shape * ln).exp() - 1.0) / shape };
            writeln!(text, "{:.1}\t{:.1}", start + 3e7, 3_000.0 + 10_000.0 * excess)?;
        }
    }
    writeln!(text, "# Measurement period: 3600")?;
    Ok(())
}
