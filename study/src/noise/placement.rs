//! Which recorded CPU each rank is on.
//!
//! A node that was recorded as a whole lends its CPUs to consecutive ranks, all at the same moment of the
//! recording and each rank its own CPU. So ranks that share a node do not meet its daemon twice, and meet
//! what hits all of its CPUs together. Threads of a program and other tools' files have clocks of their
//! own: there, every rank draws a lane and a moment for itself.

use anyhow::{Result, bail};
use simulate::noise::Composed;
use trace::{LaneId, Mode, node_index};

use crate::recording::{open::AnyReader, recorded::Recorded};

/// How ranks are put on CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Consecutive ranks on the CPUs of a node.
    #[default]
    Node,
    /// Every rank on a random CPU, at a moment of its own.
    Random,
}

impl Placement {
    /// The name used in the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Placement::Node => "node",
            Placement::Random => "random",
        }
    }
}

/// How to place ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub placement: Placement,
    /// None for as many as CPUs were recorded.
    pub ranks_per_node: Option<u64>,
    /// The network also depends on the nodes: noise need not be of a node.
    pub for_network: bool,
}

/// The lanes of a recording as ranks meet them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The part of each lane that is used, on the recording's clock, or all of it. None for a lane that
    /// no rank is on.
    cuts: Vec<Option<Cut>>,
    /// The numbers of lanes of each node, if ranks are on nodes.
    nodes: Option<(Vec<usize>, u64)>,
    /// About lanes that are not used.
    pub remarks: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    All,
    Between(u64, u64),
}

/// A lane that was watched for less than this share of the longest of its node is not used.
const WATCHED: f64 = 0.9;

impl Places {
    /// For the lanes of a recording for which `used` is true.
    pub fn new(
        reader: &AnyReader,
        recorded: &Recorded,
        request: &Request,
        used: impl Fn(usize) -> bool,
    ) -> Result<Places> {
        let lanes = 0..reader.lanes().len();
        let used = |lane: usize| used(lane) && recorded.lends(lane);
        let anywhere = |remarks| Places {
            cuts: lanes.clone().map(|lane| used(lane).then_some(Cut::All)).collect(),
            nodes: None,
            remarks,
        };
        let of_cpus = !matches!(reader.manifest().mode, Mode::Program | Mode::Imported);
        if request.placement == Placement::Random || !of_cpus {
            if let Some(ranks) = request.ranks_per_node.filter(|_| !request.for_network) {
                bail!(
                    "--ranks-per-node {ranks} requires a recording of the CPUs of a node and \
                     --placement node"
                );
            }
            return Ok(anywhere(Vec::new()));
        }
        let windows: Vec<Option<(u64, u64)>> = lanes
            .clone()
            .map(|lane| {
                let totals = reader.totals(LaneId(lane as u32)).filter(|_| used(lane))?;
                Some((totals.from_ns, totals.to_ns)).filter(|(from, to)| from < to)
            })
            .collect();
        // Truncated before it noted how long each lane was watched.
        if lanes.clone().any(|lane| used(lane) && windows[lane].is_none()) {
            return Ok(anywhere(vec![
                "the times of its CPUs are unknown: every rank is on a random CPU".to_owned(),
            ]));
        }
        let node_of = |lane: usize| node_index(&reader.manifest().nodes, lane as u32).unwrap_or(0);
        let mut cuts: Vec<Option<Cut>> = vec![None; lanes.len()];
        let (mut counts, mut left) = (Vec::new(), 0);
        let all: Vec<usize> = lanes.clone().filter(|&lane| windows[lane].is_some()).collect();
        for node in all.chunk_by(|&a, &b| node_of(a) == node_of(b)) {
            let window = |&lane: &usize| windows[lane].unwrap_or_default();
            let span = |lane: &usize| window(lane).1 - window(lane).0;
            let longest = node.iter().map(span).max().unwrap_or(0) as f64;
            let kept: Vec<usize> = node
                .iter()
                .copied()
                .filter(|lane| span(lane) as f64 >= WATCHED * longest)
                .collect();
            left += node.len() - kept.len();
            let from = kept.iter().map(|lane| window(lane).0).max().unwrap_or(0);
            let to = kept.iter().map(|lane| window(lane).1).min().unwrap_or(0);
            if (to.saturating_sub(from) as f64) < WATCHED * longest {
                let why = "its CPUs were watched at different times: every rank is on a random CPU";
                return Ok(anywhere(vec![why.to_owned()]));
            }
            for &lane in &kept {
                cuts[lane] = Some(Cut::Between(from, to));
            }
            counts.push(kept.len());
        }
        let Some(&fewest) = counts.iter().min() else { return Ok(anywhere(Vec::new())) };
        let ranks_per_node = request.ranks_per_node.unwrap_or(fewest as u64);
        if ranks_per_node > fewest as u64 || ranks_per_node == 0 {
            bail!(
                "--ranks-per-node {ranks_per_node}, but only {fewest} CPUs were recorded: record all \
                 CPUs that ranks run on, or use --placement random"
            );
        }
        let remark = (left > 0).then(|| {
            format!("{left} CPUs were watched for a part of the time only: no rank is on them")
        });
        Ok(Places {
            cuts,
            nodes: Some((counts, ranks_per_node)),
            remarks: remark.into_iter().collect(),
        })
    }

    /// The part of a lane that ranks meet; None if no rank is on it.
    pub fn cut(&self, lane: usize, composed: Composed) -> Option<Composed> {
        match self.cuts.get(lane).copied().flatten()? {
            Cut::All => Some(composed),
            Cut::Between(from, to) => Some(composed.within(from, to)),
        }
    }

    /// All lanes as ranks meet them, without what is excluded.
    pub fn lanes(&self, lanes: Vec<(usize, Composed)>, excluded: &[bool]) -> Vec<Composed> {
        let cut = |(index, lane): (usize, Composed)| self.cut(index, lane.lacking(excluded));
        lanes.into_iter().filter_map(cut).collect()
    }

    /// Whether a rank is on a lane.
    pub fn has(&self, lane: usize) -> bool {
        self.cuts.get(lane).is_some_and(Option::is_some)
    }

    /// The numbers of lanes of each node and the ranks that share one; None if ranks are placed at random.
    pub fn nodes(&self) -> Option<(&[usize], u64)> {
        self.nodes.as_ref().map(|(counts, ranks)| (&counts[..], *ranks))
    }
}
