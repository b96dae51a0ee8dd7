//! Distributions of any samples, side by side: figures, modes, fits, and how the first differs from each other.

mod changes;
mod input;
mod numbers;

use std::path::PathBuf;

use analysis::words::{percent_said, shell_quoted};
use anyhow::{Result, bail};
use distribution::{
    bins,
    blocks::{Blocks, share_interval},
    excess, fit, modes,
    shift::{self, QUANTILES},
};
use rayon::prelude::*;
use serde::Serialize;

pub use distribution::{bins::Bins, sketch::Sample};

use crate::run::work::Work;

/// What to read, and how.
#[derive(Clone, Debug)]
pub struct Request {
    pub files: Vec<PathBuf>,
    /// Of numbers in text.
    pub unit: Unit,
    /// List the counts of these bins.
    pub bins: Option<Bins>,
    /// One distribution per source of a recording.
    pub by_source: bool,
    /// Only these sources.
    pub sources: Vec<String>,
}

impl Request {
    /// As a command line.
    pub fn command(&self, seed: u64) -> String {
        let mut line = "detour dist".to_owned();
        for file in &self.files {
            line += &format!(" {}", shell_quoted(&file.display().to_string()));
        }
        match self.bins {
            None => {}
            Some(Bins::Hdr) => line += " --bins hdr",
            Some(Bins::Fixed(ps)) => line += &format!(" --bins fixed:{ps}ps"),
            Some(Bins::Log(ps)) => line += &format!(" --bins log:{ps}ps"),
        }
        if self.unit != Unit::default() {
            line += &format!(" --unit {}", self.unit.name());
        }
        if self.by_source {
            line += " --by source";
        }
        for source in &self.sources {
            line += &format!(" --source {}", shell_quoted(source));
        }
        line + &format!(" --seed {seed}")
    }

    /// Only recordings have sources.
    fn no_sources(&self, name: &str) -> Result<()> {
        if self.by_source || !self.sources.is_empty() {
            bail!("{name} has no sources: --by source and --source require recordings");
        }
        Ok(())
    }
}

/// The unit of a number without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    Picoseconds,
    Nanoseconds,
    #[default]
    Microseconds,
    Milliseconds,
    Seconds,
}

impl Unit {
    /// The name used in the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Picoseconds => "ps",
            Unit::Nanoseconds => "ns",
            Unit::Microseconds => "us",
            Unit::Milliseconds => "ms",
            Unit::Seconds => "s",
        }
    }

    /// Its length is this power of ten of picoseconds.
    pub const fn power(self) -> u32 {
        match self {
            Unit::Picoseconds => 0,
            Unit::Nanoseconds => 3,
            Unit::Microseconds => 6,
            Unit::Milliseconds => 9,
            Unit::Seconds => 12,
        }
    }
}

/// Distributions of samples, and comparisons of the first with each of the others: of the first file's sources with the same
/// ones of other files.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distributions {
    /// Of all values: us.
    pub unit: &'static str,
    pub seed: u64,
    pub files: Vec<Distribution>,
    pub shifts: Vec<Comparison>,
}

/// One distribution.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distribution {
    /// The file, with the source or the point of a simulation.
    pub name: String,
    /// `samples`, `latencies`, `detours`, `source`, `runs` or `histogram`.
    pub of: &'static str,
    pub n: u64,
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    /// The place of the highest mode.
    pub mode: f64,
    /// Population standard deviation.
    pub sd: f64,
    /// Standard deviation over mean; null if the mean is 0.
    pub cv: Option<f64>,
    pub skewness: f64,
    /// Fourth standardised moment: 3 for a normal distribution.
    pub kurtosis: f64,
    pub about_min: AboutMin,
    /// In order of place.
    pub modes: Vec<FoundMode>,
    /// Values gather at this distance, as if measured by a coarse clock; not counted as modes, of which there are at most 8.
    pub step: Option<f64>,
    pub quantiles: Quantiles,
    /// Whether quantiles are those of all values. If not, they are within 0.02 % of their distance from
    /// the minimum of the first samples; the largest 16384 samples are exact.
    pub exact: bool,
    /// Log-normal, gamma and F; the best first. Null for fewer than 50 samples or almost equal ones.
    pub fits: Option<Vec<Fit>>,
    /// Generalised Pareto distribution of the largest. Null if there are too few.
    pub tail: Option<Tail>,
    /// How samples follow one another; null if their order is unknown, or if there are too few.
    pub blocks: Option<BlocksUsed>,
    /// Those that are not empty, with --bins.
    pub bins: Option<Vec<BinCount>>,
    pub remarks: Vec<String>,
    /// For figures.
    #[serde(skip)]
    pub sample: Sample,
}

/// Moments about the minimum instead of the mean: how far from the best case.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AboutMin {
    /// Root mean square of the distances from the minimum.
    pub sd: f64,
    /// Mean third power of the distances, in units of `sd`.
    pub skewness: f64,
    /// Mean fourth power.
    pub kurtosis: f64,
}

/// A place around which samples gather.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FoundMode {
    /// The highest point.
    pub at: f64,
    /// 95 % interval of the place.
    pub ci95: [f64; 2],
    /// Of all samples, those between the valleys on either side; 0 to 1.
    pub share: f64,
    pub share_ci95: [f64; 2],
    /// The valley below, or the smallest sample.
    pub from: f64,
    /// The valley above, or the largest sample.
    pub to: f64,
    /// The narrowest interval with half of the mode.
    pub core: [f64; 2],
}

/// Quantiles in percent; interpolated between neighbouring samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    pub p1: f64,
    pub p5: f64,
    pub p10: f64,
    pub p25: f64,
    pub p50: f64,
    pub p75: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    #[serde(rename = "p99.9")]
    pub p99_9: f64,
    #[serde(rename = "p99.99")]
    pub p99_99: f64,
}

impl Quantiles {
    fn of(sample: &Sample) -> Quantiles {
        let at = |p: f64| us(sample.quantile(p));
        Quantiles {
            p1: at(0.01),
            p5: at(0.05),
            p10: at(0.1),
            p25: at(0.25),
            p50: at(0.5),
            p75: at(0.75),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
        }
    }
}

/// A fitted distribution.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// `log-normal`, `gamma` or `F`.
    pub family: &'static str,
    /// Where the distribution begins.
    pub location: f64,
    /// Of the log-normal distribution, the median above the location.
    pub scale: f64,
    /// Standard deviation of the logarithm; shape; or both degrees of freedom.
    pub shape: Vec<f64>,
    /// Kolmogorov-Smirnov distance: the largest difference of the cumulative shares.
    pub ks_distance: f64,
    /// Chance of such a distance if the samples were independent and from this distribution; by parametric
    /// bootstrap, or an upper bound if that already is below 0.05.
    pub p_value: f64,
    /// `good`: not rejected at 5 %. `close`: rejected, but nowhere off by more than 3 % of the samples.
    /// `poor`: neither.
    pub verdict: &'static str,
}

/// A cumulative share that is off by this much is visible.
const CLOSE: f64 = 0.03;

impl Fit {
    fn of(fit: &fit::Fit) -> Fit {
        Fit {
            family: fit.family.name(),
            location: us(fit.location),
            scale: us(fit.scale),
            shape: fit.shapes.clone(),
            ks_distance: fit.distance,
            p_value: fit.p_value,
            verdict: match fit.p_value >= 0.05 {
                true => "good",
                false if fit.distance <= CLOSE => "close",
                false => "poor",
            },
        }
    }
}

/// A bin: values from `from` to below `to`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BinCount {
    pub from: f64,
    pub to: f64,
    pub count: u64,
}

/// The generalised Pareto distribution of what exceeds a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tail {
    pub threshold: f64,
    /// Samples above it.
    pub n: u64,
    /// Above 0 a power law, 0 exponential, below 0 bounded.
    pub shape: f64,
    pub scale: f64,
    pub ks_distance: f64,
    pub p_value: f64,
}

/// The blocks of the bootstrap.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BlocksUsed {
    /// Consecutive samples per block.
    pub length: u64,
    pub count: u64,
    /// Variance of the share below the median, compared with independent samples.
    pub inflation: f64,
}

/// How a distribution differs from the first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub first: String,
    pub second: String,
    /// Those that both have enough samples for.
    pub quantiles: Vec<Shift>,
    /// Kolmogorov-Smirnov distance of the two.
    pub ks_distance: f64,
    /// What a person would notice, the most important first; empty if no difference is certain.
    pub findings: Vec<Finding>,
}

/// The shift of a quantile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shift {
    /// 0 to 1.
    pub p: f64,
    pub first: f64,
    pub second: f64,
    /// Second less first.
    pub shift: f64,
    /// By block bootstrap.
    pub ci95: [f64; 2],
    /// Whether it differs even after allowing for the number of quantiles compared.
    pub differs: bool,
}

/// One difference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// `mode_gone`, `mode_merged` (no valley separates its samples any more), `mode_new`, `mode_moved`, `mode_share` or
    /// `quantile`.
    pub change: ChangeKind,
    /// The mode or the quantile in the first distribution; of a new mode, in the second.
    pub at: f64,
    /// The same in the second, if it is there.
    pub to: Option<f64>,
    /// Share of the mode in the first, in the second.
    pub shares: Option<[f64; 2]>,
    /// Of a quantile: 0 to 1.
    pub p: Option<f64>,
    /// 95 % interval of the shift of a quantile.
    pub ci95: Option<[f64; 2]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Hardly any samples are left where the mode was.
    ModeGone,
    /// The samples are still there, but no valley separates them.
    ModeMerged,
    ModeNew,
    ModeMoved,
    /// Its share has changed.
    ModeShare,
    Quantile,
}

fn us(ps: f64) -> f64 {
    ps / 1e6
}

fn pair((low, high): (f64, f64)) -> [f64; 2] {
    [us(low), us(high)]
}

/// Reads all files and compares those of the first with the same of the others.
pub fn distributions(request: &Request, work: &Work<'_>) -> Result<Distributions> {
    let mut named: Vec<input::Named> = Vec::new();
    // Pairs to compare.
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for (number, file) in request.files.iter().enumerate() {
        let read = input::read(file, request, work)?;
        let begin = named.len();
        named.extend(read);
        for own in begin..named.len() {
            let same = |base: &usize| named[*base].part == named[own].part;
            let base = match number {
                // Sources are parts of one recording, not alternatives.
                0 if named[own].of == "runs" && own > 0 => Some(0),
                0 => None,
                _ => (0..begin).find(same),
            };
            pairs.extend(base.map(|base| (base, own)));
        }
    }
    work.in_pool(|| {
        let files = named.into_par_iter().map(|named| distribution(named, request, work.seed));
        let files: Vec<Distribution> = files.collect::<Result<_>>()?;
        let compared = pairs.par_iter().map(|&(a, b)| compare(&files[a], &files[b], work.seed));
        let shifts = compared.collect();
        Ok(Distributions { unit: "us", seed: work.seed, files, shifts })
    })?
}

fn distribution(named: input::Named, request: &Request, seed: u64) -> Result<Distribution> {
    let input::Named { name, of, sample, mut remarks, .. } = named;
    let blocks = Blocks::of(&sample);
    let median = sample.quantile(0.5);
    let inflation =
        blocks.as_ref().map_or(1.0, |blocks| blocks.inflation(|value| value as f64 <= median));
    let (found, (fits, tail)) = rayon::join(
        || modes::find(&sample, inflation.max(1.0), seed),
        || rayon::join(|| fit::fit(&sample, seed), || excess::tail(&sample, seed)),
    );
    let mode = |mode: &modes::Mode| {
        let inside = |value: i64| (mode.from..mode.to).contains(&(value as f64));
        let inflation = blocks.as_ref().map_or(1.0, |blocks| blocks.inflation(inside)).max(1.0);
        let (low, high) = share_interval(mode.share, sample.n(), inflation);
        FoundMode {
            at: us(mode.at),
            ci95: pair(mode.ci95),
            share: mode.share,
            share_ci95: [low, high],
            from: us(mode.from),
            to: us(mode.to),
            core: pair(mode.core),
        }
    };
    let highest = found.modes.iter().max_by(|a, b| a.density.total_cmp(&b.density));
    let highest = highest.map_or(median, |mode| mode.at);
    if fits.is_none() && sample.heaviest() > fit::MOST_IN_ONE && sample.min < sample.max {
        let share = percent_said(100.0 * sample.heaviest());
        remarks.push(match sample.is_binned() {
            true => format!(
                "one bin holds {share} of the samples: whether a distribution fits cannot be judged (use single times, \
                 or narrower bins)"
            ),
            false => format!("one value holds {share} of the samples: no continuous distribution fits"),
        });
    }
    let fits = fits.map(|fits| fits.iter().map(Fit::of).collect());
    let bins = match request.bins {
        Some(bins) => match bins::histogram(&sample, bins) {
            Ok(filled) => {
                let of = |bin: &bins::Bin| BinCount {
                    from: us(bin.from),
                    to: us(bin.to),
                    count: bin.count,
                };
                Some(filled.iter().map(of).collect())
            }
            Err(bins::TooMany) => {
                bail!("{name} needs more than {} bins: use wider ones with --bins", bins::MOST)
            }
        },
        None => None,
    };
    let (shape, about_min) = (sample.moments.about_mean(), sample.moments.about(sample.min));
    let mean = us(sample.moments.mean());
    let blocks_used = blocks.as_ref().map(|blocks| BlocksUsed {
        length: blocks.length as u64,
        count: blocks.count() as u64,
        inflation,
    });
    Ok(Distribution {
        name,
        of,
        n: sample.n(),
        min: us(sample.min as f64),
        max: us(sample.max as f64),
        mean,
        mode: us(highest),
        sd: us(shape.sd),
        cv: (mean > 0.0).then(|| us(shape.sd) / mean),
        skewness: shape.skewness,
        kurtosis: shape.kurtosis,
        about_min: AboutMin {
            sd: us(about_min.sd),
            skewness: about_min.skewness,
            kurtosis: about_min.kurtosis,
        },
        modes: found.modes.iter().map(mode).collect(),
        step: found.step.map(us),
        quantiles: Quantiles::of(&sample),
        exact: sample.is_exact(),
        fits,
        tail: tail.map(|tail| Tail {
            threshold: us(tail.threshold),
            n: tail.exceeding as u64,
            shape: tail.pareto.shape,
            scale: us(tail.pareto.scale),
            ks_distance: tail.distance,
            p_value: tail.p_value,
        }),
        blocks: blocks_used,
        bins,
        remarks,
        sample,
    })
}

fn compare(first: &Distribution, second: &Distribution, seed: u64) -> Comparison {
    let blocks = [&first.sample, &second.sample].map(Blocks::of);
    let [before, after] = &blocks;
    let shifts =
        shift::shifts((&first.sample, before.as_ref()), (&second.sample, after.as_ref()), seed);
    let quantiles: Vec<Shift> = shifts
        .iter()
        .map(|shift| Shift {
            p: shift.p,
            first: us(shift.first),
            second: us(shift.second),
            shift: us(shift.second - shift.first),
            ci95: pair(shift.ci95),
            differs: shift.certain,
        })
        .collect();
    let findings = changes::findings(first, second, &quantiles);
    Comparison {
        first: first.name.clone(),
        second: second.name.clone(),
        quantiles,
        ks_distance: distance(&first.sample, &second.sample),
        findings,
    }
}

/// The largest difference of the cumulative shares, at the values of either; with histograms, where both are known: at
/// the ends of bins that are not within a bin of the other.
fn distance(first: &Sample, second: &Sample) -> f64 {
    if first.is_binned() || second.is_binned() {
        let share = |sample: &Sample, end: i64| {
            let atoms = sample.atoms();
            let at = atoms.partition_point(|atom| atom.high <= end);
            let inside = atoms.get(at).is_some_and(|atom| atom.low <= end);
            let below = at.checked_sub(1).map_or(0.0, |last| sample.below(atoms[last].high as f64));
            (!inside).then_some(below / sample.n() as f64)
        };
        let ends = first.atoms().iter().chain(second.atoms());
        let far = |end: i64| Some((share(first, end)? - share(second, end)?).abs());
        return ends.flat_map(|atom| [atom.low - 1, atom.high]).filter_map(far).fold(0.0, f64::max);
    }
    let share = |sample: &Sample, value: f64| sample.below(value) / sample.n() as f64;
    let values = first.atoms().iter().chain(second.atoms()).map(|atom| atom.high as f64);
    let far = |value: f64| (share(first, value) - share(second, value)).abs();
    values.map(far).fold(0.0, f64::max)
}

/// The quantiles that are compared, for those who explain what is missing.
pub const COMPARED: [f64; 7] = QUANTILES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_of_the_same_samples_has_no_distance() {
        let values: Vec<i64> = (0..1_000).map(|i| 150_000 + i64::from(i % 10 == 3) * i).collect();
        let exact = Sample::of_values(&values, 1).unwrap();
        let mut bins: Vec<distribution::grid::Atom> = Vec::new();
        for atom in exact.atoms() {
            let low = atom.low / 64 * 64;
            match bins.last_mut() {
                Some(last) if last.low == low => last.count += atom.count,
                _ => bins.push(distribution::grid::Atom { low, high: low + 63, ..*atom }),
            }
        }
        let binned = Sample::of_bins(bins).unwrap();
        for (a, b) in [(&exact, &binned), (&binned, &exact), (&binned, &binned)] {
            assert_eq!(distance(a, b), 0.0);
        }
        let later: Vec<i64> = values.iter().map(|value| value + 640).collect();
        let later = Sample::of_values(&later, 1).unwrap();
        // Those up to the last end of a bin before them.
        assert!((distance(&binned, &later) - 0.959).abs() < 0.002);
    }
}
