//! Which rank meets which noise: timelines spread over the ranks, and the offset at which each rank
//! starts. Both are functions of seed, run and rank; nothing is stored per rank.

use std::sync::Arc;

use thiserror::Error;

use super::{
    Latencies, Local, Model, RunLatencies, Timeline, draw, key,
    many::Many,
    nodes::{NodeKeys, Nodes},
    periodic::Periodic,
    side_by_side::SideBySide,
};

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SpreadError {
    #[error("no noise trace given")]
    NoTimelines,
    #[error("{given} offsets given for {ranks} ranks")]
    TooFewOffsets { given: usize, ranks: u64 },
}

/// A rank's offset in its trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Offsets {
    /// Random, independent for each rank.
    #[default]
    Random,
    /// Random, the same offset in the same timeline for all ranks: co-scheduled.
    Shared,
    /// In the same timeline, within this much of each other: partially synchronised.
    Within(i64),
    /// Explicit, one per rank.
    Given(Vec<i64>),
}

/// Noise for a job: the detours, the ranks' offsets in them, and their effect.
#[derive(Clone, Debug)]
pub struct Noise {
    /// Shared: variants of one noise differ in what follows.
    timelines: Arc<[Timeline]>,
    /// If there are several timelines.
    side_by_side: Option<Arc<SideBySide>>,
    /// How random offsets are shared; None if every rank has one of its own.
    nodes: Option<Nodes>,
    offsets: Offsets,
    model: Model,
    repeat: bool,
    latencies: Option<Arc<Latencies>>,
}

const OFFSET: u64 = 1;
const TIMELINE: u64 = 2;
const SHARED: u64 = 3;
const FIRST_CPU: u64 = 4;
const LATENCY: u64 = 5;

impl Noise {
    /// No detours.
    pub fn none() -> Noise {
        Noise {
            timelines: Arc::new([]),
            side_by_side: None,
            nodes: None,
            offsets: Offsets::Random,
            model: Model::Preempt,
            repeat: true,
            latencies: None,
        }
    }

    /// Several timelines are spread over the ranks at random: nodes that differ. If ranks meet the
    /// same detours, each run draws one timeline for all ranks.
    pub fn new(
        timelines: Vec<Timeline>,
        model: Model,
        offsets: Offsets,
    ) -> Result<Noise, SpreadError> {
        if timelines.is_empty() {
            return Err(SpreadError::NoTimelines);
        }
        let side_by_side = if timelines.len() > 1 { SideBySide::new(&timelines) } else { None };
        let (timelines, side_by_side) = (timelines.into(), side_by_side.map(Arc::new));
        Ok(Noise {
            timelines,
            side_by_side,
            nodes: None,
            offsets,
            model,
            repeat: false,
            latencies: None,
        })
    }

    /// Puts ranks with random offsets on nodes; the timelines are those of the nodes. Without nodes,
    /// ranks are independent of each other.
    #[must_use]
    pub fn on_nodes(self, nodes: Option<Nodes>) -> Noise {
        Noise { nodes, ..self }
    }

    /// Allows runs longer than a trace, which then repeats.
    #[must_use]
    pub fn repeating(self, repeat: bool) -> Noise {
        Noise { repeat, ..self }
    }

    /// The same detours with other offsets.
    #[must_use]
    pub fn with_offsets(self, offsets: Offsets) -> Noise {
        Noise { offsets, ..self }
    }

    /// The same detours under another model.
    #[must_use]
    pub fn with_model(self, model: Model) -> Noise {
        Noise { model, ..self }
    }

    /// The same detours on a network whose latency varies.
    #[must_use]
    pub fn with_latencies(self, latencies: Option<Latencies>) -> Noise {
        Noise { latencies: latencies.map(Arc::new), ..self }
    }

    pub fn has_latencies(&self) -> bool {
        self.latencies.is_some()
    }

    /// Whether there are no detours; latencies may vary.
    pub fn is_none(&self) -> bool {
        self.timelines.is_empty()
    }

    /// Whether all runs are the same.
    pub fn is_silent(&self) -> bool {
        self.is_none() && self.latencies.is_none()
    }

    pub fn model(&self) -> Model {
        self.model
    }

    pub fn timelines(&self) -> &[Timeline] {
        &self.timelines
    }

    /// Rejects what would fail later, rank by rank.
    pub fn check(&self, ranks: u64) -> Result<(), SpreadError> {
        match &self.offsets {
            Offsets::Given(list) if (list.len() as u64) < ranks => {
                Err(SpreadError::TooFewOffsets { given: list.len(), ranks })
            }
            _ => Ok(()),
        }
    }

    /// The noise of one run.
    pub fn run(&self, seed: u64, run: u64) -> RunNoise<'_> {
        RunNoise {
            noise: self,
            offset_key: key(seed, OFFSET, run),
            timeline_key: key(seed, TIMELINE, run),
            shared: key(seed, SHARED, run),
            first_key: key(seed, FIRST_CPU, run),
            latencies: self.latencies.as_ref().map(|all| all.run(seed, run, LATENCY)),
            first: 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct RunNoise<'a> {
    noise: &'a Noise,
    offset_key: u64,
    timeline_key: u64,
    shared: u64,
    first_key: u64,
    latencies: Option<RunLatencies<'a>>,
    /// Number of the first rank.
    first: u64,
}

impl<'a> RunNoise<'a> {
    /// The noise of the ranks from this one on, numbered from 0. For the event engine, and without latencies
    /// that vary.
    #[must_use]
    pub fn from_rank(self, first: u64) -> RunNoise<'a> {
        RunNoise { first, ..self }
    }

    pub fn is_none(&self) -> bool {
        self.noise.is_none()
    }

    pub fn model(&self) -> Model {
        self.noise.model
    }

    /// If they vary.
    #[inline]
    pub fn latencies(&self) -> Option<&RunLatencies<'a>> {
        self.latencies.as_ref()
    }

    /// The noise of what follows after every rank has sent this many messages: their latencies are not
    /// drawn again.
    #[must_use]
    pub fn after_messages(self, messages: u64) -> RunNoise<'a> {
        RunNoise { latencies: self.latencies.map(|all| all.after(messages)), ..self }
    }

    /// Looks up many ranks together, for independent random offsets. Also None if one of the timelines
    /// has no detours.
    pub(crate) fn many(&self) -> Option<Many<'a>> {
        let random = self.noise.offsets == Offsets::Random && self.noise.model != Model::LogGopSim;
        let (lookup, bases, spans) = match (&self.noise.timelines[..], &self.noise.side_by_side) {
            _ if !random => return None,
            ([only], _) if !only.is_empty() => (only.lookup(), &[0][..], only.spans()),
            (_, Some(together)) => (&together.lookup, &together.bases[..], &together.spans[..]),
            _ => return None,
        };
        let periodic = self.periodic();
        Some(Many {
            lookup,
            bases,
            spans,
            periodic,
            nodes: self.noise.nodes.as_ref().map(|nodes| (nodes, self.node_keys())),
            timeline_key: self.timeline_key,
            offset_key: self.offset_key,
            repeat: self.noise.repeat || self.noise.timelines.iter().all(Timeline::is_endless),
        })
    }

    fn node_keys(&self) -> NodeKeys {
        NodeKeys { node: self.timeline_key, first: self.first_key }
    }

    /// One source of periodic noise, whatever its phase on each rank.
    #[inline]
    pub(crate) fn periodic(&self) -> Option<Periodic> {
        match &self.noise.timelines[..] {
            [timeline] if timeline.is_periodic() => Some(Periodic {
                period: timeline.span(),
                length: timeline.span() - timeline.free(),
            }),
            _ => None,
        }
    }

    /// The span of the offsets: LogGOPSim's ends where the last detour starts.
    fn span(&self, timeline: &Timeline) -> i64 {
        match self.noise.model {
            Model::LogGopSim => timeline.last_start().max(1),
            _ => timeline.span(),
        }
    }

    /// The noise of this rank. There must be noise, and one explicit offset per rank if any.
    #[inline]
    pub fn local(&self, rank: u64) -> Local<'a> {
        let (timeline, offset) = self.place(self.first + rank);
        Local::new(&self.noise.timelines[timeline], offset, self.noise.repeat)
    }

    /// This rank's timeline, and its offset in it.
    #[inline]
    pub fn place(&self, rank: u64) -> (usize, i64) {
        if let (Some(nodes), Offsets::Random) = (&self.noise.nodes, &self.noise.offsets) {
            let (node, index) = nodes.place(rank, &self.node_keys());
            let span = self.span(&self.noise.timelines[index]);
            return (index, below(draw(self.offset_key, node), span));
        }
        let together = matches!(self.noise.offsets, Offsets::Shared | Offsets::Within(_));
        let index = match &self.noise.timelines[..] {
            [_] => 0,
            // The same detours for all: those of one timeline, drawn for the run.
            many if together => below(draw(self.timeline_key, 0), many.len() as i64) as usize,
            many => below(draw(self.timeline_key, rank), many.len() as i64) as usize,
        };
        let timeline = &self.noise.timelines[index];
        let span = self.span(timeline);
        let offset = match &self.noise.offsets {
            Offsets::Random => below(draw(self.offset_key, rank), span),
            Offsets::Shared => below(self.shared, span),
            Offsets::Within(window) => {
                let lag = below(draw(self.offset_key, rank), (*window).clamp(1, span));
                (below(self.shared, span) + lag) % span
            }
            Offsets::Given(list) => list[rank as usize].rem_euclid(timeline.span()),
        };
        (index, offset)
    }
}

/// A number below `bound` from 64 random bits.
#[inline(always)]
pub(super) fn below(bits: u64, bound: i64) -> i64 {
    ((u128::from(bits) * bound as u128) >> 64) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> Timeline {
        Timeline::new([(100, 50)], 1_000_000).unwrap()
    }

    fn clear(noise: &Noise, run: u64) -> Vec<i64> {
        (0..1000).map(|rank| noise.run(42, run).local(rank).clear_until(0)).collect()
    }

    #[test]
    fn offsets_are_random_shared_or_within_a_window() {
        let noise = |offsets| Noise::new(vec![trace()], Model::Preempt, offsets).unwrap();
        let random = clear(&noise(Offsets::Random), 0);
        let mean = random.iter().sum::<i64>() / 1000;
        assert!((450_000..550_000).contains(&mean), "{mean}");
        assert_eq!(random, clear(&noise(Offsets::Random), 0));
        assert_ne!(random, clear(&noise(Offsets::Random), 1));

        let shared = clear(&noise(Offsets::Shared), 0);
        assert!(shared.iter().all(|&at| at == shared[0]));
        let near = clear(&noise(Offsets::Within(10)), 3);
        assert!(near.iter().all(|&at| (at - near[0]).abs() < 10));
        assert!(near.iter().any(|&at| at != near[0]));
        let given = noise(Offsets::Given(vec![0, 99]));
        assert_eq!(given.run(0, 0).local(1).clear_until(0), 1);
        assert!(given.check(2).is_ok() && given.check(3).is_err());
    }

    /// Lanes whose spans differ by a factor of a thousand: a rank's offset must only depend on the
    /// lane that all of them meet.
    #[test]
    fn coscheduled_ranks_meet_the_same_detours_whatever_the_spans_of_the_lanes() {
        let lane = |span: i64| Timeline::new([(span / 2, span / 10)], span).unwrap();
        let lanes = vec![lane(1_000), lane(77_000), lane(1_000_000)];
        for (offsets, apart) in [(Offsets::Shared, 0), (Offsets::Within(10), 9)] {
            let noise = Noise::new(lanes.clone(), Model::Preempt, offsets).unwrap();
            let mut drawn = [0; 3];
            for run in 0..300 {
                let places: Vec<_> = (0..64).map(|rank| noise.run(7, run).place(rank)).collect();
                let (first, at) = places[0];
                drawn[first] += 1;
                let span = lanes[first].span();
                let near = |offset: i64| {
                    let distance = (offset - at).rem_euclid(span);
                    distance.min(span - distance) <= apart
                };
                assert!(places.iter().all(|&(lane, at)| lane == first && near(at)), "{places:?}");
            }
            assert!(drawn.iter().all(|&runs| runs > 50), "{drawn:?}");
        }
    }

    /// Two recorded nodes with 3 and 4 CPUs. The consecutive ranks of a node are on CPUs of one recorded
    /// node, each on its own, at the same moment.
    #[test]
    fn the_ranks_of_a_node_meet_its_cpus_at_one_moment() {
        let lane = |span: i64| Timeline::new([(span / 2, span / 10)], span).unwrap();
        let lanes: Vec<Timeline> = [7_000; 3].into_iter().chain([9_000; 4]).map(lane).collect();
        for per_node in 1..=3u64 {
            let nodes = Nodes::new(&lanes, &[3, 4], per_node).unwrap();
            let noise = Noise::new(lanes.clone(), Model::Preempt, Offsets::Random).unwrap();
            let noise = noise.on_nodes(Some(nodes));
            let (mut used, mut moments) = ([0; 7], std::collections::BTreeSet::new());
            for run in 0..50 {
                let places: Vec<_> = (0..60).map(|rank| noise.run(7, run).place(rank)).collect();
                for node in places.chunks(per_node as usize) {
                    let recorded = |&(lane, _): &(usize, i64)| lane / 3 == 0;
                    assert!(node.iter().all(|place| recorded(place) == recorded(&node[0])));
                    assert!(node.iter().all(|place| place.1 == node[0].1), "{node:?}");
                    moments.insert(node[0].1);
                    for (at, place) in node.iter().enumerate() {
                        assert!(node[..at].iter().all(|other| other.0 != place.0), "{node:?}");
                        used[place.0] += 1;
                    }
                }
            }
            assert!(moments.len() > 500, "{}", moments.len());
            assert!(used.iter().all(|&ranks| ranks > 250), "{used:?}");
        }
        assert_eq!(Nodes::new(&lanes, &[3, 4], 4), None);
        assert_eq!(Nodes::new(&lanes, &[4, 3], 2), None);
        assert_eq!(Nodes::new(&lanes, &[3, 3], 2), None);
        assert_eq!(Nodes::new(&lanes, &[3, 4], 0), None);
        // Every rank has its CPU if there are as many.
        let nodes = Nodes::new(&lanes[..3], &[3], 3).unwrap();
        let noise = Noise::new(lanes[..3].to_vec(), Model::Preempt, Offsets::Random).unwrap();
        let noise = noise.on_nodes(Some(nodes));
        assert!((0..30).all(|rank| noise.run(1, 1).place(rank).0 as u64 == rank % 3));
    }

    #[test]
    fn timelines_are_spread_over_the_ranks() {
        let other = Timeline::new([(100, 50)], 2_000_000).unwrap();
        let noise = Noise::new(vec![trace(), other], Model::Preempt, Offsets::Given(vec![0; 1000]))
            .unwrap()
            .repeating(true);
        let second = (0..1000)
            .filter(|&rank| noise.run(1, 1).local(rank).clear_until(200) > 1_000_100)
            .count();
        assert!((400..600).contains(&second), "{second}");
    }
}
