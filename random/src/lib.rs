//! Random numbers with random access: number `counter` of the stream `key`. Ranks need theirs again
//! when a detour hits them, in any order and on any thread; a stateful generator would have to be
//! stored per rank, and a block cipher costs more than the message it delays.
//!
//! The function is SplitMix64 (Steele, Lea and Flood, 2014), a counter followed by a mixer. Where numbers
//! are used one after another, [`Stream`] is a generator for [`rand`] and its distributions.

#![forbid(unsafe_code)]

pub mod bootstrap;

use std::convert::Infallible;

use rand::TryRng;

/// Constants of the mixer, for vectorised versions of it.
pub const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
pub const MIX: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];

#[inline(always)]
pub fn draw(key: u64, counter: u64) -> u64 {
    let mut z = key.wrapping_add(counter.wrapping_add(1).wrapping_mul(GAMMA));
    z = (z ^ (z >> 30)).wrapping_mul(MIX[0]);
    z = (z ^ (z >> 27)).wrapping_mul(MIX[1]);
    z ^ (z >> 31)
}

/// A separate stream for a purpose and a run.
pub fn key(seed: u64, purpose: u64, run: u64) -> u64 {
    draw(draw(draw(seed, purpose), run), GAMMA)
}

/// The numbers of a stream, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    key: u64,
    counter: u64,
}

impl Stream {
    pub const fn new(key: u64) -> Stream {
        Stream { key, counter: 0 }
    }
}

impl TryRng for Stream {
    type Error = Infallible;

    #[inline]
    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        // The upper half: the better bits of a product.
        Ok((self.try_next_u64()? >> 32) as u32)
    }

    #[inline]
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let number = draw(self.key, self.counter);
        self.counter = self.counter.wrapping_add(1);
        Ok(number)
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            let number = self.try_next_u64()?.to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, RngExt};

    use super::*;

    /// First outputs of the published generator from the state 1234567.
    const PUBLISHED: [u64; 4] =
        [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431];

    #[test]
    fn it_is_splitmix64() {
        let mut stream = Stream::new(1_234_567);
        for (counter, value) in (0..).zip(PUBLISHED) {
            assert_eq!(draw(1_234_567, counter), value);
            assert_eq!(stream.next_u64(), value);
        }
    }

    #[test]
    fn bytes_are_those_of_the_numbers() {
        let mut bytes = [0; 12];
        Stream::new(1_234_567).fill_bytes(&mut bytes);
        assert_eq!(bytes[..8], PUBLISHED[0].to_le_bytes());
        assert_eq!(bytes[8..], PUBLISHED[1].to_le_bytes()[..4]);
    }

    /// Results of simulations depend on it: a number below n is the upper half of a product with n.
    #[test]
    fn a_number_from_a_range_is_a_scaled_one() {
        let mut stream = Stream::new(7);
        for counter in 0..1000 {
            let scaled = (u128::from(draw(7, counter)) * 1_000_003) >> 64;
            assert_eq!(u128::from(stream.random_range(0..1_000_003u64)), scaled);
        }
        let unit = (draw(7, 1000) >> 11) as f64 / (1u64 << 53) as f64;
        assert_eq!(stream.random::<f64>(), unit);
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
