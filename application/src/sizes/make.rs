//! The program at another size.

use std::{
    collections::{HashMap, VecDeque},
    rc::Rc,
};

use super::{
    SizesError,
    laws::{Fit, Law, fit},
    peers::{Function, Grid, Place, Together, Trip, Wants},
    resolve::Chosen,
    search::{Item, Kind, Root, Shape, Tag},
};
use crate::{
    communicators::Shared,
    sizes::events::{Event, Track, What},
    step::{
        Application, Call, Candidate, Group, NONE, Operation, Reach, Spent, Step, Tape, sending,
    },
};

/// How far sizes of messages may be from a law, as a part of them: they are rounded.
const SIZES_WITHIN: f64 = 0.005;
/// How far times of computation may be.
const TIMES_WITHIN: f64 = 0.1;
/// Computation below this part of all of it has the same time at every size.
const SMALL: f64 = 0.001;
/// Steps of all ranks at most.
const MOST_STEPS: u64 = 1 << 31;
/// Messages of all ranks whose sizes are made to agree one by one.
const MOST_PAIRED: u64 = 1 << 26;

/// What a rank of the largest trace did in a call.
#[derive(Clone, Debug)]
struct Sample {
    rank: u32,
    compute_ps: i64,
    after: u16,
    spent: Option<(i64, Spent)>,
    bytes: u64,
    operation: Option<Box<Operation>>,
}

/// The size of a message.
#[derive(Clone, Copy, Debug)]
pub enum Bytes {
    /// The same for all ranks: a factor, times a law, times a power of the value of the loop.
    /// `only` is the size of the one trace that has the call, 0 if several have.
    Exact { factor: f64, law: Law, power: i32, assumed: bool, only: u32 },
    /// Those of a rank of the largest trace, times a law.
    Sampled { law: Law },
}

#[derive(Clone, Debug)]
struct Made {
    kind: Kind,
    class: u32,
    /// Calls of the class before it.
    before: usize,
    /// By iteration in the largest trace.
    samples: Vec<Vec<Sample>>,
    bytes: Bytes,
}

#[derive(Clone, Debug)]
struct MadeItem {
    trip: Trip,
    values: Vec<u32>,
    slots: Vec<Made>,
}

/// What is known of a class of calls.
#[derive(Clone, Debug)]
pub struct Known {
    pub kind: Kind,
    pub trip: Trip,
    pub bytes: Bytes,
    /// Of the computation before the call.
    pub compute: Law,
    pub compute_assumed: bool,
    /// Part of all computation.
    pub share: f64,
    /// Calls.
    pub count: u64,
}

/// A program at any size.
#[derive(Clone, Debug)]
pub struct Model {
    grid: Grid,
    /// Ranks of the largest trace.
    own: u32,
    items: Vec<MadeItem>,
    chosen: Chosen,
    compute: HashMap<u32, Law>,
    /// Compute after the last call by rank of the largest trace, and the call before it.
    tails: Vec<(i64, u16)>,
    tail: Law,
    regions: Vec<String>,
    pub classes: Vec<(u32, Known)>,
}

/// Times of a class: ps and calls by number of ranks.
#[derive(Default)]
struct Times {
    /// Also the sum of the squares.
    by_ranks: HashMap<u32, (f64, f64, f64)>,
}

impl Times {
    fn add(&mut self, ranks: u32, ps: i64) {
        let (sum, count, squares) = self.by_ranks.entry(ranks).or_insert((0.0, 0.0, 0.0));
        *sum += ps as f64;
        *count += 1.0;
        *squares += (ps as f64).powi(2);
    }

    /// Whether the means differ by more than three standard errors.
    fn differ(&self) -> bool {
        let range = |(sum, count, squares): &(f64, f64, f64)| {
            let mean = sum / count.max(1.0);
            let variance = (squares / count.max(1.0) - mean * mean).max(0.0);
            let error = 3.0 * (variance / count.max(1.0)).sqrt();
            (mean - error, mean + error)
        };
        let ranges = self.by_ranks.values().map(range);
        let (low, high) =
            ranges.fold((f64::MIN, f64::MAX), |all, one| (all.0.max(one.0), all.1.min(one.1)));
        low > high
    }

    /// How the mean depends on the number of ranks, if it does.
    fn fit(&self) -> Fit {
        match self.differ() {
            true => fit(&self.means(), TIMES_WITHIN),
            false => Fit { law: Law::Constant, factor: 0.0, assumed: false },
        }
    }

    fn means(&self) -> Vec<(u32, f64)> {
        let mean = |(ranks, all): (&u32, &(f64, f64, f64))| (*ranks, all.0 / all.1.max(1.0));
        let mut means: Vec<(u32, f64)> = self.by_ranks.iter().map(mean).collect();
        means.sort_by_key(|(ranks, _)| *ranks);
        means
    }

    fn of(&self, ranks: u32) -> f64 {
        self.by_ranks.get(&ranks).map_or(0.0, |(sum, ..)| *sum)
    }
}

impl Model {
    pub fn new(
        tracks: &[Track<'_>],
        items: &[Item],
        grid: Grid,
        chosen: Chosen,
        regions: Vec<String>,
    ) -> Model {
        let own = tracks.iter().map(|track| track.ranks).max().unwrap_or(0);
        let mut times: HashMap<u32, Times> = HashMap::new();
        let mut made = Vec::with_capacity(items.len());
        let mut classes: Vec<(u32, Known)> = Vec::new();
        let mut places: HashMap<u32, usize> = HashMap::new();
        for item in items {
            let mut slots = Vec::with_capacity(item.slots.len());
            for slot in &item.slots {
                let of_class = times.entry(slot.class).or_default();
                let (mut samples, mut sizes) = (Vec::new(), Vec::new());
                for (value, events) in item.values.iter().zip(&slot.events) {
                    let mut of_iteration = Vec::new();
                    for (track, event) in tracks.iter().zip(events) {
                        let Some(event) = track.events.get(*event as usize) else { continue };
                        of_class.add(track.ranks, event.compute_ps);
                        let (bytes, operation) = payload(track, event);
                        if let Some(bytes) = bytes {
                            sizes.push((track.ranks, *value, bytes));
                        }
                        if track.ranks == own {
                            of_iteration.push(Sample {
                                rank: track.rank,
                                compute_ps: event.compute_ps,
                                after: event.after,
                                spent: event.spent,
                                bytes: bytes.unwrap_or(0),
                                operation,
                            });
                        }
                    }
                    samples.push(of_iteration);
                }
                let bytes = bytes(&sizes, item.trip != Trip::Once);
                let place = *places.entry(slot.class).or_insert_with(|| {
                    let known = Known {
                        kind: slot.kind.clone(),
                        trip: item.trip,
                        bytes,
                        compute: Law::Constant,
                        compute_assumed: false,
                        share: 0.0,
                        count: 0,
                    };
                    classes.push((slot.class, known));
                    classes.len() - 1
                });
                let before = classes[place].1.count as usize;
                classes[place].1.count += 1;
                let (kind, class) = (slot.kind.clone(), slot.class);
                slots.push(Made { kind, class, before, samples, bytes });
            }
            made.push(MadeItem { trip: item.trip, values: item.values.clone(), slots });
        }
        borrow(&mut made, &mut classes);
        let mut tail = Times::default();
        tracks.iter().for_each(|track| tail.add(track.ranks, track.tail.0));
        let all = times.values().map(|one| one.of(own)).sum::<f64>() + tail.of(own);
        let mut compute = HashMap::new();
        for (class, known) in &mut classes {
            let Some(times) = times.get(class) else { continue };
            known.share = times.of(own) / all.max(1.0);
            if known.share >= SMALL {
                let found = times.fit();
                (known.compute, known.compute_assumed) = (found.law, found.assumed);
            }
            compute.insert(*class, known.compute);
        }
        let tail_law = match tail.of(own) / all.max(1.0) >= SMALL {
            true => tail.fit().law,
            false => Law::Constant,
        };
        let tails = tracks.iter().filter(|track| track.ranks == own).map(|track| track.tail);
        let tails = tails.collect();
        Model { grid, own, items: made, chosen, compute, tails, tail: tail_law, regions, classes }
    }

    /// The functions of a class, one after the other.
    pub fn chosen(&self, class: u32) -> &[Function] {
        self.chosen.get(&class).map_or(&[], Vec::as_slice)
    }

    /// Why there is nothing at this size, if so.
    fn check(&self, ranks: u64) -> Result<u32, SizesError> {
        let many = u32::try_from(ranks).ok().filter(|ranks| *ranks < NONE);
        let Some(ranks) = many.filter(|ranks| *ranks > 1) else {
            return Err(SizesError::Ranks { ranks });
        };
        let grid = |kind: &Kind| match kind {
            Kind::Message { function, .. } => matches!(function, Function::Neighbour { .. }),
            Kind::Collective { together, .. } => matches!(together, Together::Part { .. }),
            _ => false,
        };
        let uses_grid = self.classes.iter().any(|(_, known)| grid(&known.kind));
        if uses_grid && self.grid.family.extents(ranks).is_none() {
            return Err(SizesError::NoGrid { ranks: ranks.into(), grid: self.grid.words() });
        }
        let calls = |item: &MadeItem| match item.trip {
            Trip::Once => 1,
            trip => (trip.values(ranks).len() * item.slots.len()) as u64,
        };
        let steps: u64 = self.items.iter().map(calls).sum();
        match steps.saturating_mul(2 * u64::from(ranks)) < MOST_STEPS {
            true => Ok(ranks),
            false => Err(SizesError::TooLarge { ranks: ranks.into(), calls: steps }),
        }
    }

    pub fn at(&self, ranks: u64) -> Result<Application, SizesError> {
        let ranks = self.check(ranks)?;
        let place = self.grid.at(ranks);
        let values: HashMap<Trip, Vec<u32>> =
            [Trip::Once, Trip::Up, Trip::Down, Trip::Others, Trip::All]
                .map(|trip| (trip, trip.values(ranks)))
                .into();
        let mut shared = Making {
            model: self,
            place,
            values: Rc::new(values),
            groups: Vec::new(),
            by_part: HashMap::new(),
            channels: HashMap::new(),
        };
        let mut application =
            Application { regions: self.regions.clone(), ..Application::default() };
        for rank in 0..ranks {
            let tape = shared.tape(rank);
            let compute = tape.steps.iter().map(|step| match step {
                Step::Compute { ps, .. } => *ps / 1_000,
                _ => 0,
            });
            application.assumed.compute_ns += compute.sum::<i64>();
            application.tapes.push(tape);
        }
        application.groups = shared.groups;
        application.tags = shared.channels.iter().map(|(tag, channel)| (*channel, *tag)).collect();
        let sampled = self.classes.iter().any(|(_, known)| {
            matches!((&known.kind, known.bytes), (Kind::Message { .. }, Bytes::Sampled { .. }))
        });
        let steps: u64 = application.tapes.iter().map(|tape| tape.steps.len() as u64).sum();
        if sampled && steps < MOST_PAIRED {
            agree(&mut application.tapes);
        }
        Ok(application)
    }
}

/// Receives get the sizes of the messages that they receive.
fn agree(tapes: &mut [Tape]) {
    let mut sent: HashMap<(u32, u32, u32), VecDeque<u64>> = HashMap::new();
    for (rank, tape) in (0..).zip(tapes.iter()) {
        for step in &tape.steps {
            if let Step::Send { to, channel, bytes, .. } = step {
                sent.entry((rank, *to, *channel)).or_default().push_back(*bytes);
            }
        }
    }
    for (rank, tape) in (0..).zip(tapes) {
        for step in &mut tape.steps {
            if let Step::Receive { from, channel, bytes, .. } = step
                && let Some(size) =
                    sent.get_mut(&(*from, rank, *channel)).and_then(VecDeque::pop_front)
            {
                *bytes = size;
            }
        }
    }
}

/// What a call moves, and what it does if it is a collective.
fn payload(track: &Track<'_>, event: &Event) -> (Option<u64>, Option<Box<Operation>>) {
    match &event.what {
        What::Message { bytes, peer, .. } => {
            let null = *peer == super::events::Peer::Null;
            ((!null).then_some(*bytes), None)
        }
        What::Collective { call, .. } => {
            let Some(call) = track.tape.calls.get(*call as usize) else { return (None, None) };
            let mean = |sum: u64, count: usize| sum / count.max(1) as u64;
            let bytes = match &call.operation {
                Operation::Regular { bytes, .. } => *bytes,
                Operation::Blocks { sizes, .. } => mean(sizes.iter().sum(), sizes.len()),
                Operation::Rooted { bytes, sizes, .. } if sizes.is_empty() => *bytes,
                Operation::Rooted { sizes, .. } => mean(sizes.iter().sum(), sizes.len()),
                Operation::Messages { to, reach, .. } => {
                    let group = track.application.groups.get(call.group as usize);
                    let count = match reach {
                        Reach::All => group.map_or(1, |group| group.members.len()),
                        Reach::Neighbours => to.len(),
                    };
                    mean(to.iter().map(|(_, bytes)| bytes).sum(), count)
                }
            };
            (Some(bytes), Some(Box::new(call.operation.clone())))
        }
        What::Wait { .. } | What::Region { .. } => (None, None),
    }
}

/// The sizes of a call: ranks, value of the loop and bytes of each.
fn bytes(sizes: &[(u32, u32, u64)], in_loop: bool) -> Bytes {
    let powers: &[i32] = if in_loop { &[0, 1, -1] } else { &[0] };
    for &power in powers {
        let scaled = |value: u32, bytes: u64| bytes as f64 / f64::from(value.max(1)).powi(power);
        let mut by_ranks: Vec<(u32, f64)> = Vec::new();
        let uniform = sizes.iter().all(|(ranks, value, bytes)| {
            let own = scaled(*value, *bytes);
            match by_ranks.iter().find(|(known, _)| known == ranks) {
                Some((_, known)) => *known == own,
                None => {
                    by_ranks.push((*ranks, own));
                    true
                }
            }
        });
        if uniform {
            let found = fit(&by_ranks, SIZES_WITHIN);
            let (factor, law, assumed) = (found.factor, found.law, found.assumed);
            let only = if let [(ranks, _)] = by_ranks[..] { ranks } else { 0 };
            return Bytes::Exact { factor, law, power, assumed, only };
        }
    }
    let mut means: HashMap<u32, (f64, f64)> = HashMap::new();
    for (ranks, _, bytes) in sizes {
        let (sum, count) = means.entry(*ranks).or_insert((0.0, 0.0));
        *sum += *bytes as f64;
        *count += 1.0;
    }
    let mut means: Vec<(u32, f64)> =
        means.into_iter().map(|(ranks, (sum, count))| (ranks, sum / count)).collect();
    means.sort_by_key(|(ranks, _)| *ranks);
    Bytes::Sampled { law: fit(&means, TIMES_WITHIN).law }
}

/// The program at one size, in the making.
struct Making<'a> {
    model: &'a Model,
    place: Place,
    values: Rc<HashMap<Trip, Vec<u32>>>,
    groups: Vec<Group>,
    /// Groups by kind and first member.
    by_part: HashMap<(Together, u32), u32>,
    channels: HashMap<i32, u32>,
}

/// A rank in the making.
struct Rank {
    tape: Tape,
    /// Requests of started slots: item, slot and number.
    open: HashMap<(u32, u32), u32>,
    free: Vec<u32>,
    /// Collectives so far by group.
    sequence: HashMap<u32, u64>,
}

impl Rank {
    fn request(&mut self, starts: bool, slot: (u32, u32)) -> u32 {
        if !starts {
            return NONE;
        }
        let request = self.free.pop().unwrap_or_else(|| {
            self.tape.requests += 1;
            self.tape.requests - 1
        });
        self.open.insert(slot, request);
        request
    }
}

/// A call of a rank in the making.
#[derive(Clone, Copy)]
struct At<'a> {
    rank: u32,
    item: &'a MadeItem,
    /// Of item and slot.
    number: (u32, u32),
    slot: &'a Made,
    /// Of the loop variable.
    value: u32,
}

impl<'a> At<'a> {
    /// What a rank of the largest trace did that stands for this one: the rank with the same number, counted around,
    /// if it made the call.
    fn sample(self) -> Option<&'a Sample> {
        let nearest = |(place, known): (usize, &u32)| (known.abs_diff(self.value), place);
        let (_, iteration) = self.item.values.iter().enumerate().map(nearest).min()?;
        let samples = self.slot.samples.get(iteration)?;
        // Sorted by rank.
        let own = samples.last()?.rank + 1;
        let same = samples.binary_search_by_key(&(self.rank % own), |sample| sample.rank);
        samples.get(same.unwrap_or(self.rank as usize % samples.len()))
    }
}

impl Making<'_> {
    fn tape(&mut self, rank: u32) -> Tape {
        let mut own = Rank {
            tape: Tape::default(),
            open: HashMap::new(),
            free: Vec::new(),
            sequence: HashMap::new(),
        };
        let (model, values) = (self.model, Rc::clone(&self.values));
        for (number, item) in (0..).zip(&model.items) {
            for &value in values.get(&item.trip).map_or(&[][..], Vec::as_slice) {
                for (place, slot) in (0..).zip(&item.slots) {
                    let at = At { rank, item, number: (number, place), slot, value };
                    self.call(at, &mut own);
                }
            }
        }
        let tail = model.tails.get(rank as usize % model.tails.len().max(1));
        let (ps, after) = tail.copied().unwrap_or((0, 0));
        let ps = whole_ns(ps as f64 * model.tail.ratio(model.own, self.place.ranks));
        if ps > 0 {
            own.tape.push(Step::Compute { ps, taken_ps: 0, after });
        }
        own.tape
    }

    fn call(&mut self, at: At<'_>, own: &mut Rank) {
        match &at.slot.kind {
            Kind::Wait { of, among } => {
                let Some(request) = own.open.get(of).copied() else { return };
                self.compute(at, own);
                let others = among.iter().filter_map(|other| own.open.get(other));
                let others: Vec<u32> = others.copied().filter(|other| *other != request).collect();
                own.open.remove(of);
                own.free.push(request);
                if others.is_empty() {
                    own.tape.push(Step::Wait { request });
                    return;
                }
                let first = own.tape.candidates.len() as u32;
                let candidate = |request: u32, done| Candidate { parts: [NONE, request], done };
                own.tape.candidates.push(candidate(request, true));
                own.tape.candidates.extend(others.into_iter().map(|one| candidate(one, false)));
                let count = own.tape.candidates.len() as u32 - first;
                let test = simulate::event::Test::All;
                own.tape.push(Step::Choose { first, count, test, ps: 0 });
            }
            Kind::Region { shape, function } => {
                if function.of(&self.place, at.rank, at.value) == Wants::Absent {
                    return;
                }
                self.compute(at, own);
                if let Shape::Region { begins, region } = *shape {
                    let step = if begins { Step::Begin { region } } else { Step::End { region } };
                    own.tape.push(step);
                }
            }
            Kind::Message { shape, function, tag, .. } => {
                let pattern = self.model.chosen.get(&at.slot.class);
                let chosen = pattern.and_then(|list| list.get(at.slot.before % list.len().max(1)));
                let wants = chosen.unwrap_or(function).of(&self.place, at.rank, at.value);
                self.message(at, own, *shape, *tag, wants);
            }
            Kind::Collective { shape, together, root } => {
                self.collective(at, own, *shape, *together, *root);
            }
        }
    }

    fn message(&mut self, at: At<'_>, own: &mut Rank, shape: Shape, tag: Tag, wants: Wants) {
        let Shape::Message { sends, starts, mpi, .. } = shape else { return };
        let peer = match wants {
            Wants::Absent => return,
            Wants::Null => return self.compute(at, own),
            Wants::Any => NONE,
            Wants::Rank(peer) => peer,
        };
        self.compute(at, own);
        let tag =
            tag.of(at.rank, if peer == NONE { 0 } else { peer }, at.item.trip.round(at.value));
        let next = self.channels.len() as u32;
        let channel = tag.map_or(NONE, |tag| *self.channels.entry(tag).or_insert(next));
        let sample = at.sample();
        let bytes = self.bytes(at, sample);
        let request = own.request(starts, at.number);
        own.tape.push(match sends {
            true => Step::Send { to: peer, channel, bytes, request, mpi },
            false => Step::Receive { from: peer, channel, bytes, request, mpi },
        });
        if let Some((ps, on)) = sample.and_then(|sample| sample.spent) {
            let bytes = sending(mpi).mark(bytes);
            own.tape.push(Step::Spent { ps, bytes, on });
        }
    }

    fn collective(
        &mut self,
        at: At<'_>,
        own: &mut Rank,
        shape: Shape,
        together: Together,
        root: Root,
    ) {
        let Shape::Collective { starts, mpi, .. } = shape else { return };
        let group = self.group(together, at.rank);
        let Some(members) = self.groups.get(group as usize).map(|group| &group.members) else {
            return;
        };
        let size = members.len() as u32;
        let Ok(place) = members.binary_search(&at.rank) else { return };
        if size < 2 {
            return;
        }
        self.compute(at, own);
        let Some(sample) = at.sample() else { return };
        let Some(operation) = sample.operation.as_deref() else { return };
        let root = match root {
            Root::Is(root) => root.min(size - 1),
            Root::Last => size - 1,
        };
        let bytes = self.bytes(at, Some(sample));
        let ratio = match at.slot.bytes {
            Bytes::Exact { law, .. } | Bytes::Sampled { law } => {
                law.ratio(self.model.own, self.place.ranks)
            }
        };
        let scaled = |bytes: u64| (bytes as f64 * ratio).round() as u64;
        let operation = match operation {
            Operation::Regular { op, .. } => Operation::Regular { op: *op, bytes, root },
            // The blocks of the trace again and again.
            Operation::Blocks { op, sizes } => Operation::of_blocks(
                *op,
                sizes.iter().cycle().take(size as usize).map(|size| scaled(*size)).collect(),
            ),
            Operation::Rooted { towards, bytes, sizes, .. } => Operation::Rooted {
                towards: *towards,
                root,
                bytes: scaled(*bytes),
                sizes: sizes.iter().map(|size| scaled(*size)).collect(),
            },
            Operation::Messages { to, from, reach: Reach::All } => {
                // The members of the trace again and again.
                let traced = to.iter().chain(from).map(|(peer, _)| peer + 1).max().unwrap_or(1);
                let traced = traced.max(match together {
                    Together::All => self.model.own,
                    _ => 1,
                });
                let all = |list: &[(u32, u64)]| {
                    let known: HashMap<u32, u64> = list.iter().copied().collect();
                    let of = |peer: u32| Some((peer, scaled(*known.get(&(peer % traced))?)));
                    (0..size).filter_map(of).collect::<Vec<_>>()
                };
                Operation::Messages { to: all(to), from: all(from), reach: Reach::All }
            }
            Operation::Messages { .. } => {
                let all = self.place.neighbours(at.rank);
                let list: Vec<(u32, u64)> = all.into_iter().map(|peer| (peer, bytes)).collect();
                Operation::Messages { to: list.clone(), from: list, reach: Reach::Neighbours }
            }
        };
        let sequence = own.sequence.entry(group).or_insert(0);
        *sequence += 1;
        let channel = Shared::of_collective(group, *sequence);
        let call = own.tape.calls.len() as u32;
        own.tape.calls.push(Call { operation, group, rank: place as u32, channel, mpi });
        let request = own.request(starts, at.number);
        own.tape.push(Step::Collective { call, request });
    }

    /// The group that a rank is in.
    fn group(&mut self, together: Together, rank: u32) -> u32 {
        let first = match together {
            Together::All => 0,
            Together::SameParity => rank % 2,
            Together::Half => u32::from(rank >= self.place.ranks / 2),
            Together::Block { size } => rank / size.max(1),
            Together::Across { size } => rank % size.max(1),
            Together::Part { .. } => {
                together.members(&self.place, rank).first().copied().unwrap_or(rank)
            }
        };
        if let Some(group) = self.by_part.get(&(together, first)) {
            return *group;
        }
        let members = together.members(&self.place, rank);
        let group = self.groups.len() as u32;
        // Key 1 is that of all ranks.
        let key = if together == Together::All { 1 } else { u64::from(group) + 2 };
        self.groups.push(Group { key, members });
        self.by_part.insert((together, first), group);
        group
    }

    fn compute(&self, at: At<'_>, own: &mut Rank) {
        let Some(sample) = at.sample() else { return };
        let law = self.model.compute.get(&at.slot.class).copied().unwrap_or(Law::Constant);
        let ratio = law.ratio(self.model.own, self.place.ranks);
        let ps = whole_ns(sample.compute_ps as f64 * ratio);
        if ps > 0 {
            own.tape.push(Step::Compute { ps, taken_ps: 0, after: sample.after });
        }
    }

    fn bytes(&self, at: At<'_>, sample: Option<&Sample>) -> u64 {
        let ranks = self.place.ranks;
        match at.slot.bytes {
            Bytes::Exact { factor, law, power, .. } => {
                (factor * law.at(ranks) * f64::from(at.value.max(1)).powi(power)).round() as u64
            }
            Bytes::Sampled { law } => {
                let bytes = sample.map_or(0, |sample| sample.bytes);
                (bytes as f64 * law.ratio(self.model.own, ranks)).round() as u64
            }
        }
    }
}

/// Traces are in ns.
fn whole_ns(ps: f64) -> i64 {
    (ps / 1e3).round() as i64 * 1_000
}

/// Sizes of calls that only one trace has follow the law of messages that had the same size in it.
fn borrow(items: &mut [MadeItem], classes: &mut [(u32, Known)]) {
    let known: Vec<(f64, Law)> = classes
        .iter()
        .filter_map(|(_, known)| match (&known.kind, known.bytes) {
            (
                Kind::Message { .. },
                Bytes::Exact { factor, law, power: 0, assumed: false, only: 0 },
            ) => Some((factor, law)),
            _ => None,
        })
        .collect();
    let law = |bytes: Bytes| {
        let Bytes::Exact { factor: own, power: 0, only: only @ 1.., .. } = bytes else {
            return bytes;
        };
        let same = |(factor, law): &&(f64, Law)| (factor * law.at(only) - own).abs() < 0.5;
        match known.iter().find(same) {
            Some((factor, law)) if *law != Law::Constant => {
                Bytes::Exact { factor: *factor, law: *law, power: 0, assumed: true, only }
            }
            _ => bytes,
        }
    };
    for slot in items.iter_mut().flat_map(|item| &mut item.slots) {
        if matches!(slot.kind, Kind::Message { .. }) {
            slot.bytes = law(slot.bytes);
        }
    }
    for (_, known) in
        classes.iter_mut().filter(|(_, known)| matches!(known.kind, Kind::Message { .. }))
    {
        known.bytes = law(known.bytes);
    }
}
