//! What one rank did: counts for the profile, and the halves of messages and arrivals at collectives that
//! are joined with those of other ranks.
//!
//! In: the moments of a rank in order; out: its own sums, and records for [`crate::matching`].
//!
//! The n-th send on a communicator from one rank to another with one tag meets the n-th receive: MPI does
//! not let messages overtake each other. Receives count in the order in which they were posted. One with a
//! wildcard is counted when it is known what it got; a later one that it might have taken the message from
//! is held until then.

use crate::chunks::{Arena, CallMoment, Moment, Repeat, What};
use crate::hash::{FastMap, fast_map, mix};
use crate::kinds::{CLASSES, Failure, Kind, Meaning, Shape, Total, meanings};
use crate::matching::{Arrival, Blocked, Half, SHARDS};
use crate::open::Program;
use mpi_abi::{
    Actual, Call, CommunicatorDef, ListKind, Outcome, RequestRun, Run, present, rank, tag,
};
use std::collections::BTreeMap;

/// Bins of the call pattern.
pub(crate) const BINS: usize = 100;
/// Rows and columns of the communication matrix at most.
pub(crate) const MATRIX: u32 = 64;
/// Requests that are tracked at once.
const MAX_REQUESTS: usize = 1 << 21;
/// Distinct (communicator, peer, tag) of a rank.
const MAX_CHANNELS: usize = 1 << 20;
/// Number of a channel whose messages cannot be numbered any more.
const CUT: u32 = u32::MAX;
/// Receives held behind wildcards.
const MAX_HELD: usize = 1 << 12;
/// Communicators and windows of a rank.
const MAX_OBJECTS: usize = 1 << 20;
/// Places in the tree of regions, and its depth.
const MAX_REGIONS: usize = 1 << 12;
const MAX_DEPTH: usize = 256;
/// Longest name of a region that is kept.
const MAX_NAME: usize = 256;

/// What a step of a rank yields for the tables, by shard.
#[derive(Default)]
pub(crate) struct Out {
    /// Only halves of messages in the sample are wanted.
    pub sample: bool,
    pub halves: [Vec<Half>; SHARDS],
    pub arrivals: [Vec<Arrival>; SHARDS],
}

impl Out {
    pub fn clear(&mut self) {
        self.halves.iter_mut().for_each(Vec::clear);
        self.arrivals.iter_mut().for_each(Vec::clear);
    }

    /// A half of the message with this number in its channel. Both halves of a message are kept or none:
    /// one alone would wait for the other to the end.
    #[inline]
    fn half(&mut self, sequence: u32, half: Half) {
        if self.sample && !is_sampled(sequence, half.key) {
            return;
        }
        if let Some(list) = self.halves.get_mut((half.key >> 59) as usize % SHARDS) {
            list.push(half);
        }
    }

    fn arrival(&mut self, arrival: Arrival) {
        if let Some(list) = self.arrivals.get_mut((arrival.key >> 59) as usize % SHARDS) {
            list.push(arrival);
        }
    }
}

/// Ranks as runs, with the position at which each begins.
#[derive(Clone, Debug, Default)]
struct Ranks {
    runs: Vec<(u32, Run)>,
}

impl Ranks {
    fn push(&mut self, offset: u32, runs: &[Run]) {
        let mut at = offset;
        for run in runs {
            if self.runs.last().is_some_and(|(start, last)| start.saturating_add(last.count) > at) {
                return;
            }
            self.runs.push((at, *run));
            at = at.saturating_add(run.count);
        }
    }

    #[inline]
    fn get(&self, index: i32) -> Option<i32> {
        let index = u32::try_from(index).ok()?;
        let (start, run) = match self.runs.as_slice() {
            [only] => only,
            runs => {
                let after = runs.partition_point(|(start, _)| *start <= index);
                runs.get(after.checked_sub(1)?)?
            }
        };
        let place = index.checked_sub(*start)?;
        (place < run.count).then(|| run.at(place))
    }

    fn len(&self) -> u64 {
        self.runs.last().map_or(0, |(start, run)| u64::from(*start) + u64::from(run.count))
    }

    fn iter(&self) -> impl Iterator<Item = i32> {
        self.runs.iter().flat_map(|(_, run)| (0..run.count.min(1 << 20)).map(|place| run.at(place)))
    }
}

/// A communicator of a rank.
#[derive(Clone, Debug, Default)]
pub(crate) struct Comm {
    pub key: u64,
    pub number: u32,
    pub parent: Option<u64>,
    pub size: u32,
    pub remote_size: u32,
    rank: i32,
    members: Ranks,
    remote: Ranks,
    sources: Ranks,
    destinations: Ranks,
    topology: u8,
    /// Collectives so far.
    sequence: u64,
    windows: u64,
    pub calls: u64,
    pub bytes: u64,
    pub ns: u64,
}

impl Comm {
    /// World rank of a peer.
    #[inline]
    fn world(&self, peer: i32) -> Option<u32> {
        let peers = if self.remote_size > 0 { &self.remote } else { &self.members };
        peers.get(peer).and_then(|rank| u32::try_from(rank).ok())
    }
}

/// A window: key, position of its communicator, fences so far.
#[derive(Clone, Copy, Debug)]
struct Window {
    key: u64,
    comm: usize,
    sequence: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Send,
    Receive,
    /// The receive of an exchange; its send goes with it.
    Collective(Shape),
    Other,
}

/// A request that has not completed.
#[derive(Clone, Copy, Debug)]
struct Request {
    role: Role,
    call: u16,
    /// The call was a large-count variant.
    large: bool,
    persistent: bool,
    active: bool,
    /// Handed to the tables.
    emitted: bool,
    /// Ordered behind a wildcard.
    deferred: bool,
    /// Made while recording was switched off.
    off: bool,
    comm: u32,
    peer: i32,
    tag: i32,
    bytes: u64,
    /// When it was posted.
    at: i64,
    /// Channel and number in it, or the collective.
    channel: u64,
    sequence: u32,
    /// Order of posting.
    order: u64,
    /// The send half of an exchange.
    with_send: Option<(u64, u32, u64)>,
    root: bool,
}

/// A posted receive whose channel is not known yet.
#[derive(Clone, Copy, Debug)]
struct Wild {
    order: u64,
    comm: u64,
    peer: i32,
    tag: i32,
}

impl Wild {
    fn takes(&self, comm: u64, peer: i32, label: i32) -> bool {
        self.comm == comm
            && (self.peer == rank::ANY || peer == rank::ANY || self.peer == peer)
            && (self.tag == tag::ANY || label == tag::ANY || self.tag == label)
    }
}

/// A completed receive that waits for an earlier wildcard.
#[derive(Clone, Copy, Debug)]
struct Held {
    order: u64,
    comm: u64,
    peer: i32,
    tag: i32,
    channel: u64,
    half: Half,
}

/// Sums of one call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallSum {
    pub count: u64,
    pub bytes: u64,
    pub ns: u64,
    pub longest: u64,
    pub errors: u64,
}

/// A place in the tree of regions.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegionSum {
    pub parent: usize,
    pub region: u32,
    pub count: u64,
    /// Inclusive.
    pub ns: u64,
    pub mpi_ns: u64,
    children: BTreeMap<u32, usize>,
}

#[derive(Clone, Debug, Default)]
struct Thread {
    /// Places in the tree, and when they were entered.
    stack: Vec<(usize, i64)>,
    /// The last call, for requests that follow.
    last: Option<Blocked>,
    /// Whether events are missing.
    broken: bool,
}

/// A message that a blocking probe has waited for; the receive that follows it does not wait any more.
struct Probed {
    source: i32,
    tag: i32,
    blocked: Blocked,
}

impl Probed {
    fn is(&self, request: &Request, actual: &Actual) -> bool {
        let source = actual.source.unwrap_or(request.peer);
        let label = actual.tag.unwrap_or(request.tag);
        (source, label) == (self.source, self.tag)
    }
}

/// What is needed of the program by all ranks.
pub(crate) struct Context<'a> {
    pub program: &'a Program,
    pub span: (i64, i64),
    /// Bins of the call pattern in a nanosecond.
    pub bins_per_ns: f64,
    pub pass: Pass,
}

/// What the trace is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// A first correction of the clocks: a sample of the messages, no sums.
    Sample,
    /// Clocks: all messages, no sums.
    Messages,
    /// The sums of the ranks.
    Profile,
    /// And a timeline, unless there are too many ranks.
    Timeline,
    /// And every single wait.
    Waits,
}

impl Pass {
    pub fn makes_sums(self) -> bool {
        matches!(self, Pass::Profile | Pass::Timeline | Pass::Waits)
    }

    pub fn makes_timeline(self) -> bool {
        matches!(self, Pass::Timeline | Pass::Waits)
    }
}

/// Messages of a channel that are all in the sample; later ones are by chance, one in [`SAMPLED`]. So rare
/// messages are there, and the many do not take the time of a whole pass.
const ALL_OF_CHANNEL: u32 = 4096;
const SAMPLED: u64 = 8;

/// Whether a message is in the sample. `key` mixes its channel and number; its lowest bit depends on the
/// channel only.
#[inline]
fn is_sampled(sequence: u32, key: u64) -> bool {
    sequence < ALL_OF_CHANNEL || (key >> 32).is_multiple_of(SAMPLED)
}

impl Context<'_> {
    fn sums(&self) -> bool {
        self.pass.makes_sums()
    }

    /// Whether a message is joined in this pass.
    #[inline]
    fn takes(&self, channel: u64, sequence: u32) -> bool {
        self.pass != Pass::Sample || is_sampled(sequence, mix(channel, u64::from(sequence)))
    }
}

/// Row or column of a rank in the matrices of a program with so many ranks.
pub(crate) fn matrix_cell(world: u32, size: u32) -> usize {
    if size <= MATRIX {
        world as usize
    } else {
        (u64::from(world) * u64::from(MATRIX) / u64::from(size)) as usize
    }
}

/// Everything known about a rank so far.
pub(crate) struct RankState {
    slot: u32,
    world: u32,
    pub comms: Vec<Comm>,
    numbers: FastMap<u32, usize>,
    last_comm: (u32, usize),
    windows: FastMap<u32, Window>,
    requests: FastMap<u64, Request>,
    sends: FastMap<u64, u32>,
    receives: FastMap<u64, u32>,
    wild: Vec<Wild>,
    held: Vec<Held>,
    order: u64,
    groups: u32,
    threads: FastMap<u16, Thread>,
    /// By thread.
    probed: FastMap<u16, Probed>,
    broken: bool,
    /// Too many wildcards: later receives cannot be numbered.
    overrun: bool,
    steps: u64,

    pub calls: Vec<CallSum>,
    pub pattern: Vec<[u64; CLASSES.len()]>,
    pub sizes: [(u64, u64); 65],
    pub row: Vec<(u64, u64)>,
    pub regions: Vec<RegionSum>,
    pub names: BTreeMap<u32, String>,
    pub events: u64,
    /// Of them, tests that were only counted.
    pub repeated: u64,
    pub mpi_ns: u64,
    pub sent: u64,
    pub received: u64,
    pub messages: u64,
    /// The longest call: ns and number.
    pub slowest: (u64, u16),
    pub first: i64,
    pub last: i64,
    /// Halves that cannot be joined, because the other rank is not there or something is not known.
    pub unjoined: u64,
    pub lost_records: u64,
    /// How often recording was switched off, and calls that were made then.
    pub switched_off: u64,
    pub off_calls: u64,
}

/// Position of a call among the sums.
fn row(call: &CallMoment) -> usize {
    usize::from(call.signature.call.number()) * 2 + usize::from(call.signature.large)
}

fn cut(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl RankState {
    pub fn new(slot: usize, context: &Context) -> RankState {
        let world = context.program.ranks.get(slot).map_or(0, |rank| rank.rank);
        let size = context.program.size;
        // The definition of MPI_COMM_WORLD can be in a damaged chunk; its members are known.
        let all = Run { first: 0, step: 1, count: size.max(1) };
        let comm_world = Comm {
            key: 1,
            size,
            rank: world as i32,
            members: Ranks { runs: vec![(0, all)] },
            ..Comm::default()
        };
        let mut numbers = fast_map();
        numbers.insert(0, 0);
        let sums = context.sums();
        RankState {
            slot: slot as u32,
            world,
            comms: vec![comm_world],
            numbers,
            last_comm: (0, 0),
            windows: fast_map(),
            requests: fast_map(),
            sends: fast_map(),
            receives: fast_map(),
            wild: Vec::new(),
            held: Vec::new(),
            order: 0,
            groups: 0,
            threads: fast_map(),
            probed: fast_map(),
            broken: false,
            overrun: false,
            steps: 0,
            calls: if sums { vec![CallSum::default(); Call::ALL.len() * 2] } else { Vec::new() },
            pattern: if sums { vec![[0; CLASSES.len()]; BINS] } else { Vec::new() },
            sizes: [(0, 0); 65],
            row: if sums { vec![(0, 0); size.min(MATRIX) as usize] } else { Vec::new() },
            regions: vec![RegionSum::default()],
            names: BTreeMap::new(),
            events: 0,
            repeated: 0,
            mpi_ns: 0,
            sent: 0,
            received: 0,
            messages: 0,
            slowest: (0, 0),
            first: i64::MAX,
            last: i64::MIN,
            unjoined: 0,
            lost_records: 0,
            switched_off: 0,
            off_calls: 0,
        }
    }

    pub fn slot(&self) -> usize {
        self.slot as usize
    }

    /// Takes one moment.
    pub fn take(&mut self, context: &Context, moment: &Moment, arena: &Arena, out: &mut Out) {
        match &moment.what {
            What::Call(call) => self.call(context, moment, call, arena, false, out),
            What::Off(call) => self.call(context, moment, call, arena, true, out),
            What::More(requests) => {
                let last = self.threads.entry(moment.thread).or_default().last;
                if let Some(blocked) = last {
                    self.outcomes(context, &blocked, arena.requests(*requests), out);
                }
            }
            What::Repeat(repeat) => self.repeat(context, moment, repeat),
            What::Communicator(def) => self.define(def),
            What::List { communicator, kind, offset, runs } => {
                let at = self.numbers.get(communicator).copied();
                let Some(comm) = at.and_then(|at| self.comms.get_mut(at)) else { return };
                let list = match kind {
                    ListKind::Members => &mut comm.members,
                    ListKind::Remote => &mut comm.remote,
                    ListKind::Sources => &mut comm.sources,
                    ListKind::Destinations => &mut comm.destinations,
                    ListKind::Dims | ListKind::Periods => return,
                };
                list.push(*offset, arena.runs(*runs));
            }
            What::Window { window, communicator } => {
                let Some(&at) = self.numbers.get(communicator) else { return };
                if let Some(comm) = self.comms.get_mut(at)
                    && self.windows.len() < MAX_OBJECTS
                {
                    comm.windows += 1;
                    let key = mix(mix(comm.key, 0x77), comm.windows);
                    self.windows.insert(*window, Window { key, comm: at, sequence: 0 });
                }
            }
            What::RegionName { region, name } => {
                let name = arena.name(*name);
                if self.names.len() < MAX_REGIONS {
                    let name = String::from_utf8_lossy(name.get(..MAX_NAME).unwrap_or(name));
                    let name = name.chars().filter(|c| !c.is_control()).collect();
                    self.names.insert(*region, name);
                }
            }
            What::RegionBegin { region } => self.enter(moment.thread, *region, moment.begin),
            What::RegionEnd { region } => self.leave(moment.thread, *region, moment.begin),
            What::Switch { on } => {
                self.switched_off += u64::from(!on);
                let rank = context.program.ranks.get(self.slot as usize);
                if !on && !rank.is_some_and(|rank| rank.keeps_off) {
                    // What was done meanwhile is not in files of older versions.
                    self.stop_joining();
                }
            }
            What::Lost { events } => {
                self.stop_joining();
                self.lost_records = self.lost_records.saturating_add(*events);
                self.threads.entry(moment.thread).or_default().broken = true;
            }
        }
    }

    /// Numbers of messages and collectives no longer agree with those of the other ranks.
    fn stop_joining(&mut self) {
        self.broken = true;
        self.wild.clear();
        self.unjoined += self.held.len() as u64;
        self.held.clear();
    }

    fn define(&mut self, def: &CommunicatorDef) {
        if self.comms.len() >= MAX_OBJECTS {
            return;
        }
        let parent = def
            .parent
            .and_then(|parent| self.comms.get(*self.numbers.get(&parent)?))
            .map(|parent| parent.key);
        let comm = Comm {
            key: def.key,
            number: def.number,
            parent,
            size: def.size,
            remote_size: def.remote_size,
            rank: def.rank,
            topology: def.topology,
            ..Comm::default()
        };
        if def.number == 0 {
            // Already there with its members; the lists that follow are the same.
            if let Some(world) = self.comms.first_mut() {
                world.key = def.key;
                world.size = def.size;
                world.rank = def.rank;
            }
            return;
        }
        self.numbers.insert(def.number, self.comms.len());
        self.comms.push(comm);
        self.last_comm = (0, 0);
    }

    #[inline]
    fn comm(&mut self, number: u32) -> Option<usize> {
        if self.last_comm.0 == number {
            return Some(self.last_comm.1);
        }
        let at = *self.numbers.get(&number)?;
        self.last_comm = (number, at);
        Some(at)
    }

    fn enter(&mut self, thread: u16, region: u32, at: i64) {
        let stack = &mut self.threads.entry(thread).or_default().stack;
        if stack.len() >= MAX_DEPTH {
            return;
        }
        let parent = stack.last().map_or(0, |(node, _)| *node);
        let known = self.regions.get(parent).and_then(|sum| sum.children.get(&region)).copied();
        let node = match known {
            Some(node) => node,
            None if self.regions.len() >= MAX_REGIONS => return,
            None => {
                let node = self.regions.len();
                self.regions.push(RegionSum { parent, region, ..RegionSum::default() });
                if let Some(sum) = self.regions.get_mut(parent) {
                    sum.children.insert(region, node);
                }
                node
            }
        };
        stack.push((node, at));
    }

    /// Ends the innermost region, or the innermost with a number and those inside it.
    fn leave(&mut self, thread: u16, region: u32, at: i64) {
        let stack = &mut self.threads.entry(thread).or_default().stack;
        let number = |node: usize| self.regions.get(node).map_or(0, |sum| sum.region);
        if region != 0 && !stack.iter().any(|(node, _)| number(*node) == region) {
            return;
        }
        while let Some((node, begin)) = stack.pop() {
            let Some(sum) = self.regions.get_mut(node) else { return };
            sum.count += 1;
            sum.ns = sum.ns.saturating_add(at.saturating_sub(begin).max(0) as u64);
            if region == 0 || sum.region == region {
                return;
            }
        }
    }

    /// Sums of a call, apart from what it means for other ranks.
    #[inline]
    fn count(&mut self, context: &Context, moment: &Moment, call: &CallMoment, meaning: &Meaning) {
        let ns = (moment.end - moment.begin).max(0) as u64;
        let number = call.signature.call.number();
        if let Some(sum) = self.calls.get_mut(row(call)) {
            sum.count += 1;
            sum.ns = sum.ns.saturating_add(ns);
            sum.longest = sum.longest.max(ns);
            sum.errors += u64::from(call.error != 0);
        }
        self.mpi_ns = self.mpi_ns.saturating_add(ns);
        if ns > self.slowest.0 {
            self.slowest = (ns, number);
        }
        self.count_pattern(context, meaning, moment.begin, moment.end);
        self.count_region(moment.thread, ns);
    }

    /// Sums of a call over the run.
    #[inline]
    fn count_pattern(&mut self, context: &Context, meaning: &Meaning, begin: i64, end: i64) {
        let (start, _) = context.span;
        let scale = context.bins_per_ns;
        let bin = |at: i64| {
            let place = (at.saturating_sub(start)) as f64 * scale;
            (place.max(0.0) as usize).min(BINS - 1)
        };
        let class = usize::from(meaning.class);
        let (first, last) = (bin(begin), bin(end));
        for place in first..=last {
            let edge = |bin: usize| start + (bin as f64 / scale) as i64;
            let from = if place == first { begin } else { edge(place) };
            let to = if place == last { end } else { edge(place + 1) };
            if let Some(sum) = self.pattern.get_mut(place).and_then(|bin| bin.get_mut(class)) {
                *sum = sum.saturating_add(to.saturating_sub(from).max(0) as u64);
            }
        }
    }

    /// Adds time in calls to the regions that a thread is in.
    #[inline]
    fn count_region(&mut self, thread: u16, ns: u64) {
        if self.regions.len() > 1
            && let Some(thread) = self.threads.get(&thread)
        {
            for (node, _) in &thread.stack {
                if let Some(sum) = self.regions.get_mut(*node) {
                    sum.mpi_ns = sum.mpi_ns.saturating_add(ns);
                }
            }
        }
    }

    /// A test that has failed and was made again: sums, and nothing that others see.
    fn repeat(&mut self, context: &Context, moment: &Moment, repeat: &Repeat) {
        let (call, times, ns) =
            (&repeat.call, u64::from(repeat.times), repeat.inside.max(0) as u64);
        let Some(meaning) = meanings().get(usize::from(call.signature.call.number())) else {
            return;
        };
        self.events += times;
        self.repeated += times;
        self.first = self.first.min(moment.begin);
        self.last = self.last.max(moment.end);
        if !context.sums() {
            return;
        }
        if let Some(sum) = self.calls.get_mut(row(call)) {
            sum.count += times;
            sum.ns = sum.ns.saturating_add(ns);
        }
        self.mpi_ns = self.mpi_ns.saturating_add(ns);
        for (begin, end) in repeat.spread(moment.begin, moment.end) {
            self.count_pattern(context, meaning, begin, end);
        }
        self.count_region(moment.thread, ns);
        if let Some(comm) = self.comm_of(call, meaning).and_then(|at| self.comms.get_mut(at)) {
            comm.calls += times;
            comm.ns = comm.ns.saturating_add(ns);
        }
    }

    /// The communicator of a call.
    #[inline]
    fn comm_of(&mut self, call: &CallMoment, meaning: &Meaning) -> Option<usize> {
        let signature = &call.signature;
        match (signature.present & present::OBJECT != 0, meaning.on_window) {
            (true, false) => self.comm(signature.object),
            (true, true) => self.windows.get(&signature.object).map(|window| window.comm),
            (false, _) => None,
        }
    }

    fn add_bytes(&mut self, off: bool, call: u16, large: bool, bytes: u64) {
        if !off && let Some(sum) = self.calls.get_mut(usize::from(call) * 2 + usize::from(large)) {
            sum.bytes = sum.bytes.saturating_add(bytes);
        }
    }

    fn call(
        &mut self,
        context: &Context,
        moment: &Moment,
        call: &CallMoment,
        arena: &Arena,
        off: bool,
        out: &mut Out,
    ) {
        let number = call.signature.call.number();
        let Some(meaning) = meanings().get(usize::from(number)) else { return };
        let sums = context.sums() && !off;
        self.events += 1;
        self.off_calls += u64::from(off);
        self.first = self.first.min(moment.begin);
        self.last = self.last.max(moment.end);
        if sums {
            self.count(context, moment, call, meaning);
        }
        let signature = &call.signature;
        // No waiting is counted while recording is switched off, but others wait for what is done.
        let starts = matches!(signature.call, Call::Start | Call::Startall);
        let Moment { end, .. } = *moment;
        let begin = if off && !starts { end } else { moment.begin };
        let mut blocked = Blocked { begin, end, call: number, large: signature.large, group: 0 };
        let has = |bit| signature.present & bit != 0;
        let comm = self.comm_of(call, meaning);
        let (peer, label) = (signature.peer, signature.tag);
        let nobody = has(present::PEER) && peer == rank::PROC_NULL;
        let nothing = nobody || meaning.total == Total::Nothing;
        let bytes = if nothing { 0 } else { call.bytes.unwrap_or(0) };
        if sums && let Some(comm) = comm.and_then(|at| self.comms.get_mut(at)) {
            comm.calls += 1;
            comm.bytes = comm.bytes.saturating_add(bytes);
            let ns = moment.end.saturating_sub(moment.begin).max(0) as u64;
            comm.ns = comm.ns.saturating_add(ns);
        }
        if call.error != 0 && !self.counts_failed(context, call, meaning, comm) {
            return;
        }
        let request = |role: Role| Request {
            role,
            call: number,
            large: signature.large,
            persistent: false,
            active: true,
            emitted: false,
            deferred: false,
            off,
            comm: comm.unwrap_or(usize::MAX) as u32,
            peer,
            tag: label,
            bytes,
            at: moment.begin,
            channel: 0,
            sequence: 0,
            order: 0,
            with_send: None,
            root: false,
        };
        match meaning.kind {
            Kind::Receive => {
                let request = request(Role::Receive);
                if !self.probed.is_empty()
                    && let Some(probed) = self.probed.remove(&moment.thread)
                    && probed.is(&request, &call.actual)
                {
                    blocked = probed.blocked;
                }
                let got = self.receive_now(context, &request, &call.actual, blocked, out);
                self.add_bytes(off, number, signature.large, got);
            }
            Kind::Send | Kind::Exchange => {
                let exchange = meaning.kind == Kind::Exchange;
                if exchange {
                    blocked.group = self.next_group();
                }
                let sent = self.post_send(context, off, comm, peer, label, bytes);
                if let Some((channel, sequence)) = sent {
                    let at = moment.begin;
                    let half = self.half(channel, sequence, at, blocked, bytes, number, true);
                    out.half(sequence, half);
                }
                let mut moved = bytes;
                if exchange {
                    let receive = Request {
                        peer: signature.source,
                        tag: signature.source_tag,
                        bytes: call.received.unwrap_or(bytes),
                        ..request(Role::Receive)
                    };
                    let got = self.receive_now(context, &receive, &call.actual, blocked, out);
                    moved = bytes.saturating_add(got);
                }
                self.add_bytes(off, number, signature.large, moved);
            }
            Kind::SendRequest => {
                self.add_bytes(off, number, signature.large, bytes);
                let sent = self.post_send(context, off, comm, peer, label, bytes);
                let mut request = request(Role::Send);
                match sent {
                    Some((channel, sequence)) if !context.takes(channel, sequence) => return,
                    Some((channel, sequence)) => {
                        (request.channel, request.sequence) = (channel, sequence);
                    }
                    None => request.emitted = true,
                }
                self.begin(call.begun, request, out);
            }
            Kind::ReceiveRequest => {
                let mut request = request(Role::Receive);
                self.post_receive(context, &mut request);
                let ordered = !request.deferred && !request.emitted;
                if ordered && !context.takes(request.channel, request.sequence) {
                    return;
                }
                self.begin(call.begun, request, out);
            }
            Kind::ExchangeRequest => {
                self.add_bytes(off, number, signature.large, bytes);
                let sent = self.post_send(context, off, comm, peer, label, bytes);
                let mut request = Request {
                    peer: signature.source,
                    tag: signature.source_tag,
                    bytes: call.received.unwrap_or(bytes),
                    with_send: sent.map(|(channel, sequence)| (channel, sequence, bytes)),
                    ..request(Role::Receive)
                };
                self.post_receive(context, &mut request);
                self.begin(call.begun, request, out);
            }
            Kind::SendInit => {
                let request = Request { persistent: true, active: false, ..request(Role::Send) };
                self.begin(call.begun, request, out);
            }
            Kind::ReceiveInit => {
                let request = Request { persistent: true, active: false, ..request(Role::Receive) };
                self.begin(call.begun, request, out);
            }
            Kind::Collective(shape) => {
                let total = self.contribution(comm, meaning, bytes, call, arena);
                self.add_bytes(off, number, signature.large, total);
                let mut request = request(Role::Collective(shape));
                if self.enter_collective(shape, &mut request, has(present::PEER)) {
                    self.emit_collective(context, &request, blocked, out);
                }
            }
            Kind::CollectiveRequest(shape) => {
                let total = self.contribution(comm, meaning, bytes, call, arena);
                self.add_bytes(off, number, signature.large, total);
                let mut request = request(Role::Collective(shape));
                if !self.enter_collective(shape, &mut request, has(present::PEER)) {
                    request.emitted = true;
                }
                self.begin(call.begun, request, out);
            }
            Kind::CollectiveInit(shape) => {
                let mut request =
                    Request { persistent: true, active: false, ..request(Role::Collective(shape)) };
                request.root = has(present::PEER);
                request.bytes = self.contribution(comm, meaning, bytes, call, arena);
                self.begin(call.begun, request, out);
            }
            Kind::WindowCollective => self.fence(signature.object, moment, blocked, out),
            Kind::Finalize => {
                if !self.broken && context.program.size > 1 {
                    out.arrival(Arrival {
                        key: mix(0xf17a, 1),
                        at: moment.begin,
                        blocked,
                        slot: self.slot,
                        rank: self.world,
                        size: context.program.size,
                        call: number,
                        root: false,
                    });
                }
            }
            Kind::Requests => {
                let requests = arena.requests(call.requests);
                let completing = |run: &&RequestRun| run.outcome == Outcome::Completed;
                let done: u64 =
                    requests.iter().filter(completing).map(|run| u64::from(run.count)).sum();
                let all: u64 = requests.iter().map(|run| u64::from(run.count)).sum();
                // More can follow a full record.
                if done > 1 || all >= mpi_abi::MAX_REQUESTS as u64 {
                    blocked.group = self.next_group();
                }
                let thread = self.threads.entry(moment.thread).or_default();
                thread.last = Some(blocked);
                self.outcomes(context, &blocked, requests, out);
            }
            Kind::Probe => {
                let source = call.actual.source.unwrap_or(peer);
                let label = call.actual.tag.unwrap_or(label);
                self.probed.insert(moment.thread, Probed { source, tag: label, blocked });
            }
            Kind::Other => {
                self.add_bytes(off, number, signature.large, bytes);
                if let Some(begun) = call.begun {
                    self.begin(Some(begun), request(Role::Other), out);
                }
            }
        }
    }

    /// A number for the halves that one call waits for: it waits for the latest of them, not for their sum.
    fn next_group(&mut self) -> u32 {
        self.groups = self.groups.wrapping_add(1).max(1);
        self.groups
    }

    /// Whether a call that returned an error is taken as one that did not: what it has communicated counts, in the
    /// order of messages and collectives. If that is not known, nothing is joined with what follows it.
    #[cold]
    fn counts_failed(
        &mut self,
        context: &Context,
        call: &CallMoment,
        meaning: &Meaning,
        comm: Option<usize>,
    ) -> bool {
        let abi = context.program.ranks.get(self.slot as usize).map(|rank| rank.abi);
        let failure = abi.map_or(Failure::Unknown, |abi| Failure::of(abi, call.error));
        let signature = &call.signature;
        match (meaning.kind, failure) {
            // Some of the requests may have completed.
            (Kind::Requests, _) => true,
            (_, Failure::Refused) => false,
            // All ranks make the same calls in the same order, whatever becomes of them.
            (Kind::Collective(_) | Kind::WindowCollective, _) => true,
            (Kind::CollectiveRequest(_), _) => {
                if let Some(comm) = comm.and_then(|at| self.comms.get_mut(at)) {
                    comm.sequence += 1;
                }
                false
            }
            (Kind::Receive | Kind::Exchange, Failure::Truncated) => true,
            (Kind::Receive, _) => {
                let source = call.actual.source.unwrap_or(signature.peer);
                let label = call.actual.tag.unwrap_or(signature.tag);
                self.cut(comm, source, label, false);
                false
            }
            (Kind::Exchange | Kind::ExchangeRequest, _) => {
                self.cut(comm, signature.peer, signature.tag, true);
                self.cut(comm, signature.source, signature.source_tag, false);
                false
            }
            (Kind::Send | Kind::SendRequest, _) => {
                self.cut(comm, signature.peer, signature.tag, true);
                false
            }
            (Kind::ReceiveRequest, _) => {
                self.cut(comm, signature.peer, signature.tag, false);
                false
            }
            _ => false,
        }
    }

    /// Whether the next message of a channel exists is not known: later ones cannot be numbered.
    fn cut(&mut self, comm: Option<usize>, peer: i32, label: i32, sends: bool) {
        if peer == rank::PROC_NULL {
            return;
        }
        if peer == rank::ANY || label == tag::ANY {
            self.stop_joining();
            return;
        }
        let Some(comm) = comm.and_then(|at| self.comms.get(at)) else { return };
        let Some(world) = comm.world(peer) else { return };
        let channel = self.channel(comm, world, label, sends);
        let counters = if sends { &mut self.sends } else { &mut self.receives };
        counters.insert(channel, CUT);
    }

    /// Bytes that a rank contributes to a collective.
    fn contribution(
        &self,
        comm: Option<usize>,
        meaning: &Meaning,
        bytes: u64,
        call: &CallMoment,
        arena: &Arena,
    ) -> u64 {
        let Some(comm) = comm.and_then(|at| self.comms.get(at)) else { return bytes };
        // Positions in the list of destinations that are none. As many are looked at as for waiting.
        let none = || {
            let peers = comm.destinations.iter().take(1 << 16).enumerate();
            peers.filter(|(_, peer)| *peer == rank::PROC_NULL).map(|(place, _)| place)
        };
        let destinations = || comm.destinations.len().saturating_sub(none().count() as u64);
        match meaning.total {
            Total::Once | Total::Nothing => bytes,
            Total::Ranks => {
                let peers = if comm.remote_size > 0 { comm.remote_size } else { comm.size };
                bytes.saturating_mul(u64::from(peers))
            }
            Total::Destinations => bytes.saturating_mul(destinations()),
            Total::AnyDestination if destinations() == 0 => 0,
            Total::AnyDestination => bytes,
            Total::Listed => {
                let Some(sent) = call.sent else { return bytes };
                let runs = arena.sizes(sent);
                let mut sizes = runs
                    .iter()
                    .flat_map(|(size, times)| std::iter::repeat_n(*size, *times as usize))
                    .enumerate();
                none().fold(bytes, |sum, place| {
                    let size = sizes.find(|(at, _)| *at == place).map_or(0, |(_, size)| size);
                    sum.saturating_sub(size)
                })
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    #[inline]
    fn half(
        &self,
        channel: u64,
        sequence: u32,
        at: i64,
        blocked: Blocked,
        bytes: u64,
        call: u16,
        sends: bool,
    ) -> Half {
        Half {
            key: mix(channel, u64::from(sequence)),
            at,
            blocked,
            slot: self.slot,
            bytes: cut(bytes),
            call,
            sends,
            collective: false,
        }
    }

    /// Channel of a message between this rank and a peer.
    #[inline]
    fn channel(&self, comm: &Comm, peer: u32, label: i32, sends: bool) -> u64 {
        let (from, to) = if sends { (self.world, peer) } else { (peer, self.world) };
        mix(mix(comm.key, u64::from(from) << 32 | u64::from(to)), label as u32 as u64)
    }

    #[inline]
    fn next(counters: &mut FastMap<u64, u32>, channel: u64) -> Option<u32> {
        if let Some(counter) = counters.get_mut(&channel) {
            let number = *counter;
            *counter = number.saturating_add(1);
            return (number != CUT).then_some(number);
        }
        if counters.len() >= MAX_CHANNELS {
            return None;
        }
        counters.insert(channel, 1);
        Some(0)
    }

    /// Counts a message and gives its channel and number; `None` if it cannot be joined.
    #[inline]
    fn post_send(
        &mut self,
        context: &Context,
        off: bool,
        comm: Option<usize>,
        peer: i32,
        label: i32,
        bytes: u64,
    ) -> Option<(u64, u32)> {
        if peer == rank::PROC_NULL {
            return None;
        }
        let world = comm.and_then(|at| self.comms.get(at)).and_then(|comm| comm.world(peer));
        if context.sums() && !off {
            self.sent = self.sent.saturating_add(bytes);
            self.messages += 1;
            let bucket = (64 - bytes.leading_zeros()) as usize;
            if let Some((count, sum)) = self.sizes.get_mut(bucket) {
                *count += 1;
                *sum = sum.saturating_add(bytes);
            }
            if let Some((sum, count)) =
                world.and_then(|world| self.row.get_mut(matrix_cell(world, context.program.size)))
            {
                *sum = sum.saturating_add(bytes);
                *count += 1;
            }
        }
        let joined = world.filter(|world| !self.broken && context.program.slot(*world).is_some());
        let joined = joined.and_then(|world| {
            let channel = self.channel(self.comms.get(comm?)?, world, label, true);
            Some((channel, Self::next(&mut self.sends, channel)?))
        });
        self.unjoined += u64::from(joined.is_none());
        joined
    }

    /// Gives a posted receive its channel and number, if they are known already.
    #[inline]
    fn post_receive(&mut self, context: &Context, request: &mut Request) {
        self.order += 1;
        request.order = self.order;
        if request.peer == rank::PROC_NULL || self.broken {
            request.emitted = true;
            return;
        }
        if self.overrun {
            request.emitted = true;
            self.unjoined += 1;
            return;
        }
        let Some(comm) = self.comms.get(request.comm as usize) else {
            request.emitted = true;
            self.unjoined += 1;
            return;
        };
        let key = comm.key;
        let wildcard = request.peer == rank::ANY || request.tag == tag::ANY;
        let behind = !self.wild.is_empty()
            && self.wild.iter().any(|wild| wild.takes(key, request.peer, request.tag));
        if wildcard || behind {
            if self.wild.len() >= MAX_HELD {
                // Which message this one takes will not be known.
                self.overrun = true;
                request.emitted = true;
                self.unjoined += 1;
                return;
            }
            let (peer, label) = (request.peer, request.tag);
            self.wild.push(Wild { order: request.order, comm: key, peer, tag: label });
            request.deferred = true;
            return;
        }
        let world = comm.world(request.peer);
        let world = world.filter(|world| context.program.slot(*world).is_some());
        let joined = world.and_then(|world| {
            let channel =
                self.channel(self.comms.get(request.comm as usize)?, world, request.tag, false);
            Some((channel, Self::next(&mut self.receives, channel)?))
        });
        match joined {
            Some((channel, sequence)) => (request.channel, request.sequence) = (channel, sequence),
            None => {
                request.emitted = true;
                self.unjoined += 1;
            }
        }
    }

    /// A blocking receive: posted and completed in one call. Returns the bytes received.
    fn receive_now(
        &mut self,
        context: &Context,
        request: &Request,
        actual: &Actual,
        blocked: Blocked,
        out: &mut Out,
    ) -> u64 {
        let mut request = *request;
        if request.peer == rank::PROC_NULL {
            return 0;
        }
        // What it got is known, so a wildcard is none.
        request.peer = actual.source.unwrap_or(request.peer);
        request.tag = actual.tag.unwrap_or(request.tag);
        self.post_receive(context, &mut request);
        self.complete_receive(
            context,
            &request,
            &Actual { source: None, tag: None, ..*actual },
            blocked,
            out,
        )
    }

    fn complete_receive(
        &mut self,
        context: &Context,
        request: &Request,
        actual: &Actual,
        blocked: Blocked,
        out: &mut Out,
    ) -> u64 {
        let bytes = actual.bytes.unwrap_or(request.bytes);
        if request.peer == rank::PROC_NULL {
            return 0;
        }
        if !request.off {
            self.received = self.received.saturating_add(bytes);
        }
        if request.emitted {
            return bytes;
        }
        if request.deferred && self.broken {
            self.unjoined += 1;
            return bytes;
        }
        if !request.deferred {
            let (channel, sequence) = (request.channel, request.sequence);
            let Request { at, call, .. } = *request;
            out.half(sequence, self.half(channel, sequence, at, blocked, bytes, call, false));
            return bytes;
        }
        self.wild.retain(|wild| wild.order != request.order);
        let peer = actual.source.unwrap_or(request.peer);
        let label = actual.tag.unwrap_or(request.tag);
        let comm = self.comms.get(request.comm as usize);
        let channel = comm.and_then(|comm| {
            let world = comm.world(peer).filter(|world| context.program.slot(*world).is_some())?;
            Some((comm.key, self.channel(comm, world, label, false)))
        });
        match channel {
            Some((key, channel)) => {
                let half = self.half(0, 0, request.at, blocked, bytes, request.call, false);
                let order = request.order;
                self.held.push(Held { order, comm: key, peer, tag: label, channel, half });
            }
            None => self.unjoined += 1,
        }
        self.release(out);
        bytes
    }

    /// Numbers held receives that no earlier wildcard can come before. Of those that are too many, the numbers
    /// stay unknown.
    fn release(&mut self, out: &mut Out) {
        if self.held.is_empty() {
            return;
        }
        let force = self.held.len() > MAX_HELD;
        self.held.sort_unstable_by_key(|held| held.order);
        let held = std::mem::take(&mut self.held);
        for mut one in held {
            let waits = self
                .wild
                .iter()
                .any(|wild| wild.order < one.order && wild.takes(one.comm, one.peer, one.tag));
            if waits && !force {
                self.held.push(one);
                continue;
            }
            if waits {
                self.receives.insert(one.channel, CUT);
                self.unjoined += 1;
                continue;
            }
            match Self::next(&mut self.receives, one.channel) {
                Some(sequence) => {
                    one.half.key = mix(one.channel, u64::from(sequence));
                    out.half(sequence, one.half);
                }
                None => self.unjoined += 1,
            }
        }
    }

    fn begin(&mut self, id: Option<u64>, request: Request, out: &mut Out) {
        let nowhere = Blocked::nowhere(request.at, request.call);
        let Some(id) = id.filter(|_| self.requests.len() < MAX_REQUESTS) else {
            // Nobody will see it complete; the other side can still be joined with it.
            self.emit_early(&request, nowhere, out);
            return;
        };
        if let Some(old) = self.requests.insert(id, request) {
            self.emit_early(&old, nowhere, out);
        }
    }

    /// Hands a send to the tables before it has completed.
    fn emit_early(&mut self, request: &Request, blocked: Blocked, out: &mut Out) {
        if request.emitted || !request.active {
            return;
        }
        if request.role == Role::Send {
            let Request { channel, sequence, at, bytes, call, .. } = *request;
            out.half(sequence, self.half(channel, sequence, at, blocked, bytes, call, true));
        } else if let Some((channel, sequence, bytes)) = request.with_send {
            let half = self.half(channel, sequence, request.at, blocked, bytes, request.call, true);
            out.half(sequence, half);
        }
    }

    /// What a call did to requests.
    fn outcomes(
        &mut self,
        context: &Context,
        blocked: &Blocked,
        runs: &[RequestRun],
        out: &mut Out,
    ) {
        for run in runs {
            if run.count as usize > self.requests.len().saturating_add(64) {
                // More than there are: a damaged file. Only those that exist matter.
                let mut ids: Vec<u64> = self
                    .requests
                    .keys()
                    .copied()
                    .filter(|id| id.wrapping_sub(run.first) < u64::from(run.count))
                    .collect();
                ids.sort_unstable();
                for id in ids {
                    self.outcome(context, blocked, id, run, out);
                }
                continue;
            }
            for place in 0..u64::from(run.count) {
                self.outcome(context, blocked, run.first.wrapping_add(place), run, out);
            }
        }
    }

    #[inline]
    fn outcome(
        &mut self,
        context: &Context,
        blocked: &Blocked,
        id: u64,
        run: &RequestRun,
        out: &mut Out,
    ) {
        match run.outcome {
            Outcome::Completed => {
                let Some(request) = self.requests.get_mut(&id) else { return };
                if !request.active {
                    return;
                }
                let done = *request;
                if request.persistent {
                    request.active = false;
                } else {
                    self.requests.remove(&id);
                }
                self.complete(context, &done, &run.actual, *blocked, out);
            }
            Outcome::Started => {
                let Some(mut request) = self.requests.get(&id).copied() else { return };
                if request.active {
                    return;
                }
                self.start(context, &mut request, blocked);
                self.requests.insert(id, request);
            }
            Outcome::Cancelled => {
                let Some(request) = self.requests.get(&id).copied() else {
                    // One that is not in the sample: those behind it can no longer be numbered.
                    self.broken |= context.pass == Pass::Sample;
                    return;
                };
                self.cancel(&request, out);
                match self.requests.get_mut(&id) {
                    Some(request) if request.persistent => request.active = false,
                    _ => {
                        self.requests.remove(&id);
                    }
                }
            }
            Outcome::Freed => {
                if let Some(request) = self.requests.remove(&id) {
                    let nowhere = Blocked::nowhere(request.at, blocked.call);
                    self.emit_early(&request, nowhere, out);
                    if request.active && request.role == Role::Receive {
                        // It still takes a message, but nobody sees when, and of a wildcard not which.
                        self.unjoined += 1;
                    }
                }
            }
            Outcome::Pending | Outcome::CancelAsked | Outcome::Ready => {}
        }
    }

    fn start(&mut self, context: &Context, request: &mut Request, blocked: &Blocked) {
        request.active = true;
        request.at = blocked.begin;
        request.emitted = false;
        request.deferred = false;
        let comm = Some(request.comm as usize);
        match request.role {
            Role::Send => {
                self.add_bytes(request.off, request.call, request.large, request.bytes);
                match self.post_send(
                    context,
                    request.off,
                    comm,
                    request.peer,
                    request.tag,
                    request.bytes,
                ) {
                    Some((channel, sequence)) => {
                        (request.channel, request.sequence) = (channel, sequence);
                    }
                    None => request.emitted = true,
                }
            }
            Role::Receive => self.post_receive(context, request),
            Role::Collective(shape) => {
                self.add_bytes(request.off, request.call, request.large, request.bytes);
                let rooted = matches!(shape, Shape::FromRoot | Shape::ToRoot);
                request.emitted = !self.enter_collective(shape, request, rooted);
            }
            Role::Other => {}
        }
    }

    fn complete(
        &mut self,
        context: &Context,
        request: &Request,
        actual: &Actual,
        blocked: Blocked,
        out: &mut Out,
    ) {
        match request.role {
            Role::Send if !request.emitted => {
                let Request { channel, sequence, at, bytes, call, .. } = *request;
                out.half(sequence, self.half(channel, sequence, at, blocked, bytes, call, true));
            }
            Role::Receive => {
                let mut blocked = blocked;
                if let Some((channel, sequence, bytes)) = request.with_send {
                    if blocked.group == 0 {
                        blocked.group = self.next_group();
                    }
                    let Request { at, call, .. } = *request;
                    out.half(
                        sequence,
                        self.half(channel, sequence, at, blocked, bytes, call, true),
                    );
                }
                let bytes = self.complete_receive(context, request, actual, blocked, out);
                self.add_bytes(request.off, request.call, request.large, bytes);
            }
            Role::Collective(_) if !request.emitted => {
                self.emit_collective(context, request, blocked, out);
            }
            _ => {}
        }
    }

    /// Takes a cancelled receive or send out of its channel: those posted later move up. None of them can
    /// have completed, since messages do not overtake each other.
    fn cancel(&mut self, request: &Request, out: &mut Out) {
        self.wild.retain(|wild| wild.order != request.order || request.role != Role::Receive);
        if !request.active || request.emitted || request.deferred {
            self.release(out);
            return;
        }
        let counters = match request.role {
            Role::Send => &mut self.sends,
            Role::Receive => &mut self.receives,
            _ => return,
        };
        if let Some(counter) = counters.get_mut(&request.channel).filter(|counter| **counter != CUT)
        {
            *counter = counter.saturating_sub(1);
        }
        for other in self.requests.values_mut() {
            if other.active
                && other.role == request.role
                && other.channel == request.channel
                && other.sequence > request.sequence
            {
                other.sequence -= 1;
            }
        }
        self.release(out);
    }

    /// Gives a collective its number on the communicator; false if it is not joined.
    fn enter_collective(&mut self, shape: Shape, request: &mut Request, rooted: bool) -> bool {
        let Some(comm) = self.comms.get_mut(request.comm as usize) else { return false };
        comm.sequence += 1;
        request.channel = mix(mix(comm.key, 0xc011), comm.sequence);
        request.root = rooted && request.peer == comm.rank;
        let neighbours = shape == Shape::Neighbours && comm.topology > 0;
        !self.broken && comm.remote_size == 0 && (comm.size > 1 || neighbours)
    }

    fn emit_collective(
        &mut self,
        context: &Context,
        request: &Request,
        mut blocked: Blocked,
        out: &mut Out,
    ) {
        let Some(comm) = self.comms.get(request.comm as usize) else { return };
        let (slot, call, at) = (self.slot, request.call, request.at);
        if request.role != Role::Collective(Shape::Neighbours) {
            out.arrival(Arrival {
                key: request.channel,
                at,
                blocked,
                slot,
                rank: u32::try_from(comm.rank).unwrap_or(0),
                size: comm.size,
                call,
                root: request.root,
            });
            return;
        }
        // A message to each neighbour and one from each; the call waits for the last.
        if blocked.group == 0 {
            self.groups = self.groups.wrapping_add(1).max(1);
            blocked.group = self.groups;
        }
        for (list, sends) in [(&comm.destinations, true), (&comm.sources, false)] {
            let mut seen: FastMap<u32, u64> = fast_map();
            for peer in list.iter().take(1 << 16) {
                let world = comm.members.get(peer).and_then(|world| u32::try_from(world).ok());
                let Some(world) = world.filter(|world| context.program.slot(*world).is_some())
                else {
                    continue;
                };
                // A neighbour can be there twice (a periodic dimension of two).
                let again = seen.entry(world).or_insert(0);
                *again += 1;
                let (from, to) = if sends { (self.world, world) } else { (world, self.world) };
                let pair = u64::from(from) << 32 | u64::from(to);
                let key = mix(mix(request.channel, pair), *again);
                let (bytes, collective) = (0, true);
                out.half(0, Half { key, at, blocked, slot, bytes, call, sends, collective });
            }
        }
    }

    fn fence(&mut self, window: u32, moment: &Moment, blocked: Blocked, out: &mut Out) {
        let Some(window) = self.windows.get_mut(&window) else { return };
        window.sequence += 1;
        let Some(comm) = self.comms.get(window.comm) else { return };
        if self.broken || comm.size < 2 || comm.remote_size > 0 {
            return;
        }
        out.arrival(Arrival {
            key: mix(window.key, window.sequence),
            at: moment.begin,
            blocked,
            slot: self.slot,
            rank: u32::try_from(comm.rank).unwrap_or(0),
            size: comm.size,
            call: blocked.call,
            root: false,
        });
    }

    /// At the end of a step: hands over sends and collectives that have been open for two steps, so that
    /// the other side does not wait for them in memory, and returns the time before which everything that
    /// others depend on has been handed over.
    pub fn settle(&mut self, out: &mut Out, horizon: i64) -> i64 {
        self.steps += 1;
        let mut earliest = i64::MAX;
        let mut old = Vec::new();
        for (id, request) in &self.requests {
            let sends = request.role == Role::Send || request.with_send.is_some();
            let needed = sends || matches!(request.role, Role::Collective(_));
            if !request.active || request.emitted || !needed {
                continue;
            }
            if request.at < horizon { old.push(*id) } else { earliest = earliest.min(request.at) }
        }
        old.sort_unstable();
        for id in old {
            let Some(request) = self.requests.get_mut(&id) else { continue };
            let mut taken = *request;
            // The receive of an exchange goes on.
            request.with_send = None;
            request.emitted = taken.role != Role::Receive;
            let nowhere = Blocked::nowhere(taken.at, taken.call);
            if let Role::Collective(_) = taken.role {
                let at = taken.at;
                if let Some(comm) = self.comms.get(taken.comm as usize)
                    && taken.role != Role::Collective(Shape::Neighbours)
                {
                    out.arrival(Arrival {
                        key: taken.channel,
                        at,
                        blocked: Blocked { end: i64::MAX >> 2, begin: i64::MAX >> 2, ..nowhere },
                        slot: self.slot,
                        rank: u32::try_from(comm.rank).unwrap_or(0),
                        size: comm.size,
                        call: taken.call,
                        root: taken.root,
                    });
                }
            } else {
                taken.emitted = false;
                self.emit_early(&taken, nowhere, out);
            }
        }
        earliest
    }

    /// At the end of the file.
    pub fn finish(&mut self, out: &mut Out) {
        self.settle(out, i64::MAX);
        self.release(out);
        // Which messages the wildcards before these have taken is not known.
        self.unjoined += self.held.len() as u64;
        self.held.clear();
        let threads: Vec<u16> = self.threads.keys().copied().collect();
        let last = self.last;
        for thread in threads {
            while self.threads.get(&thread).is_some_and(|thread| !thread.stack.is_empty()) {
                self.leave(thread, 0, last);
            }
        }
        self.requests = fast_map();
        self.sends = fast_map();
        self.receives = fast_map();
    }
}
