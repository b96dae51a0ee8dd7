//! Which rank meets which noise: timelines spread over the ranks, and the offset at which each rank
//! starts. Both follow from seed, run and rank alone; nothing is stored per rank.

use thiserror::Error;

use super::{Local, Model, Timeline, draw, key, side_by_side::SideBySide, timeline::MAX_SPAN};
use crate::simd;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SpreadError {
    #[error("no noise trace was given")]
    NoTimelines,
    #[error("{given} offsets were given for {ranks} ranks")]
    TooFewOffsets { given: usize, ranks: u64 },
}

/// Where in its trace a rank starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Offsets {
    /// Anywhere, each rank for itself.
    #[default]
    Random,
    /// Anywhere, all at the same place: co-scheduled.
    Shared,
    /// Within this much of each other: partially synchronised.
    Within(i64),
    /// As told, one per rank.
    Given(Vec<i64>),
}

/// Noise for a job: which detours, where the ranks stand in them, what they do.
#[derive(Clone, Debug)]
pub struct Noise {
    timelines: Vec<Timeline>,
    /// Where there are several.
    side_by_side: Option<SideBySide>,
    offsets: Offsets,
    model: Model,
    repeat: bool,
}

/// Ranks whose places in the noise are looked up together: the look-ups miss the first cache, and so
/// overlap.
pub(crate) const LOOKED_UP: usize = 64;

/// Something about each of them.
type Batch<T = i64> = [T; LOOKED_UP];

const OFFSET: u64 = 1;
const TIMELINE: u64 = 2;
const SHARED: u64 = 3;

impl Noise {
    /// No detours at all.
    pub fn none() -> Noise {
        Noise {
            timelines: Vec::new(),
            side_by_side: None,
            offsets: Offsets::Random,
            model: Model::Preempt,
            repeat: true,
        }
    }

    /// Several timelines are spread over the ranks at random: nodes that differ.
    pub fn new(
        timelines: Vec<Timeline>,
        model: Model,
        offsets: Offsets,
    ) -> Result<Noise, SpreadError> {
        if timelines.is_empty() {
            return Err(SpreadError::NoTimelines);
        }
        let side_by_side = if timelines.len() > 1 { SideBySide::new(&timelines) } else { None };
        Ok(Noise { timelines, side_by_side, offsets, model, repeat: false })
    }

    /// Allows runs longer than a trace, which then starts over.
    #[must_use]
    pub fn repeating(self, repeat: bool) -> Noise {
        Noise { repeat, ..self }
    }

    /// The same detours, met at other times.
    #[must_use]
    pub fn with_offsets(self, offsets: Offsets) -> Noise {
        Noise { offsets, ..self }
    }

    /// The same detours under another model.
    #[must_use]
    pub fn with_model(self, model: Model) -> Noise {
        Noise { model, ..self }
    }

    pub fn is_none(&self) -> bool {
        self.timelines.is_empty()
    }

    pub fn model(&self) -> Model {
        self.model
    }

    pub fn timelines(&self) -> &[Timeline] {
        &self.timelines
    }

    /// Refuses what would fail later, rank by rank.
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
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct RunNoise<'a> {
    noise: &'a Noise,
    offset_key: u64,
    timeline_key: u64,
    shared: u64,
}

impl<'a> RunNoise<'a> {
    pub fn is_none(&self) -> bool {
        self.noise.is_none()
    }

    pub fn model(&self) -> Model {
        self.noise.model
    }

    /// Until when each rank is clear of detours from time 0 on: what `local(rank).clear_until(0)`
    /// says, for all ranks at once.
    pub fn clear_at_start(&self, clear: &mut [i64]) {
        if let Some((timeline, limit)) = self.everywhere() {
            let (key, span) = (self.offset_key, self.span(timeline));
            simd::widest(Start { clear, timeline, key, span, limit });
            return;
        }
        let mut ranks = [0; LOOKED_UP];
        let mut until = [0; LOOKED_UP];
        for (batch, clear) in (0..).zip(clear.chunks_mut(LOOKED_UP)) {
            for (lane, rank) in (0..).zip(&mut ranks) {
                *rank = batch * LOOKED_UP as u64 + lane;
            }
            self.clear_from(clear.len(), &ranks, &[0; LOOKED_UP], &mut until);
            clear.copy_from_slice(&until[..clear.len()]);
        }
    }

    /// Until when each of some ranks is clear, from a time of its own on: `local(rank).clear_until`.
    /// What lies beyond the first `count` of a batch means nothing, before and after.
    pub(crate) fn clear_from(
        &self,
        count: usize,
        ranks: &Batch<u64>,
        times: &Batch,
        clear: &mut Batch,
    ) {
        let key = self.offset_key;
        let done = if let Some((timeline, limit)) = self.everywhere() {
            let span = self.span(timeline);
            simd::widest(From { ranks, times, clear, timeline, key, span, limit })
        } else if let Some(together) = self.side_by_side() {
            let (timeline_key, repeat) = (self.timeline_key, self.noise.repeat);
            simd::widest(FromMany { ranks, times, clear, together, timeline_key, key, repeat })
        } else {
            false
        };
        if !done {
            for ((clear, &rank), &time) in clear[..count].iter_mut().zip(ranks).zip(times) {
                *clear = self.local(rank).clear_until(time);
            }
        }
    }

    /// The timelines together, where ranks are anywhere in them.
    fn side_by_side(&self) -> Option<&'a SideBySide> {
        match (&self.noise.side_by_side, &self.noise.offsets, self.noise.model) {
            (_, _, Model::LogGopSim) => None,
            (together, Offsets::Random, _) => together.as_ref(),
            _ => None,
        }
    }

    /// The one timeline that all ranks are in, anywhere, and the latest time it may be asked about.
    fn everywhere(&self) -> Option<(&'a Timeline, i64)> {
        match (&self.noise.timelines[..], &self.noise.offsets) {
            ([timeline], Offsets::Random) => {
                Some((timeline, Local::new(timeline, 0, self.noise.repeat).limit()))
            }
            _ => None,
        }
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

    /// The span in which offsets lie: the peer's ends where the last detour starts.
    fn span(&self, timeline: &Timeline) -> i64 {
        match self.noise.model {
            Model::LogGopSim => timeline.last_start().max(1),
            _ => timeline.span(),
        }
    }

    /// What this rank meets. There must be noise, and as many given offsets as ranks.
    #[inline]
    pub fn local(&self, rank: u64) -> Local<'a> {
        let (timeline, offset) = self.place(rank);
        Local::new(&self.noise.timelines[timeline], offset, self.noise.repeat)
    }

    /// Which timeline this rank meets, and where in it it starts.
    #[inline]
    pub fn place(&self, rank: u64) -> (usize, i64) {
        let index = match self.noise.timelines.as_slice() {
            [_] => 0,
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

/// Detours of one length that begin with each period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Periodic {
    pub(crate) period: i64,
    pub(crate) length: i64,
}

struct Start<'a> {
    clear: &'a mut [i64],
    timeline: &'a Timeline,
    key: u64,
    span: i64,
    limit: i64,
}

impl simd::Kernel for Start<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Start { clear, timeline, key, span, limit } = self;
        let (period, length) = (timeline.span(), timeline.span() - timeline.free());
        for (batch, clear) in (0..).zip(clear.chunks_mut(LOOKED_UP)) {
            let mut offsets = [0; LOOKED_UP];
            for (lane, offset) in (0..).zip(&mut offsets) {
                *offset = below(draw(key, batch * LOOKED_UP as u64 + lane), span);
            }
            if timeline.is_periodic() {
                for (clear, offset) in clear.iter_mut().zip(offsets) {
                    *clear = if offset < length { -offset } else { period - offset };
                }
                continue;
            }
            timeline.next_starts(&mut offsets);
            for (clear, next) in clear.iter_mut().zip(offsets) {
                *clear = next.min(limit);
            }
        }
    }
}

struct From<'a> {
    ranks: &'a Batch<u64>,
    times: &'a Batch,
    clear: &'a mut Batch,
    timeline: &'a Timeline,
    key: u64,
    span: i64,
    limit: i64,
}

impl simd::Kernel for From<'_> {
    /// False if a time is too many turns of the trace away.
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let mut positions = [0; LOOKED_UP];
        let (turn, mut beyond) = (self.timeline.span(), 0);
        for ((position, &rank), &time) in positions.iter_mut().zip(self.ranks).zip(self.times) {
            let at = time + below(draw(self.key, rank), self.span);
            *position = if at < turn { at } else { at - turn };
            beyond |= (turn - 1 - *position) | *position;
        }
        if beyond < 0 || self.timeline.is_empty() {
            return false;
        }
        self.timeline.next_starts(&mut positions);
        for ((clear, next), &time) in self.clear.iter_mut().zip(positions).zip(self.times) {
            *clear = (time + next).min(self.limit);
        }
        true
    }
}

/// [`From`] for several timelines.
struct FromMany<'a> {
    ranks: &'a Batch<u64>,
    times: &'a Batch,
    clear: &'a mut Batch,
    together: &'a SideBySide,
    timeline_key: u64,
    key: u64,
    repeat: bool,
}

impl simd::Kernel for FromMany<'_> {
    /// False if a time is too many turns of its trace away.
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let FromMany { ranks, times, clear, together, timeline_key, key, repeat } = self;
        let mut timelines = [0u32; LOOKED_UP];
        for (timeline, &rank) in timelines.iter_mut().zip(ranks) {
            *timeline = below(draw(timeline_key, rank), together.len() as i64) as u32;
        }
        let (mut bases, mut turns) = ([0; LOOKED_UP], [0; LOOKED_UP]);
        for ((base, turn), &timeline) in bases.iter_mut().zip(&mut turns).zip(&timelines) {
            (*base, *turn) = together.place(timeline as usize);
        }
        let (mut positions, mut beyond) = ([0; LOOKED_UP], 0);
        for lane in 0..LOOKED_UP {
            let turn = turns[lane];
            let at = times[lane] + below(draw(key, ranks[lane]), turn);
            let position = if at < turn { at } else { at - turn };
            beyond |= (turn - 1 - position) | position;
            positions[lane] = bases[lane] + position;
        }
        if beyond < 0 {
            return false;
        }
        together.next_starts(&mut positions);
        for lane in 0..LOOKED_UP {
            let limit = if repeat { MAX_SPAN } else { turns[lane] };
            clear[lane] = (times[lane] + positions[lane]).min(limit);
        }
        true
    }
}

/// A number below `bound` from 64 random bits.
#[inline(always)]
fn below(bits: u64, bound: i64) -> i64 {
    upper_half(bits, bound as u64) as i64
}

/// The upper half of a product. Written with halves, which vectors can multiply.
#[inline(always)]
fn upper_half(a: u64, b: u64) -> u64 {
    const LOW: u64 = u32::MAX as u64;
    let (a_high, a_low) = (a >> 32, a & LOW);
    let (b_high, b_low) = (b >> 32, b & LOW);
    let middle = a_high * b_low + ((a_low * b_low) >> 32);
    let other = a_low * b_high + (middle & LOW);
    a_high * b_high + (middle >> 32) + (other >> 32)
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

    #[test]
    fn a_random_number_below_a_bound_is_the_upper_half_of_a_product() {
        for i in 0..1000 {
            let (bits, bound) = (draw(3, i), (draw(4, i) >> (2 + i % 60)) as i64);
            let expected = ((u128::from(bits) * bound as u128) >> 64) as i64;
            assert_eq!(below(bits, bound), expected);
        }
        assert_eq!(below(u64::MAX, i64::MAX), i64::MAX - 1);
    }

    #[test]
    fn all_ranks_at_once_are_as_clear_as_one_by_one() {
        let traces = [
            trace(),
            Timeline::periodic(1_000, 300).unwrap(),
            Timeline::new([], 500).unwrap(),
            Timeline::new((0..300).map(|i| (i * 70 + i % 7, 1 + i % 60)), 30_000).unwrap(),
        ];
        for trace in traces {
            let noise = Noise::new(vec![trace], Model::Preempt, Offsets::Random).unwrap();
            let mut together = vec![0; 1000];
            noise.run(42, 5).clear_at_start(&mut together);
            assert_eq!(together, clear(&noise, 5));
            // And from times of their own on, within the trace's first two turns.
            let noise = noise.repeating(true);
            let run = noise.run(42, 5);
            let ranks: [u64; LOOKED_UP] = std::array::from_fn(|i| i as u64 * 7);
            let times = ranks.map(|rank| rank as i64 * 911 % 20_000);
            let mut together = [0; LOOKED_UP];
            run.clear_from(LOOKED_UP, &ranks, &times, &mut together);
            let one = |(&rank, &time)| run.local(rank).clear_until(time);
            assert_eq!(together.to_vec(), ranks.iter().zip(&times).map(one).collect::<Vec<_>>());
        }
    }

    #[test]
    fn ranks_in_several_traces_are_as_clear_together_as_one_by_one() {
        let dense = Timeline::new((0..300).map(|i| (i * 70 + i % 7, 1 + i % 60)), 30_000).unwrap();
        let periodic = Timeline::periodic(40_000, 300).unwrap();
        let late = Timeline::new([(49_000, 900)], 50_000).unwrap();
        let silent = Timeline::new([], 60_000).unwrap();
        let ranks: [u64; LOOKED_UP] = std::array::from_fn(|i| i as u64 * 7);
        let several = [vec![dense.clone(), late, dense.clone()], vec![dense.clone(), silent]];
        for traces in several.into_iter().chain([vec![dense, periodic]]) {
            for offsets in [Offsets::Random, Offsets::Shared, Offsets::Within(5_000)] {
                for repeat in [false, true] {
                    let noise = Noise::new(traces.clone(), Model::Preempt, offsets.clone());
                    let noise = noise.unwrap().repeating(repeat);
                    let run = noise.run(42, 5);
                    let mut start = vec![0; 1000];
                    run.clear_at_start(&mut start);
                    assert_eq!(start, clear(&noise, 5));
                    // Of the last times some are more than a turn away.
                    for most in [20_000, 100_000] {
                        let times = ranks.map(|rank| rank as i64 * 911 % most);
                        let mut together = [0; LOOKED_UP];
                        run.clear_from(LOOKED_UP, &ranks, &times, &mut together);
                        let one = |(&rank, &time)| run.local(rank).clear_until(time);
                        let apart: Vec<_> = ranks.iter().zip(&times).map(one).collect();
                        assert_eq!(together.to_vec(), apart);
                    }
                }
            }
        }
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
