//! AVX2 vectors: two registers each. Missing instructions are emulated.

use std::arch::x86_64::*;

use super::{LANES, Plain, Vector};

/// For a machine with AVX2. Code that names this type must have checked for it: only
/// [`widest`](crate::simd::widest) does.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(__m256i, __m256i);

/// Applies an AVX2 instruction to both registers.
macro_rules! both {
    ($name:ident($a:expr, $b:expr)) => {{
        let (a, b): (Avx2, Avx2) = ($a, $b);
        // SAFETY: the machine has it, otherwise there would be no `Avx2`; it accesses no memory.
        unsafe { Avx2($name(a.0, b.0), $name(a.1, b.1)) }
    }};
}

impl Avx2 {
    /// All bits set in the lanes where self > other.
    #[inline(always)]
    fn where_above(self, other: Avx2) -> Avx2 {
        both!(_mm256_cmpgt_epi64(self, other))
    }

    /// All bits set in the lanes of a mask.
    #[inline(always)]
    fn lanes(mask: u8) -> Avx2 {
        let bits = Avx2::load(&[1, 2, 4, 8, 16, 32, 64, 128]);
        both!(_mm256_cmpeq_epi64(Avx2::splat(mask.into()).and(bits), bits))
    }

    /// Selects `other` in the lanes whose bits are set.
    #[inline(always)]
    fn blend(self, lanes: Avx2, other: Avx2) -> Avx2 {
        // SAFETY: as in `both`.
        unsafe {
            Avx2(
                _mm256_blendv_epi8(self.0, other.0, lanes.0),
                _mm256_blendv_epi8(self.1, other.1, lanes.1),
            )
        }
    }

    /// Whether all lanes are valid indices for a list of this length.
    #[inline(always)]
    fn all_below(self, len: usize) -> bool {
        Avx2::splat(len as i64).above(self) & self.above(Avx2::splat(-1)) == u8::MAX
    }

    #[inline(always)]
    fn numbers(self) -> [i64; LANES] {
        let mut numbers = [0; LANES];
        self.store(&mut numbers);
        numbers
    }
}

/// The lanes of one register, as pairs of halves, with those of a mask first; then the first repeated.
static FIRST: [[i32; 8]; 16] = {
    let mut all = [[0, 1, 0, 1, 0, 1, 0, 1]; 16];
    let mut mask = 0;
    while mask < 16 {
        let (mut lane, mut at) = (0, 0);
        while lane < 4 {
            if mask >> lane & 1 == 1 {
                all[mask][2 * at] = 2 * lane;
                all[mask][2 * at + 1] = 2 * lane + 1;
                at += 1;
            }
            lane += 1;
        }
        mask += 1;
    }
    all
};

impl Vector for Avx2 {
    #[inline(always)]
    fn splat(value: i64) -> Avx2 {
        // SAFETY: as in `both`.
        let half = unsafe { _mm256_set1_epi64x(value) };
        Avx2(half, half)
    }

    #[inline(always)]
    fn load(values: &[i64; LANES]) -> Avx2 {
        let [low, high] = values.as_chunks::<4>().0 else { unreachable!("two halves") };
        // SAFETY: as in `both`; the halves are as long as registers, and need not be aligned.
        unsafe {
            Avx2(_mm256_loadu_si256(low.as_ptr().cast()), _mm256_loadu_si256(high.as_ptr().cast()))
        }
    }

    #[inline(always)]
    fn store(self, values: &mut [i64; LANES]) {
        let [low, high] = values.as_chunks_mut::<4>().0 else { unreachable!("two halves") };
        // SAFETY: as in `load`.
        unsafe {
            _mm256_storeu_si256(low.as_mut_ptr().cast(), self.0);
            _mm256_storeu_si256(high.as_mut_ptr().cast(), self.1);
        }
    }

    #[inline(always)]
    fn add(self, other: Avx2) -> Avx2 {
        both!(_mm256_add_epi64(self, other))
    }

    #[inline(always)]
    fn sub(self, other: Avx2) -> Avx2 {
        both!(_mm256_sub_epi64(self, other))
    }

    #[inline(always)]
    fn mul(self, other: Avx2) -> Avx2 {
        let crossed = self.shr(32).mul_low(other).add(self.mul_low(other.shr(32)));
        // SAFETY: as in `both`.
        let crossed =
            unsafe { Avx2(_mm256_slli_epi64::<32>(crossed.0), _mm256_slli_epi64::<32>(crossed.1)) };
        self.mul_low(other).add(crossed)
    }

    #[inline(always)]
    fn mul_low(self, other: Avx2) -> Avx2 {
        both!(_mm256_mul_epu32(self, other))
    }

    #[inline(always)]
    fn and(self, other: Avx2) -> Avx2 {
        both!(_mm256_and_si256(self, other))
    }

    #[inline(always)]
    fn xor(self, other: Avx2) -> Avx2 {
        both!(_mm256_xor_si256(self, other))
    }

    #[inline(always)]
    fn max(self, other: Avx2) -> Avx2 {
        self.blend(other.where_above(self), other)
    }

    #[inline(always)]
    fn min(self, other: Avx2) -> Avx2 {
        self.blend(self.where_above(other), other)
    }

    #[inline(always)]
    fn shr(self, bits: u32) -> Avx2 {
        // SAFETY: as in `both`.
        unsafe {
            let bits = _mm_cvtsi32_si128(bits as i32);
            Avx2(_mm256_srl_epi64(self.0, bits), _mm256_srl_epi64(self.1, bits))
        }
    }

    #[inline(always)]
    fn above(self, other: Avx2) -> u8 {
        let lanes = self.where_above(other);
        // SAFETY: as in `both`. Four bits each.
        unsafe {
            let low = _mm256_movemask_pd(_mm256_castsi256_pd(lanes.0));
            let high = _mm256_movemask_pd(_mm256_castsi256_pd(lanes.1));
            (low | high << 4) as u8
        }
    }

    #[inline(always)]
    fn any_above(these: [Avx2; 2], others: [Avx2; 2]) -> bool {
        // Tests the sign bit of all lanes together.
        let apart = others[0].sub(these[0]);
        let apart = both!(_mm256_or_si256(apart, others[1].sub(these[1])));
        // SAFETY: as in `both`.
        unsafe {
            let any = _mm256_or_si256(apart.0, apart.1);
            _mm256_movemask_pd(_mm256_castsi256_pd(any)) != 0
        }
    }

    #[inline(always)]
    fn select(self, mask: u8, other: Avx2) -> Avx2 {
        self.blend(Avx2::lanes(mask), other)
    }

    #[inline(always)]
    fn compress(self, mask: u8) -> Avx2 {
        let (low, high) = (mask & 15, mask >> 4);
        // SAFETY: as in `both`; the tables are as long as registers.
        let compressed = unsafe {
            let in_low = _mm256_loadu_si256(FIRST[low as usize].as_ptr().cast());
            let in_high = _mm256_loadu_si256(FIRST[high as usize].as_ptr().cast());
            Avx2(
                _mm256_permutevar8x32_epi32(self.0, in_low),
                _mm256_permutevar8x32_epi32(self.1, in_high),
            )
        };
        let numbers = compressed.numbers();
        let mut together = numbers;
        let at = low.count_ones() as usize;
        together[at..at + 4].copy_from_slice(&numbers[4..]);
        Avx2::load(&together)
    }

    #[inline(always)]
    fn gather(list: &[i64], indices: Avx2) -> Avx2 {
        assert!(indices.all_below(list.len()), "index out of bounds");
        // SAFETY: as in `both`; all indices are below the length, as checked above.
        unsafe {
            let list = list.as_ptr();
            Avx2(
                _mm256_i64gather_epi64::<8>(list, indices.0),
                _mm256_i64gather_epi64::<8>(list, indices.1),
            )
        }
    }

    #[inline(always)]
    fn gather_u32(list: &[u32], indices: Avx2) -> Avx2 {
        assert!(indices.all_below(list.len()), "index out of bounds");
        // SAFETY: as in `find`.
        unsafe {
            let list = list.as_ptr().cast();
            Avx2(
                _mm256_cvtepu32_epi64(_mm256_i64gather_epi32::<4>(list, indices.0)),
                _mm256_cvtepu32_epi64(_mm256_i64gather_epi32::<4>(list, indices.1)),
            )
        }
    }

    #[inline(always)]
    fn scatter(self, mask: u8, list: &mut [i64], indices: Avx2) {
        Plain::load(&self.numbers()).scatter(mask, list, Plain::load(&indices.numbers()));
    }
}
