//! The nodes of a merged trace, and which of them are outliers.
//!
//! A node is an outlier in a source when the source's rate, or its share of the node's watched time, is
//! further from the median of all nodes than [`FAR`] robust deviations and than half the median. The
//! robust deviation is 1.4826 times the median absolute deviation (for a normal distribution that is
//! its standard deviation), and never less than chance alone gives: for a rate, that of a Poisson
//! process with as many events; for a share, [`FINEST_PCT`].

use std::ops::Range;

use trace::{Class, Node, node_index};

use crate::lanes::{self, Watched, pct};
use crate::summary::{CostBasis, Measure, NodeRow, Outlier, SourceRow};

/// Robust deviations.
pub const FAR: f64 = 5.0;
/// Least deviation of a share of time, in percent: smaller differences are negligible.
const FINEST_PCT: f64 = 0.002;
/// Two nodes are always equally far from their median.
pub const FEWEST: usize = 3;

pub(crate) fn rows(nodes: &[Node], watched: &[Watched<'_>], basis: CostBasis) -> Vec<NodeRow> {
    let row = |node: &Node| {
        let of_node = || lanes_of(node, watched).iter();
        let states = || of_node().filter_map(|w| w.state);
        let window_ns = of_node().map(|w| w.window.len_ns()).fold(0, u64::saturating_add);
        let base_ns = of_node().map(Watched::base_ns).fold(0, u64::saturating_add);
        let taken = states().map(|s| s.taken_ns(basis)).fold(0, u64::saturating_add);
        NodeRow {
            host: node.host.clone(),
            kernel: node.kernel.clone(),
            started_after_s: node.offset_ns as f64 / 1e9,
            lanes: node.lanes,
            window_s: window_ns as f64 / 1e9,
            wanted_ns_total: lanes::wanted_ns(of_node()),
            detours: states().map(|s| s.detours).fold(0, u64::saturating_add),
            taken_ns_total: taken,
            noise_pct: pct(taken, base_ns),
            lost: node.lost.map(Into::into).unwrap_or_default(),
        }
    };
    nodes.iter().map(row).collect()
}

/// How long each node was watched, from first to last moment: the nodes of a merged trace need not have
/// started together.
pub(crate) struct Durations {
    /// By lane.
    node_of: Vec<usize>,
    ns: Vec<u64>,
}

impl Durations {
    /// A trace of one node has an empty node list.
    pub(crate) fn new(nodes: &[Node], watched: &[Watched<'_>]) -> Durations {
        let mut node_of = vec![0; watched.len()];
        for (index, node) in nodes.iter().enumerate() {
            node_of[lane_range(node, watched.len())].fill(index);
        }
        let mut ends = vec![None; nodes.len().max(1)];
        for (watched, &node) in watched.iter().zip(&node_of) {
            let window = watched.window;
            if window.len_ns() > 0 {
                let (from, to) = ends[node].unwrap_or((window.from_ns, window.to_ns));
                ends[node] = Some((from.min(window.from_ns), to.max(window.to_ns)));
            }
        }
        Durations { node_of, ns: ends.into_iter().map(|e| e.map_or(0, |(a, b)| b - a)).collect() }
    }

    /// Rate over all nodes: the sum of the nodes' rates. Events missing from the parts (there may be too
    /// many parts) are attributed to the first node.
    pub(crate) fn rate_hz(&self, count: u64, by_lane: impl Iterator<Item = (u32, u64)>) -> f64 {
        let (mut counts, mut rest) = (vec![0u64; self.ns.len()], count);
        for (lane, part) in by_lane {
            if let Some(&node) = self.node_of.get(lane as usize) {
                counts[node] += part;
                rest -= part;
            }
        }
        counts[0] += rest;
        let seen = counts.into_iter().zip(&self.ns).filter(|(_, ns)| **ns > 0);
        seen.map(|(count, &ns)| count as f64 / (ns as f64 / 1e9)).sum()
    }
}

fn lanes_of<'a, 'w>(node: &Node, watched: &'a [Watched<'w>]) -> &'a [Watched<'w>] {
    &watched[lane_range(node, watched.len())]
}

/// A node's lanes, limited to those that exist: a damaged manifest may list others.
fn lane_range(node: &Node, lanes: usize) -> Range<usize> {
    let first = (node.first_lane as usize).min(lanes);
    first..(first.saturating_add(node.lanes as usize)).min(lanes)
}

/// Outliers, the furthest first.
pub(crate) fn outliers(nodes: &[Node], rows: &[NodeRow], sources: &[SourceRow]) -> Vec<Outlier> {
    // A node without watched time has no rates.
    let seen: Vec<usize> = (0..rows.len()).filter(|&node| rows[node].window_s > 0.0).collect();
    if seen.len() < FEWEST {
        return Vec::new();
    }
    let mut all = Vec::new();
    let noise: Vec<f64> = seen.iter().map(|&node| rows[node].noise_pct).collect();
    for (at, far) in far(&noise, |_| FINEST_PCT) {
        all.push(outlier(&rows[seen[at]], None, Measure::NoisePct, far));
    }
    for source in sources {
        let mut parts = vec![(0u64, 0u64); rows.len()];
        for part in &source.per_lane {
            if let Some(node) = node_index(nodes, part.lane) {
                parts[node].0 += part.count;
                parts[node].1 = parts[node].1.saturating_add(part.cost_ns_total);
            }
        }
        let window = |node: usize| rows[node].window_s;
        let rate: Vec<f64> = seen.iter().map(|&n| parts[n].0 as f64 / window(n)).collect();
        let base_ns = |node: usize| {
            let wanted = rows[node].wanted_ns_total.map(|ns| ns.max(1) as f64);
            wanted.unwrap_or(window(node) * 1e9)
        };
        let share: Vec<f64> =
            seen.iter().map(|&n| parts[n].1 as f64 / base_ns(n) * 100.0).collect();
        let chance = |at: usize| {
            let window = window(seen[at]);
            (median(&rate) * window).max(1.0).sqrt() / window
        };
        for (at, far) in far(&rate, chance) {
            all.push(outlier(&rows[seen[at]], Some(source), Measure::RateHz, far));
        }
        for (at, far) in far(&share, |_| FINEST_PCT) {
            all.push(outlier(&rows[seen[at]], Some(source), Measure::NoisePct, far));
        }
    }
    all.sort_by(|a, b| b.deviations.abs().total_cmp(&a.deviations.abs()));
    all
}

struct Far {
    value: f64,
    median: f64,
    deviations: f64,
}

fn outlier(node: &NodeRow, source: Option<&SourceRow>, measure: Measure, far: Far) -> Outlier {
    Outlier {
        host: node.host.clone(),
        class: source.map(|source| source.class),
        name: source.map(|source| source.name.clone()),
        unit: source.and_then(|source| source.unit.clone()),
        measure,
        value: far.value,
        median: far.median,
        deviations: far.deviations,
    }
}

/// Finds outliers; `finest` is the least deviation at a value.
fn far(values: &[f64], finest: impl Fn(usize) -> f64) -> Vec<(usize, Far)> {
    let median_of = median(values);
    let distances: Vec<f64> = values.iter().map(|value| (value - median_of).abs()).collect();
    let robust = 1.4826 * median(&distances);
    let mut found = Vec::new();
    for (at, (&value, &distance)) in values.iter().zip(&distances).enumerate() {
        let deviations = (value - median_of) / robust.max(finest(at));
        if deviations.abs() > FAR && distance > median_of / 2.0 {
            found.push((at, Far { value, median: median_of, deviations }));
        }
    }
    found
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        even if even % 2 == 0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
        _ => sorted[middle],
    }
}

impl Outlier {
    /// Class and name of the source, if it is about one source.
    #[must_use]
    pub fn source(&self) -> Option<(Class, &str)> {
        Some((self.class?, self.name.as_deref()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn which(values: &[f64], finest: f64) -> Vec<usize> {
        far(values, |_| finest).into_iter().map(|(at, _)| at).collect()
    }

    #[test]
    fn one_node_that_is_far_from_the_others_is_found() {
        assert_eq!(which(&[250.0, 250.2, 249.9, 250.1, 1000.0], 1.0), [4]);
        assert_eq!(which(&[20.0, 20.0, 0.0, 20.0], 0.5), [2]);
    }

    #[test]
    fn what_is_within_the_spread_of_the_others_or_within_chance_is_not() {
        // Widely spread.
        assert_eq!(which(&[10.0, 20.0, 30.0, 40.0, 60.0], 0.1), [] as [usize; 0]);
        // All equal except for a difference that is small compared with the median.
        assert_eq!(which(&[100.0, 100.0, 100.0, 120.0], 0.1), [] as [usize; 0]);
        // Many deviations, but within chance.
        assert_eq!(which(&[1.0, 1.0, 1.0, 4.0], 1.0), [] as [usize; 0]);
    }
}
