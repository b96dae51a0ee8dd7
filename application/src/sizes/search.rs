//! One sequence of calls for all ranks of all traces.
//!
//! The ranks are followed together: at each place a call is looked for whose function of rank and number of ranks says
//! for every rank of every trace whether it comes next, and with whom. Rounds that are repeated as often as the
//! number of ranks says (butterflies, trees) are loops. What fits the most ranks is tried first; where it leads
//! nowhere, the next.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use simulate::collectives::Op;

use super::{
    events::{Peer, Track, What},
    peers::{Function, Grid, Place, Together, Trip, Wants, functions, groups, styles},
};
use crate::step::{NONE, Operation, Reach};

/// The tag of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tag {
    Any,
    Is(i32),
    /// So much more than the rank, that of its peer, or the round of the loop.
    Own(i32),
    Other(i32),
    Round(i32),
}

impl Tag {
    /// None for any tag.
    pub fn of(self, rank: u32, peer: u32, round: i32) -> Option<i32> {
        match self {
            Tag::Any => None,
            Tag::Is(tag) => Some(tag),
            Tag::Own(more) => Some((rank as i32).wrapping_add(more)),
            Tag::Other(more) => Some((peer as i32).wrapping_add(more)),
            Tag::Round(more) => Some(round.wrapping_add(more)),
        }
    }

    /// The function behind these tags, with rank, peer and round of each.
    fn behind(tags: &[(Option<i32>, u32, u32, i32)]) -> Option<Tag> {
        let (tag, rank, peer, round) = *tags.first()?;
        let Some(tag) = tag else { return Some(Tag::Any) };
        let all = [
            Tag::Is(tag),
            Tag::Round(tag.wrapping_sub(round)),
            Tag::Own(tag.wrapping_sub(rank as i32)),
            Tag::Other(tag.wrapping_sub(peer as i32)),
        ];
        let fits = |found: &Tag| {
            tags.iter().all(|(tag, rank, peer, round)| found.of(*rank, *peer, *round) == *tag)
        };
        all.into_iter().find(fits)
    }
}

/// What calls of different ranks have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    Message { sends: bool, starts: bool, mpi: u16, any_tag: bool },
    Collective { starts: bool, mpi: u16, op: Option<Op>, neighbours: bool },
    Region { begins: bool, region: u32 },
    Wait,
    End,
}

/// Who is the root of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Root {
    Is(u32),
    Last,
}

#[derive(Clone, Debug)]
pub enum Kind {
    /// `others` are functions that fit the traces as well.
    Message {
        shape: Shape,
        function: Function,
        others: Arc<[Function]>,
        tag: Tag,
    },
    Collective {
        shape: Shape,
        together: Together,
        root: Root,
    },
    Region {
        shape: Shape,
        function: Function,
    },
    /// For what was started in a slot of an item, or for any of several.
    Wait {
        of: (u32, u32),
        among: Vec<(u32, u32)>,
    },
}

/// A call.
#[derive(Clone, Debug)]
pub struct Slot {
    pub kind: Kind,
    /// Calls of the same class have the same function.
    pub class: u32,
    /// Where it is in each track, by iteration of the loop; [`NONE`] if the rank does not make it.
    pub events: Vec<Vec<u32>>,
}

/// Calls that all ranks come to next, once or in a loop.
#[derive(Clone, Debug)]
pub struct Item {
    pub trip: Trip,
    /// Values of the loop in the largest trace.
    pub values: Vec<u32>,
    pub slots: Vec<Slot>,
}

/// A call that was looked for and not found.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// Calls of all tracks that were found before it.
    pub found: u64,
    pub track: usize,
    pub event: u32,
}

/// Which loops to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loops {
    Without,
    Rounds,
    /// Also those over all ranks.
    Every,
    /// Also trees that double, which a heap of few ranks looks like.
    Doubling,
}

impl Loops {
    fn trips(self) -> &'static [Trip] {
        match self {
            Loops::Without => &[],
            Loops::Rounds => &[Trip::Up, Trip::Down],
            Loops::Every | Loops::Doubling => &[Trip::Up, Trip::Down, Trip::Others, Trip::All],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    shape: Shape,
    /// Of a collective: the number of its group.
    peer: Wants,
    tag: i32,
}

const AT_END: Key = Key { shape: Shape::End, peer: Wants::Absent, tag: 0 };

/// Calls of a loop's body at most.
const LONGEST_BODY: usize = 12;
/// Ways of making up one body.
const BODIES: usize = 256;
/// Times that the search goes back at most.
const RETURNS: usize = 2_000;

/// Numbers of groups: their members, and of neighbourhoods the peers.
type Groups = HashMap<(Vec<u32>, Vec<u32>, Vec<u32>), u32>;

/// The traces as the search sees them.
pub struct Traces<'a> {
    pub tracks: &'a [Track<'a>],
    keys: Vec<Vec<Key>>,
    groups: Groups,
}

impl<'a> Traces<'a> {
    pub fn new(tracks: &'a [Track<'a>]) -> Traces<'a> {
        let mut groups = Groups::new();
        let keys = tracks.iter().map(|track| keys(track, &mut groups)).collect();
        Traces { tracks, keys, groups }
    }

    pub fn most_ranks(&self) -> u32 {
        self.tracks.iter().map(|track| track.ranks).max().unwrap_or(0)
    }
}

fn keys(track: &Track<'_>, groups: &mut Groups) -> Vec<Key> {
    let key = |event: &super::events::Event| match &event.what {
        What::Message { sends, starts, peer, tag, .. } => Key {
            shape: Shape::Message {
                sends: *sends,
                starts: *starts,
                mpi: event.mpi,
                any_tag: tag.is_none(),
            },
            peer: match peer {
                Peer::Rank(rank) => Wants::Rank(*rank),
                Peer::Any => Wants::Any,
                Peer::Null => Wants::Null,
            },
            tag: tag.unwrap_or(0),
        },
        What::Wait { .. } => Key { shape: Shape::Wait, ..AT_END },
        What::Region { begins, region } => Key {
            shape: Shape::Region { begins: *begins, region: *region },
            peer: Wants::Rank(track.rank),
            tag: 0,
        },
        What::Collective { call, starts } => {
            let Some(call) = track.tape.calls.get(*call as usize) else { return AT_END };
            let group = track.application.groups.get(call.group as usize);
            let members = group.map_or(Vec::new(), |group| group.members.clone());
            let (mut to, mut from) = (Vec::new(), Vec::new());
            let (mut op, mut neighbours, mut tag) = (None, false, 0);
            match &call.operation {
                Operation::Regular { op: own, root, .. } => (op, tag) = (Some(*own), *root as i32),
                Operation::Blocks { op: own, .. } => op = Some(*own),
                Operation::Rooted { root, .. } => tag = *root as i32,
                Operation::Messages { reach: Reach::All, .. } => {}
                Operation::Messages { to: own, from: other, reach: Reach::Neighbours } => {
                    let world = |(peer, _): &(u32, u64)| {
                        members.get(*peer as usize).copied().unwrap_or(NONE)
                    };
                    to = own.iter().map(world).collect();
                    from = other.iter().map(world).collect();
                    neighbours = true;
                }
            }
            let next = groups.len() as u32;
            let group = *groups.entry((members, to, from)).or_insert(next);
            let shape = Shape::Collective { starts: *starts, mpi: call.mpi, op, neighbours };
            Key { shape, peer: Wants::Rank(group), tag }
        }
    };
    track.events.iter().map(key).collect()
}

/// What calls of a class have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Class {
    Message(Shape, Function, Tag, Trip),
    Collective(Shape, Together, Root),
    Region(Shape, Function),
    /// For a call of this class.
    Wait(u32),
}

/// What may come next.
struct Choice {
    kind: Kind,
    takes: Vec<bool>,
    count: usize,
    class: u32,
}

#[derive(Default)]
struct Options {
    choices: Vec<Choice>,
    /// Loops that may begin here.
    loops: Vec<(Trip, usize)>,
}

/// A part of a loop's body.
#[derive(Clone, Copy)]
enum Part {
    Message {
        shape: Shape,
        function: Function,
    },
    /// For what a part of the same iteration started.
    Wait {
        part: usize,
    },
}

/// What is tried first where several calls may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// What the most ranks do.
    Most,
    /// What is of the kind of the call before.
    Alike,
}

pub struct Search<'a> {
    traces: &'a Traces<'a>,
    loops: Loops,
    first: First,
    /// The grid of each track.
    places: Vec<Place>,
    /// By function and track.
    functions: Vec<(Function, Vec<Wants>)>,
    /// By group and track: the number of the group.
    groups: Vec<(Together, Vec<Wants>)>,
    neighbours: Vec<Wants>,
    known: HashMap<Vec<Key>, Arc<Options>>,
    classes: HashMap<Class, u32>,
    items: Vec<Item>,
    at: Vec<u32>,
    /// Item and slot of each event, and the iteration.
    assigned: Vec<Vec<(u32, u32, u32)>>,
    lost: Lost,
}

/// A place in the search, to return to.
struct Node {
    at: Vec<u32>,
    options: Arc<Options>,
    /// The order of the choices; loops come before them.
    order: Vec<usize>,
    next: usize,
}

impl<'a> Search<'a> {
    pub fn new(traces: &'a Traces<'a>, grid: Grid, loops: Loops, first: First) -> Search<'a> {
        let tracks = traces.tracks;
        let places: Vec<Place> = tracks.iter().map(|track| grid.at(track.ranks)).collect();
        let pairs = || tracks.iter().zip(&places);
        let of = |function: Function| {
            let wants = pairs().map(|(track, place)| function.of(place, track.rank, 0));
            (function, wants.collect::<Vec<_>>())
        };
        let number = |key: (Vec<u32>, Vec<u32>, Vec<u32>)| match traces.groups.get(&key) {
            Some(number) => Wants::Rank(*number),
            None => Wants::Null,
        };
        let group = |together: Together| {
            let wants = pairs().map(|(track, place)| {
                let members = together.members(place, track.rank);
                match members.len() {
                    0 | 1 => Wants::Absent,
                    _ => number((members, Vec::new(), Vec::new())),
                }
            });
            (together, wants.collect::<Vec<_>>())
        };
        let neighbours = pairs().map(|(track, place)| {
            let list = place.neighbours(track.rank);
            number(((0..track.ranks).collect(), list.clone(), list))
        });
        Search {
            traces,
            loops,
            first,
            functions: functions(&grid).into_iter().map(of).collect(),
            groups: groups(&grid).into_iter().map(group).collect(),
            neighbours: neighbours.collect(),
            known: HashMap::new(),
            classes: HashMap::new(),
            items: Vec::new(),
            at: vec![0; tracks.len()],
            assigned: tracks.iter().map(|track| vec![(NONE, 0, 0); track.events.len()]).collect(),
            lost: Lost { found: 0, track: 0, event: 0 },
            places,
        }
    }

    /// The calls, or where the search ended.
    pub fn run(mut self) -> Result<Vec<Item>, Lost> {
        let mut nodes: Vec<Node> = Vec::new();
        let mut returns = 0;
        loop {
            let ended = self
                .at
                .iter()
                .zip(self.traces.tracks)
                .all(|(at, track)| *at as usize == track.events.len());
            if ended {
                return Ok(self.items);
            }
            self.note();
            if let Some((of, among)) = self.wait() {
                let at = self.at.clone();
                nodes.push(Node { at, options: Arc::default(), order: Vec::new(), next: 0 });
                self.take_wait(of, among);
                continue;
            }
            let options = self.options();
            let order = self.order(&options);
            nodes.push(Node { at: self.at.clone(), options, order, next: 0 });
            // Takes the next option here or, if there is none, at the last place that has one.
            loop {
                let Some(node) = nodes.last_mut() else { return Err(self.lost) };
                self.at.clone_from(&node.at);
                self.items.truncate(nodes.len() - 1);
                let Some(node) = nodes.last_mut() else { return Err(self.lost) };
                let (options, option) = (Arc::clone(&node.options), node.next);
                node.next += 1;
                if option >= options.loops.len() + options.choices.len() {
                    nodes.pop();
                    returns += 1;
                    if returns > RETURNS {
                        return Err(self.lost);
                    }
                    continue;
                }
                let taken = match options.loops.get(option) {
                    Some((trip, style)) => self.take_loop(*trip, *style),
                    None => {
                        let choice = node.order[option - options.loops.len()];
                        self.take(&options.choices[choice]);
                        true
                    }
                };
                if taken {
                    break;
                }
            }
        }
    }

    fn order(&self, options: &Options) -> Vec<usize> {
        let shape = |kind: &Kind| match kind {
            Kind::Message { shape, .. }
            | Kind::Collective { shape, .. }
            | Kind::Region { shape, .. } => Some(*shape),
            Kind::Wait { .. } => None,
        };
        let unusual = |kind: &Kind| match kind {
            Kind::Message { function, .. } => function.is_unusual(),
            _ => false,
        };
        let mut order: Vec<usize> = (0..options.choices.len()).collect();
        let last = self.items.last().filter(|_| self.first == First::Alike);
        let before = last.and_then(|item| item.slots.last()).and_then(|slot| shape(&slot.kind));
        order.sort_by_key(|choice| {
            let kind = &options.choices[*choice].kind;
            (unusual(kind), before.is_some() && shape(kind) != before)
        });
        order
    }

    /// Remembers the farthest place.
    fn note(&mut self) {
        let found = self.at.iter().map(|at| u64::from(*at)).sum();
        if found < self.lost.found || (found == self.lost.found && found > 0) {
            return;
        }
        let open = |(track, one): (usize, &Track<'_>)| {
            let event = *self.at.get(track)?;
            ((event as usize) < one.events.len()).then_some((one.ranks, track, event))
        };
        // The first rank of the largest trace.
        let tracks = self.traces.tracks.iter().enumerate();
        let first =
            tracks.filter_map(open).min_by_key(|(ranks, track, _)| (u32::MAX - ranks, *track));
        if let Some((_, track, event)) = first {
            self.lost = Lost { found, track, event };
        }
    }

    fn head(&self, track: usize) -> Key {
        self.traces.keys[track].get(self.at[track] as usize).copied().unwrap_or(AT_END)
    }

    /// A wait that all ranks come to that have something to wait for.
    #[allow(clippy::type_complexity)]
    fn wait(&self) -> Option<((u32, u32), Vec<(u32, u32)>)> {
        let mut tried: Vec<(u32, u32)> = Vec::new();
        for (track, one) in self.traces.tracks.iter().enumerate() {
            let event = one.events.get(self.at[track] as usize).map(|event| &event.what);
            let Some(What::Wait { of, .. }) = event else { continue };
            let (item, slot, _) = self.assigned[track][*of as usize];
            if tried.contains(&(item, slot)) {
                continue;
            }
            tried.push((item, slot));
            if self.waits(item, slot) {
                return Some(((item, slot), self.among(item, slot)));
            }
        }
        None
    }

    fn waits(&self, item: u32, slot: u32) -> bool {
        let Some(item) = self.items.get(item as usize).filter(|item| item.trip == Trip::Once)
        else {
            return false;
        };
        let events = &item.slots[slot as usize].events[0];
        events.iter().enumerate().all(|(track, event)| {
            let Some(event) = self.traces.tracks[track].events.get(*event as usize) else {
                return true;
            };
            event.is_null() || event.ended == self.at[track]
        })
    }

    /// What else a wait would take.
    fn among(&self, item: u32, slot: u32) -> Vec<(u32, u32)> {
        let events = &self.items[item as usize].slots[slot as usize].events[0];
        let mut among: Vec<(u32, u32)> = Vec::new();
        for (track, event) in events.iter().enumerate() {
            let one = &self.traces.tracks[track];
            let Some(ended) = one.events.get(*event as usize).map(|event| event.ended) else {
                continue;
            };
            let Some(What::Wait { among: own, .. }) =
                one.events.get(ended as usize).map(|event| &event.what)
            else {
                continue;
            };
            for other in own {
                let (item, slot, _) = self.assigned[track][*other as usize];
                if item != NONE && !among.contains(&(item, slot)) {
                    among.push((item, slot));
                }
            }
        }
        among.sort_unstable();
        among
    }

    fn take_wait(&mut self, of: (u32, u32), among: Vec<(u32, u32)>) {
        let started = &self.items[of.0 as usize].slots[of.1 as usize].events[0];
        let mut events = vec![NONE; self.at.len()];
        for (track, start) in started.iter().enumerate() {
            let event = self.traces.tracks[track].events.get(*start as usize);
            if event.is_some_and(|event| !event.is_null()) {
                events[track] = self.at[track];
                self.at[track] += 1;
            }
        }
        let class = self.class(Class::Wait(self.items[of.0 as usize].slots[of.1 as usize].class));
        let slot = Slot { kind: Kind::Wait { of, among }, class, events: vec![events] };
        self.items.push(Item { trip: Trip::Once, values: vec![0], slots: vec![slot] });
    }

    fn take(&mut self, choice: &Choice) {
        let mut events = vec![NONE; self.at.len()];
        let item = self.items.len() as u32;
        for (track, takes) in choice.takes.iter().enumerate() {
            if *takes {
                events[track] = self.at[track];
                self.assigned[track][self.at[track] as usize] = (item, 0, 0);
                self.at[track] += 1;
            }
        }
        let slot = Slot { kind: choice.kind.clone(), class: choice.class, events: vec![events] };
        self.items.push(Item { trip: Trip::Once, values: vec![0], slots: vec![slot] });
    }

    /// What may come next; the same where the ranks are about to make the same calls.
    fn options(&mut self) -> Arc<Options> {
        let view: Vec<Key> = (0..self.at.len()).map(|track| self.head(track)).collect();
        if let Some(options) = self.known.get(&view) {
            return Arc::clone(options);
        }
        let mut shapes: Vec<Shape> = Vec::new();
        for key in &view {
            if !matches!(key.shape, Shape::Wait | Shape::End) && !shapes.contains(&key.shape) {
                shapes.push(key.shape);
            }
        }
        let mut choices = Vec::new();
        for shape in &shapes {
            match shape {
                Shape::Message { .. } => self.messages(&view, *shape, &mut choices),
                Shape::Collective { neighbours, .. } => {
                    self.collectives(&view, *shape, *neighbours, &mut choices);
                }
                _ => self.regions(&view, *shape, &mut choices),
            }
        }
        choices.sort_by_key(|choice| std::cmp::Reverse(choice.count));
        for choice in &mut choices {
            choice.class = self.class(match &choice.kind {
                Kind::Message { shape, function, tag, .. } => {
                    Class::Message(*shape, *function, *tag, Trip::Once)
                }
                Kind::Collective { shape, together, root } => {
                    Class::Collective(*shape, *together, *root)
                }
                Kind::Region { shape, function } => Class::Region(*shape, *function),
                Kind::Wait { .. } => Class::Wait(NONE),
            });
        }
        let mut loops = Vec::new();
        let most = self.traces.most_ranks();
        for trip in self.loops.trips() {
            let values = trip.values(most);
            let Some(first) = values.first().filter(|_| values.len() > 1) else { continue };
            for (style, list) in styles(*trip).iter().enumerate() {
                if list.contains(&Function::DoublingChild) && self.loops != Loops::Doubling {
                    continue;
                }
                let begins = list.iter().any(|function| {
                    shapes.iter().any(|shape| {
                        let mut at = self.at.clone();
                        let part = Part::Message { shape: *shape, function: *function };
                        self.step(*trip, part, *first, &mut at, &[]).is_some()
                    })
                });
                if begins {
                    loops.push((*trip, style));
                }
            }
        }
        let options = Arc::new(Options { choices, loops });
        self.known.insert(view, Arc::clone(&options));
        options
    }

    fn class(&mut self, class: Class) -> u32 {
        let next = self.classes.len() as u32;
        *self.classes.entry(class).or_insert(next)
    }

    fn messages(&self, view: &[Key], shape: Shape, choices: &mut Vec<Choice>) {
        // Functions that agree on all traces count as one choice.
        let mut found: Vec<(Vec<Wants>, Vec<Function>)> = Vec::new();
        let mut places: HashMap<&[Wants], usize> = HashMap::new();
        for (function, wants) in &self.functions {
            let fits = |(key, wants): (&Key, &Wants)| {
                *wants == Wants::Absent || (key.shape == shape && key.peer == *wants)
            };
            let takes = wants.iter().any(|wants| *wants != Wants::Absent);
            if !takes || !view.iter().zip(wants).all(fits) {
                continue;
            }
            match places.entry(wants) {
                Entry::Occupied(place) => found[*place.get()].1.push(*function),
                Entry::Vacant(place) => {
                    place.insert(found.len());
                    found.push((wants.clone(), vec![*function]));
                }
            }
        }
        for (wants, list) in found {
            let mut tags = Vec::new();
            for (track, wants) in wants.iter().enumerate() {
                let peer = match wants {
                    Wants::Absent => continue,
                    Wants::Rank(peer) => *peer,
                    _ => 0,
                };
                let any = matches!(shape, Shape::Message { any_tag: true, .. });
                let tag = (!any).then_some(view[track].tag);
                tags.push((tag, self.traces.tracks[track].rank, peer, 0));
            }
            let Some(tag) = Tag::behind(&tags) else { continue };
            let takes: Vec<bool> = wants.iter().map(|wants| *wants != Wants::Absent).collect();
            let count = takes.iter().filter(|takes| **takes).count();
            let function = list[0];
            let kind = Kind::Message { shape, function, others: list[1..].into(), tag };
            choices.push(Choice { kind, takes, count, class: NONE });
        }
    }

    fn collectives(&self, view: &[Key], shape: Shape, neighbours: bool, choices: &mut Vec<Choice>) {
        let all = match neighbours {
            true => std::slice::from_ref(&self.groups[0]),
            false => &self.groups[..],
        };
        for (together, wants) in all {
            let wants = if neighbours { &self.neighbours } else { wants };
            let fits = |(key, wants): (&Key, &Wants)| {
                *wants == Wants::Absent || (key.shape == shape && key.peer == *wants)
            };
            let takes: Vec<bool> = wants.iter().map(|wants| *wants != Wants::Absent).collect();
            let count = takes.iter().filter(|takes| **takes).count();
            if count == 0 || !view.iter().zip(wants).all(fits) {
                continue;
            }
            let taken = || view.iter().enumerate().filter(|(track, _)| takes[*track]);
            let size = |track: usize| {
                let one = &self.traces.tracks[track];
                together.members(&self.places[track], one.rank).len() as i32
            };
            let Some(first) = taken().next().map(|(_, key)| key.tag) else { continue };
            let root = if taken().all(|(_, key)| key.tag == first) {
                Root::Is(first.max(0) as u32)
            } else if taken().all(|(track, key)| key.tag + 1 == size(track)) {
                Root::Last
            } else {
                continue;
            };
            let kind = Kind::Collective { shape, together: *together, root };
            choices.push(Choice { kind, takes, count, class: NONE });
        }
    }

    fn regions(&self, view: &[Key], shape: Shape, choices: &mut Vec<Choice>) {
        for function in [Function::Own, Function::OwnRoot, Function::OwnOthers] {
            let takes = |(track, one): (usize, &Track<'_>)| {
                function.of(&self.places[track], one.rank, 0) != Wants::Absent
            };
            let takes: Vec<bool> = self.traces.tracks.iter().enumerate().map(takes).collect();
            let fits = |(key, takes): (&Key, &bool)| !takes || key.shape == shape;
            let count = takes.iter().filter(|takes| **takes).count();
            if count > 0 && view.iter().zip(&takes).all(fits) {
                let kind = Kind::Region { shape, function };
                choices.push(Choice { kind, takes, count, class: NONE });
            }
        }
    }

    /// The events of a part in one iteration, which the ranks then have passed. `now` are those of the parts before
    /// it. None if it does not come next.
    fn step(
        &self,
        trip: Trip,
        part: Part,
        value: u32,
        at: &mut [u32],
        now: &[Vec<u32>],
    ) -> Option<Vec<u32>> {
        let mut events = vec![NONE; at.len()];
        let mut any = false;
        for (track, one) in self.traces.tracks.iter().enumerate() {
            if !trip.has(one.ranks, value) {
                continue;
            }
            match part {
                Part::Message { shape, function } => {
                    let wants = function.of(&self.places[track], one.rank, value);
                    if wants == Wants::Absent {
                        continue;
                    }
                    let key = self.traces.keys[track].get(at[track] as usize)?;
                    if key.shape != shape || key.peer != wants {
                        return None;
                    }
                }
                Part::Wait { part } => {
                    let start = *now.get(part)?.get(track)?;
                    let Some(event) = one.events.get(start as usize) else { continue };
                    if event.is_null() {
                        continue;
                    }
                    if event.ended != at[track] {
                        return None;
                    }
                }
            }
            events[track] = at[track];
            at[track] += 1;
            any = true;
        }
        any.then_some(events)
    }

    fn take_loop(&mut self, trip: Trip, style: usize) -> bool {
        let Some(list) = styles(trip).get(style) else { return false };
        let mut left = BODIES;
        let at = self.at.clone();
        let found = self.body(trip, list, at, &mut Vec::new(), &mut Vec::new(), &mut left);
        let Some((item, at)) = found else { return false };
        let number = self.items.len() as u32;
        for (place, slot) in item.slots.iter().enumerate() {
            for (iteration, events) in slot.events.iter().enumerate() {
                for (track, event) in events.iter().enumerate() {
                    if let Some(assigned) = self.assigned[track].get_mut(*event as usize) {
                        *assigned = (number, place as u32, iteration as u32);
                    }
                }
            }
        }
        self.items.push(item);
        self.at = at;
        true
    }

    /// Makes up the body of a loop from the first iteration, until the others are as it says.
    fn body(
        &mut self,
        trip: Trip,
        style: &[Function],
        at: Vec<u32>,
        parts: &mut Vec<Part>,
        now: &mut Vec<Vec<u32>>,
        left: &mut usize,
    ) -> Option<(Item, Vec<u32>)> {
        if !parts.is_empty()
            && let Some(found) = self.iterate(trip, parts)
        {
            return Some(found);
        }
        if parts.len() >= LONGEST_BODY || *left == 0 {
            return None;
        }
        *left -= 1;
        let value = *trip.values(self.traces.most_ranks()).first()?;
        let waits = (0..parts.len()).map(|part| Part::Wait { part });
        let mut shapes: Vec<Shape> = Vec::new();
        for (track, one) in self.traces.tracks.iter().enumerate() {
            if let Some(key) = self.traces.keys[track].get(at[track] as usize)
                && trip.has(one.ranks, value)
                && matches!(key.shape, Shape::Message { .. })
                && !shapes.contains(&key.shape)
            {
                shapes.push(key.shape);
            }
        }
        let messages = shapes.iter().flat_map(|shape| {
            style.iter().map(|function| Part::Message { shape: *shape, function: *function })
        });
        let options: Vec<Part> = waits.chain(messages).collect();
        for part in options {
            let mut after = at.clone();
            let Some(events) = self.step(trip, part, value, &mut after, now) else { continue };
            parts.push(part);
            now.push(events);
            let found = self.body(trip, style, after, parts, now, left);
            parts.pop();
            now.pop();
            if found.is_some() {
                return found;
            }
            if matches!(part, Part::Wait { .. }) {
                break;
            }
        }
        None
    }

    /// All iterations of a loop; None if the ranks do something else.
    fn iterate(&mut self, trip: Trip, parts: &[Part]) -> Option<(Item, Vec<u32>)> {
        let values = trip.values(self.traces.most_ranks());
        let mut at = self.at.clone();
        let mut events: Vec<Vec<Vec<u32>>> = vec![Vec::new(); parts.len()];
        for value in &values {
            let mut now: Vec<Vec<u32>> = Vec::new();
            for (place, part) in parts.iter().enumerate() {
                let own = self.step(trip, *part, *value, &mut at, &now)?;
                events[place].push(own.clone());
                now.push(own);
            }
        }
        // What a loop started must have ended in it, or its rounds do not depend on each other.
        let item = self.items.len() as u32;
        let mut slots = Vec::new();
        for (place, part) in parts.iter().enumerate() {
            let own = std::mem::take(&mut events[place]);
            let (kind, class) = match *part {
                Part::Wait { part } => {
                    let started = slots.get(part).map_or(NONE, |slot: &Slot| slot.class);
                    let kind = Kind::Wait { of: (item, part as u32), among: Vec::new() };
                    (kind, self.class(Class::Wait(started)))
                }
                Part::Message { shape, function } => {
                    let waited = parts
                        .iter()
                        .any(|one| matches!(one, Part::Wait { part } if *part == place));
                    if matches!(shape, Shape::Message { starts: true, .. }) && !waited {
                        return None;
                    }
                    let tag = self.loop_tag(trip, shape, &values, &own)?;
                    let class = self.class(Class::Message(shape, function, tag, trip));
                    (Kind::Message { shape, function, others: [].into(), tag }, class)
                }
            };
            slots.push(Slot { kind, class, events: own });
        }
        Some((Item { trip, values, slots }, at))
    }

    fn loop_tag(
        &self,
        trip: Trip,
        shape: Shape,
        values: &[u32],
        events: &[Vec<u32>],
    ) -> Option<Tag> {
        if matches!(shape, Shape::Message { any_tag: true, .. }) {
            return Some(Tag::Any);
        }
        let mut tags = Vec::new();
        for (value, events) in values.iter().zip(events) {
            for (track, event) in events.iter().enumerate() {
                let Some(key) = self.traces.keys[track].get(*event as usize) else { continue };
                let peer = if let Wants::Rank(peer) = key.peer { peer } else { 0 };
                tags.push((
                    Some(key.tag),
                    self.traces.tracks[track].rank,
                    peer,
                    trip.round(*value),
                ));
            }
        }
        Tag::behind(&tags)
    }
}
