//! What if a source of noise were removed, moved to a housekeeping CPU, or active on all nodes at the
//! same time? Compares runs of a job as recorded with runs after the change, with the same draws
//! ([`gain`]).
//!
//! - **Removed**: every detour is shorter by the source's part ([`Composed`]).
//! - **Shifted** to a CPU: the source is removed from all lanes except that CPU's, which gets all of
//!   it. If the CPU was not measured, no rank runs on it, and this is the same as removing it.
//! - **Quantised** (co-scheduled): active on all nodes at the same time, on the CPUs of a node as
//!   recorded. Then it stops all ranks together, and the job takes as long as without the source plus
//!   the time of the source meanwhile. Messages in flight continue meanwhile, which is ignored here:
//!   at most L for every detour that the job meets.

pub mod gain;
#[cfg(test)]
mod tests;

use thiserror::Error;

pub use gain::{Effect, Gain, compare};

use crate::{
    noise::{
        Composed, Local, Model, Nodes, Noise, Offsets, SpreadError, Timeline, TimelineError, key,
    },
    stats::NoRuns,
    sweep::{SweepError, Traced},
};

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WhatIfError {
    #[error(transparent)]
    Timeline(#[from] TimelineError),
    #[error(transparent)]
    Spread(#[from] SpreadError),
    #[error(transparent)]
    Sweep(#[from] SweepError),
    #[error(transparent)]
    NoRuns(#[from] NoRuns),
}

/// The recording, and how a job meets it.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    /// Ranks are spread over them.
    pub lanes: &'a [Composed],
    /// The same on one clock, if theirs differ: the clock of a thread stops while it sleeps.
    pub on_one_clock: Option<&'a [Composed]>,
    pub model: Model,
    pub offsets: Offsets,
    /// The numbers of lanes of each recorded node, and how many ranks share one, if ranks are put on nodes.
    pub nodes: Option<(&'a [usize], u64)>,
    /// Whether a run may be longer than the recording.
    pub repeat: bool,
}

/// Sources to change together, and what to try in addition to removing them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// By number, as in [`Composed::push`].
    pub sources: Vec<u32>,
    pub shift: Option<Shift>,
    pub quantise: bool,
}

/// Target of a shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// A CPU that no rank runs on.
    Elsewhere,
    /// The CPU of this lane.
    Lane(usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    pub removed: Gain,
    pub shifted: Option<Gain>,
    /// Also None if the source, active everywhere at once, would leave no time.
    pub quantised: Option<Gain>,
}

/// Runs as recorded, and the answers in the order of the questions.
#[derive(Clone, Debug, PartialEq)]
pub struct Answers {
    /// The time of each run, ps.
    pub as_recorded: Vec<i64>,
    pub answers: Vec<Answer>,
}

/// Runs of one job. The same run meets the same draws under every noise, which pairs the runs.
pub trait Runs {
    /// Number of runs.
    fn count(&self) -> u64;

    /// The times of some runs, by number, ps.
    fn times(&self, noise: &Noise, runs: &[u64]) -> Result<Vec<i64>, SweepError>;

    /// All runs with their critical paths, if they can be determined.
    fn traced(&self, noise: &Noise) -> Result<Option<Vec<Traced>>, SweepError> {
        let _ = noise;
        Ok(None)
    }

    /// Reports runs that need not be simulated.
    fn spared(&self, runs: u64) {
        let _ = runs;
    }
}

/// Answers all questions. `seed` is for the intervals and for the times of co-scheduled sources.
///
/// A run whose critical path is not touched by any source of a question takes as long without them
/// (see [`rounds::path`](crate::rounds::path)), and is not simulated again.
pub fn ask(
    node: &Node<'_>,
    questions: &[Question],
    seed: u64,
    runs: &dyn Runs,
) -> Result<Answers, WhatIfError> {
    let (as_recorded, touched) = as_recorded(node, questions, runs)?;
    let mut answers = Vec::with_capacity(questions.len());
    for question in questions {
        let set = question.set();
        let again = touched.by(question);
        runs.spared(as_recorded.len() as u64 - again.len() as u64);
        let mut without = as_recorded.clone();
        if !again.is_empty() {
            for (run, time) in again.iter().zip(runs.times(&node.without(&set)?, &again)?) {
                without[*run as usize] = time;
            }
        }
        let removed = compare(&as_recorded, &without, seed)?;
        let shifted = match question.shift {
            None => None,
            Some(Shift::Lane(lane)) if lane < node.lanes.len() => {
                let all: Vec<u64> = (0..as_recorded.len() as u64).collect();
                let shifted = runs.times(&node.shifted(&set, lane)?, &all)?;
                Some(compare(&as_recorded, &shifted, seed)?)
            }
            Some(_) => Some(removed),
        };
        let quantised = match question.quantise {
            true => node.quantised(&set, &without, seed)?,
            false => None,
        };
        let quantised = quantised.map(|times| compare(&as_recorded, &times, seed)).transpose()?;
        answers.push(Answer { removed, shifted, quantised });
    }
    Ok(Answers { as_recorded, answers })
}

/// Which runs depend on which sources.
struct Touched {
    /// By source, as far as there are questions; ascending.
    by_source: Vec<Vec<u64>>,
    /// Runs whose critical path is unknown.
    unknown: Vec<u64>,
}

impl Touched {
    /// Runs that may change with these sources, ascending.
    fn by(&self, question: &Question) -> Vec<u64> {
        let lists = question.sources.iter().filter_map(|&s| self.by_source.get(s as usize));
        let mut runs: Vec<u64> = lists.flatten().chain(&self.unknown).copied().collect();
        runs.sort_unstable();
        runs.dedup();
        runs
    }
}

fn as_recorded(
    node: &Node<'_>,
    questions: &[Question],
    runs: &dyn Runs,
) -> Result<(Vec<i64>, Touched), WhatIfError> {
    let noise = node.without(&[])?;
    let most = questions.iter().flat_map(|q| &q.sources).max().map_or(0, |&s| s as usize + 1);
    let mut touched = Touched { by_source: vec![Vec::new(); most], unknown: Vec::new() };
    let all: Vec<u64> = (0..runs.count()).collect();
    let Some(traced) = runs.traced(&noise)? else {
        let times = runs.times(&noise, &all)?;
        touched.unknown = all;
        return Ok((times, touched));
    };
    let mut marks = vec![false; most];
    for (run, traced) in (0..).zip(&traced) {
        let Some(stretches) = &traced.stretches else {
            touched.unknown.push(run);
            continue;
        };
        marks.fill(false);
        for stretch in stretches {
            if let Some(lane) = node.lanes.get(stretch.timeline) {
                lane.sources_between(stretch.from, stretch.to, &mut marks);
            }
        }
        for (list, _) in touched.by_source.iter_mut().zip(&marks).filter(|(_, marked)| **marked) {
            list.push(run);
        }
    }
    Ok((traced.iter().map(|run| run.end).collect(), touched))
}

impl Question {
    fn set(&self) -> Vec<bool> {
        let mut set = vec![false; self.sources.iter().max().map_or(0, |&most| most as usize + 1)];
        for &source in &self.sources {
            set[source as usize] = true;
        }
        set
    }
}

impl Node<'_> {
    /// The noise without these sources.
    pub fn without(&self, removed: &[bool]) -> Result<Noise, WhatIfError> {
        let timelines: Result<Vec<_>, _> =
            self.lanes.iter().map(|lane| lane.without(removed)).collect();
        self.noise(timelines?)
    }

    fn noise(&self, timelines: Vec<Timeline>) -> Result<Noise, WhatIfError> {
        let place = |(counts, ranks): (&[usize], u64)| Nodes::new(&timelines, counts, ranks);
        let nodes = self.nodes.and_then(place);
        let noise = Noise::new(timelines, self.model, self.offsets.clone())?;
        Ok(noise.repeating(self.repeat).on_nodes(nodes))
    }

    /// The noise with these sources on one lane only.
    fn shifted(&self, moved: &[bool], to: usize) -> Result<Noise, WhatIfError> {
        let mut timelines = Vec::new();
        for (index, lane) in self.lanes.iter().enumerate() {
            let timeline = lane.without(moved)?;
            timelines.push(if index == to {
                self.crowded(&timeline, moved, to)?
            } else {
                timeline
            });
        }
        self.noise(timelines)
    }

    /// A lane with all detours of these sources on any lane. Overlapping detours are serialised; what
    /// would then end after the recording is dropped, so that the span is kept.
    fn crowded(
        &self,
        rest: &Timeline,
        moved: &[bool],
        to: usize,
    ) -> Result<Timeline, TimelineError> {
        let from = self.lanes[to].from_ns();
        let mut all: Vec<(i64, i64)> =
            (0..rest.len()).map(|i| (rest.start(i), rest.end(i) - rest.start(i))).collect();
        for lane in self.lanes {
            let at = |start: u64| start.saturating_add(lane.from_ns()).saturating_sub(from);
            all.extend(lane.only(moved).map(|(start, ns)| (ps(at(start)), ps(ns))));
        }
        all.sort_unstable();
        let mut free_at = 0i64;
        for (start, length) in &mut all {
            *start = (*start).max(free_at).min(rest.span());
            *length = (*length).min(rest.span() - *start);
            free_at = *start + *length;
        }
        Timeline::new(all, rest.span())
    }

    /// The times of the runs if these sources are active everywhere at the same time, from their times
    /// without them. None if they would leave no time.
    fn quantised(
        &self,
        set: &[bool],
        without: &[i64],
        seed: u64,
    ) -> Result<Option<Vec<i64>>, WhatIfError> {
        let together = match self.together(set) {
            Ok(together) => together,
            Err(TimelineError::NoTimeLeft) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let stops = |(run, &time): (u64, &i64)| {
            let at = u128::from(key(seed, QUANTISED, run)) * together.span() as u128;
            Local::new(&together, (at >> 64) as i64, true).preempt(0, time)
        };
        let times: Result<Vec<i64>, _> = (0..).zip(without).map(stops).collect();
        Ok(Some(times.map_err(|error| SweepError::Run(error.into()))?))
    }

    /// When any lane is stopped by these sources.
    fn together(&self, set: &[bool]) -> Result<Timeline, TimelineError> {
        let lanes = self.on_one_clock.unwrap_or(self.lanes);
        let from = lanes.iter().map(Composed::from_ns).min().unwrap_or(0);
        let mut stops: Vec<(i64, i64)> = Vec::new();
        let mut span = 0;
        for lane in lanes {
            let later = lane.from_ns() - from;
            span = span.max(later.saturating_add(lane.span_ns()));
            let at = |start: u64| ps(start.saturating_add(later));
            stops.extend(lane.only(set).map(|(start, ns)| (at(start), ps(ns))));
        }
        stops.sort_unstable();
        let mut merged: Vec<(i64, i64)> = Vec::new();
        for (start, length) in stops {
            match merged.last_mut() {
                Some((first, so_far)) if start <= first.saturating_add(*so_far) => {
                    *so_far = (*so_far).max((start - *first).saturating_add(length));
                }
                _ => merged.push((start, length)),
            }
        }
        Timeline::new(merged, ps(span))
    }
}

const QUANTISED: u64 = 41;

/// Times of a damaged file saturate, which the timeline rejects.
fn ps(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX).saturating_mul(1_000)
}
