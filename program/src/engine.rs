//! Reads all ranks side by side and joins what they did, in bounded memory.
//!
//! In each round the ranks whose next part begins before the earliest end of all next parts are read, in
//! parallel; then the tables are joined, in parallel. No rank runs ahead of the others by more than a
//! part, so what waits for its other half is bounded by what is really under way.

use crate::chunks::{Damage, What};
use crate::clock::{Clocks, Slack};
use crate::matching::{Groups, SHARDS, Shard, Tie, Unjoined, WaitSpan, Waits};
use crate::open::{Program, Rank};
use crate::rank::{BINS, Context, Out, Pass, RankState};
use crate::reader::{RankReader, Scratch};
use crate::timeline::{Parts, Strip, Timeline, Waiting};
use rayon::prelude::*;
use std::io;
use std::path::PathBuf;

/// A rank that is being read.
struct Lane {
    reader: RankReader,
    state: RankState,
    /// What it did over time, if that is wanted.
    strip: Option<Strip>,
    host: u32,
    /// Begin of the last two parts on the common clock.
    begins: [i64; 2],
    /// Everything that others depend on before this is handed over.
    complete: i64,
    finished: bool,
}

/// Memory of a lane in a round.
#[derive(Default)]
struct Work {
    scratch: Scratch,
    out: Out,
}

/// Ranks read in one round at most.
const LANES: usize = 64;

/// Parts of a chunk that are read at once: the whole, unless there are so many ranks that what waits for
/// its other half would take too much memory.
fn slices(ranks: usize) -> usize {
    (ranks / 512).clamp(1, 16)
}

pub(crate) struct Joined {
    pub states: Vec<RankState>,
    pub damage: Vec<Damage>,
    pub waits: Waits,
    pub unjoined: Unjoined,
    pub slack: Option<Slack>,
    pub matched: u64,
    pub timeline: Option<Timeline>,
    /// Every wait, if that is wanted.
    pub spans: Vec<WaitSpan>,
    /// Messages that took long, if they are wanted.
    pub ties: Vec<Tie>,
    /// Not everything was read ([`Until::Reversed`]).
    pub gave_up: bool,
}

/// How much of a program is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    End,
    /// To the first message that arrives before it was sent: with such clocks the rest would be read in vain.
    Reversed,
}

/// A file could not be read to its end.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {source}", .path.display())]
pub struct ReadError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Begin and end of a rank on the common clock, all that was read of it included: a killed rank has left no end.
pub(crate) fn rank_span(clocks: &Clocks, rank: &Rank, state: &RankState) -> (i64, i64) {
    let (begin, end) = clocks.rank_span(rank);
    (begin.min(state.first), end.max(state.last))
}

/// Reads a program; to be called inside of a thread pool. `slack` collects bounds for the clocks.
pub(crate) fn run(
    program: &Program,
    clocks: &Clocks,
    slack: Option<&Slack>,
    pass: Pass,
    until: Until,
) -> Result<Joined, ReadError> {
    let ranks = program.ranks.len();
    let hosts: Vec<u32> = program.ranks.iter().map(|rank| rank.host).collect();
    let (begin, end) = clocks.span;
    let bins_per_ns = BINS as f64 / (end - begin).max(1) as f64;
    let context = Context { program, span: clocks.span, bins_per_ns, pass };
    let parts = Parts::of(program, clocks.span).filter(|_| pass.makes_timeline());
    let mut waiting = parts.map(|parts| Waiting::new(parts, ranks));
    let mut kept = (pass == Pass::Waits).then(Vec::new);
    let mut lanes: Vec<Lane> = program
        .ranks
        .par_iter()
        .enumerate()
        .map(|(slot, rank)| {
            let reader = RankReader::new(rank, slices(ranks));
            Lane {
                state: RankState::new(slot, &context),
                strip: parts.map(Parts::strip),
                host: rank.host,
                begins: [i64::MIN; 2],
                complete: i64::MIN,
                finished: false,
                reader,
            }
        })
        .collect();
    let mut works: Vec<Work> = Vec::new();
    works.resize_with(ranks.min(LANES), Work::default);
    works.iter_mut().for_each(|work| work.out.sample = pass == Pass::Sample);
    let mut shards: Vec<Shard> =
        (0..SHARDS).map(|_| Shard::new(slack.cloned(), ranks, pass)).collect();
    let mut groups: Vec<(Groups, Waits)> =
        (0..SHARDS).map(|_| (Groups::new(), Waits::new(ranks))).collect();
    let wanted = waiting.is_some() || kept.is_some();
    let spans = || wanted.then(Vec::new);
    shards.iter_mut().for_each(|shard| shard.waits.spans = spans());
    groups.iter_mut().for_each(|(_, waits)| waits.spans = spans());
    let gave_up = loop {
        let mut chosen = choose(&mut lanes, clocks);
        let reversed = shards.iter().any(|shard| shard.unjoined.reversed > 0);
        let gives_up = until == Until::Reversed && reversed;
        if chosen.is_empty() || gives_up {
            break gives_up;
        }
        chosen.par_iter_mut().zip(works.par_iter_mut()).try_for_each(|(lane, work)| {
            lane.advance(&context, clocks, work).map_err(|source| {
                let rank = program.ranks.get(lane.state_slot());
                let path = rank.map_or_else(PathBuf::new, |rank| rank.path.clone());
                ReadError { path, source }
            })
        })?;
        let used = works.get(..chosen.len()).unwrap_or(&[]);
        shards.par_iter_mut().enumerate().for_each(|(number, shard)| {
            shard.candidates.iter_mut().for_each(Vec::clear);
            for work in used {
                if let (Some(halves), Some(arrivals)) =
                    (work.out.halves.get(number), work.out.arrivals.get(number))
                {
                    shard.take(halves, arrivals, &hosts);
                }
            }
        });
        let complete = lanes.iter().map(|lane| lane.complete).min().unwrap_or(i64::MAX);
        settle(&mut groups, &shards, complete);
        place((waiting.as_mut(), kept.as_mut()), &mut shards, &mut groups);
    };
    shards.par_iter_mut().for_each(|shard| {
        shard.candidates.iter_mut().for_each(Vec::clear);
        shard.finish(&hosts);
    });
    settle(&mut groups, &shards, i64::MAX);
    place((waiting.as_mut(), kept.as_mut()), &mut shards, &mut groups);
    let strips: Vec<Strip> = lanes.iter_mut().filter_map(|lane| lane.strip.take()).collect();
    let rows = program.ranks.iter().zip(&lanes);
    let spans: Vec<_> = rows.map(|(rank, lane)| rank_span(clocks, rank, &lane.state)).collect();
    let mut joined = Joined {
        timeline: waiting.map(|waiting| waiting.timeline(program, &strips, &spans)),
        damage: lanes.iter().map(|lane| lane.reader.damage()).collect(),
        states: lanes.into_iter().map(|lane| lane.state).collect(),
        waits: Waits::new(ranks),
        unjoined: Unjoined::default(),
        slack: None,
        matched: 0,
        spans: kept.unwrap_or_default(),
        ties: Vec::new(),
        gave_up,
    };
    for shard in shards {
        joined.waits.merge(shard.waits);
        joined.unjoined.messages += shard.unjoined.messages;
        joined.unjoined.sizes += shard.unjoined.sizes;
        joined.unjoined.collectives += shard.unjoined.collectives;
        joined.unjoined.reversed += shard.unjoined.reversed;
        joined.matched += shard.matched;
        joined.ties.extend(shard.ties.into_iter().flatten());
        if let Some(slack) = shard.slack {
            match &mut joined.slack {
                Some(sum) => sum.merge(slack),
                None => joined.slack = Some(slack),
            }
        }
    }
    for (_, waits) in groups {
        joined.waits.merge(waits);
    }
    Ok(joined)
}

/// The lanes to read next: all whose next part begins before any next part ends, the earliest first if
/// they are too many.
fn choose<'a>(lanes: &'a mut [Lane], clocks: &Clocks) -> Vec<&'a mut Lane> {
    let next = |lane: &Lane| {
        let clock = clocks.host(lane.host);
        (clock.common(lane.reader.next.0), clock.common(lane.reader.next.1))
    };
    let limit = lanes.iter().filter(|lane| !lane.finished).map(|lane| next(lane).1).min();
    let Some(mut limit) = limit else { return Vec::new() };
    let mut begins: Vec<i64> = lanes
        .iter()
        .filter(|lane| !lane.finished)
        .map(|lane| next(lane).0)
        .filter(|begin| *begin <= limit)
        .collect();
    if begins.len() > LANES {
        limit = *begins.select_nth_unstable(LANES - 1).1;
    }
    lanes.iter_mut().filter(|lane| !lane.finished && next(lane).0 <= limit).take(LANES).collect()
}

fn settle(groups: &mut [(Groups, Waits)], shards: &[Shard], complete: i64) {
    groups.par_iter_mut().enumerate().for_each(|(number, (groups, waits))| {
        for shard in shards {
            if let Some(candidates) = shard.candidates.get(number) {
                groups.take(candidates);
            }
        }
        groups.settle(complete, waits);
    });
}

/// Puts the waits that were found onto the timeline, and keeps them if that is wanted.
fn place(
    (mut waiting, mut kept): (Option<&mut Waiting>, Option<&mut Vec<WaitSpan>>),
    shards: &mut [Shard],
    groups: &mut [(Groups, Waits)],
) {
    let found = shards.iter_mut().map(|shard| &mut shard.waits);
    for waits in found.chain(groups.iter_mut().map(|(_, waits)| waits)) {
        let Some(spans) = &mut waits.spans else { continue };
        if let Some(waiting) = &mut waiting {
            waiting.take(spans);
        }
        match &mut kept {
            Some(kept) => kept.append(spans),
            None => spans.clear(),
        }
    }
}

impl Lane {
    fn state_slot(&self) -> usize {
        self.state.slot()
    }

    fn advance(&mut self, context: &Context, clocks: &Clocks, work: &mut Work) -> io::Result<()> {
        let Work { scratch, out } = work;
        out.clear();
        let clock = clocks.host(self.host);
        let begin = clock.common(self.reader.next.0);
        let (state, strip) = (&mut self.state, &mut self.strip);
        self.reader.step(scratch, clock, |moment, arena| {
            match (strip.as_mut(), &moment.what) {
                (Some(strip), What::Call(call)) => {
                    strip.add(call.signature.call.number(), moment.begin, moment.end);
                }
                (Some(strip), What::Repeat(repeat)) => {
                    for (begin, end) in repeat.spread(moment.begin, moment.end) {
                        strip.add(repeat.call.signature.call.number(), begin, end);
                    }
                }
                _ => {}
            }
            state.take(context, moment, arena, out);
        })?;
        if self.reader.done {
            self.finished = true;
            self.complete = i64::MAX;
            self.state.finish(out);
            return Ok(());
        }
        let [before, last] = self.begins;
        self.begins = [last, begin];
        let earliest = self.state.settle(out, before);
        self.complete = earliest.min(clock.common(self.reader.next.0));
        Ok(())
    }
}
