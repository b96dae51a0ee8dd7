//! The hash tables of the path that every record takes. Keys are small numbers that the kernel gives
//! out, so a quick hash does; std's is made to withstand keys chosen by an adversary.

pub type HashMap<Key, Value> = std::collections::HashMap<Key, Value, rustc_hash::FxBuildHasher>;
