//! AVX-512 vectors: one register each.

use std::arch::x86_64::*;

use super::{LANES, Vector};

/// One register of a machine with AVX-512 (F and DQ). Code that names this type must have checked for
/// it: only [`widest`](crate::simd::widest) does.
#[derive(Clone, Copy, Debug)]
pub struct Wide(__m512i);

/// An AVX-512 instruction.
macro_rules! wide {
    ($name:ident($($value:expr),*)) => {
        // SAFETY: the machine has it, otherwise there would be no `Wide`; it accesses no memory.
        Wide(unsafe { $name($($value),*) })
    };
}

/// Lanes whose index is out of bounds.
#[inline(always)]
fn beyond(indices: Wide, len: usize) -> u8 {
    let Wide(len) = Wide::splat(len as i64);
    // SAFETY: as in `wide`. Unsigned, so that negative indices are out of bounds.
    unsafe { _mm512_cmpge_epu64_mask(indices.0, len) }
}

impl Vector for Wide {
    #[inline(always)]
    fn splat(value: i64) -> Wide {
        wide!(_mm512_set1_epi64(value))
    }

    #[inline(always)]
    fn load(values: &[i64; LANES]) -> Wide {
        // SAFETY: as in `wide`; the array is as long as the vector, and need not be aligned.
        Wide(unsafe { _mm512_loadu_si512(values.as_ptr().cast()) })
    }

    #[inline(always)]
    fn store(self, values: &mut [i64; LANES]) {
        // SAFETY: as in `load`.
        unsafe { _mm512_storeu_si512(values.as_mut_ptr().cast(), self.0) }
    }

    #[inline(always)]
    fn plus(self, other: Wide) -> Wide {
        wide!(_mm512_add_epi64(self.0, other.0))
    }

    #[inline(always)]
    fn minus(self, other: Wide) -> Wide {
        wide!(_mm512_sub_epi64(self.0, other.0))
    }

    #[inline(always)]
    fn times(self, other: Wide) -> Wide {
        wide!(_mm512_mullo_epi64(self.0, other.0))
    }

    #[inline(always)]
    fn times_low(self, other: Wide) -> Wide {
        wide!(_mm512_mul_epu32(self.0, other.0))
    }

    #[inline(always)]
    fn and(self, other: Wide) -> Wide {
        wide!(_mm512_and_epi64(self.0, other.0))
    }

    #[inline(always)]
    fn xor(self, other: Wide) -> Wide {
        wide!(_mm512_xor_epi64(self.0, other.0))
    }

    #[inline(always)]
    fn max(self, other: Wide) -> Wide {
        wide!(_mm512_max_epi64(self.0, other.0))
    }

    #[inline(always)]
    fn min(self, other: Wide) -> Wide {
        wide!(_mm512_min_epi64(self.0, other.0))
    }

    #[inline(always)]
    fn down(self, bits: u32) -> Wide {
        wide!(_mm512_srl_epi64(self.0, _mm_cvtsi32_si128(bits as i32)))
    }

    #[inline(always)]
    fn above(self, other: Wide) -> u8 {
        // SAFETY: as in `wide`.
        unsafe { _mm512_cmpgt_epi64_mask(self.0, other.0) }
    }

    #[inline(always)]
    fn any_above(these: [Wide; 2], others: [Wide; 2]) -> bool {
        these[0].above(others[0]) | these[1].above(others[1]) != 0
    }

    #[inline(always)]
    fn but(self, mask: u8, other: Wide) -> Wide {
        wide!(_mm512_mask_mov_epi64(self.0, mask, other.0))
    }

    #[inline(always)]
    fn squeeze(self, mask: u8) -> Wide {
        wide!(_mm512_maskz_compress_epi64(mask, self.0))
    }

    #[inline(always)]
    fn find(list: &[i64], indices: Wide) -> Wide {
        assert!(beyond(indices, list.len()) == 0, "index out of bounds");
        // SAFETY: as in `wide`; all indices are below the length, as checked above.
        Wide(unsafe { _mm512_i64gather_epi64::<8>(indices.0, list.as_ptr().cast()) })
    }

    #[inline(always)]
    fn find_short(list: &[u32], indices: Wide) -> Wide {
        assert!(beyond(indices, list.len()) == 0, "index out of bounds");
        // SAFETY: as in `find`.
        Wide(unsafe {
            let found = _mm512_i64gather_epi32::<4>(indices.0, list.as_ptr().cast());
            _mm512_cvtepu32_epi64(found)
        })
    }

    #[inline(always)]
    fn put(self, mask: u8, list: &mut [i64], indices: Wide) {
        assert!(beyond(indices, list.len()) & mask == 0, "index out of bounds");
        // SAFETY: as in `find`; only the lanes of the mask are written.
        unsafe {
            let list = list.as_mut_ptr().cast();
            _mm512_mask_i64scatter_epi64::<8>(list, mask, indices.0, self.0);
        }
    }
}
