//! Random numbers of many ranks at once; see [`random::draw`].

use random::{GAMMA, MIX};

use crate::simd::Vector;

/// [`random::draw`] for many counters.
#[inline(always)]
pub(super) fn draw_many<V: Vector>(key: u64, counters: V) -> V {
    let number = |bits: u64| V::splat(bits as i64);
    let mut z = counters.mul(number(GAMMA)).add(number(key.wrapping_add(GAMMA)));
    z = z.xor(z.shr(30)).mul(number(MIX[0]));
    z = z.xor(z.shr(27)).mul(number(MIX[1]));
    z.xor(z.shr(31))
}
