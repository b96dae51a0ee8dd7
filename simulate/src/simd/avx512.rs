//! AVX-512 vectors: one register each.

use std::arch::x86_64::*;

use super::{LANES, Vector};

/// One register of a machine with AVX-512 (F and DQ). Code that names this type must have checked for
/// it: only [`widest`](crate::simd::widest) does.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(__m512i);

/// An AVX-512 instruction.
macro_rules! wide {
    ($name:ident($($value:expr),*)) => {
        // SAFETY: the machine has it, otherwise there would be no `Avx512`; it accesses no memory.
        Avx512(unsafe { $name($($value),*) })
    };
}

/// Lanes whose index is out of bounds.
#[inline(always)]
fn beyond(indices: Avx512, len: usize) -> u8 {
    let Avx512(len) = Avx512::splat(len as i64);
    // SAFETY: as in `wide`. Unsigned, so that negative indices are out of bounds.
    unsafe { _mm512_cmpge_epu64_mask(indices.0, len) }
}

impl Vector for Avx512 {
    #[inline(always)]
    fn splat(value: i64) -> Avx512 {
        wide!(_mm512_set1_epi64(value))
    }

    #[inline(always)]
    fn load(values: &[i64; LANES]) -> Avx512 {
        // SAFETY: as in `wide`; the array is as long as the vector, and need not be aligned.
        Avx512(unsafe { _mm512_loadu_si512(values.as_ptr().cast()) })
    }

    #[inline(always)]
    fn store(self, values: &mut [i64; LANES]) {
        // SAFETY: as in `load`.
        unsafe { _mm512_storeu_si512(values.as_mut_ptr().cast(), self.0) }
    }

    #[inline(always)]
    fn add(self, other: Avx512) -> Avx512 {
        wide!(_mm512_add_epi64(self.0, other.0))
    }

    #[inline(always)]
    fn sub(self, other: Avx512) -> Avx512 {
        wide!(_mm512_sub_epi64(self.0, other.0))
    }

    #[inline(always)]
    fn mul(self, other: Avx512) -> Avx512 {
        wide!(_mm512_mullo_epi64(self.0, other.0))
    }

    #[inline(always)]
    fn mul_low(self, other: Avx512) -> Avx512 {
        wide!(_mm512_mul_epu32(self.0, other.0))
    }

    #[inline(always)]
    fn and(self, other: Avx512) -> Avx512 {
        wide!(_mm512_and_epi64(self.0, other.0))
    }

    #[inline(always)]
    fn xor(self, other: Avx512) -> Avx512 {
        wide!(_mm512_xor_epi64(self.0, other.0))
    }

    #[inline(always)]
    fn max(self, other: Avx512) -> Avx512 {
        wide!(_mm512_max_epi64(self.0, other.0))
    }

    #[inline(always)]
    fn min(self, other: Avx512) -> Avx512 {
        wide!(_mm512_min_epi64(self.0, other.0))
    }

    #[inline(always)]
    fn shr(self, bits: u32) -> Avx512 {
        wide!(_mm512_srl_epi64(self.0, _mm_cvtsi32_si128(bits as i32)))
    }

    #[inline(always)]
    fn above(self, other: Avx512) -> u8 {
        // SAFETY: as in `wide`.
        unsafe { _mm512_cmpgt_epi64_mask(self.0, other.0) }
    }

    #[inline(always)]
    fn any_above(these: [Avx512; 2], others: [Avx512; 2]) -> bool {
        these[0].above(others[0]) | these[1].above(others[1]) != 0
    }

    #[inline(always)]
    fn select(self, mask: u8, other: Avx512) -> Avx512 {
        wide!(_mm512_mask_mov_epi64(self.0, mask, other.0))
    }

    #[inline(always)]
    fn compress(self, mask: u8) -> Avx512 {
        wide!(_mm512_maskz_compress_epi64(mask, self.0))
    }

    #[inline(always)]
    fn gather(list: &[i64], indices: Avx512) -> Avx512 {
        assert!(beyond(indices, list.len()) == 0, "index out of bounds");
        // SAFETY: as in `wide`; all indices are below the length, as checked above.
        Avx512(unsafe { _mm512_i64gather_epi64::<8>(indices.0, list.as_ptr().cast()) })
    }

    #[inline(always)]
    fn gather_u32(list: &[u32], indices: Avx512) -> Avx512 {
        assert!(beyond(indices, list.len()) == 0, "index out of bounds");
        // SAFETY: as in `find`.
        Avx512(unsafe {
            let found = _mm512_i64gather_epi32::<4>(indices.0, list.as_ptr().cast());
            _mm512_cvtepu32_epi64(found)
        })
    }

    #[inline(always)]
    fn scatter(self, mask: u8, list: &mut [i64], indices: Avx512) {
        assert!(beyond(indices, list.len()) & mask == 0, "index out of bounds");
        // SAFETY: as in `find`; only the lanes of the mask are written.
        unsafe {
            let list = list.as_mut_ptr().cast();
            _mm512_mask_i64scatter_epi64::<8>(list, mask, indices.0, self.0);
        }
    }
}
