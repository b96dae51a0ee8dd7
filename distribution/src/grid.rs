//! Counts on a fixed grid: bins of one unit near an origin, and beyond that 8192 bins for every doubling
//! of the distance from it. Distances, not values: a sample whose values are all close to a second keeps
//! its digits.

/// Bins per doubling of the distance.
pub const PER_DOUBLING: u64 = 1 << 13;
const BITS: u32 = PER_DOUBLING.trailing_zeros() + 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    origin: i64,
    /// Below the origin, and at or above it: pages of bins, allocated when first used.
    sides: [Vec<Vec<u64>>; 2],
}

/// Values from `low` to `high`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atom {
    pub low: i64,
    pub high: i64,
    pub count: u64,
}

impl Atom {
    pub fn value(&self) -> i64 {
        self.low + (self.high - self.low) / 2
    }
}

/// Page and bin of a distance.
#[inline(always)]
fn place(distance: u64) -> (usize, usize) {
    let shift = (u64::BITS - distance.leading_zeros()).saturating_sub(BITS);
    // Of the first page, both halves are used; of all others, the upper half of the quotients.
    let index = (u64::from(shift) << (BITS - 1)) + (distance >> shift);
    ((index >> (BITS - 1)) as usize, (index & (PER_DOUBLING - 1)) as usize)
}

/// Smallest and largest distance in a bin.
fn extent(page: usize, bin: usize) -> (u64, u64) {
    if page == 0 {
        return (bin as u64, bin as u64);
    }
    let shift = page as u32 - 1;
    let low = (PER_DOUBLING + bin as u64) << shift;
    (low, low + ((1 << shift) - 1))
}

/// Width of the bin at a distance from the origin.
pub fn width(distance: u64) -> u64 {
    let shift = (u64::BITS - distance.leading_zeros()).saturating_sub(BITS);
    1 << shift
}

impl Grid {
    pub fn new(origin: i64) -> Grid {
        Grid { origin, sides: [Vec::new(), Vec::new()] }
    }

    pub fn origin(&self) -> i64 {
        self.origin
    }

    pub fn add(&mut self, values: &[i64]) {
        for &value in values {
            let distance = value.wrapping_sub(self.origin);
            let (page, bin) = place(distance.unsigned_abs());
            let side = &mut self.sides[usize::from(distance >= 0)];
            match side.get_mut(page).and_then(|page| page.get_mut(bin)) {
                Some(count) => *count += 1,
                None => new_page(side, page)[bin] += 1,
            }
        }
    }

    /// Exact, in any order; both must have the same origin.
    pub fn merge(&mut self, other: &Grid) {
        debug_assert_eq!(self.origin, other.origin);
        for (side, theirs) in self.sides.iter_mut().zip(&other.sides) {
            for (number, page) in theirs.iter().enumerate().filter(|(_, page)| !page.is_empty()) {
                let ours = new_page(side, number);
                ours.iter_mut().zip(page).for_each(|(count, more)| *count += more);
            }
        }
    }

    /// The bins that are not empty, in order.
    pub fn atoms(&self) -> Vec<Atom> {
        let filled = |side: usize| {
            let pages = self.sides[side].iter().enumerate();
            pages.flat_map(move |(page, bins)| {
                let counts = bins.iter().enumerate().filter(|(_, count)| **count > 0);
                counts.map(move |(bin, &count)| (extent(page, bin), count))
            })
        };
        let below = filled(0).map(|((near, far), count)| Atom {
            low: self.origin.wrapping_sub_unsigned(far),
            high: self.origin.wrapping_sub_unsigned(near),
            count,
        });
        let above = filled(1).map(|((near, far), count)| Atom {
            low: self.origin.wrapping_add_unsigned(near),
            high: self.origin.wrapping_add_unsigned(far),
            count,
        });
        let mut atoms: Vec<Atom> = below.collect();
        atoms.reverse();
        atoms.extend(above);
        atoms
    }
}

#[cold]
fn new_page(side: &mut Vec<Vec<u64>>, page: usize) -> &mut Vec<u64> {
    if side.len() <= page {
        side.resize(page + 1, Vec::new());
    }
    side[page].resize(PER_DOUBLING as usize, 0);
    &mut side[page]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_the_bin_that_contains_it() {
        for exponent in 0..62 {
            for offset in [-3i64, -1, 0, 1, 2] {
                for distance in [(1i64 << exponent) + offset, -(1i64 << exponent) - offset] {
                    let value = 1_000_000 + distance;
                    let mut grid = Grid::new(1_000_000);
                    grid.add(&[value]);
                    let atoms = grid.atoms();
                    let [atom] = atoms[..] else { panic!("{atoms:?}") };
                    assert!((atom.low..=atom.high).contains(&value), "{value}: {atom:?}");
                    let wide = (atom.high - atom.low + 1) as u64;
                    assert_eq!(wide, width(distance.unsigned_abs()));
                    assert!(wide == 1 || wide <= distance.unsigned_abs() / PER_DOUBLING);
                }
            }
        }
    }

    #[test]
    fn bins_are_in_order_and_do_not_overlap_whichever_half_they_were_counted_in() {
        let values: Vec<i64> =
            (0..20_000).map(|i| (random::draw(1, i) >> (1 + i % 50)) as i64).collect();
        let mut whole = Grid::new(values[0]);
        whole.add(&values);
        let (mut merged, mut rest) = (Grid::new(values[0]), Grid::new(values[0]));
        rest.add(&values[7_000..]);
        merged.add(&values[..7_000]);
        merged.merge(&rest);
        let atoms = whole.atoms();
        assert_eq!(atoms, merged.atoms());
        assert!(atoms.windows(2).all(|pair| pair[0].high < pair[1].low));
        assert_eq!(atoms.iter().map(|atom| atom.count).sum::<u64>(), 20_000);
    }
}
