//! Random numbers with random access: number `counter` of the stream `key`. Ranks need theirs again
//! when a detour hits them, in any order and on any thread; a stateful generator would have to be
//! stored per rank, and a block cipher costs more than the message it delays.
//!
//! The function is SplitMix64 (Steele, Lea and Flood, 2014), a counter followed by a mixer.

use crate::simd::Vector;

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
const MIX: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];

#[inline(always)]
pub fn draw(key: u64, counter: u64) -> u64 {
    let mut z = key.wrapping_add(counter.wrapping_add(1).wrapping_mul(GAMMA));
    z = (z ^ (z >> 30)).wrapping_mul(MIX[0]);
    z = (z ^ (z >> 27)).wrapping_mul(MIX[1]);
    z ^ (z >> 31)
}

/// The same for many counters.
#[inline(always)]
pub(super) fn draw_many<V: Vector>(key: u64, counters: V) -> V {
    let number = |bits: u64| V::splat(bits as i64);
    let mut z = counters.mul(number(GAMMA)).add(number(key.wrapping_add(GAMMA)));
    z = z.xor(z.shr(30)).mul(number(MIX[0]));
    z = z.xor(z.shr(27)).mul(number(MIX[1]));
    z.xor(z.shr(31))
}

/// A separate stream for a purpose and a run.
pub fn key(seed: u64, purpose: u64, run: u64) -> u64 {
    draw(draw(draw(seed, purpose), run), GAMMA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_splitmix64() {
        // First outputs of the published generator from the state 1234567.
        let expected =
            [6457827717110365317u64, 3203168211198807973, 9817491932198370423, 4593380528125082431];
        for (counter, value) in (0..).zip(expected) {
            assert_eq!(draw(1_234_567, counter), value);
        }
    }

    #[test]
    fn runs_and_purposes_do_not_share_a_stream() {
        let mut keys: Vec<_> =
            (0..50).flat_map(|run| (0..4).map(move |purpose| key(7, purpose, run))).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 200);
    }
}
