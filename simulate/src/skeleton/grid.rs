//! Ranks on a grid: who is whose neighbour. Copies of the grid stand side by side and do not touch.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Ranks in each direction; 1 in the third of a grid in the plane.
    pub sides: [u64; 3],
    pub copies: u64,
}

impl Grid {
    /// Ranks of one copy.
    fn cells(&self) -> u64 {
        self.sides.iter().fold(1, |cells: u64, &side| cells.saturating_mul(side))
    }

    pub fn ranks(&self) -> u64 {
        self.cells().saturating_mul(self.copies)
    }

    /// The place of a rank in its copy.
    fn place(&self, rank: u64) -> [u64; 3] {
        let [x, y, _] = self.sides;
        let cell = rank % self.cells();
        [cell % x, cell / x % y, cell / x / y]
    }

    /// Every `stride`-th rank in each direction is active.
    pub fn is_active(&self, rank: u64, stride: u64) -> bool {
        stride == 1 || self.place(rank).iter().all(|at| at.is_multiple_of(stride))
    }

    /// The rank this many places away in one direction, unless that is beyond the border.
    pub fn neighbour(&self, rank: u64, direction: usize, up: bool, stride: u64) -> Option<u64> {
        let at = self.place(rank)[direction];
        let step = self.sides[..direction].iter().product::<u64>() * stride;
        if up {
            (at + stride < self.sides[direction]).then(|| rank + step)
        } else {
            (at >= stride).then(|| rank - step)
        }
    }

    /// The active ranks that share a face with this one, which is active too.
    pub fn neighbours(&self, rank: u64, stride: u64) -> impl Iterator<Item = u64> + '_ {
        let both = (0..3).flat_map(|direction| [(direction, false), (direction, true)]);
        both.filter_map(move |(direction, up)| self.neighbour(rank, direction, up, stride))
    }

    pub fn active(&self, stride: u64) -> u64 {
        let sides = self.sides.iter().map(|side| side.div_ceil(stride));
        sides.fold(self.copies, u64::saturating_mul)
    }

    /// Pairs of active neighbours.
    pub fn pairs(&self, stride: u64) -> u64 {
        let sides = self.sides.map(|side| side.div_ceil(stride));
        let along = |direction: usize| {
            let faces = (0..3).filter(|&other| other != direction).map(|other| sides[other]);
            faces.fold(sides[direction] - 1, u64::saturating_mul)
        };
        let pairs = along(0).saturating_add(along(1)).saturating_add(along(2));
        pairs.saturating_mul(self.copies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_mutual_and_as_many_as_the_sides_say() {
        for (sides, copies) in [([4, 3, 1], 1), ([5, 5, 5], 2), ([1, 1, 1], 3), ([7, 2, 3], 2)] {
            let grid = Grid { sides, copies };
            for stride in [1, 2, 4] {
                let active: Vec<u64> =
                    (0..grid.ranks()).filter(|&rank| grid.is_active(rank, stride)).collect();
                assert_eq!(active.len() as u64, grid.active(stride));
                let mut ends = 0;
                for &rank in &active {
                    for other in grid.neighbours(rank, stride) {
                        assert!(grid.is_active(other, stride), "{grid:?} {rank} {other}");
                        assert!(grid.neighbours(other, stride).any(|back| back == rank));
                        assert_eq!(other / grid.cells(), rank / grid.cells(), "another copy");
                        ends += 1;
                    }
                }
                assert_eq!(ends, 2 * grid.pairs(stride), "{grid:?} {stride}");
            }
        }
    }
}
