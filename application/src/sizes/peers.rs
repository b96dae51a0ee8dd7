//! With whom a rank communicates, as a function of its number and the number of ranks.

/// With whom a rank communicates in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wants {
    /// It does not make the call.
    Absent,
    /// It calls with `MPI_PROC_NULL`.
    Null,
    Any,
    Rank(u32),
}

/// How the extents of a process grid follow from the number of ranks. The last dimension varies fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    Line,
    /// As `MPI_Dims_create` does it, or its extents the other way round.
    Balanced {
        dimensions: usize,
        reversed: bool,
    },
    /// One extent is the same at every size: that of the first dimension, or of the last.
    Fixed {
        extent: u32,
        first: bool,
    },
}

/// Extents of up to three dimensions.
pub type Extents = ([u32; 3], usize);

/// Factors of a number that are as close to each other as possible, the largest first, as `MPI_Dims_create` makes
/// them.
pub fn balanced(ranks: u32, dimensions: usize) -> [u32; 3] {
    let mut best = [ranks, 1, 1];
    if dimensions < 2 {
        return best;
    }
    let divisors = |number: u32| {
        let small = (1..).take_while(move |d| d * d <= u64::from(number));
        small.filter(move |d| u64::from(number).is_multiple_of(*d)).map(|d| d as u32)
    };
    let mut try_it = |mut dims: [u32; 3]| {
        dims.sort_unstable_by(|a, b| b.cmp(a));
        let spread = |dims: &[u32; 3]| (dims[0] - dims[dimensions - 1], dims[0]);
        if spread(&dims) < spread(&best) {
            best = dims;
        }
    };
    for small in divisors(ranks) {
        let rest = ranks / small;
        match dimensions {
            2 => try_it([rest, small, 1]),
            _ => divisors(rest).for_each(|middle| try_it([rest / middle, middle, small])),
        }
    }
    best
}

impl Family {
    /// None if this many ranks have no such grid.
    pub fn extents(self, ranks: u32) -> Option<Extents> {
        match self {
            Family::Line => Some(([ranks, 1, 1], 1)),
            Family::Balanced { dimensions, reversed } => {
                let mut dims = balanced(ranks, dimensions);
                if reversed {
                    dims[..dimensions].reverse();
                }
                Some((dims, dimensions))
            }
            Family::Fixed { extent, first } => {
                let rest = ranks.checked_div(extent)?;
                if rest == 0 || rest * extent != ranks {
                    return None;
                }
                Some((if first { [extent, rest, 1] } else { [rest, extent, 1] }, 2))
            }
        }
    }

    pub fn dimensions(self) -> usize {
        match self {
            Family::Line => 1,
            Family::Balanced { dimensions, .. } => dimensions,
            Family::Fixed { .. } => 2,
        }
    }
}

/// A process grid at any size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    pub family: Family,
    /// Dimensions that end at their borders.
    pub open: [bool; 3],
}

impl Grid {
    pub fn words(&self) -> String {
        let dimensions = self.family.dimensions();
        let name = match self.family {
            Family::Line => "a line of all ranks".to_owned(),
            Family::Balanced { reversed: false, .. } => {
                format!("a grid of {dimensions} dimensions as by MPI_Dims_create")
            }
            Family::Balanced { reversed: true, .. } => {
                format!("a grid of {dimensions} dimensions, the first one the shortest")
            }
            Family::Fixed { extent, first: true } => format!("a grid of {extent} rows"),
            Family::Fixed { extent, first: false } => format!("a grid of {extent} columns"),
        };
        let open = &self.open[..dimensions];
        let boundary = match (open.iter().all(|open| *open), open.iter().any(|open| *open)) {
            (true, _) => "open".to_owned(),
            (false, false) => "periodic".to_owned(),
            _ => {
                let names = open.iter().map(|open| if *open { "open" } else { "periodic" });
                names.collect::<Vec<_>>().join(" and ")
            }
        };
        format!("{name}, {boundary}")
    }

    pub fn at(self, ranks: u32) -> Place {
        Place { grid: self, ranks, extents: self.family.extents(ranks) }
    }
}

/// A grid of so many ranks.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub grid: Grid,
    pub ranks: u32,
    extents: Option<Extents>,
}

impl Place {
    fn coordinates(&self, rank: u32) -> Option<([u32; 3], Extents)> {
        let (dims, dimensions) = self.extents?;
        let (mut rest, mut at) = (rank, [0; 3]);
        for place in (0..dimensions).rev() {
            at[place] = rest % dims[place].max(1);
            rest /= dims[place].max(1);
        }
        Some((at, (dims, dimensions)))
    }

    fn neighbour(&self, rank: u32, offset: [i8; 3], edge: Edge) -> Wants {
        let Some((at, (dims, dimensions))) = self.coordinates(rank) else {
            return Wants::Absent;
        };
        let mut other = 0u32;
        for place in 0..dimensions {
            let (extent, by) = (i64::from(dims[place]), i64::from(offset[place]));
            let mut to = i64::from(at[place]) + by;
            if self.grid.open[place] && !(0..extent).contains(&to) {
                return if edge == Edge::Null { Wants::Null } else { Wants::Absent };
            }
            to = to.rem_euclid(extent.max(1));
            if edge == Edge::Once && by > 0 && extent == 2 {
                return Wants::Absent;
            }
            other = other * dims[place] + to as u32;
        }
        match other == rank && matches!(edge, Edge::NotSelf | Edge::Once) {
            true => Wants::Absent,
            false => Wants::Rank(other),
        }
    }

    /// The neighbours of a rank in the order of MPI's neighbourhood collectives.
    pub fn neighbours(&self, rank: u32) -> Vec<u32> {
        let mut list = Vec::new();
        for place in 0..self.grid.family.dimensions() {
            for by in [-1, 1] {
                let mut offset = [0; 3];
                offset[place] = by;
                if let Wants::Rank(other) = self.neighbour(rank, offset, Edge::Absent) {
                    list.push(other);
                }
            }
        }
        list
    }

    /// The ranks whose coordinates differ from this one's in the kept dimensions only.
    fn part(&self, rank: u32, kept: u8) -> Vec<u32> {
        let Some((at, (dims, dimensions))) = self.coordinates(rank) else {
            return Vec::new();
        };
        let mut list = vec![0u32];
        for place in 0..dimensions {
            let of = |before: &u32| -> Vec<u32> {
                let here = at[place];
                let all = if kept >> place & 1 == 1 { 0..dims[place] } else { here..here + 1 };
                all.map(|here| before * dims[place] + here).collect()
            };
            list = list.iter().flat_map(of).collect();
        }
        list
    }
}

/// What a rank does where it has no neighbour, or is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Edge {
    /// It does not make the call; as its own neighbour it makes it.
    Absent,
    /// It calls with `MPI_PROC_NULL`.
    Null,
    /// It does not communicate with itself.
    NotSelf,
    /// Nor twice with the same rank.
    Once,
}

/// Which ranks make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parity {
    Both,
    Even,
    Odd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    Neighbour {
        offset: [i8; 3],
        edge: Edge,
        parity: Parity,
    },
    /// On the line of all ranks.
    Shift {
        distance: i32,
        open: bool,
        edge: Edge,
    },
    /// Ranks 0 and 1, 2 and 3, …; or 1 and 2, 3 and 4, ….
    Pairs {
        odd: bool,
    },
    /// Without the lowest bit of the rank: the parent in a binomial tree.
    LowBitParent,
    HighBitParent,
    HeapParent {
        arity: u32,
    },
    HeapChild {
        arity: u32,
        child: u32,
    },
    Root,
    Last,
    Mirror,
    /// A call of every rank, of rank 0, or of all others.
    Own,
    OwnRoot,
    OwnOthers,
    AnyOfAll,
    AnyOfRoot,
    /// In loops, whose value is a distance or a rank.
    By {
        back: bool,
        open: bool,
    },
    Xor,
    Child,
    Parent,
    DoublingChild,
    DoublingParent,
    Listed,
    AnyListed,
    Ring {
        back: bool,
    },
}

fn rank_if(condition: bool, rank: u32) -> Wants {
    if condition { Wants::Rank(rank) } else { Wants::Absent }
}

fn shifted(ranks: u32, rank: u32, by: i64, open: bool, edge: Edge) -> Wants {
    let to = i64::from(rank) + by;
    match (open, (0..i64::from(ranks)).contains(&to)) {
        (true, false) if edge == Edge::Null => Wants::Null,
        (true, false) => Wants::Absent,
        _ => Wants::Rank(to.rem_euclid(i64::from(ranks.max(1))) as u32),
    }
}

impl Function {
    /// `value` is that of the loop around it.
    pub fn of(self, place: &Place, rank: u32, value: u32) -> Wants {
        let ranks = place.ranks;
        let (r, v) = (u64::from(rank), u64::from(value));
        match self {
            Function::Neighbour { offset, edge, parity } => {
                let of_parity = match (parity, place.coordinates(rank)) {
                    (Parity::Both, _) => true,
                    (_, None) => false,
                    (_, Some((at, (_, dimensions)))) => {
                        let along = (0..dimensions).find(|along| offset[*along] != 0);
                        let even = along.is_none_or(|along| at[along].is_multiple_of(2));
                        even == (parity == Parity::Even)
                    }
                };
                match of_parity {
                    true => place.neighbour(rank, offset, edge),
                    false => Wants::Absent,
                }
            }
            Function::Shift { distance, open, edge } => {
                shifted(ranks, rank, distance.into(), open, edge)
            }
            Function::Pairs { odd: false } => rank_if(rank ^ 1 < ranks, rank ^ 1),
            Function::Pairs { odd: true } => {
                let other = (r + 1) ^ 1;
                rank_if(other > 0 && other <= u64::from(ranks), other.wrapping_sub(1) as u32)
            }
            Function::LowBitParent => rank_if(rank > 0, rank & rank.wrapping_sub(1)),
            Function::HighBitParent => rank_if(
                rank > 0,
                rank - (1u32 << 31).checked_shr(rank.leading_zeros()).unwrap_or(0),
            ),
            Function::HeapParent { arity } => {
                rank_if(rank > 0, rank.saturating_sub(1) / arity.max(1))
            }
            Function::HeapChild { arity, child } => {
                let to = r * u64::from(arity) + u64::from(child) + 1;
                rank_if(to < u64::from(ranks), to as u32)
            }
            Function::Root => rank_if(rank != 0, 0),
            Function::Last => rank_if(rank + 1 != ranks, ranks.saturating_sub(1)),
            Function::Mirror => Wants::Rank(ranks.saturating_sub(1).saturating_sub(rank)),
            Function::Own => Wants::Rank(rank),
            Function::OwnRoot => rank_if(rank == 0, rank),
            Function::OwnOthers => rank_if(rank != 0, rank),
            Function::AnyOfAll => Wants::Any,
            Function::AnyOfRoot | Function::AnyListed => match rank {
                0 => Wants::Any,
                _ => Wants::Absent,
            },
            Function::By { back, open } => {
                let by = if back { -i64::from(value) } else { i64::from(value) };
                shifted(ranks, rank, by, open, Edge::Absent)
            }
            Function::Xor => rank_if(rank ^ value < ranks, rank ^ value),
            Function::Child => {
                rank_if(r % (2 * v).max(1) == 0 && r + v < u64::from(ranks), (r + v) as u32)
            }
            Function::Parent => rank_if(r % (2 * v).max(1) == v, rank.wrapping_sub(value)),
            Function::DoublingChild => rank_if(r < v && r + v < u64::from(ranks), (r + v) as u32),
            Function::DoublingParent => rank_if(v <= r && r < 2 * v, rank.wrapping_sub(value)),
            Function::Listed => rank_if(rank == 0 && value < ranks, value),
            Function::Ring { back } => {
                shifted(ranks, rank, if back { -1 } else { 1 }, false, Edge::Absent)
            }
        }
    }

    /// Whether few programs have it.
    pub fn is_unusual(self) -> bool {
        match self {
            Function::Neighbour { edge, parity, .. } => {
                edge == Edge::Once || parity != Parity::Both
            }
            Function::HeapParent { arity } | Function::HeapChild { arity, .. } => arity > 2,
            Function::Pairs { .. }
            | Function::Mirror
            | Function::Last
            | Function::HighBitParent
            | Function::DoublingChild
            | Function::DoublingParent => true,
            _ => false,
        }
    }

    pub fn words(self) -> String {
        let sign = |back: bool| if back { '-' } else { '+' };
        match self {
            Function::Neighbour { offset, parity, .. } => {
                let name = |(place, by): (usize, &i8)| {
                    (*by != 0).then(|| format!("{by:+} in dimension {place}"))
                };
                let parts: Vec<String> = offset.iter().enumerate().filter_map(name).collect();
                let of = match parity {
                    Parity::Both => "",
                    Parity::Even => ", of even ranks",
                    Parity::Odd => ", of odd ranks",
                };
                format!("grid neighbour {}{of}", parts.join(" and "))
            }
            Function::Shift { distance, open, .. } => {
                let around = if open { "" } else { ", around" };
                format!("rank {distance:+}{around}")
            }
            Function::Pairs { odd: false } => "pairs from rank 0".into(),
            Function::Pairs { odd: true } => "pairs from rank 1".into(),
            Function::LowBitParent => "parent in a binomial tree".into(),
            Function::HighBitParent => "parent in a doubling tree".into(),
            Function::HeapParent { arity } => format!("parent in a tree of arity {arity}"),
            Function::HeapChild { arity, child } => {
                format!("child {child} in a tree of arity {arity}")
            }
            Function::Root => "rank 0".into(),
            Function::Last => "the last rank".into(),
            Function::Mirror => "the rank as far from the end".into(),
            Function::Own => "itself".into(),
            Function::OwnRoot => "itself, rank 0 only".into(),
            Function::OwnOthers => "itself, all but rank 0".into(),
            Function::AnyOfAll => "any rank".into(),
            Function::AnyOfRoot => "any rank, of rank 0".into(),
            Function::By { back, open } => {
                let around = if open { "" } else { ", around" };
                format!("rank {}n{around}", sign(back))
            }
            Function::Xor => "butterfly: rank xor n".into(),
            Function::Child => "child of round n in a binomial tree".into(),
            Function::Parent => "parent of round n in a binomial tree".into(),
            Function::DoublingChild => "child of round n in a doubling tree".into(),
            Function::DoublingParent => "parent of round n in a doubling tree".into(),
            Function::Listed => "rank n, of rank 0".into(),
            Function::AnyListed => "any rank, of rank 0".into(),
            Function::Ring { back } => format!("rank {}1, around", sign(back)),
        }
    }
}

/// The functions to look for outside of loops, the simplest first.
pub fn functions(grid: &Grid) -> Vec<Function> {
    let dimensions = grid.family.dimensions();
    let mut offsets: Vec<[i8; 3]> = Vec::new();
    let axes = |by: i8| {
        (0..dimensions).flat_map(move |place| {
            [-by, by].map(|by| {
                let mut offset = [0; 3];
                offset[place] = by;
                offset
            })
        })
    };
    offsets.extend(axes(1));
    let steps = |place: usize| if place < dimensions { &[-1i8, 0, 1][..] } else { &[0i8][..] };
    for a in steps(0) {
        for b in steps(1) {
            for c in steps(2) {
                let far = [a, b, c].iter().filter(|by| ***by != 0).count();
                if far > 1 {
                    offsets.push([*a, *b, *c]);
                }
            }
        }
    }
    (2..=4).for_each(|by| offsets.extend(axes(by)));
    let mut list = Vec::new();
    for edge in [Edge::Absent, Edge::Null, Edge::NotSelf, Edge::Once] {
        for &offset in &offsets {
            list.push(Function::Neighbour { offset, edge, parity: Parity::Both });
        }
    }
    for offset in axes(1) {
        for parity in [Parity::Even, Parity::Odd] {
            list.push(Function::Neighbour { offset, edge: Edge::Absent, parity });
        }
    }
    if grid.family != Family::Line {
        for distance in [-1, 1, -2, 2] {
            for open in [false, true] {
                list.push(Function::Shift { distance, open, edge: Edge::Absent });
            }
            list.push(Function::Shift { distance, open: true, edge: Edge::Null });
        }
    } else {
        // A line has one kind of border; programs may have messages of both.
        for distance in [-1, 1, -2, 2] {
            list.push(Function::Shift { distance, open: !grid.open[0], edge: Edge::Absent });
        }
    }
    list.extend([Function::Pairs { odd: false }, Function::Pairs { odd: true }]);
    list.push(Function::LowBitParent);
    let heap = |arity: u32| {
        let children = (0..arity).map(move |child| Function::HeapChild { arity, child });
        std::iter::once(Function::HeapParent { arity }).chain(children)
    };
    list.extend(heap(2));
    list.extend([Function::Root, Function::Own]);
    list.extend((3..=4).flat_map(heap));
    list.extend([Function::HighBitParent, Function::Last, Function::Mirror]);
    list.extend([Function::AnyOfAll, Function::AnyOfRoot]);
    list
}

/// How often a loop is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trip {
    /// Not a loop.
    Once,
    /// With 1, 2, 4, … below the number of ranks.
    Up,
    Down,
    /// With 1, 2, 3, … below the number of ranks.
    Others,
    /// With 0, 1, 2, … below it.
    All,
}

impl Trip {
    pub fn values(self, ranks: u32) -> Vec<u32> {
        let powers = || (0..32).map(|bit| 1u32 << bit).take_while(|value| *value < ranks);
        match self {
            Trip::Once => vec![0],
            Trip::Up => powers().collect(),
            Trip::Down => powers().collect::<Vec<_>>().into_iter().rev().collect(),
            Trip::Others => (1..ranks).collect(),
            Trip::All => (0..ranks).collect(),
        }
    }

    /// Whether the loop runs with this value.
    pub fn has(self, ranks: u32, value: u32) -> bool {
        self == Trip::Once || value < ranks
    }

    /// Which round it is, counted from the nearest ranks.
    pub fn round(self, value: u32) -> i32 {
        match self {
            Trip::Up | Trip::Down => value.max(1).ilog2() as i32,
            _ => value as i32,
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            Trip::Once => "",
            Trip::Up => ", n = 1, 2, 4, … below the number of ranks",
            Trip::Down => ", n = …, 4, 2, 1 below the number of ranks",
            Trip::Others => ", n = 1, 2, 3, … below the number of ranks",
            Trip::All => ", n = 0, 1, 2, … below the number of ranks",
        }
    }
}

/// Functions that belong together in a loop.
pub fn styles(trip: Trip) -> &'static [&'static [Function]] {
    const ROUNDS: &[&[Function]] = &[
        &[Function::Xor],
        &[Function::By { back: false, open: false }, Function::By { back: true, open: false }],
        &[Function::Child, Function::Parent],
        &[Function::DoublingChild, Function::DoublingParent],
        &[Function::By { back: false, open: true }, Function::By { back: true, open: true }],
    ];
    const EACH: &[&[Function]] = &[
        &[Function::Listed],
        &[Function::AnyListed],
        &[Function::By { back: false, open: false }, Function::By { back: true, open: false }],
        &[Function::Xor],
        &[Function::Ring { back: false }, Function::Ring { back: true }],
    ];
    match trip {
        Trip::Once => &[],
        Trip::Up | Trip::Down => ROUNDS,
        Trip::Others | Trip::All => EACH,
    }
}

/// Ranks that call a collective together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Together {
    All,
    /// Those of a part of the grid: along these dimensions.
    Part {
        kept: u8,
    },
    /// So many that follow each other.
    Block {
        size: u32,
    },
    /// Those with the same number in each block.
    Across {
        size: u32,
    },
    /// The even or the odd ranks, the lower or the upper half.
    SameParity,
    Half,
}

impl Together {
    pub fn members(self, place: &Place, rank: u32) -> Vec<u32> {
        let ranks = place.ranks;
        match self {
            Together::All => (0..ranks).collect(),
            Together::Part { kept } => place.part(rank, kept),
            Together::Block { size } => {
                let first = rank - rank % size.max(1);
                (first..(first + size).min(ranks)).collect()
            }
            Together::Across { size } => {
                (rank % size.max(1)..ranks).step_by(size.max(1) as usize).collect()
            }
            Together::SameParity => (rank % 2..ranks).step_by(2).collect(),
            Together::Half => {
                let half = ranks / 2;
                if rank < half { (0..half).collect() } else { (half..ranks).collect() }
            }
        }
    }

    pub fn words(self) -> String {
        match self {
            Together::All => "all ranks".into(),
            Together::Part { kept } => {
                let names: Vec<String> = (0..3)
                    .filter(|place| kept >> place & 1 == 1)
                    .map(|place| place.to_string())
                    .collect();
                format!("ranks of the grid along dimension {}", names.join(" and "))
            }
            Together::Block { size } => format!("blocks of {size} ranks"),
            Together::Across { size } => format!("every {size}th rank"),
            Together::SameParity => "ranks of the same parity".into(),
            Together::Half => "the half of the ranks".into(),
        }
    }
}

/// The groups to look for.
pub fn groups(grid: &Grid) -> Vec<Together> {
    let mut list = vec![Together::All];
    let dimensions = grid.family.dimensions();
    list.extend((1..(1u8 << dimensions) - 1).map(|kept| Together::Part { kept }));
    list.extend([2, 4, 8, 16].map(|size| Together::Block { size }));
    list.extend([Together::SameParity, Together::Half]);
    list.extend([4, 8].map(|size| Together::Across { size }));
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_those_of_mpi() {
        for (ranks, two, three) in [
            (2, [2, 1], [2, 1, 1]),
            (4, [2, 2], [2, 2, 1]),
            (6, [3, 2], [3, 2, 1]),
            (8, [4, 2], [2, 2, 2]),
            (12, [4, 3], [3, 2, 2]),
            (16, [4, 4], [4, 2, 2]),
            (24, [6, 4], [4, 3, 2]),
            (64, [8, 8], [4, 4, 4]),
            (7, [7, 1], [7, 1, 1]),
        ] {
            assert_eq!(balanced(ranks, 2)[..2], two, "{ranks}");
            assert_eq!(balanced(ranks, 3), three, "{ranks}");
        }
    }

    #[test]
    fn every_rank_is_the_neighbour_of_its_neighbour() {
        for family in [
            Family::Line,
            Family::Balanced { dimensions: 2, reversed: false },
            Family::Balanced { dimensions: 3, reversed: true },
            Family::Fixed { extent: 3, first: true },
        ] {
            for open in [[false; 3], [true; 3]] {
                let grid = Grid { family, open };
                let there = |offset| Function::Neighbour {
                    offset,
                    edge: Edge::Absent,
                    parity: Parity::Both,
                };
                for rank in 0..12 {
                    let Wants::Rank(other) = there([1, 0, 0]).of(&grid.at(12), rank, 0) else {
                        continue;
                    };
                    let back = there([-1, 0, 0]).of(&grid.at(12), other, 0);
                    assert_eq!(back, Wants::Rank(rank), "{grid:?}");
                }
            }
        }
    }

    #[test]
    fn a_binomial_tree_has_one_parent_for_each_child() {
        let grid = Grid { family: Family::Line, open: [false; 3] };
        for ranks in [2, 4, 5, 8, 13] {
            let place = grid.at(ranks);
            for rank in 1..ranks {
                let of = |function: Function| {
                    Trip::Up.values(ranks).into_iter().filter_map(move |value| {
                        match function.of(&place, rank, value) {
                            Wants::Rank(to) => Some((to, value)),
                            _ => None,
                        }
                    })
                };
                let parents: Vec<(u32, u32)> = of(Function::Parent).collect();
                let [(parent, value)] = parents[..] else { panic!("{parents:?}") };
                assert_eq!(Function::Child.of(&place, parent, value), Wants::Rank(rank));
                assert_eq!(Function::LowBitParent.of(&place, rank, 0), Wants::Rank(parent));
                let parents: Vec<(u32, u32)> = of(Function::DoublingParent).collect();
                let [(parent, value)] = parents[..] else { panic!("{parents:?}") };
                assert_eq!(Function::DoublingChild.of(&place, parent, value), Wants::Rank(rank));
                assert_eq!(Function::HighBitParent.of(&place, rank, 0), Wants::Rank(parent));
            }
        }
    }
}
