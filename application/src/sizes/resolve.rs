//! Which of the functions that fit all traces is taken.
//!
//! In a dimension of two ranks both neighbours are the same one, so the traces of small runs often fit several
//! functions. Taken is what, at larger sizes, (1) agrees with the process grids that the program made, (2) has a
//! receive for each send, (3) has messages in both directions between two ranks if
//! the traces have, (4) does not always send to itself,
//! (5) has the most usual functions, and (6) grids, (7) has the fewest calls; of functions that differ in direction
//! only, the first call has the lower neighbour.

use std::collections::{BTreeMap, HashMap};

use super::{
    peers::{Family, Function, Grid, Trip, Wants},
    search::{Item, Kind, Shape, Tag},
};

/// Calls with one function.
#[derive(Clone, Copy, Debug)]
struct Use {
    sends: bool,
    function: Function,
    tag: Tag,
    trip: Trip,
    count: u64,
}

/// Functions of the calls of each class, one after the other.
pub type Chosen = HashMap<u32, Vec<Function>>;

/// How implausible something is; the least is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score {
    pub contradicts: bool,
    pub unmatched: u64,
    pub asymmetric: u64,
    pub to_itself: u64,
    /// Classes of calls with unusual functions.
    pub unusual: u64,
    /// How unusual the grid is.
    pub grid: u64,
    pub calls: u64,
}

/// Messages by sender and receiver.
pub type Graph = HashMap<(u32, u32), u64>;

/// A choice that the traces leave open.
#[derive(Clone, Debug)]
pub struct Open {
    pub class: u32,
    pub taken: Function,
    pub other: Function,
}

pub struct Resolved {
    pub chosen: Chosen,
    pub score: Score,
    pub open: Vec<Open>,
    /// Messages at the sizes that were looked at.
    pub graphs: Vec<Graph>,
}

/// Calls of one class.
struct Class {
    class: u32,
    use_: Use,
    /// Functions to choose from.
    options: Vec<Vec<Function>>,
}

/// Combinations that are tried.
const MOST: usize = 4_096;
/// Longest period that is looked for, in how many calls.
const PERIOD: usize = 2_048;
const LOOKED_AT: usize = 20_000;

pub fn resolve(
    items: &[Item],
    grid: Grid,
    sizes: &[u32],
    symmetric: bool,
    contradicts: bool,
) -> Resolved {
    let classes = classes(items);
    let combinations =
        classes.iter().try_fold(1usize, |all, class| all.checked_mul(class.options.len()));
    // Looks no further than to a score that is worse than one known.
    let judge = |picked: &[usize], most: u64| {
        let (unmatched, asymmetric, to_itself, unusual, calls) = (0, 0, 0, 0, 0);
        let usual = grid_rank(grid);
        let mut score =
            Score { contradicts, unmatched, asymmetric, to_itself, unusual, grid: usual, calls };
        for ranks in sizes {
            let (graph, unmatched) = graph(&uses(&classes, picked), grid, *ranks);
            score.unmatched += unmatched;
            score.asymmetric += asymmetry(&graph);
            if score.unmatched > most {
                break;
            }
        }
        score
    };
    let mut best = vec![0; classes.len()];
    let mut open = Vec::new();
    match combinations {
        Some(count) if count <= MOST => {
            let mut picked = best.clone();
            let mut least = judge(&picked, u64::MAX);
            let mut second: Option<Vec<usize>> = None;
            for _ in 1..count {
                // Those of the last calls vary first.
                for (place, class) in picked.iter_mut().zip(&classes).rev() {
                    *place += 1;
                    if *place < class.options.len() {
                        break;
                    }
                    *place = 0;
                }
                let score = judge(&picked, least.unmatched);
                if score < least {
                    (least, best, second) = (score, picked.clone(), None);
                } else if score == least && second.is_none() {
                    second = Some(picked.clone());
                }
            }
            if let Some(second) = second {
                for (place, class) in classes.iter().enumerate() {
                    let of = |picked: &[usize]| class.options[picked[place]].first().copied();
                    if let (Some(taken), Some(other)) = (of(&best), of(&second))
                        && taken != other
                    {
                        open.push(Open { class: class.class, taken, other });
                    }
                }
            }
        }
        // Too many to try all: one class after the other.
        _ => {
            for _ in 0..2 {
                for (place, class) in classes.iter().enumerate() {
                    let of = |option: usize| {
                        let mut picked = best.clone();
                        picked[place] = option;
                        judge(&picked, u64::MAX)
                    };
                    if let Some(least) = (0..class.options.len()).min_by_key(|one| of(*one)) {
                        best[place] = least;
                    }
                }
            }
        }
    }
    let mut score = judge(&best, u64::MAX);
    if !symmetric {
        score.asymmetric = 0;
    }
    score.calls = items.iter().map(|item| item.slots.len() as u64).sum();
    let taken = uses(&classes, &best);
    let own = |one: &&Use| one.function == Function::Own;
    score.to_itself = taken.iter().filter(own).map(|one| one.count).sum();
    score.unusual = taken.iter().filter(|one| one.function.is_unusual()).count() as u64;
    let graphs = sizes.iter().map(|ranks| graph(&taken, grid, *ranks).0).collect();
    let pick = |(class, option): (&Class, &usize)| (class.class, class.options[*option].clone());
    let chosen = classes.iter().zip(&best).map(pick).collect();
    Resolved { chosen, score, open, graphs }
}

fn grid_rank(grid: Grid) -> u64 {
    match grid.family {
        Family::Line | Family::Balanced { reversed: false, .. } => 0,
        Family::Balanced { reversed: true, .. } => 1,
        Family::Fixed { .. } => 2,
    }
}

fn uses(classes: &[Class], picked: &[usize]) -> Vec<Use> {
    let mut uses = Vec::new();
    for (class, option) in classes.iter().zip(picked) {
        let pattern = &class.options[*option];
        let (each, rest) =
            (class.use_.count / pattern.len() as u64, class.use_.count % pattern.len() as u64);
        for (place, function) in (0..).zip(pattern) {
            let count = each + u64::from(place < rest);
            uses.push(Use { function: *function, count, ..class.use_ });
        }
    }
    uses
}

/// The messages at a size, and how many sends or receives have no counterpart.
fn graph(uses: &[Use], grid: Grid, ranks: u32) -> (Graph, u64) {
    let place = grid.at(ranks);
    let mut graph = Graph::new();
    let mut balance: HashMap<Ends, i64> = HashMap::new();
    let mut wild: BTreeMap<Wild, u64> = BTreeMap::new();
    for one in uses {
        for value in one.trip.values(ranks) {
            for rank in 0..ranks {
                let peer = match one.function.of(&place, rank, value) {
                    Wants::Rank(peer) => Some(peer),
                    Wants::Any => None,
                    Wants::Absent | Wants::Null => continue,
                };
                let tag = match (peer, one.tag) {
                    // That of an unknown sender.
                    (None, Tag::Other(_)) => None,
                    _ => one.tag.of(rank, peer.unwrap_or(rank), one.trip.round(value)),
                };
                let count = one.count as i64;
                match peer {
                    Some(to) if one.sends => {
                        *graph.entry((rank, to)).or_insert(0) += one.count;
                        *balance.entry((to, rank, tag)).or_insert(0) += count;
                    }
                    Some(from) if tag.is_some() => {
                        *balance.entry((rank, from, tag)).or_insert(0) -= count;
                    }
                    _ => *wild.entry((tag.is_none(), rank, peer, tag)).or_insert(0) += one.count,
                }
            }
        }
    }
    let unmatched = match wild.is_empty() {
        true => balance.values().map(|left| left.unsigned_abs()).sum(),
        false => left_over(balance, wild),
    };
    (graph, unmatched)
}

/// Receiver, sender and tag.
type Ends = (u32, u32, Option<i32>);
/// Whether a receive takes any tag, which come last; its rank, source and tag.
type Wild = (bool, u32, Option<u32>, Option<i32>);

/// How many sends or receives have no counterpart. Wildcard receives of a rank take what its others leave, those with
/// any tag what those with a tag leave.
fn left_over(balance: HashMap<Ends, i64>, wild: BTreeMap<Wild, u64>) -> u64 {
    let mut unmatched: u64 = 0;
    let mut sends: BTreeMap<Ends, u64> = BTreeMap::new();
    for (ends, left) in balance {
        match u64::try_from(left) {
            Ok(0) => {}
            Ok(left) => {
                sends.insert(ends, left);
            }
            Err(_) => unmatched += left.unsigned_abs(),
        }
    }
    for ((_, rank, source, tag), mut count) in wild {
        let (least, most) = (source.unwrap_or(0), source.unwrap_or(u32::MAX));
        let own = sends.range_mut((rank, least, None)..=(rank, most, Some(i32::MAX)));
        let fits = own.filter(|((_, _, sent), _)| tag.is_none() || *sent == tag);
        for (_, left) in fits {
            let taken = count.min(*left);
            *left -= taken;
            count -= taken;
        }
        unmatched += count;
    }
    unmatched + sends.values().sum::<u64>()
}

/// How many messages have none in the other direction.
pub fn asymmetry(graph: &Graph) -> u64 {
    let other = |(from, to): &(u32, u32)| graph.get(&(*to, *from)).copied().unwrap_or(0);
    graph.iter().map(|(pair, count)| count.saturating_sub(other(pair))).sum()
}

fn classes(items: &[Item]) -> Vec<Class> {
    let mut found: Vec<(u32, Use, Vec<Function>)> = Vec::new();
    let mut places: HashMap<u32, usize> = HashMap::new();
    let mut sequence: Vec<u32> = Vec::new();
    for item in items {
        for slot in &item.slots {
            let Kind::Message { shape, function, others, tag } = &slot.kind else { continue };
            let Shape::Message { sends, .. } = *shape else { continue };
            if sequence.len() < LOOKED_AT {
                sequence.push(slot.class);
            }
            let place = *places.entry(slot.class).or_insert_with(|| {
                let use_ = Use { sends, function: *function, tag: *tag, trip: item.trip, count: 0 };
                let alike = others.iter().copied().filter(|other| alike(*function, *other));
                found.push((slot.class, use_, std::iter::once(*function).chain(alike).collect()));
                found.len() - 1
            });
            found[place].1.count += 1;
        }
    }
    let period = period(&sequence);
    let per_period = |class: u32, all: u64| match period {
        Some(period) => sequence.iter().take(period).filter(|one| **one == class).count() as u64,
        None => all,
    };
    let class = |(class, use_, functions): (u32, Use, Vec<Function>)| {
        let options = options(&functions, per_period(class, use_.count));
        Class { class, use_, options }
    };
    found.into_iter().map(class).collect()
}

/// Patterns of functions that the calls of a class may follow, of which there are so many in each period.
fn options(functions: &[Function], count: u64) -> Vec<Vec<Function>> {
    let mut options: Vec<Vec<Function>> = Vec::new();
    let single = functions.iter().take(8).map(|function| vec![*function]);
    // Few programs use several trees in turn.
    let trees = functions.iter().all(|function| is_parent(*function));
    if trees {
        options.extend(single.clone());
    }
    let several = functions.len().min(usize::try_from(count).unwrap_or(usize::MAX)).min(8);
    if several > 1 {
        let all = &functions[..several];
        options.push(all.to_vec());
        options.push(all.iter().rev().copied().collect());
        if count >= 4 && several == 2 {
            options.push(vec![all[0], all[0], all[1], all[1]]);
            options.push(vec![all[1], all[1], all[0], all[0]]);
        }
    }
    if !trees {
        options.extend(single);
    }
    options
}

/// Whether each rank but the first has one other in it.
fn is_parent(function: Function) -> bool {
    use Function::{HeapParent, HighBitParent, LowBitParent, Root};
    matches!(function, Root | LowBitParent | HighBitParent | HeapParent { .. })
}

/// Functions that differ in direction only, or in the kind of tree.
fn alike(one: Function, other: Function) -> bool {
    match (one, other) {
        (
            Function::Neighbour { offset: a, edge: b, parity: c },
            Function::Neighbour { offset: d, edge: e, parity: f },
        ) => {
            let far = |offset: [i8; 3]| offset.iter().map(|by| by.unsigned_abs()).sum::<u8>();
            far(a) == far(d) && b == e && c == f
        }
        (
            Function::Shift { distance: a, open: b, edge: c },
            Function::Shift { distance: d, open: e, edge: f },
        ) => a.abs() == d.abs() && b == e && c == f,
        _ => is_parent(one) && is_parent(other),
    }
}

/// After how many calls they repeat; None if they do not.
fn period(sequence: &[u32]) -> Option<usize> {
    let longest = PERIOD.min(sequence.len() / 2);
    (1..=longest).find(|period| {
        let pairs = sequence.iter().zip(&sequence[*period..]);
        let most = (sequence.len() - period) / 20;
        let mut different = 0;
        for (one, other) in pairs {
            different += usize::from(one != other);
            if different > most {
                return false;
            }
        }
        true
    })
}
