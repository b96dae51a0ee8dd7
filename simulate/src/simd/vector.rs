//! Eight numbers at once: for loops with diverging lanes, gathers or compression, which the compiler
//! does not vectorise.

/// Lanes of a vector.
pub const LANES: usize = 8;

/// Vector operations. Sums and products wrap. A mask has a bit for each lane, the lowest for the
/// first.
pub trait Vector: Copy {
    fn splat(value: i64) -> Self;
    fn load(values: &[i64; LANES]) -> Self;
    fn store(self, values: &mut [i64; LANES]);
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// Product of the lower halves, unsigned.
    fn mul_low(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
    /// Logical shift right.
    fn shr(self, bits: u32) -> Self;
    /// Lanes where self > other.
    fn above(self, other: Self) -> u8;
    /// Whether any lane of the first two vectors is greater than that of the other two, if they are
    /// less than 2^63 apart.
    fn any_above(these: [Self; 2], others: [Self; 2]) -> bool;
    /// Selects `other` in the lanes of the mask.
    fn select(self, mask: u8, other: Self) -> Self;
    /// Compresses the lanes of the mask to the front, in order; the rest are zero or any of the
    /// numbers, so that valid indices stay valid.
    fn compress(self, mask: u8) -> Self;
    /// Gathers elements. Panics if an index is out of bounds.
    fn gather(list: &[i64], indices: Self) -> Self;
    /// Gathers 32-bit elements.
    fn gather_u32(list: &[u32], indices: Self) -> Self;
    /// Scatters the lanes of the mask to the indices, which must be distinct. Panics if one is out of
    /// bounds.
    fn scatter(self, mask: u8, list: &mut [i64], indices: Self);
}

/// Consecutive numbers, starting with this one.
#[inline(always)]
pub fn count_from<V: Vector>(first: usize) -> V {
    V::load(&[0, 1, 2, 3, 4, 5, 6, 7]).add(V::splat(first as i64))
}

/// Portable implementation.
#[derive(Clone, Copy, Debug)]
pub struct Plain([i64; LANES]);

impl Plain {
    #[inline(always)]
    fn with(self, other: Plain, each: impl Fn(i64, i64) -> i64) -> Plain {
        let mut all = [0; LANES];
        for (all, (&a, &b)) in all.iter_mut().zip(self.0.iter().zip(&other.0)) {
            *all = each(a, b);
        }
        Plain(all)
    }
}

impl Vector for Plain {
    #[inline(always)]
    fn splat(value: i64) -> Plain {
        Plain([value; LANES])
    }

    #[inline(always)]
    fn load(values: &[i64; LANES]) -> Plain {
        Plain(*values)
    }

    #[inline(always)]
    fn store(self, values: &mut [i64; LANES]) {
        *values = self.0;
    }

    #[inline(always)]
    fn add(self, other: Plain) -> Plain {
        self.with(other, i64::wrapping_add)
    }

    #[inline(always)]
    fn sub(self, other: Plain) -> Plain {
        self.with(other, i64::wrapping_sub)
    }

    #[inline(always)]
    fn mul(self, other: Plain) -> Plain {
        self.with(other, i64::wrapping_mul)
    }

    #[inline(always)]
    fn mul_low(self, other: Plain) -> Plain {
        self.with(other, |a, b| (u64::from(a as u32) * u64::from(b as u32)) as i64)
    }

    #[inline(always)]
    fn and(self, other: Plain) -> Plain {
        self.with(other, |a, b| a & b)
    }

    #[inline(always)]
    fn xor(self, other: Plain) -> Plain {
        self.with(other, |a, b| a ^ b)
    }

    #[inline(always)]
    fn max(self, other: Plain) -> Plain {
        self.with(other, i64::max)
    }

    #[inline(always)]
    fn min(self, other: Plain) -> Plain {
        self.with(other, i64::min)
    }

    #[inline(always)]
    fn shr(self, bits: u32) -> Plain {
        self.with(self, |a, _| (a as u64 >> bits) as i64)
    }

    #[inline(always)]
    fn above(self, other: Plain) -> u8 {
        // In 64-bit numbers, otherwise the compiler does not vectorise it.
        let mut bits = [0i64; LANES];
        for (lane, bit) in bits.iter_mut().enumerate() {
            *bit = if self.0[lane] > other.0[lane] { 1 << lane } else { 0 };
        }
        bits.iter().fold(0, |all, bit| all | bit) as u8
    }

    #[inline(always)]
    fn any_above(these: [Plain; 2], others: [Plain; 2]) -> bool {
        // Tests the sign bit of all lanes together.
        let mut all = 0;
        for (these, others) in these.iter().zip(&others) {
            for (this, other) in these.0.iter().zip(&others.0) {
                all |= other.wrapping_sub(*this);
            }
        }
        all < 0
    }

    #[inline(always)]
    fn select(self, mask: u8, other: Plain) -> Plain {
        let mut all = self.0;
        for (lane, (all, other)) in all.iter_mut().zip(other.0).enumerate() {
            *all = if i64::from(mask) & (1 << lane) != 0 { other } else { *all };
        }
        Plain(all)
    }

    #[inline(always)]
    fn compress(self, mask: u8) -> Plain {
        let (mut all, mut at) = (self.0, 0);
        for lane in 0..LANES {
            // Never beyond the lane itself.
            all[at] = self.0[lane];
            at += usize::from(mask >> lane & 1);
        }
        Plain(all)
    }

    #[inline(always)]
    fn gather(list: &[i64], indices: Plain) -> Plain {
        Plain(indices.0.map(|index| list[index as usize]))
    }

    #[inline(always)]
    fn gather_u32(list: &[u32], indices: Plain) -> Plain {
        Plain(indices.0.map(|index| i64::from(list[index as usize])))
    }

    #[inline(always)]
    fn scatter(self, mut mask: u8, list: &mut [i64], indices: Plain) {
        while mask != 0 {
            let lane = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            list[indices.0[lane] as usize] = self.0[lane];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        noise::draw,
        simd::{Kernel, WIDTHS, at_most, widest},
    };

    /// All operations, on numbers of all magnitudes.
    struct Everything;

    impl Kernel for Everything {
        type Output = Vec<i64>;

        fn run<V: Vector>(self) -> Vec<i64> {
            let mut all = Vec::new();
            let list: Vec<i64> = (0..100).map(|i| draw(9, i) as i64).collect();
            let short: Vec<u32> = (0..100).map(|i| draw(10, i) as u32).collect();
            let mut tell = |vector: V| {
                let mut values = [0; LANES];
                vector.store(&mut values);
                all.extend(values);
            };
            for i in 0..1000 {
                let number = |k: u64, lane| (draw(k, i * 8 + lane) as i64) >> (draw(3, i) % 64);
                let a = V::load(&std::array::from_fn(|lane| number(1, lane as u64)));
                let b = V::load(&std::array::from_fn(|lane| number(2, lane as u64)));
                let mask = draw(4, i) as u8;
                for vector in [
                    V::splat(i as i64),
                    a.add(b),
                    a.sub(b),
                    a.mul(b),
                    a.mul_low(b),
                    a.and(b),
                    a.xor(b),
                    a.max(b),
                    a.min(b),
                    a.shr(i as u32 % 64),
                    V::splat(a.above(b).into()),
                    V::splat(a.above(a).into()),
                    V::splat(V::any_above([a.shr(2), b], [b.shr(2), b]).into()),
                    V::splat(V::any_above([b, a.shr(2)], [b, b.shr(2)]).into()),
                    a.select(mask, b),
                    a.compress(u8::MAX),
                    V::gather(&list, a.and(V::splat(63))),
                    V::gather_u32(&short, b.and(V::splat(63))),
                ] {
                    tell(vector);
                }
                // The lanes after those of the mask are undefined.
                let kept = count_from::<V>(0).above(V::splat(i64::from(mask.count_ones()) - 1));
                tell(a.compress(mask).select(kept, V::splat(0)));
                let mut there = [7; 2 * LANES];
                a.scatter(mask, &mut there, count_from::<V>(0).add(count_from(0)));
                there.chunks_exact(LANES).for_each(|half| tell(V::load(half.try_into().unwrap())));
            }
            all
        }
    }

    #[test]
    fn vectors_of_all_widths_do_what_plain_ones_do() {
        for width in WIDTHS {
            assert_eq!(at_most(width, || widest(Everything)), Everything.run::<Plain>());
        }
    }

    struct Beyond(i64, bool);

    impl Kernel for Beyond {
        type Output = ();

        fn run<V: Vector>(self) {
            let index = count_from::<V>(0).add(V::splat(self.0));
            if self.1 {
                index.scatter(0x81, &mut [0; 8], index);
            } else {
                std::hint::black_box(V::gather(&[0; 8], index).above(V::splat(0)));
            }
        }
    }

    #[test]
    fn an_index_beyond_a_list_does_not_reach_it() {
        for put in [false, true] {
            widest(Beyond(0, put));
            for first in [-1, 1, i64::MAX - 7, i64::MIN] {
                let panics = |run: fn(Beyond)| std::panic::catch_unwind(|| run(Beyond(first, put)));
                assert!(panics(widest).is_err());
                assert!(panics(Beyond::run::<Plain>).is_err());
            }
        }
    }
}
