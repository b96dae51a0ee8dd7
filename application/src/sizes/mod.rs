//! A program at sizes that were not traced, from traces of several sizes.
//!
//! The calls of all ranks of all traces are followed together ([`search`]); with whom a rank communicates becomes a
//! function of its number and the number of ranks ([`peers`]), sizes and computation become functions of the number
//! of ranks ([`laws`]). Where several functions fit, a documented rule decides ([`resolve`]), and what else would fit
//! is named.

mod events;
mod laws;
mod make;
mod peers;
mod resolve;
mod search;

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use mpi_abi::Call as MpiCall;
use thiserror::Error;

use self::{
    events::{Peer, Regions, Track, What},
    make::{Bytes, Known, Model},
    peers::{Family, Function, Grid, Together},
    resolve::{Graph, Resolved},
    search::{First, Item, Kind, Loops, Lost, Search, Shape, Tag, Traces},
};
use crate::step::{Application, Topology};

/// Why there is no program at other sizes.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SizesError {
    #[error("two traces of {ranks} ranks: use traces of different sizes")]
    SameSize { ranks: u32 },
    #[error("a trace of one rank has no communication: use traces of 2 ranks or more")]
    OneRank,
    #[error(
        "no known function of rank and number of ranks (shift, grid neighbour, tree, butterfly) \
         fits call {number} of rank {rank} of {ranks}, {call}, and those of the other ranks and \
         sizes: trace the size itself, or use one trace"
    )]
    NotFound { call: String, number: u32, rank: u32, ranks: u32 },
    #[error("{ranks} ranks are not possible: at least 2 are required")]
    Ranks { ranks: u64 },
    #[error("{ranks} ranks are not possible: the program uses {grid}")]
    NoGrid { ranks: u64, grid: String },
    #[error(
        "{ranks} ranks of {calls} calls each are too many for a schedule; simulate fewer ranks"
    )]
    TooLarge { ranks: u64, calls: u64 },
}

/// What was found about a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The MPI function.
    pub call: &'static str,
    /// None for collectives, and if it depends on rank or round.
    pub tag: Option<i32>,
    pub peers: String,
    pub bytes: String,
    /// Of the computation before it; empty if it is negligible.
    pub compute: String,
    /// Part of all computation.
    pub compute_share: f64,
    /// How often the traced programs make the call.
    pub count: u64,
}

/// A program at any size.
#[derive(Clone, Debug)]
pub struct Sizes {
    model: Model,
    /// Numbers of ranks of the traces, in increasing order.
    traced: Vec<u32>,
    pub found: Vec<Found>,
    /// What was assumed.
    pub assumed: Vec<String>,
}

/// Functions are compared at larger sizes, up to this many ranks.
const LOOKED_AT: u32 = 128;

/// A way of seeing the program that fits all traces.
struct Seen {
    grid: Grid,
    items: Vec<Item>,
    resolved: Resolved,
}

impl Sizes {
    /// `applications` are the same program with different numbers of ranks.
    pub fn new(applications: &[&Application]) -> Result<Sizes, SizesError> {
        let mut sorted = applications.to_vec();
        sorted.sort_by_key(|application| application.ranks());
        let traced: Vec<u32> = sorted.iter().map(|application| application.ranks()).collect();
        if let Some(pair) = traced.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(SizesError::SameSize { ranks: pair[0] });
        }
        if traced.first().is_none_or(|ranks| *ranks < 2) {
            return Err(SizesError::OneRank);
        }
        let mut regions = Regions::default();
        let tracks: Vec<Track<'_>> = sorted
            .iter()
            .flat_map(|application| events::tracks(application, &mut regions))
            .collect();
        let traces = Traces::new(&tracks);
        let most = traces.most_ranks();
        let larger = [2, 4, 8, 16].map(|times| most.saturating_mul(times));
        let sizes: Vec<u32> =
            larger.into_iter().filter(|ranks| *ranks <= (2 * most).max(LOOKED_AT)).collect();
        let symmetric = resolve::asymmetry(&traced_graph(&tracks, most)) == 0;
        let mut seen: Vec<Seen> = Vec::new();
        let mut farthest: Option<Lost> = None;
        let mut known: HashSet<u64> = HashSet::new();
        for grid in grids(&traced) {
            let contradicts = contradicts(&grid, &sorted);
            for loops in [Loops::Without, Loops::Rounds, Loops::Every, Loops::Doubling] {
                for first in [First::Most, First::Alike] {
                    let items = match Search::new(&traces, grid, loops, first).run() {
                        Ok(items) => items,
                        Err(lost) => {
                            if farthest.is_none_or(|most| lost.found > most.found) {
                                farthest = Some(lost);
                            }
                            continue;
                        }
                    };
                    if !known.insert(signature(&items, &grid)) {
                        continue;
                    }
                    let resolved = resolve::resolve(&items, grid, &sizes, symmetric, contradicts);
                    let done = resolved.score.unmatched == 0;
                    seen.push(Seen { grid, items, resolved });
                    if done {
                        break;
                    }
                }
            }
        }
        let best = seen.iter().enumerate().min_by_key(|(place, one)| (one.resolved.score, *place));
        let Some((place, _)) = best else { return Err(not_found(&tracks, farthest)) };
        let best = seen.swap_remove(place);
        let mut assumed = Vec::new();
        if best.resolved.score.unmatched > 0 {
            assumed.push("not every message has a receive at other sizes".to_owned());
        }
        assumed.extend(also(&best, &seen));
        let Seen { grid, items, resolved } = best;
        let Resolved { chosen, open, .. } = resolved;
        let model = Model::new(&tracks, &items, grid, chosen, regions.names);
        for open in &open {
            let known = model.classes.iter().find(|(class, _)| *class == open.class);
            let name = known.map_or("a call", |(_, known)| call_name(&known.kind));
            assumed.push(format!(
                "{name}: {} fits the traces as well as {}, which is used",
                open.other.words(),
                open.taken.words()
            ));
        }
        let classes = model.classes.iter();
        let found = classes.filter_map(|(class, known)| found(known, model.chosen(*class)));
        let found: Vec<Found> = found.collect();
        assumed.extend(model.classes.iter().flat_map(|(_, known)| doubtful(known)));
        assumed.dedup();
        Ok(Sizes { model, traced, found, assumed })
    }

    /// Numbers of ranks of the traces, in increasing order.
    pub fn traced(&self) -> &[u32] {
        &self.traced
    }

    /// The program with this many ranks.
    pub fn at(&self, ranks: u64) -> Result<Application, SizesError> {
        self.model.at(ranks)
    }
}

/// Identifies the calls and their functions, whatever grid they were found with if they do not use it.
fn signature(items: &[Item], grid: &Grid) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut uses_grid = false;
    for item in items {
        item.trip.hash(&mut hasher);
        for slot in &item.slots {
            match &slot.kind {
                Kind::Message { shape, function, tag, .. } => {
                    uses_grid |= matches!(function, Function::Neighbour { .. });
                    (shape, function, tag).hash(&mut hasher);
                }
                Kind::Collective { shape, together, root } => {
                    uses_grid |= matches!(together, Together::Part { .. })
                        || matches!(shape, Shape::Collective { neighbours: true, .. });
                    (shape, together, root).hash(&mut hasher);
                }
                Kind::Region { shape, function } => (shape, function).hash(&mut hasher),
                Kind::Wait { of, among } => (of, among).hash(&mut hasher),
            }
        }
    }
    if uses_grid {
        grid.hash(&mut hasher);
    }
    hasher.finish()
}

/// The process grids to look for, the simplest first.
fn grids(traced: &[u32]) -> Vec<Grid> {
    let mut families = vec![Family::Line];
    for dimensions in [2, 3] {
        for reversed in [false, true] {
            families.push(Family::Balanced { dimensions, reversed });
        }
    }
    for extent in 2..=8 {
        for first in [true, false] {
            families.push(Family::Fixed { extent, first });
        }
    }
    let mut grids: Vec<Grid> = Vec::new();
    let mut known: Vec<(Vec<peers::Extents>, u8, bool)> = Vec::new();
    for family in families {
        let extents: Option<Vec<peers::Extents>> =
            traced.iter().map(|ranks| family.extents(*ranks)).collect();
        let Some(extents) = extents else { continue };
        let dimensions = family.dimensions();
        for open in 0..1u8 << dimensions {
            let fixed = matches!(family, Family::Fixed { .. });
            let same = (extents.clone(), open, fixed);
            if known.contains(&same) {
                continue;
            }
            known.push(same);
            grids.push(Grid { family, open: [0, 1, 2].map(|place| open >> place & 1 == 1) });
        }
    }
    grids
}

/// Whether the programs made grids, and not these.
fn contradicts(grid: &Grid, applications: &[&Application]) -> bool {
    let dimensions = grid.family.dimensions();
    let same = |topology: &Topology, ranks: u32| {
        let extents = grid.family.extents(ranks);
        let open = grid.open[..dimensions].iter();
        extents.is_some_and(|(dims, count)| dims[..count] == topology.dims[..])
            && open.zip(&topology.periodic).all(|(open, periodic)| open != periodic)
    };
    applications.iter().any(|application| {
        let grids = &application.grids;
        !grids.is_empty() && !grids.iter().any(|topology| same(topology, application.ranks()))
    })
}

fn traced_graph(tracks: &[Track<'_>], ranks: u32) -> Graph {
    let mut graph = Graph::new();
    for track in tracks.iter().filter(|track| track.ranks == ranks) {
        for event in &track.events {
            if let What::Message { sends: true, peer: Peer::Rank(to), .. } = event.what {
                *graph.entry((track.rank, to)).or_insert(0) += 1;
            }
        }
    }
    graph
}

fn name(mpi: u16) -> &'static str {
    MpiCall::from_number(mpi).map_or("a call", MpiCall::name)
}

fn call_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Message { shape: Shape::Message { mpi, .. }, .. }
        | Kind::Collective { shape: Shape::Collective { mpi, .. }, .. } => name(*mpi),
        _ => "a call",
    }
}

fn not_found(tracks: &[Track<'_>], lost: Option<Lost>) -> SizesError {
    let Some(lost) = lost else { return SizesError::OneRank };
    let Some(track) = tracks.get(lost.track) else { return SizesError::OneRank };
    let Some(event) = track.events.get(lost.event as usize) else { return SizesError::OneRank };
    let call = match &event.what {
        What::Message { sends, peer, tag, .. } => {
            let way = if *sends { "to" } else { "from" };
            let peer = match peer {
                Peer::Rank(rank) => format!("rank {rank}"),
                Peer::Any => "any rank".to_owned(),
                Peer::Null => "no rank".to_owned(),
            };
            let tag = tag.map_or(String::new(), |tag| format!(" with tag {tag}"));
            format!("{} {way} {peer}{tag}", name(event.mpi))
        }
        What::Collective { call, .. } => {
            let call = track.tape.calls.get(*call as usize);
            let group = call.and_then(|call| track.application.groups.get(call.group as usize));
            let members = group.map_or(0, |group| group.members.len());
            format!("{} of {members} ranks", name(event.mpi))
        }
        What::Wait { of, .. } => {
            let started =
                track.events.get(*of as usize).map_or("a request", |event| name(event.mpi));
            format!("a wait for {started}")
        }
        What::Region { .. } => "the border of a region".to_owned(),
    };
    SizesError::NotFound { call, number: lost.event + 1, rank: track.rank, ranks: track.ranks }
}

/// Other ways of seeing the program, as plausible or less so, that have other messages at larger sizes.
fn also(best: &Seen, others: &[Seen]) -> Option<String> {
    let own = &best.resolved.score;
    let differs = |one: &&Seen| {
        let score = &one.resolved.score;
        score.unmatched == 0
            && score.contradicts <= own.contradicts
            && score.to_itself <= own.to_itself
            && score.unusual <= own.unusual
            && score.grid <= own.grid
            && one.resolved.graphs != best.resolved.graphs
    };
    let mut names: Vec<String> = Vec::new();
    for one in others.iter().filter(differs) {
        let name = shape_words(one);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.retain(|name| *name != shape_words(best));
    names.truncate(3);
    (!names.is_empty()).then(|| {
        format!(
            "the traces also fit {}; {} is used; a trace of another size can decide",
            names.join("; "),
            shape_words(best)
        )
    })
}

/// What a way of seeing the program is made of.
fn shape_words(seen: &Seen) -> String {
    let mut words: Vec<&str> = Vec::new();
    let mut grid = false;
    for slot in seen.items.iter().flat_map(|item| &item.slots) {
        let Kind::Message { function, .. } = &slot.kind else { continue };
        let word = match function {
            Function::Neighbour { .. } => {
                grid = true;
                continue;
            }
            Function::Xor => "a butterfly",
            Function::By { .. } => "rounds of shifts",
            Function::Shift { .. } | Function::Ring { .. } => "shifts",
            Function::Listed | Function::Root | Function::AnyListed | Function::AnyOfRoot => {
                "messages with rank 0"
            }
            Function::Pairs { .. } => "pairs",
            _ => "a tree",
        };
        if !words.contains(&word) {
            words.push(word);
        }
    }
    let mut all: Vec<String> = words.into_iter().map(str::to_owned).collect();
    if grid {
        all.insert(0, seen.grid.words());
    }
    match all.is_empty() {
        true => "no messages".to_owned(),
        false => all.join(" with "),
    }
}

fn found(known: &Known, chosen: &[Function]) -> Option<Found> {
    let (peers, tag) = match &known.kind {
        Kind::Message { function, tag, .. } => {
            let tag = match tag {
                Tag::Is(tag) => Some(*tag),
                _ => None,
            };
            let mut words: Vec<String> = chosen.iter().map(|function| function.words()).collect();
            if words.is_empty() {
                words.push(function.words());
            }
            (format!("{}{}", words.join(", then "), known.trip.words()), tag)
        }
        Kind::Collective { together, .. } => (together.words(), None),
        _ => return None,
    };
    let bytes = match known.bytes {
        Bytes::Exact { factor, law: laws::Law::Constant, power: 0, .. } => {
            format!("{:.0} B", factor)
        }
        Bytes::Exact { law, power, .. } => {
            let value = match power {
                0 => "",
                1 => " times n",
                _ => " divided by n",
            };
            format!("{}{value}", law.words())
        }
        Bytes::Sampled { law } => format!("as traced, {}", law.words()),
    };
    let compute = match known.share >= 0.001 {
        true => known.compute.words(),
        false => String::new(),
    };
    Some(Found {
        call: call_name(&known.kind),
        tag,
        peers,
        bytes,
        compute,
        compute_share: known.share,
        count: known.count,
    })
}

fn doubtful(known: &Known) -> Vec<String> {
    let name = call_name(&known.kind);
    let mut list = Vec::new();
    if let Bytes::Exact { only: ranks @ 1.., law, .. } = known.bytes
        && matches!(known.kind, Kind::Message { .. })
    {
        list.push(format!(
            "{name}: sizes are known at {ranks} ranks only; assumed {}",
            law.words()
        ));
    } else if let Bytes::Exact { assumed: true, law, .. } = known.bytes {
        list.push(format!("{name}: sizes fit no known function; assumed {}", law.words()));
    }
    if let (Bytes::Sampled { .. }, Kind::Message { .. } | Kind::Collective { .. }) =
        (known.bytes, &known.kind)
    {
        list.push(format!(
            "{name}: ranks have different sizes; those of the largest trace are repeated"
        ));
    }
    if known.compute_assumed {
        let what = match &known.kind {
            Kind::Wait { .. } => "a wait".to_owned(),
            Kind::Region { .. } => "a region".to_owned(),
            _ => name.to_owned(),
        };
        list.push(format!(
            "computation before {what} ({:.1} % of all) fits no known function; assumed {}",
            100.0 * known.share,
            known.compute.words()
        ));
    }
    list
}
