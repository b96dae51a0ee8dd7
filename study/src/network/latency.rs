//! Exchanges between all pairs of ranks (paper 002): every sample is counted, nothing but counts and a bounded
//! number of blocks of samples is kept, so that a measurement may take hours.
//!
//! In: the times of a cycle of exchanges of one pair ([`Collector::add`]); out: [`Latencies`], the file that
//! `--latency`, `--exchange` and `--measured` read. Each rank collects for the pairs in which it is the lower rank;
//! the parts are merged exactly, since they are counts ([`Part::merge`]).

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// Exchange times of all pairs of ranks of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// Always `detour-latencies`.
    pub kind: String,
    pub ranks: u32,
    /// Of each rank.
    pub hosts: Vec<String>,
    /// The MPI library.
    pub transport: String,
    /// UTC, ISO 8601.
    pub date: String,
    /// Size of the messages.
    pub bytes: u64,
    /// Exchanges of a pair in a cycle.
    pub exchanges: u64,
    /// How often each pair has had its turn.
    pub cycles: u64,
    pub measured_s: f64,
    /// Seed of the choice of blocks.
    pub seed: u64,
    /// All exchanges: means of the times at both ends.
    pub all: Distribution,
    /// The shortest exchange of each pair in each cycle.
    pub minima: Distribution,
    /// All exchanges as the lower rank of each pair has measured them.
    pub lower: Distribution,
    /// The same at the higher rank.
    pub upper: Distribution,
    /// Cost of reading the clock, before the measurement. Its minimum on each rank is subtracted
    /// from that rank's times.
    pub timer: Distribution,
    /// The same, read between exchanges.
    pub timer_during: Distribution,
    /// What was subtracted on each rank.
    pub timer_minimum_ns: Vec<f64>,
    pub pairs: Vec<Pair>,
    /// Ranks that are close to each other, by the minima or as given.
    pub groups: Vec<Group>,
    /// Usual minimum within each group and between groups.
    pub levels: Vec<Level>,
    /// Pairs that are slower than others of the same groups.
    pub outliers: Vec<Outlier>,
    pub findings: Vec<String>,
    /// Length of the blocks in `half_round_trip_us`.
    pub block: u64,
    /// Means of both ends in the order of the measurement: blocks of consecutive exchanges of one pair, chosen at
    /// random from all.
    pub half_round_trip_us: Vec<f64>,
}

/// Distribution of times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    pub n: u64,
    pub minimum_us: f64,
    pub mean_us: f64,
    pub median_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub maximum_us: f64,
    /// Start of a bin in ps, and number of times in it. A bin ends where the next can begin, at most 1/128 later.
    pub bins: Vec<[u64; 2]>,
}

/// Exchanges of one pair.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    pub ranks: [u32; 2],
    pub n: u64,
    pub minimum_us: f64,
    pub mean_us: f64,
    pub median_us: f64,
    pub p99_us: f64,
    pub maximum_us: f64,
    /// Median of the cycles' minima.
    pub cycle_minimum_us: f64,
    /// Median at the lower rank, and at the higher.
    pub lower_us: f64,
    pub upper_us: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub name: String,
    pub ranks: Vec<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Names; the same twice within a group.
    pub groups: [String; 2],
    pub pairs: u64,
    /// Median of the pairs' minima.
    pub minimum_us: f64,
    /// Median of the pairs' medians.
    pub median_us: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outlier {
    pub ranks: [u32; 2],
    pub hosts: [String; 2],
    /// `minimum`: always slow, as by distance or a bad link. `median`: usually slow, although it can be fast.
    pub of: String,
    pub value_us: f64,
    /// What the other pairs between these groups have.
    pub expected_us: f64,
}

/// Counts of times in ps, in bins of a 128th of their value; exact under merging.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    n: u64,
    sum: u64,
    minimum: u64,
    maximum: u64,
    bins: BTreeMap<u32, u64>,
}

/// Bins per power of two.
const SUB: u32 = 7;

fn bin_of(ps: u64) -> u32 {
    let shift = (63 - (ps | 1).leading_zeros()).saturating_sub(SUB);
    (shift << SUB) + (ps >> shift) as u32
}

fn start_of(bin: u32) -> u64 {
    let shift = (bin >> SUB).saturating_sub(1);
    u64::from(bin - (shift << SUB)) << shift
}

impl Histogram {
    pub fn add(&mut self, ps: u64) {
        self.minimum = if self.n == 0 { ps } else { self.minimum.min(ps) };
        self.maximum = self.maximum.max(ps);
        self.n += 1;
        // More than half a year of exchanges.
        self.sum = self.sum.saturating_add(ps);
        *self.bins.entry(bin_of(ps)).or_insert(0) += 1;
    }

    pub fn merge(&mut self, other: &Histogram) {
        if other.n == 0 {
            return;
        }
        self.minimum = if self.n == 0 { other.minimum } else { self.minimum.min(other.minimum) };
        self.maximum = self.maximum.max(other.maximum);
        self.n += other.n;
        self.sum = self.sum.saturating_add(other.sum);
        for (&bin, &count) in &other.bins {
            *self.bins.entry(bin).or_insert(0) += count;
        }
    }

    /// Middle of the bin that has the quantile, within what was measured.
    fn quantile_us(&self, share: f64) -> f64 {
        let wanted = ((share * self.n as f64).ceil() as u64).clamp(1, self.n.max(1));
        let mut seen = 0;
        for (&bin, &count) in &self.bins {
            seen += count;
            if seen >= wanted {
                let (start, end) = (start_of(bin) as f64, start_of(bin + 1) as f64);
                let middle = (start + (end - start - 1.0) / 2.0) / 1e6;
                return middle.clamp(self.minimum as f64 / 1e6, self.maximum as f64 / 1e6);
            }
        }
        0.0
    }

    fn mean_us(&self) -> f64 {
        self.sum as f64 / self.n.max(1) as f64 / 1e6
    }

    #[must_use]
    pub fn distribution(&self) -> Distribution {
        Distribution {
            n: self.n,
            minimum_us: self.minimum as f64 / 1e6,
            mean_us: self.mean_us(),
            median_us: self.quantile_us(0.5),
            p90_us: self.quantile_us(0.9),
            p99_us: self.quantile_us(0.99),
            p999_us: self.quantile_us(0.999),
            maximum_us: self.maximum as f64 / 1e6,
            bins: self.bins.iter().map(|(&bin, &count)| [start_of(bin), count]).collect(),
        }
    }
}

/// What one rank has collected, or several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    all: Histogram,
    minima: Histogram,
    lower: Histogram,
    upper: Histogram,
    timer: Histogram,
    timer_during: Histogram,
    pairs: Vec<Pair>,
    kept: Vec<Kept>,
}

/// A block of samples that was chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Kept {
    /// The blocks with the smallest numbers are kept: this choice does not depend on who makes it.
    number: u64,
    cycle: u64,
    ranks: [u32; 2],
    start: u64,
    ps: Vec<u64>,
}

impl Part {
    /// Adds what another rank has collected.
    pub fn merge(&mut self, other: Part) {
        self.all.merge(&other.all);
        self.minima.merge(&other.minima);
        self.lower.merge(&other.lower);
        self.upper.merge(&other.upper);
        self.timer.merge(&other.timer);
        self.timer_during.merge(&other.timer_during);
        self.pairs.extend(other.pairs);
        self.kept.extend(other.kept);
        self.kept.sort_unstable();
        self.kept.truncate(BLOCKS);
    }
}

/// Samples of a block, and how many blocks are kept: 100,000 samples.
pub const BLOCK: usize = 500;
const BLOCKS: usize = 200;
/// Purpose of the random numbers.
const PURPOSE: u64 = 0x6c61_7465_6e63_7921;

#[derive(Clone, Debug, Default)]
struct OfPair {
    all: Histogram,
    minima: Histogram,
    lower: Histogram,
    upper: Histogram,
}

/// Collects the exchanges of a rank's pairs in bounded memory.
#[derive(Clone, Debug)]
pub struct Collector {
    seed: u64,
    pairs: BTreeMap<[u32; 2], OfPair>,
    timer: Histogram,
    timer_during: Histogram,
    /// By number; at most [`BLOCKS`].
    kept: BTreeMap<(u64, u64, [u32; 2], u64), Vec<u64>>,
}

impl Collector {
    #[must_use]
    pub fn new(seed: u64) -> Collector {
        Collector {
            seed,
            pairs: BTreeMap::new(),
            timer: Histogram::default(),
            timer_during: Histogram::default(),
            kept: BTreeMap::new(),
        }
    }

    /// Times of the clock, ps, before the exchanges or between them.
    pub fn add_timer(&mut self, during: bool, times: impl IntoIterator<Item = u64>) {
        let histogram = if during { &mut self.timer_during } else { &mut self.timer };
        times.into_iter().for_each(|ps| histogram.add(ps));
    }

    /// A cycle of exchanges of a pair: the times at the lower rank and at the higher, ps.
    pub fn add(&mut self, cycle: u64, ranks: [u32; 2], lower: &[u64], upper: &[u64]) {
        let means: Vec<u64> = lower.iter().zip(upper).map(|(a, b)| a.midpoint(*b)).collect();
        let pair = self.pairs.entry(ranks).or_default();
        for (mean, (a, b)) in means.iter().zip(lower.iter().zip(upper)) {
            pair.all.add(*mean);
            pair.lower.add(*a);
            pair.upper.add(*b);
        }
        if let Some(&least) = means.iter().min() {
            pair.minima.add(least);
        }
        let [a, b] = ranks.map(u64::from);
        let key = random::key(self.seed, PURPOSE, random::draw(a << 32 | b, cycle));
        for (index, block) in means.chunks_exact(BLOCK.min(means.len()).max(1)).enumerate() {
            let start = (index * BLOCK) as u64;
            let number = random::draw(key, index as u64);
            let is_full = self.kept.len() >= BLOCKS;
            let last = self.kept.last_key_value().map(|(&(last, ..), _)| last);
            if is_full && last.is_some_and(|last| number >= last) {
                continue;
            }
            self.kept.insert((number, cycle, ranks, start), block.to_vec());
            if is_full {
                self.kept.pop_last();
            }
        }
    }

    #[must_use]
    pub fn finish(self) -> Part {
        let mut part =
            Part { timer: self.timer, timer_during: self.timer_during, ..Part::default() };
        for (ranks, of) in self.pairs {
            part.pairs.push(Pair {
                ranks,
                n: of.all.n,
                minimum_us: of.all.minimum as f64 / 1e6,
                mean_us: of.all.mean_us(),
                median_us: of.all.quantile_us(0.5),
                p99_us: of.all.quantile_us(0.99),
                maximum_us: of.all.maximum as f64 / 1e6,
                cycle_minimum_us: of.minima.quantile_us(0.5),
                lower_us: of.lower.quantile_us(0.5),
                upper_us: of.upper.quantile_us(0.5),
            });
            part.all.merge(&of.all);
            part.minima.merge(&of.minima);
            part.lower.merge(&of.lower);
            part.upper.merge(&of.upper);
        }
        let kept = |((number, cycle, ranks, start), ps)| Kept { number, cycle, ranks, start, ps };
        part.kept = self.kept.into_iter().map(kept).collect();
        part
    }
}

/// What is known about a measurement besides its times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    pub hosts: Vec<String>,
    pub transport: String,
    pub date: String,
    pub bytes: u64,
    pub exchanges: u64,
    pub cycles: u64,
    pub measured_s: f64,
    pub seed: u64,
    pub timer_minimum_ns: Vec<f64>,
    /// None to find them.
    pub groups: Option<Vec<Group>>,
}

/// The result of a measurement, from the parts of all ranks.
#[must_use]
pub fn assemble(mut part: Part, facts: Facts) -> Latencies {
    part.pairs.sort_by_key(|pair| pair.ranks);
    let ranks = facts.hosts.len() as u32;
    let groups = facts.groups.unwrap_or_else(|| found_groups(&part.pairs, ranks));
    // In the order of the measurement; blocks of another length, from a last short cycle, are left out.
    part.kept.sort_unstable_by_key(|kept| (kept.cycle, kept.ranks, kept.start));
    let block = part.kept.iter().map(|kept| kept.ps.len()).max().unwrap_or(0);
    let samples = part.kept.iter().filter(|kept| kept.ps.len() == block);
    let half_round_trip_us = samples.flat_map(|kept| kept.ps.iter().map(|&ps| ps as f64 / 1e6));
    let half_round_trip_us: Vec<f64> = half_round_trip_us.collect();
    let (levels, outliers) = compared(&part.pairs, &groups, &facts.hosts);
    let mut latencies = Latencies {
        kind: KIND.to_owned(),
        ranks,
        hosts: facts.hosts,
        transport: facts.transport,
        date: facts.date,
        bytes: facts.bytes,
        exchanges: facts.exchanges,
        cycles: facts.cycles,
        measured_s: facts.measured_s,
        seed: facts.seed,
        all: part.all.distribution(),
        minima: part.minima.distribution(),
        lower: part.lower.distribution(),
        upper: part.upper.distribution(),
        timer: part.timer.distribution(),
        timer_during: part.timer_during.distribution(),
        timer_minimum_ns: facts.timer_minimum_ns,
        pairs: part.pairs,
        groups,
        levels,
        outliers,
        findings: Vec::new(),
        block: block as u64,
        half_round_trip_us,
    };
    latencies.findings = findings(&latencies);
    latencies
}

const KIND: &str = "detour-latencies";

impl Latencies {
    /// Reads the file of an earlier measurement.
    pub fn parse(text: &str) -> Result<Latencies> {
        let latencies: Latencies =
            serde_json::from_str(text).context("not a file of `detour mpi latency`")?;
        if latencies.kind != KIND {
            bail!("not a file of `detour mpi latency`: its kind is '{}'", latencies.kind);
        }
        let known = |pair: &Pair| pair.ranks.iter().all(|&rank| rank < latencies.ranks);
        if latencies.ranks as usize != latencies.hosts.len() || !latencies.pairs.iter().all(known) {
            bail!("the file is damaged: the ranks of its pairs and hosts do not match");
        }
        let Latencies { all, minima, lower, upper, timer, timer_during, .. } = &latencies;
        for of in [all, minima, lower, upper, timer, timer_during] {
            let mut counts = of.bins.iter().map(|bin| bin[1]);
            if counts.try_fold(0u64, |sum, count| sum.checked_add(count)) != Some(of.n) {
                bail!("the file is damaged: the bins of a distribution do not sum to its count");
            }
        }
        Ok(latencies)
    }
}

/// A step by this factor between sorted minima is a step between levels of the network.
const STEP: f64 = 1.5;

/// Ranks that reach each other in clearly less time than the rest: a step between the sorted minima separates near
/// from far, and ranks that are near each other are a group. The largest step for which all members of a group are near
/// each other counts: a single slow pair is a large step, but makes no groups. Without such a step all ranks are one.
fn found_groups(pairs: &[Pair], ranks: u32) -> Vec<Group> {
    let mut minima: Vec<f64> = pairs.iter().map(|pair| pair.minimum_us.max(1e-3)).collect();
    minima.sort_unstable_by(f64::total_cmp);
    let mut steps: Vec<(f64, f64)> =
        minima.windows(2).map(|two| (two[1] / two[0], two[0])).collect();
    steps.retain(|&(step, _)| step >= STEP);
    steps.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    let mut found = steps.into_iter().filter_map(|(_, near)| near_each_other(pairs, ranks, near));
    let groups = found.next().unwrap_or_else(|| vec![(0..ranks).collect()]);
    let name = |(index, ranks)| Group { name: index_name(index), ranks };
    groups.into_iter().enumerate().map(name).collect()
}

/// The ranks that pairs of at most `near` us connect; None unless all pairs of a group are near, and there are
/// several groups.
fn near_each_other(pairs: &[Pair], ranks: u32, near: f64) -> Option<Vec<Vec<u32>>> {
    fn root(group_of: &mut [u32], rank: u32) -> u32 {
        let mut at = rank;
        while group_of[at as usize] != at {
            let next = group_of[at as usize];
            group_of[at as usize] = group_of[next as usize];
            at = next;
        }
        at
    }
    let is_near = |pair: &&Pair| pair.minimum_us.max(1e-3) <= near;
    let mut group_of: Vec<u32> = (0..ranks).collect();
    for pair in pairs.iter().filter(is_near) {
        let [a, b] = pair.ranks.map(|rank| root(&mut group_of, rank));
        group_of[a.max(b) as usize] = a.min(b);
    }
    let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for rank in 0..ranks {
        groups.entry(root(&mut group_of, rank)).or_default().push(rank);
    }
    let size = |ranks: &Vec<u32>| ranks.len() * (ranks.len() - 1) / 2;
    let inside: usize = groups.values().map(size).sum();
    let whole = inside == pairs.iter().filter(is_near).count();
    (whole && groups.len() > 1).then(|| groups.into_values().collect())
}

/// `A` to `Z`, then `AA` and so on.
fn index_name(index: usize) -> String {
    let mut name = String::new();
    let mut rest = index + 1;
    while rest > 0 {
        rest -= 1;
        name.insert(0, char::from(b'A' + (rest % 26) as u8));
        rest /= 26;
    }
    name
}

/// Groups from a file: lines of a name and its ranks, `rack1: 0-15,32-47`. Every rank belongs to one.
pub fn topology(text: &str, ranks: u32) -> Result<Vec<Group>> {
    let mut groups: Vec<Group> = Vec::new();
    let mut seen = vec![false; ranks as usize];
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = || format!("line {number}: expected a name and ranks, such as rack1: 0-15");
        let (name, list) = line.split_once(':').with_context(wrong)?;
        let mut members = Vec::new();
        for part in list.split(',').map(str::trim) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u32 = first.trim().parse().ok().with_context(wrong)?;
            let last: u32 = last.trim().parse().ok().with_context(wrong)?;
            for rank in first..=last {
                match seen.get_mut(rank as usize) {
                    None => bail!("line {number}: rank {rank} of {ranks} does not exist"),
                    Some(true) => bail!("line {number}: rank {rank} is in two groups"),
                    Some(place) => *place = true,
                }
                members.push(rank);
            }
        }
        groups.push(Group { name: name.trim().to_owned(), ranks: members });
    }
    match seen.iter().position(|seen| !seen) {
        Some(rank) => bail!("rank {rank} is not in any group"),
        None => Ok(groups),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// A pair is an outlier if it is this much slower than others between the same groups,
const SLOWER: f64 = 1.2;
/// and beyond this many standard deviations, estimated from the median deviation.
const DEVIATIONS: f64 = 5.0;
/// Fewer pairs have no usual value.
const FEWEST: usize = 4;

/// Levels of the network between groups, and the pairs that are slower than their level.
fn compared(pairs: &[Pair], groups: &[Group], hosts: &[String]) -> (Vec<Level>, Vec<Outlier>) {
    let mut group_of = vec![0usize; hosts.len()];
    for (index, group) in groups.iter().enumerate() {
        for &rank in &group.ranks {
            if let Some(place) = group_of.get_mut(rank as usize) {
                *place = index;
            }
        }
    }
    let mut between: BTreeMap<[usize; 2], Vec<&Pair>> = BTreeMap::new();
    for pair in pairs {
        let mut key = pair.ranks.map(|rank| group_of.get(rank as usize).copied().unwrap_or(0));
        key.sort_unstable();
        between.entry(key).or_default().push(pair);
    }
    let (mut levels, mut outliers) = (Vec::new(), Vec::new());
    for (key, pairs) in between {
        let of = |value: fn(&Pair) -> f64| pairs.iter().map(|pair| value(pair)).collect::<Vec<_>>();
        type View = (&'static str, fn(&Pair) -> f64);
        let views: [View; 2] =
            [("minimum", |pair| pair.minimum_us), ("median", |pair| pair.median_us)];
        levels.push(Level {
            groups: key.map(|index| groups.get(index).map_or(String::new(), |g| g.name.clone())),
            pairs: pairs.len() as u64,
            minimum_us: median(of(views[0].1)),
            median_us: median(of(views[1].1)),
        });
        if pairs.len() < FEWEST {
            continue;
        }
        for (name, value) in views {
            let usual = median(of(value));
            let deviation = median(of(value).iter().map(|v| (v - usual).abs()).collect()) * 1.4826;
            let limit = (usual * SLOWER).max(usual + DEVIATIONS * deviation);
            for pair in pairs.iter().filter(|pair| value(pair) > limit) {
                let host = |rank: u32| hosts.get(rank as usize).cloned().unwrap_or_default();
                outliers.push(Outlier {
                    ranks: pair.ranks,
                    hosts: pair.ranks.map(host),
                    of: name.to_owned(),
                    value_us: value(pair),
                    expected_us: usual,
                });
            }
        }
    }
    outliers.sort_by(|a, b| {
        let factor = |outlier: &Outlier| outlier.value_us / outlier.expected_us.max(1e-9);
        factor(b).total_cmp(&factor(a)).then(a.ranks.cmp(&b.ranks))
    });
    (levels, outliers)
}

/// The 99.9th percentile over the median.
fn spread(distribution: &Distribution) -> f64 {
    distribution.p999_us / distribution.median_us.max(1e-9)
}

/// `1.12`, `27`: a factor in three digits at most.
fn factor(value: f64) -> String {
    if value < 9.995 { format!("{value:.2}") } else { format!("{value:.0}") }
}

/// Below this the minima of cycles are even.
const EVEN: f64 = 1.25;

fn findings(latencies: &Latencies) -> Vec<String> {
    let mut findings = Vec::new();
    let (all, minima) = (spread(&latencies.all), spread(&latencies.minima));
    if latencies.all.n == 0 {
        return vec!["nothing was measured: exchanges need at least two ranks".to_owned()];
    }
    if latencies.minima.n >= 20 {
        let said = format!(
            "the 99.9th percentile of the minima is {} times their median, that of all exchanges {} times",
            factor(minima),
            factor(all)
        );
        findings.push(match (minima < EVEN, all > 1.5) {
            (true, true) => format!(
                "{said}: the network is uniform, the variation comes from software, such as noise \
                 on the nodes"
            ),
            (true, false) => format!("{said}: both network and software are uniform"),
            (false, _) => format!(
                "{said}: pairs differ in distance, or hardware is shared or disturbed for whole \
                 cycles"
            ),
        });
    }
    let (before, during) = (latencies.timer.median_us, latencies.timer_during.median_us);
    if latencies.timer_during.n > 0 && (during - before).abs() > 0.1 * latencies.all.minimum_us {
        findings.push(format!(
            "reading the clock took {:.0} ns before and {:.0} ns during the measurement: the times include the \
             difference",
            before * 1e3,
            during * 1e3
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_contiguous_and_a_128th_wide() {
        let mut last = 0;
        for bin in 1..6000 {
            let (start, end) = (start_of(bin), start_of(bin + 1));
            assert!(start > last && end > start);
            assert_eq!([bin_of(start), bin_of(end - 1)], [bin, bin]);
            assert!(end - start == 1 || (end - start) * 128 <= start);
            last = start;
        }
        assert_eq!(start_of(bin_of(0)), 0);
        bin_of(u64::MAX);
    }

    /// Exchanges of some pairs: 1 us and a little, deterministic.
    fn made(ranks: u32, cycles: u64, far: impl Fn(u32, u32) -> u64) -> Vec<Collector> {
        let mut collectors: Vec<Collector> = (0..ranks).map(|_| Collector::new(7)).collect();
        for cycle in 0..cycles {
            for a in 0..ranks {
                for b in a + 1..ranks {
                    let time = |n: u64, end: u64| {
                        let draw = random::draw(u64::from(a << 16 | b), n + 1000 * cycle + end);
                        far(a, b) + draw % 10_000
                    };
                    let lower: Vec<u64> = (0..1000).map(|n| time(n, 0)).collect();
                    let upper: Vec<u64> = (0..1000).map(|n| time(n, 500_000)).collect();
                    collectors[a as usize].add(cycle, [a, b], &lower, &upper);
                }
            }
        }
        collectors
    }

    fn merged(collectors: Vec<Collector>) -> Part {
        let mut whole = Part::default();
        collectors.into_iter().for_each(|collector| whole.merge(collector.finish()));
        whole
    }

    fn facts(ranks: u32) -> Facts {
        Facts { hosts: (0..ranks).map(|rank| format!("n{rank}")).collect(), ..Facts::default() }
    }

    #[test]
    fn parts_merge_to_the_same_whole_in_any_order() {
        let collectors = made(6, 12, |_, _| 1_000_000);
        let forward = assemble(merged(collectors.clone()), facts(6));
        let backward = assemble(merged(collectors.into_iter().rev().collect()), facts(6));
        assert_eq!(forward, backward);
        assert_eq!(forward.all.n, 15 * 12 * 1000);
        assert_eq!(forward.minima.n, 15 * 12);
        assert_eq!(forward.all.bins.iter().map(|bin| bin[1]).sum::<u64>(), forward.all.n);
        // 200 of 360 blocks.
        assert_eq!(forward.half_round_trip_us.len(), 200 * 500);
        assert_eq!(forward.block, 500);
        assert!((forward.all.mean_us - 1.005).abs() < 1e-4, "{}", forward.all.mean_us);
    }

    #[test]
    fn the_file_is_read_as_a_series_with_its_blocks() {
        let latencies = assemble(merged(made(2, 3, |_, _| 1_000_000)), facts(2));
        let text = serde_json::to_string(&latencies).unwrap();
        assert_eq!(Latencies::parse(&text).unwrap(), latencies);
        let path = std::env::temp_dir().join(format!("detour-latency-{}", std::process::id()));
        std::fs::write(&path, &text).unwrap();
        let series = crate::network::samples::Series::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((series.block, series.values_ps.len()), (500, 3000));
        // In the order of the cycles, which one process has all of here.
        let first = latencies.half_round_trip_us[0];
        assert_eq!(series.values_ps[0], (first * 1e6).round() as i64);
        for damaged in ["{}", &text.replace(KIND, "other"), &text.replace("\"n\":3000", "\"n\":2")]
        {
            assert!(Latencies::parse(damaged).is_err());
        }
    }

    #[test]
    fn groups_and_outliers_are_found_from_the_minima() {
        // Two nodes of four ranks; one pair between them has a bad link.
        let far = |a: u32, b: u32| match (a / 4 == b / 4, (a, b)) {
            (true, _) => 500_000,
            // Farther from the others than these are from the near ones.
            (false, (1, 6)) => 30_000_000,
            _ => 2_000_000,
        };
        let latencies = assemble(merged(made(8, 2, far)), facts(8));
        let groups: Vec<&[u32]> = latencies.groups.iter().map(|g| g.ranks.as_slice()).collect();
        assert_eq!(groups, [&[0, 1, 2, 3][..], &[4, 5, 6, 7]]);
        assert_eq!(latencies.levels.len(), 3);
        let mut named: Vec<_> =
            latencies.outliers.iter().map(|o| (o.ranks, o.of.as_str())).collect();
        named.sort_unstable();
        assert_eq!(named, [([1, 6], "median"), ([1, 6], "minimum")]);
        // One level: one group, no outliers.
        let even = assemble(merged(made(5, 2, |_, _| 1_000_000)), facts(5));
        assert_eq!((even.groups.len(), even.outliers.len()), (1, 0));
    }

    #[test]
    fn noise_shows_in_all_exchanges_but_not_in_the_minima() {
        let mut collectors = made(2, 40, |_, _| 1_000_000);
        for cycle in 0..40 {
            // One exchange in a hundred is hit.
            let time = |n: u64| 1_000_000 + if n.is_multiple_of(100) { 9_000_000 } else { 0 };
            let times: Vec<u64> = (0..1000).map(time).collect();
            collectors[0].add(100 + cycle, [0, 1], &times, &times);
        }
        let latencies = assemble(merged(collectors), facts(2));
        assert!(latencies.minima.maximum_us < 1.01 && latencies.all.p999_us > 9.0);
        assert!(latencies.findings[0].contains("from software"), "{:?}", latencies.findings);
    }

    #[test]
    fn a_topology_names_every_rank_once() {
        let groups = topology("# nodes\nb: 4-7\na: 0,1 , 2-3\n", 8).unwrap();
        assert_eq!(groups[1], Group { name: "a".into(), ranks: vec![0, 1, 2, 3] });
        for bad in ["a: 0-7\nb: 7", "a: 0-8", "a: 0-6", "a 0-7", "a: x", "a: 0--1"] {
            assert!(topology(bad, 8).is_err(), "{bad}");
        }
    }

    #[test]
    fn groups_have_names_like_columns() {
        assert_eq!([0, 25, 26, 701].map(index_name), ["A", "Z", "AA", "ZZ"]);
    }
}
