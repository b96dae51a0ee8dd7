//! Hash tables for keys that are mixed already or small: one multiplication, the same in every run.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hasher for integers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fast(u64);

impl Hasher for Fast {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

/// A table with it.
pub type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<Fast>>;

/// An empty one.
pub fn fast_map<K, V>() -> FastMap<K, V> {
    HashMap::default()
}

/// Mixes a word into a key.
#[inline]
pub(crate) fn mix(key: u64, word: u64) -> u64 {
    let mixed = (key ^ word.rotate_left(32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed ^ mixed >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ mixed >> 31
}
